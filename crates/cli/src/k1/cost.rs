//! Measures the cost of choosing: steps that choose alternate with dense ones.

use super::{Arguments, train_request};
use crate::output;
use crate::train::start::opening;
use anyhow::ensure;
use headroom_engine::DeviceSpec;
use headroom_experiments::bench::{Bench, Setting, Variant};
use headroom_experiments::turns::{Clock, Patience};
use headroom_training::optimizer::{OptimizerConfig, Update};
use headroom_training::program::{Keep, StepConfig};
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

/// Each comparison gets this many rounds of four steps, unless it is precise enough earlier.
const PATIENCE: Patience = Patience { rounds: 4, most_rounds: 40, time: Duration::from_secs(60) };

pub fn run(arguments: &Arguments, size: &str) -> anyhow::Result<ExitCode> {
    let settings = train_request(arguments, size)?.settings()?.0;
    ensure!(settings.device != DeviceSpec::Null, "--device null computes nothing\n  help: --device cpu or cuda");
    let (device, opening) = (settings.device, opening(settings.threads));
    let setting = Setting { seed: settings.seed, device, opening };
    let (step, variant) = (settings.step(0), Variant::of(&settings.passes));
    let bench = |update: Update| {
        let optimizer = OptimizerConfig { update, ..step.optimizer };
        Bench::new(&StepConfig { optimizer, ..step.clone() }, &variant, Keep::OnlyTheLoss, &setting)
    };
    let mut dense = bench(Update::Dense)?;
    let rules = ["topk:all".to_string(), format!("topk:{}", arguments.k)];
    let mut clock = Clock::start(PATIENCE, rules.len());
    let mut rows = vec![];
    for rule in &rules {
        let mut chosen = bench(rule.parse().map_err(anyhow::Error::msg)?)?;
        for _ in 0..dense.warm_up_steps() {
            dense.step()?;
            chosen.step()?;
        }
        let found = clock.compare(&mut dense, &mut chosen)?;
        // The inverse of the speed-up: how much longer a step with choosing takes.
        let added = |ratio: f64| 100.0 * (1.0 / ratio - 1.0);
        let (median, low, high) = (added(found.ratio), added(found.high), added(found.low));
        rows.push(json!({ "update": rule, "added_percent": median, "ci95_low": low, "ci95_high": high, "rounds": found.rounds }));
        if !arguments.shown.is_json() {
            output::text(&format!(
                "{rule} adds {median:+.1}% to a dense step of {size} (95%: {low:+.1}% to {high:+.1}%, {} rounds)\n",
                found.rounds
            ))?;
        }
    }
    if arguments.shown.is_json() {
        let record =
            json!({ "size": size, "device": settings.device.name(), "threads": settings.threads, "cost": rows });
        output::result(&format!("{record:#}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
