//! `headroom device`: measures this machine's peaks and saves the best ones.

mod link;
mod rocm;

use crate::ranks::{self, RankGroup};
use crate::shown::{Plain, Shown};
use crate::train::start::cuda_options;
use crate::{kept, output, verified, verify};
use anyhow::{Context, bail};
use headroom_diagnosis::peaks::find;
use headroom_diagnosis::peaks::processors::{Processor, units};
use headroom_engine::DeviceSpec;
use headroom_engine::clock::clock_hertz;
use headroom_engine::cpu::gemm::SPLIT_PRODUCTS;
use headroom_engine::cpu::isa::Isa;
use headroom_engine::cuda::{self, AttentionShape, SumOrder};
use headroom_engine::machine::amd::Places;
use headroom_engine::machine::{LoadWatch, Machine, forget_peak_resident, processor_model};
use headroom_engine::peaks::{CpuPeaks, measure};
use headroom_graph::Precision;
use headroom_record::device::{DatasheetPeak, DeviceRecord, PrecisionPeak};
use headroom_record::provenance::Origin;
use headroom_record::timestamp::utc_iso;
use headroom_report::numbers::{metric, seconds};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Seconds that a rank waits for another.
const RANK_TIMEOUT: u64 = 60;

/// Measures the rate of large GEMMs per precision, memory bandwidth, and the cost of a call. Takes a few seconds. The best
/// figures so far are saved and used wherever a peak is needed. Under a launcher it measures messages between the ranks instead:
/// through MPI, or through NCCL with `--device cuda`. `--json` prints the saved record. `--device rocm` measures nothing: it lists
/// AMD's GPUs with memory, clocks and links, says what PyTorch for ROCm lacks here and how to install it, and exits with 1 if
/// something needed is missing.
#[derive(clap::Args)]
pub struct Arguments {
    /// Threads to measure with [default: the physical cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// cpu, cuda, cuda:N, or rocm (lists AMD's GPUs and checks what PyTorch needs there)
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Read AMD's devices from the system below this folder, for tests
    #[arg(long, hide = true, value_name = "FOLDER")]
    system_root: Option<PathBuf>,
    /// Instead of measuring, check every kernel against a reference and steps of these sizes against the CPU
    #[arg(long, value_name = "SIZES", num_args = 0.., value_delimiter = ',')]
    verify: Option<Vec<String>>,
    /// Measure bf16 GEMMs of these shapes on a GPU, such as 8192x4096x2048, in the three layouts that a layer needs
    #[arg(long, hide = true, value_delimiter = ',')]
    products: Vec<String>,
    /// Measure causal bf16 attention of these shapes on a GPU: batch x heads x kv heads x sequence x head size
    #[arg(long, hide = true, value_delimiter = ',')]
    attention: Vec<String>,
    #[command(flatten)]
    shown: Shown<Plain>,
}

