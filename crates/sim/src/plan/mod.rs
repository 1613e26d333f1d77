//! What a seed stands for: an array, its devices, its user and its misfortunes.
//!
//! Invariant: a plan follows from the seed and the level asked for alone; variations of it (fewer
//! requests, fewer faults) are applied afterwards, so they do not change the rest.
//!
//! Deliberately absent: whether a fault is fair at the moment at which it comes
//! (`world::fault::tolerance`).

pub mod disaster;
mod grain;
mod shapes;
pub mod workload;

use strake_engine::HedgeRules;
use strake_engine::create::{Init, Tiny};
use strake_engine::geometry::Geometry;
use strake_engine::logs::least_bytes;
use strake_format::{Level, Settings, WriteHole};

use crate::drive::Latencies;
use crate::drive::overlay::FaultSet;
use crate::plan::disaster::Disaster;
use crate::prng::{self, Prng, Purpose};

pub(crate) use grain::{PlanUse, grain_at, growth};

/// Shape of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Level.
    pub level: Level,
    /// Slots.
    pub members: u8,
    /// Members of a group, for grouped levels.
    pub group: Option<u8>,
}

/// The levels by name, as `--level` takes them.
pub const LEVELS: [&str; 10] = ["0", "1", "5", "6", "7.3", "10", "50", "60", "70", "n+m"];
const LEVEL_WEIGHTS: [u32; 10] = [1, 2, 4, 4, 2, 2, 2, 1, 1, 2];
const LOG_WEIGHTS: [u32; 10] = [0, 0, 1, 4, 2, 0, 1, 2, 1, 2];
/// Two members must be able to go.
const JOIN_WEIGHTS: [u32; 10] = [0, 4, 0, 4, 2, 0, 0, 1, 0, 1];
/// The fewer members hold a record, the sooner it is on none.
const RING_WEIGHTS: [u32; 10] = [0, 0, 12, 2, 1, 0, 2, 1, 0, 1];

impl Shape {
    /// Draws a shape of the level at `index` of [`LEVELS`].
    fn draw(index: usize, rng: &mut Prng) -> Shape {
        let plain = |level, members: u64| Shape {
            level,
            members: members as u8,
            group: None,
        };
        let grouped = |level, groups: u64, group: u64| Shape {
            level,
            members: (groups * group) as u8,
            group: Some(group as u8),
        };
        match LEVELS[index] {
            "0" => plain(Level::Raid0, rng.range(2, 4)),
            "1" => plain(Level::Raid1, rng.range(2, 4)),
            "5" => plain(Level::Raid5, rng.range(3, 6)),
            "6" => plain(Level::Raid6, rng.range(4, 7)),
            "7.3" => plain(Level::Raid7_3, rng.range(5, 8)),
            "10" => grouped(Level::Raid10, 2, rng.range(2, 3)),
            "50" => grouped(Level::Raid50, 2, rng.range(3, 4)),
            "60" => grouped(Level::Raid60, 2, rng.range(4, 5)),
            "70" => grouped(Level::Raid70, 2, 5),
            _ => {
                let (n, m) = (rng.range(2, 4) as u8, rng.range(4, 5) as u8);
                plain(Level::Nm { n, m }, u64::from(n + m))
            }
        }
    }
}

impl Shape {
    /// One array in twelve has more members than others, or more parities. Draws of its own.
    fn widened(self, seed: u64) -> Shape {
        let mut rng = Prng::new(seed ^ 18, Purpose::Focus);
        if !rng.one_in(12) {
            return self;
        }
        match self.level {
            Level::Raid5 | Level::Raid6 | Level::Raid7_3 => Shape {
                members: rng.range(9, 16) as u8,
                ..self
            },
            Level::Nm { n, m } => {
                let (n, m) = (n + rng.below(4) as u8, m + rng.below(4) as u8);
                let members = n + m;
                let level = Level::Nm { n, m };
                Shape {
                    level,
                    members,
                    ..self
                }
            }
            _ => self,
        }
    }

