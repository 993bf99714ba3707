//! TR101 host-sync: the host waits for the device, to read a value or explicitly.

use headroom_trace::Category;

use super::{percent, shown_time};
use crate::constants::host_sync::SHARE_IN_THE_SHADOW;
use crate::constants::tr101;
use crate::measures::intervals::{Span, covered, merged};
use crate::measures::python::{frame_name, user_frame};
use crate::measures::recorded::used_device;
use crate::measures::synchronisation::{WaitKind, Waits};
use crate::simulation::Removal;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Confidence, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR101",
    name: "host-sync",
    cause: Cause::HostSync,
    page: include_str!("host_sync.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let groups = &evidence.measures.synchronisation.groups;
    let matters = |waits: &&Waits| {
        waits.kind != WaitKind::CopyToDevice && waits.share_of_steps >= evidence.thresholds.of(&tr101::LEAST_SHARE)
    };
    let anomaly = &evidence.measures.patterns.anomaly;
    let in_a_check = |span: &Span| covered(&anomaly.checks, *span) == span.nanos();
    let is_a_check = |waits: &Waits| !anomaly.checks.is_empty() && waits.spans.iter().all(in_a_check);
    let loops = &evidence.measures.read_loops.spans;
    let is_in_a_loop = |waits: &Waits| waits.spans.iter().all(|span| covered(loops, *span) == span.nanos());
    let said = groups.iter().filter(matters).filter(|waits| !is_a_step_s_end(waits) && !is_a_check(waits));
    let said = said.filter(|waits| loops.is_empty() || !is_in_a_loop(waits));
    let on_host = &evidence.measures.on_host;
    let mut readers = on_host.readers.clone();
    readers.sort_unstable();
    let found = |waits: &Waits| {
        let shadow = in_the_shadow(groups, waits);
        let shadows = shadow.iter().flat_map(|waits| &waits.spans);
        let host: Vec<Span> = waits.spans.iter().chain(shadows).chain(&waits.breaks).copied().collect();
        // The value's copy goes with the read.
        let device = &evidence.view.trace.device;
        let copies = evidence.view.ordered_in(&merged(host.clone())).into_iter();
        let copies = copies.filter(|&at| device.category[at] == Category::Memcpy).map(|at| (at, 0)).collect();
        let removal = Removal { host, device: copies, ..Removal::default() };
        // Without the wait, what the host does after it runs beside the device: idle time that the replay then saves is
        // the wait's, however long the host takes.
        // Reads in its shadow have findings of their own for what they cost by themselves.
        let beyond = |waits: &&Waits| (waits.idle_seconds - waits.cost_seconds).max(0.0);
        let idle = waits.idle_seconds + shadow.iter().map(beyond).sum::<f64>();
        let idle = idle / evidence.measures.breakdown.wall_seconds.max(f64::MIN_POSITIVE);
        let share = waits.share_of_steps.max(idle.min(evidence.simulation.saved_share(&removal)));
        let mut found = found(waits, share);
        found.removal = removal;
        // Tests for NaN and infinity are computed only for this read-back.
        let tests = merged(waits.tests.clone());
        found.removal.device.extend(evidence.view.ordered_in(&tests).into_iter().map(|at| (at, 0)));
        found.removal.host.extend(tests);
        // A tensor is read back to be processed: the host's work on it goes with the copy.
        if waits.spans.iter().any(|span| readers.binary_search(span).is_ok()) {
            found.removal.host.extend(on_host.readers.iter().chain(&on_host.work));
            found.removal.device.extend(on_host.copies.iter().map(|&at| (at, 0)));
        }
        found
    };
    let by_themselves = anomaly_detection(evidence).into_iter().chain(read_in_a_loop(evidence));
    let by_themselves = by_themselves.chain(without_device(evidence));
    by_themselves.chain(said.map(found)).collect()
}

