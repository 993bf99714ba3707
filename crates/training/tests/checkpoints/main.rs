//! Checkpoints as their users see them: saved, loaded back, kept, shared, and refused by name when something differs.

mod dtypes;

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::Path;

use headroom_training::checkpoint::{
    Checkpoint, CheckpointError, Companions, Content, HfConfig, OptimizerSettings, Saver, Snapshot, TensorSpec,
    TrainingState, whole_tensors,
};
use headroom_training::models::ModelConfig;
use headroom_training::optimizer::{FIRST_MOMENT, MOMENTUM, SECOND_MOMENT};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use tempfile::TempDir;

type Tensors = HashMap<(Content, String), Vec<f32>>;

fn config(extra: &str) -> HfConfig {
    let json = format!(
        r#"{{"model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 11 {extra}}}"#
    );
    HfConfig::parse(json.as_bytes(), Path::new("config.json")).unwrap()
}

/// Parameters trained by AdamW, and one by Muon, which keeps a different tensor.
fn tensors_of(config: &HfConfig) -> Vec<TensorSpec> {
    let states = |name: &str| match name {
        "model.layers.1.mlp.up_proj.weight" => vec![MOMENTUM],
        _ => vec![FIRST_MOMENT, SECOND_MOMENT],
    };
    config
        .tensors()
        .into_iter()
        .map(|one| {
            let states = states(&one.name);
            one.with_states(&states)
        })
        .collect()
}

fn state(step: u64) -> TrainingState {
    TrainingState {
        step,
        next_sample: Some(step * 4),
        data_position: None,
        seed: 42,
        data: "text corpus.txt, 12 bytes".to_string(),
        optimizer: OptimizerSettings {
            name: "AdamW".to_string(),
            momentum: None,
            learning_rate: 0.1 + 0.2, // 0.30000000000000004 must come back to the bit
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 0.01,
            clip: 1.0,
        },
        node_steps: Default::default(),
        scales: Default::default(),
        extra: serde_json::from_str(r#"{"lr_schedule": "cosine"}"#).unwrap(),
    }
}

fn values(content: Content, tensor: &TensorSpec) -> Vec<f32> {
    let scale = match content {
        Content::Weight => 1.0,
        Content::State(SECOND_MOMENT) => 1e-30,
        Content::State(_) => 1e-3,
    };
    let name: u32 = tensor.name.bytes().map(u32::from).sum();
    (0..tensor.elements()).map(|element| (name as f32 + element as f32 / 7.0).sin() * scale).collect()
}

fn save(saver: &mut Saver, config: &HfConfig, step: u64) {
    let (tensors, state) = (tensors_of(config), state(step));
    let snapshot = Snapshot { config, tensors: &tensors, state: &state, companions: &Companions::default() };
    saver
        .save(snapshot, &mut |content, name, take| {
            let tensor = tensors.iter().find(|tensor| tensor.name == name).unwrap();
            take(&values(content, tensor))
        })
        .unwrap();
}

fn saver(folder: &TempDir, keep: usize) -> Saver {
    Saver::open(folder.path(), NonZeroUsize::new(keep).unwrap()).unwrap()
}

fn saved(config: &HfConfig) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    save(&mut saver(&folder, 1), config, 10);
    folder
}

#[derive(Clone, Copy)]
enum Part {
    Weights,
    All,
}

fn load(folder: &Path, tensors: &[TensorSpec], part: Part) -> Result<Tensors, CheckpointError> {
    let checkpoint = Checkpoint::open(folder)?;
    let mut read = Tensors::new();
    let mut take = |content: Content, name: &str, first: usize, elements: &[f32]| {
        let tensor = read.entry((content, name.to_string())).or_default();
        assert_eq!(tensor.len(), first, "pieces come in order");
        tensor.extend(elements);
        Ok(())
    };
    match part {
        Part::Weights => checkpoint.read_weights(tensors, &mut take)?,
        Part::All => checkpoint.read_all(tensors, &mut take)?,
    }
    Ok(read)
}

fn check_refused(folder: &Path, config: &HfConfig, part: Part, words: &[&str]) {
    let error = load(folder, &tensors_of(config), part).unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
}