    /// Bytes of the log on every member.
    fn log_bytes(&self, strip: u32, block: u32, tiny: &Tiny) -> u64 {
        let width = usize::from(self.group.unwrap_or(self.members));
        let m = usize::from(self.level.parity_count());
        if m == 0 {
            return tiny.log_bytes;
        }
        let geometry = Geometry {
            level: self.level,
            groups: u64::from(self.members) / width as u64,
            per_row: u64::from(self.members) / width as u64,
            width,
            k: width - m,
            m,
            fixed: 0,
            strip: u64::from(strip),
            block: u64::from(block),
            band: 1,
            rows: 1,
            region_rows: 1,
            old_shape: None,
        };
        tiny.log_bytes
            .max(least_bytes(&geometry, tiny.log_shards, false))
    }
}

/// What a seed is after. Most are after nothing and have a little of everything; chains of events
/// that are too rare there are what the others are made for (`world::life::targeted`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Focus {
    /// Nothing.
    Wide,
    /// Replays of the stripe log that are cut off in the middle, each start with other members.
    Replay,
    /// Log areas so small that records are written over all the time.
    Ring,
    /// Many requests under way at a time, for parts of the same few stripes.
    Deep,
    /// Members that were away and come in sync again, with hardly a write since.
    Return,
    /// Members that join, while others are lost and the power goes.
    Join,
}

const FOCI: [Focus; 5] = [
    Focus::Wide,
    Focus::Replay,
    Focus::Ring,
    Focus::Deep,
    Focus::Return,
];
const FOCUS_WEIGHTS: [u32; 5] = [16, 3, 3, 2, 1];

impl Focus {
    /// Draws it, and the shape; only parity levels have a log.
    fn draw(seed: u64, level: Option<usize>, rng: &mut Prng) -> (Focus, Shape) {
        let mut own = Prng::new(seed, Purpose::Focus);
        let mut focus = FOCI[own.weighted(&FOCUS_WEIGHTS)];
        if Prng::new(seed ^ 16, Purpose::Focus).one_in(40) {
            focus = Focus::Join;
        }
        let weights = match focus {
            Focus::Wide => LEVEL_WEIGHTS,
            Focus::Replay => LOG_WEIGHTS,
            Focus::Join => JOIN_WEIGHTS,
            Focus::Ring | Focus::Deep | Focus::Return => RING_WEIGHTS,
        };
        let drawn = rng.weighted(&weights);
        let shape = Shape::draw(level.unwrap_or(drawn), rng);
        match shape.level {
            Level::Raid1 if focus == Focus::Join => (focus, shape),
            Level::Raid0 | Level::Raid1 | Level::Raid10 => (Focus::Wide, shape),
            _ => (focus, shape),
        }
    }
}

/// How a life of the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Stopped by command.
    Stop,
    /// The power is cut.
    PowerCut,
    /// SIGKILL.
    Kill,
}

/// A misfortune or a command in the course of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A member vanishes.
    Lose,
    /// A member in the middle of being rebuilt vanishes.
    LoseTarget,
    /// A write of a member fails.
    WriteError,
    /// An I/O of a member times out.
    Stall,
    /// Sectors of a member become unreadable.
    Latent,
    /// Sectors of what was written last become unreadable.
    SpoilRecent,
    /// A member becomes slow, or quick again.
    Slow,
    /// Blocks of a member's data rot.
    Rot,
    /// A write of a member is reported done and never happens.
    LoseWrite,
    /// A write of a member lands elsewhere on it.
    MisdirectWrite,
    /// A write of a member's metadata is reported done and never happens.
    LoseMetadata,
    /// A write of a member's metadata lands elsewhere on it.
    MisdirectMetadata,
    /// Command: fail a member.
    Fail,
    /// Command: remove what is not in service.
    Remove,
    /// Command: add a fresh device.
    Add,
    /// A member that was put out is there again, and offered to the array.
    Return,
    /// Command: replace a member in service.
    Replace,
    /// Command: pause the rebuild.
    StopRebuild,
    /// Command: go on with the rebuild.
    StartRebuild,
    /// Command: zero what was never written.
    StartInit,
    /// Command: no further.
    StopInit,
    /// Command: scrub, to check or to repair.
    Scrub,
    /// Command: scrub, to repair.
    Repair,
    /// Command: pause the scrub.
    PauseScrub,
    /// Command: stop the scrub.
    StopScrub,
    /// Command: change a setting.
    Set,
    /// Command: take what lies in undecided regions for right.
    Accept,
    /// Command: use what the members have room for.
    Grow,
    /// Command: add a parity.
    AddParity,
    /// Command: let a parity go that was added.
    DropParity,
    /// The user trims a region in parts.
    Trim,
    /// Command: move data to a shape with more data columns.
    Restripe,
    /// Data moves to other strips.
    Strip,
    /// Data moves to other groups.
    Regroup,
    /// Parities go, whether they rotate or not; or the array becomes the mirror that it is.
    Lower,
    /// Command: stop that where it is.
    StopRestripe,
    /// Command: go on with it.
    ContinueRestripe,
}

