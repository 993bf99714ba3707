//! The training step and the evaluation as programs: graph, plan, and the values that the host reads and writes.

use crate::data::BatchShape;
use crate::models::{self, ModelConfig};
use crate::optimizer::{CHOICE_AT, CHOICE_COUNTS, CHOICE_LOG, CHOICE_TREE, Norm, OptimizerConfig, Trained, optimize};
use crate::tree::Tree;
use headroom_engine::{Program, Target, Walk};
use headroom_graph::ops::quantize::Scaling;
use headroom_graph::pass::{Applied, Pass, apply};
use headroom_graph::passes::fuse_loss::LOSS_GRADIENT;
use headroom_graph::passes::parallel::{DATA_PARALLEL, OWN_INPUTS, parallel};
use headroom_graph::passes::{OFFERED, PassList, checkpoint, fp8};
use headroom_graph::spread::spread;
use headroom_graph::storage::stored;
use headroom_graph::{Among, Graph, GraphError, Phase, Plan, Precision, TensorType, ValueId, differentiate};

/// Configuration of a step: what it computes and how.
#[derive(Clone, Debug)]
pub struct StepConfig {
    pub model: ModelConfig,
    pub shape: BatchShape,
    pub optimizer: OptimizerConfig,
    pub passes: PassList,
    /// Number of layers, from the first on, whose activations are recomputed in the backward pass.
    pub recomputed_layers: usize,
    /// Precision of the matrix products.
    pub precision: Precision,
    pub target: Target,
}

/// One optimizer step: forward and backward (run once per micro-batch), then the update.
pub struct TrainingProgram {
    pub program: Program,
    pub forward: Forward,
    /// `[1]`: the gradient of the loss, which is one over the number of micro-batches per step on all ranks.
    pub loss_gradient: ValueId,
    /// `[3]`, written before every update.
    pub rates: ValueId,
    pub trained: Vec<Trained>,
    /// `[1]`, if gradients are clipped or their norm is requested.
    pub gradient_norm: Option<ValueId>,
    /// Set if a step updates only the nodes it chooses.
    pub choice: Option<ChoiceValues>,
    pub shape: BatchShape,
    pub passes: Vec<Applied>,
    /// Ranks that take the step together, each with its own batch.
    pub ranks: usize,
    /// The parent of each block, if blocks are nodes of a tree.
    parents: Vec<Option<usize>>,
}

impl TrainingProgram {
    /// The parameters as parts of the model's tree.
    pub fn tree(&self) -> Tree {
        let graph = &self.program.graph;
        let leaf = |one: &Trained| (&*graph.get(one.parameter).part.path, graph.ty(one.parameter).elements());
        Tree::of(self.trained.iter().map(leaf), self.parents.clone())
    }
}

/// Values of the node choice that the host writes and reads.
#[derive(Clone, Copy, Debug)]
pub struct ChoiceValues {
    /// `i32[2]`: the log's row and the step, written before every update.
    pub at: ValueId,
    /// `i32[leaves, 3]`, written once.
    pub tree: ValueId,
    /// `[leaves]`: number of updates of each leaf.
    pub counts: ValueId,
    /// `[rows, 2 · leaves]`: the shares of a step, then the squared norms.
    pub log: ValueId,
}

impl ChoiceValues {
    fn find(graph: &Graph) -> Option<ChoiceValues> {
        Some(ChoiceValues {
            at: graph.named(CHOICE_AT)?,
            tree: graph.named(CHOICE_TREE)?,
            counts: graph.named(CHOICE_COUNTS)?,
            log: graph.named(CHOICE_LOG)?,
        })
    }
}

pub struct EvaluationProgram {
    pub program: Program,
    pub forward: Forward,
    pub shape: BatchShape,
}

/// The values of a forward pass that the host uses.
#[derive(Clone, Copy, Debug)]
pub struct Forward {
    pub input_ids: ValueId,
    pub targets: ValueId,
    pub loss: ValueId,
}

