//! Quantizes values to eight bits with a scale. One pass produces both the row-major and the transposed operand of
//! products.

use crate::fp8::{Format, SLOT, named};
use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, expect};
use crate::tensor::{DType, TensorType};
use std::fmt;
use std::str::FromStr;

/// The values that are quantized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantizedValues {
    /// One matrix, or several with the same number of rows side by side.
    Columns,
    /// Several matrices with the same number of columns, stacked.
    Rows,
    /// The normed rows of `x`, computed from its rows, the norm's weight and the scale of each row (see
    /// [`super::rms_scales`]).
    Norm,
    /// `swiglu(gate, up)`, which is written to memory only in eight bits.
    SwiGlu,
    /// The gradients of `gate` and `up` side by side, from `gate`, `up` and the gradient that arrived.
    SwiGluGrad,
}

/// The copies that are produced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantizedCopies {
    Plain,
    Transposed,
    Both,
}

/// Where the scale comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// From earlier steps, kept in a slot that is the first input; at the first use, from the values themselves.
    Delayed,
    /// From the values themselves; the slot is the last output.
    Current,
}

named!(QuantizedValues: Columns "columns", Rows "rows", Norm "norm", SwiGlu "swiglu", SwiGluGrad "swiglu_grad");
named!(QuantizedCopies: Plain "plain", Transposed "transposed", Both "both");
named!(Scaling: Delayed "delayed", Current "current");

op! {
    /// The scale's slot if it is delayed (updated), and matrices → `[rows, columns]` and `[columns, rows]` as
    /// requested, and the slot if the scale is current. Half precision becomes eight bits; single-precision inputs give
    /// rounded numbers stored as floats.
    pub struct Quantize {
        pub format: Format,
        pub of: QuantizedValues,
        pub ways: QuantizedCopies,
        pub scaling: Scaling,
        /// Headroom above the largest value, in powers of two, when the scale is set from it.
        pub margin: i32,
    }
}

op! {
    /// Scale slots (updated): each is set from the largest values of the last steps.
    pub struct UpdateScales {
        pub slots: usize,
        pub format: Format,
        pub margin: i32,
    }
}

impl Quantize {
    /// The inputs that hold the values to quantize: all but the slot.
    pub fn sources<'a, T>(&self, inputs: &'a [T]) -> &'a [T] {
        match self.scaling {
            Scaling::Delayed => inputs.get(1..).unwrap_or_default(),
            Scaling::Current => inputs,
        }
    }

    /// Rows and columns of the result.
    pub fn sizes(&self, sources: &[TensorType]) -> Result<(usize, usize), ShapeError> {
        let first = sources.first().ok_or(ShapeError::Arity { want: 1, have: 0 })?;
        let (mut rows, mut columns) = op::matrix(0, first)?;
        if let (QuantizedValues::Norm, [_, weight, scales]) = (self.of, sources) {
            expect(1, weight, &[columns])?;
            expect(2, scales, &[rows])?;
            return Ok((rows, columns));
        }
        for (index, source) in sources.iter().enumerate().skip(1) {
            let (more_rows, more_columns) = op::matrix(index, source)?;
            match self.of {
                QuantizedValues::Columns => {
                    expect(index, source, &[rows, more_columns])?;
                    columns += more_columns;
                }
                QuantizedValues::Rows => {
                    expect(index, source, &[more_rows, columns])?;
                    rows += more_rows;
                }
                QuantizedValues::Norm | QuantizedValues::SwiGlu | QuantizedValues::SwiGluGrad => {
                    expect(index, source, &[rows, columns])?
                }
            }
        }
        match (self.of, sources.len()) {
            (QuantizedValues::SwiGlu, 2) | (QuantizedValues::Columns | QuantizedValues::Rows, _) => Ok((rows, columns)),
            (QuantizedValues::SwiGluGrad, 3) => Ok((rows, 2 * columns)),
            (_, have) => Err(ShapeError::Arity { want: if self.of == QuantizedValues::SwiGlu { 2 } else { 3 }, have }),
        }
    }
}

