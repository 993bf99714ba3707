//! A client's settings, layered over the command line's.

use std::path::{Path, PathBuf};

use headroom_sources::configuration::{Choice, ConfigurationError};
use lsp_types::{ConfigurationItem, Uri, WorkspaceFolder};
use serde::Deserialize;
use serde_json::Value;

use crate::uri;

/// The name of our section in a client's settings.
pub const SECTION: &str = "headroom";

/// Missing keys leave the layer below unchanged; unknown keys (the extension's `path`) are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Settings {
    /// Only these rules: codes, groups or names.
    pub select: Option<Vec<String>>,
    pub ignore: Option<Vec<String>>,
    pub pedantic: Option<bool>,
    /// Traces of the scripts.
    pub trace: Option<Paths>,
}

/// One path, or several.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Paths {
    One(PathBuf),
    Several(Vec<PathBuf>),
}

impl Settings {
    /// Reads what a client sends: the section itself, or an object that contains it.
    pub fn read(value: &Value) -> Result<Settings, serde_json::Error> {
        let section = value.get(SECTION).filter(|section| section.is_object()).unwrap_or(value);
        Option::<Settings>::deserialize(section).map(Option::unwrap_or_default)
    }

    /// These settings, with `below` where they are unset. An empty list counts as unset: editors send one for a
    /// default.
    fn over(&self, below: &Settings) -> Settings {
        let lists = |own: &Option<Vec<String>>, below: &Option<Vec<String>>| {
            own.clone().filter(|list| !list.is_empty()).or_else(|| below.clone())
        };
        Settings {
            select: lists(&self.select, &below.select),
            ignore: lists(&self.ignore, &below.ignore),
            pedantic: self.pedantic.or(below.pedantic),
            trace: self.trace.clone().filter(|paths| !paths.list().is_empty()).or_else(|| below.trace.clone()),
        }
    }

    /// Checks that all named rules are known.
    pub fn check(&self) -> Result<(), ConfigurationError> {
        self.choice().selection().map(|_| ())
    }

    pub fn choice(&self) -> Choice {
        Choice {
            select: self.select.clone().unwrap_or_default(),
            ignore: self.ignore.clone().unwrap_or_default(),
            pedantic: self.pedantic.unwrap_or_default(),
        }
    }
}

impl Paths {
    fn list(&self) -> Vec<PathBuf> {
        let all = match self {
            Paths::One(path) => vec![path.clone()],
            Paths::Several(paths) => paths.clone(),
        };
        all.into_iter().filter(|path| !path.as_os_str().is_empty()).collect()
    }
}

struct Folder {
    uri: Uri,
    path: Option<PathBuf>,
    settings: Settings,
}

/// The settings of every workspace folder, and those that apply outside them.
#[derive(Default)]
pub struct AllSettings {
    command_line: Settings,
    everywhere: Settings,
    folders: Vec<Folder>,
}

impl AllSettings {
    pub fn new(command_line: Settings) -> AllSettings {
        AllSettings { command_line, ..AllSettings::default() }
    }

    /// Sets the options of the `initialize` request, which stay below all later settings of the client.
    pub fn set_options(&mut self, options: &Settings) {
        self.command_line = options.over(&self.command_line);
    }

    pub fn set_everywhere(&mut self, settings: Settings) {
        self.everywhere = settings;
    }

    pub fn add_folder(&mut self, folder: WorkspaceFolder) {
        let path = uri::file_path(&folder.uri).map(|path| std::fs::canonicalize(&path).unwrap_or(path));
        self.remove_folder(&folder.uri);
        self.folders.push(Folder { uri: folder.uri, path, settings: Settings::default() });
    }

    pub fn remove_folder(&mut self, uri: &Uri) {
        self.folders.retain(|folder| folder.uri != *uri);
    }

    /// The requests to a client that keeps settings: global first, then by folder.
    pub fn questions(&self) -> Vec<ConfigurationItem> {
        let item = |scope: Option<Uri>| ConfigurationItem { scope_uri: scope, section: Some(SECTION.to_string()) };
        let by_folder = self.folders.iter().map(|folder| item(Some(folder.uri.clone())));
        std::iter::once(item(None)).chain(by_folder).collect()
    }