/// Rewrites a safetensors file after `change` has edited its tensors (name, dtype, shape, bytes).
fn edit(path: &Path, change: impl FnOnce(&mut Vec<(String, Dtype, Vec<usize>, Vec<u8>)>)) {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Vec<_> = file
        .tensors()
        .into_iter()
        .map(|(name, view)| (name, view.dtype(), view.shape().to_vec(), view.data().to_vec()))
        .collect();
    tensors.sort_by(|left, right| left.0.cmp(&right.0));
    change(&mut tensors);
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn everything_saved_comes_back_to_the_bit() {
    for extra in ["", r#", "tie_word_embeddings": true"#] {
        let config = config(extra);
        let folder = saved(&config);
        let tensors = tensors_of(&config);
        let read = load(folder.path(), &tensors, Part::All).unwrap();
        assert_eq!(read.len(), tensors.len() * 3 - 1);
        for tensor in &tensors {
            let states = tensor.states.iter().map(|kind| Content::State(*kind));
            for content in std::iter::once(Content::Weight).chain(states) {
                assert_eq!(read[&(content, tensor.name.clone())], values(content, tensor), "{}", tensor.name);
            }
        }
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let read = checkpoint.config();
        assert_eq!((&read.model, checkpoint.state().unwrap()), (&config.model, &state(10)));
        assert_eq!(read.to_json(), config.to_json());
    }
}

#[test]
fn a_tensor_longer_than_one_piece_comes_back_in_order() {
    let config = config("");
    let folder = tempfile::tempdir().unwrap();
    let tensors = [TensorSpec::new("long", &[3, 70_001]).with_states(&[FIRST_MOMENT, SECOND_MOMENT])];
    let state = state(1);
    let snapshot = Snapshot { config: &config, tensors: &tensors, state: &state, companions: &Companions::default() };
    let long = values(Content::Weight, &tensors[0]);
    saver(&folder, 1).save(snapshot, &mut |_, _, take| long.chunks(100_000).try_for_each(take)).unwrap();
    let read = load(folder.path(), &tensors, Part::All).unwrap();
    assert_eq!(read[&(Content::State(SECOND_MOMENT), "long".to_string())], long);

    let mut whole = 0;
    let mut take = whole_tensors(&tensors, |_, name, elements| {
        assert_eq!((name, elements), ("long", &long[..]));
        whole += 1;
        Ok(())
    });
    Checkpoint::open(folder.path()).unwrap().read_all(&tensors, &mut take).unwrap();
    drop(take);
    assert_eq!(whole, 3, "one call for the weight and each moment");
}

#[test]
fn the_model_file_is_what_transformers_expects() {
    let config = config(r#", "tie_word_embeddings": true"#);
    let folder = saved(&config);
    let bytes = std::fs::read(folder.path().join("model.safetensors")).unwrap();
    let (header_bytes, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    assert!(header_bytes.is_multiple_of(8));
    assert_eq!(metadata.metadata().as_ref().unwrap()["format"], "pt");
    assert!(metadata.info("lm_head.weight").is_none(), "a tied head is not stored");
    assert_eq!(metadata.info("model.layers.1.self_attn.k_proj.weight").unwrap().shape, [4, 8]);
    let json = std::fs::read_to_string(folder.path().join("config.json")).unwrap();
    for words in ["\"LlamaForCausalLM\"", "\"rope_theta\": 10000.0", "\"rope_parameters\"", "\"float32\""] {
        assert!(json.contains(words), "{words}");
    }
}

#[test]
fn half_precision_weights_are_read_as_float32() {
    let config = config("");
    let folder = saved(&config);
    edit(&folder.path().join("model.safetensors"), |tensors| {
        for (index, (_, dtype, _, bytes)) in tensors.iter_mut().enumerate() {
            let floats = bytes.chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap()));
            (*dtype, *bytes) = match index % 2 {
                0 => (Dtype::BF16, floats.flat_map(|x| half::bf16::from_f32(x).to_le_bytes()).collect()),
                _ => (Dtype::F16, floats.flat_map(|x| half::f16::from_f32(x).to_le_bytes()).collect()),
            };
        }
    });
    let tensors = tensors_of(&config);
    let read = load(folder.path(), &tensors, Part::Weights).unwrap();
    for tensor in &tensors {
        let pairs = values(Content::Weight, tensor).into_iter().zip(&read[&(Content::Weight, tensor.name.clone())]);
        for (want, have) in pairs {
            assert!((want - have).abs() <= 0.004 * want.abs() + 1e-7, "{}: {want} {have}", tensor.name);
        }
    }
}

#[test]
fn shards_of_an_index_are_read_as_one_model() {
    let config = config("");
    let folder = saved(&config);
    let path = |name: &str| folder.path().join(name);
    let whole = load(folder.path(), &tensors_of(&config), Part::Weights).unwrap();
    let mut map = serde_json::Map::new();
    for (shard, side) in [("one.safetensors", 0), ("two.safetensors", 1)] {
        std::fs::copy(path("model.safetensors"), path(shard)).unwrap();
        edit(&path(shard), |tensors| {
            let mut index = 0;
            tensors.retain(|_| {
                index += 1;
                index % 2 == side
            });
            map.extend(tensors.iter().map(|(name, ..)| (name.clone(), shard.into())));
        });
    }
    std::fs::remove_file(path("model.safetensors")).unwrap();
    let write_index = |map: &serde_json::Map<String, serde_json::Value>| {
        let index = serde_json::json!({"metadata": {}, "weight_map": map});
        std::fs::write(path("model.safetensors.index.json"), index.to_string()).unwrap();
    };
    write_index(&map);
    assert_eq!(load(folder.path(), &tensors_of(&config), Part::Weights).unwrap(), whole);
    check_refused(folder.path(), &config, Part::All, &["model.safetensors", "--init-from"]);

    std::fs::remove_file(path("two.safetensors")).unwrap();
    check_refused(folder.path(), &config, Part::Weights, &["two.safetensors"]);
    map.retain(|_, file| file == "one.safetensors");
    write_index(&map);
    check_refused(folder.path(), &config, Part::Weights, &["index.json", "is missing"]);
    map.insert("x".to_string(), "../one.safetensors".into());
    write_index(&map);
    check_refused(folder.path(), &config, Part::Weights, &["index.json", "../one.safetensors"]);
}

#[test]
fn a_model_that_differs_is_refused_with_every_difference() {
    let config = config("");
    let folder = saved(&config);
    let model = folder.path().join("model.safetensors");
    edit(&model, |tensors| {
        tensors.retain(|(name, ..)| name != "lm_head.weight");
        tensors.push(("model.layers.9.extra.weight".to_string(), Dtype::F32, vec![1], vec![0; 4]));
        for (name, dtype, shape, bytes) in tensors.iter_mut() {
            if name == "model.norm.weight" {
                (*shape, *bytes) = (vec![9], vec![0; 36]);
            }
            if name == "model.layers.0.input_layernorm.weight" {
                (*dtype, *bytes) = (Dtype::F64, vec![0; 64]);
            }
        }
    });
    let words = [
        "model.safetensors",
        "lm_head.weight is missing",
        "model.layers.9.extra.weight is not part of the model",
        "model.norm.weight is [9], but the model wants [8]",
        "model.layers.0.input_layernorm.weight is F64",
    ];
    check_refused(folder.path(), &config, Part::Weights, &words);
    check_refused(folder.path(), &config, Part::All, &words);
}

#[test]
fn a_stored_copy_of_a_tied_head_and_old_rope_frequencies_are_passed_over() {
    let config = config(r#", "tie_word_embeddings": true"#);
    let folder = saved(&config);
    edit(&folder.path().join("model.safetensors"), |tensors| {
        tensors.push(("lm_head.weight".to_string(), Dtype::F32, vec![1], vec![0; 4]));
        tensors.push(("model.layers.0.self_attn.rotary_emb.inv_freq".to_string(), Dtype::F32, vec![1], vec![0; 4]));
    });
    let read = load(folder.path(), &tensors_of(&config), Part::Weights).unwrap();
    assert_eq!(read.len(), tensors_of(&config).len());
}

#[test]
fn files_that_do_not_belong_together_are_told_by_their_digests() {
    let config = config("");
    for file in ["model.safetensors", "optimizer.safetensors"] {
        let folder = saved(&config);
        let path = folder.path().join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        check_refused(folder.path(), &config, Part::All, &[file, "training_state.json", "sha256"]);
        load(folder.path(), &tensors_of(&config), Part::Weights).unwrap();
    }
    let folder = saved(&config);
    let other = HfConfig { model: ModelConfig { rope_theta: 5.0, ..config.model.clone() }, ..config.clone() };
    std::fs::write(folder.path().join("config.json"), other.to_json()).unwrap();
    check_refused(folder.path(), &config, Part::All, &["config.json", "sha256"]);
}

#[test]
fn what_is_missing_is_named() {
    let config = config("");
    let empty = tempfile::tempdir().unwrap();
    check_refused(empty.path(), &config, Part::All, &["holds no checkpoint", "config.json"]);
    check_refused(&empty.path().join("absent"), &config, Part::All, &["absent", "holds no checkpoint"]);
    for (file, part, words) in [
        ("config.json", Part::Weights, ["holds no checkpoint", "config.json"]),
        ("model.safetensors", Part::Weights, ["holds no checkpoint", "model.safetensors"]),
        ("optimizer.safetensors", Part::All, ["no optimizer.safetensors", "--init-from"]),
        ("training_state.json", Part::All, ["no training_state.json", "--init-from"]),
    ] {
        let folder = saved(&config);
        std::fs::remove_file(folder.path().join(file)).unwrap();
        check_refused(folder.path(), &config, part, &words);
    }
}

#[test]
fn every_file_cut_anywhere_is_refused_by_name_and_never_a_panic() {
    let config = config("");
    for (file, part) in [
        ("model.safetensors", Part::Weights),
        ("optimizer.safetensors", Part::All),
        ("training_state.json", Part::All),
        ("config.json", Part::Weights),
    ] {
        let folder = saved(&config);
        let path = folder.path().join(file);
        let whole = std::fs::read(&path).unwrap();
        // JSON is still valid without its last newline.
        let end = if file.ends_with("json") { whole.len() - 1 } else { whole.len() };
        for length in (0..end).step_by(1 + end / 500) {
            std::fs::write(&path, &whole[..length]).unwrap();
            let words = [file, if file.ends_with("json") { "does not parse" } else { "not a whole safetensors file" }];
            check_refused(folder.path(), &config, part, &words);
        }
    }
}

#[test]
fn a_damaged_header_is_an_error_and_never_a_panic() {
    let config = config("");
    let folder = saved(&config);
    let path = folder.path().join("model.safetensors");
    let whole = std::fs::read(&path).unwrap();
    let random = headroom_training::rng::Stream::new(1, "damage");
    for round in 0..2000 {
        let mut bytes = whole.clone();
        for place in 0..3 {
            let at = random.uniform_u32_below(round * 8 + place, 1200) as usize;
            bytes[at] = random.uniform_u32_below(round * 8 + 4 + place, 256) as u8;
        }
        std::fs::write(&path, bytes).unwrap();
        // Damage inside a string or the padding may go unnoticed here; the digest catches that on resume.
        if load(folder.path(), &tensors_of(&config), Part::Weights).is_ok() {
            assert!(
                load(folder.path(), &tensors_of(&config), Part::All).is_err() || std::fs::read(&path).unwrap() == whole
            );
        }
    }
}

#[test]
fn a_state_of_a_later_version_is_refused() {
    let config = config("");
    let folder = saved(&config);
    let path = folder.path().join("training_state.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"schema_version\": 1", "\"schema_version\": 2")).unwrap();
    check_refused(folder.path(), &config, Part::All, &["training_state.json", "schema_version is 2"]);
}

#[test]
fn a_second_saver_in_the_same_folder_is_refused_until_the_first_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let first = saver(&folder, 1);
    let error = Saver::open(folder.path(), NonZeroUsize::MIN).unwrap_err();
    assert!(matches!(error, CheckpointError::InUse { .. }), "{error}");
    drop(first);
    saver(&folder, 1);
}

