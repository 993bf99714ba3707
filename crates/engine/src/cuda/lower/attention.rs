//! Attention: the products of materialised scores, and the tiled kernels that never write them.

mod kinds;

pub use kinds::gradient_scratch;

use super::{Call, Grid, Lowering, Operand};
use crate::cuda::SumOrder;
use crate::cuda::compile::{ANY_ORDER, ATTENTION, FLASH_ROTATE, Unit};
use crate::cuda::cudnn::attention::{self as theirs, Wanted};
use crate::cuda::error::CudaError;
use crate::cuda::launch::{Action, Arguments, Either, Side};
use crate::cuda::level::Level;
use headroom_graph::ops::attention::{AttentionMix, AttentionMixBack, AttentionScores, AttentionSizes};
use headroom_graph::ops::flash_attention::{FlashAttention, FlashAttentionGrad, Rotation};
use headroom_graph::{DType, ShapeError};
use kinds::{Kind, Tiles, choice_key, head_option, partial_bytes, turns_bytes};

const TILE: usize = 64;

/// With at least this many elements of queries and keys, a separate launch for rotating them pays; measured on an H200.
const TURN_APART: usize = 1 << 20;

/// Hopper's large tiles pay for sequences of at least this length.
const LONG: usize = 2048;

/// For sequences of at least this length, sums in any order, if allowed, are not slower than taking turns; measured on
/// an H200.
const ANY_ORDER_FROM: usize = 2048;

/// Approximate workspace that cuDNN needs for itself.
const CUDNN_OWN: usize = 1 << 20;

