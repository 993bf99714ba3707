//! Measures how long exchanges between GPUs take, from a few bytes to many.

use super::driver::{self, Context, Memory, Stream};
use super::error::CudaError;
use super::nccl::{Number, Sum, WireCall};
use super::nccl_error::NcclError;
use super::wire::Wire;
use super::{Options, SumOrder, library};
use crate::ranks::measure::{Exchanged, medians};
use crate::ranks::{Ranks, RanksError};
use std::sync::Arc;

/// Sizes of the tensors that are measured, in elements: links between GPUs are fast, so the largest is 64 MiB.
const ELEMENTS: [usize; 6] = [1, 1 << 8, 1 << 12, 1 << 16, 1 << 20, 1 << 24];

/// NCCL's version, and the median time of an all-reduce of each size. All ranks must call this together.
pub fn measure_link(options: &Options, ranks: &Arc<Ranks>) -> Result<(String, Vec<Exchanged>), CudaError> {
    library::open()?;
    let context = Context::new(options.ordinal)?;
    let wire = Wire::join(&context, ranks, options.order == SumOrder::Fixed)?;
    let bytes = ELEMENTS.iter().max().copied().unwrap_or(1) * size_of::<f32>();
    let data = Memory::new(&context, bytes)?;
    let stream = Stream::new()?;
    driver::zero(data.at, bytes, &stream)?;
    stream.wait()?;
    let measured = medians(ranks, &ELEMENTS, |count| {
        let (from, to, number, sum) = (data.at, data.at, Number::F32, Sum::Mean);
        let call = WireCall::AllReduce { from, to, count, number, sum };
        let wire = &wire;
        move || wire.exchanged(&[call])
    })?;
    Ok((wire.version(), measured))
}

impl From<RanksError> for CudaError {
    fn from(error: RanksError) -> CudaError {
        NcclError::from(error).into()
    }
}
