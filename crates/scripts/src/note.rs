//! The hook's note of one process, as far as it is used here. The hook's `measure.py` documents the keys at its top.

pub use crate::places::Places;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Note {
    pub steps: u64,
    pub phase: String,
    pub rank: Option<u64>,
    pub world_size: Option<u64>,
    pub step_seconds: Vec<f64>,
    pub measured_on: Option<String>,
    /// Set if loader workers made batches ahead.
    pub made_ahead: Option<MadeAhead>,
    /// Seconds that loader workers need to make the batches of one step.
    pub making_seconds: Option<f64>,
    pub warmup_steps: u64,
    pub seconds_to_first_step: Option<f64>,
    pub warmup_seconds: Option<f64>,
    pub compile: Option<Compile>,
    /// By step, one per backward pass; `None` if not finite.
    pub losses: Vec<Vec<Option<f64>>>,
    pub finite: Option<bool>,
    /// Gradient norms of some early steps, one per trained parameter; `None` if it had no gradient.
    pub gradients: Vec<Vec<Option<f64>>>,
    /// Empty if there is no loader.
    #[serde(deserialize_with = "or_empty")]
    pub samples: Vec<Option<u64>>,
    /// Steps that had been taken when an epoch of the training ended.
    pub epoch_ends: Vec<u64>,
    pub loaders: Vec<Loader>,
    pub modules: Vec<Module>,
    pub optimizers: Vec<Optimizer>,
    pub settings: Settings,
    pub machine: Machine,
    pub peak_bytes: Option<u64>,
    pub peak_reserved_bytes: Option<u64>,
    /// All memory of the device.
    pub device_bytes: Option<u64>,
    pub peak_resident_bytes: Option<u64>,
    pub seeds_itself: bool,
    /// The script's own draws from the system, and the seeds that it set itself.
    pub entropy: Vec<SeedSource>,
    pub seeds: Vec<SeedSource>,
    pub exception: Option<String>,
    pub problems: Vec<Problem>,
    pub remedies: BTreeMap<String, Applied>,
    pub offered: Option<BTreeMap<String, Offer>>,
    /// Places where a patch is written.
    pub places: Option<Places>,
    pub error: Option<String>,
}

/// Batches used by the timed steps, and how many of them came from a queue that workers did not refill.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct MadeAhead {
    pub taken: f64,
    pub used_up: f64,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Compile {
    pub seconds: f64,
    pub seconds_in_timed: f64,
    pub graphs: u64,
    pub failures: u64,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Loader {
    pub digests: Vec<String>,
    pub draws_random: Option<bool>,
    pub batches: u64,
    pub iterable: bool,
    /// The result of reading batches of workers again; only in proofs, and with workers.
    pub reread: Option<Reread>,
    pub workers: u64,
    pub persistent: bool,
    /// Batches that each worker prefetches.
    pub prefetch: Option<u64>,
    pub pinned: bool,
}

/// Batches of workers, read again as the unmodified script would have read them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Reread {
    pub batches: u64,
    pub samples: u64,
    pub different: u64,
    /// Samples of which only parts could be compared.
    pub partly: u64,
    /// Batches that could not be read again.
    pub unread: u64,
    pub why: Option<String>,
    pub example: Option<String>,
    /// Sentences that name what differs between the workers' data set and the script's.
    pub fields: Vec<String>,
}

/// A call of the script's own files that draws from the system, or that sets a seed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct SeedSource {
    pub what: String,
    pub value: String,
    pub file: String,
    pub line: u64,
    pub code: String,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Module {
    pub class: String,
    pub dropouts: u64,
    pub compiled: bool,
    pub device: String,
}

