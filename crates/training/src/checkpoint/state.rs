//! `training_state.json`: the state of training, and which files belong together.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use headroom_record::atomic::FileError;
use headroom_record::reading;

use sha2::{Digest, Sha256};

use super::tensor_writer::hex;
use super::{CheckpointError, STATE_FILE};

const SCHEMA_VERSION: u32 = 1;

/// Upper limit on steps, micro-batches and samples, so that sums of them cannot overflow.
const MOST_COUNTED: u64 = 1 << 60;

/// State that resuming needs besides weights and optimizer tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingState {
    /// Optimizer steps taken.
    pub step: u64,
    /// Index of the first sample that was not read. Samples are counted from the first of the data, in the order that the
    /// run began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_sample: Option<u64>,
    /// Micro-batches read: what files had before `next_sample`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_position: Option<u64>,
    pub seed: u64,
    /// The data source's description of itself (`Source::description`).
    pub data: String,
    pub optimizer: OptimizerSettings,
    /// Number of updates of each parameter, when steps choose what they update. Empty if every step updated everything.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_steps: BTreeMap<String, u64>,
    /// Scales of tensors that are rounded to eight bits; empty in other precisions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scales: BTreeMap<String, Vec<f32>>,
    /// Other entries that the caller wants back. Ignored here, except that `batch_size` gives an old position its unit.
    #[serde(default)]
    pub extra: Map<String, Value>,
}

impl TrainingState {
    /// Whether some parameters were updated fewer times than others.
    pub fn has_uneven_steps(&self) -> bool {
        self.node_steps.values().any(|count| *count != self.step)
    }

