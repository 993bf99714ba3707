//! The tables of a profile's report, shared by all its formats.

use super::{AboutRun, Profile};
use crate::numbers::{bytes, grouped, metric, mfu, seconds};
use crate::table::Table;
use crate::targets;
use headroom_record::operators::{BottleneckCategory, Level};
use headroom_record::performance::{GpuState, PerformanceRecord};

pub const TOP: usize = 15;

pub const NODES: &str = "Nodes of the tree";

pub const ROOF_NOTE: &str =
    "Bytes count every input once and every output once. An operator above 100% of its roof found its data in a cache.";
pub const BOUND_NOTE: &str =
    "Speed-ups are upper bounds from measured times and the machine's roofs: computed, not promised.";
pub const CLASS_NOTE: &str =
    "Fixed thresholds of the workshop, for comparison; this report uses the machine's own ridge point.";

pub fn summary(profile: &Profile) -> Table {
    let (run, flops, intensity) = (profile.run, &profile.run.efficiency_metrics, &profile.run.computational_intensity);
    let mut rows = profile.about.map_or_else(|| speed_of_trace(profile), |about| speed(about.performance));
    rows.push(row([
        "MFU",
        &mfu(flops.mfu_percent, 1),
        &format!(
            "of the {} peak, {} ({}): FLOPs that the model needs, over the whole step",
            run.header.peaks.precision,
            metric(flops.device_peak_flops, "FLOP/s"),
            flops.device_peak_source
        ),
    ]));
    if let (Some(share), Some(peak), Some(source)) =
        (flops.mfu_of_datasheet_percent, flops.datasheet_peak_flops, &flops.datasheet_peak_source)
    {
        let about = format!("of the theoretical peak, {} ({source})", metric(peak, "FLOP/s"));
        rows.push(row(["", &format!("{share:.1}%"), &about]));
    }
    rows.push(row([
        "HFU",
        &format!("{:.1}%", flops.hfu_percent),
        &format!(
            "executed: {} per step at {}",
            metric(run.flops_analysis.avg_flops_per_step as f64, "FLOP"),
            metric(flops.achieved_flops_per_sec, "FLOP/s")
        ),
    ]));
    rows.push(row([
        "Bound",
        &intensity.memory_bound_vs_compute_bound.name().replace('_', " "),
        &format!(
            "{:.1} FLOPs per byte, ridge at {:.1}; nothing ran for {:.1}% of the step",
            intensity.arithmetic_intensity_flops_per_byte, intensity.ridge_point_flops_per_byte, intensity.idle_percent
        ),
    ]));
    rows.push(row([
        "Utilisation",
        &format!("{:.1}%", 100.0 * profile.analysis.measures.breakdown.busy_share),
        "share of the recorded steps in which the device runs a kernel or an operator",
    ]));
    rows.push(row([
        "Peak memory",
        &mib(run.memory_analysis.peak_memory_mb),
        &format!(
            "in {}, at {}; {} reserved",
            run.memory_analysis.peak_phase,
            run.memory_analysis.peak_operator,
            mib(run.memory_analysis.reserved_memory_mb)
        ),
    ]));
    rows.push(recording(profile));
    rows.extend(profile.about.into_iter().flat_map(|about| notes(&about)));
    Table { head: vec!["", "", ""], rows }
}

fn speed(record: &PerformanceRecord) -> Vec<Vec<String>> {
    let (summary, statistics) = (&record.performance_summary, &record.statistics);
    let interval = match (statistics.ci95_low, statistics.ci95_high) {
        _ if record.is_predicted() => "predicted".into(),
        (Some(low), Some(high)) => {
            format!("median of {}; 95% between {} and {}", statistics.steps, seconds(low), seconds(high))
        }
        _ => format!("median of {}", statistics.steps),
    };
    vec![
        row(["Speed", &rate(summary.avg_training_speed, "samples/s"), &rate(summary.tokens_per_sec, "tokens/s")]),
        row(["Step", &statistics.median.map_or("-".into(), seconds), &interval]),
    ]
}

/// Speed figures that the trace itself contains.
fn speed_of_trace(profile: &Profile) -> Vec<Vec<String>> {
    let run = &profile.run.header.run;
    let mut rows = vec![];
    if let Some(mean) = run.mean_step_seconds {
        rows.push(row(["Step", &seconds(mean), &format!("mean of the run's {} steps, warm-up excluded", run.steps)]));
    }
    let wall = profile.run.operator_analysis.step_breakdown.wall;
    rows.push(row(["Recorded step", &seconds(wall), &format!("mean of {}", profile.analysis.steps.list.len())]));
    rows
}

