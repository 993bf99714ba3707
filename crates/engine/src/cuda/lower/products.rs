//! Linear layers and their gradients as products; several on one input are one product if their operands lie together.

use super::{Call, Lowering, Operand};
use crate::cuda::error::CudaError;
use crate::cuda::launch::Action;
use crate::cuda::product::{Addresses, Shape, Side};
use headroom_graph::ops::matmul::{Form, MatMul};

impl Lowering<'_> {
    pub fn matmul(&mut self, call: &Call, op: &MatMul) -> Result<Vec<Action>, CudaError> {
        let [a, b] = call.inputs else { return Err(call.unsupported("takes two matrices")) };
        Ok(vec![self.product(op.form, a, b, &call.outputs[0], Sum::New)])
    }

    pub fn linears(&mut self, call: &Call) -> Result<Vec<Action>, CudaError> {
        let (x, weights) = (&call.inputs[0], &call.inputs[1..]);
        if let (Some(weight), Some(out)) = (stacked_rows(weights), stacked_columns(call.outputs)) {
            return Ok(vec![self.product(Form::Nt, x, &weight, &out, Sum::New)]);
        }
        let each = weights.iter().zip(call.outputs);
        Ok(each.map(|(weight, out)| self.product(Form::Nt, x, weight, out, Sum::New)).collect())
    }

    pub fn linears_gradient_input(&mut self, call: &Call) -> Result<Vec<Action>, CudaError> {
        let arrived: Vec<Operand> = call.inputs.iter().step_by(2).cloned().collect();
        let weights: Vec<Operand> = call.inputs.iter().skip(1).step_by(2).cloned().collect();
        let out = &call.outputs[0];
        if let (Some(dy), Some(weight)) = (stacked_columns(&arrived), stacked_rows(&weights)) {
            return Ok(vec![self.product(Form::Nn, &dy, &weight, out, Sum::New)]);
        }
        let each = arrived.iter().zip(&weights).enumerate();
        Ok(each
            .map(|(index, (dy, weight))| {
                self.product(Form::Nn, dy, weight, out, if index == 0 { Sum::New } else { Sum::AddedTo })
            })
            .collect())
    }

    pub fn linears_gradient_weights(&mut self, call: &Call) -> Result<Vec<Action>, CudaError> {
        let (x, arrived) = (&call.inputs[0], &call.inputs[1..]);
        if let (Some(dy), Some(out)) = (stacked_columns(arrived), stacked_rows(call.outputs)) {
            return Ok(vec![self.product(Form::Tn, &dy, x, &out, Sum::New)]);
        }
        let each = arrived.iter().zip(call.outputs);
        Ok(each.map(|(dy, out)| self.product(Form::Tn, dy, x, out, Sum::New)).collect())
    }

    pub fn product(&self, form: Form, a: &Operand, b: &Operand, c: &Operand, sum: Sum) -> Action {
        let (m, k) = match form {
            Form::Tn => (a.columns(), a.rows()),
            _ => (a.rows(), a.columns()),
        };
        let n = if form == Form::Nt { b.rows() } else { b.columns() };
        let shape = Shape {
            m,
            n,
            k,
            a: Side { pitch: a.pitch, transposed: form == Form::Tn },
            b: Side { pitch: b.pitch, transposed: form == Form::Nt },
            c_pitch: c.pitch,
            inputs: a.element(),
            output: c.element(),
            arithmetic: self.arithmetic(a.element()),
            adds: sum == Sum::AddedTo,
        };
        Action::Product(shape, Addresses { a: a.at, b: b.at, c: c.at })
    }
}

/// Whether a product overwrites its output or is added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    New,
    AddedTo,
}

/// One matrix of all their columns, if they lie side by side.
pub fn stacked_columns(operands: &[Operand]) -> Option<Operand> {
    let first = operands.first()?;
    let columns: usize = operands.iter().map(Operand::columns).sum();
    let mut at = first.at;
    for operand in operands {
        if operand.at != at || operand.pitch != first.pitch || operand.ty.dtype != first.ty.dtype {
            return None;
        }
        at += (operand.columns() * operand.ty.dtype.bytes()) as u64;
    }
    let ty = headroom_graph::TensorType::new(first.ty.dtype, &[first.rows(), columns]);
    (first.pitch >= columns).then_some(Operand { at: first.at, ty, pitch: first.pitch })
}

/// One matrix of all their rows, if they lie stacked.
pub fn stacked_rows(operands: &[Operand]) -> Option<Operand> {
    let first = operands.first()?;
    let rows: usize = operands.iter().map(Operand::rows).sum();
    let mut at = first.at;
    for operand in operands {
        let alike = operand.is_dense() && operand.columns() == first.columns() && operand.ty.dtype == first.ty.dtype;
        if operand.at != at || !alike {
            return None;
        }
        at += operand.ty.bytes() as u64;
    }
    let ty = headroom_graph::TensorType::new(first.ty.dtype, &[rows, first.columns()]);
    Some(Operand { at: first.at, ty, pitch: first.pitch })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_graph::TensorType;

    fn operand(at: u64, sizes: [usize; 2], pitch: usize) -> Operand {
        Operand { at, ty: TensorType::f32(&sizes), pitch }
    }

    #[test]
    fn operands_that_lie_together_are_one() {
        let beside = stacked_columns(&[operand(0, [4, 8], 12), operand(32, [4, 4], 12)]).unwrap();
        assert_eq!((beside.rows(), beside.columns(), beside.pitch), (4, 12, 12));
        let below = stacked_rows(&[operand(64, [2, 8], 8), operand(128, [3, 8], 8)]).unwrap();
        assert_eq!((below.at, below.rows(), below.columns()), (64, 5, 8));
    }

    #[test]
    fn operands_with_a_gap_between_them_are_not() {
        assert!(stacked_columns(&[operand(0, [4, 8], 16), operand(40, [4, 4], 16)]).is_none());
        assert!(stacked_columns(&[operand(0, [4, 8], 8), operand(128, [4, 4], 4)]).is_none());
        assert!(stacked_rows(&[operand(0, [2, 8], 8), operand(128, [3, 8], 8)]).is_none());
    }
}
