//! Where a run begins in its data: at the first sample, or where the resumed run stopped.

use super::data::{Wanted, part_without};
use super::resumed::Resumed;
use headroom_training::checkpoint::Checkpoint;
use headroom_training::data::{DEFAULT_TEXT_COLUMN, Part, Source, is_same_data, percent};

pub struct Position {
    /// Index of the first sample to read.
    pub first_sample: u64,
    /// The share that was held out when the data began: it decides the order of samples until the data begins anew.
    pub held_out_at_start: f64,
    /// A line for the user about what differs from the resumed run.
    pub note: Option<String>,
}

impl Position {
    /// The position in a source that was opened for this run.
    pub fn of(
        resume: Option<&Checkpoint>,
        before: &Resumed,
        wanted: &Wanted,
        source: &Source,
    ) -> anyhow::Result<Position> {
        let anew = |note| Position { first_sample: 0, held_out_at_start: wanted.held_out, note };
        let Some(checkpoint) = resume else { return Ok(anew(None)) };
        if let Some(difference) = difference(&checkpoint.state()?.data, before, wanted, source) {
            return Ok(anew(Some(format!("note: {difference}; the data begins anew, with its first sample"))));
        }
        let held_out_at_start = before.held_out_at_start.or(before.held_out).unwrap_or(0.0);
        Ok(Position {
            first_sample: checkpoint.next_sample()?,
            held_out_at_start,
            note: held_out_note(held_out_at_start, before.held_out.unwrap_or(0.0), wanted.held_out),
        })
    }

    /// The part whose order the samples have, if it is not the part that is read.
    pub fn order_of(&self, wanted: &Wanted) -> Option<Part> {
        (self.held_out_at_start != wanted.held_out).then(|| part_without(self.held_out_at_start))
    }
}

/// The reason why this run's samples are other ones than those of the checkpoint.
fn difference(then: &str, before: &Resumed, wanted: &Wanted, source: &Source) -> Option<String> {
    if !is_same_data(then, &source.description()) {
        return Some(format!("the checkpoint was trained on other data ({then})"));
    }
    let seq_len = source.shape().seq_len;
    if let Some(other) = before.seq_len.filter(|other| *other != seq_len) {
        return Some(format!("the checkpoint was trained on sequences of {other} tokens, and these have {seq_len}"));
    }
    let [then, now] =
        [&before.text_column, &wanted.text_column].map(|column| column.as_deref().unwrap_or(DEFAULT_TEXT_COLUMN));
    (then != now).then(|| format!("the checkpoint was trained on column {then}, and this is {now}"))
}

/// Says what another held-out share means for the samples of training and evaluation.
fn held_out_note(at_start: f64, before: f64, now: f64) -> Option<String> {
    let (began, holds) = (percent(at_start), percent(now));
    let order = "samples stay in their order";
    if now == before {
        None
    } else if now > at_start {
        Some(format!(
            "note: {holds} of the data is held out now, and the run began with {began}: {order}, without those now held out, some of \
             which it has trained on"
        ))
    } else if now < at_start {
        Some(format!(
            "note: {holds} of the data is held out now, and the run began with {began}: {order}, and training does not read what \
             lies between; --init-from begins anew with it"
        ))
    } else {
        Some(format!("note: {holds} of the data is held out again, as the run began: {order}"))
    }
}
