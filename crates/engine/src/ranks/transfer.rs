//! Tensors that go through all ranks: where they lie, and what is made of them.

/// Where a tensor lies.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub start: *mut f32,
    pub elements: usize,
}

// SAFETY: a place is an address; every access to what lies there goes through `unsafe` with its own promise.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

/// The use that is made of a transfer's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Summed over all ranks, or their mean.
    AllReduce { mean: bool },
    /// Summed, and each rank gets its shard.
    ReduceScatter,
    /// Put together from each rank's shard.
    AllGather,
}

/// Tensors that go through all ranks.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub kind: Kind,
    pub from: Vec<Place>,
    /// The same as `from` where they are summed in place.
    pub to: Vec<Place>,
}

impl Transfer {
    /// The whole tensors, of which each rank has a shard before or afterwards.
    pub fn whole(&self) -> &[Place] {
        if self.kind == Kind::AllGather { &self.to } else { &self.from }
    }
}