#[test]
fn a_folder_being_saved_to_can_be_loaded_from() {
    let config = config("");
    let folder = tempfile::tempdir().unwrap();
    let mut saver = saver(&folder, 1);
    save(&mut saver, &config, 1);
    load(folder.path(), &tensors_of(&config), Part::All).unwrap();
}

fn kept(folder: &TempDir) -> Vec<u64> {
    let mut steps: Vec<u64> = std::fs::read_dir(folder.path())
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str().unwrap().strip_prefix("step-")?.parse().ok())
        .collect();
    steps.sort();
    steps
}

#[test]
fn older_checkpoints_stay_up_to_the_number_kept_and_each_is_whole() {
    let config = config("");
    let folder = tempfile::tempdir().unwrap();
    let mut three = saver(&folder, 3);
    for (step, want) in [(10, vec![]), (20, vec![10]), (30, vec![10, 20]), (40, vec![20, 30])] {
        save(&mut three, &config, step);
        assert_eq!(kept(&folder), want);
    }
    for step in [20, 30] {
        let kept = folder.path().join(format!("step-{step:08}"));
        load(&kept, &tensors_of(&config), Part::All).unwrap();
        assert_eq!(Checkpoint::open(&kept).unwrap().state().unwrap().step, step);
    }
    drop(three);
    save(&mut saver(&folder, 1), &config, 50);
    assert_eq!(kept(&folder), [20, 30], "a run that keeps one leaves an earlier run's alone");
}

#[test]
fn a_run_begun_again_in_the_same_folder_replaces_kept_ones_of_the_same_step() {
    let config = config("");
    let folder = tempfile::tempdir().unwrap();
    let mut saver = saver(&folder, 3);
    for step in [10, 20, 30, 10, 20] {
        save(&mut saver, &config, step);
    }
    assert_eq!(kept(&folder), [10, 30], "the two saved last before the newest");
}

#[test]
fn a_damaged_checkpoint_in_the_folder_does_not_stop_the_next_save() {
    let config = config("");
    for file in ["training_state.json", "model.safetensors"] {
        let folder = saved(&config);
        std::fs::write(folder.path().join("training_state.json"), "{").unwrap();
        std::fs::remove_file(folder.path().join(file)).unwrap();
        save(&mut saver(&folder, 2), &config, 20);
        load(folder.path(), &tensors_of(&config), Part::All).unwrap();
    }
}