const ACTIONS: [Action; 22] = [
    Action::Lose,
    Action::LoseTarget,
    Action::WriteError,
    Action::Stall,
    Action::Latent,
    Action::Slow,
    Action::Rot,
    Action::LoseWrite,
    Action::MisdirectWrite,
    Action::LoseMetadata,
    Action::MisdirectMetadata,
    Action::Fail,
    Action::Remove,
    Action::Add,
    Action::Return,
    Action::Replace,
    Action::StopRebuild,
    Action::StartRebuild,
    Action::Scrub,
    Action::PauseScrub,
    Action::StopScrub,
    Action::Set,
];
const ACTION_WEIGHTS: [u32; 22] = [
    10, 3, 4, 4, 10, 2, 3, 3, 3, 5, 5, 5, 6, 9, 12, 4, 2, 4, 4, 1, 1, 2,
];

/// When something happens in a life: so many requests submitted, and so many events after that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Requests.
    pub asks: u64,
    /// Events.
    pub events: u64,
}

/// One life of the process: from a start to a stop or a crash.
#[derive(Clone, Debug)]
pub struct Life {
    /// Requests.
    pub asks: u64,
    /// What happens in it, in order.
    pub actions: Vec<(Moment, Action)>,
    /// How it ends.
    pub end: End,
    /// When, at the earliest.
    pub end_at: Moment,
    /// Or so many events after a member went out of service, if that comes first.
    pub end_after_loss: Option<u64>,
    /// So many reads fail for no reason while a resync is at work: requests there may be refused
    /// then, but never answered wrongly.
    pub read_errors_in_resync: u32,
    /// Percent of chance that a member is missing at the start.
    pub missing_percent: u64,
    /// Percent of chance that each lost device is there again.
    pub return_percent: u64,
    /// Before it begins, every device grows by so much, or by amounts that are drawn by it.
    pub enlarge_bytes: u64,
    /// It also ends so many events after the array has told of another shape.
    pub end_after_reshape: Option<u64>,
    /// Or so many events after it has begun to write data that moves over rows that count.
    pub end_after_copy: Option<u64>,
    /// Or so many events after all data has left members that are to go.
    pub end_after_left: Option<u64>,
}

impl Life {
    /// One in which nothing happens by itself.
    pub(crate) fn quiet() -> Life {
        Life {
            asks: 0,
            actions: Vec::new(),
            end: End::Stop,
            end_at: Moment::default(),
            end_after_loss: None,
            read_errors_in_resync: 0,
            missing_percent: 0,
            return_percent: 50,
            enlarge_bytes: 0,
            end_after_reshape: None,
            end_after_copy: None,
            end_after_left: None,
        }
    }
}

/// A device.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// Size, bytes.
    pub bytes: u64,
    /// It has a volatile write cache.
    pub volatile_cache: bool,
    /// Its write granularity, bytes; 0 if it tells of none.
    pub granularity: u32,
    /// It has a model of flash that maps units of its write granularity.
    pub flash: bool,
    /// Its own logical blocks have 512 bytes, whatever those of the array have.
    pub small_sectors: bool,
}

