//! Checks a device: every kernel against the slow double-precision reference, whole steps of a model against the CPU in
//! single precision, and two runs for identical bytes.

mod selective;

pub use selective::selective;

use headroom_engine::cpu::isa::Isa;
use headroom_engine::cpu::{Cpu, Reductions};
use headroom_engine::examples;
use headroom_engine::reference::{self, Tensor};
use headroom_engine::{Device, EngineError, Program, Target};
use headroom_graph::fp8::Format;
use headroom_graph::op::{Example, Fill};
use headroom_graph::ops::choose::SHARED;
use headroom_graph::ops::flash_attention::{FlashAttention, FlashAttentionGrad, Rotation};
use headroom_graph::passes::{OFFERED, PassList, fp8};
use headroom_graph::{Category, DType, Graph, GraphError, Op, Precision, TensorType, ValueId};
use headroom_training::data::{Batch, BatchShape, DataError, DataSpec, Source, SourceSettings};
use headroom_training::models::{ModelConfig, Size};
use headroom_training::optimizer::OptimizerConfig;
use headroom_training::program::{Keep, StepConfig, training_program};
use headroom_training::trainer::{EndsStep, Trainer};
use thiserror::Error;

/// One comparison with an expected result.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    pub what: String,
    /// Relative difference, in norm.
    pub difference: f64,
    pub tolerance: f64,
}

impl Check {
    pub fn holds(&self) -> bool {
        self.difference <= self.tolerance
    }
}

#[derive(Debug, Error)]
pub enum ExactnessError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Graph(#[from] GraphError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error("{what}: {error}")]
    Run { what: String, error: String },
}

/// Opens a device with these programs loaded.
pub type Open<'a> = dyn Fn(&[Program]) -> Result<Box<dyn Device>, EngineError> + 'a;

/// Every op's examples, in single and in half precision.
pub fn kernels(open: &Open) -> Result<Vec<Check>, ExactnessError> {
    let mut checks = vec![];
    for example in Op::examples() {
        if matches!(example.op, Op::Quantize(_) | Op::Fp8Product(_)) {
            // A GPU has these ops only in eight bits. Every code must equal the reference's, except where the last bits
            // of a SwiGLU decide between two neighbours.
            for inputs in in_eight_bits(&example) {
                checks.push(kernel(open, &Example { inputs, ..example.clone() }, Precision::Fp8, 5e-3)?);
            }
            continue;
        }
        checks.push(kernel(open, &example, Precision::Fp32, 1e-5)?);
        let half = Example { inputs: in_half(&example), ..example.clone() };
        if half.inputs != example.inputs {
            checks.push(kernel(open, &half, Precision::Bf16, 1e-2)?);
        }
        if example.op.is_product() {
            checks.push(kernel(open, &example, Precision::Tf32, 3e-3)?);
        }
    }
    const SHAPES: [[usize; 5]; 5] =
        [[2, 256, 2, 1, 64], [1, 256, 2, 2, 128], [1, 333, 2, 1, 128], [1, 200, 2, 1, 96], [2, 130, 3, 1, 48]];
    for example in attention_examples(&SHAPES) {
        let half = Example { inputs: in_half(&example), ..example.clone() };
        checks.push(kernel(open, &half, Precision::Bf16, 1e-2)?);
    }
    Ok(checks)
}

/// Gradients of attention over sequences long enough that a device with relaxed summation order uses it.
pub fn in_any_order(open: &Open) -> Result<Vec<Check>, ExactnessError> {
    const SHAPES: [[usize; 5]; 2] = [[1, 2048, 1, 1, 64], [1, 2100, 2, 1, 128]];
    let gradients =
        attention_examples(&SHAPES).into_iter().filter(|example| matches!(example.op, Op::FlashAttentionGrad(_)));
    gradients
        .map(|example| kernel(open, &Example { inputs: in_half(&example), ..example.clone() }, Precision::Bf16, 1e-2))
        .collect()
}

