//! The kernel's ublk interface as typed values: commands, structures, flags
//! (include/uapi/linux/ublk_cmd.h).
//!
//! Invariants: sizes and offsets are those of the header, asserted at compile time; every
//! structure goes to the kernel through `bytes`, field by field, so that no padding is sent.
//! Commands are ioctl-encoded (6.4 and later); the older encoding is deliberately absent, as is
//! everything about zoned and unprivileged devices.

/// `_IOR('u', nr, struct ublksrv_ctrl_cmd)`.
const fn read_control(nr: u32) -> u32 {
    2 << 30 | 32 << 16 | (b'u' as u32) << 8 | nr
}

/// `_IOWR('u', nr, struct ublksrv_ctrl_cmd)`.
const fn change_control(nr: u32) -> u32 {
    3 << 30 | 32 << 16 | (b'u' as u32) << 8 | nr
}

/// `_IOWR('u', nr, struct ublksrv_io_cmd)`.
const fn io(nr: u32) -> u32 {
    3 << 30 | 16 << 16 | (b'u' as u32) << 8 | nr
}

/// Commands to /dev/ublk-control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Command {
    GetDevInfo = read_control(0x02),
    AddDev = change_control(0x04),
    DelDev = change_control(0x05),
    StartDev = change_control(0x06),
    StopDev = change_control(0x07),
    SetParams = change_control(0x08),
    GetParams = read_control(0x09),
    StartUserRecovery = change_control(0x10),
    EndUserRecovery = change_control(0x11),
    GetFeatures = read_control(0x13),
    DelDevAsync = read_control(0x14),
    UpdateSize = change_control(0x15),
    TryStopDev = change_control(0x17),
}

/// Commands to /dev/ublkcN.
pub(super) const FETCH_REQ: u32 = io(0x20);
/// Answer a request and wait for the next of its tag.
pub(super) const COMMIT_AND_FETCH_REQ: u32 = io(0x21);

/// Readies tags for requests.
pub(super) const PREP_IO_CMDS: u32 = io(0x25);
/// Answers requests, and readies their tags again.
pub(super) const COMMIT_IO_CMDS: u32 = io(0x26);
/// Hands out tags of requests, again and again.
pub(super) const FETCH_IO_CMDS: u32 = io(0x27);

/// Device features.
pub(super) const F_USER_RECOVERY: u64 = 1 << 3;
/// Requests in flight when the server died are given to its successor.
pub(super) const F_USER_RECOVERY_REISSUE: u64 = 1 << 4;
/// Commands are ioctl-encoded.
pub(super) const F_CMD_IOCTL_ENCODE: u64 = 1 << 6;
/// Data goes through pread and pwrite on /dev/ublkcN.
pub(super) const F_USER_COPY: u64 = 1 << 7;
/// The size of a device in service can be changed.
pub(super) const F_UPDATE_SIZE: u64 = 1 << 10;
/// The pages of each request are registered with the ring that fetched it.
pub(super) const F_AUTO_BUF_REG: u64 = 1 << 11;

/// Commands come in batches.
pub(super) const F_BATCH_IO: u64 = 1 << 15;

/// A device can be stopped on condition that nothing has it open.
pub(super) const F_SAFE_STOP_DEV: u64 = 1 << 17;

/// The driver's features, by the header's names in lower case; the place is the bit.
const FEATURES: [&str; 20] = [
    "support_zero_copy",
    "uring_cmd_comp_in_task",
    "need_get_data",
    "user_recovery",
    "user_recovery_reissue",
    "unprivileged_dev",
    "cmd_ioctl_encode",
    "user_copy",
    "zoned",
    "user_recovery_fail_io",
    "update_size",
    "auto_buf_reg",
    "quiesce",
    "per_io_daemon",
    "buf_reg_off_daemon",
    "batch_io",
    "integrity",
    "safe_stop_dev",
    "no_auto_part_scan",
    "shmem_zc",
];

/// The names of the features in `flags`; bits that are newer than this list are left out.
pub(super) fn feature_names(flags: u64) -> Vec<&'static str> {
    (0..)
        .zip(FEATURES)
        .filter(|(bit, _)| flags & (1 << bit) != 0)
        .map(|(_, name)| name)
        .collect()
}

/// The device has no disk: its server had not started it yet, or had stopped it.
pub(super) const STATE_DEAD: u16 = 0;
/// A process serves it.
pub(super) const STATE_LIVE: u16 = 1;
/// Its server is gone, and requests wait for the next.
pub(super) const STATE_QUIESCED: u16 = 2;

