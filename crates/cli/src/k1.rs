//! `headroom k1`: compares selective updates with dense and random ones, at equal steps and at equal updated
//! parameters.

mod cost;
pub mod speed;
pub mod tree;

use crate::output;
use crate::registry::{About, Entry, Headline};
use crate::shown::{Plain, Shown};
use crate::signals;
use crate::study::state::compact;
use crate::train::request::TrainRequest;
use crate::train::settings::{Settings, tree_of};
use crate::train::start::opening;
use anyhow::{bail, ensure};
use headroom_engine::DeviceSpec;
use headroom_experiments::k1::{Design, Sources, arms, comparisons, run as run_one, statements};
use headroom_graph::Rule;
use headroom_record::SCHEMA_VERSION;
use headroom_record::atomic::{FileError, write_atomically, write_json};
use headroom_record::k1::{Budget, K1_FILE, K1Design, K1Record, K1Run};
use headroom_record::provenance::Provenance;
use headroom_record::timestamp::utc_iso;
use headroom_report::k1 as text;
use headroom_training::optimizer::Update;
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

/// Compare selective updates with their controls: top-k, path, random and dense from the same weights, on changing sources
#[derive(clap::Args)]
pub struct Arguments {
    /// llama, or tree: K-1's own tree of blocks, also compared with a LLaMA of equal parameter count, on Markov sources and on texts
    #[arg(long, default_value = "llama", value_parser = ["llama", "tree"])]
    model: String,
    /// Children of each node, level by level; for --model tree [default: 4-3-2]
    #[arg(long, value_name = "N-N-N")]
    branching: Option<String>,
    /// Continue an interrupted experiment in --output-dir; for --model tree
    #[arg(long)]
    resume: bool,
    /// Instead, time the habits that the bottleneck report blames, each against its remedy; for --model tree
    #[arg(long, conflicts_with = "resume")]
    speed: bool,
    /// Seconds for the comparisons of --speed
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..), requires = "speed")]
    time: u64,
    /// Model size by name, as for `train`; a tree has its own size
    #[arg(long, default_value = "nano")]
    size: String,
    /// Nodes that topk and random choose per step
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    k: u32,
    /// Markov sources, trained on one after the other
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10))]
    sources: u32,
    /// Steps on each source in the comparison at equal steps
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
    /// Dense steps on each source that set the budget of every rule in the comparison at equal updated parameters [default: a quarter
    /// of --steps]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    dense_steps: Option<u64>,
    /// Number of seeds; each has its own weights and sources
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// The same for every rule
    #[arg(long, default_value_t = 3e-3)]
    learning_rate: f64,
    /// The same for every rule
    #[arg(long, default_value_t = 0.01)]
    weight_decay: f64,
    /// Clip gradients to this global norm; 0 turns clipping off
    #[arg(long, default_value_t = 1.0)]
    clip: f64,
    /// Held-out batches of each source that a loss averages over
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    eval_batches: u32,
    /// Graph rewriting passes, as for `train`
    #[arg(long, default_value = "all", allow_hyphen_values = true)]
    passes: String,
    /// cpu, cuda or cuda:N
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Precision of the GEMMs, as for `train` [default: fp32]
    #[arg(long)]
    precision: Option<String>,
    /// [default: the physical cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Instead, measure the time that choosing adds to a dense step of this size, alternating both
    #[arg(long, value_name = "SIZE")]
    cost: Option<String>,
    /// Where k1.json and k1.md go [default: runs/k1-TIME]
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    #[command(flatten)]
    shown: Shown<Plain>,
}

pub const MARKDOWN_FILE: &str = "k1.md";

