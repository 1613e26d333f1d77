//! An I/O that its device has no room for is given to the device again when that has answered
//! another one.
//!
//! io_uring lets a thread of its own wait with an I/O that finds a full queue, and makes that
//! thread first. A thread takes memory. Where memory is short, the shard then waits for memory that
//! comes only once its own array has written pages of others (swap, a file system's), and both wait
//! for ever. So the kernel is asked to refuse instead of to wait (RWF_NOWAIT, EAGAIN).
//!
//! Invariants:
//! * While an I/O waits here, the kernel has another one of its device; the answer to that one
//!   ends the wait. Nothing waits here for time to pass.
//! * Each device takes them in their order: what begins lines up behind what waits, and what is
//!   refused once more stays the first.
//! * The deadline of what waits goes on.
//! * An I/O that is longer than one request to its device goes in parts, one after the other: the
//!   kernel refuses what it would have to split.
//! * The kernel refuses for other reasons, too (a device that is suspended, pages of it in the page
//!   cache): what was refused again and again, and what no other I/O of the device is ahead of, the
//!   kernel may wait with.
//!
//! Deliberately absent: calls that always block (`limiter`), files, which may block for many
//! reasons, and devices of which it is not known how long a request may be, or where that depends
//! on the place.

use super::*;

/// So often an I/O is refused, before the kernel may wait with it.
const REFUSALS_MOST: u8 = 8;

/// Whether the kernel may wait with an I/O until there is room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// It may.
    Awaited,
    /// It refuses the I/O instead, and has done so this often.
    Asked(u8),
    /// The I/O was refused this often, and the kernel does not have it.
    Missing(u8),
}

impl Room {
    /// Of an I/O that begins, on a device of which requests of so many bytes are refused.
    pub(super) fn of(work: &Work, refuses: usize) -> Room {
        match work {
            Work::Flush | Work::Range { .. } => Room::Awaited,
            _ if refuses == 0 => Room::Awaited,
            _ => Room::Asked(0),
        }
    }

    /// The flag that an entry for it needs.
    pub(super) fn flag(self) -> i32 {
        match self {
            Room::Asked(_) => libc::RWF_NOWAIT,
            Room::Awaited | Room::Missing(_) => 0,
        }
    }
}

impl Flight {
    /// Bytes that an entry for it moves, at most.
    pub(super) fn part(&self) -> usize {
        match (self.room, self.device.refuses()) {
            (Room::Awaited | Room::Missing(_), _) | (_, 0) => TRANSFER_MAX,
            (Room::Asked(_), part) => part,
        }
    }
}

impl MemberIos {
    /// The kernel answered so, and may have refused the I/O. If it has, the I/O is given to it
    /// again, now or later.
    pub(super) fn was_refused(&mut self, ring: &mut Ring, place: u32, result: i32) -> bool {
        let flight = self.flights.get(place).expect("it is in the table");
        let (id, file) = (flight.id, flight.file);
        let Room::Asked(refusals) = flight.room else {
            return false;
        };
        if flight.abandoned {
            return false;
        }
        if !self.attached.contains_key(&id) {
            return false;
        }
        let room = match -result {
            libc::EAGAIN if refusals < REFUSALS_MOST && self.is_at_work(id, Some(place)) => {
                Room::Missing(refusals + 1)
            }
            libc::EAGAIN => Room::Awaited,
            // The device, or one under it, knows only how to wait.
            libc::EOPNOTSUPP => {
                if let Some(attached) = self.attached.get_mut(&id) {
                    attached.refuses = 0;
                }
                Room::Awaited
            }
            _ => return false,
        };
        let flight = self.flights.get_mut(place).expect("it is in the table");
        flight.room = room;
        match room {
            Room::Missing(1) => self.without_room.push_back(place),
            Room::Missing(_) => self.without_room.push_front(place),
            Room::Asked(_) | Room::Awaited => {
                self.submit(ring, place, file);
            }
        }
        true
    }

    /// Lets an I/O that begins wait behind others of its device. False if none waits.
    pub(super) fn lines_up(&mut self, place: u32, now: Time) -> bool {
        let flight = self.flights.get(place).expect("it is in the table");
        let (id, room) = (flight.id, flight.room);
        let waits = |&place: &u32| self.flights.get(place).is_some_and(|f| f.id == id);
        let lines_up = room == Room::Asked(0) && self.without_room.iter().any(waits);
        if lines_up {
            self.due(place, now);
            let flight = self.flights.get_mut(place).expect("it is in the table");
            flight.room = Room::Missing(1);
            self.without_room.push_back(place);
        }
        lines_up
    }

