//! The folder of `--save` for a run's checkpoints, removed again if none was saved.

use super::folder::{IfFolderExists, make_folders, remove_folders};
use super::settings::Settings;
use anyhow::bail;
use headroom_training::checkpoint::{CheckpointError, Companions, Saver, file_of_checkpoint};
use headroom_training::patience::Patience;
use headroom_training::persist::{self, Notes};
use headroom_training::trainer::Trainer;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

pub struct Checkpoints {
    pub folder: PathBuf,
    saver: Saver,
    /// The saver of `best/`, once there is one.
    best: Option<Saver>,
    /// Folders that did not exist before, innermost first.
    made: Vec<PathBuf>,
    saved: bool,
}

impl Checkpoints {
    /// Opens the folder. Refuses the run's own folder, since both have a config.json, and a folder with a model, unless
    /// it is the `resumed` one or may be overwritten.
    pub fn open(
        folder: &Path,
        keep: NonZeroUsize,
        run_folder: &Path,
        resumed: Option<&Path>,
        companions: &Companions,
        if_taken: IfFolderExists,
    ) -> anyhow::Result<Checkpoints> {
        let made = make_folders(folder)?;
        if is_same(folder, run_folder) {
            remove_folders(&made);
            bail!(
                "--save and --output-dir are the same folder ({}), and both hold a config.json\n  help: name two folders",
                folder.display()
            );
        }
        let own = resumed.is_some_and(|resumed| is_same(folder, resumed));
        let file = file_of_checkpoint(folder)?.or(companions.other_in(folder).map(String::from));
        if let (Some(file), IfFolderExists::Refuse, false) = (file, if_taken, own) {
            if folder.join(".lock").exists() {
                // If it is being written to right now, that is the better reason.
                Saver::open(folder, keep)?;
            }
            bail!(
                "{} holds another model already ({file}), which the first checkpoint would replace\n  help: name another folder, \
                 continue that one with --resume {}, or add --overwrite",
                folder.display(),
                folder.display()
            );
        }
        Ok(Checkpoints {
            folder: folder.to_path_buf(),
            saver: Saver::open(folder, keep)?,
            best: None,
            made,
            saved: false,
        })
    }

    /// The folder of the checkpoint with the best evaluation.
    pub fn best_folder(&self) -> PathBuf {
        self.folder.join(BEST)
    }

    pub fn has_saved(&self) -> bool {
        self.saved
    }

    pub fn save(
        &mut self,
        trainer: &mut Trainer,
        settings: &Settings,
        patience: &Patience,
    ) -> Result<(), CheckpointError> {
        save_with(&mut self.saver, trainer, settings, patience)?;
        self.saved = true;
        Ok(())
    }

    /// Saves a complete checkpoint besides the newest, replacing the previous best.
    pub fn save_best(
        &mut self,
        trainer: &mut Trainer,
        settings: &Settings,
        patience: &Patience,
    ) -> Result<(), CheckpointError> {
        let saver = match &mut self.best {
            Some(saver) => saver,
            none => none.insert(Saver::open(&self.folder.join(BEST), NonZeroUsize::MIN)?),
        };
        save_with(saver, trainer, settings, patience)
    }
}

pub const BEST: &str = "best";

fn save_with(
    saver: &mut Saver,
    trainer: &mut Trainer,
    settings: &Settings,
    patience: &Patience,
) -> Result<(), CheckpointError> {
    let mut extra = settings.notes.clone();
    if let Some(best) = patience.best.filter(|_| settings.keep_best || patience.most > 0) {
        extra.insert("best_eval_loss".into(), f64::from(best.loss).into());
        extra.insert("best_eval_step".into(), best.step.into());
        extra.insert("evals_since_best".into(), patience.since.into());
    }
    let notes = Notes {
        config: &settings.hf,
        optimizer: &settings.optimizer,
        seed: settings.seed,
        data: &settings.data_description,
        extra: &extra,
        companions: &settings.companions,
    };
    persist::save(trainer, saver, &notes)
}

/// Whether both exist and are the same folder, despite links and `..`.
fn is_same(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        let Some(folder) = self.made.first().filter(|_| !self.saved) else { return };
        // The saver's lock is the only file it creates before saving; any other file keeps the folder.
        let is_lock = |entry: fs::DirEntry| entry.file_name() == ".lock";
        let only_the_lock = fs::read_dir(folder).is_ok_and(|files| files.flatten().all(is_lock));
        if only_the_lock {
            let _ = fs::remove_file(folder.join(".lock"));
            remove_folders(&self.made);
        }
    }
}
