//! Adds rows of a table cyclically. A bias is a table of one row; learned positions are a table with a row per
//! position.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::{DType, TensorType};

op! {
    /// `x` `[T, D]`, `table` `[D]` or `[P, D]` → `x` with row `t mod period` of the table added to row `t`.
    pub struct AddRows {
        pub period: usize,
    }
}

op! {
    /// `dy` `[T, D]` → for each row of the table, the sum of the rows that it was added to: `[D]` if `rows` is 0, else
    /// `[rows, D]`, with zeros for unused rows.
    pub struct SumRows {
        pub period: usize,
        pub rows: usize,
    }
}

impl Operator for AddRows {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [x, table] = arity(inputs)?;
        let (rows, width) = op::matrix(0, x)?;
        check_period(self.period, rows)?;
        match table.sizes() {
            [own] if *own == width && self.period == 1 => {}
            [have, own] if *own == width && *have >= self.period => {}
            _ => {
                let want = format!("at least {} rows of {width}", self.period);
                return Err(ShapeError::Input { index: 1, want, have: table.shape.to_string() });
            }
        }
        Ok(vec![x.clone()])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        inputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let arrived = at.arrived_one();
        let rows = match at.graph.ty(at.inputs[1]).sizes() {
            &[rows, _] => rows,
            _ => 0,
        };
        let table = at.if_wanted(1, SumRows { period: self.period, rows }, &[arrived])?;
        Ok(vec![at.wanted[0].then_some(arrived), table])
    }

    fn examples() -> Vec<Example> {
        let table = |sizes: &[usize]| (TensorType::f32(sizes), Fill::Normal);
        [(1, table(&[37])), (3, table(&[5, 37])), (6, table(&[6, 37]))]
            .map(|(period, table)| Example {
                op: AddRows { period }.into(),
                inputs: vec![(TensorType::f32(&[6, 37]), Fill::Normal), table],
            })
            .to_vec()
    }
}

impl Operator for SumRows {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [arrived] = arity(inputs)?;
        let (rows, width) = op::matrix(0, arrived)?;
        check_period(self.period, rows)?;
        match self.rows {
            0 => {
                expect(0, arrived, &[rows, width])?;
                // A vector is kept in single precision, whatever type is summed.
                Ok(vec![TensorType::new(DType::F32, &[width])])
            }
            rows if rows >= self.period => Ok(vec![TensorType::new(arrived.dtype, &[rows, width])]),
            rows => Err(ShapeError::Attribute(format!("{rows} rows are fewer than a period of {}", self.period))),
        }
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        inputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        [([6, 37], 1, 0), ([300, 64], 1, 0), ([6, 37], 3, 5), ([6, 37], 6, 6)]
            .map(|(sizes, period, rows)| Example {
                op: SumRows { period, rows }.into(),
                inputs: vec![(TensorType::f32(&sizes), Fill::Normal)],
            })
            .to_vec()
    }
}

fn check_period(period: usize, rows: usize) -> Result<(), ShapeError> {
    if period > 0 && rows.is_multiple_of(period) {
        return Ok(());
    }
    Err(ShapeError::Attribute(format!("{rows} rows are not a multiple of a period of {period}")))
}
