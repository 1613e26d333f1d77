//! What an administrator can do where an array does not start: with members that are set aside, and
//! with devices that carry no member any more.
//!
//! Invariant: what is advised works on what was found; nothing is written here. Deliberately
//! absent: what is wrong with a member (`find`).

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use strake_format::ArrayUuid;

use crate::common::errors::Code;
use crate::common::quoted;
use crate::drives::aside::cut_off;
use crate::drives::find::{Aside, FoundArray, FoundMember, is_foreign, look};
use crate::drives::machine::answering;
use crate::drives::machine::looks::{Answers, Looks};
use crate::drives::machine::{paths, sysfs};
use crate::drives::safety;

impl FoundArray {
    /// Of these devices, which a user named, those that carry no member of this array, each with
    /// what it holds.
    pub(crate) fn strangers(&self, named: &[PathBuf]) -> Vec<String> {
        let same = |path: &Path, other: &Path| {
            let of = |path: &Path| sysfs::identity(path).ok();
            path == other || of(path).is_some_and(|one| of(other) == Some(one))
        };
        let is_member = |path: &Path| {
            let mut all = self.members.iter();
            all.any(|m| same(path, &m.path) || m.also.iter().any(|also| same(path, also)))
        };
        let others = named
            .iter()
            .filter(|path| !path.is_dir() && !is_member(path));
        others.map(|path| what_lies_on(path).text()).collect()
    }

    /// How data comes back that is whole under a table of partitions, or on devices that lost
    /// nothing but their ends.
    pub(crate) fn way_on(&self, aside: &[Aside]) -> Option<String> {
        let table = |aside: &&Aside| {
            aside.why.code == Code::DevicePartitioned && safety::only_tables(&aside.path)
        };
        let tables: Vec<&Path> = aside
            .iter()
            .filter(table)
            .map(|aside| aside.path.as_path())
            .collect();
        let cut = cut_off::believable(self);
        let (when, then) = match (tables.is_empty(), cut.is_empty()) {
            (true, true) => return None,
            (false, true) => ("if nothing but the table of partitions was written", ""),
            (true, false) => (
                "give each its size back; or, if nothing but their ends is lost",
                ", and check the data",
            ),
            (false, false) => (
                "if nothing but tables of partitions was written, and nothing but ends is lost",
                ", and check the data",
            ),
        };
        let usable = self.usable().map(|m| m.path.as_path());
        let all = usable.chain(tables).chain(cut);
        let all: Vec<String> = all.map(quoted).collect();
        Some(format!(
            "{when}: strake start --force {} {}{then}",
            self.name(),
            all.join(" ")
        ))
    }

    /// What an administrator can do with members that are set aside.
    pub(crate) fn to_do(&self, aside: &[Aside]) -> Option<String> {
        let code = |code| aside.iter().filter(move |aside| aside.why.code == code);
        if let Some(way) = self.way_on(aside) {
            return Some(way);
        }
        let foreign = code(Code::ForeignSignature).map(|aside| quoted(&aside.path));
        let foreign: Vec<String> = foreign.collect();
        if !foreign.is_empty() {
            return Some(format!(
                "bring the other members; or, if nothing but these signatures was written: wipefs \
                 -a {}; strake start {}",
                foreign.join(" "),
                self.name()
            ));
        }
        let damaged = code(Code::Damaged).next()?;
        let shrank = |m: &&FoundMember| m.path == damaged.path && cut_off::shrank(m);
        if let Some(why) = self
            .members
            .iter()
            .find(shrank)
            .and_then(|m| m.trouble.as_ref())
        {
            return Some(format!("{}; bring the other members", why.cure));
        }
        let damaged = quoted(&damaged.path);
        Some(format!(
            "strake examine {damaged} tells what is damaged; bring the other members"
        ))
    }
}

/// What is at the path of a member that was not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lies {
    /// A device that holds this, and no such member.
    Holds(String),
    /// A device that could not be read: it may carry the member.
    Unread(String),
    /// One that does not answer, likewise.
    Silent(String),
}

impl Lies {
    fn text(self) -> String {
        match self {
            Lies::Holds(text) | Lies::Unread(text) | Lies::Silent(text) => text,
        }
    }
}

/// What a device holds that is no member of an array that it was named for.
fn what_lies_on(path: &Path) -> Lies {
    let shown = path.display();
    match look(path) {
        Ok(Some(image)) => Lies::Holds(format!("{shown} is a member of {}", image.superblock.name)),
        Ok(None) => Lies::Holds(match safety::nothing_foreign(path) {
            Err(failure) if is_foreign(&failure) => failure.found,
            _ => format!("{shown} holds no superblock"),
        }),
        Err(failure) => match failure.code {
            Code::Damaged | Code::DeviceKind => Lies::Holds(failure.found),
            _ => Lies::Unread(failure.found),
        },
    }
}

/// What a device holds at the path of a member that was not found; `None` where nothing is there,
/// or where it does not answer.
pub(crate) fn lies_at(path: &Path) -> Option<String> {
    let lies = looked_at(&[path.to_owned()]).found.into_iter().next();
    lies.map(|(_, lies)| lies.text())
}

/// The same of some paths, which are looked at side by side, and those that do not answer.
pub(crate) fn lie_at(paths: &[PathBuf]) -> Vec<(PathBuf, Lies)> {
    let looked = looked_at(paths);
    let silent = looked.silent.into_iter().map(|path| {
        let text = format!("{}: no answer", path.display());
        (path, Lies::Silent(text))
    });
    looked.found.into_iter().chain(silent).collect()
}

/// Those of these paths at which a device is that was read, and that carries no superblock of this
/// array.
pub(crate) fn without(array: ArrayUuid, paths: &[PathBuf]) -> Vec<PathBuf> {
    let is_without = move |path: &Path| match look(path) {
        Ok(Some(image)) => image.superblock.array != array,
        Ok(None) => true,
        Err(_) => false,
    };
    let looked = each_there(paths, move |path| (path.to_owned(), is_without(path)));
    let without = looked.found.into_iter().filter(|(_, is)| *is);
    without.map(|(path, _)| path).collect()
}

fn looked_at(paths: &[PathBuf]) -> Answers<(PathBuf, Lies)> {
    each_there(paths, |path| (path.to_owned(), what_lies_on(path)))
}

/// What a look says of those of these paths at which something is. One that does not answer has one
/// thread that waits for it, however often this is asked; a command without a daemon cannot end
/// then, so it asks which of them answer before ([`answering::of`]).
fn each_there<T: Send + 'static>(
    paths: &[PathBuf],
    look: impl Fn(&Path) -> T + Clone + Send + 'static,
) -> Answers<T> {
    static LOOKS: LazyLock<Looks> = LazyLock::new(Looks::default);
    let there = paths.iter().filter(|path| paths::exists(path)).cloned();
    let (silent, there): (Vec<PathBuf>, Vec<PathBuf>) =
        there.partition(|path| answering::is_silent(path));
    let mut looked = LOOKS.each(&there, look);
    looked.silent.extend(silent);
    looked
}
