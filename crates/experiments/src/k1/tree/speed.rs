//! Habits that the bottleneck report blames, each against its remedy on the same tree, measured alternately.

use super::super::trial::LAST_STEP;
use super::TreeDesign;
use crate::bench::ExperimentError;
use crate::turns::{Clock, Contestant, Patience, Turn, Work as Runs, watched};
use headroom_graph::Rule;
use headroom_record::k1_speed::{K1ShownSpeed, K1SpeedRow};
use headroom_training::attribution::square_of;
use headroom_training::data::{Batch, BatchShape, DataSpec, Source, SourceSettings};
use headroom_training::optimizer::{OptimizerConfig, Update};
use headroom_training::program::{Keep, StepConfig, evaluation_program, training_program};
use headroom_training::trainer::{EndsStep, StepError, Trainer};
use std::hint::black_box;
use std::time::Instant;

/// Work that a step does besides computing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Habits {
    /// The host waits for the loss of every step instead of only at the end of a turn.
    reads_loss: bool,
    /// The host reads the gradient norm of each parameter of each node separately, at every step.
    reads_norms: bool,
    /// The masks of all blocks and the position tables are rebuilt at every step.
    rebuilds: bool,
}

/// Steps per turn: a typical log interval.
const TURN: usize = 10;

/// Sequences per evaluation.
const SEQUENCES: usize = 32;

/// A trainer and its habits.
struct Way {
    trainer: Trainer,
    step: StepConfig,
    source: Source,
    batch: Batch,
    work: Work,
}

enum Work {
    Steps(Habits),
    /// Number of sequences evaluated together.
    Evaluation(usize),
}

impl Way {
    fn new(design: &TreeDesign, k: usize, seed: u64, work: Work) -> Result<Way, ExperimentError> {
        let update = Update::Chosen { rule: Rule::TopK(k), seed };
        let optimizer = OptimizerConfig { update, ..design.tree.optimizer };
        let step = StepConfig { optimizer, ..design.tree.clone() };
        let batch_size = match work {
            Work::Evaluation(together) => together,
            Work::Steps(_) => step.shape.batch_size,
        };
        let shape = BatchShape { batch_size, ..step.shape };
        let training = training_program(&step, Keep::OnlyTheLoss)?;
        let evaluation = evaluation_program(&step, shape, &training.program)?;
        let programs = [training.program.clone(), evaluation.program.clone()];
        let device = design.device.open(&design.opening, &programs)?;
        let mut trainer = Trainer::new(device, &step.model, training, Some(evaluation), optimizer);
        trainer.draw_weights(seed);
        let settings = SourceSettings::new(shape, step.model.vocab_size, seed);
        let source = Source::open(&DataSpec::Markov, &settings)?;
        Ok(Way { trainer, step, source, batch: Batch::new(shape), work })
    }

    fn step(&mut self, habits: Habits) -> Result<(), ExperimentError> {
        if habits.rebuilds {
            self.rebuild();
        }
        self.source.fill(self.trainer.step, &mut self.batch)?;
        let ends = EndsStep::Yes { last: LAST_STEP };
        let label = || "a step of the tree".to_string();
        if habits.reads_loss {
            self.trainer.loss_of(&self.batch, ends).map_err(|error| match error {
                StepError::NotFinite(cause) => ExperimentError::NotFinite { label: label(), cause },
                StepError::Device(error) => error.into(),
            })?;
        } else {
            let submitted = self.trainer.submit(&self.batch, ends);
            submitted.map_err(|cause| ExperimentError::NotFinite { label: label(), cause })?;
        }
        if habits.reads_norms {
            let parameters = self.trainer.program().trained.len();
            let mut squares: Vec<f32> = (0..parameters).filter_map(|at| square_of(&mut self.trainer, at)).collect();
            squares.sort_by(f32::total_cmp);
            black_box(squares);
        }
        Ok(())
    }

    /// Builds a mask for every block, as a forward pass without a cached mask would, and writes the position tables
    /// again.
    fn rebuild(&mut self) {
        let seq = self.step.shape.seq_len;
        for _ in 0..self.step.model.n_layers {
            let mask: Vec<bool> = (0..seq * seq).map(|at| at % seq > at / seq).collect();
            black_box(mask);
        }
        self.trainer.write_constants(&self.step.model);
    }

    fn collect(&mut self) -> Result<(), ExperimentError> {
        let mut finished = vec![];
        self.trainer.collect(&mut finished)?;
        Ok(())
    }
}

impl Way {
    fn seconds(&mut self) -> Result<f64, ExperimentError> {
        let start = Instant::now();
        match self.work {
            Work::Steps(habits) => {
                for _ in 0..TURN {
                    self.step(habits)?;
                }
                self.collect()?;
            }
            Work::Evaluation(together) => {
                for position in 0..SEQUENCES / together {
                    self.source.fill(position as u64, &mut self.batch)?;
                    black_box(self.trainer.evaluate(&self.batch));
                }
            }
        }
        Ok(start.elapsed().as_secs_f64())
    }
}

impl Contestant for Way {
    type Error = ExperimentError;

