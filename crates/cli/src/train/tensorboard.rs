//! Writes TensorBoard events during a run: scalars of every step and evaluation, added at each log interval.

use crate::profile::files::events_name;
use headroom_record::atomic::FileError;
use headroom_trace::write::tfevents::{write_scalars, write_start};
use headroom_training::profile::events_file::{EventsAbout, scalars};
use headroom_training::run::{CompletedStep, Evaluation};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

pub struct Events {
    path: PathBuf,
    out: BufWriter<File>,
    about: EventsAbout,
    /// The first failed write; reported at the end.
    error: Option<io::Error>,
}

impl Events {
    /// Creates a new file: TensorBoard reads all files of a folder.
    pub fn create(folder: &Path, host: &str, about: EventsAbout) -> Result<Events, FileError> {
        fs::create_dir_all(folder).map_err(FileError::new("make the folder", folder))?;
        let path = folder.join(events_name(now() as u64, host));
        let mut out = BufWriter::new(File::create(&path).map_err(FileError::new("write", &path))?);
        write_start(&mut out, now()).and_then(|()| out.flush()).map_err(FileError::new("write", &path))?;
        Ok(Events { path, out, about, error: None })
    }

    pub fn steps(&mut self, steps: &[CompletedStep]) {
        // They are reported together; each ended earlier by the time of those after it.
        let mut at = now() - steps.iter().map(|record| record.times.total.as_secs_f64()).sum::<f64>();
        for record in steps {
            at += record.times.total.as_secs_f64();
            let scalars = scalars(record, &self.about);
            self.write(at, record.step, &scalars);
        }
        self.flush();
    }

    pub fn evaluation(&mut self, evaluation: Evaluation) {
        self.write(now(), evaluation.step, &[("eval/loss", evaluation.loss)]);
        self.flush();
    }

    pub fn finish(self) -> Result<(), FileError> {
        self.error.map_or(Ok(()), |error| Err(FileError::new("write", &self.path)(error)))
    }

    fn write(&mut self, at: f64, step: u64, scalars: &[(&str, f32)]) {
        if self.error.is_none() {
            self.error = write_scalars(&mut self.out, at, step as i64, scalars).err();
        }
    }

    /// Flushes, so that concurrent readers see only whole records.
    fn flush(&mut self) {
        if self.error.is_none() {
            self.error = self.out.flush().err();
        }
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
