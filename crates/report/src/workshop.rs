//! The workshop's documents: a record sheet in Markdown, and the marks of a folder for the terminal.

use crate::table::{Table, markdown_table};
use headroom_record::workshop::{Marks, PartMarks, RecordSheet, RunMarks, SheetFigure};
use std::fmt::Write;

/// Part 0 derives its figures, so its sheet has a column for them.
const DERIVED_PART: u64 = 0;

/// A table per step with an empty column for the reader's figures; known ones are filled in.
pub fn sheet(sheet: &RecordSheet) -> String {
    let mut out = format!("# Record sheet {}: {}\n\n", sheet.part, sheet.title);
    out += "Name: ____________________  Machine: ____________________  Date: ____________\n";
    let derived = sheet.part == DERIVED_PART;
    let mut head = vec!["figure"];
    head.extend(derived.then_some("by hand"));
    head.extend(["yours", "where it stands"]);
    for (number, step) in sheet.steps.iter().enumerate() {
        let _ = write!(out, "\n## {}. {}\n\n```sh\n{}\n```\n\n", number + 1, step.title, step.command);
        let row = |figure: &SheetFigure| {
            let mut row = vec![figure.name.clone()];
            row.extend(derived.then(String::new));
            row.extend([figure.value.clone().unwrap_or_default(), place(figure)]);
            row
        };
        out += &markdown_table(&Table { head: head.clone(), rows: step.figures.iter().map(row).collect() });
    }
    out
}

fn place(figure: &SheetFigure) -> String {
    match (&figure.file, &figure.key) {
        (Some(file), Some(key)) => format!("`{key}` in `{file}`"),
        (Some(whose), None) => whose.clone(),
        _ => "printed by the command".to_string(),
    }
}

/// Part by part: which runs exist, and for each check whether it passed or why not.
pub fn marks(marks: &Marks) -> String {
    let mut out = String::new();
    for part in &marks.parts {
        out += &part_text(part);
    }
    let wrong = match marks.wrong {
        0 => "nothing wrong".to_string(),
        1 => "1 check failed".to_string(),
        count => format!("{count} checks failed"),
    };
    let _ = writeln!(out, "Sum: {} of {} points, {wrong}", marks.points, marks.of);
    out
}

fn part_text(part: &PartMarks) -> String {
    let mut out = format!("Part {}, {}: {} of {} points\n", part.part, part.title, part.points, part.of);
    for run in &part.runs {
        out += &run_text(run);
    }
    out.push('\n');
    out
}

fn run_text(run: &RunMarks) -> String {
    let mut out = format!("  {}: {}\n", run.folder, run.expected);
    match run.found.as_deref() {
        None if run.command.is_empty() => out += "    not yet: it takes both runs\n",
        None => {
            let _ = writeln!(out, "    not there: {}", run.command);
        }
        Some(found) if found != run.folder => {
            let _ = writeln!(out, "    found as {found}");
        }
        Some(_) => {}
    }
    for check in &run.checks {
        let answer = if check.passed { "ok   " } else { "WRONG" };
        let _ = writeln!(out, "    {answer} {}: {}", check.name, check.note);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_record::SCHEMA_VERSION;
    use headroom_record::workshop::{Check, SheetStep};

    #[test]
    fn a_sheet_has_an_empty_column_and_fills_what_is_known() {
        let figure = |name: &str, value: Option<&str>| SheetFigure {
            name: name.into(),
            file: value.map(|_| "runs/plain/a.json".into()),
            key: value.map(|_| "b.c".into()),
            value: value.map(String::from),
        };
        let step = SheetStep {
            title: "Train".into(),
            command: "headroom train".into(),
            figures: vec![figure("time per step", Some("3 ms")), figure("kernels", None)],
        };
        let mut made =
            RecordSheet { schema_version: SCHEMA_VERSION, part: 1, title: "Baseline".into(), steps: vec![step] };
        let text = sheet(&made);
        assert!(text.contains("## 1. Train\n\n```sh\nheadroom train\n```\n"), "{text}");
        assert!(text.contains("| time per step | 3 ms | `b.c` in `runs/plain/a.json` |\n"), "{text}");
        assert!(text.contains("| kernels |  | printed by the command |\n"), "{text}");
        made.part = DERIVED_PART;
        assert!(sheet(&made).contains("| time per step |  | 3 ms |"), "{}", sheet(&made));
    }

    #[test]
    fn marks_name_the_missing_the_wrong_and_the_sum() {
        let run = |found: Option<&str>, checks| RunMarks {
            folder: "runs/plain".into(),
            expected: "train tiny".into(),
            command: "headroom train".into(),
            found: found.map(String::from),
            of: 4,
            checks,
        };
        let check = |passed, note: &str| Check { name: "as asked".into(), passed, note: note.into() };
        let checks = vec![check(true, "tiny"), check(false, "10 steps, not 20")];
        let part = PartMarks::new(1, "Baseline", vec![run(Some("runs/other"), checks), run(None, vec![])]);
        let text = marks(&Marks::new("here".into(), vec![part]));
        for line in [
            "Part 1, Baseline: 1 of 8 points\n",
            "    found as runs/other\n",
            "    WRONG as asked: 10 steps, not 20\n",
            "    not there: headroom train\n",
            "Sum: 1 of 8 points, 1 check failed\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
