//! TR105 host-copies: copies between host and device that take time or come from pageable memory.

use super::{percent, shown_time};
use crate::constants::host_copies::WORTH_A_WORD;
use crate::constants::on_host::SCALAR_BYTES;
use crate::constants::tr105;
use crate::measures::copies::{CopyRow, Direction};
use crate::measures::synchronisation::WaitKind;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR105",
    name: "host-copies",
    cause: Cause::HostCopies,
    page: include_str!("host_copies.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    if evidence.trust.withheld.contains(&"steady-state") {
        return Vec::new();
    }
    evidence.measures.copies.rows.iter().filter_map(|row| found(evidence, row)).collect()
}

fn found(evidence: &Evidence, row: &CopyRow) -> Option<Found> {
    if row.direction == Direction::Within {
        return None;
    }
    let wall = evidence.measures.breakdown.wall_seconds.max(f64::MIN_POSITIVE);
    // The operator that copies and waits, if the copy blocks the host; otherwise the exposed part of the copy itself.
    let waits = evidence.measures.synchronisation.groups.iter();
    let waits: Vec<_> = waits.filter(|waits| waits.kind == WaitKind::CopyToDevice).collect();
    let waiting: f64 = match row.direction {
        Direction::HostToDevice if row.pageable => waits.iter().map(|waits| waits.cost_seconds).sum(),
        _ => 0.0,
    };
    // The host works on the copied tensors while the device is idle; reported with the largest copies.
    let to_host = evidence.measures.copies.rows.iter().filter(|row| row.direction == Direction::DeviceToHost);
    let is_largest = to_host.max_by_key(|row| row.bytes).is_some_and(|largest| largest.name == row.name);
    let work = if is_largest { evidence.measures.on_host.work_seconds } else { 0.0 };
    let share = ((waiting.max(row.exposed_seconds) + work) / wall).min(1.0);
    // host-sync reports read-backs of single values.
    let is_scalar = row.direction == Direction::DeviceToHost && row.largest_bytes <= SCALAR_BYTES.get();
    let least = if row.pageable {
        evidence.thresholds.of(&tr105::PAGEABLE_SHARE)
    } else {
        evidence.thresholds.of(&tr105::COPIES_SHARE)
    };
    if is_scalar || share < least || row.bytes == 0 {
        return None;
    }
    let way = if row.direction == Direction::HostToDevice { "to the device" } else { "to the host" };
    let kind = if row.pageable { " from or to pageable memory" } else { "" };
    let mut message = format!("copies {way}{kind} take {} of the step", percent(share - work / wall));
    let works = work / wall >= WORTH_A_WORD.get();
    if works {
        message += &format!(", and the host works on them for {} while the device is idle", percent(work / wall));
    }
    let converted = &evidence.measures.converted;
    let is_converted = row.pageable && row.direction == Direction::HostToDevice && !converted.copies.is_empty();
    if is_converted {
        let seconds = converted.host_seconds / evidence.view.steps.count();
        let does = if converted.made > 0 { "makes" } else { "converts and prepares" };
        message += &format!("; the host {does} them before, for {} per step", shown_time(seconds));
    }
    let advice = match (row.pageable, row.direction) {
        _ if is_converted && converted.made > 0 => {
            "create masks, noise, positions and constants on the device (device=… of torch.full, torch.randn, \
             torch.arange and the like); create constants once before the loop"
        }
        _ if is_converted => {
            "copy them unconverted (bytes of images and audio, short integers) from pinned memory with \
             non_blocking=True, then convert, scale and normalise on the device"
        }
        _ if works => {
            "do the host's work on them (metrics, histograms, masks, matching) on the device and read back only \
             the result; or copy into pinned memory, non-blocking, and work on it during the next step"
        }
        (true, Direction::HostToDevice) => {
            "pin the memory (pin_memory=True of the DataLoader) and copy with non_blocking=True"
        }
        (true, _) => "copy into pinned memory, non-blocking, and use the values later",
        _ => "copy on a separate stream while the device computes, or keep the data on the device",
    };
    let mut found = Found::new(Some(share), message, advice);
    found.evidence = vec![format!(
        "{} times `{}`, {:.2} MB at {:.1} GB/s",
        row.count,
        row.name,
        row.bytes as f64 / 1e6,
        row.gigabytes_per_second
    )];
    if waiting > 0.0 {
        found.function = waits.first().and_then(|waits| waits.function.clone());
        found.through = waits.first().and_then(|waits| waits.through.clone());
        found.first = waits.first().map_or(0, |waits| waits.first);
        found.per_step = waits.first().map_or(0.0, |waits| waits.per_step);
        found.removal.host = waits.iter().flat_map(|waits| waits.spans.clone()).collect();
    }
    if is_converted {
        found.removal.host.extend_from_slice(&converted.host);
    }
    // At best, a copy is hidden behind compute.
    let (view, device) = (evidence.view, &evidence.view.trace.device);
    let same: Vec<usize> = device.busy().filter(|&at| view.name(device.name[at]) == row.name).collect();
    if row.direction == Direction::DeviceToHost {
        // The wait is host-sync's cost, but goes away with the copy; so does the host's work on the data.
        let on_host = &evidence.measures.on_host;
        if row.pageable || works {
            found.removal.host.extend_from_slice(&on_host.readers);
        }
        if works {
            found.removal.host.extend_from_slice(&on_host.work);
            found.removal.device.extend(on_host.copies.iter().map(|&at| (at, 0)));
            found.expected = Some(found.removal.clone());
        }
    }
    found.removal.device.extend(same.into_iter().map(|at| (at, 0)));
    Some(found)
}
