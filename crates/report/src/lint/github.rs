//! Findings as annotations of a GitHub workflow.

use std::fmt::Write;

use headroom_diagnosis::finding::Severity;
use headroom_lint::SourceReport;

use super::evidence;

pub fn show(report: &SourceReport) -> String {
    let mut out = String::new();
    for finding in &report.findings {
        let level = match finding.severity {
            Severity::Critical | Severity::High => "error",
            Severity::Medium => "warning",
            Severity::Low => "notice",
        };
        let place = &finding.place;
        let _ = writeln!(
            out,
            "::{level} file={},line={},col={},endLine={},endColumn={},title={}::{}",
            property(&place.file),
            place.line,
            place.column,
            place.end_line,
            place.end_column,
            property(&format!("{} {}", finding.code, finding.name)),
            data(&format!("{}{} ({}). {}", in_cell(place.cell), finding.message, evidence(finding), finding.fix.title)),
        );
    }
    for (path, problem) in &report.problems {
        let _ = writeln!(
            out,
            "::error file={},line={},title=not fully read::{}",
            property(path),
            problem.line.max(1),
            data(&format!("{}{}", in_cell(problem.cell), problem.message)),
        );
    }
    out
}

/// Annotations have no field for cells: lines count within the cell.
fn in_cell(cell: Option<u32>) -> String {
    cell.map_or_else(String::new, |cell| format!("cell {cell}: "))
}

/// Text after the `::`, with the characters escaped that would end it.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn an_annotation_is_one_line_with_its_place() {
        let shown = show(&report());
        let line = shown.lines().nth(1).expect("two findings");
        assert!(
            line.starts_with(
                "::error file=train.py,line=12,col=18,endLine=12,endColumn=29,title=TP101 item-per-step::"
            ),
            "{line}"
        );
    }

    #[test]
    fn what_would_end_a_field_is_escaped() {
        assert_eq!(property("C:\\a,b\n50%"), "C%3A\\a%2Cb%0A50%25");
    }
}
