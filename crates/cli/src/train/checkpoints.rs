//! Where a run's checkpoints go: the folder of `--save`, gone again when none was saved.

use super::folder::{make_folders, remove_folders};
use super::settings::Settings;
use anyhow::bail;
use headroom_training::checkpoint::{CheckpointError, Saver};
use headroom_training::persist::{self, Notes};
use headroom_training::trainer::Trainer;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

pub struct Checkpoints {
    pub folder: PathBuf,
    saver: Saver,
    /// Folders that were missing before, innermost first.
    made: Vec<PathBuf>,
    saved: bool,
}

impl Checkpoints {
    /// Refuses the run's own folder: both hold a config.json.
    pub fn open(folder: &Path, keep: NonZeroUsize, run_folder: &Path) -> anyhow::Result<Checkpoints> {
        let made = make_folders(folder)?;
        // Both exist by now, so that links and `..` cannot hide it.
        let same = folder.canonicalize().is_ok_and(|own| run_folder.canonicalize().is_ok_and(|other| own == other));
        if same {
            remove_folders(&made);
            bail!(
                "--save and --output-dir are the same folder ({}), and both hold a config.json\n  help: name two folders",
                folder.display()
            );
        }
        Ok(Checkpoints { folder: folder.to_path_buf(), saver: Saver::open(folder, keep)?, made, saved: false })
    }

    pub fn save(&mut self, trainer: &mut Trainer, settings: &Settings) -> Result<(), CheckpointError> {
        let notes = Notes {
            model: &settings.model,
            seq_len: settings.shape.seq_len,
            optimizer: &settings.optimizer,
            seed: settings.seed,
            data: &settings.data_description,
            extra: &settings.notes,
        };
        persist::save(trainer, &mut self.saver, &notes)?;
        self.saved = true;
        Ok(())
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        let Some(folder) = self.made.first().filter(|_| !self.saved) else { return };
        // The saver's lock is the one file that it makes before it saves; anything else keeps the folder.
        let is_lock = |entry: fs::DirEntry| entry.file_name() == ".lock";
        let only_the_lock = fs::read_dir(folder).is_ok_and(|files| files.flatten().all(is_lock));
        if only_the_lock {
            let _ = fs::remove_file(folder.join(".lock"));
            remove_folders(&self.made);
        }
    }
}
