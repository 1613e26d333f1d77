//! Requests of users of volumes: which part of which volume, where that lies, and what may be
//! answered.
//!
//! Invariants: the array's oracle records each part of a request by its place in the array, the
//! volume's oracle by its place in the volume; what is read must be right for both. A request that
//! is not inside its volume is refused at once.
//!
//! Deliberately absent: what the table of volumes is, and how it changes.

use super::*;

use strake_engine::event::{Reply, Slices};
use strake_engine::{Buf, Slice};

use crate::canary::Canary;
use crate::oracle::Moment;
use crate::world::Happening;
use crate::world::user::PendingRequest;

/// A request of a volume in flight.
pub(super) struct Through {
    /// The volume.
    pub(super) volume: VolumeUuid,
    /// Its blocks, and where they lie, in order.
    parts: Vec<Part>,
    /// When it was asked, by the clock of each volume that it is about.
    moments: Vec<(VolumeUuid, Moment)>,
}

/// A part of it that lies together.
struct Part {
    /// First block in the volume.
    first: u64,
    /// In the array.
    ask: Ask,
    /// Of the array's oracle, and of the volume's.
    tickets: Option<(Ticket, Ticket)>,
}

impl World {
    /// Submits one more request of a user of volumes, unless it would read too much at once.
    pub(crate) fn ask_volume(&mut self) -> SimResult<bool> {
        let corrupt = self.is_corrupt() || self.silent.armed.is_some();
        let vols = self.vols();
        if vols.phase != Phase::Serving {
            // What it waits for may last.
            let waits = corrupt || vols.refused_at.is_some();
            if waits {
                self.user.asks_left -= 1;
                self.flush_volumes()?;
            }
            return Ok(waits);
        }
        let idle = vols.change.is_none() && !corrupt;
        if idle && (vols.table.volumes.is_empty() || vols.chance.one_in(3)) {
            self.begin_change()?;
        }
        let base = self.user.next(&mut self.chance.workload);
        let vols = self.vols();
        let change = vols.change.as_ref();
        let served = vols.table.volumes.iter();
        let served: Vec<Volume> = served.filter(|v| is_served(change, v)).cloned().collect();
        if served.is_empty() || base.kind == AskKind::Flush {
            self.user.asks_left -= 1;
            self.flush_volumes()?;
            return Ok(true);
        }
        let rng = &mut self.vols().chance;
        let pieces = |v: &&Volume| v.extents.len() > 1;
        let scattered = served.iter().find(pieces).filter(|_| rng.one_in(2));
        let volume = scattered.unwrap_or_else(|| &served[rng.index(served.len())]);
        self.ask_beyond(volume)?;
        let Some((kind, first, count)) = self.draw_range(volume, base) else {
            self.user.held = Some(base);
            return Ok(false);
        };
        self.user.asks_left -= 1;
        self.submit_to(volume, kind, first, count, base.fua)?;
        Ok(true)
    }

    /// What a request for some blocks becomes for this volume, if it may be made now.
    fn draw_range(&mut self, volume: &Volume, base: Ask) -> Option<(AskKind, u64, u64)> {
        let blocks = volume.size_bytes / self.geometry.block;
        let mut count = base.count.clamp(1, blocks);
        // At its end, where one of its extents ends, or anywhere.
        let per_unit = self.vols().table.unit_bytes / self.geometry.block;
        let rng = &mut self.vols().chance;
        let last = blocks - count;
        let extent = &volume.extents[rng.index(volume.extents.len())];
        let before = volume.extents.iter().take_while(|e| *e != extent);
        let units = before.map(|e| e.units).sum::<u32>() + extent.units;
        let joint = u64::from(units) * per_unit;
        let first = match rng.below(4) {
            0 => last,
            1 => joint.saturating_sub(rng.range(1, count)).min(last),
            _ => rng.below(last + 1),
        };
        let mut kind = base.kind;
        let parts = self.parts_of(volume, kind, first, count);
        let busy = |ask: &Ask| {
            let busy = !self.user.swarm.overlapping && self.oracle.busy(ask.first, ask.count);
            busy || self.touches_corrupt(ask)
        };
        if kind.changes() && parts.iter().any(|part| busy(&part.ask)) {
            kind = AskKind::Read;
        }
        if kind == AskKind::Read {
            // Each piece may begin and end within a strip.
            let strip = self.geometry.strip / self.geometry.block;
            let torn = 2 * strip * (parts.len() as u64 - 1);
            count = count.min(self.longest_read().saturating_sub(torn).max(1));
        }
        let parts = self.parts_of(volume, kind, first, count);
        self.may_read(&parts).then_some((kind, first, count))
    }

