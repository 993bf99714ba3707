//! Two lanes: products that only the update needs run beside the backward pass. Which of one and two is faster is tried.
//!
//! A call on the main lane waits for those beside it that read what it overwrites or make what it reads; the same kernels
//! run either way, so the results have the same bytes.

use super::Prepared;
use super::driver::{Event, Stream};
use super::error::CudaError;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    One,
    Two,
}

/// Steps that each is tried for, after those that set things up.
const TRIED: usize = 6;
const FIRST: usize = 2;

/// The choice between one lane and two, by the steps that were taken so far.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    seconds: [Vec<f64>; 2],
}

impl Trial {
    /// How to take a step: by turns at first, then as the faster.
    pub fn at(&self, step: usize) -> Lanes {
        if step < FIRST + 2 * TRIED {
            return if step.is_multiple_of(2) { Lanes::One } else { Lanes::Two };
        }
        let least = |which: usize| self.seconds[which].iter().copied().fold(f64::INFINITY, f64::min);
        if least(1) < least(0) { Lanes::Two } else { Lanes::One }
    }

    /// A step is done. What came before graphs were captured does not count.
    pub fn took(&mut self, step: usize, seconds: f64) {
        if (FIRST + 2..FIRST + 2 * TRIED).contains(&step) {
            self.seconds[step % 2].push(seconds);
        }
    }
}

/// What runs beside the main lane and is not waited for yet.
pub struct Beside<'a> {
    main: &'a Stream,
    side: &'a Stream,
    under_way: Vec<UnderWay>,
}

struct UnderWay {
    end: Event,
    reads: Vec<Range<u64>>,
    writes: Vec<Range<u64>>,
}

impl<'a> Beside<'a> {
    pub fn new(main: &'a Stream, side: &'a Stream) -> Beside<'a> {
        Beside { main, side, under_way: vec![] }
    }

    /// The side lane may read all that the main one has made.
    pub fn begin(&self) -> Result<(), CudaError> {
        let now = Event::untimed()?;
        now.record(self.main)?;
        self.side.wait_for(&now)
    }

    pub fn end(&mut self, call: &Prepared) -> Result<(), CudaError> {
        let end = Event::untimed()?;
        end.record(self.side)?;
        self.under_way.push(UnderWay { end, reads: call.reads.clone(), writes: call.writes.clone() });
        Ok(())
    }

    /// Waits for the last that the main lane's next call has to come after, and so for all before it.
    pub fn wait_for(&mut self, call: &Prepared) -> Result<(), CudaError> {
        let meets = |one: &UnderWay| {
            touch(&call.writes, &one.reads) || touch(&call.writes, &one.writes) || touch(&call.reads, &one.writes)
        };
        let Some(last) = self.under_way.iter().rposition(meets) else { return Ok(()) };
        self.main.wait_for(&self.under_way[last].end)?;
        self.under_way.drain(..=last);
        Ok(())
    }

    pub fn wait_for_all(&mut self) -> Result<(), CudaError> {
        let Some(last) = self.under_way.last() else { return Ok(()) };
        self.main.wait_for(&last.end)?;
        self.under_way.clear();
        Ok(())
    }
}

fn touch(these: &[Range<u64>], those: &[Range<u64>]) -> bool {
    these.iter().any(|a| those.iter().any(|b| a.start < b.end && b.start < a.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_tried_in_turns_and_the_faster_stays() {
        let mut trial = Trial::default();
        for step in 0..20 {
            let lanes = trial.at(step);
            trial.took(step, if lanes == Lanes::Two { 1.0 } else { 1.1 });
        }
        assert_eq!(trial.at(20), Lanes::Two);
        let mut trial = Trial::default();
        (0..20).for_each(|step| trial.took(step, if trial.at(step) == Lanes::Two { 1.2 } else { 1.1 }));
        assert_eq!(trial.at(20), Lanes::One);
    }

    #[test]
    fn ranges_touch_where_they_share_a_byte() {
        let (first, second) = ([0..4, 20..21], [8..9, 3..5]);
        assert!(touch(&first, &second));
        assert!(!touch(&first, &[4..8, 9..20]));
    }
}
