//! Cross-entropy, alone and with the LM head in chunks; table look-up; softmax of materialised scores.

use super::products::Sum;
use super::rows::is_wide;
use super::{Call, Grid, Lowering, Operand};
use crate::cuda::compile::LOSS;
use crate::cuda::error::CudaError;
use crate::cuda::launch::{Action, Arguments};
use headroom_graph::ops::matmul::Form;
use headroom_graph::{Op, TensorType};

/// Bytes of logits that exist at a time with the fused loss: larger products than on a CPU fill the device.
const CHUNK_BYTES: usize = 32 << 20;

/// Minimum rows of logits that exist at a time: with fewer, products of a large vocabulary leave most of the device
/// idle.
const LEAST_ROWS: usize = 2048;

/// Bytes of logits that exist at a time, for `rows` rows of `row_bytes` bytes.
pub fn chunk_bytes(rows: usize, row_bytes: usize) -> usize {
    chunk_rows(rows, row_bytes) * row_bytes
}

fn chunk_rows(rows: usize, row_bytes: usize) -> usize {
    (CHUNK_BYTES / row_bytes).max(LEAST_ROWS).min(rows).max(1)
}

/// Rows with at least this many logits get a larger block.
const LONG_ROW: usize = 16384;

/// Tables with at least this many rows are handled 32 rows per block.
const MANY_ROWS: usize = 8192;

impl Lowering<'_> {
    pub fn cross_entropy(&mut self, call: &Call) -> Result<Vec<Action>, CudaError> {
        let (logits, targets) = (&call.inputs[0], &call.inputs[1]);
        let tokens = logits.rows();
        if matches!(call.op, Op::CrossEntropyGrad(_)) {
            let (dloss, grad) = (call.inputs[2].at, call.outputs[0].at);
            return Ok(vec![self.rows_loss(call, logits, targets.at, dloss, 0, grad, tokens)?]);
        }
        let losses = self.scratch(0, tokens * 4);
        Ok(vec![
            self.rows_loss(call, logits, targets.at, 0, losses, 0, tokens)?,
            self.mean(call, losses, call.outputs[0].at, tokens)?,
        ])
    }

    #[expect(clippy::too_many_arguments, reason = "the kernel's own arguments, addresses that may be none among them")]
    fn rows_loss(
        &mut self,
        call: &Call,
        logits: &Operand,
        targets: u64,
        dloss: u64,
        losses: u64,
        grad: u64,
        tokens: usize,
    ) -> Result<Action, CudaError> {
        let arguments = Arguments::default()
            .pointer(logits.at)
            .pointer(targets)
            .pointer(dloss)
            .pointer(losses)
            .pointer(grad)
            .u32(logits.columns())
            .f32(tokens as f64);
        let vector = is_wide(logits, logits.columns()) && grad.is_multiple_of(16);
        let name = if vector { "cross_entropy_v" } else { "cross_entropy_s" };
        let threads = if logits.columns() < LONG_ROW { 256 } else { 1024 };
        self.kernel(call, LOSS, name, Grid::new(logits.rows(), threads), arguments)
    }

    fn mean(&mut self, call: &Call, from: u64, to: u64, count: usize) -> Result<Action, CudaError> {
        let arguments = Arguments::default().pointer(from).pointer(to).u32(count);
        self.kernel(call, LOSS, "mean", Grid::new(1, 1024), arguments)
    }

    /// A chunk's logits become their own gradient in place; both gradients are then computed from them.
    pub fn linear_cross_entropy(&mut self, call: &Call) -> Result<Vec<Action>, CudaError> {
        let (x, weight, targets) = (&call.inputs[0], &call.inputs[1], &call.inputs[2]);
        let trains = matches!(call.op, Op::LinearCrossEntropyTrain(_));
        let (tokens, vocab, bytes) = (x.rows(), weight.rows(), x.ty.dtype.bytes());
        // Rows of logits lie without gaps.
        let pitch = vocab;
        let rows = chunk_rows(tokens, pitch * bytes);
        let losses_bytes = (tokens * 4).next_multiple_of(256);
        let losses = self.scratch(0, losses_bytes);
        let room = self.scratch(losses_bytes, rows * pitch * bytes);
        let mut actions = vec![];
        for first in (0..tokens).step_by(rows) {
            let count = rows.min(tokens - first);
            let part = |operand: &Operand| Operand {
                at: operand.at + (first * operand.pitch * operand.ty.dtype.bytes()) as u64,
                ty: TensorType::new(operand.ty.dtype, &[count, operand.columns()]),
                pitch: operand.pitch,
            };
            let logits = Operand { at: room, ty: TensorType::new(x.ty.dtype, &[count, vocab]), pitch };
            let x = part(x);
            actions.push(self.product(Form::Nt, &x, weight, &logits, Sum::New));
            let (dloss, grad) = if trains { (call.inputs[3].at, room) } else { (0, 0) };
            let (targets, losses) = (targets.at + first as u64 * 4, losses + first as u64 * 4);
            actions.push(self.rows_loss(call, &logits, targets, dloss, losses, grad, tokens)?);
            if trains {
                let sum = if first == 0 { Sum::New } else { Sum::AddedTo };
                actions.push(self.product(Form::Nn, &logits, weight, &part(&call.outputs[1]), Sum::New));
                actions.push(self.product(Form::Tn, &logits, &x, &call.outputs[2], sum));
            }
        }
        actions.push(self.mean(call, losses, call.outputs[0].at, tokens)?);
        Ok(actions)
    }

    pub fn softmax(&mut self, call: &Call) -> Result<Vec<Action>, CudaError> {
        let x = &call.inputs[0];
        let (name, threads) = match call.op {
            Op::CausalSoftmax(_) => ("causal_softmax", 128),
            _ => ("causal_softmax_grad", 128),
        };
        let all = call.inputs.iter().chain(call.outputs);
        let arguments = all.fold(Arguments::default(), |list, operand| list.pointer(operand.at)).u32(x.columns());
        Ok(vec![self.kernel(call, LOSS, name, Grid::new(x.rows(), threads), arguments)?])
    }

    pub fn embedding(&mut self, call: &Call) -> Result<Vec<Action>, CudaError> {
        let (ids, out) = (&call.inputs[0], &call.outputs[0]);
        let (columns, tokens) = (out.columns(), ids.ty.elements());
        let arguments = Arguments::default().pointer(ids.at).pointer(call.inputs[1].at).pointer(out.at);
        Ok(vec![match call.op {
            Op::Embedding(_) => {
                let threads = columns.next_multiple_of(32).min(256);
                self.kernel(call, LOSS, "embedding", Grid::new(tokens, threads), arguments.u32(columns))?
            }
            _ if out.rows() >= MANY_ROWS && tokens < 1 << 27 => {
                let vector = is_wide(out, columns) && is_wide(&call.inputs[1], columns);
                let name = if vector { "embedding_grad_many_v" } else { "embedding_grad_many_s" };
                let arguments = arguments.u32(tokens).u32(columns).u32(out.rows());
                self.kernel(call, LOSS, name, Grid::new(out.rows().div_ceil(32), 256), arguments)?
            }
            _ => {
                let grid = Grid::of([out.rows(), columns.div_ceil(256), 1], [256, 1, 1]);
                self.kernel(call, LOSS, "embedding_grad", grid, arguments.u32(tokens).u32(columns))?
            }
        }])
    }
}
