//! Chooses the attention kernels for a call, and their tiles, threads, shared memory and scratch.

use super::{CUDNN_OWN, LONG};
use crate::cuda::compile::{FLASH_BACKWARD, FLASH_BACKWARD_MMA, FLASH_FORWARD, FLASH_FORWARD_MMA, FLASH_PLAIN, Unit};
use headroom_graph::ops::attention::AttentionSizes;

/// Families of kernels: for Hopper's tensor cores, for those of any device from Ampere on, or with exact arithmetic for
/// any head size and storage, by the suffix of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Hopper,
    Ampere(Tiles),
    Plain(&'static str),
}

/// Tiles that a block of the Ampere-level gradients holds in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// Tiles of 64 keys.
    pub keys: usize,
    /// Tiles of queries: one in use, one being loaded.
    pub stages: usize,
}

impl Tiles {
    const CHOICES: [Tiles; 2] = [Tiles { keys: 2, stages: 2 }, Tiles { keys: 1, stages: 1 }];

    /// The largest tiles that fit into this much shared memory.
    pub fn that_fit(sizes: &AttentionSizes, shared_memory: usize) -> Option<Tiles> {
        Tiles::CHOICES.into_iter().find(|tiles| tiles.backward_shared(sizes) <= shared_memory)
    }

    pub fn threads(self, sizes: &AttentionSizes) -> usize {
        self.keys * if sizes.head_dim > 64 { 128 } else { 64 }
    }

    pub fn backward_shared(self, sizes: &AttentionSizes) -> usize {
        let weights = if sizes.head_dim > 64 { 2 } else { 1 };
        2 * (self.keys + self.stages) * tile_bytes(sizes) + self.keys * 8192 * weights + self.stages * 512 + 1024
    }
}

/// How much of the sequence a block owns.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    pub small: bool,
    pub suffix: &'static str,
    pub rows: usize,
    pub threads: usize,
}

impl Kind {
    pub fn suffix(self) -> &'static str {
        match self {
            Kind::Hopper => "_bf16",
            Kind::Ampere(_) => "_mma_bf16",
            Kind::Plain(suffix) => suffix,
        }
    }

    pub fn is_tensor_cores(self) -> bool {
        !matches!(self, Kind::Plain(_))
    }

    pub fn forward_unit(self, sizes: &AttentionSizes) -> Unit {
        let head = head_option(sizes);
        match self {
            Kind::Hopper => Unit { source: FLASH_FORWARD, options: vec![head] },
            Kind::Ampere(_) => Unit { source: FLASH_FORWARD_MMA, options: vec![head] },
            Kind::Plain("_any_bf16") => Unit { source: FLASH_PLAIN, options: vec![head, "-DSTORAGE_BF16".into()] },
            Kind::Plain(_) => Unit { source: FLASH_PLAIN, options: vec![head] },
        }
    }

    pub fn backward_unit(self, sizes: &AttentionSizes) -> Unit {
        let head = head_option(sizes);
        match self {
            Kind::Hopper => Unit { source: FLASH_BACKWARD, options: vec![head] },
            Kind::Ampere(Tiles { keys, stages }) => {
                let options = vec![head, format!("-DKEY_TILES={keys}"), format!("-DSTAGES={stages}")];
                Unit { source: FLASH_BACKWARD_MMA, options }
            }
            Kind::Plain(_) => self.forward_unit(sizes),
        }
    }

    /// On an H200, the Ampere-level kernels were faster for large heads and short sequences.
    pub fn for_forward(self, sizes: &AttentionSizes) -> Kind {
        match self {
            Kind::Hopper if sizes.head_dim > 64 && sizes.seq < LONG => Kind::Ampere(Tiles::CHOICES[0]),
            kind => kind,
        }
    }

    /// On an H200, small tiles were as fast up to this length, and faster at shorter ones.
    pub fn forward_variant(self, sizes: &AttentionSizes, multiprocessors: usize) -> Variant {
        match self == Kind::Hopper && sizes.seq < LONG {
            true => self.variant(sizes, usize::MAX / 2),
            false => self.variant(sizes, multiprocessors),
        }
    }

    /// Small tiles if large ones would leave multiprocessors idle.
    pub fn variant(self, sizes: &AttentionSizes, multiprocessors: usize) -> Variant {
        let (large_rows, small_rows, large_threads, small_threads) = match self {
            Kind::Hopper => (128, 64, 256, 128),
            Kind::Ampere(_) => (128, 64, 128, 128),
            Kind::Plain(_) => (64, 32, 128, 128),
        };
        let blocks = sizes.seq.div_ceil(large_rows) * sizes.batch * sizes.heads;
        match blocks < 2 * multiprocessors {
            true => Variant { small: true, suffix: "_small", rows: small_rows, threads: small_threads },
            false => Variant { small: false, suffix: "", rows: large_rows, threads: large_threads },
        }
    }

    pub fn forward_shared(self, sizes: &AttentionSizes, variant: Variant) -> usize {
        match self {
            Kind::Hopper => (variant.rows / 64 + 4) * tile_bytes(sizes) + 1024,
            Kind::Ampere(_) => (variant.rows / 64 + 2) * tile_bytes(sizes) + 1024,
            Kind::Plain(_) => 4 * ((variant.rows + 128) * stride(sizes) + variant.rows * 68 + 192),
        }
    }

    pub fn backward_shared(self, sizes: &AttentionSizes, variant: Variant) -> usize {
        match self {
            Kind::Hopper => (if variant.small { 6 } else { 8 }) * tile_bytes(sizes) + 2048,
            Kind::Ampere(tiles) => tiles.backward_shared(sizes),
            Kind::Plain(_) => 4 * ((2 * variant.rows + 128) * stride(sizes) + variant.rows * 68 + 192),
        }
    }
}

