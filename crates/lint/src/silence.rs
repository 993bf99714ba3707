//! Appends `# noqa: CODE` to every line that has a finding.

use std::collections::BTreeMap;

use headroom_rewrite::{Edit, LineEnds};

use super::file::SourceFile;
use super::islands::{Map, in_parallel};
use super::repair::Repaired;
use super::rule::SourceFinding;
use super::{Input, Problem, Projects, Selection, gather, report};
use crate::finding::Place;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Silenced {
    pub files: Vec<Repaired>,
    /// The number of findings that the new comments silence.
    pub findings: usize,
    /// Findings whose lines cannot take a comment: they end inside a string.
    pub left: Vec<(&'static str, Place)>,
    /// Files that did not parse completely or were not read, and why.
    pub problems: Vec<(String, Problem)>,
}

/// Writes the comments into the files that are asked about. Files that did not parse completely are left alone.
pub fn silence(inputs: &[Input], projects: &Projects, selection: &Selection) -> Silenced {
    let map = Map::draw(inputs, projects);
    let islands = in_parallel(&map.islands, |island| {
        let files = map.files(island, inputs, projects);
        let found = report(&files, selection).findings;
        let mut silenced = Silenced::default();
        for (index, file) in files.iter().enumerate().filter(|(_, file)| file.exact && file.problem.is_none()) {
            let here: Vec<&SourceFinding> = found.iter().filter(|finding| finding.file == index).collect();
            if here.is_empty() {
                continue;
            }
            let after = silence_file(file, &here, &mut silenced);
            let repaired = after.and_then(|after| Repaired::new(island[index], &inputs[island[index]], &after));
            silenced.files.extend(repaired);
        }
        silenced
    });
    let mut all = Silenced { problems: gather(&map, projects, Vec::new()).problems, ..Silenced::default() };
    for silenced in islands {
        all.files.extend(silenced.files);
        all.findings += silenced.findings;
        all.left.extend(silenced.left);
    }
    all.files.sort_by_key(|file| file.input);
    all
}

fn silence_file(file: &SourceFile, found: &[&SourceFinding], silenced: &mut Silenced) -> Option<SourceFile> {
    let lines = LineEnds::of(file);
    let mut codes: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for finding in found {
        // A comment applies on the first and the last line of the code it silences.
        let candidates = [finding.range.end(), finding.range.start()].map(|offset| file.line(offset));
        match candidates.into_iter().find(|line| lines.has_room(file, *line)) {
            Some(line) => {
                let known = codes.entry(line).or_default();
                if !known.contains(&finding.code) {
                    known.push(finding.code);
                }
                silenced.findings += 1;
            }
            None => {
                silenced.left.push((finding.code, file.place_in_cell(&finding.place, finding.range.start())));
            }
        }
    }
    let edits: Vec<Edit> =
        codes.iter().map(|(line, codes)| lines.comment(file, *line, "noqa", &codes.join(", "))).collect();
    file.edited(&edits)
}
