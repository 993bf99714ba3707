//! validation.json of a PyTorch script: predicted and measured gain of each remedy, and the gates for those kept.

use crate::provenance::{Origin, Provenance};
use crate::validation::GateRecord;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScriptRecord {
    pub schema_version: u32,
    /// Always `script`; the file of our own model does not have this key.
    pub kind: String,
    pub timestamp: String,
    pub command: Vec<String>,
    pub device: String,
    pub torch: String,
    /// `device` (events on its stream) or `host` (host clock).
    pub measured_on: String,
    /// The unmodified script: the geometric mean over processes of each mean step, ignoring a single stall.
    pub baseline_step_seconds: f64,
    pub timed_steps: u64,
    pub baseline_memory_mb: Option<f64>,
    /// Largest relative difference of the losses between two runs of the unmodified script.
    pub own_loss_spread: f64,
    /// Calls of the script that make its seeded runs differ, as sentences; empty if they do not, or none was found.
    #[serde(default)]
    pub own_loss_sources: Vec<String>,
    /// By priority.
    pub findings: Vec<ScriptFinding>,
    /// Those that were tried come first, in the order of the trials.
    pub remedies: Vec<RemedyRow>,
    pub kept: Vec<String>,
    /// The strongest class among those kept: `same`, `rounding` or `precision`.
    pub class: String,
    pub speedup: f64,
    pub ci95_low: f64,
    pub ci95_high: f64,
    /// Processes per side.
    pub rounds: u64,
    /// The form in which that speed was measured: `patch` (the patched script), or `remedies` applied from outside, where no patch could be
    /// written or it did not run. `None` if nothing was kept.
    #[serde(default)]
    pub proved_as: Option<String>,
    pub prediction: Option<RemedyPrediction>,
    pub gates: BTreeMap<String, GateRecord>,
    pub patch: Option<PatchRecord>,
    /// True if nothing was tried: the file has only remedies and predictions.
    pub dry_run: bool,
    /// `finished`; `interrupted` by a person, who left time to prove what was kept or not; or `failed` after the recording.
    #[serde(default = "finished")]
    pub ended: String,
    /// Why it failed.
    #[serde(default)]
    pub failure: Option<String>,
    /// The search inside one process; `None` if remedies were tried by processes alone.
    #[serde(default)]
    pub search: Option<SwitchSearch>,
    pub processes: u64,
    pub seconds: f64,
    pub provenance: Provenance,
}

fn finished() -> String {
    "finished".into()
}

/// The search that switches remedies between the steps of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwitchSearch {
    /// Processes that took orders, one after the other.
    pub processes: u64,
    /// Blocks of steps, and replayed steps.
    pub blocks: u64,
    /// The chance that the search keeps a switch without effect.
    pub chance: f64,
    pub switches: Vec<SwitchRow>,
    /// In the order in which they were timed.
    pub rounds: Vec<RoundRow>,
}

/// A remedy that can be switched on and off in a running script.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwitchRow {
    pub name: String,
    /// `between_steps`, or `start` if it acts only when the script starts.
    pub place: String,
    /// Steps until it has its full effect.
    pub settle_steps: u32,
    /// Why it has nothing to do.
    pub obstacle: Option<String>,
    /// A step replayed with and without it: `same`, `differs` or `not_possible`; `None` if none was.
    pub shadow: Option<String>,
    pub shadow_reason: Option<String>,
    #[serde(default)]
    pub shadow_seconds: Option<f64>,
    /// `kept`, `no gain`, `replaced`, `slower`, `differs`, `failed`, `void` or `untried`, and why.
    pub verdict: String,
    pub reason: Option<String>,
}

