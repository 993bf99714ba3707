//! The run's folder: claimed before anything is trained, and removed again if nothing was.

use super::config_file::RUN_FILE;
use crate::profile::files;
use anyhow::{bail, ensure};
use headroom_record::atomic::{FileError, write_json};
use headroom_record::attribution::ATTRIBUTION_FILE;
use headroom_record::config::{CONFIG_FILE, ConfigRecord};
use headroom_record::performance::{PERFORMANCE_FILE, PerformanceRecord};
use headroom_record::progress::{EvaluationLine, PROGRESS_FILE, ProgressHeader, ProgressLine};
use serde::Serialize;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

pub const LOG_FILE: &str = "training_output.log";

/// All files that a run writes into its folder.
pub const FILES: [&str; 6] = [CONFIG_FILE, PERFORMANCE_FILE, LOG_FILE, PROGRESS_FILE, ATTRIBUTION_FILE, RUN_FILE];

/// Deletes a run: its files, and the folder if nothing else is in it.
pub fn remove_run(path: &Path) -> Result<(), FileError> {
    remove_files(path)?;
    files::clear(path)?;
    match fs::remove_dir(path) {
        Err(error) if error.kind() != ErrorKind::DirectoryNotEmpty => Err(FileError::new("remove", path)(error)),
        _ => Ok(()),
    }
}

