//! Changes of the array's shape, as the world sees them: which are asked for, which machines get
//! them, what is demanded then, and devices that grow.
//!
//! Invariant: an export queue and a shard that share a thread get a change at the same moment, and
//! what the queue had sent before goes before what the shard says after it.

use std::sync::Arc;

use strake_engine::Geometry;
use strake_engine::event::*;
use strake_engine::units::*;
use strake_format::{Layout, SUPERBLOCK_BYTES, Superblock};

use crate::plan::growth;
use crate::plan::workload;
use crate::prng::{Prng, Purpose};
use crate::world::clock::Place;
use crate::world::{Happening, SimResult, World};

impl World {
    /// Queues on the thread of a shard.
    fn queues_of(&self, shard: u16) -> impl Iterator<Item = u16> + use<> {
        let shards = self.shards;
        (0..self.plan.queues).filter(move |queue| queue % shards == shard)
    }

    /// A message is about to reach a shard: routers on its thread get it first.
    pub(crate) fn tell_routers(&mut self, shard: u16, message: &ToShard) {
        for queue in self.queues_of(shard) {
            let router = &mut self.machines().routers[usize::from(queue)];
            match message {
                ToShard::Quiesce => router.quiesce(),
                ToShard::Resume => router.resume(),
                ToShard::Reshape(setup) => router.reshape(Arc::clone(&setup.geometry)),
                _ => {}
            }
        }
    }

    /// A piece comes back to the router that made it: the shape has changed since.
    pub(crate) fn split_anew(&mut self, queue: u16, piece: Request) -> SimResult {
        self.trace([12, u64::from(queue), piece.id.0, 0], || {
            format!("queue {queue}: piece {:#x} again", piece.id.0)
        });
        self.stats.split_anew += 1;
        let mut pieces = Vec::new();
        self.machines().routers[usize::from(queue)].again(piece, &mut pieces);
        self.send_pieces(queue, pieces);
        Ok(())
    }

    /// Sends what a shard says to the array.
    pub(crate) fn tell_array(&mut self, shard: u16, message: FromShard) {
        let from = Place::Shard(shard);
        if matches!(message, FromShard::Quiesced { .. }) {
            for queue in self.queues_of(shard) {
                self.clock.join(from, Place::Queue(queue), Place::Array);
            }
        }
        if let FromShard::RegionEmpty { region } = message {
            self.stats.emptied += 1;
            self.ends_corrupt(region);
        }
        let what = Happening::FromShard(shard, message);
        self.send(from, Place::Array, what);
    }

    /// The array has this shape now.
    pub(crate) fn take_shape(&mut self, geometry: Arc<Geometry>, superblock: Superblock) {
        let block = geometry.block;
        self.user.shape = shape_of(&geometry);
        self.oracle.grow(geometry.size() / block);
        let layout = superblock.layout;
        for drive in &mut self.drives {
            drive.ssd.data = layout.data_offset..layout.data_offset + layout.data_bytes;
            drive.ssd.log = layout.log_offset..layout.log_offset + layout.log_bytes;
        }
        if let Some(machines) = &mut self.machines {
            machines.geometry = Arc::clone(&geometry);
        }
        self.admin.reshaping |= superblock.moving.is_some();
        let before = std::mem::replace(&mut self.geometry, geometry);
        self.superblock = superblock;
        self.carry_decay(&before);
        self.end_corrupt_of_lost_parity();
        self.sort_damage();
    }

    /// Requests members on so many fresh devices, if there are as many and no strip is corrupt, and
    /// the other changes of the shape.
    pub fn restripe(&mut self, count: usize, data: DataShape) -> Option<CommandId> {
        if self.is_corrupt() || self.silent.armed.is_some() {
            return None;
        }
        let devices: Vec<NewDevice> = (0..count).map_while(|_| self.fresh()).collect();
        if devices.is_empty() && data == DataShape::default() {
            return None;
        }
        let members = self.geometry.slots() + devices.len();
        let width = match data.group_size {
            Some(size) => usize::from(size),
            None if self.geometry.groups > 1 => self.geometry.width,
            None => members,
        };
        let groups = (0..members / width.max(1)).map(|group| group * width..(group + 1) * width);
        self.admin.wary.extend(groups);
        let numbers = devices.iter().map(|new| new.device).collect();
        let id = self.command(Command::Restripe(NewShape { devices, data }));
        self.admin.offered.insert(id, numbers);
        Some(id)
    }

    /// Requests so many parities fewer, if no strip is corrupt where data has to move for that.
    pub fn lower(&mut self, fewer: Fewer) -> Option<CommandId> {
        let corrupt = self.is_corrupt() || self.silent.armed.is_some();
        if corrupt && fewer.parities > self.geometry.fixed {
            return None;
        }
        Some(self.command(Command::DropParity(fewer)))
    }

