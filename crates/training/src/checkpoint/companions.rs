//! The files beside a model that training leaves as they are: its tokenizer, its chat template and how it generates.

use std::collections::BTreeMap;
use std::path::Path;

use headroom_record::atomic::FileError;
use headroom_record::reading;

use super::CheckpointError;

pub const TOKENIZER_FILE: &str = "tokenizer.json";

pub const GENERATION_FILE: &str = "generation_config.json";

/// Files that belong to a tokenizer, under transformers' names.
const TOKENIZER_FILES: [&str; 10] = [
    TOKENIZER_FILE,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.txt",
];

/// Such files with their contents: a checkpoint holds them even if the folder they came from is gone by then.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Companions {
    pub(super) files: BTreeMap<&'static str, Vec<u8>>,
}

impl Companions {
    /// All that the folder holds.
    pub fn read(folder: &Path) -> Result<Companions, CheckpointError> {
        Companions::default().and(folder, names())
    }

    /// The same with another tokenizer: that of this `tokenizer.json`, with the files beside it. A file of another name is
    /// taken without what is beside it, which need not belong to it.
    pub fn with_tokenizer(self, path: &Path) -> Result<Companions, CheckpointError> {
        let mut others = self.without_tokenizer();
        match path.parent().filter(|_| path.file_name().is_some_and(|name| name == TOKENIZER_FILE)) {
            Some(folder) => others.and(folder, TOKENIZER_FILES.into_iter()),
            None => {
                others.files.insert(
                    TOKENIZER_FILE,
                    reading::read(path, reading::CHECKPOINT).map_err(FileError::new("read", path))?,
                );
                Ok(others)
            }
        }
    }

    pub fn without_tokenizer(mut self) -> Companions {
        self.files.retain(|name, _| !TOKENIZER_FILES.contains(name));
        self
    }

    /// The first file of such a name in the folder that is not one of these.
    pub fn other_in(&self, folder: &Path) -> Option<&'static str> {
        names().find(|name| {
            let there = reading::read(&folder.join(name), reading::CHECKPOINT);
            there.is_ok_and(|there| self.files.get(name) != Some(&there))
        })
    }

    fn and(mut self, folder: &Path, names: impl Iterator<Item = &'static str>) -> Result<Companions, CheckpointError> {
        for name in names {
            let path = folder.join(name);
            if path.is_file() {
                self.files
                    .insert(name, reading::read(&path, reading::CHECKPOINT).map_err(FileError::new("read", &path))?);
            }
        }
        Ok(self)
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    TOKENIZER_FILES.into_iter().chain([GENERATION_FILE])
}

pub(super) fn is_companion(name: &str) -> bool {
    names().any(|one| one == name)
}

/// The names of those in a folder.
pub(super) fn found_in(folder: &Path) -> Vec<String> {
    names().filter(|name| folder.join(name).is_file()).map(String::from).collect()
}
