//! Applies fixes until nothing changes: edits the text, parses it again, and runs the rules again.

use std::collections::HashSet;

use headroom_rewrite::{Depth, Edit};

use super::file::SourceFile;
use super::fix::{Fix, Safety, compatible};
use super::islands::{Map, in_parallel};
use super::rule::SourceFinding;
use super::symbols::FileId;
use super::{Belonging, Input, Projects, Selection, SourceReport, gather, number, report};
use crate::finding::Place;

/// A fix may enable the next one (pinned memory, then the non-blocking copy); no fix needs more rounds than this.
const MOST_ROUNDS: usize = 24;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// Index among the inputs: two paths may be displayed alike.
    pub input: usize,
    pub path: String,
    pub before: String,
    pub after: String,
}

impl Repaired {
    /// The file as it is written; `None` where nothing changed.
    pub(super) fn new(number: usize, input: &Input, file: &SourceFile) -> Option<Repaired> {
        let before = String::from_utf8_lossy(&input.bytes).into_owned();
        let after = file.written(&before)?;
        (before != after).then(|| Repaired { input: number, path: file.path.clone(), before, after })
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Repairs {
    pub files: Vec<Repaired>,
    /// Fixed findings, and where each was when it was fixed.
    pub applied: Vec<(&'static str, Place)>,
    /// Report of the rules on the result.
    pub remaining: SourceReport,
}

/// Applies every fix that is at least as safe as `least`. Files that did not parse completely are left alone.
pub fn repair(inputs: &[Input], selection: &Selection, least: Safety) -> Repairs {
    repair_within(inputs, &Projects::of_all(inputs), selection, least)
}

/// Like [`repair`], for the files asked about.
pub fn repair_within(inputs: &[Input], projects: &Projects, selection: &Selection, least: Safety) -> Repairs {
    let map = Map::draw(inputs, projects);
    let islands = in_parallel(&map.islands, |island| {
        let files = map.files(island, inputs, projects);
        repair_island(files, island, inputs, selection, least)
    });
    let mut repairs = Repairs::default();
    let mut reports = Vec::new();
    for (repaired, report) in islands {
        repairs.files.extend(repaired.files);
        repairs.applied.extend(repaired.applied);
        reports.push(report);
    }
    repairs.files.sort_by(|one, two| (&one.path, one.input).cmp(&(&two.path, two.input)));
    repairs.applied.sort_by(|(_, one), (_, two)| (&one.file, one.line).cmp(&(&two.file, two.line)));
    repairs.remaining = gather(&map, projects, reports);
    repairs
}

/// Repairs one island, and runs the rules on the result.
fn repair_island(
    mut files: Vec<SourceFile>,
    island: &[FileId],
    inputs: &[Input],
    selection: &Selection,
    least: Safety,
) -> (Repairs, SourceReport) {
    let mut repairs = Repairs::default();
    let mut found = report(&files, selection);
    let mut changed = Vec::new();
    for _ in 0..MOST_ROUNDS {
        let edited = repair_once(&files, &found, least, &mut repairs);
        if edited.is_empty() {
            break;
        }
        for (index, after) in edited {
            files[index] = after;
            changed.push(index);
        }
        found = report(&files, selection);
    }
    changed.sort_unstable();
    changed.dedup();
    for index in changed {
        let input = island[index];
        repairs.files.extend(Repaired::new(input, &inputs[input], &files[index]));
    }
    number(&mut found, island, &files);
    (repairs, found)
}

/// The changed files, by index, with their new contents.
fn repair_once(
    files: &[SourceFile],
    found: &SourceReport,
    least: Safety,
    repairs: &mut Repairs,
) -> Vec<(usize, SourceFile)> {
    let mut changed = Vec::new();
    for (index, file) in files.iter().enumerate() {
        if !file.asked || !file.exact || file.problem.is_some() {
            continue;
        }
        let is_wanted = |finding: &&SourceFinding| {
            finding.file == index && finding.fix.safety >= least && !finding.fix.edits.is_empty()
        };
        let mut here: Vec<&SourceFinding> = found.findings.iter().filter(is_wanted).collect();
        // All at once; if the result does not parse, fixes that break it on their own are dropped.
        let mut made_of_all = together(file, &here);
        if made_of_all.is_none() {
            here.retain(|finding| edited(file, &finding.fix.edits).is_some());
            made_of_all = together(file, &here);
        }
        let Some((taken, after)) = made_of_all.filter(|(_, after)| after.text != file.text) else { continue };
        let taken: HashSet<*const Fix> = taken.into_iter().map(std::ptr::from_ref).collect();
        let made = here.iter().filter(|finding| taken.contains(&std::ptr::from_ref(&finding.fix)));
        let place = |finding: &SourceFinding| file.place_in_cell(&finding.place, finding.range.start());
        repairs.applied.extend(made.map(|finding| (finding.code, place(finding))));
        changed.push((index, after));
    }
    changed
}

/// Whether a text parses completely.
pub fn parses(input: &Input) -> bool {
    let belonging = Belonging { project: 0, within: input.path.clone(), asked: true };
    SourceFile::read(input, &belonging, Depth::Unknown).problem.is_none()
}

/// The file with these edits, if it still parses.
fn edited(file: &SourceFile, edits: &[Edit]) -> Option<SourceFile> {
    file.edited(edits).filter(|after| after.problem.is_none())
}

/// The fixes that can be applied together, and the file with all of them.
fn together<'f>(file: &SourceFile, findings: &[&'f SourceFinding]) -> Option<(Vec<&'f Fix>, SourceFile)> {
    let taken = compatible(findings.iter().map(|finding| &finding.fix));
    let edits: Vec<Edit> = taken.iter().flat_map(|fix| fix.edits.clone()).collect();
    edited(file, &edits).map(|after| (taken, after))
}
