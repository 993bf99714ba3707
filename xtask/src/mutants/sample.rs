//! A random sample of a crate's faults instead of all of them: an answer within the hour, with its interval.
//!
//! `cargo mutants` lists the faults; they are planted here, one after the other, in a copy of the workspace
//! (`target/mutants/tree`). The crate under test is built without optimization into a separate folder
//! (`target/mutants/build`): cargo distinguishes two copies of a workspace only by file times, so builds of both in one
//! folder would be mistaken for each other. A fault that the unit tests notice is decided; the crate's other tests are
//! built only for the remaining ones. Every decided fault is stored, so that an interrupted run continues with the next
//! one; if the files have changed, it starts over.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::tree::{self, Tree};
use super::{Arguments, Counts};
use crate::process::{cargo, spell, target_folder};

/// A test that takes longer than this many seconds has failed: a fault may cause an endless loop. Long enough that a
/// test delayed by other load is not mistaken for one.
const LONGEST_TEST_SECONDS: u32 = 180;

/// Crates whose unoptimized tests take longer than compiling them with optimization.
const OPTIMISED: [&str; 1] = ["trace"];

/// Exit codes of nextest.
const TESTS_FAILED: i32 = 100;
const BUILD_FAILED: i32 = 101;
const NO_TESTS: i32 = 4;

#[derive(Clone, Debug, PartialEq)]
struct Fault {
    name: String,
    file: String,
    change: Change,
}

#[derive(Clone, Debug, PartialEq)]
enum Change {
    /// Another text in a range of the source; line and column are counted from 1.
    Source { start: (usize, usize), end: (usize, usize), replacement: String },
    /// A row that a table lacks. A build for tests leaves it out if the environment says so, so nothing is built again.
    Row(String),
}

/// The variable that spells the row to be left out.
const WITHOUT: &str = "HEADROOM_LINT_WITHOUT";

pub fn run(arguments: &Arguments, folder: &Path, count: usize) -> Result<Counts> {
    let tree = tree::brought_up_to_date(&target_folder().join("mutants").join("tree"))?;
    let listed = listed(arguments, &tree)?;
    if listed.is_empty() {
        bail!("no fault can be planted in {} {}", arguments.package, arguments.file.join(", "));
    }
    let mut drawn = drawn(&listed, count, arguments.seed);
    // In file order: neighbours share compiled artifacts.
    drawn.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    println!("{} of {} faults drawn by seed {}", drawn.len(), listed.len(), arguments.seed);
    let kind = if arguments.rows { "rows" } else { "sample" };
    let place = folder.join(format!("{kind}-{count}-seed-{}{}", arguments.seed, super::suffix(&arguments.file)));
    let state = place.join("state");
    let is_same = fs::read_to_string(&state).is_ok_and(|kept| kept == tree.digest.to_string());
    if place.exists() && !is_same {
        println!("files have changed since the last run: the sample begins anew");
        fs::remove_dir_all(&place).with_context(|| format!("cannot remove {}", place.display()))?;
    }
    fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    fs::write(&state, tree.digest.to_string()).with_context(|| format!("cannot write {}", state.display()))?;

    let outcomes = place.join("outcomes.jsonl");
    let before = decided(&outcomes)?;
    let left = left_over(&drawn, &before);
    if !before.names.is_empty() {
        println!("{} of them were decided before", before.names.len());
    }
    if !left.is_empty() {
        plant_all(arguments, &tree, &left, &outcomes)?;
    }
    decided(&outcomes)
}

/// Every fault of the crate in the files asked for.
fn listed(arguments: &Arguments, tree: &Tree) -> Result<Vec<Fault>> {
    let asked_for = |fault: &Fault| is_in(&fault.file, &arguments.file);
    if arguments.rows {
        return Ok(rows(arguments, tree)?.into_iter().filter(asked_for).collect());
    }
    let mut command = cargo(&["mutants", "--list", "--json", "--package", &arguments.package_name()]);
    command.current_dir(&tree.folder);
    let output = command.output().with_context(|| format!("cannot start `{}`", spell(&command)))?;
    if !output.status.success() {
        bail!("`{}`: {}", spell(&command), String::from_utf8_lossy(&output.stderr).trim());
    }
    let list: Vec<Value> = serde_json::from_slice(&output.stdout).context("a list of faults is JSON")?;
    let faults = list.iter().map(|fault| parsed(fault).with_context(|| format!("not a fault as known here: {fault}")));
    let faults: Vec<Fault> = faults.collect::<Result<_>>()?;
    Ok(faults.into_iter().filter(asked_for).collect())
}

