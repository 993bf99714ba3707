//! Collectives: what ranks do together. A call of one of them is made by every rank, in the same place of the same plan.
//!
//! Several tensors go through one call as one message: a bucket. Each tensor is cut into one shard per rank, all of the same
//! length, the last padded; a rank sums its own shard of every tensor in the order of the ranks, so that the result has the same
//! bytes on all of them and on every run.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, expect};
use crate::tensor::{DType, Shape, TensorType};

op! {
    /// Any number of tensors → each summed over the ranks, or their mean.
    pub struct AllReduce {
        pub ranks: usize,
        pub mean: bool,
        /// Tensors that are kept and summed where they lie; then there is no output. All of them or none.
        pub kept: usize,
        /// The outputs hold the sums only after an `arrive`: the call starts the exchange and does not wait for it.
        pub later: bool,
    }
}

op! {
    /// Any number of tensors → this rank's shard of each one's sum over the ranks.
    pub struct ReduceScatter {
        pub ranks: usize,
        /// As for `all_reduce`.
        pub later: bool,
    }
}

op! {
    /// So many kept tensors, then a shard of each → the tensors hold all ranks' shards. Behind those, the copies in half precision of
    /// some of the tensors, in the same order: they follow.
    pub struct AllGather {
        pub ranks: usize,
        pub tensors: usize,
        pub bf16_copies: usize,
    }
}

op! {
    /// Values of an exchange that was started: what it reads, then what it makes. Returns when the exchange is done.
    pub struct Arrive {}
}

/// Elements of one rank's shard.
pub fn shard_elements(elements: usize, ranks: usize) -> usize {
    elements.div_ceil(ranks.max(1))
}

/// A shard's type. A matrix's is a column, so that what is decided by the number of axes stays as it was.
pub fn shard_type(ty: &TensorType, ranks: usize) -> TensorType {
    let elements = shard_elements(ty.elements(), ranks);
    let shape = if ty.sizes().len() > 1 { Shape::new(&[elements, 1]) } else { Shape::new(&[elements]) };
    TensorType { shape, dtype: ty.dtype }
}

/// Bytes of a shard of each.
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

    /// A rank adds up its own shards.
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

    /// Shards are read, and tensors written.
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

/// The tensor that each copy in half precision is of, by its place; none where a copy is of no tensor. Copies come in the order of
/// the tensors, and are of those in single precision that have more than one axis.
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

    /// A rank adds up its own shards.
    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        let shards: usize = inputs.iter().map(|input| shard_elements(input.elements(), self.ranks)).sum();
        (shards * (self.ranks - 1)) as u64
    }

    fn updates(&self) -> Vec<usize> {
        (0..self.kept).collect()
    }

    /// To the others: every shard of theirs, then the sum of the own one.
    fn sent_bytes(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        (2 * (self.ranks - 1) * shard_bytes(inputs, self.ranks)) as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    /// One rank alone: what several make of it is tried where there are several.
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

    /// It waits, and touches nothing.
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
