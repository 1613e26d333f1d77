//! Which members may lack what others got: what their region maps say, by epoch and sequence.
//!
//! Invariants: nothing is read or written here; a page that is damaged decides nothing.
//! Deliberately absent: what becomes of a member that is older (the restore's).

use strake_format::MapPage;

use crate::drives::lost::Remains;

/// Does a page of this region map come from a later epoch?
pub(super) fn is_later(remains: &Remains, epoch: u64) -> bool {
    let mut pages = remains.newest().flatten();
    pages.any(|page| page.epoch.0 > epoch)
}

/// The members with an older region map than another, each with a page that is older.
pub(super) fn older(members: &[Remains]) -> Vec<(&Remains, usize)> {
    let pages = members.iter().map(|member| member.pages.len()).max();
    let mut all: Vec<(&Remains, usize)> = Vec::new();
    for page in 0..pages.unwrap_or(0) {
        // Among all that have the page whole, not among neighbours: a member with a damaged page is
        // skipped.
        let told = members
            .iter()
            .filter_map(|m| Some((m.newest().nth(page)??, m)));
        let Some((newest, _)) = told.clone().max_by_key(|(page, _)| page.sequence) else {
            continue;
        };
        // A write of the page that was cut off reached some and not others; a member that was out
        // when it began records an older epoch.
        let cut_off =
            |page: &MapPage| page.epoch == newest.epoch && newest.sequence - page.sequence <= 1;
        for (_, older) in told.clone().filter(|(page, _)| !cut_off(page)) {
            if !all.iter().any(|(known, _)| known.path == older.path) {
                all.push((older, page));
            }
        }
    }
    all
}

/// Is the region map of `one` older than that of `other`?
pub(super) fn is_older(one: &Remains, other: &Remains) -> bool {
    let both = [one.clone(), other.clone()];
    let first = older(&both).first().map(|(older, _)| older.path.clone());
    first.is_some_and(|first| first == one.path)
}

/// Why one of these may have missed what others got, if something says so.
pub(super) fn stale(members: &[Remains]) -> Option<String> {
    if let Some((older, page)) = older(members).first() {
        let path = older.path.display();
        return Some(format!(
            "{path} may have been out of the array: its region map is older (page {page})"
        ));
    }
    // Flags are cleared when the array is whole, and not before.
    let behind = |member: &&Remains| member.newest().flatten().any(|p| !p.behind.is_empty());
    if let Some(member) = members.iter().find(behind) {
        let path = member.path.display();
        return Some(format!(
            "a member was away or being rebuilt when {path} was written last"
        ));
    }
    None
}

/// Why what is known of this epoch may be of another shape than the array had in the end, if
/// something says so.
pub(super) fn outdated(epoch: u64, members: &[Remains]) -> Option<String> {
    let member = members.iter().find(|member| is_later(member, epoch))?;
    let path = member.path.display();
    Some(format!(
        "members or shape of the array have changed since the backup was taken, says the region \
         map on {path}"
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use strake_format::{ArrayUuid, MemberUuid};

    use super::*;

    #[test]
    fn a_stale_member_is_seen_past_one_whose_map_is_damaged() {
        let page = |page: u32, (epoch, sequence): (u64, u64)| MapPage {
            array: ArrayUuid([1; 16]),
            member: MemberUuid([2; 16]),
            page,
            epoch: strake_format::Epoch(epoch),
            sequence,
            states: Vec::new(),
            behind: Vec::new(),
            undecided: Vec::new(),
            whole_at: 0,
        };
        let member = |name: &str, versions: &[Option<(u64, u64)>]| Remains {
            pages: (0..)
                .zip(versions)
                .map(|(at, version)| [version.map(|version| page(at, version)), None])
                .collect(),
            ..Remains::nothing(Path::new(name))
        };
        let mut members = vec![
            member("a", &[Some((3, 5)), Some((1, 2))]),
            member("b", &[None, Some((1, 2))]),
            member("c", &[Some((3, 4)), None]),
            member("d", &[]),
        ];
        assert_eq!(stale(&members), None);
        members[2] = member("c", &[Some((2, 4)), None]);
        let why = stale(&members).expect("c is older than a");
        assert!(why.starts_with("c may"), "{why}");
        members[2] = member("c", &[Some((3, 5)), None]);
        let first = members[0].pages[0][0].as_mut().expect("a page");
        first.behind.push(7);
        let why = stale(&members).expect("a region is behind");
        assert!(why.contains("being rebuilt"), "{why}");
    }
}
