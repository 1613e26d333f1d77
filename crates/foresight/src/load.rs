//! A load: what some jobs ask of the array, as `PATTERN:SIZE:DEPTH`.
//!
//! `seq-write:1M:38` is 38 sequential writers of 1 MiB requests, one request in flight each, and
//! `seq-write:1M:16x64` are 16 of them with 64 in flight each; `rand-read:4K:90` keeps 90 random
//! reads of 4 KiB in flight; `rand-mixed70:4K:64` reads 70 of 100 requests. A fourth part limits
//! what is asked for, in bytes a second: `seq-read:1M:90:44GB`.

use std::fmt;
use std::str::FromStr;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Sequential streams, or random places over the whole array, aligned to the size.
    pub sequential: bool,
    /// Of 100 requests, so many read.
    pub read_percent: u8,
    /// Bytes of a request: whole multiples of 512.
    pub bytes: u64,
    /// Requests in flight, of all jobs together.
    pub depth: u32,
    /// Jobs, which share the depth: each sequential one has a part of the array for itself.
    pub jobs: u32,
    /// Bytes a second that the load asks for at most.
    pub limit: Option<f64>,
}

/// Why a text is no load.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Not two colons, or three.
    #[error("'{0}' is not PATTERN:SIZE:DEPTH or PATTERN:SIZE:DEPTH:BYTES_A_SECOND")]
    Parts(String),
    /// Unknown pattern.
    #[error(
        "'{0}' is not a pattern: seq-read, seq-write, rand-read, rand-write, \
         or seq-mixedN, rand-mixedN with N of 100 reads, from 1 to 99"
    )]
    Pattern(String),
    /// Not a size.
    #[error("'{0}' is not a size of a request: 512 bytes to 64M, a multiple of 512")]
    Size(String),
    /// Not a depth.
    #[error("'{0}' is not a number of requests in flight, 1 to 65536, or JOBSxEACH")]
    Depth(String),
    /// Not a rate.
    #[error("'{0}' is not a rate in bytes a second, such as 44GB")]
    Limit(String),
}

/// A size or a rate: K, M, G, T are powers of 1024, kB, MB, GB, TB powers of 1000.
pub fn size(text: &str) -> Option<f64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" | "B" => 1.0,
        "K" | "KiB" => 1024.0,
        "M" | "MiB" => 1_048_576.0,
        "G" | "GiB" => 1_073_741_824.0,
        "T" | "TiB" => 1_099_511_627_776.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        "PB" => 1e15,
        _ => return None,
    };
    let value = number.parse::<f64>().ok()? * factor;
    value.is_finite().then_some(value)
}

impl FromStr for Load {
    type Err = LoadError;

    fn from_str(text: &str) -> Result<Load, LoadError> {
        let parts: Vec<&str> = text.split(':').collect();
        let (pattern, bytes, depth, limit) = match parts[..] {
            [pattern, bytes, depth] => (pattern, bytes, depth, None),
            [pattern, bytes, depth, limit] => (pattern, bytes, depth, Some(limit)),
            _ => return Err(LoadError::Parts(text.to_owned())),
        };
        let (sequential, read_percent) =
            read_pattern(pattern).ok_or_else(|| LoadError::Pattern(pattern.to_owned()))?;
        let size_of = size(bytes)
            .filter(|b| (512.0..=67_108_864.0).contains(b) && b.fract() == 0.0 && b % 512.0 == 0.0);
        let (jobs, depth_of) =
            read_depth(depth, sequential).ok_or_else(|| LoadError::Depth(depth.to_owned()))?;
        let limit = limit
            .map(|text| {
                let rate = size(text).filter(|rate| *rate >= 1.0);
                rate.ok_or_else(|| LoadError::Limit(text.to_owned()))
            })
            .transpose()?;
        Ok(Load {
            sequential,
            read_percent,
            bytes: size_of.ok_or_else(|| LoadError::Size(bytes.to_owned()))? as u64,
            depth: depth_of,
            jobs,
            limit,
        })
    }
}

/// Jobs, and the depth of all together.
fn read_depth(text: &str, sequential: bool) -> Option<(u32, u32)> {
    let (jobs, depth) = match text.split_once('x') {
        Some((jobs, each)) => {
            let jobs: u32 = jobs.parse().ok()?;
            (jobs, jobs.checked_mul(each.parse().ok()?)?)
        }
        None => {
            let depth = text.parse().ok()?;
            (if sequential { depth } else { 1 }, depth)
        }
    };
    (1..=65_536).contains(&depth).then_some((jobs, depth))
}

fn read_pattern(text: &str) -> Option<(bool, u8)> {
    let (order, what) = text.split_once('-')?;
    let sequential = match order {
        "seq" => true,
        "rand" => false,
        _ => return None,
    };
    let percent = match what {
        "read" => 100,
        "write" => 0,
        _ => what
            .strip_prefix("mixed")?
            .parse()
            .ok()
            .filter(|p| (1..100).contains(p))?,
    };
    Some((sequential, percent))
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = if self.sequential { "seq" } else { "rand" };
        match self.read_percent {
            100 => write!(f, "{order}-read")?,
            0 => write!(f, "{order}-write")?,
            percent => write!(f, "{order}-mixed{percent}")?,
        }
        match self.bytes {
            bytes if bytes % (1 << 20) == 0 => write!(f, ":{}M", bytes >> 20)?,
            bytes if bytes % 1024 == 0 => write!(f, ":{}K", bytes >> 10)?,
            bytes => write!(f, ":{bytes}")?,
        }
        let alone = if self.sequential { self.depth } else { 1 };
        match self.jobs == alone {
            true => write!(f, ":{}", self.depth)?,
            false => write!(f, ":{}x{}", self.jobs, self.depth / self.jobs)?,
        }
        match self.limit {
            Some(limit) => write!(f, ":{limit}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_read_and_printed_the_same() {
        for text in [
            "seq-write:1M:38",
            "rand-read:4K:90",
            "rand-mixed70:4K:64",
            "seq-read:512:1",
            "seq-write:128K:16x64",
            "rand-write:4K:16x64",
            "seq-read:1M:90:44000000000",
        ] {
            let load: Load = text.parse().expect(text);
            assert_eq!(load.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_load_is_refused_by_the_part_that_is_wrong() {
        let error = |text: &str| text.parse::<Load>().expect_err(text).to_string();
        assert!(error("seq-write").contains("PATTERN:SIZE:DEPTH"));
        assert!(error("sequential:4K:1").contains("not a pattern"));
        assert!(error("rand-mixed100:4K:1").contains("not a pattern"));
        assert!(error("rand-read:-4K:1").contains("not a size"));
        assert!(error("rand-read:1000:1").contains("multiple of 512"));
        assert!(error("rand-read:nan:1").contains("not a size"));
        assert!(error("rand-read:4K:0").contains("in flight"));
        assert!(error("rand-read:4K:0x5").contains("in flight"));
        assert!(error("rand-read:4K:1:fast").contains("a second"));
    }
}