pub fn choice_key(what: &str, sizes: &AttentionSizes, pitches: &[usize]) -> String {
    let AttentionSizes { batch, heads, kv_heads, seq, head_dim } = sizes;
    let pitches: Vec<String> = pitches.iter().map(usize::to_string).collect();
    format!("attention-{what}-{batch}x{heads}x{kv_heads}x{seq}x{head_dim}-{}", pitches.join("-"))
}

pub fn head_option(sizes: &AttentionSizes) -> String {
    format!("-DHEAD_DIM={}", sizes.head_dim)
}

/// Bytes of single-precision partial sums of dq, in tiles of 64 queries.
pub fn partial_bytes(sizes: &AttentionSizes) -> usize {
    let columns = if sizes.head_dim > 64 { 128 } else { 64 };
    sizes.batch * sizes.heads * sizes.seq.div_ceil(64) * 64 * columns * 4
}

/// Bytes for the next ticket, and a counter per head and tile of queries.
pub fn turns_bytes(sizes: &AttentionSizes) -> usize {
    (1 + sizes.batch * sizes.heads * sizes.seq.div_ceil(64)) * 4
}

/// Upper bound of the gradients' scratch on any device.
pub fn gradient_scratch(sizes: &AttentionSizes) -> usize {
    let delta = (sizes.batch * sizes.heads * sizes.seq * 4).next_multiple_of(256);
    // Twice the partial sums: cuDNN needs the same amount again for per-head gradients of keys and values.
    delta + 2 * partial_bytes(sizes) + turns_bytes(sizes) + CUDNN_OWN
}

/// Bytes of 64 rows of one head in shared memory, in the layout of the tensor cores.
pub fn tile_bytes(sizes: &AttentionSizes) -> usize {
    8192 * sizes.head_dim.div_ceil(64)
}

/// Row stride in shared memory, in floats: an odd number of 16-byte words.
pub fn stride(sizes: &AttentionSizes) -> usize {
    let padded = sizes.head_dim.next_multiple_of(4);
    if padded.is_multiple_of(8) { padded + 4 } else { padded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_as_many_tiles_as_the_device_has_shared_memory_for() {
        let sizes = |head_dim: usize| AttentionSizes { batch: 1, seq: 128, heads: 2, kv_heads: 1, head_dim };
        let (a100, ada, turing) = (163 * 1024, 99 * 1024, 64 * 1024);
        let [large, small] = Tiles::CHOICES;
        for (head_dim, shared_memory, tiles) in [
            (128, a100, Some(large)),
            (128, ada, Some(small)),
            (128, turing, None),
            (64, ada, Some(large)),
            (16, turing, Some(small)),
        ] {
            assert_eq!(Tiles::that_fit(&sizes(head_dim), shared_memory), tiles, "{head_dim} in {shared_memory}");
        }
    }
}
