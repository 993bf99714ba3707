//! Thresholds of the trace rules: each trigger of the table of constants can be set for an analysis.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::constants::{Constant, Entry, TRIGGERS, Unit};

/// The triggers that are set; the others have the values of the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thresholds {
    set: BTreeMap<String, f64>,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ThresholdError {
    #[error("{text:?} is not a threshold\n  help: write RULE=VALUE, for instance TR104=5% or TR109=200")]
    Form { text: String },
    #[error("{key}: there is no such threshold\n  help: one of {}", known())]
    Unknown { key: String },
    #[error("{key} = {value:?} is not a valid value\n  help: {help}")]
    Value { key: String, value: String, help: &'static str },
}

impl Thresholds {
    pub fn of(&self, trigger: &Constant<f64>) -> f64 {
        self.set.get(&trigger.entry.key()).copied().unwrap_or_else(|| trigger.get())
    }

    /// Sets a threshold. `TR104=5%`: a rule by its code, or one of its triggers by name (`TR113.roof-percent=20%`).
    pub fn set(&mut self, text: &str) -> Result<(), ThresholdError> {
        let Some((key, value)) = text.split_once('=') else {
            return Err(ThresholdError::Form { text: text.to_string() });
        };
        self.set_key(key.trim(), value.trim())
    }

    pub fn set_key(&mut self, key: &str, value: &str) -> Result<(), ThresholdError> {
        let trigger = TRIGGERS.iter().find(|trigger| is_meant(trigger, key));
        let trigger = trigger.ok_or_else(|| ThresholdError::Unknown { key: key.to_string() })?;
        let (most, of_percent, help) = match trigger.unit {
            Unit::Share => (1.0, Some(0.01), "a share of 0 to 100%, such as 5% or 0.05"),
            Unit::Percent => (100.0, Some(1.0), "a percentage of 0 to 100, such as 30% or 30"),
            _ => (f64::MAX, None, "a number of 0 or more"),
        };
        let number = match value.strip_suffix('%') {
            Some(digits) => of_percent.and_then(|scale| Some(digits.trim().parse::<f64>().ok()? * scale)),
            None => value.parse().ok(),
        };
        let Some(number) = number.filter(|number| (0.0..=most).contains(number)) else {
            return Err(ThresholdError::Value { key: key.to_string(), value: value.to_string(), help });
        };
        self.set.insert(trigger.key(), number);
        Ok(())
    }
}

/// A rule's code alone means its first trigger.
fn is_meant(trigger: &Entry, key: &str) -> bool {
    let known = trigger.key();
    match key.split_once('.') {
        Some((code, name)) => {
            known.split_once('.').is_some_and(|own| own.0.eq_ignore_ascii_case(code) && own.1 == name)
        }
        None => trigger.group.eq_ignore_ascii_case(key),
    }
}

fn known() -> String {
    TRIGGERS.iter().map(|trigger| trigger.key()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constants::{tr103, tr104, tr109, tr113};

    #[test]
    fn a_threshold_is_set_by_its_rule_or_its_name() {
        let mut thresholds = Thresholds::default();
        for text in ["TR104=20%", "tr103 = 0.25", "TR113.roof-percent=15%", "TR109=500"] {
            thresholds.set(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        }
        let set = [
            thresholds.of(&tr104::DATA_LOADING_SHARE),
            thresholds.of(&tr103::LAUNCH_BOUND_SHARE),
            thresholds.of(&tr113::ROOF_PERCENT),
            thresholds.of(&tr109::OPTIMIZER_KERNELS_PER_STEP),
        ];
        assert_eq!(set, [0.2, 0.25, 15.0, 500.0]);
        assert_eq!(thresholds.of(&tr113::ROOF_SHARE), 0.03, "the others keep theirs");
    }

    #[test]
    fn what_is_no_threshold_is_refused_with_what_would_be() {
        for (text, says) in [
            ("TR104", "RULE=VALUE"),
            ("TR999=5%", "TR104.data-loading-share"),
            ("TR104.roof-percent=5%", "TR113.roof-percent"),
            ("TR104=much", "0 to 100%"),
            ("TR104=120%", "0 to 100%"),
            ("TR109=5%", "a number"),
            ("TR104=-1%", "0 to 100%"),
            ("TR104=NaN", "0 to 100%"),
        ] {
            let error = Thresholds::default().set(text).expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
