//! Loading a checkpoint: everything, to resume, or only the weights. Tensor by tensor, each byte read once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use headroom_record::atomic::FileError;
use headroom_record::reading;
use safetensors::tensor::{Dtype, TensorInfo};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::journal::{self, Moments};
use super::save;
use super::state::StateFile;
use super::stored::{self, SavedDtype};
use super::tensor_writer::hex;
use super::{
    CONFIG_FILE, CheckpointError, Content, HfConfig, INDEX_FILE, MODEL_FILE, OPTIMIZER_FILE, STATE_FILE, TensorSpec,
    TrainingState,
};
use crate::safetensors_file::SafetensorsFile;

/// Bytes read at a time: a multiple of every element's width.
const PIECE_BYTES: usize = 1 << 18;

/// A checkpoint folder with all headers read and no tensor data yet.
#[derive(Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    config: HfConfig,
    config_digest: String,
    state: Option<StateFile>,
    /// The model's single file, or the index of its shards.
    model_path: PathBuf,
    models: Vec<SafetensorsFile>,
}

/// Receives elements: the tensor's content and parameter name, the index of the first element, and the values. Called
/// with all pieces of a tensor in order; tensors come in file order.
pub type TakeElements<'a> = dyn FnMut(Content, &str, usize, &[f32]) -> Result<(), CheckpointError> + 'a;

/// Adapter for a receiver that wants whole tensors: gathers the pieces in one buffer, which grows to the largest
/// tensor.
pub fn whole_tensors<'a>(
    parameters: &'a [TensorSpec],
    mut take: impl FnMut(Content, &str, &[f32]) -> Result<(), CheckpointError> + 'a,
) -> impl FnMut(Content, &str, usize, &[f32]) -> Result<(), CheckpointError> + 'a {
    let elements: BTreeMap<&str, usize> = parameters.iter().map(|p| (p.name.as_str(), p.elements())).collect();
    let mut gathered: Vec<f32> = Vec::new();
    move |content, name, first, piece| {
        if first == 0 {
            gathered.clear();
        }
        gathered.extend_from_slice(piece);
        if elements.get(name) == Some(&gathered.len()) { take(content, name, &gathered) } else { Ok(()) }
    }
}

