//! Volumes of an array that serves: exports of their own, and the steps of a change of their table,
//! carried out as any user's requests are.
//!
//! Invariants: a step is done when this returns, or it is said that it may be under way; an export
//! of a volume gives no byte of the array but the volume's; nothing that waits for a driver holds a
//! lock that looks take. Deliberately absent: which volumes there are and what becomes of them
//! (engine, daemon).

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use strake_engine::event::{Op, Slices};
use strake_engine::volumes::{Step, VolumeMap};
use strake_engine::{Pool, Slice};
use strake_format::volumes::{VOLUME_TABLE_BYTES, VOLUME_TABLE_OFFSETS};
use strake_format::{
    ArrayUuid, ChosenTable, VolumeTable, VolumeTableError, VolumeUuid, select_table,
};

use crate::error::ServeError;
use crate::export::{Export, ExportKind, Left, Plan, Running, Target, locked, ublk};
use crate::mail::VolumeView;
use crate::mail::local::LocalClient;
use crate::serve::Serving;
use crate::serve::asking::NotDone;

/// Bytes that are zeroed or discarded with one request, where they are no whole units.
const RANGE_BYTES: u64 = 256 << 20;
/// Whole units with one request.
const RANGE_UNITS: u64 = 64;

/// A volume to be served.
#[derive(Debug)]
pub struct VolumeExport {
    /// Which.
    pub uuid: VolumeUuid,
    /// Its name.
    pub name: String,
    /// Where its bytes lie.
    pub map: VolumeMap,
    /// Where the NBD socket goes.
    pub nbd_socket: PathBuf,
    /// Number of a ublk device that a daemon killed before left behind, to be recovered.
    pub recover_ublk: Option<u32>,
    /// How long that may stay busy.
    pub patience: Duration,
}

/// The array's own export.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// What serves it.
    pub(super) running: Option<Running>,
    /// It is being made.
    coming: bool,
    /// The array ends: none comes any more.
    pub(super) closed: bool,
}

/// The array's own export is being made, until this is dropped.
struct Coming<'a>(&'a Serving);

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.0.own().coming = false;
    }
}

/// A volume that is served.
#[derive(Debug)]
pub(crate) struct Served {
    view: Arc<VolumeView>,
    running: Running,
}

impl Served {
    /// Takes the export away.
    pub(crate) fn stop(self) -> Result<(), ServeError> {
        self.running.stop()
    }

    /// Lets go as a kill would.
    pub(crate) fn abandon(self) {
        self.running.abandon();
    }
}

/// A plan that leaves room for other block devices of the same array.
fn plan(
    kind: ExportKind,
    requests: Option<std::num::NonZeroU32>,
    left: Option<u32>,
) -> Result<Plan, ServeError> {
    match Plan::choose(kind, requests, left)? {
        Plan::Ublk(driver) if !driver.shares_memory() => match kind {
            // Only ublk can answer the users of a device that was left behind.
            ExportKind::Auto if left.is_none() => Ok(Plan::Nbd),
            _ => Err(ServeError::NoUblk(
                "volumes need a driver with user copy (Linux 6.5)".into(),
            )),
        },
        plan => Ok(plan),
    }
}

impl Serving {
    fn served<T>(
        &self,
        act: impl FnOnce(&mut std::collections::BTreeMap<VolumeUuid, Served>) -> T,
    ) -> T {
        act(&mut locked(&self.volumes))
    }

    /// Serves a volume, if it is not served already. One at a time; readers of the table do not
    /// wait.
    pub fn export_volume(&self, volume: VolumeExport) -> Result<Export, ServeError> {
        if let Some(export) = self.volume_export(volume.uuid) {
            return Ok(export);
        }
        let tag = ublk::UblkDevices::tag(&volume.uuid.0);
        let view = VolumeView::new(volume.map);
        let target = Target {
            name: volume.name,
            tag,
            volume: Some(Arc::clone(&view)),
            ..self.target()
        };
        let plan = plan(self.export_kind, self.requests, volume.recover_ublk)?;
        let left = volume.recover_ublk.map(|id| Left {
            id,
            patience: volume.patience,
        });
        let running = plan.serve(target, &volume.nbd_socket, left)?;
        let export = running.export();
        self.served(|volumes| volumes.insert(volume.uuid, Served { view, running }));
        Ok(export)
    }

    /// What serves a volume.
    pub fn volume_export(&self, volume: VolumeUuid) -> Option<Export> {
        self.served(|volumes| volumes.get(&volume).map(|served| served.running.export()))
    }

