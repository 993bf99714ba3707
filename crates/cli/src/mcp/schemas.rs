//! The JSON schema of an answer: the document's published schema, and the envelope around it.

use serde_json::{Map, Value, json};

/// The published schema of a command's output, if there is one.
fn published(tool: &str) -> Option<&'static str> {
    Some(match tool {
        "analyze" => include_str!("../../../../docs/schemas/analyze.json"),
        "compare" => include_str!("../../../../docs/schemas/compare.json"),
        "explain" => include_str!("../../../../docs/schemas/explain.json"),
        "lint" => include_str!("../../../../docs/schemas/lint.json"),
        "runs" => include_str!("../../../../docs/schemas/runs.json"),
        _ => return None,
    })
}

/// The answer of a tool: its command's document or a part of it, and what was cut.
pub fn answer(tool: &str) -> Map<String, Value> {
    let mut document = published(tool).and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
    let definitions = document.as_mut().and_then(|document| {
        document.retain(|key, _| key != "$schema" && key != "title");
        document.remove("$defs")
    });
    let document = document.map_or(json!({ "type": "object" }), Value::Object);
    let mut schema = json!({
        "type": "object",
        "properties": {
            "document": document,
            "part": {},
            "cut": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "at": { "type": "string" },
                        "shown": { "type": "integer", "minimum": 0 },
                        "of": { "type": "integer", "minimum": 0 },
                        "unit": { "enum": ["items", "bytes"] },
                    },
                    "required": ["at", "shown", "of", "unit"],
                    "additionalProperties": false,
                },
            },
            "cut_elsewhere": { "type": "integer", "minimum": 1 },
            "more": { "type": "string" },
            "notes": { "type": "array", "items": { "type": "string" } },
            "exit_code": { "type": "integer" },
        },
        "required": ["cut", "notes", "exit_code"],
        "additionalProperties": false,
    });
    if let Some(mut definitions) = definitions {
        undescribed(&mut definitions);
        schema["$defs"] = definitions;
    }
    undescribed(&mut schema["properties"]["document"]);
    match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    }
}

/// Removes descriptions: every client reads the list of tools, and docs/schemas has them.
fn undescribed(schema: &mut Value) {
    match schema {
        Value::Object(entries) => {
            // A field with that name has a schema, not a text.
            entries.retain(|key, value| key != "description" || !value.is_string());
            entries.values_mut().for_each(undescribed);
        }
        Value::Array(items) => items.iter_mut().for_each(undescribed),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_of_an_answer_is_defined() {
        for tool in ["analyze", "compare", "explain", "lint", "runs"] {
            let schema = Value::Object(answer(tool));
            assert!(
                schema["properties"]["document"].as_object().is_some_and(|document| !document.is_empty()),
                "{tool}"
            );
            let text = schema.to_string();
            for reference in text.split("\"$ref\":\"#").skip(1) {
                let pointer = reference.split('"').next().unwrap();
                assert!(schema.pointer(pointer).is_some(), "{tool}: {pointer}");
            }
            assert!(text.len() < 60_000, "{tool}: {} bytes", text.len());
        }
        assert_eq!(answer("optimize")["properties"]["document"], json!({ "type": "object" }));
    }
}
