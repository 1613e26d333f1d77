//! Names, levels and policies as users write them.

use strake_format::{ArrayName, Level, WriteHole};

use crate::common::errors::{Code, Failure};

/// Parses an array name.
pub(crate) fn parse_name(text: &str) -> Result<ArrayName, Failure> {
    text.parse::<ArrayName>()
        .map_err(|e| Failure::new(Code::NameInvalid, format!("'{text}': {e}")))
}

pub(crate) fn parse_level(text: &str) -> Result<Level, Failure> {
    text.parse::<Level>()
        .map_err(|e| Failure::new(Code::LevelUnknown, format!("level '{text}' is {e}")))
}

/// The policy that a text names; the write hole is closed unless a user says otherwise.
pub(crate) fn parse_write_hole(text: Option<&str>) -> Result<WriteHole, Failure> {
    let Some(text) = text else {
        return Ok(WriteHole::Closed);
    };
    text.parse().map_err(|e| {
        let found = format!("write-hole policy '{text}' is {e}");
        Failure::new(Code::Usage, found).cure("use closed, degraded or resync")
    })
}

/// A switch from its word.
pub(crate) fn parse_on_off(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}
