//! Replay modes of a step: products that only the update needs may run on a second stream beside the backward pass, and
//! kernels may be launched before the previous one has ended. Each mode is timed, and the fastest is kept.
//!
//! A call on the main stream waits for calls on the side stream that read what it overwrites or write what it reads.
//! All modes run the same kernels, so the results have the same bytes.

use super::Prepared;
use super::driver::{Event, Stream};
use super::error::CudaError;
use std::fmt;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    One,
    Two,
}

/// When a kernel is launched that follows another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launches {
    InTurn,
    /// While the previous one runs: its blocks start as that one's blocks end, and wait there for its results.
    Early,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayMode {
    pub streams: Streams,
    pub launches: Launches,
}

/// The modes that every device supports come first.
pub const REPLAY_MODES: [ReplayMode; 4] = [
    ReplayMode { streams: Streams::One, launches: Launches::InTurn },
    ReplayMode { streams: Streams::Two, launches: Launches::InTurn },
    ReplayMode { streams: Streams::One, launches: Launches::Early },
    ReplayMode { streams: Streams::Two, launches: Launches::Early },
];

/// The mode that also updates weights in pieces, beside the rest of the backward pass.
pub const UPDATES_BESIDE: ReplayMode = REPLAY_MODES[3];

/// Environment variable with the number of `REPLAY_MODES` to try: 1 means only one stream, in turn.
const TRIED_MODES: &str = "HEADROOM_CUDA_WAYS";

impl ReplayMode {
    /// Its index in `REPLAY_MODES`.
    pub fn index(self) -> usize {
        self.streams as usize + 2 * self.launches as usize
    }

    /// The mode for recording: kernels must not overlap, so that each has its own time.
    pub fn recorded(self) -> ReplayMode {
        ReplayMode { launches: Launches::InTurn, ..self }
    }
}

impl fmt::Display for ReplayMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let streams = if self.streams == Streams::One { "one stream" } else { "two streams" };
        let launches = if self.launches == Launches::Early { ", launched early" } else { "" };
        let update = if *self == UPDATES_BESIDE { ", updates overlapped" } else { "" };
        write!(f, "{streams}{launches}{update}")
    }
}

/// Steps for which each mode is tried, after the initial setup steps.
const TRIED: usize = 5;
const FIRST: usize = 2;

/// Chooses the mode from the times of the steps so far.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Number of modes to try: the first ones of `REPLAY_MODES`.
    modes: usize,
    seconds: [Vec<f64>; REPLAY_MODES.len()],
}

impl Trial {
    /// Kernels can be launched early from Hopper on.
    pub fn of(capability: (u32, u32)) -> Trial {
        Trial::among(capability, std::env::var(TRIED_MODES).ok().as_deref())
    }

    fn among(capability: (u32, u32), asked: Option<&str>) -> Trial {
        let has = if capability >= (9, 0) { REPLAY_MODES.len() } else { 2 };
        let asked = asked.and_then(|modes| modes.parse().ok()).unwrap_or(has);
        Trial { modes: asked.clamp(1, has), seconds: Default::default() }
    }

    /// The mode for a step: alternating at first, then the fastest.
    pub fn at(&self, step: usize) -> ReplayMode {
        if step < FIRST + self.modes * TRIED {
            return REPLAY_MODES[step % self.modes];
        }
        let fastest = (0..self.modes).min_by(|&a, &b| self.least(a).total_cmp(&self.least(b)));
        REPLAY_MODES[fastest.unwrap_or(0)]
    }

    fn least(&self, mode: usize) -> f64 {
        self.seconds[mode].iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Notes a finished step. Steps before graphs were captured do not count.
    pub fn took(&mut self, step: usize, seconds: f64) {
        if (FIRST + self.modes..FIRST + self.modes * TRIED).contains(&step) {
            self.seconds[step % self.modes].push(seconds);
        }
    }

    /// Excludes early launches: the driver does not support them after all.
    pub fn refuse_early(&mut self) {
        self.modes = self.modes.min(2);
    }

    /// The shortest time of every mode that was tried.
    pub fn told(&self) -> Option<String> {
        let tried = (0..self.modes).filter(|mode| !self.seconds[*mode].is_empty());
        let each: Vec<String> =
            tried.map(|mode| format!("{} {:.4} ms", REPLAY_MODES[mode], 1e3 * self.least(mode))).collect();
        (!each.is_empty()).then(|| format!("replays: {}", each.join("; ")))
    }
}

/// Work on the side stream that was not waited for yet.
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

    /// From here on, the side stream may read everything that the main stream has produced.
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

    /// Waits for the last side work that the main stream's next call depends on, and so for everything before it.
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
        for (capability, modes) in [((8, 0), 2), ((9, 0), 4)] {
            for fastest in &REPLAY_MODES[..modes] {
                let mut trial = Trial::among(capability, None);
                let mut seen = vec![];
                for step in 0..30 {
                    let mode = trial.at(step);
                    seen.push(mode.index());
                    trial.took(step, if mode == *fastest { 1.0 } else { 1.1 });
                }
                assert_eq!(trial.at(30), *fastest);
                assert!((0..modes).all(|mode| seen.contains(&mode)) && seen.iter().all(|mode| *mode < modes));
                assert!(trial.told().unwrap().contains("1000.0000 ms"));
            }
        }
        assert!(REPLAY_MODES.iter().enumerate().all(|(index, mode)| mode.index() == index));
    }

    #[test]
    fn early_launches_are_left_out_where_the_driver_refuses_them_and_where_steps_are_recorded() {
        let mut trial = Trial::among((9, 0), None);
        trial.refuse_early();
        for step in 0..40 {
            assert_eq!(trial.at(step).launches, Launches::InTurn);
            trial.took(step, 1.0);
        }
        assert_eq!(REPLAY_MODES[3].recorded(), REPLAY_MODES[1]);
        for (asked, modes) in
            [(Some("1"), 1), (Some("3"), 3), (Some("9"), 4), (Some("0"), 1), (Some("x"), 4), (None, 4)]
        {
            assert_eq!(Trial::among((9, 0), asked).modes, modes);
        }
    }

    #[test]
    fn ranges_touch_where_they_share_a_byte() {
        let (first, second) = ([0..4, 20..21], [8..9, 3..5]);
        assert!(touch(&first, &second));
        assert!(!touch(&first, &[4..8, 9..20]));
    }
}
