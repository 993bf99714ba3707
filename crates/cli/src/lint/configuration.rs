//! `[tool.headroom]` of pyproject.toml, or the same keys at the top of headroom.toml.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::FailOn;

const OWN_FILE: &str = "headroom.toml";

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Configuration {
    #[serde(default)]
    pub select: Vec<String>,
    #[serde(default)]
    pub ignore: Vec<String>,
    /// Files and folders that are not read.
    #[serde(default)]
    pub exclude: Vec<String>,
    pub fail_on: Option<FailOn>,
    #[serde(default)]
    per_file_ignores: BTreeMap<String, Vec<String>>,
    /// When trace rules fire: `TR104 = "5%"`.
    #[serde(default)]
    pub thresholds: BTreeMap<String, toml::Value>,
    #[serde(default)]
    per_path_ignores: BTreeMap<String, Vec<String>>,
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
    pub fn read(file: &Path) -> Result<Configuration> {
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let is_ours = file.file_name().is_some_and(|name| name == OWN_FILE);
        let parsed = if is_ours { toml::from_str(&text).map_err(Into::into) } else { Configuration::parse(&text) };
        let place = if is_ours { "the file" } else { "[tool.headroom]" };
        parsed.with_context(|| format!("{}: {place} is not understood", file.display()))
    }

    /// From the first headroom.toml or pyproject.toml in the path's folder or above it; of both in one, ours.
    pub fn nearest(path: &Path) -> Result<Configuration> {
        let start = if path == Path::new("-") { Path::new(".") } else { path };
        let Ok(start) = std::fs::canonicalize(start) else { return Ok(Configuration::default()) };
        let files = start.ancestors().flat_map(|folder| [OWN_FILE, "pyproject.toml"].map(|name| folder.join(name)));
        let found = files.into_iter().find(|file| file.is_file());
        found.map_or_else(|| Ok(Configuration::default()), |file| Configuration::read(&file))
    }

    pub fn per_path(&self) -> impl Iterator<Item = (String, Vec<String>)> {
        self.per_file_ignores.iter().chain(&self.per_path_ignores).map(|(path, codes)| (path.clone(), codes.clone()))
    }

    fn parse(text: &str) -> Result<Configuration> {
        let project: Project = toml::from_str(text)?;
        Ok(project.tool.and_then(|tools| tools.headroom).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_is_read_and_others_left_alone() {
        let text = "[tool.ruff]\nline-length = 100\n[tool.headroom]\nignore = [\"TP605\"]\nfail-on = \"high\"\n[tool.headroom.per-path-ignores]\n\"examples/*\" = [\"TP3\"]\n";
        let configuration = Configuration::parse(text).expect("valid");
        assert_eq!(configuration.ignore, ["TP605"]);
        assert!(configuration.fail_on == Some(FailOn::High));
        assert_eq!(configuration.per_path().next(), Some(("examples/*".to_string(), vec!["TP3".to_string()])));
    }

    #[test]
    fn an_unknown_key_is_named() {
        let error = Configuration::parse("[tool.headroom]\nselct = []\n").err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("selct")));
    }
}
