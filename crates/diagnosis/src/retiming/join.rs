//! Joins light and full recordings of the same loop by the order of their operators and calls: attributes from the full
//! one, times from the light one.

use std::collections::HashMap;

use headroom_trace::{Category, NONE, Trace};

use crate::constants::join::{IN_A_ROW, LOOK_AHEAD};
use crate::measures::intervals::Span;
use crate::measures::steps::is_fetch;
use crate::measures::view::View;

pub struct Joined {
    pub trace: Trace,
    /// Share of the full trace's operators and calls that have a counterpart in the light one.
    pub share: f64,
}

/// The full trace with the times of `timed`, which is the light one replayed (the same events, at other times).
pub fn joined(full: &View, light: &View, timed: &Trace) -> Option<Joined> {
    let steps = full.steps.ordered.len().min(light.steps.ordered.len());
    if steps == 0 {
        return None;
    }
    let tracks = fellows_of_lanes(full, light);
    let (mut events, mut matched) = (0, 0);
    // For each track of the full trace: its moments, and the corresponding ones in the timed trace.
    let mut anchors: HashMap<u32, Vec<(i64, i64)>> = HashMap::new();
    let mut fellow_of_call: HashMap<usize, usize> = HashMap::new();
    let light_lanes = by_lane(light);
    for (track, own) in by_lane(full) {
        let Some(fellows) = tracks.get(&track).and_then(|fellow| light_lanes.iter().find(|(track, _)| track == fellow))
        else {
            events += own.len();
            continue;
        };
        for step in 0..steps {
            let of_full = inside(full, &own, full.steps.ordered[step]);
            let of_light = inside(light, &fellows.1, light.steps.ordered[step]);
            events += of_full.len();
            for (at, other) in alike(full, of_full, light, of_light) {
                matched += 1;
                let list = anchors.entry(track).or_default();
                list.push((full.trace.host.start[at], timed.host.start[other]));
                list.push((full.trace.host.end(at), timed.host.end(other)));
                fellow_of_call.insert(at, other);
            }
        }
    }
    if matched == 0 {
        return None;
    }
    // The step marks anchor threads without operators, and whatever comes after a thread's last operator.
    let timed_steps = View::new(timed).steps.ordered;
    let pairs = full.steps.ordered.iter().zip(&timed_steps).take(steps);
    let of_steps: Vec<(i64, i64)> = pairs.flat_map(|(was, is)| [(was.start, is.start), (was.end, is.end)]).collect();
    let of_all = of_steps.iter().chain(anchors.values().flatten()).copied().collect();
    let of_all = Map::new(of_all);
    let maps: HashMap<u32, Map> = anchors
        .into_iter()
        .map(|(track, mut list)| {
            list.extend(&of_steps);
            (track, Map::new(list))
        })
        .collect();
    let mut trace = full.trace.clone();
    trace.light = None;
    for at in 0..trace.host.len() {
        let map = maps.get(&trace.host.track[at].0).unwrap_or(&of_all);
        let (start, end) = (map.at(full.trace.host.start[at]), map.at(full.trace.host.end(at)));
        (trace.host.start[at], trace.host.duration[at]) = (start, (end - start).max(0));
    }
    place_device_work(full, light, timed, &fellow_of_call, &of_all, &mut trace);
    super::keep_order_of_streams(&mut trace);
    trace.memory.time.iter_mut().for_each(|time| *time = of_all.at(*time));
    trace.counters.iter_mut().for_each(|sample| sample.time = of_all.at(sample.time));
    Some(Joined { trace, share: matched as f64 / events.max(1) as f64 })
}

/// Places device work like its counterpart, matched by the calls that launched both; other work keeps its delay after
/// its call.
fn place_device_work(
    full: &View,
    light: &View,
    timed: &Trace,
    fellow_of_call: &HashMap<usize, usize>,
    of_all: &Map,
    trace: &mut Trace,
) {
    let mut of_light_call: HashMap<u32, Vec<usize>> = HashMap::new();
    for at in light.trace.device.busy().filter(|&at| light.call_of[at] != NONE) {
        of_light_call.entry(light.call_of[at]).or_default().push(at);
    }
    let mut taken: HashMap<u32, usize> = HashMap::new();
    for at in 0..trace.device.len() {
        let was = full.trace.device.start[at];
        let call = full.call_of[at];
        if call == NONE || !trace.device.category[at].keeps_device_busy() {
            trace.device.start[at] = of_all.at(was);
            continue;
        }
        let nth = taken.entry(call).or_default();
        let fellow = fellow_of_call
            .get(&(call as usize))
            .and_then(|other| of_light_call.get(&(*other as u32)))
            .and_then(|list| list.get(*nth));
        *nth += 1;
        match fellow {
            Some(&other) => {
                trace.device.start[at] = timed.device.start[other];
                trace.device.duration[at] = timed.device.duration[other];
            }
            None => {
                let ordered = full.trace.host.start[call as usize];
                trace.device.start[at] = trace.host.start[call as usize] + (was - ordered);
            }
        }
    }
}

