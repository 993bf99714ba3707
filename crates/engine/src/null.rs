//! A device that computes nothing: each call takes its predicted time. It predicts the memory and time of a run for
//! sizes and machines that are not at hand.

use crate::at_once;
use crate::device::{Device, EngineError, Finished, Program, Submission, Taken};
use crate::peaks::ASSUMED_LINK;
use crate::recorder::{CallSpan, Recorder};
use headroom_graph::cost::{Clocks, Link, Rates};
use headroom_graph::{Precision, ValueId};
use std::ops::Range;
use std::time::Duration;

pub struct Null {
    programs: Vec<Program>,
    rates: Rates,
    link: Link,
    clocks: Clocks,
    recorder: Option<Recorder>,
    finished: Vec<Finished>,
}

impl Null {
    /// Precisions that can be planned and predicted.
    pub const PRECISIONS: &[Precision] = &[Precision::Fp32, Precision::Bf16];

    pub fn new(rates: Rates, programs: &[Program]) -> Null {
        Null::among(rates, ASSUMED_LINK, programs)
    }

    /// Acts as one of several ranks that communicate over `link`.
    pub fn among(rates: Rates, link: Link, programs: &[Program]) -> Null {
        let clocks = Clocks::default();
        Null { programs: programs.to_vec(), rates, link, clocks, recorder: None, finished: vec![] }
    }
}

impl Device for Null {
    fn kind(&self) -> &'static str {
        "null"
    }

    /// Bytes that a real device would reserve.
    fn arena_bytes(&self) -> usize {
        self.programs.iter().map(|program| program.plan.arena_bytes).max().unwrap_or(0)
    }

    fn scratch_bytes(&self) -> usize {
        0
    }

    fn computes(&self) -> bool {
        false
    }

    fn write_f32(&mut self, _: usize, _: ValueId, _: usize, _: &[f32]) {}

    fn write_i32(&mut self, _: usize, _: ValueId, _: usize, _: &[i32]) {}

    fn read_f32(&mut self, _: usize, _: ValueId, _: usize, data: &mut [f32]) {
        data.fill(f32::NAN);
    }

    fn run(&mut self, program: usize, calls: Range<usize>) {
        for call in calls {
            let start = self.clock();
            let Program { graph, plan, .. } = &self.programs[program];
            self.clocks.advance(graph, &plan.calls[call], &self.rates, &self.link);
            let end = self.clock();
            if let Some(recorder) = &mut self.recorder {
                recorder.push(CallSpan { program: program as u32, call: call as u32, start, end });
            }
        }
    }

    fn submit(&mut self, submission: &Submission) -> Taken {
        at_once::submit(self, submission, |device| &mut device.finished)
    }

    fn collect(&mut self, finished: &mut Vec<Finished>) -> Result<(), EngineError> {
        finished.append(&mut self.finished);
        Ok(())
    }

    fn set_recorder(&mut self, recorder: Option<Recorder>) -> Option<Recorder> {
        std::mem::replace(&mut self.recorder, recorder)
    }

    fn clock(&self) -> Duration {
        Duration::from_secs_f64(self.clocks.now)
    }
}
