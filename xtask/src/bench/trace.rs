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

/// A peer, and its mode: it loads the trace and computes what people load it for.
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
    /// Measure Headroom alone; the peers are not installed
    #[arg(long)]
    without_peers: bool,
    /// A peer that takes longer than this, or more memory than there is, is tried again at a quarter of the size
    #[arg(long, default_value_t = 900)]
    peer_seconds: u64,
    /// A checkout of TraceLens, which is on no package index: the project of that name there is another one
    #[arg(long, value_name = "FOLDER")]
    trace_lens: Option<PathBuf>,
    /// Folder for `trace.md` and `trace.json`
    #[arg(long)]
    out: Option<PathBuf>,
}

struct Row {
    name: String,
    megabytes: u64,
    file_bytes: f64,
    seconds: f64,
    peak_bytes: f64,
    /// Headroom's seconds at the same size; `None` for its own rows.
    ours: Option<f64>,
}

pub fn run(options: &Options) -> Result<Outcome> {
    let headroom = process::build_headroom("dist")?;
    let runner = python::plain()?;
    let mut rows = vec![measure_ours(options, &runner, &headroom, options.megabytes)?];
    let mut unfinished = Vec::new();
    if !options.without_peers {
        let python = python::environment("trace-peers-venv", &[python::HOLISTIC_TRACE_ANALYSIS])?;
        for peer in PEERS {
            if peer.mode == "tracelens" && options.trace_lens.is_none() {
                unfinished.push(format!(
                    "{} was not measured: it is on no package index (the project of that name there is another one); \
                     `--trace-lens FOLDER` takes a checkout",
                    peer.name
                ));
                continue;
            }
            let mut megabytes = options.megabytes;
            loop {
                let trace = large_trace(megabytes)?;
                match measure(&python, peer.mode, &[&trace], Some(options)) {
                    Ok((seconds, peak_bytes)) => {
                        eprintln!("{} at {megabytes} MB: {seconds:.1} s, {:.0} MB", peer.name, peak_bytes / 1e6);
                        if !rows.iter().any(|row| row.megabytes == megabytes && row.ours.is_none()) {
                            rows.push(measure_ours(options, &runner, &headroom, megabytes)?);
                        }
                        let same = |row: &&Row| row.megabytes == megabytes && row.ours.is_none();
                        let ours = rows.iter().find(same).map(|row| row.seconds);
                        let file_bytes = std::fs::metadata(&trace)?.len() as f64;
                        rows.push(Row { name: peer.name.into(), megabytes, file_bytes, seconds, peak_bytes, ours });
                        break;
                    }
                    Err(error) if megabytes >= 8 => {
                        eprintln!("{} did not finish {megabytes} MB: {error:#}", peer.name);
                        unfinished.push(format!("{} did not finish {megabytes} MB here: {error:#}", peer.name));
                        megabytes /= 4;
                    }
                    Err(error) => {
                        unfinished.push(format!("{} cannot be measured here: {error:#}", peer.name));
                        break;
                    }
                }
            }
        }
    }
    let text = report(options, &rows, &unfinished);
    print!("{text}");
    if let Some(folder) = &options.out {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let write = |name: &str, content: &str| {
            std::fs::write(folder.join(name), content).with_context(|| format!("cannot write {name}"))
        };
        write("trace.md", &text)?;
        write("trace.json", &format!("{:#}\n", as_json(&rows, &unfinished)))?;
    }
    let ratios: Vec<f64> = rows.iter().filter_map(|row| Some(row.seconds / row.ours?)).collect();
    // Without any peer there is no race to win.
    let fast = (options.without_peers || !ratios.is_empty()) && ratios.iter().all(|ratio| *ratio >= SPEED_AT_LEAST);
    let small = rows.iter().filter(|row| row.ours.is_none()).all(|row| row.peak_bytes <= row.file_bytes);
    Ok(Outcome::from_success(fast && small))
}

