//! Reads `[tool.headroom]` of pyproject.toml, or the same keys at the top level of headroom.toml.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use headroom_lint::finding::Severity;
use headroom_lint::{Selection, SelectionError};
use headroom_record::reading;
use serde::Deserialize;
use thiserror::Error;

use super::patterns::matches_path;
use super::within;

const OWN_FILE: &str = "headroom.toml";

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Configuration {
    #[serde(default)]
    select: Vec<String>,
    #[serde(default)]
    ignore: Vec<String>,
    /// Files and folders that are not read.
    #[serde(default)]
    exclude: Vec<String>,
    pub fail_on: Option<FailOn>,
    #[serde(default)]
    per_file_ignores: BTreeMap<String, Vec<String>>,
    /// Thresholds of trace rules: `TR104 = "5%"`.
    #[serde(default)]
    thresholds: BTreeMap<String, toml::Value>,
    #[serde(default)]
    per_path_ignores: BTreeMap<String, Vec<String>>,
    /// The folder of the file: its paths are relative to it.
    #[serde(skip)]
    folder: PathBuf,
}

/// The least severity at which `lint` fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailOn {
    Low,
    Medium,
    High,
    Critical,
    Never,
}

impl FailOn {
    /// The least severity that counts, or `None` if none does.
    pub fn least(self) -> Option<Severity> {
        match self {
            FailOn::Low => Some(Severity::Low),
            FailOn::Medium => Some(Severity::Medium),
            FailOn::High => Some(Severity::High),
            FailOn::Critical => Some(Severity::Critical),
            FailOn::Never => None,
        }
    }
}

/// Rules requested by the caller, apart from the configured ones. An empty `select` falls back to the configuration's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    pub select: Vec<String>,
    pub ignore: Vec<String>,
    pub pedantic: bool,
}

impl Choice {
    /// The selection from this choice alone, without any configuration.
    pub fn selection(&self) -> Result<Selection, ConfigurationError> {
        Configuration::default().selection(self, Path::new(""))
    }
}

