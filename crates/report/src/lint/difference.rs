//! A unified diff of two texts.

use similar::{Algorithm, TextDiff};
use std::time::Duration;

const CONTEXT: usize = 3;

/// After this time, the rest is shown as removed and added in full.
const MOST_TIME: Duration = Duration::from_secs(2);

/// A unified diff, as patch tools read it; empty if the texts are equal.
pub fn unified(path: &str, before: &str, after: &str) -> String {
    let difference = TextDiff::configure().algorithm(Algorithm::Myers).timeout(MOST_TIME).diff_lines(before, after);
    let (old, new) = (format!("a/{path}"), format!("b/{path}"));
    difference.unified_diff().context_radius(CONTEXT).header(&old, &new).to_string()
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