/// Everything that a seed decides beforehand.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// What it is after.
    pub focus: Focus,
    /// The array's shape.
    pub shape: Shape,
    /// Strip, bytes.
    pub strip: u32,
    /// Logical block, bytes.
    pub block: u32,
    /// Places on the members.
    pub tiny: Tiny,
    /// What protects writes that are cut off.
    pub write_hole: WriteHole,
    /// What steers background work at first.
    pub settings: Settings,
    /// What the members hold at first.
    pub init: Init,
    /// Members, then spares, then devices that may be added.
    pub devices: Vec<Device>,
    /// Spares.
    pub spares: usize,
    /// Shards, of the first start at least.
    pub shards: u16,
    /// Each later start has as many shards as chance says: the administrator changed it.
    pub reshard: bool,
    /// Export queues.
    pub queues: u16,
    /// What the array tells this shard is long on its way.
    pub slow_shard: Option<u16>,
    /// An idle region becomes clean after this.
    pub clean_after_ms: u64,
    /// Data that moves moves so many bytes at once.
    pub window_bytes: u64,
    /// When reads are late, and members slow.
    pub hedging: HedgeRules,
    /// One read in so many has a place for what it asks for (0: none).
    pub in_place_one_in: u64,
    /// Requests that reach a shard within so many nanoseconds may be one batch (0: never).
    pub batch_ns: u64,
    /// Memory of a shard beyond the least.
    pub budget_bytes: usize,
    /// Read errors after which a member is failed; `None` leaves the default.
    pub read_error_threshold: Option<u32>,
    /// Latencies of devices.
    pub latencies: Latencies,
    /// Longest way of a message, nanoseconds.
    pub message_ns: u64,
    /// Mirrors may lose members while they resync.
    pub lose_in_resync: bool,
    /// Sectors become unreadable also where that loses blocks.
    pub lose_blocks: bool,
    /// Percent of vanished devices that lose their power, too.
    pub pulled_percent: u64,
    /// What goes beyond the tolerance after them.
    pub beyond: Option<Disaster>,
    /// The lives.
    pub lives: Vec<Life>,
    /// A parity that was added goes again as soon as something was rebuilt.
    pub lowers: bool,
    /// Spares can be had from elsewhere for members with too many read errors; sometimes.
    pub elsewhere: bool,
    /// What protects writes that are cut off changes while the array serves, and whether late reads
    /// are hedged.
    pub resets_policy: bool,
    /// At the end the array is made whole before it is verified.
    pub made_whole: bool,
    /// Blocks rot in the midst of everything (`world::fault::decay`).
    pub decays: bool,
    /// What lies in undecided regions is taken for right, now and then.
    pub accepts: bool,
    /// Sectors of what was written last become unreadable, and blocks are given up
    /// (`world::life::spoilt`).
    pub spoils_recent: bool,
    /// Devices tell of another write granularity at each start, as behind another bridge.
    pub regrains: bool,
    /// Devices grow by different amounts.
    pub grows_unequally: bool,
    /// The array is carved into volumes (`world::volumes`).
    pub volumes: bool,
}

/// A plan with less in it, for finding out what matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variation {
    /// Lives at most.
    pub lives: Option<usize>,
    /// Requests per life at most.
    pub asks: Option<u64>,
    /// Faults left out.
    pub without: FaultSet,
}

impl Life {
    /// Any moment of it, at most so many events after a request.
    pub(crate) fn moment(&self, events: u64, rng: &mut Prng) -> Moment {
        Moment {
            asks: rng.below(self.asks + 1),
            events: rng.below(events),
        }
    }

    /// More often one at which the array is in order yet.
    fn early_moment(&self, rng: &mut Prng) -> Moment {
        let asks = self.asks.min(rng.pick(&[2, 10, 120]));
        Moment {
            asks: rng.below(asks + 1),
            events: rng.below(200),
        }
    }

    /// Something more happens in it.
    pub(crate) fn act(&mut self, at: Moment, action: Action) {
        self.actions.push((at, action));
        self.actions.sort_by_key(|&(at, _)| at);
    }
}

/// What log, map and taller strips take of a device, bytes.
fn room_beside_data(shape: &Shape, strip: u32, block: u32, tiny: &Tiny) -> u64 {
    let rest = grain::taller(strip) + shape.log_bytes(strip, block, tiny);
    rest + map_bytes(tiny, LARGEST_BYTES + rest)
}

fn draw_tiny(seed: u64, focus: Focus, strip: u32, rng: &mut Prng) -> Tiny {
    let mut tiny = Tiny {
        align_bytes: rng.pick(&[4096, 8192]),
        log_bytes: rng.pick(&[8192, 65536, 131_072]),
        log_shards: 3,
        region_bytes: grain::region_bytes(strip, rng.range(2, 9)),
        page_regions: draw_page_regions(seed),
    };
    match focus {
        Focus::Ring => (tiny.log_bytes, tiny.log_shards) = (8192, 1),
        Focus::Deep => tiny.log_shards = rng.pick(&[1, 1, 3]),
        _ => {}
    }
    tiny
}

