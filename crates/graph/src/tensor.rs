//! The type of a tensor: element type and shape.

use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    F32,
    Bf16,
    /// Eight bits, read with the scale of their tensor: four of exponent and three of mantissa, or five and two.
    E4m3,
    E5m2,
    I32,
}

impl DType {
    pub fn bytes(self) -> usize {
        match self {
            DType::F32 | DType::I32 => 4,
            DType::Bf16 => 2,
            DType::E4m3 | DType::E5m2 => 1,
        }
    }

    pub fn is_float(self) -> bool {
        !matches!(self, DType::I32)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(match self {
            DType::F32 => "f32",
            DType::Bf16 => "bf16",
            DType::E4m3 => "e4m3",
            DType::E5m2 => "e5m2",
            DType::I32 => "i32",
        })
    }
}

impl FromStr for DType {
    type Err = String;

    fn from_str(text: &str) -> Result<DType, String> {
        match text {
            "f32" => Ok(DType::F32),
            "bf16" => Ok(DType::Bf16),
            "e4m3" => Ok(DType::E4m3),
            "e5m2" => Ok(DType::E5m2),
            "i32" => Ok(DType::I32),
            other => Err(format!("unknown element type `{other}` (f32, bf16, e4m3, e5m2 or i32)")),
        }
    }
}

/// Sizes of the axes, outermost first; elements are stored row-major without gaps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape(Vec<usize>);

impl Shape {
    pub fn new(sizes: &[usize]) -> Shape {
        Shape(sizes.to_vec())
    }

    pub fn sizes(&self) -> &[usize] {
        &self.0
    }

    pub fn elements(&self) -> usize {
        self.0.iter().product()
    }

    /// Size of the innermost axis: the length of a contiguous row.
    pub fn row(&self) -> usize {
        self.0.last().copied().unwrap_or(1)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{:?}", self.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    pub dtype: DType,
    pub shape: Shape,
}

impl TensorType {
    pub fn new(dtype: DType, sizes: &[usize]) -> TensorType {
        TensorType { dtype, shape: Shape::new(sizes) }
    }

    pub fn f32(sizes: &[usize]) -> TensorType {
        TensorType::new(DType::F32, sizes)
    }

    pub fn i32(sizes: &[usize]) -> TensorType {
        TensorType::new(DType::I32, sizes)
    }

    pub fn elements(&self) -> usize {
        self.shape.elements()
    }

    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.bytes()
    }

    pub fn sizes(&self) -> &[usize] {
        self.shape.sizes()
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{}{}", self.dtype, self.shape)
    }
}

impl FromStr for TensorType {
    type Err = String;

    /// The printed form: `f32[8, 128]`.
    fn from_str(text: &str) -> Result<TensorType, String> {
        let (dtype, rest) = text.split_once('[').ok_or_else(|| format!("`{text}` is not a type like f32[8, 128]"))?;
        let inner = rest.strip_suffix(']').ok_or_else(|| format!("`{text}` lacks its closing bracket"))?;
        let sizes = inner
            .split(',')
            .map(str::trim)
            .filter(|size| !size.is_empty())
            .map(|size| size.parse::<usize>().map_err(|_| format!("`{size}` in `{text}` is not a size")))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(TensorType { dtype: dtype.trim().parse()?, shape: Shape(sizes) })
    }
}
