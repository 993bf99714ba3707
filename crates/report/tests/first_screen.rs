//! The first screen of `analyze` over every stored trace: alone, with its source, and as two ranks.

use std::fs;
use std::path::{Path, PathBuf};

use headroom_diagnosis::join::join;
use headroom_diagnosis::{Analysis, Options, analyze};
use headroom_lint::{Input, Projects, Selection, lint};
use headroom_report::analyze::{Invocation, answer, everything, html, markdown, next_steps};
use headroom_trace::{Trace, read_file};

const WIDTH: usize = 80;
const FIRST_LINES: usize = 20;
const MOST_FINDINGS: usize = 5;

/// Sentences that have to be read twice.
const NEVER: [&str; 6] = [
    " beyond those above)",
    "with the named passes, which are not applied yet",
    "0.0 ms takes",
    "estimated 0.0",
    "1 steps",
    "(0.00% ",
];

fn stored() -> Vec<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let list = |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let runs = list(&crates.join("diagnosis/tests/data/runs"));
    let mut files: Vec<PathBuf> = runs.iter().flat_map(|run| list(run)).collect();
    files.extend(list(&crates.join("trace/tests/data")));
    let is_trace = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.contains("trace") && name.ends_with(".json.gz")
    };
    files.retain(is_trace);
    files.sort();
    assert!(files.len() >= 10, "{files:?}");
    files
}

fn analysis(traces: &[Trace]) -> Analysis {
    analyze(traces, &Options::default()).unwrap()
}

/// With the script that most of these traces do not come from: lines are longer then, never shorter.
fn with_source(trace: &Trace) -> Analysis {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/data/slow_train/train.py");
    let shown = "a/rather/long/path/to/the/experiments/of/somebody/train.py";
    let inputs = [Input { path: shown.into(), bytes: fs::read(path).unwrap() }];
    let mut analysis = analysis(std::slice::from_ref(trace));
    join(&mut analysis.findings, &lint(&inputs, &Selection::default()), &inputs, &Projects::of_all(&inputs));
    analysis
}

fn as_two_ranks(trace: &Trace) -> Analysis {
    let rank = |rank: u32| {
        let mut one = trace.clone();
        let distributed = one.header.distributed.get_or_insert_default();
        (distributed.rank, distributed.world_size) = (rank, 2);
        one
    };
    analysis(&[rank(0), rank(1)])
}

/// Lines as a terminal of 80 columns shows them.
fn screen_lines(text: &str) -> Vec<String> {
    let cut = |line: &str| {
        let letters: Vec<char> = line.chars().collect();
        letters.chunks(WIDTH).map(|part| part.iter().collect::<String>()).collect::<Vec<_>>()
    };
    text.lines().flat_map(|line| if line.is_empty() { vec![String::new()] } else { cut(line) }).collect()
}

fn check(name: &str, analysis: &Analysis) {
    let typed = Invocation { traces: "trace.json.gz".into(), ..Invocation::default() };
    let shown = answer(analysis) + &next_steps(analysis, &typed);
    let lines = screen_lines(&shown);
    if let Some(first) = analysis.findings.first() {
        let found = lines.iter().take(FIRST_LINES).any(|line| line.contains(first.code));
        assert!(found, "{name}: {} is not in the first lines\n{shown}", first.code);
        assert!(shown.contains("→ "), "{name}: no remedy\n{shown}");
    }
    let numbered =
        |line: &&String| line.chars().next().is_some_and(|first| first.is_ascii_digit()) && line.contains(". TR");
    assert!(lines.iter().filter(numbered).count() <= MOST_FINDINGS, "{name}\n{shown}");
    assert!(lines.iter().any(|line| line.starts_with("Trust: ")), "{name}\n{shown}");
    assert!(shown.contains("\nNext:\n") && shown.contains("--verbose"), "{name}\n{shown}");
    let is_table = |line: &&String| line.contains("host/step") || line.contains("launched by");
    assert!(!lines.iter().any(|line| is_table(&line)), "{name}: a table\n{shown}");
    for text in [shown, everything(analysis), markdown(analysis), html(analysis)] {
        // Passes are named in runs of ours, whose operators a pass can change.
        let never = NEVER.iter().filter(|words| analysis.run.is_none() || !words.contains("named passes"));
        never.for_each(|words| assert!(!text.contains(words), "{name}: `{words}`\n{text}"));
    }
}

#[test]
fn the_first_finding_of_every_stored_trace_is_on_the_first_screen() {
    for path in stored() {
        let trace = read_file(&path).unwrap();
        let name = path.to_string_lossy();
        check(&name, &analysis(std::slice::from_ref(&trace)));
        check(&format!("{name} with its source"), &with_source(&trace));
        check(&format!("{name} as two ranks"), &as_two_ranks(&trace));
    }
}

#[test]
fn verdict_and_findings_are_the_same_in_text_and_page() {
    for path in stored() {
        let analysis = analysis(&[read_file(&path).unwrap()]);
        let joined = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (text, page) = (joined(&answer(&analysis)), joined(&html(&analysis)));
        let saved = format!("{:.1}% of the step, from", 100.0 * analysis.roadmap.total_saving_expected_share);
        if analysis.roadmap.total_saving_expected_share >= 0.01 {
            assert!(text.contains(&saved) && page.contains(&saved), "{saved}\n{text}");
        }
        let finding = analysis.findings.first().map(|finding| finding.message.split('`').next().unwrap_or_default());
        assert!(finding.is_none_or(|start| text.contains(start) && page.contains(start)), "{finding:?}\n{text}");
    }
}

#[test]
fn one_step_is_singular() {
    let span = |name: &str, category: &str, start: u32, length: u32| {
        format!(r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":1,"ts":{start},"dur":{length}}}"#)
    };
    let events = [span("ProfilerStep#1", "user_annotation", 0, 1000), span("aten::mm", "cpu_op", 5, 900)];
    let trace = headroom_trace::read_bytes(format!(r#"{{"traceEvents":[{}]}}"#, events.join(",")).as_bytes()).unwrap();
    let analysis = analysis(&[trace]);
    for text in [answer(&analysis), everything(&analysis), markdown(&analysis)] {
        assert!(text.contains("1 step") && !text.contains("1 steps"), "{text}");
    }
}
