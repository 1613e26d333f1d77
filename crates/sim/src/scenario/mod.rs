//! Scenarios: short scripts over a world, each one a story.
//!
//! ```
//! # use strake_sim::scenario::Scenario;
//! # if false {
//! let mut raid6 = Scenario::new("6", 6).start();
//! raid6.write(50).lose(1).write(50).lose(4).verify();
//! # }
//! ```
//!
//! Invariant: a scenario names what happens; the seed only decides latencies and places.
//!
//! Deliberately absent: the tolerance rules. A scenario's author knows which faults are fair.

use strake_engine::create::Init;
use strake_engine::event::{
    ArrayState, Command, CommandError, DataShape, Fewer, MemberRef, ScrubMode, Status,
};
use strake_engine::meters::HedgeCounts;
use strake_engine::units::{CommandId, Slot, StripeNo};
use strake_engine::{HedgeRules, StartError};
use strake_format::{Level, Settings, Superblock, WriteHole};

use crate::canary::Canary;
use crate::plan::workload::{Ask, AskKind};
use crate::plan::{Focus, LEVELS, Plan, PlanUse};
use crate::report::tally::Area;
use crate::world::fault::misdirected::Armed;
use crate::world::fault::silent::WriteFault;
use crate::world::launch::{self, Half};
use crate::world::{SimResult, World};

/// A script under way. Every step panics with the story if it does not come out as it must.
pub struct Scenario {
    /// The world, for steps that are not here.
    pub world: World,
}

/// What to make before the first start.
#[derive(Clone)]
pub struct Draft(Plan);

