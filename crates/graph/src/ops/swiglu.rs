//! `silu(gate) * up` in one kernel, and its gradient: `silu(gate)` never reaches memory.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::TensorType;

op! {
    pub struct SwiGlu {}
}

op! {
    /// `gate`, `up`, `dy` → `dgate`, `dup`.
    pub struct SwiGluGrad {}
}

impl Operator for SwiGlu {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [gate, up] = arity(inputs)?;
        expect(1, up, gate.sizes())?;
        Ok(vec![gate.clone()])
    }

    fn flops(&self, _: &[TensorType], outputs: &[TensorType]) -> u64 {
        5 * outputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let inputs = [at.inputs[0], at.inputs[1], at.arrived_one()];
        Ok(at.graph.add(SwiGluGrad {}, &inputs)?.into_iter().map(Some).collect())
    }

    fn examples() -> Vec<Example> {
        vec![Example { op: SwiGlu {}.into(), inputs: vec![(TensorType::f32(&[5, 37]), Fill::Normal); 2] }]
    }
}

impl Operator for SwiGluGrad {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [gate, up, arrived] = arity(inputs)?;
        expect(1, up, gate.sizes())?;
        expect(2, arrived, gate.sizes())?;
        Ok(vec![gate.clone(), gate.clone()])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        11 * inputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        vec![Example { op: SwiGluGrad {}.into(), inputs: vec![(TensorType::f32(&[5, 37]), Fill::Normal); 3] }]
    }
}
