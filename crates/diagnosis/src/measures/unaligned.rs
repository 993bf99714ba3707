//! GEMMs whose rows do not start at multiples of 16 bytes: the kernel loads them in smaller pieces, and its name says
//! so.

use super::flops::{Cost, Precision, owner_of, shares};
use super::intervals::seconds;
use super::view::View;
use crate::constants::peaks::PRODUCT_SHARE;
use crate::constants::unaligned::{FAST_CORES, LEAST_LEFT, SHARE_BY_TWO_BYTES, WHOLE_BYTES};

#[derive(Clone, Debug, Default)]
pub struct Unaligned {
    pub kernels: Vec<UnalignedKernel>,
    pub seconds: f64,
    pub expected_seconds: f64,
    /// The name of the longest kernel, and how many bytes it loads at once.
    pub name: String,
    pub bytes: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct UnalignedKernel {
    pub at: usize,
    /// Time with aligned rows, expected and at best.
    pub expected_nanos: i64,
    pub least_nanos: i64,
}

pub fn unaligned(view: &View, costs: &[Cost]) -> Unaligned {
    let device = &view.trace.device;
    let mut result = Unaligned::default();
    let by_name = view.of_kernels(bytes_at_once);
    let is_one = |&at: &usize| by_name[device.name[at].index()].is_some() && view.steps.at(device.start[at]).is_some();
    let spans: Vec<usize> = device.busy().filter(is_one).collect();
    let part = view.part();
    let Some(part) = part.filter(|_| !spans.is_empty()) else { return result };
    let slow = if part.bf16 >= FAST_CORES.get() { SHARE_BY_TWO_BYTES.get() } else { 2.0 * SHARE_BY_TWO_BYTES.get() };
    let shares = shares(view, costs, spans.iter().copied());
    let mut longest = 0;
    for at in spans {
        let (duration, bytes) = (device.duration[at], by_name[device.name[at].index()].unwrap_or(WHOLE_BYTES.get()));
        let by_flops = owner_of(view, costs, at).map(|owner| {
            let cost = costs[owner];
            let flops = shares.get(&at).copied().unwrap_or(1.0) * cost.flops;
            let rate = if cost.precision == Precision::Half { part.bf16 } else { part.tf32.max(part.fp32) };
            (flops / (PRODUCT_SHARE.get() * rate), flops / rate)
        });
        let whole = duration as f64 / 1e9;
        let by_name =
            || (whole * (slow * f64::from(bytes) / 2.0 / PRODUCT_SHARE.get()).min(1.0), whole * LEAST_LEFT.get());
        let (expected, least) = by_flops.unwrap_or_else(by_name);
        let nanos = |seconds: f64| ((1e9 * seconds) as i64).min(duration);
        result.kernels.push(UnalignedKernel { at, expected_nanos: nanos(expected), least_nanos: nanos(least) });
        result.seconds += whole;
        result.expected_seconds += seconds(nanos(expected));
        if duration > longest {
            (longest, result.name, result.bytes) = (duration, view.name(device.name[at]).to_string(), bytes);
        }
    }
    result
}

/// Bytes that a tensor-core GEMM loads at once, if fewer than a full load.
fn bytes_at_once(name: &str) -> Option<u32> {
    // Double-precision and complex elements are 8 and 16 bytes long: one is a full load, or nearly.
    let is_long = ["_d884", "_z884", "_c1688"].iter().any(|kind| name.contains(kind));
    if is_long || !name.contains("tensorop") {
        return None;
    }
    let behind = name.split("_align").skip(1).find(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))?;
    let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
    let elements: u32 = digits.parse().ok()?;
    let element = match () {
        () if name.contains("f16") || name.contains("_h1688") || name.contains("_h884") => 2,
        () if name.contains("_i8") || name.contains("_s8") || name.contains("e4m3") => 1,
        () => 4,
    };
    Some(elements.checked_mul(element)?).filter(|bytes| *bytes < WHOLE_BYTES.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};
    use crate::measures::flops::costs;

    const ODD: &str = "cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1";

    #[test]
    fn a_name_says_how_many_bytes_are_loaded_at_once() {
        assert_eq!(bytes_at_once(ODD), Some(2));
        assert_eq!(bytes_at_once("cutlass_80_tensorop_f16_s16816gemm_f16_64x64_32x6_nn_align2>(x::Params)"), Some(4));
        assert_eq!(bytes_at_once("cutlass_80_tensorop_s1688gemm_128x64_16x6_tn_align2"), Some(8));
        for whole in [
            "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8",
            "cutlass_80_tensorop_s1688gemm_128x64_16x6_tn_align4",
            "cutlass_80_tensorop_d884gemm_128x64_16x3_nn_align1",
            "cutlass_80_tensorop_z884gemm_64x64_8x3_tn_align1",
            "cutlass_80_tensorop_c1688gemm_64x64_16x3_nn_align1",
            "cutlass_80_simt_sgemm_128x64_8x5_nn_align1",
            "fmha_cutlassF_f16_aligned_64x64_rf_sm80",
            "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
        ] {
            assert_eq!(bytes_at_once(whole), None, "{whole}");
        }
    }

    #[test]
    fn from_a_graph_the_name_tells_and_elsewhere_the_shape() {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 40_000 * MICRO);
        made.span("cuda_runtime", "cudaGraphLaunch", 1, 5 * MICRO, 20 * MICRO, r#""correlation":900"#);
        made.span("kernel", ODD, 7, 30 * MICRO, 13_030 * MICRO, r#""correlation":900"#);
        made.shaped("aten::mm", 100 * MICRO, 140 * MICRO, "[[16384,768],[768,50257]]", "c10::BFloat16");
        made.launch((110 * MICRO, 120 * MICRO), ODD, (14_000 * MICRO, 27_000 * MICRO));
        let trace = made.trace();
        let view = View::new(&trace);
        let found = unaligned(&view, &costs(&view));
        assert_eq!((found.kernels.len(), found.bytes), (2, 2));
        let (named, shaped) = (found.kernels[0], found.kernels[1]);
        assert!((2_490 * MICRO..2_510 * MICRO).contains(&named.expected_nanos), "{named:?}");
        assert!((1_900 * MICRO..2_050 * MICRO).contains(&shaped.expected_nanos), "{shaped:?}");
        assert!(named.least_nanos < named.expected_nanos && shaped.least_nanos < shaped.expected_nanos);
    }

    #[test]
    fn slower_cores_wait_less_for_their_loads() {
        let expected = |device: &str| {
            let mut made = Fabricated::on(device);
            made.step(1, 0, 40_000 * MICRO);
            made.span("cuda_runtime", "cudaGraphLaunch", 1, 5 * MICRO, 20 * MICRO, r#""correlation":900"#);
            made.span("kernel", ODD, 7, 30 * MICRO, 13_030 * MICRO, r#""correlation":900"#);
            let trace = made.trace();
            let view = View::new(&trace);
            let found = unaligned(&view, &costs(&view));
            assert_eq!(found.kernels.len(), 1);
            assert_eq!((found.seconds, found.kernels[0].least_nanos), (0.013, 650 * MICRO));
            found.kernels[0].expected_nanos
        };
        // An eighth and a quarter of the tensor cores' rate, relative to the 65% that GEMMs reach.
        assert!(expected("NVIDIA H200").abs_diff(2_500 * MICRO) <= 1);
        assert!(expected("NVIDIA A100-SXM4-80GB").abs_diff(5_000 * MICRO) <= 1);
    }
}