impl Scenario {
    /// An array of this level, healthy devices with volatile caches, no faults but the script's.
    /// `members` picks the nearest size that the level is drawn in.
    ///
    /// # Panics
    /// If there is no such level.
    #[expect(
        clippy::new_ret_no_self,
        reason = "a draft becomes a scenario when it starts"
    )]
    pub fn new(level: &str, members: u8) -> Draft {
        let index = LEVELS
            .iter()
            .position(|name| *name == level)
            .expect("a level");
        let fits = |plan: &Plan| plan.shape.members == members && plan.focus == Focus::Wide;
        let plans = (1..10_000).map(|seed| Plan::draw_for(seed, Some(index), PlanUse::Script));
        let mut plan = plans
            .into_iter()
            .find(fits)
            .expect("the level has this many members");
        plan.lives.clear();
        plan.beyond = None;
        plan.init = Init::Lazy;
        plan.spares = 0;
        plan.block = 4096;
        // Spares do not wait for a member to come back, unless that is the story.
        plan.settings = Settings {
            spare_delay_ms: 0,
            ..Settings::default()
        };
        plan.read_error_threshold = None;
        plan.pulled_percent = 0;
        plan.lose_in_resync = false;
        plan.lose_blocks = false;
        plan.elsewhere = false;
        plan.reshard = false;
        plan.slow_shard = None;
        plan.write_hole = WriteHole::Closed;
        plan.hedging = HedgeRules::default();
        for device in &mut plan.devices {
            device.volatile_cache = true;
        }
        Draft(plan)
    }

    /// Another array of the same kind, with other identities, on the same devices, made until the
    /// power goes perhaps; nothing runs, and it is not started.
    #[must_use]
    pub fn make_anew(self, until: Option<Half>) -> Scenario {
        Scenario {
            world: self.world.make_anew(until),
        }
    }

    /// Starts what was made for the first time.
    pub fn begin_life(&mut self) -> &mut Self {
        self.start();
        if let Some(id) = self.world.settle_threshold() {
            self.answer(id).expect("a threshold can be set");
        }
        self
    }

    fn must<T>(&mut self, going: SimResult<T>) -> T {
        going.unwrap_or_else(|failure| {
            panic!("{}\nthe story:\n{}", failure.text, failure.story.join("\n"))
        })
    }

    /// Makes this many random requests and waits for the answers.
    pub fn write(&mut self, asks: u64) -> &mut Self {
        let pumped = self.world.want(asks);
        self.must(pumped);
        self.wait("requests are answered", |world| world.is_content())
    }
    /// Makes this many random requests, and leaves them under way after `events` events.
    pub fn begin_to_write(&mut self, asks: u64, events: u64) -> &mut Self {
        let pumped = self.world.want(asks);
        self.must(pumped);
        self.steps(events)
    }
    /// Asks for a discard of the whole array, and does not wait.
    pub fn begin_to_discard(&mut self) -> &mut Self {
        self.begin(AskKind::Discard, 0, self.world.blocks())
    }
    /// Asks to read every stripe at once, and does not wait.
    pub fn begin_to_read(&mut self) -> &mut Self {
        for (first, count) in self.stripes() {
            self.begin(AskKind::Read, first, count);
        }
        self
    }
    /// Asks to write one block, and does not wait.
    pub fn begin_to_write_at(&mut self, block: u64) -> &mut Self {
        self.begin(AskKind::Write, block, 1)
    }
    /// Asks to write every stripe at once, and does not wait.
    pub fn begin_to_overwrite(&mut self) -> &mut Self {
        for (first, count) in self.stripes() {
            self.begin(AskKind::Write, first, count);
        }
        self
    }
    /// Asks to write these blocks, and does not wait.
    pub fn begin_to_write_blocks(&mut self, first: u64, count: u64) -> &mut Self {
        self.begin(AskKind::Write, first, count)
    }
    /// Asks for blocks, and does not wait for the answer.
    pub fn begin(&mut self, kind: AskKind, first: u64, count: u64) -> &mut Self {
        let asked = self.world.submit(Ask::new(kind, first, count));
        self.must(asked);
        self
    }
    /// Lets this many events happen.
    pub fn steps(&mut self, events: u64) -> &mut Self {
        for _ in 0..events {
            let stepped = self.world.step();
            if !self.must(stepped) {
                break;
            }
        }
        self
    }
    /// Every device grows while nothing runs.
    pub fn enlarge(&mut self, bytes: u64) -> &mut Self {
        assert!(self.world.enlarge(bytes), "the first superblocks are there");
        self
    }
    /// Superblocks, maps and lists are lost while nothing runs, and made again by what was known.
    pub fn restore(&mut self, known: &Superblock) -> &mut Self {
        self.world.restore(known).expect("all members are there");
        self
    }
    /// Asks for parities on so many fresh devices, and does not wait.
    pub fn begin_to_add_parity(&mut self, count: usize) -> CommandId {
        let fresh = |_| self.world.fresh().expect("there are drives left");
        let devices: Vec<_> = (0..count).map(fresh).collect();
        self.world.command(Command::AddParity(devices))
    }
    /// Asks for data columns on so many fresh devices, and does not wait.
    pub fn begin_to_restripe(&mut self, count: usize) -> CommandId {
        self.world
            .restripe(count, DataShape::default())
            .expect("there are drives left")
    }
    /// Asks for strips of so many bytes, and for so many data columns more.
    pub fn begin_to_restrip(&mut self, strip: u32, count: usize) -> CommandId {
        let shape = DataShape {
            strip_bytes: Some(strip),
            ..DataShape::default()
        };
        let asked = self.world.restripe(count, shape);
        asked.expect("there are drives left")
    }
    /// Asks for groups of so many members, and for so many members more.
    pub fn begin_to_regroup(&mut self, group_size: u8, count: usize) -> CommandId {
        let shape = DataShape {
            group_size: Some(group_size),
            ..DataShape::default()
        };
        let asked = self.world.restripe(count, shape);
        asked.expect("there are drives left")
    }
    /// Asks for parities that rotate, of those that were added.
    pub fn begin_to_rotate(&mut self) -> CommandId {
        let shape = DataShape {
            rotate: true,
            ..DataShape::default()
        };
        self.world.restripe(0, shape).expect("nobody lies")
    }
    /// Asks for so many parities fewer, and does not wait.
    pub fn begin_to_lower(&mut self, parities: usize, last: bool) -> CommandId {
        let fewer = Fewer { parities, last };
        self.world.lower(fewer).expect("nobody lies")
    }
    /// Goes on until `until` says so.
    pub fn wait(&mut self, what: &str, until: impl Fn(&mut World) -> bool) -> &mut Self {
        let waited = self.world.wait(what, until);
        self.must(waited);
        self
    }
    /// Waits until requests, commands and jobs are done.
    pub fn rest(&mut self) -> &mut Self {
        self.wait("everything comes to rest", World::at_rest)
    }
    /// The drive that serves a slot.
    pub fn drive(&mut self, slot: u8) -> usize {
        let look = self.world.looks()[usize::from(slot)];
        look.in_sync
            .or(look.incoming)
            .expect("the slot has a drive")
    }
    /// The device in this slot vanishes.
    pub fn lose(&mut self, slot: u8) -> &mut Self {
        let drive = self.drive(slot);
        let vanished = self.world.vanish(drive);
        self.must(vanished);
        self
    }
    /// Devices of as many slots vanish as the level survives, the first ones but for this.
    pub fn lose_others(&mut self, spared: Option<u8>) -> &mut Self {
        let slots = (0..=u8::MAX).filter(|slot| Some(*slot) != spared);
        for slot in slots.take(self.world.geometry().m) {
            self.lose(slot);
        }
        self
    }
    /// All fails that the device in this slot is asked for, and a moment later it vanishes.
    pub fn vanish_soon(&mut self, slot: u8) -> usize {
        let drive = self.drive(slot);
        self.world.vanish_soon(drive);
        drive
    }
    /// Nothing gets through to the device in this slot for so long; perhaps it loses what its cache
    /// answered.
    pub fn reset(&mut self, slot: u8, us: u64, cache_lost: bool) -> &mut Self {
        let drive = self.drive(slot);
        self.world.reset(drive, 1000 * us, cache_lost);
        self
    }
    /// The device in this slot takes its time.
    pub fn slow(&mut self, slot: u8) -> &mut Self {
        let drive = self.drive(slot);
        self.world.ssd_mut(drive).faults.slowness = 30;
        self
    }
    /// The whole machine stands still; `late`: devices need a while when it goes on.
    pub fn machine_stands_still(&mut self, us: u64, late: bool) -> &mut Self {
        self.world.machine_stands_still(1000 * us, late);
        self
    }
    /// The thread of a shard, or of the array, stands still.
    pub fn thread_stands_still(&mut self, shard: Option<u16>, us: u64) -> &mut Self {
        let owner = shard.map_or(crate::drive::Owner::Array, crate::drive::Owner::Shard);
        self.world.thread_stands_still(owner, 1000 * us);
        self
    }
    /// What is in flight is answered later than the deadline, on all devices; true if on several.
    pub fn answers_stand_still(&mut self) -> bool {
        self.world.answers_stand_still()
    }
    /// The device in this slot answers nothing more.
    pub fn hang(&mut self, slot: u8) -> usize {
        let drive = self.drive(slot);
        self.world.hang(drive);
        drive
    }
    /// Every device takes so much longer for each I/O that it has in flight.
    pub fn crowd(&mut self, ns: u64) -> &mut Self {
        for drive in 0..self.world.drives().len() {
            self.world.ssd_mut(drive).faults.crowding_ns = ns;
        }
        self
    }
    /// The next `ios` I/Os of the device in this slot take 40 ms longer.
    pub fn pause(&mut self, slot: u8, ios: u32) -> &mut Self {
        let drive = self.drive(slot);
        let faults = &mut self.world.ssd_mut(drive).faults;
        (faults.pauses, faults.pause_ns) = (ios, 40_000_000);
        self
    }
    /// Reads blocks and tells how long that took, microseconds.
    pub fn read_us(&mut self, first: u64, count: u64) -> u64 {
        self.ask_us(AskKind::Read, first, count)
    }
    /// Makes one request and tells how long it took, microseconds.
    pub fn ask_us(&mut self, kind: AskKind, first: u64, count: u64) -> u64 {
        let begun = self.world.now();
        self.begin(kind, first, count);
        while !self.world.all_answered() {
            self.steps(1);
        }
        self.world.now().since(begun) / 1000
    }
    /// Reads every block once, one after the other, and tells how long the slowest took,
    /// microseconds.
    pub fn read_each_us(&mut self) -> u64 {
        let blocks = 0..self.world.blocks();
        let times: Vec<u64> = blocks.map(|block| self.read_us(block, 1)).collect();
        times.into_iter().max().expect("there are blocks")
    }
    /// What became of hedged reads, all members together; lets the array fall asleep first.
    pub fn hedges(&mut self) -> HedgeCounts {
        self.sleep();
        let mut all = HedgeCounts::default();
        for member in self.status().members {
            all.add(&member.latency.hedges);
        }
        all
    }
    /// Goes on until nothing more happens by itself.
    pub fn sleep(&mut self) -> &mut Self {
        for _ in 0..1_000_000 {
            let stepped = self.world.step();
            if !self.must(stepped) {
                return self;
            }
        }
        panic!("the array does not fall asleep");
    }
    /// A drive that vanished is there again (at the next start).
    pub fn bring_back(&mut self, drive: usize) -> &mut Self {
        self.world.ssd_mut(drive).faults.gone = false;
        self.world.set_hidden(drive, false);
        self
    }
    /// The drive of a member that is out comes back, and is offered to the running array.
    ///
    /// # Errors
    /// Why the array does not take it back.
    pub fn offer(&mut self, drive: usize) -> Result<(), CommandError> {
        let id = self.world.offer(drive).expect("the drive holds a member");
        self.answer(id)
    }
    /// The device in this slot vanishes and loses what its cache held.
    pub fn pull(&mut self, slot: u8) -> &mut Self {
        let drive = self.drive(slot);
        let vanished = self.world.vanish_pulled(drive, 100);
        self.must(vanished);
        self
    }
    /// Is this drive serving, or being rebuilt?
    pub fn serves(&mut self, drive: usize) -> bool {
        let looks = self.world.looks();
        looks
            .iter()
            .any(|look| look.in_sync == Some(drive) || look.incoming == Some(drive))
    }
    /// Every block of one row of a slot becomes unreadable.
    pub fn spoil(&mut self, slot: u8, row: u64) -> &mut Self {
        let drive = self.drive(slot);
        let block = self.world.geometry().block;
        let from = self.world.superblock().layout.data_offset + row * self.world.geometry().strip;
        let blocks = from / block..(from + self.world.geometry().strip) / block;
        self.world.ssd_mut(drive).faults.latent.extend(blocks);
        self
    }
    /// Writes blocks of the array and waits for the answer.
    pub fn write_at(&mut self, first: u64, count: u64) -> &mut Self {
        self.ask(AskKind::Write, first, count)
    }
    /// Writes every block, a stripe at a time.
    pub fn fill(&mut self) -> &mut Self {
        for (first, count) in self.stripes() {
            self.write_at(first, count);
        }
        self
    }
    /// A piece of a stripe rots silently in this column.
    pub fn rot(&mut self, stripe: u64, column: usize) -> &mut Self {
        let block = self.world.geometry().block as usize;
        self.world.rot_at(StripeNo(stripe), column, 0, block);
        self
    }
    /// Scrubs: every corrupt strip must be found, and with `names` also located.
    pub fn cure(&mut self) -> &mut Self {
        let cured = self.world.cure();
        self.must(cured);
        self
    }
    /// Starts a scrub that must find nothing.
    pub fn begin_to_scrub(&mut self) -> &mut Self {
        self.world.begin_scrub(ScrubMode::Check, true);
        self
    }
    /// One block of one row of a slot becomes unreadable.
    pub fn spoil_block(&mut self, slot: u8, row: u64, block: u64) -> &mut Self {
        let drive = self.drive(slot);
        self.spoil_drive(drive, row, block)
    }
    /// The same by drive, also while nothing runs.
    pub fn spoil_drive(&mut self, drive: usize, row: u64, block: u64) -> &mut Self {
        let geometry = &self.world.geometry();
        let from = self.world.superblock().layout.data_offset + row * geometry.strip;
        let sector = from / geometry.block + block;
        self.world.ssd_mut(drive).faults.latent.insert(sector);
        self.world.note_lost_blocks();
        self
    }
    /// The write of such metadata to a drive that comes after `skip` others goes wrong.
    pub fn misdirect(
        &mut self,
        drive: usize,
        area: Area,
        fault: WriteFault,
        skip: u64,
    ) -> &mut Self {
        self.world.misdirect(Armed {
            fault,
            area,
            drive: Some(drive),
            skip,
            into_data: false,
        });
        self
    }
    /// Makes one request and waits for its answer.
    pub fn ask(&mut self, kind: AskKind, first: u64, count: u64) -> &mut Self {
        self.begin(kind, first, count);
        self.wait("the request is answered", |world| world.all_answered())
    }
    /// Writes every block in order, `count` at a time, with `depth` requests under way.
    pub fn stream(&mut self, count: u64, depth: usize) -> &mut Self {
        for first in (0..self.world.blocks()).step_by(count as usize) {
            self.wait("requests are answered", |world| world.under_way() < depth);
            self.begin(AskKind::Write, first, count);
        }
        self
    }
    /// Writes every block.
    pub fn write_all(&mut self) -> &mut Self {
        self.fill().ask(AskKind::Flush, 0, 0)
    }
    /// Where each stripe begins, and its length, in blocks.
    fn stripes(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (all, geometry) = (self.world.blocks(), self.world.geometry());
        let stripe = geometry.stripe_bytes() / geometry.block;
        let firsts = (0..all).step_by(stripe as usize);
        firsts.map(move |first| (first, stripe.min(all - first)))
    }
    /// Blocks that the array calls unreadable.
    pub fn unreadable(&mut self) -> Vec<u64> {
        let block = self.world.geometry().block;
        let ranges = self.status().unreadable;
        let blocks = ranges
            .into_iter()
            .flat_map(|r| r.start / block..r.end / block);
        blocks.collect()
    }
    /// Blocks that answered an error when everything was read last.
    pub fn fails(&self) -> Vec<u64> {
        let mut blocks = self.world.refused_blocks().to_vec();
        blocks.sort_unstable();
        blocks
    }
    /// Sends a command and waits for its answer.
    pub fn command(&mut self, command: Command) -> Result<(), CommandError> {
        let id = self.world.command(command);
        self.answer(id)
    }
    /// Waits for the answer to a command.
    ///
    /// # Errors
    /// Why it was refused.
    pub fn answer(&mut self, id: CommandId) -> Result<(), CommandError> {
        self.wait("the command is answered", |world| {
            world.answer_to(id).is_some()
        });
        self.world.answer_to(id).expect("it is answered")
    }
    /// Adds a fresh device.
    pub fn add(&mut self) -> &mut Self {
        let new = self.world.fresh().expect("there are devices left");
        self.command(Command::Add(new))
            .expect("a fresh device is taken");
        self
    }
    /// Removes what is named in a slot.
    pub fn remove(&mut self, slot: u8) -> &mut Self {
        let member = MemberRef::Slot(Slot(slot));
        self.command(Command::Remove(member))
            .expect("it can be removed");
        self
    }
    /// Replaces the member of a slot by a fresh device.
    pub fn replace(&mut self, slot: u8) -> &mut Self {
        let new = self.world.fresh().expect("there are devices left");
        self.command(Command::Replace(Slot(slot), new))
            .expect("it can be replaced");
        self
    }
    /// Stops cleanly.
    pub fn stop(&mut self) -> &mut Self {
        let stopped = self.world.stop();
        self.must(stopped);
        self
    }
    /// Cuts the power, at this very moment.
    pub fn power_cut(&mut self) -> &mut Self {
        let cut = self.world.crash(true);
        self.must(cut);
        self
    }
    /// Kills the process, at this very moment.
    pub fn kill(&mut self) -> &mut Self {
        let killed = self.world.crash(false);
        self.must(killed);
        self
    }
    /// Starts the process again.
    pub fn start(&mut self) -> &mut Self {
        let launched = self.world.launch();
        self.must(launched);
        self.wait("the array serves", |world| world.serves())
    }
    /// Why the array cannot be started from what is there; what the drives hold must not change by
    /// that.
    pub fn refused(&mut self, force: bool) -> StartError {
        let bytes = |world: &World| -> Vec<Vec<u8>> {
            let drives = world.drives().iter();
            drives.map(|drive| drive.ssd().bytes().to_vec()).collect()
        };
        let before = bytes(&self.world);
        let refusal = self.world.assemble(force).expect_err("it must be refused");
        assert!(bytes(&self.world) == before, "something was written");
        refusal
    }
    /// Starts the process by force, although members are missing and writes were under way. Nothing
    /// is demanded any more of what the missing ones held where these were; of all else everything.
    pub fn start_by_force(&mut self) -> &mut Self {
        let array = self.world.assemble(true).expect("force suffices");
        self.world.give_up(&array);
        let launched = self.world.launch_as(true);
        self.must(launched);
        self.wait("the array serves", |world| world.serves())
    }
    /// Starts the process without waiting until it serves.
    pub fn begin_to_start(&mut self) -> &mut Self {
        let launched = self.world.launch();
        self.must(launched);
        self
    }
    /// Reads every block.
    pub fn verify(&mut self) -> &mut Self {
        let read = self.world.read_everything();
        self.must(read);
        self
    }
    /// What the array says of itself.
    pub fn status(&mut self) -> Status {
        self.world.array().status()
    }
    /// The array's state.
    pub fn state(&mut self) -> ArrayState {
        self.status().state
    }
    /// Goes on with rebuilds, waits for them, and demands that every member is in sync.
    pub fn made_whole(&mut self) -> &mut Self {
        self.command(Command::StartRebuild)
            .expect("rebuilds can start");
        self.rest();
        let text = self.world.state_text();
        assert_eq!(self.state(), ArrayState::Optimal, "{text}");
        self
    }
}

