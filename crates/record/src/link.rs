//! link-N-ranks.json and gpu-link-N-ranks.json: measured message times between N ranks.

use crate::provenance::{Origin, Provenance};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkRecord {
    pub schema_version: u32,
    pub timestamp: String,
    pub ranks: u64,
    /// Name and version of MPI or NCCL, and the processor or GPU of rank 0.
    pub library: String,
    pub machine: String,
    /// Latency of one round of an exchange, however small the message.
    pub round_seconds: f64,
    /// Bandwidth of each rank's sends.
    pub bytes_per_second: f64,
    pub points: Vec<LinkPoint>,
    pub provenance: Provenance,
}

/// The kind of endpoints that messages travel between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    Cpus,
    Gpus,
}

impl Between {
    /// Prefix of the file names.
    fn prefix(self) -> &'static str {
        match self {
            Between::Cpus => "link-",
            Between::Gpus => "gpu-link-",
        }
    }
}

/// One measured all-reduce.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkPoint {
    pub bytes: u64,
    pub seconds: f64,
}

impl LinkRecord {
    pub fn file(between: Between, ranks: u64) -> String {
        format!("{}{ranks}-ranks.json", between.prefix())
    }

    /// The number of ranks in a file name.
    pub fn ranks_of(between: Between, file: &str) -> Option<u64> {
        file.strip_prefix(between.prefix())?.strip_suffix("-ranks.json")?.parse().ok()
    }

    pub fn provenance() -> Provenance {
        Provenance::of(&[
            ("ranks", Origin::Measured),
            ("round_seconds", Origin::Computed),
            ("bytes_per_second", Origin::Computed),
            ("points", Origin::Measured),
        ])
    }

    /// Latency and bandwidth from the smallest and the largest exchange between this many ranks. An exchange is two
    /// rounds, in each of which a rank sends its part of the tensor to every other rank.
    pub fn line(ranks: u64, points: &[LinkPoint]) -> Option<(f64, f64)> {
        let (small, large) =
            (points.iter().min_by_key(|point| point.bytes)?, points.iter().max_by_key(|point| point.bytes)?);
        let sent = |point: &LinkPoint| 2.0 * (ranks as f64 - 1.0) * point.bytes as f64 / ranks as f64;
        let (seconds, bytes) = (large.seconds - small.seconds, sent(large) - sent(small));
        (seconds > 0.0 && bytes > 0.0).then(|| (small.seconds / 2.0, bytes / seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SCHEMA_VERSION;
    use crate::provenance::check_provenance;

    fn points() -> Vec<LinkPoint> {
        [(4, 1e-4), (4096, 1.1e-4), (4_000_004, 4.1e-3)].map(|(bytes, seconds)| LinkPoint { bytes, seconds }).to_vec()
    }

    #[test]
    fn a_line_goes_through_the_smallest_and_the_largest_exchange() {
        let (round, bytes) = LinkRecord::line(2, &points()).unwrap();
        assert_eq!(round, 5e-5);
        // Half of the four million bytes goes to the other rank in each of the two rounds, in four milliseconds.
        assert!((bytes / 1e9 - 1.0).abs() < 1e-9, "{bytes}");
        assert_eq!(LinkRecord::line(2, &points()[..1]), None);
    }

    #[test]
    fn every_figure_says_where_it_comes_from() {
        let record = LinkRecord {
            schema_version: SCHEMA_VERSION,
            timestamp: "2026-11-16T17:00:00Z".into(),
            ranks: 2,
            library: "an MPI".into(),
            machine: "a CPU".into(),
            round_seconds: 5e-5,
            bytes_per_second: 1e9,
            points: points(),
            provenance: LinkRecord::provenance(),
        };
        check_provenance(&serde_json::to_value(&record).unwrap()).unwrap();
    }
}
