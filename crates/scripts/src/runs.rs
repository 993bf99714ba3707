//! Processes of one variant, and the uncertainty of a ratio between two.

use crate::note::Note;
use crate::outcome::Outcome;
use crate::variant::{Variant, Way};
use headroom_record::statistics::{Interval, KnownNoise, pooled_difference};
use headroom_record::turns::Speedup;

/// Minimum variation between processes of one script on one machine, as a share of the step: clocks, memory placement,
/// other load. A few processes may agree better by chance. It is a floor: a larger observed variation is believed.
const NOISE: KnownNoise = KnownNoise { deviation: 0.01, freedom: 4.0 };

#[derive(Clone, Debug)]
pub struct Runs {
    pub variant: Variant,
    pub way: Way,
    pub notes: Vec<Note>,
    /// Logarithms of seconds per step, including processes whose losses differ on purpose.
    pub logs: Vec<f64>,
}

impl Runs {
    pub fn of(variant: Variant, way: Way) -> Runs {
        Runs { variant, way, notes: vec![], logs: vec![] }
    }

    pub fn take(&mut self, note: Note) -> Result<(), Outcome> {
        self.time(&note)?;
        self.notes.push(note);
        Ok(())
    }

    /// Adds only the time.
    pub fn time(&mut self, note: &Note) -> Result<(), Outcome> {
        let Some(seconds) = note.seconds().filter(|seconds| *seconds > 0.0) else {
            return Err(Outcome::Failed("no step was timed".into()));
        };
        self.logs.push(seconds.ln());
        Ok(())
    }

    pub fn memory(&self) -> Option<u64> {
        self.notes.iter().filter_map(Note::memory).max()
    }

    /// Seconds per step: the geometric mean over its processes.
    pub fn seconds(&self) -> f64 {
        (self.logs.iter().sum::<f64>() / self.logs.len().max(1) as f64).exp()
    }
}

/// Speed of one variant relative to another. The variance between processes is pooled over all variants and is at least
/// that of the two themselves: a single process says nothing about how another start would do.
pub fn speedup(of: &Runs, over: &Runs, all: &[Runs], missed: f64) -> Speedup {
    let rounds = of.logs.len().min(over.logs.len());
    if rounds == 0 {
        return Speedup { ratio: 1.0, low: 0.0, high: f64::MAX, rounds };
    }
    let all: Vec<&[f64]> = all.iter().map(|runs| runs.logs.as_slice()).collect();
    let Interval { value, low, high } = pooled_difference(&over.logs, &of.logs, &all, NOISE, missed);
    Speedup { ratio: value.exp(), low: low.exp(), high: high.exp().min(f64::MAX), rounds }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_record::statistics::MISSED;

    fn runs(seconds: &[f64]) -> Runs {
        Runs { logs: seconds.iter().map(|one| one.ln()).collect(), ..Runs::of(Variant::as_it_is(), Way::Timed) }
    }

    #[test]
    fn processes_that_agree_by_chance_do_not_make_an_interval_of_nothing() {
        let (before, after) = (runs(&[0.1, 0.1, 0.1]), runs(&[0.098]));
        let found = speedup(&after, &before, &[before.clone(), after.clone()], MISSED);
        assert!(found.low < 1.0 && found.high > 1.03, "two percent of one process decide nothing: {found:?}");
        let after = runs(&[0.05]);
        let found = speedup(&after, &before, &[before.clone(), after.clone()], MISSED);
        assert!(found.low > 1.9 && found.high < 2.1, "{found:?}");
    }

    #[test]
    fn processes_that_differ_widen_it() {
        let (before, after) = (runs(&[0.1, 0.12, 0.09]), runs(&[0.08, 0.1]));
        let found = speedup(&after, &before, &[before.clone(), after.clone()], MISSED);
        assert!(found.low < 1.0 && found.high > 1.3, "{found:?}");
        assert_eq!(speedup(&runs(&[]), &before, &[], MISSED).low, 0.0);
    }

    #[test]
    fn known_noise_is_a_floor_and_shrinks_nothing() {
        let half = |of: &Runs, over: &Runs, all: &[Runs]| {
            let found = speedup(of, over, all, MISSED);
            (found.high / found.low).ln() / 2.0
        };
        // A dozen processes that agree: the floor of one percent remains. By hand: t with 15 degrees is 2.131.
        let steady = runs(&[0.1; 12]);
        let quiet = half(&runs(&[0.05]), &steady, &[steady.clone(), runs(&[0.05])]);
        assert!((quiet - 2.131 * 0.01 * (1.0 + 1.0 / 12.0f64).sqrt()).abs() < 1e-4, "{quiet}");
        // Two processes 10% apart: their own deviation is 7%, and a known one of 1% does not lower it.
        let apart = runs(&[0.1, 0.1105]);
        let wide = half(&runs(&[0.05]), &apart, &[apart.clone(), runs(&[0.05])]);
        assert!(wide > 0.0706 * 2.5, "{wide}");
    }

    #[test]
    fn a_variant_that_starts_differently_each_time_is_not_made_sure_by_others_that_do_not() {
        let (steady, apart) = (runs(&[0.1; 8]), runs(&[0.05, 0.06]));
        let all = [steady.clone(), apart.clone()];
        let found = speedup(&apart, &steady, &all, MISSED);
        for start in [0.05, 0.06] {
            assert!(found.low < 0.1 / start && 0.1 / start < found.high, "{found:?} does not hold {start}");
        }
        // A single process gets the spread of the runs it is compared with.
        let found = speedup(&runs(&[0.1]), &apart, &[steady, apart.clone(), runs(&[0.1])], MISSED);
        assert!(found.high / found.low > 1.3, "{found:?}");
    }
}
