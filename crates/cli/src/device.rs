//! `headroom device`: measures this machine's peaks and keeps them.

use crate::train::settings::{DeviceKind, device_named};
use crate::train::start::cuda_options;
use crate::{kept, output, verify};
use anyhow::Context;
use headroom_engine::cpu::isa::Isa;
use headroom_engine::cuda;
use headroom_engine::machine::Machine;
use headroom_engine::peaks::{CpuPeaks, measure};
use headroom_record::device::{DeviceFacts, DeviceRecord, PrecisionPeak};
use headroom_record::timestamp::utc_iso;
use headroom_report::numbers::{metric, seconds};
use std::process::ExitCode;
use std::time::SystemTime;

/// Measures the rate of large products per precision, of memory, and the cost of a call. Takes a few seconds; the result
/// is kept and used wherever a peak is needed.
#[derive(clap::Args)]
pub struct Arguments {
    /// Threads to measure with [default: the physical cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// cpu, cuda or cuda:N
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Hold every kernel against a reference, and steps of these sizes against the CPU, instead of measuring
    #[arg(long, value_name = "SIZES", num_args = 0.., value_delimiter = ',')]
    verify: Option<Vec<String>>,
    /// Print the record instead of the table
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let device = device_named(&arguments.device)?;
    if let Some(sizes) = &arguments.verify {
        return verify::run(device, sizes);
    }
    if let DeviceKind::Cuda(ordinal) = device {
        return gpu(ordinal);
    }
    let machine = Machine::detect();
    let threads = arguments.threads.map_or(machine.cores, usize::from);
    output::note(&format!("measuring {} on {threads} threads (about 4 seconds)", machine.cpu_name));
    let isa = Isa::detect();
    let record = record_of(&machine, &measure(threads, isa)?, isa);
    let kept = kept::save_device(&record).context("the measurement is done, but cannot be kept")?;
    if arguments.json {
        output::result(&(serde_json::to_string_pretty(&record)? + "\n"))?;
    } else {
        output::result(&table(&record))?;
    }
    match kept {
        Some(path) => output::note(&format!("kept in {}", path.display())),
        None => output::note("not kept: set HEADROOM_HOME or HOME to a folder"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Measured, printed; not kept yet.
fn gpu(ordinal: usize) -> anyhow::Result<ExitCode> {
    let facts = cuda::facts(ordinal)?;
    output::note(&format!("measuring {} (about 10 seconds)", facts.name));
    let peaks = cuda::measure_peaks(&cuda_options(ordinal))?;
    let mut lines = vec![facts.name, format!("  driver            {}", facts.driver_version)];
    for (precision, rate) in &peaks.products {
        lines.push(format!("  GEMM {precision:<12} {}", metric(*rate, "FLOP/s")));
    }
    lines.push(format!("  memory            {}", metric(peaks.bytes, "B/s")));
    lines.push(format!("  a launch          {}", seconds(peaks.launch_seconds)));
    lines.push(format!("  a replayed kernel {}", seconds(peaks.replay_seconds)));
    output::result(&(lines.join("\n") + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

pub fn record_of(machine: &Machine, peaks: &CpuPeaks, isa: Isa) -> DeviceRecord {
    DeviceRecord::new(DeviceFacts {
        timestamp: utc_iso(SystemTime::now()),
        kind: "cpu".into(),
        name: machine.cpu_name.clone(),
        threads: peaks.threads as u64,
        instruction_set: isa.to_string(),
        memory_total_mb: machine.memory_total_bytes as f64 / (1024.0 * 1024.0),
        gemm_flops: vec![PrecisionPeak {
            precision: "fp32".into(),
            flops_per_sec: peaks.product_f32,
            one_thread_flops_per_sec: Some(peaks.product_f32_one_thread),
        }],
        memory_bandwidth_bytes: peaks.copy,
        call_seconds: peaks.call_seconds,
    })
}

fn table(record: &DeviceRecord) -> String {
    let mut lines = vec![
        format!("{} · {} threads · {}", record.name, record.threads, record.instruction_set),
        format!("  memory            {:.1} GiB", record.memory_total_mb / 1024.0),
    ];
    for peak in &record.gemm_flops {
        let one = peak
            .one_thread_flops_per_sec
            .map_or(String::new(), |one| format!(" ({} on one thread)", metric(one, "FLOP/s")));
        lines.push(format!("  GEMM {:<12} {}{one}", peak.precision, metric(peak.flops_per_sec, "FLOP/s")));
    }
    let ridge = record.gemm("fp32").map_or(0.0, |flops| flops / record.memory_bandwidth_bytes);
    lines.push(format!("  memory bandwidth  {}", metric(record.memory_bandwidth_bytes, "B/s")));
    lines.push(format!("  ridge point       {ridge:.1} FLOPs a byte (fp32)"));
    lines.push(format!("  empty call        {}", seconds(record.call_seconds)));
    lines.join("\n") + "\n"
}