fn recording(profile: &Profile) -> Vec<String> {
    let (first, last) = profile.steps();
    let share = match profile.about {
        Some(about) => about.performance.performance_summary.overhead_words(),
        None => profile.run.header.profiling_overhead_percent.map(|share| format!("{share:+.1}%")),
    };
    let turns = profile.about.map_or(String::new(), |about| {
        format!("; overhead of the median step, over {} alternating pairs", about.turns)
    });
    row([
        "Recording",
        share.as_deref().unwrap_or("not measured"),
        &format!("steps {first} to {last}{}", if share.is_some() { turns } else { String::new() }),
    ])
}

fn notes(about: &AboutRun) -> Vec<Vec<String>> {
    let performance = about.performance;
    let mut rows: Vec<_> = performance.warnings.iter().map(|warning| row(["Warning", "", warning])).collect();
    if let Some(state) = &performance.gpu_state {
        rows.push(row(["GPU", &format!("{:.0} MHz", state.sm_clock_mhz_median), &gpu_state(state)]));
    }
    for note in &performance.profiler_config.recording {
        rows.push(row(["Note", "", note]));
    }
    if let Some(first) = about.first_step_seconds {
        rows.push(row(["First step", &seconds(first), "left out of every average"]));
    }
    if let Some(loss) = performance.performance_summary.final_loss {
        rows.push(row(["Final loss", &format!("{loss:.4}"), "of the last step, before its update"]));
    }
    rows
}

/// Clocks, power, temperature, and what throttled the clocks, in one line.
fn gpu_state(state: &GpuState) -> String {
    let held: Vec<String> = state
        .held_back_by
        .iter()
        .map(|held| format!("{} in {:.0}% of the samples", held.reason, held.percent_of_samples))
        .collect();
    let held = if held.is_empty() { "clocks not limited".into() } else { format!("limited by {}", held.join(", ")) };
    format!(
        "median of {} samples, lowest {:.0}, highest possible {:.0}; {:.0} W of {:.0} W, at most {:.0}; up to {:.0} °C; {held}",
        state.samples,
        state.sm_clock_mhz_least,
        state.sm_clock_mhz_most,
        state.power_watts_median,
        state.power_watts_limit,
        state.power_watts_most,
        state.temperature_celsius_most
    )
}

/// The original course's classes, which this report shows but draws no conclusions from.
pub fn workshop_classes(profile: &Profile) -> Table {
    let intensity = &profile.run.computational_intensity;
    let efficiency = &profile.run.efficiency_metrics;
    Table {
        head: vec!["workshop's measure", "here", "its class"],
        rows: vec![
            row(["MFU", &mfu(efficiency.mfu_percent, 1), &efficiency.workshop_class]),
            row([
                "arithmetic intensity",
                &format!("{:.1} FLOPs per byte", intensity.arithmetic_intensity_flops_per_byte),
                &intensity.workshop_class,
            ]),
            row([
                "bandwidth used",
                &format!("{:.1}%", intensity.memory_bandwidth_utilization_percent),
                &intensity.bandwidth_class,
            ]),
            row(["roofline position", "", &intensity.roofline_position]),
        ],
    }
}

pub fn breakdown(profile: &Profile) -> Table {
    let breakdown = &profile.run.operator_analysis.step_breakdown;
    let share = |time: f64| format!("{:.2}%", 100.0 * time / breakdown.wall);
    let mut rows: Vec<Vec<String>> =
        breakdown.parts().iter().map(|(name, time)| vec![name.to_string(), seconds(*time), share(*time)]).collect();
    rows.push(vec!["the whole step".into(), seconds(breakdown.wall), share(breakdown.wall)]);
    Table { head: vec!["part of a mean recorded step", "time", "share"], rows }
}

/// The blocks of a tree, one by one; `None` for a chain, whose blocks are all alike.
pub fn nodes(profile: &Profile) -> Option<Table> {
    let branching = &profile.about?.performance.config.branching;
    let modules = &profile.run.flops_analysis.by_module;
    let blocks = modules.children.iter().find(|module| module.name == "layers").filter(|_| !branching.is_empty())?;
    let levels = levels(branching);
    let mut rows = vec![];
    for block in &blocks.children {
        let level = block.name.parse::<usize>().ok().and_then(|number| levels.get(number));
        rows.push(vec![
            format!("layers.{}", block.name),
            level.map_or(String::new(), usize::to_string),
            seconds(block.seconds),
            format!("{:.1}%", 100.0 * block.seconds / modules.seconds.max(1e-12)),
            metric(block.forward_flops as f64, "FLOP"),
            metric(block.backward_flops as f64, "FLOP"),
            bytes(block.bytes),
        ]);
    }
    Some(Table { head: vec!["node", "level", "time", "share", "forward", "backward", "bytes"], rows })
}

