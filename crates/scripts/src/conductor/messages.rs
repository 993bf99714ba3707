//! The messages between search and script: one JSON object per line. `messages.json` of the Python side is the table of
//! their fields, which the script checks as it runs; a test here holds these types against it.

use serde::{Deserialize, Serialize};

/// The version of the table.
pub const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Order {
    /// Switch to these, take steps until they have settled, and time some more.
    Block { number: u64, on: Vec<String>, settle: u32, steps: u32 },
    /// Replay the last step with and without a switch on top of these.
    Shadow { number: u64, on: Vec<String>, switch: String },
    /// End the process.
    Finish {},
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Report {
    Hello(Hello),
    Block(Block),
    Shadow {
        number: u64,
        switch: String,
        /// `same`, `differs` or `not_possible`.
        verdict: String,
        reason: Option<String>,
        /// Parameters with the largest differences.
        largest: serde_json::Value,
    },
    /// The process ends: a switch failed, or the script with these switches on.
    Failed {
        switch: Option<String>,
        text: String,
    },
    /// The script came to its end.
    Ended {
        steps: u64,
    },
}

/// The script's offer, after its first steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    pub version: u32,
    pub device: String,
    /// Steps taken so far.
    pub steps: u64,
    pub switches: Vec<SwitchOffer>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchOffer {
    pub name: String,
    /// `between_steps` or `start`.
    #[serde(rename = "where")]
    pub place: String,
    /// Steps until it has its full effect.
    pub settle: u32,
    /// Why it has nothing to do here.
    pub obstacle: Option<String>,
}

impl SwitchOffer {
    pub fn is_between_steps(&self) -> bool {
        self.place == "between_steps"
    }
}

/// The timed steps of one block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    pub number: u64,
    pub steps: Vec<Step>,
    /// `device` or `host`.
    pub measured_on: String,
    /// Why it does not count.
    pub void: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub seconds: f64,
    /// Names the shapes of its inputs.
    pub shape: String,
    /// Done by the script in it beside training: `evaluation`, `saving` or `logging`.
    pub apart: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, Value, json};

    const TABLE: &str = include_str!("../../python/headroom_hook/messages.json");

    fn examples() -> (Vec<Value>, Vec<Value>) {
        let orders = [
            Order::Block { number: 1, on: vec!["tf32".into()], settle: 2, steps: 8 },
            Order::Shadow { number: 2, on: vec![], switch: "tf32".into() },
            Order::Finish {},
        ];
        let switches =
            vec![SwitchOffer { name: "tf32".into(), place: "between_steps".into(), settle: 1, obstacle: None }];
        let steps = vec![Step { seconds: 0.1, shape: "a".into(), apart: None }];
        let reports = [
            Report::Hello(Hello { version: 1, device: "cpu".into(), steps: 3, switches }),
            Report::Block(Block { number: 1, steps, measured_on: "host".into(), void: None }),
            Report::Shadow {
                number: 2,
                switch: "tf32".into(),
                verdict: "same".into(),
                reason: None,
                largest: json!([]),
            },
            Report::Failed { switch: None, text: "ValueError: no".into() },
            Report::Ended { steps: 9 },
        ];
        (orders.iter().map(to_value).collect(), reports.iter().map(to_value).collect())
    }

    fn to_value(message: &impl Serialize) -> Value {
        serde_json::to_value(message).unwrap()
    }

    /// The kinds of the table's fields, by the values that a message has.
    fn kind_of(value: &Value, wanted: &Value) -> Value {
        match (value, wanted) {
            (Value::Object(fields), Value::Object(table)) => {
                let kind = |(key, value): (&String, &Value)| {
                    (key.clone(), kind_of(value, table.get(key).unwrap_or(&Value::Null)))
                };
                Value::Object(fields.iter().filter(|(key, _)| *key != "kind").map(kind).collect::<Map<_, _>>())
            }
            (Value::Array(_), Value::String(kind)) if kind == "texts" || kind == "any" => wanted.clone(),
            (Value::Array(items), Value::Array(table)) => json!([kind_of(&items[0], &table[0])]),
            (Value::Null, Value::String(kind)) if kind.ends_with('?') => wanted.clone(),
            (Value::String(_), Value::String(kind)) if kind.trim_end_matches('?') == "text" => wanted.clone(),
            (Value::Number(number), Value::String(kind)) if number.is_u64() == (kind == "integer") => wanted.clone(),
            _ => json!(format!("unexpected {value}")),
        }
    }

    #[test]
    fn messages_have_the_fields_of_the_table_that_the_script_checks() {
        let table: Value = serde_json::from_str(TABLE).unwrap();
        assert_eq!(table["version"], VERSION);
        let (orders, reports) = examples();
        for (direction, messages) in [("orders", &orders), ("reports", &reports)] {
            let kinds: Vec<&str> = messages.iter().map(|message| message["kind"].as_str().unwrap()).collect();
            let known: Vec<&String> = table[direction].as_object().unwrap().keys().collect();
            assert_eq!(kinds, known);
            for message in messages {
                let wanted = &table[direction][message["kind"].as_str().unwrap()];
                assert_eq!(&kind_of(message, wanted), wanted, "{message}");
            }
        }
    }

    #[test]
    fn a_misspelt_or_missing_field_is_refused() {
        let (orders, reports) = examples();
        for message in &reports {
            assert!(serde_json::from_value::<Report>(message.clone()).is_ok(), "{message}");
        }
        for message in &orders {
            assert!(serde_json::from_value::<Order>(message.clone()).is_ok(), "{message}");
        }
        let read = |text: &str| serde_json::from_str::<Report>(text);
        assert!(read(r#"{"kind": "ended", "steps": 1}"#).is_ok());
        for wrong in [
            r#"{"kind": "ended", "step": 1}"#,
            r#"{"kind": "ended", "steps": 1, "more": 2}"#,
            r#"{"kind": "finished", "steps": 1}"#,
            r#"{"kind": "block", "number": 1, "steps": [{"second": 1}], "measured_on": "host", "void": null}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
