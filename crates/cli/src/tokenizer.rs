//! The tokenizer of text for a model: the one that was asked for, or the model's own.

use crate::kept;
use anyhow::{Context, ensure};
use headroom_training::checkpoint::{Checkpoint, CheckpointError, Companions, STATE_FILE, TOKENIZER_FILE};
use headroom_training::data::TokenizerSettings;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The value of `--tokenizer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenizerChoice {
    Bytes,
    File(PathBuf),
}

/// The value that asks for bytes; a file of this name is `./bytes`.
pub const BYTES: &str = "bytes";

impl FromStr for TokenizerChoice {
    type Err = Infallible;

    fn from_str(given: &str) -> Result<TokenizerChoice, Infallible> {
        Ok(if given == BYTES { TokenizerChoice::Bytes } else { TokenizerChoice::File(given.into()) })
    }
}

impl TokenizerChoice {
    /// `None` for bytes.
    pub fn file(&self) -> Option<&Path> {
        match self {
            TokenizerChoice::Bytes => None,
            TokenizerChoice::File(path) => Some(path),
        }
    }
}

/// A loaded model's own tokenizer.
pub struct OwnTokenizer {
    folder: PathBuf,
    /// `None` if its text is bytes, as far as its folder says.
    path: Option<PathBuf>,
    /// Whether the folder is a checkpoint of a run of ours, which says how its data was read.
    is_noted: bool,
}

impl OwnTokenizer {
    /// The one in the model's folder, which every save leaves there. A checkpoint from before that only names its file.
    pub fn of(checkpoint: &Checkpoint) -> OwnTokenizer {
        let folder = checkpoint.folder();
        // Weights can be used even if the state beside them cannot be read.
        let state = Some(folder.join(STATE_FILE)).filter(|path| path.exists()).and_then(|_| checkpoint.state().ok());
        let noted = |key: &str| state.and_then(|state| state.extra.get(key)?.as_str());
        let beside = Some(folder.join(TOKENIZER_FILE)).filter(|path| path.is_file());
        OwnTokenizer {
            folder: folder.to_path_buf(),
            path: beside.or(noted("tokenizer").map(PathBuf::from)),
            is_noted: noted("data").is_some(),
        }
    }

    /// Whether nothing says how its text becomes tokens.
    pub fn is_unknown(&self) -> bool {
        self.path.is_none() && !self.is_noted
    }
}

/// How text becomes tokens.
pub struct TextTokens {
    /// `None` for bytes.
    pub path: Option<PathBuf>,
    own: Option<OwnTokenizer>,
    asked: Option<TokenizerChoice>,
}

impl TextTokens {
    pub fn choose(asked: Option<&TokenizerChoice>, own: Option<OwnTokenizer>) -> TextTokens {
        let path = match asked {
            Some(choice) => choice.file().map(Path::to_path_buf),
            None => own.as_ref().and_then(|own| own.path.clone()),
        };
        TextTokens { path, own, asked: asked.cloned() }
    }

    pub fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Settings for a source of text; `None` for bytes.
    pub fn settings(&self) -> anyhow::Result<Option<TokenizerSettings>> {
        let Some(path) = self.path.clone() else { return Ok(None) };
        let own = self.own.as_ref().filter(|_| self.asked.is_none());
        if let Some(own) = own {
            ensure!(
                path.is_file(),
                "{} was trained with the tokenizer {}, which is missing\n  help: give its path with --tokenizer",
                own.folder.display(),
                path.display()
            );
        }
        let cache =
            kept::folder().context("there is no folder to cache tokens in\n  help: set HEADROOM_HOME or HOME")?;
        Ok(Some(TokenizerSettings { path, cache: cache.join("tokens") }))
    }

    /// Says which tokenizer is used, unless a model of ours is used as it was trained. `ids` is the vocabulary that the
    /// tokens need.
    pub fn line(&self, ids: usize) -> Option<String> {
        let own = self.own.as_ref()?;
        let used = match &self.path {
            Some(path) => format!("text is tokenized by {} ({ids} ids)", path.display()),
            None => format!("text is read as bytes ({ids} ids)"),
        };
        match (&self.path, &own.path) {
            (Some(used_path), Some(own_path)) if is_same(used_path, own_path) => {
                (!own.is_noted).then(|| format!("{used}, the model's own"))
            }
            (None, None) if own.is_noted => None,
            (_, None) if own.is_noted => Some(format!("{used}, and the model was not trained with a tokenizer")),
            (_, None) => Some(format!("{used}: {} has no {TOKENIZER_FILE}", own.folder.display())),
            (_, Some(own)) => Some(format!("{used}, not by the model's own {}", own.display())),
        }
    }

    /// The files to save beside a model that was trained on text in these tokens.
    pub fn companions(&self, loaded: Companions) -> Result<Companions, CheckpointError> {
        match (&self.path, &self.own) {
            (None, _) => Ok(loaded.without_tokenizer()),
            (Some(path), Some(own)) if *path == own.folder.join(TOKENIZER_FILE) => Ok(loaded),
            (Some(path), _) => loaded.with_tokenizer(path),
        }
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| path.canonicalize().ok();
    one == other || whole(one).is_some_and(|one| whole(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(path: Option<&str>, is_noted: bool) -> Option<OwnTokenizer> {
        Some(OwnTokenizer { folder: "hf".into(), path: path.map(PathBuf::from), is_noted })
    }

    fn said(asked: Option<&str>, own: Option<OwnTokenizer>) -> Option<String> {
        let asked: Option<TokenizerChoice> = asked.map(|text| text.parse().unwrap());
        let tokens = TextTokens::choose(asked.as_ref(), own);
        tokens.line(if tokens.path.is_some() { 32_000 } else { 256 })
    }

    #[test]
    fn the_models_own_tokenizer_is_the_default_and_another_is_said() {
        let file = "hf/tokenizer.json";
        for (asked, own, want) in [
            (None, own(Some(file), false), "text is tokenized by hf/tokenizer.json (32000 ids), the model's own"),
            (Some(file), own(Some(file), false), "text is tokenized by hf/tokenizer.json (32000 ids), the model's own"),
            (
                Some(BYTES),
                own(Some(file), true),
                "text is read as bytes (256 ids), not by the model's own hf/tokenizer.json",
            ),
            (
                Some("other.json"),
                own(Some(file), true),
                "text is tokenized by other.json (32000 ids), not by the model's own hf/tokenizer.json",
            ),
            (None, own(None, false), "text is read as bytes (256 ids): hf has no tokenizer.json"),
            (Some("t.json"), own(None, false), "text is tokenized by t.json (32000 ids): hf has no tokenizer.json"),
            (
                Some("t.json"),
                own(None, true),
                "text is tokenized by t.json (32000 ids), and the model was not trained with a tokenizer",
            ),
        ] {
            assert_eq!(said(asked, own).as_deref(), Some(want));
        }
    }

    #[test]
    fn nothing_is_said_of_a_new_model_or_of_one_used_as_it_was_trained() {
        assert_eq!(said(None, own(Some("hf/tokenizer.json"), true)), None);
        assert_eq!(said(None, own(None, true)), None);
        assert_eq!(said(None, None), None);
        assert_eq!(said(Some("t.json"), None), None);
    }
}
