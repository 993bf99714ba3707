//! Two traces of related programs, aligned site by site: which operator at which sizes and place got slower, what is new,
//! and what went.

use std::collections::BTreeMap;

use headroom_record::statistics::trimmed_difference;
use serde::Serialize;

use crate::analysis::Analysis;
use crate::constants::alignment::LEAST_GROWTH;
use crate::measures::sites::{Site, SiteKind};

/// The change of one site, per step.
#[derive(Clone, Debug, Serialize)]
pub struct SiteChange {
    pub kind: SiteKind,
    pub name: String,
    pub status: Status,
    /// Sizes of the inputs after (before, if it is gone), as the trace writes them.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub input_dims: String,
    /// Sizes before, if they changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_dims_before: Option<String>,
    /// The function of the script, or the module's class.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub place: String,
    pub calls_before: f64,
    pub calls_after: f64,
    pub host_seconds_before: f64,
    pub host_seconds_after: f64,
    pub device_seconds_before: f64,
    pub device_seconds_after: f64,
    /// Growth of device and host time together, each weighted by how far it sets the pace.
    pub growth_seconds: f64,
    /// Whether the 95% interval of the growth over steps excludes zero; also true where too few steps give none.
    pub is_clear: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    Slower,
    Faster,
    New,
    Gone,
    /// The same operator at the same place on inputs of other sizes.
    OtherSizes,
}

const MOST_ROWS: usize = 40;

/// Sites that grew, the largest growth first, then those that shrank, the largest first.
pub fn aligned(before: &Analysis, after: &Analysis) -> Vec<SiteChange> {
    let (left, right) = (&before.measures.sites, &after.measures.sites);
    let step = |analysis: &Analysis| analysis.measures.breakdown.wall_seconds / analysis.steps.count();
    let least = LEAST_GROWTH.get() * step(before).min(step(after));
    let weights = weights(before, after);
    let mut rows: Vec<SiteChange> = pairs(left, right)
        .into_iter()
        .map(|(left, right)| change(left, right, [before, after].map(|side| side.steps.count()), weights))
        .filter(|row| row.growth_seconds.abs() > least)
        .collect();
    rows.sort_by(|left, right| {
        let shrinks = |row: &SiteChange| row.growth_seconds < 0.0;
        let size = |row: &SiteChange| row.growth_seconds.abs();
        let by_size = || size(right).total_cmp(&size(left)).then_with(|| left.name.cmp(&right.name));
        shrinks(left).cmp(&shrinks(right)).then(right.is_clear.cmp(&left.is_clear)).then_with(by_size)
    });
    let grew = rows.iter().filter(|row| row.growth_seconds > 0.0).count();
    let shrank = rows.split_off(grew);
    rows.truncate(MOST_ROWS / 2);
    rows.into_iter().chain(shrank.into_iter().take(MOST_ROWS / 2)).collect()
}

/// Weights of device and host time: the device sets the pace as far as it is busy.
fn weights(before: &Analysis, after: &Analysis) -> [f64; 2] {
    let has_device = |side: &Analysis| side.measures.kernels.count > 0;
    if !has_device(before) && !has_device(after) {
        return [0.0, 1.0];
    }
    let busy = [before, after].map(|side| side.measures.breakdown.busy_share);
    // Neither is ever certain to be hidden.
    let device = ((busy[0] + busy[1]) / 2.0).clamp(0.1, 0.9);
    [device, 1.0 - device]
}

type Pair<'a> = (Option<&'a Site>, Option<&'a Site>);

/// Matches sites that are equal, then those at the same place with other sizes, then those that moved.
fn pairs<'a>(before: &'a [Site], after: &'a [Site]) -> Vec<Pair<'a>> {
    // A key that only one trace records would match nothing.
    let both = |has: fn(&Site) -> bool| before.iter().any(has) && after.iter().any(has);
    let (has_dims, has_places) = (both(|site| !site.input_dims.is_empty()), both(|site| !site.place_key.is_empty()));
    let dims = |site: &'a Site| if has_dims { site.input_dims.as_str() } else { "" };
    let place = |site: &'a Site| if has_places { site.place_key.as_str() } else { "" };
    let name = |site: &'a Site| match site.kind {
        SiteKind::Function => site.place_key.as_str(),
        _ => site.name.as_str(),
    };
    let mut left: Vec<Option<&Site>> = before.iter().map(Some).collect();
    let mut right: Vec<Option<&Site>> = after.iter().map(Some).collect();
    let mut found: Vec<Pair> = Vec::new();
    let keys: [&dyn Fn(&'a Site) -> (SiteKind, &'a str, &'a str, &'a str); 3] = [
        &|site| (site.kind, name(site), dims(site), place(site)),
        &|site| (site.kind, name(site), "", place(site)),
        &|site| (site.kind, name(site), dims(site), ""),
    ];
    for key in keys {
        let mut waiting: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (index, site) in left.iter().enumerate().filter_map(|(index, site)| site.map(|site| (index, site))) {
            waiting.entry(key(site)).or_default().push(index);
        }
        for slot in right.iter_mut() {
            let Some(site) = *slot else { continue };
            let Some(index) = waiting.get_mut(&key(site)).filter(|list| !list.is_empty()).map(|list| list.remove(0))
            else {
                continue;
            };
            found.push((left[index].take(), slot.take()));
        }
    }
    found.extend(left.into_iter().flatten().map(|site| (Some(site), None)));
    found.extend(right.into_iter().flatten().map(|site| (None, Some(site))));
    found
}