    /// Does the kernel have an I/O of the device, other than this one? Its answer makes room.
    pub(super) fn is_at_work(&self, device: DeviceId, but: Option<u32>) -> bool {
        (self.flights.iter()).any(|(place, flight)| {
            let other = Some(place) != but && flight.id == device;
            other && !flight.blocks && flight.is_in_the_kernel()
        })
    }

    /// A device has answered, or has nothing to do: the first I/O that waits for room there is
    /// given to it.
    pub(super) fn has_room(
        &mut self,
        ring: &mut Ring,
        device: DeviceId,
        now: Time,
        finished: &mut Vec<Finished>,
    ) {
        while let Some(at) = (self.without_room.iter())
            .position(|&place| self.flights.get(place).is_some_and(|f| f.id == device))
        {
            let place = self.without_room.remove(at).expect("it was just seen");
            let flight = self.flights.get_mut(place).expect("it waits in the table");
            if let Room::Missing(refusals) = flight.room {
                flight.room = Room::Asked(refusals);
            }
            if self.attached.contains_key(&device) && !flight.abandoned {
                let file = flight.file;
                self.submit(ring, place, file);
                return;
            }
            // A member that was put out is not written to any more.
            let verdict = Err(flight.device.why_gone().unwrap_or(IoError::Gone));
            finished.extend(self.conclude(ring, place, verdict, now));
        }
    }

