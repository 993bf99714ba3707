//! A source rule, and the finding it reports.

use rustc_hash::FxHashSet;

use ruff_text_size::TextRange;
use serde::de::value::{BorrowedStrDeserializer, Error};
use serde::{Deserialize, Serialize};

use super::context::ContextId;
use super::file::SourceFile;
use super::fix::Fix;
use super::program::{Noted, Program};
use super::scope::Scope;
use super::symbols::FileId;
use crate::finding::{Cause, Confidence, Effort, Place, Severity, percent_of_step};

/// One rule: its logic in `rules/<name>.rs`, its page beside it in `<name>.md`, the rest in `tables/rules.tsv`.
pub struct SourceRule {
    pub code: &'static str,
    /// Chosen to read well after "allow".
    pub name: &'static str,
    pub cause: Cause,
    /// Severity of a finding that nothing has measured.
    pub severity: Severity,
    pub effort: Effort,
    pub confidence: Confidence,
    /// Operator names that a trace shows for the line.
    pub operators: Vec<&'static str>,
    pub page: &'static str,
    pub check: fn(&mut Check),
}

impl SourceRule {
    /// The rule of a row of its table; `None` where a word of the row is not known.
    pub(super) fn read(row: [&'static str; 7], page: &'static str, check: fn(&mut Check)) -> Option<SourceRule> {
        let [code, name, cause, severity, effort, confidence, operators] = row;
        Some(SourceRule {
            code,
            name,
            cause: known(cause)?,
            severity: known(severity)?,
            effort: known(effort)?,
            confidence: known(confidence)?,
            operators: operators.split(", ").filter(|operator| *operator != "-").collect(),
            page,
            check,
        })
    }
}

/// The value that a word spells in JSON, too.
fn known<T: Deserialize<'static>>(word: &'static str) -> Option<T> {
    T::deserialize(BorrowedStrDeserializer::<Error>::new(word)).ok()
}

/// A suspected cause at a line of a script.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceFinding {
    pub code: &'static str,
    pub name: &'static str,
    pub cause: Cause,
    pub severity: Severity,
    pub effort: Effort,
    pub confidence: Confidence,
    pub message: String,
    pub place: Place,
    /// The line it is on.
    pub snippet: String,
    /// The function around it, as traces name it: `Model.forward`, `<module>`.
    pub function: String,
    pub operators: &'static [&'static str],
    pub calls_per_step: CallsPerStep,
    /// True, but rarely worth a change: shown only on request. See `Notice`.
    pub pedantic: bool,
    /// The finding of a trace of the script, where one was given and confirms this.
    pub measured: Option<Measured>,
    pub fix: Fix,
    #[serde(skip)]
    pub(super) file: FileId,
    #[serde(skip)]
    pub(super) range: TextRange,
}

impl SourceFinding {
    /// Converts lines and bytes, which count across all cells of a notebook, to those of each cell. A script's stay as
    /// they are.
    pub(super) fn show_in_cells(&mut self, file: &SourceFile) {
        self.place = file.place_in_cell(&self.place, self.range.start());
        let Some(first) = self.fix.edits.iter().map(|edit| edit.range.start()).min() else { return };
        if let Some(preview) = &mut self.fix.preview {
            preview.line = file.line_in_cell(first).1;
        }
        for edit in &mut self.fix.edits {
            if let Some(cell) = file.cell_at(edit.range.start()) {
                let end = edit.range.end().min(cell.range.end());
                edit.range = TextRange::new(edit.range.start(), end) - cell.range.start();
                edit.cell = Some(cell.number);
            }
        }
    }
}

/// A trace's finding with the same cause at the same place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    pub code: &'static str,
    pub name: &'static str,
    /// `None` where the cost is memory or trust in the trace instead of time.
    pub share_of_step: Option<f64>,
    /// The number of lines that cause that share together.
    pub lines: usize,
    pub message: String,
}

impl Measured {
    /// `3.5% of the step (measured, TR101)`; for a cost that several lines share, also their number.
    pub fn shown(&self) -> String {
        match (self.share_of_step.map(percent_of_step), self.lines) {
            (Some(share), 0 | 1) => format!("{share} (measured, {})", self.code),
            (Some(share), lines) => format!("one of {lines} lines behind {share} (measured, {})", self.code),
            (None, _) => format!("seen in the trace, {}", self.code),
        }
    }
}

