//! Values for an example's inputs: reproducible, and rounded to single precision so that every backend sees the same.

use crate::reference::Tensor;
use headroom_graph::TensorType;
use headroom_graph::op::{Example, Fill};

pub fn inputs(example: &Example) -> Vec<Tensor> {
    (1..).zip(&example.inputs).map(|(seed, (ty, fill))| tensor(ty, *fill, seed)).collect()
}

pub fn tensor(ty: &TensorType, fill: Fill, seed: u64) -> Tensor {
    let mut noise = Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut data: Vec<f64> = (0..ty.elements())
        .map(|_| match fill {
            Fill::Normal => noise.normal(),
            Fill::Positive => noise.normal().powi(2) + 0.1,
            Fill::Ids(limit) => (noise.uniform() * limit as f64).floor(),
            Fill::CausalRows => noise.normal().exp(),
            Fill::Constant(value) => value,
        })
        .collect();
    if fill == Fill::CausalRows {
        let seq = ty.shape.row();
        for (row, values) in data.chunks_exact_mut(seq).enumerate() {
            values[row % seq + 1..].fill(0.0);
            let sum: f64 = values.iter().sum();
            values.iter_mut().for_each(|value| *value /= sum);
        }
    }
    data.iter_mut().for_each(|value| *value = f64::from(*value as f32));
    Tensor { ty: ty.clone(), data }
}

struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Approximates a normal variable by the sum of twelve uniform ones.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}
