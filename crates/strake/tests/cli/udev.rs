//! What the rules of udev are answered, and what packages have the program write.

use std::fs;
use std::path::Path;

use crate::rig::{Rig, Run};

/// What is said of a device, with what udev knows of it already.
fn member(rig: &Rig, device: &str, known: &[(&str, &str)]) -> Run {
    let mut command = rig.command();
    command.args(["udev", "member", device]);
    command.envs(known.iter().copied());
    rig.run_command(&mut command)
}

/// Writes zeros.
fn wipe(path: &str, at: u64, bytes: usize) {
    use std::os::unix::fs::FileExt;
    let file = fs::File::options().write(true).open(path).expect("opens");
    file.write_all_at(&vec![0; bytes], at).expect("written");
}

#[test]
fn udev_is_told_what_a_member_is_and_nothing_of_what_is_not_ours() {
    let rig = Rig::new();
    let files = rig.files(2);
    rig.create("data", "1", &[], &files).ok();
    let examined = rig.run(&["examine", &files[1]]).ok().json();
    let said = member(&rig, &files[1], &[]).ok().out;
    let (array, own) = (&examined["array"]["uuid"], &examined["member_uuid"]);
    let (array, own) = (array.as_str().expect("text"), own.as_str().expect("text"));
    let expected = [
        "ID_FS_USAGE=raid".to_owned(),
        "ID_FS_TYPE=strake_member".to_owned(),
        format!("ID_FS_UUID={array}"),
        format!("ID_FS_UUID_ENC={array}"),
        format!("ID_FS_UUID_SUB={own}"),
        format!("ID_FS_UUID_SUB_ENC={own}"),
        "ID_FS_LABEL=data".to_owned(),
        "ID_FS_LABEL_ENC=data".to_owned(),
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    // The first superblock is wiped: the last one says the same, unless others use the device.
    wipe(&files[1], 0, 64 << 10);
    assert_eq!(member(&rig, &files[1], &[]).ok().out, said);
    for known in ["ID_FS_TYPE", "ID_PART_TABLE_TYPE"] {
        assert_eq!(member(&rig, &files[1], &[(known, "x")]).ok().out, "");
        assert_ne!(member(&rig, &files[0], &[(known, "x")]).ok().out, "");
    }
    wipe(&files[1], 0, 64 << 20);
    assert_eq!(member(&rig, &files[1], &[]).ok().out, "");
    let small = rig.file("small", 4096);
    assert_eq!(member(&rig, &small, &[]).ok().out, "");
    assert_eq!(member(&rig, &rig.path("gone"), &[]).code, 1);
}

#[test]
fn udev_is_told_that_a_device_waits_in_a_pool() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(1);
    rig.run(&["pool", "create", "shelf", &files[0]]).ok();
    let said = member(&rig, &files[0], &[]).ok().out;
    for line in [
        "ID_FS_USAGE=raid",
        "ID_FS_TYPE=strake_pool",
        "ID_FS_LABEL=shelf",
    ] {
        assert!(said.lines().any(|l| l == line), "{line}: {said}");
    }
}

#[test]
fn udev_is_told_nothing_of_a_block_device_that_no_daemon_remembers() {
    let rig = Rig::new();
    for device in ["ublkb4000000", "ublkb", "sda", ""] {
        let mut command = rig.command();
        command.args(["udev", "export", device]);
        assert_eq!(rig.run_command(&mut command).ok().out, "", "{device}");
    }
}

#[test]
fn each_command_has_a_page_of_the_manual_and_hidden_ones_have_none() {
    let rig = Rig::new();
    let folder = rig.path("man");
    fs::create_dir(&folder).expect("works");
    rig.run(&["man", &folder]).ok();
    let page = |name: &str| fs::read_to_string(Path::new(&folder).join(name));
    for name in ["strake.8", "strake-create.8", "strake-volume-create.8"] {
        let text = page(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(text.contains(".SH SYNOPSIS"), "{text}");
    }
    let create = page("strake-create.8").expect("it is there");
    assert!(create.contains("Overwrite foreign signatures"), "{create}");
    for name in ["strake-udev.8", "strake-man.8", "strake-help.8"] {
        assert!(page(name).is_err(), "{name}");
    }
}
