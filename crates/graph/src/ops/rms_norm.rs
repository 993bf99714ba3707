//! RMSNorm, `y = w * x / sqrt(mean(x²) + eps)` over the last axis or over each head of it, and its gradient.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::TensorType;

op! {
    /// `x` `[T, n · D]`, `w` `[D]` → like `x`: each run of `D` elements is normed by itself.
    pub struct RmsNorm {
        pub eps: f64,
    }
}

op! {
    /// `x` `[T, n · D]`, `w` `[D]`, `dy` like `x` → `dx` like `x`, `dw` `[D]`. The row's scale is recomputed from `x`,
    /// which has to be read anyway.
    pub struct RmsNormGrad {
        pub eps: f64,
    }
}

impl Operator for RmsNorm {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [x, weight] = arity(inputs)?;
        check_runs(x, weight)?;
        Ok(vec![x.clone()])
    }

    /// Square and sum, scale, weight: four per element.
    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        4 * inputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let (x, weight, arrived) = (at.inputs[0], at.inputs[1], at.arrived_one());
        let grads = at.graph.add(RmsNormGrad { eps: self.eps }, &[x, weight, arrived])?;
        Ok(grads.into_iter().map(Some).collect())
    }

    fn examples() -> Vec<Example> {
        [([5, 37], 37), ([40, 64], 64), ([7, 48], 16), ([9, 35], 7)]
            .map(|(sizes, width)| Example {
                op: RmsNorm { eps: 1e-6 }.into(),
                inputs: vec![(TensorType::f32(&sizes), Fill::Normal), (TensorType::f32(&[width]), Fill::Normal)],
            })
            .to_vec()
    }
}

impl Operator for RmsNormGrad {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [x, weight, arrived] = arity(inputs)?;
        check_runs(x, weight)?;
        expect(2, arrived, x.sizes())?;
        Ok(vec![x.clone(), weight.clone()])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        11 * inputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        [([5, 37], 37), ([300, 64], 64), ([70, 48], 16), ([9, 35], 7)]
            .map(|(sizes, width)| Example {
                op: RmsNormGrad { eps: 1e-6 }.into(),
                inputs: vec![
                    (TensorType::f32(&sizes), Fill::Normal),
                    (TensorType::f32(&[width]), Fill::Normal),
                    (TensorType::f32(&sizes), Fill::Normal),
                ],
            })
            .to_vec()
    }
}

/// Checks that the weight is a vector whose length divides a row's.
fn check_runs(x: &TensorType, weight: &TensorType) -> Result<(), ShapeError> {
    let (_, row) = op::matrix(0, x)?;
    match weight.sizes() {
        &[width] if width > 0 && row.is_multiple_of(width) => Ok(()),
        _ => {
            let want = format!("a vector whose length divides {row}");
            Err(ShapeError::Input { index: 1, want, have: weight.shape.to_string() })
        }
    }
}
