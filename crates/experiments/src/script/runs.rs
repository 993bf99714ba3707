//! Processes of one variant, and how sure a ratio of two is.

use super::note::Note;
use super::outcome::Outcome;
use super::{Variant, Way};
use crate::turns::Speedup;
use headroom_record::statistics::{Interval, KnownNoise, pooled_difference};

/// Processes of one script on one machine differ by so much at least, as a share of the step: clocks, places in memory, what
/// else runs. Few processes may agree better by chance.
const NOISE: KnownNoise = KnownNoise { deviation: 0.01, freedom: 4.0 };

#[derive(Clone, Debug)]
pub struct Runs {
    pub variant: Variant,
    pub way: Way,
    pub notes: Vec<Note>,
    /// Of seconds of a step; also of processes whose losses are others on purpose.
    pub logs: Vec<f64>,
    /// A run whose random numbers are those of uncompiled code.
    pub comparable: Option<Note>,
}

impl Runs {
    pub fn of(variant: Variant, way: Way) -> Runs {
        Runs { variant, way, notes: vec![], logs: vec![], comparable: None }
    }

    pub fn take(&mut self, note: Note) -> Result<(), Outcome> {
        self.time(&note)?;
        self.notes.push(note);
        Ok(())
    }

    /// Its time alone.
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

    /// Seconds of a step: the geometric mean of its processes.
    pub fn seconds(&self) -> f64 {
        (self.logs.iter().sum::<f64>() / self.logs.len().max(1) as f64).exp()
    }
}

/// Speed of one over another. The variance between processes is pooled over all variants, with [`NOISE`] among them.
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
}