fn draw_block(focus: Focus, rng: &mut Prng) -> u32 {
    let any = rng.pick(&[512, 4096]);
    match focus {
        Focus::Ring if rng.percent(50) => 4096,
        // Where a strip has many blocks, requests have many parts of it to choose among.
        Focus::Deep if rng.percent(75) => 512,
        _ => any,
    }
}

impl Plan {
    /// What a cut leaves whole on every drive, bytes.
    pub fn sector_bytes(&self) -> usize {
        let small = self.devices.iter().any(|device| device.small_sectors);
        if small { 512 } else { self.block as usize }
    }

    /// Shards of a start, by its number.
    pub fn shards_of(&self, start: u64) -> u16 {
        if !self.reshard || start == 0 {
            return self.shards;
        }
        let mut rng = Prng::new(prng::mix(self.seed ^ start << 48), Purpose::Shards);
        // As many as the log has room for.
        self.tiny.log_shards.min(rng.range(1, 3) as u16)
    }

    /// The plan of a seed; `level` is an index of [`LEVELS`].
    pub fn draw(seed: u64, level: Option<usize>) -> Plan {
        Plan::draw_for(seed, level, PlanUse::Seed)
    }

    /// The same, for a script perhaps.
    pub(crate) fn draw_for(seed: u64, level: Option<usize>, plan_use: PlanUse) -> Plan {
        let mut rng = Prng::new(seed, Purpose::Plan);
        let (focus, shape) = Focus::draw(seed, level, &mut rng);
        let shape = shape.widened(seed);
        let strip = rng.pick(&[4096, 4096, 4096, 8192]);
        let strip = match plan_use {
            PlanUse::Script => strip,
            PlanUse::Seed => grain::strip(seed, &shape, strip),
        };
        let tiny = draw_tiny(seed, focus, strip, &mut rng);
        let spares = rng.pick(&[0, 0, 1, 2]);
        let members = usize::from(shape.members);
        let block = draw_block(focus, &mut rng);
        let mut devices = draw_devices(members, spares + 6, &mut rng);
        let room = room_beside_data(&shape, strip, block, &tiny);
        devices.iter_mut().for_each(|device| device.bytes += room);
        let low_ns = rng.pick(&[1_000, 20_000]);
        let mut plan = Plan {
            seed,
            focus,
            shape,
            strip,
            block,
            tiny,
            write_hole: [WriteHole::Closed, WriteHole::Degraded, WriteHole::Resync]
                [rng.weighted(&[14, 3, 3])],
            settings: Settings {
                spare_delay_ms: draw_spare_delay_ms(&mut Prng::new(seed ^ 4, Purpose::Focus)),
                ..draw_settings(seed)
            },
            init: [Init::Lazy, Init::Zero, Init::Sync, Init::AssumeClean]
                [rng.weighted(&[14, 2, 3, 1])],
            devices,
            spares,
            shards: rng.range(1, 4) as u16,
            reshard: Prng::new(seed, Purpose::Shards).one_in(3),
            queues: rng.range(1, 3) as u16,
            slow_shard: Prng::new(seed ^ 14, Purpose::Shards).pick(&[None, None, Some(0), Some(1)]),
            clean_after_ms: rng.pick(&[1, 5, 50]),
            window_bytes: Prng::new(seed ^ 7, Purpose::Focus).pick(&[1, 65536, 65536, 1 << 20]),
            hedging: grain::draw_rules(seed),
            in_place_one_in: 3,
            batch_ns: if seed % 4 == 3 { 1_000_000 } else { 0 },
            budget_bytes: rng.pick(&[1 << 17, 1 << 18, 1 << 19]),
            read_error_threshold: rng.pick(&[None, Some(1), Some(1000), Some(1000)]),
            latencies: Latencies {
                low_ns,
                high_ns: low_ns + rng.pick(&[10_000, 100_000, 400_000]),
                deadline_ns: 50_000_000,
            },
            message_ns: rng.pick(&[100, 5_000, 100_000]),
            lose_in_resync: rng.percent(50),
            pulled_percent: rng.pick(&[0, 50, 100]),
            beyond: Disaster::draw(seed),
            lives: draw_lives(&mut rng),
            made_whole: rng.percent(75),
            lowers: false,
            resets_policy: Prng::new(seed ^ 17, Purpose::Focus).one_in(4),
            elsewhere: Prng::new(seed ^ 13, Purpose::Focus).one_in(3),
            lose_blocks: rng.percent(50),
            decays: false,
            accepts: false,
            spoils_recent: false,
            regrains: false,
            grows_unequally: plan_use == PlanUse::Seed && grain::grows_unequally(seed),
            volumes: false,
        };
        plan.draw_rest(plan_use);
        plan
    }