/// A loop of short kernels with a read-back in every iteration is removed as a whole: one call for all iterations reads
/// nothing back.
fn read_in_a_loop(evidence: &Evidence) -> Option<Found> {
    let loops = &evidence.measures.read_loops;
    let share = loops.idle_seconds / evidence.measures.breakdown.wall_seconds.max(f64::MIN_POSITIVE);
    if loops.spans.is_empty() || share < evidence.thresholds.of(&tr101::LEAST_SHARE) {
        return None;
    }
    let message = format!(
        "a loop reads values back from the device in every iteration, {:.0} times per step, and launches {:.0} kernels for each",
        loops.reads_per_step, loops.kernels_per_read
    );
    let advice = "compute all iterations together on the device: index, compare and scatter over whole tensors, \
                  with nothing to read back";
    let mut found = Found::new(Some(share), message, advice);
    let steps = evidence.view.steps.count();
    found.evidence = vec![format!(
        "{} per step in the loop, {} of it with the device idle",
        shown_time(loops.spans.iter().map(|span| span.nanos() as f64 / 1e9).sum::<f64>() / steps),
        shown_time(loops.idle_seconds / steps)
    )];
    found.function = loops.function.clone();
    found.per_step = loops.reads_per_step;
    found.first = loops.spans.first().map_or(0, |span| span.start);
    found.removal =
        Removal { host: loops.spans.clone(), device: loops.kernels.iter().copied().collect(), ..Removal::default() };
    Some(found)
}

/// Read-backs in a trace without device events: their time on the host is all that is known. It is a wait if a device
/// worked, and otherwise what it takes to leave the tensor's code once for every value.
fn without_device(evidence: &Evidence) -> Option<Found> {
    let view = evidence.view;
    if view.has_device_work() || evidence.run.is_some() {
        return None;
    }
    let reads = view.host_spans_named(|name| matches!(name, "aten::item" | "aten::_local_scalar_dense"));
    let reads: Vec<usize> = reads.into_iter().filter(|&at| view.step_of(at).is_some()).collect();
    let outermost = |&&at: &&usize| !view.ancestors(at).skip(1).any(|outer| view.host_name(outer) == "aten::item");
    let per_step = reads.iter().filter(outermost).count() as f64 / view.steps.count();
    let spans = merged(reads.iter().map(|&at| view.host_span(at)).collect());
    let share = view.steps.share(spans.iter().map(|span| span.nanos()).sum());
    let is_loop = per_step >= evidence.thresholds.of(&tr101::READS_OF_A_LOOP);
    let least = if is_loop { &tr101::READS_SHARE } else { &tr101::ONE_READ_SHARE };
    if share < evidence.thresholds.of(least) {
        return None;
    }
    let waits = if used_device(view).is_some() { ", and waits in it for a device that was not recorded" } else { "" };
    let message = format!(
        "the host reads single values {per_step:.0} times per step (`aten::item`), for {} of the step{waits}",
        percent(share)
    );
    let advice = "compute over whole tensors and read the results back once, at the log interval";
    let mut found = Found::new(Some(share), message, advice);
    found.confidence = Confidence::Medium;
    found.per_step = per_step;
    let (function, through) = user_frame(view, &view.python_stack(reads[0]));
    found.function = function.map(|at| frame_name(view.host_name(at)));
    found.through = through.map(|at| frame_name(view.host_name(at)));
    // A wait for a device does not go away with the reading; the device's work stays.
    if waits.is_empty() {
        found.removal.host = spans;
    }
    Some(found)
}