    fn buffers_for(&self, parts: &[Part]) -> u64 {
        parts.iter().map(|part| self.buffers_of(&part.ask)).sum()
    }

    fn may_read(&self, parts: &[Part]) -> bool {
        self.user.reading == 0
            || self.user.reading + self.buffers_for(parts) <= self.user.reading_most
    }

    /// Where blocks of a volume lie.
    fn parts_of(&mut self, volume: &Volume, kind: AskKind, first: u64, count: u64) -> Vec<Part> {
        let block = self.geometry.block;
        let map = self.vols().map(volume, block);
        let mut at = first;
        let part = |range: Range<u64>| {
            let count = (range.end - range.start) / block;
            let ask = Ask::new(kind, range.start / block, count);
            at += count;
            Part {
                first: at - count,
                ask,
                tickets: None,
            }
        };
        map.ranges(first * block, count * block).map(part).collect()
    }

    /// Now and then a request goes beyond the end: no byte of another volume is touched.
    fn ask_beyond(&mut self, volume: &Volume) -> SimResult {
        let block = self.geometry.block;
        let rng = &mut self.vols().chance;
        if !rng.one_in(8) {
            return Ok(());
        }
        let len = rng.range(1, 8) * block;
        let inside = rng.below(len / block) * block;
        let offset = volume.size_bytes.saturating_sub(inside);
        let (id, map) = (
            RequestId(self.user.next_request),
            self.vols().map(volume, block),
        );
        let op = match offset / block % 2 {
            0 => Op::Read { offset, len },
            _ => Op::Discard { offset, len },
        };
        let mut pieces = Vec::new();
        let router = &mut self.machines().routers[0];
        let refused = router.route_in(Some(&map), Request { id, op }, &mut pieces);
        let refused =
            refused.is_some_and(|reply| reply.result.err() == Some(RequestError::Invalid));
        if !refused || !pieces.is_empty() {
            let name = &volume.name;
            return self.failure(format!("{name}: {offset}+{len} is beyond its end"));
        }
        self.stats.volume_asks_refused += 1;
        Ok(())
    }

    fn flush_volumes(&mut self) -> SimResult {
        let models = self.vols().models.iter_mut();
        let moments = models.map(|(uuid, model)| (*uuid, model.oracle.flush()));
        let moments = moments.collect();
        let moment = self.oracle.flush();
        let ask = Ask::new(AskKind::Flush, 0, 0);
        let through = Through {
            volume: VolumeUuid([0; 16]),
            parts: Vec::new(),
            moments,
        };
        self.send_through(ask, Op::Flush, moment, through, None)
    }

    /// Submits this request of a volume's user.
    fn submit_to(
        &mut self,
        volume: &Volume,
        kind: AskKind,
        first: u64,
        count: u64,
        fua: bool,
    ) -> SimResult {
        let block = self.geometry.block;
        let (offset, len) = (first * block, count * block);
        let mut parts = self.parts_of(volume, kind, first, count);
        let uuid = volume.uuid;
        let (mut moment, mut moments) = (0, Vec::new());
        if kind == AskKind::Read {
            moment = self.oracle.read();
            let model = self.vols().models.get_mut(&uuid);
            let own = model.expect("it is served").oracle.read();
            moments.push((uuid, own));
        }
        let mut buf = Buf::zeroed(len as usize);
        let mut bytes = buf.bytes_mut()[..len as usize].chunks_mut(block as usize);
        for part in &mut parts {
            let Ask { first, count, .. } = part.ask;
            let mut version = Version::ZEROS;
            let ticket = match kind {
                AskKind::Read | AskKind::Flush => continue,
                AskKind::Discard => self.oracle.discard(first, count),
                AskKind::WriteZeroes => self.oracle.zero(first, count),
                AskKind::Write => {
                    let (ticket, new) = self.oracle.write(first, count);
                    version = new;
                    for at in first..first + count {
                        let bytes = bytes.next().expect("as many as blocks");
                        oracle::content(version, at, bytes);
                    }
                    ticket
                }
            };
            let vols = self.volumes.as_mut().expect("the array has volumes");
            let model = &mut vols.models.get_mut(&uuid).expect("it is served").oracle;
            let own = match kind {
                AskKind::Discard => model.discard(part.first, count),
                _ => model.write_as(version, part.first, count),
            };
            part.tickets = Some((ticket, own));
        }
        let data = Slice::new(buf, 0, len as usize);
        let op = op_of(kind, offset, data, fua);
        self.trace([16, first, count, parts.len() as u64], || {
            format!("{}: {kind:?} {first}+{count}", volume.name)
        });
        let ask = Ask {
            fua,
            ..parts[0].ask
        };
        let map = self.vols().map(volume, block);
        let through = Through {
            volume: uuid,
            parts,
            moments,
        };
        self.send_through(ask, op, moment, through, Some(&map))
    }

