//! Kills at every point of a save and of the recovery after it: the folder holds either the old checkpoint or the new
//! one, whole.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;

use tempfile::TempDir;

use super::journal::{self, Moments};
use super::*;
use crate::optimizer::{FIRST_MOMENT, SECOND_MOMENT};

fn tensors() -> Vec<TensorSpec> {
    let states = [FIRST_MOMENT, SECOND_MOMENT];
    [TensorSpec::new("a.weight", &[3, 5]), TensorSpec::new("b.weight", &[7])]
        .map(|one| one.with_states(&states))
        .to_vec()
}

/// Even steps are saved in bf16, which holds none of the weights exactly, and odd ones in fp32.
fn config(step: u64) -> HfConfig {
    let json = r#"{"model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 2, "vocab_size": 8}"#;
    let dtype = if step.is_multiple_of(2) { SavedDtype::Bf16 } else { SavedDtype::F32 };
    HfConfig { dtype, ..HfConfig::parse(json.as_bytes(), Path::new("config.json")).unwrap() }
}

/// One file is the same at every step, one changes, and one comes only with even steps.
fn companions(step: u64) -> Companions {
    let mut files =
        BTreeMap::from([("merges.txt", b"a b".to_vec()), ("tokenizer.json", step.to_string().into_bytes())]);
    if step.is_multiple_of(2) {
        files.insert("generation_config.json", b"{}".to_vec());
    }
    Companions { files }
}

fn state(step: u64) -> TrainingState {
    TrainingState {
        step,
        next_sample: Some(step * 2),
        data_position: None,
        seed: 42,
        data: "markov".to_string(),
        optimizer: OptimizerSettings {
            name: "AdamW".to_string(),
            momentum: None,
            learning_rate: 3e-4,
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 0.01,
            clip: 0.0,
        },
        node_steps: Default::default(),
        scales: Default::default(),
        extra: Default::default(),
    }
}

/// A distinct value for every step, content, tensor and element.
fn value(step: u64, content: Content, name: &str, element: usize) -> f32 {
    let place = Content::STATES.iter().position(|one| *one == content).map_or(0.0, |place| 1.0 + place as f32);
    step as f32 * 1000.0 + place * 100.0 + f32::from(name.as_bytes()[0]) + element as f32 / 64.0
}

fn saver(folder: &Path, keep: usize) -> Saver {
    Saver::open(folder, NonZeroUsize::new(keep).unwrap()).unwrap()
}

fn save(saver: &mut Saver, step: u64) -> Result<(), CheckpointError> {
    let (config, tensors, state) = (config(step), tensors(), state(step));
    let snapshot = Snapshot { config: &config, tensors: &tensors, state: &state, companions: &companions(step) };
    saver.save(snapshot, &mut |content, name, take| {
        let elements = if name == "a.weight" { 15 } else { 7 };
        let values: Vec<f32> = (0..elements).map(|element| value(step, content, name, element)).collect();
        values.chunks(4).try_for_each(take)
    })
}

/// Reads the whole checkpoint, checks every value, and returns its step.
fn whole_step(folder: &Path) -> u64 {
    let checkpoint = Checkpoint::open(folder).unwrap();
    let step = checkpoint.state().unwrap().step;
    let mut read = 0;
    checkpoint
        .read_all(&tensors(), &mut |content, name, first, elements| {
            for (offset, element) in elements.iter().enumerate() {
                assert_eq!(*element, value(step, content, name, first + offset));
            }
            read += elements.len();
            Ok(())
        })
        .unwrap();
    assert_eq!(read, 3 * 22);
    assert_eq!(Companions::read(folder).unwrap(), companions(step), "the files beside step {step}");
    assert_eq!(checkpoint.config().dtype, config(step).dtype);
    step
}

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A folder with steps 1 (if kept) and 2 saved.
fn two_saved(keep: usize) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut saver = saver(folder.path(), keep);
    save(&mut saver, 1).unwrap();
    save(&mut saver, 2).unwrap();
    folder
}

