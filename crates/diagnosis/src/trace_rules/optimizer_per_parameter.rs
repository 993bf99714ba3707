//! TR109 optimizer-per-parameter: the optimizer, or a loop outside it, handles one parameter at a time.

use hashbrown::HashMap;

use super::{percent, shown_time};
use crate::constants::cost::STREAM_SHARE;
use crate::constants::optimizer_per_parameter::SPARSE_COST;
use crate::constants::tr109;
use crate::measures::intervals::merged;
use crate::measures::parameters::update;
use crate::measures::tables::DenseTable;
use crate::simulation::Removal;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Confidence, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR109",
    name: "optimizer-per-parameter",
    cause: Cause::OptimizerPerParameter,
    page: include_str!("optimizer_per_parameter.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let optimizer = &evidence.measures.patterns.optimizer;
    let most = evidence.thresholds.of(&tr109::OPTIMIZER_KERNELS_PER_STEP);
    // Without device events, operators tell as much; on the host they are cheap, so only their time counts.
    let on_host = !evidence.view.has_device_work() && evidence.run.is_none();
    let on_host = on_host
        && optimizer.operators_per_step >= most
        && optimizer.share_of_steps >= evidence.thresholds.of(&tr109::LOOPS_SHARE);
    let is_one_by_one = optimizer.kernels_per_step >= most || optimizer.zeroed_per_step >= most || on_host;
    let of_optimizer = if is_one_by_one { Some(one_by_one(evidence)) } else { several_passes(evidence) };
    of_optimizer.into_iter().chain(outside(evidence)).chain(unused_rows(evidence)).collect()
}

fn one_by_one(evidence: &Evidence) -> Found {
    let optimizer = &evidence.measures.patterns.optimizer;
    // Zeroing the gradients goes through the same parameters and groups.
    let host = merged([optimizer.host.clone(), optimizer.zeroing.clone()].concat());
    let does = match evidence.view.has_device_work() {
        true => format!("launches {:.0} kernels", optimizer.kernels_per_step),
        false => format!("calls {:.0} operators", optimizer.operators_per_step),
    };
    let message = format!(
        "the optimizer {does} per step and zeroes {:.0} gradients one by one: {} of the step",
        optimizer.zeroed_per_step,
        percent(optimizer.share_of_steps)
    );
    // Already fused: it is the parameter groups that are handled one by one.
    let are_groups = optimizer.fused_per_step >= evidence.thresholds.of(&tr109::GROUPS_PER_STEP);
    let advice = if are_groups { OF_GROUPS } else { ADVICE };
    let mut found = Found::new(Some(optimizer.share_of_steps), message, advice);
    found.evidence = vec![times(evidence)];
    if are_groups {
        found.evidence.push(format!("{:.0} fused updates per step, one for each group", optimizer.fused_per_step));
    }
    found.removal = Removal { host, ..Removal::default() };
    found
}

const ADVICE: &str = "fused=True (or foreach=True) in the optimizer, zero_grad(set_to_none=True)";

const OF_GROUPS: &str = "one group for all parameters of the same learning rate and decay, not one per tensor: \
                         each group is a separate update";

fn times(evidence: &Evidence) -> String {
    let (optimizer, steps) = (&evidence.measures.patterns.optimizer, evidence.view.steps.count());
    format!(
        "{} of host and {} of device time per step in the optimizer",
        shown_time(optimizer.host_seconds / steps),
        shown_time(optimizer.device_seconds / steps)
    )
}

/// Parameters are handled as lists, but with several operators over all of them: several passes through memory instead
/// of one.
fn several_passes(evidence: &Evidence) -> Option<Found> {
    let (optimizer, view) = (&evidence.measures.patterns.optimizer, evidence.view);
    let bytes_per_second = evidence.measures.roofline.peak_bytes_per_second?;
    let update = update(view, &evidence.measures.patterns.parameters, &optimizer.host);
    let fused = 1e9 * update.fused_bytes / (STREAM_SHARE.get() * bytes_per_second);
    if fused <= 0.0 || 2.0 * fused > update.nanos as f64 {
        return None;
    }
    let share = view.steps.share(update.nanos - fused as i64);
    if share < evidence.thresholds.of(&tr109::PASSES_SHARE) {
        return None;
    }
    let message = format!(
        "the optimizer makes several passes over memory: {} of the step more than one fused update needs",
        percent(share)
    );
    let mut found =
        Found::new(Some(share), message, "fused=True in the optimizer: one kernel reads and writes everything once");
    found.confidence = Confidence::Medium;
    found.evidence =
        vec![times(evidence), format!("one fused update needs {}", shown_time(fused / 1e9 / view.steps.count()))];
    found.removal = Removal { host: optimizer.host.clone(), ..Removal::default() };
    Some(found)
}

