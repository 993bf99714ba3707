//! Why a script was not run.

use headroom_record::atomic::FileError;
use std::env::JoinPathsError;
use std::error::Error;
use std::io;

#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error("{what}")]
    System { what: String, source: io::Error },
    /// Not transparent: the command asks the chain for the file's error.
    #[error("{0}")]
    File(#[from] FileError),
    #[error("{what}")]
    Path { what: &'static str, source: JoinPathsError },
    #[error("{file} was not written by the hook")]
    Note { file: String, source: serde_json::Error },
    #[error("cannot start `{program}`")]
    Program { program: String, source: Box<ScriptError> },
    #[error("{0}")]
    Refused(String),
}

impl ScriptError {
    /// The error and its causes, each once.
    pub fn words(&self) -> String {
        let mut words = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !words.contains(&text) {
                words = format!("{words}: {text}");
            }
            cause = error.source();
        }
        words
    }
}

/// An action that the system refused, for `map_err`.
pub fn cannot(action: impl Into<String>) -> impl FnOnce(io::Error) -> ScriptError {
    let what = format!("cannot {}", action.into());
    move |source| ScriptError::System { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn causes_are_told_once_and_a_file_error_is_found_in_the_chain() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let error = ScriptError::from(FileError::new("write", Path::new("a"))(full()));
        assert_eq!(error.words(), format!("cannot write a: {}", full()));
        assert!(error.source().unwrap().downcast_ref::<FileError>().unwrap().is_disk_full());
        let error = ScriptError::Program { program: "python".into(), source: Box::new(cannot("wait")(full())) };
        assert_eq!(error.words(), format!("cannot start `python`: cannot wait: {}", full()));
    }
}
