//! Lowers each op to device actions: kernels with their grids and arguments.

mod attention;
mod cached_attention;
mod choose;
pub mod fp8;
mod layer_norm;
mod loss;
mod muon;
pub mod optimizer;
mod products;
mod rows;
mod tables;

use super::compile::{Kernels, Source, Unit};
use super::cudnn::Plans;
use super::driver::{Context, Memory};
use super::error::CudaError;
use super::launch::{Action, Arguments, Kernel};
use super::product::{Arithmetic, Element};
use headroom_graph::ops::collective::{AllGather, AllReduce, ReduceScatter};
use headroom_graph::{DType, Graph, Node, Op, Precision, TensorType};
use rows::Lines;
use std::collections::BTreeSet;
use std::ops::Range;

/// A value at its address.
#[derive(Clone, Debug)]
pub struct Operand {
    pub at: u64,
    pub ty: TensorType,
    /// Row stride in elements.
    pub pitch: usize,
}

impl Operand {
    /// Number of rows: all axes but the innermost.
    pub fn rows(&self) -> usize {
        self.ty.elements() / self.columns().max(1)
    }

    pub fn columns(&self) -> usize {
        self.ty.shape.row()
    }

    pub fn is_dense(&self) -> bool {
        self.pitch == self.columns()
    }

    /// The bytes that it occupies, including gaps between rows.
    pub fn range(&self) -> Range<u64> {
        let bytes = self.rows().saturating_sub(1) * self.pitch + self.columns();
        self.at..self.at + (bytes * self.ty.dtype.bytes()) as u64
    }

    pub fn element(&self) -> Element {
        match self.ty.dtype {
            DType::Bf16 => Element::Bf16,
            DType::E4m3 => Element::E4m3,
            DType::E5m2 => Element::E5m2,
            DType::F32 | DType::I32 => Element::F32,
        }
    }
}

/// State used during lowering.
pub struct Lowering<'a> {
    pub context: &'a Context,
    pub kernels: &'a mut Kernels,
    /// cuDNN plans, for attention.
    pub plans: &'a mut Plans,
    pub precision: Precision,
    /// Where kernels keep partial results within a call, and the most that any call has requested so far.
    pub scratch: u64,
    pub scratch_needed: usize,
    /// Addresses of queries that an attention call rotated in place; its gradient needs to know.
    pub rotated: BTreeSet<u64>,
    /// Tables that kernels read; they live as long as the program.
    pub tables: Vec<Memory>,
    /// Whether the next norm may defer its weight's sum to the end of the backward pass, and the sums that were
    /// deferred.
    pub sums_later: bool,
    pub later: Vec<Lines>,
}

/// One call: its op and operands.
pub struct Call<'a> {
    pub op: &'a Op,
    pub module: &'a str,
    pub inputs: &'a [Operand],
    pub outputs: &'a [Operand],
}

impl Call<'_> {
    /// Whether it stores values in half precision: one operand in bf16 decides it.
    fn is_half(&self) -> bool {
        self.inputs.iter().chain(self.outputs).any(|operand| operand.ty.dtype == DType::Bf16)
    }

    fn unsupported(&self, what: impl Into<String>) -> CudaError {
        CudaError::Unsupported { op: self.op.name(), module: self.module.into(), what: what.into() }
    }
}