/// Head sizes and lengths that tensor-core kernels exist for, in addition to the ops' own examples: every tile size,
/// ends within a tile, shared heads. Shapes are batch, sequence, heads, key-value heads, head size.
fn attention_examples(shapes: &[[usize; 5]]) -> Vec<Example> {
    let normal = |rows: usize, columns: usize| (TensorType::f32(&[rows, columns]), Fill::Normal);
    let mut examples = vec![];
    for &[batch, seq, heads, kv_heads, head_dim] in shapes {
        let rotation = if seq % 128 == 0 { Rotation::Before } else { Rotation::Inside };
        let (q, k) = (normal(batch * seq, heads * head_dim), normal(batch * seq, kv_heads * head_dim));
        let tables = match rotation {
            Rotation::Before => vec![],
            Rotation::Inside => vec![normal(seq, head_dim / 2); 2],
        };
        let lse = (TensorType::f32(&[batch, heads, seq]), Fill::Constant(4.0));
        let forward = FlashAttention { heads, kv_heads, seq, scale: 0.1, rotation };
        let backward = FlashAttentionGrad { heads, kv_heads, seq, scale: 0.05, rotation };
        let inputs = [vec![q.clone(), k.clone(), k.clone()], tables.clone()].concat();
        examples.push(Example { op: forward.into(), inputs });
        let inputs = [vec![q.clone(), k.clone(), k, q.clone(), lse, q], tables].concat();
        examples.push(Example { op: backward.into(), inputs });
    }
    examples
}

/// The inputs that a step stores in half precision: matrices, but not tables, statistics or moments.
fn in_half(example: &Example) -> Vec<(TensorType, Fill)> {
    let single = |index: usize| match example.op {
        Op::Rope(_) => index > 0,
        Op::FlashAttention(_) => index >= 3,
        Op::FlashAttentionGrad(_) => index == 4 || index >= 6,
        Op::Accumulate(_) => index == 0,
        Op::AdamW(_) => index != 3,
        Op::AdamWAll(_) => !index.is_multiple_of(4) || index == 0,
        Op::AdamWChosen(_) => index < SHARED || (index - SHARED) % 4 != 3,
        Op::AllReduce(_)
        | Op::ReduceScatter(_)
        | Op::AllGather(_)
        | Op::Arrive(_)
        | Op::ClipScale(_)
        | Op::Choose(_)
        | Op::Zero(_)
        | Op::UpdateScales(_) => true,
        _ => false,
    };
    let change = |(index, (ty, fill)): (usize, &(TensorType, Fill))| {
        let matrix = ty.dtype == DType::F32 && ty.sizes().len() > 1;
        let dtype = if matrix && !single(index) { DType::Bf16 } else { ty.dtype };
        (TensorType { dtype, shape: ty.shape.clone() }, *fill)
    };
    example.inputs.iter().enumerate().map(change).collect()
}

/// The inputs of a quantization in half precision; those of a product in eight bits, with both formats on the left.
fn in_eight_bits(example: &Example) -> Vec<Vec<(TensorType, headroom_graph::op::Fill)>> {
    let with = |dtypes: [DType; 2]| {
        let change = |(index, (ty, fill)): (usize, &(TensorType, headroom_graph::op::Fill))| {
            let dtype = if ty.sizes().len() > 1 { dtypes[index.min(1)] } else { ty.dtype };
            (TensorType { dtype, shape: ty.shape.clone() }, *fill)
        };
        example.inputs.iter().enumerate().map(change).collect()
    };
    match example.op {
        Op::Fp8Product(_) => vec![with([DType::E4m3; 2]), with([DType::E5m2, DType::E4m3])],
        _ => vec![with([DType::Bf16; 2])],
    }
}

fn kernel(open: &Open, example: &Example, precision: Precision, tolerance: f64) -> Result<Check, ExactnessError> {
    let mut inputs = examples::inputs(example);
    for input in inputs.iter_mut().filter(|input| input.ty.dtype == DType::Bf16) {
        input.data.iter_mut().for_each(|x| *x = rounded_to_half(*x));
    }
    for input in &mut inputs {
        if let Some(format) = Format::of(input.ty.dtype) {
            input.data.iter_mut().for_each(|x| *x = f64::from(format.round(*x as f32)));
        }
    }
    let have = run_alone(open, example, &inputs, precision)?;
    let types: Vec<_> = inputs.iter().map(|input| input.ty.clone()).collect();
    let shapes = example
        .op
        .outputs(&types)
        .map_err(|error| ExactnessError::Run { what: example.op.name().into(), error: error.to_string() })?;
    let mut outputs: Vec<Tensor> = shapes.iter().map(Tensor::zeros).collect();
    reference::run(&example.op, &mut inputs, &mut outputs);
    let updated = example.op.updates().into_iter().map(|index| inputs[index].clone());
    let want: Vec<Tensor> = outputs.into_iter().chain(updated).collect();
    let differences = want.iter().zip(&have).map(|(want, have)| relative(&want.data, have));
    let sizes: Vec<String> = types.iter().map(|ty| ty.to_string()).collect();
    let mut shown = sizes.join(" ");
    if shown.len() > 60 {
        shown.truncate(57);
        shown.push_str("...");
    }
    let what = format!("{} {precision} {shown}", example.op.name());
    Ok(Check { what, difference: differences.fold(0.0, larger), tolerance })
}

