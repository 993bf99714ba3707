//! How threads of a team wait for each other without the operating system.

use super::sync::{AtomicUsize, Ordering, spin_loop, yield_now};

/// A barrier for a team; the last thread to arrive runs `between` before the others continue.
pub(crate) struct Barrier {
    arrived: Padded<AtomicUsize>,
    round: Padded<AtomicUsize>,
}

impl Barrier {
    pub(crate) fn new() -> Barrier {
        Barrier { arrived: Padded(AtomicUsize::new(0)), round: Padded(AtomicUsize::new(0)) }
    }

    pub(crate) fn wait(&self, team: usize, spins: u32, between: impl FnOnce()) {
        let round = self.round.0.load(Ordering::Acquire);
        if self.arrived.0.fetch_add(1, Ordering::AcqRel) + 1 == team {
            self.arrived.0.store(0, Ordering::Relaxed);
            between();
            self.round.0.store(round.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut waiting = Waiting::new(spins);
        while self.round.0.load(Ordering::Acquire) == round {
            waiting.pause();
        }
    }
}

/// Number of finished steps of a work item, for others whose steps must come later.
pub(crate) struct StepProgress(Padded<AtomicUsize>);

impl StepProgress {
    pub(crate) fn new() -> StepProgress {
        StepProgress(Padded(AtomicUsize::new(0)))
    }

    /// A guard for the thread that takes these steps. Dropping it counts as finishing all steps, so that nobody waits
    /// for a thread that panicked.
    pub(crate) fn lead(&self) -> Leader<'_> {
        Leader(self)
    }

    /// Returns when `steps` are done; everything written before is visible afterwards.
    pub(crate) fn follow(&self, steps: usize, spins: u32) {
        let mut waiting = Waiting::new(spins);
        while self.0.0.load(Ordering::Acquire) < steps {
            waiting.pause();
        }
    }
}

pub(crate) struct Leader<'a>(&'a StepProgress);

impl Leader<'_> {
    pub(crate) fn has_done(&self, steps: usize) {
        self.0.0.0.store(steps, Ordering::Release);
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        self.has_done(usize::MAX);
    }
}

/// A value on its own cache lines (two: the hardware fetches lines in pairs).
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

/// Spins while the wait is short, then yields.
pub(super) struct Waiting {
    spins_left: u32,
}

impl Waiting {
    pub(super) fn new(spins: u32) -> Waiting {
        Waiting { spins_left: spins }
    }

    pub(super) fn pause(&mut self) {
        if self.spins_left > 0 {
            self.spins_left -= 1;
            spin_loop();
        } else {
            yield_now();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_follower_sees_what_was_written_before_the_step() {
        let (trail, value) = (StepProgress::new(), AtomicUsize::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                let lead = trail.lead();
                for step in 1..=1000 {
                    value.store(step, Ordering::Relaxed);
                    lead.has_done(step);
                }
            });
            for step in [1, 10, 1000] {
                trail.follow(step, 64);
                assert!(value.load(Ordering::Relaxed) >= step, "step {step} is done");
            }
        });
    }

    #[test]
    fn nobody_waits_for_one_that_panicked() {
        let trail = StepProgress::new();
        let ended = std::panic::catch_unwind(|| {
            let _lead = trail.lead();
            panic!("within a step");
        });
        assert!(ended.is_err());
        trail.follow(7, 64);
    }
}
