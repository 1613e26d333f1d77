//! The catalogue of errors that a user sees: a stable code, what was found, the cure.
//!
//! Invariants: every code is listed in [`Code::ALL`] with its exit code and a default cure (a test
//! walks it); the same three fields travel in the API's answers and on standard error; a code once
//! published keeps its meaning. Deliberately absent: error chains, backtraces and prose longer than
//! one line.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strake_engine::create::CreateError;
use strake_engine::event::CommandError;
use strake_engine::{Aside, StartError};
use strake_format::{SelectError, Slot};
use strake_runtime::{DeviceError, ServeError};

use crate::common::size;
use crate::common::uses;

/// Exit status of a command (cli.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It was tried and failed.
    Failed = 1,
    /// The command line (or request) makes no sense.
    Usage = 2,
    /// No such array, member or device.
    NotFound = 3,
    /// Refused because in use or not safe.
    Refused = 4,
    /// Done, but the array is degraded.
    Degraded = 5,
    /// The array has failed.
    ArrayFailed = 6,
    /// The array is stopped, and can be started.
    Stopped = 7,
    /// The array is stopped, and what was found of it does not suffice to start it, or contradicts
    /// itself.
    TooFew = 8,
    /// Without a daemon that answers, it is not known what state the array is in.
    Unknown = 9,
    /// A job came to its end and found what it did not mend.
    Found = 10,
    /// A job was waited for and did not come to its end.
    Unfinished = 11,
}

macro_rules! catalogue {
    ($(#[doc = $doc:literal] $variant:ident, $name:literal, $exit:ident, $cure:literal;)*) => {
        /// Stable codes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Code { $(#[doc = $doc] $variant,)* }

        impl Code {
            /// Every code.
            pub(crate) const ALL: &[Code] = &[$(Code::$variant,)*];
            /// The stable name, in kebab-case.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Code::$variant => $name,)* }
            }
            /// The exit status that goes with it.
            pub(crate) fn exit(self) -> Exit {
                match self { $(Code::$variant => Exit::$exit,)* }
            }
            /// What it is about, for the reference.
            #[cfg(test)]
            pub(crate) fn about(self) -> &'static str {
                match self { $(Code::$variant => $doc,)* }
            }
            /// What to do about it, unless the place where it was found knows better.
            pub(crate) fn cure(self) -> &'static str {
                match self { $(Code::$variant => $cure,)* }
            }
        }
    };
}