/// Runs the command. `company` is filled where this is one of several ranks; the caller leaves the group with `part`.
pub fn run(arguments: Arguments, company: &mut Option<RankGroup>) -> anyhow::Result<ExitCode> {
    let places = arguments.system_root.as_deref().map_or_else(Places::of_this_machine, Places::below);
    let measures = !(arguments.products.is_empty() && arguments.attention.is_empty() && arguments.threads.is_none());
    if arguments.device == "rocm" && arguments.verify.is_none() && !measures {
        return rocm::run(&places, arguments.shown);
    }
    let device: DeviceSpec = arguments.device.parse()?;
    *company = ranks::connected(device, RANK_TIMEOUT)?;
    if let Some(company) = company {
        return link::run(company, &arguments.device, arguments.shown);
    }
    if let Some(sizes) = &arguments.verify {
        return verify::run(device, sizes, arguments.shown);
    }
    if let DeviceSpec::Cuda(ordinal) = device
        && !arguments.products.is_empty()
    {
        return products(ordinal, &arguments.products, arguments.shown);
    }
    if let DeviceSpec::Cuda(ordinal) = device
        && !arguments.attention.is_empty()
    {
        return attention(ordinal, &arguments.attention, arguments.shown);
    }
    let measured = match device {
        DeviceSpec::Cuda(ordinal) => {
            let facts = cuda::facts(ordinal)?;
            output::note(&format!("measuring {} (about 10 seconds)", facts.name));
            measure_gpu(&facts, ordinal)?
        }
        _ => {
            let machine = Machine::detect();
            let threads = arguments.threads.map_or(machine.cores, usize::from);
            output::note(&format!("measuring {} on {threads} threads (about 4 seconds)", machine.cpu_name));
            measure_now(&machine, threads)?
        }
    };
    let now = measured.gemm("fp32");
    let (best, kept) = kept::save_device(measured).context("the measurement is done, but cannot be saved")?;
    let more = match device {
        DeviceSpec::Cuda(ordinal) => {
            let facts = cuda::facts(ordinal)?;
            format!(
                "  shared memory     {} KiB per block\n  attention         {} kernels\n  verified          {}\n",
                facts.shared_memory / 1024,
                facts.level,
                verified::said(&facts)
            )
        }
        _ => String::new(),
    };
    let mut document = serde_json::to_value(&best)?;
    let amd = rocm::Check::where_present(&places);
    if let Some(check) = &amd {
        document["rocm"] = check.document();
        document["provenance"]["rocm"] = json!(Origin::Measured);
    }
    let amd = amd.map_or(String::new(), |check| check.text());
    arguments.shown.print(&document, |_| table(&best) + &more + &amd)?;
    if let (Some(now), Some(before)) = (now, best.gemm("fp32"))
        && now < 0.98 * before
    {
        output::note(&format!(
            "an earlier measurement was better and stays: fp32 GEMMs reached {} this time",
            metric(now, "FLOP/s")
        ));
    }
    match kept {
        Some(path) => output::note(&format!("saved in {}", path.display())),
        None if best.doubt().is_some() => {}
        None => output::note("not saved: set HEADROOM_HOME or HOME to a folder"),
    }
    Ok(ExitCode::SUCCESS)
}

fn products(ordinal: usize, shapes: &[String], shown: Shown<Plain>) -> anyhow::Result<ExitCode> {
    let sizes = |shape: &String| -> anyhow::Result<[usize; 3]> {
        let sizes: Vec<usize> = shape.split('x').map(str::parse).collect::<Result<_, _>>().context("m x n x k")?;
        sizes.try_into().map_err(|_| anyhow::anyhow!("`{shape}` is not m x n x k"))
    };
    let shapes: Vec<[usize; 3]> = shapes.iter().map(sizes).collect::<anyhow::Result<_>>()?;
    let rates = cuda::product_rates(&cuda_options(ordinal), &shapes)?;
    let rates = rates.into_iter().map(|(what, rate)| (what.to_string(), rate)).collect();
    print_rates(rates, 28, shown)
}

/// Prints each measured quantity and its rate.
fn print_rates(rates: Vec<(String, f64)>, width: usize, shown: Shown<Plain>) -> anyhow::Result<ExitCode> {
    let record: Vec<_> = rates.iter().map(|(what, rate)| json!({ "what": what, "flops_per_sec": rate })).collect();
    let line = |(what, rate): &(String, f64)| format!("{what:<width$} {}\n", metric(*rate, "FLOP/s"));
    shown.print(&record, |_| rates.iter().map(line).collect())?;
    Ok(ExitCode::SUCCESS)
}

fn attention(ordinal: usize, shapes: &[String], shown: Shown<Plain>) -> anyhow::Result<ExitCode> {
    let mut rates = vec![];
    for shape in shapes {
        let sizes: Vec<usize> = shape.split('x').map(str::parse).collect::<Result<_, _>>().context("numbers")?;
        let [batch, heads, kv_heads, seq, head_dim] = sizes[..] else {
            bail!("`{shape}` is not batch x heads x kv heads x sequence x head size")
        };
        let shape = AttentionShape { batch, heads, kv_heads, seq, head_dim };
        let size = format!("{batch}x{heads}x{kv_heads}x{seq}x{head_dim}");
        for (order, said) in [(SumOrder::Fixed, ""), (SumOrder::Any, "-any-order")] {
            let options = cuda::Options { order, ..cuda_options(ordinal) };
            for rate in cuda::attention_rates(&options, &shape)? {
                rates.push((format!("{size:<24} {}{said}", rate.what), rate.flops_per_sec));
            }
        }
    }
    print_rates(rates, 51, shown)
}

