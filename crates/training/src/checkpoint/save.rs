//! Saving: one saver per folder, one snapshot after another. A kill at any moment loses nothing that was saved.

use std::fs::{self, File, TryLockError};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use headroom_record::atomic::FileError;
use headroom_record::reading;

use super::companions::{self, Companions};
use super::journal::{self, Moments, next_path};
use super::keep;
use super::ranges;
use super::state::{Digests, StateFile};
use super::stored::{self, StoredTensor};
use super::tensor_writer::{TakePiece, write_bytes, write_tensors};
use super::{
    CONFIG_FILE, CheckpointError, Content, HfConfig, INDEX_FILE, MODEL_FILE, OPTIMIZER_FILE, STATE_FILE, SavedDtype,
    TensorSpec, TrainingState,
};

const LOCK_FILE: &str = ".lock";

/// Holds an exclusive lock on a folder for as long as it lives: a second saver, in any process, is refused.
#[derive(Debug)]
pub struct Saver {
    folder: PathBuf,
    keep: NonZeroUsize,
    pub(super) moments: Moments,
    _lock: File,
}

/// The contents of a checkpoint other than the tensor data.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// Also says the dtype of the weights.
    pub config: &'a HfConfig,
    /// Every parameter; tied ones appear once.
    pub tensors: &'a [TensorSpec],
    pub state: &'a TrainingState,
    pub companions: &'a Companions,
}

/// Supplies one tensor: called with the content, the parameter's name, and a function that takes the elements in order,
/// in one piece or many. Weights are asked for twice if the model's file does not hold them exactly.
pub type GiveTensor<'a> = dyn FnMut(Content, &str, &mut TakePiece) -> Result<(), CheckpointError> + 'a;

impl Saver {
    /// Creates the folder if it is missing, and finishes or removes what a killed save left in it. `keep` counts
    /// checkpoints including the newest; with 1, older ones that are already there are left alone.
    pub fn open(folder: &Path, keep: NonZeroUsize) -> Result<Saver, CheckpointError> {
        fs::create_dir_all(folder).map_err(FileError::new("make the folder", folder))?;
        let lock = lock(folder)?;
        let mut moments = Moments::default();
        journal::roll_forward(folder, &mut moments)?;
        journal::remove_leftovers(folder)?;
        Ok(Saver { folder: folder.to_path_buf(), keep, moments, _lock: lock })
    }

    /// Replaces the folder's checkpoint. After an error the previous one is still there, whole.
    pub fn save(&mut self, snapshot: Snapshot, give: &mut GiveTensor) -> Result<(), CheckpointError> {
        let saved = self.write_and_commit(snapshot, give);
        if let Err(error) = &saved
            && !is_stopped(error)
        {
            self.clear();
        }
        saved
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Frees disk space for the next attempt, above all when the disk is full. Errors are ignored: the first one is the
    /// one to report.
    pub fn clear(&mut self) {
        let _ = journal::roll_forward(&self.folder, &mut Moments::default())
            .and_then(|()| journal::remove_leftovers(&self.folder));
    }

    /// Creates the files that each rank writes its range of (`ranges`). The previous checkpoint stays valid.
    pub fn prepare(&mut self, tensors: &[TensorSpec], dtype: SavedDtype) -> Result<(), CheckpointError> {
        journal::roll_forward(&self.folder, &mut self.moments)?;
        ranges::prepare(&self.folder, tensors, dtype)
    }

    /// Commits the files that all ranks have written. Reads them once for their digests, which also shows whether all
    /// ranks wrote to the same place.
    pub fn commit_written(&mut self, snapshot: Snapshot) -> Result<(), CheckpointError> {
        let [model, optimizer] = ranges::digests(&self.folder)?;
        let config = self.write_text(CONFIG_FILE, snapshot.config.to_json())?;
        self.commit(snapshot, Digests { model, optimizer, config, state: None })
    }

    fn write_and_commit(&mut self, snapshot: Snapshot, give: &mut GiveTensor) -> Result<(), CheckpointError> {
        // An earlier save of this process may have committed and then failed to rename the files.
        journal::roll_forward(&self.folder, &mut self.moments)?;
        let (tensors, dtype) = (snapshot.tensors, snapshot.config.dtype);
        let digests = Digests {
            model: self.write_parameters(MODEL_FILE, &stored::of_model(tensors, dtype), give)?,
            optimizer: self.write_parameters(OPTIMIZER_FILE, &stored::of_optimizer(tensors, dtype), give)?,
            config: self.write_text(CONFIG_FILE, snapshot.config.to_json())?,
            state: None,
        };
        self.commit(snapshot, digests)
    }

    fn commit(&mut self, snapshot: Snapshot, digests: Digests) -> Result<(), CheckpointError> {
        let written = self.write_companions(snapshot.companions)?;
        let names: Vec<String> = snapshot.companions.files.keys().map(|name| name.to_string()).collect();
        let removed = self.replaced_companions(&names);
        let state = StateFile::new(snapshot.state.clone(), digests, names);
        let text = state.to_json().map_err(|error| CheckpointError::Unreadable {
            path: self.folder.join(STATE_FILE),
            why: error.to_string(),
        })?;
        self.write_text(STATE_FILE, &text)?;
        if self.keep.get() > 1 {
            keep::keep_current(&self.folder, &mut self.moments)?;
        }
        journal::commit(&self.folder, &written, removed, &mut self.moments)?;
        if self.keep.get() > 1 {
            keep::prune(&self.folder, self.keep.get() - 1, &mut self.moments)?;
        }
        Ok(())
    }

    /// Writes those that are not in the folder yet, and returns their names.
    fn write_companions(&mut self, companions: &Companions) -> Result<Vec<&'static str>, CheckpointError> {
        let mut written = vec![];
        for (name, bytes) in &companions.files {
            if reading::read(&self.folder.join(name), reading::CHECKPOINT).is_ok_and(|there| there == *bytes) {
                continue;
            }
            self.write_text(name, bytes)?;
            written.push(*name);
        }
        Ok(written)
    }