catalogue! {
    /// The command line does not parse.
    Usage, "usage", Usage, "see strake --help";
    /// The request does not parse.
    BadRequest, "bad-request", Usage, "see /openapi.json for what the API takes";
    /// No such route.
    NoRoute, "no-such-route", NotFound, "see /openapi.json for what the API has";
    /// Not a level.
    LevelUnknown, "level-unknown", Usage, "use 0, 1, 5, 6, 7.3, 10, 50, 60, 70 or N+M";
    /// Not a name.
    NameInvalid, "name-invalid", Usage,
        "use 1 to 32 letters, digits, '.', '_' or '-', starting with a letter or digit";
    /// Not a size.
    SizeInvalid, "size-invalid", Usage,
        "use a number with K, M, G or T (powers of 1024) or kB, MB, GB, TB (powers of 1000)";
    /// Not a strip.
    StripInvalid, "strip-invalid", Usage, "use a power of two from 4K to 1M";
    /// Strip and granularity.
    StripGranularity, "strip-below-granularity", Usage, "choose a larger strip";
    /// Too few.
    TooFewMembers, "too-few-members", Usage, "give more devices or choose another level";
    /// Too many.
    TooManyMembers, "too-many-members", Usage, "give fewer devices or choose another level";
    /// Too many spares.
    TooManySpares, "too-many-spares", Usage, "an array keeps at most 16 spares";
    /// Group size.
    GroupSize, "group-size-invalid", Usage,
        "choose a --group-size that divides the number of members";
    /// Block size.
    BlockSize, "block-size-invalid", Usage,
        "use --block-size 512 or 4096, at least the members' own";
    /// Mixed sector sizes.
    MixedBlocks, "mixed-sector-sizes", Usage,
        "use devices of one sector size, or give --block-size 4096";
    /// A drive that the catalogue of `plan` does not have.
    DriveUnknown, "drive-unknown", NotFound,
        "strake plan --drives lists the catalogue, --drive-file FILE adds to it";
    /// A catalogue of drives that cannot be read.
    CatalogueInvalid, "catalogue-invalid", Usage,
        "correct the line that is named; docs/how-to/plan.md shows a drive";
    /// A host file of `plan` that cannot be read.
    HostFileInvalid, "host-file-invalid", Usage,
        "correct the line that is named, or write it anew: cargo xtask bench system --host FILE";
    /// A shape or a drive that `plan --simulate` has no model of.
    NotSimulated, "not-simulated", Usage,
        "plan it by formula alone: leave --simulate out";
    /// Not a load.
    LoadInvalid, "load-invalid", Usage, "give a load as rand-read:4K:90 or seq-write:1M:38:2GB";
    /// A figure of `plan` that makes no sense.
    FigureInvalid, "figure-invalid", Usage, "see strake plan --help for what it takes";
    /// No shape reaches what `plan --best-for` is to reach.
    NoShape, "no-shape", Failed, "ask for less, or give more or other drives";
    /// The log areas are too small for the stripe log of this geometry.
    LogTooSmall, "log-too-small", Usage,
        "give the daemon fewer shards, or set write_hole=resync";
    /// Members missing, rebuilds or a resync under way.
    NotOptimal, "not-optimal", Refused,
        "see strake show: replace what is missing, wait for what is being rebuilt or resynced";
    /// A change of shape under way.
    Reshaping, "reshape-under-way", Refused, "try again in a moment";
    /// Data on its way to another shape.
    DataMoves, "data-moves", Refused,
        "wait until the restripe has ended (strake show); strake restripe NAME --continue where it \
         was stopped";
    /// No data on its way.
    NothingMoves, "nothing-moves", Refused, "strake restripe NAME --add DEV begins a move";
    /// Nothing to be decided.
    NothingUndecided, "nothing-undecided", Refused, "strake show says what is undecided";
    /// No such change of shape.
    ShapeUnreachable, "shape-unreachable", Usage,
        "RAID 0, 5, 6, 7.3 and N+M take data columns, one for each device, up to 64 members; 50, \
         60 and 70 whole groups";
    /// A backup taken in the middle of a move.
    BackupMoving, "backup-moving", Refused,
        "the frontier has gone on since the backup, and only members tell where it is: start the \
         array from members with whole superblocks";
    /// Members without more room.
    NothingToGrow, "nothing-to-grow", Refused,
        "replace every member, and every spare, by a larger one first (strake replace)";
    /// A region map without more room.
    MapTooSmall, "map-too-small", Failed, "make a new array on these devices and copy";
    /// No such change of level.
    LevelUnreachable, "level-unreachable", Usage,
        "0 becomes 5, 5 becomes 6 and 6 becomes 7.3, with one device for each parity more, and \
         back without";
    /// The last parity.
    LastParity, "last-parity", Refused,
        "use --force if no member needs to be lost: any that fails takes the array's data with it \
         then";
    /// The memory limit.
    MemoryLimit, "memory-limit-too-small", Usage,
        "strake set NAME memory_limit=SIZE with at least that, or shards=N with fewer threads";
    /// More memory than there is.
    MemoryShort, "memory-short", Refused,
        "strake set NAME memory_limit=SIZE with less, or shards=N with fewer threads; for all \
         arrays: strake daemon --memory";
    /// More descriptors than there are.
    DescriptorsShort, "descriptors-short", Refused,
        "raise the limit (LimitNOFILE= in the service's unit, ulimit -n), or stop an array";
    /// No thread or process more can be made.
    ThreadsShort, "threads-short", Refused,
        "end what takes them, raise the limit that is reached (TasksMax= in the service's unit, \
         pids.max of the cgroup, ulimit -u of the user), or give arrays fewer threads: shards=N";
    /// The process may not use io_uring.
    NoIoUring, "no-io-uring", Failed,
        "permit it: sysctl kernel.io_uring_disabled=0, a seccomp profile with io_uring, a larger \
         RLIMIT_MEMLOCK; nothing was written";
    /// The folder of the daemon's state is somebody else's.
    StateDir, "state-dir-not-ours", Refused,
        "set STRAKE_DIR to a folder that only you can write: chown, chmod go-w";
    /// The file system of the daemon's folder takes no change.
    StateDirSilent, "state-dir-silent", Refused,
        "look at the kernel log and whether the file system is frozen (fsfreeze -u); or set \
         STRAKE_DIR to a folder on another";
    /// Setting.
    SettingInvalid, "setting-invalid", Usage,
        "rebuild_priority, resync_priority, scrub_priority, restripe_priority, init_priority: \
         1 to 100; latency_target: off, 2ms (50us to 60s); spare_delay: off, 45s (to 7d); \
         read_error_threshold: 1 and more; write_hole: closed, degraded, resync; \
         hedged_reads: on, off; scrub_schedule: off, continuous, daily, weekly, monthly; \
         scrub_at: 03:00; scrub_policy: report, repair, halt; cpus: auto, 0-3,8; \
         shards: auto, 1 to 64; memory_limit: auto, 256M; requests: auto, 1 and more; \
         replace_at_wear: off, 1 to 100; pool: none, NAME";
    /// Beyond the end of the array.
    LbaInvalid, "lba-out-of-range", Usage, "use a block number below the array's size";
    /// Not there.
    DeviceNotFound, "device-not-found", NotFound, "check the path";
    /// No such file.
    FileNotFound, "file-not-found", NotFound, "check the path";
    /// No array.
    ArrayNotFound, "array-not-found", NotFound,
        "strake scan lists the arrays that the drives carry";
    /// No member.
    MemberNotFound, "member-not-found", NotFound, "strake show NAME lists slots and devices";
    /// Not one of ours.
    NotAMember, "not-a-member", NotFound, "choose a device that strake scan lists";
    /// Neither block device nor file.
    DeviceKind, "device-kind", Usage, "use a block device or a regular file";
    /// Too small.
    DeviceTooSmall, "device-too-small", Usage, "use a larger device";
    /// The daemon's configuration file.
    ConfigInvalid, "config-invalid", Usage,
        "mend the file; strake config check says whether it is right";
    /// The same twice.
    DeviceTwice, "device-given-twice", Usage,
        "give every device once; links to one device are one device";
    /// No permission.
    Permission, "permission-denied", Failed,
        "run as root, or use files and a STRAKE_DIR of your own";
    /// Mounted.
    DeviceMounted, "device-mounted", Refused, "unmount it first";
    /// Held by the kernel or another program.
    DeviceBusy, "device-busy", Refused, "stop what uses it first";
    /// It cannot be written.
    DeviceReadOnly, "device-read-only", Refused,
        "make it writable (blockdev --setrw, a mount without ro), or use another device";
    /// It has partitions.
    DevicePartitioned, "device-partitioned", Refused,
        "choose a partition or an empty device, or use --force to overwrite it";
    /// Foreign signature.
    ForeignSignature, "foreign-signature", Refused, "use --force to overwrite it";
    /// No prober.
    NoProber, "no-prober", Refused,
        "install util-linux (wipefs), or use --force if you are sure that the device is empty";
    /// Member of another array.
    MemberOfArray, "member-of-another-array", Refused,
        "strake destroy that array first, or use --force to take the device away from it";
    /// Name is taken.
    NameExists, "name-exists", Refused, "choose another name, or strake destroy the old array";
    /// The name of another array, as far as this machine knows.
    NameOfAnother, "name-of-another-array", Refused,
        "strake import UUID --as NAME starts it under another name";
    /// Two arrays, one name.
    NameAmbiguous, "name-ambiguous", Refused,
        "use the uuid that strake scan shows instead of the name, or strake import UUID --as NAME";
    /// In use.
    ArrayInUse, "array-in-use", Refused, "unmount its block device or stop it first";
    /// No volume.
    VolumeNotFound, "volume-not-found", NotFound, "strake volume show ARRAY lists its volumes";
    /// A volume of that name.
    VolumeExists, "volume-exists", Refused,
        "choose another name, or strake volume delete the old one";
    /// A volume in use.
    VolumeInUse, "volume-in-use", Refused, "unmount its block device, or close what is connected";
    /// Too many volumes.
    TooManyVolumes, "too-many-volumes", Refused, "delete one: an array has at most 1023";
    /// An array with data is not carved.
    ArrayNotEmpty, "array-not-empty", Refused,
        "use another array, or --force to give up what is written: volumes take its place";
    /// No room for a volume.
    ArrayFull, "array-full", Failed,
        "choose a smaller size, or delete or shrink a volume: strake volume show ARRAY tells what \
         is free";
    /// A smaller size that nobody confirmed.
    WouldShrink, "would-shrink", Refused,
        "use --shrink if nothing behind the new end is needed any more";
    /// The table of volumes.
    VolumeTableDamaged, "volume-table-damaged", Failed,
        "bring missing members back and start the array again; nothing was written";
    /// Needs a yes.
    NotConfirmed, "not-confirmed", Refused, "use --yes to go on without being asked";
    /// Too many members missing.
    MembersMissing, "members-missing", Refused,
        "bring the missing members back; nothing was written";
    /// Too few members are left without those that lost a superblock.
    MembersEmptied, "members-emptied", Refused,
        "bring the missing members back; or, where what these hold is believed: start --force, and \
         check the data";
    /// Not a backup, or not one of this format.
    BackupInvalid, "backup-invalid", Usage, "use what strake config backup wrote, as it is";
    /// Members that do not have the same history.
    MembersDisagree, "members-disagree", Refused,
        "if you know that every member was in sync to the end: --accept-stale; what is stale \
         becomes the data otherwise";
    /// No such channel of alerts.
    ChannelNotFound, "channel-not-found", NotFound,
        "strake alert status lists channels; [[alerts]] in the configuration makes one";
    /// No such pool.
    PoolNotFound, "pool-not-found", NotFound,
        "strake pool show lists pools; strake pool create NAME DEV makes one";
    /// Two pools, one name.
    PoolAmbiguous, "pool-ambiguous", Refused,
        "use the uuid that strake pool show tells: strake pool delete UUID";
    /// A pool of that name.
    PoolExists, "pool-exists", Refused, "strake pool add NAME DEV adds to it";
    /// It waits in a pool.
    DeviceInPool, "device-in-pool", Refused,
        "strake pool remove POOL DEV first, or use --force to take it";
    /// No light to find a drive by.
    NoLight, "no-locate-light", Failed,
        "look for its serial number: strake show NAME --wear --json, or lsblk -o NAME,SERIAL";
    /// No spare waits.
    NoSpare, "no-spare", Refused,
        "strake add NAME DEV adds one, or name the device to replace it with";
    /// Members are missing, and the daemon is not to start it then.
    DegradedStart, "degraded-start-not-allowed", Refused,
        "bring the missing members back, or strake start NAME";
    /// It was destroyed on this machine while members were away.
    Destroyed, "array-destroyed", Refused,
        "strake destroy UUID wipes what is left of it; strake start --force UUID takes it back";
    /// All that is found is older than what this host served.
    MembersOlder, "members-older", Refused,
        "bring the members as they were then; or, if older data is wanted, name the devices: \
         strake start NAME DEV";
    /// Split-brain.
    SplitBrain, "split-brain", Refused,
        "start it with the members of the half that is right, and add the others anew; \
         nothing was written";
    /// A member that cannot come back by what was written since.
    NotKept, "member-not-kept", Refused,
        "strake add NAME DEV takes it as a new device and rebuilds all of it";
    /// Dirty and degraded.
    DirtyDegraded, "dirty-degraded", Refused,
        "bring the missing members back, or use start --force and check the data";
    /// Two devices, one member.
    MemberTwice, "member-found-twice", Refused,
        "take the copy away, or name the devices to start it from: strake start NAME DEV";
    /// Metadata of a newer version.
    Newer, "metadata-newer", Refused, "use the version of Strake that wrote it, or a later one";
    /// Metadata is damaged.
    Damaged, "metadata-damaged", Failed,
        "strake examine DEV tells which copies are damaged; the other members may still start \
         the array";
    /// The list of unreadable blocks is full.
    ListFull, "unreadable-list-full", Refused,
        "bring the missing members back, or use start --force, which takes what cannot be listed \
         as zeros and tells where";
    /// More than a block device can have.
    ArrayTooLarge, "array-too-large", Refused,
        "use fewer or smaller members, or make several arrays";
    /// The stripe log has no numbers left.
    NumbersExhausted, "log-numbers-exhausted", Refused,
        "use start --force, which goes on without the log (write_hole=resync), and copy the data \
         to a new array";
    /// A counter on the members ends.
    CounterExhausted, "counter-exhausted", Refused,
        "nothing was written: strake examine DEV shows the counter; copy the data to a new array";
    /// Too many devices in one session.
    DeviceNumbers, "device-numbers-exhausted", Refused,
        "strake stop NAME, then strake start NAME: devices are numbered anew then";
    /// Would fail the array.
    WouldFail, "would-fail", Refused,
        "wait for the rebuild, or strake add NAME DEV for one: strake show NAME tells which \
         member is missing";
    /// Member in use.
    MemberInUse, "member-in-use", Refused, "strake fail NAME MEMBER first";
    /// Being rebuilt.
    Rebuilding, "slot-rebuilding", Refused, "wait for the rebuild, or stop it";
    /// Not serving.
    NotServing, "array-not-serving", Refused, "strake start NAME first";
    /// Another change of the same array.
    ChangeUnderWay, "change-under-way", Refused,
        "wait until it has ended: strake events tells what happens to the array";
    /// A thread of the array stands still.
    ArraySilent, "array-silent", Failed,
        "look at the kernel log for a device that hangs; where the thread does not go on, end the \
         daemon and start it again: the array comes back as after a kill";
    /// What was asked for has begun, and its end is not known.
    CommandUnfinished, "command-unfinished", Failed,
        "it may be done yet: strake show NAME and strake events tell when it is; look at the \
         kernel log for a device that hangs";
    /// As many clients follow events as may.
    TooManyFollowers, "too-many-followers", Refused,
        "end one of them, or ask again and again: strake events, GET /v1/events?since=N";
    /// Each connection of the API is busy.
    TooManyClients, "too-many-clients", Refused,
        "end clients of the API that do not read their answers, or follow events (ss -xp | grep \
         api.sock names them), and try again";
    /// Without a session of the console.
    NoSession, "no-session", Refused,
        "run strake console again, and open the link that it prints";
    /// A link of the console that opens nothing.
    LinkNotValid, "link-not-valid", Refused,
        "run strake console again: each link opens one browser, once";
    /// A request of another page, or for another name.
    ForeignRequest, "foreign-request", Refused,
        "use the link that strake console prints, in a browser on this machine or through ssh -L";
    /// Another program listens.
    PortInUse, "port-in-use", Refused,
        "give another --port, or omit it for a free one; ss -ltnp names the program";
    /// No ublk.
    NoUblk, "no-ublk", Failed,
        "use --export nbd, or load the kernel's ublk_drv (6.0 or newer) and run as root";
    /// No daemon.
    NoDaemon, "no-daemon", Failed,
        "start it with strake daemon, or serve one array with strake start --foreground: one that \
         a process serves so takes no commands before the process ends";
    /// Daemon is there already.
    DaemonRunning, "daemon-running", Refused,
        "one daemon serves a STRAKE_DIR; give this one another";
    /// The daemon hung up.
    DaemonLost, "daemon-lost", Failed, "look at the daemon's log";
    /// The daemon does not answer.
    DaemonSilent, "daemon-silent", Failed,
        "look whether it is stopped (SIGSTOP, a frozen cgroup) or hangs on a device: the daemon's \
         log, the kernel log";
    /// A device does not answer, or cannot be read.
    DeviceSilent, "device-silent", Refused,
        "look at the kernel log; mend the device, or remove it from the machine";
    /// No room.
    NoSpace, "no-space", Failed,
        "make room in the file system that it is about: that of the members, or of STRAKE_DIR";
    /// The member failed while in use.
    DeviceFailed, "device-failed", Failed,
        "check the drive (kernel log, smartctl), then try again or use another";
    /// An I/O failed.
    Io, "io-error", Failed, "see the errno; the kernel log may tell more";
    /// No such study.
    StudyNotFound, "study-not-found", NotFound,
        "strake study list names studies; a file is named by its path, such as ./mine.toml";
    /// A file that is no study.
    StudyInvalid, "study-invalid", Usage,
        "mend the file; strake study show NAME --toml prints one that is right";
    /// The folder of a study is there.
    StudyExists, "study-exists", Refused,
        "strake study resume goes on with it; or give another --out";
    /// Another process carries out the study.
    StudyBusy, "study-busy", Refused, "wait until it has ended, or end it";
    /// A step of a study failed.
    StudyFailed, "study-failed", Failed,
        "mend what it names, then strake study resume DIR: what is measured is kept";
    /// A program of the system is missing.
    ProgramMissing, "program-missing", Failed, "install the package that it names";
    /// The demo found wrong data.
    DemoFailed, "demo-failed", Failed, "keep the folder that it names and report it";
    /// A bug.
    Internal, "internal", Failed, "this is a bug in Strake: please report it";
}