pub fn run(arguments: Arguments, entry: &mut Entry) -> anyhow::Result<ExitCode> {
    if let Some(size) = &arguments.cost {
        return cost::run(&arguments, size);
    }
    match (arguments.model.as_str(), arguments.speed) {
        ("tree", true) => return speed::run(&arguments, entry),
        ("tree", false) => return tree::run(&arguments, entry),
        _ => {}
    }
    ensure!(
        arguments.branching.is_none() && !arguments.resume && !arguments.speed,
        "--branching, --resume and --speed apply only to a tree\n  help: add --model tree"
    );
    let interrupt = signals::listen(|| {})?;
    let settings = train_request(&arguments, &arguments.size)?.settings()?.0;
    ensure!(settings.device != DeviceSpec::Null, "--device null computes nothing\n  help: --device cpu or cuda");
    let nodes = tree_of(&settings.model)?.choices();
    let updates = updates(&arguments, nodes)?;
    let design = design(&arguments, &settings)?;
    let folder = match &arguments.output_dir {
        Some(folder) => folder.clone(),
        None => PathBuf::from(format!("runs/k1-{}", compact(&utc_iso(SystemTime::now()), '-'))),
    };
    ensure!(
        !folder.join(K1_FILE).exists(),
        "{} already holds an experiment\n  help: name another folder",
        folder.display()
    );
    fs::create_dir_all(&folder).map_err(FileError::new("make the folder", &folder))?;
    let machine = settings.gpu.as_ref().map_or(&settings.machine.cpu_name, |gpu| &gpu.name);
    entry.begin(&About {
        folder: Some(&folder),
        size: Some(&arguments.size),
        version: Some(&settings.passes.label()),
        configuration: json!({ "k": arguments.k, "sources": arguments.sources, "steps": design.steps, "seeds": arguments.seeds }),
        device: settings.device.name(),
        machine,
        threads: settings.threads,
        name: None,
    });
    let started = Instant::now();
    let seeds: Vec<u64> = (0..arguments.seeds).map(|number| arguments.seed.wrapping_add(number)).collect();
    let Some((runs, floors)) = run_all(&design, &updates, &seeds, &interrupt.stop)? else {
        entry.interrupted();
        output::note("interrupted; nothing was written");
        let _ = fs::remove_dir(&folder);
        return Ok(interrupt.exit_code());
    };
    let comparisons = comparisons(&runs, &updates);
    let parameters = settings.model.parameters().total();
    let record = K1Record {
        schema_version: SCHEMA_VERSION,
        timestamp: utc_iso(SystemTime::now()),
        size: settings.size.clone(),
        version: settings.passes.label(),
        parameters,
        nodes: nodes as u64,
        device: settings.device.name().into(),
        machine: machine.clone(),
        threads: settings.threads as u64,
        design: K1Design {
            sources: u64::from(arguments.sources),
            steps_per_phase: design.steps,
            updated_parameters_per_phase: design.updates,
            dense_steps_per_phase: design.updates as f64 / parameters as f64,
            batch_size: settings.shape.batch_size as u64,
            seq_len: settings.shape.seq_len as u64,
            learning_rate: settings.optimizer.learning_rate,
            weight_decay: settings.optimizer.weight_decay,
            clip: settings.optimizer.clip,
            seeds: seeds.clone(),
            eval_batches: u64::from(arguments.eval_batches),
            loss_floor: floors.iter().sum::<f64>() / floors.len().max(1) as f64,
            loss_of_no_knowledge: (settings.model.vocab_size as f64).ln(),
        },
        arms: arms(&runs, &updates),
        statements: statements(&runs, &comparisons, seeds.len()),
        comparisons,
        runs,
        total_seconds: started.elapsed().as_secs_f64(),
        provenance: Provenance::default(),
    }
    .with_provenance();
    write_json(&folder.join(K1_FILE), &record)?;
    write_atomically(&folder.join(MARKDOWN_FILE), text::markdown(&record).as_bytes())?;
    entry.figures(Headline { parameters: Some(parameters), measured: true, ..Headline::default() });
    arguments.shown.print(&record, text::terminal)?;
    output::note(&format!("{K1_FILE} and {MARKDOWN_FILE} are in {}", folder.display()));
    Ok(ExitCode::SUCCESS)
}

/// Runs every rule under both budgets from every seed; `None` when asked to stop. Also returns the entropies of all
/// sources.
///
/// The first rule changes from seed to seed, so that a machine that slows down does not favour any of them.
fn run_all(
    design: &Design,
    updates: &[Update],
    seeds: &[u64],
    stop: &AtomicBool,
) -> anyhow::Result<Option<(Vec<K1Run>, Vec<f64>)>> {
    let (mut runs, mut floors) = (vec![], vec![]);
    let total = seeds.len() * Budget::ALL.len() * updates.len();
    for (number, &seed) in seeds.iter().enumerate() {
        let sources = Sources::open(design, seed)?;
        floors.extend_from_slice(sources.floors());
        for budget in Budget::ALL {
            for turn in 0..updates.len() {
                if stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                let done = run_one(design, updates[(turn + number) % updates.len()], budget, seed, &sources)?;
                output::note(&format!("[{}/{total}] {}", runs.len() + 1, text::run_line(&done)));
                runs.push(done);
            }
        }
    }
    Ok(Some((runs, floors)))
}

/// The rules of the experiment, with the control first.
fn updates(arguments: &Arguments, nodes: usize) -> anyhow::Result<Vec<Update>> {
    let k = arguments.k as usize;
    ensure!(
        k <= nodes,
        "--k {k} is more than the {nodes} nodes of {}\n  help: `headroom train --show-tree` lists them",
        arguments.size
    );
    let chosen = [Rule::TopK(k), Rule::Path, Rule::Random(k)].map(|rule| Update::Chosen { rule, seed: 0 });
    Ok([&[Update::Dense][..], &chosen].concat())
}

fn design(arguments: &Arguments, settings: &Settings) -> anyhow::Result<Design> {
    let steps = arguments.steps;
    let dense_steps = arguments.dense_steps.unwrap_or((steps / 4).max(1));
    let Some(updates) = dense_steps.checked_mul(settings.model.parameters().total()) else {
        bail!("--dense-steps {dense_steps} updates more parameters than can be counted");
    };
    Ok(Design {
        step: settings.step(0),
        device: settings.device,
        opening: opening(settings.threads),
        sources: arguments.sources as usize,
        steps,
        updates,
        eval_batches: arguments.eval_batches as usize,
    })
}

/// The same settings as a `train` request.
fn train_request(arguments: &Arguments, size: &str) -> anyhow::Result<TrainRequest> {
    Ok(TrainRequest {
        data: Some("markov".into()),
        size: size.into(),
        passes: arguments.passes.clone(),
        learning_rate: Some(arguments.learning_rate),
        weight_decay: Some(arguments.weight_decay),
        clip: Some(arguments.clip),
        device: arguments.device.clone(),
        precision: arguments.precision.as_deref().map(str::parse).transpose()?,
        threads: arguments.threads,
        ..TrainRequest::default()
    })
}
