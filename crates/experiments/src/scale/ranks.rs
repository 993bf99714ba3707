//! Steps on several ranks: where the additional time goes, what limits it, and what one and two ranks predict for more.
//!
//! A run with `MICRO_BATCHES` micro-batches per step exchanges gradients once, like a run with one. The difference
//! between the two is pure computing, so computing and exchanging are separated without looking into either.

use headroom_graph::Plan;
use headroom_graph::cost::{Rates, predicted_step_seconds};
use headroom_record::rank_scaling::{Figure, RankPoint};
use headroom_record::statistics::{MISSED, trimmed_mean};

/// Micro-batches of the run that is compared with a run of one micro-batch.
pub const MICRO_BATCHES: u32 = 4;

/// Above this efficiency there is nothing worth mentioning left to gain.
const GOOD_PERCENT: f64 = 95.0;
/// Unless the interval reaches below this.
const STILL_GOOD_PERCENT: f64 = 85.0;

/// Median seconds per step of one number of ranks, one value per round.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    pub ranks: usize,
    /// Every rank has the whole batch.
    pub weak: Vec<f64>,
    pub without_overlap: Vec<f64>,
    /// `MICRO_BATCHES` of the whole batch per step, without overlap.
    pub accumulated: Vec<f64>,
    /// Every rank has its part of the batch.
    pub strong: Vec<f64>,
    pub strong_batch_size: Option<u64>,
    /// One rank alone with its part of the batch.
    pub divided_alone: Vec<f64>,
    /// From the machine's peaks, if all ranks are processes on one machine.
    pub crowded: Option<Crowded>,
}

/// Slowdown when all ranks do something at the same time, from the machine's measured peaks on as many threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crowded {
    /// The calls of the plan.
    pub computing: f64,
    /// Moving bytes, which is what messages between processes of one machine do.
    pub moving: f64,
}

impl Crowded {
    /// `alone` are the peaks on one rank's threads, `all` those on the threads of all ranks.
    pub fn of(plan: &Plan, ranks: usize, alone: &Rates, all: &Rates) -> Crowded {
        let part = |of: f64| of / ranks as f64;
        let share = Rates { product_flops: part(all.product_flops), bytes: part(all.bytes), ..*alone };
        let slowest = Rates {
            product_flops: share.product_flops.min(alone.product_flops),
            bytes: share.bytes.min(alone.bytes),
            ..share
        };
        Crowded {
            computing: predicted_step_seconds(plan, &slowest) / predicted_step_seconds(plan, alone),
            moving: alone.bytes / slowest.bytes,
        }
    }
}

/// One row per number of ranks; the first must be a single rank.
pub fn points(measured: &[Rounds]) -> Vec<RankPoint> {
    let Some(one) = measured.first().filter(|first| first.ranks == 1) else { return vec![] };
    let two = measured.iter().find(|rounds| rounds.ranks == 2);
    measured.iter().map(|rounds| point(one, two, rounds)).collect()
}

fn point(one: &Rounds, two: Option<&Rounds>, rounds: &Rounds) -> RankPoint {
    let weak = mean(&rounds.weak);
    let mut point = RankPoint {
        ranks: rounds.ranks as u64,
        weak_seconds: weak,
        efficiency_percent: ratio(&one.weak, &rounds.weak, 100.0),
        strong_seconds: mean(&rounds.strong),
        strong_batch_size: rounds.strong_batch_size,
        speedup: ratio(&one.weak, &rounds.strong, 1.0),
        divided_alone_seconds: mean(&rounds.divided_alone),
        ..RankPoint::default()
    };
    if rounds.ranks == 1 {
        return point;
    }
    let beyond = Beyond::of(one, rounds);
    point.shared_seconds = mean(&beyond.shared);
    point.exposed_seconds = mean(&beyond.exposed);
    point.exposed_without_overlap_seconds = mean(&beyond.exposed_without_overlap);
    if let Some(two) = two.filter(|_| rounds.ranks > 2) {
        point.predicted_seconds = predicted(one, two, rounds);
        point.predicted_off_percent =
            point.predicted_seconds.zip(weak).map(|(predicted, weak)| 100.0 * (predicted / weak.value - 1.0));
    }
    point.limited_by = limited_by(&point);
    point
}

/// Seconds per step beyond those of one rank, by cause.
struct Beyond {
    shared: Vec<f64>,
    exposed: Vec<f64>,
    exposed_without_overlap: Vec<f64>,
}

