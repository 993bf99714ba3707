//! Removes disturbances from a light recording, which has few steps: other work on the machine only ever lengthens
//! them.

use hashbrown::HashMap;
use headroom_trace::Trace;

use super::{loading_share, mean_step, replayed, waits_for_workers};
use crate::constants::undisturbed::*;
use crate::measures::breakdown::waiting_spans;
use crate::measures::intervals::{Span, merged, without};
use crate::measures::launches::median;
use crate::measures::profiler_cost::{EventCosts, cost_spans};
use crate::measures::view::View;
use crate::simulation::{Removal, Simulation};

/// The share of the light recording's mean step that remains without disturbances.
///
/// A typical step lies between the mean and the quickest one. If the quickest step of the full recording, minus its
/// extra cost, is still quicker, the light one was disturbed throughout.
pub fn share(light: &View, full: &View) -> f64 {
    let mean = mean_step(light);
    let typical = 0.5 * (mean + quickest(light).min(mean));
    let varies = waits_for_workers(light) > 0.0 || loading_share(light) > MOST_LOADING.get();
    let operators_per_step = |view: &View| operators(view).count() as f64 / view.steps.count();
    let (of_light, of_full) = (operators_per_step(light), operators_per_step(full));
    let is_same = (of_full - of_light).abs() <= SAME_WORK.get() * of_light;
    if varies || !is_same || typical <= 0.0 {
        return typical / mean;
    }
    let more = costs_more(full);
    let weight = WEIGHT.get() / (1.0 + (more / typical / HALVED_AT.get()).powi(2));
    let left = ((quickest(full) - more) / typical).clamp(LEAST_LEFT.get(), 1.0);
    left.powf(weight) * typical / mean
}

/// The light recording with its slow threads as quick as in the full one, which records more: a slow processor lengthens
/// all that a thread does. `None` if no thread was slow.
pub fn as_quick_as(full: &View, light: &View) -> Option<Trace> {
    let (of_full, of_light) = (of_threads(full), of_threads(light));
    let left = |thread: Option<i64>| {
        let ((count, usual), (of_light, own)) = (of_full.get(&thread)?, of_light.get(&thread)?);
        let is_same = (count - of_light).abs() <= SAME_WORK.get() * count && *count >= FEWEST.get();
        Some(usual / own).filter(|left| is_same && *left < SLOWER.get())
    };
    let slower = operators(light).filter(|&at| light.is_outermost(at)).filter_map(|at| {
        let (span, left) = (light.host_span(at), left(thread_of(light, at))?);
        Some(Span { start: span.start + (left * span.nanos() as f64) as i64, ..span })
    });
    let removal = Removal { host: without(&merged(slower.collect()), &waiting_spans(light)), ..Removal::default() };
    (!removal.is_empty()).then(|| replayed(light, &Simulation::new(light).play(&removal), EventCosts::default()))
}

/// By the thread's number: how many operators that contain nothing it has per step, and their median time.
fn of_threads(view: &View) -> HashMap<Option<i64>, (f64, f64)> {
    let mut nanos: HashMap<Option<i64>, Vec<i64>> = HashMap::new();
    for at in operators(view).filter(|&at| view.within(at).nth(1).is_none()) {
        nanos.entry(thread_of(view, at)).or_default().push(view.trace.host.duration[at].max(1));
    }
    let per_step = |list: &[i64]| list.len() as f64 / view.steps.count();
    nanos.into_iter().map(|(thread, list)| (thread, (per_step(&list), median(list)))).collect()
}

fn thread_of(view: &View, at: usize) -> Option<i64> {
    view.trace.tracks[view.trace.host.track[at].0 as usize].thread.number()
}

/// Operators that begin in the steps.
fn operators<'v>(view: &'v View) -> impl Iterator<Item = usize> + 'v {
    let (host, range) = (&view.trace.host, view.steps.host_range());
    (0..host.len()).filter(move |&at| view.is_operator(at) && (range.start..range.end).contains(&host.start[at]))
}

