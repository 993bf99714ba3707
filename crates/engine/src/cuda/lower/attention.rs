//! Attention: the products of materialised scores, and the tiled kernels that never write them.

use super::{Call, Grid, Lowering, Operand};
use crate::cuda::compile::{ATTENTION, FLASH_BACKWARD, FLASH_FORWARD, FLASH_PLAIN, Source, Unit};
use crate::cuda::error::CudaError;
use crate::cuda::launch::{Action, Arguments};
use headroom_graph::ops::attention::{AttentionMix, AttentionMixBack, AttentionScores, AttentionSizes};
use headroom_graph::ops::flash_attention::{FlashAttention, FlashAttentionGrad, Rotation};
use headroom_graph::{DType, ShapeError};

const TILE: usize = 64;

/// Elements of queries and keys from which on a launch of its own for turning them pays; measured on an H200.
const TURN_APART: usize = 1 << 20;

/// The largest head that the tiled kernels hold.
const LARGEST_HEAD: usize = 128;

impl Lowering<'_> {
    pub fn scores(&mut self, call: &Call, op: &AttentionScores) -> Result<Vec<Action>, CudaError> {
        let sizes = op.sizes(&call.inputs[0].ty).map_err(|error| wrong(call, error))?;
        let grid = [sizes.seq.div_ceil(TILE), sizes.seq.div_ceil(TILE), sizes.batch * sizes.heads];
        self.attention_product(call, "attention_scores", &sizes, grid, op.scale)
    }

    pub fn mix(&mut self, call: &Call, op: &AttentionMix) -> Result<Vec<Action>, CudaError> {
        let sizes = op.sizes(&call.inputs[1].ty).map_err(|error| wrong(call, error))?;
        let grid = [sizes.head_dim.div_ceil(TILE), sizes.seq.div_ceil(TILE), sizes.batch * sizes.heads];
        self.attention_product(call, "attention_mix", &sizes, grid, op.scale)
    }

    pub fn mix_back(&mut self, call: &Call, op: &AttentionMixBack) -> Result<Vec<Action>, CudaError> {
        let sizes = op.sizes(&call.inputs[1].ty).map_err(|error| wrong(call, error))?;
        let grid = [sizes.head_dim.div_ceil(TILE), sizes.seq.div_ceil(TILE), sizes.batch * sizes.kv_heads];
        self.attention_product(call, "attention_mix_back", &sizes, grid, op.scale)
    }

    fn attention_product(
        &mut self,
        call: &Call,
        name: &str,
        sizes: &AttentionSizes,
        grid: [usize; 3],
        scale: f64,
    ) -> Result<Vec<Action>, CudaError> {
        let all = call.inputs.iter().chain(call.outputs);
        let arguments = all
            .fold(Arguments::default(), |list, operand| list.pointer(operand.at))
            .u32(sizes.heads)
            .u32(sizes.kv_heads)
            .u32(sizes.seq)
            .u32(sizes.head_dim)
            .f32(scale);
        Ok(vec![self.kernel(call, ATTENTION, name, Grid::of(grid, [256, 1, 1]), arguments)?])
    }

    pub fn flash(&mut self, call: &Call, op: &FlashAttention) -> Result<Vec<Action>, CudaError> {
        let sizes = op.sizes(&call.inputs[0].ty).map_err(|error| wrong(call, error))?;
        let [q, k, v, ..] = call.inputs else { return Err(call.unsupported("takes q, k and v")) };
        let (out, lse) = (&call.outputs[0], &call.outputs[1]);
        let kind = self.kind(call, &sizes)?;
        let (mut cosine, mut sine) = tables(call, op.rotation, 3);
        let mut actions = vec![];
        if cosine != 0 && kind == Kind::TensorCores && q.ty.elements() + k.ty.elements() >= TURN_APART {
            actions.push(self.turn(&sizes, (q, k), (cosine, sine))?);
            self.turned.insert(q.at);
            (cosine, sine) = (0, 0);
        }
        let arguments = [q, k, v, out, lse]
            .into_iter()
            .fold(Arguments::default(), |list, operand| list.pointer(operand.at))
            .pointer(cosine)
            .pointer(sine);
        let arguments = pitches(of_sizes(arguments, &sizes), &[q, k, v, out]).f32(op.scale);
        let variant = kind.forward_variant(&sizes, self.context.multiprocessors as usize);
        let tiles = sizes.seq.div_ceil(variant.rows) * sizes.batch * sizes.heads;
        let shared = kind.forward_shared(&sizes, variant);
        let name = format!("flash_forward{}{}", variant.suffix, kind.suffix());
        let grid = Grid::new(tiles, variant.threads).with_shared(shared);
        actions.push(self.kernel_of(&kind.unit(FLASH_FORWARD, &sizes), &name, grid, arguments)?);
        Ok(actions)
    }

    /// Turns queries and keys where they lie: cheaper than turning every tile as it is loaded, again and again.
    fn turn(
        &mut self,
        sizes: &AttentionSizes,
        (q, k): (&Operand, &Operand),
        (cosine, sine): (u64, u64),
    ) -> Result<Action, CudaError> {
        let arguments = Arguments::default().pointer(q.at).pointer(k.at).pointer(cosine).pointer(sine);
        let arguments = pitches(of_sizes(arguments, sizes), &[q, k]);
        let items = sizes.batch * sizes.seq * (sizes.heads + sizes.kv_heads) * (sizes.head_dim / 16);
        let grid = Grid::new(items.div_ceil(256), 256);
        self.kernel_of(&Kind::TensorCores.unit(FLASH_FORWARD, sizes), "flash_rotate_bf16", grid, arguments)
    }

    /// One launch where the device is not full anyway; else one for dq and one for dk and dv.
    pub fn flash_gradient(&mut self, call: &Call, op: &FlashAttentionGrad) -> Result<Vec<Action>, CudaError> {
        let forward = op.forward();
        let sizes = forward.sizes(&call.inputs[0].ty).map_err(|error| wrong(call, error))?;
        let [q, k, v, out, lse, dout, ..] = call.inputs else { return Err(call.unsupported("takes six inputs")) };
        let [dq, dk, dv] = call.outputs else { return Err(call.unsupported("makes three outputs")) };
        let (cosine, sine) = tables(call, op.rotation, 6);
        let kind = self.kind(call, &sizes)?;
        let variant = kind.variant(&sizes, self.context.multiprocessors as usize);
        let delta = match variant.small {
            true => 0,
            false => self.scratch(0, sizes.batch * sizes.heads * sizes.seq * 4),
        };
        let arguments = [q, k, v, out, dout, lse]
            .into_iter()
            .fold(Arguments::default(), |list, operand| list.pointer(operand.at))
            .pointer(delta)
            .pointer(dq.at)
            .pointer(dk.at)
            .pointer(dv.at)
            .pointer(cosine)
            .pointer(sine);
        let turned_before = usize::from(self.turned.contains(&q.at));
        let arguments =
            pitches(of_sizes(arguments, &sizes), &[q, k, v, out, dout, dq, dk, dv]).u32(turned_before).f32(op.scale);
        let (unit, shared) = (kind.unit(FLASH_BACKWARD, &sizes), kind.backward_shared(&sizes, variant));
        let tiles = sizes.seq.div_ceil(variant.rows) * sizes.batch;
        let parts: &[(&str, usize)] = match variant.small {
            true => &[("flash_backward_small", sizes.heads + sizes.kv_heads)],
            false => &[("flash_backward_q", sizes.heads), ("flash_backward_kv", sizes.kv_heads)],
        };
        parts
            .iter()
            .map(|&(name, heads)| {
                let grid = Grid::new(tiles * heads, variant.threads).with_shared(shared);
                self.kernel_of(&unit, &format!("{name}{}", kind.suffix()), grid, arguments.clone())
            })
            .collect()
    }

    fn kind(&self, call: &Call, sizes: &AttentionSizes) -> Result<Kind, CudaError> {
        if sizes.head_dim > LARGEST_HEAD {
            return Err(call.unsupported(format!(
                "heads of {} are larger than the tiled kernels hold ({LARGEST_HEAD})\n  help: --passes -flash-attention",
                sizes.head_dim
            )));
        }
        let half = call.inputs[0].ty.dtype == DType::Bf16;
        let aligned = call.inputs.iter().take(3).chain(call.outputs).all(|operand| {
            operand.ty.dtype == DType::F32 || (operand.at.is_multiple_of(16) && operand.pitch.is_multiple_of(8))
        });
        Ok(match half {
            // The tensor-core kernels are written in Hopper's own instructions.
            true if sizes.head_dim.is_multiple_of(16) && aligned && self.context.capability == (9, 0) => {
                Kind::TensorCores
            }
            true => Kind::Plain("_any_bf16"),
            false => Kind::Plain("_f32"),
        })
    }
}

