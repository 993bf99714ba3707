//! What a run says while it goes on: a bar on a terminal, plain lines otherwise, JSON on stdout where asked.

use super::folder::RunFolder;
use headroom_report::training::{StepLine, step_line};
use headroom_training::checkpoint::{CheckpointError, Saver};
use headroom_training::persist::{self, Notes};
use headroom_training::run::{Evaluation, Observer, StepRecord};
use headroom_training::trainer::Trainer;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use std::io::{IsTerminal, Write, stderr, stdout};

pub struct Show<'a> {
    pub folder: Option<&'a mut RunFolder>,
    pub saving: Option<Saving<'a>>,
    pub json: bool,
    pub last: u64,
    pub samples_a_step: usize,
    pub warmup_steps: u64,
    bar: ProgressBar,
    first_step: Option<u64>,
    measured: (u64, f64),
}

pub struct Saving<'a> {
    pub saver: &'a mut Saver,
    pub notes: Notes<'a>,
    pub shown: String,
}

impl<'a> Show<'a> {
    pub fn new(
        folder: Option<&'a mut RunFolder>,
        saving: Option<Saving<'a>>,
        json: bool,
        (done, last): (u64, u64),
        samples_a_step: usize,
        warmup_steps: u64,
    ) -> Show<'a> {
        let bar = ProgressBar::with_draw_target(Some(last), ProgressDrawTarget::hidden());
        if stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            let template = "{bar:24} {pos}/{len} · {msg} · {elapsed} of {duration}";
            bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_position(done);
        }
        Show { folder, saving, json, last, samples_a_step, warmup_steps, bar, first_step: None, measured: (0, 0.0) }
    }

    #[expect(clippy::print_stderr, reason = "progress goes to standard error")]
    fn say(&mut self, line: &str) {
        if self.bar.is_hidden() {
            eprintln!("{line}");
        } else {
            self.bar.println(line);
        }
        if let Some(folder) = &mut self.folder {
            folder.log(line);
        }
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Samples a second since the end of warm-up.
    fn overall(&mut self, steps: &[StepRecord]) -> Option<f64> {
        let first = *self.first_step.get_or_insert(steps[0].step);
        for record in steps.iter().filter(|record| record.step >= first + self.warmup_steps) {
            self.measured.0 += self.samples_a_step as u64;
            self.measured.1 += record.times.total.as_secs_f64();
        }
        (self.measured.1 > 0.0).then(|| self.measured.0 as f64 / self.measured.1)
    }
}

impl Observer for Show<'_> {
    fn logged(&mut self, steps: &[StepRecord]) {
        let Some(newest) = steps.last() else { return };
        if self.json {
            let mut out = stdout().lock();
            for record in steps {
                let speed = self.samples_a_step as f64 / record.times.total.as_secs_f64().max(1e-9);
                let line = json!({ "step": record.step, "loss": record.loss, "samples_per_sec": speed,
                    "learning_rate": record.learning_rate, "gradient_norm": record.gradient_norm });
                // A reader that went away ends the output, not the training.
                let _ = writeln!(out, "{line}");
            }
            let _ = out.flush();
        }
        let seconds: f64 = steps.iter().map(|record| record.times.total.as_secs_f64()).sum();
        let recent = (steps.len() * self.samples_a_step) as f64 / seconds.max(1e-9);
        let overall = self.overall(steps);
        let line = StepLine {
            step: newest.step,
            last: self.last,
            loss: newest.loss.map(f64::from),
            seconds: seconds / steps.len() as f64,
            recent,
            overall,
        };
        let loss = line.loss.map_or("loss not computed".into(), |loss| format!("loss {loss:.4}"));
        self.bar.set_message(format!("{loss} · {recent:.1} samples/s"));
        self.bar.set_position(newest.step);
        self.say(&step_line(&line));
    }

    fn evaluated(&mut self, evaluation: Evaluation) {
        if self.json {
            let mut out = stdout().lock();
            let _ = writeln!(out, "{}", json!({ "step": evaluation.step, "eval_loss": evaluation.loss }));
            let _ = out.flush();
        }
        self.say(&format!("Evaluation after step {}: Loss = {:.4}", evaluation.step, evaluation.loss));
    }

    fn save(&mut self, trainer: &mut Trainer) -> Result<(), CheckpointError> {
        let Some(saving) = &mut self.saving else { return Ok(()) };
        persist::save(trainer, saving.saver, &saving.notes)?;
        let line = format!("Checkpoint of step {} saved to {}", trainer.step, saving.shown);
        self.say(&line);
        Ok(())
    }
}
