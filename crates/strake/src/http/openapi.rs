//! The OpenAPI 3.1 document, made from the list of routes and a table of shapes.
//!
//! Invariants: every route of [`ROUTES`] is in it (it is made from that list), and every name that
//! a route mentions has a schema; tests walk both against the router. Deliberately absent: a derive
//! for schemas; the shapes are few and flat.

use serde_json::{Map, Value, json};

use crate::http::routes::ROUTES;

/// Shapes: name, then fields as `name:type`, where `?` marks what may be null or absent (objects and lists
/// as well) and `[]` lists.
pub(crate) const SHAPES: &[(&str, &str)] = &[
    ("Version", "version:string pid:integer dir:string"),
    (
        "Array",
        "name:string uuid:string level:string state:string daemon:boolean startable:boolean? size_bytes:integer strip_bytes:integer \
         group_size:integer? fixed_parities:integer block_bytes:integer device:string? export:Export? \
         placement:Placed? moving:Moving? write_hole:string latency_target_us:integer degraded_start:string epoch:integer unwritten_bytes:integer \
         unreadable_bytes:integer unreadable:Range[] undecided_regions:integer undecided_bytes:integer undecided:Range[] \
         members:Member[] \
         spares:Member[] set_aside:SetAside[] jobs:Job[] last_scrub:Scrub? carved:boolean \
         volume_table_damaged:boolean volume_unit_bytes:integer? volume_free_bytes:integer? \
         volumes:Volume[]",
    ),
    (
        "Moving",
        "from_columns:integer to_columns:integer from_group_size:integer? to_group_size:integer? from_fixed_parities:integer to_fixed_parities:integer from_strip_bytes:integer to_strip_bytes:integer \
         moved_bytes:integer total_bytes:integer stopped:boolean",
    ),
    (
        "Volumes",
        "carved:boolean volume_table_damaged:boolean volume_unit_bytes:integer? \
         volume_free_bytes:integer? volumes:Volume[]",
    ),
    (
        "Volume",
        "name:string uuid:string size_bytes:integer allocated_bytes:integer extents:integer \
         created:string device:string?",
    ),
    (
        "VolumeRequest",
        "name:string size_bytes:integer? force:boolean? dry_run:boolean?",
    ),
    (
        "VolumeCreated",
        "dry_run:boolean carves:boolean name:string uuid:string size_bytes:integer \
         allocated_bytes:integer extents:integer created:string device:string?",
    ),
    (
        "VolumeChange",
        "size_bytes:integer? name:string? shrink:boolean? dry_run:boolean?",
    ),
    ("VolumeDeletion", "dry_run:boolean?"),
    (
        "Export",
        "kind:string mode:string? queues:integer? depth:integer? kernel_features:string[]?",
    ),
    (
        "Placed",
        "shards:integer cpus:string? numa_nodes:integer[] memory_bytes:integer requests:integer?",
    ),
    (
        "Scrub",
        "repair:boolean begun:string ended:string inconsistent_stripes:integer located_stripes:integer \
         repaired_stripes:integer unreadable_stripes:integer",
    ),
    ("Range", "offset_bytes:integer len_bytes:integer"),
    (
        "Member",
        "slot:integer? device:string? uuid:string? state:string read_errors:integer \
         write_errors:integer mismatches:integer retries:Retries slow:boolean read_latency:Latency? \
         write_latency:Latency? hedged_reads:HedgedReads spare_in_s:integer? was:Was?",
    ),
    (
        "Was",
        "device:string model:string? serial:string? until:string? cause:string? errno:integer?",
    ),
    (
        "Retries",
        "tries:integer got_through:integer failed:integer resets:integer",
    ),
    ("Latency", "p50_us:integer p99_us:integer p999_us:integer"),
    ("Latencies", "name:string members:MemberLatencies[]"),
    (
        "MemberLatencies",
        "slot:integer device:string? reads:Distribution writes:Distribution",
    ),
    (
        "Distribution",
        "count:integer sum_ns:integer max_ns:integer recent:Latency? buckets:Bucket[]",
    ),
    ("Bucket", "below_ns:integer count:integer"),
    (
        "HedgedReads",
        "issued:integer won:integer lost:integer refused:integer",
    ),
    (
        "Job",
        "kind:string slot:integer? partial:boolean done_bytes:integer total_bytes:integer \
         rate_bytes_per_s:integer eta_s:integer? paused:boolean paused_by:string? held_back_by:string \
         foreground_p99_us:integer? inconsistent_stripes:integer repaired_stripes:integer",
    ),
    (
        "CreateRequest",
        "name:string level:string strip_bytes:integer? group_size:integer? write_hole:string? \
         latency_target_us:integer? cpus:string? shards:integer? memory_limit_bytes:integer? \
         requests:integer? init:string? block_bytes:integer? devices:string[] spares:string[]? export:string? \
         pool:string? degraded:string? force:boolean? dry_run:boolean?",
    ),
    (
        "Created",
        "dry_run:boolean serving:boolean notes:string[] name:string uuid:string level:string state:string daemon:boolean startable:boolean? \
         size_bytes:integer strip_bytes:integer group_size:integer? fixed_parities:integer \
         block_bytes:integer device:string? export:Export? placement:Placed? moving:Moving? write_hole:string latency_target_us:integer degraded_start:string \
         epoch:integer unwritten_bytes:integer \
         unreadable_bytes:integer unreadable:Range[] undecided_regions:integer undecided_bytes:integer undecided:Range[] \
         members:Member[] spares:Member[] set_aside:SetAside[] \
         jobs:Job[] last_scrub:Scrub? carved:boolean volume_table_damaged:boolean \
         volume_unit_bytes:integer? volume_free_bytes:integer? volumes:Volume[]",
    ),
    (
        "StartRequest",
        "export:string? force:boolean? devices:string[]? dry_run:boolean? by_rule:boolean?",
    ),
    ("DryRequest", "dry_run:boolean?"),
    (
        "ImportRequest",
        "name:string? export:string? force:boolean? devices:string[]? dry_run:boolean?",
    ),
    ("MemberRequest", "member:string dry_run:boolean?"),
    ("LocateRequest", "member:string on:boolean dry_run:boolean?"),
    (
        "DriveLocateRequest",
        "device:string on:boolean dry_run:boolean?",
    ),
    ("DriveDone", "device:string changed:boolean what:string"),
    ("ResetRequest", "member:string? dry_run:boolean?"),
    ("RenameRequest", "name:string dry_run:boolean?"),
    (
        "DeviceRequest",
        "member:string? device:string? force:boolean? dry_run:boolean?",
    ),
    ("GrowRequest", "dry_run:boolean?"),
    (
        "RestripeRequest",
        "level:string? action:string? devices:string[]? strip_bytes:integer? group_size:integer? rotate:boolean? force:boolean? dry_run:boolean?",
    ),
    (
        "JobRequest",
        "action:string repair:boolean? halt:boolean? dry_run:boolean?",
    ),
    (
        "Settings",
        "rebuild_priority:integer? resync_priority:integer? scrub_priority:integer? restripe_priority:integer? init_priority:integer? \
         latency_target_us:integer? spare_delay_ms:integer? scrub_schedule:string? scrub_at:string? scrub_policy:string? read_error_threshold:integer? write_hole:string? \
         cpus:string? shards:integer? memory_limit_bytes:integer? requests:integer? \
         hedged_reads:string? replace_at_wear:integer? pool:string? degraded:string? dry_run:boolean?",
    ),
    (
        "Outcome",
        "array:string changed:boolean what:string notes:string[] ended:string? scrub:Scrub?",
    ),
    (
        "ScanArray",
        "name:string uuid:string level:string members:integer found:integer members_found:integer \
         spares:integer spares_found:integer state:string reason:string? destroyed:string? \
         moving:Moving? devices:ScanDevice[]",
    ),
    (
        "ScanDevice",
        "device:string uuid:string slot:integer? state:string epoch:integer problem:string? \
         also:string[]",
    ),
    (
        "SetAside",
        "device:string slot:integer? code:string found:string cure:string",
    ),
    (
        "Explain",
        "name:string lba:integer block_bytes:integer offset_bytes:integer stripe:integer \
         group:integer row:integer column:integer region:integer region_state:string? \
         unreadable:boolean undecided:boolean data:Place redundancy:Place[]",
    ),
    (
        "Place",
        "kind:string slot:integer device:string? member_state:string member_offset_bytes:integer",
    ),
    ("Wear", "name:string members:WearMember[]"),
    (
        "WearMember",
        "slot:integer? device:string? reason:string? model:string? serial:string? \
         warnings:string[] temperature_c:integer? available_spare_percent:integer? \
         percentage_used:integer? power_on_hours:integer? unsafe_shutdowns:integer? \
         media_errors:integer? host_written_bytes:integer? media_written_bytes:integer? \
         media_from:string? write_amplification:number? unaligned_ios:integer? since:string? \
         host_written_bytes_since:integer? media_written_bytes_since:integer? \
         write_amplification_since:number?",
    ),
    (
        "Pool",
        "name:string uuid:string? devices:PoolDevice[] arrays:PoolUser[]",
    ),
    (
        "PoolDevice",
        "device:string uuid:string size_bytes:integer block_bytes:integer",
    ),
    ("PoolUser", "name:string fitting:integer"),
    (
        "PoolRequest",
        "devices:string[]? all:boolean? force:boolean? dry_run:boolean?",
    ),
    ("PoolDone", "pool:string changed:boolean what:string"),
    (
        "Backup",
        "strake_backup:integer taken:string arrays:BackupArray[] pools:BackupPool[]?",
    ),
    (
        "BackupPool",
        "name:string uuid:string devices:BackupPoolDevice[]",
    ),
    (
        "BackupPoolDevice",
        "uuid:string device:string size_bytes:integer wwid:string?",
    ),
    (
        "BackupArray",
        "name:string uuid:string level:string strip_bytes:integer group_size:integer fixed_parities:integer epoch:integer? moving:boolean? \
         block_bytes:integer carved:boolean layout:BackupLayout export:string settings:Settings \
         members:BackupMember[]",
    ),
    (
        "BackupLayout",
        "map_offset:integer map_pages:integer page_regions:integer unreadable_bytes:integer log_offset:integer \
         log_bytes:integer data_offset:integer data_bytes:integer region_bytes:integer",
    ),
    ("BackupMember", "uuid:string in_sync:boolean device:string?"),
    (
        "RestoreRequest",
        "backup:Backup names:string[]? devices:string[]? slots:SlotDevice[]? force:boolean? \
         accept_stale:boolean? dry_run:boolean?",
    ),
    ("SlotDevice", "slot:integer device:string"),
    (
        "Restored",
        "dry_run:boolean arrays:RestoredArray[] pools:RestoredPool[]",
    ),
    (
        "RestoredPool",
        "name:string restored:boolean what:string devices:string[]",
    ),
    (
        "RestoredArray",
        "name:string restored:boolean what:string doubt:string? devices:string[] not_applied:string?",
    ),
    ("Scrubs", "name:string now:Job? past:Scrub[]"),
    ("CleanRequest", "devices:string[] dry_run:boolean?"),
    ("Cleaned", "dry_run:boolean devices:CleanedDevice[]"),
    ("CleanedDevice", "device:string was:string"),
    (
        "Event",
        "sequence:integer time:string array:string? event:string slot:integer? device:string? \
         cause:string? effect:string? errno:integer? inconsistent_stripes:integer? \
         repaired_stripes:integer?",
    ),
    ("Error", "code:string found:string cure:string"),
];