/// What a request asks: the low byte of `op_flags`.
pub(super) const OP_READ: u32 = 0;
pub(super) const OP_WRITE: u32 = 1;
pub(super) const OP_FLUSH: u32 = 2;
pub(super) const OP_DISCARD: u32 = 3;
pub(super) const OP_WRITE_ZEROES: u32 = 5;
/// Durable when answered.
pub(super) const IO_F_FUA: u32 = 1 << 13;
/// The request's pages could not be registered.
pub(super) const IO_F_NEED_REG_BUF: u32 = 1 << 17;

/// `struct ublk_auto_buf_reg` as it stands in a fetch's `addr`: register at this index of the
/// ring's table (`None`: at one that no table has); where that fails, hand the request out all the
/// same, marked.
pub(super) fn register_at(index: Option<u16>) -> u64 {
    const FALLBACK: u64 = 1 << 16;
    u64::from(index.unwrap_or(NO_PAGE)) | FALLBACK
}

/// A place that no ring's table has.
pub(super) const NO_PAGE: u16 = u16::MAX;

/// Result of a fetch: a request is there.
pub(super) const IO_RES_OK: i32 = 0;

/// Unit of lengths and positions.
pub(super) const SECTOR: u64 = 512;
/// Tags of a queue, at most; the descriptors of each queue lie so far apart.
const QUEUE_DEPTH_MAX: u64 = 4096;
/// Bytes of a request descriptor.
pub(super) const DESCRIPTOR_BYTES: u64 = 24;

/// Where the descriptors of a queue are mapped from /dev/ublkcN.
pub(super) const fn descriptors_offset(queue: u16) -> u64 {
    queue as u64 * (QUEUE_DEPTH_MAX * DESCRIPTOR_BYTES).next_multiple_of(4096)
}

/// Where the data of a request lies in /dev/ublkcN (user copy).
pub(super) const fn data_offset(queue: u16, tag: u16) -> u64 {
    0x8000_0000 + ((queue as u64) << 41) + ((tag as u64) << 25)
}

/// `struct ublksrv_io_desc`: a request.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Descriptor {
    pub(super) op_flags: u32,
    pub(super) sectors: u32,
    pub(super) start_sector: u64,
    pub(super) addr: u64,
}

const _: () = assert!(size_of::<Descriptor>() == DESCRIPTOR_BYTES as usize);
const _: () = assert!(Command::AddDev as u32 == 0xc020_7504 && FETCH_REQ == 0xc010_7520);
const _: () = assert!(Command::TryStopDev as u32 == 0xc020_7517);

/// `struct ublksrv_ctrl_cmd`, in the 80 bytes of a big submission entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct ControlCommand {
    pub(super) device: u32,
    pub(super) len: u16,
    pub(super) addr: u64,
    pub(super) data: u64,
}

impl ControlCommand {
    pub(super) fn bytes(&self) -> [u8; 80] {
        let mut bytes = [0; 80];
        bytes[0..4].copy_from_slice(&self.device.to_ne_bytes());
        // Not for one queue.
        bytes[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.len.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.addr.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.data.to_ne_bytes());
        bytes
    }
}

/// `struct ublksrv_io_cmd`.
pub(super) fn io_command(queue: u16, tag: u16, result: i32, addr: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[0..2].copy_from_slice(&queue.to_ne_bytes());
    bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
    bytes[4..8].copy_from_slice(&result.to_ne_bytes());
    bytes[8..16].copy_from_slice(&addr.to_ne_bytes());
    bytes
}

/// Bytes of an element in a list of batch commands, where no address is in it.
pub(super) const ELEMENT_BYTES: usize = 8;

/// `struct ublk_elem_header`: a tag, where its next request's pages are to be registered, and the
/// answer to the last one.
pub(super) fn element(tag: u16, page: u16, result: i32) -> [u8; ELEMENT_BYTES] {
    let mut bytes = [0; ELEMENT_BYTES];
    bytes[0..2].copy_from_slice(&tag.to_ne_bytes());
    bytes[2..4].copy_from_slice(&page.to_ne_bytes());
    bytes[4..8].copy_from_slice(&result.to_ne_bytes());
    bytes
}

/// `struct ublk_batch_io` for a list of so many elements; where pages cannot be registered,
/// requests are to be handed out all the same, marked, if `registers`.
pub(super) fn batch_command(queue: u16, elements: u16, registers: bool) -> [u8; 16] {
    const AUTO_BUF_REG_FALLBACK: u16 = 1 << 2;
    let flags = if registers { AUTO_BUF_REG_FALLBACK } else { 0 };
    let mut bytes = [0; 16];
    bytes[0..2].copy_from_slice(&queue.to_ne_bytes());
    bytes[2..4].copy_from_slice(&flags.to_ne_bytes());
    bytes[4..6].copy_from_slice(&elements.to_ne_bytes());
    bytes[6] = ELEMENT_BYTES as u8;
    bytes
}

