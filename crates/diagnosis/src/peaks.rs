//! Peak rates of common devices from their datasheets: dense rates, no sparsity, boost clocks as the vendor states
//! them.

pub mod links;
pub mod processors;

use serde::Serialize;

/// Peak FLOPs and bytes per second. A rate of 0 means that the device has no such unit or its vendor states none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Peaks {
    pub name: &'static str,
    pub fp32: f64,
    /// Rate of tensor cores on fp32 input: TF32 on NVIDIA, XF32 on AMD.
    pub tf32: f64,
    pub bf16: f64,
    pub bytes_per_second: f64,
    pub source: &'static str,
}

/// Share of the tensor cores' rate that large GEMMs reach: 66% in TF32 follows from step times on an H200.
pub const PRODUCT_SHARE: f64 = 0.65;

const fn part(name: &'static str, [fp32, tf32, bf16]: [f64; 3], terabytes: f64, source: &'static str) -> Peaks {
    let tera = 1e12;
    Peaks { name, fp32: fp32 * tera, tf32: tf32 * tera, bf16: bf16 * tera, bytes_per_second: terabytes * tera, source }
}

/// The first row whose name occurs in the device's name applies, so more specific names come first.
pub const PARTS: &[Peaks] = &[
    part("GB200", [80.0, 1250.0, 2500.0], 8.0, "NVIDIA GB200 NVL72 datasheet, per GPU"),
    part("B200", [75.0, 1125.0, 2250.0], 8.0, "NVIDIA DGX B200 datasheet, per GPU"),
    part("GH200", [67.0, 494.0, 989.0], 4.9, "NVIDIA GH200 datasheet (HBM3e)"),
    part("H200", [67.0, 494.0, 989.0], 4.8, "NVIDIA H200 datasheet (SXM)"),
    part("H100 PCIe", [51.0, 378.0, 756.0], 2.0, "NVIDIA H100 datasheet (PCIe)"),
    part("H100 NVL", [60.0, 417.0, 835.0], 3.9, "NVIDIA H100 datasheet (NVL)"),
    part("H100", [67.0, 494.0, 989.0], 3.35, "NVIDIA H100 datasheet (SXM)"),
    part("H800", [67.0, 494.0, 989.0], 3.35, "NVIDIA H800 datasheet (SXM)"),
    part("H20", [44.0, 74.0, 148.0], 4.0, "NVIDIA H20 datasheet"),
    part("A100-SXM4-80GB", [19.5, 156.0, 312.0], 2.039, "NVIDIA A100 datasheet (80 GB SXM)"),
    part("A100 80GB PCIe", [19.5, 156.0, 312.0], 1.935, "NVIDIA A100 datasheet (80 GB PCIe)"),
    part("A100", [19.5, 156.0, 312.0], 1.555, "NVIDIA A100 datasheet (40 GB)"),
    part("A800", [19.5, 156.0, 312.0], 2.039, "NVIDIA A800 datasheet"),
    part("A10G", [31.5, 35.0, 70.0], 0.6, "NVIDIA A10G product brief"),
    part("A10", [31.2, 62.5, 125.0], 0.6, "NVIDIA A10 datasheet"),
    part("A30", [10.3, 82.0, 165.0], 0.933, "NVIDIA A30 datasheet"),
    part("A40", [37.4, 74.8, 149.7], 0.696, "NVIDIA A40 datasheet"),
    part("RTX 6000 Ada", [91.1, 182.1, 364.2], 0.96, "NVIDIA Ada architecture paper (RTX 6000)"),
    part("RTX A5000", [27.8, 55.6, 111.1], 0.768, "NVIDIA RTX A5000 datasheet"),
    part("RTX A6000", [38.7, 77.4, 154.8], 0.768, "NVIDIA RTX A6000 datasheet"),
    part("L40S", [91.6, 183.0, 362.0], 0.864, "NVIDIA L40S datasheet"),
    part("L40", [90.5, 90.5, 181.0], 0.864, "NVIDIA L40 datasheet"),
    part("L20", [59.8, 59.8, 119.5], 0.864, "NVIDIA L20 datasheet"),
    part("L4", [30.3, 60.0, 121.0], 0.3, "NVIDIA L4 datasheet"),
    part("RTX 5090", [104.8, 104.8, 209.5], 1.792, "NVIDIA RTX Blackwell architecture paper"),
    part("RTX 4090", [82.6, 82.6, 165.2], 1.008, "NVIDIA Ada architecture paper"),
    part("RTX 4080", [48.7, 48.7, 97.5], 0.717, "NVIDIA Ada architecture paper"),
    part("RTX 3090", [35.6, 35.6, 71.0], 0.936, "NVIDIA Ampere GA102 architecture paper"),
    part("RTX 3080", [29.8, 29.8, 59.5], 0.76, "NVIDIA Ampere GA102 architecture paper"),
    part("V100", [15.7, 0.0, 125.0], 0.9, "NVIDIA V100 datasheet (fp16 instead of bf16)"),
    part("T4", [8.1, 0.0, 65.0], 0.3, "NVIDIA T4 datasheet (fp16 instead of bf16)"),
    part("MI355X", [157.3, 0.0, 2516.6], 8.0, "AMD Instinct MI355X datasheet"),
    part("MI350X", [144.2, 0.0, 2306.9], 8.0, "AMD Instinct MI350X datasheet"),
    part("MI325X", [163.4, 653.7, 1307.4], 6.0, "AMD Instinct MI325X datasheet"),
    part("MI300A", [122.6, 490.3, 980.6], 5.3, "AMD Instinct MI300A datasheet"),
    part("MI300X", [163.4, 653.7, 1307.4], 5.3, "AMD Instinct MI300X datasheet"),
    part("MI250X", [23.95, 0.0, 191.5], 1.638, "AMD Instinct MI250X datasheet, one of two dies"),
    part("MI250", [22.65, 0.0, 181.05], 1.638, "AMD Instinct MI250 datasheet, one of two dies"),
    part("MI210", [22.6, 0.0, 181.0], 1.638, "AMD Instinct MI210 datasheet"),
    part("MI100", [23.1, 0.0, 92.3], 1.228, "AMD Instinct MI100 datasheet"),
    part("RX 7900 XTX", [61.4, 0.0, 122.8], 0.96, "AMD Radeon RX 7900 XTX specification"),
    part("Max 1550", [52.0, 419.0, 839.0], 3.277, "Intel Data Center GPU Max 1550 product brief"),
    part("Max 1100", [22.0, 176.0, 352.0], 1.228, "Intel Data Center GPU Max 1100 product brief"),
    part("Arc A770", [19.7, 0.0, 137.6], 0.56, "Intel Arc A770 specification"),
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
            ("Some GPU", None),
        ];
        for (device, want) in cases {
            assert_eq!(find(device).map(|part| part.name), want, "{device}");
        }
    }

    #[test]
    fn a_device_with_two_dies_is_one_of_them() {
        // The driver shows each die as a separate device.
        assert_eq!(find("AMD Instinct MI250X").map(|part| part.bf16), Some(191.5e12));
        assert_eq!(find("AMD Instinct MI250").map(|part| part.bytes_per_second), Some(1.638e12));
    }

    #[test]
    fn tensor_cores_are_never_slower_than_plain_units() {
        for part in PARTS {
            assert!(part.bf16 >= part.fp32 && part.bytes_per_second > 1e11, "{}", part.name);
            assert!(part.tf32 == 0.0 || part.tf32 >= part.fp32, "{}", part.name);
        }
    }
}
