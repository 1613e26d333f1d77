//! Arrays on files in a temporary folder, and a small NBD client that can also misbehave.

#![expect(dead_code, reason = "each test file uses a part")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use strake_engine::create::{CreateSpec, Init, plan};
use strake_engine::event::{ArrayState, MemberState, NewDevice, Status};
use strake_format::{ArrayName, ArrayUuid, Level, MemberUuid, Settings, WriteHole};
use strake_runtime::*;

/// How to make and serve an array.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) level: Level,
    pub(crate) members: usize,
    pub(crate) spares: usize,
    pub(crate) group_size: Option<u8>,
    pub(crate) member_bytes: u64,
    pub(crate) strip: u32,
    pub(crate) shards: u16,
    pub(crate) export: ExportKind,
    pub(crate) io_timeout: Duration,
}

impl Spec {
    pub(crate) fn new(level: Level, members: usize) -> Spec {
        Spec {
            name: "rig",
            level,
            members,
            spares: 0,
            group_size: None,
            member_bytes: 64 << 20,
            strip: 65536,
            shards: 1,
            export: ExportKind::Nbd,
            io_timeout: Duration::from_secs(30),
        }
    }
}

/// A file in memory that can be made to refuse all writes.
pub(crate) struct Sealed(std::os::fd::OwnedFd);

impl Sealed {
    /// With the content of another.
    pub(crate) fn copy(path: &Path) -> Sealed {
        let flags = rustix::fs::MemfdFlags::ALLOW_SEALING | rustix::fs::MemfdFlags::CLOEXEC;
        let sealed = Sealed(rustix::fs::memfd_create("member", flags).expect("a file in memory"));
        std::fs::copy(path, sealed.path()).expect("copied");
        sealed
    }
    pub(crate) fn path(&self) -> PathBuf {
        let (process, fd) = (std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&self.0));
        PathBuf::from(format!("/proc/{process}/fd/{fd}"))
    }
    pub(crate) fn refuse_writes(&self) {
        let seal = rustix::fs::SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&self.0, seal).expect("sealed");
    }
}

/// An array on files.
pub(crate) struct Rig {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) spec: Spec,
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) size: u64,
}

impl Rig {
    /// Makes the files and writes a new array on them.
    pub(crate) fn create(spec: Spec) -> Rig {
        let dir = tempfile::tempdir_in(scratch()).expect("folder");
        let paths: Vec<PathBuf> = (0..spec.members + spec.spares)
            .map(|i| dir.path().join(format!("member{i}")))
            .collect();
        let devices: Vec<Device> = paths
            .iter()
            .map(|path| {
                let file = std::fs::File::create(path).expect("file");
                file.set_len(spec.member_bytes).expect("size");
                Device::open(path, OpenMode::Member).expect("opens")
            })
            .collect();
        let identity = |i: usize| MemberUuid([i as u8 + 1; 16]);
        let all: Vec<_> = devices
            .iter()
            .enumerate()
            .map(|(i, d)| (d.info(), identity(i)))
            .collect();
        let created = plan(&CreateSpec {
            array: ArrayUuid([0xaa; 16]),
            name: spec.name.parse::<ArrayName>().expect("a name"),
            level: spec.level,
            strip_bytes: Some(spec.strip),
            group_size: spec.group_size,
            block_bytes: Some(4096),
            write_hole: WriteHole::Closed,
            settings: Settings {
                spare_delay_ms: 0,
                ..Settings::default()
            },
            init: Init::Lazy,
            created_unix_s: 0,
            members: all[..spec.members].to_vec(),
            spares: all[spec.members..].to_vec(),
            tiny: None,
        })
        .expect("a sound array");
        for (device, writes) in devices.iter().zip(&created.writes) {
            for (offset, bytes) in writes {
                device.write_at(*offset, bytes).expect("writes");
            }
            device.flush().expect("flushes");
        }
        Rig {
            dir,
            spec,
            paths,
            size: created.size_bytes,
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("nbd.sock")
    }

    /// What is needed to serve those of the files that are there.
    pub(crate) fn config(&self) -> ServeConfig {
        self.config_of(&self.paths)
    }

    /// What is needed to serve these devices.
    pub(crate) fn config_of(&self, paths: &[PathBuf]) -> ServeConfig {
        let members = open_members(paths);
        ServeConfig {
            members,
            shards: self.spec.shards,
            memory_bytes: 16 << 20,
            placement: Placement::default(),
            io_timeout: self.spec.io_timeout,
            force: false,
            export: self.spec.export,
            nbd_socket: self.socket(),
            recover_ublk: None,
            client_stock: Vec::new(),
        }
    }

    pub(crate) fn serve(&self) -> (Serving, Receiver<EventRecord>) {
        serve(self.config()).expect("serves")
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.socket(), true)
    }
}