    fn turn(&mut self) -> Result<Turn, ExperimentError> {
        watched(Runs::Here, || Ok(self.seconds()?.min(self.seconds()?)))
    }
}

/// Every habit against its remedy, with `k` nodes chosen per step.
pub fn habits(
    design: &TreeDesign,
    k: usize,
    seed: u64,
    patience: Patience,
) -> Result<Vec<K1SpeedRow>, ExperimentError> {
    let kept = Habits::default();
    let all = Habits { reads_loss: true, reads_norms: true, rebuilds: true };
    let steps = |habits: Habits| (Work::Steps(habits), Work::Steps(kept));
    let cases = [
        ("loss read at every step", "loss read every 10 steps", "2-3x", steps(Habits { reads_loss: true, ..kept })),
        (
            "norms of all nodes read by the host at every step and sorted there",
            "norms ranked on the device",
            "1.4x",
            steps(Habits { reads_norms: true, ..kept }),
        ),
        ("masks rebuilt at every step", "kept (here: never built)", "1.2x", steps(Habits { rebuilds: true, ..kept })),
        (
            "32 sequences evaluated one by one",
            "32 in one batch",
            "\"slower\"",
            (Work::Evaluation(1), Work::Evaluation(SEQUENCES)),
        ),
        ("the first three together", "none of them", "3-5x", steps(all)),
    ];
    let mut clock = Clock::start(patience, cases.len());
    let mut rows = vec![];
    for (habit, remedy, hoped, (slow, fast)) in cases {
        let (mut slow, mut fast) = (Way::new(design, k, seed, slow)?, Way::new(design, k, seed, fast)?);
        for _ in 0..WARM_UP {
            slow.seconds()?;
            fast.seconds()?;
        }
        let found = clock.compare(&mut slow, &mut fast)?;
        rows.push(K1SpeedRow {
            habit: habit.into(),
            remedy: remedy.into(),
            hoped: hoped.into(),
            speedup: found.ratio,
            ci95_low: found.low,
            ci95_high: found.high,
            rounds: found.rounds as u64,
        });
    }
    Ok(rows)
}

/// Turns before the first that counts.
const WARM_UP: usize = 3;

/// Steps at which the speed is shown both ways, and the length of the window.
const SHOWN: [u64; 4] = [10, 20, 50, 100];
const WINDOW: u64 = 10;

/// The speed of one run from its very first step, as a cumulative average and over the last steps.
pub fn shown(design: &TreeDesign, k: usize, seed: u64) -> Result<K1ShownSpeed, ExperimentError> {
    let mut way = Way::new(design, k, seed, Work::Steps(Habits::default()))?;
    let habits = Habits { reads_loss: true, ..Habits::default() };
    let mut ends = vec![0.0];
    let start = Instant::now();
    for _ in 0..SHOWN[SHOWN.len() - 1] {
        way.step(habits)?;
        ends.push(start.elapsed().as_secs_f64());
    }
    let since = |first: u64, last: u64| (last - first) as f64 / (ends[last as usize] - ends[first as usize]).max(1e-9);
    Ok(K1ShownSpeed {
        first_step_seconds: ends[1],
        after: SHOWN.to_vec(),
        cumulative_steps_per_sec: SHOWN.iter().map(|&after| since(0, after)).collect(),
        window: WINDOW,
        window_steps_per_sec: SHOWN.iter().map(|&after| since(after - WINDOW, after)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::design;
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_habit_is_timed_against_its_remedy() {
        let patience = Patience { rounds: 4, most_rounds: 4, time: Duration::from_millis(1) };
        let rows = habits(&design(), 2, 3, patience).unwrap();
        assert_eq!(
            rows.iter().map(|row| row.hoped.as_str()).collect::<Vec<_>>(),
            ["2-3x", "1.4x", "1.2x", "\"slower\"", "3-5x"]
        );
        for row in &rows {
            assert!(row.speedup > 0.0 && row.ci95_low <= row.speedup && row.speedup <= row.ci95_high, "{row:?}");
        }
    }

    #[test]
    fn habits_change_no_weight() {
        let losses = |habits: Habits| {
            let mut way = Way::new(&design(), 2, 3, Work::Steps(habits)).unwrap();
            (0..5).for_each(|_| way.step(habits).unwrap());
            way.collect().unwrap();
            way.source.fill(99, &mut way.batch).unwrap();
            way.trainer.evaluate(&way.batch).to_bits()
        };
        let all = Habits { reads_loss: true, reads_norms: true, rebuilds: true };
        assert_eq!(losses(Habits::default()), losses(all));
    }

    #[test]
    fn a_window_and_a_cumulative_average_agree_where_they_are_the_same_steps() {
        let shown = shown(&design(), 2, 3).unwrap();
        assert_eq!((shown.after[0], shown.window), (10, 10));
        assert_eq!(shown.cumulative_steps_per_sec[0], shown.window_steps_per_sec[0]);
        assert!(shown.first_step_seconds > 0.0 && shown.window_steps_per_sec.iter().all(|speed| *speed > 0.0));
    }
}
