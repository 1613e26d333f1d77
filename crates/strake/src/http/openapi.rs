//! The OpenAPI 3.1 document, made of the routes and of the types that they take and answer.
//!
//! Invariant: nothing is written down twice: schemas are derived, with the comments of the types. A
//! schema of what is answered requires all that is always there; one of what is taken, only what
//! must be given.
//!
//! Why `schemars`, and neither `utoipa` nor `aide`: it tells these two apart, and its dialect is
//! that of OpenAPI 3.1; what the others add to it are routes, which are in a table here.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::common::errors::FailureJson;
use crate::http::route::{Route, Takes};
use crate::http::routes;

const SCHEMAS: &str = "/components/schemas";

/// Names of schemas as the document has them: without the `Json` of the types.
fn short(name: &str) -> &str {
    name.strip_suffix("Json").unwrap_or(name)
}

/// Has references name schemas as the document does. A schema of anything is an object: generators
/// of clients know no other.
fn shorten(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(schema) = map.get_mut("schema").filter(|schema| **schema == true) {
                *schema = json!({});
            }
            if let Some(Value::String(to)) = map.get_mut("$ref") {
                *to = short(to).to_owned();
            }
            map.values_mut().for_each(shorten);
        }
        Value::Array(list) => list.iter_mut().for_each(shorten),
        _ => {}
    }
}

fn parameter(name: &str, place: &str, required: bool, schema: Value) -> Value {
    json!({ "name": name, "in": place, "required": required, "schema": schema })
}

/// The names that stand in a path.
fn names(path: &str) -> Vec<Value> {
    let names = path
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split('}').next());
    names
        .map(|name| parameter(name, "path", true, json!({ "type": "string" })))
        .collect()
}

/// The parts of a path below the version.
fn parts(path: &str) -> impl Iterator<Item = &str> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.filter(|part| *part != "v1")
}

/// What a generated client calls a route: `get_arrays`, `get_array`, `post_array_start`.
fn operation_id(method: &str, path: &str) -> String {
    let mut words = vec![method.to_owned()];
    for part in parts(path) {
        match (part.starts_with('{'), words.last_mut()) {
            // One of those that were named.
            (true, Some(all)) => *all = all.trim_end_matches('s').to_owned(),
            _ => words.push(part.replace('.', "_")),
        }
    }
    words.join("_")
}

/// The subject of a route.
fn tag(path: &str) -> &str {
    match parts(path).next() {
        Some(first @ ("alerts" | "arrays" | "config" | "drives" | "events" | "pools")) => first,
        _ => "daemon",
    }
}

/// The parameters of a query: the properties of its type.
fn asked(schema: &Schema) -> Vec<Value> {
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|r| r == name));
    let properties = schema.get("properties").and_then(Value::as_object);
    properties
        .into_iter()
        .flatten()
        .map(|(name, schema)| parameter(name, "query", is_required(name), schema.clone()))
        .collect()
}

fn settings() -> SchemaSettings {
    SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = SCHEMAS.into();
        settings.meta_schema = None;
    })
}

/// The shapes that commands print and no route answers, for the reference.
#[cfg(test)]
pub(crate) fn printed() -> Map<String, Value> {
    use crate::api::{DoctorJson, IostatJson, KnownDriveJson, PlansJson, StatusJson};
    let mut sent = settings().for_serialize().into_generator();
    sent.subschema_for::<StatusJson>();
    sent.subschema_for::<IostatJson>();
    sent.subschema_for::<DoctorJson>();
    sent.subschema_for::<PlansJson>();
    sent.subschema_for::<KnownDriveJson>();
    let known = document();
    let all = sent.take_definitions(true).into_iter();
    let mut all: Map<String, Value> = all
        .map(|(name, schema)| (short(&name).to_owned(), schema))
        .filter(|(name, _)| known["components"]["schemas"][name].is_null())
        .collect();
    all.values_mut().for_each(shorten);
    all
}

/// The document.
pub(crate) fn document() -> Value {
    let settings = settings();
    let mut given = settings.clone().for_deserialize().into_generator();
    let mut sent = settings.for_serialize().into_generator();
    let error = sent.subschema_for::<FailureJson>();
    let error = json!({ "application/json": { "schema": error } });
    let error = json!({ "description": "an error of the catalogue", "content": error });
    let mut paths: Map<String, Value> = Map::new();
    for route in routes::all() {
        let Route {
            path, about, media, ..
        } = route;
        let answer = json!({ media: { "schema": (route.answers)(&mut sent) } });
        let answer = json!({ "description": about, "content": answer });
        let method = route.method.as_str().to_lowercase();
        let mut operation = json!({
            "operationId": operation_id(&method, path),
            "tags": [tag(path)],
            "summary": about,
            "parameters": names(path),
            "responses": { "200": answer, "default": error },
        });
        if route.makes {
            operation["responses"]["201"] = answer;
        }
        match route.takes {
            Takes::Nothing => {}
            Takes::Query(shape) => {
                let all = [names(path), asked(&shape(&mut given))].concat();
                operation["parameters"] = all.into();
            }
            Takes::Body { shape, required } => {
                let content = json!({ "application/json": { "schema": shape(&mut given) } });
                operation["requestBody"] = json!({ "required": required, "content": content });
            }
        }
        if let Some(parameters) = operation["parameters"].as_array_mut() {
            for (name, about) in route.headers {
                let mut header = parameter(name, "header", false, json!({ "type": "string" }));
                header["description"] = (*about).into();
                parameters.push(header);
            }
        }
        let entry = paths.entry(path).or_insert_with(|| json!({}));
        entry[method] = operation;
    }
    // What is both given and sent has to be valid as both.
    let all = sent.take_definitions(true).into_iter();
    let all = all.chain(given.take_definitions(true));
    let schemas: Map<String, Value> = all
        .map(|(name, schema)| (short(&name).to_owned(), schema))
        .collect();
    let mut document = json!({
        "openapi": "3.1.0",
        "info": { "title": "Strake", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "components": { "schemas": schemas },
    });
    shorten(&mut document);
    document
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
    use crate::http::{routes, stream};

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
    fn every_operation_has_a_name_of_its_own() {
        let document = document();
        let paths = document["paths"].as_object().expect("paths").values();
        let all = paths.flat_map(|methods| methods.as_object().expect("methods").values());
        let mut names: Vec<&str> = all
            .map(|operation| operation["operationId"].as_str().expect("a name"))
            .collect();
        for name in ["get_arrays", "get_array", "delete_array_volume"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{names:?}");
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
        for route in routes::all() {
            let Route {
                method,
                path,
                media,
                ..
            } = route;
            let word = method.as_str().to_lowercase();
            assert!(
                document["paths"][path][&word].is_object(),
                "{method} {path}"
            );
            let request = Request::builder()
                .method(method.clone())
                .uri(path.replace("{name}", "none").replace("{volume}", "none"))
                .header("content-type", "application/json")
                .body(Body::from("{}"))
                .expect("request");
            let call = hyper_util::service::TowerToHyperService::new(router.clone());
            let answer = runtime.block_on(call.call(request)).expect("infallible");
            assert_ne!(answer.status(), 405, "{method} {path}");
            if media == stream::MEDIA {
                // It has no end.
                assert_eq!(answer.status(), 200, "{method} {path}");
                continue;
            }
            let bytes = runtime
                .block_on(axum::body::to_bytes(answer.into_body(), 1 << 20))
                .expect("body");
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains("no-such-route"), "{method} {path}: {text}");
        }
    }
}