/// One block of every variant of a race, in random order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundRow {
    pub race: u64,
    /// `select` or `confirm`.
    pub stage: String,
    pub round: u64,
    /// Seconds left for the search inside the process when the round was complete.
    #[serde(default)]
    pub seconds_left: f64,
    /// The first one is what the others are compared with.
    pub blocks: Vec<RoundBlock>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundBlock {
    /// Remedies that were on.
    pub on: Vec<String>,
    /// Seconds per step, over steps whose inputs have equal shapes.
    pub step_seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScriptFinding {
    pub code: String,
    pub name: String,
    pub message: String,
    pub percent_of_step: Option<f64>,
    /// From the roadmap's replay of the step.
    pub expected_saving_percent: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemedyRow {
    pub name: String,
    pub class: String,
    pub about: String,
    /// Rules whose findings it addresses.
    pub answers: Vec<String>,
    /// Percent of the unmodified script's step.
    pub predicted_saving_percent: Option<f64>,
    /// Percent of the same step, in addition to what was kept before it.
    pub saving_percent: Option<f64>,
    /// Relative to what was kept before it.
    pub speedup: Option<f64>,
    pub ci95_low: Option<f64>,
    pub ci95_high: Option<f64>,
    pub rounds: Option<u64>,
    pub memory_before_mb: Option<f64>,
    pub memory_after_mb: Option<f64>,
    /// Time until the first timed step, and time spent compiling; neither is part of the step time.
    pub warmup_seconds: Option<f64>,
    pub compile_seconds: Option<f64>,
    pub kept: bool,
    /// Whether it applies to the script and was asked for.
    #[serde(default)]
    pub applies: bool,
    /// Whether a process ran with it.
    pub was_tried: bool,
    pub outcome: String,
    /// Changes that the hook reports.
    pub did: Vec<String>,
    /// Checks of the variant in which it was tried, if it was fast enough for them.
    #[serde(default)]
    pub gates: BTreeMap<String, GateRecord>,
}

impl RemedyRow {
    /// Files of older versions list a remedy that ran out of time before its first process as tried.
    pub fn has_run(&self) -> bool {
        self.was_tried && !self.outcome.starts_with("not tried")
    }

    /// Whether more time or a quieter machine could settle the outcome.
    pub fn is_open(&self) -> bool {
        let is_open = |begin: &str| self.outcome.starts_with(begin);
        self.applies && ["not decided", "not tried", "ended after"].into_iter().any(is_open)
    }
}

/// Prediction accuracy over the remedies that saved more than 5% of the step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemedyPrediction {
    pub remedies: u64,
    /// Difference between predicted and measured saving, in percent of the measured saving.
    pub median_error_percent_of_saving: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PatchRecord {
    /// Files that it changes.
    pub files: Vec<String>,
    /// Lines that a person has to add, if no patch could be written.
    pub by_hand: Vec<String>,
    /// Command-line options that have the same effect.
    pub options: Vec<String>,
    /// Speed of the patched script relative to the unmodified one, measured without the hook's remedies.
    pub speedup: Option<f64>,
    pub ci95_low: Option<f64>,
    pub ci95_high: Option<f64>,
    pub rounds: u64,
    /// Whether it was written to the user's files.
    pub applied: bool,
    /// Why it was not measured, or not applied.
    pub note: Option<String>,
}

/// Savings below this percent of the step say nothing about the predictions.
const LARGE: f64 = 5.0;

impl RemedyPrediction {
    /// `None` if no remedy saved that much with 95% confidence. A large saving that was not predicted counts as
    /// completely wrong.
    pub fn of(rows: &[RemedyRow]) -> Option<RemedyPrediction> {
        let mut errors: Vec<f64> = rows
            .iter()
            .filter(|row| row.ci95_low.is_some_and(|low| low > 1.0))
            .filter_map(|row| row.saving_percent.filter(|saving| *saving > LARGE).map(|saving| (row, saving)))
            .map(|(row, saving)| 100.0 * (row.predicted_saving_percent.unwrap_or(0.0) - saving).abs() / saving)
            .collect();
        errors.sort_by(f64::total_cmp);
        let middle = errors.len() / 2;
        let median = match errors.len() % 2 {
            0 => (errors.get(middle.checked_sub(1)?)? + errors[middle]) / 2.0,
            _ => errors[middle],
        };
        Some(RemedyPrediction { remedies: errors.len() as u64, median_error_percent_of_saving: median })
    }
}

impl ScriptRecord {
    /// Adds the provenance of every figure.
    pub fn with_provenance(mut self) -> ScriptRecord {
        let mut provenance = Provenance::of(&[
            ("baseline_step_seconds", Origin::Measured),
            ("timed_steps", Origin::Assumed),
            ("own_loss_spread", Origin::Measured),
            ("speedup", Origin::Measured),
            ("ci95_low", Origin::Measured),
            ("ci95_high", Origin::Measured),
            ("rounds", Origin::Computed),
            ("processes", Origin::Computed),
            ("seconds", Origin::Measured),
        ]);
        if self.baseline_memory_mb.is_some() {
            provenance.set("baseline_memory_mb", Origin::Measured);
        }
        if !self.findings.is_empty() {
            if self.findings.iter().any(|finding| finding.percent_of_step.is_some()) {
                provenance.set("findings.percent_of_step", Origin::Measured);
            }
            provenance.set("findings.expected_saving_percent", Origin::Computed);
        }
        let rows = &self.remedies;
        if rows.iter().any(|row| row.predicted_saving_percent.is_some()) {
            provenance.set("remedies.predicted_saving_percent", Origin::Computed);
        }
        for (key, has, origin) in [
            ("saving_percent", rows.iter().any(|row| row.saving_percent.is_some()), Origin::Measured),
            ("speedup", rows.iter().any(|row| row.speedup.is_some()), Origin::Measured),
            ("ci95_low", rows.iter().any(|row| row.ci95_low.is_some()), Origin::Measured),
            ("ci95_high", rows.iter().any(|row| row.ci95_high.is_some()), Origin::Measured),
            ("rounds", rows.iter().any(|row| row.rounds.is_some()), Origin::Computed),
            ("memory_before_mb", rows.iter().any(|row| row.memory_before_mb.is_some()), Origin::Measured),
            ("memory_after_mb", rows.iter().any(|row| row.memory_after_mb.is_some()), Origin::Measured),
            ("warmup_seconds", rows.iter().any(|row| row.warmup_seconds.is_some()), Origin::Measured),
            ("compile_seconds", rows.iter().any(|row| row.compile_seconds.is_some()), Origin::Measured),
        ] {
            if has {
                provenance.set(&format!("remedies.{key}"), origin);
            }
        }
        if rows.iter().any(|row| !row.gates.is_empty()) {
            provenance.set("remedies.gates", Origin::Measured);
        }
        if self.search.is_some() {
            provenance.set("search", Origin::Measured);
            provenance.set("search.chance", Origin::Assumed);
        }
        if self.prediction.is_some() {
            provenance.set("prediction", Origin::Computed);
        }
        if !self.gates.is_empty() {
            provenance.set("gates", Origin::Measured);
        }
        if self.patch.is_some() {
            provenance.set("patch", Origin::Measured);
        }
        self.provenance = provenance;
        self
    }

    /// Seconds per step with everything that was kept.
    pub fn kept_step_seconds(&self) -> f64 {
        self.baseline_step_seconds / self.speedup
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SCHEMA_VERSION;
    use crate::provenance::check_provenance;
    use serde_json::Value;

    fn gate() -> GateRecord {
        GateRecord {
            result: "pass".into(),
            figure: 1e-4,
            limit: 1e-3,
            about: String::new(),
            ci95_low: None,
            ci95_high: None,
        }
    }

    fn searched() -> SwitchSearch {
        let switch = SwitchRow {
            name: "tf32".into(),
            place: "between_steps".into(),
            settle_steps: 1,
            obstacle: None,
            shadow: Some("same".into()),
            shadow_reason: None,
            shadow_seconds: Some(1.0),
            verdict: "kept".into(),
            reason: None,
        };
        let block =
            |on: &[&str]| RoundBlock { on: on.iter().map(|name| name.to_string()).collect(), step_seconds: 0.1 };
        let blocks = vec![block(&[]), block(&["tf32"])];
        let round = RoundRow { race: 1, stage: "select".into(), round: 1, seconds_left: 9.0, blocks };
        SwitchSearch { processes: 1, blocks: 9, chance: 0.05, switches: vec![switch], rounds: vec![round] }
    }

    fn row(predicted: Option<f64>, saving: Option<f64>) -> RemedyRow {
        RemedyRow {
            name: "tf32".into(),
            class: "rounding".into(),
            about: "products in TF32".into(),
            answers: vec!["no-tensor-cores".into()],
            predicted_saving_percent: predicted,
            saving_percent: saving,
            speedup: Some(1.5),
            ci95_low: Some(1.4),
            ci95_high: Some(1.6),
            rounds: Some(3),
            memory_before_mb: None,
            memory_after_mb: None,
            warmup_seconds: Some(2.0),
            compile_seconds: None,
            kept: true,
            applies: true,
            was_tried: true,
            outcome: "kept: faster".into(),
            did: vec![],
            gates: [("losses".to_string(), gate())].into(),
        }
    }

    fn record() -> ScriptRecord {
        ScriptRecord {
            schema_version: SCHEMA_VERSION,
            kind: "script".into(),
            timestamp: String::new(),
            command: vec!["python".into(), "train.py".into()],
            device: "GPU".into(),
            torch: "2.9".into(),
            measured_on: "device".into(),
            baseline_step_seconds: 0.1,
            timed_steps: 20,
            baseline_memory_mb: Some(100.0),
            own_loss_spread: 0.0,
            own_loss_sources: vec![],
            findings: vec![ScriptFinding {
                code: "TR1".into(),
                name: "no-tensor-cores".into(),
                message: String::new(),
                percent_of_step: Some(60.0),
                expected_saving_percent: 40.0,
            }],
            remedies: vec![row(Some(40.0), Some(33.0)), row(None, None)],
            kept: vec!["tf32".into()],
            class: "rounding".into(),
            speedup: 1.5,
            ci95_low: 1.4,
            ci95_high: 1.6,
            rounds: 4,
            proved_as: None,
            prediction: RemedyPrediction::of(&[row(Some(40.0), Some(33.0))]),
            gates: BTreeMap::new(),
            patch: Some(PatchRecord {
                files: vec!["train.py".into()],
                by_hand: vec![],
                options: vec![],
                speedup: Some(1.5),
                ci95_low: Some(1.4),
                ci95_high: Some(1.6),
                rounds: 4,
                applied: false,
                note: None,
            }),
            dry_run: false,
            ended: "finished".into(),
            failure: None,
            search: Some(searched()),
            processes: 12,
            seconds: 100.0,
            provenance: Provenance::default(),
        }
        .with_provenance()
    }

    #[test]
    fn every_figure_has_its_origin() {
        let record = record();
        check_provenance(&serde_json::to_value(&record).unwrap()).unwrap();
        assert!((record.kept_step_seconds() - 0.1 / 1.5).abs() < 1e-12);
    }

    /// Where a document has other keys than its schema: unknown ones, and those that are missing.
    fn misfits(value: &Value, schema: &Value, whole: &Value, place: &str, found: &mut Vec<String>) {
        if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
            return misfits(value, &whole["$defs"][name], whole, place, found);
        }
        if let Some(choices) = schema["anyOf"].as_array() {
            let fits = |choice: &&Value| {
                let mut wrong = vec![];
                misfits(value, choice, whole, place, &mut wrong);
                wrong.is_empty() && (choice["type"] == "null") == value.is_null()
            };
            if !choices.iter().any(|choice| fits(&choice)) {
                found.push(format!("{place} fits none of its schemas"));
            }
            return;
        }
        if let (Some(object), Some(properties)) = (value.as_object(), schema["properties"].as_object()) {
            let missing = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            found.extend(missing.filter(|key| !object.contains_key(*key)).map(|key| format!("{place} lacks {key}")));
            for (key, value) in object {
                match properties.get(key) {
                    Some(schema) => misfits(value, schema, whole, &format!("{place}.{key}"), found),
                    None => found.push(format!("{place} has {key}")),
                }
            }
        }
        if let (Some(object), true) = (value.as_object(), schema["additionalProperties"].is_object()) {
            let inner = &schema["additionalProperties"];
            object.iter().for_each(|(key, value)| misfits(value, inner, whole, &format!("{place}.{key}"), found));
        }
        for item in value.as_array().into_iter().flatten() {
            misfits(item, &schema["items"], whole, place, found);
        }
    }

    #[test]
    fn a_record_fits_its_published_schema_key_by_key() {
        let whole: Value = serde_json::from_str(include_str!("../../../docs/schemas/optimize.json")).unwrap();
        let schema = &whole["$defs"]["ScriptRecord"];
        let mut document = serde_json::to_value(record()).unwrap();
        let found = |document: &Value| {
            let mut found = vec![];
            misfits(document, schema, &whole, "record", &mut found);
            found
        };
        assert_eq!(found(&document), [""; 0]);
        document["search"]["rounds"][0]["blocks"][0]["more"] = 1.into();
        document.as_object_mut().unwrap().remove("ended");
        assert_eq!(found(&document), ["record lacks ended", "record.search fits none of its schemas"]);
    }

    #[test]
    fn predictions_are_judged_by_remedies_that_saved_much() {
        let rows = [
            row(Some(40.0), Some(32.0)),
            row(None, Some(10.0)),
            row(Some(20.0), Some(2.0)),
            row(Some(30.0), Some(40.0)),
            row(Some(9.0), None),
        ];
        let found = RemedyPrediction::of(&rows).unwrap();
        assert_eq!((found.remedies, found.median_error_percent_of_saving), (3, 25.0));
        assert_eq!(RemedyPrediction::of(&rows[2..3]), None);
        let undecided = RemedyRow { ci95_low: Some(0.9), ..row(Some(60.0), Some(20.0)) };
        assert_eq!(RemedyPrediction::of(&[undecided]), None);
        assert_eq!(RemedyPrediction::of(&rows[..2]).unwrap().median_error_percent_of_saving, 62.5);
    }
}