    /// Clients that are connected to a volume, where that can be told.
    pub fn volume_clients(&self, volume: VolumeUuid) -> usize {
        self.served(|volumes| {
            let served = volumes.get(&volume);
            served.map_or(0, |served| served.running.clients())
        })
    }

    /// Listens again where the file of an NBD socket of the array was removed or replaced.
    ///
    /// # Errors
    /// A socket cannot be made, or another process listens there.
    pub fn listen_again(&self) -> std::io::Result<()> {
        let own = self.own().running.as_ref().and_then(Running::socket_file);
        let volumes: Vec<_> = self.served(|volumes| {
            let files = volumes.values().map(|served| served.running.socket_file());
            files.flatten().collect()
        });
        let all = own.into_iter().chain(volumes);
        all.map(|file| file.listen_again())
            .fold(Ok(()), Result::and)
    }

    /// Answers what is in flight and takes a volume's export away.
    pub fn withdraw_volume(&self, volume: VolumeUuid) -> Result<(), ServeError> {
        let served = self.served(|volumes| volumes.remove(&volume));
        served.map_or(Ok(()), Served::stop)
    }

    /// A volume has grown. False where its users see it only when it is served anew.
    pub fn grow_volume(&self, volume: VolumeUuid, map: VolumeMap) -> Result<bool, ServeError> {
        let announce = self.served(|volumes| {
            let served = volumes.get(&volume)?;
            let size = map.size();
            served.view.grow(map);
            Some(served.running.grown(size))
        });
        announce.map_or(Ok(true), |announce| announce())
    }

    /// Answers what is in flight and takes the array's own export away.
    pub fn withdraw(&self) -> Result<(), ServeError> {
        let running = self.own().running.take();
        running.map_or(Ok(()), Running::stop)
    }

    /// Serves the array itself again, after [`Serving::withdraw`]. Looks at the array do not wait.
    ///
    /// # Errors
    /// It cannot be served; another call makes its export; the array ends.
    pub fn expose(&self) -> Result<(), ServeError> {
        self.expose_by(|target| {
            let plan = Plan::choose(self.export_kind, self.requests, None)?;
            plan.serve(target, &self.socket(), None)
        })
    }

    fn expose_by(
        &self,
        serve: impl FnOnce(Target) -> Result<Running, ServeError>,
    ) -> Result<(), ServeError> {
        let mut own = self.own();
        match &*own {
            Own {
                running: Some(_), ..
            } => return Ok(()),
            Own { closed: true, .. } => return Err(ServeError::Ended),
            Own { coming: true, .. } => return Err(ServeError::ExportUnderWay),
            _ => own.coming = true,
        }
        drop(own);
        let _coming = Coming(self);
        let target = self.target();
        let size = target.size();
        let running = serve(target)?;
        let mut own = self.own();
        if own.closed {
            drop(own);
            running.stop()?;
            return Err(ServeError::Ended);
        }
        own.running = Some(running);
        drop(own);
        // A growth that came meanwhile did not find it to be told.
        if self.shape.now().size() != size {
            self.tell_size();
        }
        Ok(())
    }
}

impl LocalClient {
    /// Reads both copies of the table of volumes and chooses.
    pub fn read_volumes(&self, array: ArrayUuid) -> Result<ChosenTable, VolumeTableError> {
        let copies = VOLUME_TABLE_OFFSETS.map(|offset| self.read_copy(array, offset));
        select_table(&copies)
    }

    fn read_copy(
        &self,
        array: ArrayUuid,
        offset: u64,
    ) -> Result<Option<VolumeTable>, VolumeTableError> {
        let len = VOLUME_TABLE_BYTES;
        let read = self.ask(Op::Read { offset, len });
        let slices = read.map_err(|_| VolumeTableError::Unreadable)?;
        let mut bytes = Vec::with_capacity(len as usize);
        for slice in &slices {
            bytes.extend_from_slice(slice.bytes());
        }
        VolumeTable::decode(&bytes, offset, array)
    }

