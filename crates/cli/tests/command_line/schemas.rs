//! Documents that commands print are valid under the schemas of docs/schemas. `cargo xtask interop` checks the same with
//! the package `jsonschema`, which a plain test does not need.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::place::Place;
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn schema(name: &str) -> Value {
    let text = fs::read_to_string(root().join(format!("docs/schemas/{name}.json"))).expect("is a schema");
    serde_json::from_str(&text).expect("is JSON")
}

/// Parts of `value` that the schema does not allow, by their path.
fn faults(whole: &Value, schema: &Value, value: &Value, path: &str) -> Vec<String> {
    let keywords = schema.as_object().expect("a schema is an object");
    keywords.iter().flat_map(|(keyword, told)| fault(whole, (keyword, told), keywords, value, path)).collect()
}

fn fault(
    whole: &Value,
    (keyword, told): (&str, &Value),
    schema: &serde_json::Map<String, Value>,
    value: &Value,
    path: &str,
) -> Vec<String> {
    let refused = |is_refused: bool| match is_refused {
        true => vec![format!("{path}: {keyword} {told}, and it is {}", shortened(value))],
        false => vec![],
    };
    let (entries, members) = (value.as_array(), value.as_object());
    match keyword {
        "$schema" | "title" | "description" | "$defs" => vec![],
        "$ref" => {
            let pointer = told.as_str().and_then(|text| text.strip_prefix('#')).expect("a reference into the schema");
            faults(whole, whole.pointer(pointer).expect("is defined"), value, path)
        }
        "type" => refused(!names(told).iter().any(|name| is_of(value, name))),
        "enum" => refused(!told.as_array().expect("a list").contains(value)),
        "const" => refused(told != value),
        "minimum" => refused(value.as_f64().is_some_and(|number| number < told.as_f64().expect("a number"))),
        "minItems" => refused(entries.is_some_and(|entries| (entries.len() as u64) < told.as_u64().expect("a number"))),
        "maxItems" => refused(entries.is_some_and(|entries| entries.len() as u64 > told.as_u64().expect("a number"))),
        "required" => {
            let missing = |name: &str| members.is_some_and(|members| !members.contains_key(name));
            let missing = names(told).into_iter().filter(|name| missing(name));
            missing.map(|name| format!("{path}: {name} is missing")).collect()
        }
        "properties" => {
            let known = told.as_object().expect("an object");
            let of = |(name, value): (&String, &Value)| {
                known.get(name).map_or(vec![], |schema| faults(whole, schema, value, &format!("{path}.{name}")))
            };
            members.into_iter().flatten().flat_map(of).collect()
        }
        "additionalProperties" => {
            let known = schema.get("properties").and_then(Value::as_object);
            let others = members.into_iter().flatten();
            let others = others.filter(|(name, _)| known.is_none_or(|known| !known.contains_key(*name)));
            let of = |(name, value): (&String, &Value)| match told {
                Value::Bool(true) => vec![],
                Value::Bool(false) => vec![format!("{path}: {name} is not in the schema")],
                schema => faults(whole, schema, value, &format!("{path}.{name}")),
            };
            others.flat_map(of).collect()
        }
        "items" => {
            let of = |(at, value): (usize, &Value)| faults(whole, told, value, &format!("{path}[{at}]"));
            entries.into_iter().flatten().enumerate().flat_map(of).collect()
        }
        "anyOf" => {
            let of = |schema: &Value| faults(whole, schema, value, path);
            let tried: Vec<Vec<String>> = told.as_array().expect("a list").iter().map(of).collect();
            tried.into_iter().min_by_key(Vec::len).expect("one at least")
        }
        other => panic!("{path}: this test does not know the keyword {other}"),
    }
}

fn names(told: &Value) -> Vec<&str> {
    told.as_array()
        .map_or_else(|| told.as_str().into_iter().collect(), |names| names.iter().filter_map(Value::as_str).collect())
}

fn is_of(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no such type: {other}"),
    }
}

fn shortened(value: &Value) -> String {
    value.to_string().chars().take(80).collect()
}

/// Checks what a command prints; it may end with 1, the answer no.
fn check(place: &Place, name: &str, line: &str) -> Value {
    let document = place.run(line).stdout;
    let document: Value = serde_json::from_str(&document).unwrap_or_else(|error| panic!("{line}: {error}"));
    let schema = schema(name);
    let found = faults(&schema, &schema, &document, "");
    assert!(found.is_empty(), "{line}:\n{}", found[..found.len().min(5)].join("\n"));
    document
}

fn stored_traces() -> Vec<PathBuf> {
    let runs = fs::read_dir(root().join("crates/diagnosis/tests/data/runs")).expect("a folder").flatten();
    let folders = runs.map(|entry| entry.path()).chain([root().join("crates/trace/tests/data")]);
    let files = folders.flat_map(|folder| fs::read_dir(folder).expect("a folder").flatten());
    let is_trace = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains("trace"));
    files.map(|entry| entry.path()).filter(|path| is_trace(path) && path.is_file()).collect()
}

#[test]
fn analyses_of_all_stored_traces_are_valid_under_their_schema() {
    let place = Place::new();
    let traces = stored_traces();
    assert!(traces.len() >= 10, "{traces:?}");
    let mut keys = BTreeSet::new();
    for trace in &traces {
        let document = check(&place, "analyze", &format!("analyze --format json {}", trace.display()));
        keys.extend(document.as_object().expect("an object").keys().cloned());
    }
    assert!(["run", "ranks", "roadmap"].iter().all(|key| keys.contains(*key)), "{keys:?}");
    let [slow, fixed] =
        ["slow", "fixed"].map(|name| root().join(format!("crates/trace/tests/data/{name}.pt.trace.json.gz")));
    let [slow, fixed] = [slow.display(), fixed.display()];
    let source = root().join("crates/cli/tests/data/slow_train");
    check(&place, "analyze", &format!("analyze --format json --source {} {slow}", source.display()));
    let several = check(&place, "analyze", &format!("analyze --format json {slow} {fixed}"));
    assert_eq!(several["runs"].as_array().map(Vec::len), Some(2));
    check(&place, "compare", &format!("compare --json --fail-if step>5% {slow} {fixed}"));
    check(&place, "explain", "explain --format json TR104");
    check(&place, "explain", "explain --format json");
    check(&place, "lint", &format!("lint --format json --pedantic --trace {slow} {}", source.display()));
}

#[test]
fn a_schema_refuses_what_it_does_not_describe() {
    let place = Place::new();
    let trace = root().join("crates/trace/tests/data/slow.pt.trace.json.gz");
    let document = check(&place, "analyze", &format!("analyze --format json {}", trace.display()));
    let schema = schema("analyze");
    let faulty = |change: &dyn Fn(&mut Value)| {
        let mut document = document.clone();
        change(&mut document);
        faults(&schema, &schema, &document, "").join("\n")
    };
    let missing = faulty(&|document| drop(document.as_object_mut().expect("an object").remove("trust")));
    assert!(missing.contains("trust is missing"), "{missing}");
    let unknown = faulty(&|document| document["findings"][0]["colour"] = json!("red"));
    assert!(unknown.contains("colour is not in the schema"), "{unknown}");
    let of_another_type = faulty(&|document| document["findings"][0]["saving_expected_share"] = json!("much"));
    assert!(of_another_type.contains(".findings[0].saving_expected_share"), "{of_another_type}");
    let severity = faulty(&|document| document["findings"][0]["severity"] = json!("dreadful"));
    assert!(severity.contains("enum"), "{severity}");
}