impl Checkpoint {
    /// Opens a checkpoint, after finishing what a killed save left half done.
    pub fn open(folder: &Path) -> Result<Checkpoint, CheckpointError> {
        finish_pending_commit(folder)?;
        let config_path = folder.join(CONFIG_FILE);
        if !config_path.exists() {
            return Err(missing(folder, CONFIG_FILE));
        }
        let config_bytes =
            reading::read(&config_path, reading::CHECKPOINT).map_err(FileError::new("read", &config_path))?;
        let (single, index) = (folder.join(MODEL_FILE), folder.join(INDEX_FILE));
        let (model_path, models) = if single.exists() {
            let model = SafetensorsFile::open(&single)?;
            (single, vec![model])
        } else if index.exists() {
            let shards = open_shards(folder, &index)?;
            (index, shards)
        } else {
            return Err(missing(folder, MODEL_FILE));
        };
        let mut config = HfConfig::parse(&config_bytes, &config_path)?;
        if SavedDtype::named_in(&config.entries).is_none() {
            let tensors = models.iter().flat_map(SafetensorsFile::tensors);
            config.dtype = SavedDtype::shared_by(tensors.map(|(_, info)| info.dtype)).unwrap_or_default();
        }
        Ok(Checkpoint {
            folder: folder.to_path_buf(),
            config,
            config_digest: hex(Sha256::new_with_prefix(&config_bytes)),
            state: StateFile::read(folder)?,
            model_path,
            models,
        })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn config(&self) -> &HfConfig {
        &self.config
    }

    /// The training state; an error if the folder holds only a model.
    pub fn state(&self) -> Result<&TrainingState, CheckpointError> {
        Ok(&self.state_file()?.state)
    }

    /// Index of the sample to go on with, in the data that the checkpoint was trained on.
    pub fn next_sample(&self) -> Result<u64, CheckpointError> {
        let path = self.folder.join(STATE_FILE);
        self.state()?.sample_to_read().map_err(|why| CheckpointError::NoPosition { path, why })
    }

    /// Reads the weights as float32, from float32, float16 or bfloat16. Ignores the folder's other files.
    pub fn read_weights(&self, parameters: &[TensorSpec], take: &mut TakeElements) -> Result<(), CheckpointError> {
        self.check_weights(parameters)?;
        let wanted = self.wanted_weights(parameters);
        for model in &self.models {
            read_file(model, &wanted, take)?;
        }
        Ok(())
    }

    /// Reads the weights and the optimizer's state, and checks that all files were saved together. After an error, some
    /// tensors may already have been handed over.
    pub fn read_all(&self, parameters: &[TensorSpec], take: &mut TakeElements) -> Result<(), CheckpointError> {
        let digests = &self.state_file()?.sha256;
        let [model] = &self.models[..] else {
            return Err(self.not_resumable(MODEL_FILE));
        };
        if model.path() != self.model_path {
            return Err(self.not_resumable(MODEL_FILE)); // the one shard of an index
        }
        let optimizer_path = self.folder.join(OPTIMIZER_FILE);
        if !optimizer_path.exists() {
            return Err(self.not_resumable(OPTIMIZER_FILE));
        }
        let optimizer = SafetensorsFile::open(&optimizer_path)?;
        self.check_weights(parameters)?;
        let in_model = model.tensors().iter().map(|(_, info)| info.dtype);
        let dtype = SavedDtype::shared_by(in_model).unwrap_or_default();
        let states: Wanted = stored::of_optimizer(parameters, dtype)
            .into_iter()
            .map(|tensor| (tensor.name, (tensor.content, tensor.parameter)))
            .collect();
        let differences = differences(&states, &tensors_of(&optimizer), &[Dtype::F32], |_| false);
        refuse_differences(&optimizer_path, differences)?;

        let check = |path: &Path, want: &str, have: String| {
            if want == have {
                return Ok(());
            }
            Err(CheckpointError::DigestMismatch {
                path: path.to_path_buf(),
                state: STATE_FILE,
                want: want.to_string(),
                have,
            })
        };
        check(&self.folder.join(CONFIG_FILE), &digests.config, self.config_digest.clone())?;
        // Exact weights come from the optimizer's file if the model's does not hold them.
        let exact = states.values().any(|(content, _)| *content == Content::Weight);
        let weights = if exact { Wanted::new() } else { self.wanted_weights(parameters) };
        check(model.path(), &digests.model, read_file(model, &weights, take)?)?;
        check(&optimizer_path, &digests.optimizer, read_file(&optimizer, &states, take)?)
    }

    /// Weights under the names that the files use: some files leave out the prefix that all names but the head's begin
    /// with.
    fn wanted_weights<'a>(&self, parameters: &'a [TensorSpec]) -> Wanted<'a> {
        let prefix = self.config.model.family.prefix;
        let wanted = parameters.iter().map(|one| (one.name.clone(), (Content::Weight, one)));
        let mut names = self.models.iter().flat_map(SafetensorsFile::tensors).map(|(name, _)| name);
        if names.any(|name| name.starts_with(prefix)) {
            return wanted.collect();
        }
        let short = |name: String| name.strip_prefix(prefix).map_or_else(|| name.clone(), String::from);
        wanted.map(|(name, whose)| (short(name), whose)).collect()
    }

    fn check_weights(&self, parameters: &[TensorSpec]) -> Result<(), CheckpointError> {
        let wanted = self.wanted_weights(parameters);
        let have: BTreeMap<&str, &TensorInfo> = self.models.iter().flat_map(tensors_of).collect();
        // A tied head is the embedding.
        let model = &self.config.model;
        let redundant = |name: &str| (model.family.is_redundant)(name) || (name == "lm_head.weight" && model.tied);
        let floats = [Dtype::F32, Dtype::F16, Dtype::BF16];
        refuse_differences(&self.model_path, differences(&wanted, &have, &floats, redundant))
    }

    fn state_file(&self) -> Result<&StateFile, CheckpointError> {
        let state = self.state.as_ref().ok_or_else(|| self.not_resumable(STATE_FILE))?;
        match state.changed.clone() {
            None => Ok(state),
            Some((want, have)) => Err(CheckpointError::StateChanged { path: self.folder.join(STATE_FILE), want, have }),
        }
    }

    fn not_resumable(&self, missing: &'static str) -> CheckpointError {
        CheckpointError::NotResumable { folder: self.folder.clone(), missing }
    }
}

fn missing(folder: &Path, missing: &'static str) -> CheckpointError {
    CheckpointError::Missing { folder: folder.to_path_buf(), missing }
}