impl Code {
    /// The code of that name.
    pub(crate) fn from_name(name: &str) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| code.name() == name)
    }
    /// Status of an HTTP answer that carries it.
    pub(crate) fn http(self) -> u16 {
        match self.exit() {
            Exit::Failed
            | Exit::Degraded
            | Exit::ArrayFailed
            | Exit::Stopped
            | Exit::TooFew
            | Exit::Unknown
            | Exit::Found
            | Exit::Unfinished => 500,
            Exit::Usage => 400,
            Exit::NotFound => 404,
            Exit::Refused => 409,
        }
    }
}

/// One error as a user sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Its code.
    pub(crate) code: Code,
    /// What was found.
    pub(crate) found: String,
    /// What to do.
    pub(crate) cure: String,
}

/// The same in JSON.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(crate) struct FailureJson {
    /// Its code.
    pub(crate) code: String,
    /// What was found.
    pub(crate) found: String,
    /// What to do.
    pub(crate) cure: String,
}

impl Failure {
    /// An error with the catalogue's cure.
    pub(crate) fn new(code: Code, found: impl Into<String>) -> Failure {
        Failure {
            code,
            found: one_line(&found.into()),
            cure: code.cure().to_owned(),
        }
    }
    /// The same with a cure that fits the place better.
    pub(crate) fn cure(mut self, cure: impl Into<String>) -> Failure {
        self.cure = cure.into();
        self
    }
    /// The same about a device.
    pub(crate) fn about(mut self, device: impl fmt::Display) -> Failure {
        self.found = format!("{device}: {}", self.found);
        self
    }
    /// An I/O error while doing something.
    pub(crate) fn io(doing: impl fmt::Display, error: &io::Error) -> Failure {
        let code = match error.kind() {
            _ if strake_runtime::is_short_of_threads(error) => Code::ThreadsShort,
            io::ErrorKind::PermissionDenied => Code::Permission,
            _ if is_without_room(error) => Code::NoSpace,
            io::ErrorKind::OutOfMemory => Code::MemoryShort,
            _ => Code::Io,
        };
        let failure = Failure::new(code, format!("{doing}: {error}"));
        match error.kind() {
            // No call to the kernel failed: it is Strake that does not take the file.
            io::ErrorKind::InvalidInput if error.raw_os_error().is_none() => {
                failure.cure("it must be a regular file, or not be there yet")
            }
            io::ErrorKind::FileTooLarge => failure.cure(RAISE_FILE_LIMIT),
            io::ErrorKind::OutOfMemory => failure.cure(RAISE_MEMORY_LIMIT),
            _ => failure,
        }
    }
    /// As JSON.
    pub(crate) fn json(&self) -> FailureJson {
        FailureJson {
            code: self.code.name().to_owned(),
            found: self.found.clone(),
            cure: self.cure.clone(),
        }
    }
}