    fn send_through(
        &mut self,
        ask: Ask,
        mut op: Op,
        moment: Moment,
        through: Through,
        map: Option<&VolumeMap>,
    ) -> SimResult {
        self.stats.asks += 1;
        self.stats.volume_asks += 1;
        self.stats.volume_asks_split += u64::from(through.parts.len() > 1);
        if self.all_answered() {
            self.silent.ended.clear();
            self.decay.forget_ended();
        }
        for part in &through.parts {
            self.touch_decay(&part.ask);
        }
        let buffers = self.buffers_for(&through.parts);
        self.user.reading += buffers;
        let id = RequestId(self.user.next_request);
        self.user.next_request += 1;
        let place = self.in_place(id, &mut op);
        self.trace([1, id.0, ask.first, ask.count], || {
            format!("request {} {ask:?}", id.0)
        });
        let queue = (id.0 % u64::from(self.plan.queues)) as u16;
        let more = through.parts.iter().skip(1).map(|part| part.ask).collect();
        let asked = PendingRequest {
            ask,
            more,
            ticket: None,
            moment,
            buffers,
            place,
        };
        self.user.asks.insert(id, asked);
        self.vols().under_way.insert(id, through);
        let mut pieces = Vec::new();
        let router = &mut self.machines().routers[usize::from(queue)];
        if let Some(reply) = router.route_in(map, Request { id, op }, &mut pieces) {
            return self.answered(reply);
        }
        self.send_pieces(queue, pieces);
        Ok(())
    }

    /// The answer to a request of a volume's user, if it was one.
    pub(crate) fn volume_answered(
        &mut self,
        asked: PendingRequest,
        reply: Reply,
    ) -> SimResult<Option<(PendingRequest, Reply)>> {
        let vols = self.volumes.as_mut();
        let Some(through) = vols.and_then(|vols| vols.under_way.remove(&reply.id)) else {
            return Ok(Some((asked, reply)));
        };
        match reply.result {
            Ok(slices) if asked.ask.kind == AskKind::Read => {
                self.volume_read(&asked, &through, slices)?;
            }
            Ok(slices) if !slices.is_empty() => {
                return self.failure(format!("{:?} was answered with data", asked.ask));
            }
            Ok(_) if asked.ask.kind == AskKind::Flush => {
                self.oracle.flushed(asked.moment);
                for (uuid, moment) in through.moments {
                    if let Some(model) = self.vols().models.get_mut(&uuid) {
                        model.oracle.flushed(moment);
                    }
                }
            }
            Ok(_) => {
                for part in &through.parts {
                    let (ticket, own) = part.tickets.as_ref().expect("a change has them");
                    self.oracle.answered(ticket, asked.ask.fua);
                    let model = self.vols().models.get_mut(&through.volume);
                    let model = model.expect("it is served until then");
                    model.oracle.answered(own, asked.ask.fua);
                }
            }
            Err(error) => self.volume_refused(&asked, &through, error)?,
        }
        Ok(None)
    }

    /// An error is right where it is for the array's user.
    fn volume_refused(
        &mut self,
        asked: &PendingRequest,
        through: &Through,
        error: RequestError,
    ) -> SimResult {
        self.note_lost_blocks();
        let mut parts = through.parts.iter().map(|part| part.ask);
        let lost = |ask: Ask| {
            let mut blocks = ask.first..ask.first + ask.count;
            blocks.any(|block| self.oracle.may_fail(asked.moment, block))
        };
        let excused = parts.clone().any(|ask| self.is_excused(&ask));
        let fair = asked.ask.kind == AskKind::Read && parts.any(lost);
        if error != RequestError::Unreadable || !(excused || fair) {
            let text = format!("{:?} of a volume was answered {error:?}", asked.ask);
            return self.failure(text);
        }
        self.stats.refused += u64::from(excused);
        self.stats.unreadable_answers += u64::from(!excused);
        self.oracle.unread(asked.moment);
        for part in &through.parts {
            let Some((ticket, own)) = &part.tickets else {
                continue;
            };
            self.oracle.unanswered(ticket);
            let model = self.vols().models.get_mut(&through.volume);
            model
                .expect("it is served until then")
                .oracle
                .unanswered(own);
        }
        for (uuid, moment) in &through.moments {
            if let Some(model) = self.vols().models.get_mut(uuid) {
                model.oracle.unread(*moment);
            }
        }
        self.let_go(asked.buffers)
    }