fn finish_pending_commit(folder: &Path) -> Result<(), CheckpointError> {
    // The journal of a live saver exists only briefly. One that stays belongs to a killed saver, whose lock is free.
    const TRIES: u32 = 20;
    for attempt in 1.. {
        if !journal::is_pending(folder) {
            return Ok(());
        }
        match save::lock(folder) {
            Ok(_lock) => return journal::roll_forward(folder, &mut Moments::default()),
            Err(CheckpointError::InUse { .. }) if attempt < TRIES => thread::sleep(Duration::from_millis(100)),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn open_shards(folder: &Path, path: &Path) -> Result<Vec<SafetensorsFile>, CheckpointError> {
    let unreadable = |why: String| CheckpointError::Unreadable { path: path.to_path_buf(), why };
    let bytes = reading::read(path, reading::CHECKPOINT).map_err(FileError::new("read", path))?;
    let index: Value = serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
    let map = index["weight_map"].as_object().ok_or_else(|| unreadable("it has no `weight_map`".to_string()))?;
    let mut names = BTreeSet::new();
    for name in map.values() {
        let plain = name.as_str().filter(|name| Path::new(name).file_name().is_some_and(|last| last == *name));
        names.insert(plain.ok_or_else(|| unreadable(format!("{name} is not a file beside it")))?);
    }
    let shards = names
        .into_iter()
        .map(|name| Ok(SafetensorsFile::open(&folder.join(name))?))
        .collect::<Result<Vec<_>, CheckpointError>>()?;
    let mut seen = BTreeSet::new();
    for (name, _) in shards.iter().flat_map(SafetensorsFile::tensors) {
        if !seen.insert(name.as_str()) {
            return Err(unreadable(format!("tensor {name} is in two of its files")));
        }
    }
    Ok(shards)
}

/// Names in the file, each with the tensor it stands for.
type Wanted<'a> = BTreeMap<String, (Content, &'a TensorSpec)>;

fn tensors_of(file: &SafetensorsFile) -> BTreeMap<&str, &TensorInfo> {
    file.tensors().iter().map(|(name, info)| (name.as_str(), info)).collect()
}

/// One line for every tensor that is missing, has another shape or type, or is not part of the model.
fn differences(
    wanted: &Wanted,
    have: &BTreeMap<&str, &TensorInfo>,
    dtypes: &[Dtype],
    is_redundant: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, (_, tensor)) in wanted {
        match have.get(name.as_str()) {
            None => lines.push(format!("tensor {name} is missing")),
            Some(info) if info.shape != tensor.shape => {
                lines.push(format!("tensor {name} is {:?}, but the model wants {:?}", info.shape, tensor.shape));
            }
            Some(info) if !dtypes.contains(&info.dtype) => {
                lines.push(format!("tensor {name} is {:?}, but only {dtypes:?} can be read", info.dtype));
            }
            Some(_) => {}
        }
    }
    for name in have.keys() {
        if !wanted.contains_key(*name) && !is_redundant(name) {
            lines.push(format!("tensor {name} is not part of the model"));
        }
    }
    lines
}

fn refuse_differences(path: &Path, differences: Vec<String>) -> Result<(), CheckpointError> {
    if differences.is_empty() {
        return Ok(());
    }
    Err(CheckpointError::Mismatch { path: path.to_path_buf(), differences })
}

/// Reads the whole file once, in order: hands over the wanted tensors and returns the SHA-256 of the file.
fn read_file(file: &SafetensorsFile, wanted: &Wanted, take: &mut TakeElements) -> Result<String, CheckpointError> {
    let mut digest = Sha256::new_with_prefix(file.head());
    let mut bytes = vec![0; PIECE_BYTES];
    let mut elements: Vec<f32> = Vec::with_capacity(PIECE_BYTES / 2);
    for (name, info) in file.tensors() {
        let owner = wanted.get(name);
        let mut first = 0;
        file.read_pieces(info, &mut bytes, |piece| -> Result<(), CheckpointError> {
            digest.update(piece);
            let Some((content, tensor)) = owner else { return Ok(()) };
            elements.clear();
            decode(info.dtype, piece, &mut elements);
            take(*content, &tensor.name, first, &elements)?;
            first += elements.len();
            Ok(())
        })?;
    }
    Ok(hex(digest))
}

/// Decodes the dtypes that `differences` lets through.
fn decode(dtype: Dtype, bytes: &[u8], elements: &mut Vec<f32>) {
    match dtype {
        Dtype::BF16 => elements.extend(bytes.as_chunks().0.iter().map(|two| half::bf16::from_le_bytes(*two).to_f32())),
        Dtype::F16 => elements.extend(bytes.as_chunks().0.iter().map(|two| half::f16::from_le_bytes(*two).to_f32())),
        _ => elements.extend(bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four))),
    }
}
