//! Members that are block devices: loop devices over files, where we are root and have such.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use strake_runtime::{Device, DeviceError, OpenMode};

/// A loop device, detached when dropped.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path, block_bytes: u32) -> Option<Loop> {
        let made = Command::new("losetup")
            .args(["--find", "--show", "--direct-io=on", "--sector-size"])
            .arg(block_bytes.to_string())
            .arg(file)
            .output();
        match made {
            Ok(output) if output.status.success() => {
                let path = String::from_utf8(output.stdout).expect("a path");
                Some(Loop(PathBuf::from(path.trim())))
            }
            _ => {
                println!("SKIPPED: no loop devices here");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.0)
            .status();
    }
}

#[test]
fn a_block_device_is_opened_once_and_says_what_it_is() {
    let file = tempfile::NamedTempFile::new().expect("file");
    file.as_file().set_len(8 << 20).expect("size");
    let Some(looped) = Loop::over(file.path(), 4096) else {
        return;
    };
    let device = Device::open(&looped.0, OpenMode::Member).expect("opens");
    let info = device.info();
    assert_eq!((info.bytes, info.block_bytes), (8 << 20, 4096));
    let again = Device::open(&looped.0, OpenMode::Member);
    assert!(matches!(again, Err(DeviceError::Busy(_))), "{again:?}");
    Device::open(&looped.0, OpenMode::ReadOnly).expect("looking works");
    device.write_at(4096, &[0x77; 8192]).expect("writes");
    device.write_zeroes(4096, 4096).expect("zeroes");
    device.discard(1 << 20, 1 << 20).expect("discards");
    device.flush().expect("flushes");
    let mut read = [1; 12288];
    device.read_at(0, &mut read).expect("reads");
    assert!(read[..8192].iter().all(|&b| b == 0) && read[8192..].iter().all(|&b| b == 0x77));
    let mut tail = [0; 512];
    device
        .read_at((8 << 20) - 512, &mut tail)
        .expect("reads the end");
    assert!(device.read_at((8 << 20) - 511, &mut tail).is_err());
    assert!(matches!(
        device.read_member(),
        Err(DeviceError::NotStrake(_))
    ));
}

#[test]
fn an_array_lives_on_block_devices() {
    use common::*;
    let rig = Rig::create(Spec {
        shards: 2,
        ..Spec::new(strake_format::Level::Raid6, 4)
    });
    let mut loops = Vec::new();
    for path in &rig.paths {
        let Some(looped) = Loop::over(path, 512) else {
            return;
        };
        loops.push(looped);
    }
    let mut config = rig.config_of(&loops.iter().map(|l| l.0.clone()).collect::<Vec<_>>());
    config.memory_bytes = 8 << 20;
    let (serving, _) = strake_runtime::serve(config).expect("serves");
    let mut client = rig.client();
    let data = pattern(8192, 5 << 20, 1);
    client.write(8192, &data).expect("writes");
    assert_eq!(client.ask(FUA, WRITE_ZEROES, 1 << 20, 1 << 20), 0);
    assert_eq!(client.ask(0, TRIM, 0, rig.size.min(1 << 30) as u32), 0);
    client.write(8192, &data).expect("writes");
    assert_eq!(client.ask(0, FLUSH, 0, 0), 0);
    assert!(client.read(8192, 5 << 20).expect("reads") == data);
    assert_eq!(serving.counters().errors, 0);
    serving.stop().expect("stops");
}
