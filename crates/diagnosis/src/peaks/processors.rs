//! Peak rates of a processor's vector and tile units, computed from its family and model: no datasheet states them.

/// The processor's own identification: `GenuineIntel`, family 6, model 143.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processor {
    pub vendor: String,
    pub family: u32,
    pub model: u32,
}

/// The multiply-add units of one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    pub core: &'static str,
    /// Multiply-adds that start per cycle, and how many fp32 numbers each takes.
    pub count: u32,
    pub lanes: u32,
    /// FLOPs per cycle of its tile unit on bfloat16, counting a multiply-add as two; `None` without such a unit.
    pub tile_flops_per_cycle: Option<u32>,
    pub source: &'static str,
}

impl Units {
    /// Counts a multiply-add as two.
    pub fn flops_per_cycle(&self) -> u32 {
        2 * self.count * self.lanes
    }
}

const INTEL: &str = "Intel 64 and IA-32 Architectures Optimization Reference Manual";
const AMD: &str = "AMD Software Optimization Guide for the family";

/// The units of a core of this family and model; `None` if it is not in the table.
pub fn units(processor: &Processor) -> Option<Units> {
    let units = |core, count, lanes, source| Some(Units { core, count, lanes, tile_flops_per_cycle: None, source });
    // A tile instruction takes 16 cycles for 16×16 sums of 32 products each.
    let with_tiles = |core| Some(Units { core, count: 2, lanes: 16, tile_flops_per_cycle: Some(1024), source: INTEL });
    match (processor.vendor.as_str(), processor.family, processor.model) {
        ("GenuineIntel", 6, 85) => units("Skylake or Cascade Lake server", 2, 16, INTEL),
        ("GenuineIntel", 6, 106 | 108) => units("Ice Lake server", 2, 16, INTEL),
        ("GenuineIntel", 6, 143) => with_tiles("Sapphire Rapids"),
        ("GenuineIntel", 6, 207) => with_tiles("Emerald Rapids"),
        ("GenuineIntel", 6, 173 | 174) => with_tiles("Granite Rapids"),
        // Client cores with 512-bit vectors fuse two 256-bit units into one.
        ("GenuineIntel", 6, 125 | 126 | 140 | 141 | 167) => units("Ice, Tiger or Rocket Lake", 1, 16, INTEL),
        ("GenuineIntel", 6, 151 | 154 | 183 | 186 | 191) => {
            units("Alder or Raptor Lake, performance core", 2, 8, INTEL)
        }
        ("GenuineIntel", 6, 60 | 63 | 69 | 70) => units("Haswell", 2, 8, INTEL),
        ("GenuineIntel", 6, 61 | 71 | 79 | 86) => units("Broadwell", 2, 8, INTEL),
        ("GenuineIntel", 6, 78 | 94 | 142 | 158 | 165 | 166) => units("Skylake client or its successors", 2, 8, INTEL),
        ("AuthenticAMD", 23, 0..=47) => units("Zen or Zen+", 2, 4, AMD),
        ("AuthenticAMD", 23, _) => units("Zen 2", 2, 8, AMD),
        ("AuthenticAMD", 25, 16..=31 | 96..=127 | 160..=175) => units("Zen 4", 2, 8, AMD),
        ("AuthenticAMD", 25, _) => units("Zen 3", 2, 8, AMD),
        ("AuthenticAMD", 26, _) => units("Zen 5", 2, 16, AMD),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flops_per_cycle(vendor: &str, family: u32, model: u32) -> Option<u32> {
        units(&Processor { vendor: vendor.into(), family, model }).map(|units| units.flops_per_cycle())
    }

    #[test]
    fn a_cores_rate_follows_from_its_units() {
        assert_eq!(flops_per_cycle("GenuineIntel", 6, 143), Some(64));
        assert_eq!(flops_per_cycle("GenuineIntel", 6, 158), Some(32));
        assert_eq!(flops_per_cycle("AuthenticAMD", 23, 1), Some(16));
        assert_eq!(flops_per_cycle("AuthenticAMD", 25, 17), Some(32));
        assert_eq!(flops_per_cycle("AuthenticAMD", 26, 2), Some(64));
        assert_eq!(flops_per_cycle("Somebody", 6, 143), None);
        let tiles =
            |model| units(&Processor { vendor: "GenuineIntel".into(), family: 6, model }).unwrap().tile_flops_per_cycle;
        assert_eq!((tiles(143), tiles(106)), (Some(1024), None));
    }
}
