//! Finds the project a file belongs to, from the file alone and never from what was asked about.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::within;

/// Folders without source of the project.
pub const SKIPPED: &[&str] = &["__pycache__", "node_modules", "venv", "site-packages"];

/// Entries at the root of a repository, and at the root of a project outside a repository.
const REPOSITORY: &[&str] = &[".git", ".hg"];
const PROJECT: &[&str] = &["pyproject.toml", "setup.py", "setup.cfg", "headroom.toml"];

/// Folders where third-party packages are installed, each in a folder of its own.
const INSTALLED: &[&str] = &["site-packages", "dist-packages"];

/// Whether a file in a folder is read.
pub fn is_script(name: &str) -> bool {
    name.ends_with(".py") || name.ends_with(".ipynb")
}

/// Roots by folder.
pub struct Roots {
    known: HashMap<PathBuf, PathBuf>,
    /// Folders that many projects share.
    shared: Vec<PathBuf>,
}

impl Roots {
    #[expect(clippy::new_without_default, reason = "asks the environment for shared folders")]
    pub fn new() -> Roots {
        Roots { known: HashMap::new(), shared: shared_folders() }
    }

    /// The root of the project that the files of `folder`, given by its full path, belong to.
    pub fn of_folder(&mut self, folder: &Path) -> PathBuf {
        if let Some(root) = self.known.get(folder) {
            return root.clone();
        }
        let root = find(folder, &self.shared);
        self.known.insert(folder.to_path_buf(), root.clone());
        root
    }
}

/// The repository's root, else the project's, else the topmost folder of the unbroken chain that contains scripts.
fn find(folder: &Path, shared: &[PathBuf]) -> PathBuf {
    let around = considered(folder, shared);
    let holds = |names: &'static [&str]| move |folder: &&&Path| names.iter().any(|name| folder.join(name).exists());
    if let Some(root) = around.iter().find(holds(REPOSITORY)) {
        return root.to_path_buf();
    }
    if let Some(at) = around.iter().position(|folder| holds(PROJECT)(&folder)) {
        // A component with its own `setup.py`, beside the scripts that use it.
        let whole = around[at + 1..].iter().take_while(|folder| holds_scripts(folder)).last();
        return whole.unwrap_or(&around[at]).to_path_buf();
    }
    let with_scripts = around.iter().skip(1).take_while(|folder| holds_scripts(folder)).last();
    with_scripts.map_or(folder, |folder| folder).to_path_buf()
}

/// The folder and its ancestors that may be the root: up to an installed package, a hidden folder or one that is never
/// walked into, and not a folder that many projects share.
fn considered<'f>(folder: &'f Path, shared: &[PathBuf]) -> Vec<&'f Path> {
    let mut around = Vec::new();
    for ancestor in folder.ancestors() {
        let name = ancestor.file_name().unwrap_or_default().to_string_lossy();
        if !around.is_empty() && !within::allows(ancestor) {
            break;
        }
        let is_shared = ancestor.parent().is_none() || shared.iter().any(|one| one == ancestor);
        if !around.is_empty() && (is_shared || INSTALLED.contains(&name.as_ref())) {
            break;
        }
        around.push(ancestor);
        if name.starts_with('.') || SKIPPED.contains(&name.as_ref()) {
            break;
        }
    }
    around
}

fn shared_folders() -> Vec<PathBuf> {
    let named = ["HOME", "USERPROFILE"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let fixed = ["/tmp", "/var/tmp", "/home", "/root", "/mnt", "/opt", "/srv"].map(PathBuf::from);
    let all = named.chain([std::env::temp_dir()]).chain(fixed);
    all.map(|folder| std::fs::canonicalize(&folder).unwrap_or(folder)).collect()
}

fn holds_scripts(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| is_script(&entry.file_name().to_string_lossy()))
}
