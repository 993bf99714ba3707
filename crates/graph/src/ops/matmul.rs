//! Matrix product in the three forms that a linear layer needs, so that nothing is ever transposed in memory.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity};
use crate::tensor::TensorType;
use std::fmt;
use std::str::FromStr;

/// Operand that is read transposed, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `a[m, k] · b[k, n]`: the gradient of a linear layer's input.
    Nn,
    /// `a[m, k] · b[n, k]ᵀ`: a linear layer.
    Nt,
    /// `a[k, m]ᵀ · b[k, n]`: the gradient of its weight.
    Tn,
}

op! {
    pub struct MatMul {
        pub form: Form,
    }
}

impl MatMul {
    /// `(m, k, n)` of the product.
    pub fn sizes(&self, left: &TensorType, right: &TensorType) -> Result<(usize, usize, usize), ShapeError> {
        let (left, right) = (op::matrix(0, left)?, op::matrix(1, right)?);
        let ((m, k), (k_right, n)) = match self.form {
            Form::Nn => (left, right),
            Form::Nt => (left, (right.1, right.0)),
            Form::Tn => ((left.1, left.0), right),
        };
        if k != k_right {
            return Err(ShapeError::InnerSize { left: k, right: k_right });
        }
        Ok((m, k, n))
    }
}

impl Operator for MatMul {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [left, right] = arity(inputs)?;
        let (m, _, n) = self.sizes(left, right)?;
        Ok(vec![TensorType::new(left.dtype, &[m, n])])
    }

    /// One multiply and one add per (row, column, inner) triple.
    fn flops(&self, inputs: &[TensorType], outputs: &[TensorType]) -> u64 {
        let (m, k, n) = self.sizes(&inputs[0], &inputs[1]).unwrap_or((0, 0, outputs[0].shape.row()));
        2 * (m * k * n) as u64
    }

    fn is_product(&self) -> bool {
        true
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let (a, b, dc) = (at.inputs[0], at.inputs[1], at.arrived_one());
        let ((left, left_inputs), (right, right_inputs)) = match self.form {
            Form::Nn => ((Form::Nt, [dc, b]), (Form::Tn, [a, dc])),
            Form::Nt => ((Form::Nn, [dc, b]), (Form::Tn, [dc, a])),
            Form::Tn => ((Form::Nt, [b, dc]), (Form::Nn, [a, dc])),
        };
        Ok(vec![
            at.if_wanted(0, MatMul { form: left }, &left_inputs)?,
            at.if_wanted(1, MatMul { form: right }, &right_inputs)?,
        ])
    }

    fn examples() -> Vec<Example> {
        let mut all = vec![];
        for [m, k, n] in [[5, 7, 3], [33, 70, 47], [130, 300, 65]] {
            for form in [Form::Nn, Form::Nt, Form::Tn] {
                let (left, right) = match form {
                    Form::Nn => ([m, k], [k, n]),
                    Form::Nt => ([m, k], [n, k]),
                    Form::Tn => ([k, m], [k, n]),
                };
                all.push(Example {
                    op: MatMul { form }.into(),
                    inputs: vec![(TensorType::f32(&left), Fill::Normal), (TensorType::f32(&right), Fill::Normal)],
                });
            }
        }
        all
    }
}

impl fmt::Display for Form {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(match self {
            Form::Nn => "nn",
            Form::Nt => "nt",
            Form::Tn => "tn",
        })
    }
}

impl FromStr for Form {
    type Err = ();

    fn from_str(text: &str) -> Result<Form, ()> {
        match text {
            "nn" => Ok(Form::Nn),
            "nt" => Ok(Form::Nt),
            "tn" => Ok(Form::Tn),
            _ => Err(()),
        }
    }
}