/// The depth of each node below the root, in execution order.
fn levels(branching: &[u64]) -> Vec<usize> {
    let mut levels = vec![0];
    if let [children, below @ ..] = branching {
        let own: Vec<usize> = levels_below(below);
        (0..*children).for_each(|_| levels.extend(&own));
    }
    levels
}

fn levels_below(branching: &[u64]) -> Vec<usize> {
    levels(branching).into_iter().map(|level| level + 1).collect()
}

pub fn top_operators(profile: &Profile) -> Table {
    let rows = profile.run.operator_analysis.by_place.iter().take(TOP).map(|place| {
        vec![
            place.name.clone(),
            format!("{} · {}", place.module, place.phase),
            seconds(place.time),
            format!("{:.1}%", place.percent_of_step),
            seconds(place.host_time),
            place.count.to_string(),
            targets::of_place(place),
            metric(place.flops as f64, "FLOP"),
            bytes(place.bytes),
            format!("{:.1}", place.intensity),
            place.bound.word().to_string(),
            format!("{:.0}%", place.percent_of_roof),
        ]
    });
    let head = vec![
        "operator",
        "where",
        "device time",
        "share",
        "host time",
        "calls",
        "target",
        "FLOPs",
        "bytes",
        "FLOPs/byte",
        "bound by",
        "share of roof",
    ];
    Table { head, rows: rows.collect() }
}

/// Explains the columns of the operator table.
pub fn target_note(profile: &Profile) -> String {
    targets::note(profile.analysis)
}

pub fn patterns(profile: &Profile) -> Table {
    let patterns = &profile.run.operator_analysis.patterns;
    let share = |name: &str, share: f64| vec![name.to_string(), format!("{share:.1}%")];
    let count = |name: &str, count: u64| vec![name.to_string(), grouped(count)];
    Table {
        head: vec!["question", "answer"],
        rows: vec![
            share("matrix products, share of the step", patterns.gemm_percent),
            share("attention, projections included", patterns.attention_percent),
            share("attention's scores, softmax and mix alone", patterns.attention_core_percent),
            share("softmax", patterns.softmax_percent),
            share("q, k and v projections", patterns.qkv_projection_percent),
            share("feed-forward", patterns.ffn_percent),
            share("gate and up projections alone", patterns.gate_up_percent),
            share("norms", patterns.norm_percent),
            share("optimizer", patterns.optimizer_percent),
            share("launch overhead (between calls, and starting them)", patterns.launch_overhead_percent),
            count("kernels per step", patterns.kernels_per_step),
            count("distinct kernels", patterns.distinct_kernels),
            count("linear projections of a forward pass", patterns.linear_projections),
        ],
    }
}

pub fn memory(profile: &Profile) -> Table {
    let memory = &profile.run.memory_analysis;
    let mut rows: Vec<Vec<String>> = memory
        .by_category
        .entries()
        .iter()
        .map(|(name, size)| {
            vec![name.replace('_', " "), mib(*size), format!("{:.1}%", 100.0 * size / memory.peak_memory_mb)]
        })
        .collect();
    rows.push(vec!["live at the peak".into(), mib(memory.peak_memory_mb), "100.0%".into()]);
    Table { head: vec!["at the peak", "memory", "share"], rows }
}

pub fn memory_notes(profile: &Profile) -> Vec<String> {
    let memory = &profile.run.memory_analysis;
    let mut notes = vec![
        format!("Peak in the {} phase, while {} runs.", memory.peak_phase, memory.peak_operator),
        format!(
            "{} in use on average over the calls of a step, with kernel scratch: the {} reserved are {:.2} times that. \
             {:.2}% of the arena lies between buffers.",
            mib(memory.avg_memory_mb),
            mib(memory.reserved_memory_mb),
            memory.peak_to_average,
            memory.fragmentation_percent
        ),
        format!(
            "{} allocations per step, {} together: buffers that become live, all placed before the run.",
            grouped(memory.allocations),
            bytes(memory.total_memory_allocated)
        ),
        format!(
            "At most {} in forward, {} in backward, {} in the optimizer.",
            mib(memory.at_forward_mb),
            mib(memory.at_backward_mb),
            mib(memory.at_optimizer_mb)
        ),
        format!(
            "Largest tensor: {}, {:?}, {}.",
            memory.largest_tensor.name,
            memory.largest_tensor.shape,
            mib(memory.largest_tensor.mb)
        ),
    ];
    if let Some(batch) = memory.largest_batch_that_fits {
        notes.push(format!("The largest batch that fits into free memory is {}.", grouped(batch)));
    }
    let advice = memory.memory_efficiency_recommendations.iter();
    notes.extend(advice.map(|advice| {
        format!(
            "`{}` takes at most {} off the peak ({}).",
            advice.recommendation,
            mib(advice.saves_at_most_mb),
            advice.reason
        )
    }));
    notes
}

