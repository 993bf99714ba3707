//! The step times of a study: once every run has ended, models of this process take turns.

use super::plan::plan_run;
use super::rates::room;
use super::state::Study;
use crate::output;
use crate::train::start::opening;
use headroom_experiments::bench::Setting;
use headroom_experiments::step_times::{Candidate, Ended, StepTimes, time_in_turns};
use headroom_record::statistics::Interval;
use headroom_record::study::StudyStatus;
use std::sync::atomic::AtomicBool;

pub enum Turns {
    Taken(RowTimes),
    /// Nothing to time: every run keeps the time that it took by itself.
    NotTaken,
    Stopped,
}

/// Times by the study's rows.
pub struct RowTimes {
    times: StepTimes,
    rows: Vec<usize>,
}

impl RowTimes {
    /// Step time of a row divided by another's, paired over the rounds that both were in.
    pub fn ratio(&self, of: usize, over: usize) -> Option<Interval> {
        let place = |row: usize| self.rows.iter().position(|known| *known == row);
        self.times.ratio(place(of)?, place(over)?)
    }
}

/// Times all finished runs and writes the figures into their rows.
pub fn take_turns(study: &mut Study, stop: &AtomicBool) -> anyhow::Result<Turns> {
    let request = study.record.request.clone();
    let (mut rows, mut candidates, mut settings) = (vec![], vec![], None);
    for (index, row) in study.record.runs.iter().enumerate() {
        if row.status != StudyStatus::Finished || row.planned.steps_per_turn == 0 {
            continue;
        }
        let planned = plan_run(&request, row, study.rates)?;
        let (name, per_turn) = (format!("{} {}", row.size, row.version), row.planned.steps_per_turn);
        candidates.push(Candidate { name, step: planned.step, per_turn });
        rows.push(index);
        settings = Some(planned.settings);
    }
    let Some(settings) = settings else { return Ok(Turns::NotTaken) };
    let setting = Setting { seed: settings.seed, device: settings.device, opening: opening(settings.threads) };
    let times = match time_in_turns(&candidates, &setting, room(&settings), stop, &mut |line| output::note(line)) {
        Ok(times) => times,
        Err(Ended::Stopped) => return Ok(Turns::Stopped),
        Err(Ended::Failed(error)) => {
            output::note(&format!(
                "note: every run keeps the time that it took by itself, since turns failed: {error}"
            ));
            return Ok(Turns::NotTaken);
        }
    };
    let peak = study.rates.product_flops;
    for (place, index) in rows.iter().enumerate() {
        let Some(step) = times.seconds(place) else { continue };
        let row = &mut study.record.runs[*index];
        let (samples, tokens) = (row.planned.batch_size as f64, row.planned.seq_len as f64);
        row.measured.set_step(step, samples, tokens, 100.0 * row.planned.flops_per_step / peak);
    }
    study.record.race = times.races();
    Ok(Turns::Taken(RowTimes { times, rows }))
}
