//! Caches recent documents, so that the next page of a trace does not need to read it again.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use super::command::Done;

const MOST_DOCUMENTS: usize = 4;
/// The most bytes of a cached document as JSON; larger ones are computed again.
const MOST_BYTES: usize = 16 << 20;

/// Files that were read, with their lengths and modification times.
#[derive(Clone, Debug, PartialEq)]
pub struct Stamp(Vec<(PathBuf, u64, SystemTime)>);

impl Stamp {
    /// The given files, and those directly in folders and one level below. Returns `None` if something cannot be
    /// determined.
    pub fn of(paths: &[PathBuf]) -> Option<Stamp> {
        let mut files = Vec::new();
        for path in paths {
            add(path, 2, &mut files)?;
        }
        Some(Stamp(files))
    }
}

fn add(path: &Path, levels: usize, files: &mut Vec<(PathBuf, u64, SystemTime)>) -> Option<()> {
    let about = std::fs::metadata(path).ok()?;
    files.push((path.to_path_buf(), about.len(), about.modified().ok()?));
    if about.is_dir() && levels > 0 {
        let mut entries: Vec<PathBuf> =
            std::fs::read_dir(path).ok()?.map(|entry| Some(entry.ok()?.path())).collect::<Option<_>>()?;
        entries.sort();
        for entry in entries {
            add(&entry, levels - 1, files)?;
        }
    }
    Some(())
}

/// Cached documents, newest last.
#[derive(Default)]
pub struct Kept(Mutex<VecDeque<(Vec<OsString>, Stamp, Arc<Done>)>>);

impl Kept {
    pub fn find(&self, words: &[OsString], stamp: &Stamp) -> Option<Arc<Done>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(own, when, _)| own == words && when == stamp).map(|(_, _, done)| Arc::clone(done))
    }

    pub fn keep(&self, words: Vec<OsString>, stamp: Stamp, done: &Arc<Done>) {
        if done.bytes > MOST_BYTES {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(own, _, _)| *own != words);
        kept.push_back((words, stamp, Arc::clone(done)));
        while kept.len() > MOST_DOCUMENTS {
            kept.pop_front();
        }
    }
}
