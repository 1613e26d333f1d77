//! The arrows between the crates: which crate may depend on which, read from cargo's own knowledge.
//!
//! The table is closed: a crate that is not in it may depend on none of ours, and an arrow that is
//! not in it is an error. An arrow that is in the table but not drawn is fine.

use super::{Finding, Weight};
use crate::host;
use serde_json::Value;

/// What a crate may use of ours.
struct Arrows {
    of: &'static str,
    /// In the product.
    normal: &'static [&'static str],
    /// Moreover, in its own tests and benchmarks.
    tests: &'static [&'static str],
}

const TABLE: [Arrows; 13] = [
    Arrows {
        of: "strake-parity",
        normal: &[],
        tests: &[],
    },
    Arrows {
        of: "strake-format",
        normal: &[],
        tests: &[],
    },
    Arrows {
        of: "strake-engine",
        normal: &["strake-parity", "strake-format"],
        tests: &[],
    },
    // The simulator is a test as a whole: its checkers recompute parity on their own.
    Arrows {
        of: "strake-sim",
        normal: &[
            "strake-engine",
            "strake-format",
            "strake-parity",
            "strake-flash",
        ],
        tests: &[],
    },
    // A test as a whole, too: the simulator's oracle judges what the real runtime serves.
    Arrows {
        of: "strake-torture",
        normal: &[
            "strake-runtime",
            "strake-engine",
            "strake-format",
            "strake-sim",
        ],
        tests: &[],
    },
    Arrows {
        of: "strake-runtime",
        normal: &["strake-engine", "strake-format"],
        tests: &[],
    },
    // Measures what is shipped from outside, and is not shipped.
    Arrows {
        of: "strake-bench",
        normal: &["strake-runtime", "strake-engine", "strake-format"],
        // That the planner reads the host file that it writes.
        tests: &["strake-foresight"],
    },
    // A model of a drive that knows nothing of arrays.
    Arrows {
        of: "strake-flash",
        normal: &[],
        tests: &[],
    },
    Arrows {
        of: "strake-foresight",
        normal: &["strake-format", "strake-flash"],
        tests: &[],
    },
    Arrows {
        of: "strake-lab",
        normal: &[
            "strake-engine",
            "strake-format",
            "strake-flash",
            "strake-foresight",
        ],
        tests: &[],
    },
    Arrows {
        of: "strake-study",
        normal: &[
            "strake-format",
            "strake-flash",
            "strake-foresight",
            "strake-lab",
        ],
        tests: &[],
    },
    Arrows {
        of: "strake",
        normal: &[
            "strake-runtime",
            "strake-engine",
            "strake-format",
            "strake-foresight",
            "strake-lab",
            "strake-study",
        ],
        tests: &[],
    },
    Arrows {
        of: "xtask",
        normal: &[],
        tests: &[],
    },
];

/// Crates from outside that would bring a clock, a thread, a syscall or chance into the sans-IO
/// crates.
const UNFIT: &[&str] = &[
    "rand",
    "rand_chacha",
    "getrandom",
    "fastrand",
    "libc",
    "rustix",
    "nix",
    "io-uring",
    "tokio",
    "mio",
    "crossbeam",
    "rayon",
    "chrono",
    "time",
    "tempfile",
    "tracing",
];
const SANS_IO: [&str; 6] = [
    "strake-parity",
    "strake-format",
    "strake-engine",
    "strake-flash",
    "strake-foresight",
    "strake-lab",
];

/// Checks every dependency of every crate of the workspace.
pub(super) fn check(metadata: &Value) -> Vec<Finding> {
    let packages = host::packages(metadata);
    let ours: Vec<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let root = metadata["workspace_root"].as_str().unwrap_or_default();
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        let path = manifest
            .strip_prefix(root)
            .unwrap_or(manifest)
            .trim_start_matches('/');
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let on = dependency["name"].as_str().unwrap_or_default();
            // Cargo writes null for a normal dependency.
            let in_tests = dependency["kind"] == "dev";
            let wrong = if ours.contains(&on) {
                arrow(name, on, in_tests)
            } else {
                None
            };
            let wrong = wrong.or_else(|| unfit(name, on, in_tests));
            let wrong = wrong.or_else(|| planted(name, &dependency["features"]));
            findings.extend(wrong.map(|text| Finding {
                weight: Weight::Error,
                path: path.to_owned(),
                line: 0,
                text,
            }));
        }
    }
    findings
}

/// Why one of our crates may not depend on another of them, if so.
fn arrow(name: &str, on: &str, in_tests: bool) -> Option<String> {
    let row = TABLE.iter().find(|row| row.of == name);
    let Some(row) = row else {
        return Some(format!(
            "{name} has no row in the table of arrows; add one in xtask/src/tidy"
        ));
    };
    if row.normal.contains(&on) || in_tests && row.tests.contains(&on) {
        return None;
    }
    let may: Vec<&str> = row.normal.iter().chain(row.tests).copied().collect();
    let may = if may.is_empty() {
        "none of our crates".to_owned()
    } else {
        may.join(", ")
    };
    Some(format!(
        "{name} depends on {on}; it may depend on {may}: move the code or drop the arrow"
    ))
}

/// Why a sans-IO crate may not use a crate from outside, if so.
fn unfit(name: &str, on: &str, in_tests: bool) -> Option<String> {
    let is_unfit = !in_tests && SANS_IO.contains(&name) && UNFIT.contains(&on);
    is_unfit.then(|| {
        format!("{name} depends on {on}; it does no I/O: pass what is needed in as an argument")
    })
}

/// Why a crate may not turn on the engine's planted bugs, if it does.
fn planted(name: &str, features: &Value) -> Option<String> {
    let turned_on = features.as_array().is_some_and(|all| {
        let bugs = |feature: &Value| feature.as_str().is_some_and(|f| f.contains("canary"));
        all.iter().any(bugs)
    });
    (turned_on && name != "strake-sim").then(|| {
        format!("{name} turns on the feature canary: planted bugs are for the simulator alone")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_bugs_come_into_the_simulator_and_nowhere_else() {
        let features = serde_json::json!(["canary"]);
        assert!(planted("strake-runtime", &features).is_some());
        assert!(planted("strake-sim", &features).is_none());
        assert!(planted("strake-runtime", &serde_json::json!([])).is_none());
    }

    #[test]
    fn an_arrow_against_the_table_is_found_and_one_in_it_is_not() {
        assert!(arrow("strake-engine", "strake-parity", false).is_none());
        assert!(arrow("strake-parity", "strake-engine", false).is_some());
        assert!(arrow("strake-runtime", "strake-sim", true).is_some());
        assert!(arrow("strake-sim", "strake-parity", true).is_none());
        assert!(arrow("strake-sim", "strake-runtime", false).is_some());
        assert!(arrow("new-crate", "strake-parity", false).is_some());
    }

    #[test]
    fn nothing_that_is_shipped_depends_on_the_simulator() {
        for row in TABLE.iter().filter(|row| row.of != "strake-torture") {
            assert!(!row.normal.contains(&"strake-sim") && !row.tests.contains(&"strake-sim"));
        }
    }

    #[test]
    fn chance_may_come_into_the_engine_only_in_its_tests() {
        assert!(unfit("strake-engine", "rand", false).is_some());
        assert!(unfit("strake-engine", "rand", true).is_none());
        assert!(unfit("strake-runtime", "libc", false).is_none());
    }
}
