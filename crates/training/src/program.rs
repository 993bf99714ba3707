//! The training step and the evaluation as programs: graph, plan, and the values that the host reads and writes.

use crate::config::ModelConfig;
use crate::data::BatchShape;
use crate::llama::{Forward, forward};
use crate::optimizer::{Optimizer, OptimizerConfig, optimize};
use headroom_engine::Program;
use headroom_graph::pass::{Applied, DROP_UNUSED, Pass, apply};
use headroom_graph::{Graph, GraphError, Phase, Plan, TensorType, ValueId, differentiate};

/// One optimizer step: forward and backward (run once a micro-batch), then the update.
pub struct TrainingProgram {
    pub program: Program,
    pub forward: Forward,
    /// [1]: the gradient of the loss, one over the micro-batches of a step.
    pub loss_gradient: ValueId,
    pub optimizer: Optimizer,
    pub shape: BatchShape,
    pub passes: Vec<Applied>,
}

pub struct EvaluationProgram {
    pub program: Program,
    pub forward: Forward,
    pub shape: BatchShape,
}

/// Values that a step would let go of, kept to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    OnlyTheLoss,
    /// Also `logits` and `grad.<parameter>`.
    LogitsAndGradients,
}

pub fn training_program(
    config: &ModelConfig,
    shape: BatchShape,
    optimizer: &OptimizerConfig,
    keep: Keep,
) -> Result<TrainingProgram, GraphError> {
    let mut graph = Graph::new();
    let forward = forward(&mut graph, config, shape.batch_size, shape.seq_len)?;
    let loss_gradient = graph.input("loss_gradient", TensorType::f32(&[1]));
    let parameters = graph.parameters();
    let gradients = differentiate(&mut graph, forward.loss, loss_gradient, &parameters)?;
    let optimizer = optimize(&mut graph, optimizer, &parameters, &gradients)?;
    graph.output("loss", forward.loss);
    if let Some(norm) = optimizer.norm {
        graph.output("gradient_norm", norm);
    }
    if keep == Keep::LogitsAndGradients {
        graph.output("logits", forward.logits);
        for (parameter, gradient) in parameters.iter().zip(&gradients) {
            let name = format!("grad.{}", graph.get(*parameter).name);
            graph.output(&name, *gradient);
        }
    }
    let (graph, passes) = rewritten(graph, &[])?;
    let program = Program::new(graph);
    Ok(TrainingProgram { program, forward, loss_gradient, optimizer, shape, passes })
}

/// `training` is the program that it shares weights and arena with.
pub fn evaluation_program(
    config: &ModelConfig,
    shape: BatchShape,
    training: &Program,
) -> Result<EvaluationProgram, GraphError> {
    let mut graph = Graph::new();
    let forward = forward(&mut graph, config, shape.batch_size, shape.seq_len)?;
    graph.output("loss", forward.loss);
    graph.validate("building")?;
    let plan = Plan::after_kept(&graph, training.plan.kept_bytes);
    for id in graph.value_ids().filter(|id| graph.get(*id).source.is_kept()) {
        let name = &graph.get(id).name;
        let twin = training.graph.named(name).and_then(|twin| training.plan.buffer(twin));
        if twin.map(|twin| twin.offset) != plan.buffer(id).map(|own| own.offset) {
            let what = format!("{name} does not lie where training keeps it");
            return Err(GraphError::Invalid { after: "evaluation".into(), what });
        }
    }
    Ok(EvaluationProgram { program: Program { graph, plan }, forward, shape })
}

/// Validates, applies the passes, and refuses a rewriting that would move the values that the host holds on to.
fn rewritten(graph: Graph, passes: &[Pass]) -> Result<(Graph, Vec<Applied>), GraphError> {
    graph.validate("building")?;
    debug_assert!(graph.nodes().is_sorted_by_key(|node| node.phase), "phases follow each other");
    let (cleaned, _) = apply(graph.clone(), &[DROP_UNUSED])?;
    if cleaned.nodes().len() != graph.nodes().len() {
        let what = format!("{} nodes are used by nothing", graph.nodes().len() - cleaned.nodes().len());
        return Err(GraphError::Invalid { after: "building".into(), what });
    }
    apply(graph, passes)
}

/// Kernels that one step runs, by phase.
pub fn kernels(program: &Program) -> [(Phase, usize); 3] {
    Phase::ALL.map(|phase| (phase, program.plan.phase(phase).len()))
}