    /// Takes the answers to these questions, in the same order.
    pub fn take_answers(
        &mut self,
        questions: &[ConfigurationItem],
        answers: &[Value],
    ) -> Result<(), serde_json::Error> {
        for (question, answer) in questions.iter().zip(answers) {
            let settings = Settings::read(answer)?;
            match &question.scope_uri {
                None => self.everywhere = settings,
                Some(uri) => {
                    if let Some(folder) = self.folders.iter_mut().find(|folder| folder.uri == *uri) {
                        folder.settings = settings;
                    }
                }
            }
        }
        Ok(())
    }

    /// The settings that apply to a file: those of the innermost folder around it, then the global ones.
    pub fn of(&self, file: Option<&Path>) -> Settings {
        let below = self.everywhere.over(&self.command_line);
        self.folder_around(file).map_or_else(|| below.clone(), |folder| folder.settings.over(&below))
    }

    /// The traces for a file. Relative paths start at the workspace folder around it.
    pub fn traces_of(&self, file: Option<&Path>) -> Vec<PathBuf> {
        let base = self.folder_around(file).or(self.folders.first()).and_then(|folder| folder.path.as_deref());
        let all = self.of(file).trace.map(|paths| paths.list()).unwrap_or_default();
        all.into_iter().map(|path| base.map_or_else(|| path.clone(), |base| base.join(&path))).collect()
    }

    /// The folder whose thresholds apply to the traces of a file.
    pub fn base_of(&self, file: Option<&Path>) -> Option<PathBuf> {
        self.folder_around(file).or(self.folders.first()).and_then(|folder| folder.path.clone())
    }

    fn folder_around(&self, file: Option<&Path>) -> Option<&Folder> {
        let holds =
            |folder: &&Folder| folder.path.as_ref().is_some_and(|path| file.is_some_and(|f| f.starts_with(path)));
        self.folders.iter().filter(holds).max_by_key(|folder| folder.path.as_ref().map(|path| path.as_os_str().len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::str::FromStr;

    fn folder(path: &str) -> WorkspaceFolder {
        WorkspaceFolder { uri: Uri::from_str(&format!("file://{path}")).unwrap(), name: path.to_string() }
    }

    #[test]
    fn a_section_may_come_alone_or_inside_of_all_settings() {
        let want = Settings { select: Some(vec!["TP1".to_string()]), ..Settings::default() };
        assert_eq!(Settings::read(&json!({"select": ["TP1"], "path": "x"})).unwrap(), want);
        assert_eq!(Settings::read(&json!({"headroom": {"select": ["TP1"]}, "python": {}})).unwrap(), want);
        assert_eq!(Settings::read(&Value::Null).unwrap(), Settings::default());
        assert!(Settings::read(&json!({"select": 3})).is_err());
    }

    #[test]
    fn the_innermost_folder_wins_then_everywhere_then_the_command_line() {
        let read = |value: Value| Settings::read(&value).unwrap();
        let mut all = AllSettings::new(read(json!({"pedantic": true, "trace": "of_command.json"})));
        all.add_folder(folder("/nowhere/a"));
        all.add_folder(folder("/nowhere/a/b"));
        all.set_everywhere(read(json!({"ignore": ["TP2"]})));
        let questions = all.questions();
        assert_eq!(questions.len(), 3);
        let answers =
            [json!({"ignore": ["TP3"], "select": []}), json!({"trace": ["t.json"]}), json!({"select": ["TP5"]})];
        all.take_answers(&questions, &answers).unwrap();
        let inner = all.of(Some(Path::new("/nowhere/a/b/x.py"))).choice();
        assert_eq!(
            (inner.select, inner.ignore, inner.pedantic),
            (vec!["TP5".to_string()], vec!["TP3".to_string()], true)
        );
        let outer = all.of(Some(Path::new("/nowhere/a/x.py")));
        assert_eq!(outer.choice().select, Vec::<String>::new());
        assert_eq!(all.traces_of(Some(Path::new("/nowhere/a/x.py"))), [PathBuf::from("/nowhere/a/t.json")]);
        assert_eq!(
            all.traces_of(Some(Path::new("/nowhere/a/b/x.py"))),
            [PathBuf::from("/nowhere/a/b/of_command.json")]
        );
        all.remove_folder(&folder("/nowhere/a/b").uri);
        assert_eq!(all.of(Some(Path::new("/nowhere/a/b/x.py"))).choice().select, Vec::<String>::new());
    }
}
