//! The API keeps to its document: every GET answers what the OpenAPI document says, and `/metrics`
//! is what Prometheus takes.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::rig::{self, Rig, has, skipped};

const NBD: &[&str] = &["--export", "nbd"];

/// The body of an answer that succeeded.
fn body(rig: &Rig, path: &str) -> String {
    let answer = rig.ask("GET", path);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    body.to_owned()
}

/// Whether a value is what a schema of the document says; else where it is not. What the document
/// does not name is an error as well: nobody would find it there.
fn conforms(document: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.trim_start_matches("#/components/schemas/");
        return conforms(
            document,
            &document["components"]["schemas"][name],
            value,
            at,
        );
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let wrong = |schema: &Value| conforms(document, schema, value, at).err();
        let wrong: Vec<String> = any.iter().filter_map(wrong).collect();
        return match wrong.len() < any.len() {
            true => Ok(()),
            false => Err(wrong.join(" or ")),
        };
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is = |wanted: &Value| wanted == kind || (wanted == "number" && kind == "integer");
    let kinds = &schema["type"];
    let fits = kinds
        .as_array()
        .map_or_else(|| is(kinds), |kinds| kinds.iter().any(is));
    if !fits {
        return Err(format!("{at} is {kind}, the document says {kinds}"));
    }
    match value {
        Value::Array(items) => items.iter().enumerate().try_for_each(|(n, item)| {
            conforms(document, &schema["items"], item, &format!("{at}[{n}]"))
        }),
        Value::Object(fields) => {
            let required = schema["required"].as_array().into_iter().flatten();
            for name in required.filter_map(Value::as_str) {
                if !fields.contains_key(name) {
                    return Err(format!("{at} lacks {name}"));
                }
            }
            fields
                .iter()
                .try_for_each(|(name, field)| match schema["properties"].get(name) {
                    Some(schema) => conforms(document, schema, field, &format!("{at}.{name}")),
                    None => Err(format!("{at}.{name} is not in the document")),
                })
        }
        _ => Ok(()),
    }
}

/// Arrays of all kinds: one that serves and has lost a member, one that is carved, one that moved
/// to a stop, one that is stopped; and a pool.
fn stage() -> Rig {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files_called("d", 4);
    rig.create("data", "5", NBD, &devices[..3]).ok();
    rig.qemu_io("data", &["write -P 1 0 4M", "read -P 1 0 4M", "flush"]);
    rig.run(&["scrub", "data", "--wait"]).ok();
    rig.run(&["fail", "data", "1"]).ok();
    rig.create("carved", "1", NBD, &rig.files_called("c", 2))
        .ok();
    rig.run(&["volume", "create", "carved", "v", "--size", "8M"])
        .ok();
    rig.create("moving", "5", NBD, &rig.files_called("m", 3))
        .ok();
    if rig
        .qemu_io("moving", &["write -P 1 0 80M", "flush"])
        .is_some()
    {
        let fourth = rig.file("fourth", 64 << 20);
        rig.run(&["set", "moving", "restripe_priority=1"]).ok();
        rig.run(&["restripe", "moving", "--add", &fourth]).ok();
        rig.run(&["restripe", "moving", "--stop"]).ok();
    }
    rig.create("idle", "1", NBD, &rig.files_called("i", 2)).ok();
    rig.run(&["stop", "idle"]).ok();
    rig.run(&["pool", "create", "shelf", &devices[3]]).ok();
    rig
}