pub const RANKING_NOTE: &str = "Rank: by the time that the missing passes save at most. Each of them is one flag.";

/// Title of the rows that are not priorities.
pub const NO_FLAG: &str = "No flag changes these";

/// Instead of an empty list of priorities.
pub const NO_PRIORITY: &str = "None: no pass that would change the step is missing.";

pub const EFFORT_NOTE: &str =
    "Effort is of the remedy here: a flag is low effort. Difficulty is of writing the same by hand.";

/// The rows that a flag changes. Those that no flag changes are in [`without_remedy`].
pub fn bottlenecks(profile: &Profile) -> Table {
    let rows = categories(profile).filter(|row| row.has_remedy()).map(|row| {
        vec![
            row.priority_rank.to_string(),
            row.category.clone(),
            share_of_step(row),
            row.difficulty.clone(),
            row.speedup_at_most.map_or("none".into(), |speedup| format!("at most {speedup:.2}×")),
            row.evidence.clone(),
            row.remedy.clone(),
        ]
    });
    let head = vec!["rank", "bottleneck", "share of step", "difficulty", "speed-up", "evidence", "advice"];
    Table { head, rows: rows.collect() }
}

pub fn without_remedy(profile: &Profile) -> Table {
    let rows = categories(profile)
        .filter(|row| !row.has_remedy())
        .map(|row| vec![row.category.clone(), share_of_step(row), row.evidence.clone(), row.remedy.clone()]);
    Table { head: vec!["bottleneck", "share of step", "evidence", "why"], rows: rows.collect() }
}

fn share_of_step(row: &BottleneckCategory) -> String {
    row.percent_of_time.map_or("not time".into(), |share| format!("{share:.1}%"))
}

fn categories<'a>(profile: &Profile<'a>) -> impl Iterator<Item = &'a BottleneckCategory> {
    profile.run.operator_analysis.bottlenecks.categories.iter()
}

/// The workshop's four quadrants, each with its bottlenecks.
pub fn matrix<'a>(profile: &Profile<'a>) -> [(&'static str, Vec<&'a BottleneckCategory>); 4] {
    let cell = |impact: Level, effort: Level| {
        categories(profile).filter(|row| row.has_remedy() && row.impact == impact && row.effort == effort).collect()
    };
    [
        ("High impact, low effort (priority 1)", cell(Level::High, Level::Low)),
        ("High impact, high effort (priority 2)", cell(Level::High, Level::High)),
        ("Low impact, low effort (priority 3)", cell(Level::Low, Level::Low)),
        ("Low impact, high effort (priority 4: skip)", cell(Level::Low, Level::High)),
    ]
}

pub fn targets(profile: &Profile) -> Table {
    let rows = profile.run.operator_analysis.bottlenecks.optimization_targets.iter().map(|target| {
        vec![
            target.operation.clone(),
            target.priority.clone(),
            target.potential_benefit.clone(),
            target.optimization.clone(),
        ]
    });
    Table { head: vec!["furthest from its roof", "priority", "to gain", "how"], rows: rows.collect() }
}

pub fn title(profile: &Profile) -> String {
    match profile.about {
        Some(about) => format!("Profile of {} · {}", about.name, about.label),
        None => profile.run.header.model.clone(),
    }
}

pub fn subtitle(profile: &Profile) -> String {
    let header = &profile.run.header;
    let shape = format!(
        "{} parameters · batch {} × {} tokens",
        grouped(header.parameters),
        header.shape.batch_size,
        header.shape.seq_len
    );
    let measured = if header.run.times_are_computed { " · nothing was computed: times are predicted" } else { "" };
    let Some(about) = profile.about else { return format!("{shape} · {}{measured}", header.device) };
    let system = &about.performance.system_info;
    let machine = match (&system.gpu_name, &system.driver_version) {
        (Some(gpu), Some(driver)) => format!("{gpu}, driver {driver}"),
        _ => format!("{}, {} threads", system.cpu_name, system.threads),
    };
    format!("{shape} · {} · {machine} · {}{measured}", system.device, about.performance.timestamp)
}

fn mib(size: f64) -> String {
    if size >= 1024.0 { format!("{:.2} GiB", size / 1024.0) } else { format!("{size:.1} MiB") }
}

fn rate(speed: Option<f64>, unit: &str) -> String {
    speed.map_or("-".into(), |speed| metric(speed, unit))
}

fn row(cells: [&str; 3]) -> Vec<String> {
    cells.map(String::from).to_vec()
}