fn change(left: Option<&Site>, right: Option<&Site>, steps: [f64; 2], [device, host]: [f64; 2]) -> SiteChange {
    let mean = |list: &[f64], steps: f64| list.iter().sum::<f64>() / steps;
    let is_alone = left.is_none() || right.is_none();
    // A new site brings its waits with it.
    let waits = |site: &Site, steps: f64| if is_alone { site.wait_seconds / steps } else { 0.0 };
    let of = |site: Option<&Site>, steps: f64| {
        site.map_or([0.0; 3], |site| {
            let host = mean(&site.host_seconds, steps) + waits(site, steps);
            [mean(&site.device_seconds, steps), host, site.calls as f64 / steps]
        })
    };
    let ([device_before, host_before, calls_before], [device_after, host_after, calls_after]) =
        (of(left, steps[0]), of(right, steps[1]));
    let growth = device * (device_after - device_before) + host * (host_after - host_before);
    let each = |site: Option<&Site>, steps: f64| match site {
        None => vec![0.0; steps as usize],
        Some(site) => {
            let pairs = site.device_seconds.iter().zip(&site.host_seconds);
            pairs.map(|(on_device, on_host)| device * on_device + host * on_host).collect()
        }
    };
    let interval = trimmed_difference(&each(right, steps[1]), &each(left, steps[0]));
    let sizes = |site: Option<&Site>| site.map(|site| site.input_dims.clone()).unwrap_or_default();
    let (dims_before, dims_after) = (sizes(left), sizes(right));
    let are_other_sizes = !is_alone && dims_before != dims_after && !dims_before.is_empty() && !dims_after.is_empty();
    let site = right.or(left).cloned().unwrap_or_default();
    SiteChange {
        kind: site.kind,
        name: site.name,
        status: match (left, right) {
            (None, _) => Status::New,
            (_, None) => Status::Gone,
            _ if are_other_sizes => Status::OtherSizes,
            _ if growth < 0.0 => Status::Faster,
            _ => Status::Slower,
        },
        input_dims: site.input_dims,
        input_dims_before: are_other_sizes.then_some(dims_before),
        place: if site.kind == SiteKind::Function { String::new() } else { site.place },
        calls_before,
        calls_after,
        host_seconds_before: host_before,
        host_seconds_after: host_after,
        device_seconds_before: device_before,
        device_seconds_after: device_after,
        growth_seconds: growth,
        is_clear: interval.is_none_or(|interval| interval.low > 0.0 || interval.high < 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(name: &str, dims: &str, place: &str, seconds: f64) -> Site {
        Site {
            name: name.into(),
            input_dims: dims.into(),
            place: place.into(),
            place_key: place.into(),
            calls: 2,
            host_seconds: vec![seconds; 2],
            device_seconds: vec![0.0; 2],
            ..Site::default()
        }
    }

    #[test]
    fn sites_match_by_place_and_sizes_first_then_by_either() {
        let before = [
            site("mm", "[2]", "f", 1.0),
            site("mm", "[4]", "f", 2.0),
            site("add", "[2]", "g", 3.0),
            site("old", "[2]", "g", 4.0),
        ];
        let after = [
            site("mm", "[4]", "f", 5.0),
            site("mm", "[8]", "f", 6.0),
            site("add", "[2]", "h", 7.0),
            site("new", "[2]", "g", 8.0),
        ];
        let mut found: Vec<(f64, f64)> = pairs(&before, &after)
            .into_iter()
            .map(|(left, right)| {
                let time = |site: Option<&Site>| site.map_or(0.0, |site| site.host_seconds[0]);
                (time(left), time(right))
            })
            .collect();
        found.sort_by(|left, right| left.partial_cmp(right).unwrap());
        assert_eq!(found, [(0.0, 8.0), (1.0, 6.0), (2.0, 5.0), (3.0, 7.0), (4.0, 0.0)]);
    }

    #[test]
    fn a_key_that_one_side_does_not_record_is_left_out_of_the_match() {
        let found = |before: &Site, after: &Site| {
            pairs(std::slice::from_ref(before), std::slice::from_ref(after)).iter().all(|pair| pair.0.is_some())
        };
        assert!(found(&site("mm", "", "", 1.0), &site("mm", "[2]", "f", 1.0)));
        assert!(found(&site("mm", "[2]", "", 1.0), &site("mm", "[2]", "f", 1.0)));
    }

    #[test]
    fn new_gone_and_other_sizes_are_told_from_slower() {
        let (one, two) = (site("mm", "[2]", "f", 1.0), site("mm", "[4]", "f", 3.0));
        let status = |left: Option<&Site>, right: Option<&Site>| change(left, right, [2.0, 2.0], [0.5, 0.5]).status;
        assert_eq!(status(None, Some(&one)), Status::New);
        assert_eq!(status(Some(&one), None), Status::Gone);
        assert_eq!(status(Some(&one), Some(&two)), Status::OtherSizes);
        assert_eq!(status(Some(&one), Some(&site("mm", "[2]", "f", 2.0))), Status::Slower);
        assert_eq!(status(Some(&one), Some(&site("mm", "[2]", "f", 0.5))), Status::Faster);
    }
}
