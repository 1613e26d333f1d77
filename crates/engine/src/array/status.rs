//! What `show` tells of an array.

use strake_format::*;

use crate::array::{Array, Stage};
use crate::proto::*;
use crate::units::*;

impl Array {
    /// Everything that `show` tells, as of the last input.
    pub fn status(&self) -> Status {
        self.status_at(self.out.now())
    }

    /// The same at another time.
    pub fn status_at(&self, now: Time) -> Status {
        let mut members: Vec<MemberStatus> = Vec::new();
        for (at, (slot, record)) in self
            .table
            .slots()
            .iter()
            .zip(self.table.records())
            .enumerate()
        {
            let device = slot.current().or(slot.incoming());
            let state = match (slot.current(), slot.incoming(), record.state) {
                (Some(_), _, _) if self.persist.durably_in_sync(&self.table, at) => {
                    MemberState::InSync
                }
                (Some(_), _, _) | (None, Some(_), _) => MemberState::Rebuilding,
                (None, None, SlotState::Failed) => MemberState::Failed,
                (None, None, _) if self.aside(Slot(at as u8)).is_some() => MemberState::Stale,
                _ => MemberState::Missing,
            };
            let status = self.member_status(Some(Slot(at as u8)), device, record.member, state);
            let (none, may) = (self.table.spares().is_empty(), !self.jobs.paused);
            let due = self.spare_due(at);
            let waited = due.is_none_or(|due| due <= now);
            let vacant = device.is_none() && self.stage == Stage::Serving && self.reshape.is_none();
            members.push(MemberStatus {
                spare_in_ns: due.filter(|_| !none && may).map(|due| due.since(now)),
                aside: self.aside(Slot(at as u8)).filter(|_| device.is_none()),
                wants_spare: none && may && (vacant && waited || self.asks_elsewhere(slot)),
                ..status
            });
            if let (Some(_), Some(incoming)) = (slot.current(), slot.incoming()) {
                let uuid = self.table[&incoming].member;
                let state = MemberState::Rebuilding;
                members.push(self.member_status(Some(Slot(at as u8)), Some(incoming), uuid, state));
            }
        }
        for &spare in self.table.spares() {
            let uuid = self.table[&spare].member;
            members.push(self.member_status(None, Some(spare), uuid, MemberState::Spare));
        }
        Status {
            superblock: self.superblock(),
            state: self.state(),
            size_bytes: self.geometry.size(),
            unwritten_bytes: self.map.unwritten_bytes(&self.geometry),
            regions: self.map.counts(&self.geometry),
            unreadable: self.unreadable.bytes(&self.geometry),
            map_had: self.map.whole_at(),
            undecided: self.undecided(),
            members,
            jobs: self.jobs_shown(),
            rebuilds_stopped: self.jobs.paused,
            rebuild_blocked: self.jobs.blocked,
            spares_elsewhere: self.elsewhere,
        }
    }

    /// Regions of which it is known that they are undecided.
    fn undecided(&self) -> Vec<RegionNo> {
        let all = self.map.undecided();
        all.filter(|&region| !self.is_to_be_compared(region))
            .collect()
    }

    fn member_status(
        &self,
        slot: Option<Slot>,
        device: Option<DeviceId>,
        member: MemberUuid,
        state: MemberState,
    ) -> MemberStatus {
        let found = device.and_then(|d| self.table.get(d));
        let lost = slot.map(|s| &self.table.slots()[usize::from(s.0)]);
        let counts = found.map(|m| m.counts).or(lost.map(|s| s.counts));
        let counts = counts.unwrap_or_default();
        MemberStatus {
            slot,
            device,
            member,
            state,
            heard: found.map_or(Generation(0), |m| m.heard),
            doubted: found.and_then(|m| m.copies.doubted),
            full_since_unix_s: device.and_then(|device| self.overdue.full_since(device)),
            read_errors: counts.reads,
            write_errors: counts.writes,
            mismatches: counts.mismatches,
            retries: counts.retries,
            latency: found.map(|m| m.watch.status()).unwrap_or_default(),
            spare_in_ns: None,
            wants_spare: false,
            aside: None,
        }
    }

    /// Jobs at work or paused; in an array that has failed none goes on.
    fn jobs_shown(&self) -> Vec<JobStatus> {
        let mut jobs = self.job_status();
        jobs.extend(self.move_status());
        for job in jobs.iter_mut().filter(|_| self.stage == Stage::Failed) {
            (job.paused, job.rate_bytes_per_s, job.held_back) = (true, 0, HeldBack::None);
        }
        jobs
    }

    /// Why the member that was found of this slot at the start is not used.
    fn aside(&self, slot: Slot) -> Option<Aside> {
        let mut all = self.persist.stale.iter();
        all.find(|(at, _)| *at == slot).map(|(_, aside)| *aside)
    }
}