fn reference(name: &str) -> Value {
    match name {
        "string" | "integer" | "number" | "boolean" => json!({ "type": name }),
        "Any" => json!({}),
        "Text" => json!({ "type": "string" }),
        "Arrays" => json!({ "type": "array", "items": reference("Array") }),
        "Pools" => json!({ "type": "array", "items": reference("Pool") }),
        "Scan" => json!({ "type": "array", "items": reference("ScanArray") }),
        _ => json!({ "$ref": format!("#/components/schemas/{name}") }),
    }
}

fn schema(fields: &str) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in fields.split_whitespace() {
        let (name, kind) = field.split_once(':').expect("a field is name:type");
        let (kind, optional) = kind.strip_suffix('?').map_or((kind, false), |k| (k, true));
        let mut value = match kind.strip_suffix("[]") {
            Some(item) => json!({ "type": "array", "items": reference(item) }),
            None => reference(kind),
        };
        match value.get_mut("type") {
            Some(kind) if optional => *kind = json!([kind.clone(), "null"]),
            // A reference stands alone.
            None if optional => value = json!({ "anyOf": [value, { "type": "null" }] }),
            _ => {}
        }
        if !optional {
            required.push(name.to_owned());
        }
        properties.insert(name.to_owned(), value);
    }
    json!({ "type": "object", "properties": properties, "required": required })
}