    /// The sample to go on with. Older files have micro-batches, which are samples where the size of a batch was stored.
    pub(super) fn sample_to_read(&self) -> Result<u64, String> {
        if let Some(sample) = self.next_sample {
            return Ok(sample);
        }
        let batches = self.data_position.unwrap_or(0);
        let size = self.extra.get("batch_size").and_then(Value::as_u64).filter(|size| *size > 0);
        let Some(size) = size else {
            return Err(format!(
                "it counts {batches} micro-batches (data_position) and does not say of how many samples: `extra` has no batch_size"
            ));
        };
        let samples = batches.checked_mul(size).filter(|samples| *samples <= MOST_COUNTED);
        samples.ok_or_else(|| format!("{batches} micro-batches of {size} samples are beyond any run"))
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizerSettings {
    /// PyTorch's class: `AdamW`, `SGD` or `Muon`.
    pub name: String,
    /// Share of the momentum that SGD and Muon keep per step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub momentum: Option<f64>,
    pub learning_rate: f64,
    pub betas: [f64; 2],
    pub eps: f64,
    pub weight_decay: f64,
    /// Maximum global norm of the gradients; 0 is off.
    pub clip: f64,
}

/// The file: the state, and the SHA-256 of each file it was saved with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StateFile {
    pub schema_version: u32,
    #[serde(flatten)]
    pub state: TrainingState,
    pub sha256: Digests,
    /// The files saved with it that training leaves as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub companions: Vec<String>,
    /// The recorded digest and the actual one, if they differ.
    #[serde(skip)]
    pub changed: Option<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Digests {
    pub model: String,
    pub optimizer: String,
    pub config: String,
    /// Digest of this file without this key, as compact JSON; absent in files written before version 0.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

impl StateFile {
    pub fn new(state: TrainingState, sha256: Digests, companions: Vec<String>) -> StateFile {
        StateFile { schema_version: SCHEMA_VERSION, state, sha256, companions, changed: None }
    }

    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let mut value = serde_json::to_value(self)?;
        let own = take_own_digest(&mut value)?.1;
        value["sha256"]["state"] = Value::String(own);
        Ok(serde_json::to_string_pretty(&value)? + "\n")
    }

    /// `None` if the folder has no such file.
    pub fn read(folder: &Path) -> Result<Option<StateFile>, CheckpointError> {
        let path = folder.join(STATE_FILE);
        let bytes = match reading::read(&path, reading::CHECKPOINT) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(FileError::new("read", &path)(error).into()),
        };
        let unreadable = |why: String| CheckpointError::Unreadable { path: path.clone(), why };
        // Check the version first: a later layout may not parse as this one.
        let mut value: Value = serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
        if value["schema_version"] != SCHEMA_VERSION {
            return Err(unreadable(format!(
                "its schema_version is {}, but this program reads {SCHEMA_VERSION}",
                value["schema_version"]
            )));
        }
        let (then, now) = take_own_digest(&mut value).map_err(|error| unreadable(error.to_string()))?;
        let mut file: StateFile = serde_json::from_value(value).map_err(|error| unreadable(error.to_string()))?;
        file.changed = then.filter(|then| *then != now).map(|then| (then, now));
        if let Some((name, count)) = file.state.node_steps.iter().find(|(_, count)| **count > file.state.step) {
            let step = file.state.step;
            return Err(unreadable(format!("{name} was updated at {count} of {step} steps: it is damaged")));
        }
        let positions = [("next_sample", file.state.next_sample), ("data_position", file.state.data_position)];
        if positions.iter().all(|(_, count)| count.is_none()) {
            return Err(unreadable("it has no next_sample: it is damaged".into()));
        }
        let counts = positions.into_iter().filter_map(|(what, count)| Some((what, count?)));
        for (what, count) in counts.chain([("step", file.state.step)]) {
            if count > MOST_COUNTED {
                return Err(unreadable(format!("its {what} of {count} is beyond any run: it is damaged")));
            }
        }
        Ok(Some(file))
    }
}

/// Takes the recorded digest out of the file; returns it and the actual digest of the rest. White space does not count.
fn take_own_digest(value: &mut Value) -> Result<(Option<String>, String), serde_json::Error> {
    let digests = value.get_mut("sha256").and_then(Value::as_object_mut);
    let then = digests.and_then(|digests| digests.shift_remove("state"));
    let now = hex(Sha256::new_with_prefix(serde_json::to_vec(value)?));
    // A value that is not a string is not a digest either, and differs from every digest.
    Ok((then.map(|then| then.as_str().map_or_else(|| then.to_string(), String::from)), now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(step: u64, next_sample: u64, counts: &[u64]) -> TrainingState {
        let optimizer = OptimizerSettings {
            name: "AdamW".into(),
            momentum: None,
            learning_rate: 0.1,
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 0.0,
            clip: 0.0,
        };
        let node_steps = counts.iter().enumerate().map(|(at, count)| (format!("p{at}"), *count)).collect();
        let (scales, extra) = (BTreeMap::new(), Map::new());
        let (next_sample, data_position, data) = (Some(next_sample), None, "markov".into());
        TrainingState { step, next_sample, data_position, seed: 1, data, optimizer, node_steps, scales, extra }
    }

    /// Saves the state, changes the text of the file, and reads it back.
    fn read(state: &TrainingState, change: impl Fn(String) -> String) -> Result<StateFile, String> {
        let folder = tempfile::tempdir().unwrap();
        let digest = || "0".repeat(64);
        let digests = Digests { model: digest(), optimizer: digest(), config: digest(), state: None };
        let text = change(StateFile::new(state.clone(), digests, vec![]).to_json().unwrap());
        std::fs::write(folder.path().join(STATE_FILE), text).unwrap();
        StateFile::read(folder.path()).map(Option::unwrap).map_err(|error| error.to_string())
    }

    #[test]
    fn a_state_comes_back_as_it_was_and_a_change_is_told() {
        let saved = state(7, 9, &[3, 7]);
        let file = read(&saved, |text| text).unwrap();
        assert_eq!((file.state, file.changed), (saved.clone(), None));
        // White space does not count as a change.
        assert_eq!(read(&saved, |text| text.replace("  ", " ")).unwrap().changed, None);
        let other = read(&saved, |text| text.replace("\"seed\": 1", "\"seed\": 2")).unwrap();
        assert_eq!(other.state.seed, 2);
        assert!(other.changed.is_some_and(|(then, now)| then != now && now.len() == 64));
        assert!(StateFile::read(Path::new("no such folder")).unwrap().is_none());
    }

    #[test]
    fn counts_that_no_run_can_have_are_refused() {
        let same = |text| text;
        assert!(read(&state(MOST_COUNTED, MOST_COUNTED, &[]), same).is_ok());
        assert!(read(&state(MOST_COUNTED + 1, 0, &[]), same).unwrap_err().contains("its step of 1152921504606846977"));
        assert!(read(&state(0, MOST_COUNTED + 1, &[]), same).unwrap_err().contains("its next_sample of"));
        let batches = |batches| TrainingState { next_sample: None, data_position: batches, ..state(0, 0, &[]) };
        assert!(read(&batches(Some(MOST_COUNTED + 1)), same).unwrap_err().contains("its data_position of"));
        assert!(read(&batches(None), same).unwrap_err().contains("no next_sample"));
        assert!(read(&state(7, 9, &[7, 8]), same).unwrap_err().contains("p1 was updated at 8 of 7 steps"));
        let later = |text: String| text.replace("\"schema_version\": 1", "\"schema_version\": 2");
        assert!(
            read(&state(7, 9, &[]), later).unwrap_err().contains("its schema_version is 2, but this program reads 1")
        );
    }

    #[test]
    fn micro_batches_of_older_files_are_samples_where_the_batch_is_known() {
        let older = |batches: u64, batch_size: Value| {
            let extra = [("batch_size".to_string(), batch_size)].into_iter().collect();
            TrainingState { next_sample: None, data_position: Some(batches), extra, ..state(3, 0, &[]) }
                .sample_to_read()
        };
        assert_eq!(state(3, 7, &[]).sample_to_read(), Ok(7));
        assert_eq!((older(6, 4.into()), older(0, 4.into())), (Ok(24), Ok(0)));
        for missing in [Value::Null, 0.into(), (-4).into(), "4".into()] {
            assert!(older(6, missing).unwrap_err().starts_with("it counts 6 micro-batches"));
        }
        assert!(older(1 << 59, 4.into()).unwrap_err().contains("beyond any run"));
        assert!(older(1 << 59, u64::MAX.into()).unwrap_err().contains("beyond any run"));
    }

    #[test]
    fn steps_are_uneven_where_a_parameter_was_left_out() {
        assert!(state(7, 9, &[7, 3]).has_uneven_steps());
        assert!(!state(7, 9, &[7, 7]).has_uneven_steps() && !state(7, 9, &[]).has_uneven_steps());
    }
}