impl Operator for Quantize {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let sources = self.sources(inputs);
        let (rows, columns) = self.sizes(sources)?;
        let dtype = if sources[0].dtype == DType::F32 { DType::F32 } else { self.format.dtype() };
        let mut made = vec![];
        if self.ways != QuantizedCopies::Transposed {
            made.push(TensorType::new(dtype, &[rows, columns]));
        }
        if self.ways != QuantizedCopies::Plain {
            made.push(TensorType::new(dtype, &[columns, rows]));
        }
        match self.scaling {
            Scaling::Delayed => expect(0, &inputs[0], &[SLOT])?,
            Scaling::Current => made.push(TensorType::f32(&[SLOT])),
        }
        Ok(made)
    }

    /// A multiply and a rounding per element, plus the cost of computing the element.
    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        let each = match self.of {
            QuantizedValues::Columns | QuantizedValues::Rows => 2,
            QuantizedValues::Norm => 4,
            QuantizedValues::SwiGlu => 4,
            QuantizedValues::SwiGluGrad => 8,
        };
        each * self.sources(inputs).iter().map(TensorType::elements).sum::<usize>() as u64
    }

    fn updates(&self) -> Vec<usize> {
        if self.scaling == Scaling::Delayed { vec![0] } else { vec![] }
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let matrix = |sizes: [usize; 2]| (TensorType::f32(&sizes), Fill::Normal);
        // Normal values, a scale at which some of them exceed the largest number, and an empty slot.
        let slot = |unit: f64| (TensorType::f32(&[SLOT]), Fill::Constant(unit));
        let example = |of: QuantizedValues,
                       ways: QuantizedCopies,
                       format: Format,
                       unit: f64,
                       sources: Vec<(TensorType, Fill)>| {
            let op = Quantize { format, of, ways, scaling: Scaling::Delayed, margin: 1 };
            Example { op: op.into(), inputs: [vec![slot(unit)], sources].concat() }
        };
        let current = Quantize {
            format: Format::E4m3,
            of: QuantizedValues::Columns,
            ways: QuantizedCopies::Both,
            scaling: Scaling::Current,
            margin: 0,
        };
        let pair = || vec![matrix([32, 144]); 2];
        let vector = |size: usize| (TensorType::f32(&[size]), Fill::Normal);
        let normed = || vec![matrix([48, 160]), vector(160), vector(48)];
        vec![
            example(QuantizedValues::Columns, QuantizedCopies::Both, Format::E4m3, 0.0, vec![matrix([48, 160])]),
            example(
                QuantizedValues::Columns,
                QuantizedCopies::Both,
                Format::E5m2,
                0.5,
                vec![matrix([32, 64]), matrix([32, 16]), matrix([32, 16])],
            ),
            example(
                QuantizedValues::Rows,
                QuantizedCopies::Transposed,
                Format::E4m3,
                0.0,
                vec![matrix([48, 32]), matrix([16, 32])],
            ),
            example(QuantizedValues::Rows, QuantizedCopies::Plain, Format::E4m3, 0.00390625, vec![matrix([160, 32])]),
            example(QuantizedValues::Norm, QuantizedCopies::Both, Format::E4m3, 0.0, normed()),
            example(QuantizedValues::Norm, QuantizedCopies::Plain, Format::E4m3, 0.00390625, normed()),
            example(QuantizedValues::SwiGlu, QuantizedCopies::Both, Format::E4m3, 0.0078125, pair()),
            example(QuantizedValues::SwiGluGrad, QuantizedCopies::Both, Format::E5m2, 0.0, vec![matrix([32, 144]); 3]),
            Example { op: current.into(), inputs: vec![matrix([16, 32])] },
        ]
    }
}

impl Operator for UpdateScales {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        if inputs.len() != self.slots {
            return Err(ShapeError::Arity { want: self.slots, have: inputs.len() });
        }
        inputs.iter().enumerate().try_for_each(|(index, slot)| expect(index, slot, &[SLOT]))?;
        Ok(vec![])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        (inputs.len() * SLOT) as u64
    }

    fn updates(&self) -> Vec<usize> {
        (0..self.slots).collect()
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let slot = |value: f64| (TensorType::f32(&[SLOT]), Fill::Constant(value));
        let op = UpdateScales { slots: 3, format: Format::E4m3, margin: 1 };
        vec![Example { op: op.into(), inputs: vec![slot(3.0), slot(0.0), slot(900.0)] }]
    }
}