/// An optimizer that took a step.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Optimizer {
    pub class: String,
    pub fused: bool,
    pub foreach: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Settings {
    pub threads: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Machine {
    pub device: String,
    pub device_name: Option<String>,
    pub torch: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Problem {
    pub code: String,
    pub text: String,
}

/// The effects of a remedy.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Applied {
    pub did: Vec<String>,
    pub nothing: Option<String>,
    pub errors: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Offer {
    pub class: String,
    pub obstacle: Option<String>,
}

fn or_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Option<u64>>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Note {
    /// Mean of the timed steps, with the longest clamped to the second longest: batches that come in bursts count as
    /// they are, a single stall does not. If batches came from a queue that drained, the mean is scaled to the rate at
    /// which workers refill it. In an epoch too short to see that, a step takes at least the time to make its batch.
    pub fn seconds(&self) -> Option<f64> {
        let mean = mean_without_stall(&self.step_seconds)?;
        let made = self.made_ahead.filter(|ahead| 0.0 < ahead.used_up && ahead.used_up < ahead.taken);
        let slower = made.map_or(1.0, |ahead| ahead.taken / (ahead.taken - ahead.used_up));
        let seconds = slower * mean;
        let making = self.making_seconds.filter(|_| self.made_ahead.is_none());
        Some(making.map_or(seconds, |making| seconds.max(making)))
    }

    /// Whether it timed all its steps.
    pub fn is_whole(&self) -> bool {
        self.phase == "done"
    }

    /// Peak memory on the device, or else of the whole process.
    pub fn memory(&self) -> Option<u64> {
        self.peak_bytes.or(self.peak_resident_bytes)
    }

    /// Why it is not a measurement, in words for a person.
    pub fn obstacle(&self) -> Option<String> {
        if let Some(exception) = &self.exception {
            let on_one_line: Vec<&str> = exception.split_whitespace().collect();
            return Some(format!("it ended with {}", on_one_line.join(" ")));
        }
        if let Some(error) = &self.error {
            return Some(format!("measuring failed: {error}"));
        }
        if self.step_seconds.is_empty() {
            return Some(self.problems.first().map_or("no step was timed".to_string(), |problem| problem.text.clone()));
        }
        None
    }

    /// Why a requested remedy changed nothing, or failed.
    pub fn not_applied(&self, remedy: &str) -> Option<String> {
        let applied = self.remedies.get(remedy)?;
        match (applied.errors.first(), applied.did.is_empty(), &applied.nothing) {
            (Some(error), _, _) => Some(format!("it failed: {error}")),
            (None, true, Some(nothing)) => Some(nothing.clone()),
            (None, true, None) => Some("it found nothing to do".to_string()),
            (None, false, _) => None,
        }
    }
}

/// The mean of steps, with the longest clamped to the second longest; `None` without steps.
pub fn mean_without_stall(seconds: &[f64]) -> Option<f64> {
    let mut steps = seconds.to_vec();
    steps.sort_by(f64::total_cmp);
    if let [.., second, longest] = steps.as_mut_slice() {
        *longest = *second;
    }
    (!steps.is_empty()).then(|| steps.iter().sum::<f64>() / steps.len() as f64)
}

/// The process of a run that counts: the one with the most steps, or the lowest rank in a tie.
pub fn counting(notes: Vec<Note>) -> Option<Note> {
    notes.into_iter().max_by_key(|note| (note.steps, std::cmp::Reverse(note.rank.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_with_the_most_steps_counts() {
        let note = |steps, rank| Note { steps, rank, ..Note::default() };
        let counted = counting(vec![note(0, None), note(9, Some(1)), note(9, Some(0)), note(2, None)]).unwrap();
        assert_eq!((counted.steps, counted.rank), (9, Some(0)));
        assert_eq!(counting(vec![]), None);
    }

    #[test]
    fn a_note_is_read_with_keys_that_are_missing_or_not_known() {
        let text = r#"{"schema_version": 1, "steps": 11, "step_seconds": [0.2, 0.1, 0.3], "losses": [[1.5], [null]],
            "loaders": [{"workers": 2, "class": "DataLoader"}], "remedies": {"tf32": {"class": "rounding", "did": []}}}"#;
        let note: Note = serde_json::from_str(text).unwrap();
        assert_eq!((note.seconds().unwrap() * 6.0).round() as i64, 1);
        assert_eq!((note.losses[1][0], note.loaders[0].workers), (None, 2));
        assert_eq!(note.not_applied("tf32").as_deref(), Some("it found nothing to do"));
        assert_eq!((note.not_applied("sdpa"), note.obstacle()), (None, None));
    }

    #[test]
    fn a_script_without_a_loader_has_no_samples_and_its_places_are_read() {
        let text = r#"{"samples": null, "compile": null, "optimizers": [{"class": "SGD", "fused": false, "foreach": null}],
            "places": {"main": "train.py", "loaders": [], "optimizers": [{"class": "SGD", "place": null}],
            "modules": [{"class": "Net", "expression": "net", "place": {"file": "train.py", "line": 3, "end_line": 4,
            "end_column": 5, "function": "main", "direct": true}, "blocks": [["[1:3]"]]}]}}"#;
        let note: Note = serde_json::from_str(text).unwrap();
        assert_eq!((note.samples.len(), note.optimizers[0].foreach), (0, None));
        let places = note.places.unwrap();
        let place = places.modules[0].place.as_ref().unwrap();
        assert_eq!((place.end_line, place.direct, &places.optimizers[0].place), (Some(4), true, &None));
    }

    #[test]
    fn bursts_of_a_loader_count_and_a_single_stall_does_not() {
        let seconds = |steps: &[f64]| Note { step_seconds: steps.to_vec(), ..Note::default() }.seconds().unwrap();
        // Four workers deliver four batches together: three of four steps do not wait.
        let burst = [0.13, 0.01, 0.01, 0.01].repeat(5);
        assert!((seconds(&burst) - 0.04).abs() < 1e-9, "a median would say 0.01");
        let mut stalled = vec![0.1; 20];
        stalled[7] = 5.0;
        assert!((seconds(&stalled) - 0.1).abs() < 1e-9);
        assert_eq!(seconds(&[0.3]), 0.3);
        // Half of the batches were made before: workers make one in every two steps.
        let ahead = |used_up| Some(MadeAhead { taken: 20.0, used_up });
        let note = |used_up| Note { step_seconds: vec![0.1; 20], made_ahead: ahead(used_up), ..Note::default() };
        assert!((note(10.0).seconds().unwrap() - 0.2).abs() < 1e-9);
        assert!((note(0.0).seconds().unwrap() - 0.1).abs() < 1e-9);
        // All batches of a short epoch were made before.
        let making = |made_ahead| Note { making_seconds: Some(0.3), made_ahead, ..note(0.0) }.seconds().unwrap();
        assert!((making(None) - 0.3).abs() < 1e-9);
        assert!((making(ahead(0.0)) - 0.1).abs() < 1e-9, "the queue was watched");
    }

    #[test]
    fn a_process_that_measured_nothing_says_why() {
        let mut note = Note::default();
        assert_eq!(note.obstacle().unwrap(), "no step was timed");
        note.problems = vec![Problem { code: "ended-early".into(), text: "it took 4 steps".into() }];
        assert_eq!(note.obstacle().unwrap(), "it took 4 steps");
        note.exception = Some("ValueError:\n  no".into());
        assert_eq!(note.obstacle().unwrap(), "it ended with ValueError: no");
    }
}
