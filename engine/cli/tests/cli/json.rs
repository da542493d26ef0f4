//! The JSON documents are what their schemas say.

use std::path::Path;

use serde_json::Value;

use crate::kvweft::Folder;

fn schema(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("a schema is JSON")
}

/// The words of JSON Schema that the schemas use; another one would be passed over unseen.
const KNOWN: [&str; 16] = [
    "$schema",
    "$id",
    "$defs",
    "$ref",
    "title",
    "description",
    "type",
    "const",
    "enum",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "pattern",
    "minimum",
    "oneOf",
];

/// Everything in which `value` is not what `schema` says.
fn differences(root: &Value, schema: &Value, value: &Value, at: &str, out: &mut Vec<String>) {
    let object = schema.as_object().expect("a schema is an object");
    for word in object.keys() {
        assert!(KNOWN.contains(&word.as_str()), "{at}: this check does not know `{word}`");
    }
    if let Some(Value::String(reference)) = object.get("$ref") {
        let target = root.pointer(reference.trim_start_matches('#')).expect("it names a definition");
        return differences(root, target, value, at, out);
    }
    if let Some(Value::Array(branches)) = object.get("oneOf") {
        let mut found: Vec<Vec<String>> = Vec::new();
        for branch in branches {
            let mut inner = Vec::new();
            differences(root, branch, value, at, &mut inner);
            found.push(inner);
        }
        let nearest = found.iter().min_by_key(|inner| inner.len()).expect("there is a branch");
        match found.iter().filter(|inner| inner.is_empty()).count() {
            0 => out.push(format!("{at}: none of {} forms; the nearest: {}", branches.len(), nearest.join("; "))),
            1 => {}
            several => out.push(format!("{at}: {several} forms fit where one should")),
        }
    }
    if let Some(types) = object.get("type") {
        let types: Vec<&str> = match types {
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            one => vec![one.as_str().expect("a type is a word")],
        };
        let is = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        if !types.contains(&is) {
            out.push(format!("{at}: expected {}, found {is}", types.join(" or ")));
            return;
        }
    }
    if object.get("const").is_some_and(|only| only != value) {
        out.push(format!("{at}: expected {}, found {value}", object["const"]));
    }
    if let Some(Value::Array(some)) = object.get("enum")
        && !some.contains(value)
    {
        out.push(format!("{at}: {value} is none of {some:?}"));
    }
    if let (Some(least), Some(number)) = (object.get("minimum").and_then(Value::as_u64), value.as_u64())
        && number < least
    {
        out.push(format!("{at}: {number} is less than {least}"));
    }
    if let (Some(Value::Object(properties)), Value::Object(fields)) = (object.get("properties"), value) {
        assert_eq!(object.get("additionalProperties"), Some(&Value::Bool(false)), "{at}: say so");
        let required: Vec<&str> =
            object["required"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        for name in required.iter().filter(|name| !fields.contains_key(**name)) {
            out.push(format!("{at}: expected a field `{name}`"));
        }
        for (name, field) in fields {
            match properties.get(name) {
                Some(schema) => differences(root, schema, field, &format!("{at}/{name}"), out),
                None => out.push(format!("{at}: unexpected field `{name}`")),
            }
        }
    }
    if let (Some(items), Value::Array(entries)) = (object.get("items"), value) {
        for (i, entry) in entries.iter().enumerate() {
            differences(root, items, entry, &format!("{at}/{i}"), out);
        }
    }
}

#[track_caller]
pub(crate) fn fits(name: &str, text: &str) -> Value {
    each_fits(name, [text]).remove(0)
}

/// Every text is a document of that schema.
#[track_caller]
pub(crate) fn each_fits<'a>(name: &str, texts: impl IntoIterator<Item = &'a str>) -> Vec<Value> {
    let schema = schema(name);
    let mut values = Vec::new();
    for text in texts {
        let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in:\n{text}"));
        let mut out = Vec::new();
        differences(&schema, &schema, &value, "", &mut out);
        assert!(out.is_empty(), "{}\nin {text}", out.join("\n"));
        values.push(value);
    }
    values
}

