//! Hidden commands that a package calls: for udev's rules, and for its manual pages.

pub(crate) mod manual;
pub(crate) mod udev;
