//! What shards work by: a view of the membership, and of how far rebuilds have come.
//!
//! Invariant: a view with another membership is published only when that is durable on every live
//! member ([`Array::converge`] sees to it), or when the array has failed; one that only reports
//! progress goes out at once.

use std::sync::Arc;

use crate::array::{Array, Stage};
use crate::proto::*;
use crate::units::*;

impl Array {
    pub(crate) fn make_view(&self, version: u64) -> View {
        let device_view = |device: DeviceId| {
            let member = &self.table[&device];
            DeviceView {
                device,
                data_offset: member.layout.data_offset,
                volatile_cache: member.info.volatile_cache,
                member: member.member,
                log_granularity: crate::log::layout::granularity(&member.info),
                sector_bytes: member.info.block_bytes,
            }
        };
        let slots = self
            .table
            .slots()
            .iter()
            .map(|slot| SlotView {
                current: slot.current().map(device_view),
                incoming: slot.incoming().map(|d| Incoming {
                    target: device_view(d),
                    rebuilt: slot.rebuilt,
                    lacking: self.lacking.get(&d).cloned(),
                }),
            })
            .collect();
        View {
            version,
            epoch: self.sb.epoch,
            slots,
            failed: self.stage == Stage::Failed,
            stopping: matches!(self.stage, Stage::Closing | Stage::Stopped),
            forced: self.forced.clone(),
            logging: self.logging(),
            log_from: self.log_coverage.log_from,
            hedging: self.sb.settings.hedged_reads,
            dma: self.table.live().iter().all(|d| self.table[d].info.dma),
        }
    }

    /// Takes up the next view.
    pub(crate) fn next_view(&mut self) -> Arc<View> {
        self.before_view();
        self.fix_lacking();
        let view = self.make_view(self.view.version + 1);
        if view.epoch != self.view.epoch {
            self.persist.epoch_view = view.version;
        }
        self.view = Arc::new(view);
        Arc::clone(&self.view)
    }

    /// Publishes a view of the same shape.
    pub(crate) fn publish_view(&mut self) {
        let view = self.next_view();
        self.out.message_all(&ToShard::View(view));
        self.write_pages();
    }
}
