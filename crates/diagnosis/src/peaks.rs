//! Peak rates of common devices from their vendors' documents: dense rates, no sparsity, boost clocks as stated.

pub mod links;
pub mod processors;

use std::sync::LazyLock;

use serde::Serialize;

use crate::table::{number, rows};

/// Peak FLOPs (operations for int8) and bytes per second. A rate of 0 means that the device has no such unit or its
/// vendor states none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Peaks {
    pub name: &'static str,
    pub fp32: f64,
    /// Rate of tensor cores on fp32 input: TF32 on NVIDIA, XF32 on AMD.
    pub tf32: f64,
    /// With sums in fp32. On a part without bf16 the rate of fp16, as its source says.
    pub bf16: f64,
    /// With sums in fp32.
    pub fp16: f64,
    /// With sums in fp32.
    pub fp8: f64,
    pub fp4: f64,
    pub int8: f64,
    pub bytes_per_second: f64,
    pub source: &'static str,
}

impl Peaks {
    /// Whether fp32 GEMMs gain from TF32. On GeForce cards its rate is that of fp32.
    pub fn gains_from_tf32(&self) -> bool {
        self.tf32 > self.fp32
    }
}

/// The rows of `peaks/parts.tsv`.
static PARTS: LazyLock<Vec<Peaks>> = LazyLock::new(|| {
    let part = |[name, rates @ .., source]: [&'static str; 10]| {
        let [fp32, tf32, bf16, fp16, fp8, fp4, int8, bytes_per_second] = rates.map(|rate| 1e12 * number(rate));
        Peaks { name, fp32, tf32, bf16, fp16, fp8, fp4, int8, bytes_per_second, source }
    };
    rows(include_str!("peaks/parts.tsv")).map(part).collect()
});

/// The part that matches a profiler's or driver's name for a device.
pub fn find(device_name: &str) -> Option<&'static Peaks> {
    let plain = |text: &str| text.to_ascii_lowercase().replace([' ', '-', '_'], "");
    let device = plain(device_name);
    PARTS.iter().find(|part| device.contains(&plain(part.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_the_names_their_drivers_give() {
        let cases = [
            ("NVIDIA H200", Some("H200")),
            ("NVIDIA H100 80GB HBM3", Some("H100")),
            ("NVIDIA H100 PCIe", Some("H100 PCIe")),
            ("NVIDIA A100-SXM4-80GB", Some("A100-SXM4-80GB")),
            ("AMD Instinct MI300X", Some("MI300X")),
            ("NVIDIA L40S", Some("L40S")),
            ("NVIDIA GeForce RTX 3060", Some("RTX 3060")),
            ("NVIDIA GeForce RTX 3060 Laptop GPU", Some("RTX 3060 Laptop")),
            ("NVIDIA GeForce RTX 3060 Ti", Some("RTX 3060 Ti")),
            ("NVIDIA GeForce RTX 4070 Ti SUPER", Some("RTX 4070 Ti SUPER")),
            ("NVIDIA GeForce RTX 4070 SUPER", Some("RTX 4070 SUPER")),
            ("NVIDIA GeForce RTX 4070 Laptop GPU", Some("RTX 4070 Laptop")),
            ("NVIDIA GeForce RTX 5070 Ti", Some("RTX 5070 Ti")),
            ("NVIDIA GeForce RTX 5070 Ti Laptop GPU", Some("RTX 5070 Ti Laptop")),
            ("Some GPU", None),
        ];
        for (device, want) in cases {
            assert_eq!(find(device).map(|part| part.name), want, "{device}");
        }
    }

    #[test]
    fn no_row_is_hidden_by_a_less_specific_one_above_it() {
        for (at, part) in PARTS.iter().enumerate() {
            assert_eq!(find(part.name).map(|found| found.name), Some(part.name), "row {at}");
            assert!(!part.source.is_empty());
        }
    }

    #[test]
    fn a_device_with_two_dies_is_one_of_them() {
        // The driver shows each die as a separate device.
        assert_eq!(find("AMD Instinct MI250X").map(|part| part.bf16), Some(191.5e12));
        assert_eq!(find("AMD Instinct MI250").map(|part| part.bytes_per_second), Some(1.638e12));
    }

    #[test]
    fn narrower_types_are_never_slower() {
        for part in PARTS.iter() {
            let rises = |rates: &[f64]| rates.iter().filter(|rate| **rate > 0.0).is_sorted();
            assert!(rises(&[part.fp32, part.tf32, part.bf16, part.fp8, part.fp4]), "{}", part.name);
            assert!(rises(&[part.bf16, part.fp16]) && rises(&[part.fp16, part.int8]), "{}", part.name);
            assert!(part.bytes_per_second > 1e11, "{}", part.name);
        }
    }

    #[test]
    fn rates_of_geforces_follow_the_figures_of_their_papers() {
        // Dense, sums in fp32, as the papers' appendices list them.
        let near = |found: f64, want: f64| assert!((found / want - 1.0).abs() < 0.005, "{found} is not {want}");
        let of = |name: &str| find(name).expect("is in the table");
        near(of("RTX 3090").bf16, 71e12);
        near(of("RTX 3070").int8, 162.6e12);
        near(of("RTX 4090").fp8, 330.3e12);
        near(of("RTX 4090").int8, 660.6e12);
        near(of("RTX 5090").fp4, 1676e12);
        near(of("RTX 5080").fp4, 900.4e12);
        assert!(!of("RTX 4090").gains_from_tf32() && of("A100").gains_from_tf32() && !of("V100").gains_from_tf32());
    }
}
