//! Reading any bytes ends without a panic, and fixes leave a file that parses.

use fastrand::Rng;
use headroom_lint::fix::Safety;
use headroom_lint::{Input, Projects, Selection, lint, repair, silence};
use std::time::{Duration, Instant};

/// How long to run; `cargo xtask fuzz` sets more.
fn time() -> Duration {
    Duration::from_secs(from_environment("HEADROOM_FUZZ_SECONDS").unwrap_or(3))
}

/// The same random draws on every run of the suite, others on request.
fn draws(own: u64) -> Rng {
    Rng::with_seed(own + from_environment("HEADROOM_FUZZ_SEED").unwrap_or(0))
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn below(draws: &mut Rng, limit: usize) -> usize {
    draws.usize(..limit.max(1))
}

#[test]
fn mutated_scripts_and_noise_never_panic() {
    let mut draws = draws(7);
    let seeds = seeds();
    let begin = Instant::now();
    let mut runs = 0u32;
    while begin.elapsed() < time() {
        let bytes = mutate(&seeds, &mut draws);
        let input = Input { path: "train.py".to_string(), bytes };
        let inputs = [input];
        lint(&inputs, &Selection::default());
        if runs.is_multiple_of(8) {
            repair(&inputs, &Selection::default(), Safety::Unsafe);
        }
        runs += 1;
    }
    println!("executions: {runs}");
    assert!(runs > 10, "only {runs} runs");
}

/// No script of this size takes longer, even on a busy machine.
const MOST_SECONDS: f64 = 20.0;

/// Fixes a script and parses it again: the result is complete Python, needs no second fix, and is reported as such.
#[test]
fn fixes_of_mutated_scripts_parse_and_are_final() {
    let mut draws = draws(23);
    let seeds = seeds();
    let begin = Instant::now();
    let (mut runs, mut fixed) = (0u32, 0u32);
    while begin.elapsed() < time() || fixed < 10 {
        let script = mutate_lines(&seeds, &mut draws);
        let is_notebook = below(&mut draws, 3) == 0;
        let (path, bytes) = if is_notebook { ("a.ipynb", as_notebook(&script)) } else { ("a.py", script.into_bytes()) };
        let start = Instant::now();
        let inputs = [Input { path: path.to_string(), bytes }];
        let repairs = repair(&inputs, &Selection::default(), Safety::Unsafe);
        for file in &repairs.files {
            let again = [Input { path: path.to_string(), bytes: file.after.clone().into_bytes() }];
            let report = lint(&again, &Selection::default());
            assert_eq!(report.problems, [], "of\n{}\nbecame\n{}", file.before, file.after);
            assert_eq!(report.findings, repairs.remaining.findings, "of\n{}\nbecame\n{}", file.before, file.after);
            let second = repair(&again, &Selection::default(), Safety::Unsafe);
            assert_eq!(second.files, [], "of\n{}\nbecame\n{}", file.before, file.after);
            fixed += 1;
        }
        let silenced = silence(&inputs, &Projects::of_all(&inputs), &Selection::default());
        for file in &silenced.files {
            let again = [Input { path: path.to_string(), bytes: file.after.clone().into_bytes() }];
            let report = lint(&again, &Selection::default());
            assert_eq!(report.problems, [], "{}", file.after);
            assert_eq!(report.findings.len(), silenced.left.len(), "{}", file.after);
        }
        let seconds = start.elapsed().as_secs_f64();
        assert!(seconds < MOST_SECONDS, "{seconds} s for\n{}", String::from_utf8_lossy(&inputs[0].bytes));
        runs += 1;
    }
    println!("executions: {runs}, {fixed} of them fixed");
}

/// Scripts that still parse most of the time: lines moved, duplicated, dropped, taken from another, put under an `if`.
fn mutate_lines(seeds: &[Vec<u8>], draws: &mut Rng) -> String {
    let pick = |draws: &mut Rng| String::from_utf8_lossy(&seeds[below(draws, seeds.len())]).into_owned();
    let script = pick(draws);
    let mut lines: Vec<String> = script.lines().map(str::to_string).collect();
    for _ in 0..below(draws, 5) {
        let at = below(draws, lines.len());
        match below(draws, 7) {
            0 if !lines.is_empty() => drop(lines.remove(at)),
            1 if !lines.is_empty() => lines.insert(at, lines[at].clone()),
            2 => {
                let other = pick(draws);
                let other: Vec<&str> = other.lines().collect();
                lines.insert(at, other.get(below(draws, other.len())).unwrap_or(&"").to_string());
            }
            3 if !lines.is_empty() => {
                let indent: String = lines[at].chars().take_while(|space| *space == ' ').collect();
                lines[at] = format!("{indent}if x: {}", lines[at].trim_start());
            }
            4 if !lines.is_empty() => {
                lines[at] += ["  # noqa: E501", " \\", "; pass", ", é=1)", "  # 'it\"s", "\t"][below(draws, 6)]
            }
            5 => lines.extend(pick(draws).lines().map(str::to_string)),
            _ => lines = lines.iter().map(|line| line.replace("    ", "\t")).collect(),
        }
    }
    let end = ["\n", "\r\n", "\n\n"][below(draws, 3)];
    lines.join(end) + if below(draws, 2) == 0 { "\n" } else { "" }
}

/// The script in cells, split at lines that begin a top-level statement.
fn as_notebook(script: &str) -> Vec<u8> {
    let mut cells: Vec<String> = vec![String::new()];
    for line in script.split_inclusive('\n') {
        let begins = !line.starts_with([' ', '\t', ')', ']', '}', '\r', '\n']) && !line.starts_with("el");
        if begins && cells.len() < 6 && cells.last().is_some_and(|cell| cell.len() > 40) {
            cells.push(String::new());
        }
        if let Some(cell) = cells.last_mut() {
            cell.push_str(line);
        }
    }
    let cell = |code: &String| {
        let lines: Vec<&str> = code.split_inclusive('\n').collect();
        serde_json::json!({"cell_type": "code", "metadata": {}, "outputs": [], "source": lines})
    };
    let cells: Vec<serde_json::Value> = cells.iter().map(cell).collect();
    serde_json::json!({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).to_string().into_bytes()
}

#[test]
fn deep_and_long_inputs_are_refused_or_read() {
    let deep = [
        "(".repeat(100_000),
        "x = ".to_string() + &"-".repeat(1_000_000) + "1",
        "x = ".to_string() + &"a.".repeat(200_000) + "b",
        "x = ".to_string() + &"1+".repeat(200_000) + "1",
        "lambda: ".repeat(100_000) + "0",
        (0..300).map(|level| " ".repeat(level) + "if x:\n").collect::<String>(),
        "f\"{".repeat(5_000),
        "elif x:\n pass\n".repeat(10_000),
        "x = [".to_string() + &"1, ".repeat(300_000) + "]",
        "\0\u{feff}\u{2028}".repeat(1000),
        "x = ".to_string() + &"1+\\\n".repeat(200_000) + "1",
        "lambda a, b: ".repeat(100_000) + "0",
        "(\ndef ".repeat(100_000),
        "x = ".to_string() + &"f(a)\n(".repeat(100_000),
        "f\"{x:{".repeat(5_000),
        "yield a, ".repeat(100_000),
        "if x, y: ".repeat(100_000),
        "case a, b | ".repeat(100_000),
    ];
    for text in deep {
        lint(&[Input { path: "deep.py".to_string(), bytes: text.into_bytes() }], &Selection::default());
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let pages = headroom_lint::rules::RULES.iter().map(|rule| rule.page.as_bytes().to_vec());
    let scripts = [include_str!("data/slow_train.py"), include_str!("data/fixed_train.py")];
    let blocks = headroom_lint::rules::RULES.iter().flat_map(|rule| {
        let blocks = rule.page.split("```python\n").skip(1);
        blocks.filter_map(|block| block.split("```").next()).map(|block| block.as_bytes().to_vec()).collect::<Vec<_>>()
    });
    scripts.iter().map(|script| script.as_bytes().to_vec()).chain(pages).chain(blocks).collect()
}

/// A seed with pieces cut, duplicated, swapped with another's, or bytes changed; now and then pure noise.
fn mutate(seeds: &[Vec<u8>], draws: &mut Rng) -> Vec<u8> {
    if below(draws, 16) == 0 {
        return (0..below(draws, 2000)).map(|_| draws.u8(..)).collect();
    }
    let mut bytes = seeds[below(draws, seeds.len())].clone();
    for _ in 0..=below(draws, 6) {
        let (one, two) = (below(draws, bytes.len()), below(draws, bytes.len()));
        let (start, end) = (one.min(two), one.max(two));
        match below(draws, 6) {
            0 => drop(bytes.drain(start..end)),
            1 => {
                let piece = bytes[start..end].to_vec();
                let at = below(draws, bytes.len());
                bytes.splice(at..at, piece);
            }
            2 => {
                let other = &seeds[below(draws, seeds.len())];
                let from = below(draws, other.len());
                let piece = other[from..(from + below(draws, 200)).min(other.len())].to_vec();
                bytes.splice(start..start, piece);
            }
            3 if !bytes.is_empty() => bytes[start] = draws.u8(..),
            4 => {
                let words = [
                    "\n    ",
                    "\n",
                    "(",
                    ")",
                    ":",
                    "lambda x: ",
                    "*",
                    "**",
                    "f\"{",
                    "else:",
                    "\t",
                    "if ",
                    ".item()",
                    "=",
                    ",",
                ];
                let word = words[below(draws, words.len())];
                bytes.splice(start..start, word.bytes());
            }
            _ => bytes.truncate(end),
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}