/// Measures GEMMs per precision, memory, launches and replays of a GPU, and adds its datasheet's figures where known.
pub fn measure_gpu(facts: &cuda::Facts, ordinal: usize) -> anyhow::Result<DeviceRecord> {
    let peaks = cuda::measure_peaks(&cuda_options(ordinal))?;
    let (major, minor) = facts.capability;
    let peak = |(precision, flops_per_sec): &(&'static str, f64)| PrecisionPeak {
        precision: precision.to_string(),
        flops_per_sec: *flops_per_sec,
        one_thread_flops_per_sec: None,
    };
    let record = DeviceRecord {
        schema_version: headroom_record::SCHEMA_VERSION,
        timestamp: utc_iso(SystemTime::now()),
        kind: "cuda".into(),
        name: facts.name.clone(),
        threads: u64::from(facts.multiprocessors),
        instruction_set: format!("sm_{major}{minor}"),
        memory_total_mb: facts.total_bytes as f64 / (1024.0 * 1024.0),
        gemm_flops: peaks.products.iter().map(peak).collect(),
        memory_bandwidth_bytes: peaks.bytes,
        call_seconds: peaks.launch_seconds,
        replay_seconds: None,
        datasheet: None,
        other_load_percent: None,
        repeat_spread_percent: None,
        provenance: DeviceRecord::provenance(),
    };
    let record = record.with_replay(peaks.replay_seconds);
    let stated = |rate: f64| (rate > 0.0).then_some(rate);
    Ok(match find(&facts.name) {
        Some(part) => record.with_datasheet(DatasheetPeak {
            fp32_flops: part.fp32,
            tf32_flops: stated(part.tf32),
            bf16_flops: stated(part.bf16),
            source: part.source.into(),
        }),
        None => record,
    })
}

/// Measures the CPU's peaks. Warns if other programs used part of the machine. Memory used for measuring does not count
/// towards the run that follows.
pub fn measure_now(machine: &Machine, threads: usize) -> anyhow::Result<DeviceRecord> {
    let isa = Isa::detect();
    let watch = LoadWatch::start();
    let peaks = measure(threads, isa)?;
    let others = watch.and_then(|watch| watch.others());
    forget_peak_resident();
    let mut record = record_of(machine, &peaks, isa).with_repeat_spread(100.0 * peaks.spread);
    if let Some(peak) = datasheet(threads, isa) {
        record = record.with_datasheet(peak);
    }
    if let Some(share) = others {
        record = record.with_other_load(100.0 * share);
    }
    if let Some(doubt) = record.doubt() {
        output::note(&format!(
            "warning: {doubt}, so these peaks are too low and shares of them look too good; they are not saved, and `headroom \
             device` measures again"
        ));
    }
    Ok(record)
}

/// The theoretical peak of that many cores at their measured clock.
fn datasheet(threads: usize, isa: Isa) -> Option<DatasheetPeak> {
    let (vendor, family, model) = processor_model()?;
    let units = units(&Processor { vendor, family, model })?;
    let clock = clock_hertz(Duration::from_millis(50))?;
    let in_tiles = (isa == Isa::Amx).then_some(units.tile_flops_per_cycle).flatten().map(f64::from);
    let (a_cycle, what) = match in_tiles {
        Some(flops) => {
            let products = f64::from(SPLIT_PRODUCTS);
            (
                flops / products,
                format!("{flops} bf16 operations per cycle in tiles, {products} bf16 products per fp32 product"),
            )
        }
        None => {
            let what = format!("{} multiply-add units of {} lanes × 2", units.count, units.lanes);
            (f64::from(units.flops_per_cycle()), what)
        }
    };
    let rate = |a_cycle: f64| threads as f64 * a_cycle * clock;
    Some(DatasheetPeak {
        fp32_flops: rate(a_cycle),
        tf32_flops: None,
        bf16_flops: in_tiles.map(rate),
        source: format!(
            "computed: {threads} cores × {what} × {:.2} GHz as timed ({}; {})",
            clock / 1e9,
            units.core,
            units.source
        ),
    })
}

