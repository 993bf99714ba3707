//! Channels-first batch norms replayed from a CUDA graph, where no operator gives their shapes. The kernel that applies
//! the statistics reads and writes each value once on the whole device, so its time tells how long a pass takes.
//! Statistics and gradients are computed by one block per channel, which leaves most of the device idle if channels are
//! few.

use super::super::intervals::seconds;
use super::super::view::View;
use super::{NormKernel, Norms};
use crate::constants::replayed::{APPLYING, BACKWARD, FEWEST, STATISTICS};

/// Adds these kernels to the norms, and returns their total time.
pub fn take(view: &View, kernels: &[usize], norms: &mut Norms) -> i64 {
    let device = &view.trace.device;
    let of = |mark: &str| -> (Vec<usize>, i64) {
        let found = kernels.iter().copied().filter(|&at| view.name(device.name[at]).contains(mark));
        let found: Vec<usize> = found.collect();
        let nanos = view.device_nanos(&found);
        (found, nanos)
    };
    let (applying, nanos) = of("transform_input");
    if applying.is_empty() {
        return 0;
    }
    let pass = nanos as f64 / APPLYING.get();
    let mut all = nanos;
    norms.operator = "batch_norm".into();
    norms.seconds += seconds(nanos);
    norms.least_seconds += nanos as f64 / 1e9;
    norms.calls += applying.len() as u64;
    for (mark, passes) in [("collect_statistics", STATISTICS.get()), ("backward", BACKWARD.get())] {
        let (found, taken) = of(mark);
        let least = (passes * pass).min(taken as f64);
        for &at in &found {
            let expected = (device.duration[at] as f64 / taken.max(1) as f64 * least) as i64;
            let fewest_nanos = (FEWEST.get() * expected as f64) as i64;
            norms.kernels.push(NormKernel { at, expected_nanos: expected, fewest_nanos });
        }
        norms.calls += if mark == "backward" { found.len() as u64 } else { 0 };
        norms.seconds += seconds(taken);
        norms.least_seconds += least / 1e9;
        all += taken;
    }
    all
}
