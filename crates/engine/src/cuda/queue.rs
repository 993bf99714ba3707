//! Asynchronous steps: inputs go through a ring of pinned memory, results come back through another, and the calls
//! between them are captured once and replayed.

use super::activity::Pushed;
use super::driver::{Event, Memory, Pinned, Replay};
use super::launch::Arguments;
use super::lower::Grid;
use super::pieces::Pieces;
use super::replay_modes::{Beside, Launches, REPLAY_MODES, ReplayMode, Streams, Trial, UPDATES_BESIDE};
use super::tracing::Noted;
use super::{Cuda, CudaError, FirstUses};
use crate::device::{EngineError, Finished, Submission, Walk, Words};
use crate::recorder::CallId;
use headroom_graph::ValueId;
use std::ops::Range;

/// Steps that may be in flight at a time: inputs are kept for this many.
const SLOTS: usize = 8;

/// Number of steps whose results are kept until they are collected.
const PLACES: usize = 1024;

/// How a step is queued.
#[derive(Clone, Copy, Debug)]
struct How {
    /// Whether the time is taken at the phase boundaries.
    timed: bool,
    /// Whether it is being captured for replay.
    captured: bool,
    mode: ReplayMode,
}

impl How {
    /// A captured step leaves first uses out: a step ran before it, so the scales are known.
    fn first_uses(self) -> FirstUses {
        if self.captured { FirstUses::LeftOut } else { FirstUses::Run }
    }
}

/// One kind of submission: the same calls of the same program.
pub struct Submitted {
    program: usize,
    calls: Range<usize>,
    inputs: Vec<ValueId>,
    results: [Option<ValueId>; 2],
    /// Number of submissions queued, and number of those collected.
    queued: usize,
    collected: usize,
    /// One replay per mode, without and with times at the phase boundaries.
    replays: [Option<Captured>; VARIANTS],
    trial: Trial,
    marks: Option<[usize; 2]>,
    boundaries: [Event; 4],
    start: Event,
    /// The end event of each step, by its place in the ring.
    ends: Vec<Event>,
    /// Number of words of each input, in order.
    words: Vec<usize>,
    ring: Pinned,
    results_ring: Pinned,
    count: Memory,
    table: Memory,
}

/// Number of ways in which a step may be captured.
const VARIANTS: usize = 2 * REPLAY_MODES.len();

/// A step that is ready to replay, and the call that each of its nodes belongs to.
struct Captured {
    replay: Replay,
    nodes: Vec<Option<CallId>>,
}

impl Submitted {
    /// The call of each node, for every replay; empty for a replay that was not captured.
    pub fn replay_nodes(&self) -> impl Iterator<Item = Vec<Option<CallId>>> {
        self.replays.iter().map(|replay| replay.as_ref().map_or(vec![], |captured| captured.nodes.clone()))
    }

    /// How fast each replay mode was, once some were tried.
    pub fn told(&self) -> Option<String> {
        self.trial.told()
    }

    fn slot_words(&self) -> usize {
        self.words.iter().sum()
    }

    /// Seconds of forward, backward and update in the first step since the last collection; `None` if it has no update.
    fn phases(&self) -> Result<Option<[f64; 3]>, CudaError> {
        let Some([_, update]) = self.marks else { return Ok(None) };
        if !self.calls.contains(&update) {
            return Ok(None);
        }
        let [start, forward, backward, end] = &self.boundaries;
        Ok(Some([forward.seconds_since(start)?, backward.seconds_since(forward)?, end.seconds_since(backward)?]))
    }

    fn seconds(&self, step: usize) -> Result<f64, CudaError> {
        let end = &self.ends[step % PLACES];
        let before = if step == self.collected { &self.start } else { &self.ends[(step - 1) % PLACES] };
        end.seconds_since(before)
    }
}

impl Cuda {
    pub(super) fn queue(&mut self, submission: &Submission) {
        if self.failed.is_none() {
            self.rest_tracing();
            let submitted = self.try_submit(submission);
            self.note(submitted);
        }
    }

    /// Waits for all queued work.
    pub(super) fn collect_queued(&mut self) -> Result<(), EngineError> {
        if let Some(error) = self.failed.take() {
            return Err(error.into());
        }
        Ok(self.collect_all()?)
    }

    pub(super) fn collect_all(&mut self) -> Result<(), CudaError> {
        (0..self.submitted.len()).try_for_each(|index| self.collect_from(index))
    }

