//! Progress output of a run: a bar on a terminal, plain lines otherwise, JSON on stdout on request.

use super::attribution;
use super::checkpoints::Checkpoints;
use super::folder::RunFolder;
use super::heartbeat::Heartbeat;
use super::settings::Settings;
use super::tensorboard::Events;
use crate::output;
use crate::ranks::RankGroup;
use crate::shown::Stream;
use headroom_engine::machine::resident_bytes;
use headroom_record::atomic::FileError;
use headroom_record::progress::{EvaluationLine, ProgressLine};
use headroom_report::training::{StepLine, bar_message, step_line};
use headroom_training::checkpoint::CheckpointError;
use headroom_training::choices::Choices;
use headroom_training::guard::Spike;
use headroom_training::patience::{Counts, Patience, Verdict};
use headroom_training::run::{AfterEvaluation, CompletedStep, Evaluation, Observer};
use headroom_training::trainer::Trainer;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use std::io::stderr;

pub struct Progress<'a> {
    pub settings: &'a Settings,
    pub folder: &'a mut RunFolder,
    pub checkpoints: Option<&'a mut Checkpoints>,
    pub format: Stream,
    pub warmup_steps: u64,
    pub log_interval: u64,
    pub speed: Speed,
    pub bar: Bar,
    pub heartbeat: Option<Heartbeat>,
    pub events: Option<Events>,
    /// The evaluations so far, and the verdict on the newest.
    pub patience: Patience,
    pub verdict: Verdict,
    /// Nodes that the newest steps updated, in words, if steps choose.
    pub working_on: Option<String>,
    /// The first write error; reported at the end.
    pub output_error: Option<FileError>,
    /// Loss spikes, in words.
    pub spikes: Vec<String>,
    /// The other ranks, which wait while this one saves.
    pub company: Option<&'a RankGroup>,
}

impl Progress<'_> {
    pub fn finish(self) -> Result<(), FileError> {
        self.bar.0.finish_and_clear();
        let events = self.events.map_or(Ok(()), Events::finish);
        self.output_error.map_or(events, Err)
    }

    /// The run continues from an earlier step.
    pub fn rolled_back(&mut self, step: u64, factor: f64) {
        self.say(&format!("going back to the checkpoint of step {step}, with {factor} times the learning rate"));
    }

    /// Prints a line apart from the bar.
    pub fn say(&mut self, line: &str) {
        self.bar.0.suspend(|| output::note(line));
        self.folder.log(line);
    }

    fn object(&mut self, object: Value) {
        if self.format == Stream::Json && self.output_error.is_none() {
            self.output_error = self.bar.0.suspend(|| output::result(&format!("{object}\n"))).err();
        }
    }

    fn samples_per_step(&self) -> f64 {
        self.settings.samples_per_step() as f64
    }
}

