//! The start of an array: from the members that are found to one that serves.
//!
//! Order: `assemble` decides which members to believe, `replay` closes the write hole, `resume`
//! ends the window of a move that a crash has cut off, `service` writes the first superblocks.

pub(crate) mod assemble;
pub(crate) mod older_images;
#[cfg(test)]
mod recovery_table;
pub(crate) mod replay;
pub(crate) mod resume;
mod service;

#[cfg(test)]
mod tests {
    use crate::array::Array;
    use crate::array::invariants::tests::{created, found, options};
    use crate::proto::*;

    /// It was struck off the table, and nothing told of it.
    #[test]
    fn a_spare_that_is_not_there_is_told() {
        let plan = created();
        let gone = |there: Vec<Found>| -> Vec<EventKind> {
            let mut array = Array::assemble(there, &options()).expect("no member is missing");
            let outputs = std::iter::from_fn(|| array.poll());
            let events = outputs.filter_map(|output| match output {
                ArrayOutput::Event(event) => Some(event.kind),
                _ => None,
            });
            let is_gone = |kind: &EventKind| matches!(kind, EventKind::SpareGone { .. });
            events.filter(is_gone).collect()
        };
        let all: Vec<Found> = (0..4).map(|at| found(&plan, at)).collect();
        assert_eq!(gone(all.clone()), []);
        let told = |cause| EventKind::SpareGone {
            member: plan.superblocks[3].member,
            cause,
        };
        assert_eq!(gone(all[..3].to_vec()), [told(OutCause::NotFound)]);
        let mut small = all;
        small[3].info.bytes = 1 << 20;
        assert_eq!(gone(small), [told(OutCause::Unfit)]);
    }
}
