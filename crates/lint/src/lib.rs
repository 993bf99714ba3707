//! Reads training scripts and reports what costs time at every step, and how to fix it.

mod api;
mod asked;
mod attention;
mod classes;
mod context;
mod coverage;
mod effects;
mod evidence;
mod file;
pub mod finding;
pub mod fix;
mod groups;
mod ids;
mod interpret;
mod islands;
mod lattice;
mod mentions;
mod notice;
mod program;
mod projects;
mod readback_use;
mod reads;
mod repair;
mod resolve;
mod rows;
mod rule;
pub mod rules;
mod scope;
mod selection;
mod settings;
mod silence;
mod step_frequency;
mod suppression;
mod switches;
mod symbols;
mod topics;
mod truth;
mod uses;
mod value;
mod vocabulary;

use headroom_rewrite::syntax::{self, find_expression, names_in};

use file::SourceFile;
pub use islands::check_stack;
use islands::{Map, in_parallel};
use program::Program;
use rule::Check;
use suppression::Suppressions;
use symbols::FileId;

pub use coverage::Coverage;
pub use headroom_rewrite::Problem;
pub use projects::{Belonging, Projects};
pub use repair::{Repaired, Repairs, parses, repair, repair_within};
pub use rule::{CallsPerStep, Measured, Notice, SourceFinding, SourceRule};
pub use selection::{Selection, SelectionError};
pub use silence::{Silenced, silence};

/// Stack size of threads that walk deep trees recursively.
const STACK_BYTES: usize = 256 << 20;

/// A file to read: the path that findings show, and its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    pub path: String,
    pub bytes: Vec<u8>,
}

/// Findings in all files, ordered by path and line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceReport {
    pub files: usize,
    pub findings: Vec<SourceFinding>,
    /// Pedantic findings that were not requested. See `SourceFinding::pedantic`.
    pub held_back: Vec<SourceFinding>,
    /// Files that did not parse completely or were not read, and why.
    pub problems: Vec<(String, Problem)>,
    /// The number of findings silenced by comments and settings in the source.
    pub suppressed: usize,
    /// Counts of the code that was checked.
    pub coverage: Coverage,
}

/// Reads all files together, so that imports between them are followed, and runs the selected rules.
pub fn lint(inputs: &[Input], selection: &Selection) -> SourceReport {
    lint_within(inputs, &Projects::of_all(inputs), selection)
}

/// Like [`lint`], for the files asked about; the others are read only as context.
pub fn lint_within(inputs: &[Input], projects: &Projects, selection: &Selection) -> SourceReport {
    let map = Map::draw(inputs, projects);
    let reports = in_parallel(&map.islands, |island| {
        let files = map.files(island, inputs, projects);
        let mut found = report(&files, selection);
        number(&mut found, island, &files);
        found
    });
    gather(&map, projects, reports)
}

/// Converts an island's findings to the file numbers of the whole input and, in notebooks, to cells.
fn number(report: &mut SourceReport, island: &[FileId], files: &[SourceFile]) {
    for finding in report.findings.iter_mut().chain(&mut report.held_back) {
        finding.show_in_cells(&files[finding.file]);
        finding.file = island[finding.file];
    }
}

fn gather(map: &Map, projects: &Projects, reports: Vec<SourceReport>) -> SourceReport {
    let asked =
        map.outlines.iter().enumerate().filter(|(file, _)| projects.is_asked(*file)).map(|(_, outline)| outline);
    let problems = asked.clone().filter_map(|outline| Some((outline.path.clone(), outline.problem.clone()?)));
    let mut all =
        SourceReport { files: asked.clone().count(), problems: problems.collect(), ..SourceReport::default() };
    for report in reports {
        all.findings.extend(report.findings);
        all.held_back.extend(report.held_back);
        all.suppressed += report.suppressed;
        all.coverage.add(report.coverage);
    }
    let key = |finding: &SourceFinding| (finding.file, finding.range.start(), finding.code);
    all.findings.sort_by_key(key);
    all.held_back.sort_by_key(key);
    all
}

fn report(files: &[SourceFile], selection: &Selection) -> SourceReport {
    let program = understand(files);
    let mut findings = Vec::new();
    for rule in rules::RULES.iter().filter(|rule| selection.wants(rule.code)) {
        let mut check = Check { program: &program, rule, found: Vec::new(), lines: Default::default() };
        (rule.check)(&mut check);
        findings.extend(check.found);
    }
    findings.retain(|finding| files[finding.file].asked && selection.wants_at(finding.code, &finding.place.file));
    let before = findings.len();
    let silenced: Vec<Suppressions> = files.iter().map(|file| Suppressions::read(file, &file.silencing)).collect();
    findings.retain(|finding| !silenced[finding.file].silence(finding.code, &finding.place));
    let suppressed = before - findings.len();
    for finding in &mut findings {
        finding.fix.preview = headroom_rewrite::preview(&files[finding.file], &finding.fix.edits);
    }
    let is_held_back =
        |finding: &SourceFinding| finding.pedantic && !selection.wants_pedantic(finding.code, &finding.place.file);
    let (held_back, findings) = findings.into_iter().partition(is_held_back);
    let coverage = coverage::of(&program, |file| files[file].asked);
    SourceReport { findings, held_back, suppressed, coverage, ..SourceReport::default() }
}

fn understand(files: &[SourceFile]) -> Program<'_> {
    let mut program = collect(files);
    interpret::interpret(&mut program);
    step_frequency::measure(&mut program);
    groups::gather(&mut program);
    program.index();
    program
}

/// The program as written, before anything is followed.
fn collect(files: &[SourceFile]) -> Program<'_> {
    let symbols = symbols::collect(files);
    let index = resolve::ModuleIndex::new(files.iter().map(|file| file.module.clone()).collect());
    let classes = classes::classify(&symbols, &index);
    let only_methods = classes::only_methods(&symbols, &classes);
    let settings = settings::Settings::collect(files);
    Program {
        sources: program::Sources { files, symbols, index, classes, only_methods, settings },
        ..Program::default()
    }
}
