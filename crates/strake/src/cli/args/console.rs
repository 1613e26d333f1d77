//! Arguments of `strake console`.

use std::time::Duration;

use clap::Args;

use crate::common::size;

/// Longest life of a link.
const EXPIRES_MAX: Duration = Duration::from_secs(3600);

/// Arguments of `console`.
#[derive(Debug, Args)]
pub(crate) struct ConsoleArgs {
    /// Listen at this port of 127.0.0.1; a free one unless given
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// How long the link can be used, from 1s to 1h
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = life)]
    pub(crate) expires: Duration,
}

fn life(text: &str) -> Result<Duration, String> {
    let life = size::span(text)?;
    match (Duration::from_secs(1)..=EXPIRES_MAX).contains(&life) {
        true => Ok(life),
        false => Err("a link can be used for 1s to 1h".to_owned()),
    }
}