    /// The draws that have a generator of their own; each may change what those before it chose.
    fn draw_rest(&mut self, plan_use: PlanUse) {
        if self.focus != Focus::Wide {
            self.aim();
        }
        self.draw_reshapes();
        self.draw_lowered();
        self.draw_moves();
        self.draw_trims();
        self.draw_strips();
        self.draw_groups();
        self.draw_inits();
        self.draw_back();
        self.draw_policies();
        self.draw_decay();
        if plan_use == PlanUse::Seed {
            self.draw_spoilt();
            self.draw_accepted();
            self.draw_grain();
            self.draw_volumes();
            self.draw_sectors();
        }
    }

    /// Drives may have smaller blocks than the array. Draws of its own, too.
    fn draw_sectors(&mut self) {
        let mut rng = Prng::new(self.seed ^ 31, Purpose::Focus);
        if self.block == 512 || rng.percent(50) {
            return;
        }
        for device in &mut self.devices {
            device.small_sectors = rng.percent(75);
        }
    }

    /// Where the policy changes, it does so in most lives. Draws of its own, too.
    fn draw_policies(&mut self) {
        let mut rng = Prng::new(self.seed ^ 19, Purpose::Focus);
        for life in self.lives.iter_mut().filter(|_| self.resets_policy) {
            for _ in 0..rng.below(3) {
                let at = life.moment(200, &mut rng);
                life.act(at, Action::Set);
            }
        }
    }

    /// One user in five trims now and then. Draws of its own, too.
    fn draw_trims(&mut self) {
        let mut rng = Prng::new(self.seed ^ 10, Purpose::Focus);
        if !rng.one_in(5) {
            return;
        }
        for life in &mut self.lives {
            for _ in 0..rng.below(4) {
                let at = life.moment(100, &mut rng);
                life.act(at, Action::Trim);
            }
        }
    }

    /// Makes the plan one that is after its focus: the log is on, and lives are short, cut off
    /// while they write, and followed by starts with other members.
    fn aim(&mut self) {
        let mut rng = Prng::new(self.seed ^ 1, Purpose::Focus);
        self.write_hole = WriteHole::Closed;
        self.shards = self.shards.min(self.tiny.log_shards);
        let lives = match self.focus {
            Focus::Deep => rng.range(2, 3),
            _ => rng.range(3, 8),
        };
        let focus = self.focus;
        let life = |_| match focus {
            Focus::Deep => deep_life(&mut rng),
            Focus::Return => returning_life(&mut rng),
            Focus::Join => joining_life(&mut rng),
            Focus::Ring => aimed_life(80, &mut rng),
            Focus::Wide | Focus::Replay => aimed_life(40, &mut rng),
        };
        self.lives = (0..lives).map(life).collect();
    }

    /// Leaves out what the variation leaves out.
    pub fn vary(&mut self, variation: &Variation) {
        if let Some(lives) = variation.lives {
            self.lives.truncate(lives);
        }
        if let Some(most) = variation.asks {
            for life in &mut self.lives {
                life.asks = life.asks.min(most);
                life.end_at.asks = life.end_at.asks.min(most);
            }
        }
    }
}

/// Room for the pages of a map of so many bytes, but the first.
fn map_bytes(tiny: &Tiny, bytes: u64) -> u64 {
    let pages = |regions: u16| bytes / (tiny.region_bytes * u64::from(regions));
    tiny.page_regions
        .map_or(0, |regions| 2 * 4096 * pages(regions) * 5 / 4)
}

