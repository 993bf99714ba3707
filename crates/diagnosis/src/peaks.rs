//! Peak rates of common devices from their vendors' documents: dense rates, no sparsity, boost clocks as stated.

pub mod links;
pub mod processors;

use serde::Serialize;

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

/// Rates in TFLOP/s in the order of the fields.
const fn part(name: &'static str, rates: [f64; 7], terabytes: f64, source: &'static str) -> Peaks {
    let tera = 1e12;
    let [fp32, tf32, bf16, fp16, fp8, fp4, int8] = rates;
    Peaks {
        name,
        fp32: fp32 * tera,
        tf32: tf32 * tera,
        bf16: bf16 * tera,
        fp16: fp16 * tera,
        fp8: fp8 * tera,
        fp4: fp4 * tera,
        int8: int8 * tera,
        bytes_per_second: terabytes * tera,
        source,
    }
}

/// Rates of a GeForce's tensor cores over its fp32 rate, which are the same throughout a generation.
#[derive(Clone, Copy)]
enum GeForce {
    /// RTX 30: NVIDIA Ampere GA102 architecture paper, appendix.
    Ampere,
    /// RTX 40: NVIDIA Ada architecture paper, appendix.
    Ada,
    /// RTX 50: NVIDIA RTX Blackwell architecture paper, appendix.
    Blackwell,
}

/// A GeForce by its fp32 rate: cores × 2 × boost clock, which for a laptop is the highest that NVIDIA states.
const fn geforce(name: &'static str, generation: GeForce, fp32: f64, terabytes: f64, source: &'static str) -> Peaks {
    let (fp8, fp4) = match generation {
        GeForce::Ampere => (0.0, 0.0),
        GeForce::Ada => (4.0, 0.0),
        GeForce::Blackwell => (4.0, 16.0),
    };
    part(name, [fp32, fp32, 2.0 * fp32, 2.0 * fp32, fp8 * fp32, fp4 * fp32, 8.0 * fp32], terabytes, source)
}

use GeForce::{Ada, Ampere, Blackwell};

const AMPERE_PAPER: &str = "NVIDIA Ampere GA102 architecture paper";
const ADA_PAPER: &str = "NVIDIA Ada architecture paper";
const BLACKWELL_PAPER: &str = "NVIDIA RTX Blackwell architecture paper";
const RTX_30: &str = "NVIDIA GeForce RTX 30 series specifications (cores and boost clock), ratios of the GA102 paper";
const RTX_30_LAPTOP: &str =
    "NVIDIA GeForce RTX 30 series laptops, specifications (cores, highest boost clock), ratios of the GA102 paper";
const RTX_40: &str = "NVIDIA GeForce RTX 40 series specifications (cores and boost clock), ratios of the Ada paper";
const RTX_40_LAPTOP: &str =
    "NVIDIA GeForce RTX 40 series laptops, specifications (cores, highest boost clock), ratios of the Ada paper";
const RTX_50: &str = "NVIDIA GeForce RTX 50 series specifications (AI TOPS), ratios of the RTX Blackwell paper";
const RTX_50_LAPTOP: &str =
    "NVIDIA GeForce RTX 50 series laptops, specifications (highest AI TOPS), ratios of the RTX Blackwell paper";