/// Every row of the crate's tables as a fault: the table without it.
fn rows(arguments: &Arguments, tree: &Tree) -> Result<Vec<Fault>> {
    let folder = format!("crates/{}/src/tables", arguments.package);
    let place = tree.folder.join(&folder);
    let entries = fs::read_dir(&place).with_context(|| format!("cannot read {}", place.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", place.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".tsv") {
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            found.extend(rows_of(&format!("{folder}/{name}"), &text));
        }
    }
    Ok(found)
}

/// The rows of one table, below its comments and its head.
fn rows_of(file: &str, text: &str) -> Vec<Fault> {
    let rows = (1..).zip(text.lines()).skip_while(|(_, line)| line.starts_with('#')).skip(1);
    let fault = |(line, row): (usize, &str)| Fault {
        name: format!("{file}:{line}:1: without {}", row.replace('\t', " ")),
        file: file.to_string(),
        change: Change::Row(row.to_string()),
    };
    rows.map(fault).collect()
}

fn parsed(fault: &Value) -> Option<Fault> {
    let place = |end: &str| {
        let place = &fault["span"][end];
        Some((place["line"].as_u64()? as usize, place["column"].as_u64()? as usize))
    };
    let text = |key: &str| fault[key].as_str().map(str::to_string);
    Some(Fault {
        name: text("name")?,
        file: text("file")?,
        change: Change::Source { start: place("start")?, end: place("end")?, replacement: text("replacement")? },
    })
}

/// Whether a path contains one of `files`; always true if none were given.
fn is_in(path: &str, files: &[String]) -> bool {
    files.is_empty() || files.iter().any(|file| path.contains(file.as_str()))
}

/// Draws `count` of the faults with equal probability, determined by the seed and the set of faults.
fn drawn(listed: &[Fault], count: usize, seed: u64) -> Vec<Fault> {
    let mut left: Vec<&Fault> = listed.iter().collect();
    left.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    left.dedup_by(|a, b| a.name == b.name);
    let mut random = Random(seed);
    let count = count.min(left.len());
    for at in 0..count {
        let other = at + random.below(left.len() - at);
        left.swap(at, other);
    }
    left[..count].iter().map(|fault| (*fault).clone()).collect()
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((u128::from(mixed) * bound as u128) >> 64) as usize
    }
}

/// Outcomes stored so far; a truncated last line is ignored.
fn decided(outcomes: &Path) -> Result<Counts> {
    let mut counts = Counts::default();
    if !outcomes.is_file() {
        return Ok(counts);
    }
    let text = fs::read_to_string(outcomes).with_context(|| format!("cannot read {}", outcomes.display()))?;
    for outcome in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        counts.count(&outcome);
    }
    Ok(counts)
}

fn left_over(drawn: &[Fault], counts: &Counts) -> Vec<Fault> {
    let decided: HashSet<&String> = counts.names.iter().collect();
    drawn.iter().filter(|fault| !decided.contains(&fault.name)).cloned().collect()
}

fn plant_all(arguments: &Arguments, tree: &Tree, faults: &[Fault], outcomes: &Path) -> Result<()> {
    write_limits()?;
    let began = Instant::now();
    let (summary, by) = tested(arguments, tree, None)?;
    if summary != "MissedMutant" {
        bail!(
            "the tests of {} do not pass as they are{by}\n  help: cargo nextest run -p {}",
            arguments.package,
            arguments.package_name()
        );
    }
    println!("without a fault: {:.0} s", began.elapsed().as_secs_f64());
    let mut kept = OpenOptions::new().create(true).append(true).open(outcomes)?;
    for (at, fault) in faults.iter().enumerate() {
        let began = Instant::now();
        let (summary, by) = match &fault.change {
            Change::Row(row) => tested(arguments, tree, Some(row))?,
            Change::Source { start, end, replacement } => {
                let path = tree.folder.join(&fault.file);
                let source = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                let faulty = planted(&source, *start, *end, replacement)
                    .with_context(|| format!("no such place: {}", fault.name))?;
                fs::write(&path, faulty).with_context(|| format!("cannot write {}", path.display()))?;
                let summary = tested(arguments, tree, None);
                fs::write(&path, source).with_context(|| format!("cannot write {}", path.display()))?;
                summary?
            }
        };
        let line = json!({"scenario": {"Mutant": {"name": fault.name}}, "summary": summary, "by": by});
        writeln!(kept, "{line}").with_context(|| format!("cannot write {}", outcomes.display()))?;
        println!(
            "{:>3} of {}, {:>4.0} s, {summary}: {}{by}",
            at + 1,
            faults.len(),
            began.elapsed().as_secs_f64(),
            fault.name
        );
    }
    Ok(())
}

