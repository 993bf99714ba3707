//! Implements `Device` for a GPU: writes and reads values, runs calls, queues steps.

use super::Cuda;
use super::queue::Submitted;
use crate::at_once;
use crate::device::{Device, Drawn, EngineError, Finished, Submission, Taken};
use crate::recorder::Recorder;
use headroom_graph::{DType, ValueId};
use std::ops::Range;
use std::time::Duration;

impl Device for Cuda {
    fn kind(&self) -> &'static str {
        "cuda"
    }

    fn arena_bytes(&self) -> usize {
        self.arena.bytes
    }

    fn scratch_bytes(&self) -> usize {
        let own: usize = self.programs.iter().flat_map(|program| &program.tables).map(|memory| memory.bytes).sum();
        self.scratch.bytes + own + self.products.workspace_bytes()
    }

    fn computes(&self) -> bool {
        true
    }

    fn write_f32(&mut self, program: usize, value: ValueId, first: usize, data: &[f32]) {
        let bits: Vec<u32> = data.iter().map(|x| x.to_bits()).collect();
        self.write(program, value, first, &bits);
    }

    fn write_i32(&mut self, program: usize, value: ValueId, first: usize, data: &[i32]) {
        let bits: Vec<u32> = data.iter().map(|x| *x as u32).collect();
        self.write(program, value, first, &bits);
    }

    fn read_f32(&mut self, program: usize, value: ValueId, first: usize, data: &mut [f32]) {
        if self.failed.is_none()
            && let Err(error) = self.read(program, value, first, data)
        {
            self.failed = Some(error);
        }
        if self.failed.is_some() {
            data.fill(f32::NAN);
        }
    }

    fn run(&mut self, program: usize, calls: Range<usize>) {
        if self.failed.is_none() {
            self.rest_tracing();
            let ran = self.run_calls(program, calls).and_then(|()| self.wait_patiently());
            self.note(ran);
        }
    }

    fn set_recorder(&mut self, recorder: Option<Recorder>) -> Option<Recorder> {
        let (mut before, mut recorder) = (self.recorder.take(), recorder);
        before.iter_mut().for_each(|recorder| self.stop_recording(recorder));
        recorder.iter_mut().for_each(|recorder| self.start_recording(recorder));
        self.recorder = recorder;
        before
    }

    fn wait(&mut self) {
        let waited = self.wait_patiently();
        self.note(waited);
    }

    fn clock(&self) -> Duration {
        self.started.elapsed()
    }

    fn submit(&mut self, submission: &Submission) -> Taken {
        if self.works_ahead() {
            self.queue(submission);
            return Taken::Queued;
        }
        // Steps that are already queued come first.
        if self.failed.is_none() {
            let collected = self.collect_all();
            self.note(collected);
        }
        at_once::submit(self, submission, |device| &mut device.finished)
    }

    fn collect(&mut self, finished: &mut Vec<Finished>) -> Result<(), EngineError> {
        self.collect_queued()?;
        finished.append(&mut self.finished);
        Ok(())
    }

    /// False while calls are recorded with events: each call is then waited for.
    fn works_ahead(&self) -> bool {
        self.recorder.is_none() || self.tracer().is_some()
    }

    fn failure(&mut self) -> Option<EngineError> {
        self.failed.take().map(EngineError::Cuda)
    }

    fn draw_normal(&mut self, program: usize, values: &[ValueId], drawn: Drawn) -> bool {
        let mut places = (0, 0);
        let mut elements = 0;
        for &value in values {
            let operand = self.operand(program, value);
            elements = operand.ty.elements();
            match operand.ty.dtype {
                DType::Bf16 => places.1 = operand.at,
                _ => places.0 = operand.at,
            }
        }
        let drawn = self.draw(places.0, places.1, elements, drawn.seed, drawn.name_hash, drawn.spread);
        let waited = drawn.and_then(|()| self.stream.wait());
        self.note(waited);
        true
    }

    fn notes(&self) -> Vec<String> {
        let replays = self.submitted.iter().filter_map(Submitted::told);
        let wire = self.wire.iter().map(|wire| format!("collectives by NCCL {}", wire.version()));
        wire.chain(self.products.choices()).chain(self.attention_notes.iter().cloned()).chain(replays).collect()
    }

    fn recording_notes(&self) -> Vec<String> {
        Cuda::recording_notes(self)
    }
}