/// The first row whose name occurs in the device's name applies, so more specific names come first. Columns: fp32, TF32,
/// bf16, fp16, fp8, fp4, int8; then terabytes per second.
pub const PARTS: &[Peaks] = &[
    part(
        "GB200",
        [80.0, 1250.0, 2500.0, 2500.0, 5000.0, 10000.0, 5000.0],
        8.0,
        "NVIDIA GB200 NVL72 datasheet, per GPU",
    ),
    part("B200", [75.0, 1125.0, 2250.0, 2250.0, 4500.0, 9000.0, 4500.0], 8.0, "NVIDIA DGX B200 datasheet, per GPU"),
    part("GH200", [67.0, 494.0, 989.0, 989.0, 1979.0, 0.0, 1979.0], 4.9, "NVIDIA GH200 datasheet (HBM3e)"),
    part("H200", [67.0, 494.0, 989.0, 989.0, 1979.0, 0.0, 1979.0], 4.8, "NVIDIA H200 datasheet (SXM)"),
    part("H100 PCIe", [51.0, 378.0, 756.0, 756.0, 1513.0, 0.0, 1513.0], 2.0, "NVIDIA H100 datasheet (PCIe)"),
    part("H100 NVL", [60.0, 417.0, 835.0, 835.0, 1670.0, 0.0, 1670.0], 3.9, "NVIDIA H100 datasheet (NVL)"),
    part("H100", [67.0, 494.0, 989.0, 989.0, 1979.0, 0.0, 1979.0], 3.35, "NVIDIA H100 datasheet (SXM)"),
    part("H800", [67.0, 494.0, 989.0, 989.0, 1979.0, 0.0, 1979.0], 3.35, "NVIDIA H800 datasheet (SXM)"),
    part("H20", [44.0, 74.0, 148.0, 148.0, 296.0, 0.0, 296.0], 4.0, "NVIDIA H20 datasheet"),
    part("A100-SXM4-80GB", [19.5, 156.0, 312.0, 312.0, 0.0, 0.0, 624.0], 2.039, "NVIDIA A100 datasheet (80 GB SXM)"),
    part("A100 80GB PCIe", [19.5, 156.0, 312.0, 312.0, 0.0, 0.0, 624.0], 1.935, "NVIDIA A100 datasheet (80 GB PCIe)"),
    part("A100", [19.5, 156.0, 312.0, 312.0, 0.0, 0.0, 624.0], 1.555, "NVIDIA A100 datasheet (40 GB)"),
    part("A800", [19.5, 156.0, 312.0, 312.0, 0.0, 0.0, 624.0], 2.039, "NVIDIA A800 datasheet"),
    part("A10G", [31.5, 35.0, 70.0, 70.0, 0.0, 0.0, 140.0], 0.6, "NVIDIA A10G product brief"),
    part("A10", [31.2, 62.5, 125.0, 125.0, 0.0, 0.0, 250.0], 0.6, "NVIDIA A10 datasheet"),
    part("A30", [10.3, 82.0, 165.0, 165.0, 0.0, 0.0, 330.0], 0.933, "NVIDIA A30 datasheet"),
    part("A40", [37.4, 74.8, 149.7, 149.7, 0.0, 0.0, 299.3], 0.696, "NVIDIA A40 datasheet"),
    part(
        "RTX 6000 Ada",
        [91.1, 182.1, 364.2, 364.2, 728.5, 0.0, 728.5],
        0.96,
        "NVIDIA Ada architecture paper (RTX 6000)",
    ),
    part("RTX A5000", [27.8, 55.6, 111.1, 111.1, 0.0, 0.0, 222.2], 0.768, "NVIDIA RTX A5000 datasheet"),
    part("RTX A6000", [38.7, 77.4, 154.8, 154.8, 0.0, 0.0, 309.7], 0.768, "NVIDIA RTX A6000 datasheet"),
    part("L40S", [91.6, 183.0, 362.0, 362.0, 733.0, 0.0, 733.0], 0.864, "NVIDIA L40S datasheet"),
    part("L40", [90.5, 90.5, 181.0, 181.0, 362.0, 0.0, 362.0], 0.864, "NVIDIA L40 datasheet"),
    part("L20", [59.8, 59.8, 119.5, 119.5, 239.0, 0.0, 239.0], 0.864, "NVIDIA L20 datasheet"),
    part("L4", [30.3, 60.0, 121.0, 121.0, 242.0, 0.0, 242.0], 0.3, "NVIDIA L4 datasheet"),
    geforce("RTX 5090 Laptop", Blackwell, 57.0, 0.896, RTX_50_LAPTOP),
    geforce("RTX 5080 Laptop", Blackwell, 41.7, 0.896, RTX_50_LAPTOP),
    geforce("RTX 5070 Ti Laptop", Blackwell, 31.0, 0.672, RTX_50_LAPTOP),
    geforce("RTX 5070 Laptop", Blackwell, 24.9, 0.384, RTX_50_LAPTOP),
    geforce("RTX 5090", Blackwell, 104.8, 1.792, BLACKWELL_PAPER),
    geforce("RTX 5080", Blackwell, 56.3, 0.96, BLACKWELL_PAPER),
    geforce("RTX 5070 Ti", Blackwell, 43.9, 0.896, RTX_50),
    geforce("RTX 5070", Blackwell, 30.9, 0.672, RTX_50),
    geforce("RTX 4090 Laptop", Ada, 39.7, 0.576, RTX_40_LAPTOP),
    geforce("RTX 4080 Laptop", Ada, 33.9, 0.432, RTX_40_LAPTOP),
    geforce("RTX 4070 Laptop", Ada, 20.0, 0.256, RTX_40_LAPTOP),
    geforce("RTX 4060 Laptop", Ada, 14.6, 0.256, RTX_40_LAPTOP),
    geforce("RTX 4090", Ada, 82.6, 1.008, ADA_PAPER),
    geforce("RTX 4080 SUPER", Ada, 52.2, 0.736, RTX_40),
    geforce("RTX 4080", Ada, 48.7, 0.717, ADA_PAPER),
    geforce("RTX 4070 Ti SUPER", Ada, 44.1, 0.672, RTX_40),
    geforce("RTX 4070 Ti", Ada, 40.1, 0.504, ADA_PAPER),
    geforce("RTX 4070 SUPER", Ada, 35.5, 0.504, RTX_40),
    geforce("RTX 4070", Ada, 29.1, 0.504, RTX_40),
    geforce("RTX 4060 Ti", Ada, 22.1, 0.288, RTX_40),
    geforce("RTX 4060", Ada, 15.1, 0.272, RTX_40),
    geforce("RTX 3080 Ti Laptop", Ampere, 23.6, 0.512, RTX_30_LAPTOP),
    geforce("RTX 3080 Laptop", Ampere, 21.0, 0.448, RTX_30_LAPTOP),
    geforce("RTX 3070 Ti Laptop", Ampere, 17.5, 0.448, RTX_30_LAPTOP),
    geforce("RTX 3070 Laptop", Ampere, 16.6, 0.448, RTX_30_LAPTOP),
    geforce("RTX 3060 Laptop", Ampere, 13.1, 0.336, RTX_30_LAPTOP),
    geforce("RTX 3090 Ti", Ampere, 40.0, 1.008, RTX_30),
    geforce("RTX 3090", Ampere, 35.6, 0.936, AMPERE_PAPER),
    geforce("RTX 3080 Ti", Ampere, 34.1, 0.912, RTX_30),
    geforce("RTX 3080", Ampere, 29.8, 0.76, AMPERE_PAPER),
    geforce("RTX 3070 Ti", Ampere, 21.7, 0.608, RTX_30),
    geforce("RTX 3070", Ampere, 20.3, 0.448, AMPERE_PAPER),
    geforce("RTX 3060 Ti", Ampere, 16.2, 0.448, RTX_30),
    geforce("RTX 3060", Ampere, 12.7, 0.36, RTX_30),
    part("V100", [15.7, 0.0, 125.0, 125.0, 0.0, 0.0, 0.0], 0.9, "NVIDIA V100 datasheet (fp16 instead of bf16)"),
    part("T4", [8.1, 0.0, 65.0, 65.0, 0.0, 0.0, 130.0], 0.3, "NVIDIA T4 datasheet (fp16 instead of bf16)"),
    part("MI355X", [157.3, 0.0, 2516.6, 2516.6, 5033.2, 10066.3, 5033.2], 8.0, "AMD Instinct MI355X datasheet"),
    part("MI350X", [144.2, 0.0, 2306.9, 2306.9, 4613.7, 9227.5, 4613.7], 8.0, "AMD Instinct MI350X datasheet"),
    part("MI325X", [163.4, 653.7, 1307.4, 1307.4, 2614.9, 0.0, 2614.9], 6.0, "AMD Instinct MI325X datasheet"),
    part("MI300A", [122.6, 490.3, 980.6, 980.6, 1961.2, 0.0, 1961.2], 5.3, "AMD Instinct MI300A datasheet"),
    part("MI300X", [163.4, 653.7, 1307.4, 1307.4, 2614.9, 0.0, 2614.9], 5.3, "AMD Instinct MI300X datasheet"),
    part(
        "MI250X",
        [23.95, 0.0, 191.5, 191.5, 0.0, 0.0, 191.5],
        1.638,
        "AMD Instinct MI250X datasheet, one of two dies",
    ),
    part(
        "MI250",
        [22.65, 0.0, 181.05, 181.05, 0.0, 0.0, 181.05],
        1.638,
        "AMD Instinct MI250 datasheet, one of two dies",
    ),
    part("MI210", [22.6, 0.0, 181.0, 181.0, 0.0, 0.0, 181.0], 1.638, "AMD Instinct MI210 datasheet"),
    part("MI100", [23.1, 0.0, 92.3, 184.6, 0.0, 0.0, 184.6], 1.228, "AMD Instinct MI100 datasheet"),
    part("RX 7900 XTX", [61.4, 0.0, 122.8, 122.8, 0.0, 0.0, 122.8], 0.96, "AMD Radeon RX 7900 XTX specification"),
    part(
        "Max 1550",
        [52.0, 419.0, 839.0, 839.0, 0.0, 0.0, 1678.0],
        3.277,
        "Intel Data Center GPU Max 1550 product brief",
    ),
    part(
        "Max 1100",
        [22.0, 176.0, 352.0, 352.0, 0.0, 0.0, 704.0],
        1.228,
        "Intel Data Center GPU Max 1100 product brief",
    ),
    part("Arc A770", [19.7, 0.0, 137.6, 137.6, 0.0, 0.0, 275.0], 0.56, "Intel Arc A770 specification"),
];

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
        for part in PARTS {
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
