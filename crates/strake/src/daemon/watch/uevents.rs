//! What the kernel says of block devices that appear, change their size and go (uevents).
//!
//! Invariant: a hint and nothing more. The daemon looks for itself; a message that is lost, or made
//! up, costs a look or a moment. Deliberately absent: udev, which sends its own messages later and
//! only where it runs; devtmpfs has the node when the kernel speaks.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use tokio::sync::Notify;

/// The kernel's own messages, as it sends them.
const KERNEL_GROUP: u32 = 1;
/// The longest message (`UEVENT_BUFFER_SIZE`, 2048), and some more.
const MESSAGE_BYTES: usize = 8192;
/// Messages come in swarms, one for each partition: one look is for all of them.
const SWARM: Duration = Duration::from_millis(100);

/// See the module: a thread that waits for messages, and what it has heard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uevents(Arc<Heard>);

#[derive(Debug, Default)]
struct Heard {
    block_device: Notify,
    listening: AtomicBool,
}

impl Uevents {
    /// Listens from now on, if the kernel lets us; in a network namespace of its own it says
    /// nothing.
    pub(crate) fn listen() -> Uevents {
        let uevents = Uevents::default();
        let heard = Arc::clone(&uevents.0);
        let begun = open().and_then(|socket| {
            heard.listening.store(true, Ordering::Relaxed);
            strake_runtime::spawn_thread("strake-uevents", move || {
                let _until_it_ends = Listening(&heard);
                listen(&socket, &heard);
            })
        });
        if let Err(error) = begun {
            uevents.0.listening.store(false, Ordering::Relaxed);
            tracing::warn!(%error, "the kernel does not tell of new devices: they are looked for");
        }
        uevents
    }

    /// The kernel tells.
    pub(crate) fn are_heard(&self) -> bool {
        self.0.listening.load(Ordering::Relaxed)
    }

    /// Something has happened to a block device since this was asked last.
    pub(crate) async fn block_device(&self) {
        self.0.block_device.notified().await;
        tokio::time::sleep(SWARM).await;
    }
}

/// The kernel is listened to until this is dropped, however that ends: the watcher looks by itself
/// from then on.
struct Listening<'a>(&'a Heard);

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.listening.store(false, Ordering::Relaxed);
        self.0.block_device.notify_one();
    }
}

fn open() -> std::io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
    let protocol = Some(netlink::KOBJECT_UEVENT);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP))?;
    Ok(socket)
}

fn listen(socket: &OwnedFd, heard: &Heard) {
    let mut bytes = [0; MESSAGE_BYTES];
    loop {
        match rustix::net::recv(socket, &mut bytes, RecvFlags::empty()) {
            Ok((len, _)) if !of_block_device(&bytes[..len]) => {}
            // What there was no room for may have been about one.
            Ok(_) | Err(rustix::io::Errno::NOBUFS) => heard.block_device.notify_one(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::warn!(
                    %error, "the kernel tells of no new devices any more: they are looked for"
                );
                return;
            }
        }
    }
}

/// The message is about a block device: lines that end with a zero byte, after a first one of which
/// the others repeat what it says.
fn of_block_device(message: &[u8]) -> bool {
    let mut lines = message.split(|&byte| byte == 0);
    lines.any(|line| line == b"SUBSYSTEM=block")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Drives were looked for every half a minute, as if the kernel still told of them.
    #[test]
    fn a_listener_that_panics_is_not_relied_on() {
        let uevents = Uevents::default();
        uevents.0.listening.store(true, Ordering::Relaxed);
        let heard = Arc::clone(&uevents.0);
        let thread = std::thread::spawn(move || {
            let _until_it_ends = Listening(&heard);
            panic!("a test");
        });
        assert!(thread.join().is_err());
        assert!(!uevents.are_heard());
    }

    #[test]
    fn messages_about_block_devices_are_told_from_others() {
        let disk = b"add@/devices/x/block/nvme0n1\0ACTION=add\0SUBSYSTEM=block\0DEVNAME=nvme0n1\0";
        assert!(of_block_device(disk));
        let nic = b"add@/devices/block\0ACTION=add\0SUBSYSTEM=net\0INTERFACE=SUBSYSTEM=block\0";
        assert!(!of_block_device(nic));
        assert!(!of_block_device(b"") && !of_block_device(b"libudev\0\xfe\xed"));
    }
}
