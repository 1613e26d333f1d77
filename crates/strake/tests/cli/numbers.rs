//! Numbers that end: counters on the members, and sizes that a block device cannot have.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

use strake_format::{Epoch, Generation, Layout, Superblock};

use crate::rig::{Rig, bytes, skipped};

/// Writes every superblock of these files anew, with what `change` makes of it.
fn rewrite(files: &[String], change: impl Fn(&mut Superblock)) {
    for path in files {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.expect("it is there");
        let size = file.metadata().expect("it has a size").len();
        for offset in Layout::superblock_offsets(size) {
            let mut block = [0; 4096];
            file.read_exact_at(&mut block, offset).expect("read");
            let mut superblock = Superblock::decode(&block, offset).expect("a superblock");
            change(&mut superblock);
            file.write_all_at(&superblock.encode(offset)[..], offset)
                .expect("written");
        }
    }
}

/// A stopped array and its files.
fn stopped(rig: &mut Rig) -> Vec<String> {
    rig.start_daemon();
    let files = rig.files(3);
    rig.create("data", "5", &["--export", "none"], &files).ok();
    rig.run(&["stop", "data"]).ok();
    files
}

fn start(rig: &Rig, options: &[&str]) -> crate::rig::Run {
    rig.run(&[&["start", "data"], options].concat())
}

#[test]
fn an_array_without_numbers_for_its_log_is_refused_by_name_and_started_by_force() {
    let mut rig = Rig::new();
    let files = stopped(&mut rig);
    rewrite(&files, |superblock| superblock.log_base = u64::MAX);
    let before: Vec<_> = files.iter().map(|file| bytes(file)).collect();
    let refused = start(&rig, &[]).refused(4, "log-numbers-exhausted");
    let found = refused.json_error()["found"].to_string();
    assert!(found.contains(&u64::MAX.to_string()), "{found}");
    let after: Vec<_> = files.iter().map(|file| bytes(file)).collect();
    assert!(before == after, "something was written");
    start(&rig, &["--force"]).ok();
    assert_eq!(rig.show("data")["write_hole"], "resync");
    rig.run(&["set", "data", "write_hole=closed"])
        .refused(4, "log-numbers-exhausted");
    assert_eq!(rig.show("data")["state"], "optimal");
}

#[test]
fn a_counter_that_is_about_to_wrap_is_refused_by_name_and_nothing_is_written() {
    let mut rig = Rig::new();
    let files = stopped(&mut rig);
    let kept: Vec<_> = files.iter().map(|file| bytes(file)).collect();
    type Change = fn(&mut Superblock);
    let ends: [(&str, Change); 2] = [
        ("generation", |superblock| {
            superblock.generation = Generation((1 << 40) - 1);
        }),
        ("epoch", |superblock| {
            superblock.epoch = Epoch(u64::MAX);
            superblock.editions[0] = superblock.own_edition();
        }),
    ];
    for (counter, change) in ends {
        rewrite(&files, change);
        let before: Vec<_> = files.iter().map(|file| bytes(file)).collect();
        for options in [&[][..], &["--force"]] {
            let refused = start(&rig, options).refused(4, "counter-exhausted");
            let found = refused.json_error()["found"].to_string();
            assert!(found.contains(counter), "{found}");
        }
        let after: Vec<_> = files.iter().map(|file| bytes(file)).collect();
        assert!(before == after, "something was written");
        for (file, bytes) in files.iter().zip(&kept) {
            fs::write(file, bytes).expect("written");
        }
    }
    start(&rig, &[]).ok();
}

/// Only a file system in memory has files that are large enough.
#[test]
fn an_array_beyond_what_a_block_device_can_have_is_refused_by_name() {
    let rig = Rig::new();
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        return skipped("there is no /dev/shm");
    };
    let mut files = Vec::new();
    for at in 0..3 {
        let path = folder.path().join(format!("huge{at}"));
        let file = File::create(&path).expect("a file");
        if let Err(error) = file.set_len(1 << 62) {
            return skipped(&format!("/dev/shm has no files of 4 EiB: {error}"));
        }
        files.push(path.display().to_string());
    }
    rig.create("huge", "0", &["--export", "none"], &files)
        .refused(4, "array-too-large");
    let unused = files.iter().all(|file| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(file).expect("it is there").blocks() == 0
    });
    assert!(unused, "something was written");
}