fn quickest(view: &View) -> f64 {
    view.steps.list.iter().map(|step| step.seconds).fold(f64::INFINITY, f64::min)
}

/// Seconds per step that recording shapes and stacks costs.
fn costs_more(full: &View) -> f64 {
    let host = cost_spans(full, EventCosts::beyond_light(full), full.steps.host_range());
    let saved = Simulation::new(full).saved(&Removal { host, ..Removal::default() });
    full.steps.seconds_per_step(saved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    /// Steps of `lengths` microseconds, each with ten operators that launch a short kernel; `more` adds to each step.
    fn steps(header: &str, lengths: &[i64], more: impl Fn(&mut Fabricated, i64)) -> Trace {
        let mut made = Fabricated::default();
        let mut start = 0;
        for (number, length) in lengths.iter().enumerate() {
            made.step(number as u32, start, start + length * MICRO);
            for at in (0..10).map(|nth| start + nth * length * MICRO / 10) {
                made.operator("aten::mul", at, at + 40 * MICRO);
                made.launch((at + 10 * MICRO, at + 15_200), "k", (at + 20 * MICRO, at + 25 * MICRO));
            }
            more(&mut made, start);
            start += length * MICRO;
        }
        made.header = header.into();
        made.trace()
    }

    fn share_of(light: &Trace, full: &Trace) -> f64 {
        share(&View::new(light), &View::new(full))
    }

    fn near(found: f64, wanted: f64) -> bool {
        (found - wanted).abs() <= 0.002
    }

    const SHAPES: &str = r#""record_shapes":1,"#;

    #[test]
    fn a_typical_step_lies_between_the_mean_and_the_quickest() {
        // Mean 1,200 and quickest 1,000; the full recording is longer than needed and says nothing about the light one.
        let light = steps("", &[1_000, 1_000, 1_600], |_, _| {});
        let full = steps(SHAPES, &[2_000, 2_000, 2_000], |_, _| {});
        assert!(near(share_of(&light, &full), 1_100.0 / 1_200.0), "{}", share_of(&light, &full));
        let even = steps("", &[1_000, 1_000, 1_000], |_, _| {});
        assert!(near(share_of(&even, &full), 1.0));
    }

    #[test]
    fn a_full_recording_that_is_quicker_than_its_cost_allows_tells_of_a_slow_light_one() {
        // Shapes of ten operators cost 20 µs: without them the full step takes 880 µs, the light one 1,000.
        let light = steps("", &[1_000, 1_000, 1_000], |_, _| {});
        let full = steps(SHAPES, &[900, 950, 1_500], |_, _| {});
        let wanted = 0.88f64.powf(0.5 / (1.0 + 0.06f64.powi(2)));
        assert!(near(share_of(&light, &full), wanted), "{} {wanted}", share_of(&light, &full));
        // At most a quarter is removed.
        let quick = steps(SHAPES, &[500, 500, 500], |_, _| {});
        assert!(near(share_of(&light, &quick), 0.75f64.powf(0.5)), "{}", share_of(&light, &quick));
    }

    #[test]
    fn a_full_recording_of_other_work_or_of_a_loader_says_nothing() {
        let light = steps("", &[1_000, 1_000, 1_000], |_, _| {});
        let other = steps(SHAPES, &[700, 700, 700], |made, start| {
            (0..2).for_each(|nth| made.operator("aten::add", start + (50 + nth) * MICRO, start + (51 + nth) * MICRO));
        });
        assert!(near(share_of(&light, &other), 1.0), "a fifth more operators");
        let loads = |made: &mut Fabricated, start: i64| {
            let name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
            made.span("user_annotation", name, 1, start + 43 * MICRO, start + 95 * MICRO, "");
        };
        let loading = steps("", &[100 * 10, 1_000, 1_000], |made, start| {
            (0..10).for_each(|nth| loads(made, start + nth * 100 * MICRO));
        });
        let full = steps(SHAPES, &[700, 700, 700], |_, _| {});
        assert!(near(share_of(&loading, &full), 1.0), "{}", share_of(&loading, &full));
    }
}
