//! Collectives. Every rank makes the same collective call at the same place of the same plan.
//!
//! Several tensors go through one call as one message: a bucket. Each tensor is cut into one shard per rank, all of the
//! same length, the last padded. A rank sums its own shard of every tensor in rank order, so the result has the same
//! bytes on all ranks and in every run.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, expect};
use crate::tensor::{DType, Shape, TensorType};

op! {
    /// Any number of tensors → each summed over the ranks, or their mean.
    pub struct AllReduce {
        pub ranks: usize,
        pub mean: bool,
        /// Number of kept tensors that are summed in place, without an output. Either all tensors or none.
        pub kept: usize,
        /// The outputs hold the sums only after an `arrive`: the call starts the exchange and does not wait for it.
        pub later: bool,
    }
}

op! {
    /// Any number of tensors → this rank's shard of each one's sum over the ranks.
    pub struct ReduceScatter {
        pub ranks: usize,
        /// See [`AllReduce::later`].
        pub later: bool,
    }
}

op! {
    /// This many kept tensors, then a shard of each → the tensors hold all ranks' shards. The half-precision copies of
    /// some of the tensors come last, in the same order: they are updated too.
    pub struct AllGather {
        pub ranks: usize,
        pub tensors: usize,
        pub bf16_copies: usize,
    }
}

op! {
    /// The inputs, then the outputs, of an exchange that was started. Returns when the exchange is done.
    pub struct Arrive {}
}

/// Number of elements in one rank's shard.
pub fn shard_elements(elements: usize, ranks: usize) -> usize {
    elements.div_ceil(ranks.max(1))
}

/// A shard's type. A matrix's shard is a column, so that decisions by the number of axes do not change.
pub fn shard_type(ty: &TensorType, ranks: usize) -> TensorType {
    let elements = shard_elements(ty.elements(), ranks);
    let shape = if ty.sizes().len() > 1 { Shape::new(&[elements, 1]) } else { Shape::new(&[elements]) };
    TensorType { shape, dtype: ty.dtype }
}

/// Bytes of one shard of each tensor.
fn shard_bytes(tensors: &[TensorType], ranks: usize) -> usize {
    tensors.iter().map(|ty| shard_type(ty, ranks).bytes()).sum()
}

fn check_tensors(ranks: usize, tensors: &[TensorType]) -> Result<(), ShapeError> {
    if tensors.is_empty() || ranks == 0 {
        return Err(ShapeError::Attribute(format!("{} tensors of {ranks} ranks", tensors.len())));
    }
    match tensors.iter().position(|ty| ty.dtype == DType::I32) {
        Some(index) => {
            Err(ShapeError::Input { index, want: "floating point".into(), have: tensors[index].to_string() })
        }
        None => Ok(()),
    }
}

impl Operator for ReduceScatter {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        check_tensors(self.ranks, inputs)?;
        Ok(inputs.iter().map(|input| shard_type(input, self.ranks)).collect())
    }

    /// A rank sums its own shards.
    fn flops(&self, _: &[TensorType], outputs: &[TensorType]) -> u64 {
        (outputs.iter().map(TensorType::elements).sum::<usize>() * (self.ranks - 1)) as u64
    }

    fn sent_bytes(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        ((self.ranks - 1) * shard_bytes(inputs, self.ranks)) as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        vec![Example { op: ReduceScatter { ranks: 1, later: false }.into(), inputs: tensors() }]
    }
}

