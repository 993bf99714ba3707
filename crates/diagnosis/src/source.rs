//! Reads training scripts and says what in them costs time at every step, and how to repair it.

mod classes;
mod context;
mod edits;
mod file;
pub mod fix;
mod groups;
mod heat;
mod interpret;
mod nesting;
mod parameter_norms;
mod program;
mod reads;
mod repair;
mod resolve;
mod rule;
pub mod rules;
mod selection;
mod settings;
mod suppression;
mod symbols;
mod uses;
mod value;

use std::collections::HashMap;

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, Stmt};
use ruff_text_size::{Ranged, TextRange};

use file::SourceFile;
use program::Program;
use rule::Check;

pub use file::Problem;
pub use repair::{Repaired, Repairs, repair};
pub use rule::{CallsPerStep, SourceFinding, SourceRule};
pub use selection::{Selection, SelectionError, matches_path};

/// Deep trees are walked by recursion: the thread that does so has room for it.
const STACK_BYTES: usize = 256 << 20;

/// A file to read: the path that findings show, and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    pub path: String,
    pub bytes: Vec<u8>,
}

/// What was found in all files together, in the order of path and line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceReport {
    pub files: usize,
    pub findings: Vec<SourceFinding>,
    /// Findings of rules that need a trace to agree before they are shown.
    pub candidates: Vec<SourceFinding>,
    /// Files that did not parse whole, or were not read, and why.
    pub problems: Vec<(String, Problem)>,
    /// How many findings comments and settings in the source silenced.
    pub suppressed: usize,
}

/// Reads all files together, so that what one imports from another is followed, and runs the chosen rules.
pub fn lint(inputs: &[Input], selection: &Selection) -> SourceReport {
    with_deep_stack(|| {
        let files = parse(inputs);
        report(&files, selection)
    })
}

fn with_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        let worker = worker.expect("a thread can be started");
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Parses in parallel, each thread with a deep stack.
fn parse(inputs: &[Input]) -> Vec<SourceFile> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(inputs.len().max(1));
    let next = std::sync::atomic::AtomicUsize::new(0);
    let mut parsed: Vec<(usize, SourceFile)> = std::thread::scope(|scope| {
        let work = || {
            let mut parsed = Vec::new();
            loop {
                let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let Some(input) = inputs.get(index) else { return parsed };
                parsed.push((index, SourceFile::from_bytes(&input.path, &input.bytes)));
            }
        };
        let workers: Vec<_> = (0..threads)
            .filter_map(|_| std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work).ok())
            .collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, _>| match worker.join() {
            Ok(parsed) => parsed,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        workers.into_iter().flat_map(join).collect()
    });
    parsed.sort_by_key(|(index, _)| *index);
    parsed.into_iter().map(|(_, file)| file).collect()
}

fn report(files: &[SourceFile], selection: &Selection) -> SourceReport {
    let program = understand(files);
    let mut findings = Vec::new();
    for rule in rules::RULES.iter().filter(|rule| selection.wants(rule.code)) {
        let mut check = Check { program: &program, rule, found: Vec::new(), lines: Default::default() };
        (rule.check)(&mut check);
        findings.extend(check.found);
    }
    findings.retain(|finding| selection.wants_at(finding.code, &finding.place.file));
    let before = findings.len();
    let silenced: Vec<suppression::Suppressions> = files.iter().map(suppression::Suppressions::read).collect();
    findings.retain(|finding| !silenced[finding.file].silence(finding.code, &finding.place));
    let suppressed = before - findings.len();
    findings.sort_by(|one, two| {
        let key = |finding: &SourceFinding| (finding.file, finding.place.line, finding.place.column, finding.code);
        key(one).cmp(&key(two))
    });
    for finding in &mut findings {
        finding.fix.preview = repair::preview(&files[finding.file], &finding.fix);
    }
    let (candidates, findings) = findings.into_iter().partition(|finding| finding.needs_trace);
    let problems = files.iter().filter_map(|file| Some((file.path.clone(), file.problem.clone()?))).collect();
    SourceReport { files: files.len(), findings, candidates, problems, suppressed }
}

fn understand(files: &[SourceFile]) -> Program<'_> {
    let symbols = symbols::collect(files);
    let index = resolve::ModuleIndex::new(files);
    let classes = classes::classify(&symbols, &index);
    let mut program = Program {
        files,
        symbols,
        index,
        classes,
        functions: Vec::new(),
        settings: settings::Settings::collect(files),
        contexts: context::Contexts::default(),
        calls: Vec::new(),
        tests: Vec::new(),
        shown: Vec::new(),
        accumulations: Vec::new(),
        subscripts: Vec::new(),
        loops: Vec::new(),
        speeds: Vec::new(),
        products: Vec::new(),
        loaders: Vec::new(),
        loader_ids: HashMap::new(),
        sites: Vec::new(),
        site_ids: HashMap::new(),
        heat: heat::Heat::default(),
        groups: groups::Groups::none(),
        call_by_range: HashMap::new(),
        item_receivers: std::collections::HashSet::new(),
        places: program::Places::default(),
    };
    interpret::interpret(&mut program);
    heat::measure(&mut program);
    groups::gather(&mut program);
    program.index_calls();
    program
}

/// All names and attributes that an expression speaks of.
fn names_in(expression: &Expr) -> Vec<&str> {
    struct Names<'a>(Vec<&'a str>);
    impl<'a> Visitor<'a> for Names<'a> {
        fn visit_expr(&mut self, expression: &'a Expr) {
            match expression {
                Expr::Name(name) => self.0.push(name.id.as_str()),
                Expr::Attribute(attribute) => self.0.push(attribute.attr.as_str()),
                _ => {}
            }
            walk_expr(self, expression);
        }
    }
    let mut names = Names(Vec::new());
    names.visit_expr(expression);
    names.0
}

/// The expression of a statement that covers exactly `range`.
fn find_expression(statement: &Stmt, range: TextRange) -> Option<&Expr> {
    struct Finder<'a> {
        range: TextRange,
        found: Option<&'a Expr>,
    }
    impl<'a> Visitor<'a> for Finder<'a> {
        fn visit_stmt(&mut self, statement: &'a Stmt) {
            if self.found.is_none() && statement.range().contains_range(self.range) {
                walk_stmt(self, statement);
            }
        }
        fn visit_expr(&mut self, expression: &'a Expr) {
            if self.found.is_some() || !expression.range().contains_range(self.range) {
                return;
            }
            if expression.range() == self.range {
                self.found = Some(expression);
                return;
            }
            walk_expr(self, expression);
        }
    }
    let mut finder = Finder { range, found: None };
    finder.visit_stmt(statement);
    finder.found
}
