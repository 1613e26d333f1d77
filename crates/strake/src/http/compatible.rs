//! Whether the API's document keeps what the last release's document promised.
//!
//! The rule (`docs/reference/api.md`): within /v1, routes, fields and values of answers are only
//! added. What a request could say before it can say still; what an answer had before it has still.
//! The document of the last release is `docs/reference/openapi-v1.json`. A release writes it anew:
//! `STRAKE_REFERENCE=release cargo test -p strake --lib compatible`, which compares first.
//!
//! Invariant: what the comparison does not know (another keyword of JSON Schema) is compared as it
//! stands. Deliberately absent: an interface; only the test uses this file. Why no `oasdiff`: it
//! would need Go on every machine that runs the tests, for this one comparison.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::http::openapi;

/// What a schema describes: what clients send, or what they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Sent,
    Answered,
}

/// Bounds that take less where they rise, ...
const LEAST: [&str; 5] = [
    "minimum",
    "exclusiveMinimum",
    "minLength",
    "minItems",
    "minProperties",
];
/// ... and where they fall.
const MOST: [&str; 5] = [
    "maximum",
    "exclusiveMaximum",
    "maxLength",
    "maxItems",
    "maxProperties",
];
/// All keywords that the comparison knows, or that say nothing about what is valid.
const KNOWN: [&str; 23] = [
    "minimum",
    "exclusiveMinimum",
    "minLength",
    "minItems",
    "minProperties",
    "maximum",
    "exclusiveMaximum",
    "maxLength",
    "maxItems",
    "maxProperties",
    "type",
    "enum",
    "const",
    "format",
    "pattern",
    "items",
    "properties",
    "additionalProperties",
    "required",
    "title",
    "description",
    "default",
    "examples",
];

/// The two documents, and what was found.
struct Comparison<'a> {
    old: &'a Value,
    new: &'a Value,
    found: Vec<String>,
    /// Pairs of names that are being compared, or were: schemas refer to themselves.
    known: BTreeSet<(String, String, bool)>,
}

/// What the new document takes away.
fn broken(old: &Value, new: &Value) -> Vec<String> {
    let mut comparison = Comparison {
        old,
        new,
        found: Vec::new(),
        known: BTreeSet::new(),
    };
    for (path, methods) in objects(&old["paths"]) {
        for (method, before) in objects(methods) {
            let at = format!("{} {path}", method.to_uppercase());
            match &new["paths"][path][method] {
                Value::Null => comparison.say(format!("{at} is gone")),
                now => comparison.operation(&at, before, now),
            }
        }
    }
    comparison.found
}

fn objects(of: &Value) -> impl Iterator<Item = (&String, &Value)> {
    of.as_object().into_iter().flatten()
}

fn list(of: &Value) -> &[Value] {
    of.as_array().map_or(&[], Vec::as_slice)
}

fn names(of: &Value) -> BTreeSet<&str> {
    list(of).iter().filter_map(Value::as_str).collect()
}