impl Lowering<'_> {
    /// A kernel of `source`, compiled for the storage type of `call`.
    fn kernel(
        &mut self,
        call: &Call,
        source: Source,
        name: &str,
        launch: Grid,
        arguments: Arguments,
    ) -> Result<Action, CudaError> {
        let options = if call.is_half() { vec!["-DACT_BF16".to_string()] } else { vec![] };
        self.kernel_of(&Unit { source, options }, name, launch, arguments)
    }

    fn kernel_of(&mut self, unit: &Unit, name: &str, launch: Grid, arguments: Arguments) -> Result<Action, CudaError> {
        let Grid { grid, block, shared } = launch;
        let function = self.kernels.function(unit, name, shared)?;
        Ok(Action::Kernel(Kernel { function, name: name.into(), grid, block, shared, arguments }))
    }

    /// Scratch of a call: `bytes` bytes, starting at `first`.
    fn scratch(&mut self, first: usize, bytes: usize) -> u64 {
        self.scratch_needed = self.scratch_needed.max(first + bytes);
        self.scratch + first as u64
    }

    /// Memory owned by one call, for data that outlives the call.
    fn own_memory(&mut self, bytes: usize) -> Result<u64, CudaError> {
        let memory = Memory::new(self.context, bytes)?;
        let at = memory.at;
        self.tables.push(memory);
        Ok(at)
    }

    fn table(&mut self, words: &[u64]) -> Result<u64, CudaError> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let memory = Memory::of(self.context, &bytes)?;
        let at = memory.at;
        self.tables.push(memory);
        Ok(at)
    }

    fn arithmetic(&self, element: Element) -> Arithmetic {
        match (element, self.precision) {
            (Element::E4m3 | Element::E5m2, _) => Arithmetic::Fp8,
            (Element::Bf16, _) => Arithmetic::Bf16,
            (Element::F32, Precision::Tf32) => Arithmetic::Tf32,
            (Element::F32, _) => Arithmetic::Fp32,
        }
    }

    /// Lowers a call to the device's actions, in order.
    pub fn lower(&mut self, call: &Call) -> Result<Vec<Action>, CudaError> {
        match call.op {
            Op::Add(_)
            | Op::Mul(_)
            | Op::Scale(_)
            | Op::Silu(_)
            | Op::SiluGrad(_)
            | Op::SwiGlu(_)
            | Op::SwiGluGrad(_)
            | Op::Gelu(_)
            | Op::GeluGrad(_) => self.elementwise(call),
            Op::Rope(op) => self.rope(call, op),
            Op::RmsNorm(_) | Op::AddRmsNorm(_) | Op::RmsScales(_) => self.norm(call),
            Op::RmsNormGrad(_) | Op::AddRmsNormGrad(_) => self.norm_gradient(call),
            Op::LayerNorm(op) => self.layer_norm(call, op),
            Op::LayerNormGrad(op) => self.layer_norm_gradient(call, op),
            Op::AddRows(op) => self.add_rows(call, op),
            Op::SumRows(op) => self.sum_rows(call, op),
            Op::Split(_) => self.split(call),
            Op::Join(_) => self.join(call),
            Op::MatMul(op) => self.matmul(call, op),
            Op::Linears(_) => self.linears(call),
            Op::LinearsGradInput(_) => self.linears_gradient_input(call),
            Op::LinearsGradWeights(_) => self.linears_gradient_weights(call),
            Op::Quantize(op) => self.quantize(call, op),
            Op::Fp8Product(op) => self.fp8_product(call, op),
            Op::UpdateScales(op) => self.update_scales(call, op),
            Op::AttentionScores(op) => self.scores(call, op),
            Op::AttentionMix(op) => self.mix(call, op),
            Op::AttentionMixBack(op) => self.mix_back(call, op),
            Op::CausalSoftmax(_) | Op::CausalSoftmaxGrad(_) => self.softmax(call),
            Op::FlashAttention(op) => self.flash(call, op),
            Op::FlashAttentionGrad(op) => self.flash_gradient(call, op),
            Op::Embedding(_) | Op::EmbeddingGrad(_) => self.embedding(call),
            Op::CrossEntropy(_) | Op::CrossEntropyGrad(_) => self.cross_entropy(call),
            Op::LinearCrossEntropy(_) | Op::LinearCrossEntropyTrain(_) => self.linear_cross_entropy(call),
            // The wire exchanges tensors with the other ranks before these actions.
            Op::AllReduce(AllReduce { ranks: 2.., .. })
            | Op::ReduceScatter(ReduceScatter { ranks: 2.., .. })
            | Op::AllGather(AllGather { ranks: 2.., bf16_copies: 0, .. }) => Ok(vec![]),
            Op::AllGather(op @ AllGather { ranks: 2.., .. }) => self.copies(call, op),
            Op::AllReduce(op) if op.kept > 0 => Ok(vec![]),
            Op::AllReduce(_) | Op::ReduceScatter(_) => self.alone(call, call.outputs, call.inputs),
            Op::AllGather(op) => self.alone(call, &call.inputs[..op.tensors], &call.inputs[op.tensors..]),
            Op::Arrive(_) => Ok(vec![]),
            Op::Accumulate(_) => self.accumulate(call),
            Op::Zero(_) => Ok(vec![Action::Zero { at: call.inputs[0].at, bytes: call.inputs[0].ty.bytes() }]),
            Op::SquaredNorm(_) => self.squared_norm(call),
            Op::ClipScale(op) => self.clip_scale(call, op),
            Op::GradientNorm(_) => self.gradient_norm(call),
            Op::AdamW(op) => self.adamw(call, op),
            Op::AdamWAll(op) => self.adamw_all(call, op),
            Op::Choose(op) => self.choose(call, op),
            Op::CachedAttention(op) => self.cached_attention(call, op),
            Op::Sgd(op) => self.sgd(call, op),
            Op::MuonMomentum(op) => self.muon_momentum(call, op),
            Op::UnitNorm(op) => self.unit_norm(call, op),
            Op::Blend(op) => self.blend(call, op),
            Op::MuonUpdate(op) => self.muon_update(call, op),
            Op::AdamWChosen(op) => self.adamw_chosen(call, op),
        }
    }
}