pub fn record_of(machine: &Machine, peaks: &CpuPeaks, isa: Isa) -> DeviceRecord {
    DeviceRecord {
        schema_version: headroom_record::SCHEMA_VERSION,
        timestamp: utc_iso(SystemTime::now()),
        kind: "cpu".into(),
        name: machine.cpu_name.clone(),
        threads: peaks.threads as u64,
        instruction_set: isa.to_string(),
        memory_total_mb: machine.memory_total_bytes as f64 / (1024.0 * 1024.0),
        gemm_flops: [
            (Precision::Fp32, peaks.product_f32, peaks.product_f32_one_thread),
            (Precision::Bf16, peaks.product_bf16, peaks.product_bf16_one_thread),
        ]
        .map(|(precision, flops_per_sec, one_thread)| PrecisionPeak {
            precision: precision.to_string(),
            flops_per_sec,
            one_thread_flops_per_sec: Some(one_thread),
        })
        .into(),
        memory_bandwidth_bytes: peaks.copy,
        call_seconds: peaks.call_seconds,
        replay_seconds: None,
        datasheet: None,
        other_load_percent: None,
        repeat_spread_percent: None,
        provenance: DeviceRecord::provenance(),
    }
}

fn table(record: &DeviceRecord) -> String {
    let is_gpu = record.kind == "cuda";
    let units = if is_gpu { "multiprocessors" } else { "threads" };
    let mut lines = vec![
        format!("{} · {} {units} · {}", record.name, record.threads, record.instruction_set),
        format!("  memory            {:.1} GiB", record.memory_total_mb / 1024.0),
    ];
    for peak in &record.gemm_flops {
        let one = peak
            .one_thread_flops_per_sec
            .map_or(String::new(), |one| format!(" ({} on one thread)", metric(one, "FLOP/s")));
        let stated = record.datasheet.as_ref().filter(|_| is_gpu).and_then(|stated| stated.flops(&peak.precision));
        let share = stated.map_or(String::new(), |stated| {
            format!(" ({:.0}% of its datasheet's {})", 100.0 * peak.flops_per_sec / stated, metric(stated, "FLOP/s"))
        });
        lines.push(format!("  GEMM {:<12} {}{one}{share}", peak.precision, metric(peak.flops_per_sec, "FLOP/s")));
    }
    if let (Some(peak), Some(measured)) = (record.datasheet.as_ref().filter(|_| !is_gpu), record.gemm("fp32")) {
        let share = 100.0 * measured / peak.fp32_flops;
        lines.push(format!("  fp32 units, peak  {} ({share:.0}% of it measured)", metric(peak.fp32_flops, "FLOP/s")));
        lines.push(format!("                    {}", peak.source));
    }
    let precision = if is_gpu { "bf16" } else { "fp32" };
    let ridge = record.gemm(precision).map_or(0.0, |flops| flops / record.memory_bandwidth_bytes);
    lines.push(format!("  memory bandwidth  {}", metric(record.memory_bandwidth_bytes, "B/s")));
    lines.push(format!("  ridge point       {ridge:.1} FLOPs per byte ({precision})"));
    match record.replay_seconds {
        Some(replay) => {
            lines.push(format!("  kernel launch     {}", seconds(record.call_seconds)));
            lines.push(format!("  replayed kernel   {}", seconds(replay)));
        }
        None => lines.push(format!("  empty call        {}", seconds(record.call_seconds))),
    }
    lines.join("\n") + "\n"
}
