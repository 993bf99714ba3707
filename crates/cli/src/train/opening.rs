//! The opening of a run, printed before the first step: configuration, parameters by part, and planned memory.

use super::estimate::Estimate;
use super::plan::{Planned, memory_line};
use super::settings::Settings;
use headroom_engine::DeviceSpec;
use headroom_engine::cpu::isa::Isa;
use headroom_report::training::{self as text, Opening};
use headroom_training::optimizer::OptimizerConfig;
use headroom_training::program::kernels;
use headroom_training::schedule::Shape;

/// The first line if nobody chose the passes.
pub const DEFAULT_PASSES: &str =
    "Version 2 (the default, --passes v2); --passes v1 runs Version 1, the original course's baseline";

/// Describes the run. `ranks` is the line about its ranks, if there are several.
pub fn describe(settings: &Settings, planned: &Planned, estimate: Option<&Estimate>, ranks: Option<String>) -> String {
    let count = settings.model.parameters();
    let parameters = [
        ("embedding", count.embedding),
        ("attention", count.attention),
        ("feed-forward", count.feed_forward),
        ("norms", count.norms),
        ("head", count.head),
        ("biases", count.biases),
    ];
    let kernels = kernels(&planned.training.program).map(|(phase, count)| format!("{count} {phase}")).join(", ");
    let mut lines = vec![
        ("model", model_line(settings)),
        ("batch", batch_line(settings)),
        ("steps", steps_line(settings, planned)),
        ("data", data_line(settings)),
        ("kernels", format!("{kernels} per step{}", recomputed(settings, planned))),
        ("device", device_line(settings)),
        ("memory", memory_line(&planned.need)),
    ];
    if let Some(estimate) = estimate {
        lines.push(("time", estimate.line(settings.last_step - settings.first_step)));
    }
    if let Some(ranks) = ranks {
        lines.push(("ranks", ranks));
    }
    if let Some(evaluation) = &settings.evaluation_line {
        let after_data = 1 + lines.iter().position(|(name, _)| *name == "data").unwrap_or(0);
        lines.insert(after_data, ("evaluation", evaluation.clone()));
    }
    text::opening(&Opening {
        family: settings.model.family.title,
        size: &settings.size,
        version: &settings.label(),
        parameters: &parameters,
        lines: &lines,
    })
}

fn recomputed(settings: &Settings, planned: &Planned) -> String {
    match planned.recomputed_layers {
        0 => String::new(),
        layers => format!(", activations of {layers} of {} layers recomputed", settings.model.n_layers),
    }
}

fn model_line(settings: &Settings) -> String {
    let model = &settings.model;
    let tied = if model.tied { ", tied" } else { "" };
    let children: Vec<String> = model.branching.iter().map(usize::to_string).collect();
    let blocks = match (model.family.parents)(model).len() {
        0 => format!("{} layers", model.n_layers),
        nodes => format!("{nodes} nodes ({})", children.join("-")),
    };
    format!(
        "hidden {}, {}, {} heads of {}, {} key-value, feed-forward {}, vocabulary {}{tied}",
        model.hidden_dim,
        blocks,
        model.n_heads,
        model.head_dim,
        model.n_kv_heads,
        model.intermediate_dim,
        model.vocab_size
    )
}

fn batch_line(settings: &Settings) -> String {
    let accumulated = match settings.optimizer.accumulation {
        1 => String::new(),
        steps => format!(", {steps} of them per step"),
    };
    let on_ranks = match settings.ranks {
        1 => String::new(),
        ranks => format!(" on each of {ranks} ranks: {} sequences per step", settings.samples_per_step()),
    };
    format!("{} × {} tokens{accumulated}{on_ranks}", settings.shape.batch_size, settings.shape.seq_len)
}

fn steps_line(settings: &Settings, planned: &Planned) -> String {
    let optimizer = &settings.optimizer;
    let mut line = match settings.first_step {
        0 => format!("{}", settings.last_step),
        first => format!("{} to {}", first + 1, settings.last_step),
    };
    line += &format!(", learning rate {}", optimizer.learning_rate);
    let schedule = &optimizer.schedule;
    line += match schedule.shape {
        Shape::Constant => "",
        Shape::Linear => " falling linearly",
        Shape::Cosine => " falling as a cosine",
        Shape::Wsd => " falling at the end",
    };
    if schedule.floor > 0.0 {
        line += &format!(" to {} of that", schedule.floor);
    }
    if schedule.warmup_steps > 0 {
        line += &format!(" after {} steps of warm-up", schedule.warmup_steps);
    }
    line += &format!(", weight decay {}", optimizer.weight_decay);
    let house = OptimizerConfig::default();
    if (optimizer.betas, optimizer.eps) != (house.betas, house.eps) {
        line += &format!(", betas {} and {}, eps {}", optimizer.betas[0], optimizer.betas[1], optimizer.eps);
    }
    if optimizer.clip > 0.0 {
        line += &format!(", gradients clipped to {}", optimizer.clip);
    }
    if planned.training.choice.is_some() {
        line += &format!(", update {} of {} nodes", optimizer.update, planned.training.tree().choices());
    }
    line
}

fn data_line(settings: &Settings) -> String {
    match settings.floor_nats {
        Some(floor) => {
            format!("{}; its entropy, {floor:.4} nats, is the lowest possible loss", settings.data_description)
        }
        None => settings.data_description.clone(),
    }
}

fn device_line(settings: &Settings) -> String {
    match settings.device {
        DeviceSpec::Cpu => {
            format!("cpu, {} threads, {}: {}", settings.threads, Isa::detect(), settings.machine.cpu_name)
        }
        DeviceSpec::Cuda(ordinal) => match &settings.gpu {
            Some(gpu) => format!("cuda:{ordinal}, {}: {}", gpu.driver_version, gpu.name),
            None => format!("cuda:{ordinal}"),
        },
        DeviceSpec::Null => "null: nothing is computed, times are predicted".into(),
    }
}
