//! Datasheet rates of links between devices of one machine, and between a device and its host, in one direction.

use crate::table::{number, rows};

/// Bytes per second of the link to another device of the machine.
pub fn link_of(device: &str) -> Option<f64> {
    rate("device", device)
}

/// Bytes per second of the link to the host.
pub fn host_link_of(device: &str) -> Option<f64> {
    rate("host", device)
}

fn rate(to: &str, device: &str) -> Option<f64> {
    let mut links = rows(include_str!("links.tsv"));
    links.find(|[end, name, _]| *end == to && device.contains(name)).map(|[_, _, rate]| 1e9 * number(rate))
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