impl Comparison<'_> {
    fn say(&mut self, found: String) {
        self.found.push(found);
    }

    fn operation(&mut self, at: &str, old: &Value, new: &Value) {
        let key = |p: &Value| (p["name"].clone(), p["in"].clone());
        for before in list(&old["parameters"]) {
            let at = format!("{at}: parameter {}", before["name"]);
            let now = list(&new["parameters"]).iter();
            match now.clone().find(|now| key(now) == key(before)) {
                None => self.say(format!("{at} is gone")),
                Some(now) => {
                    self.schema(&at, Way::Sent, &before["schema"], &now["schema"]);
                    if now["required"] == true && before["required"] != true {
                        self.say(format!("{at} is required now"));
                    }
                }
            }
        }
        for now in list(&new["parameters"]) {
            let is_new = !list(&old["parameters"]).iter().any(|p| key(p) == key(now));
            if is_new && now["required"] == true {
                let name = &now["name"];
                self.say(format!("{at}: parameter {name} is new, and required"));
            }
        }
        let (before, now) = (&old["requestBody"], &new["requestBody"]);
        if now["required"] == true && before["required"] != true {
            self.say(format!("{at}: the body is required now"));
        }
        self.content(&format!("{at}: body"), Way::Sent, before, now);
        for (status, before) in objects(&old["responses"]) {
            let at = format!("{at}: answer {status}");
            match &new["responses"][status] {
                Value::Null => self.say(format!("{at} is gone")),
                now => self.content(&at, Way::Answered, before, now),
            }
        }
    }

    fn content(&mut self, at: &str, way: Way, old: &Value, new: &Value) {
        for (media, before) in objects(&old["content"]) {
            match &new["content"][media] {
                Value::Null => self.say(format!("{at}: {media} is gone")),
                now => self.schema(at, way, &before["schema"], &now["schema"]),
            }
        }
    }

    fn schema(&mut self, at: &str, way: Way, old: &Value, new: &Value) {
        if let (Some(before), Some(now)) = (old["$ref"].as_str(), new["$ref"].as_str()) {
            let pair = (before.to_owned(), now.to_owned(), way == Way::Sent);
            if !self.known.insert(pair) {
                return;
            }
        }
        let before = alternatives(self.old, old);
        let now = alternatives(self.new, new);
        // What may come has to fit in what is expected.
        let (may_come, expected) = match way {
            Way::Sent => (&before, &now),
            Way::Answered => (&now, &before),
        };
        for one in may_come {
            // That with the least that is wrong is the one that was meant.
            let mut least: Option<Vec<String>> = None;
            for other in expected.iter().filter(|other| kind_fits(one, other)) {
                let (before, now) = match way {
                    Way::Sent => (one, other),
                    Way::Answered => (other, one),
                };
                let found = self.found.len();
                self.one(at, way, before, now);
                let wrong = self.found.split_off(found);
                if least.as_ref().is_none_or(|least| wrong.len() < least.len()) {
                    least = Some(wrong);
                }
            }
            match least {
                Some(wrong) => self.found.extend(wrong),
                None => {
                    let kind = &one["type"];
                    let what = match way {
                        Way::Sent => format!("{at} takes {kind} no more"),
                        Way::Answered => format!("{at} may be {kind} now"),
                    };
                    self.say(what);
                }
            }
        }
    }

    /// Two alternatives of one type.
    fn one(&mut self, at: &str, way: Way, old: &Value, new: &Value) {
        match (way, values(old), values(new)) {
            (Way::Sent, before, Some(now)) => {
                let is_lost = |all: Vec<Value>| all.iter().any(|value| !now.contains(value));
                if before.is_none_or(is_lost) {
                    self.say(format!("{at} takes fewer values"));
                }
            }
            (Way::Answered, Some(_), None) => self.say(format!("{at} may be any value now")),
            _ => {}
        }
        let bound = |of: &Value, which: &str| of[which].as_f64();
        let rises = |which: &&str| {
            let (before, now) = (bound(old, which), bound(new, which));
            now.unwrap_or(f64::NEG_INFINITY) > before.unwrap_or(f64::NEG_INFINITY)
        };
        let falls = |which: &&str| {
            let (before, now) = (bound(old, which), bound(new, which));
            now.unwrap_or(f64::INFINITY) < before.unwrap_or(f64::INFINITY)
        };
        let narrower = LEAST.iter().any(rises) || MOST.iter().any(falls);
        if way == Way::Sent && narrower {
            self.say(format!("{at} takes a smaller range"));
        }
        let refuses = |of: &Value| of["additionalProperties"] == false;
        if way == Way::Sent && refuses(new) && !refuses(old) {
            self.say(format!("{at} takes no other fields now"));
        }
        let known = |which: &&String| !KNOWN.contains(&which.as_str());
        let others = objects(old).chain(objects(new)).map(|(which, _)| which);
        for which in others.filter(known).collect::<BTreeSet<_>>() {
            if old[which] != new[which] {
                let (old, new) = (&old[which], &new[which]);
                self.say(format!("{at}: {which} was {old} and is {new}"));
            }
        }
        for which in ["format", "pattern"] {
            // Another format of what is sent has other bounds, which are compared.
            let is_free = way == Way::Sent && (which == "format" || new[which].is_null());
            if !is_free && old[which] != new[which] {
                let (old, new) = (&old[which], &new[which]);
                self.say(format!("{at}: {which} was {old} and is {new}"));
            }
        }
        if !old["items"].is_null() {
            self.schema(&format!("{at}[]"), way, &old["items"], &new["items"]);
        }
        let more = "additionalProperties";
        if old[more].is_object() {
            self.schema(&format!("{at}{{}}"), way, &old[more], &new[more]);
        }
        for (name, before) in objects(&old["properties"]) {
            let at = format!("{at}.{name}");
            match new["properties"].get(name) {
                None => self.say(format!("{at} is gone")),
                Some(now) => self.schema(&at, way, before, now),
            }
        }
        let (before, now) = (names(&old["required"]), names(&new["required"]));
        let (more, what) = match way {
            Way::Sent => (now.difference(&before), "is required now"),
            Way::Answered => (before.difference(&now), "may be absent now"),
        };
        let more: Vec<String> = more.map(|name| format!("{at}.{name} {what}")).collect();
        self.found.extend(more);
    }
}

