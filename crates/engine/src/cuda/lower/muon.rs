//! SGD, and the parts of Muon that are not products: one element-wise launch per parameter.

use super::{Call, Lowering, Operand};
use crate::cuda::compile::{OPTIMIZER, Unit};
use crate::cuda::error::CudaError;
use crate::cuda::launch::{Action, Arguments};
use headroom_graph::DType;
use headroom_graph::ops::muon::{Blend, MuonMomentum, MuonUpdate, UnitNorm};
use headroom_graph::ops::sgd::Sgd;

impl Lowering<'_> {
    pub fn sgd(&mut self, call: &Call, op: &Sgd) -> Result<Vec<Action>, CudaError> {
        let [weight, gradient, rates, rest @ ..] = call.inputs else { return Err(call.unsupported("takes three")) };
        let (buffer, rest) = rest.split_at(op.buffers());
        let (half, clip) = rest.split_at(op.bf16_copies);
        let arguments = Arguments::default()
            .pointer(weight.at)
            .pointer(first_of(buffer))
            .pointer(gradient.at)
            .pointer(rates.at)
            .pointer(first_of(half))
            .pointer(first_of(clip))
            .u64(weight.ty.elements())
            .f32(op.momentum)
            .f32(op.decay_of(&weight.ty));
        self.each(call, "sgd", weight, gradient, arguments)
    }

    pub fn muon_momentum(&mut self, call: &Call, op: &MuonMomentum) -> Result<Vec<Action>, CudaError> {
        let [buffer, gradient, rates, clip @ ..] = call.inputs else { return Err(call.unsupported("takes three")) };
        let arguments = Arguments::default()
            .pointer(buffer.at)
            .pointer(gradient.at)
            .pointer(call.outputs[0].at)
            .pointer(rates.at)
            .pointer(first_of(clip))
            .u64(buffer.ty.elements())
            .f32(op.momentum)
            .f32(1.0 - op.momentum);
        self.each(call, "muon_momentum", buffer, gradient, arguments)
    }

    pub fn unit_norm(&mut self, call: &Call, op: &UnitNorm) -> Result<Vec<Action>, CudaError> {
        let [x, squares] = call.inputs else { return Err(call.unsupported("takes two")) };
        let arguments = Arguments::default()
            .pointer(x.at)
            .pointer(squares.at)
            .pointer(call.outputs[0].at)
            .u64(x.ty.elements())
            .f32(op.least);
        self.each(call, "unit_norm", x, x, arguments)
    }

    pub fn blend(&mut self, call: &Call, op: &Blend) -> Result<Vec<Action>, CudaError> {
        let [x, y] = call.inputs else { return Err(call.unsupported("takes two")) };
        let arguments = Arguments::default()
            .pointer(x.at)
            .pointer(y.at)
            .pointer(call.outputs[0].at)
            .u64(x.ty.elements())
            .f32(op.of_x)
            .f32(op.of_y);
        self.each(call, "blend", x, x, arguments)
    }

    pub fn muon_update(&mut self, call: &Call, op: &MuonUpdate) -> Result<Vec<Action>, CudaError> {
        let [weight, direction, rates, half @ ..] = call.inputs else { return Err(call.unsupported("takes three")) };
        let arguments = Arguments::default()
            .pointer(weight.at)
            .pointer(direction.at)
            .pointer(rates.at)
            .pointer(first_of(half))
            .u64(weight.ty.elements())
            .f32(op.scale)
            .f32(op.weight_decay);
        self.each(call, "muon_update", weight, direction, arguments)
    }

    /// An element-wise kernel, compiled for the storage types of the weight (or its state) and of the gradient.
    fn each(
        &mut self,
        call: &Call,
        name: &str,
        weight: &Operand,
        gradient: &Operand,
        arguments: Arguments,
    ) -> Result<Vec<Action>, CudaError> {
        if !call.inputs.iter().chain(call.outputs).all(Operand::is_dense) {
            return Err(call.unsupported("rows with gaps between them"));
        }
        let mut options = vec![];
        if weight.ty.dtype == DType::Bf16 {
            options.push("-DWEIGHT_BF16".to_string());
        }
        if gradient.ty.dtype == DType::Bf16 {
            options.push("-DGRADIENT_BF16".to_string());
        }
        let unit = Unit { source: OPTIMIZER, options };
        Ok(vec![self.kernel_of(&unit, name, self.through(weight.ty.elements()), arguments)?])
    }
}

/// The address of the only operand, or zero.
fn first_of(operands: &[Operand]) -> u64 {
    operands.first().map_or(0, |operand| operand.at)
}
