//! The stripe log of one shard: records become durable before anything of a write goes in place.
//!
//! Every member has a log area. Its end is kept for recoveries; the rest is divided into *lanes*,
//! one for each shard. A lane begins with two places for batches without records, which only
//! publish how far operations are retired; behind them is a ring. Records that wait for a member go
//! into one batch (group commit), and a lane has up to [`FLIGHTS`] batches in flight.
//!
//! An operation is *retired* when all that it writes in place is durable; writes in place carry FUA
//! where a member has a volatile cache, so that is when the operation is over.
//!
//! Invariants:
//! * A place of the ring is written over only when every operation in it is below what more members
//!   of the group than may still be lost have durably published. So a record that recovery still
//!   finds is newer than what is published, or the newest of its blocks is found, too.
//! * Batches of a lane are written in the order of their operations, each operation queues on all
//!   its members at once, and any one operation fits into an empty ring: the oldest operation
//!   never waits for a younger one, so none waits for ever.
//! * What publishes has places of its own: it never waits for the ring.
//! * An operation that ends because the array has failed may be half in place: it is not retired.
//!
//! Deliberately absent: which records a write needs (`stripe::log_records`), how an operation goes
//! on when they are durable (`op::records`), and what recovery makes of them (`log::recover`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::ops::Range;

use strake_format::{ArrayUuid, BatchHead, BatchSize, checksum};

use crate::canary::{self, Canary};
use crate::geometry::Geometry;
use crate::log::checksum_pool::SumsMemory;
use crate::log::layout::{LogPlan, Record, Records, SECTOR, batch_of_run, divide, run_with_sums};
use crate::log::ring::{BatchInRing, Ring};
use crate::log::sequence::{Active, NUMBERS_SHORT};
use crate::mem::buffer::{Buf, Slice};
use crate::mem::list::{List, listed};
use crate::proto::*;
use crate::shard::outbox::{IoFor, Outbox};
use crate::shard::retire::Retiring;
use crate::shard::stripe_map::StripeMap;
use crate::units::*;

/// Batches in flight on one member: one is being written while the next gathers, and a second
/// hides the way there and back.
const FLIGHTS: usize = 2;
/// Operations at work from which on commits gather while one is under way.
const COMMIT_BUSY: usize = 8;
/// Buffers of one shard for batches, all together, bytes.
const BUFFERS_BYTES: usize = 16 << 20;
const BLOCK: u64 = 4096;

listed!(SumsUnit, DeviceView);

/// See the module.
pub(crate) struct Logs {
    array: ArrayUuid,
    log_offset: u64,
    plan: Option<LogPlan>,
    /// The longest run of a strip that one operation covers, bytes.
    run_bytes: u64,
    /// The records of one operation for one member fit into a batch of so many bytes, whatever it
    /// writes; 0 without a log.
    largest: usize,
    /// Whether records have room for checksums of sectors.
    sector_sums: bool,
    /// The checksums that records have: of every block; and of every sector, if those of a member
    /// are smaller.
    units: List<SumsUnit, 2>,
    next: u64,
    from: u64,
    /// Operations that have records and are not over.
    active: Active,
    lanes: BTreeMap<DeviceId, Lane>,
    /// Some lane has something to write.
    due: bool,
    /// Batches in flight, on all members together, but for those that only publish.
    flights: usize,
    /// Batches in flight that only publish: no operation waits for them.
    publishing: usize,
    buffers: Vec<Buf>,
    pub(crate) sums: SumsMemory,
    /// Operations at work when the view with `from` came.
    draining: Option<BTreeSet<usize>>,
    /// Operations that wait until records are retired.
    retiring: Vec<Retiring>,
}

/// What a checksum of a record is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SumsUnit {
    pub(crate) bytes: usize,
    /// The checksum of as many zeros.
    pub(crate) of_zeros: u32,
}

impl SumsUnit {
    fn of(bytes: u64) -> SumsUnit {
        let bytes = bytes as usize;
        let of_zeros = checksum::crc32c(&vec![0; bytes]);
        SumsUnit { bytes, of_zeros }
    }
}

