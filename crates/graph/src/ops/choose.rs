//! Chooses what a step updates: from the squared norm of every leaf of the model's tree to the rates of each leaf's
//! update.

use crate::choice::{Among, Rule};
use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, expect};
use crate::tensor::{DType, TensorType};

op! {
    /// `rates` `[3]`, `at` `i32[2]`, `tree` `i32[n, 3]`, `counts` `[n]` and `log` `[rows, 2n]` (both updated), then `n`
    /// sums of squares `[1]` → for each leaf the `rates` `[3]` of its update, zeros if it is not updated.
    ///
    /// `at` is the row of the log that this step writes and the step's number. Among parameters, a row of `tree` is a
    /// leaf's branch (the child of the root that it is or lies under), its part (the child of the branch) and its
    /// parent, as node numbers with the root as 0. Among blocks, a row is the block that a parameter is in, counted
    /// from 1 (0: in none, always updated), the block's parent (0: none) and its level from 0; the parameters of a
    /// block are contiguous, and the first one represents it. `counts` holds each leaf's own step count, which corrects
    /// the bias of its moments. A row of the log is the fraction of the step that each leaf took, then its squared
    /// norm. The host reads the log when it waits for the device anyway.
    pub struct Choose {
        pub rule: Rule,
        pub among: Among,
        /// Seed of the random draw, used if the rule draws.
        pub seed: u64,
        pub beta1: f64,
        pub beta2: f64,
    }
}

/// Number of inputs before those of each leaf, here and in the fused update.
pub const SHARED: usize = 5;

/// Checks the inputs that both forms of the choice share; returns the number of leaves.
pub fn expect_shared(rule: Rule, inputs: &[TensorType]) -> Result<usize, ShapeError> {
    let Some([rates, at, tree, counts, log]) = inputs.get(..SHARED) else {
        return Err(ShapeError::Arity { want: SHARED + 1, have: inputs.len() });
    };
    let leaves = counts.elements();
    expect(0, rates, &[3])?;
    expect(1, at, &[2])?;
    expect(2, tree, &[leaves, 3])?;
    expect(3, counts, &[leaves])?;
    let rows = log.sizes().first().copied().unwrap_or(0);
    expect(4, log, &[rows.max(1), 2 * leaves])?;
    for (index, input) in [(1, at), (2, tree)] {
        if input.dtype != DType::I32 {
            return Err(ShapeError::Input { index, want: "whole numbers".into(), have: input.to_string() });
        }
    }
    match rule.count() {
        Some(count) if count > leaves => {
            Err(ShapeError::Attribute(format!("{rule} chooses more nodes than there are: {leaves}")))
        }
        _ => Ok(leaves),
    }
}

/// The shared inputs of a small case with this many leaves.
pub fn shared_example(leaves: usize) -> Vec<(TensorType, Fill)> {
    vec![
        (TensorType::f32(&[3]), Fill::Constant(0.2)),
        (TensorType::i32(&[2]), Fill::Ids(ROWS)),
        (TensorType::i32(&[leaves, 3]), Fill::Ids(4)),
        (TensorType::f32(&[leaves]), Fill::Constant(3.0)),
        (TensorType::f32(&[ROWS, 2 * leaves]), Fill::Normal),
    ]
}

const ROWS: usize = 6;

impl Operator for Choose {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let leaves = expect_shared(self.rule, inputs)?;
        if inputs.len() != SHARED + leaves {
            return Err(ShapeError::Arity { want: SHARED + leaves, have: inputs.len() });
        }
        for (index, squares) in inputs.iter().enumerate().skip(SHARED) {
            expect(index, squares, &[1])?;
        }
        Ok(vec![TensorType::f32(&[3]); leaves])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        inputs.len() as u64
    }

    /// One row of the log is written; none is read.
    fn bytes(&self, inputs: &[TensorType], outputs: &[TensorType]) -> u64 {
        let small = inputs.iter().enumerate().filter(|(index, _)| *index != 4).map(|(_, ty)| ty.bytes());
        (small.chain(outputs.iter().map(TensorType::bytes)).sum::<usize>() + 12 * inputs[3].elements()) as u64
    }

    fn updates(&self) -> Vec<usize> {
        vec![3, 4]
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let leaves = 40;
        let mut inputs = shared_example(leaves);
        inputs.extend(vec![(TensorType::f32(&[1]), Fill::Positive); leaves]);
        let rules = [Rule::TopK(1), Rule::TopK(7), Rule::All, Rule::Path, Rule::Random(7)];
        let example = |rule: Rule, among: Among| {
            let op = Choose { rule, among, seed: 7, beta1: 0.9, beta2: 0.999 };
            Example { op: op.into(), inputs: inputs.clone() }
        };
        let among = |among: Among| rules.map(|rule| example(rule, among));
        [among(Among::Parameters), among(Among::Blocks)].concat()
    }
}
