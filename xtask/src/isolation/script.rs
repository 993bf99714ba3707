//! The scripts of the suite: files in `xtask/isolation/scripts`, whose first line says what they attempt.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::process::workspace_root;

pub struct Script {
    pub name: String,
    tags: Vec<String>,
}

/// Words in brackets at the beginning of a script's first line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tag {
    /// It names the user's folder by its absolute path, from which a mere copy does not keep it.
    Absolute,
    /// It acts on more than files of the user, so it is never run unshielded.
    System,
    /// It writes after it has ended.
    Later,
    /// It is run by `optimize`, several times in one search.
    Search,
}

const TAGS: [(&str, Tag); 4] =
    [("absolute", Tag::Absolute), ("system", Tag::System), ("later", Tag::Later), ("search", Tag::Search)];

impl Script {
    /// All scripts, by name.
    pub fn all() -> Result<Vec<Script>> {
        let folder = scripts_folder();
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        let read = |name: String| {
            let text = fs::read_to_string(folder.join(&name)).with_context(|| format!("cannot read {name}"))?;
            Script::parse(name, &text)
        };
        names.into_iter().map(read).collect()
    }

    fn parse(name: String, text: &str) -> Result<Script> {
        let first = text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or_default();
        let mut rest = first;
        let mut tags = vec![];
        while let Some((tag, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
            ensure!(TAGS.iter().any(|(word, _)| *word == tag), "{name}: `[{tag}]` is not one of the tags");
            tags.push(tag.to_string());
            rest = after;
        }
        ensure!(rest.ends_with('.'), "{name}: its first line must be a comment that says what it attempts");
        Ok(Script { name, tags })
    }

    pub fn has(&self, tag: Tag) -> bool {
        TAGS.iter().any(|(word, one)| *one == tag && self.tags.iter().any(|own| own == word))
    }

    pub fn is_shell(&self) -> bool {
        self.name.ends_with(".sh")
    }
}

/// The folder of the scripts, and of the two files that they share.
pub fn scripts_folder() -> PathBuf {
    shared_folder().join("scripts")
}

pub fn shared_folder() -> PathBuf {
    workspace_root().join("xtask/isolation")
}

/// Scripts for CI: one of each kind of harm, the ones that needed a mend first among them.
pub const QUICK: [&str; 12] = [
    "append.sh",
    "collect_garbage.sh",
    "crowded_folder.py",
    "daemon.py",
    "database.py",
    "device_files.sh",
    "download.py",
    "links_out.py",
    "new_namespaces.py",
    "path_from_shell.py",
    "programs.py",
    "remove_trees.py",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_says_what_it_attempts_and_its_tags_are_known() {
        let script = Script::parse("a.py".into(), "# [absolute] [later] Writes.\nimport os\n").unwrap();
        assert!(script.has(Tag::Absolute) && script.has(Tag::Later) && !script.has(Tag::System));
        for text in ["import os\n", "# [unknown] Writes.\n", "# no sentence\n", ""] {
            assert!(Script::parse("a.py".into(), text).is_err(), "{text}");
        }
    }

    #[test]
    fn there_are_at_least_forty_scripts_and_those_of_ci_are_among_them() {
        let scripts = Script::all().unwrap();
        assert!(scripts.len() >= 40, "{}", scripts.len());
        assert!(scripts.iter().all(|script| script.is_shell() || script.name.ends_with(".py")));
        for name in QUICK {
            assert!(scripts.iter().any(|script| script.name == name), "{name}");
        }
    }
}