impl Beyond {
    fn of(one: &Rounds, many: &Rounds) -> Beyond {
        let computing = |of: &Rounds| -> Vec<f64> {
            let pairs = of.accumulated.iter().zip(&of.without_overlap);
            pairs.map(|(several, single)| (several - single) / f64::from(MICRO_BATCHES - 1)).collect()
        };
        let shared = differences(&computing(many), &computing(one));
        let left = |all: Vec<f64>| differences(&all, &shared);
        Beyond {
            exposed: left(differences(&many.weak, &one.weak)),
            exposed_without_overlap: left(differences(&many.without_overlap, &one.without_overlap)),
            shared,
        }
    }
}

/// Predicted seconds per step on more ranks, for which nothing was measured.
///
/// A ring sends 2(n-1)/n of the bytes past each rank. The peaks measured on as many threads give the slowdown of
/// computing and of moving bytes on a shared machine; without them, sharing is assumed to cost the same again with
/// every doubling.
fn predicted(one: &Rounds, two: &Rounds, of: &Rounds) -> Option<f64> {
    let single = mean(&one.weak)?.value;
    let all = (mean(&two.weak)?.value - single).max(0.0);
    let ranks = of.ranks as f64;
    let ring = 2.0 * (ranks - 1.0) / ranks;
    if let (Some(at_two), Some(crowded)) = (two.crowded, of.crowded) {
        let exchange = (all - single * (at_two.computing - 1.0)).max(0.0);
        return Some(single * crowded.computing + exchange * ring * (crowded.moving / at_two.moving).max(1.0));
    }
    let shared = mean(&Beyond::of(one, two).shared)?.value.clamp(0.0, all);
    Some(single + shared * ranks.log2() + (all - shared) * ring)
}

fn limited_by(point: &RankPoint) -> Option<String> {
    let efficiency = point.efficiency_percent?;
    if efficiency.value >= GOOD_PERCENT && efficiency.low.is_none_or(|low| low >= STILL_GOOD_PERCENT) {
        return Some(format!("nothing: each rank keeps {:.0}% of one rank's speed", efficiency.value));
    }
    if !efficiency.is_apart_from(100.0) {
        return Some("not decided: the loss is within the noise".into());
    }
    let (shared, exposed) = (point.shared_seconds?, point.exposed_seconds?);
    let milliseconds = |figure: Figure| format!("{:.1} ms", 1e3 * figure.value);
    let by_sharing =
        format!("sharing one machine's cores, caches and memory: a step computes {} longer", milliseconds(shared));
    let by_exchange = format!("communication: the step waits {} for it", milliseconds(exposed));
    let larger = if shared.value >= exposed.value { (shared, by_sharing) } else { (exposed, by_exchange) };
    Some(match larger {
        (figure, words) if figure.is_apart_from(0.0) => words,
        (_, words) => format!("not decided, probably {words}"),
    })
}

fn mean(values: &[f64]) -> Option<Figure> {
    (!values.is_empty()).then(|| trimmed_mean(values, MISSED).into())
}

/// Mean of the ratios per round: a slow round is slow for both.
fn ratio(above: &[f64], below: &[f64], times: f64) -> Option<Figure> {
    let ratios: Vec<f64> = above.iter().zip(below).map(|(above, below)| times * above / below).collect();
    mean(&ratios)
}

