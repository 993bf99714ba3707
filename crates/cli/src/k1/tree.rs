//! `headroom k1 --model tree`: K-1's own tree under every update rule, and against a LLaMA with the same number of
//! parameters. Every run is saved when it is done, so that an interrupted experiment can resume.

use super::{Arguments, train_request};
use crate::output;
use crate::registry::{About, Entry, Headline};
use crate::signals;
use crate::study::state::compact;
use crate::train::settings::Settings;
use crate::train::start::opening;
use anyhow::{Context, bail, ensure};
use headroom_engine::DeviceSpec;
use headroom_experiments::k1::tree::{self as experiment, Arm, Job, Task, Texts, TreeDesign, llama_of};
use headroom_record::SCHEMA_VERSION;
use headroom_record::atomic::{FileError, write_atomically, write_json};
use headroom_record::k1_tree::{K1_TREE_FILE, K1TreeDesign, K1TreeRecord, K1TreeRun, K1TreeTask};
use headroom_record::provenance::Provenance;
use headroom_record::reading;
use headroom_record::timestamp::utc_iso;
use headroom_report::k1_tree as text;
use headroom_training::data::BatchShape;
use headroom_training::models::{ModelConfig, Size, tree};
use headroom_training::program::StepConfig;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Instant, SystemTime};

pub const TREE_MARKDOWN_FILE: &str = "k1-tree.md";

/// Small enough for the whole experiment to take minutes on two cores.
const SHAPE: BatchShape = BatchShape { batch_size: 4, seq_len: 32 };
const WIDTH: usize = 32;

pub fn run(arguments: &Arguments, entry: &mut Entry) -> anyhow::Result<ExitCode> {
    let interrupt = signals::listen(|| {})?;
    let settings = settings(arguments)?;
    // Runs go in parallel, with one thread each.
    let design = design(arguments, &settings, 1)?;
    check_k(arguments, &design.tree.model)?;
    let arms = Arm::all(arguments.k as usize);
    let folder = folder(arguments)?;
    fs::create_dir_all(&folder).map_err(FileError::new("make the folder", &folder))?;
    let texts = Texts::write(&folder)?;
    let seeds: Vec<u64> = (0..arguments.seeds).map(|number| arguments.seed.wrapping_add(number)).collect();
    let floors = [Task::markov(&design, arguments.seed)?.floor(), None];
    let machine = settings.gpu.as_ref().map_or(&settings.machine.cpu_name, |gpu| &gpu.name);
    let planned = planned(&design, &settings, &arms, seeds, floors)?;
    let mut record = begin(&folder, planned, &settings, machine, arguments.resume)?;
    entry.begin(&About {
        folder: Some(&folder),
        size: Some("tree"),
        version: Some(&record.version),
        configuration: json!({ "k": arguments.k, "steps": design.steps, "seeds": arguments.seeds }),
        device: settings.device.name(),
        machine,
        threads: settings.threads,
        name: None,
    });
    let before = record.total_seconds;
    let started = Instant::now();
    let jobs = jobs(&record, &arms);
    let total = record.runs.len() + jobs.len();
    let workers = if settings.device == DeviceSpec::Cpu { settings.threads } else { 1 };
    experiment::run_all(&design, &texts, &jobs, workers, &interrupt.stop, |done| -> anyhow::Result<()> {
        output::note(&format!("[{}/{total}] {}", record.runs.len() + 1, text::run_line(&done)));
        record.runs.push(done);
        record.total_seconds = before + started.elapsed().as_secs_f64();
        record = record.clone().with_provenance();
        Ok(write_json(&folder.join(K1_TREE_FILE), &record)?)
    })?;
    if record.runs.len() < total {
        entry.interrupted();
        output::note(&format!(
            "interrupted; {} of {total} runs are saved; the same command with --resume --output-dir {} continues",
            record.runs.len(),
            folder.display()
        ));
        return Ok(interrupt.exit_code());
    }
    record.arms = experiment::means(&record);
    record.comparisons = experiment::comparisons(&record);
    record.answers = experiment::answers(&record);
    record.statements = experiment::statements(&record);
    record.timestamp = utc_iso(SystemTime::now());
    record = record.with_provenance();
    write_json(&folder.join(K1_TREE_FILE), &record)?;
    write_atomically(&folder.join(TREE_MARKDOWN_FILE), text::markdown(&record).as_bytes())?;
    entry.figures(Headline { parameters: Some(record.design.parameters), measured: true, ..Headline::default() });
    arguments.shown.print(&record, text::terminal)?;
    output::note(&format!("{K1_TREE_FILE} and {TREE_MARKDOWN_FILE} are in {}", folder.display()));
    Ok(ExitCode::SUCCESS)
}

