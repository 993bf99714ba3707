//! Chooses the faster of two implementations of the same work by measurement: ours and a library's.

use super::cudnn::{Forced, forced};
use super::driver::{Event, Replay, Stream};
use super::error::CudaError;
use super::launch::{Action, Either, Side};
use super::product::Products;

/// A library is chosen only if its time is below this fraction of ours.
const WORTH: f64 = 0.98;

/// Minimum timing per side in seconds, after a first run.
const SECONDS: f64 = 0.02;

impl Either {
    /// Uses the kept choice, or times both sides alternately. A side that cannot run or be captured is not chosen.
    pub fn choose(&mut self, stream: &Stream, products: &mut Products) -> Result<(), CudaError> {
        self.side = match products.kept_choice(&self.key) {
            _ if forced() == Some(Forced::Always) => Side::Theirs,
            Some(true) => Side::Theirs,
            Some(false) => Side::Ours,
            None => {
                let (ours, theirs) = self.seconds(stream, products)?;
                let side = if theirs.is_some_and(|theirs| theirs < WORTH * ours) { Side::Theirs } else { Side::Ours };
                products.keep_choice(&self.key, side == Side::Theirs);
                side
            }
        };
        Ok(())
    }

    /// Seconds of our side, and of theirs if it runs.
    pub fn seconds(&self, stream: &Stream, products: &Products) -> Result<(f64, Option<f64>), CudaError> {
        let mut ours = Timed::new(&self.ours, stream, products)?;
        let Ok(mut theirs) = Timed::new(&self.theirs, stream, products) else { return Ok((ours.least, None)) };
        for _ in 0..4 {
            ours.again(stream)?;
            theirs.again(stream)?;
        }
        Ok((ours.least, Some(theirs.least)))
    }
}

/// Actions captured repeatedly, so that a replay takes long enough to time.
pub struct Timed {
    replay: Replay,
    times: usize,
    pub least: f64,
}

impl Timed {
    pub fn new(actions: &[Action], stream: &Stream, products: &Products) -> Result<Timed, CudaError> {
        let run = || actions.iter().try_for_each(|action| action.run(stream, 0, products));
        // Libraries initialise themselves on first use, and that cannot be captured.
        run()?;
        stream.wait()?;
        let once = seconds_of(stream, run)?;
        let times = ((SECONDS / 4.0 / once.max(1e-6)) as usize).clamp(1, 100);
        let replay = stream.captured(|| (0..times).try_for_each(|_| run()))?;
        let mut timed = Timed { replay, times, least: f64::INFINITY };
        timed.again(stream)?;
        Ok(timed)
    }

    pub fn again(&mut self, stream: &Stream) -> Result<(), CudaError> {
        let took = seconds_of(stream, || self.replay.launch(stream))?;
        self.least = self.least.min(took / self.times as f64);
        Ok(())
    }
}

fn seconds_of(stream: &Stream, queue: impl FnOnce() -> Result<(), CudaError>) -> Result<f64, CudaError> {
    let (start, end) = (Event::timed()?, Event::timed()?);
    start.record(stream)?;
    queue()?;
    end.record(stream)?;
    end.wait()?;
    end.seconds_since(&start)
}
