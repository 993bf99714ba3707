//! How a lint run ends.

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use headroom_diagnosis::finding::Severity;
use headroom_lint::SourceReport;
use headroom_sources::configuration::{Configurations, FailOn};
use headroom_sources::discovery::Scripts;

use super::arguments::Arguments;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Findings that count, or changes if those were asked about.
    Found,
    /// A file was not fully read: takes precedence over findings in others.
    NotRead,
}

impl Outcome {
    pub fn of(
        report: &SourceReport,
        fixed: usize,
        arguments: &Arguments,
        configurations: &Configurations,
        scripts: &Scripts,
    ) -> Result<Outcome> {
        if !report.problems.is_empty() {
            return Ok(Outcome::NotRead);
        }
        if arguments.exit_zero {
            return Ok(Outcome::Done);
        }
        let given: Option<FailOn> = arguments.fail_on.map(FailOn::from);
        let mut least: HashMap<&str, Option<Severity>> = HashMap::new();
        for (file, input) in scripts.files.iter().zip(&scripts.inputs) {
            let configured = configurations.of_folder(file.parent().unwrap_or(Path::new("/")))?.fail_on;
            least.insert(&input.path, given.or(configured).unwrap_or(FailOn::Low).least());
        }
        let on_its_own = given.unwrap_or(FailOn::Low).least();
        let counts = report.findings.iter().any(|finding| {
            let least = least.get(finding.place.file.as_str()).copied().unwrap_or(on_its_own);
            least.is_some_and(|least| finding.severity >= least)
        });
        let changed = arguments.exit_non_zero_on_fix && fixed > 0;
        Ok(if counts || changed { Outcome::Found } else { Outcome::Done })
    }

    pub fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Outcome::Done => 0,
            Outcome::Found => 1,
            Outcome::NotRead => 2,
        })
    }
}
