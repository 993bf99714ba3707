//! `cargo xtask bench cpu`: training on the CPU, Headroom against PyTorch.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use headroom_record::turns::Turn;

use super::contestant::{Answer, Server};
use super::report::{Gate, Row, Setting};
use super::{machine, race, report};
use crate::{Outcome, process, python};

/// Two programs that do the same work. A new comparison is one row here.
struct Pairing {
    name: &'static str,
    ours: &'static str,
    peer: Peer,
}

/// The side that we race against.
#[derive(Clone, Copy)]
enum Peer {
    PyTorch(&'static str),
    /// Another variant of ours.
    Ours(&'static str),
    /// The same variant of another build.
    Landed(&'static str),
}

impl Peer {
    /// The label in a table, beside ours.
    fn label(self) -> String {
        match self {
            Peer::PyTorch(variant) => variant.to_string(),
            Peer::Ours(variant) => format!("our {variant}"),
            Peer::Landed(variant) => format!("landed {variant}"),
        }
    }

    /// The name in a line of progress.
    fn who(self) -> &'static str {
        match self {
            Peer::PyTorch(_) => "PyTorch",
            Peer::Ours(variant) => variant,
            Peer::Landed(_) => "landed",
        }
    }
}

const PAIRINGS: &[Pairing] = &[
    Pairing { name: "v1", ours: "v1-fp32", peer: Peer::PyTorch("v1-fp32") },
    Pairing { name: "v2", ours: "v2-fp32", peer: Peer::PyTorch("v2-fp32") },
    Pairing { name: "all", ours: "all-fp32", peer: Peer::PyTorch("v2-fp32") },
    Pairing { name: "compile", ours: "all-fp32", peer: Peer::PyTorch("compile-fp32") },
    Pairing { name: "bf16-v1", ours: "all-bf16", peer: Peer::PyTorch("v1-bf16") },
    Pairing { name: "bf16-v2", ours: "all-bf16", peer: Peer::PyTorch("v2-bf16") },
    Pairing { name: "bf16-compile", ours: "all-bf16", peer: Peer::PyTorch("compile-bf16") },
    Pairing { name: "bf16-fp32", ours: "all-bf16", peer: Peer::Ours("all-fp32") },
    Pairing { name: "all-v1", ours: "all-fp32", peer: Peer::Ours("v1-fp32") },
    Pairing { name: "landed-v1", ours: "v1-fp32", peer: Peer::Landed("v1-fp32") },
    Pairing { name: "landed-v2", ours: "v2-fp32", peer: Peer::Landed("v2-fp32") },
    Pairing { name: "landed", ours: "all-fp32", peer: Peer::Landed("all-fp32") },
    Pairing { name: "landed-bf16", ours: "all-bf16", peer: Peer::Landed("all-bf16") },
    Pairing { name: "all-torch-v1", ours: "all-fp32", peer: Peer::PyTorch("v1-fp32") },
];

/// The last entry is a size with another batch and sequence.
const SIZES: &[&str] = &["tiny", "small", "medium", "large", "very_large", "small:1x2048"];

const GATES: &[Gate] = &[
    Gate { pairing: "v1", size: "tiny", speed_at_least: 1.3, memory_below: 1.0 },
    Gate { pairing: "v1", size: "small", speed_at_least: 1.1, memory_below: 1.0 },
    Gate { pairing: "all", size: "tiny", speed_at_least: 1.4, memory_below: 1.0 },
    Gate { pairing: "all", size: "small", speed_at_least: 1.2, memory_below: 1.0 },
    Gate { pairing: "compile", size: "tiny", speed_at_least: 1.25, memory_below: 1.0 },
    Gate { pairing: "compile", size: "small", speed_at_least: 1.1, memory_below: 1.0 },
    // All of PyTorch's bf16 variants must be beaten, because the best one counts.
    Gate { pairing: "bf16-v1", size: "small", speed_at_least: 1.0, memory_below: 1.0 },
    Gate { pairing: "bf16-v2", size: "small", speed_at_least: 1.0, memory_below: 1.0 },
    Gate { pairing: "bf16-compile", size: "small", speed_at_least: 1.0, memory_below: 1.0 },
    Gate { pairing: "bf16-fp32", size: "tiny", speed_at_least: 1.0, memory_below: 1.1 },
    Gate { pairing: "bf16-fp32", size: "small", speed_at_least: 1.0, memory_below: 1.1 },
    // At most 0.65 times the time.
    Gate { pairing: "all-v1", size: "small:1x2048", speed_at_least: 1.0 / 0.65, memory_below: 0.5 },
    Gate { pairing: "all-torch-v1", size: "small:1x2048", speed_at_least: 1.0 / 0.65, memory_below: 0.5 },
];

#[derive(Args)]
pub struct Options {
    /// Sizes of the table in `headroom train --help`
    #[arg(long, value_delimiter = ',', default_value = "tiny,small", value_parser = known(SIZES))]
    sizes: Vec<String>,
    /// The cases to compare
    #[arg(long, value_delimiter = ',', default_value = "v1,v2,all,compile", value_parser = known(PAIRINGS.iter().map(|p| p.name)))]
    variants: Vec<String>,
    /// How often each side has its turn
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Threads of each side [default: physical cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Another build of headroom, the peer of the cases whose name begins with `landed`
    #[arg(long, value_name = "PATH")]
    landed: Option<PathBuf>,
    /// A Python with torch [default: target/bench-venv, made and filled if need be]
    #[arg(long)]
    python: Option<PathBuf>,
    /// Where to write the result: a .md or .json file, or a name without ending for both
    #[arg(long)]
    out: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<Outcome> {
    let outputs = output_files(options.out.as_deref())?;
    let machine = machine::machine();
    let threads = options.threads.map_or(machine.physical_cores, usize::from);
    let pairings: Vec<&Pairing> =
        PAIRINGS.iter().filter(|pairing| options.variants.iter().any(|name| name == pairing.name)).collect();
    if options.landed.is_none() && pairings.iter().any(|pairing| matches!(pairing.peer, Peer::Landed(_))) {
        bail!("a case against another build needs --landed PATH");
    }
    let python = match &options.python {
        Some(python) => python.clone(),
        None if pairings.iter().any(|pairing| matches!(pairing.peer, Peer::PyTorch(_))) => {
            python::environment("bench-venv", &[python::NUMPY, python::TORCH])?
        }
        None => PathBuf::new(),
    };
    let headroom = process::build_headroom("dist")?;
    let landed = options.landed.as_deref().unwrap_or(&headroom);

    let mut rows: Vec<Row> = Vec::new();
    let mut peer_version = None;
    for size in &options.sizes {
        for pairing in &pairings {
            eprintln!("{size} {}: both sides warm up", pairing.name);
            // One process per side and row, so that its peak memory belongs to this row.
            let mut ours = Server::start("headroom", &mut our_command(&headroom, threads), size, pairing.ours)?;
            let mut peer = match pairing.peer {
                Peer::PyTorch(variant) => Server::start("PyTorch", &mut peer_command(&python, threads), size, variant)?,
                Peer::Ours(variant) => Server::start("headroom", &mut our_command(&headroom, threads), size, variant)?,
                Peer::Landed(variant) => Server::start("landed", &mut our_command(landed, threads), size, variant)?,
            };
            let heading = format!("{size} {}", pairing.name);
            let rounds = race::race(options.rounds.into(), &mut ours, &mut peer, &|is_ours, answer, turn| {
                eprintln!(
                    "{}",
                    progress_line(&heading, if is_ours { "headroom" } else { pairing.peer.who() }, answer, turn)
                );
            })?;
            if let Some(version) = rounds.peer.last().and_then(|answer| answer.all["torch"].as_str()) {
                peer_version = Some(version.to_string());
            }
            rows.push(report::row(size, pairing.name, [pairing.ours, &pairing.peer.label()], &rounds));
        }
    }

    let setting = Setting {
        date: machine::today(),
        machine,
        threads,
        headroom: machine::headroom_version(),
        peer: peer_version.map_or("Headroom against itself".into(), |version| format!("PyTorch {version}")),
        command: spelled(options, threads),
    };
    let verdicts = report::verdicts(&rows, GATES);
    let markdown = report::markdown("Training on the CPU against PyTorch", &setting, &rows, &verdicts);
    print!("{markdown}");
    for file in &outputs {
        let text = match file.extension().is_some_and(|extension| extension == "json") {
            true => format!("{:#}\n", report::to_json(&setting, &rows, &verdicts)),
            false => markdown.clone(),
        };
        write(file, &text)?;
    }
    Ok(Outcome::from_success(verdicts.iter().all(|verdict| verdict.holds)))
}

fn our_command(headroom: &Path, threads: usize) -> Command {
    let mut command = Command::new(headroom);
    command.args(["race", "--threads", &threads.to_string()]);
    command
}

fn peer_command(python: &Path, threads: usize) -> Command {
    let mut command = Command::new(python);
    command.arg(process::workspace_root().join("bench/torch_llama.py"));
    command.args(["--device", "cpu", "--serve", "--threads", &threads.to_string()]);
    command
}

fn progress_line(heading: &str, who: &str, answer: &Answer, turn: &Turn) -> String {
    let busy = if turn.is_disturbed { ", and other programs were running" } else { "" };
    format!("{heading}: {who} {:.1} ms{busy}", answer.ms_per_step)
}

/// The command that repeats this run, without machine-specific paths.
fn spelled(options: &Options, threads: usize) -> String {
    let landed = options.landed.as_ref().map_or("", |_| " --landed PATH");
    format!(
        "cargo xtask bench cpu --sizes {} --variants {} --rounds {} --threads {threads}{landed}",
        options.sizes.join(","),
        options.variants.join(","),
        options.rounds
    )
}

/// Checked before the race, so that a wrong name does not waste its minutes.
fn output_files(out: Option<&Path>) -> Result<Vec<PathBuf>> {
    let Some(out) = out else { return Ok(Vec::new()) };
    match out.extension().and_then(|extension| extension.to_str()) {
        Some("md" | "json") => Ok(vec![out.to_path_buf()]),
        None => Ok(vec![out.with_extension("md"), out.with_extension("json")]),
        Some(other) => bail!("--out {}: cannot write .{other}; use .md, .json, or no ending for both", out.display()),
    }
}

fn write(file: &Path, text: &str) -> Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    eprintln!("wrote {}", file.display());
    Ok(())
}

fn known(
    names: impl IntoIterator<Item = impl Into<clap::builder::PossibleValue>>,
) -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(names.into_iter().map(Into::into))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_names_one_file_or_both() {
        let files = |out: &str| output_files(Some(Path::new(out))).map_err(|error| error.to_string());
        assert_eq!(files("docs/cpu.md"), Ok(vec!["docs/cpu.md".into()]));
        assert_eq!(files("docs/cpu.json"), Ok(vec!["docs/cpu.json".into()]));
        assert_eq!(files("docs/cpu"), Ok(vec!["docs/cpu.md".into(), "docs/cpu.json".into()]));
        let refused = "--out cpu.txt: cannot write .txt; use .md, .json, or no ending for both";
        assert_eq!(files("cpu.txt"), Err(refused.to_string()));
    }

    #[test]
    fn a_line_of_progress_says_when_other_programs_were_running() {
        let answer = Answer { ms_per_step: 12.34, peak_mb: 1.0, loss: 1.0, all: serde_json::Value::Null };
        let line = |is_disturbed| {
            let turn = Turn { seconds: 0.01234, interference: Some(0.3), is_disturbed };
            progress_line("tiny v1", Peer::PyTorch("v1-fp32").who(), &answer, &turn)
        };
        assert_eq!(line(false), "tiny v1: PyTorch 12.3 ms");
        assert_eq!(line(true), "tiny v1: PyTorch 12.3 ms, and other programs were running");
    }

    #[test]
    fn every_gate_is_of_a_pairing_and_size_that_can_be_raced() {
        for gate in GATES {
            assert!(SIZES.contains(&gate.size), "{}", gate.size);
            assert!(PAIRINGS.iter().any(|pairing| pairing.name == gate.pairing), "{}", gate.pairing);
        }
    }
}
