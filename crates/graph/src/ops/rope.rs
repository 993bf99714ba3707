//! Rotary position embedding: each pair (i, i + half) of a head is rotated by an angle that grows with the position.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::TensorType;
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationDirection {
    Forward,
    /// The inverse rotation: the gradient.
    Back,
}

op! {
    /// `x` [T, heads · head_dim], `cos` and `sin` [seq, head_dim / 2] → like `x`. Row t has position t mod seq.
    pub struct Rope {
        pub heads: usize,
        pub turn: RotationDirection,
    }
}

impl Operator for Rope {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [x, cos, sin] = arity(inputs)?;
        let ((rows, width), (seq, half)) = (op::matrix(0, x)?, op::matrix(1, cos)?);
        expect(2, sin, cos.sizes())?;
        if self.heads * half * 2 != width || seq == 0 || rows % seq != 0 {
            let want = format!("[n · {seq}, {}]", self.heads * half * 2);
            return Err(ShapeError::Input { index: 0, want, have: x.shape.to_string() });
        }
        Ok(vec![x.clone()])
    }

    /// Two multiplies and an add per element.
    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        3 * inputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let (cos, sin, arrived) = (at.inputs[1], at.inputs[2], at.arrived_one());
        let turn = match self.turn {
            RotationDirection::Forward => RotationDirection::Back,
            RotationDirection::Back => RotationDirection::Forward,
        };
        Ok(vec![at.if_wanted(0, Rope { heads: self.heads, turn }, &[arrived, cos, sin])?, None, None])
    }

    fn examples() -> Vec<Example> {
        [(RotationDirection::Forward, 3, 5, 4), (RotationDirection::Back, 2, 7, 16)]
            .map(|(turn, heads, seq, half)| {
                let table = (TensorType::f32(&[seq, half]), Fill::Normal);
                let x = (TensorType::f32(&[2 * seq, heads * half * 2]), Fill::Normal);
                Example { op: Rope { heads, turn }.into(), inputs: vec![x, table.clone(), table] }
            })
            .to_vec()
    }
}

impl fmt::Display for RotationDirection {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(match self {
            RotationDirection::Forward => "forward",
            RotationDirection::Back => "back",
        })
    }
}

impl FromStr for RotationDirection {
    type Err = ();

    fn from_str(text: &str) -> Result<RotationDirection, ()> {
        match text {
            "forward" => Ok(RotationDirection::Forward),
            "back" => Ok(RotationDirection::Back),
            _ => Err(()),
        }
    }
}
