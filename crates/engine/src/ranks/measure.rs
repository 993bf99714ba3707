//! How long exchanges between the ranks take, from a few bytes to many.

use super::transfer::{Kind, Place, Transfer};
use super::{Ranks, RanksError};
use std::sync::Arc;
use std::time::Instant;

/// An all-reduce of so many bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchanged {
    pub bytes: usize,
    pub seconds: f64,
}

/// Elements of the tensors that are tried.
const ELEMENTS: [usize; 6] = [1, 1 << 8, 1 << 12, 1 << 16, 1 << 20, 1 << 22];

/// Times that each is tried, after one that does not count.
const TIMES: usize = 9;

/// The median time of an all-reduce of each size. Every rank measures at the same time, and the slowest one counts.
pub fn measure(ranks: &Ranks) -> Result<Vec<Exchanged>, RanksError> {
    let mut all = vec![];
    for elements in ELEMENTS {
        let mut data = vec![1.0f32; elements];
        let place = Place { start: data.as_mut_ptr(), elements };
        let transfer = Arc::new(Transfer { kind: Kind::AllReduce { mean: true }, from: vec![place], to: vec![place] });
        let mut times = vec![];
        for time in 0..=TIMES {
            ranks.gather(&[])?;
            let begin = Instant::now();
            // SAFETY: the data outlives the wait, and nothing else touches it.
            let ticket = unsafe { ranks.start(&transfer) };
            if let Err(error) = ranks.wait_for(ticket) {
                // It may still be written to.
                std::mem::forget(data);
                return Err(error);
            }
            let nanos = ranks.largest(begin.elapsed().as_nanos() as u64)?;
            if time > 0 {
                times.push(nanos as f64 * 1e-9);
            }
        }
        times.sort_by(f64::total_cmp);
        all.push(Exchanged { bytes: elements * size_of::<f32>(), seconds: times[TIMES / 2] });
    }
    Ok(all)
}
