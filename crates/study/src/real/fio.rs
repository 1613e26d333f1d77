//! Jobs for fio, and what fio says of them.
//!
//! One group of jobs for each load, so that fio answers one result for each, in their order. A job
//! file has all that the result depends on; both are kept with the study.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use strake_foresight::load::Load;

use crate::rig::{FioOptions, Reached};

/// Requests in flight of one job, at most; a load with more has more jobs.
const DEPTH_MAX: u32 = 64;

/// What jobs read and write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Place {
    /// A block device or a file, and its size.
    Path(PathBuf, u64),
    /// An NBD export, and its size.
    Nbd(String, u64),
}

impl Place {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Place::Path(_, bytes) | Place::Nbd(_, bytes) => *bytes,
        }
    }
}

/// How long jobs run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Length {
    Time(Duration),
    /// Times the bytes of each place.
    Passes(f64),
}

/// The job file of loads side by side on places.
pub(super) fn jobs(
    places: &[Place],
    loads: &[Load],
    length: Length,
    options: &FioOptions,
) -> String {
    let mut text = String::from(
        "[global]\ndirect=1\nthread=1\ngroup_reporting=1\npercentile_list=50:99:99.9:99.99\n",
    );
    if let Length::Time(time) = length {
        // Below a microsecond fio takes it for none.
        let us = time.as_micros().max(1);
        let _ = writeln!(text, "time_based=1\nruntime={us}us");
    }
    for (number, load) in loads.iter().enumerate() {
        for (at, place) in places.iter().enumerate() {
            let _ = writeln!(text, "\n[load{number}-place{at}]");
            if at == 0 {
                text.push_str("new_group\n");
            }
            job(&mut text, place, load, length, options);
        }
    }
    text
}

fn job(text: &mut String, place: &Place, load: &Load, length: Length, options: &FioOptions) {
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(text, "{key}={value}");
    };
    let option = |name: &str| options.get(name).map(String::as_str);
    let number = |name: &str| option(name).and_then(|value| value.parse::<u32>().ok());
    // Jobs of one load share its depth; fio's own are better off with fewer requests each.
    let jobs = match load.sequential {
        true => load.jobs,
        false => load.jobs.max(load.depth.div_ceil(DEPTH_MAX)),
    };
    let depth = load.depth.div_ceil(jobs);
    let jobs = number("numjobs").unwrap_or(jobs);
    let depth = number("iodepth").unwrap_or(depth);
    match place {
        Place::Path(path, _) => {
            // fio takes a colon for the end of a name.
            let name = path.display().to_string().replace('\\', "\\\\");
            line("filename", &name.replace(':', "\\:"));
            line("ioengine", option("ioengine").unwrap_or("libaio"));
        }
        Place::Nbd(uri, _) => {
            line("ioengine", "nbd");
            line("uri", uri);
        }
    }
    let order = if load.sequential { "" } else { "rand" };
    match load.read_percent {
        100 => line("rw", &format!("{order}read")),
        0 => line("rw", &format!("{order}write")),
        percent => {
            line("rw", &format!("{order}rw"));
            line("rwmixread", &percent.to_string());
        }
    }
    line("bs", &load.bytes.to_string());
    line("iodepth", &depth.to_string());
    line("numjobs", &jobs.to_string());
    let whole = |bytes: u64| (bytes / load.bytes).max(1) * load.bytes;
    let part = whole(place.bytes() / u64::from(jobs));
    match option("offset_increment") {
        Some(increment) => line("offset_increment", increment),
        None if load.sequential && jobs > 1 => {
            line("offset_increment", &part.to_string());
            line("size", &part.to_string());
        }
        None => line("size", &whole(place.bytes()).to_string()),
    }
    if let Length::Passes(passes) = length {
        let bytes = whole((part as f64 * passes) as u64);
        line("io_size", &bytes.to_string());
    }
    if let Some(limit) = load.limit {
        let each = limit / f64::from(jobs);
        let reads = each * f64::from(load.read_percent) / 100.0;
        let (reads, writes) = (reads.ceil() as u64, (each - reads).ceil() as u64);
        line("rate", &format!("{},{}", reads.max(1), writes.max(1)));
    }
    let mine = ["iodepth", "numjobs", "ioengine", "offset_increment"];
    for (key, value) in options {
        if !mine.contains(&key.as_str()) {
            line(key, value);
        }
    }
}