/// All settings except the model's sizes, as `train` has them.
pub fn settings(arguments: &Arguments) -> anyhow::Result<Settings> {
    let settings = train_request(arguments, "nano")?.settings()?.0;
    ensure!(settings.device != DeviceSpec::Null, "--device null computes nothing\n  help: --device cpu or cuda");
    Ok(settings)
}

/// The tree's blocks, and a LLaMA to compare with.
pub fn design(arguments: &Arguments, settings: &Settings, threads: usize) -> anyhow::Result<TreeDesign> {
    let row = Size::named("nano").context("the table has nano")?.model_of(&tree::FAMILY);
    let sized = ModelConfig {
        vocab_size: experiment::VOCABULARY,
        hidden_dim: WIDTH,
        head_dim: WIDTH / row.n_heads,
        intermediate_dim: 2 * WIDTH,
        ..row
    };
    let model = match &arguments.branching {
        None => sized,
        Some(text) => match text.split('-').map(str::parse).collect::<Result<Vec<usize>, _>>() {
            Ok(branching) => tree::branched(sized, &branching),
            Err(_) => bail!(
                "--branching {text} is not a list of numbers\n  help: 4-3-2 means 4 children, 3 below each, 2 below each of those"
            ),
        },
    };
    model.validate(SHAPE.batch_size, SHAPE.seq_len)?;
    let step = |model: ModelConfig| StepConfig { model, shape: SHAPE, ..settings.step(0) };
    let steps = arguments.steps;
    Ok(TreeDesign {
        llama: step(llama_of(&model)),
        tree: step(model),
        device: settings.device,
        opening: opening(threads),
        steps,
        dense_steps: arguments.dense_steps.unwrap_or((steps / 4).max(1)),
        eval_batches: arguments.eval_batches as usize,
    })
}

pub fn check_k(arguments: &Arguments, model: &ModelConfig) -> anyhow::Result<()> {
    let (k, nodes) = (arguments.k as usize, model.n_layers);
    ensure!(
        k <= nodes,
        "--k {k} is more than the {nodes} nodes of the tree\n  help: `headroom train --family tree --show-tree` lists them"
    );
    Ok(())
}

fn folder(arguments: &Arguments) -> anyhow::Result<PathBuf> {
    match &arguments.output_dir {
        Some(folder) => Ok(folder.clone()),
        None if arguments.resume => {
            bail!("--resume needs the folder of the experiment\n  help: name it with --output-dir")
        }
        None => Ok(PathBuf::from(format!("runs/k1-tree-{}", compact(&utc_iso(SystemTime::now()), '-')))),
    }
}

/// Runs that are still missing: every arm with the steps of its phases, once per task and seed.
fn jobs(record: &K1TreeRecord, arms: &[Arm]) -> Vec<Job> {
    let mut list: Vec<(&Arm, u64)> = vec![];
    for budget in &record.design.budgets {
        let Some(arm) = arms.iter().find(|arm| arm.name == budget.arm) else { continue };
        if !list.contains(&(arm, budget.steps_per_phase)) {
            list.push((arm, budget.steps_per_phase));
        }
    }
    let mut jobs = vec![];
    for (number, &seed) in record.design.seeds.iter().enumerate() {
        for task in Task::NAMES {
            // A different arm comes first at each seed, so that a machine that slows down does not favour any of them.
            for turn in 0..list.len() {
                let (arm, steps) = list[(turn + number) % list.len()];
                jobs.push(Job { arm: arm.clone(), task, seed, steps });
            }
        }
    }
    let is_done = |job: &Job, run: &K1TreeRun| {
        (run.task.as_str(), run.arm.as_str(), run.seed, run.steps_per_phase)
            == (job.task, job.arm.name.as_str(), job.seed, job.steps)
    };
    jobs.retain(|job| !record.runs.iter().any(|run| is_done(job, run)));
    jobs
}