/// How often the line runs per step, as far as the source shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallsPerStep {
    Once,
    PerParameter,
    /// Inside a module's `forward`, which a step may run once per layer.
    PerLayer,
    Several,
    /// Not part of the step, or not known.
    Unknown,
}

/// Whether a finding is shown by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A maintainer would act on it: on the hot path, beyond the cost that the rule's page states.
    Default,
    /// Shown with `--pedantic`, where the rule is selected, or where a trace measures it.
    Pedantic,
}

impl Notice {
    /// Shown by default where this holds.
    pub fn when(is_worth: bool) -> Notice {
        if is_worth { Notice::Default } else { Notice::Pedantic }
    }
}

/// A rule's view of the program, and the list of its findings.
pub struct Check<'p, 'a> {
    pub program: &'p Program<'a>,
    pub rule: &'static SourceRule,
    pub found: Vec<SourceFinding>,
    pub(super) lines: FxHashSet<(FileId, u32)>,
}

impl<'p, 'a> Check<'p, 'a> {
    /// Lowers the confidence of the last finding, which has less than the rule's usual evidence.
    pub fn doubt(&mut self) {
        if let Some(last) = self.found.last_mut() {
            last.confidence = last.confidence.min(Confidence::Medium);
        }
    }

    /// Reports a finding. A rule reports at most one per line.
    pub fn report(&mut self, noted: impl Noted, message: impl Into<String>, fix: Fix) {
        self.report_as(Notice::Default, noted, message, fix);
    }

    /// Like [`Self::report`], with the rule's choice whether it is shown by default. Findings outside training never
    /// are.
    pub fn report_as(&mut self, notice: Notice, noted: impl Noted, message: impl Into<String>, fix: Fix) {
        let (context, range) = noted.place();
        let file = self.program.file_of(context);
        let place = self.program.sources.files[file].place(range);
        if !self.lines.insert((file, place.line)) {
            return;
        }
        let rule = self.rule;
        let is_outside = match self.program.scope(context) {
            Scope::Training => false,
            // Rules about evaluation apply there.
            Scope::Inference => !matches!(rule.code, "TP601" | "TP604"),
            _ => true,
        };
        // Only the reader knows whether a branch is taken. A keyword added to a copy is right either way.
        let is_branch = rule.code != "TP303" && self.program.is_hot(context) && self.program.is_under_branch(context);
        let is_mitigated = || self.program.is_on_side_stream(context, range);
        let is_pedantic = notice == Notice::Pedantic
            || is_outside
            || is_branch
            || self.program.is_trial(context)
            || rule.cause == Cause::HostSync && is_mitigated();
        self.found.push(SourceFinding {
            code: rule.code,
            name: rule.name,
            cause: rule.cause,
            // A finding that is rarely worth a change is never severe, and nothing is critical until it is measured.
            severity: if is_pedantic { Severity::Low } else { rule.severity.min(Severity::High) },
            effort: rule.effort,
            confidence: rule.confidence,
            message: message.into(),
            snippet: self.program.sources.files[file].line_text(place.line).to_string(),
            place,
            function: self.program.function_of(context).qualified.clone(),
            operators: &rule.operators,
            calls_per_step: calls_per_step(self.program, context),
            pedantic: is_pedantic,
            measured: None,
            fix,
            file,
            range,
        });
    }
}

fn calls_per_step(program: &Program, context: ContextId) -> CallsPerStep {
    use super::program::FunctionKind;
    if !program.is_hot(context) {
        return CallsPerStep::Unknown;
    }
    if program.is_in_parameter_loop(context) {
        return CallsPerStep::PerParameter;
    }
    let function = program.function_at(context);
    match program.functions[function].kind {
        _ if program.is_repeated_within_step(context) => CallsPerStep::Several,
        FunctionKind::Step => CallsPerStep::PerLayer,
        _ if program.step_loop(context).is_some() => CallsPerStep::Once,
        _ => CallsPerStep::Several,
    }
}
