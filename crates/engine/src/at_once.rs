//! Runs a submission on a synchronous device: inputs, forward pass, loss, backward pass, update.

use crate::device::{Device, Finished, Moments, Submission, Taken, Words};

/// Runs a submission and keeps its result for `collect`. A submission that is given up also discards the uncollected
/// ones before it: they are micro-steps of the same abandoned step.
pub fn submit<D: Device>(
    device: &mut D,
    submission: &Submission,
    finished: impl Fn(&mut D) -> &mut Vec<Finished>,
) -> Taken {
    let (taken, done) = take(device, submission);
    match done {
        Some(done) => finished(device).push(done),
        None => finished(device).clear(),
    }
    taken
}

fn take(device: &mut dyn Device, submission: &Submission) -> (Taken, Option<Finished>) {
    let Submission { program, calls, results, marks, .. } = submission;
    let [backward, update] = marks.map(|mark| mark.clamp(calls.start, calls.end));
    let began = device.clock();
    for (value, words) in submission.inputs {
        match words {
            Words::Ids(ids) => device.write_i32(*program, *value, 0, ids),
            Words::Floats(floats) => device.write_f32(*program, *value, 0, floats),
        }
    }
    let written = device.clock();
    let run = |device: &mut dyn Device, calls| match submission.give_up {
        Some(give_up) => device.run_unless(*program, calls, give_up),
        None => {
            device.run(*program, calls);
            true
        }
    };
    if !run(device, calls.start..backward) {
        return (Taken::GivenUp, None);
    }
    let forward = device.clock();
    let mut first = [0.0; 2];
    let mut read = |device: &mut dyn Device, which: usize| {
        if let Some(value) = results.get(which) {
            device.read_f32(*program, *value, 0, &mut first[which..=which]);
        }
        first[which]
    };
    let loss = read(device, 0);
    if device.computes() && !loss.is_finite() {
        return (Taken::NotFinite, None);
    }
    let after_loss = device.clock();
    if !run(device, backward..update) {
        return (Taken::GivenUp, None);
    }
    let after_backward = device.clock();
    // Stopping in the middle of the update would leave weights from two different steps.
    device.run(*program, update..calls.end);
    let end = device.clock();
    let second = read(device, 1);
    let moments = Moments { began, written, forward, read: after_loss, backward: after_backward, end };
    let phases = [forward - written, after_backward - after_loss, end - after_backward].map(|one| one.as_secs_f64());
    let (seconds, inputs) = ((end - began).as_secs_f64(), (written - began).as_secs_f64());
    (Taken::Whole(moments), Some(Finished { results: [loss, second], seconds, inputs, phases: Some(phases) }))
}
