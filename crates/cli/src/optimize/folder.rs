//! The folder for the results on our own model: an empty one is removed again, however the command ends.

use crate::train::folder::{make_folders, remove_folders};
use crate::{output, signals};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub struct ResultFolder {
    /// Folders that did not exist before, innermost first.
    made: Arc<Mutex<Vec<PathBuf>>>,
}

impl ResultFolder {
    /// Makes the folder. From now on a request to end ends the process at once: the search has no step at which half a
    /// result could be written, and every file that it does write is whole.
    pub fn make(path: &Path) -> anyhow::Result<ResultFolder> {
        let made = Arc::<Mutex<Vec<PathBuf>>>::default();
        let (at_the_end, folder) = (Arc::clone(&made), path.to_path_buf());
        signals::end_on_request(move || {
            remove_folders(&held(&at_the_end));
            output::note(&match folder.exists() {
                true => format!("interrupted; nothing was decided, and what {} holds stays", folder.display()),
                false => "interrupted; nothing was decided, and nothing is written".into(),
            });
        })?;
        // A request that comes now waits until it is known what was made.
        let mut list = held(&made);
        *list = make_folders(path)?;
        drop(list);
        Ok(ResultFolder { made })
    }
}

impl Drop for ResultFolder {
    fn drop(&mut self) {
        remove_folders(&held(&self.made));
    }
}

fn held(made: &Mutex<Vec<PathBuf>>) -> MutexGuard<'_, Vec<PathBuf>> {
    made.lock().unwrap_or_else(PoisonError::into_inner)
}
