//! Merges source findings and trace findings of the same cause.

use std::collections::{HashMap, HashSet};

use crate::finding::{Cause, Place, Severity};
use crate::locate::{Script, call_place, callee};
use crate::measures::python::{Frame, frame};
use crate::trace_rules::{SourceFinding, TraceFinding};
use headroom_lint::{CallsPerStep, Input, Measured, Projects, SourceFinding as Suspicion, SourceReport};

/// Gives trace findings their lines and the source findings that agree with them.
pub fn join(findings: &mut [TraceFinding], report: &SourceReport, inputs: &[Input], projects: &Projects) {
    let suspicions: Vec<&Suspicion> = report.findings.iter().chain(&report.held_back).collect();
    let mut taken = vec![false; suspicions.len()];
    let mut sources = Sources { inputs, projects, scripts: HashMap::new() };
    match_by_function(findings, &suspicions, &mut taken, &mut sources);
    for finding in findings.iter_mut().filter(|finding| finding.place.is_none()) {
        finding.place = locate(finding, &mut sources);
    }
    // Suspicions about the whole script (no torch.compile, no autocast, the loader) go to the first finding of their
    // cause.
    let passed_over = sources.passed_over(findings);
    let is_open =
        |(index, one): &(usize, &&Suspicion)| !taken[*index] && !passed_over.contains(one.place.file.as_str());
    for (index, suspicion) in suspicions.iter().enumerate().filter(is_open).collect::<Vec<_>>() {
        let of_cause = |finding: &&mut TraceFinding| finding.cause == suspicion.cause && finding.function.is_none();
        let whole = findings.iter_mut().find(of_cause);
        let first = match whole {
            Some(finding) => Some(finding),
            None => findings.iter_mut().find(|finding| {
                finding.cause == suspicion.cause && !matches!(finding.cause, Cause::HostSync | Cause::ConstantRebuilt)
            }),
        };
        if let Some(finding) = first {
            taken[index] = true;
            finding.sources.push(agreed(suspicion));
            finding.place.get_or_insert_with(|| suspicion.place.clone());
        }
    }
}

/// Gives source findings the measurements of the trace findings they were joined with. Measured ones come first, the
/// largest share first. Pedantic ones are added if it confirmed them.
pub fn measure(report: &mut SourceReport, findings: &[TraceFinding]) {
    for finding in findings {
        let mut lines: Vec<_> = finding.sources.iter().map(|source| (&source.place.file, source.place.line)).collect();
        lines.sort_unstable();
        lines.dedup();
        for source in &finding.sources {
            let is_it = |suspicion: &&mut Suspicion| suspicion.code == source.code && suspicion.place == source.place;
            let SourceReport { findings: shown, held_back, .. } = &mut *report;
            let Some(suspicion) = shown.iter_mut().chain(held_back).find(is_it) else {
                continue;
            };
            if let (Some(share), 1) = (finding.share_of_step, lines.len()) {
                suspicion.severity = Severity::of_share(share);
            }
            suspicion.measured = Some(Measured {
                code: finding.code,
                name: finding.name,
                share_of_step: finding.share_of_step,
                lines: lines.len(),
                message: finding.message.clone(),
            });
        }
    }
    let (measured, held) = std::mem::take(&mut report.held_back).into_iter().partition(|one| one.measured.is_some());
    report.held_back = held;
    report.findings.extend::<Vec<Suspicion>>(measured);
    let share = |finding: &Suspicion| {
        finding.measured.as_ref().map_or(-1.0, |measured: &Measured| measured.share_of_step.unwrap_or(0.0))
    };
    report.findings.sort_by(|one, two| {
        let place = |finding: &Suspicion| (finding.place.file.clone(), finding.place.line, finding.place.column);
        share(two).total_cmp(&share(one)).then_with(|| place(one).cmp(&place(two)))
    });
}

fn agreed(suspicion: &Suspicion) -> SourceFinding {
    SourceFinding { code: suspicion.code.to_string(), place: suspicion.place.clone() }
}