/// The schemas of one type that a schema is any of.
fn alternatives(document: &Value, schema: &Value) -> Vec<Value> {
    if let Some(to) = schema["$ref"].as_str() {
        let to = document.pointer(to.trim_start_matches('#'));
        return alternatives(document, to.unwrap_or(&Value::Null));
    }
    for any in ["anyOf", "oneOf"] {
        if let Some(all) = schema[any].as_array() {
            return all.iter().flat_map(|s| alternatives(document, s)).collect();
        }
    }
    match &schema["type"] {
        Value::Array(kinds) => {
            let with = |kind: &Value| {
                let mut one = schema.clone();
                one["type"] = kind.clone();
                one
            };
            kinds.iter().map(with).collect()
        }
        Value::String(_) => vec![schema.clone()],
        // Anything.
        _ => vec![Value::Object(Map::from_iter([(
            "type".to_owned(),
            json!("any"),
        )]))],
    }
}

fn kind_fits(one: &Value, other: &Value) -> bool {
    let (one, other) = (&one["type"], &other["type"]);
    one == other || other == "any" || (one == "integer" && other == "number")
}

/// The values that a schema names.
fn values(schema: &Value) -> Option<Vec<Value>> {
    let one = schema.get("const").map(|one| vec![one.clone()]);
    one.or_else(|| schema["enum"].as_array().cloned())
}

#[test]
fn nothing_is_taken_away_from_the_last_releases_document() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi-v1.json");
    let text = std::fs::read_to_string(&path).expect("the last release's document");
    let last: Value = serde_json::from_str(&text).expect("JSON");
    let document = openapi::document();
    let broken = broken(&last, &document);
    assert!(
        broken.is_empty(),
        "within /v1 nothing is taken away (docs/reference/api.md):\n{}",
        broken.join("\n")
    );
    if std::env::var_os("STRAKE_REFERENCE").is_some_and(|how| how == "release") {
        let text = serde_json::to_string_pretty(&document).expect("JSON");
        std::fs::write(&path, text + "\n").expect("written");
    }
}

/// A document with one route that takes and answers these.
fn small(takes: Value, answers: Value) -> Value {
    let body = |schema: Value| json!({ "content": { "application/json": { "schema": schema } } });
    json!({
        "paths": { "/v1/x": { "post": {
            "parameters": [{ "name": "q", "in": "query", "schema": { "type": "string" } }],
            "requestBody": body(takes),
            "responses": { "200": body(json!({ "$ref": "#/components/schemas/A" })) },
        } } },
        "components": { "schemas": { "A": answers } },
    })
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required })
}

/// Fields for a document: a text, a number, what may be null, a word of a list.
fn fields() -> Value {
    json!({
        "t": { "type": "string" },
        "n": { "type": "integer", "format": "uint64", "minimum": 0 },
        "p": { "type": ["string", "null"] },
        "w": { "type": "string", "enum": ["a", "b"] },
    })
}