/// A member's part for this shard.
struct Lane {
    member: DeviceView,
    /// The log group: slots with logs that tell of each other's records.
    group: Range<usize>,
    /// Batches are padded to it.
    granule: u64,
    waiting: VecDeque<Entry>,
    flights: usize,
    sequence: u64,
    ring: Ring,
    /// Start of the newest durable batch in the ring.
    newest: Option<u64>,
    /// Below which everything is retired, as the places that publish say.
    published: u64,
    publishing: bool,
    turn: u64,
}

/// Records of one operation that wait for a lane.
struct Entry {
    op: usize,
    operation: u64,
    records: Records,
    size: BatchSize,
}

/// Operations that have records in one batch.
pub(crate) type Ops = List<usize, 6>;

/// A batch on its way.
pub(crate) struct Flight {
    pub(crate) device: DeviceId,
    /// Where it goes in the lane.
    start: u64,
    ops: Ops,
    buf: Buf,
    /// It has no records and publishes this.
    publishes: Option<u64>,
}

impl Logs {
    pub(crate) fn new(setup: &ShardSetup, shards: u16) -> Logs {
        let geometry = &setup.geometry;
        let plan = divide(geometry, setup.log_bytes, shards)
            .filter(|_| geometry.m > 0 && !geometry.mirrored());
        let (run_bytes, sector_sums) = longest_run(geometry, plan.as_ref(), &setup.view);
        let unit = if sector_sums { SECTOR } else { geometry.block };
        let largest = plan.map_or(0, |_| batch_of_run(geometry, run_bytes, unit) as usize);
        let bytes = plan.map_or(0, |_| largest.max(64 << 10));
        let count = match bytes {
            0 => 0,
            _ => (BUFFERS_BYTES / bytes).clamp(2, FLIGHTS * geometry.slots()),
        };
        Logs {
            array: setup.array,
            log_offset: setup.log_offset,
            plan,
            run_bytes,
            largest,
            sector_sums,
            units: units(geometry.block, sector_sums, &setup.view),
            next: setup.view.log_from,
            from: setup.view.log_from,
            active: Active::default(),
            lanes: BTreeMap::new(),
            due: false,
            flights: 0,
            publishing: 0,
            // Padding to the write granularity comes on top.
            buffers: (0..count).map(|_| resident(bytes + (64 << 10))).collect(),
            sums: SumsMemory::default(),
            draining: None,
            retiring: Vec::new(),
        }
    }

    /// Begins anew with areas that are divided as before, where nothing of what lies there counts:
    /// false if they are divided in another way.
    pub(crate) fn restart(&mut self, setup: &ShardSetup, shards: u16) -> bool {
        let geometry = &setup.geometry;
        let plan = divide(geometry, setup.log_bytes, shards)
            .filter(|_| geometry.m > 0 && !geometry.mirrored());
        let run = longest_run(geometry, plan.as_ref(), &setup.view);
        if plan != self.plan || run != (self.run_bytes, self.sector_sums) {
            return false;
        }
        self.units = units(geometry.block, self.sector_sums, &setup.view);
        self.from = setup.view.log_from;
        self.next = self.next.max(self.from);
        self.active = Active::default();
        self.lanes.clear();
        self.draining = None;
        true
    }

    /// A number for an operation that is about to have records, and whether it is the one at which
    /// to say that numbers run short.
    pub(crate) fn number(&mut self) -> (u64, bool) {
        let number = self.next;
        self.next += 1;
        self.active.begin(number);
        (number, number == NUMBERS_SHORT)
    }

    /// Above every number that was given out.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The operation is over, or its records mean nothing: in place nothing of it was begun.
    pub(crate) fn over(&mut self, number: u64) {
        self.active.end(number);
        self.due = true;
    }

    fn retired_before(&self) -> u64 {
        self.active.first().unwrap_or(self.next)
    }

    pub(crate) fn wait_to_retire(&mut self, waits: Retiring) {
        self.retiring.push(waits);
        self.due = true;
    }