impl Observer for Progress<'_> {
    fn stepped(&mut self, step: u64) {
        self.bar.0.set_position(step);
        if let Some(heartbeat) = &self.heartbeat {
            heartbeat.stepped(step);
        }
    }

    fn chose(&mut self, choices: &Choices) {
        self.working_on = choices.working_on(self.log_interval);
    }

    fn logged(&mut self, steps: &[CompletedStep]) {
        let Some(newest) = steps.last() else { return };
        let samples = self.samples_per_step();
        for record in steps {
            self.object(json!({
                "step": record.step,
                "loss": record.loss,
                "samples_per_sec": samples / record.times.total.as_secs_f64().max(1e-9),
                "learning_rate": record.learning_rate,
                "gradient_norm": record.gradient_norm,
            }));
        }
        let seconds: f64 = steps.iter().map(|record| record.times.total.as_secs_f64()).sum();
        let warm = self.settings.first_step + self.warmup_steps;
        self.speed.add(steps.iter().filter(|record| record.step > warm));
        let line = StepLine {
            step: newest.step,
            last: self.settings.last_step,
            loss: newest.loss.map(f64::from),
            seconds: seconds / steps.len() as f64,
            recent: samples * steps.len() as f64 / seconds.max(1e-9),
            overall: self.speed.steps_per_second().map(|speed| speed * samples),
        };
        self.folder.progress(&ProgressLine {
            step: line.step,
            loss: line.loss,
            seconds: line.seconds,
            samples_per_sec: line.recent,
            memory_mb: resident_bytes().map(|bytes| bytes as f64 / 1024.0 / 1024.0),
            gradient_norm: newest.gradient_norm.map(f64::from),
        });
        if let Some(events) = &mut self.events {
            events.steps(steps);
        }
        self.bar.0.set_message(bar_message(&line));
        let mark = if newest.recorded { " [PROFILING]" } else { "" };
        let working_on = self.working_on.as_ref().map_or(String::new(), |node| format!(", on {node}"));
        let text = step_line(&line) + &working_on + mark;
        if self.bar.0.is_hidden() {
            output::note(&text);
        }
        self.folder.log(&text);
    }

    fn evaluated(&mut self, evaluation: Evaluation) {
        self.object(json!({ "step": evaluation.step, "eval_loss": evaluation.loss }));
        self.folder.evaluation(&EvaluationLine { step: evaluation.step, eval_loss: evaluation.loss.into() });
        if let Some(events) = &mut self.events {
            events.evaluation(evaluation);
        }
        self.say(&format!("Evaluation after step {}: Loss = {:.4}", evaluation.step, evaluation.loss));
        // The evaluation at the end of a run is not a regular one: with more steps it would not have happened.
        let every = self.settings.eval_every.max(1);
        let counts = if evaluation.step.is_multiple_of(every) { Counts::Yes } else { Counts::No };
        self.verdict = self.patience.tell(evaluation.step, evaluation.loss, counts);
    }

    fn judge(&mut self, trainer: &mut Trainer) -> Result<AfterEvaluation, CheckpointError> {
        if let Some(company) = self.company.filter(|_| self.settings.keep_best && self.checkpoints.is_some()) {
            let better = self.verdict == Verdict::Better;
            company.better(Some(better)).map_err(|error| CheckpointError::Handover(error.into()))?;
        }
        match (self.verdict, self.patience.best) {
            (Verdict::Better, _) if self.settings.keep_best => {
                let Some(checkpoints) = &mut self.checkpoints else { return Ok(AfterEvaluation::Continue) };
                checkpoints.save_best(trainer, self.settings, &self.patience)?;
                if let Some(company) = self.company {
                    company.saved().map_err(|error| CheckpointError::Handover(error.into()))?;
                }
                let folder = checkpoints.best_folder();
                self.say(&format!("Best checkpoint so far, of step {}, saved to {}", trainer.step, folder.display()));
            }
            (Verdict::Enough, Some(best)) => {
                self.say(&format!(
                    "stopped early after {} evaluations without improvement: the best was {:.4} after step {}",
                    self.patience.since, best.loss, best.step
                ));
                return Ok(AfterEvaluation::Stop);
            }
            _ => {}
        }
        Ok(AfterEvaluation::Continue)
    }

    fn diverged(&mut self, spike: &Spike) {
        self.spikes.push(spike.to_string());
        self.object(json!({ "step": spike.step, "spike": { "loss": spike.loss, "least": spike.least } }));
        self.say(&format!(
            "warning: {spike}\n  help: a lower --learning-rate, --lr-warmup-steps, --clip 1, or --on-spike go-back"
        ));
    }

    fn save(&mut self, trainer: &mut Trainer) -> Result<(), CheckpointError> {
        let Some(checkpoints) = &mut self.checkpoints else { return Ok(()) };
        if let Some(company) = self.company {
            company.same_weights(trainer)?;
        }
        checkpoints.save(trainer, self.settings, &self.patience)?;
        attribution::write(trainer, self.settings, &self.folder.path)?;
        if let Some(company) = self.company {
            company.saved().map_err(|error| CheckpointError::Handover(error.into()))?;
        }
        let line = format!("Checkpoint of step {} saved to {}", trainer.step, checkpoints.folder.display());
        self.say(&line);
        Ok(())
    }
}

/// Steps and seconds since the end of warm-up.
#[derive(Default)]
pub struct Speed {
    steps: u64,
    seconds: f64,
}

impl Speed {
    fn add<'a>(&mut self, records: impl Iterator<Item = &'a CompletedStep>) {
        for record in records {
            self.steps += 1;
            self.seconds += record.times.total.as_secs_f64();
        }
    }

    fn steps_per_second(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.steps as f64 / self.seconds)
    }
}

/// The progress bar, hidden unless stderr is a terminal.
pub struct Bar(pub ProgressBar);

impl Bar {
    pub fn new(first: u64, last: u64) -> Bar {
        let bar = ProgressBar::with_draw_target(Some(last), ProgressDrawTarget::hidden());
        if output::is_seen(&stderr()) {
            let style = ProgressStyle::with_template("{pos}/{len} {bar:24} {msg} · {eta} left");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸ "));
            bar.set_message("loss and speed follow at the first log interval");
            bar.set_position(first);
            // The steps before a resume took none of this run's time.
            bar.reset_eta();
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        Bar(bar)
    }
}