/// The same outside an optimizer. Spare host time costs nothing, so the replay decides how much it is.
fn outside(evidence: &Evidence) -> Option<Found> {
    let (loops, view) = (&evidence.measures.patterns.parameter_loops, evidence.view);
    let removal = Removal { host: loops.host.clone(), ..Removal::default() };
    if removal.is_empty() {
        return None;
    }
    let share = evidence.simulation.saved_share(&removal);
    if share < evidence.thresholds.of(&tr109::LOOPS_SHARE) {
        return None;
    }
    let message = format!(
        "a loop over the parameters outside the optimizer calls {:.0} operators per step one by one: {} of the step",
        loops.operators_per_step,
        percent(share)
    );
    let advice = "one call for all parameters: torch._foreach_lerp_, _foreach_mul_, _foreach_add_, _foreach_norm, _foreach_zero_; averages by \
                  torch.optim.swa_utils.get_ema_multi_avg_fn, norms by torch.nn.utils.clip_grad_norm_";
    let mut found = Found::new(Some(share), message, advice);
    let names: Vec<String> = loops.operators.iter().take(4).map(|name| format!("`{name}`")).collect();
    found.evidence = vec![format!(
        "{} of host time per step, in {}",
        shown_time(loops.host_seconds / view.steps.count()),
        names.join(", ")
    )];
    (found.function, found.through, found.first) = (loops.function.clone(), loops.through.clone(), loops.first);
    found.per_step = loops.operators_per_step;
    found.removal = removal;
    Some(found)
}

/// A table with a dense gradient: zeroed and updated as a whole, for the few rows that a step uses.
fn unused_rows(evidence: &Evidence) -> Option<Found> {
    let table = evidence.measures.patterns.dense_table.as_ref()?;
    let share = table.unused_seconds / evidence.measures.breakdown.wall_seconds.max(f64::MIN_POSITIVE);
    if share < evidence.thresholds.of(&tr109::PASSES_SHARE) {
        return None;
    }
    let message = format!(
        "an embedding of {:.0} rows gets a dense gradient although a step uses at most {:.0} of them: filling \
         and updating the others takes {} of the step",
        table.rows,
        table.used_rows,
        percent(share)
    );
    let advice = "sparse=True in the embedding, with a separate optimizer for it (SparseAdam, Adagrad, SGD); \
                  the other parameters keep theirs";
    let mut found = Found::new(Some(share), message, advice);
    found.confidence = Confidence::Medium;
    found.on_device = true;
    found.evidence = vec![format!(
        "{:.2}% of the rows, {:.1} MB of {:.1} MB in single precision",
        100.0 * table.used_share(),
        4e-6 * table.used_rows * table.width,
        4e-6 * table.rows * table.width
    )];
    found.removal.device = left_of_table(evidence, table, table.used_share());
    // At best, none of the gradient's own kernels remain.
    found.removal.device.extend(table.gradient.iter().map(|&at| (at, 0)));
    let left = left_of_table(evidence, table, (SPARSE_COST.get() * table.used_share()).min(1.0));
    found.expected = Some(Removal { device: left, ..Removal::default() });
    Some(found)
}

/// The durations of fills and updates with this share of the table's rows.
fn left_of_table(evidence: &Evidence, table: &DenseTable, share: f64) -> HashMap<usize, i64> {
    let duration = &evidence.view.trace.device.duration;
    let scaled = |at: usize, share: f64| (at, (share * duration[at] as f64) as i64);
    let fills = table.fills.iter().map(|&at| scaled(at, share));
    let of_update = 1.0 - table.share_of_update.min(1.0) * (1.0 - share);
    fills.chain(table.update.iter().map(|&at| scaled(at, of_update))).collect()
}