    pub(crate) fn any_retiring(&self) -> bool {
        !self.retiring.is_empty()
    }

    pub(crate) fn take_retiring(&mut self) -> Vec<Retiring> {
        std::mem::take(&mut self.retiring)
    }

    /// Numbers begin at `from` now, if it is higher than before.
    fn begin_at(&mut self, from: u64) -> bool {
        let higher = from > self.from;
        if higher {
            self.from = from;
            self.next = self.next.max(from);
        }
        higher
    }

    /// The longest run of a strip that one write covers: what fits into the log.
    pub(crate) fn run_bytes(&self) -> u64 {
        self.run_bytes
    }

    /// What records have checksums of.
    pub(crate) fn units(&self) -> &[SumsUnit] {
        &self.units
    }

    /// A view came: its members may have other sectors.
    pub(crate) fn follow_sectors(&mut self, map: &StripeMap) {
        self.units = units(map.geometry().block, self.sector_sums, map.view());
    }

    /// Records wait for this member.
    pub(crate) fn waits(&self, device: DeviceId) -> bool {
        let lane = self.lanes.get(&device);
        lane.is_some_and(|lane| !lane.waiting.is_empty())
    }

    /// What more than `spare` of these members in sync of a group have durably published.
    fn agreed(&self, members: &[DeviceView], spare: usize, said: impl Fn(&Lane) -> u64) -> u64 {
        let mut published: List<u64, 16> = members
            .iter()
            .filter_map(|member| self.lanes.get(&member.device))
            .map(said)
            .collect();
        published.sort_unstable_by_key(|&before| std::cmp::Reverse(before));
        published.get(spare).copied().unwrap_or(0)
    }
}

/// The longest run of a strip that one operation covers, bytes; and whether its records have room
/// for checksums of sectors. A run is made shorter for them only where a member needs them now:
/// one that joins later gets them if they fit as it is, otherwise from the next start on.
fn longest_run(geometry: &Geometry, plan: Option<&LogPlan>, view: &View) -> (u64, bool) {
    let Some(plan) = plan else {
        return (geometry.strip, false);
    };
    let needed = view.tears(geometry.block);
    match run_with_sums(geometry, plan, SECTOR) {
        Some(run) if needed || run == plan.run_bytes => (run, true),
        _ => (plan.run_bytes, false),
    }
}

/// A buffer that has its pages from the machine now, as those of a pool do.
fn resident(bytes: usize) -> Buf {
    let mut buf = Buf::zeroed(bytes);
    buf.bytes_mut().fill(0);
    buf
}

/// What records have checksums of, for the members of this view.
fn units(block: u64, sector_sums: bool, view: &View) -> List<SumsUnit, 2> {
    let finer = view.tears(block) && sector_sums && !canary::hit(Canary::SumsOfBlocks);
    let all = [Some(block), finer.then_some(SECTOR)];
    all.into_iter().flatten().map(SumsUnit::of).collect()
}

impl Flight {
    /// Operations that have records in it; `None` if it only publishes.
    pub(crate) fn operations(&self) -> Option<&[usize]> {
        self.publishes.is_none().then_some(&self.ops[..])
    }
}

impl Logs {
    /// Operations with records that wait for a lane.
    pub(crate) fn queued(&self) -> impl Iterator<Item = (usize, u64)> {
        let entries = self.lanes.values().flat_map(|lane| &lane.waiting);
        entries.map(|entry| (entry.op, entry.operation))
    }

    /// Operations that wait until records are retired.
    pub(crate) fn retiring(&self) -> impl Iterator<Item = usize> {
        self.retiring.iter().map(Retiring::operation)
    }

    /// The number's records count, and those of no other than `count` operations.
    pub(crate) fn check_numbers(&self, numbers: &[u64]) -> Result<(), String> {
        for number in numbers {
            ensure!(
                self.active.has(*number),
                "the records of operation {number} count as retired while it is at work"
            );
        }
        ensure!(
            self.active.count() == numbers.len(),
            "{} operations have records that count and {} are at work",
            self.active.count(),
            numbers.len()
        );
        Ok(())
    }

