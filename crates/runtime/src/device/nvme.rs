//! What an NVMe drive says of itself: identify data and log pages, read and nothing else.
//!
//! Invariant: the only admin commands sent are Identify and Get Log Page, which change nothing on
//! the drive. Deliberately absent: what the bytes mean.
//!
//! Source: NVM Express Base Specification, Identify (opcode 06h) and Get Log Page (opcode 02h);
//! `struct nvme_passthru_cmd` of linux/nvme_ioctl.h.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `_IO('N', 0x40)`: the number of the namespace behind a block device.
const NVME_IOCTL_ID: libc::Ioctl = 0x4e40;
/// `_IOWR('N', 0x41, struct nvme_passthru_cmd)`.
const NVME_IOCTL_ADMIN_CMD: libc::Ioctl = 0xc048_4e41_u32 as libc::Ioctl;
const OPCODE_GET_LOG_PAGE: u8 = 0x02;
const OPCODE_IDENTIFY: u8 = 0x06;
/// For commands that are about the controller.
const ALL_NAMESPACES: u32 = u32::MAX;
/// Bytes of identify data.
const IDENTIFY_BYTES: usize = 4096;
/// A drive that does not answer within this is not waited for, milliseconds.
const PATIENCE_MS: u32 = 5000;

#[derive(Debug, Default)]
#[repr(C)]
struct Passthru {
    opcode: u8,
    flags: u8,
    rsvd1: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(
    size_of::<Passthru>() == 72,
    "the size that the ioctl's number says"
);

/// Sends a command that fills `bytes` bytes.
fn admin(file: &File, mut command: Passthru, bytes: usize) -> io::Result<Vec<u8>> {
    let mut data = vec![0; bytes];
    command.addr = data.as_mut_ptr() as u64;
    command.data_len = u32::try_from(bytes).expect("a log page is small");
    command.timeout_ms = PATIENCE_MS;
    // SAFETY: the ioctl reads and writes one Passthru at the address given, which is that of
    // `command`, and `data_len` bytes at `addr`, which are those of `data`; both outlive the call.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), NVME_IOCTL_ADMIN_CMD, &raw mut command) };
    match status {
        0 => Ok(data),
        // The drive refused; the number is the status field of its completion.
        1.. => Err(io::Error::other(format!("NVMe status {status:#x}"))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Identify data of the controller (CNS 01h).
pub fn identify_controller(file: &File) -> io::Result<Vec<u8>> {
    let command = Passthru {
        opcode: OPCODE_IDENTIFY,
        cdw10: 1,
        ..Passthru::default()
    };
    admin(file, command, IDENTIFY_BYTES)
}

/// Identify data of the namespace behind this block device (CNS 00h).
pub fn identify_namespace(file: &File) -> io::Result<Vec<u8>> {
    // SAFETY: NVME_IOCTL_ID takes no argument and returns a number.
    let nsid = unsafe { libc::ioctl(file.as_raw_fd(), NVME_IOCTL_ID) };
    let command = Passthru {
        opcode: OPCODE_IDENTIFY,
        nsid: u32::try_from(nsid).map_err(|_| io::Error::last_os_error())?,
        ..Passthru::default()
    };
    admin(file, command, IDENTIFY_BYTES)
}

/// The first `bytes` bytes (a multiple of 4) of a log page. `specific`: what of several such pages,
/// where there are several (for an endurance group its number), else 0.
pub fn log_page(file: &File, page: u8, specific: u16, bytes: usize) -> io::Result<Vec<u8>> {
    assert!(
        bytes >= 4 && bytes.is_multiple_of(4),
        "log pages are read in dwords"
    );
    // A 0's-based count of dwords, its low 16 bits here; no page here has more.
    let dwords = u16::try_from(bytes / 4 - 1).expect("a log page is small");
    let command = Passthru {
        opcode: OPCODE_GET_LOG_PAGE,
        nsid: ALL_NAMESPACES,
        cdw10: u32::from(page) | u32::from(dwords) << 16,
        cdw11: u32::from(specific) << 16,
        ..Passthru::default()
    };
    admin(file, command, bytes)
}