impl Operator for AllGather {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let want = 2 * self.tensors + self.bf16_copies;
        if inputs.len() != want {
            return Err(ShapeError::Arity { want, have: inputs.len() });
        }
        let (whole, shards) = inputs[..2 * self.tensors].split_at(self.tensors);
        check_tensors(self.ranks, whole)?;
        for (index, (whole, shard)) in whole.iter().zip(shards).enumerate() {
            let ty = shard_type(whole, self.ranks);
            expect(self.tensors + index, shard, ty.sizes())?;
            if shard.dtype != ty.dtype {
                let want = ty.to_string();
                return Err(ShapeError::Input { index: self.tensors + index, want, have: shard.to_string() });
            }
        }
        match copied_tensors(whole, &inputs[2 * self.tensors..]) {
            Some(_) => Ok(vec![]),
            None => {
                Err(ShapeError::Attribute(format!("{} copies in half precision of other tensors", self.bf16_copies)))
            }
        }
    }

    fn flops(&self, _: &[TensorType], _: &[TensorType]) -> u64 {
        0
    }

    /// Reads the shards and writes the tensors.
    fn bytes(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        inputs.iter().map(TensorType::bytes).sum::<usize>() as u64
    }

    fn updates(&self) -> Vec<usize> {
        (0..self.tensors).chain(2 * self.tensors..2 * self.tensors + self.bf16_copies).collect()
    }

    fn sent_bytes(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        ((self.ranks - 1) * shard_bytes(&inputs[..self.tensors], self.ranks)) as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let shards = tensors().into_iter().map(|(ty, fill)| (shard_type(&ty, 1), fill));
        let inputs = tensors().into_iter().chain(shards).collect();
        vec![Example { op: AllGather { ranks: 1, tensors: 3, bf16_copies: 0 }.into(), inputs }]
    }
}

/// The index of the tensor that each half-precision copy belongs to; `None` if a copy matches no tensor. Copies come in
/// the order of the tensors and belong to single-precision tensors with more than one axis.
pub fn copied_tensors(whole: &[TensorType], copies: &[TensorType]) -> Option<Vec<usize>> {
    let mut places = (0..whole.len()).filter(|&at| whole[at].dtype == DType::F32 && whole[at].sizes().len() > 1);
    let of =
        |copy: &TensorType| places.find(|&at| whole[at].sizes() == copy.sizes()).filter(|_| copy.dtype == DType::Bf16);
    copies.iter().map(of).collect()
}

fn tensors() -> Vec<(TensorType, Fill)> {
    [&[3usize, 77][..], &[5], &[1]].map(|sizes| (TensorType::f32(sizes), Fill::Normal)).to_vec()
}

impl Operator for AllReduce {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        check_tensors(self.ranks, inputs)?;
        if self.kept != 0 && (self.kept != inputs.len() || self.later) {
            return Err(ShapeError::Attribute(format!("{} of {} tensors are kept", self.kept, inputs.len())));
        }
        Ok(if self.kept > 0 { vec![] } else { inputs.to_vec() })
    }

    /// A rank sums its own shards.
    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        let shards: usize = inputs.iter().map(|input| shard_elements(input.elements(), self.ranks)).sum();
        (shards * (self.ranks - 1)) as u64
    }

    fn updates(&self) -> Vec<usize> {
        (0..self.kept).collect()
    }

    /// A rank sends the other ranks their shards, then the sum of its own.
    fn sent_bytes(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        (2 * (self.ranks - 1) * shard_bytes(inputs, self.ranks)) as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    /// One rank only: other tests cover several ranks.
    fn examples() -> Vec<Example> {
        let one =
            |mean, kept| Example { op: AllReduce { ranks: 1, mean, kept, later: false }.into(), inputs: tensors() };
        vec![one(false, 0), one(true, 0), one(false, 3)]
    }
}

impl Operator for Arrive {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        if inputs.is_empty() || !inputs.len().is_multiple_of(2) {
            return Err(ShapeError::Arity { want: 2, have: inputs.len() });
        }
        Ok(vec![])
    }

    fn flops(&self, _: &[TensorType], _: &[TensorType]) -> u64 {
        0
    }

    /// The op only waits and touches no memory.
    fn bytes(&self, _: &[TensorType], _: &[TensorType]) -> u64 {
        0
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let ty = TensorType::f32(&[3, 7]);
        vec![Example { op: Arrive {}.into(), inputs: vec![(ty.clone(), Fill::Normal), (ty, Fill::Normal)] }]
    }
}
