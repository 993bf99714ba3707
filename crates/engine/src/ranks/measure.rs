//! Measures how long exchanges between the ranks take, from a few bytes to many.

use super::transfer::{Kind, Place, Transfer};
use super::{Ranks, RanksError};
use std::sync::Arc;
use std::time::Instant;

/// Time of an all-reduce of this many bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchanged {
    pub bytes: usize,
    pub seconds: f64,
}

/// Sizes of the tensors that are measured, in elements.
const ELEMENTS: [usize; 6] = [1, 1 << 8, 1 << 12, 1 << 16, 1 << 20, 1 << 22];

/// Repetitions of each size, after one warm-up.
const TIMES: usize = 9;

/// Measures the median time of an all-reduce of each size between CPUs.
pub fn measure(ranks: &Ranks) -> Result<Vec<Exchanged>, RanksError> {
    medians(ranks, &ELEMENTS, |elements| {
        let mut data = vec![1.0f32; elements];
        let place = Place { start: data.as_mut_ptr(), elements };
        let transfer = Arc::new(Transfer { kind: Kind::AllReduce { mean: true }, from: vec![place], to: vec![place] });
        move || {
            // SAFETY: the data outlives the wait, and nothing else touches it.
            let ticket = unsafe { ranks.start(&transfer) };
            ranks.wait_for(ticket).inspect_err(|_| {
                // MPI may still write to it.
                std::mem::forget(std::mem::take(&mut data));
            })
        }
    })
}

/// The median time of the exchange that `prepare` returns for each number of elements. All ranks measure at the same
/// time, and the slowest counts.
pub fn medians<E: From<RanksError>, X: FnMut() -> Result<(), E>>(
    ranks: &Ranks,
    elements: &[usize],
    mut prepare: impl FnMut(usize) -> X,
) -> Result<Vec<Exchanged>, E> {
    let mut all = vec![];
    for &elements in elements {
        let mut exchange = prepare(elements);
        let mut times = vec![];
        for time in 0..=TIMES {
            ranks.gather(&[])?;
            let begin = Instant::now();
            exchange()?;
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
