//! The command line of `headroom lint`.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::ValueEnum;
use headroom_sources::configuration::{self, Configuration, Configurations};

use crate::shown::{Choice, Shown};

/// Find bottlenecks in PyTorch training scripts and notebooks, and fix them.
///
/// Exits with 1 if it finds something, and with 2 if a file could not be fully read.
#[derive(clap::Args)]
pub struct Arguments {
    /// Files and folders; `-` reads one script from standard input [default: the current folder]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub shown: Shown<Format>,
    /// Write the findings to a file instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    pub output_file: Option<PathBuf>,
    /// Show the number of findings per rule instead of the findings.
    #[arg(long, conflicts_with = "diff")]
    pub statistics: bool,
    /// Run again whenever a file changes, until Ctrl-C.
    #[arg(long, conflicts_with_all = ["fix", "diff", "add_noqa"])]
    pub watch: bool,
    /// Apply fixes that keep the meaning.
    #[arg(long)]
    pub fix: bool,
    /// With --fix or --diff: also apply fixes that may change results; each rule's page says how.
    #[arg(long)]
    pub unsafe_fixes: bool,
    /// Show what the fixes would change, but change nothing.
    #[arg(long)]
    pub diff: bool,
    /// Add `# noqa: CODE` to every line with a finding.
    #[arg(long, conflicts_with_all = ["fix", "diff", "statistics"])]
    pub add_noqa: bool,
    /// Exit with 1 only if a finding is at least this severe; without it, any finding counts.
    #[arg(long, value_enum)]
    pub fail_on: Option<FailOn>,
    /// Exit with 0 whatever is found; files that could not be read are still an error.
    #[arg(long, short, conflicts_with = "fail_on")]
    pub exit_zero: bool,
    /// Exit with 1 if --fix changed something, even if nothing is left to find.
    #[arg(long, requires = "fix", conflicts_with = "exit_zero")]
    pub exit_non_zero_on_fix: bool,
    /// Also show findings that are seldom worth a change, and findings outside of training code.
    #[arg(long)]
    pub pedantic: bool,
    /// Only these rules: codes (TP101), groups (TP1), names, or all; separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub select: Vec<String>,
    /// All rules but these.
    #[arg(long, value_delimiter = ',')]
    pub ignore: Vec<String>,
    /// File name for standard input: shown in findings, and used to find the project.
    #[arg(long, value_name = "PATH")]
    pub stdin_filename: Option<PathBuf>,
    /// A trace of the scripts (.json, .json.gz or a folder of ranks): findings show their measured cost
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["fix", "diff", "add_noqa"])]
    pub trace: Vec<PathBuf>,
    /// A pyproject.toml or headroom.toml to use instead of the nearest one.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Read no configuration file.
    #[arg(long, conflicts_with = "config")]
    no_config: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
    Sarif,
    Github,
    Gitlab,
    Markdown,
}

impl Choice for Format {
    const JSON: Format = Format::Json;
    const USUAL: &'static str = "text";
}

#[derive(Clone, Copy, ValueEnum)]
pub enum FailOn {
    Low,
    Medium,
    High,
    Critical,
    Never,
}

impl From<FailOn> for configuration::FailOn {
    fn from(given: FailOn) -> configuration::FailOn {
        match given {
            FailOn::Low => configuration::FailOn::Low,
            FailOn::Medium => configuration::FailOn::Medium,
            FailOn::High => configuration::FailOn::High,
            FailOn::Critical => configuration::FailOn::Critical,
            FailOn::Never => configuration::FailOn::Never,
        }
    }
}

impl Arguments {
    /// The arguments with the default path, or why they are invalid.
    pub fn checked(mut self) -> Result<Arguments> {
        if self.paths.is_empty() {
            self.paths.push(PathBuf::from("."));
        }
        if self.is_stdin() {
            if self.paths.len() > 1 {
                bail!("`-` reads one script from standard input: give no other path");
            }
            if self.watch {
                bail!("--watch needs files: standard input cannot be watched");
            }
        }
        let format = self.shown.format();
        if self.statistics && !matches!(format, Format::Text | Format::Json) {
            bail!("--statistics has two formats: text and json");
        }
        if self.diff && format != Format::Text {
            bail!("--diff prints a patch, which is text\n  help: leave --format out, or --diff");
        }
        if self.is_stdin() && self.fix && format != Format::Text && self.output_file.is_none() {
            bail!(
                "standard output carries the fixed script\n  help: write the findings to a file with --output-file FILE"
            );
        }
        Ok(self)
    }

    pub fn is_stdin(&self) -> bool {
        self.paths.iter().any(|path| path == Path::new("-"))
    }

    pub fn configurations(&self) -> Result<Configurations> {
        match &self.config {
            Some(file) => Ok(Configurations::only(Configuration::read(file)?)),
            None if self.no_config => Ok(Configurations::only(Configuration::default())),
            None => Ok(Configurations::nearest()),
        }
    }
}