    /// See the module; so many batches with records are in flight, and so many that publish.
    pub(crate) fn check(&self, in_flight: &[&Flight]) -> Result<(), String> {
        let publishing = in_flight.iter().filter(|f| f.publishes.is_some()).count();
        let flights = in_flight.len() - publishing;
        ensure!(
            (self.flights, self.publishing) == (flights, publishing),
            "{} and {} batches are counted, and {flights} and {publishing} in flight",
            self.flights,
            self.publishing
        );
        let retired = self.retired_before();
        for (device, lane) in &self.lanes {
            let of_lane = in_flight.iter().filter(|flight| flight.device == *device);
            let of_lane = of_lane.filter(|flight| flight.publishes.is_none()).count();
            let device = device.0;
            ensure!(
                lane.flights == of_lane && lane.flights <= FLIGHTS,
                "the lane on device {device} counts {} batches and has {of_lane} in flight",
                lane.flights
            );
            ensure!(
                lane.published <= retired,
                "device {device} says that all below {} is retired, and {retired} is not",
                lane.published
            );
            let numbers = lane.waiting.iter().map(|entry| entry.operation);
            ensure!(
                numbers.is_sorted(),
                "records of a younger operation go before an older one's to device {device}"
            );
        }
        Ok(())
    }
}

impl Lane {
    fn new(member: DeviceView, group: Range<usize>, granule: u64, lane_bytes: u64) -> Lane {
        Lane {
            member,
            group,
            granule,
            waiting: VecDeque::new(),
            flights: 0,
            sequence: 0,
            ring: Ring::new(2 * granule, lane_bytes),
            newest: None,
            published: 0,
            publishing: false,
            turn: 0,
        }
    }

    fn retired_before(&self) -> u64 {
        let newest = self.newest.map_or(0, |at| self.batch(at).retired_before);
        newest.max(self.published)
    }

    fn batch(&self, start: u64) -> &BatchInRing {
        let batch = self.ring.get(start);
        batch.expect("it has not been written over")
    }
}