/// Values that a step would free, kept for inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    OnlyTheLoss,
    /// Also the norm of all gradients, clipped or not.
    GradientNorm,
    /// Also `grad.<parameter>`.
    Gradients,
    /// Also `logits`, which `fuse-loss` then leaves alone.
    LogitsAndGradients,
}

pub fn training_program(config: &StepConfig, keep: Keep) -> Result<TrainingProgram, GraphError> {
    training_program_and(config, keep, &[])
}

/// The same with the caller's own passes on the whole step, after the chosen ones.
pub fn training_program_and(config: &StepConfig, keep: Keep, own: &[Pass]) -> Result<TrainingProgram, GraphError> {
    let mut graph = Graph::new();
    let logits = models::forward(&mut graph, &config.model, config.shape.batch_size, config.shape.seq_len)?.logits;
    graph.input(LOSS_GRADIENT, TensorType::f32(&[1]));
    if keep == Keep::LogitsAndGradients {
        graph.output("logits", logits);
    }
    graph.validate("building")?;
    let (mut graph, mut passes) = apply(graph, &config.passes.on_forward())?;

    let parameters = graph.parameters();
    let from = [(output(&graph, "loss")?, named(&graph, LOSS_GRADIENT)?)];
    let gradients = differentiate(&mut graph, &from, &parameters)?;
    if matches!(keep, Keep::Gradients | Keep::LogitsAndGradients) {
        for (parameter, gradient) in parameters.iter().zip(&gradients) {
            let name = format!("grad.{}", graph.get(*parameter).name);
            graph.output(&name, *gradient);
        }
    }
    let norm = if keep == Keep::GradientNorm { Norm::Always } else { Norm::WhereClipped };
    let parents = (config.model.family.parents)(&config.model);
    let units = if parents.is_empty() { Among::Parameters } else { Among::Blocks };
    if let Some(norm) = optimize(&mut graph, &config.optimizer, &parameters, &gradients, units, norm)? {
        graph.output("gradient_norm", norm);
    }
    graph.validate("differentiating")?;
    let among = config.passes.parallel();
    if let Some(among) = &among {
        let nodes_before = graph.nodes().len();
        graph = parallel(&graph, among)?;
        graph.validate(DATA_PARALLEL)?;
        passes.push(Applied { name: DATA_PARALLEL, nodes_before, nodes_after: graph.nodes().len() });
    }
    let (mut graph, later) = apply(graph, &config.passes.on_step())?;
    passes.extend(later);
    if config.recomputed_layers > 0 {
        graph = checkpoint(&graph, config.recomputed_layers)?;
        graph.validate("checkpoint")?;
    }
    if config.precision.is_fp8() {
        let (rounded, applied) = apply(graph, &[Pass { name: "fp8", rewrite: in_eight_bits }])?;
        graph = rounded;
        passes.extend(applied);
    }
    let (graph, later) = apply(graph, own)?;
    passes.extend(later);

    let graph = stored(&graph, |value| config.target.kept(config.precision, value))?;
    graph.validate("storage")?;
    if among.is_some() {
        // No pass after the first may have made an update depend on values that differ between ranks.
        spread(&graph, &OWN_INPUTS, "the last pass")?;
    }
    let trained = graph.parameters().into_iter().map(|parameter| Trained::find(&graph, parameter)).collect();
    Ok(TrainingProgram {
        forward: Forward::find(&graph)?,
        loss_gradient: named(&graph, LOSS_GRADIENT)?,
        rates: named(&graph, "rates")?,
        trained,
        gradient_norm: graph.output_named("gradient_norm"),
        choice: ChoiceValues::find(&graph),
        shape: config.shape,
        passes,
        ranks: among.map_or(1, |among| among.ranks),
        parents,
        program: Program {
            walk: Walk::of(&config.passes),
            ..Program::made_for(config.target, config.precision, graph)
        },
    })
}

