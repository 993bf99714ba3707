//! Thresholds of the trace rules: every trigger has a default and can be set.

use thiserror::Error;

/// Shares refer to the step unless stated otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds {
    pub idle_share: f64,
    pub launch_bound_share: f64,
    pub nothing_ahead_share: f64,
    pub data_loading_share: f64,
    pub copies_share: f64,
    pub tensor_core_share: f64,
    pub attention_share: f64,
    pub small_kernels_share: f64,
    pub optimizer_kernels_per_step: f64,
    pub memory_share_of_device: f64,
    pub growth_per_step: f64,
    pub roof_share: f64,
    pub roof_percent: f64,
    pub exposed_share: f64,
    pub overlap_share: f64,
    pub skew_share: f64,
    pub occupancy_percent: f64,
    pub step_spread: f64,
    pub one_operator_share: f64,
    pub profiler_share: f64,
    pub stalled_share: f64,
    pub device_copies_share: f64,
    /// Thresholds of TR121 to TR128, on the largest possible saving of a missing pass.
    pub pass_shares: [f64; 8],
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds {
            idle_share: 0.15,
            launch_bound_share: 0.1,
            nothing_ahead_share: 0.5,
            data_loading_share: 0.05,
            copies_share: 0.05,
            tensor_core_share: 0.03,
            attention_share: 0.03,
            small_kernels_share: 0.03,
            optimizer_kernels_per_step: 100.0,
            memory_share_of_device: 0.9,
            growth_per_step: 0.005,
            roof_share: 0.03,
            roof_percent: 20.0,
            exposed_share: 0.03,
            overlap_share: 0.7,
            skew_share: 0.05,
            occupancy_percent: 25.0,
            step_spread: 1.5,
            one_operator_share: 0.5,
            profiler_share: 0.1,
            stalled_share: 0.05,
            device_copies_share: 0.03,
            pass_shares: [0.01; 8],
        }
    }
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
    /// Sets a threshold. `TR104=5%`: a rule by its code, or one of its triggers by name (`TR113.roof-percent=20%`).
    pub fn set(&mut self, text: &str) -> Result<(), ThresholdError> {
        let Some((key, value)) = text.split_once('=') else {
            return Err(ThresholdError::Form { text: text.to_string() });
        };
        self.set_key(key.trim(), value.trim())
    }

    pub fn set_key(&mut self, key: &str, value: &str) -> Result<(), ThresholdError> {
        let trigger = TRIGGERS.iter().find(|trigger| trigger.answers_to(key));
        let trigger = trigger.ok_or_else(|| ThresholdError::Unknown { key: key.to_string() })?;
        let error = || ThresholdError::Value {
            key: key.to_string(),
            value: value.to_string(),
            help: match trigger.unit {
                Unit::Share => "a share of 0 to 100%, such as 5% or 0.05",
                Unit::Percent => "a percentage of 0 to 100, such as 30% or 30",
                Unit::Number => "a number of 0 or more",
            },
        };
        let (digits, scale) = match (value.strip_suffix('%'), trigger.unit) {
            (Some(digits), Unit::Share) => (digits.trim(), 0.01),
            (Some(digits), Unit::Percent) => (digits.trim(), 1.0),
            (Some(_), Unit::Number) => return Err(error()),
            (None, _) => (value, 1.0),
        };
        let number = digits.parse::<f64>().map_err(|_| error())? * scale;
        let most = match trigger.unit {
            Unit::Share => 1.0,
            Unit::Percent => 100.0,
            Unit::Number => f64::MAX,
        };
        if !(0.0..=most).contains(&number) {
            return Err(error());
        }
        *(trigger.field)(self) = number;
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Unit {
    Share,
    Percent,
    Number,
}

/// One trigger of a rule; a rule's code alone means its first.
struct Trigger {
    code: &'static str,
    name: &'static str,
    unit: Unit,
    field: fn(&mut Thresholds) -> &mut f64,
}

impl Trigger {
    fn answers_to(&self, key: &str) -> bool {
        let (code, name) = key.split_once('.').map_or((key, None), |(code, name)| (code, Some(name)));
        self.code.eq_ignore_ascii_case(code) && name.is_none_or(|name| name == self.name)
    }
}

fn known() -> String {
    TRIGGERS.iter().map(|trigger| format!("{}.{}", trigger.code, trigger.name)).collect::<Vec<_>>().join(", ")
}

const TRIGGERS: &[Trigger] = &[
    // idle time of the device
    Trigger { code: "TR102", name: "idle-share", unit: Unit::Share, field: |all| &mut all.idle_share },
    // time spent on launches
    Trigger { code: "TR103", name: "launch-bound-share", unit: Unit::Share, field: |all| &mut all.launch_bound_share },
    // share of launches that find nothing queued ahead
    Trigger {
        code: "TR103",
        name: "nothing-ahead-share",
        unit: Unit::Share,
        field: |all| &mut all.nothing_ahead_share,
    },
    // time in the loader
    Trigger { code: "TR104", name: "data-loading-share", unit: Unit::Share, field: |all| &mut all.data_loading_share },
    // copies between host and device
    Trigger { code: "TR105", name: "copies-share", unit: Unit::Share, field: |all| &mut all.copies_share },
    // GEMMs that could use tensor cores but do not
    Trigger { code: "TR106", name: "tensor-core-share", unit: Unit::Share, field: |all| &mut all.tensor_core_share },
    // attention with its scores in memory
    Trigger { code: "TR107", name: "attention-share", unit: Unit::Share, field: |all| &mut all.attention_share },
    // runs of element-wise kernels, without the longest of each
    Trigger {
        code: "TR108",
        name: "small-kernels-share",
        unit: Unit::Share,
        field: |all| &mut all.small_kernels_share,
    },
    // element-wise kernels of the optimizer per step
    Trigger {
        code: "TR109",
        name: "optimizer-kernels-per-step",
        unit: Unit::Number,
        field: |all| &mut all.optimizer_kernels_per_step,
    },
    // peak memory, as a share of the device's
    Trigger {
        code: "TR110",
        name: "memory-share-of-device",
        unit: Unit::Share,
        field: |all| &mut all.memory_share_of_device,
    },
    // growth of live memory from step to step
    Trigger { code: "TR112", name: "growth-a-step", unit: Unit::Share, field: |all| &mut all.growth_per_step },
    // time of an operator above its roof
    Trigger { code: "TR113", name: "roof-share", unit: Unit::Share, field: |all| &mut all.roof_share },
    // percentage of its roof up to which an operator is reported
    Trigger { code: "TR113", name: "roof-percent", unit: Unit::Percent, field: |all| &mut all.roof_percent },
    // collectives not hidden behind compute
    Trigger { code: "TR115", name: "exposed-share", unit: Unit::Share, field: |all| &mut all.exposed_share },
    // share of collectives hidden behind compute, above which nothing is reported
    Trigger { code: "TR115", name: "overlap-share", unit: Unit::Share, field: |all| &mut all.overlap_share },
    // time that a rank keeps the others waiting
    Trigger { code: "TR116", name: "skew-share", unit: Unit::Share, field: |all| &mut all.skew_share },
    // occupancy below which a batch counts as small
    Trigger { code: "TR117", name: "occupancy-percent", unit: Unit::Percent, field: |all| &mut all.occupancy_percent },
    // a step's length divided by the median
    Trigger { code: "TR118", name: "step-spread", unit: Unit::Number, field: |all| &mut all.step_spread },
    // one operator on the host while the device is idle
    Trigger { code: "TR119", name: "one-operator-share", unit: Unit::Share, field: |all| &mut all.one_operator_share },
    // the profiler's own share
    Trigger { code: "TR120", name: "profiler-share", unit: Unit::Share, field: |all| &mut all.profiler_share },
    Trigger { code: "TR121", name: "saving-share", unit: Unit::Share, field: |all| &mut all.pass_shares[0] },
    Trigger { code: "TR122", name: "saving-share", unit: Unit::Share, field: |all| &mut all.pass_shares[1] },
    Trigger { code: "TR123", name: "saving-share", unit: Unit::Share, field: |all| &mut all.pass_shares[2] },
    Trigger { code: "TR124", name: "saving-share", unit: Unit::Share, field: |all| &mut all.pass_shares[3] },
    Trigger { code: "TR125", name: "saving-share", unit: Unit::Share, field: |all| &mut all.pass_shares[4] },
    Trigger { code: "TR126", name: "saving-share", unit: Unit::Share, field: |all| &mut all.pass_shares[5] },
    Trigger { code: "TR127", name: "saving-share", unit: Unit::Share, field: |all| &mut all.pass_shares[6] },
    Trigger { code: "TR128", name: "saving-share", unit: Unit::Share, field: |all| &mut all.pass_shares[7] },
    // time in which work is queued but the device is idle
    Trigger { code: "TR130", name: "stalled-share", unit: Unit::Share, field: |all| &mut all.stalled_share },
    // copies on the device with nothing running in parallel
    Trigger {
        code: "TR131",
        name: "device-copies-share",
        unit: Unit::Share,
        field: |all| &mut all.device_copies_share,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_set_by_its_rule_or_its_name() {
        let mut thresholds = Thresholds::default();
        for text in ["TR104=20%", "tr103 = 0.25", "TR113.roof-percent=15%", "TR109=500"] {
            thresholds.set(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        }
        let want = Thresholds {
            data_loading_share: 0.2,
            launch_bound_share: 0.25,
            roof_percent: 15.0,
            optimizer_kernels_per_step: 500.0,
            ..Thresholds::default()
        };
        assert_eq!(thresholds, want);
    }

    #[test]
    fn what_is_no_threshold_is_refused_with_what_would_be() {
        for (text, says) in [
            ("TR104", "RULE=VALUE"),
            ("TR101=5%", "TR104.data-loading-share"),
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