/// Much cheaper than saving again: nothing is synced.
fn copy(from: &Path, to: &Path) {
    for name in names_in(from) {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            std::fs::create_dir(&to).unwrap();
            copy(&from, &to);
        } else {
            std::fs::copy(from, to).unwrap();
        }
    }
}

/// Saves step 3 into a copy of `base` with a kill at the given moment; true if the save finished.
fn save_with_kill(base: &TempDir, keep: usize, moment: u64) -> (TempDir, bool) {
    let folder = tempfile::tempdir().unwrap();
    copy(base.path(), folder.path());
    let mut saver = saver(folder.path(), keep);
    saver.moments.left = Some(moment);
    match save(&mut saver, 3) {
        Ok(()) => (folder, true),
        Err(CheckpointError::Stopped) => (folder, false),
        Err(error) => panic!("{error}"),
    }
}

fn check_kept_ones_are_whole(folder: &Path) {
    for name in names_in(folder) {
        if let Some(step) = journal::step_of(&name) {
            assert_eq!(whole_step(&folder.join(name)), step);
        }
    }
}

#[test]
fn a_kill_at_any_moment_of_a_save_leaves_a_whole_checkpoint_and_the_next_save_works() {
    for keep in [1, 2] {
        let base = two_saved(keep);
        let mut newest_seen = 2;
        let mut moments = 0;
        loop {
            let (folder, came_through) = save_with_kill(&base, keep, moments);
            check_kept_ones_are_whole(folder.path());
            let step = whole_step(folder.path());
            assert!(step >= newest_seen, "keep {keep}, moment {moments}: back from {newest_seen} to {step}");
            newest_seen = step;
            save(&mut saver(folder.path(), keep), 4).unwrap();
            assert_eq!(whole_step(folder.path()), 4);
            check_kept_ones_are_whole(folder.path());
            let left_over = |name: &String| name.ends_with(".next") || name.ends_with(".tmp") || name == "commit.json";
            assert!(!names_in(folder.path()).iter().any(left_over), "{:?}", names_in(folder.path()));
            if came_through {
                break;
            }
            moments += 1;
        }
        assert_eq!(newest_seen, 3);
        assert!(moments > 15, "only {moments} moments: the kills are not spread over the save");
    }
}

#[test]
fn a_second_kill_during_the_recovery_changes_nothing_about_it() {
    let base = two_saved(1);
    let mut recoveries = 0;
    for moment in 0..64 {
        for second in 0..8 {
            let (folder, came_through) = save_with_kill(&base, 1, moment);
            if came_through || !journal::is_pending(folder.path()) {
                break;
            }
            recoveries += 1;
            let mut moments = Moments { left: Some(second) };
            let _ = journal::roll_forward(folder.path(), &mut moments);
            assert_eq!(whole_step(folder.path()), 3, "a journal makes the new checkpoint count");
        }
    }
    assert!(recoveries > 20, "{recoveries}");
}

#[test]
fn a_failed_handover_leaves_the_old_checkpoint_and_no_leftovers() {
    let folder = tempfile::tempdir().unwrap();
    let mut saver = saver(folder.path(), 1);
    save(&mut saver, 1).unwrap();
    let before = names_in(folder.path());
    let (config, tensors, state) = (config(1), tensors(), state(2));
    let snapshot = Snapshot { config: &config, tensors: &tensors, state: &state, companions: &Companions::default() };
    let error = saver.save(snapshot, &mut |_, name, take| {
        if name == "b.weight" {
            return Err(CheckpointError::Handover("the device is lost".into()));
        }
        take(&[0.0; 15])
    });
    assert!(error.unwrap_err().to_string().contains("the device is lost"));
    let short = saver.save(snapshot, &mut |_, _, take| take(&[0.0; 14]));
    assert!(short.unwrap_err().to_string().contains("a.weight was given 14 elements"));
    assert_eq!(names_in(folder.path()), before);
    assert_eq!(whole_step(folder.path()), 1);
}

