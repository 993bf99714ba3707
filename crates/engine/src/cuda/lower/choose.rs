//! The choice of what a step updates, alone and followed by the updates.

use super::optimizer::{RatesAt, THREADS, Update};
use super::{Call, Grid, Lowering, Operand};
use crate::cuda::compile::{CHOOSE, NO_CONTRACTION, Unit};
use crate::cuda::error::CudaError;
use crate::cuda::launch::{Action, Arguments};
use headroom_graph::ops::adamw_chosen::AdamWChosen;
use headroom_graph::ops::choose::{Choose, SHARED};
use headroom_graph::{Among, Rule};

/// Threads of the single block that chooses: `THREADS` of the kernel.
const CHOOSING: usize = 1024;

impl Lowering<'_> {
    pub fn choose(&mut self, call: &Call, op: &Choose) -> Result<Vec<Action>, CudaError> {
        let at = |operands: &[Operand]| operands.iter().map(|operand| operand.at).collect::<Vec<u64>>();
        let (squares, rates) = (at(&call.inputs[SHARED..]), at(call.outputs));
        Ok(vec![self.choice(call, op, &squares, &rates)?])
    }

    pub fn adamw_chosen(&mut self, call: &Call, op: &AdamWChosen) -> Result<Vec<Action>, CudaError> {
        let (at, leaves) = (call.inputs, op.parameters);
        let updates = Update::list(&at[SHARED..], leaves);
        let tables = self.tables_of(&updates)?;
        let partial_bytes = tables.count * 4;
        let (partial, squares) = (self.scratch(256, partial_bytes), self.scratch(256 + partial_bytes, leaves * 4));
        let mut actions = vec![self.squares(&tables, partial)?];
        let mut clip = 0;
        if op.max_norm > 0.0 {
            clip = self.scratch(0, 4);
            actions.push(self.clip_from(&tables, partial, clip, call.outputs[1].at, op.max_norm)?);
        }
        let starts = self.table(&tables.starts)?;
        let arguments = Arguments::default().pointer(partial).pointer(starts).pointer(squares).u32(leaves);
        let grid = Grid::new(leaves.div_ceil(THREADS / 32), THREADS);
        actions.push(self.kernel_of(&choose_unit(), "leaf_squares", grid, arguments)?);
        let places = |first: u64, bytes: u64| (0..leaves as u64).map(|leaf| first + bytes * leaf).collect::<Vec<u64>>();
        let rates = call.outputs[0].at; // [n, 3]
        actions.push(self.choice(call, &op.choice(), &places(squares, 4), &places(rates, 12))?);
        actions.push(self.update(&tables, RatesAt { first: rates, stride: 3 }, clip, &op.single())?);
        Ok(actions)
    }

    /// `squares` and `rates` are the addresses for each leaf.
    fn choice(&mut self, call: &Call, op: &Choose, squares: &[u64], rates: &[u64]) -> Result<Action, CudaError> {
        let [own_rates, at, tree, counts, log] = &call.inputs[..SHARED] else {
            return Err(call.unsupported("the choice has five inputs of its own"));
        };
        let leaves = squares.len();
        let (rule, count) = match op.rule {
            Rule::TopK(count) => (0, count),
            Rule::All => (1, leaves),
            Rule::Path => (2, 0),
            Rule::Random(count) => (3, count),
        };
        let (squares, rates) = (self.table(squares)?, self.table(rates)?);
        let arguments = Arguments::default()
            .pointer(squares)
            .pointer(own_rates.at)
            .pointer(at.at)
            .pointer(tree.at)
            .pointer(counts.at)
            .pointer(log.at)
            .pointer(rates)
            .u32(leaves)
            .u32(log.rows())
            .u32(rule)
            .u32(usize::from(op.among == Among::Blocks))
            .u32(count)
            .pointer(op.seed)
            .f64(op.beta1)
            .f64(op.beta2);
        self.kernel_of(&choose_unit(), "choose", Grid::new(1, CHOOSING), arguments)
    }
}

fn choose_unit() -> Unit {
    Unit { source: CHOOSE, options: NO_CONTRACTION.iter().map(|option| option.to_string()).collect() }
}