impl Logs {
    /// There is room for `more` in the batch of an operation with these records; there need not be.
    pub(crate) fn fits<'a>(
        &self,
        records: &[Record],
        more: impl Iterator<Item = &'a Record>,
    ) -> bool {
        let mut more = more.peekable();
        more.peek().is_some()
            && BatchSize::of(records)
                .with(BatchSize::of(more))
                .encoded_bytes(BLOCK as u32)
                <= self.largest
    }

    /// Queues records of an operation on a member that is to have them.
    pub(crate) fn queue_records(
        &mut self,
        op: usize,
        operation: u64,
        (group, member): (Range<usize>, DeviceView),
        records: Records,
    ) {
        self.due = true;
        let size = BatchSize::of(&records);
        self.open_lane(member, group);
        self.lane(member.device).waiting.push_back(Entry {
            op,
            operation,
            records,
            size,
        });
    }

    /// There may be something to write.
    pub(crate) fn is_due(&self) -> bool {
        self.due
    }

    /// Writes what waits: batches, and what publishes so that a batch finds a place; `at_work`
    /// operations are under way.
    pub(crate) fn write(&mut self, at_work: usize, map: &StripeMap, out: &mut Outbox) {
        if self.gathers(at_work, map) {
            return;
        }
        self.due = false;
        let mut lane = self.lanes.first_key_value();
        while let Some((&device, _)) = lane {
            while self.write_batch(device, map, out) {}
            lane = self.lanes.range((Excluded(device), Unbounded)).next();
        }
    }

    /// A commit is under way, and enough is going on that the next one grows meanwhile. It waits
    /// for no more than as many members as may be lost: one that hangs holds up only what needs it.
    fn gathers(&self, at_work: usize, map: &StripeMap) -> bool {
        let geometry = map.geometry();
        at_work > COMMIT_BUSY && self.flights > geometry.m * geometry.groups as usize
    }

    fn open_lane(&mut self, member: DeviceView, group: Range<usize>) {
        let plan = self.plan.expect("a log that is written has a place");
        let new = || {
            let wanted = u64::from(member.log_granularity);
            let granule = if wanted > plan.granule { BLOCK } else { wanted };
            Lane::new(member, group, granule, plan.lane_bytes)
        };
        self.lanes.entry(member.device).or_insert_with(new);
    }

    /// Removes the lanes of members that left; records that waited there count as failed: those of
    /// which operation, and where. An array that has failed logs nothing more on any member:
    /// whatever brings its members back needs all that their logs hold.
    pub(crate) fn drop_lanes(&mut self, view: &View) -> Vec<(usize, DeviceId)> {
        self.due = true;
        let left = |device: &DeviceId| view.failed || !view.has(*device);
        let gone = self.lanes.extract_if(.., |device, _| left(device));
        gone.flat_map(|(device, lane)| lane.waiting.into_iter().map(move |e| (e.op, device)))
            .collect()
    }

    /// No batch is in flight but those of operations.
    pub(crate) fn is_quiet(&self) -> bool {
        self.publishing == 0
    }

    /// A view came: if it begins new numbers, tells the array once all that `began` before is over;
    /// or at once that it is not above all numbers that were given out.
    pub(crate) fn begin_drain(
        &mut self,
        view: &View,
        began: impl Iterator<Item = usize>,
        out: &mut Outbox,
    ) {
        let (log_from, next) = (view.log_from, self.next);
        if !self.begin_at(log_from) {
            return;
        }
        if next > log_from {
            self.draining = None;
            return out.say(FromShard::NumbersPast { log_from, next });
        }
        self.draining = Some(began.collect());
        self.say_if_drained(out);
    }

    /// An operation is over.
    pub(crate) fn drained(&mut self, op: usize, out: &mut Outbox) {
        if let Some(draining) = &mut self.draining {
            draining.remove(&op);
            self.say_if_drained(out);
        }
    }

    fn say_if_drained(&mut self, out: &mut Outbox) {
        if self.draining.take_if(|left| left.is_empty()).is_some() {
            let log_from = self.from;
            out.say(FromShard::Drained { log_from });
        }
    }

    /// Begins one batch on a lane, if there is something to write and a place for it.
    fn write_batch(&mut self, device: DeviceId, map: &StripeMap, out: &mut Outbox) -> bool {
        let plan = self.plan.expect("a log that is written has a place");
        let lane = &self.lanes[&device];
        if lane.waiting.is_empty() || lane.flights >= FLIGHTS {
            return false;
        }
        let Some(buf) = self.buffers.pop() else {
            return false;
        };
        // Half of the ring at most: any one operation fits into that (see `divide`), and more of
        // them never reach beyond the lane.
        let ring = plan.lane_bytes - 2 * self.lanes[&device].granule;
        let most = (buf.len() as u64).min(ring / 2);
        let mut count = self.gather(device, most);
        loop {
            let lane = &self.lanes[&device];
            let taken = lane.waiting.range(..count);
            let sizes = taken.fold(BatchSize::default(), |all, entry| all.with(entry.size));
            let bytes = sizes.encoded_bytes(lane.granule as u32) as u64;
            let (start, over) = lane.ring.place(bytes);
            if self.may_overwrite(device, &over, map, out) {
                self.begin_batch((device, count), (start, bytes), &over, buf, map, out);
                return true;
            }
            if count == 1 {
                self.buffers.push(buf);
                return false;
            }
            // All of it finds no place; the oldest operation alone may.
            count = 1;
        }
    }

    /// How many of the operations that wait, oldest first, make a batch of at most `most` bytes;
    /// one at least.
    fn gather(&self, device: DeviceId, most: u64) -> usize {
        let lane = &self.lanes[&device];
        let granule = lane.granule as u32;
        let mut all = BatchSize::default();
        let fits = |entry: &&Entry| {
            all = all.with(entry.size);
            all.encoded_bytes(granule) as u64 <= most
        };
        lane.waiting.iter().take_while(fits).count().max(1)
    }

    /// Writes a batch of the first `count` operations that wait to bytes `start` and on of the
    /// lane, over the batches at `over`.
    fn begin_batch(
        &mut self,
        (device, count): (DeviceId, usize),
        (start, bytes): (u64, u64),
        over: &[u64],
        mut buf: Buf,
        map: &StripeMap,
        out: &mut Outbox,
    ) {
        let offset = self.lane_offset(map) + start;
        let head = self.batch_head(device, map);
        let lane = self.lane(device);
        let granule = lane.granule as u32;
        let records = lane.waiting.range(..count).flat_map(|entry| &entry.records);
        head.encode_into(records, offset, granule, buf.bytes_mut());
        let (mut ops, mut newest) = (Ops::new(), 0);
        for entry in lane.waiting.drain(..count) {
            ops.push(entry.op);
            newest = newest.max(entry.operation);
        }
        lane.newest = lane.newest.filter(|at| !over.contains(at));
        let written = BatchInRing {
            bytes,
            newest,
            retired_before: head.retired_before,
            durable: false,
        };
        lane.ring.write(written);
        lane.flights += 1;
        self.flights += 1;
        let flight = Flight {
            device,
            start,
            ops,
            buf,
            publishes: None,
        };
        self.send_batch(flight, offset, bytes as usize, out);
    }

    fn lane(&mut self, device: DeviceId) -> &mut Lane {
        self.lanes.get_mut(&device).expect("looked at before")
    }

    /// Where this shard's lane begins on every member.
    fn lane_offset(&self, map: &StripeMap) -> u64 {
        let plan = self.plan.expect("a log that is written has a place");
        self.log_offset + u64::from(map.index().0) * plan.lane_bytes
    }

    /// The head of the lane's next batch.
    fn batch_head(&mut self, device: DeviceId, map: &StripeMap) -> BatchHead {
        let retired_before = self.retired_before();
        let (array, epoch, lane_no) = (self.array, map.view().epoch, map.index().0);
        let lane = self.lane(device);
        lane.sequence += 1;
        BatchHead {
            array,
            member: lane.member.member,
            lane: lane_no,
            sequence: lane.sequence,
            retired_before,
            epoch,
        }
    }

    fn send_batch(&self, flight: Flight, offset: u64, bytes: usize, out: &mut Outbox) {
        let device = flight.device;
        let volatile = self.lanes[&device].member.volatile_cache;
        let fua = volatile && !canary::hit(Canary::NoFlushAfterLog);
        let data = Slice::new(flight.buf.clone(), 0, bytes);
        out.io(
            device,
            IoFor::Log(flight),
            IoKind::Write {
                offset,
                data,
                fua,
                purpose: WritePurpose::Log,
            },
        );
    }

    /// The batches at these places may be written over; if not, sees to it that they will be.
    fn may_overwrite(
        &mut self,
        device: DeviceId,
        over: &[u64],
        map: &StripeMap,
        out: &mut Outbox,
    ) -> bool {
        let lane = &self.lanes[&device];
        let group = lane.group.clone();
        let newest = over.iter().map(|&at| lane.batch(at).newest).max();
        let Some(newest) = newest else { return true };
        if over.iter().any(|&at| !lane.batch(at).durable) {
            return false;
        }
        if canary::hit(Canary::LogWrittenOver) {
            return true;
        }
        if newest >= self.retired_before() {
            return false;
        }
        let members = in_sync(map, &group);
        let few = usize::from(canary::hit(Canary::PublishedByTooFew));
        let spare = map.geometry().log_spare(&group, members.len());
        let spare = spare.saturating_sub(few);
        // What lies there must not be what its own retirement rests on.
        let lane = self.lane(device);
        let rests = lane.newest.take_if(|at| over.contains(at));
        let agreed = self.agreed(&members, spare, Lane::retired_before);
        self.lane(device).newest = rests.or(self.lanes[&device].newest);
        if newest < agreed {
            return true;
        }
        self.publish_retired(&group, &members, newest, map, out);
        false
    }

    /// The number below which every record that members of a group may hold is retired, whichever
    /// of them are lost. Only what the publishing places say counts: a batch in the ring that says
    /// so may be written over while records elsewhere are not.
    pub(crate) fn published(&self, group: &Range<usize>, map: &StripeMap) -> u64 {
        let members = in_sync(map, group);
        let few = usize::from(canary::hit(Canary::RetiredByTooFew));
        let spare = map.geometry().log_spare(group, members.len());
        let spare = spare.saturating_sub(few);
        self.agreed(&members, spare, |lane| lane.published)
    }

    /// Publishes that everything below `before` is retired, as soon as it is.
    pub(crate) fn publish_below(
        &mut self,
        group: &Range<usize>,
        before: u64,
        map: &StripeMap,
        out: &mut Outbox,
    ) {
        if self.retired_before() >= before {
            let members = in_sync(map, group);
            self.publish_retired(group, &members, before - 1, map, out);
        }
    }

    /// Writes batches without records to the members of the group that have not published that
    /// `operation` is retired.
    fn publish_retired(
        &mut self,
        group: &Range<usize>,
        members: &[DeviceView],
        operation: u64,
        map: &StripeMap,
        out: &mut Outbox,
    ) {
        for &member in members {
            self.open_lane(member, group.clone());
            let lane = self.lane(member.device);
            if !lane.publishing && lane.published <= operation {
                self.publish_on(member.device, map, out);
            }
        }
    }

    fn publish_on(&mut self, device: DeviceId, map: &StripeMap, out: &mut Outbox) {
        let head = self.batch_head(device, map);
        let offset = self.lane_offset(map);
        let lane = self.lane(device);
        (lane.publishing, lane.turn) = (true, lane.turn ^ 1);
        let (granule, turn) = (lane.granule, lane.turn);
        self.publishing += 1;
        let start = turn * granule;
        let mut buf = Buf::zeroed(granule as usize);
        let none = std::iter::empty::<&Record>();
        let bytes = head.encode_into(none, offset + start, granule as u32, buf.bytes_mut());
        let publishes = Some(head.retired_before);
        let flight = Flight {
            device,
            start,
            ops: Ops::new(),
            buf,
            publishes,
        };
        self.send_batch(flight, offset + start, bytes, out);
    }

    /// A batch was written, or not: operations that have records in it, none if it only publishes.
    pub(crate) fn written(
        &mut self,
        flight: Flight,
        result: Result<(), IoError>,
        map: &StripeMap,
        out: &mut Outbox,
    ) -> Ops {
        let Flight {
            device,
            start,
            ops,
            buf,
            publishes,
        } = flight;
        self.due = true;
        if let Err(error) = result {
            let offset = self.lane_offset(map) + start;
            out.report(map, device, error, true, offset);
        }
        match publishes {
            Some(before) => {
                self.publishing -= 1;
                if let Some(lane) = self.lanes.get_mut(&device) {
                    lane.publishing = false;
                    if result.is_ok() {
                        lane.published = lane.published.max(before);
                    }
                }
            }
            None => {
                self.flights -= 1;
                self.buffers.push(buf.sole_or_new());
                if let Some(lane) = self.lanes.get_mut(&device) {
                    lane.flights -= 1;
                    if result.is_ok()
                        && let Some(written) = lane.ring.get_mut(start)
                    {
                        written.durable = true;
                        let before = written.retired_before;
                        let newer = |at: &u64| lane.batch(*at).retired_before > before;
                        lane.newest = lane.newest.filter(newer).or(Some(start));
                    }
                }
            }
        }
        ops
    }
}

/// The members in sync of a group.
fn in_sync(map: &StripeMap, group: &Range<usize>) -> List<DeviceView, 8> {
    let slots = &map.view().slots[group.clone()];
    slots.iter().filter_map(|slot| slot.current).collect()
}