/// Launch configuration of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
}

impl Grid {
    pub fn new(blocks: usize, threads: usize) -> Grid {
        Grid { grid: [blocks.max(1) as u32, 1, 1], block: [threads as u32, 1, 1], shared: 0 }
    }

    pub fn of(grid: [usize; 3], block: [usize; 3]) -> Grid {
        Grid { grid: grid.map(|size| size as u32), block: block.map(|size| size as u32), shared: 0 }
    }

    pub fn with_shared(self, bytes: usize) -> Grid {
        Grid { shared: bytes as u32, ..self }
    }
}

/// Upper bound of the scratch that any call needs, known without a device.
pub fn scratch_bound(graph: &Graph) -> usize {
    const MOST_BLOCKS: usize = 6 * 256;
    let need = |node: &Node| {
        let first = graph.ty(node.inputs[0]);
        let rows = first.elements() / first.shape.row().max(1);
        match &node.op {
            Op::RmsNormGrad(_) | Op::AddRmsNormGrad(_) => MOST_BLOCKS * first.shape.row() * 4,
            Op::LayerNormGrad(_) => 2 * MOST_BLOCKS * first.shape.row() * 4,
            Op::SumRows(_) => tables::MOST_LINES * first.shape.row() * 4,
            Op::CrossEntropy(_) => rows * 4,
            Op::LinearCrossEntropy(_) | Op::LinearCrossEntropyTrain(_) => {
                let row_bytes = graph.ty(node.inputs[1]).sizes()[0] * first.dtype.bytes();
                loss::chunk_bytes(rows, row_bytes) + rows * 4 + 256
            }
            Op::FlashAttentionGrad(op) => match op.forward().sizes(first) {
                Ok(sizes) => attention::gradient_scratch(&sizes),
                Err(_) => 0,
            },
            Op::SquaredNorm(_) | Op::GradientNorm(_) | Op::AdamWAll(_) | Op::AdamWChosen(_) => {
                let elements: usize = node.inputs.iter().map(|id| graph.ty(*id).elements()).sum();
                optimizer::sums_bytes(elements, node.inputs.len())
            }
            _ => 0,
        }
    };
    let most = graph.nodes().iter().filter(|node| !node.inputs.is_empty()).map(need).max().unwrap_or(0);
    let later = |node: &Node| match &node.op {
        Op::RmsNormGrad(_) | Op::AddRmsNormGrad(_) => rows::later_bound(graph.ty(node.inputs[0])),
        Op::LayerNormGrad(_) => 2 * rows::later_bound(graph.ty(node.inputs[0])),
        Op::SumRows(_) => rows::MOST_LATER.min(tables::MOST_LINES * graph.ty(node.inputs[0]).shape.row() * 4),
        _ => 0,
    };
    most + graph.nodes().iter().map(later).sum::<usize>()
}
