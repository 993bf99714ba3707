//! `headroom device` under a launcher: measures how long messages between the ranks take.

use crate::ranks::{RankGroup, device_of};
use crate::shown::{Plain, Shown};
use crate::train::start::cuda_options;
use crate::{kept, output};
use anyhow::Context;
use headroom_engine::machine::Machine;
use headroom_engine::ranks::measure::measure;
use headroom_engine::{DeviceSpec, cuda};
use headroom_record::link::{Between, LinkPoint, LinkRecord};
use headroom_record::timestamp::utc_iso;
use headroom_report::numbers::{bytes, metric, seconds};
use std::process::ExitCode;
use std::time::SystemTime;

/// Every rank measures; rank 0 reports and saves the result.
pub fn run(company: &RankGroup, device: &str, shown: Shown<Plain>) -> anyhow::Result<ExitCode> {
    let ranks = company.ranks();
    let (between, library, machine, measured) = match device_of(device, &company.launched).parse()? {
        DeviceSpec::Cuda(ordinal) => {
            let facts = cuda::facts(ordinal)?;
            let (version, measured) = cuda::measure_link(&cuda_options(ordinal), &ranks)?;
            (Between::Gpus, format!("NCCL {version}"), facts.name, measured)
        }
        _ => (Between::Cpus, ranks.library().to_string(), Machine::detect().cpu_name, measure(&ranks)?),
    };
    let points: Vec<LinkPoint> =
        measured.iter().map(|one| LinkPoint { bytes: one.bytes as u64, seconds: one.seconds }).collect();
    let size = ranks.size() as u64;
    let (round_seconds, bytes_per_second) =
        LinkRecord::line(size, &points).context("large exchanges took no longer than small ones: measure again")?;
    let record = LinkRecord {
        schema_version: headroom_record::SCHEMA_VERSION,
        timestamp: utc_iso(SystemTime::now()),
        ranks: size,
        library,
        machine,
        round_seconds,
        bytes_per_second,
        points,
        provenance: LinkRecord::provenance(),
    };
    if company.rank() > 0 {
        return Ok(ExitCode::SUCCESS);
    }
    shown.print(&record, table)?;
    match kept::save_link(between, &record).context("the measurement is done, but cannot be saved")? {
        Some(path) => output::note(&format!("saved in {}", path.display())),
        None => output::note("not saved: set HEADROOM_HOME or HOME to a folder"),
    }
    Ok(ExitCode::SUCCESS)
}

fn table(record: &LinkRecord) -> String {
    let mut text = format!("{} ranks, {}\n", record.ranks, record.library);
    for point in &record.points {
        text += &format!("  {:<17} {}\n", format!("sum of {}", bytes(point.bytes)), seconds(point.seconds));
    }
    text + &format!(
        "  cost of a round   {}\n  sent by each rank {}\n",
        seconds(record.round_seconds),
        metric(record.bytes_per_second, "B/s")
    )
}
