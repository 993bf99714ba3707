//! A parameter whose optimizer state is sharded over ranks: which part this rank has, and how the whole is read and
//! written.

use crate::checkpoint::ranges::Ranges;
use crate::checkpoint::{CheckpointError, Content, TensorSpec};
use crate::persist::{self, NotSaved};
use crate::trainer::{PIECE, TRAINING, Trainer};
use headroom_engine::Device;
use headroom_engine::ranks::RanksError;
use headroom_graph::ValueId;
use headroom_graph::ops::collective::shard_elements;
use headroom_graph::passes::zero1::shard_name;
use std::ops::Range;

/// This rank's part of a parameter.
pub(crate) struct Shard {
    /// The part of the weights that the update writes.
    pub weights: ValueId,
    elements: usize,
    each: usize,
    rank: usize,
    ranks: usize,
}

/// Elements of a tensor that a rank has or writes; all shards are cut this way.
fn range_of(elements: usize, rank: usize, ranks: usize) -> Range<usize> {
    let each = shard_elements(elements, ranks);
    let start = (rank * each).min(elements);
    start..(start + each).min(elements)
}

impl Shard {
    /// Elements of the whole tensor that a rank has.
    fn of(&self, rank: usize) -> Range<usize> {
        range_of(self.elements, rank, self.ranks)
    }

    /// Writes this rank's part of `data`, which begins at element `first` of the whole tensor.
    pub fn write(&self, device: &mut dyn Device, value: ValueId, first: usize, data: &[f32]) {
        let own = self.of(self.rank);
        let (start, end) = (first.max(own.start), (first + data.len()).min(own.end));
        if start < end {
            device.write_f32(TRAINING, value, start - own.start, &data[start - first..end - first]);
        }
    }
}

impl Trainer {
    /// Returns `None` where every rank has the whole tensor.
    pub(crate) fn shard(&self, name: &str) -> Option<Shard> {
        let graph = self.graph();
        let weights = graph.named(&shard_name(name))?;
        let ranks = self.ranks.as_ref()?;
        let elements = graph.ty(graph.named(name)?).elements();
        let (rank, ranks) = (ranks.rank(), ranks.size());
        Some(Shard { weights, elements, each: shard_elements(elements, ranks), rank, ranks })
    }

    /// Hands over a sharded state in pieces, in order. All ranks must call this at the same time.
    pub(crate) fn read_together(
        &mut self,
        shard: &Shard,
        value: ValueId,
        mut take: impl FnMut(&[f32]),
    ) -> Result<(), RanksError> {
        let mut piece = vec![0.0; shard.each.min(PIECE)];
        for rank in 0..shard.ranks {
            let whole = shard.of(rank);
            for first in (0..whole.len()).step_by(PIECE) {
                let count = (whole.len() - first).min(PIECE);
                let mut mine = vec![];
                if rank == shard.rank {
                    self.device.read_f32(TRAINING, value, first, &mut piece[..count]);
                    mine = piece[..count].iter().flat_map(|x| x.to_le_bytes()).collect();
                }
                let Some(ranks) = &self.ranks else { return Err(RanksError::Left) };
                let said = ranks.gather(&mine)?;
                let floats = said[rank].chunks_exact(4).map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]]));
                let floats: Vec<f32> = floats.collect();
                if floats.len() != count {
                    return Err(RanksError::OtherLength { rank, have: said[rank].len(), want: 4 * count });
                }
                take(&floats);
            }
        }
        Ok(())
    }

    /// Writes this rank's range of every tensor and syncs it.
    pub(crate) fn write_ranges(&mut self, specs: &[TensorSpec], ranges: Ranges) -> Result<(), CheckpointError> {
        let Some((rank, size)) = self.ranks.as_ref().map(|ranks| (ranks.rank(), ranks.size())) else { return Ok(()) };
        for content in [Content::Weight].into_iter().chain(Content::STATES) {
            for spec in specs.iter().filter(|spec| spec.has(content)) {
                let value = self.find(&spec.name, content);
                let own = range_of(spec.elements(), rank, size);
                // A sharded state holds only this rank's elements.
                let is_shard = content != Content::Weight && self.shard(&spec.name).is_some();
                let begin = if is_shard { 0 } else { own.start };
                let mut piece = vec![0.0; own.len().min(PIECE)];
                for first in (0..own.len()).step_by(PIECE) {
                    piece.truncate(own.len() - first);
                    self.device.read_f32(TRAINING, value, begin + first, &mut piece);
                    if let Some(&value) = piece.iter().find(|x| !x.is_finite()) {
                        let (name, step) = (spec.name.clone(), self.step);
                        return Err(CheckpointError::Handover(NotSaved { content, name, value, step }.into()));
                    }
                    ranges.write(content, &spec.name, own.start + first, &piece)?;
                }
            }
        }
        ranges.finish()
    }

    /// Takes part in reading sharded states on a rank that does not save: the saving rank reads them from all ranks.
    pub fn hand_over(&mut self) -> Result<(), RanksError> {
        let specs = persist::specs(self);
        for content in Content::STATES {
            for spec in specs.iter().filter(|spec| spec.has(content)) {
                let Some(shard) = self.shard(&spec.name) else { continue };
                let value = self.find(&spec.name, content);
                self.read_together(&shard, value, |_| {})?;
            }
        }
        Ok(())
    }
}