    fn try_submit(&mut self, submission: &Submission) -> Result<(), CudaError> {
        let Submission { program, inputs, calls, .. } = submission;
        let known = self.submitted.iter().position(|one| one.program == *program && one.calls == *calls);
        let index = match known {
            Some(index) => index,
            None => {
                let made = self.first_of(submission)?;
                self.submitted.push(made);
                self.submitted.len() - 1
            }
        };
        // Results stay in order across kinds of submission: those of other kinds are collected first.
        for other in (0..self.submitted.len()).filter(|&other| other != index) {
            self.collect_from(other)?;
        }
        if self.submitted[index].queued - self.submitted[index].collected == PLACES {
            self.collect_from(index)?;
        }
        let one = &mut self.submitted[index];
        let step = one.queued;
        if step >= one.collected + SLOTS {
            let end = &one.ends[(step - SLOTS) % PLACES];
            match &self.wire {
                Some(wire) => wire.patiently(|| end.wait())?,
                None => end.wait()?,
            }
        }
        let mut place = step % SLOTS * one.slot_words();
        for ((_, data), words) in inputs.iter().zip(&one.words) {
            let bits: Vec<u32> = match data {
                Words::Ids(ids) => ids.iter().map(|id| *id as u32).collect(),
                Words::Floats(floats) => floats.iter().map(|x| x.to_bits()).collect(),
            };
            one.ring.write(place, &bits[..*words]);
            place += words;
        }
        if step == one.collected {
            one.start.record(&self.stream)?;
        }
        // The first step runs call by call: libraries initialise themselves on first use, and that cannot be captured.
        let timed = step == self.submitted[index].collected && self.submitted[index].marks.is_some();
        if self.walk == Walk::CallByCall || step == 0 {
            let mut noted = self.tracer().map_or(Noted::Nothing, Noted::Launches);
            self.queue_step(index, How { timed, captured: false, mode: REPLAY_MODES[0] }, &mut noted)?;
        } else {
            let which = self.captured_as(index, timed, step)?;
            let tracer = self.tracer();
            tracer.iter().for_each(|tracer| tracer.push(Pushed::Replay(VARIANTS * index + which)));
            if let Some(captured) = &self.submitted[index].replays[which] {
                captured.replay.launch(&self.stream)?;
            }
            tracer.iter().for_each(|tracer| tracer.pop());
        }
        let one = &mut self.submitted[index];
        one.ends[step % PLACES].record(&self.stream)?;
        one.queued += 1;
        Ok(())
    }