    /// Those of the replaced checkpoint or model that the new one does not have: its tokenizer would be taken for the new
    /// model's. A file that was put beside a checkpoint of ours stays.
    fn replaced_companions(&self, names: &[String]) -> Vec<String> {
        let mut before = match StateFile::read(&self.folder) {
            Ok(Some(state)) => state.companions,
            _ => companions::found_in(&self.folder),
        };
        before.retain(|name| companions::is_companion(name) && !names.contains(name));
        before
    }

    fn write_parameters(
        &mut self,
        file: &str,
        tensors: &[StoredTensor],
        give: &mut GiveTensor,
    ) -> Result<String, CheckpointError> {
        let moments = &mut self.moments;
        moments.pass()?;
        let digest = write_tensors(&next_path(&self.folder, file), tensors, &mut |tensor, take| {
            moments.pass()?;
            give(tensor.content, &tensor.parameter.name, take)
        })?;
        self.moments.pass()?;
        Ok(digest)
    }

    fn write_text(&mut self, file: &str, text: impl AsRef<[u8]>) -> Result<String, CheckpointError> {
        self.moments.pass()?;
        let digest = write_bytes(&next_path(&self.folder, file), text.as_ref())?;
        self.moments.pass()?;
        Ok(digest)
    }
}

/// The name of a model or checkpoint file in the folder that a save there would replace.
pub fn file_of_checkpoint(folder: &Path) -> Result<Option<String>, CheckpointError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(FileError::new("list", folder))? {
        let entry = entry.map_err(FileError::new("list", folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let files = journal::FILES.into_iter().chain([INDEX_FILE, journal::JOURNAL_FILE]);
        if files.into_iter().any(|file| file == name) || journal::step_of(&name).is_some() {
            found.push(name);
        }
    }
    // The model first: it is the file a user would miss most.
    found.sort_by_key(|name| (name != MODEL_FILE, name.clone()));
    Ok(found.into_iter().next())
}

/// Takes the lock without waiting: a folder in use stays in use for a whole run.
pub(super) fn lock(folder: &Path) -> Result<File, CheckpointError> {
    let path = folder.join(LOCK_FILE);
    let file =
        File::options().create(true).truncate(false).write(true).open(&path).map_err(FileError::new("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(CheckpointError::InUse { folder: folder.to_path_buf() }),
        Err(TryLockError::Error(error)) => Err(FileError::new("lock", &path)(error).into()),
    }
}

fn is_stopped(error: &CheckpointError) -> bool {
    #[cfg(test)]
    return matches!(error, CheckpointError::Stopped);
    #[cfg(not(test))]
    {
        let _ = error;
        false
    }
}