/// Returns the outputs, then the inputs that were updated in place.
fn run_alone(
    open: &Open,
    example: &Example,
    inputs: &[Tensor],
    precision: Precision,
) -> Result<Vec<Vec<f32>>, ExactnessError> {
    let mut graph = Graph::new();
    let values: Vec<ValueId> = inputs
        .iter()
        .enumerate()
        .map(|(index, input)| match example.op.updates().contains(&index) {
            true => graph.state(&format!("kept{index}"), input.ty.clone(), Category::OptimizerState),
            false => graph.input(&format!("input{index}"), input.ty.clone()),
        })
        .collect();
    let mut results = graph.add(example.op, &values)?;
    for (index, &result) in results.iter().enumerate() {
        graph.output(&format!("output{index}"), result);
    }
    results.extend(example.op.updates().into_iter().map(|index| values[index]));
    let program = Program::made_for(Target::Cuda, precision, graph);
    let sizes: Vec<usize> = results.iter().map(|id| program.graph.ty(*id).elements()).collect();
    let calls = 0..program.plan.calls.len();
    let mut device = open(&[program])?;
    for (&value, input) in values.iter().zip(inputs) {
        match input.ty.dtype {
            DType::I32 => device.write_i32(0, value, 0, &input.data.iter().map(|x| *x as i32).collect::<Vec<_>>()),
            _ => device.write_f32(0, value, 0, &input.data.iter().map(|x| *x as f32).collect::<Vec<_>>()),
        }
    }
    device.run(0, calls);
    let mut made = vec![];
    for (&value, size) in results.iter().zip(sizes) {
        let mut data = vec![f32::NAN; size];
        device.read_f32(0, value, 0, &mut data);
        made.push(data);
    }
    match device.failure() {
        Some(error) => Err(ExactnessError::Run { what: example.op.name().into(), error: error.to_string() }),
        None => Ok(made),
    }
}

fn rounded_to_half(x: f64) -> f64 {
    let bits = (x as f32).to_bits();
    f64::from(f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000))
}

fn relative(want: &[f64], have: &[f32]) -> f64 {
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let difference = norm(&mut want.iter().zip(have).map(|(a, b)| a - f64::from(*b)));
    difference / norm(&mut want.iter().copied()).max(1e-12)
}

/// The larger of the two; NaN counts as larger than any number.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// Loss and gradients of one step, and the losses of the following ones.
#[derive(Clone, Debug)]
struct Steps {
    gradients: Vec<(String, Vec<f32>)>,
    losses: Vec<f32>,
}

/// Tolerances for gradients and losses when two devices round to the same eight-bit format, but from slightly different
/// values.
const ROUNDED_ALIKE: (f64, f64) = (0.15, 1e-3);

fn with(config: &StepConfig, target: Target) -> StepConfig {
    StepConfig { target, ..config.clone() }
}

impl Steps {
    /// Compares the gradients and losses of another device for the same steps, each with its tolerance.
    fn against(&self, have: &Steps, what: &str, (gradients, curve): (f64, f64)) -> [Check; 2] {
        let differences = self.gradients.iter().zip(&have.gradients).map(|((_, want), (_, have))| {
            let want: Vec<f64> = want.iter().map(|x| f64::from(*x)).collect();
            relative(&want, have)
        });
        let difference = differences.fold(0.0, larger);
        let of_gradients = Check { what: format!("{what}: gradients"), difference, tolerance: gradients };
        let apart = self.losses.iter().zip(&have.losses).map(|(a, b)| f64::from((a - b).abs() / a.abs()));
        let difference = apart.fold(0.0, larger);
        let losses = self.losses.len();
        [of_gradients, Check { what: format!("{what}: {losses} losses"), difference, tolerance: curve }]
    }
}

