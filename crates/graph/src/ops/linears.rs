//! Several linear layers on one input as one product: q, k and v, or gate and up. The weights stay separate tensors.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, expect};
use crate::tensor::TensorType;

op! {
    /// `x` `[T, K]`, then weights `[N1, K]`, `[N2, K]`, … → `x · wᵀ` for each, `[T, N1]`, `[T, N2]`, …
    pub struct Linears {}
}

op! {
    /// `dy1` `[T, N1]`, `w1` `[N1, K]`, `dy2`, `w2`, … → the sum of `dy · w`, `[T, K]`: one product that accumulates in
    /// place.
    pub struct LinearsGradInput {}
}

op! {
    /// `x` `[T, K]`, then `dy1` `[T, N1]`, `dy2`, … → `dyᵀ · x` for each, `[N1, K]`, `[N2, K]`, …
    pub struct LinearsGradWeights {}
}

impl Operator for Linears {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let (x, weights) = first_and_rest(inputs)?;
        let (rows, inner) = op::matrix(0, x)?;
        let output = |(index, weight): (usize, &TensorType)| {
            let (width, _) = op::matrix(index, weight)?;
            expect(index, weight, &[width, inner])?;
            Ok(TensorType::new(x.dtype, &[rows, width]))
        };
        (1..).zip(weights).map(output).collect()
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        let rows = inputs[0].sizes()[0];
        inputs[1..].iter().map(|weight| 2 * (rows * weight.elements()) as u64).sum()
    }

    fn is_product(&self) -> bool {
        true
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let (x, weights) = (at.inputs[0], &at.inputs[1..]);
        let arrived: Vec<(ValueId, ValueId)> = weights
            .iter()
            .zip(at.arrived)
            .filter_map(|(weight, arrived)| Some((arrived.as_ref().copied()?, *weight)))
            .collect();
        let pairs: Vec<ValueId> = arrived.iter().flat_map(|&(dy, weight)| [dy, weight]).collect();
        let dx = at.if_wanted(0, LinearsGradInput {}, &pairs)?;
        let inputs: Vec<ValueId> = std::iter::once(x).chain(arrived.iter().map(|&(dy, _)| dy)).collect();
        let mut dweights = at.graph.add(LinearsGradWeights {}, &inputs)?.into_iter();
        let each = at.arrived.iter().map(|arrived| arrived.and_then(|_| dweights.next()));
        Ok(std::iter::once(dx).chain(each).collect())
    }

    fn examples() -> Vec<Example> {
        let matrix = |sizes: [usize; 2]| (TensorType::f32(&sizes), Fill::Normal);
        let two = vec![matrix([5, 7]), matrix([3, 7]), matrix([9, 7])];
        let three = vec![matrix([33, 40]), matrix([64, 40]), matrix([17, 40]), matrix([17, 40])];
        [two, three].map(|inputs| Example { op: Linears {}.into(), inputs }).to_vec()
    }
}

impl Operator for LinearsGradInput {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        if inputs.is_empty() || !inputs.len().is_multiple_of(2) {
            return Err(ShapeError::Arity { want: 2, have: inputs.len() });
        }
        let ((rows, _), (_, inner)) = (op::matrix(0, &inputs[0])?, op::matrix(1, &inputs[1])?);
        for (pair, operands) in inputs.chunks_exact(2).enumerate() {
            let (_, width) = op::matrix(2 * pair, &operands[0])?;
            expect(2 * pair, &operands[0], &[rows, width])?;
            expect(2 * pair + 1, &operands[1], &[width, inner])?;
        }
        Ok(vec![TensorType::new(inputs[0].dtype, &[rows, inner])])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        let rows = inputs[0].sizes()[0];
        inputs.chunks_exact(2).map(|pair| 2 * (rows * pair[1].elements()) as u64).sum()
    }

    fn is_product(&self) -> bool {
        true
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let matrix = |sizes: [usize; 2]| (TensorType::f32(&sizes), Fill::Normal);
        let inputs = vec![matrix([33, 64]), matrix([64, 40]), matrix([33, 17]), matrix([17, 40])];
        vec![Example { op: LinearsGradInput {}.into(), inputs }]
    }
}

impl Operator for LinearsGradWeights {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let (x, arrived) = first_and_rest(inputs)?;
        let (rows, inner) = op::matrix(0, x)?;
        let output = |(index, dy): (usize, &TensorType)| {
            let (_, width) = op::matrix(index, dy)?;
            expect(index, dy, &[rows, width])?;
            Ok(TensorType::new(x.dtype, &[width, inner]))
        };
        (1..).zip(arrived).map(output).collect()
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        let inner = inputs[0].shape.row();
        inputs[1..].iter().map(|dy| 2 * (dy.elements() * inner) as u64).sum()
    }

    fn is_product(&self) -> bool {
        true
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let matrix = |sizes: [usize; 2]| (TensorType::f32(&sizes), Fill::Normal);
        vec![Example {
            op: LinearsGradWeights {}.into(),
            inputs: vec![matrix([33, 40]), matrix([33, 64]), matrix([33, 17])],
        }]
    }
}

fn first_and_rest(inputs: &[TensorType]) -> Result<(&TensorType, &[TensorType]), ShapeError> {
    match inputs {
        [first, rest @ ..] if !rest.is_empty() => Ok((first, rest)),
        _ => Err(ShapeError::Arity { want: 2, have: inputs.len() }),
    }
}