impl Plan {
    /// In one of six arrays the zeroing of what was never written is begun, or stopped, by command.
    /// Draws of its own.
    fn draw_inits(&mut self) {
        let mut rng = Prng::new(self.seed ^ 15, Purpose::Focus);
        if !rng.one_in(6) {
            return;
        }
        for life in &mut self.lives {
            for action in [Action::StartInit, Action::StopInit] {
                if rng.one_in(2) {
                    let at = life.early_moment(&mut rng);
                    life.act(at, action);
                }
            }
        }
    }
}

/// A third of the arrays have region maps of several pages.
fn draw_page_regions(seed: u64) -> Option<u16> {
    let mut rng = Prng::new(seed ^ 2, Purpose::Focus);
    rng.one_in(3).then(|| rng.pick(&[4, 8, 16]))
}

/// Half of the arrays do background work as it is by default. Draws of its own, so that what else
/// a seed stands for does not depend on it.
fn draw_settings(seed: u64) -> Settings {
    let mut rng = Prng::new(seed ^ 3, Purpose::Focus);
    let priority = |rng: &mut Prng| rng.pick(&[1, 10, 50, 99, 100]);
    match rng.percent(50) {
        true => Settings::default(),
        false => {
            let rebuild_priority = priority(&mut rng);
            Settings {
                rebuild_priority,
                resync_priority: priority(&mut rng),
                scrub_priority: priority(&mut rng),
                restripe_priority: rebuild_priority,
                init_priority: rebuild_priority,
                latency_target_us: draw_target_us(&mut rng),
                ..Settings::default()
            }
        }
    }
}

/// None, or one that is missed always, sometimes or never.
pub(crate) fn draw_target_us(rng: &mut Prng) -> u32 {
    rng.pick(&[0, 1, 100, 500, 5_000, 60_000_000])
}

/// None, some that end while members come and go, and the usual one.
pub(crate) fn draw_spare_delay_ms(rng: &mut Prng) -> u32 {
    rng.pick(&[0, 0, 1, 20, 180_000])
}

/// The largest device, without what its log takes.
const LARGEST_BYTES: u64 = 88 * 4096;

/// Members of different sizes, and others that are large enough for each of them.
fn draw_devices(members: usize, others: usize, rng: &mut Prng) -> Vec<Device> {
    let caches = rng.below(3);
    let device = |rng: &mut Prng, least: u64| Device {
        bytes: 4096 * rng.range(least, 88),
        volatile_cache: match caches {
            0 => false,
            1 => true,
            _ => rng.percent(50),
        },
        granularity: 0,
        flash: false,
        small_sectors: false,
    };
    let count = members + others;
    (0..count)
        .map(|index| device(rng, if index < members { 72 } else { 88 }))
        .collect()
}

fn draw_lives(rng: &mut Prng) -> Vec<Life> {
    let lives = rng.range(1, 5);
    let ends = [
        rng.range(1, 3) as u32,
        rng.range(0, 6) as u32,
        rng.range(0, 4) as u32,
    ];
    let troubled = rng.percent(90);
    let flapping = rng.pick(&[0, 50, 100]);
    (0..lives)
        .map(|_| draw_life(&ends, troubled, flapping, rng))
        .collect()
}

/// Of what vanishes in it, `flapping` percent are there again soon.
fn draw_life(ends: &[u32; 3], troubled: bool, flapping: u64, rng: &mut Prng) -> Life {
    let short = rng.one_in(5);
    let asks = if short {
        rng.below(4)
    } else {
        rng.range(10, 120)
    };
    let count = if troubled { rng.below(7) } else { 0 };
    let moment = |rng: &mut Prng| Moment {
        asks: rng.below(asks + 1),
        events: rng.below(300),
    };
    let mut actions: Vec<(Moment, Action)> = (0..count)
        .map(|_| (moment(rng), ACTIONS[rng.weighted(&ACTION_WEIGHTS)]))
        .collect();
    let mut returns = Vec::new();
    for &(at, action) in &actions {
        let leaves = matches!(action, Action::Lose | Action::Stall | Action::Fail);
        if leaves && rng.percent(flapping) {
            let later = Moment {
                asks: (at.asks + rng.pick(&[0, 0, 1, 5])).min(asks),
                events: at.events + rng.below(200),
            };
            returns.push((later, Action::Return));
        }
    }
    actions.extend(returns);
    actions.sort_by_key(|&(at, _)| at);
    let end_at = match rng.below(4) {
        0 => Moment {
            asks: 0,
            events: rng.below(150),
        },
        1 => Moment {
            asks,
            events: rng.below(3000),
        },
        _ => moment(rng),
    };
    Life {
        asks,
        actions,
        end: [End::Stop, End::PowerCut, End::Kill][rng.weighted(ends)],
        end_at,
        end_after_loss: rng.one_in(2).then(|| moments_after(rng)),
        read_errors_in_resync: rng.pick(&[0, 0, 1, 4]),
        missing_percent: rng.pick(&[0, 0, 30]),
        return_percent: rng.pick(&[0, 50, 100]),
        ..Life::quiet()
    }
}