/// Steps of a model in every precision, with no pass, each pass alone, Version 2 and all passes, against the CPU; each
/// runs twice.
pub fn steps(open: &Open, size: &str, losses: usize) -> Result<Vec<Check>, ExactnessError> {
    let size = Size::named(size).ok_or_else(|| run_error(size, "there is no such size"))?;
    let (model, shape) = (size.model(), BatchShape { batch_size: size.batch_size, seq_len: size.seq_len });
    let on_cpu = |programs: &[Program]| -> Result<Box<dyn Device>, EngineError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
        Ok(Box::new(Cpu::new(threads, Isa::detect(), Reductions::Fixed, programs)?))
    };
    let lists: Vec<PassList> = [PassList::none(), PassList::version_2(), PassList::all()]
        .into_iter()
        .chain(
            OFFERED
                .iter()
                .map(|pass| pass.needs.iter().fold(PassList::none().with(pass.name), |list, needed| list.with(needed))),
        )
        .collect();
    let config = |passes: &PassList, precision: Precision, target: Target| StepConfig {
        model: model.clone(),
        shape,
        optimizer: plain_adamw(),
        passes: passes.clone(),
        recomputed_layers: 0,
        precision,
        target,
    };
    let want = taken(&on_cpu, &config(&PassList::none(), Precision::Fp32, Target::Cpu), losses)?;
    let mut checks = vec![];
    for precision in Precision::ALL {
        let (gradients, curve) = match precision {
            Precision::Fp32 => (1e-4, 1e-4),
            Precision::Tf32 => (1e-2, 2e-3),
            Precision::Bf16 | Precision::Bf16Pure => (2e-2, 1e-2),
            Precision::Fp8 | Precision::Fp8Pure => (fp8::GRADIENT_TOLERANCE, fp8::LOSS_TOLERANCE),
        };
        for passes in &lists {
            let config = config(passes, precision, Target::Cuda);
            let what = format!("{} {precision} {}", size.name, passes.label());
            let have = taken(open, &config, losses)?;
            checks.extend(want.against(&have, &what, (gradients, curve)));
            if precision == Precision::Fp8 {
                // The CPU's rounding to eight bits is exact, so only half precision elsewhere makes a difference.
                let exact = taken(&on_cpu, &self::with(&config, Target::Cpu), losses)?;
                checks.extend(exact.against(&have, &format!("{what} against the CPU"), ROUNDED_ALIKE));
            }
            if passes.label() == "all" || passes.label() == "v1" {
                let again = taken(open, &config, losses)?;
                let same = have.losses.iter().map(|x| x.to_bits()).eq(again.losses.iter().map(|x| x.to_bits()));
                let difference = if same { 0.0 } else { 1.0 };
                checks.push(Check { what: format!("{what}: the same bytes twice"), difference, tolerance: 0.0 });
            }
        }
    }
    Ok(checks)
}

fn plain_adamw() -> OptimizerConfig {
    OptimizerConfig { clip: 1.0, ..OptimizerConfig::default() }
}

fn taken(open: &Open, config: &StepConfig, losses: usize) -> Result<Steps, ExactnessError> {
    let source = source_of(config)?;
    let mut batch = Batch::new(config.shape);
    source.fill(0, &mut batch)?;
    let mut steps = Steps { gradients: vec![], losses: vec![] };
    let mut first = trainer(open, config, Keep::Gradients)?;
    let run = |error: String| run_error(&config.passes.label(), &error);
    first.loss_of(&batch, EndsStep::No).map_err(|error| run(error.to_string()))?;
    for (name, _) in first.parameters() {
        let gradient = first.read_output(&format!("grad.{name}")).unwrap_or_default();
        steps.gradients.push((name, gradient));
    }
    drop(first);
    let mut trainer = trainer(open, config, Keep::OnlyTheLoss)?;
    for step in 0..losses {
        source.fill(step as u64 % 4, &mut batch)?;
        let ends_step = EndsStep::Yes { last: losses as u64 };
        trainer.submit(&batch, ends_step).map_err(|error| run(error.to_string()))?;
    }
    let mut finished = vec![];
    trainer.collect(&mut finished)?;
    steps.losses.extend(finished.iter().map(|one| one.results[0]));
    match trainer.device.failure() {
        Some(error) => Err(run(error.to_string())),
        None => Ok(steps),
    }
}

fn run_error(what: &str, error: &str) -> ExactnessError {
    ExactnessError::Run { what: what.into(), error: error.into() }
}

fn source_of(config: &StepConfig) -> Result<Source, DataError> {
    let ModelConfig { vocab_size, .. } = config.model;
    let settings = SourceSettings::new(config.shape, vocab_size, 42);
    Source::open(&DataSpec::Synthetic, &settings)
}

fn trainer(open: &Open, config: &StepConfig, keep: Keep) -> Result<Trainer, ExactnessError> {
    let program = training_program(config, keep)?;
    let device = open(std::slice::from_ref(&program.program))?;
    let mut trainer = Trainer::new(device, &config.model, program, None, config.optimizer);
    trainer.draw_weights(42);
    Ok(trainer)
}
