//! Files that the patch changes, each read and parsed once.

use super::Changed;
use crate::remedies::Remedy;
use headroom_rewrite::Rewrite;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

pub struct Files<'a> {
    sources: &'a dyn Fn(&Path) -> Option<String>,
    open: BTreeMap<PathBuf, File>,
}

pub struct File {
    before: String,
    pub rewrite: Rewrite,
    /// Remedies that change it, with their descriptions.
    remedies: BTreeMap<&'static str, &'static str>,
    /// Texts that were already added after its imports.
    texts: BTreeSet<String>,
}

impl File {
    /// Adds lines after the imports, once.
    pub fn after_imports(&mut self, text: &str, imports: &[&str]) {
        for name in imports {
            self.rewrite.import(name);
        }
        if self.texts.insert(text.to_string()) {
            let lines: Vec<String> = text.lines().map(str::to_string).collect();
            self.rewrite.after_imports(&lines);
        }
    }
}

impl<'a> Files<'a> {
    pub fn new(sources: &'a dyn Fn(&Path) -> Option<String>) -> Files<'a> {
        Files { sources, open: BTreeMap::new() }
    }

    fn find(&mut self, path: &Path) -> Option<&mut File> {
        let path = plain(path);
        if !self.open.contains_key(&path) {
            let before = (self.sources)(&path)?;
            let rewrite = Rewrite::of(&path.display().to_string(), &before)?;
            let file = File { before, rewrite, remedies: BTreeMap::new(), texts: BTreeSet::new() };
            self.open.insert(path.clone(), file);
        }
        self.open.get_mut(&path)
    }

    pub fn is_readable(&mut self, path: &Path) -> bool {
        self.find(path).is_some()
    }

    /// Opens a file for a change by the remedy.
    pub fn change(&mut self, path: &Path, remedy: &Remedy) -> Result<&mut File, String> {
        let unreadable = format!("{} cannot be read as Python", path.display());
        let file = self.find(path).ok_or(unreadable)?;
        file.remedies.insert(remedy.name, remedy.by_hand);
        Ok(file)
    }

    /// All files opened so far.
    pub fn all(&mut self) -> impl Iterator<Item = &mut File> {
        self.open.values_mut()
    }

    /// Changed files, and messages about those that would no longer parse.
    pub fn finish(self) -> (Vec<Changed>, Vec<String>) {
        let (mut changed, mut broken) = (vec![], vec![]);
        for (path, File { before, rewrite, remedies, .. }) in self.open {
            match rewrite.finish() {
                Some(after) if after == before => {}
                Some(after) => changed.push(Changed { path, before, after }),
                None => {
                    let words = remedies
                        .iter()
                        .map(|(name, words)| format!("{name}: {} cannot be rewritten; {words}", path.display()));
                    broken.extend(words);
                }
            }
        }
        (changed, broken)
    }
}

/// Without a leading `./`, so that one file has one name.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}
