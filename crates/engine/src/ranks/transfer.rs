//! Descriptors of collectives: where the tensors lie, and which operation is applied.

/// Where a tensor lies.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub start: *mut f32,
    pub elements: usize,
}

// SAFETY: a place is an address; every access to what lies there goes through `unsafe` with its own promise.
unsafe impl Send for Place {}
// SAFETY: sharing an address gives no access; every access goes through `unsafe` with its own promise.
unsafe impl Sync for Place {}

/// The operation of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Sum or mean over all ranks.
    AllReduce { mean: bool },
    /// Sum of which each rank gets its shard.
    ReduceScatter,
    /// Whole tensors assembled from each rank's shard.
    AllGather,
}

/// Tensors of one collective.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub kind: Kind,
    pub from: Vec<Place>,
    /// The same as `from` if they are summed in place.
    pub to: Vec<Place>,
}

impl Transfer {
    /// The whole tensors, of which each rank has a shard before or after.
    pub fn whole(&self) -> &[Place] {
        if self.kind == Kind::AllGather { &self.to } else { &self.from }
    }
}