#[test]
fn check_writes_what_its_schema_says() {
    let folder = Folder::new("json-check");
    let runs: &[&[&str]] = &[
        &["check", "handover", "hold-and-wait", "real-conversation"],
        &["check", "handover", "--drop", "success-needs-all-parts", "--exact", "--grain", "finest"],
        &["check", "handover", "--max-states", "10"],
        &["check", "handover", "--max-memory", "1K"],
        &["check", "reload-before-prefill-read", "--grain", "atomic"],
        &["check", "contended-reload", "handover", "--reduce"],
    ];
    for args in runs {
        let ran = folder.run(&[args, ["--format", "json"].as_slice()].concat());
        let value = fits("check.schema.json", &ran.stdout);
        for cause in value["scenarios"][0]["causes"].as_array().expect("a list") {
            let trace = cause["trace"].as_str().expect("a text");
            let parsed = kvweft_trace::TraceFile::parse(trace).expect("it is a trace");
            assert_eq!(Some(parsed.steps.len() as u64), cause["steps"].as_u64());
            assert_eq!(cause["property"], parsed.violates);
        }
    }
}

#[test]
fn repair_writes_what_its_schema_says() {
    let folder = Folder::new("json-repair");
    let runs: &[(&[&str], i32)] = &[
        (&["repair", "case-all-causes", "--format", "json"], 0),
        (&["repair", "reload-before-prefill-read", "--max-states", "10", "--format", "json"], 3),
    ];
    for (args, code) in runs {
        let ran = folder.run(args);
        ran.ends_with(*code);
        let value = fits("repair.schema.json", &ran.stdout);
        let breaking = value["properties"].as_array().expect("a list").iter().flat_map(|p| p["broken_by"].as_array());
        for cause in breaking.flatten() {
            kvweft_trace::TraceFile::parse(cause["trace"].as_str().expect("a text")).expect("it is a trace");
        }
        assert_eq!(value["unknown"].as_array().expect("a list").is_empty(), *code == 0);
    }
}

#[test]
fn replay_writes_what_its_schema_says() {
    let folder = Folder::new("json-replay");
    let trace = folder.trace("reload-before-prefill-read", "reads-see-own-content");
    let whole = fits("replay.schema.json", &folder.run(&["replay", &trace, "--format", "json"]).stdout);
    assert_eq!((&whole["violated"], &whole["impossible"]), (&Value::Bool(true), &Value::Null));
    let fenced = folder.run(&["replay", &trace, "--format", "json", "--all-rules"]);
    fenced.ends_with(1);
    let fenced = fits("replay.schema.json", &fenced.stdout);
    assert_eq!(fenced["impossible"]["owed_to"], "index-read-waits-layer@ragged-prefill");
    assert_eq!((&fenced["violated"], fenced["steps"].as_u64()), (&Value::Bool(false), Some(17)));
}

#[test]
fn list_writes_what_its_schema_says() {
    let folder = Folder::new("json-list");
    for what in ["scenarios", "rules", "properties", "models", "cells"] {
        let ran = folder.run(&["list", what, "--format", "json"]);
        let value = fits("list.schema.json", &ran.stdout);
        assert_eq!(value["of"], what);
        assert!(!value["rows"].as_array().expect("a list").is_empty());
    }
}

#[test]
fn a_document_that_differs_from_its_schema_is_noticed() {
    let schema = schema("replay.schema.json");
    let good = serde_json::json!({
        "format": "kvweft-replay", "version": 1, "scenario": "s", "violates": "p", "violated": true, "failure": "step",
        "detail": "d",
        "steps": 3, "impossible": null, "threads": null,
    });
    let cases = [
        ("version", serde_json::json!(2), "/version: expected 1, found 2"),
        ("violated", serde_json::json!("yes"), "/violated: expected boolean, found string"),
        ("extra", Value::Null, ": unexpected field `extra`"),
    ];
    for (field, value, expected) in cases {
        let mut bad = good.clone();
        bad[field] = value;
        let mut out = Vec::new();
        differences(&schema, &schema, &bad, "", &mut out);
        assert_eq!(out, [expected]);
    }
    let mut bad = good.clone();
    bad.as_object_mut().expect("an object").remove("steps");
    let mut out = Vec::new();
    differences(&schema, &schema, &bad, "", &mut out);
    assert_eq!(out, [": expected a field `steps`"]);
}