fn remove_files(path: &Path) -> Result<(), FileError> {
    for stale in FILES {
        let path = path.join(stale);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(FileError::new("replace", &path)(error)),
            _ => {}
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfFolderExists {
    Refuse,
    Overwrite,
}

pub struct RunFolder {
    pub path: PathBuf,
    log: Option<File>,
    progress: Option<File>,
    /// The first write error; reported at the end instead of at every step.
    log_error: Option<io::Error>,
    /// Folders that did not exist before, innermost first.
    made: Vec<PathBuf>,
    /// A lock on the folder itself, held while the run lives.
    _lock: Option<File>,
    kept: bool,
}

/// How often a lock is tried before it is taken to be a run's.
const LOOKS: u64 = 5;

impl RunFolder {
    /// Claims a new folder under `runs/`, named after the time and the size.
    pub fn claim_new(timestamp: &str, size: &str) -> anyhow::Result<RunFolder> {
        let name = format!("{}-{size}", timestamp.trim_end_matches('Z').replace([':', '-'], "").replace('T', "-"));
        let mut made = make_folders(Path::new("runs"))?;
        for attempt in 1..1000 {
            let suffix = if attempt == 1 { String::new() } else { format!("-{attempt}") };
            let path = Path::new("runs").join(format!("{name}{suffix}"));
            match fs::create_dir(&path) {
                Ok(()) => {
                    made.insert(0, path.clone());
                    return RunFolder::locked(&path, made);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(FileError::new("make the folder", &path)(error).into()),
            }
        }
        bail!("runs/ holds a thousand runs from this very second\n  help: name one with --output-dir")
    }

    pub fn claim(path: &Path, if_taken: IfFolderExists) -> anyhow::Result<RunFolder> {
        ensure!(
            path.is_dir() || !path.exists(),
            "{} is a file, and a run needs a folder\n  help: name another with --output-dir",
            path.display()
        );
        let made = make_folders(path)?;
        let folder = RunFolder::locked(path, made)?;
        let taken = FILES.into_iter().find(|file| path.join(file).exists());
        if let (Some(file), IfFolderExists::Refuse) = (taken, if_taken) {
            // The files here belong to another run and must not be deleted.
            bail!(
                "{} holds another run already ({file})\n  help: name another folder, or add --overwrite",
                path.display()
            );
        }
        Ok(folder)
    }

    fn locked(path: &Path, made: Vec<PathBuf>) -> anyhow::Result<RunFolder> {
        // Not every system can open a folder; there the check for another run's files must suffice.
        let lock = File::open(path).ok();
        let is_taken = || matches!(lock.as_ref().map(File::try_lock), Some(Err(TryLockError::WouldBlock)));
        // A dashboard or a study that checks whether a run is alive holds the lock for an instant; a run holds it
        // throughout.
        if (0..LOOKS).all(|look| {
            sleep(Duration::from_millis(look * 10));
            is_taken()
        }) {
            bail!("another run is writing to {}\n  help: name another folder with --output-dir", path.display());
        }
        Ok(RunFolder {
            path: path.to_path_buf(),
            log: None,
            progress: None,
            log_error: None,
            made,
            _lock: lock,
            kept: false,
        })
    }

    /// Clears an older run and writes what is known before the first step.
    pub fn begin(&mut self, config: &ConfigRecord, opening: &str, header: &ProgressHeader) -> Result<(), FileError> {
        remove_files(&self.path)?;
        files::clear(&self.path)?;
        let log = self.path.join(LOG_FILE);
        self.log = Some(File::create_new(&log).map_err(FileError::new("write", &log))?);
        let progress = self.path.join(PROGRESS_FILE);
        self.progress = Some(File::create_new(&progress).map_err(FileError::new("write", &progress))?);
        write_json(&self.path.join(CONFIG_FILE), config)?;
        self.progress_object(header);
        opening.lines().for_each(|line| self.log(line));
        match self.log_error.take() {
            Some(error) => Err(FileError::new("write", &log)(error)),
            None => Ok(()),
        }
    }

    /// Adds a line to the log.
    pub fn log(&mut self, line: &str) {
        if self.log_error.is_none()
            && let Some(log) = &mut self.log
            && let Err(error) = writeln!(log, "{line}")
        {
            self.log_error = Some(error);
        }
    }

    /// Adds a line for observers of the run.
    pub fn progress(&mut self, line: &ProgressLine) {
        self.progress_object(line);
    }

    pub fn evaluation(&mut self, line: &EvaluationLine) {
        self.progress_object(line);
    }

    /// Writes in one call, so that a reader sees half a line at most at the very end.
    fn progress_object(&mut self, object: &impl Serialize) {
        if self.log_error.is_none()
            && let Some(progress) = &mut self.progress
        {
            let text = serde_json::to_string(object).map_err(io::Error::from);
            self.log_error = text.and_then(|text| progress.write_all(format!("{text}\n").as_bytes())).err();
        }
    }

    /// Writes the summary; the folder is kept from now on.
    pub fn finish(&mut self, record: &PerformanceRecord, shown: &str) -> Result<(), FileError> {
        self.kept = true;
        write_json(&self.path.join(PERFORMANCE_FILE), record)?;
        shown.lines().for_each(|line| self.log(line));
        let path = self.path.join(LOG_FILE);
        match (self.log_error.take(), &self.log) {
            (Some(error), _) => Err(FileError::new("write", &path)(error)),
            (None, Some(log)) => log.sync_all().map_err(FileError::new("write", &path)),
            (None, None) => Ok(()),
        }
    }
}

/// If nothing was trained, nothing is kept. A file that cannot be removed was not ours or is in use, and stays.
impl Drop for RunFolder {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        if self.log.take().is_some() {
            for file in FILES {
                let _ = fs::remove_file(self.path.join(file));
            }
        }
        remove_folders(&self.made);
    }
}

/// Creates the missing folders of the path and returns them, innermost first.
pub fn make_folders(path: &Path) -> Result<Vec<PathBuf>, FileError> {
    let missing: Vec<PathBuf> = path
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
        .map(Path::to_path_buf)
        .collect();
    fs::create_dir_all(path).map_err(FileError::new("make the folder", path))?;
    Ok(missing)
}

/// Removes those that are empty, in order.
pub fn remove_folders(made: &[PathBuf]) {
    for folder in made {
        let _ = fs::remove_dir(folder);
    }
}
