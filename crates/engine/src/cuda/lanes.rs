//! Ways to replay a step: products that only the update needs on a second lane beside the backward pass, and kernels launched
//! before the one before them has ended. Each way is tried, and the fastest stays.
//!
//! A call on the main lane waits for those beside it that read what it overwrites or make what it reads; the same kernels
//! run in any way, so the results have the same bytes.

use super::Prepared;
use super::driver::{Event, Stream};
use super::error::CudaError;
use std::fmt;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    One,
    Two,
}

/// When a kernel is launched that follows another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launches {
    InTurn,
    /// While the one before it runs: its blocks start when that one's end, and wait there for its results.
    Early,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    pub lanes: Lanes,
    pub launches: Launches,
}

/// Those that any device has come first.
pub const WAYS: [Way; 4] = [
    Way { lanes: Lanes::One, launches: Launches::InTurn },
    Way { lanes: Lanes::Two, launches: Launches::InTurn },
    Way { lanes: Lanes::One, launches: Launches::Early },
    Way { lanes: Lanes::Two, launches: Launches::Early },
];

/// The way that also updates weights piece by piece, beside the rest of the backward pass.
pub const UPDATES_BESIDE: Way = WAYS[3];

/// Names how many of `WAYS` are tried: 1 is one lane, in turn.
const TRIED_WAYS: &str = "HEADROOM_CUDA_WAYS";

impl Way {
    /// Its place among `WAYS`.
    pub fn index(self) -> usize {
        self.lanes as usize + 2 * self.launches as usize
    }

    /// Kernels that are recorded do not overlap: each has its own time.
    pub fn recorded(self) -> Way {
        Way { launches: Launches::InTurn, ..self }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lanes = if self.lanes == Lanes::One { "one lane" } else { "two lanes" };
        let launches = if self.launches == Launches::Early { ", launched early" } else { "" };
        let update = if *self == UPDATES_BESIDE { ", updates beside" } else { "" };
        write!(f, "{lanes}{launches}{update}")
    }
}

/// Steps that each is tried for, after those that set things up.
const TRIED: usize = 5;
const FIRST: usize = 2;

/// The choice between ways, by the steps that were taken so far.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The first so many of `WAYS`.
    ways: usize,
    seconds: [Vec<f64>; WAYS.len()],
}

impl Trial {
    /// Kernels can be launched early from Hopper on.
    pub fn of(capability: (u32, u32)) -> Trial {
        Trial::among(capability, std::env::var(TRIED_WAYS).ok().as_deref())
    }

    fn among(capability: (u32, u32), asked: Option<&str>) -> Trial {
        let has = if capability >= (9, 0) { WAYS.len() } else { 2 };
        let asked = asked.and_then(|ways| ways.parse().ok()).unwrap_or(has);
        Trial { ways: asked.clamp(1, has), seconds: Default::default() }
    }

    /// How to take a step: by turns at first, then as the fastest.
    pub fn at(&self, step: usize) -> Way {
        if step < FIRST + self.ways * TRIED {
            return WAYS[step % self.ways];
        }
        let fastest = (0..self.ways).min_by(|&a, &b| self.least(a).total_cmp(&self.least(b)));
        WAYS[fastest.unwrap_or(0)]
    }

    fn least(&self, way: usize) -> f64 {
        self.seconds[way].iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// A step is done. What came before graphs were captured does not count.
    pub fn took(&mut self, step: usize, seconds: f64) {
        if (FIRST + self.ways..FIRST + self.ways * TRIED).contains(&step) {
            self.seconds[step % self.ways].push(seconds);
        }
    }

    /// The driver does not launch early after all.
    pub fn refuse_early(&mut self) {
        self.ways = self.ways.min(2);
    }

    /// The least seconds of every way that was tried.
    pub fn told(&self) -> Option<String> {
        let tried = (0..self.ways).filter(|way| !self.seconds[*way].is_empty());
        let each: Vec<String> = tried.map(|way| format!("{} {:.4} ms", WAYS[way], 1e3 * self.least(way))).collect();
        (!each.is_empty()).then(|| format!("replays: {}", each.join("; ")))
    }
}

/// Work beside the main lane that is not waited for yet.
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
    fn every_way_is_tried_in_turns_and_the_fastest_stays() {
        for (capability, ways) in [((8, 0), 2), ((9, 0), 4)] {
            for fastest in &WAYS[..ways] {
                let mut trial = Trial::among(capability, None);
                let mut seen = vec![];
                for step in 0..30 {
                    let way = trial.at(step);
                    seen.push(way.index());
                    trial.took(step, if way == *fastest { 1.0 } else { 1.1 });
                }
                assert_eq!(trial.at(30), *fastest);
                assert!((0..ways).all(|way| seen.contains(&way)) && seen.iter().all(|way| *way < ways));
                assert!(trial.told().unwrap().contains("1000.0000 ms"));
            }
        }
        assert!(WAYS.iter().enumerate().all(|(index, way)| way.index() == index));
    }

    #[test]
    fn early_launches_are_left_out_where_the_driver_refuses_them_and_where_steps_are_recorded() {
        let mut trial = Trial::among((9, 0), None);
        trial.refuse_early();
        for step in 0..40 {
            assert_eq!(trial.at(step).launches, Launches::InTurn);
            trial.took(step, 1.0);
        }
        assert_eq!(WAYS[3].recorded(), WAYS[1]);
        for (asked, ways) in [(Some("1"), 1), (Some("3"), 3), (Some("9"), 4), (Some("0"), 1), (Some("x"), 4), (None, 4)]
        {
            assert_eq!(Trial::among((9, 0), asked).ways, ways);
        }
    }

    #[test]
    fn ranges_touch_where_they_share_a_byte() {
        let (first, second) = ([0..4, 20..21], [8..9, 3..5]);
        assert!(touch(&first, &second));
        assert!(!touch(&first, &[4..8, 9..20]));
    }
}