impl Draft {
    /// With this policy for the write hole.
    pub fn policy(mut self, policy: WriteHole) -> Draft {
        self.0.write_hole = policy;
        self
    }
    /// With this many spares.
    pub fn spares(mut self, spares: usize) -> Draft {
        self.0.spares = spares;
        self
    }
    /// Quick devices, and hedged reads that a handful of reads suffices for.
    pub fn hedging(mut self, one_in: u32, burst: u32) -> Draft {
        (self.0.latencies.low_ns, self.0.latencies.high_ns) = (1_000, 20_000);
        self.0.message_ns = 100;
        self.0.hedging = HedgeRules {
            samples_min: 64,
            floor_ns: 20_000,
            ceiling_ns: 1_000_000,
            look_every_ns: 10_000,
            one_in,
            burst,
            slow_after_ns: 50_000_000,
            in_place_pause_ns: 1_000_000,
            report_ns: 1_000_000,
        };
        self.0.in_place_one_in = 0;
        self
    }
    /// Every read has a place for what it asks for.
    pub fn in_place(mut self) -> Draft {
        self.0.in_place_one_in = 1;
        self
    }
    /// Requests that are made together reach a shard together.
    pub fn batches(mut self) -> Draft {
        self.0.batch_ns = 1_000_000;
        self
    }
    /// With another seed's latencies and requests.
    pub fn seed(mut self, seed: u64) -> Draft {
        self.0.seed = seed;
        self
    }
    /// Blocks so small that a superblock can be torn.
    pub fn small_blocks(mut self) -> Draft {
        self.0.block = 512;
        self
    }
    /// The drives' own blocks have 512 bytes.
    pub fn small_sectors(mut self) -> Draft {
        let devices = &mut self.0.devices;
        devices
            .iter_mut()
            .for_each(|device| device.small_sectors = true);
        self
    }
    /// Pages of the region map that cover only so many regions.
    pub fn pages_of(mut self, regions: u16) -> Draft {
        if self.0.tiny.page_regions.replace(regions).is_none() {
            let devices = self.0.devices.iter_mut();
            devices.for_each(|device| device.bytes += 256 << 10);
        }
        self
    }
    /// Messages, commands among them, that take up to this long.
    pub fn message_ns(mut self, most: u64) -> Draft {
        self.0.message_ns = most;
        self
    }
    /// Devices so large that a rebuild takes thousands of stripes.
    pub fn large(mut self) -> Draft {
        self.0.tiny.region_bytes = u64::from(self.0.strip) * 256;
        let devices = self.0.devices.iter_mut();
        devices.for_each(|device| device.bytes += 2048 * 4096);
        self
    }
    /// With members that hold this at first.
    pub fn init(mut self, init: Init) -> Draft {
        self.0.init = init;
        self
    }
    /// With a log that has room for parities to come.
    pub fn roomy_log(mut self) -> Draft {
        const MORE: u64 = 256 << 10;
        self.0.tiny.log_bytes += MORE;
        let devices = self.0.devices.iter_mut();
        devices.for_each(|device| device.bytes += MORE);
        self
    }
    /// With members that write in units of so many bytes, a log with room for batches of them, and
    /// so much data on each.
    pub fn units(mut self, unit: u32, member_bytes: u64) -> Draft {
        let plan = &mut self.0;
        plan.strip = 4 * unit;
        plan.budget_bytes = 400 * plan.strip as usize;
        plan.tiny.region_bytes = u64::from(plan.strip) * 16;
        plan.tiny.align_bytes = u64::from(unit);
        plan.tiny.log_bytes = 4 << 20;
        let bytes = plan.tiny.log_bytes + member_bytes + (512 << 10);
        for device in &mut plan.devices {
            (device.bytes, device.granularity, device.flash) = (bytes, unit, true);
        }
        self
    }
    /// With the smallest log, of one shard.
    pub fn small_log(mut self) -> Draft {
        (self.0.tiny.log_bytes, self.0.tiny.log_shards, self.0.shards) = (8192, 1, 1);
        self
    }
    /// Of `n` data columns and `m` parities.
    pub fn code(mut self, n: u8, m: u8) -> Draft {
        let shape = &mut self.0.shape;
        (shape.level, shape.members) = (Level::Nm { n, m }, n + m);
        self
    }
    /// With memory for so many strips at least.
    pub fn buffers(mut self, strips: usize) -> Draft {
        let bytes = strips * self.0.strip as usize;
        self.0.budget_bytes = self.0.budget_bytes.max(bytes);
        self
    }
    /// With strips of so many bytes, which may become up to so large, and members that hold so
    /// much.
    pub fn strips(mut self, strip: u32, largest: u32, member_bytes: u64) -> Draft {
        let plan = &mut self.0;
        plan.strip = strip;
        plan.tiny.region_bytes = u64::from(largest);
        // Rows of any height find as many buffers as they need.
        plan.budget_bytes = 400 * strip as usize;
        let members = u64::from(plan.shape.members) + 1;
        plan.tiny.log_bytes = (2 * u64::from(largest) * members).max(256 << 10);
        // Until data ends where a strip of any size does.
        loop {
            let bytes = plan.tiny.log_bytes + member_bytes + (512 << 10);
            let devices = plan.devices.iter_mut();
            devices.for_each(|device| device.bytes = bytes);
            let layout = launch::make(plan).superblock.layout;
            if layout.data_bytes.is_multiple_of(u64::from(largest)) {
                return self;
            }
            plan.tiny.log_bytes += 4096;
        }
    }
    /// Data that moves moves so many bytes at once.
    pub fn window_bytes(mut self, bytes: u64) -> Draft {
        self.0.window_bytes = bytes;
        self
    }
    /// With this many shards.
    pub fn shards(mut self, shards: u16) -> Draft {
        self.0.shards = shards;
        self
    }
    /// With so many export queues.
    pub fn queues(mut self, queues: u16) -> Draft {
        self.0.queues = queues;
        self
    }
    /// With these settings.
    pub fn settings(mut self, settings: Settings) -> Draft {
        self.0.settings = settings;
        self
    }
    /// Devices without volatile caches.
    pub fn no_caches(mut self) -> Draft {
        for device in &mut self.0.devices {
            device.volatile_cache = false;
        }
        self
    }
    /// The read error at which a member fails.
    pub fn threshold(mut self, threshold: u32) -> Draft {
        self.0.read_error_threshold = Some(threshold);
        self
    }
    /// Regions stay open for so long when they are not written.
    pub fn clean_after_ms(mut self, ms: u64) -> Draft {
        self.0.clean_after_ms = ms;
        self
    }
    /// Read errors do not fail a member.
    pub fn forgiving(self) -> Draft {
        self.threshold(1000)
    }
    /// How many steps it takes to make the array.
    #[must_use]
    pub fn steps_to_make(&self) -> usize {
        launch::steps_to_make(&self.0)
    }
    /// Makes the array until the power goes, after so many steps; it is not started.
    #[must_use]
    pub fn make_half(self, half: Half) -> Scenario {
        let made = launch::make_until(&self.0, Some(half));
        Scenario {
            world: World::new(self.0, made, None),
        }
    }
    /// What the array tells this shard is long on its way.
    pub fn slow_shard(mut self, shard: u16) -> Draft {
        self.0.slow_shard = Some(shard);
        self
    }
    /// Makes the array, with this bug; it is not started.
    #[must_use]
    pub fn made(self, canary: Option<Canary>) -> Scenario {
        let made = launch::make(&self.0);
        Scenario {
            world: World::new(self.0, made, canary),
        }
    }
    /// Makes the array and starts it.
    pub fn start(self) -> Scenario {
        let mut scenario = self.made(None);
        scenario.begin_life();
        scenario
    }
}

#[cfg(test)]
mod tests;
