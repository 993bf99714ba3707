//! A product of two eight-bit matrices, both with rows along the inner axis, as Hopper's tensor cores require.

use crate::fp8::{SLOT, named};
use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::{DType, TensorType};
use std::fmt;
use std::str::FromStr;

/// The products of a linear layer. They differ in the axis along which the result is cut into separate values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// `x · wᵀ`: columns, one value for each layer that reads `x`.
    Output,
    /// `dy · w`: one value.
    GradInput,
    /// `dyᵀ · x`: rows, one value for each layer.
    GradWeights,
}

named!(Part: Output "output", GradInput "grad_input", GradWeights "grad_weights");

/// Sizes of the values that the result is cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths {
    sizes: [usize; Widths::MOST],
    count: usize,
}

impl Widths {
    const MOST: usize = 3;

    /// Returns `None` for more than three widths.
    pub fn new(widths: &[usize]) -> Option<Widths> {
        let mut sizes = [0; Widths::MOST];
        sizes.get_mut(..widths.len())?.copy_from_slice(widths);
        Some(Widths { sizes, count: widths.len() })
    }

    pub fn as_slice(&self) -> &[usize] {
        &self.sizes[..self.count]
    }
}

impl fmt::Display for Widths {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let words: Vec<String> = self.as_slice().iter().map(usize::to_string).collect();
        out.write_str(&words.join("+"))
    }
}

impl FromStr for Widths {
    type Err = ();

    fn from_str(text: &str) -> Result<Widths, ()> {
        let sizes = text.split('+').map(|word| word.parse().map_err(|_| ())).collect::<Result<Vec<usize>, ()>>()?;
        Widths::new(&sizes).ok_or(())
    }
}

op! {
    /// `a` `[M, K]`, `b` `[N, K]`, and their scale slots → `a · bᵀ` times both units, cut into `widths` along the axis
    /// that `part` selects. The result is in half precision, or in single if the operands are.
    pub struct Fp8Product {
        pub part: Part,
        pub widths: Widths,
    }
}

impl Operator for Fp8Product {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [a, b, a_slot, b_slot] = arity(inputs)?;
        let ((m, k), (n, b_inner)) = (op::matrix(0, a)?, op::matrix(1, b)?);
        if k != b_inner {
            return Err(ShapeError::InnerSize { left: k, right: b_inner });
        }
        expect(2, a_slot, &[SLOT])?;
        expect(3, b_slot, &[SLOT])?;
        let whole = if self.part == Part::GradWeights { m } else { n };
        let (sum, cut): (usize, usize) = (self.widths.as_slice().iter().sum(), self.widths.as_slice().len());
        if sum != whole || (self.part == Part::GradInput && cut != 1) {
            return Err(ShapeError::Attribute(format!("widths {} do not make up {whole}", self.widths)));
        }
        let dtype = if a.dtype == DType::F32 { DType::F32 } else { DType::Bf16 };
        let sizes = |width: usize| if self.part == Part::GradWeights { [width, n] } else { [m, width] };
        Ok(self.widths.as_slice().iter().map(|&width| TensorType::new(dtype, &sizes(width))).collect())
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        2 * (inputs[0].elements() * inputs[1].sizes()[0]) as u64
    }

    fn is_product(&self) -> bool {
        true
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let matrix = |sizes: [usize; 2]| (TensorType::f32(&sizes), Fill::Normal);
        let slot = |unit: f64| (TensorType::f32(&[SLOT]), Fill::Constant(unit));
        let example = |part: Part, widths: &[usize], a: [usize; 2], b: [usize; 2]| {
            let widths = Widths::new(widths)?;
            let inputs = vec![matrix(a), matrix(b), slot(0.25), slot(2.0)];
            Some(Example { op: Fp8Product { part, widths }.into(), inputs })
        };
        [
            example(Part::Output, &[64, 32, 32], [48, 80], [128, 80]),
            example(Part::GradInput, &[32], [48, 128], [32, 128]),
            example(Part::GradWeights, &[48, 16], [64, 32], [80, 32]),
            example(Part::GradWeights, &[64], [64, 48], [16, 48]),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