    /// Carries out a step of a change of the table.
    ///
    /// # Errors
    /// What the array answered; that it does not, and the step may be carried out yet.
    pub fn carry_out(&self, step: Step, unit_bytes: u64) -> Result<(), NotDone> {
        let done = |_: Slices| ();
        match step {
            Step::Flush => self.ask(Op::Flush).map(done),
            Step::Write(offset, bytes) => {
                let mut pool = Pool::new(&[(bytes.len(), 1)]);
                let mut buf = pool.take(bytes.len()).expect("a buffer of that size");
                buf.bytes_mut()[..bytes.len()].copy_from_slice(&bytes);
                let data = Slice::new(buf, 0, bytes.len());
                let fua = false;
                self.ask(Op::Write { offset, data, fua }).map(done)
            }
            Step::Zero(range) => self.over(range, unit_bytes, |offset, len| Op::WriteZeroes {
                offset,
                len,
                fua: false,
            }),
            Step::Discard(range) => {
                self.over(range, unit_bytes, |offset, len| Op::Discard { offset, len })
            }
            Step::Acknowledge => Ok(()),
        }
    }

    /// Asks for a range in parts: whole units many at a time, for they cost next to nothing.
    fn over(
        &self,
        range: Range<u64>,
        unit_bytes: u64,
        op: impl Fn(u64, u64) -> Op,
    ) -> Result<(), NotDone> {
        let whole = [range.start, range.end]
            .iter()
            .all(|at| at.is_multiple_of(unit_bytes));
        let part = if whole {
            RANGE_UNITS * unit_bytes
        } else {
            RANGE_BYTES
        };
        let mut at = range.start;
        while at < range.end {
            let len = part.min(range.end - at);
            self.ask(op(at, len))?;
            at += len;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use strake_format::{ArrayName, Level};

    use super::*;
    use crate::export::nbd::Server;
    use crate::member_io::tests::common::{Rig, Spec};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Every look at all arrays waited until the kernel had added and started the block device.
    #[test]
    fn an_export_that_is_being_made_holds_up_no_look_and_comes_to_no_array_that_ends() {
        let rig = Rig::create(Spec::new(Level::Raid1, 2));
        let (serving, _events) = rig.serve();
        serving.withdraw().expect("withdrawn");
        let is_there = || matches!(serving.export(), Export::Nbd { .. });
        for ends in [false, true] {
            let (begun, begins) = channel();
            let (go, goes) = channel();
            let socket = rig.socket();
            let made = move |target| {
                begun.send(()).expect("it is waited for");
                let waited = goes.recv_timeout(PATIENCE);
                waited.expect("looks come to their end meanwhile");
                let server = Server::start(&socket, target);
                Ok(Running::Nbd(server.expect("it listens")))
            };
            std::thread::scope(|scope| {
                let making = scope.spawn(|| serving.expose_by(made));
                begins.recv().expect("it begins");
                assert_eq!(serving.export(), Export::None);
                serving.listen_again().expect("nothing is to be made");
                let again = serving.expose();
                assert!(matches!(again, Err(ServeError::ExportUnderWay)));
                if ends {
                    serving.end().result.expect("it ends");
                }
                go.send(()).expect("it waits");
                let made = making.join().expect("no panic");
                match ends {
                    false => made.expect("made"),
                    true => assert!(matches!(made, Err(ServeError::Ended))),
                }
            });
            assert_eq!((is_there(), rig.socket().exists()), (!ends, !ends));
            if !ends {
                serving.withdraw().expect("withdrawn");
                let panics = || serving.expose_by(|_| panic!("a test"));
                let panics = std::panic::AssertUnwindSafe(panics);
                assert!(std::panic::catch_unwind(panics).is_err());
                serving.expose().expect("a panic keeps none from it");
                assert!(is_there());
                serving.withdraw().expect("withdrawn");
            }
        }
        assert!(matches!(serving.expose(), Err(ServeError::Ended)));
    }

    /// It listened at the socket of its former name again.
    #[test]
    fn an_array_that_was_renamed_is_exposed_by_its_new_name() {
        let rig = Rig::create(Spec::new(Level::Raid1, 2));
        let (serving, _events) = rig.serve();
        let at = |name| rig.socket().with_file_name(name);
        let name = |name: &str| name.parse::<ArrayName>().expect("a name");
        let listens = || match serving.export() {
            Export::Nbd { socket } => socket,
            other => panic!("{other:?}"),
        };
        let renamed = serving.rename_export(&name("second"), &at("second"));
        renamed.expect("the socket is moved");
        assert_eq!(listens(), at("second"));
        serving.withdraw().expect("withdrawn");
        let renamed = serving.rename_export(&name("third"), &at("third"));
        renamed.expect("there is nothing to be moved");
        serving.expose().expect("exposed");
        assert_eq!(listens(), at("third"));
        assert_eq!(serving.target().name, "third");
    }
}