/// The largest head that the tiled kernels support.
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
        if cosine != 0 && kind.is_tensor_cores() && q.ty.elements() + k.ty.elements() >= TURN_APART {
            actions.push(self.turn(&sizes, (q, k), (cosine, sine))?);
            self.rotated.insert(q.at);
            (cosine, sine) = (0, 0);
        }
        let arguments = [q, k, v, out, lse]
            .into_iter()
            .fold(Arguments::default(), |list, operand| list.pointer(operand.at))
            .pointer(cosine)
            .pointer(sine);
        let arguments = pitches(of_sizes(arguments, &sizes), &[q, k, v, out]).f32(op.scale);
        let (on_hopper, kind) = (kind == Kind::Hopper, kind.for_forward(&sizes));
        let variant = kind.forward_variant(&sizes, self.context.multiprocessors as usize);
        let tiles = sizes.seq.div_ceil(variant.rows) * sizes.batch * sizes.heads;
        let shared = kind.forward_shared(&sizes, variant);
        let name = format!("flash_forward{}{}", variant.suffix, kind.suffix());
        let grid = Grid::new(tiles, variant.threads).with_shared(shared);
        let ours = self.kernel_of(&kind.forward_unit(&sizes), &name, grid, arguments)?;
        let rotated = cosine == 0 && on_hopper;
        let wanted = Wanted { sizes: &sizes, scale: op.scale, order: self.plans.order };
        let theirs = if rotated { self.forward_by_cudnn(&wanted, [q, k, v, out, lse])? } else { None };
        actions.push(match theirs {
            Some((key, theirs)) => Action::Either(Box::new(Either { key, ours: vec![ours], theirs, side: Side::Ours })),
            None => ours,
        });
        Ok(actions)
    }

    /// Rotates queries and keys in place: cheaper than rotating every tile each time it is loaded.
    fn turn(
        &mut self,
        sizes: &AttentionSizes,
        operands: (&Operand, &Operand),
        tables: (u64, u64),
    ) -> Result<Action, CudaError> {
        self.turn_by(sizes, "flash_rotate_bf16", operands, tables)
    }

    fn turn_by(
        &mut self,
        sizes: &AttentionSizes,
        kernel: &str,
        (q, k): (&Operand, &Operand),
        (cosine, sine): (u64, u64),
    ) -> Result<Action, CudaError> {
        let arguments = Arguments::default().pointer(q.at).pointer(k.at).pointer(cosine).pointer(sine);
        let arguments = pitches(of_sizes(arguments, sizes), &[q, k]);
        let items = sizes.batch * sizes.seq * (sizes.heads + sizes.kv_heads) * (sizes.head_dim / 16);
        let grid = Grid::new(items.div_ceil(256), 256);
        let unit = Unit { source: FLASH_ROTATE, options: vec![head_option(sizes)] };
        self.kernel_of(&unit, kernel, grid, arguments)
    }

    /// On Hopper, one launch if the device would not be full anyway, else one for dq and one for dk and dv; on other
    /// devices, one for the rows' sums and one for everything.
    pub fn flash_gradient(&mut self, call: &Call, op: &FlashAttentionGrad) -> Result<Vec<Action>, CudaError> {
        let forward = op.forward();
        let sizes = forward.sizes(&call.inputs[0].ty).map_err(|error| wrong(call, error))?;
        let [q, k, v, out, lse, dout, ..] = call.inputs else { return Err(call.unsupported("takes six inputs")) };
        let [dq, dk, dv] = call.outputs else { return Err(call.unsupported("makes three outputs")) };
        let (cosine, sine) = tables(call, op.rotation, 6);
        let kind = self.kind(call, &sizes)?;
        let variant = kind.variant(&sizes, self.context.multiprocessors as usize);
        let delta_bytes = (sizes.batch * sizes.heads * sizes.seq * 4).next_multiple_of(256);
        let delta = match variant.small && !matches!(kind, Kind::Ampere(_)) {
            true => 0,
            false => self.scratch(0, delta_bytes),
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
        let rotated_before = usize::from(self.rotated.contains(&q.at));
        let arguments =
            pitches(of_sizes(arguments, &sizes), &[q, k, v, out, dout, dq, dk, dv]).u32(rotated_before).f32(op.scale);
        if let Kind::Ampere(tiles) = kind {
            return self.gradients_in_turns(&sizes, tiles, delta_bytes, arguments);
        }
        let (unit, shared) = (kind.backward_unit(&sizes), kind.backward_shared(&sizes, variant));
        let tiles = sizes.seq.div_ceil(variant.rows) * sizes.batch;
        let parts: &[(&str, usize)] = match variant.small {
            true => &[("flash_backward_small", sizes.heads + sizes.kv_heads)],
            false => &[("flash_backward_q", sizes.heads), ("flash_backward_kv", sizes.kv_heads)],
        };
        let ours: Vec<Action> = parts
            .iter()
            .map(|&(name, heads)| {
                let grid = Grid::new(tiles * heads, variant.threads).with_shared(shared);
                self.kernel_of(&unit, &format!("{name}{}", kind.suffix()), grid, arguments.clone())
            })
            .collect::<Result<_, _>>()?;
        let rotated = kind == Kind::Hopper && (cosine == 0 || rotated_before == 1);
        let wanted = Wanted { sizes: &sizes, scale: op.scale, order: self.plans.order };
        let operands = [q, k, v, out, dout, dq, dk, dv];
        let theirs = if rotated { self.backward_by_cudnn(&wanted, operands, lse, (cosine, sine))? } else { None };
        Ok(match theirs {
            Some((key, theirs)) => vec![Action::Either(Box::new(Either { key, ours, theirs, side: Side::Ours }))],
            None => ours,
        })
    }

    /// Queries and keys are already rotated. Returns the key of the choice and cuDNN's actions.
    fn forward_by_cudnn(
        &mut self,
        wanted: &Wanted,
        operands: [&Operand; 5],
    ) -> Result<Option<(String, Vec<Action>)>, CudaError> {
        if !wanted.is_offered() {
            return Ok(None);
        }
        let [q, k, v, out, _] = operands;
        let pitches = [q, k, v, out].map(|operand| operand.pitch);
        let key = choice_key("forward", wanted.sizes, &pitches);
        let most = gradient_scratch(wanted.sizes);
        let Some((key, plan)) = self.plans.plan(&key, |cudnn| wanted.forward(cudnn, pitches, most)) else {
            return Ok(None);
        };
        let workspace = self.scratch(0, plan.workspace);
        let numbers = [theirs::Q, theirs::K, theirs::V, theirs::OUT, theirs::LSE];
        let places: Vec<(i64, u64)> = numbers.into_iter().zip(operands.map(|operand| operand.at)).collect();
        Ok(Some((key, vec![Action::Cudnn(Box::new(plan.at(&places, workspace)?))])))
    }

    /// The same for gradients; dq and dk are rotated back afterwards.
    fn backward_by_cudnn(
        &mut self,
        wanted: &Wanted,
        operands: [&Operand; 8],
        lse: &Operand,
        (cosine, sine): (u64, u64),
    ) -> Result<Option<(String, Vec<Action>)>, CudaError> {
        if !wanted.is_offered() {
            return Ok(None);
        }
        let sizes = wanted.sizes;
        let pitches = operands.map(|operand| operand.pitch);
        let what = match (cosine, wanted.order) {
            (0, SumOrder::Fixed) => "backward",
            (0, SumOrder::Any) => "backward-any-order",
            (_, SumOrder::Fixed) => "backward-turned",
            (_, SumOrder::Any) => "backward-turned-any-order",
        };
        let key = choice_key(what, sizes, &pitches);
        let delta_bytes = (sizes.batch * sizes.heads * sizes.seq * 4).next_multiple_of(256);
        let sums_bytes = if wanted.order == SumOrder::Any { partial_bytes(sizes) } else { 0 };
        let before = delta_bytes + sums_bytes;
        let most = gradient_scratch(sizes) - before;
        let Some((key, plan)) = self.plans.plan(&key, |cudnn| wanted.backward(cudnn, pitches, most)) else {
            return Ok(None);
        };
        let (delta, sums) = (self.scratch(0, delta_bytes), self.scratch(delta_bytes, sums_bytes));
        let workspace = self.scratch(before, plan.workspace);
        let numbers = [
            theirs::Q,
            theirs::K,
            theirs::V,
            theirs::OUT,
            theirs::DOUT,
            theirs::DQ,
            theirs::DK,
            theirs::DV,
            theirs::LSE,
            theirs::DELTA,
            theirs::DQ_SUMS,
        ];
        let last = (wanted.order == SumOrder::Any).then_some(sums);
        let places = operands.map(|operand| operand.at).into_iter().chain([lse.at, delta]).chain(last);
        let places: Vec<(i64, u64)> = numbers.into_iter().zip(places).collect();
        let mut actions = vec![Action::Cudnn(Box::new(plan.at(&places, workspace)?))];
        if cosine != 0 {
            let [_, _, _, _, _, dq, dk, _] = operands;
            actions.push(self.turn_by(sizes, "flash_rotate_back_bf16", (dq, dk), (cosine, sine))?);
        }
        Ok(Some((key, actions)))
    }

    /// In the scratch, `delta` is followed by partial sums of dq and by the counters that say whose turn it is to add.
    fn gradients_in_turns(
        &mut self,
        sizes: &AttentionSizes,
        tiles: Tiles,
        delta_bytes: usize,
        arguments: Arguments,
    ) -> Result<Vec<Action>, CudaError> {
        let partial_bytes = partial_bytes(sizes);
        let partial = self.scratch(delta_bytes, partial_bytes);
        let turns = self.scratch(delta_bytes + partial_bytes, turns_bytes(sizes));
        let arguments = arguments.pointer(partial).pointer(turns);
        let any_order = self.plans.order == SumOrder::Any && sizes.seq >= ANY_ORDER_FROM;
        let mut unit = Kind::Ampere(tiles).backward_unit(sizes);
        if any_order {
            unit.options.push(ANY_ORDER.into());
        }
        let rows = Grid::new((sizes.batch * sizes.seq * sizes.heads).div_ceil(32), 256);
        let blocks = sizes.seq.div_ceil(64 * tiles.keys) * sizes.batch * sizes.kv_heads;
        let grid = Grid::new(blocks, tiles.threads(sizes)).with_shared(tiles.backward_shared(sizes));
        let mut actions = vec![
            self.kernel_of(&unit, "flash_delta_mma_bf16", rows, arguments.clone())?,
            self.kernel_of(&unit, "flash_backward_mma_bf16", grid, arguments.clone())?,
        ];
        if any_order {
            let every_tile = Grid::new(sizes.batch * sizes.heads * sizes.seq.div_ceil(64), tiles.threads(sizes));
            actions.push(self.kernel_of(&unit, "flash_queries_mma_bf16", every_tile, arguments)?);
        }
        Ok(actions)
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
        if !half {
            return Ok(Kind::Plain("_f32"));
        }
        let fits = sizes.head_dim.is_multiple_of(16) && aligned;
        Ok(match (self.context.level, Tiles::that_fit(sizes, self.context.shared_memory)) {
            (Level::Hopper, _) if fits => Kind::Hopper,
            (Level::Ampere, Some(tiles)) if fits => Kind::Ampere(tiles),
            _ => Kind::Plain("_any_bf16"),
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
