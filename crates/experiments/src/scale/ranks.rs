//! Steps on several ranks: where the time beyond one rank's step goes, what limits it, and what one and two ranks tell of more.
//!
//! A run whose step has `MICRO_BATCHES` micro-batches exchanges gradients once, like a run with one. The difference between the two is
//! computing alone, so that computing and exchanging are told apart without looking into either.

use headroom_record::rank_scaling::{Figure, RankPoint};
use headroom_record::statistics::{MISSED, trimmed_mean};

/// Micro-batches of the run that is compared with a run of one.
pub const MICRO_BATCHES: u32 = 4;

/// Steps on this share of the time that they could take have nothing left to gain that is worth a sentence.
const GOOD_PERCENT: f64 = 95.0;
/// Unless the interval goes below this.
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
    /// One rank alone with that part.
    pub divided_alone: Vec<f64>,
}

/// A row for every number of ranks. The first is of one rank.
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
        point.predicted_seconds = predicted(one, two, rounds.ranks);
        point.predicted_off_percent =
            point.predicted_seconds.zip(weak).map(|(predicted, weak)| 100.0 * (predicted / weak.value - 1.0));
    }
    point.limited_by = limited_by(&point);
    point
}

/// Seconds per step beyond one rank's, by where they go.
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

/// Seconds per step on more ranks, of which nothing was measured.
///
/// A ring sends 2(n-1)/n of the bytes past each rank, whatever their number. Sharing a machine costs the same again with every doubling.
fn predicted(one: &Rounds, two: &Rounds, ranks: usize) -> Option<f64> {
    let beyond = Beyond::of(one, two);
    let single = mean(&one.weak)?.value;
    let all = (mean(&two.weak)?.value - single).max(0.0);
    let shared = mean(&beyond.shared)?.value.clamp(0.0, all);
    let ranks = ranks as f64;
    Some(single + shared * ranks.log2() + (all - shared) * 2.0 * (ranks - 1.0) / ranks)
}

fn limited_by(point: &RankPoint) -> Option<String> {
    let efficiency = point.efficiency_percent?;
    if efficiency.value >= GOOD_PERCENT && efficiency.low.is_none_or(|low| low >= STILL_GOOD_PERCENT) {
        return Some(format!("nothing: {:.0}% of one rank's speed each", efficiency.value));
    }
    if !efficiency.is_apart_from(100.0) {
        return Some("not decided: the loss is within the noise".into());
    }
    let (shared, exposed) = (point.shared_seconds?, point.exposed_seconds?);
    let milliseconds = |figure: Figure| format!("{:.1} ms per step", 1e3 * figure.value);
    let by_sharing =
        format!("sharing one machine's cores, caches and memory: computing takes {} longer", milliseconds(shared));
    let by_exchange = format!("communication: {} of it are waited for", milliseconds(exposed));
    let larger = if shared.value >= exposed.value { (shared, by_sharing) } else { (exposed, by_exchange) };
    Some(match larger {
        (figure, words) if figure.is_apart_from(0.0) => words,
        (_, words) => format!("not decided, probably {words}"),
    })
}

fn mean(values: &[f64]) -> Option<Figure> {
    (!values.is_empty()).then(|| trimmed_mean(values, MISSED).into())
}

/// By round: a round that was slow was slow for both.
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

    /// Ranks whose computing takes `computing` per micro-batch and whose exchange takes `exchange`, of which `hidden` goes on beside it.
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
            "sharing one machine's cores, caches and memory: computing takes 30.0 ms per step longer"
        );
        assert!(points[0].shared_seconds.is_none() && points[0].limited_by.is_none());
    }

    #[test]
    fn communication_that_is_waited_for_is_named() {
        let points = points(&[rounds(1, 0.1, 0.0, 0.0), rounds(2, 0.101, 0.06, 0.01)]);
        assert_eq!(points[1].limited_by.as_deref().unwrap(), "communication: 50.0 ms per step of it are waited for");
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
        assert_eq!(points[1].limited_by.as_deref().unwrap(), "nothing: 98% of one rank's speed each");
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