    fn volume_read(
        &mut self,
        asked: &PendingRequest,
        through: &Through,
        slices: Slices,
    ) -> SimResult {
        let bytes = asked.bytes(&slices);
        let size = self.geometry.block as usize;
        let count: u64 = through.parts.iter().map(|part| part.ask.count).sum();
        if bytes.len() as u64 != count * size as u64 {
            let text = format!("{:?} was answered with {} bytes", asked.ask, bytes.len());
            return self.failure(text);
        }
        let (_, own_moment) = through.moments[0];
        let mut from = 0;
        for part in &through.parts {
            let to = from + part.ask.count as usize * size;
            let mut bytes = bytes[from..to].to_vec();
            from = to;
            let planted = self.planted.as_ref().map(|planted| planted.canary);
            if planted == Some(Canary::ReconstructZeros) {
                self.zero_missing(part.ask.first, &mut bytes);
            }
            let alone = PendingRequest {
                ask: part.ask,
                more: Vec::new(),
                ticket: None,
                moment: asked.moment,
                buffers: 0,
                place: Vec::new(),
            };
            self.excuse_corrupt(&alone, &mut bytes);
            // What is told apart now is forgotten, perhaps, when nobody reads it any more.
            let versions: Vec<_> = (part.ask.first..)
                .zip(bytes.chunks(size))
                .map(|(block, bytes)| self.oracle.versions_in(block, bytes))
                .collect();
            if let Err(mismatch) = self.oracle.seen(asked.moment, part.ask.first, &bytes) {
                let place = self.place(mismatch.block);
                return self.failure(format!("{} ({place})", mismatch.text));
            }
            // The same content, as if the volume were all that there is.
            for (index, versions) in (0..).zip(versions) {
                let bytes = &mut bytes[index as usize * size..][..size];
                let (there, own) = (part.ask.first + index, part.first + index);
                let Some(versions) = versions else {
                    let held = oracle::describe(there, bytes);
                    return self.failure(format!("block {own} of a volume holds {held}"));
                };
                let sector = size / versions.len();
                let mut whole = vec![0; size];
                for (at, version) in versions.into_iter().enumerate() {
                    oracle::content(version, own, &mut whole);
                    let part = at * sector..(at + 1) * sector;
                    bytes[part.clone()].copy_from_slice(&whole[part]);
                }
                let model = self.vols().models.get_mut(&through.volume);
                let model = model.expect("it is served until then");
                if let Err(seen) = model.oracle.seen(own_moment, own, bytes) {
                    return self.failure(format!("a volume: {}", seen.text));
                }
            }
        }
        if self.vols().chance.one_in(4) {
            let ns = self.vols().chance.below(200_000);
            let later = Happening::Drop(slices, asked.buffers);
            self.clock.after(ns, later);
            return Ok(());
        }
        drop(slices);
        self.let_go(asked.buffers)
    }

    /// At the end each volume is read from one end to the other; then the array is read as a whole
    /// again.
    pub(crate) fn verify_volumes(&mut self) -> SimResult {
        if !self.volumes.as_ref().is_some_and(|v| v.carved) {
            self.volumes = None;
            return Ok(());
        }
        self.wait("volumes are served, and nothing changes", |world| {
            let vols = world.volumes.as_ref();
            vols.is_none_or(|v| v.phase == Phase::Serving && v.change.is_none())
                && world.all_answered()
        })?;
        let Some(vols) = &self.volumes else {
            return Ok(());
        };
        for volume in vols.table.volumes.clone() {
            let blocks = volume.size_bytes / self.geometry.block;
            let mut first = 0;
            while first < blocks {
                let count = self.longest_read().min(blocks - first).min(16);
                let parts = self.parts_of(&volume, AskKind::Read, first, count);
                while !self.may_read(&parts) {
                    if !self.step()? {
                        self.check_alive()?;
                    }
                }
                self.submit_to(&volume, AskKind::Read, first, count, false)?;
                first += count;
            }
        }
        self.wait("volumes are read", |world| world.all_answered())?;
        self.volumes = None;
        Ok(())
    }
}

/// The request for this many bytes; only a write takes them from `data`.
fn op_of(kind: AskKind, offset: u64, data: Slice, fua: bool) -> Op {
    let len = data.len as u64;
    match kind {
        AskKind::Write => Op::Write { offset, data, fua },
        AskKind::WriteZeroes => Op::WriteZeroes { offset, len, fua },
        AskKind::Discard => Op::Discard { offset, len },
        _ => Op::Read { offset, len },
    }
}