#[test]
fn a_damaged_journal_renames_nothing_outside_the_checkpoint() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secrets.next"), "").unwrap();
    let folder = outside.path().join("checkpoint");
    save(&mut saver(&folder, 1), 1).unwrap();
    std::fs::write(outside.path().join("secrets"), "").unwrap();
    for (journal, word) in [
        (r#"{"schema_version": 1, "files": ["../secrets"]}"#, "../secrets"),
        (r#"{"schema_version": 1, "files": [], "removed": ["../secrets"]}"#, "../secrets"),
        (r#"{"schema_version": 1, "files": [], "removed": ["model.safetensors"]}"#, "model.safetensors"),
        ("{", "commit.json"),
    ] {
        std::fs::write(folder.join("commit.json"), journal).unwrap();
        let error = Checkpoint::open(&folder).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    assert!(outside.path().join("secrets.next").exists() && outside.path().join("secrets").exists());
    assert!(folder.join(MODEL_FILE).exists());
}

/// Each rank writes its own part of every tensor, cut as shards are.
fn save_as_ranks(saver: &mut Saver, step: u64, ranks: usize) {
    let (config, tensors, state) = (config(step), tensors(), state(step));
    saver.prepare(&tensors, config.dtype).unwrap();
    for rank in 0..ranks {
        let ranges =
            ranges::Ranges::open(saver.folder(), &tensors, config.dtype).unwrap().expect("the folder is the same");
        for (content, one) in [Content::Weight]
            .into_iter()
            .chain(Content::STATES)
            .flat_map(|content| tensors.iter().filter(move |one| one.has(content)).map(move |one| (content, one)))
        {
            let each = one.elements().div_ceil(ranks);
            let own = (rank * each).min(one.elements())..((rank + 1) * each).min(one.elements());
            let values: Vec<f32> = own.clone().map(|element| value(step, content, &one.name, element)).collect();
            ranges.write(content, &one.name, own.start, &values).unwrap();
        }
        ranges.finish().unwrap();
    }
    saver
        .commit_written(Snapshot { config: &config, tensors: &tensors, state: &state, companions: &companions(step) })
        .unwrap();
}

#[test]
fn ranks_that_write_their_ranges_leave_the_bytes_of_one() {
    for (step, ranks) in [1, 2, 3, 8].into_iter().flat_map(|ranks| [(1, ranks), (2, ranks)]) {
        let (alone, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        save(&mut saver(alone.path(), 1), step).unwrap();
        save_as_ranks(&mut saver(folder.path(), 1), step, ranks);
        assert_eq!(whole_step(folder.path()), step);
        for file in journal::FILES {
            let bytes = |folder: &Path| std::fs::read(folder.join(file)).unwrap();
            assert_eq!(bytes(folder.path()), bytes(alone.path()), "{file} of step {step} by {ranks} ranks");
        }
    }
}

#[test]
fn prepared_files_are_no_checkpoint_and_another_folder_is_told_from_a_shared_one() {
    let folder = two_saved(1);
    let mut again = saver(folder.path(), 1);
    again.prepare(&tensors(), SavedDtype::Bf16).unwrap();
    assert_eq!(whole_step(folder.path()), 2, "the one before stays");
    let elsewhere = tempfile::tempdir().unwrap();
    assert!(ranges::Ranges::open(elsewhere.path(), &tensors(), SavedDtype::Bf16).unwrap().is_none());
    drop(again);
    assert_eq!(names_in(folder.path()).iter().filter(|name| name.ends_with(".next")).count(), 2);
    drop(saver(folder.path(), 1));
    assert!(names_in(folder.path()).iter().all(|name| !name.ends_with(".next")), "the next saver clears them away");
}

#[test]
fn a_file_put_beside_a_checkpoint_stays_and_one_of_a_replaced_model_goes() {
    let folder = tempfile::tempdir().unwrap();
    // A model that was not saved here: its tokenizer would be taken for the new model's.
    std::fs::write(folder.path().join("vocab.json"), "{}").unwrap();
    save(&mut saver(folder.path(), 1), 1).unwrap();
    assert!(!folder.path().join("vocab.json").exists());
    std::fs::write(folder.path().join("chat_template.jinja"), "mine").unwrap();
    save(&mut saver(folder.path(), 1), 2).unwrap();
    assert!(folder.path().join("chat_template.jinja").exists());
}