    /// Forgets what waits for room and is not waited for any longer; what has a turn of the limiter
    /// keeps it until there is room.
    pub(super) fn forget_abandoned(&mut self) {
        let flights = &mut self.flights;
        let mut given_back = Vec::new();
        self.without_room.retain(|&place| {
            let over = |flight: &Flight| flight.abandoned && !flight.blocks;
            let abandoned = flights.get(place).is_none_or(over);
            if abandoned && let Some(flight) = flights.remove(place) {
                given_back.extend(flight.work.borrowed());
            }
            !abandoned
        });
        self.given_back.append(&mut given_back);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::tests::{Bench, ID, member};
    use super::*;

    const LEN: usize = 4096;

    /// A file that is taken for a device with a queue.
    fn bench(path: &Path, timeout: Duration) -> Bench {
        let mut bench = Bench::new(path, timeout);
        let attached = bench.ios.attached.get_mut(&ID).expect("it is attached");
        attached.refuses = LEN;
        bench
    }

    fn read(bench: &mut Bench, io: u64) {
        let kind = IoKind::Read {
            offset: io * LEN as u64,
            buf: bench.pool.take(LEN).expect("free"),
            start: 0,
            len: LEN,
        };
        assert!(bench.start(io, kind).is_none());
    }

    /// The kernel's next answer is that the device is full.
    fn refuse(bench: &mut Bench) -> u32 {
        let (place, _) = bench.reap();
        assert!(bench.finish(place, -libc::EAGAIN).is_empty());
        place
    }

    fn room(bench: &Bench, place: u32) -> Room {
        bench.ios.flights.get(place).expect("it is there").room
    }

    /// The kernel's next answer to what it was given, as it is if this file can refuse at all.
    fn answer(bench: &mut Bench) -> Vec<Completion> {
        let (place, _) = bench.reap();
        bench.finish(place, LEN as i32)
    }

    #[test]
    fn what_is_refused_waits_for_an_answer_of_its_device() {
        let file = member(1 << 20);
        let mut bench = bench(file.path(), Duration::from_secs(60));
        (0..3).for_each(|io| read(&mut bench, io));
        let refused = [refuse(&mut bench), refuse(&mut bench)];
        for place in refused {
            assert_eq!(room(&bench, place), Room::Missing(1));
        }
        assert_eq!(bench.ios.in_flight(), 1);
        assert_eq!(answer(&mut bench).len(), 1);
        assert_eq!(
            room(&bench, refused[0]),
            Room::Asked(1),
            "the first is next"
        );
        assert_eq!(room(&bench, refused[1]), Room::Missing(1));
        assert_eq!(refuse(&mut bench), refused[0]);
        assert_eq!(
            room(&bench, refused[0]),
            Room::Awaited,
            "nothing else makes room"
        );
        assert_eq!(answer(&mut bench).len(), 1);
        assert_eq!(answer(&mut bench).len(), 1);
        assert_eq!((bench.ios.in_flight(), bench.ios.flights.len()), (0, 0));
    }

    #[test]
    fn nothing_waits_for_a_device_that_has_nothing_to_do() {
        let file = member(1 << 20);
        let mut bench = bench(file.path(), Duration::from_secs(60));
        (0..3).for_each(|io| read(&mut bench, io));
        refuse(&mut bench);
        refuse(&mut bench);
        let (last, _) = bench.reap();
        bench.ios.release(&mut bench.ring, ID);
        let over = bench.finish(last, -libc::EAGAIN);
        assert_eq!(over.len(), 3);
        assert_eq!(bench.ios.flights.len(), 0);
    }

    #[test]
    fn what_begins_lines_up_and_what_is_refused_again_stays_the_first() {
        let file = member(1 << 20);
        let mut bench = bench(file.path(), Duration::from_secs(60));
        (0..3).for_each(|io| read(&mut bench, io));
        let first = refuse(&mut bench);
        read(&mut bench, 3);
        assert_eq!(
            bench.ios.in_flight(),
            2,
            "the fourth waits behind the first"
        );
        assert_eq!(answer(&mut bench)[0].io, IoId(1));
        assert_eq!(bench.reap().0, 2);
        assert_eq!(refuse(&mut bench), first);
        assert_eq!(bench.finish(2, LEN as i32).len(), 1);
        let ios: Vec<_> = (0..2)
            .flat_map(|_| answer(&mut bench))
            .map(|one| one.io)
            .collect();
        assert_eq!(ios, [IoId(0), IoId(3)]);
        assert_eq!(bench.ios.flights.len(), 0);
    }

    #[test]
    fn what_is_refused_again_and_again_is_waited_with() {
        let file = member(1 << 20);
        let mut bench = bench(file.path(), Duration::from_secs(60));
        read(&mut bench, 0);
        let (place, _) = bench.reap();
        for refusals in 1..=REFUSALS_MOST {
            read(&mut bench, 1);
            assert!(bench.finish(place, -libc::EAGAIN).is_empty());
            assert_eq!(room(&bench, place), Room::Missing(refusals));
            assert_eq!(answer(&mut bench).len(), 1);
            assert_eq!(bench.reap().0, place);
        }
        read(&mut bench, 1);
        assert!(bench.finish(place, -libc::EAGAIN).is_empty());
        assert_eq!(room(&bench, place), Room::Awaited);
        assert_eq!(answer(&mut bench).len(), 1);
        assert_eq!(answer(&mut bench).len(), 1);
    }

    #[test]
    fn a_device_that_cannot_refuse_is_asked_once() {
        let file = member(1 << 20);
        let mut bench = bench(file.path(), Duration::from_secs(60));
        read(&mut bench, 0);
        let (place, _) = bench.reap();
        assert!(bench.finish(place, -libc::EOPNOTSUPP).is_empty());
        assert_eq!(bench.wait().result, Ok(()));
        read(&mut bench, 1);
        let (place, result) = bench.reap();
        assert_eq!((room(&bench, place), result), (Room::Awaited, LEN as i32));
        assert_eq!(bench.finish(place, result).len(), 1);
    }

    #[test]
    fn what_waits_for_room_keeps_its_deadline_and_leaves_nothing() {
        let file = member(1 << 20);
        let mut bench = bench(file.path(), Duration::from_millis(1));
        let free = bench.pool.free();
        (0..2).for_each(|io| read(&mut bench, io));
        refuse(&mut bench);
        let (hung, _) = bench.reap();
        std::thread::sleep(Duration::from_millis(20));
        let mut over = Vec::new();
        let now = bench.clock.now();
        bench.ios.expire(&mut bench.ring, now, &mut over);
        let results: Vec<_> = over.iter().map(|(_, one)| one.result).collect();
        assert_eq!(results, [Err(IoError::TimedOut), Err(IoError::TimedOut)]);
        assert_eq!((bench.ios.in_flight(), bench.ios.flights.len()), (1, 1));
        assert!(bench.finish(hung, LEN as i32).is_empty());
        assert_eq!((bench.ios.flights.len(), bench.pool.free()), (0, free));
    }

    #[test]
    fn a_member_that_was_put_out_is_given_nothing_that_waited() {
        let file = member(1 << 20);
        let mut bench = bench(file.path(), Duration::from_secs(60));
        (0..3).for_each(|io| read(&mut bench, io));
        refuse(&mut bench);
        refuse(&mut bench);
        bench.ios.release(&mut bench.ring, ID);
        let results: Vec<_> = answer(&mut bench)
            .into_iter()
            .map(|one| one.result)
            .collect();
        assert_eq!(results, [Ok(()), Err(IoError::Gone), Err(IoError::Gone)]);
        assert_eq!(bench.ios.flights.len(), 0);
    }
}
