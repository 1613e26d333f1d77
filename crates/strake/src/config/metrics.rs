//! `[metrics]`: where metrics can be had beside the API.
//!
//! Invariant: other machines reach them only where that is said in a key of its own. Deliberately
//! absent: the listener and the file (`http`).

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::values::Time;

/// Metrics for Prometheus, beside `/metrics` on the daemon's socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Metrics {
    /// Address and port at which `/metrics` is served over TCP, and nothing else. Unless set: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = "127.0.0.1:9987")]
    pub(crate) listen: Option<SocketAddr>,
    /// Whether `listen` may be an address that other machines can reach: true or false. They can
    /// read the names of arrays, and the paths and serial numbers of drives, without a login.
    pub(crate) allow_remote: bool,
    /// A file that is written for the textfile collector of the node exporter; its name ends with
    /// .prom. An absolute path. Unless set: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = "/var/lib/prometheus/node-exporter/strake.prom")]
    pub(crate) textfile: Option<PathBuf>,
    /// How often it is written: 1s to 1h.
    pub(crate) textfile_interval: Time<1000, 3_600_000>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            listen: None,
            allow_remote: false,
            textfile: None,
            textfile_interval: Time::from_secs(15),
        }
    }
}

impl Metrics {
    /// What of it cannot be, and what to do.
    pub(super) fn refused(&self) -> Option<(String, String)> {
        if let Some(address) = self.listen
            && !address.ip().is_loopback()
            && !self.allow_remote
        {
            let found = format!("listen in [metrics] is {address}, which is no loopback address");
            let cure = format!(
                "use 127.0.0.1:{}, or say allow_remote = true for an address that other machines \
                 can reach",
                address.port()
            );
            return Some((found, cure));
        }
        let path = self.textfile.as_ref()?;
        let shown = path.display();
        if path.is_relative() {
            let found = format!("textfile in [metrics] is {shown}, which is no absolute path");
            let cure = "use one, as /var/lib/prometheus/node-exporter/strake.prom";
            return Some((found, cure.to_owned()));
        }
        if path.extension().is_none_or(|end| end != "prom") {
            let found = format!("textfile in [metrics] is {shown}, which does not end with .prom");
            let cure = "the textfile collector reads no other files: use a name that ends so";
            return Some((found, cure.to_owned()));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_reach_it_only_where_that_is_said() {
        let with = |listen: &str, allow_remote| Metrics {
            listen: Some(listen.parse().expect("an address")),
            allow_remote,
            ..Metrics::default()
        };
        for loopback in ["127.0.0.1:9987", "127.1.2.3:1", "[::1]:9987"] {
            assert_eq!(with(loopback, false).refused(), None, "{loopback}");
        }
        for other in ["0.0.0.0:9987", "[::]:9987", "192.0.2.1:9987"] {
            let (found, cure) = with(other, false).refused().expect("refused");
            assert!(found.contains(other), "{found}");
            assert!(cure.contains("127.0.0.1:9987"), "{cure}");
            assert_eq!(with(other, true).refused(), None, "{other}");
        }
    }

    #[test]
    fn a_file_that_the_collector_would_not_read_is_refused() {
        let with = |path: &str| Metrics {
            textfile: Some(PathBuf::from(path)),
            ..Metrics::default()
        };
        assert_eq!(with("/var/lib/strake.prom").refused(), None);
        for (wrong, found) in [("strake.prom", "absolute"), ("/tmp/strake.txt", ".prom")] {
            let refused = with(wrong).refused().expect("refused");
            assert!(refused.0.contains(found), "{refused:?}");
        }
    }
}
