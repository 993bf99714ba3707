//! The run's scalars per step, for TensorBoard.

use crate::run::CompletedStep;
use headroom_trace::write::tfevents::{write_scalars, write_start};
use std::io::{self, Write};

/// Facts shared by all steps of a run.
pub struct EventsAbout {
    /// Seconds since 1970 at which the first step began.
    pub started: f64,
    pub samples_per_step: usize,
    pub seq_len: usize,
    /// Peak live memory and reserved memory, in MiB.
    pub peak_memory_mb: f64,
    pub reserved_memory_mb: f64,
}

/// Omits the loss and the gradient norm if the run does not compute them.
pub fn write_events(steps: &[CompletedStep], about: &EventsAbout, out: &mut dyn Write) -> io::Result<()> {
    write_start(out, about.started)?;
    let mut now = about.started;
    for record in steps {
        now += record.times.total.as_secs_f64();
        write_scalars(out, now, record.step as i64, &scalars(record, about))?;
    }
    out.flush()
}

/// The values of a step, each with its tag.
pub fn scalars(record: &CompletedStep, about: &EventsAbout) -> Vec<(&'static str, f32)> {
    let seconds = record.times.total.as_secs_f64();
    let speed = about.samples_per_step as f64 / seconds.max(1e-9);
    let mut scalars = vec![
        ("train/learning_rate", record.learning_rate as f32),
        ("speed/samples_per_sec", speed as f32),
        ("speed/tokens_per_sec", (speed * about.seq_len as f64) as f32),
        ("speed/step_seconds", seconds as f32),
        ("memory/peak_mb", about.peak_memory_mb as f32),
        ("memory/reserved_mb", about.reserved_memory_mb as f32),
    ];
    scalars.extend(record.loss.map(|loss| ("train/loss", loss)));
    scalars.extend(record.gradient_norm.map(|norm| ("train/gradient_norm", norm)));
    scalars
}
