//! A unified difference of two texts.

use std::fmt::Write;

const CONTEXT: usize = 3;

/// Beyond this the middle is shown as removed and added whole, so that memory stays bounded.
const MOST_CELLS: usize = 1 << 24;

/// What a patch tool reads; empty where the texts are the same.
pub fn unified(path: &str, before: &str, after: &str) -> String {
    let (old, new) = (lines(before), lines(after));
    let steps = steps(&old, &new);
    let mut out = String::new();
    for hunk in hunks(&steps) {
        if out.is_empty() {
            let _ = writeln!(out, "--- a/{path}\n+++ b/{path}");
        }
        let first = &steps[hunk.start];
        let removed = steps[hunk.clone()].iter().filter(|step| step.kind != Kind::Added).count();
        let added = steps[hunk.clone()].iter().filter(|step| step.kind != Kind::Removed).count();
        let start = |at: usize, count: usize| if count == 0 { at } else { at + 1 };
        let _ = writeln!(out, "@@ -{},{removed} +{},{added} @@", start(first.old, removed), start(first.new, added));
        for step in &steps[hunk] {
            let (sign, line) = match step.kind {
                Kind::Same => (' ', old[step.old]),
                Kind::Removed => ('-', old[step.old]),
                Kind::Added => ('+', new[step.new]),
            };
            let _ = write!(out, "{sign}{line}");
            if !line.ends_with('\n') {
                let _ = writeln!(out, "\n\\ No newline at end of file");
            }
        }
    }
    out
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Same,
    Removed,
    Added,
}

/// One line of the difference, and where it stands in both texts.
#[derive(Clone, Copy)]
struct Step {
    kind: Kind,
    old: usize,
    new: usize,
}

fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// The common head and tail are matched directly; between them the longest common subsequence.
fn steps(old: &[&str], new: &[&str]) -> Vec<Step> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let (a, b) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let (old_tail, new_tail) = (old.len() - tail, new.len() - tail);
    let same_tail = (0..tail).map(|at| Step { kind: Kind::Same, old: old_tail + at, new: new_tail + at });
    let mut steps: Vec<Step> = (0..head).map(|at| Step { kind: Kind::Same, old: at, new: at }).collect();
    if a.len().saturating_mul(b.len()) > MOST_CELLS {
        let removed = |at| Step { kind: Kind::Removed, old: head + at, new: head };
        let added = |at| Step { kind: Kind::Added, old: head + a.len(), new: head + at };
        steps.extend((0..a.len()).map(removed).chain((0..b.len()).map(added)));
        steps.extend(same_tail);
        return steps;
    }
    // lengths[i][j]: the longest common subsequence of a[i..] and b[j..].
    let width = b.len() + 1;
    let mut lengths = vec![0u32; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            lengths[i * width + j] = if a[i] == b[j] {
                lengths[(i + 1) * width + j + 1] + 1
            } else {
                lengths[(i + 1) * width + j].max(lengths[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        let at = |kind| Step { kind, old: head + i, new: head + j };
        if i < a.len() && j < b.len() && a[i] == b[j] {
            steps.push(at(Kind::Same));
            (i, j) = (i + 1, j + 1);
        } else if i < a.len() && (j == b.len() || lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) {
            steps.push(at(Kind::Removed));
            i += 1;
        } else {
            steps.push(at(Kind::Added));
            j += 1;
        }
    }
    steps.extend(same_tail);
    steps
}

fn hunks(steps: &[Step]) -> Vec<std::ops::Range<usize>> {
    let mut hunks: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, _) in steps.iter().enumerate().filter(|(_, step)| step.kind != Kind::Same) {
        let range = at.saturating_sub(CONTEXT)..(at + CONTEXT + 1).min(steps.len());
        match hunks.last_mut() {
            Some(last) if last.end >= range.start => last.end = range.end,
            _ => hunks.push(range),
        }
    }
    hunks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_line_is_shown_with_its_surroundings() {
        let before = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let after = "1\n2\n3\n4\nfive\n6\n7\n8\n9\n";
        let want = "--- a/x.py\n+++ b/x.py\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n";
        assert_eq!(unified("x.py", before, after), want);
        assert_eq!(unified("x.py", before, before), "");
    }

    #[test]
    fn far_changes_are_hunks_of_their_own_and_a_missing_line_end_is_said() {
        let before: String = (0..30).map(|line| format!("{line}\n")).collect();
        let after = before.replace("3\n", "three\n").trim_end().to_string() + "!";
        let shown = unified("x.py", &before, &after);
        assert!(shown.matches("@@ -").count() >= 2, "{shown}");
        assert!(shown.ends_with("\\ No newline at end of file\n"), "{shown}");
    }
}