fn measure_ours(options: &Options, python: &Path, headroom: &Path, megabytes: u64) -> Result<Row> {
    let trace = large_trace(megabytes)?;
    let mut rounds = Vec::new();
    for round in 1..=options.rounds {
        let arguments: [&Path; 5] = [headroom, Path::new("analyze"), &trace, Path::new("--format"), Path::new("json")];
        let measured = measure(python, "run", &arguments, None)?;
        eprintln!("headroom at {megabytes} MB, round {round}: {:.2} s, {:.0} MB", measured.0, measured.1 / 1e6);
        rounds.push(measured);
    }
    rounds.sort_by(|left, right| left.0.total_cmp(&right.0));
    Ok(Row {
        name: "Headroom: load, all measures, rules, report".into(),
        megabytes,
        file_bytes: std::fs::metadata(&trace)?.len() as f64,
        seconds: rounds[rounds.len() / 2].0,
        peak_bytes: rounds.iter().map(|one| one.1).fold(0.0, f64::max),
        ours: None,
    })
}

/// A trace of about this size, generated once.
fn large_trace(megabytes: u64) -> Result<PathBuf> {
    let folder = process::target_folder().join("bench-trace");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let trace = folder.join(format!("large-{megabytes}.pt.trace.json"));
    if !trace.is_file() {
        eprintln!("writing a trace of {megabytes} MB");
        let half_written = trace.with_extension("tmp");
        large::write(&process::workspace_root().join(PATTERN), &half_written, megabytes * 1_000_000)?;
        std::fs::rename(&half_written, &trace)?;
    }
    Ok(trace)
}

/// Seconds and peak bytes of a separate process, as the helper script measured them; peers have limits.
fn measure(python: &Path, mode: &str, arguments: &[&Path], peer: Option<&Options>) -> Result<(f64, f64)> {
    let script = process::workspace_root().join("bench/trace_tools.py");
    let mut command = Command::new(python);
    if let Some(options) = peer {
        command.env("BENCH_SECONDS_AT_MOST", options.peer_seconds.to_string());
        if let Some(folder) = &options.trace_lens {
            command.env("PYTHONPATH", folder);
        }
    }
    let output = command.arg(script).arg(mode).args(arguments).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let last = said.lines().last().unwrap_or_default();
    let answer: Value = serde_json::from_str(last).unwrap_or(json!(null));
    match (answer["seconds"].as_f64(), answer["peak_bytes"].as_f64()) {
        (Some(seconds), Some(peak)) if output.status.success() => Ok((seconds, peak)),
        _ => {
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!("{} ({})", errors.trim().lines().last().unwrap_or("no message"), output.status)
        }
    }
}

fn report(options: &Options, rows: &[Row], unfinished: &[String]) -> String {
    let machine = machine::machine();
    let mut text = String::from("# Reading a large trace\n\n");
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "`cargo xtask bench trace --megabytes {} --rounds {}{}`, {}\n\n{}, {} logical cores. Headroom {}; median of {} \
         rounds.\n",
        options.megabytes,
        options.rounds,
        if options.without_peers { " --without-peers" } else { "" },
        machine::today(),
        machine.cpu,
        machine.logical_cores,
        machine::headroom_version(),
        options.rounds
    );
    text += "| | trace, MB | seconds | peak memory, MB | of the file | Headroom is faster by |\n|---|---|---|---|---|---|\n";
    for row in rows {
        let faster = row.ours.map(|ours| format!("{:.1}×", row.seconds / ours)).unwrap_or_default();
        let _ = writeln!(
            text,
            "| {} | {:.0} | {:.2} | {:.0} | {:.2} | {faster} |",
            row.name,
            row.file_bytes / 1e6,
            row.seconds,
            row.peak_bytes / 1e6,
            row.peak_bytes / row.file_bytes
        );
    }
    for line in unfinished {
        let _ = writeln!(text, "\n{line}");
    }
    text
}

fn as_json(rows: &[Row], unfinished: &[String]) -> Value {
    let row = |row: &Row| {
        json!({
            "name": row.name,
            "file_bytes": row.file_bytes,
            "seconds": row.seconds,
            "peak_bytes": row.peak_bytes,
            "headroom_is_faster_by": row.ours.map(|ours| row.seconds / ours),
        })
    };
    json!({
        "date": machine::today(),
        "machine": machine::machine().cpu,
        "headroom": machine::headroom_version(),
        "gate": {"faster_at_least": SPEED_AT_LEAST, "peak_of_file_at_most": 1.0},
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
        "unfinished": unfinished,
    })
}
