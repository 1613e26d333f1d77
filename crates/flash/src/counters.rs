//! What a drive has counted since it was made.

/// Bytes and events, as in the logs of a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes that the host has read.
    pub host_read: u64,
    /// Bytes that the host has written.
    pub host_written: u64,
    /// Bytes that were programmed into the flash.
    pub media_written: u64,
    /// Bytes that were read from the flash to complete units of which the host wrote a part.
    pub completed: u64,
    /// Bytes that a collection has moved; they are in `media_written`, too.
    pub moved: u64,
    /// Writes that began or ended inside a unit (OCP log C0h, "unaligned I/O").
    pub unaligned: u64,
    /// Erase blocks that were erased.
    pub erased: u64,
    /// Bytes that the host has deallocated.
    pub deallocated: u64,
    /// For each placement handle.
    pub handles: Vec<HandleCounters>,
}

/// What one placement handle has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandleCounters {
    /// Bytes that the host has written with it.
    pub host_written: u64,
    /// Bytes that were programmed into its blocks.
    pub media_written: u64,
}

impl Counters {
    /// Write amplification between an earlier count and this one: flash bytes for each host byte.
    /// `None` where the host has written nothing.
    pub fn waf_since(&self, before: &Counters) -> Option<f64> {
        let host = self.host_written - before.host_written;
        let media = self.media_written - before.media_written;
        (host > 0).then(|| media as f64 / host as f64)
    }
}