impl From<FailureJson> for Failure {
    fn from(json: FailureJson) -> Failure {
        let code = Code::from_name(&json.code).unwrap_or(Code::Internal);
        Failure {
            code,
            found: json.found,
            cure: json.cure,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "error[{}]: {}; {}",
            self.code.name(),
            self.found,
            self.cure
        )
    }
}

fn one_line(text: &str) -> String {
    text.split('\n')
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// A device or file that another one has, and which one that is where it can be found out.
fn busy_text(path: &Path) -> String {
    match uses::of(path) {
        Some(used) => format!("{}: in use: it is {used}", path.display()),
        None => format!("{}: in use by another process", path.display()),
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Failure {
        let code = match &error {
            DeviceError::NotFound(_) => Code::DeviceNotFound,
            DeviceError::Permission(_) => Code::Permission,
            DeviceError::ReadOnly(_) => Code::DeviceReadOnly,
            DeviceError::Busy(_) => Code::DeviceBusy,
            DeviceError::Kind(_) => Code::DeviceKind,
            DeviceError::NoNumber(_) => Code::DeviceNumbers,
            DeviceError::Io { source, .. } if is_without_room(source) => Code::NoSpace,
            DeviceError::Io { .. } => Code::Io,
            DeviceError::NotStrake(_) => Code::NotAMember,
            DeviceError::Newer { .. } => Code::Newer,
            DeviceError::Damaged { .. } | DeviceError::Shrunk { .. } => Code::Damaged,
        };
        let found = match &error {
            DeviceError::Busy(path) => busy_text(path),
            _ => error.to_string(),
        };
        let failure = Failure::new(code, found);
        match error {
            DeviceError::Io { source, .. } if source.kind() == io::ErrorKind::FileTooLarge => {
                failure.cure(RAISE_FILE_LIMIT)
            }
            DeviceError::Shrunk {
                path,
                recorded_bytes,
                ..
            } => failure.cure(format!(
                "give it its {recorded_bytes} bytes back; strake scan names its array, and \
                 strake show NAME what else helps; strake drive clean {} makes it a free device",
                crate::common::quoted(&path)
            )),
            _ => failure,
        }
    }
}

impl From<CreateError> for Failure {
    fn from(error: CreateError) -> Failure {
        let code = match &error {
            CreateError::TooFew { .. } => Code::TooFewMembers,
            CreateError::TooMany { .. } => Code::TooManyMembers,
            CreateError::TooManySpares(_) => Code::TooManySpares,
            CreateError::Strip(_) => Code::StripInvalid,
            CreateError::StripGranularity { .. } => Code::StripGranularity,
            CreateError::NoGroups(_)
            | CreateError::GroupSizeMissing(_)
            | CreateError::GroupSize { .. } => Code::GroupSize,
            CreateError::Block(_) | CreateError::BlockTooSmall { .. } => Code::BlockSize,
            CreateError::MixedBlocks(..) => Code::MixedBlocks,
            CreateError::Layout { .. } => Code::DeviceTooSmall,
            CreateError::TooLarge { .. } => Code::ArrayTooLarge,
        };
        let failure = Failure::new(code, error.to_string());
        match error {
            CreateError::NoGroups(_) => failure.cure("omit --group-size"),
            CreateError::GroupSizeMissing(_) => failure.cure("give --group-size"),
            _ => failure,
        }
    }
}

/// The code of a command that the engine refuses.
fn code_of(error: &CommandError) -> Code {
    match error {
        CommandError::NoSuchSlot | CommandError::NoSuchMember => Code::MemberNotFound,
        CommandError::WouldFail => Code::WouldFail,
        CommandError::InUse => Code::MemberInUse,
        CommandError::TooSmall { .. } => Code::DeviceTooSmall,
        CommandError::BlockSize { .. } => Code::MixedBlocks,
        CommandError::NothingToReplace => Code::MemberNotFound,
        CommandError::TooManySpares => Code::TooManySpares,
        CommandError::OutOfRange => Code::SettingInvalid,
        CommandError::NotServing => Code::NotServing,
        CommandError::Silent(_) => Code::ArraySilent,
        CommandError::Unfinished(_) => Code::CommandUnfinished,
        CommandError::Rebuilding => Code::Rebuilding,
        CommandError::DeviceFailed => Code::DeviceFailed,
        CommandError::NotKept => Code::NotKept,
        CommandError::SplitBrain => Code::SplitBrain,
        CommandError::LogTooSmall => Code::LogTooSmall,
        CommandError::NumbersExhausted => Code::NumbersExhausted,
        CommandError::ArrayTooLarge { .. } => Code::ArrayTooLarge,
        CommandError::NotOptimal => Code::NotOptimal,
        CommandError::Reshaping => Code::Reshaping,
        CommandError::Moving => Code::DataMoves,
        CommandError::NothingMoves => Code::NothingMoves,
        CommandError::NothingUndecided => Code::NothingUndecided,
        CommandError::NoSuchShape { .. }
        | CommandError::SameShape
        | CommandError::NotTogether
        | CommandError::StripUnfit { .. } => Code::ShapeUnreachable,
        CommandError::NoSuchGroups { .. } => Code::GroupSize,
        CommandError::WouldShrink { .. } | CommandError::MirrorTooSmall { .. } => Code::WouldShrink,
        CommandError::LastParity { .. } => Code::LastParity,
        CommandError::NoSuchStrip { .. } => Code::StripInvalid,
        CommandError::StripGranularity { .. } => Code::StripGranularity,
        CommandError::NothingToGrow { .. } => Code::NothingToGrow,
        CommandError::MapTooSmall { .. } => Code::MapTooSmall,
        CommandError::NoSuchLevel { .. }
        | CommandError::ParitiesStay { .. }
        | CommandError::NoMirror { .. } => Code::LevelUnreachable,
        CommandError::BuffersTooFew { .. } => Code::MemoryLimit,
    }
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Failure {
        let failure = Failure::new(code_of(&error), error.to_string());
        match error {
            CommandError::BlockSize { .. } => {
                failure.cure("use a device with blocks no larger than the array's")
            }
            CommandError::SameShape => failure.cure(
                "name another strip, other groups, or devices to add; --rotate is for parities \
                 that restripe added",
            ),
            CommandError::WouldShrink { .. } => failure.cure("give more devices, or larger groups"),
            CommandError::MirrorTooSmall { has, .. } => failure.cure(format!(
                "level 10 of {} devices holds as much, as a new array; fewer data columns are none \
                 of this one",
                2 * has
            )),
            CommandError::NotTogether => {
                failure.cure("lower the level alone, and ask for the rest when that is done")
            }
            CommandError::NoSuchGroups { .. } => failure.cure(
                "choose a --group-size that divides the number of members, or give whole groups of \
                 devices",
            ),
            CommandError::StripUnfit { .. } => failure.cure(
                "choose a smaller strip; an array that has grown to 256 MiB of each member and \
                 more takes any",
            ),
            _ => failure,
        }
    }
}

impl From<SelectError> for Failure {
    fn from(error: SelectError) -> Failure {
        let code = match &error {
            SelectError::NotStrake => Code::NotAMember,
            SelectError::NoValidCopy { .. }
            | SelectError::CopiesDisagree { .. }
            | SelectError::CopiesDiffer { .. }
            | SelectError::Shrunk { .. } => Code::Damaged,
            SelectError::NoMembers => Code::ArrayNotFound,
            SelectError::TwoArrays { .. } => Code::MemberOfArray,
            SelectError::DuplicateMember { .. } => Code::MemberTwice,
            SelectError::SplitBrain { .. } => Code::SplitBrain,
            SelectError::AuthorityAbsent { .. } => Code::MembersMissing,
        };
        Failure::new(code, error.to_string())
    }
}

/// Is there a member among these that lost a copy of its superblock?
fn is_emptied(aside: &[(Slot, Aside)]) -> bool {
    let emptied = |(_, aside): &(Slot, Aside)| matches!(aside, Aside::Emptied { .. });
    aside.iter().any(emptied)
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Failure {
        let code = match &error {
            StartError::Select(select) => return Failure::from(*select),
            StartError::TooFewMembers { aside, .. } if is_emptied(aside) => Code::MembersEmptied,
            StartError::TooFewMembers { .. } => Code::MembersMissing,
            StartError::DirtyDegraded => Code::DirtyDegraded,
            StartError::LogTooSmall(_) => Code::LogTooSmall,
            StartError::ListFull { .. } => Code::ListFull,
            StartError::NumbersExhausted { .. } => Code::NumbersExhausted,
            StartError::CounterExhausted { .. } => Code::CounterExhausted,
            StartError::MapDamaged(_) | StartError::UnreadableDamaged => {
                // Other members have no other, but superblocks are there, and data may be whole.
                let cure = "bring members that are missing; if none is, strake config backup FILE \
                            and strake config restore FILE make its metadata again over the data \
                            that is there";
                return Failure::new(Code::Damaged, error.to_string()).cure(cure);
            }
            StartError::Geometry(_) => Code::Damaged,
        };
        Failure::new(code, error.to_string())
    }
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Failure {
        match error {
            ServeError::Start(start) => start.into(),
            ServeError::Device(device) => device.into(),
            ServeError::NoUblk(why) => Failure::new(Code::NoUblk, format!("no ublk: {why}")),
            ServeError::UblkServed { pid, .. } => {
                let cure = format!("end process {pid} first");
                Failure::new(Code::ArrayInUse, error.to_string()).cure(cure)
            }
            ServeError::UblkMode { left, .. } => {
                let cure = format!("start the daemon with STRAKE_UBLK_MODE={left}");
                Failure::new(Code::NoUblk, error.to_string()).cure(cure)
            }
            ServeError::UblkSize { .. } => Failure::new(Code::ArrayInUse, error.to_string()),
            ServeError::Io { action, source } => Failure::io(action, &source),
            ServeError::MembersFailed(ref out) => members_failed(out, error.to_string()),
            ServeError::NoSpaceToStop(_) => Failure::new(Code::NoSpace, error.to_string()),
            ServeError::NoSpaceToStart(ref out) => no_space_to_start(out, error.to_string()),
            ServeError::MemoryLimit {
                limit_bytes,
                least_bytes,
                shards,
            } => too_little(limit_bytes, least_bytes, shards),
            ServeError::ListFull => Failure::new(Code::ListFull, error.to_string()),
            ServeError::NumbersExhausted => Failure::new(Code::NumbersExhausted, error.to_string()),
            ServeError::NoMemory {
                needs,
                others,
                has,
                of,
            } => {
                let (needs, has) = (size::bytes(needs), size::bytes(has));
                let beside = match others {
                    0 => String::new(),
                    others => format!(" beside {} of other arrays", size::bytes(others)),
                };
                let found = format!(
                    "the array needs {needs} of buffers{beside}, and there are {has} ({of})"
                );
                let failure = Failure::new(Code::MemoryShort, found);
                match of.contains("RLIMIT_") {
                    true => failure.cure(RAISE_MEMORY_LIMIT),
                    false => failure,
                }
            }
            ServeError::Descriptors { .. } => {
                Failure::new(Code::DescriptorsShort, error.to_string())
            }
            ServeError::NoIoUring(_) => Failure::new(Code::NoIoUring, error.to_string()),
            ServeError::Silent(_) => Failure::new(Code::ArraySilent, error.to_string()),
            ServeError::ExportUnderWay => Failure::new(Code::ChangeUnderWay, error.to_string()),
            ServeError::Ended => Failure::new(Code::NotServing, error.to_string()),
            ServeError::FailedAtStop(_) => Failure::new(Code::DeviceFailed, error.to_string()),
            ServeError::NotStopped(refused) => Failure::new(code_of(&refused), error.to_string()),
        }
    }
}

/// What helps where a file may not be as long as it is to be.
pub(crate) const RAISE_FILE_LIMIT: &str =
    "LimitFSIZE=infinity in the service's unit (ulimit -f unlimited), and start the daemon anew";
/// What helps where a limit of the process's own memory is reached.
const RAISE_MEMORY_LIMIT: &str = "raise the limit (LimitDATA=, LimitAS= in the service's unit, \
     ulimit -d, -v) and start the daemon anew, or give arrays less: strake set NAME \
     memory_limit=SIZE, shards=N";

/// Members failed as their array started. Where the file systems of files or limits of the process
/// have no room, nothing is wrong with a drive.
fn members_failed(out: &[(PathBuf, Option<i32>)], found: String) -> Failure {
    let errno = |&(_, errno): &(PathBuf, Option<i32>)| errno.map(io::Error::from_raw_os_error);
    let errors: Vec<io::Error> = out.iter().filter_map(errno).collect();
    let too_long = |error: &io::Error| error.kind() == io::ErrorKind::FileTooLarge;
    if errors.is_empty() || !errors.iter().all(is_without_room) {
        return Failure::new(Code::DeviceFailed, found);
    }
    let failure = Failure::new(Code::NoSpace, found);
    match errors.iter().any(too_long) {
        true => failure.cure(RAISE_FILE_LIMIT),
        false => failure,
    }
}

/// Members had no space for what the start of their array writes: nothing changed that matters.
fn no_space_to_start(out: &[(PathBuf, Option<i32>)], found: String) -> Failure {
    let errno = |&(_, errno): &(PathBuf, Option<i32>)| errno.map(io::Error::from_raw_os_error);
    let too_long = |error: io::Error| error.kind() == io::ErrorKind::FileTooLarge;
    let failure = Failure::new(Code::NoSpace, found);
    match out.iter().filter_map(errno).any(too_long) {
        true => failure.cure(RAISE_FILE_LIMIT),
        false => failure.cure(
            "make room in the file systems (or pools) of these members, and start the array \
             again: nothing is lost",
        ),
    }
}

/// Is this the error of a file that found no room in its file system, or may not be as long?
fn is_without_room(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), FileTooLarge | QuotaExceeded | StorageFull)
}

