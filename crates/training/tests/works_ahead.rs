//! A device that works ahead until its calls are recorded: every step is reported with its own loss and time, whichever
//! way it was taken.

use headroom_engine::cpu::isa::Isa;
use headroom_engine::cpu::{Cpu, Reductions};
use headroom_engine::recorder::Recorder;
use headroom_engine::{Device, EngineError, Finished, Submission, Taken, Target};
use headroom_graph::passes::PassList;
use headroom_graph::{Precision, ValueId};
use headroom_training::checkpoint::CheckpointError;
use headroom_training::data::{BatchShape, DataSpec, Prefetcher, Source, SourceSettings};
use headroom_training::guard::OnSpike;
use headroom_training::models::Size;
use headroom_training::optimizer::OptimizerConfig;
use headroom_training::program::{Keep, StepConfig, training_program};
use headroom_training::recording::Recording;
use headroom_training::run::{CompletedStep, End, Evaluation, Observer, Schedule, run};
use headroom_training::trainer::Trainer;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const SHAPE: BatchShape = BatchShape { batch_size: 2, seq_len: 8 };
const STEPS: u64 = 30;

/// Claims to work ahead while nothing is recorded, as a GPU does whose calls are timed by events.
struct Ahead {
    cpu: Cpu,
    recorded: bool,
}

impl Device for Ahead {
    fn kind(&self) -> &'static str {
        self.cpu.kind()
    }

    fn arena_bytes(&self) -> usize {
        self.cpu.arena_bytes()
    }

    fn scratch_bytes(&self) -> usize {
        self.cpu.scratch_bytes()
    }

    fn computes(&self) -> bool {
        true
    }

    fn write_f32(&mut self, program: usize, value: ValueId, first: usize, data: &[f32]) {
        self.cpu.write_f32(program, value, first, data);
    }

    fn write_i32(&mut self, program: usize, value: ValueId, first: usize, data: &[i32]) {
        self.cpu.write_i32(program, value, first, data);
    }

    fn read_f32(&mut self, program: usize, value: ValueId, first: usize, data: &mut [f32]) {
        self.cpu.read_f32(program, value, first, data);
    }

    fn run(&mut self, program: usize, calls: Range<usize>) {
        self.cpu.run(program, calls);
    }

    fn submit(&mut self, submission: &Submission) -> Taken {
        let taken = self.cpu.submit(submission);
        if self.works_ahead() { Taken::Queued } else { taken }
    }

    fn collect(&mut self, finished: &mut Vec<Finished>) -> Result<(), EngineError> {
        self.cpu.collect(finished)
    }

    fn works_ahead(&self) -> bool {
        !self.recorded
    }

    fn set_recorder(&mut self, recorder: Option<Recorder>) -> Option<Recorder> {
        self.recorded = recorder.is_some();
        self.cpu.set_recorder(recorder)
    }

    fn clock(&self) -> Duration {
        self.cpu.clock()
    }
}

struct Told(Vec<CompletedStep>);

impl Observer for Told {
    fn stepped(&mut self, _: u64) {}

    fn logged(&mut self, steps: &[CompletedStep]) {
        self.0.extend_from_slice(steps);
    }

    fn evaluated(&mut self, _: Evaluation) {}

    fn save(&mut self, _: &mut Trainer) -> Result<(), CheckpointError> {
        Ok(())
    }
}

fn told(accumulation: usize, open: fn(Cpu) -> Box<dyn Device>) -> Vec<CompletedStep> {
    let model = Size::named("nano").unwrap().model();
    let step = StepConfig {
        model: model.clone(),
        shape: SHAPE,
        optimizer: OptimizerConfig { accumulation, ..OptimizerConfig::default() },
        passes: PassList::all(),
        recomputed_layers: 0,
        precision: Precision::Fp32,
        target: Target::Cpu,
    };
    let program = training_program(&step, Keep::GradientNorm).unwrap();
    let cpu = Cpu::new(1, Isa::detect(), Reductions::Fixed, std::slice::from_ref(&program.program)).unwrap();
    let recording = Recording::of_steps(17..=19, &program.program, accumulation);
    let mut trainer = Trainer::new(open(cpu), &model, program, None, step.optimizer);
    trainer.draw_weights(1);
    trainer.recording = Some(recording);
    let source = Source::open(&DataSpec::Synthetic, &SourceSettings::new(SHAPE, model.vocab_size, 1)).unwrap();
    let mut data = Prefetcher::start(source, 0).unwrap();
    let schedule = Schedule {
        last_step: STEPS,
        log_interval: 10,
        accumulation,
        evaluate_every: 0,
        save_every: 0,
        on_spike: OnSpike::Tell,
    };
    let mut told = Told(vec![]);
    let outcome = run(&mut trainer, &mut data, None, &schedule, &AtomicBool::new(false), &mut told);
    assert!(matches!(outcome.end, End::Finished), "{:?}", outcome.end);
    told.0
}

#[test]
fn every_step_has_its_own_loss_and_time_before_while_and_after_some_are_recorded() {
    for accumulation in [1, 2] {
        let at_once = told(accumulation, |cpu| Box::new(cpu));
        let ahead = told(accumulation, |cpu| Box::new(Ahead { cpu, recorded: false }));
        let losses = |steps: &[CompletedStep]| steps.iter().map(|step| (step.step, step.loss)).collect::<Vec<_>>();
        assert_eq!(losses(&ahead), losses(&at_once));
        assert_eq!(ahead.len() as u64, STEPS);
        for step in ahead.iter().chain(&at_once) {
            assert!(step.loss.is_some() && step.gradient_norm.is_some() && !step.times.total.is_zero(), "{step:?}");
        }
    }
}