fn parameters(path: &str) -> Vec<Value> {
    let parameter = |name: &str, place: &str, kind: &str, required: bool| {
        let schema = json!({ "type": kind });
        json!({ "name": name, "in": place, "required": required, "schema": schema })
    };
    let mut all = Vec::new();
    if path.contains("{name}") {
        all.push(parameter("name", "path", "string", true));
    }
    if path.contains("{volume}") {
        all.push(parameter("volume", "path", "string", true));
    }
    if path.ends_with("/explain") {
        all.push(parameter("lba", "query", "integer", true));
    }
    if path.ends_with("/wear") {
        all.push(parameter("since_s", "query", "integer", false));
    }
    if path.ends_with("/events") {
        all.push(parameter("follow", "query", "boolean", false));
        all.push(parameter("since", "query", "integer", false));
    }
    all
}

fn media_type(path: &str) -> &'static str {
    match path {
        "/v1/events" => "application/x-ndjson",
        "/metrics" => "text/plain",
        _ => "application/json",
    }
}

/// The document.
pub(crate) fn document() -> Value {
    let mut paths = Map::new();
    for (method, path, summary, request, answer) in ROUTES {
        let status = if (*method, *path) == ("post", "/v1/arrays") {
            "201"
        } else {
            "200"
        };
        let error = json!({ "application/json": { "schema": reference("Error") } });
        let mut operation = json!({
            "summary": summary,
            "parameters": parameters(path),
            "responses": {
                status: {
                    "description": summary,
                    "content": { media_type(path): { "schema": reference(answer) } },
                },
                "default": { "description": "an error of the catalogue", "content": error },
            },
        });
        if let Some(request) = request {
            let content = json!({ "application/json": { "schema": reference(request) } });
            operation["requestBody"] = json!({ "required": true, "content": content });
        }
        let entry = paths.entry(*path).or_insert_with(|| json!({}));
        entry[*method] = operation;
    }
    let schemas: Map<String, Value> = SHAPES
        .iter()
        .map(|(name, fields)| ((*name).to_owned(), schema(fields)))
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Strake", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "components": { "schemas": schemas },
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use axum::http::Request;
    use hyper::service::Service as _;

    use super::*;
    use crate::daemon::array::running::Limits;
    use crate::daemon::service::Service;
    use crate::daemon::sources::Sources;
    use crate::daemon::state::Dir;
    use crate::http::routes;

    /// Names that a schema refers to.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(to)) = map.get("$ref") {
                    found.push(to.trim_start_matches("#/components/schemas/").to_owned());
                }
                map.values().for_each(|v| references(v, found));
            }
            Value::Array(list) => list.iter().for_each(|v| references(v, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_of_the_document_has_a_schema() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 30);
        for name in found {
            assert!(
                document["components"]["schemas"][&name].is_object(),
                "{name}"
            );
        }
    }

    #[test]
    fn every_route_answers_and_stands_in_the_document() {
        let temporary = tempfile::tempdir().expect("temporary folder");
        let dir = Dir::at(temporary.path());
        dir.make().expect("folders");
        let service = Arc::new(Service::new(dir, Sources::default(), Limits::default()));
        let router = routes::router(service);
        let document = document();
        let runtime = crate::common::process::runtime().expect("runtime");
        for (method, path, ..) in ROUTES {
            assert!(
                document["paths"][path][method].is_object(),
                "{method} {path}"
            );
            let request = Request::builder()
                .method(method.to_uppercase().as_str())
                .uri(path.replace("{name}", "none").replace("{volume}", "none"))
                .header("content-type", "application/json")
                .body(Body::from("{}"))
                .expect("request");
            let call = hyper_util::service::TowerToHyperService::new(router.clone());
            let answer = runtime.block_on(call.call(request)).expect("infallible");
            assert_ne!(answer.status(), 405, "{method} {path}");
            let bytes = runtime
                .block_on(axum::body::to_bytes(answer.into_body(), 1 << 20))
                .expect("body");
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains("no-such-route"), "{method} {path}: {text}");
        }
    }

    #[test]
    fn the_shapes_are_those_that_are_sent() {
        let array = crate::api::JobJson {
            kind: String::new(),
            slot: None,
            partial: false,
            done_bytes: 0,
            total_bytes: 0,
            rate_bytes_per_s: 0,
            eta_s: None,
            paused: false,
            paused_by: None,
            held_back_by: String::new(),
            foreground_p99_us: None,
            inconsistent_stripes: 0,
            repaired_stripes: 0,
        };
        let export = crate::api::ExportJson {
            kind: String::new(),
            mode: None,
            queues: None,
            depth: None,
            kernel_features: None,
        };
        let document = document();
        let job = serde_json::to_value(array).expect("json");
        let export = serde_json::to_value(export).expect("json");
        let took = crate::view::latency::MemberLatenciesJson::default();
        let took = serde_json::to_value(took).expect("json");
        let distribution = took["reads"].clone();
        for (name, sent) in [
            ("Job", job),
            ("Export", export),
            ("MemberLatencies", took),
            ("Distribution", distribution),
        ] {
            let mut keys: Vec<&String> = sent.as_object().expect("object").keys().collect();
            let schema = &document["components"]["schemas"][name]["properties"];
            let mut shape: Vec<&String> = schema.as_object().expect("object").keys().collect();
            shape.sort();
            keys.sort();
            assert_eq!(keys, shape, "{name}");
        }
    }
}