/// A nullable object was described as one that is always there.
#[test]
fn every_get_answers_what_the_openapi_document_says() {
    let rig = stage();
    let document: Value = serde_json::from_str(&body(&rig, "/openapi.json")).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    let (mut checked, mut nulls) = (0, 0);
    for (path, methods) in paths
        .iter()
        .filter(|(_, methods)| methods.get("get").is_some())
    {
        let content = &methods["get"]["responses"]["200"]["content"];
        if content.get("text/event-stream").is_some() {
            // It has no end; what it has is compared with `/v1/events` in `events`.
            continue;
        }
        let names: &[&str] = match path.as_str() {
            path if path.contains("/pools/") => &["shelf"],
            // They are asked of an array that serves.
            path if path.ends_with("/wear")
                || path.ends_with("/latency")
                || path.contains("/volumes") =>
            {
                &["carved"]
            }
            _ => &["data", "carved", "moving", "idle"],
        };
        for name in names {
            let mut asked = path.replace("{name}", name).replace("{volume}", "v");
            if path.ends_with("/explain") {
                asked.push_str("?lba=0");
            }
            let text = body(&rig, &asked);
            if let Some(schema) = content.get("application/json").map(|c| &c["schema"]) {
                let value: Value = serde_json::from_str(&text).expect("JSON");
                nulls += text.matches(":null").count();
                if *path != "/openapi.json" {
                    conforms(&document, schema, &value, &asked).expect("as documented");
                }
                checked += 1;
            } else if let Some(schema) = content.get("application/x-ndjson").map(|c| &c["schema"]) {
                assert!(text.lines().count() > 5, "{text}");
                for line in text.lines() {
                    let value = serde_json::from_str(line).expect("JSON");
                    conforms(&document, schema, &value, &asked).expect("as documented");
                }
                checked += 1;
            }
            if !path.contains("{name}") {
                break;
            }
        }
    }
    assert!(
        checked > 20 && nulls > 20,
        "{checked} answers, {nulls} nulls"
    );
    // What is checked with can find something.
    let array = &document["components"]["schemas"]["Array"];
    let text = body(&rig, "/v1/arrays/data");
    let mut value: Value = serde_json::from_str(&text).expect("JSON");
    value["export"] = json!("nbd");
    assert!(conforms(&document, array, &value, "array").is_err());
    value["export"] = Value::Null;
    conforms(&document, array, &value, "array").expect("a nullable object");
}

/// Families were scattered over arrays and had neither help nor type.
#[test]
fn metrics_are_grouped_and_described_as_prometheus_wants_them() {
    if !has("qemu-io") {
        return skipped("qemu-io is not installed");
    }
    let rig = stage();
    let mut text = body(&rig, "/metrics");
    // What is recent is forgotten where the machine is slow.
    let recent = "strake_member_recent_read_latency_seconds{";
    rig.until("reads are recent", || {
        rig.qemu_io("data", &["read 0 1M"]);
        text = body(&rig, "/metrics");
        text.contains(recent)
    });
    let mut seen = Vec::new();
    let mut described = (String::new(), String::new());
    for line in text.lines() {
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name)) => described.0 = name.to_owned(),
            (Some("#"), Some("TYPE"), Some(name)) => {
                assert_eq!(described.0, name, "help comes before the type");
                assert!(
                    !seen.contains(&name.to_owned()),
                    "{name} stands in two groups"
                );
                seen.push(name.to_owned());
                described.1 = name.to_owned();
            }
            (Some(metric), Some(_), None) => {
                let name = metric.split('{').next().unwrap_or_default();
                let rest = name.strip_prefix(described.1.as_str());
                let part = matches!(rest, Some("" | "_bucket" | "_sum" | "_count"));
                assert!(part, "{line} stands under {described:?}");
            }
            _ => panic!("{line}"),
        }
    }
    assert!(seen.len() > 30, "{seen:?}");
    // Members that did I/O have families of their own.
    for family in [
        "strake_member_recent_read_latency_seconds",
        "strake_member_read_latency_seconds",
    ] {
        assert!(seen.iter().any(|name| name == family), "{seen:?}");
    }
    if !rig::has("promtool") {
        return rig::skipped("promtool is not installed");
    }
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("spawned");
    let mut stdin = promtool.stdin.take().expect("a pipe");
    stdin.write_all(text.as_bytes()).expect("written");
    drop(stdin);
    let output = promtool.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}
