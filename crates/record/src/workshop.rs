//! The workshop's two documents that `headroom workshop` prints: a record sheet, and the marks for a folder of runs.

use serde::Serialize;

/// Figures to write down while working through one part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordSheet {
    pub schema_version: u32,
    pub part: u64,
    pub title: String,
    pub steps: Vec<SheetStep>,
}

/// One command and the figures it gives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SheetStep {
    pub title: String,
    pub command: String,
    pub figures: Vec<SheetFigure>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SheetFigure {
    pub name: String,
    /// File in the run folder and key in it; `None` if the command only prints the figure.
    pub file: Option<String>,
    pub key: Option<String>,
    /// The value as written down; `None` if no run folder was given or the folder does not have it.
    pub value: Option<String>,
}

/// Marks for a folder of runs: one point per check that passed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Marks {
    pub schema_version: u32,
    pub folder: String,
    pub parts: Vec<PartMarks>,
    pub points: u64,
    pub of: u64,
    /// Checks that failed; missing runs do not count.
    pub wrong: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartMarks {
    pub part: u64,
    pub title: String,
    pub points: u64,
    pub of: u64,
    pub runs: Vec<RunMarks>,
}

/// One expected run, or one comparison between two of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunMarks {
    /// The folder's name on the workshop's pages, relative to the given folder.
    pub folder: String,
    pub expected: String,
    /// The command that produces it.
    pub command: String,
    /// The folder of a matching run, which may differ from the one on the pages; `None` if there is none.
    pub found: Option<String>,
    /// Maximum points for a run of this kind.
    pub of: u64,
    pub checks: Vec<Check>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// `complete`, `as asked`, `report` or `figures agree`; between two runs `agrees`.
    pub name: String,
    pub passed: bool,
    pub note: String,
}

impl RunMarks {
    pub fn points(&self) -> u64 {
        self.checks.iter().filter(|check| check.passed).count() as u64
    }
}

impl PartMarks {
    pub fn new(part: u64, title: &str, runs: Vec<RunMarks>) -> PartMarks {
        let points = runs.iter().map(RunMarks::points).sum();
        let of = runs.iter().map(|run| run.of).sum();
        PartMarks { part, title: title.to_string(), points, of, runs }
    }

    pub fn is_begun(&self) -> bool {
        self.runs.iter().any(|run| run.found.is_some())
    }
}

impl Marks {
    pub fn new(folder: String, parts: Vec<PartMarks>) -> Marks {
        let checks = parts.iter().flat_map(|part| &part.runs).flat_map(|run| &run.checks);
        Marks {
            schema_version: crate::SCHEMA_VERSION,
            folder,
            points: parts.iter().map(|part| part.points).sum(),
            of: parts.iter().map(|part| part.of).sum(),
            wrong: checks.filter(|check| !check.passed).count() as u64,
            parts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_the_checks_that_passed_and_missing_runs_are_not_wrong() {
        let check = |passed| Check { name: "complete".into(), passed, note: String::new() };
        let run = |found: Option<&str>, checks| RunMarks {
            folder: "runs/plain".into(),
            expected: String::new(),
            command: String::new(),
            found: found.map(String::from),
            of: 4,
            checks,
        };
        let runs = vec![run(Some("runs/plain"), vec![check(true), check(false), check(true)]), run(None, vec![])];
        let part = PartMarks::new(1, "Baseline", runs);
        assert!(part.is_begun() && !PartMarks::new(2, "Memory", vec![run(None, vec![])]).is_begun());
        let marks = Marks::new("here".into(), vec![part]);
        assert_eq!((marks.points, marks.of, marks.wrong), (2, 8, 1));
    }
}