/// Anomaly detection waits after every node, and keeps a stack for every operator.
fn anomaly_detection(evidence: &Evidence) -> Option<Found> {
    let (anomaly, view) = (&evidence.measures.patterns.anomaly, evidence.view);
    if anomaly.checks.is_empty() {
        return None;
    }
    let removal = Removal {
        host: [anomaly.checks.as_slice(), &anomaly.stacks].concat(),
        device: anomaly.kernels.iter().map(|&at| (at, 0)).collect(),
        ..Removal::default()
    };
    let share = evidence.simulation.saved_share(&removal);
    if share < evidence.thresholds.of(&tr101::LEAST_SHARE) {
        return None;
    }
    let message = format!(
        "anomaly detection checks every gradient for NaN and reads the answer back, {:.0} times per step: turn it off",
        anomaly.checks_per_step
    );
    let advice = "turn it off once the NaN is found: no torch.autograd.set_detect_anomaly(True), detect_anomaly() or Trainer(detect_anomaly=True)";
    let mut found = Found::new(Some(share), message, advice);
    let steps = view.steps.count();
    let per_step = |nanos: i64| shown_time(nanos as f64 / 1e9 / steps);
    found.evidence = vec![
        format!(
            "{} of host time per step in checks, {} in stacks of the forward pass",
            per_step(anomaly.checks.iter().map(|span| span.nanos()).sum()),
            per_step(anomaly.stacks.iter().map(|span| span.nanos()).sum())
        ),
        format!("{} of device time per step in their kernels", per_step(view.device_nanos(&anomaly.kernels))),
    ];
    found.per_step = anomaly.checks_per_step;
    found.first = anomaly.checks.first().map_or(0, |span| span.start);
    found.removal = removal;
    Some(found)
}

/// Reads that cost little because another wait came just before. If only that one is fixed, they inherit its wait, so
/// one fix must cover both.
fn in_the_shadow<'w>(groups: &'w [Waits], of: &Waits) -> Vec<&'w Waits> {
    let is_in_it = |waits: &&Waits| {
        waits.kind == WaitKind::ReadBack && waits.share_of_steps <= SHARE_IN_THE_SHADOW.get() * of.share_of_steps
    };
    groups.iter().filter(is_in_it).collect()
}

/// Whether this is just the wait of the profiler, or of a timer, at a step's end. It is not a fault if it costs next to
/// nothing and no user code is known to request it.
fn is_a_step_s_end(waits: &Waits) -> bool {
    let unasked = waits.kind == WaitKind::Explicit && waits.function.is_none();
    unasked && waits.per_step < 1.5 && waits.share_of_steps < 0.01
}

fn found(waits: &Waits, share: f64) -> Found {
    let what = match waits.kind {
        WaitKind::Explicit => format!("`{}` makes the host wait for the device", waits.what),
        WaitKind::Copy => format!("`{}` copies and waits for the device", waits.what),
        _ => format!("`{}` reads a value back from the device", waits.what),
    };
    let after = waits.after.as_ref().map(|after| format!(" after `{after}`")).unwrap_or_default();
    let advice = match waits.kind {
        WaitKind::Copy => {
            "copy from and into pinned memory with non_blocking=True, or keep the tensor where it is used"
        }
        WaitKind::Explicit => "remove the synchronisation; where a time is measured, use events and read them later",
        _ if waits.per_step >= 4.0 => {
            "compute all values on the device (for norms torch._foreach_norm) and read them back once, at the log interval"
        }
        _ => "keep the value on the device (detach it) and read it back at the log interval only",
    };
    let often = match waits.per_step {
        per_step if per_step < 0.95 => format!("{} times in all", waits.calls),
        per_step if per_step < 1.05 => "once per step".to_string(),
        per_step => format!("{per_step:.0} times per step"),
    };
    let cuts = if waits.breaks.is_empty() { "" } else { ", and cuts a compiled function in two" };
    let message = format!("{what}{after}, {often}{cuts}");
    let mut found = Found::new(Some(share), message, advice);
    found.function = waits.function.clone();
    found.through = waits.through.clone();
    found.first = waits.first;
    found.per_step = waits.per_step;
    let micros = 1e6 * waits.wait_seconds / waits.calls.max(1) as f64;
    found.evidence = vec![format!("{} calls, each waits for {micros:.1} µs", waits.calls)];
    found
}