/// What fio said, one for each load.
pub(super) fn reached(output: &[u8], loads: &[Load]) -> Result<Vec<Reached>, String> {
    // Before its JSON fio may write notes.
    let from = output.iter().position(|&byte| byte == b'{').unwrap_or(0);
    let value: Value = serde_json::from_slice(&output[from..])
        .map_err(|error| format!("what fio printed is not its JSON: {error}"))?;
    let groups = value["jobs"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    if groups.len() != loads.len() {
        let (said, asked) = (groups.len(), loads.len());
        return Err(format!("fio answered {said} results for {asked} loads"));
    }
    let one = |(group, load): (&Value, &Load)| {
        match group["error"].as_i64() {
            Some(0) => {}
            error => {
                let errno = error.unwrap_or(0) as i32;
                let why = std::io::Error::from_raw_os_error(errno);
                return Err(format!("fio could not do {load}: {why}"));
            }
        }
        let number = |side: &str, key: &str| group[side][key].as_f64().unwrap_or(0.0);
        let latency = |at: &str| {
            let of = |side: &str| group[side]["clat_ns"]["percentile"][at].as_f64();
            let (read, write) = (of("read").unwrap_or(0.0), of("write").unwrap_or(0.0));
            read.max(write) / 1000.0
        };
        Ok(Reached {
            load: *load,
            read_bytes_per_s: number("read", "bw_bytes"),
            write_bytes_per_s: number("write", "bw_bytes"),
            read_iops: number("read", "iops"),
            write_iops: number("write", "iops"),
            wrote: Some(number("write", "io_bytes")),
            latency_us: ["50.000000", "99.000000", "99.900000", "99.990000"].map(latency),
        })
    };
    groups.iter().zip(loads).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Load {
        text.parse().expect("a load")
    }
    fn has(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|l| l == *line), "{text} lacks {line}");
        }
    }

    #[test]
    fn streams_share_the_place_and_deep_loads_have_more_jobs() {
        let place = Place::Path("/dev/disk/by-path/pci-0:1".into(), 1 << 30);
        let (second, none) = (Length::Time(Duration::from_secs(1)), FioOptions::new());
        let text = jobs(
            std::slice::from_ref(&place),
            &[load("seq-write:1M:4")],
            second,
            &none,
        );
        has(
            &text,
            &[
                "filename=/dev/disk/by-path/pci-0\\:1",
                "rw=write",
                "numjobs=4",
                "iodepth=1",
                "size=268435456",
                "offset_increment=268435456",
                "runtime=1000000us",
            ],
        );
        let deep = jobs(
            std::slice::from_ref(&place),
            &[load("rand-mixed70:4K:192")],
            second,
            &none,
        );
        has(
            &deep,
            &[
                "rw=randrw",
                "rwmixread=70",
                "numjobs=3",
                "iodepth=64",
                "size=1073741824",
            ],
        );
        let fill = jobs(
            &[place],
            &[load("seq-write:512K:1")],
            Length::Passes(2.0),
            &none,
        );
        has(&fill, &["io_size=2147483648", "size=1073741824"]);
        assert!(!fill.contains("time_based"), "{fill}");
    }

    #[test]
    fn published_options_replace_what_the_load_says_and_limits_are_shared() {
        let options: FioOptions = [
            ("iodepth", "64"),
            ("numjobs", "16"),
            ("offset_increment", "1%"),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
        let place = Place::Nbd("nbd+unix:///a?socket=/s".to_owned(), 1 << 30);
        let length = Length::Time(Duration::from_secs(1));
        let text = jobs(&[place], &[load("seq-read:512K:1:16GB")], length, &options);
        has(
            &text,
            &[
                "iodepth=64",
                "numjobs=16",
                "offset_increment=1%",
                "ioengine=nbd",
                "uri=nbd+unix:///a?socket=/s",
                "rate=1000000000,1",
            ],
        );
    }

    #[test]
    fn what_fio_could_not_do_is_named() {
        let loads = [load("rand-read:4K:1")];
        let failed = br#"note: x {}"#;
        assert!(reached(failed, &loads).is_err());
        let failed = br#"{"jobs":[{"error":5}]}"#;
        let said = reached(failed, &loads).expect_err("it failed");
        assert!(
            said.contains("rand-read:4K:1") && said.contains("os error 5"),
            "{said}"
        );
        let said = reached(br#"{"jobs":[]}"#, &loads).expect_err("none");
        assert!(said.contains("0 results for 1 load"), "{said}");
    }
}