/// The source with the fault in it; `None` if it has no such place.
fn planted(source: &str, start: (usize, usize), end: (usize, usize), replacement: &str) -> Option<String> {
    let (start, end) = (offset(source, start)?, offset(source, end)?);
    (start <= end).then(|| format!("{}{replacement}{}", &source[..start], &source[end..]))
}

/// Byte offset of a line and column.
fn offset(source: &str, (line, column): (usize, usize)) -> Option<usize> {
    let before: usize = source.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
    let text = source.split_inclusive('\n').nth(line - 1)?;
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    Some(before + ends.into_iter().nth(column.checked_sub(1)?)?)
}

/// Runs the crate's tests on the copy as it is now, unit tests first; returns the outcome in the terms of `cargo
/// mutants`, and the first test that failed. Without a row, the unit tests are left out: those of a table count its rows.
fn tested(arguments: &Arguments, tree: &Tree, without: Option<&str>) -> Result<(&'static str, String)> {
    let has_others = tree.folder.join("crates").join(&arguments.package).join("tests").is_dir();
    let stages: &[&str] = match (has_others, without) {
        (false, _) => &["--lib"],
        (true, None) => &["--lib", "--test=*"],
        (true, Some(_)) => &["--test=*"],
    };
    for stage in stages {
        let (code, said) = tests(arguments, tree, stage, without)?;
        match code {
            Some(0 | NO_TESTS) => {}
            Some(TESTS_FAILED) => return Ok(("CaughtMutant", first_failure(&said))),
            Some(BUILD_FAILED) => return Ok(("Unviable", String::new())),
            code => bail!("nextest ended with {code:?} in {}", tree.folder.display()),
        }
    }
    Ok(("MissedMutant", String::new()))
}

/// The test that failed first, and how, from nextest's output: one that was only too slow may have been delayed by
/// other load.
fn first_failure(said: &str) -> String {
    let failed = |line: &&str| {
        let how = line.trim_start().split(' ').next().unwrap_or_default();
        matches!(how, "FAIL" | "TIMEOUT" | "SIGABRT" | "SIGSEGV" | "ABORT" | "LEAK-FAIL")
    };
    let words = |line: &str| line.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    let Some(line) = said.lines().find(failed).map(words) else { return String::new() };
    format!(", by {} ({})", line.last().map_or("", String::as_str), line[0])
}

/// Settings of nextest for tests that a fault may make endless.
fn limits() -> PathBuf {
    target_folder().join("mutants").join("nextest.toml")
}

fn write_limits() -> Result<()> {
    let period = LONGEST_TEST_SECONDS / 3;
    let text = format!("[profile.default]\nslow-timeout = {{ period = \"{period}s\", terminate-after = 3 }}\n");
    fs::write(limits(), text).with_context(|| format!("cannot write {}", limits().display()))
}

