//! Every rule's page is its test: marked lines must be reported, and no others.

use headroom_lint::rules::RULES;
use headroom_lint::{Input, Selection, SourceReport, lint};

/// Marks a line that the page's rule must report.
const MARK: &str = "# <-";

#[test]
fn every_page_has_its_parts() {
    for rule in RULES.iter() {
        let title = format!("# {} {}\n", rule.code, rule.name);
        assert!(rule.page.starts_with(&title), "{} does not start with its title", rule.code);
        let parts = [
            "## Example",
            "## Not reported",
            "## Shown by default",
            "## Fix",
            "## How a trace proves it",
            "## When not to follow it",
        ];
        for part in parts {
            assert!(rule.page.contains(part), "{}: {part} is missing", rule.code);
        }
    }
}

#[test]
fn every_page_has_its_rule() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rules");
    let files = std::fs::read_dir(folder).expect("the rules").flatten();
    let pages = files.filter(|file| file.path().extension().is_some_and(|end| end == "md")).count();
    assert_eq!(RULES.len(), pages, "a row of tables/rules.tsv that is not read, or none for a page");
}

#[test]
fn codes_and_names_are_each_used_once_and_in_order() {
    let codes: Vec<&str> = RULES.iter().map(|rule| rule.code).collect();
    assert!(codes.is_sorted() && codes.windows(2).all(|pair| pair[0] != pair[1]), "{codes:?}");
    let mut names: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
}

#[test]
fn every_example_reports_exactly_its_marked_lines() {
    let mut wrong = Vec::new();
    for rule in RULES.iter() {
        for (number, code) in examples(rule.page).into_iter().enumerate() {
            let want: Vec<u32> =
                (1..).zip(code.lines()).filter(|(_, line)| line.contains(MARK)).map(|(at, _)| at).collect();
            let found = lines_of(&run(rule.code, &code));
            if found != want {
                wrong.push(format!("{} example {number}: reported {found:?}, marked {want:?}\n{code}", rule.code));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_has_an_example_that_it_reports_and_one_that_it_does_not() {
    for rule in RULES.iter() {
        let examples = examples(rule.page);
        assert!(examples.iter().any(|code| code.contains(MARK)), "{}", rule.code);
        assert!(examples.iter().any(|code| !code.contains(MARK)), "{}", rule.code);
    }
}

fn run(code: &str, text: &str) -> SourceReport {
    let selection = Selection::new(&[code.to_string()], &[]).expect("a known code");
    lint(&[Input { path: "example.py".to_string(), bytes: text.as_bytes().to_vec() }], &selection)
}

fn lines_of(report: &SourceReport) -> Vec<u32> {
    report.findings.iter().map(|finding| finding.place.line).collect()
}

fn examples(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in page.lines() {
        match (&mut open, line) {
            (None, "```python") => open = Some(String::new()),
            (Some(_), "```") => blocks.extend(open.take()),
            (Some(block), line) => {
                block.push_str(line);
                block.push('\n');
            }
            _ => {}
        }
    }
    blocks
}