fn planned(
    design: &TreeDesign,
    settings: &Settings,
    arms: &[Arm],
    seeds: Vec<u64>,
    floors: [Option<f64>; 2],
) -> anyhow::Result<K1TreeDesign> {
    let widths = |model: &ModelConfig| {
        [model.hidden_dim, model.n_heads, model.n_kv_heads, model.intermediate_dim].map(|width| width as u64).to_vec()
    };
    let (tree, llama) = (&design.tree.model, &design.llama.model);
    let sources = [["a Markov source", "another"], ["decisions of this project", "its source code"]];
    let task = |((name, sources), loss_floor): ((&str, [&str; 2]), Option<f64>)| K1TreeTask {
        name: name.into(),
        sources: sources.map(String::from).to_vec(),
        loss_floor,
    };
    Ok(K1TreeDesign {
        branching: tree.branching.iter().map(|children| *children as u64).collect(),
        nodes: tree.n_layers as u64,
        parameters: tree.parameters().total(),
        widths: widths(tree),
        vocabulary: tree.vocab_size as u64,
        llama_layers: llama.n_layers as u64,
        llama_widths: widths(llama),
        llama_parameters: llama.parameters().total(),
        batch_size: SHAPE.batch_size as u64,
        seq_len: SHAPE.seq_len as u64,
        learning_rate: settings.optimizer.learning_rate,
        weight_decay: settings.optimizer.weight_decay,
        clip: settings.optimizer.clip,
        seeds,
        eval_batches: design.eval_batches as u64,
        tasks: Task::NAMES.into_iter().zip(sources).zip(floors).map(task).collect(),
        budgets: experiment::budgets(design, arms)?,
        loss_of_no_knowledge: (tree.vocab_size as f64).ln(),
    })
}

/// A new record, or the one to resume.
fn begin(
    folder: &Path,
    design: K1TreeDesign,
    settings: &Settings,
    machine: &str,
    resume: bool,
) -> anyhow::Result<K1TreeRecord> {
    let path = folder.join(K1_TREE_FILE);
    let fresh = K1TreeRecord {
        schema_version: SCHEMA_VERSION,
        timestamp: utc_iso(SystemTime::now()),
        version: settings.passes.label(),
        device: settings.device.name().into(),
        machine: machine.into(),
        threads: settings.threads as u64,
        design,
        runs: vec![],
        arms: vec![],
        comparisons: vec![],
        answers: vec![],
        statements: vec![],
        total_seconds: 0.0,
        provenance: Provenance::default(),
    };
    match (path.exists(), resume) {
        (false, _) => Ok(fresh),
        (true, false) => bail!(
            "{} already holds an experiment\n  help: continue it with --resume, or name another folder",
            folder.display()
        ),
        (true, true) => {
            let text = reading::read(&path, reading::RECORD).map_err(FileError::new("read", &path))?;
            let kept: K1TreeRecord = serde_json::from_slice(&text)
                .with_context(|| format!("{} is not the file of an experiment", path.display()))?;
            let same = |record: &K1TreeRecord| (record.design.clone(), record.version.clone(), record.device.clone());
            ensure!(
                same(&kept) == same(&fresh),
                "{} holds an experiment of another design\n  help: resume it with the flags that it was started with",
                folder.display()
            );
            output::note(&format!("{} runs are already done", kept.runs.len()));
            Ok(kept)
        }
    }
}