/// The exit code and the whole output.
fn tests(arguments: &Arguments, tree: &Tree, stage: &str, without: Option<&str>) -> Result<(Option<i32>, String)> {
    let package = arguments.package_name();
    let level = u8::from(OPTIMISED.contains(&arguments.package.as_str()));
    let mut command = cargo(&["nextest", "run", "--cargo-quiet", "--retries", "0", "--package", &package, stage]);
    for setting in [format!("opt-level={level}"), "debug=false".to_string()] {
        command.args(["--config", &format!("profile.dev.package.{package}.{setting}")]);
    }
    command.arg("--tool-config-file").arg(format!("mutants:{}", limits().display()));
    command
        .current_dir(&tree.folder)
        .env("CARGO_TARGET_DIR", target_folder().join("mutants").join("build"))
        .env("INSTA_UPDATE", "no")
        .envs(without.map(|row| (WITHOUT, row)));
    let output = command.stdout(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start `{}`", spell(&command)))?;
    Ok((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(count: usize) -> Vec<Fault> {
        let fault = |line: usize| Fault {
            name: format!("crates/a/src/{}.rs:{line}:1: replace f with ()", line % 3),
            file: format!("crates/a/src/{}.rs", line % 3),
            change: Change::Source { start: (line, 1), end: (line, 2), replacement: "()".into() },
        };
        (0..count).map(fault).collect()
    }

    fn names(faults: &[Fault]) -> HashSet<&str> {
        faults.iter().map(|fault| fault.name.as_str()).collect()
    }

    #[test]
    fn a_seed_draws_the_same_faults_in_any_order_of_the_list_and_another_draws_others() {
        let listed = faults(100);
        let first = drawn(&listed, 20, 7);
        assert_eq!(names(&first).len(), 20);
        assert!(names(&first).is_subset(&names(&listed)));
        let turned: Vec<Fault> = listed.iter().rev().cloned().collect();
        assert_eq!(drawn(&turned, 20, 7), first);
        assert_ne!(drawn(&listed, 20, 8), first);
        // A longer sample with the same seed contains the shorter one.
        assert_eq!(drawn(&listed, 30, 7)[..20], first);
        assert_eq!(drawn(&listed, 500, 7).len(), 100);
        assert!(drawn(&[], 5, 7).is_empty());
    }

    #[test]
    fn every_row_below_the_head_can_be_left_out() {
        let faults = rows_of("t.tsv", "# versions\nname\twaits\na\tno\nß\tyes\n");
        let names: Vec<&str> = faults.iter().map(|fault| fault.name.as_str()).collect();
        assert_eq!(names, ["t.tsv:3:1: without a no", "t.tsv:4:1: without ß yes"]);
        assert_eq!(faults[1].change, Change::Row("ß\tyes".into()));
        assert!(rows_of("t.tsv", "role\tword\n").is_empty());
    }

    #[test]
    fn every_fault_is_drawn_about_as_often() {
        let listed = faults(10);
        let mut times = [0_u32; 10];
        for seed in 0..3_000 {
            for fault in drawn(&listed, 3, seed) {
                times[listed.iter().position(|other| *other == fault).expect("listed")] += 1;
            }
        }
        // 900 each; five standard deviations are 125.
        assert!(times.iter().all(|times| times.abs_diff(900) < 125), "{times:?}");
    }

    #[test]
    fn files_are_asked_for_by_a_piece_of_their_path() {
        let path = "crates/diagnosis/src/simulation/points.rs";
        let asked = |files: &[&str]| is_in(path, &files.iter().map(|file| file.to_string()).collect::<Vec<_>>());
        assert!(asked(&[]) && asked(&["src/simulation"]) && asked(&["src/measures", "points.rs"]));
        assert!(!asked(&["src/measures"]));
    }

    #[test]
    fn the_first_test_that_failed_is_named() {
        let said = "
    Starting 3 tests across 1 binary
        PASS [   0.011s] (1/3) headroom-trace a::tests::passes
     TIMEOUT [ 180.002s] (2/3) headroom-trace::corpus is_too_slow
        FAIL [   0.311s] (3/3) headroom-trace b::tests::fails
";
        assert_eq!(first_failure(said), ", by is_too_slow (TIMEOUT)");
        assert_eq!(first_failure(&said.replace("TIMEOUT", "PASS")), ", by b::tests::fails (FAIL)");
        assert_eq!(first_failure(""), "");
    }

    #[test]
    fn faults_that_were_decided_are_not_planted_again() {
        let all = faults(4);
        let counts = Counts { names: vec![all[2].name.clone(), all[0].name.clone()], ..Counts::default() };
        assert_eq!(left_over(&all, &counts), [all[1].clone(), all[3].clone()]);
        assert!(left_over(&all[..1], &counts).is_empty());
    }

    #[test]
    fn a_fault_is_planted_at_its_lines_and_characters() {
        let source = "let é = a > b;\nfn f() -> u8 {\n    7\n}\n";
        let plant = |start, end, replacement| planted(source, start, end, replacement);
        assert_eq!(plant((1, 11), (1, 12), ">=").as_deref(), Some("let é = a >= b;\nfn f() -> u8 {\n    7\n}\n"));
        assert_eq!(plant((2, 15), (4, 2), "").as_deref(), Some("let é = a > b;\nfn f() -> u8 {\n"));
        assert_eq!(plant((1, 1), (1, 5), "").as_deref(), Some(source.strip_prefix("let ").expect("it begins so")));
        assert_eq!(plant((9, 1), (9, 2), ""), None);
        assert_eq!(plant((1, 11), (1, 99), ""), None);
        assert_eq!(plant((0, 1), (1, 1), ""), None);
        assert_eq!(plant((2, 1), (1, 1), ""), None);
    }

    #[test]
    fn a_fault_is_read_as_cargo_mutants_lists_it() {
        let listed = json!({
            "name": "crates/a/src/0.rs:0:1: replace f with ()", "file": "crates/a/src/0.rs", "genre": "FnValue", "replacement": "()",
            "span": {"start": {"line": 0, "column": 1}, "end": {"line": 0, "column": 2}}
        });
        assert_eq!(parsed(&listed), Some(faults(1).remove(0)));
        assert_eq!(parsed(&json!({"name": "x"})), None);
    }
}
