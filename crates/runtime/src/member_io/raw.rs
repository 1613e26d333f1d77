//! Members without an array: reads and writes through a ring of the caller's own, with the same
//! code that carries out the array's member I/O. What this costs is what an array is measured
//! against.
//!
//! Invariant: a device is opened as a member is, so no other process has it meanwhile. Deliberately
//! absent: threads (each caller has its own) and continuation after an error.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use strake_engine::SharedPool;
use strake_engine::event::{Completion, IoKind, MemberIo};
use strake_engine::units::{DeviceId, IoId};

use crate::clock::Clock;
use crate::device::Device;
use crate::member_io::{Finished, MemberIos, Owner};
use crate::memory::buffers::Registered;
use crate::ring::{Reaped, Ring, Token};

/// A ring and the members that it knows. Fields drop in order: the ring before its memory.
pub struct RawMembers {
    ring: Ring,
    ios: MemberIos,
    reaped: Vec<Reaped>,
    over: Vec<Finished>,
    clock: Clock,
    _memory: Vec<SharedPool>,
}

impl RawMembers {
    /// A ring for this thread, with these pools registered (where the kernel allows it), and with
    /// members numbered in order.
    pub fn new(members: &[Arc<Device>], pools: &[&SharedPool]) -> io::Result<RawMembers> {
        let mut ring = Ring::made_soon()?;
        let lists: Vec<_> = pools.iter().map(|pool| pool.addresses()).collect();
        let listed = Registered::of(&lists);
        // SAFETY: the pools are kept beside the ring and dropped after it; memory of theirs that is
        // elsewhere stays where it is until it is dropped there.
        let registered = unsafe { ring.register_buffers(listed.addresses(), 0) };
        let listed = match registered {
            true => listed,
            false => Registered::default(),
        };
        let mut ios = MemberIos::new(listed, Duration::from_secs(60)).impatient();
        for (at, member) in (0..).zip(members) {
            ios.attach(&mut ring, DeviceId(at), Arc::clone(member));
        }
        Ok(RawMembers {
            ring,
            ios,
            reaped: Vec::new(),
            over: Vec::new(),
            clock: Clock::start(),
            _memory: pools.iter().map(|&pool| pool.clone()).collect(),
        })
    }

    /// Starts an I/O on the member of this number; it is submitted by the next
    /// [`RawMembers::wait`].
    ///
    /// # Panics
    /// If there is no such member.
    pub fn start(&mut self, member: u32, io: u64, kind: IoKind) {
        let io = MemberIo {
            io: IoId(io),
            device: DeviceId(member),
            kind,
        };
        let now = self.clock.now();
        let refused = self.ios.start(&mut self.ring, Owner::Shard, io, None, now);
        assert!(refused.is_none(), "I/O goes to a member that was given");
    }

    /// I/O started and not yet finished.
    pub fn in_flight(&self) -> usize {
        self.ios.in_flight()
    }

    /// Submits what was started, waits until something has finished, and lists it.
    pub fn wait(&mut self, finished: &mut Vec<Completion>) -> io::Result<()> {
        self.ring.wait(None)?;
        self.ring.reap(&mut self.reaped);
        let now = self.clock.now();
        for done in self.reaped.drain(..) {
            let Token::Member(place) = done.token else {
                unreachable!("nothing but member I/O was pushed");
            };
            let (ring, over) = (&mut self.ring, &mut self.over);
            self.ios.finish(ring, place, done.result, now, over);
        }
        finished.extend(self.over.drain(..).map(|(_, completion)| completion));
        Ok(())
    }
}