/// Operators and calls of each track, in order, plus the loader's annotations: no operator of this process shows when
/// it waits for a worker.
fn by_lane(view: &View) -> Vec<(u32, Vec<usize>)> {
    let host = &view.trace.host;
    let mut tracks: Vec<(u32, Vec<usize>)> = Vec::new();
    let is_one = |&at: &usize| match host.category[at] {
        Category::CpuOp | Category::Runtime => true,
        Category::UserAnnotation => is_fetch(view.host_name(at)),
        _ => false,
    };
    for at in (0..host.len()).filter(is_one) {
        match tracks.last_mut() {
            Some((track, list)) if *track == host.track[at].0 => list.push(at),
            _ => tracks.push((host.track[at].0, vec![at])),
        }
    }
    tracks
}

/// Matches threads of the two traces: by number, since one process recorded both; otherwise the nth busiest of each.
fn fellows_of_lanes(full: &View, light: &View) -> HashMap<u32, u32> {
    let (mut own, mut others) = (by_lane(full), by_lane(light));
    own.sort_by_key(|(track, list)| (std::cmp::Reverse(list.len()), *track));
    others.sort_by_key(|(track, list)| (std::cmp::Reverse(list.len()), *track));
    let thread = |view: &View, track: u32| view.trace.tracks[track as usize].thread.clone();
    let is_one_process =
        own.iter().all(|(track, _)| others.iter().any(|(other, _)| thread(full, *track) == thread(light, *other)));
    let mut fellows = HashMap::new();
    for (nth, (track, _)) in own.iter().enumerate() {
        let fellow = match is_one_process {
            true => others.iter().find(|(other, _)| thread(full, *track) == thread(light, *other)),
            false => others.get(nth),
        };
        fellows.extend(fellow.map(|(other, _)| (*track, *other)));
    }
    fellows
}

fn inside<'l>(view: &View, list: &'l [usize], window: Span) -> &'l [usize] {
    let host = &view.trace.host;
    let first = list.partition_point(|&at| host.start[at] < window.start);
    let last = list.partition_point(|&at| host.start[at] < window.end);
    &list[first..last.max(first)]
}

/// Pairs events with equal names in order. Where the lists differ, both continue at the nearest common event.
fn alike(full: &View, own: &[usize], light: &View, others: &[usize]) -> Vec<(usize, usize)> {
    let is_alike = |left: usize, right: usize| full.host_name(own[left]) == light.host_name(others[right]);
    let (mut left, mut right) = (0, 0);
    let mut pairs = Vec::with_capacity(own.len());
    while left < own.len() && right < others.len() {
        if is_alike(left, right) {
            pairs.push((own[left], others[right]));
            (left, right) = (left + 1, right + 1);
            continue;
        }
        let found = (1..LOOK_AHEAD.get()).find_map(|distance| {
            let skips = (0..=distance).map(|skipped| (left + skipped, right + distance - skipped));
            // One equal name may be a coincidence; several in a row are not.
            let goes_on = |left: usize, right: usize| {
                (0..IN_A_ROW.get()).all(|next| {
                    let (left, right) = (left + next, right + next);
                    left >= own.len() || right >= others.len() || is_alike(left, right)
                })
            };
            skips.into_iter().find(|&(left, right)| left < own.len() && right < others.len() && goes_on(left, right))
        });
        match found {
            Some(next) => (left, right) = next,
            None => (left, right) = (left + 1, right + 1),
        }
    }
    pairs
}

/// Maps moments of one trace to those of another by linear interpolation between anchors.
struct Map(Vec<(i64, i64)>);

impl Map {
    fn new(mut anchors: Vec<(i64, i64)>) -> Map {
        anchors.sort_unstable();
        anchors.dedup_by_key(|(was, _)| *was);
        // Time never runs backwards.
        let mut reached = i64::MIN;
        for (_, is) in &mut anchors {
            reached = reached.max(*is);
            *is = reached;
        }
        Map(anchors)
    }

    fn at(&self, time: i64) -> i64 {
        let next = self.0.partition_point(|(was, _)| *was <= time);
        match (next.checked_sub(1).map(|before| self.0[before]), self.0.get(next)) {
            (Some((was, is)), Some(&(then, there))) => {
                let share = (time - was) as f64 / (then - was).max(1) as f64;
                is + (share * (there - is) as f64) as i64
            }
            (Some((was, is)), None) => is + (time - was),
            (None, Some(&(then, there))) => there - (then - time),
            (None, None) => time,
        }
    }
}

#[cfg(test)]
mod tests;
