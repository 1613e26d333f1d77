//! Why a stopped array cannot be started, in words, and what is found beside its members.
//!
//! Invariant: it says what the array as it is shown holds, and nothing else. Deliberately absent:
//! what a start says that is refused (the daemon).

use crate::api::{ArrayJson, ScanJson};
use crate::common::errors::Code;
use crate::common::size;

/// In one sentence.
pub(crate) fn too_few(array: &ArrayJson) -> &'static str {
    let code = array.conflict.as_ref().map(|why| why.code.as_str());
    match (code, array.set_aside.is_empty()) {
        (Some(code), _) if code == Code::MemberTwice.name() => "two devices carry one member of it",
        (Some(code), _) if code == Code::MembersOlder.name() => "only older members are found",
        (Some(_), _) => "its members contradict each other",
        (None, true) => "too few members found to start it",
        (None, false) => "too few of the members found can be used to start it",
    }
}

/// The state of an array of which no member is found, and that may be on these devices.
pub(crate) fn lost(may_be_on: &[String]) -> &'static str {
    match may_be_on {
        [] => "missing",
        _ => "not found",
    }
}

/// Devices of which it is not known what they carry.
pub(crate) fn unread(devices: &[String]) -> String {
    format!(
        "{}, which {}",
        devices.join(", "),
        size::verb(
            devices.len(),
            "gives no answer or cannot be read",
            "give no answer or cannot be read"
        )
    )
}

/// How its members contradict each other, and what starts it: a line, or nothing.
pub(crate) fn conflict(array: &ArrayJson) -> String {
    let text = array.conflict.as_ref();
    let text = text.map(|why| format!("  {}; {}\n", why.found, why.cure));
    text.unwrap_or_default()
}

/// What `scan` says of devices that are not used as members, and of other names of those that are.
pub(crate) fn beside(array: &ScanJson) -> String {
    let mut text = String::new();
    for lost in &array.overwritten {
        text.push_str(&format!(
            "  slot {} had {}, which is there: {}\n",
            lost.slot, lost.device, lost.holds
        ));
    }
    for lost in &array.unread {
        text.push_str(&format!(
            "  slot {} had {}, which cannot be read, and may carry it: {}\n",
            lost.slot, lost.device, lost.problem
        ));
    }
    for device in &array.devices {
        if let Some(problem) = &device.problem {
            text.push_str(&format!("  set aside: {problem}\n"));
        }
        if let Some(held) = &device.held {
            text.push_str(&format!("  held: {held}\n"));
        }
        if !device.also.is_empty() {
            let also = device.also.join(", ");
            text.push_str(&format!("  {} is also {also}\n", device.device));
        }
    }
    text
}