    /// The index of the replay that runs a step; captures it if necessary.
    fn captured_as(&mut self, index: usize, timed: bool, step: usize) -> Result<usize, CudaError> {
        let mode = self.submitted[index].trial.at(step);
        let mode = if self.recorder.is_some() { mode.recorded() } else { mode };
        let which = usize::from(timed) + 2 * mode.index();
        if self.submitted[index].replays[which].is_none() {
            let how = How { timed, captured: true, mode };
            let mut nodes = vec![];
            let queue = || self.queue_step(index, how, &mut Noted::Nodes(&mut nodes));
            match self.stream.captured(queue) {
                Ok(replay) => self.submitted[index].replays[which] = Some(Captured { replay, nodes }),
                Err(_) if mode.launches == Launches::Early => {
                    self.submitted[index].trial.refuse_early();
                    return self.captured_as(index, timed, step);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(which)
    }

    fn first_of(&self, submission: &Submission) -> Result<Submitted, CudaError> {
        let Submission { program, inputs, calls, results, marks, timed, .. } = submission.clone();
        let length = |data: &Words| match data {
            Words::Ids(ids) => ids.len(),
            Words::Floats(floats) => floats.len(),
        };
        let words: Vec<usize> = inputs.iter().map(|(_, data)| length(data)).collect();
        let mut table = vec![];
        let mut from = 0;
        for ((value, _), words) in inputs.iter().zip(&words) {
            table.extend(self.operand(program, *value).at.to_le_bytes());
            table.extend((from as u32).to_le_bytes());
            table.extend((*words as u32).to_le_bytes());
            from += words;
        }
        Ok(Submitted {
            program,
            calls,
            inputs: inputs.iter().map(|(value, _)| *value).collect(),
            results: [results.first().copied(), results.get(1).copied()],
            queued: 0,
            collected: 0,
            replays: Default::default(),
            trial: Trial::of(self.context.capability),
            marks: timed.then_some(marks),
            boundaries: [Event::timed()?, Event::timed()?, Event::timed()?, Event::timed()?],
            start: Event::timed()?,
            ends: (0..PLACES).map(|_| Event::timed()).collect::<Result<_, _>>()?,
            ring: Pinned::new(SLOTS * from)?,
            results_ring: Pinned::new(PLACES * 2)?,
            count: Memory::of(&self.context, &[0; 4])?,
            table: Memory::of(&self.context, &table)?,
            words,
        })
    }

    fn queue_step(&self, index: usize, how: How, noted: &mut Noted) -> Result<(), CudaError> {
        let allow = |early: bool| [&self.stream, &self.side].iter().for_each(|stream| stream.allow_early(early));
        allow(how.captured && how.mode.launches == Launches::Early);
        let queued = self.queue_calls(index, how, noted);
        allow(false);
        queued
    }

    fn queue_calls(&self, index: usize, how: How, noted: &mut Noted) -> Result<(), CudaError> {
        let one = &self.submitted[index];
        let boundary = |which: usize| match (how.timed, how.captured) {
            (false, _) => Ok(()),
            (true, false) => one.boundaries[which].record(&self.stream),
            (true, true) => one.boundaries[which].record_from_a_graph(&self.stream),
        };
        let mut beside = Beside::new(&self.stream, &self.side);
        let is_whole = |pieces: &&Pieces| one.calls.contains(&pieces.call) && one.calls.start == 0;
        let pieces = self.programs[one.program].pieces.as_ref().filter(|_| how.mode == UPDATES_BESIDE).filter(is_whole);
        boundary(0)?;
        noted.around(None, &self.stream, || self.take_inputs(index))?;
        for number in one.calls.clone() {
            if let Some(mark) = one.marks.and_then(|marks| marks.iter().position(|mark| *mark == number)) {
                boundary(1 + mark)?;
            }
            if pieces.is_some_and(|pieces| pieces.call == number) {
                continue;
            }
            let call = &self.programs[one.program].calls[number];
            let aside = how.mode.streams == Streams::Two && call.beside;
            match aside {
                true => beside.begin()?,
                false => beside.wait_for(call)?,
            }
            let (stream, workspace) = if aside { (&self.side, 1) } else { (&self.stream, 0) };
            let id = CallId { program: one.program as u32, call: number as u32 };
            noted.around(Some(id), &self.stream, || {
                self.run_call(one.program, number, (stream, workspace), how.first_uses())
            })?;
            if aside {
                beside.end(call)?;
            }
            for (update, piece) in pieces.iter().flat_map(|all| all.pieces.iter().map(|piece| (all.call, piece))) {
                if piece.after != number {
                    continue;
                }
                beside.begin()?;
                let id = CallId { program: one.program as u32, call: update as u32 };
                noted.around(Some(id), &self.stream, || {
                    piece.work.actions.iter().try_for_each(|action| action.run(&self.side, 1, &self.products))
                })?;
                beside.end(&piece.work)?;
            }
        }
        beside.wait_for_all()?;
        noted.around(None, &self.stream, || self.give_results(index))?;
        boundary(3)
    }

    fn take_inputs(&self, index: usize) -> Result<(), CudaError> {
        let one = &self.submitted[index];
        let longest = one.words.iter().max().copied().unwrap_or(1);
        let arguments = Arguments::default()
            .pointer(one.table.at)
            .pointer(one.ring.device())
            .pointer(one.count.at)
            .u32(SLOTS)
            .u32(one.slot_words());
        let grid = Grid::of([longest.div_ceil(256).clamp(1, 16), one.inputs.len(), 1], [256, 1, 1]);
        self.own_kernel(self.exchange.take_inputs, "take_inputs", grid, arguments)
    }

    fn give_results(&self, index: usize) -> Result<(), CudaError> {
        let one = &self.submitted[index];
        let place = |value: Option<ValueId>| value.map_or(0, |value| self.operand(one.program, value).at);
        let arguments = Arguments::default()
            .pointer(place(one.results[0]))
            .pointer(place(one.results[1]))
            .pointer(one.results_ring.device())
            .pointer(one.count.at)
            .u32(PLACES);
        self.own_kernel(self.exchange.give_results, "give_results", Grid::new(1, 1), arguments)
    }

    fn collect_from(&mut self, index: usize) -> Result<(), CudaError> {
        let one = &self.submitted[index];
        if one.queued == one.collected {
            return Ok(());
        }
        match &self.wire {
            // With other ranks, the wait goes step by step.
            Some(wire) => (one.queued.saturating_sub(SLOTS).max(one.collected)..one.queued)
                .try_for_each(|step| wire.patiently(|| one.ends[step % PLACES].wait()))?,
            None => one.ends[(one.queued - 1) % PLACES].wait()?,
        }
        let mut trial = one.trial.clone();
        for step in one.collected..one.queued {
            if self.recorder.is_none() {
                trial.took(step, one.seconds(step)?);
            }
            let word = |which: usize| f32::from_bits(one.results_ring.read(step % PLACES * 2 + which));
            let phases = if step == one.collected { one.phases()? } else { None };
            let results = [word(0), word(1)];
            self.finished.push(Finished { results, seconds: one.seconds(step)?, inputs: 0.0, phases });
        }
        self.submitted[index].trial = trial;
        self.submitted[index].collected = self.submitted[index].queued;
        Ok(())
    }
}
