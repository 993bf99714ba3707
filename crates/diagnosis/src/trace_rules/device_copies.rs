//! TR131 device-copies: copies that stay on the device, and layout changes.

use std::collections::BTreeMap;

use super::{percent, shown_time};
use crate::constants::tr131;
use crate::measures::explained::short;
use crate::measures::intervals::{Span, covered, merged};
use crate::measures::kinds::{Kind, kinds_of_names, of_span};
use crate::measures::view::View;
use crate::simulation::Removal;
use headroom_trace::Category;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR131",
    name: "device-copies",
    cause: Cause::DeviceCopies,
    page: include_str!("device_copies.md"),
    effort: Effort::Medium,
    check,
};

/// PyTorch copies and converts with the same kernel: if only the order changes, source and target have the same type.
fn keeps_its_type(view: &View, at: usize) -> bool {
    let Some(operator) = view.operator_of_device(at).filter(|&at| view.host_name(at) == "aten::copy_") else {
        return false;
    };
    let types = view.types(operator);
    matches!(types.as_slice(), [to, from, ..] if to == from && !to.is_empty())
}

fn check(evidence: &Evidence) -> Vec<Found> {
    let (view, device) = (evidence.view, &evidence.view.trace.device);
    if evidence.trust.withheld.contains(&"operators") {
        return Vec::new();
    }
    let of_name = kinds_of_names(view);
    let of_torch = view.of_kernels(|kernel| kernel.contains("direct_copy_kernel"));
    let (mut copies, mut others): (Vec<usize>, Vec<Span>) = (Vec::new(), Vec::new());
    for at in view.in_steps() {
        match of_span(view, &of_name, at) {
            Kind::CopyOnDevice if device.category[at] != Category::Memset => copies.push(at),
            _ if of_torch[device.name[at].index()] && keeps_its_type(view, at) => copies.push(at),
            _ => others.push(view.device_span(at)),
        }
    }
    let others = merged(others);
    let spans = merged(copies.iter().map(|&at| view.device_span(at)).collect());
    let exposed: i64 = spans.iter().map(|span| span.nanos() - covered(&others, *span)).sum();
    let share = view.steps.share(exposed);
    if share < evidence.thresholds.of(&tr131::DEVICE_COPIES_SHARE) {
        return Vec::new();
    }
    let bytes: u64 = copies.iter().map(|&at| device.bytes[at]).sum();
    let steps = view.steps.count();
    let message = format!(
        "device-to-device copies that nothing overlaps take {} of the step: {:.0} per step",
        percent(share),
        copies.len() as f64 / steps
    );
    let advice = "avoid the copy: .contiguous(), .clone(), torch.cat and reshape of views, flattening of gradients and lists of tensors; \
                  for convolutions keep one layout throughout (channels_last)";
    let mut found = Found::new(Some(share), message, advice);
    found.on_device = true;
    found.evidence = vec![format!(
        "{} per step, {:.1} MB recorded",
        shown_time(exposed as f64 / 1e9 / steps),
        bytes as f64 / 1e6 / steps
    )];
    let mut sums: BTreeMap<(String, String), (u64, i64)> = BTreeMap::new();
    for &at in &copies {
        let operator = view.operator_of_device(at).map_or("an unrecorded operator", |at| view.host_name(at));
        let sum = sums.entry((short(view.name(device.name[at])), operator.to_string())).or_default();
        sum.0 += 1;
        sum.1 += device.duration[at];
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by_key(|(_, (_, nanos))| std::cmp::Reverse(*nanos));
    found.evidence.extend(rows.iter().take(3).map(|((name, operator), (count, nanos))| {
        format!("`{name}` from {operator}: {count} times, {} per step", shown_time(*nanos as f64 / 1e9 / steps))
    }));
    found.removal = Removal { device: copies.iter().map(|&at| (at, 0)).collect(), ..Removal::default() };
    vec![found]
}