/// A life that is cut off while it writes; it begins with members missing, and those that were
/// missing before are there again.
pub(crate) fn aimed_life(most: u64, rng: &mut Prng) -> Life {
    let asks = rng.range(2, most);
    Life {
        asks,
        end: [End::PowerCut, End::Kill][rng.weighted(&[3, 1])],
        end_at: Moment {
            asks: rng.range(1, asks),
            events: rng.below(100),
        },
        missing_percent: rng.pick(&[50, 100]),
        return_percent: rng.pick(&[50, 100]),
        ..Life::quiet()
    }
}

/// A life that is cut off with many requests under way; in half of them members leave meanwhile.
fn deep_life(rng: &mut Prng) -> Life {
    const TROUBLES: [Action; 5] = [
        Action::Lose,
        Action::WriteError,
        Action::Stall,
        Action::Return,
        Action::Replace,
    ];
    let mut life = aimed_life(120, rng);
    life.missing_percent = 100;
    life.asks += 48;
    life.end_at.asks += rng.below(48);
    if rng.percent(50) {
        let trouble = |rng: &mut Prng| {
            let at = life.moment(200, rng);
            (at, TROUBLES[rng.weighted(&[4, 1, 1, 2, 1])])
        };
        life.actions = (0..rng.range(1, 3)).map(|_| trouble(rng)).collect();
        life.actions.sort_by_key(|&(at, _)| at);
        life.end_after_loss = rng.percent(50).then(|| moments_after(rng));
    }
    life
}

/// A life in which a member leaves, misses a write or two, and is offered again as soon as it is
/// out; it ends when that member is in sync, or when nothing comes of it.
fn returning_life(rng: &mut Prng) -> Life {
    let (before, missed) = (rng.range(1, 6), rng.range(1, 2));
    let asks = before + missed;
    let lost_at = Moment {
        asks: before,
        events: rng.range(20, 80),
    };
    let offered_at = |n: u64| Moment {
        asks,
        events: 20 + 10 * n,
    };
    let mut actions = vec![(lost_at, Action::Lose)];
    actions.extend((0..20).map(|n| (offered_at(n), Action::Return)));
    Life {
        actions,
        end_at: Moment { asks, events: 2000 },
        asks,
        ..aimed_life(asks, rng)
    }
}

/// A life in which a member leaves, a device takes its slot, and another member leaves while that
/// is being written down; it ends in the same moment.
fn joining_life(rng: &mut Prng) -> Life {
    let asks = rng.range(2, 6);
    let at = |events: u64| Moment { asks, events };
    let (lost, joins) = (rng.range(10, 60), rng.range(150, 300));
    let leaves = joins + rng.below(40);
    let actions = vec![
        (at(lost), Action::Lose),
        (at(joins), Action::Add),
        (at(leaves), Action::Lose),
    ];
    Life {
        actions,
        end: End::PowerCut,
        end_at: at(leaves + rng.below(30)),
        asks,
        ..aimed_life(asks, rng)
    }
}

/// Events between a loss and a crash: most often the survivors are just being told.
fn moments_after(rng: &mut Prng) -> u64 {
    let most = rng.pick(&[8, 20, 80]);
    rng.below(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_is_drawn_and_fits_the_format() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..500 {
            let shape = Plan::draw(seed, None).shape;
            let group = shape.group.unwrap_or(shape.members);
            shape
                .level
                .check_shape(shape.members, group)
                .expect("a drawn shape makes sense");
            seen.insert(format!("{:?}", std::mem::discriminant(&shape.level)));
        }
        assert_eq!(seen.len(), LEVELS.len());
    }
}
