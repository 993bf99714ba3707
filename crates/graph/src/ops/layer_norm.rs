//! LayerNorm, `y = w * (x - mean) / sqrt(variance + eps) + b` over the last axis, and its gradient.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::TensorType;

op! {
    /// `x` `[T, D]`, `w` and `b` `[D]` → `[T, D]`.
    pub struct LayerNorm {
        pub eps: f64,
    }
}

op! {
    /// `x` `[T, D]`, `w` `[D]`, `dy` `[T, D]` → `dx` `[T, D]`, `dw` and `db` `[D]`. Mean and scale of a row are
    /// recomputed from `x`, which has to be read anyway.
    pub struct LayerNormGrad {
        pub eps: f64,
    }
}

impl Operator for LayerNorm {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [x, weight, bias] = arity(inputs)?;
        op::matrix(0, x)?;
        expect(1, weight, &[x.shape.row()])?;
        expect(2, bias, &[x.shape.row()])?;
        Ok(vec![x.clone()])
    }

    /// Sum, difference, square and sum, scale, weight, bias: seven per element.
    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        7 * inputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let (x, weight, arrived) = (at.inputs[0], at.inputs[1], at.arrived_one());
        let grads = at.graph.add(LayerNormGrad { eps: self.eps }, &[x, weight, arrived])?;
        Ok(grads.into_iter().map(Some).collect())
    }

    fn examples() -> Vec<Example> {
        [[5, 37], [40, 64]]
            .map(|sizes| {
                let row = (TensorType::f32(&sizes[1..]), Fill::Normal);
                let inputs = vec![(TensorType::f32(&sizes), Fill::Normal), row.clone(), row];
                Example { op: LayerNorm { eps: 1e-5 }.into(), inputs }
            })
            .to_vec()
    }
}

impl Operator for LayerNormGrad {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [x, weight, arrived] = arity(inputs)?;
        op::matrix(0, x)?;
        expect(1, weight, &[x.shape.row()])?;
        expect(2, arrived, x.sizes())?;
        Ok(vec![x.clone(), weight.clone(), weight.clone()])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        16 * inputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        [[5, 37], [300, 64]]
            .map(|sizes| {
                let wide = (TensorType::f32(&sizes), Fill::Normal);
                let inputs = vec![wide.clone(), (TensorType::f32(&sizes[1..]), Fill::Normal), wide];
                Example { op: LayerNormGrad { eps: 1e-5 }.into(), inputs }
            })
            .to_vec()
    }
}