/// Opens those of the members that are there.
pub(crate) fn open_members(paths: &[PathBuf]) -> Vec<(Device, MemberImage)> {
    paths
        .iter()
        .filter(|path| path.exists())
        .map(|path| {
            let device = Device::open(path, OpenMode::Member).expect("opens");
            let image = device.read_member().expect("a member");
            (device, image)
        })
        .collect()
}

/// Memory-backed where there is such a place: these tests are not about a disk.
fn scratch() -> PathBuf {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() {
        shm.to_owned()
    } else {
        std::env::temp_dir()
    }
}

/// A fresh file as a new device.
pub(crate) fn new_device(serving: &Serving, path: &Path, bytes: u64, identity: u8) -> NewDevice {
    std::fs::File::create(path)
        .expect("file")
        .set_len(bytes)
        .expect("size");
    let device = Device::open(path, OpenMode::Member).expect("opens");
    let info = device.info();
    NewDevice {
        device: serving.attach(device).expect("it has a number"),
        info,
        member: MemberUuid([identity; 16]),
    }
}

/// Waits until the status is as wanted.
pub(crate) fn wait_for(serving: &Serving, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
    let begun = Instant::now();
    loop {
        let status = serving.status();
        if wanted(&status) {
            return status;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "no {what}: {status:#?}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn optimal(status: &Status) -> bool {
    status.state == ArrayState::Optimal
        && status
            .members
            .iter()
            .all(|m| m.slot.is_none() || m.state == MemberState::InSync)
}

/// Content that says where it belongs and which write it is of.
pub(crate) fn pattern(offset: u64, len: usize, version: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    for word in 0..(len as u64).div_ceil(8) {
        let value = (offset + word * 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ version.wrapping_mul(0xff51_afd7);
        bytes.extend(value.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISC: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const WRITE_ZEROES: u16 = 6;
pub(crate) const BLOCK_STATUS: u16 = 7;
pub(crate) const FUA: u16 = 1;

/// An NBD client that does what it is told.
pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    pub(crate) structured: bool,
    pub(crate) size: u64,
    cookie: u64,
}

impl Client {
    /// Connects and takes the default export.
    pub(crate) fn connect(socket: &Path, structured: bool) -> Client {
        let mut client = Client::greet(socket);
        if structured {
            let (kind, _) = client.option(8, &[]);
            assert_eq!(kind, 1, "structured replies");
            client.structured = true;
            let mut query = vec![0, 0, 0, 0, 0, 0, 0, 1];
            query.extend(15u32.to_be_bytes());
            query.extend(b"base:allocation");
            let (kind, data) = client.option(10, &query);
            assert_eq!((kind, &data[4..]), (4, &b"base:allocation"[..]));
            assert_eq!(client.option_reply(10).0, 1);
        }
        client.send_option(7, &[0, 0, 0, 0, 0, 0]);
        loop {
            let (kind, data) = client.option_reply(7);
            match kind {
                1 => break,
                3 if data[..2] == [0, 0] => {
                    client.size = u64::from_be_bytes(data[2..10].try_into().expect("eight bytes"));
                }
                3 => {}
                other => panic!("GO answered with {other:#x}"),
            }
        }
        client
    }

    /// Connects and exchanges greetings.
    pub(crate) fn greet(socket: &Path) -> Client {
        let mut stream = UnixStream::connect(socket).expect("connects");
        stream
            .set_read_timeout(Some(Duration::from_secs(90)))
            .expect("timeout");
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).expect("greeting");
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        assert_eq!(greeting[16..], [0, 3]);
        stream.write_all(&3u32.to_be_bytes()).expect("flags");
        Client {
            stream,
            structured: false,
            size: 0,
            cookie: 0,
        }
    }

    /// On a stream where greetings have been exchanged.
    pub(crate) fn over(stream: UnixStream) -> Client {
        stream
            .set_read_timeout(Some(Duration::from_secs(90)))
            .expect("timeout");
        Client {
            stream,
            structured: false,
            size: 0,
            cookie: 0,
        }
    }

    pub(crate) fn send_option(&mut self, option: u32, data: &[u8]) {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        self.stream.write_all(&bytes).expect("option");
    }

    pub(crate) fn option_reply(&mut self, option: u32) -> (u32, Vec<u8>) {
        let mut head = [0; 20];
        self.stream
            .read_exact(&mut head)
            .expect("an answer to the option");
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
        assert_eq!(head[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
        assert_eq!(word(8), option);
        let mut data = vec![0; word(16) as usize];
        self.stream.read_exact(&mut data).expect("data");
        (word(12), data)
    }

    pub(crate) fn option(&mut self, option: u32, data: &[u8]) -> (u32, Vec<u8>) {
        self.send_option(option, data);
        self.option_reply(option)
    }

    /// Sends a request and gives its cookie.
    pub(crate) fn send(
        &mut self,
        flags: u16,
        command: u16,
        offset: u64,
        len: u32,
        data: &[u8],
    ) -> u64 {
        self.cookie += 1;
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes.extend(data);
        self.stream.write_all(&bytes).expect("request");
        self.cookie
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).expect("an answer");
        bytes
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.bytes())
    }

    /// Receives one whole answer: cookie, error, data (of `len` bytes at `offset`, or what a
    /// status chunk holds).
    pub(crate) fn receive(&mut self, offset: u64, len: usize) -> (u64, u32, Vec<u8>) {
        let mut data = vec![0; len];
        let mut error = 0;
        loop {
            match self.u32() {
                0x6744_6698 => {
                    let (error, cookie) = (self.u32(), self.u64());
                    if error == 0 && len > 0 {
                        assert!(!self.structured, "a read is answered in chunks");
                        self.stream.read_exact(&mut data).expect("data");
                    }
                    return (cookie, error, data);
                }
                0x668e_33ef => {
                    let [a, done, b, kind] = self.bytes();
                    let (cookie, length) = (self.u64(), self.u32());
                    let kind = u16::from_be_bytes([b, kind]);
                    assert_eq!(a, 0);
                    let mut payload = vec![0; length as usize];
                    self.stream.read_exact(&mut payload).expect("chunk");
                    match kind {
                        0 => {}
                        1 => {
                            let at = u64::from_be_bytes(payload[..8].try_into().expect("eight"));
                            let at = (at - offset) as usize;
                            data[at..at + payload.len() - 8].copy_from_slice(&payload[8..]);
                        }
                        5 => data = payload,
                        0x8001 => {
                            error = u32::from_be_bytes(payload[..4].try_into().expect("four"))
                        }
                        other => panic!("chunk of kind {other:#x}"),
                    }
                    if done == 1 {
                        return (cookie, error, data);
                    }
                }
                other => panic!("no reply magic: {other:#x}"),
            }
        }
    }

    /// A request and its answer's error.
    pub(crate) fn ask(&mut self, flags: u16, command: u16, offset: u64, len: u32) -> u32 {
        let sent = self.send(flags, command, offset, len, &[]);
        let (cookie, error, _) = self.receive(offset, 0);
        assert_eq!(cookie, sent);
        error
    }

    pub(crate) fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, u32> {
        let sent = self.send(0, READ, offset, len as u32, &[]);
        let (cookie, error, data) = self.receive(offset, len);
        assert_eq!(cookie, sent);
        if error == 0 { Ok(data) } else { Err(error) }
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), u32> {
        let sent = self.send(0, WRITE, offset, data.len() as u32, data);
        let (cookie, error, _) = self.receive(offset, 0);
        assert_eq!(cookie, sent);
        if error == 0 { Ok(()) } else { Err(error) }
    }

    /// Extents of a range: (bytes, flags).
    pub(crate) fn extents(&mut self, offset: u64, len: u32) -> Vec<(u32, u32)> {
        self.send(0, BLOCK_STATUS, offset, len, &[]);
        let (_, error, data) = self.receive(offset, 0);
        assert_eq!(error, 0);
        assert_eq!(data[..4], 1u32.to_be_bytes());
        let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four"));
        data[4..]
            .chunks(8)
            .map(|pair| (word(&pair[..4]), word(&pair[4..])))
            .collect()
    }
}
