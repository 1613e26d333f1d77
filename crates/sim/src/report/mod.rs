//! What is told of a world: counts, and a failure in words.
//!
//! Invariant: nothing here depends on the real clock, so equal worlds have equal reports.
//!
//! Deliberately absent: printing (`main`).

pub mod panics;
pub mod tally;
pub(crate) mod words;

use serde::Serialize;

use crate::report::tally::Tally;

/// Declares counts, and how those of two worlds are added: each stands in one place.
macro_rules! counts {
    (
        $(#[$about:meta])*
        pub struct $name:ident {
            $($(#[$what:meta])* pub $count:ident: $kind:ty,)*
        }
    ) => {
        $(#[$about])*
        pub struct $name {
            $($(#[$what])* pub $count: $kind,)*
        }

        impl $name {
            /// Adds what happened in another world.
            pub fn add(&mut self, other: &$name) {
                $(self.$count += other.$count;)*
            }
        }
    };
}

counts! {
    /// What happened, counted.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    pub struct Stats {
        /// Requests of the user.
        pub asks: u64,
        /// Events of the simulation.
        pub events: u64,
        /// Seeds that followed a script.
        pub courses: u64,
        /// Power cuts.
        pub power_cuts: u64,
        /// Kills of the process.
        pub kills: u64,
        /// Power cuts and kills before the array served.
        pub crashes_starting: u64,
        /// Of those, in the middle of a replay of the stripe log.
        pub crashes_replaying: u64,
        /// Power cuts and kills while a member was being rebuilt.
        pub crashes_rebuilding: u64,
        /// Power cuts and kills while a resync was at work.
        pub crashes_resyncing: u64,
        /// Power cuts and kills while a member was missing.
        pub crashes_degraded: u64,
        /// Clean stops.
        pub stops: u64,
        /// Members that went out of service.
        pub losses: u64,
        /// Members that were left out at a start.
        pub missing_at_start: u64,
        /// Lost members that were there again after a restart.
        pub stale_returns: u64,
        /// Members that were replaced by an older image of themselves.
        pub older_images: u64,
        /// Members that were replaced by an image taken before they left.
        pub live_images: u64,
        /// Members that had lost their content but for a copy of the superblock.
        pub hollowed: u64,
        /// Members that came back to be rebuilt only where they had missed writes.
        pub returns: u64,
        /// Of those, rebuilds that were finished.
        pub partial_rebuilds: u64,
        /// Batches of the stripe log that were padded to the write granularity of their devices.
        pub padded_batches: u64,
        /// Seeds with strips of more than 8 KiB.
        pub tall: u64,
        /// Devices of an array that grew, each by another amount.
        pub unequal_growths: u64,
        /// Changes of the array's shape.
        pub reshapes: u64,
        /// Regions of which a shard said that it has nothing but zeros there.
        pub emptied: u64,
        /// Members that lost their superblocks, or got older ones, while they served.
        pub ruined: u64,
        /// Levels that were lowered.
        pub lowered: u64,
        /// Windows of data that moved, and moves that came to an end.
        pub windows: u64,
        /// See above.
        pub moves: u64,
        /// Of these moves, those to other groups.
        pub regrouped: u64,
        /// And of the windows.
        pub regroup_windows: u64,
        /// Windows that were written again after a crash.
        pub resumed: u64,
        /// Arrays in which bands became rows.
        pub folded: u64,
        /// Reads of another shard's stripe that were begun, and those that went to the owner.
        pub visits: u64,
        /// See above.
        pub visits_passed: u64,
        /// Pieces of requests that were split anew.
        pub split_anew: u64,
        /// Starts by force from a part of the members that were refused.
        pub refused_starts: u64,
        /// Rebuilds finished.
        pub rebuilds: u64,
        /// Resyncs finished.
        pub resyncs: u64,
        /// Arrays zeroed throughout.
        pub inits: u64,
        /// Starts that replayed records of the stripe log.
        pub log_replays: u64,
        /// Records that they replayed: one for each write, or part of one, of a stripe.
        pub records_replayed: u64,
        /// Stripes that they mended.
        pub stripes_replayed: u64,
        /// Scrubs finished.
        pub scrubs: u64,
        /// Sectors made unreadable.
        pub latent_errors: u64,
        /// Stripes of which sectors became unreadable as soon as they were written.
        pub spoilt_recently: u64,
        /// Blocks given up there.
        pub given_up_recently: u64,
        /// Parts of undecided regions that were taken for right.
        pub accepted: u64,
        /// Requests of users of volumes.
        pub volume_asks: u64,
        /// Of these, those that lay in several extents.
        pub volume_asks_split: u64,
        /// Requests beyond the end of a volume.
        pub volume_asks_refused: u64,
        /// Changes of volumes that were acknowledged.
        pub volume_changes: u64,
        /// Those that got an error on their way.
        pub volume_changes_failed: u64,
        /// Those that were refused.
        pub volume_changes_refused: u64,
        /// Starts that found a table of volumes.
        pub volume_tables_found: u64,
        /// Of these, those that found a change which was under way.
        pub volume_changes_found: u64,
        /// Tables of volumes that could not be read.
        pub volume_tables_lost: u64,
        /// Unreadable sectors rewritten by the engine.
        pub repairs: u64,
        /// Requests refused where reads failed while parity was untrue.
        pub refused: u64,
        /// Blocks that the engine gave up as unreadable.
        pub lost_blocks: u64,
        /// Blocks given up that were written again.
        pub rewritten_blocks: u64,
        /// Requests answered with an error because of blocks that may be lost.
        pub unreadable_answers: u64,
        /// I/Os that failed on a device that is still there.
        pub io_errors: u64,
        /// Pieces of strips that rotted.
        pub rot: u64,
        /// Blocks that rotted in the midst of everything.
        pub decays: u64,
        /// Of these, those that were true again before the user wrote them anew.
        pub decays_ended: u64,
        /// Of these, those that were there when the array's shape changed.
        pub decays_carried: u64,
        /// Copies of a mirror's blocks that rotted in the midst of everything.
        pub decays_mirrored: u64,
        /// Writes of data that were reported done and never happened.
        pub silently_lost: u64,
        /// Writes of data that landed elsewhere.
        pub misdirected: u64,
        /// Writes of metadata that landed in data.
        pub misdirected_into_data: u64,
        /// Faults in metadata, by what they hit.
        #[serde(flatten)]
        pub metadata: Tally,
        /// Arrays in which all of that was found and made true again.
        pub cures: u64,
        /// Writes torn by a power cut or a kill.
        pub torn_writes: u64,
        /// Writes lost by a power cut or a kill.
        pub lost_writes: u64,
        /// Arrays that lost more members at once than the level survives.
        pub beyond_at_once: u64,
        /// The same, one after another.
        pub beyond_one_by_one: u64,
        /// The same, in the same instant as the power.
        pub beyond_with_power: u64,
        /// The same, while a member was being rebuilt.
        pub beyond_rebuilding: u64,
        /// The same, while the stripe log was being replayed.
        pub beyond_replaying: u64,
        /// Arrays with sectors unreadable on more members than parity covers.
        pub beyond_sectors: u64,
        /// Arrays the metadata of which was destroyed on too many members.
        pub beyond_metadata: u64,
        /// Arrays the log areas of which were destroyed.
        pub beyond_logs: u64,
        /// Arrays of which two parts were started apart.
        pub beyond_parted: u64,
        /// Arrays that were started twice from one past.
        pub beyond_branches: u64,
        /// Arrays that lost the power and members while they wrote without a log.
        pub beyond_unlogged: u64,
        /// Arrays that lost another member after a start by force, before parity was true.
        pub beyond_after_force: u64,
        /// Arrays that said that they have failed.
        pub beyond_failures: u64,
        /// Requests answered with an error because too much was lost.
        pub beyond_errors: u64,
        /// Starts refused because too little was there.
        pub beyond_refusals: u64,
        /// Arrays that came back after that.
        pub comebacks: u64,
        /// Of those, by force.
        pub forced_starts: u64,
        /// Late reads that were asked of the other members, too (as far as the array was told).
        pub hedges: u64,
        /// Of those, answered by the others.
        pub hedges_won: u64,
        /// Of those, answered by the member after all.
        pub hedges_lost: u64,
        /// Late reads that the budget left waiting.
        pub hedges_refused: u64,
        /// Members that were called slow.
        pub slow_members: u64,
        /// Devices that failed all for a moment, and vanished.
        pub ebbs: u64,
        /// Devices that were reset.
        pub resets: u64,
        /// Times that devices had no space.
        pub fills: u64,
        /// Writes that waited for space.
        pub fill_waits: u64,
        /// Devices that were given up for want of space.
        pub fill_losses: u64,
        /// I/Os that were tried again.
        pub retries: u64,
        /// I/Os that got through in the end.
        pub retried_through: u64,
        /// Virtual time, milliseconds.
        pub virtual_ms: u64,
    }
}

/// Something that must not be.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was found, and what was expected.
    pub text: String,
    /// What happened before, in words.
    pub story: Vec<String>,
}

/// What came of one seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The array, in words.
    pub world: String,
    /// Counts.
    pub stats: Stats,
    /// Hash of everything that happened.
    pub hash: u64,
    /// What went wrong, if anything did.
    pub failure: Option<Failure>,
}