/// Within one function, matches findings in order of time with suspicions in order of their lines.
fn match_by_function(
    findings: &mut [TraceFinding],
    suspicions: &[&Suspicion],
    taken: &mut [bool],
    sources: &mut Sources,
) {
    let mut order: Vec<usize> = (0..findings.len()).filter(|&at| findings[at].function.is_some()).collect();
    order.sort_by_key(|&at| findings[at].found.first);
    for at in order {
        let Some(name) = findings[at].function.clone() else { continue };
        let Some(frame) = frame(&name) else { continue };
        let Some(source) = sources.of(&frame) else { continue };
        // A call that torch makes internally does not match the text of a line in the user's code.
        let is_direct = findings[at].found.through.as_ref().is_none_or(|through| through.starts_with("<built-in"));
        let repeats = findings[at].found.per_step >= 2.0;
        let fits = |suspicion: &Suspicion| {
            suspicion.cause == findings[at].cause
                && is_direct
                && suspicion.place.file == source.path
                && suspicion.function.rsplit('.').next() == Some(frame.function)
        };
        let open: Vec<usize> =
            (0..suspicions.len()).filter(|&index| !taken[index] && fits(suspicions[index])).collect();
        let as_often = |&&index: &&usize| is_repeated(suspicions[index].calls_per_step) == repeats;
        let Some(&chosen) = open.iter().find(as_often).or(open.first()) else { continue };
        let place = suspicions[chosen].place.clone();
        // Other rules may suspect the same line.
        for &index in open.iter().filter(|&&index| suspicions[index].place.line == place.line) {
            taken[index] = true;
            findings[at].sources.push(agreed(suspicions[index]));
        }
        findings[at].place = Some(place);
    }
}

fn is_repeated(calls: CallsPerStep) -> bool {
    matches!(calls, CallsPerStep::PerParameter | CallsPerStep::Several)
}

fn locate(finding: &TraceFinding, sources: &mut Sources) -> Option<Place> {
    let frame = frame(finding.function.as_deref()?)?;
    let callee = callee(finding.found.through.as_deref()?)?;
    let source = sources.of(&frame)?;
    call_place(&source.path, sources.script(source)?, frame.function, frame.line, &callee)
}

/// The given files, each parsed when a finding first needs it.
struct Sources<'i> {
    inputs: &'i [Input],
    projects: &'i Projects,
    scripts: HashMap<&'i str, Option<Script>>,
}

impl<'i> Sources<'i> {
    /// The file of a frame. Traces shorten paths and runs happen elsewhere, so that the longest common end of both paths
    /// decides; between files that share equally much, which of them has the frame's function, at its line if several
    /// have; and then which was asked about. `None` if that leaves more than one.
    fn of(&mut self, frame: &Frame) -> Option<&'i Input> {
        let inputs = self.inputs.iter().enumerate();
        let named: Vec<(usize, usize)> = inputs.map(|(at, input)| (common_end(frame.file, &input.path), at)).collect();
        let longest = named.iter().map(|(common, _)| *common).max().filter(|common| *common > 0)?;
        let nearest: Vec<usize> =
            named.into_iter().filter(|(common, _)| *common == longest).map(|(_, at)| at).collect();
        if let [only] = nearest[..] {
            return Some(&self.inputs[only]);
        }
        let fits: Vec<u8> = nearest
            .iter()
            .map(|at| self.script(&self.inputs[*at]).map_or(0, |script| script.fit(frame.function, frame.line)))
            .collect();
        let best = fits.iter().copied().max().filter(|fit| *fit > 0)?;
        let those: Vec<usize> =
            nearest.into_iter().zip(fits).filter(|(_, fit)| *fit == best).map(|(at, _)| at).collect();
        let asked: Vec<usize> = those.iter().copied().filter(|at| self.projects.is_asked(*at)).collect();
        match (&those[..], &asked[..]) {
            ([only], _) | (_, [only]) => Some(&self.inputs[*only]),
            _ => None,
        }
    }

    /// Files that have the name of a traced one without being it.
    fn passed_over(&mut self, findings: &[TraceFinding]) -> HashSet<&'i str> {
        let (mut traced, mut alike) = (HashSet::new(), HashSet::new());
        for frame in findings.iter().filter_map(|finding| frame(finding.function.as_deref()?)) {
            let Some(source) = self.of(&frame) else { continue };
            traced.insert(source.path.as_str());
            let paths = self.inputs.iter().map(|input| input.path.as_str());
            alike.extend(paths.filter(|path| common_end(frame.file, path) > 0));
        }
        alike.difference(&traced).copied().collect()
    }

    fn script(&mut self, input: &'i Input) -> Option<&Script> {
        let parse = || Script::new(String::from_utf8_lossy(&input.bytes).into_owned());
        self.scripts.entry(&input.path).or_insert_with(parse).as_ref()
    }
}

/// How many parts, file name first, two paths have in common at their ends.
fn common_end(left: &str, right: &str) -> usize {
    fn parts(path: &str) -> impl Iterator<Item = &str> {
        path.rsplit(['/', '\\']).filter(|part| !part.is_empty() && *part != ".")
    }
    parts(left).zip(parts(right)).take_while(|(left, right)| left == right).count()
}

#[cfg(test)]
mod tests;