/// The evaluation shares weights and arena with the program `training`.
pub fn evaluation_program(
    config: &StepConfig,
    shape: BatchShape,
    training: &Program,
) -> Result<EvaluationProgram, GraphError> {
    let graph = forward_graph(config, shape)?;
    let plan = Plan::laid_out(&graph, config.target.layout(), training.plan.kept_bytes);
    for id in graph.value_ids().filter(|id| graph.get(*id).source.is_kept()) {
        let name = &graph.get(id).name;
        let twin = training.graph.named(name).and_then(|twin| training.plan.buffer(twin));
        if twin.map(|twin| twin.offset) != plan.buffer(id).map(|own| own.offset) {
            let what = format!("{name} is not where training keeps it");
            return Err(GraphError::Invalid { after: "evaluation".into(), what });
        }
    }
    let program =
        Program { graph, plan, precision: config.precision, target: config.target, walk: Walk::of(&config.passes) };
    Ok(EvaluationProgram { forward: Forward::find(&program.graph)?, program, shape })
}

/// Only the forward pass, for a model that is not trained.
pub fn forward_program(config: &StepConfig, shape: BatchShape) -> Result<EvaluationProgram, GraphError> {
    let graph = forward_graph(config, shape)?;
    let program =
        Program { walk: Walk::of(&config.passes), ..Program::made_for(config.target, config.precision, graph) };
    Ok(EvaluationProgram { forward: Forward::find(&program.graph)?, program, shape })
}

fn forward_graph(config: &StepConfig, shape: BatchShape) -> Result<Graph, GraphError> {
    let mut graph = Graph::new();
    models::forward(&mut graph, &config.model, shape.batch_size, shape.seq_len)?;
    graph.validate("building")?;
    let (mut graph, _) = apply(graph, &config.passes.on_forward())?;
    if config.precision.is_fp8() {
        graph = fp8::rewrite(&graph, Scaling::Current)?;
        graph.validate("fp8")?;
    }
    stored(&graph, |value| config.target.kept(config.precision, value))
}

/// Passes that change something in this model. Passes on the whole step and on its execution always count.
pub fn passes_that_apply(model: &ModelConfig) -> Result<Vec<&'static str>, GraphError> {
    let block = ModelConfig { n_layers: 1, ..model.clone() };
    let nodes = |list: &PassList| -> Result<usize, GraphError> {
        let mut graph = Graph::new();
        models::forward(&mut graph, &block, 1, 1)?;
        Ok(apply(graph, &list.on_forward())?.0.nodes().len())
    };
    let mut found = vec![];
    for pass in OFFERED {
        let needed = pass.needs.iter().fold(PassList::none(), |list, name| list.with(name));
        if !pass.changes_forward() || nodes(&needed.with(pass.name))? < nodes(&needed)? {
            found.push(pass.name);
        }
    }
    Ok(found)
}

fn in_eight_bits(graph: &Graph) -> Result<Graph, GraphError> {
    fp8::rewrite(graph, Scaling::Delayed)
}

/// Kernels that one step needs, by phase, without instrumentation.
pub fn kernels(program: &Program) -> [(Phase, usize); 3] {
    let needed = |phase: &Phase| {
        program.plan.calls[program.plan.phase(*phase)].iter().filter(|call| !program.is_instrumentation(call)).count()
    };
    Phase::ALL.map(|phase| (phase, needed(&phase)))
}

impl Forward {
    fn find(graph: &Graph) -> Result<Forward, GraphError> {
        Ok(Forward {
            input_ids: named(graph, "input_ids")?,
            targets: named(graph, "targets")?,
            loss: output(graph, "loss")?,
        })
    }
}

fn named(graph: &Graph, name: &str) -> Result<ValueId, GraphError> {
    graph.named(name).ok_or_else(|| missing(name))
}

fn output(graph: &Graph, name: &str) -> Result<ValueId, GraphError> {
    graph.output_named(name).ok_or_else(|| missing(name))
}

fn missing(name: &str) -> GraphError {
    GraphError::Invalid { after: "building".into(), what: format!("{name} is missing") }
}
