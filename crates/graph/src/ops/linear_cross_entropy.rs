//! LM head and cross-entropy together, a chunk of rows at a time: the logits of all tokens never exist at once.
//!
//! The training form computes the gradients in the same pass, while a chunk's logits are at hand, because the gradient
//! of the loss is known in advance. So nothing is computed twice.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::TensorType;

op! {
    /// `x` `[T, D]`, `w` `[V, D]`, `targets` `i32[T]` → the mean loss, `[1]`.
    pub struct LinearCrossEntropy {
        /// Number of rows whose logits exist at a time.
        pub rows: usize,
    }
}

op! {
    /// `x` `[T, D]`, `w` `[V, D]`, `targets` `i32[T]`, `dloss` `[1]` → the mean loss `[1]`, `dx` `[T, D]`, `dw`
    /// `[V, D]`.
    pub struct LinearCrossEntropyTrain {
        pub rows: usize,
    }
}

impl Operator for LinearCrossEntropy {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [x, weight, targets] = arity(inputs)?;
        check(self.rows, x, weight, targets)?;
        Ok(vec![TensorType::f32(&[1])])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        let (rows, vocab) = (inputs[0].sizes()[0], inputs[1].sizes()[0]);
        (rows * vocab) as u64 * (2 * inputs[0].shape.row() as u64 + 4)
    }

    fn is_product(&self) -> bool {
        true
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let op = LinearCrossEntropy { rows: 8 };
        vec![Example { op: op.into(), inputs: inputs(20, 11, 13) }]
    }
}

impl Operator for LinearCrossEntropyTrain {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [x, weight, targets, arrived] = arity(inputs)?;
        check(self.rows, x, weight, targets)?;
        expect(3, arrived, &[1])?;
        Ok(vec![TensorType::f32(&[1]), x.clone(), weight.clone()])
    }

    /// The logits, and both gradients from them.
    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        let (rows, vocab) = (inputs[0].sizes()[0], inputs[1].sizes()[0]);
        (rows * vocab) as u64 * (6 * inputs[0].shape.row() as u64 + 6)
    }

    fn is_product(&self) -> bool {
        true
    }

    /// The gradients already exist, provided that the arriving gradient is the one they were computed with.
    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        if at.arrived[0] != Some(at.inputs[3]) {
            return at.none();
        }
        Ok(vec![Some(at.outputs[1]), Some(at.outputs[2]), None, None])
    }

    fn examples() -> Vec<Example> {
        [(20, 11, 13, 8), (64, 40, 97, 16)]
            .map(|(rows, width, vocab, chunk)| {
                let mut inputs = inputs(rows, width, vocab);
                inputs.push((TensorType::f32(&[1]), Fill::Constant(0.5)));
                Example { op: LinearCrossEntropyTrain { rows: chunk }.into(), inputs }
            })
            .to_vec()
    }
}

fn check(rows: usize, x: &TensorType, weight: &TensorType, targets: &TensorType) -> Result<(), ShapeError> {
    let ((tokens, width), (vocab, _)) = (op::matrix(0, x)?, op::matrix(1, weight)?);
    expect(1, weight, &[vocab, width])?;
    if rows == 0 {
        return Err(ShapeError::Attribute("a chunk has at least one row".into()));
    }
    if targets.elements() != tokens {
        let want = format!("{tokens} targets");
        return Err(ShapeError::Input { index: 2, want, have: targets.shape.to_string() });
    }
    Ok(())
}

fn inputs(rows: usize, width: usize, vocab: usize) -> Vec<(TensorType, Fill)> {
    vec![
        (TensorType::f32(&[rows, width]), Fill::Normal),
        (TensorType::f32(&[vocab, width]), Fill::Normal),
        (TensorType::i32(&[rows]), Fill::Ids(vocab)),
    ]
}
