//! Selective steps on a device: choosing everything equals a dense step bit for bit, choices equal the CPU's, and nodes
//! that were never chosen have not moved.

use super::{Check, ExactnessError, Open, plain_adamw, run_error, source_of};
use headroom_engine::cpu::isa::Isa;
use headroom_engine::cpu::{Cpu, Reductions};
use headroom_engine::{Device, EngineError, Program, Target};
use headroom_graph::Precision;
use headroom_graph::passes::PassList;
use headroom_training::attribution::{Start, moved};
use headroom_training::data::{Batch, BatchShape};
use headroom_training::models::{ModelConfig, Size, tree};
use headroom_training::optimizer::{OptimizerConfig, Update};
use headroom_training::program::{Keep, StepConfig};
use headroom_training::trainer::{EndsStep, Trainer};

const SEED: u64 = 42;

/// Results of some steps.
struct Taken {
    losses: Vec<u32>,
    /// Share of each leaf, by step; empty for dense steps.
    shares: Vec<Vec<f32>>,
    /// Nodes that moved without an update, or were updated without moving.
    wrong: usize,
}

/// With no pass and with all, in every precision: a LLaMA, and a tree of such blocks.
pub fn selective(open: &Open, size: &str, steps: usize) -> Result<Vec<Check>, ExactnessError> {
    let size = Size::named(size).ok_or_else(|| run_error(size, "there is no such size"))?;
    let tree = tree::branched(size.model_of(&tree::FAMILY), &[2, 3]);
    let mut checks = selective_of(open, size, &size.model(), steps)?;
    checks.extend(selective_of(open, size, &tree, steps)?);
    Ok(checks)
}

fn selective_of(open: &Open, size: &Size, model: &ModelConfig, steps: usize) -> Result<Vec<Check>, ExactnessError> {
    let shape = BatchShape { batch_size: size.batch_size, seq_len: size.seq_len };
    let on_cpu = |programs: &[Program]| -> Result<Box<dyn Device>, EngineError> {
        Ok(Box::new(Cpu::new(2, Isa::detect(), Reductions::Fixed, programs)?))
    };
    let config = |update: &str, passes: &PassList, precision: Precision, target: Target| {
        let update = match update.parse() {
            Ok(Update::Chosen { rule, .. }) => Update::Chosen { rule, seed: SEED },
            _ => Update::Dense,
        };
        let optimizer = OptimizerConfig { update, ..plain_adamw() };
        let (model, passes) = (model.clone(), passes.clone());
        StepConfig { model, shape, optimizer, passes, recomputed_layers: 0, precision, target }
    };
    let mut checks = vec![];
    for passes in [PassList::none(), PassList::all()] {
        for precision in Precision::ALL {
            let what = format!("{} {} {precision} {}", model.family.title, size.name, passes.label());
            let dense = taken(open, &config("dense", &passes, precision, Target::Cuda), steps)?;
            let all = taken(open, &config("topk:all", &passes, precision, Target::Cuda), steps)?;
            let apart = dense.losses.iter().zip(&all.losses).filter(|(a, b)| a != b).count();
            checks.push(exact(format!("{what}: topk:all gives the same bytes as dense"), apart));
            for (rule, tolerance) in [("topk:3", 0.05), ("path", 0.05), ("random:3", 0.0)] {
                let have = taken(open, &config(rule, &passes, precision, Target::Cuda), steps)?;
                checks.push(exact(format!("{what}: {rule} changes only the nodes it updates"), have.wrong));
                if precision == Precision::Fp32 {
                    let want = taken(&on_cpu, &config(rule, &passes, precision, Target::Cpu), steps)?;
                    let pairs = want.shares.concat().into_iter().zip(have.shares.concat());
                    let others = pairs.filter(|(want, have)| want != have).count() as f64;
                    // Nodes with almost equal norms may swap places.
                    let difference = others / want.shares.concat().len().max(1) as f64;
                    checks.push(Check {
                        what: format!("{what}: {rule} chooses the same nodes as the CPU"),
                        difference,
                        tolerance,
                    });
                }
            }
        }
    }
    Ok(checks)
}

fn exact(what: String, wrong: usize) -> Check {
    Check { what, difference: wrong as f64, tolerance: 0.0 }
}

fn taken(open: &Open, config: &StepConfig, steps: usize) -> Result<Taken, ExactnessError> {
    let source = source_of(config)?;
    let mut batch = Batch::new(config.shape);
    let mut trainer: Trainer = super::trainer(open, config, Keep::OnlyTheLoss)?;
    let run = |error: String| run_error(&config.passes.label(), &error);
    for step in 0..steps {
        source.fill(step as u64 % 4, &mut batch)?;
        let ends_step = EndsStep::Yes { last: steps as u64 };
        trainer.submit(&batch, ends_step).map_err(|error| run(error.to_string()))?;
    }
    let mut finished = vec![];
    trainer.collect(&mut finished)?;
    let losses = finished.iter().map(|one| one.results[0].to_bits()).collect();
    trainer.read_choices();
    let distances = moved(&mut trainer, Start::Drawn(SEED)).map_err(|error| run(error.to_string()))?;
    if let Some(error) = trainer.device.failure() {
        return Err(run(error.to_string()));
    }
    let Some(choices) = &trainer.choices else { return Ok(Taken { losses, shares: vec![], wrong: 0 }) };
    let record = choices.attribution_record(String::new(), SEED, &distances);
    let pairs = record.updates.iter().zip(&record.moved);
    let wrong = pairs.filter(|(updates, moved)| (**updates > 0) != (**moved > Some(0.0))).count();
    Ok(Taken { losses, shares: choices.kept().iter().map(|step| step.shares.clone()).collect(), wrong })
}