    /// Asks for fewer parities, or for the mirror that the array is. Seldom for none. Draws of its
    /// own.
    pub(crate) fn lower_some(&mut self) {
        let seed = self.plan.seed ^ self.stats.events << 20;
        let mut rng = Prng::new(seed, Purpose::Groups);
        let (k, m) = (self.geometry.k, self.geometry.m);
        if k == 1 && m > 0 && rng.one_in(2) {
            self.command(Command::Mirror);
            return;
        }
        let last = rng.one_in(6);
        let most = if last { m } else { m.saturating_sub(1) };
        if most > 0 {
            let parities = rng.range(1, most as u64) as usize;
            self.lower(Fewer { parities, last });
        }
    }

    /// A move from parities that were to go has ended: so they are gone. No further command would
    /// remove them.
    pub(crate) fn parities_went(&self, geometry: &Geometry) -> Result<(), String> {
        match (self.geometry.to_go(), geometry.old_shape) {
            (Some(fewer), None) if geometry.m + fewer != self.geometry.m => {
                let (was, is) = (self.geometry.m, geometry.m);
                Err(format!(
                    "of {was} parities {fewer} were to go, and {is} are left"
                ))
            }
            _ => Ok(()),
        }
    }

    /// Asks for other strips, and perhaps for a data column besides. Draws of its own.
    pub(crate) fn restrip(&mut self) {
        let seed = self.plan.seed ^ self.stats.events << 20;
        let mut rng = Prng::new(seed, Purpose::Strip);
        let now = self.superblock.user_strip_bytes();
        let strip = rng.pick(&[now / 4, now / 2, now / 2, 2 * now, 2 * now, 4 * now]);
        let columns = usize::from(rng.one_in(3));
        let shape = DataShape {
            strip_bytes: Some(strip.max(4096)),
            ..DataShape::default()
        };
        self.restripe(columns, shape);
    }

    /// Asks for other groups: for some where there is one, else for one, or for one more. Draws of
    /// its own.
    pub(crate) fn regroup(&mut self) {
        let seed = self.plan.seed ^ self.stats.events << 20;
        let mut rng = Prng::new(seed, Purpose::Groups);
        let (now, m) = (self.geometry.row_columns(), self.geometry.m as u64);
        let slots = self.geometry.slots() as u64;
        // Small ones: as many members as that takes.
        let k = rng.range(2, 3);
        let least = (now.div_ceil(k) * (k + m)).max(2 * (k + m));
        let (members, group) = match self.geometry.groups {
            1 => (least, k + m),
            _ if rng.one_in(3) => (
                slots + self.geometry.width as u64,
                self.geometry.width as u64,
            ),
            _ if rng.one_in(3) => (least, k + m),
            _ => (slots, slots),
        };
        let more = members.max(slots) - slots;
        let shape = DataShape {
            strip_bytes: rng
                .one_in(6)
                .then(|| 2 * self.superblock.user_strip_bytes()),
            group_size: Some(group as u8),
            ..DataShape::default()
        };
        if self.geometry.fixed > 0 && rng.one_in(2) {
            let rotate = DataShape {
                rotate: true,
                group_size: None,
                ..shape
            };
            self.restripe(0, rotate);
        } else if more <= 4 {
            self.restripe(more as usize, shape);
        }
    }

    /// Devices have grown while nothing ran, all by as much or each by what its seed says; the
    /// first superblock is found then, and the last by what the first says of where the device
    /// ended. So the first has to be there, and to know it: a start that was cut off after it had
    /// written the new end, and nothing else, hides that end when the device grows once more. True
    /// if it happened.
    pub fn enlarge(&mut self, bytes: u64) -> bool {
        let first = |drive: &crate::world::Drive| {
            let [at, _] = Layout::superblock_offsets(drive.ssd.len());
            Superblock::decode(drive.ssd.peek(at, SUPERBLOCK_BYTES)?, at).ok()
        };
        let whole = |drive: &crate::world::Drive| {
            let known = first(drive).map(|first| first.layout.device_bytes);
            let newest = drive.carried();
            let newest = newest.map(|(newest, _)| newest.layout.device_bytes);
            !drive.used || known.is_some() && known == newest
        };
        if !self.drives.iter().all(whole) {
            return false;
        }
        let seed = self.plan.seed ^ bytes;
        let by: Vec<u64> = (0..self.drives.len())
            .map(|index| match self.plan.grows_unequally {
                true => growth(self.plan.seed, index, bytes, self.plan.block),
                false => bytes,
            })
            .collect();
        for (drive, bytes) in self.drives.iter_mut().zip(&by) {
            drive.ssd.enlarge(*bytes as usize, seed);
        }
        let unequal = by.iter().any(|more| more != &by[0]);
        self.stats.unequal_growths += u64::from(unequal);
        match unequal {
            true => self.note(format!("devices have more bytes: {by:?}")),
            false => self.note(format!("every device has {bytes} bytes more")),
        }
        true
    }
}

/// What requests are drawn by.
pub(crate) fn shape_of(geometry: &Geometry) -> workload::Shape {
    let block = geometry.block;
    workload::Shape {
        total: geometry.size() / block,
        strip: geometry.band * geometry.strip / block,
        stripe: geometry.band * geometry.stripe_bytes() / block,
        region: geometry.after_move().region_bytes(RegionNo(0)).end / block,
    }
}
