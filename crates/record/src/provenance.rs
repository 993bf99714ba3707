//! The provenance of every figure, and a check that none was forgotten.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Read from a clock, a counter or the device while it ran.
    Measured,
    /// Calculated from the model, the plan or other figures.
    Computed,
    /// Taken as given: settings, and values that were not checked.
    Assumed,
}

/// Maps dotted keys, or prefixes of them that end at a dot, to origins. The longest prefix wins. Elements of a list
/// share the list's key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Provenance(BTreeMap<String, Origin>);

impl Provenance {
    pub fn of(origins: &[(&str, Origin)]) -> Provenance {
        Provenance(origins.iter().map(|(key, origin)| (key.to_string(), *origin)).collect())
    }

    pub fn set(&mut self, key: &str, origin: Origin) {
        self.0.insert(key.to_string(), origin);
    }

    pub fn origin_of(&self, dotted_key: &str) -> Option<Origin> {
        let mut prefix = dotted_key;
        loop {
            if let Some(origin) = self.0.get(prefix) {
                return Some(*origin);
            }
            prefix = prefix.rsplit_once('.')?.0;
        }
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProvenanceError {
    #[error("the record has no `{0}`")]
    Missing(&'static str),
    #[error("the record's `provenance` does not parse: {0}")]
    Malformed(String),
    #[error("figures without provenance: {without:?}; provenance of figures that do not exist: {unused:?}")]
    Mismatch { without: Vec<String>, unused: Vec<String> },
}

/// Checks a serialized record against its own `provenance`: every number is covered, and every key names something.
pub fn check_provenance(record: &Value) -> Result<(), ProvenanceError> {
    if !record["schema_version"].is_u64() {
        return Err(ProvenanceError::Missing("schema_version"));
    }
    let stated = record.get("provenance").ok_or(ProvenanceError::Missing("provenance"))?;
    let provenance: Provenance =
        serde_json::from_value(stated.clone()).map_err(|error| ProvenanceError::Malformed(error.to_string()))?;

    let mut leaves = Leaves::default();
    for (key, value) in record.as_object().into_iter().flatten() {
        if key != "schema_version" && key != "provenance" {
            leaves.collect(key, value);
        }
    }
    let without: Vec<String> = leaves.numbers.into_iter().filter(|key| provenance.origin_of(key).is_none()).collect();
    let names_something = |key: &String| {
        leaves
            .all
            .iter()
            .any(|leaf| leaf.strip_prefix(key.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    };
    let unused: Vec<String> = provenance.0.into_keys().filter(|key| !names_something(key)).collect();
    if without.is_empty() && unused.is_empty() {
        return Ok(());
    }
    Err(ProvenanceError::Mismatch { without, unused })
}

#[derive(Default)]
struct Leaves {
    numbers: BTreeSet<String>,
    /// Includes texts and nulls: a figure that this run does not have keeps its origin.
    all: BTreeSet<String>,
}

impl Leaves {
    fn collect(&mut self, key: &str, value: &Value) {
        match value {
            Value::Object(entries) => {
                for (name, entry) in entries {
                    self.collect(&format!("{key}.{name}"), entry);
                }
            }
            Value::Array(elements) => {
                self.all.insert(key.to_string());
                for element in elements {
                    self.collect(key, element);
                }
            }
            leaf => {
                if leaf.is_number() {
                    self.numbers.insert(key.to_string());
                }
                self.all.insert(key.to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mismatch(without: &[&str], unused: &[&str]) -> Result<(), ProvenanceError> {
        let owned = |keys: &[&str]| keys.iter().map(|key| key.to_string()).collect();
        Err(ProvenanceError::Mismatch { without: owned(without), unused: owned(unused) })
    }

    #[test]
    fn a_prefix_covers_what_lies_below_it_and_nothing_beside_it() {
        let record = json!({
            "schema_version": 1, "name": "tiny", "speed": {"tokens": 1.0, "steps": 2.0}, "speeding": 3.0,
            "provenance": {"speed": "measured"},
        });
        assert_eq!(check_provenance(&record), mismatch(&["speeding"], &[]));
    }

    #[test]
    fn a_key_that_names_nothing_is_found() {
        let record = json!({"schema_version": 1, "loss": null, "provenance": {"loss": "computed", "lost": "computed", "los": "computed"}});
        assert_eq!(check_provenance(&record), mismatch(&[], &["los", "lost"]));
    }

    #[test]
    fn list_elements_share_the_lists_key() {
        let record = json!({
            "schema_version": 1, "points": [{"time_us": 1, "mb": 2}, {"time_us": 3, "mb": 4}],
            "provenance": {"points.time_us": "measured"},
        });
        assert_eq!(check_provenance(&record), mismatch(&["points.mb"], &[]));
    }

    #[test]
    fn a_record_without_version_or_provenance_or_with_another_word_is_refused() {
        let check = |record: Value| check_provenance(&record).unwrap_err();
        assert_eq!(check(json!({"provenance": {}})), ProvenanceError::Missing("schema_version"));
        assert_eq!(check(json!({"schema_version": 1})), ProvenanceError::Missing("provenance"));
        let guessed = json!({"schema_version": 1, "x": 1, "provenance": {"x": "guessed"}});
        assert!(matches!(check(guessed), ProvenanceError::Malformed(_)));
    }

    #[test]
    fn the_longest_prefix_decides() {
        let provenance = Provenance::of(&[("a", Origin::Assumed), ("a.b", Origin::Computed)]);
        assert_eq!(provenance.origin_of("a.b.c"), Some(Origin::Computed));
        assert_eq!(provenance.origin_of("a.c"), Some(Origin::Assumed));
        assert_eq!(provenance.origin_of("b"), None);
    }
}
