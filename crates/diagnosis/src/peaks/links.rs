//! Datasheet rates of links between devices of one machine, and between a device and its host, in one direction.

/// Bytes per second, by a part of the device's name; more specific names come first.
const LINKS: &[(&str, f64)] = &[
    ("GB200", 900e9),
    ("B200", 900e9),
    ("GH200", 450e9),
    ("H200", 450e9),
    ("H100 PCIe", 64e9),
    ("H100", 450e9),
    ("H800", 200e9),
    ("H20", 450e9),
    ("A100-PCIE", 32e9),
    ("A100 80GB PCIe", 32e9),
    ("A100", 300e9),
    ("A800", 200e9),
    ("V100-PCIE", 16e9),
    ("V100", 150e9),
    ("RTX 5090", 64e9),
    ("RTX 4090", 32e9),
    ("RTX 3090", 32e9),
    ("L40S", 32e9),
    ("L4", 32e9),
    ("A10", 32e9),
    ("T4", 16e9),
    ("MI355X", 538e9),
    ("MI350X", 538e9),
    ("MI325X", 448e9),
    ("MI300X", 448e9),
];

pub fn link_of(device: &str) -> Option<f64> {
    LINKS.iter().find(|(name, _)| device.contains(name)).map(|(_, bytes)| *bytes)
}

/// PCIe with 16 lanes, or the vendor's own link to a processor on the same board.
const HOST_LINKS: &[(&str, f64)] = &[
    ("GB200", 450e9),
    ("GH200", 450e9),
    ("B200", 64e9),
    ("H200", 64e9),
    ("H100", 64e9),
    ("H800", 64e9),
    ("H20", 64e9),
    ("RTX 50", 64e9),
    ("MI3", 64e9),
    ("A100", 32e9),
    ("A800", 32e9),
    ("A10", 32e9),
    ("A30", 32e9),
    ("A40", 32e9),
    ("RTX A", 32e9),
    ("RTX 6000 Ada", 32e9),
    // Eight lanes.
    ("RTX 4060", 16e9),
    ("RTX 40", 32e9),
    ("RTX 30", 32e9),
    ("L40", 32e9),
    ("L20", 32e9),
    ("MI2", 32e9),
    ("V100", 16e9),
    ("L4", 16e9),
    ("T4", 16e9),
];

pub fn host_link_of(device: &str) -> Option<f64> {
    HOST_LINKS.iter().find(|(name, _)| device.contains(name)).map(|(_, bytes)| *bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_that_of_the_devices_form() {
        assert_eq!(link_of("Tesla V100-SXM2-32GB"), Some(150e9));
        assert_eq!(link_of("NVIDIA H100 PCIe"), Some(64e9));
        assert_eq!(link_of("a toaster"), None);
        assert_eq!(host_link_of("NVIDIA L40S"), Some(32e9));
        assert_eq!(host_link_of("NVIDIA L4"), Some(16e9));
        assert_eq!(host_link_of("NVIDIA GeForce RTX 4060 Ti"), Some(16e9));
        assert_eq!(host_link_of("NVIDIA GeForce RTX 5070"), Some(64e9));
        assert_eq!(host_link_of("a toaster"), None);
    }
}
