//! The run's folder: claimed before anything is trained, so that a full or forbidden disk is known at once.

use anyhow::{Context, bail};
use headroom_record::atomic::FileError;
use headroom_record::config::CONFIG_FILE;
use headroom_record::performance::PERFORMANCE_FILE;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub const LOG_FILE: &str = "training_output.log";

pub struct RunFolder {
    pub path: PathBuf,
    log: File,
    /// The first line that could not be written; said at the end instead of at every step.
    log_error: Option<io::Error>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfTaken {
    Refuse,
    Overwrite,
}

impl RunFolder {
    /// The folder asked for, or a new one under `runs/` named by the time and the size.
    pub fn claim(asked: Option<&Path>, timestamp: &str, size: &str, if_taken: IfTaken) -> anyhow::Result<RunFolder> {
        if let Some(path) = asked {
            return RunFolder::claim_at(path, if_taken);
        }
        let name = format!("{}-{size}", timestamp.trim_end_matches('Z').replace([':', '-'], "").replace('T', "-"));
        for attempt in 1..1000 {
            let suffix = if attempt == 1 { String::new() } else { format!("-{attempt}") };
            let path = Path::new("runs").join(format!("{name}{suffix}"));
            fs::create_dir_all("runs").map_err(FileError::new("make the folder", Path::new("runs")))?;
            match fs::create_dir(&path) {
                Ok(()) => return RunFolder::claim_at(&path, if_taken),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(FileError::new("make the folder", &path)(error).into()),
            }
        }
        bail!("runs/ holds a thousand runs of this very second\n  help: name one with --output-dir")
    }

    fn claim_at(path: &Path, if_taken: IfTaken) -> anyhow::Result<RunFolder> {
        fs::create_dir_all(path).map_err(FileError::new("make the folder", path))?;
        let log_path = path.join(LOG_FILE);
        let taken = [CONFIG_FILE, PERFORMANCE_FILE, LOG_FILE].into_iter().find(|file| path.join(file).exists());
        if let (Some(file), IfTaken::Refuse) = (taken, if_taken) {
            bail!(
                "{} holds another run already ({file})\n  help: name another folder, or add --overwrite",
                path.display()
            );
        }
        let mut options = OpenOptions::new();
        options.write(true);
        match if_taken {
            // Created by this process and no other: of two that start at once, one is refused.
            IfTaken::Refuse => options.create_new(true),
            IfTaken::Overwrite => options.create(true).truncate(true),
        };
        let log = options.open(&log_path).map_err(FileError::new("write", &log_path))?;
        for stale in [CONFIG_FILE, PERFORMANCE_FILE] {
            match fs::remove_file(path.join(stale)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot replace {}", path.join(stale).display()));
                }
                _ => {}
            }
        }
        Ok(RunFolder { path: path.to_path_buf(), log, log_error: None })
    }

    /// Adds a line to the log.
    pub fn log(&mut self, line: &str) {
        if self.log_error.is_none()
            && let Err(error) = writeln!(self.log, "{line}")
        {
            self.log_error = Some(error);
        }
    }

    pub fn finish_log(&mut self) -> Result<(), FileError> {
        let path = self.path.join(LOG_FILE);
        match self.log_error.take() {
            Some(error) => Err(FileError::new("write", &path)(error)),
            None => self.log.sync_all().map_err(FileError::new("write", &path)),
        }
    }
}