fn differences(of: &[f64], less: &[f64]) -> Vec<f64> {
    of.iter().zip(less).map(|(of, less)| of - less).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks that compute for `computing` per micro-batch and exchange for `exchange`, of which `hidden` overlaps with
    /// computing.
    fn rounds(ranks: usize, computing: f64, exchange: f64, hidden: f64) -> Rounds {
        let noise = [0.0, 1e-4, -1e-4];
        let all = |seconds: f64| noise.iter().map(|noise| seconds + noise).collect::<Vec<f64>>();
        Rounds {
            ranks,
            weak: all(computing + exchange - hidden),
            without_overlap: all(computing + exchange),
            accumulated: all(f64::from(MICRO_BATCHES) * computing + exchange),
            strong: all(computing / ranks as f64 + exchange),
            strong_batch_size: Some(8 / ranks as u64),
            divided_alone: all(computing / ranks as f64),
            crowded: None,
        }
    }

    fn close(figure: Option<Figure>, value: f64) -> bool {
        figure.is_some_and(|figure| (figure.value - value).abs() < 1e-9)
    }

    #[test]
    fn sharing_and_exchanging_are_told_apart() {
        let points = points(&[rounds(1, 0.1, 0.0, 0.0), rounds(2, 0.13, 0.02, 0.005)]);
        assert!(close(points[1].shared_seconds, 0.03) && close(points[1].exposed_seconds, 0.015));
        assert!(close(points[1].exposed_without_overlap_seconds, 0.02));
        assert_eq!(
            points[1].limited_by.as_deref().unwrap(),
            "sharing one machine's cores, caches and memory: a step computes 30.0 ms longer"
        );
        assert!(points[0].shared_seconds.is_none() && points[0].limited_by.is_none());
    }

    #[test]
    fn communication_that_is_waited_for_is_named() {
        let points = points(&[rounds(1, 0.1, 0.0, 0.0), rounds(2, 0.101, 0.06, 0.01)]);
        assert_eq!(points[1].limited_by.as_deref().unwrap(), "communication: the step waits 50.0 ms for it");
    }

    #[test]
    fn four_and_eight_are_predicted_from_one_and_two() {
        // Sharing costs 10 ms per doubling, and the ring's exchange 2(n-1)/n of 20 ms.
        let of = |ranks: usize| {
            let n = ranks as f64;
            rounds(ranks, 0.1 + 0.01 * n.log2(), 0.02 * 2.0 * (n - 1.0) / n, 0.0)
        };
        let points = points(&[of(1), of(2), of(4), of(8)]);
        assert_eq!(points[1].predicted_seconds, None);
        for point in &points[2..] {
            assert!(point.predicted_off_percent.unwrap().abs() < 1e-6, "{point:?}");
        }
    }

    #[test]
    fn a_machine_that_is_full_is_predicted_by_its_peaks() {
        // Up to four ranks have their own cores; eight share them and the memory bandwidth.
        let at = |ranks: usize, computing: f64, moving: f64| Rounds {
            crowded: Some(Crowded { computing, moving }),
            ..rounds(ranks, 0.1 * computing, 0.02 * 2.0 * (ranks as f64 - 1.0) / ranks as f64 * moving, 0.0)
        };
        let points = points(&[rounds(1, 0.1, 0.0, 0.0), at(2, 1.05, 1.0), at(4, 1.1, 1.5), at(8, 1.9, 3.0)]);
        for point in &points[2..] {
            assert!(point.predicted_off_percent.unwrap().abs() < 1e-6, "{point:?}");
        }
    }

    #[test]
    fn a_rank_has_its_part_of_the_machine_and_no_more_than_its_threads_can_use() {
        let graph: headroom_graph::Graph =
            "input x: f32[1000000]\n%1: f32[1000000] = silu(x) @ forward a\noutput y = %1\n".parse().unwrap();
        let plan = Plan::new(&graph);
        let alone = Rates { product_flops: 1e11, bytes: 1e10, call_seconds: 0.0 };
        let found = Crowded::of(&plan, 4, &alone, &Rates { bytes: 2e10, product_flops: 9e11, ..alone });
        assert!((found.moving - 2.0).abs() < 1e-9 && (found.computing - 2.0).abs() < 1e-6, "{found:?}");
        let found = Crowded::of(&plan, 4, &alone, &Rates { bytes: 9e10, product_flops: 9e11, ..alone });
        assert_eq!(found, Crowded { computing: 1.0, moving: 1.0 });
    }

    #[test]
    fn noise_is_not_given_a_cause() {
        let mut two = rounds(2, 0.1, 0.02, 0.0);
        for weak in [[0.1, 0.2, 0.11], [0.05, 0.2, 0.05]] {
            two.weak = weak.to_vec();
            let points = points(&[rounds(1, 0.1, 0.0, 0.0), two.clone()]);
            assert_eq!(points[1].limited_by.as_deref().unwrap(), "not decided: the loss is within the noise");
        }
    }

    #[test]
    fn good_scaling_has_nothing_to_explain() {
        let points = points(&[rounds(1, 0.1, 0.0, 0.0), rounds(2, 0.1, 0.002, 0.0)]);
        assert_eq!(points[1].limited_by.as_deref().unwrap(), "nothing: each rank keeps 98% of one rank's speed");
        assert!(close(points[1].speedup, mean(&ratios(&points)).unwrap().value));
    }

    fn ratios(points: &[RankPoint]) -> Vec<f64> {
        let noise = [0.0, 1e-4, -1e-4];
        assert_eq!(points[1].strong_batch_size, Some(4));
        noise.iter().map(|noise| (0.1 + noise) / (0.052 + noise)).collect()
    }

    #[test]
    fn without_a_run_on_one_rank_there_is_nothing_to_compare_with() {
        assert!(points(&[rounds(2, 0.1, 0.0, 0.0)]).is_empty());
        assert!(points(&[]).is_empty());
    }
}