#[derive(Debug, Error)]
pub enum ConfigurationError {
    #[error("cannot read {}", file.display())]
    Read { file: PathBuf, source: std::io::Error },
    #[error("{}: {place} is not valid", file.display())]
    Form { file: PathBuf, place: &'static str, source: Box<toml::de::Error> },
    #[error(transparent)]
    Rule(#[from] SelectionError),
}

impl ConfigurationError {
    /// The message with its cause, for readers who see a single text.
    pub fn with_causes(&self) -> String {
        match self {
            ConfigurationError::Read { source, .. } => format!("{self}: {source}"),
            ConfigurationError::Form { source, .. } => format!("{self}: {source}"),
            ConfigurationError::Rule(_) => self.to_string(),
        }
    }
}

#[derive(Deserialize)]
struct Project {
    tool: Option<Tools>,
}

#[derive(Deserialize)]
struct Tools {
    headroom: Option<Configuration>,
}

impl Configuration {
    pub fn read(file: &Path) -> Result<Configuration, ConfigurationError> {
        let unreadable = |source| ConfigurationError::Read { file: file.to_path_buf(), source };
        let text = reading::read_text(file, reading::SETTINGS).map_err(unreadable)?;
        let is_ours = file.file_name().is_some_and(|name| name == OWN_FILE);
        let parsed = if is_ours { toml::from_str(&text) } else { Configuration::parse(&text) };
        let place = if is_ours { "the file" } else { "[tool.headroom]" };
        let mut read = parsed.map_err(|source| {
            let (file, source) = (file.to_path_buf(), Box::new(source));
            ConfigurationError::Form { file, place, source }
        })?;
        let whole = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_path_buf());
        read.folder = whole.parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(read)
    }

    /// Reads the first headroom.toml or pyproject.toml in the path's folder or above. headroom.toml wins where a folder
    /// has both.
    pub fn nearest(path: &Path) -> Result<Configuration, ConfigurationError> {
        let start = if path == Path::new("-") { Path::new(".") } else { path };
        let Ok(start) = std::fs::canonicalize(start) else { return Ok(Configuration::default()) };
        start
            .ancestors()
            .find_map(file_in)
            .map_or_else(|| Ok(Configuration::default()), |file| Configuration::read(&file))
    }

    /// Whether a file or folder, given by its full path, is excluded.
    pub fn excludes(&self, path: &Path) -> bool {
        let path = self.relative(path);
        self.exclude.iter().any(|pattern| matches_path(pattern, &path))
    }

    /// Rules ignored in the file, given by its full path.
    pub fn ignored_at(&self, path: &Path) -> Vec<String> {
        let path = self.relative(path);
        let patterns = self.per_file_ignores.iter().chain(&self.per_path_ignores);
        let ignored = patterns.filter(|(pattern, _)| matches_path(pattern, &path)).flat_map(|(_, codes)| codes.clone());
        self.ignore.iter().cloned().chain(ignored).collect()
    }

    /// The rules for a file, given by its full path: the choice's, or the configuration's where the choice has none.
    pub fn selection(&self, choice: &Choice, file: &Path) -> Result<Selection, ConfigurationError> {
        let select = if choice.select.is_empty() { &self.select } else { &choice.select };
        let ignore: Vec<String> = choice.ignore.iter().cloned().chain(self.ignored_at(file)).collect();
        let selection = Selection::new(select, &ignore)?;
        Ok(if choice.pedantic { selection.pedantic() } else { selection })
    }

    /// Thresholds of trace rules as text: `("TR104", "5%")`.
    pub fn thresholds(&self) -> impl Iterator<Item = (&str, String)> {
        self.thresholds.iter().map(|(key, value)| match value {
            toml::Value::String(text) => (key.as_str(), text.clone()),
            other => (key.as_str(), other.to_string()),
        })
    }

    fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.folder).unwrap_or(path).to_string_lossy().into_owned()
    }

    fn parse(text: &str) -> Result<Configuration, toml::de::Error> {
        let project: Project = toml::from_str(text)?;
        Ok(project.tool.and_then(|tools| tools.headroom).unwrap_or_default())
    }
}

/// The files that may configure a folder, in order of precedence.
pub fn files_of(folder: &Path) -> [PathBuf; 2] {
    [OWN_FILE, "pyproject.toml"].map(|name| folder.join(name))
}

fn file_in(folder: &Path) -> Option<PathBuf> {
    files_of(folder).into_iter().find(|file| file.exists() && !file.is_dir() && within::allows(file))
}

/// The configuration of every file: the nearest one, independent of the folder that was asked about.
pub struct Configurations {
    /// Replaces all others.
    only: Option<Rc<Configuration>>,
    by_folder: RefCell<HashMap<PathBuf, Rc<Configuration>>>,
}

impl Configurations {
    pub fn nearest() -> Configurations {
        Configurations { only: None, by_folder: RefCell::default() }
    }

    pub fn only(configuration: Configuration) -> Configurations {
        Configurations { only: Some(Rc::new(configuration)), by_folder: RefCell::default() }
    }

    /// The configuration for files in a folder, given by its full path.
    pub fn of_folder(&self, folder: &Path) -> Result<Rc<Configuration>, ConfigurationError> {
        if let Some(only) = &self.only {
            return Ok(Rc::clone(only));
        }
        if let Some(known) = self.by_folder.borrow().get(folder) {
            return Ok(Rc::clone(known));
        }
        let found = match (file_in(folder), folder.parent()) {
            (Some(file), _) => Rc::new(Configuration::read(&file)?),
            (None, Some(parent)) => self.of_folder(parent)?,
            (None, None) => Rc::default(),
        };
        self.by_folder.borrow_mut().insert(folder.to_path_buf(), Rc::clone(&found));
        Ok(found)
    }
}