fn full() -> Value {
    object(fields(), &["t"])
}

/// The same, with another schema for a field, or with one more.
fn with(name: &str, schema: Value) -> Value {
    let mut fields = fields();
    fields[name] = schema;
    object(fields, &["t"])
}

fn without(name: &str) -> Value {
    let mut fields = fields();
    fields.as_object_mut().expect("fields").remove(name);
    object(fields, &["t"])
}

fn text() -> Value {
    json!({ "type": "string" })
}

#[test]
fn what_is_added_or_takes_more_breaks_no_client() {
    let old = small(full(), full());
    let more = json!({ "type": "string", "enum": ["a", "b", "c"] });
    let perhaps = json!({ "type": ["string", "null"] });
    for fine in [
        old.clone(),
        small(full(), with("new", text())),
        small(with("new", text()), full()),
        small(full(), with("w", more.clone())),
        small(with("w", more), full()),
        small(with("t", perhaps), full()),
        small(full(), with("p", text())),
    ] {
        assert_eq!(broken(&old, &fine), Vec::<String>::new(), "{fine}");
    }
}

#[test]
fn what_breaks_a_client_is_found() {
    let old = small(full(), full());
    let perhaps = json!({ "type": ["string", "null"] });
    let fewer = json!({ "type": "string", "enum": ["a"] });
    let larger = json!({ "type": "integer", "format": "uint64", "minimum": 1 });
    let other = json!({ "type": "integer", "format": "uint32", "minimum": 0 });
    let mut closed = full();
    closed["additionalProperties"] = json!(false);
    let long = json!({ "type": "string", "minLength": 1 });
    let short = json!({ "type": "string", "maxLength": 9 });
    let steps = json!({ "type": "integer", "format": "uint64", "minimum": 0, "multipleOf": 2 });
    let answers = [
        (without("n"), "n is gone"),
        (object(fields(), &[]), "t may be absent now"),
        (with("t", perhaps), "t may be \"null\" now"),
        (with("t", larger.clone()), "t may be \"integer\" now"),
        (with("n", other), "n: format was"),
        (with("w", text()), "w may be any value now"),
    ];
    let takes = [
        (without("n"), "n is gone"),
        (with("p", text()), "p takes \"null\" no more"),
        (with("n", text()), "n takes \"integer\" no more"),
        (with("w", fewer.clone()), "w takes fewer values"),
        (with("t", fewer), "t takes fewer values"),
        (with("n", larger), "n takes a smaller range"),
        (object(fields(), &["t", "n"]), "n is required now"),
        (closed, " takes no other fields now"),
        (with("t", long), "t takes a smaller range"),
        (with("t", short), "t takes a smaller range"),
        (with("n", steps), "n: multipleOf was null and is 2"),
    ];
    let answers = answers.map(|(new, what)| (small(full(), new), format!("answer 200.{what}")));
    let takes = takes.map(|(new, what)| {
        let at = if what.starts_with(' ') {
            "body"
        } else {
            "body."
        };
        (small(new, full()), format!("{at}{what}"))
    });
    for (new, what) in answers.into_iter().chain(takes) {
        let found = broken(&old, &new);
        let is_it = found.len() == 1 && found[0].contains(&what);
        assert!(is_it, "{what}: {found:?}");
    }
    let mut new = old.clone();
    let parameters = |new: &mut Value, all: Value| {
        new["paths"]["/v1/x"]["post"]["parameters"] = all;
    };
    let required = json!([{ "name": "q", "in": "query", "required": true, "schema": text() }]);
    parameters(&mut new, required);
    let found = broken(&old, &new);
    assert_eq!(found, ["POST /v1/x: parameter \"q\" is required now"]);
    parameters(&mut new, json!([]));
    let found = broken(&old, &new);
    assert_eq!(found, ["POST /v1/x: parameter \"q\" is gone"]);
    new["paths"] = json!({});
    assert_eq!(broken(&old, &new), ["POST /v1/x is gone"]);
}
