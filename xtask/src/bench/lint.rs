//! `cargo xtask bench lint`: the same tree of scripts, Headroom against TorchFix.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;

use super::machine;
use crate::{Outcome, process, python};

/// Sources of the scripts in the tree: the rules' own examples, and whole training scripts.
const PAGES: &str = "crates/lint/src/rules";
const SCRIPTS: &[&str] = &["crates/lint/tests/data/slow_train.py", "crates/lint/tests/data/fixed_train.py"];
const SPEED_AT_LEAST: f64 = 100.0;

#[derive(Args)]
pub struct Options {
    /// How often every script is repeated
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    copies: u16,
    /// A folder to lint instead, such as an installed package
    #[arg(long)]
    tree: Option<PathBuf>,
    /// How often Headroom has its turn around TorchFix's one
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Folder for `lint.md` and `lint.json`
    #[arg(long)]
    out: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<Outcome> {
    let python = python::environment("lint-peers-venv", &[python::TORCH_FIX])?;
    let torchfix = python.with_file_name("torchfix");
    let headroom = process::build_headroom("dist")?;
    let tree = match &options.tree {
        Some(tree) => tree.clone(),
        None => write_tree(options.copies)?,
    };
    let (files, bytes) = size_of(&tree)?;
    let (mut ours, mut unread) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        let mut command = Command::new(&headroom);
        let timed = time(command.args(["lint", "--no-config", "--format", "json"]).arg(&tree))?;
        ours.push(timed.seconds);
        unread = timed.errors;
        eprintln!("headroom, round {round}: {:.3} s", ours[ours.len() - 1]);
    }
    ours.sort_by(f64::total_cmp);
    let median = ours[ours.len() / 2];
    let peer = time(Command::new(torchfix).arg("--select=ALL").arg(&tree))?.seconds;
    let ratio = peer / median;
    let machine = machine::machine();
    let mut text = String::from("# Linting\n\n");
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{files} files, {:.2} MB, {}, {} logical cores, {}\n",
        bytes as f64 / 1e6,
        machine.cpu,
        machine.logical_cores,
        machine::today()
    );
    let _ = writeln!(text, "| | seconds | Headroom is faster by |\n|---|---|---|");
    let _ = writeln!(text, "| Headroom, all rules, median of {} | {median:.3} | |", options.rounds);
    let _ = writeln!(text, "| TorchFix, all rules | {peer:.2} | {ratio:.0}× |");
    if !unread.is_empty() {
        let _ = writeln!(text, "\nNot read whole by Headroom, {}:\n\n{}", unread.len(), listed(&unread));
    }
    print!("{text}");
    if let Some(folder) = &options.out {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let figures = json!({
            "date": machine::today(),
            "machine": machine.cpu,
            "headroom": machine::headroom_version(),
            "gate": {"faster_at_least": SPEED_AT_LEAST},
            "files": files,
            "bytes": bytes,
            "files_not_read_whole": unread.len(),
            "headroom_seconds": median,
            "torchfix_seconds": peer,
            "headroom_is_faster_by": ratio,
        });
        // Sections below the timed part are written by hand and kept.
        let judged = std::fs::read_to_string(folder.join("lint.md")).unwrap_or_default();
        let judged = judged.find("\n## ").map_or("", |at| &judged[at..]);
        let text = text + judged;
        for (name, content) in [("lint.md", text), ("lint.json", format!("{figures:#}\n"))] {
            std::fs::write(folder.join(name), content).with_context(|| format!("cannot write {name}"))?;
        }
    }
    Ok(Outcome::from_success(ratio >= SPEED_AT_LEAST))
}

struct Timed {
    seconds: f64,
    /// Files that the linter could not read, in its own words.
    errors: Vec<String>,
}

/// Wall time of a process. Linters exit with 1 if they found something; with 2, Headroom has read the rest and reports
/// what it could not read.
fn time(command: &mut Command) -> Result<Timed> {
    let spelled = process::spell(command);
    let start = Instant::now();
    let output = command.stdout(Stdio::null()).stderr(Stdio::piped()).output();
    let output = output.with_context(|| format!("cannot start `{spelled}`"))?;
    let seconds = start.elapsed().as_secs_f64();
    let errors = errors_in(&String::from_utf8_lossy(&output.stderr));
    match output.status.code() {
        Some(0 | 1) => Ok(Timed { seconds, errors: Vec::new() }),
        Some(2) if !errors.is_empty() => Ok(Timed { seconds, errors }),
        _ => bail!("`{spelled}` ended with {}", output.status),
    }
}

fn errors_in(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| Some(line.strip_prefix("error: ")?.to_string())).collect()
}

fn listed(errors: &[String]) -> String {
    errors.iter().map(|error| format!("- {error}\n")).collect()
}

/// Writes every example of every page and the whole scripts, each as `copies` files.
fn write_tree(copies: u16) -> Result<PathBuf> {
    let root = process::workspace_root();
    let tree = process::target_folder().join("bench-lint");
    if tree.is_dir() {
        std::fs::remove_dir_all(&tree).with_context(|| format!("cannot clear {}", tree.display()))?;
    }
    // A separate repository, so that our own scripts around it are not part of its project.
    let marker = tree.join(".git");
    std::fs::create_dir_all(&marker).with_context(|| format!("cannot make {}", marker.display()))?;
    let mut scripts = Vec::new();
    for path in SCRIPTS {
        scripts.push(std::fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))?);
    }
    let mut pages: Vec<PathBuf> =
        std::fs::read_dir(root.join(PAGES))?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    for page in pages {
        let page = std::fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
        let blocks = page.split("```python\n").skip(1).filter_map(|block| block.split("```").next());
        scripts.extend(blocks.map(str::to_string));
    }
    for copy in 0..copies {
        for (number, script) in scripts.iter().enumerate() {
            let path = tree.join(format!("script_{copy}_{number}.py"));
            std::fs::write(&path, script).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(tree)
}

/// Number and total bytes of the Python files below a folder.
fn size_of(folder: &Path) -> Result<(usize, u64)> {
    let (mut files, mut bytes) = (0, 0);
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            let inner = size_of(&entry.path())?;
            (files, bytes) = (files + inner.0, bytes + inner.1);
        } else if entry.path().extension().is_some_and(|extension| extension == "py") {
            (files, bytes) = (files + 1, bytes + entry.metadata()?.len());
        }
    }
    Ok((files, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_not_read_is_said_and_the_rest_is_timed() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'error: a.py: not fully read: line 3' >&2; echo 'looked at: 2 steps' >&2; exit 2"]);
        let timed = time(&mut command).expect("the rest was read");
        assert_eq!(timed.errors, ["a.py: not fully read: line 3"]);
        assert_eq!(listed(&timed.errors), "- a.py: not fully read: line 3\n");
    }

    #[test]
    fn a_run_that_ended_for_another_reason_is_an_error() {
        for script in ["exit 2", "echo 'error: x' >&2; exit 3"] {
            assert!(time(Command::new("sh").args(["-c", script])).is_err(), "{script}");
        }
    }
}