/// A memory limit is too small.
pub(crate) fn too_little(limit_bytes: u64, least_bytes: u64, shards: u16) -> Failure {
    let mib = least_bytes.div_ceil(1 << 20) << 20;
    let found = format!(
        "a memory limit of {} is too small: {} {} at least {} of buffers",
        size::bytes(limit_bytes),
        size::count(shards, "thread"),
        size::verb(shards, "needs", "need"),
        size::bytes(mib)
    );
    Failure::new(Code::MemoryLimit, found)
}

/// Writes an error to standard error.
pub(crate) fn tell_failure(failure: &Failure, json: bool) {
    match serde_json::to_string(&failure.json()) {
        Ok(text) if json => tell!("{text}"),
        _ => tell!("{}", crate::common::shown(&failure.to_string(), ' ')),
    }
}

/// An errno as people read it: `errno 5, Input/output error`.
pub(crate) fn errno_text(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    format!("errno {errno}, {text}")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_code_is_stable_unique_and_has_a_cure() {
        let mut names = HashSet::new();
        for &code in Code::ALL {
            let name = code.name();
            assert!(names.insert(name), "{name} stands twice");
            assert!(
                name.chars().all(|c| c.is_ascii_lowercase() || c == '-'),
                "{name}"
            );
            assert!(!name.starts_with('-') && !name.ends_with('-'), "{name}");
            assert_eq!(Code::from_name(name), Some(code));
            let cure = code.cure();
            assert!(
                cure.len() > 8 && !cure.ends_with('.') && !cure.contains('\n'),
                "{name}"
            );
            assert!((400..=500).contains(&code.http()), "{name}");
            assert!(
                (code.exit() as u8) < Exit::Degraded as u8,
                "{name} is no error"
            );
        }
    }

    #[test]
    fn an_error_is_one_line_with_code_finding_and_cure() {
        let failure = Failure::new(Code::DeviceMounted, "/dev/x is mounted\non /mnt\n");
        let line = failure.to_string();
        assert_eq!(
            line,
            "error[device-mounted]: /dev/x is mounted on /mnt; unmount it first"
        );
        assert_eq!(Failure::from(failure.json()), failure);
    }

    /// The cure was to look at the drive.
    #[test]
    fn members_without_room_are_no_drives_that_failed() {
        let of = |errnos: &[i32]| {
            let out = errnos.iter().map(|&errno| ("/x".into(), Some(errno)));
            Failure::from(ServeError::MembersFailed(out.collect()))
        };
        let (full, long, broken) = (28, 27, 5);
        let failure = of(&[full, full]);
        assert_eq!(failure.code, Code::NoSpace);
        assert!(failure.cure.contains("make room"), "{failure}");
        let failure = of(&[long]);
        assert_eq!(failure.code, Code::NoSpace);
        assert!(failure.cure.contains("LimitFSIZE"), "{failure}");
        for other in [&[broken][..], &[full, broken], &[]] {
            assert_eq!(of(other).code, Code::DeviceFailed, "{other:?}");
        }
    }

    #[test]
    fn a_limit_of_memory_that_is_reached_is_named_with_what_raises_it() {
        let failure = Failure::from(ServeError::NoMemory {
            needs: 2 << 20,
            others: 0,
            has: 1 << 20,
            of: "what is left of RLIMIT_DATA, 9 bytes".into(),
        });
        assert_eq!(failure.code, Code::MemoryShort);
        assert!(failure.cure.contains("LimitDATA"), "{failure}");
        let error = io::Error::from(io::ErrorKind::OutOfMemory);
        assert_eq!(Failure::io("x", &error).code, Code::MemoryShort);
    }

    #[test]
    fn an_unknown_code_from_a_newer_daemon_is_still_an_error() {
        let json = FailureJson {
            code: "new".into(),
            found: "x".into(),
            cure: "y".into(),
        };
        assert_eq!(Failure::from(json).code.exit(), Exit::Failed);
    }
}
