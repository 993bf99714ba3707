//! Appends `# noqa: CODE` to every line that has a finding.

use std::collections::BTreeMap;

use ruff_python_ast::token::TokenKind;
use ruff_text_size::{Ranged, TextRange, TextSize};

use super::file::SourceFile;
use super::fix::Edit;
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
    let lines = Lines::of(file);
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
    let edits: Vec<Edit> = codes.iter().map(|(line, codes)| lines.comment(file, *line, &codes.join(", "))).collect();
    file.edited(&edits)
}

/// Tokens at line ends.
struct Lines {
    comments: Vec<TextRange>,
    /// Strings that span several lines.
    strings: Vec<TextRange>,
}

impl Lines {
    fn of(file: &SourceFile) -> Lines {
        let mut lines = Lines { comments: Vec::new(), strings: Vec::new() };
        let mut open: Vec<TextSize> = Vec::new();
        for token in file.tokens().iter() {
            match token.kind() {
                TokenKind::Comment => lines.comments.push(token.range()),
                TokenKind::String => lines.strings.push(token.range()),
                TokenKind::FStringStart | TokenKind::TStringStart => open.push(token.start()),
                TokenKind::FStringEnd | TokenKind::TStringEnd => {
                    if let Some(start) = open.pop() {
                        lines.strings.push(TextRange::new(start, token.end()));
                    }
                }
                _ => {}
            }
        }
        lines.strings.retain(|string| file.line(string.start()) != file.line(string.end()));
        lines
    }

    fn has_room(&self, file: &SourceFile, line: u32) -> bool {
        let is_within = |string: &TextRange| (file.line(string.start())..file.line(string.end())).contains(&line);
        !file.line_text(line).ends_with('\\') && !self.strings.iter().any(is_within)
    }

    /// Adds the codes to the line's `noqa` list, or appends a comment to the line.
    fn comment(&self, file: &SourceFile, line: u32, codes: &str) -> Edit {
        let own = self.comments.iter().find(|comment| file.line(comment.start()) == line);
        let listed = own.and_then(|comment| {
            let text = file.slice(*comment);
            let at = text.to_ascii_lowercase().find("noqa")? + "noqa".len();
            let colon = at + text[at..].find(|other: char| !other.is_whitespace())?;
            text[colon..].starts_with(':').then(|| comment.start() + TextSize::new(colon as u32 + 1))
        });
        match listed {
            Some(behind_colon) => Edit::insert(behind_colon, format!(" {codes},")),
            None => Edit::insert(file.line_end(line), format!("  # noqa: {codes}")),
        }
    }
}
