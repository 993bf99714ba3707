//! The optimizer of a run: from the flags, else from the resumed run, else the model's defaults.

use super::resumed::Resumed;
use crate::train::arguments::{Arguments, Decay, LearningRateSchedule};
use anyhow::ensure;
use headroom_graph::ops::adamw::Decays;
use headroom_training::models::ModelConfig;
use headroom_training::optimizer::{Method, OptimizerConfig, Update};
use headroom_training::schedule::{Schedule, Shape};

/// Training defaults for a model.
pub struct TrainingDefaults {
    learning_rate: f64,
    warmup_steps: u64,
    clip: f64,
}

impl TrainingDefaults {
    /// Models at least this wide are trained with more care.
    const WIDE: usize = 1024;
    const MOST_WARMUP: u64 = 100;

    pub fn of(model: &ModelConfig, last_step: u64) -> TrainingDefaults {
        const RATE: f64 = 3e-4;
        match model.hidden_dim >= TrainingDefaults::WIDE {
            true => TrainingDefaults {
                learning_rate: RATE * TrainingDefaults::WIDE as f64 / model.hidden_dim as f64,
                warmup_steps: (last_step / 5).clamp(1, TrainingDefaults::MOST_WARMUP),
                clip: 1.0,
            },
            false => TrainingDefaults { learning_rate: RATE, warmup_steps: 0, clip: 0.0 },
        }
    }
}

pub fn resolved(
    arguments: &Arguments,
    before: &Resumed,
    update: Update,
    usual: &TrainingDefaults,
) -> anyhow::Result<OptimizerConfig> {
    let flags = &arguments.training;
    let house = OptimizerConfig::updating(update);
    let schedule = Schedule {
        shape: match (flags.lr_schedule, &before.lr_schedule) {
            (Some(asked), _) => shape_of(asked),
            (None, Some(noted)) => noted.parse().map_err(anyhow::Error::msg)?,
            (None, None) => house.schedule.shape,
        },
        warmup_steps: flags.lr_warmup_steps.or(before.lr_warmup_steps).unwrap_or(usual.warmup_steps),
        floor: flags.lr_floor.or(before.lr_floor).unwrap_or(house.schedule.floor),
        decay_steps: flags.lr_decay_steps.or(before.lr_decay_steps),
    };
    let method = method_of(arguments, before)?;
    let accumulation = flags.gradient_accumulation_steps.map(|steps| steps as usize);
    let config = OptimizerConfig {
        method,
        learning_rate: flags.learning_rate.or(before.learning_rate).unwrap_or(usual.learning_rate),
        schedule,
        betas: flags.betas.map(|betas| betas.0).or(before.betas).unwrap_or(house.betas),
        eps: flags.eps.or(before.eps).unwrap_or(house.eps),
        weight_decay: flags.weight_decay.or(before.weight_decay).unwrap_or(house.weight_decay),
        decays: flags.decay.map(decays_of).or(before.decay()?).unwrap_or(house.decays),
        clip: flags.clip.or(before.clip).unwrap_or(usual.clip),
        accumulation: accumulation.or(before.gradient_accumulation_steps).unwrap_or(house.accumulation).max(1),
        ..house
    };
    let sizes =
        [("--learning-rate", config.learning_rate), ("--weight-decay", config.weight_decay), ("--clip", config.clip)];
    for (flag, value) in sizes {
        ensure!(value.is_finite() && value >= 0.0, "{flag} is {value}\n  help: a number from 0 up");
    }
    ensure!(
        config.eps.is_finite() && config.eps > 0.0,
        "--eps is {}\n  help: a number above 0, such as 1e-8",
        config.eps
    );
    let floor = schedule.floor;
    ensure!((0.0..=1.0).contains(&floor), "--lr-floor is {floor}\n  help: a share of the learning rate, from 0 to 1");
    let unused = |flag: &str, shapes: &str| {
        format!("{flag} has no effect with --lr-schedule {}\n  help: use it with {shapes}", schedule.shape)
    };
    ensure!(
        flags.lr_floor.is_none() || schedule.shape != Shape::Constant,
        "{}",
        unused("--lr-floor", "linear, cosine and wsd")
    );
    ensure!(flags.lr_decay_steps.is_none() || schedule.shape == Shape::Wsd, "{}", unused("--lr-decay-steps", "wsd"));
    Ok(config)
}

/// The method; a checkpoint's state belongs to the optimizer that wrote it.
fn method_of(arguments: &Arguments, before: &Resumed) -> anyhow::Result<Method> {
    let flags = &arguments.training;
    let resumed = arguments.model.resume.is_some().then(|| before.optimizer.as_deref().unwrap_or(Method::AdamW.name()));
    let asked = flags.optimizer.as_deref();
    if let (Some(asked), Some(noted)) = (asked, resumed) {
        ensure!(
            asked == noted,
            "--optimizer {asked} cannot continue from a state of {noted}\n  help: --init-from starts a new run from the weights"
        );
    }
    let method: Method = asked.or(resumed).unwrap_or(Method::AdamW.name()).parse().map_err(anyhow::Error::msg)?;
    let Some(usual) = method.momentum() else {
        ensure!(
            flags.momentum.is_none(),
            "--momentum has no effect with --optimizer adamw\n  help: adamw takes --betas"
        );
        return Ok(method);
    };
    for (given, flag) in [(flags.betas.is_some(), "--betas"), (flags.eps.is_some(), "--eps")] {
        ensure!(
            !given || matches!(method, Method::Muon { .. }),
            "{flag} has no effect with --optimizer {method}\n  help: use it with adamw and muon"
        );
    }
    let momentum = flags.momentum.or(before.momentum).unwrap_or(usual);
    ensure!((0.0..1.0).contains(&momentum), "--momentum is {momentum}\n  help: a share from 0 to below 1");
    ensure!(
        momentum > 0.0 || before.momentum.is_none_or(|before| before == 0.0),
        "--momentum 0 drops the state of a run with momentum {}\n  help: --init-from starts a new run from the weights",
        before.momentum.unwrap_or_default()
    );
    ensure!(
        momentum == 0.0 || before.momentum != Some(0.0),
        "--momentum {momentum} has no state to continue from: the resumed run had none\n  help: --init-from starts a new run from \
         the weights"
    );
    Ok(method.with_momentum(momentum))
}

fn decays_of(asked: Decay) -> Decays {
    match asked {
        Decay::All => Decays::All,
        Decay::Matrices => Decays::Matrices,
    }
}

fn shape_of(asked: LearningRateSchedule) -> Shape {
    match asked {
        LearningRateSchedule::Constant => Shape::Constant,
        LearningRateSchedule::Linear => Shape::Linear,
        LearningRateSchedule::Cosine => Shape::Cosine,
        LearningRateSchedule::Wsd => Shape::Wsd,
    }
}