fn wrong(call: &Call, error: ShapeError) -> CudaError {
    call.unsupported(error.to_string())
}

fn tables(call: &Call, rotation: Rotation, first: usize) -> (u64, u64) {
    match rotation {
        Rotation::Before => (0, 0),
        Rotation::Inside => (call.inputs[first].at, call.inputs[first + 1].at),
    }
}

fn of_sizes(arguments: Arguments, sizes: &AttentionSizes) -> Arguments {
    arguments.u32(sizes.batch).u32(sizes.heads).u32(sizes.kv_heads).u32(sizes.seq)
}

fn pitches(arguments: Arguments, operands: &[&Operand]) -> Arguments {
    operands.iter().fold(arguments, |list, operand| list.u32(operand.pitch))
}

/// Which kernels: Hopper's tensor cores, or exact arithmetic for any head and storage, by the end of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    TensorCores,
    Plain(&'static str),
}

/// How much of the sequence a block owns.
#[derive(Clone, Copy, Debug)]
struct Variant {
    small: bool,
    suffix: &'static str,
    rows: usize,
    threads: usize,
}

impl Kind {
    fn suffix(self) -> &'static str {
        match self {
            Kind::TensorCores => "_bf16",
            Kind::Plain(suffix) => suffix,
        }
    }

    /// `tensor_cores` is the source where it is theirs.
    fn unit(self, tensor_cores: Source, sizes: &AttentionSizes) -> Unit {
        let head = format!("-DHEAD_DIM={}", sizes.head_dim);
        match self {
            Kind::TensorCores => Unit { source: tensor_cores, options: vec![head] },
            Kind::Plain("_any_bf16") => Unit { source: FLASH_PLAIN, options: vec![head, "-DSTORAGE_BF16".into()] },
            Kind::Plain(_) => Unit { source: FLASH_PLAIN, options: vec![head] },
        }
    }

    /// On an H200 small tiles were as fast up to this length, and faster the shorter it is.
    fn forward_variant(self, sizes: &AttentionSizes, multiprocessors: usize) -> Variant {
        const LONG: usize = 2048;
        match self == Kind::TensorCores && sizes.seq < LONG {
            true => self.variant(sizes, usize::MAX / 2),
            false => self.variant(sizes, multiprocessors),
        }
    }

    /// Small tiles where large ones would leave multiprocessors idle.
    fn variant(self, sizes: &AttentionSizes, multiprocessors: usize) -> Variant {
        let (large_rows, small_rows, large_threads, small_threads) = match self {
            Kind::TensorCores => (128, 64, 256, 128),
            Kind::Plain(_) => (64, 32, 128, 128),
        };
        let blocks = sizes.seq.div_ceil(large_rows) * sizes.batch * sizes.heads;
        match blocks < 2 * multiprocessors {
            true => Variant { small: true, suffix: "_small", rows: small_rows, threads: small_threads },
            false => Variant { small: false, suffix: "", rows: large_rows, threads: large_threads },
        }
    }

    fn forward_shared(self, sizes: &AttentionSizes, variant: Variant) -> usize {
        match self {
            Kind::TensorCores => (variant.rows / 64 + 4) * tile_bytes(sizes) + 1024,
            Kind::Plain(_) => 4 * ((variant.rows + 128) * stride(sizes) + variant.rows * 68 + 192),
        }
    }

    fn backward_shared(self, sizes: &AttentionSizes, variant: Variant) -> usize {
        match self {
            Kind::TensorCores => (if variant.small { 6 } else { 8 }) * tile_bytes(sizes) + 2048,
            Kind::Plain(_) => 4 * ((2 * variant.rows + 128) * stride(sizes) + variant.rows * 68 + 192),
        }
    }
}

/// 64 rows of one head in shared memory, as the tensor cores want them.
fn tile_bytes(sizes: &AttentionSizes) -> usize {
    8192 * sizes.head_dim.div_ceil(64)
}

/// A row in shared memory, in floats: an odd number of 16-byte words.
fn stride(sizes: &AttentionSizes) -> usize {
    let padded = sizes.head_dim.next_multiple_of(4);
    if padded.is_multiple_of(8) { padded + 4 } else { padded }
}
