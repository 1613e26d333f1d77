//! Members that are files in a folder whose file system does not answer (NFS or FUSE without its
//! server): they cost their own array at most.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::hung::within;
use crate::rig::{self, Rig};

/// A FUSE file system over a folder, with a server that answers nothing.
struct HungFolder {
    folder: PathBuf,
    server: Child,
}

const SERVER: &str = "import ctypes, os, sys\n\
    fd = os.open('/dev/fuse', os.O_RDWR)\n\
    options = f'fd={fd},rootmode=40000,user_id=0,group_id=0'.encode()\n\
    mount = ctypes.CDLL(None).mount\n\
    done = mount(b'hung', sys.argv[1].encode(), b'fuse', 0, options)\n\
    print('mounted' if done == 0 else 'no', flush=True)\n\
    sys.stdin.read()\n";

impl HungFolder {
    fn over(folder: PathBuf) -> Option<HungFolder> {
        let mut server = Command::new("python3")
            .args(["-c", SERVER])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("python3 runs");
        let mut said = String::new();
        let out = server.stdout.take().expect("piped");
        let read = BufReader::new(out).read_line(&mut said);
        let hung = HungFolder { folder, server };
        match read.is_ok() && said == "mounted\n" {
            true => Some(hung),
            false => {
                rig::skipped("no FUSE file system can be mounted here");
                None
            }
        }
    }
}

impl HungFolder {
    /// What waits for its server gets an error, and so does what comes then.
    fn lose_server(&mut self) {
        let _ = self.server.kill();
        self.server.wait().expect("it ends");
    }
}

impl Drop for HungFolder {
    fn drop(&mut self) {
        self.lose_server();
        let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
    }
}

/// The look at all drives waited for it for good, and with it each command and the watcher.
#[test]
fn a_folder_of_members_that_hangs_holds_up_no_other_array() {
    if !rig::is_root() {
        return rig::skipped("only root can mount");
    }
    let mut rig = Rig::new();
    let folder = PathBuf::from(rig.path("far"));
    std::fs::create_dir(&folder).expect("made");
    let far = rig.files_called("far/d", 2);
    let other = rig.files_called("other", 2);
    let near = rig.files_called("near", 2);
    rig.start_daemon();
    rig.create("far", "1", &["--export", "none"], &far).ok();
    rig.create("other", "1", &["--export", "none"], &other).ok();
    rig.run(&["stop", "other"]).ok();
    rig.stop_daemon();
    let Some(mut hung) = HungFolder::over(folder) else {
        return;
    };
    // Without a daemon, too.
    let said = format!("{:?}", within(&rig, 120, &["show"]));
    assert!(said.contains("other") && said.contains(&far[0]), "{said}");
    let forget = within(&rig, 120, &["forget", "far"]);
    forget.refused(4, "device-silent");
    rig.start_daemon();
    // The watcher goes on.
    rig.until("the other array to be served", || {
        let shown = within(&rig, 60, &["show"]);
        shown.json().as_array().is_some_and(|all| {
            let serves =
                |one: &serde_json::Value| one["name"] == "other" && one["state"] == "optimal";
            all.iter().any(serves)
        })
    });
    let create = [&["create", "near", "--level", "1", "--export", "none"][..]].concat();
    let create: Vec<&str> = create
        .into_iter()
        .chain(near.iter().map(String::as_str))
        .collect();
    within(&rig, 60, &create).ok();
    within(&rig, 60, &["stop", "near"]).ok();
    within(&rig, 60, &["start", "near"]).ok();
    let refused = within(&rig, 60, &["start", "far"]);
    assert!(refused.err.contains(&far[0]), "{refused:?}");
    let named = within(&rig, 60, &["create", "x", "--level", "1", &far[0], &far[1]]);
    named.refused(4, "device-silent");
    // An error is no absence, with a daemon and without.
    hung.lose_server();
    let said = |rig: &Rig| {
        for command in [["show", "far"], ["forget", "far"]] {
            let run = within(rig, 60, &command).refused(4, "device-silent");
            assert!(run.err.contains(&far[0]), "{run:?}");
        }
        let all = within(rig, 60, &["show"]);
        assert!(format!("{all:?}").contains(&far[0]), "{all:?}");
    };
    said(&rig);
    rig.stop_daemon();
    said(&rig);
    rig.start_daemon();
    drop(hung);
    rig.until("the array to be served", || {
        within(&rig, 60, &["show", "far"]).json()["state"] == "optimal"
    });
    rig.stop_daemon();
}
