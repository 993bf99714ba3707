//! `headroom race`: keeps models warm and answers timing requests, one per line, so that a benchmark can alternate with
//! another program. A request is `tiny v1-fp32 10`: ten timed steps; the answer is one JSON line. `small:1x2048` is a
//! size with another batch and sequence.

use crate::train::start::opening;
use headroom_engine::DeviceSpec;
use headroom_engine::machine::{Machine, peak_resident_bytes, resident_bytes};
use headroom_graph::Precision;
use headroom_graph::passes::PassList;
use headroom_training::data::{Batch, BatchShape, DataSpec, Source, SourceSettings};
use headroom_training::models::Size;
use headroom_training::optimizer::OptimizerConfig;
use headroom_training::program::{Keep, StepConfig, training_program};
use headroom_training::trainer::{EndsStep, Trainer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, Write, stdin, stdout};
use std::process::ExitCode;
use std::time::Instant;

#[derive(clap::Args)]
pub struct Arguments {
    /// [default: the physical cores]
    #[arg(long)]
    threads: Option<usize>,
    /// cpu, cuda or cuda:N
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Steps before the first timed one
    #[arg(long, default_value_t = 6)]
    warmup: u64,
}

/// Number of batches that are cycled through, as in the peer.
const BATCHES: u64 = 64;

/// Far beyond any race, so that the learning rate is constant.
const LAST_STEP: u64 = u64::MAX;

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let at_start = resident_bytes().unwrap_or(0);
    let threads = arguments.threads.unwrap_or_else(|| Machine::detect().cores).max(1);
    let device: DeviceSpec = arguments.device.parse()?;
    let mut races: BTreeMap<String, Race> = BTreeMap::new();
    for line in stdin().lock().lines() {
        let line = line?;
        let answer = match answer(&mut races, &line, &On { device, threads }, arguments.warmup, at_start) {
            Ok(answer) => answer,
            Err(error) => json!({ "request": line, "error": format!("{error:#}") }),
        };
        writeln!(stdout(), "{answer}")?;
        stdout().flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn answer(
    races: &mut BTreeMap<String, Race>,
    line: &str,
    on: &On,
    warmup: u64,
    at_start: u64,
) -> anyhow::Result<Value> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, variant, steps] = words[..] else {
        anyhow::bail!("a request is `size variant steps`");
    };
    let steps: usize = steps.parse()?;
    anyhow::ensure!(steps > 0, "at least one step");
    let named = |precision: &Precision| variant.strip_suffix(precision.name()).and_then(|rest| rest.strip_suffix('-'));
    let split = Precision::ALL.into_iter().rev().find_map(|precision| Some((named(&precision)?, precision)));
    let Some((passes, precision)) = split else {
        anyhow::bail!("there is no variant `{variant}`: a list of passes and a precision, such as v1-fp32");
    };
    let passes = PassList::parse(passes).map_err(anyhow::Error::msg)?;
    let key = format!("{name} {variant}");
    if !races.contains_key(&key) {
        let mut race = Race::new(name, passes, precision, on)?;
        race.timed(warmup as usize)?;
        races.insert(key.clone(), race);
    }
    let Some(race) = races.get_mut(&key) else { anyhow::bail!("the race was just made") };
    let mut times = race.timed(steps)?;
    times.sort_by(f64::total_cmp);
    let median = (times[(steps - 1) / 2] + times[steps / 2]) / 2.0;
    let samples = race.shape.batch_size as f64 / median;
    Ok(json!({
        "size": name, "variant": variant, "device": on.device.name(), "steps": steps, "ms_per_step": median * 1e3,
        "samples_per_s": samples, "tokens_per_s": samples * race.shape.seq_len as f64,
        "model_flops": race.model_flops, "plan_bytes": race.plan_bytes,
        "peak_mb": race.peak_bytes(on, at_start) as f64 / (1024.0 * 1024.0),
        "notes": race.notes(), "loss": race.loss, "threads": on.threads, "headroom": env!("CARGO_PKG_VERSION"),
    }))
}

/// The device and threads of a race.
struct On {
    device: DeviceSpec,
    threads: usize,
}

struct Race {
    trainer: Trainer,
    batches: Vec<Batch>,
    shape: BatchShape,
    /// FLOPs that a step needs, and the minimum bytes that its calls move.
    model_flops: u64,
    plan_bytes: u64,
    loss: f32,
}

impl Race {
    fn new(name: &str, passes: PassList, precision: Precision, on: &On) -> anyhow::Result<Race> {
        let (name, shape) = name.split_once(':').map_or((name, None), |(name, shape)| (name, Some(shape)));
        let Some(size) = Size::named(name) else { anyhow::bail!("there is no size `{name}`") };
        let shape = match shape.map(|shape| shape.split_once('x')) {
            Some(Some((batch, seq))) => BatchShape { batch_size: batch.parse()?, seq_len: seq.parse()? },
            Some(None) => anyhow::bail!("a size with its own shape is `small:1x2048`"),
            None => BatchShape { batch_size: size.batch_size, seq_len: size.seq_len },
        };
        let model = size.model();
        model.validate(shape.batch_size, shape.seq_len)?;
        let optimizer = OptimizerConfig::default();
        let step = StepConfig {
            model: model.clone(),
            shape,
            optimizer,
            passes,
            recomputed_layers: 0,
            precision,
            target: on.device.target(),
        };
        let program = training_program(&step, Keep::OnlyTheLoss)?;
        let model_flops = 3 * model.needed_forward_flops(shape.batch_size, shape.seq_len);
        let plan_bytes = program.program.plan.calls.iter().map(|call| call.bytes).sum();
        let programs = std::slice::from_ref(&program.program);
        let device = on.device.open(&opening(on.threads), programs)?;
        let mut trainer = Trainer::new(device, &model, program, None, optimizer);
        trainer.draw_weights(42);
        let vocab_size = model.vocab_size;
        let settings = SourceSettings::new(shape, vocab_size, 42);
        let source = Source::open(&DataSpec::Synthetic, &settings)?;
        let mut batches = vec![];
        for position in 0..BATCHES {
            let mut batch = Batch::new(shape);
            source.fill(position, &mut batch)?;
            batches.push(batch);
        }
        Ok(Race { trainer, batches, shape, model_flops, plan_bytes, loss: f32::NAN })
    }

    /// On a GPU the bytes allocated on it, else the growth of the process.
    fn peak_bytes(&self, on: &On, at_start: u64) -> u64 {
        match on.device {
            DeviceSpec::Cuda(_) => (self.trainer.device.arena_bytes() + self.trainer.device.scratch_bytes()) as u64,
            _ => peak_resident_bytes().unwrap_or(0).saturating_sub(at_start),
        }
    }

    /// How steps are replayed, if there are several ways.
    fn notes(&self) -> Vec<String> {
        self.trainer.device.notes().into_iter().filter(|note| note.starts_with("replays: ")).collect()
    }

    /// Seconds of each step on the host's clock, including the wait for its end, as the peer times its own.
    fn timed(&mut self, steps: usize) -> anyhow::Result<Vec<f64>> {
        let mut times = Vec::with_capacity(steps);
        for _ in 0..steps {
            let start = Instant::now();
            let batch = &self.batches[(self.trainer.step % BATCHES) as usize];
            self.loss = self.trainer.loss_of(batch, EndsStep::Yes { last: LAST_STEP })?;
            times.push(start.elapsed().as_secs_f64());
        }
        Ok(times)
    }
}
