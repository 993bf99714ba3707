//! Samples of output in README.md and its guides are what the command prints now, and so is the picture docs/analyze.svg.

use std::fs;
use std::path::{Path, PathBuf};

use crate::place::Place;

const ANALYZE: &str =
    "headroom analyze crates/trace/tests/data/slow.pt.trace.json.gz --source crates/cli/tests/data/slow_train";
const COMPARE: &str = "headroom compare before.json.gz after.json.gz --fail-if \"step>5%\"";
/// If set, the picture is written anew (`cargo xtask screenshots`).
const PICTURES: &str = "HEADROOM_SCREENSHOTS";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The output of the command, under the names that the pages give the files.
fn printed(command: &str) -> String {
    let place = Place::new();
    std::os::unix::fs::symlink(root().join("crates"), place.path("crates")).unwrap();
    for (from, to) in [("slow", "before"), ("fixed", "after")] {
        let trace = root().join(format!("crates/trace/tests/data/{from}.pt.trace.json.gz"));
        fs::copy(trace, place.path(&format!("{to}.json.gz"))).unwrap();
    }
    place.shell(&command.replacen("headroom", "$HEADROOM", 1)).stdout
}

/// The lines below a command on a page.
fn sample<'p>(page: &'p str, command: &str) -> Vec<&'p str> {
    let below = page.split_once(&format!("$ {command}\n")).unwrap_or_else(|| panic!("{command} is on the page")).1;
    below.lines().take_while(|line| !line.starts_with("```") && !line.starts_with("$ ")).collect()
}

/// The first line of a sample that is not in the output after those before it; `…` stands for any lines.
fn stale<'s>(sample: &[&'s str], output: &str) -> Option<&'s str> {
    let output: Vec<&str> = output.lines().map(str::trim_end).collect();
    let (mut from, mut may_skip) = (0, true);
    for line in sample {
        if *line == "…" {
            may_skip = true;
            continue;
        }
        let place = output[from..].iter().position(|printed| printed == line);
        match place {
            Some(0) => from += 1,
            Some(skipped) if may_skip => from += skipped + 1,
            _ => return Some(line),
        }
        may_skip = false;
    }
    None
}

#[test]
fn samples_on_the_pages_are_what_the_commands_print() {
    for (page, command) in
        [("README.md", ANALYZE), ("README.md", COMPARE), ("docs/traces.md", ANALYZE), ("docs/traces.md", COMPARE)]
    {
        let (text, output) = (fs::read_to_string(root().join(page)).unwrap(), printed(command));
        let lines = sample(&text, command);
        assert!(lines.iter().filter(|line| **line != "…").count() > 0, "{page}: no sample of {command}");
        assert_eq!(stale(&lines, &output), None, "{page}: {command} prints\n{output}");
    }
}

#[test]
fn a_line_that_is_printed_no_more_or_elsewhere_is_stale() {
    let output = "one\ntwo  \nthree\n";
    assert_eq!(stale(&["one", "…", "three"], output), None);
    assert_eq!(stale(&["…", "two", "three", "…"], output), None);
    assert_eq!(stale(&["one", "three"], output), Some("three"), "without a mark nothing is left out");
    assert_eq!(stale(&["two", "…", "one"], output), Some("one"), "in order");
    assert_eq!(stale(&["four"], output), Some("four"));
}

/// The command and its output as in a terminal.
fn picture(command: &str, output: &str) -> String {
    const LETTER: f64 = 7.8;
    let lines: Vec<String> =
        std::iter::once(format!("$ {command}")).chain(output.trim_end().lines().map(str::to_string)).collect();
    let widest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let (width, height) = ((36.0 + LETTER * widest as f64).ceil(), 52 + 18 * lines.len());
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let colour = |at: usize, line: &str| match at {
        0 => "#f2b56b",
        1 => "#7fd1b9",
        _ if line.starts_with(|letter: char| letter.is_ascii_digit()) || line == "Next:" => "#7fd1b9",
        _ => "#d7dce5",
    };
    let text = |(at, line): (usize, &String)| {
        let shown = line.trim_start();
        let indent = line.chars().count() - shown.chars().count();
        format!(
            "<text x=\"{:.1}\" y=\"{}\" fill=\"{}\" textLength=\"{:.1}\" lengthAdjust=\"spacingAndGlyphs\" \
             xml:space=\"preserve\">{}</text>\n",
            18.0 + LETTER * indent as f64,
            52 + 18 * at,
            colour(at, line),
            LETTER * shown.trim_end().chars().count() as f64,
            escaped(shown.trim_end())
        )
    };
    let texts: String = lines.iter().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(text).collect();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\" aria-label=\"{} in a terminal\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"10\" fill=\"#11151c\" stroke=\"#2a3140\"/>\n\
         <circle cx=\"20\" cy=\"17\" r=\"5\" fill=\"#2a3140\"/><circle cx=\"38\" cy=\"17\" r=\"5\" fill=\"#2a3140\"/>\
         <circle cx=\"56\" cy=\"17\" r=\"5\" fill=\"#2a3140\"/>\n\
         <g font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" \
         font-size=\"13\">\n{texts}</g>\n</svg>\n",
        escaped(command)
    )
}

#[test]
fn the_picture_of_analyze_shows_what_it_prints() {
    let (path, made) = (root().join("docs/analyze.svg"), picture(ANALYZE, &printed(ANALYZE)));
    if std::env::var_os(PICTURES).is_some() {
        fs::write(&path, &made).unwrap();
    }
    assert!(made == fs::read_to_string(&path).unwrap(), "docs/analyze.svg is stale: cargo xtask screenshots");
}