/// `struct ublk_batch_io` for a fetch: its elements are tags.
pub(super) fn fetch_command(queue: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[0..2].copy_from_slice(&queue.to_ne_bytes());
    bytes[6] = size_of::<u16>() as u8;
    bytes
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceInfo {
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) state: u16,
    pub(super) max_io_bytes: u32,
    pub(super) id: u32,
    pub(super) server_pid: i32,
    pub(super) flags: u64,
    /// For the server's own use (`ublksrv_flags`): which array it serves.
    pub(super) tag: u64,
}

impl DeviceInfo {
    pub(super) const BYTES: usize = 64;

    pub(super) fn bytes(&self) -> [u8; DeviceInfo::BYTES] {
        let mut bytes = [0; DeviceInfo::BYTES];
        bytes[0..2].copy_from_slice(&self.queues.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.depth.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.state.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.max_io_bytes.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.id.to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.server_pid.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[32..40].copy_from_slice(&self.tag.to_ne_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; DeviceInfo::BYTES]) -> DeviceInfo {
        DeviceInfo {
            queues: u16::from_ne_bytes(part(bytes, 0)),
            depth: u16::from_ne_bytes(part(bytes, 2)),
            state: u16::from_ne_bytes(part(bytes, 4)),
            max_io_bytes: u32::from_ne_bytes(part(bytes, 8)),
            id: u32::from_ne_bytes(part(bytes, 12)),
            server_pid: i32::from_ne_bytes(part(bytes, 16)),
            flags: u64::from_ne_bytes(part(bytes, 24)),
            tag: u64::from_ne_bytes(part(bytes, 32)),
        }
    }
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N]
        .try_into()
        .expect("a part lies within its structure")
}

/// `struct ublk_params` up to its discard parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Params {
    pub(super) logical_shift: u8,
    pub(super) physical_shift: u8,
    pub(super) io_opt_shift: u8,
    pub(super) io_min_shift: u8,
    pub(super) max_sectors: u32,
    pub(super) sectors: u64,
    pub(super) discard_granularity: u32,
    pub(super) max_discard_sectors: u32,
    pub(super) max_write_zeroes_sectors: u32,
}

impl Params {
    pub(super) const BYTES: usize = 64;
    const TYPES_BASIC_AND_DISCARD: u32 = 1 | 2;
    /// Volatile cache and FUA: the engine keeps no write back, but its members may.
    const ATTRS: u32 = 1 << 2 | 1 << 3;

    pub(super) fn bytes(&self) -> [u8; Params::BYTES] {
        let mut bytes = [0; Params::BYTES];
        bytes[0..4].copy_from_slice(&(Params::BYTES as u32).to_ne_bytes());
        bytes[4..8].copy_from_slice(&Params::TYPES_BASIC_AND_DISCARD.to_ne_bytes());
        bytes[8..12].copy_from_slice(&Params::ATTRS.to_ne_bytes());
        bytes[12] = self.logical_shift;
        bytes[13] = self.physical_shift;
        bytes[14] = self.io_opt_shift;
        bytes[15] = self.io_min_shift;
        bytes[16..20].copy_from_slice(&self.max_sectors.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.sectors.to_ne_bytes());
        bytes[44..48].copy_from_slice(&self.discard_granularity.to_ne_bytes());
        bytes[48..52].copy_from_slice(&self.max_discard_sectors.to_ne_bytes());
        bytes[52..56].copy_from_slice(&self.max_write_zeroes_sectors.to_ne_bytes());
        // One range in each discard request.
        bytes[56..58].copy_from_slice(&1u16.to_ne_bytes());
        bytes
    }

    /// The device's size, sectors, from what GET_PARAMS gives.
    pub(super) fn sectors_of(bytes: &[u8; Params::BYTES]) -> u64 {
        u64::from_ne_bytes(part(bytes, 24))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_info_survives_its_bytes() {
        let info = DeviceInfo {
            queues: 4,
            depth: 128,
            state: 2,
            max_io_bytes: 1 << 20,
            id: u32::MAX,
            server_pid: -1,
            flags: F_USER_COPY | F_USER_RECOVERY,
            tag: 0x0123_4567_89ab_cdef,
        };
        assert_eq!(DeviceInfo::from_bytes(&info.bytes()), info);
    }

    #[test]
    fn features_are_named_by_their_bits() {
        let flags = F_USER_COPY | F_USER_RECOVERY | F_CMD_IOCTL_ENCODE | 1 << 63;
        let names = ["user_recovery", "cmd_ioctl_encode", "user_copy"];
        assert_eq!(feature_names(flags), names);
        assert_eq!(feature_names(1 << 19), ["shmem_zc"]);
    }

    #[test]
    fn data_of_the_last_tag_of_the_first_queue_ends_where_the_second_begins() {
        assert_eq!(data_offset(0, u16::MAX) + (1 << 25), data_offset(1, 0));
        assert_eq!(descriptors_offset(1), 98304);
    }
}
