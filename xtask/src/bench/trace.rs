//! `cargo xtask bench trace`: reading and measuring a large trace, Headroom against the Python tools.

mod large;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use super::machine;
use crate::{Outcome, process, python};

/// The trace whose events are repeated.
const PATTERN: &str = "crates/trace/tests/data/slow.pt.trace.json.gz";
const SPEED_AT_LEAST: f64 = 20.0;

/// A peer and what it does: loads the trace and computes what people load it for.
struct Peer {
    name: &'static str,
    mode: &'static str,
}

const PEERS: &[Peer] = &[
    Peer { name: "Holistic Trace Analysis: load, four analyses", mode: "hta" },
    Peer { name: "TraceLens: tree, launchers", mode: "tracelens" },
];

#[derive(Args)]
pub struct Options {
    /// Size of the trace in millions of bytes
    #[arg(long, default_value_t = 1006, value_parser = clap::value_parser!(u64).range(1..))]
    megabytes: u64,
    /// How often Headroom has its turn; the peers, which take minutes, have one
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Measure Headroom alone
    #[arg(long)]
    without_peers: bool,
    /// Where to write the result as Markdown
    #[arg(long)]
    out: Option<PathBuf>,
}

struct Measured {
    name: String,
    seconds: f64,
    peak_bytes: f64,
}

pub fn run(options: &Options) -> Result<Outcome> {
    let python = python::environment("trace-peers-venv", &[python::HOLISTIC_TRACE_ANALYSIS, python::TRACE_LENS])?;
    let headroom = process::build_headroom("release")?;
    let folder = process::target_folder().join("bench-trace");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let trace = folder.join(format!("large-{}.pt.trace.json", options.megabytes));
    if !trace.is_file() {
        eprintln!("writing a trace of {} MB", options.megabytes);
        let half_written = trace.with_extension("tmp");
        large::write(&process::workspace_root().join(PATTERN), &half_written, options.megabytes * 1_000_000)?;
        std::fs::rename(&half_written, &trace)?;
    }
    let file_bytes = std::fs::metadata(&trace)?.len() as f64;

    let mut ours = Vec::new();
    for round in 1..=options.rounds {
        let arguments: [&Path; 5] = [&headroom, Path::new("analyze"), &trace, Path::new("--format"), Path::new("json")];
        let measured = measure(&python, "run", &arguments)?;
        eprintln!("headroom, round {round}: {:.2} s, {:.0} MB", measured.0, measured.1 / 1e6);
        ours.push(measured);
    }
    ours.sort_by(|left, right| left.0.total_cmp(&right.0));
    let median = ours[ours.len() / 2].0;
    let peak_bytes = ours.iter().map(|one| one.1).fold(0.0, f64::max);
    let mut rows =
        vec![Measured { name: "Headroom: load, all measures, rules, report".into(), seconds: median, peak_bytes }];
    if !options.without_peers {
        for peer in PEERS {
            let (seconds, peak_bytes) = measure(&python, peer.mode, &[&trace])?;
            eprintln!("{}: {seconds:.1} s, {:.0} MB", peer.name, peak_bytes / 1e6);
            rows.push(Measured { name: peer.name.into(), seconds, peak_bytes });
        }
    }
    let text = report(options, file_bytes, &rows);
    print!("{text}");
    if let Some(out) = &options.out {
        std::fs::write(out, &text).with_context(|| format!("cannot write {}", out.display()))?;
    }
    let fast = rows[1..].iter().all(|peer| peer.seconds / rows[0].seconds >= SPEED_AT_LEAST);
    Ok(Outcome::from_success(fast && rows[0].peak_bytes <= file_bytes))
}

/// Seconds and peak bytes of a process of its own, as the helper script saw them.
fn measure(python: &Path, mode: &str, arguments: &[&Path]) -> Result<(f64, f64)> {
    let script = process::workspace_root().join("bench/trace_tools.py");
    let output = Command::new(python).arg(script).arg(mode).args(arguments).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let last = said.lines().last().unwrap_or_default();
    let answer: Value = serde_json::from_str(last).unwrap_or(json!(null));
    match (answer["seconds"].as_f64(), answer["peak_bytes"].as_f64()) {
        (Some(seconds), Some(peak)) if output.status.success() => Ok((seconds, peak)),
        _ => bail!("{mode} failed: {}", String::from_utf8_lossy(&output.stderr).trim()),
    }
}

fn report(options: &Options, file_bytes: f64, rows: &[Measured]) -> String {
    let machine = machine::machine();
    let mut text = format!("# Reading a {:.0} MB trace\n\n", file_bytes / 1e6);
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "`cargo xtask bench trace --megabytes {} --rounds {}`, {}\n\n{}, {} logical cores. Headroom {}; median of rounds.\n",
        options.megabytes,
        options.rounds,
        machine::today(),
        machine.cpu,
        machine.logical_cores,
        machine::headroom_version()
    );
    text += "| | seconds | peak memory, MB | of the file | Headroom is faster by |\n|---|---|---|---|---|\n";
    for row in rows {
        let _ = writeln!(
            text,
            "| {} | {:.2} | {:.0} | {:.2} | {:.1}× |",
            row.name,
            row.seconds,
            row.peak_bytes / 1e6,
            row.peak_bytes / file_bytes,
            row.seconds / rows[0].seconds
        );
    }
    text
}
