//! What a step of a study measures.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! figures {
    ($($(#[doc = $doc:literal])* $variant:ident, $name:literal;)*) => {
        /// What a step measures; `figure` of an expectation names one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
        pub enum Figure { $($(#[doc = $doc])* #[serde(rename = $name)] $variant,)* }

        impl Figure {
            /// All of them.
            pub const ALL: &[Figure] = &[$(Figure::$variant,)*];
            /// As studies and results name it.
            pub fn name(self) -> &'static str {
                match self { $(Figure::$variant => $name,)* }
            }
        }
    };
}

figures! {
    /// Bytes that all loads of the step read, a second.
    ReadBytes, "read_bytes_per_s";
    /// Bytes that all loads of the step wrote, a second.
    WriteBytes, "write_bytes_per_s";
    /// Reads of all loads, a second.
    ReadIops, "read_iops";
    /// Writes of all loads, a second.
    WriteIops, "write_iops";
    /// Reads and writes of all loads, a second.
    Iops, "iops";
    /// Half of the requests took longer, of the load with the longest times.
    P50, "p50_us";
    /// One request in a hundred took longer.
    P99, "p99_us";
    /// One in a thousand.
    P999, "p999_us";
    /// One in ten thousand.
    P9999, "p9999_us";
    /// Seconds that a create, a rebuild or a scrub took.
    Seconds, "seconds";
    /// Bytes of a rebuild or a scrub, a second, on the drive that it concerns.
    JobBytes, "bytes_per_s";
    /// Bytes that the drives wrote to flash for each byte that was written to them.
    Waf, "waf";
    /// The same of the drive that a rebuild wrote.
    WafSlot, "waf_slot";
    /// Bytes that were written to the drives for each byte that was written to the array.
    WafRaid, "waf_raid";
    /// Bytes that the loads wrote, as fio counts them.
    LoadsWrote, "loads_wrote_bytes";
    /// Bytes written to the drives meanwhile, by their SMART logs.
    DrivesWritten, "drives_written_bytes";
    /// Bytes that the drives wrote to their flash meanwhile, as their logs count them.
    FlashWritten, "flash_written_bytes";
    /// Cores that were busy, on average: of a machine all of them, fio's and interrupts' too; of
    /// modelled cores those of the array.
    Cores, "cores";
    /// Reads and writes of all loads, a second, for each core that was busy.
    IopsPerCore, "iops_per_core";
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
