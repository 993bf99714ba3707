//! Runs the script in separate processes, shielded from the user's files, and reads what the hook recorded.

mod ended;
#[cfg(unix)]
mod stage;
mod time_limit;

#[cfg(unix)]
use crate::conductor::search::{Conducted, NotConducted, Switchable, conduct};
use crate::error::{ScriptError, cannot};
use crate::hook;
use crate::isolation::{Isolation, end_all, lead_a_group};
use crate::measurements::Measurements;
use crate::moment::{Count, Moment};
use crate::note::{Note, counting};
use crate::printed::{Capture, MOST_OUTPUT};
use crate::recording::read_notes;
use crate::variant::{Ran, Runner, Variant, Way};
use ended::{Ended, Place, Progress, read_all};
use headroom_record::atomic::FileError;
#[cfg(unix)]
use stage::ShieldedStage;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
pub use time_limit::TimeLimit;
use time_limit::limit;

/// Polling interval of a process.
const GLANCE: Duration = Duration::from_millis(20);

/// Time between two looks at how far a process got.
const BETWEEN_LINES: Duration = Duration::from_millis(500);

/// Time between the request to end and the kill.
const GRACE: Duration = Duration::from_secs(5);

/// The minimum seconds of timed steps in a process: its start takes longer than that, and a host's pace drifts within a
/// second.
const TIMED_SECONDS: &str = "2";

/// The most batches per loader whose digests a proof takes: those on both sides of an epoch's end.
const PROOF_BATCHES: &str = "64";

/// The number of steps, and the seed.
#[derive(Clone, Copy, Debug)]
pub struct Measuring {
    pub warmup: u32,
    pub timed: u32,
    pub seed: u64,
}

/// The command around the processes: what the user has asked for, and how it tells the user something.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// Whether to end at once.
    pub is_asked_to_end: &'a dyn Fn() -> bool,
    /// Whether to end the search, and prove what is kept.
    pub is_search_over: &'a dyn Fn() -> bool,
    pub tell: &'a dyn Fn(&str),
    /// Told what is being done, several times per second.
    pub show: &'a dyn Fn(&Moment),
}

pub struct Processes<'a> {
    command: Vec<OsString>,
    isolation: Isolation,
    measuring: Measuring,
    time: TimeLimit,
    surroundings: Surroundings<'a>,
    measurements: Measurements,
    /// Time of the slowest process of the unchanged script.
    own: Option<Duration>,
    /// Texts that replace the user's in a patched run, by path in the working folder.
    changed: Vec<(PathBuf, String)>,
    /// Whether the user was told that a file was changed.
    is_warned: bool,
    offered: bool,
    /// Whether processes go on when the search is over.
    is_proving: bool,
    moment: Moment,
}

impl<'a> Processes<'a> {
    pub fn new(
        command: Vec<OsString>,
        isolation: Isolation,
        measuring: Measuring,
        time: TimeLimit,
        (surroundings, measurements): (Surroundings<'a>, Measurements),
    ) -> Result<Processes<'a>, FileError> {
        hook::install(&isolation.hook())?;
        Ok(Processes {
            command,
            isolation,
            measuring,
            time,
            surroundings,
            measurements,
            own: None,
            changed: vec![],
            is_warned: false,
            offered: false,
            is_proving: false,
            moment: Moment::default(),
        })
    }

    /// Saves the measurements of a process. A failure is reported, and the run continues.
    fn keep(&mut self, place: &Place, variant: &Variant, way: Way) {
        if let Err(error) = self.measurements.keep(&place.notes(), variant, way) {
            (self.surroundings.tell)(&format!("a measurement was not saved: {error}"));
        }
    }

    fn seconds_until(&self, end: Instant) -> f64 {
        match self.is_asked_to_end() {
            true => 0.0,
            false => end.saturating_duration_since(Instant::now()).as_secs_f64(),
        }
    }

    /// Whether the user has asked the command to end.
    pub(crate) fn is_asked_to_end(&self) -> bool {
        (self.surroundings.is_asked_to_end)()
    }

    pub(crate) fn show(&self, moment: &Moment) {
        (self.surroundings.show)(moment);
    }

    /// States what holds for the user's files after the processes so far.
    pub fn claim(&self) -> String {
        self.isolation.claim()
    }

    /// Measures the unchanged script and records it into a folder, in one process. Returns the traces by rank, and the
    /// measurement.
    pub fn record_trace(&mut self, into: &Path) -> Result<(Vec<PathBuf>, Option<Note>), String> {
        let measuring = self.measuring;
        let (ended, place) = self.process(&Variant::as_it_is(), Way::Timed, f64::INFINITY, |command, place| {
            record_into(command, into, place);
            measure(command, place, measuring);
            // Leaves steps for the recording.
            command.env("HEADROOM_MEASURE_SECONDS", "0");
            command.env("HEADROOM_MEASURE_STOP", "0").env("HEADROOM_REMEDIES_OFFER", "1");
        })?;
        self.keep(&place, &Variant::as_it_is(), Way::Timed);
        let note = counting(read_all(&place.notes(), "measure."));
        if ended.is_well() && note.as_ref().is_none_or(|note: &Note| note.steps == 0) {
            // A second process would end in the same way.
            return Err(ended.words(&place));
        }
        let note = note.filter(Note::is_whole);
        self.offered = note.as_ref().is_some_and(|note| note.offered.is_some());
        if let Ok(traces) = traces_of(&ended, &place) {
            return Ok((traces, note.filter(|_| self.offered)));
        }
        if let Ended::TooLong(_) | Ended::TooSlow { .. } = ended {
            return Err(ended.words(&place));
        }
        // The script takes too few steps for both.
        let (ended, place) = self.process(&Variant::as_it_is(), Way::Timed, f64::INFINITY, |command, place| {
            record_into(command, into, place);
        })?;
        Ok((traces_of(&ended, &place)?, note.filter(|_| self.offered)))
    }

    /// One process, and the folder it ran in.
    fn process(
        &mut self,
        variant: &Variant,
        way: Way,
        within: f64,
        wanted: impl FnOnce(&mut Command, &Path),
    ) -> Result<(Ended, Place), String> {
        self.begun(variant, way, within, wanted).map_err(|error| error.words())
    }

    fn begun(
        &mut self,
        variant: &Variant,
        way: Way,
        within: f64,
        wanted: impl FnOnce(&mut Command, &Path),
    ) -> Result<(Ended, Place), ScriptError> {
        let mut running = self.start(variant, way, wanted)?;
        let limit = self.limit(within);
        let notes = running.place.notes();
        let moment = Moment { phase: phase(variant, way), remedies: variant.names(), ..self.moment.clone() };
        let of = self.measuring.warmup + self.measuring.timed;
        let (mut shown, mut first, mut pace) = (None::<Instant>, None::<Progress>, None);
        let status = self.wait_and(&mut running.child, running.began + limit, || {
            if shown.is_some_and(|last| last.elapsed() < BETWEEN_LINES) {
                return false;
            }
            shown = Some(Instant::now());
            let progress = Progress::in_folder(&notes);
            let done = u64::from(progress.steps()).min(of.into());
            let count = (done > 0).then(|| Count { unit: "step", done, of: of.into() });
            self.show(&Moment { count, ..moment.clone() });
            // Later processes are known to be fast enough.
            if self.own.is_none() && done > 0 {
                pace = progress.too_slow(first.get_or_insert(progress.clone()), of, limit);
            }
            pace.is_some()
        })?;
        let (ended, place) = self.ended(running, status, limit)?;
        let ended = match (ended, pace) {
            (Ended::TooLong(limit), Some(step_seconds)) => Ended::TooSlow { step_seconds, steps: of, limit },
            (ended, _) => ended,
        };
        Ok((ended, place))
    }

    /// Starts a process; `wanted` is given its command and the folder for its notes.
    pub(crate) fn start(
        &mut self,
        variant: &Variant,
        way: Way,
        wanted: impl FnOnce(&mut Command, &Path),
    ) -> Result<Running, ScriptError> {
        let changed = if way == Way::Patched { &self.changed[..] } else { &[] };
        let place = Place::made(self.isolation.place(changed)?)?;
        let mut command = self.isolation.command(&place.isolated, &self.command)?;
        let no_pipe = || cannot("make a pipe for the script's output");
        let (reader, writer) = std::io::pipe().map_err(no_pipe())?;
        command.stdin(Stdio::null()).stdout(writer.try_clone().map_err(no_pipe())?).stderr(writer);
        command.env("PYTHONPATH", self.python_path(&place)?);
        // Makes the order of string sets stable, and writes nothing beside the user's modules.
        command.env("PYTHONHASHSEED", "0").env("PYTHONDONTWRITEBYTECODE", "1");
        let shared = self.isolation.shared();
        for variable in ["TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"] {
            command.env(variable, shared.join("compiled").join(variable));
        }
        command.env("HEADROOM_BYTECODE", shared.join("bytecode"));
        command.env("HEADROOM_REMEDIES", variant.asked());
        wanted(&mut command, &place.notes());
        lead_a_group(&mut command);
        let began = Instant::now();
        let program = self.command[0].to_string_lossy().into_owned();
        let child = command.spawn().map_err(cannot(format!("start `{program}`")))?;
        let output = Capture::of(reader, MOST_OUTPUT);
        // Dropping the command closes the other end of the script's output.
        Ok(Running { child, place, output, began, program, variant: variant.clone(), way })
    }

    /// Ends a process now.
    pub(crate) fn stop(&self, mut running: Running) {
        let _ = self.wait(&mut running.child, Instant::now());
    }

    /// Takes in a process that has ended, or was ended after `limit` (without a status).
    pub(crate) fn ended(
        &mut self,
        running: Running,
        status: Option<ExitStatus>,
        limit: Duration,
    ) -> Result<(Ended, Place), ScriptError> {
        let Running { mut place, output, began, program, variant, way, .. } = running;
        let ended = match status {
            Some(status) => {
                let ended = place.isolated.ended(status);
                Ended::By(ended.map_err(|error| ScriptError::Program { program, source: Box::new(error) })?)
            }
            None if self.is_asked_to_end() || !self.is_proving && (self.surroundings.is_search_over)() => {
                Ended::Interrupted
            }
            None => Ended::TooLong(limit),
        };
        if !self.is_warned
            && let Some(warning) = self.isolation.warning()
        {
            self.is_warned = true;
            (self.surroundings.tell)(&warning);
        }
        if variant.is_empty() && way != Way::Conducted && matches!(ended, Ended::By(_)) {
            self.own = Some(self.own.unwrap_or_default().max(began.elapsed()));
        }
        // Where the script runs in a copy, its own folder is the one that the user knows.
        let printed = output.end(GRACE).text().replace(&format!("{}/", place.isolated.folder.display()), "");
        let is_failure = matches!(ended, Ended::By(status) if !status.success());
        place.printed =
            self.measurements.printed(&printed, is_failure.then_some((&variant, way)), self.surroundings.tell);
        Ok((ended, place))
    }

    /// The hook's folder first. Folders from the user's own variable are mapped into a copy if they are in the working
    /// folder.
    fn python_path(&self, place: &Place) -> Result<OsString, ScriptError> {
        let path = hook::python_path(&self.isolation.hook())?;
        let folders = std::env::split_paths(&path);
        let folders = folders.map(|folder| self.isolation.word(&place.isolated, folder.as_os_str()).into());
        hook::joined(folders.collect(), "a folder's name is not valid in PYTHONPATH")
    }

    fn limit(&self, within: f64) -> Duration {
        let until = |end: Instant| end.saturating_duration_since(Instant::now());
        limit(self.own, (until(self.time.ends), until(self.time.latest)), within)
    }

    /// Waits for the process; `None` if it was ended because it took too long or the user interrupted.
    pub(crate) fn wait(&self, child: &mut Child, until: Instant) -> Result<Option<ExitStatus>, ScriptError> {
        self.wait_and(child, until, || false)
    }

    /// The same, with something to do several times per second, which may end it.
    fn wait_and(
        &self,
        child: &mut Child,
        until: Instant,
        mut meanwhile: impl FnMut() -> bool,
    ) -> Result<Option<ExitStatus>, ScriptError> {
        // A process that was started after the request belongs to the proof.
        let is_search = !self.is_proving && !(self.surroundings.is_search_over)();
        loop {
            let is_refused = meanwhile();
            if let Some(status) = child.try_wait().map_err(cannot("wait for the script"))? {
                // Where no launcher has done so, ends everything that it left running.
                end_group(child);
                return Ok(Some(status));
            }
            let is_over = is_search && (self.surroundings.is_search_over)();
            if Instant::now() >= until || is_refused || is_over || self.is_asked_to_end() {
                // Launchers end their workers, which are in other sessions, when asked to.
                ask_group(child);
                let patience = Instant::now() + GRACE;
                while child.try_wait().map_err(cannot("wait for the script"))?.is_none() && Instant::now() < patience {
                    sleep(GLANCE);
                }
                end_all(child);
                end_group(child);
                return Ok(None);
            }
            sleep(GLANCE);
        }
    }
}

impl Runner for Processes<'_> {
    fn run(&mut self, variant: &Variant, way: Way, within: f64) -> Ran {
        let measuring = self.measuring;
        let offer = !std::mem::replace(&mut self.offered, true);
        let ran = self.process(variant, way, within, |command, notes| {
            measure(command, notes, measuring);
            command.env("HEADROOM_MEASURE_STOP", "1");
            if offer {
                command.env("HEADROOM_REMEDIES_OFFER", "1");
            }
            match way {
                Way::Timed | Way::Patched | Way::Conducted => {}
                Way::ComparableRandom => drop(command.env("HEADROOM_MEASURE_FALLBACK_RANDOM", "1")),
                Way::OtherLoading(number) => {
                    command.env("HEADROOM_MEASURE_SHIFT_LOADING", number.to_string());
                }
                Way::Moved(rounding, number) => {
                    command.env("HEADROOM_MEASURE_MOVE_WEIGHTS", rounding.share().to_string());
                    command.env("HEADROOM_MEASURE_MOVE_NUMBER", number.to_string());
                }
                Way::Proof { cuts_epochs } => {
                    let half = if cuts_epochs { (measuring.warmup + measuring.timed) / 2 } else { 0 };
                    command.env("HEADROOM_MEASURE_REREAD", "1").env("HEADROOM_MEASURE_CUT", half.to_string());
                    command.env("HEADROOM_MEASURE_SECONDS", "0").env("HEADROOM_MEASURE_BATCHES", PROOF_BATCHES);
                }
                Way::OtherDropout(number) => {
                    command.env("HEADROOM_MEASURE_OTHER_DROPOUT", number.to_string());
                }
            }
        });
        let (ended, place) = match ran {
            Ok(ran) => ran,
            Err(error) => return Ran::Failed(error),
        };
        match ended {
            Ended::TooLong(limit) => return Ran::TooLong(limit),
            Ended::Interrupted => return Ran::Interrupted,
            Ended::TooSlow { .. } => return Ran::Failed(ended.words(&place)),
            Ended::By(_) => {}
        }
        self.keep(&place, variant, way);
        let notes: Vec<Note> = read_all(&place.notes(), "measure.");
        match counting(notes).filter(|note| note.steps > 0 || ended.is_well()) {
            Some(note) => Ran::Measured(Box::new(note)),
            None => Ran::Failed(ended.words(&place)),
        }
    }

    #[cfg(unix)]
    fn conduct(
        &mut self,
        variant: &Variant,
        wanted: &[Switchable],
        reserve: f64,
    ) -> Option<Result<Conducted, NotConducted>> {
        let seed = self.measuring.seed;
        Some(conduct(&mut ShieldedStage::new(self, variant.clone(), reserve), wanted, seed))
    }

    fn seconds_left(&self) -> f64 {
        self.seconds_until(self.time.ends)
    }

    fn seconds_at_most(&self) -> f64 {
        self.seconds_until(self.time.latest)
    }

    fn is_over(&self) -> bool {
        (self.surroundings.is_search_over)()
    }

    fn set_proving(&mut self, is_proving: bool) {
        self.is_proving = is_proving;
    }

    fn set_best(&mut self, speed: f64) {
        self.moment.best = Some(speed);
    }

    fn patch_with(&mut self, files: Vec<(PathBuf, String)>) {
        self.changed = files;
    }
}

/// The phase of a process, for a person who waits.
fn phase(variant: &Variant, way: Way) -> &'static str {
    match way {
        Way::Patched => "proving the patch",
        Way::Timed | Way::Conducted if !variant.is_empty() => "trying",
        Way::Timed | Way::Conducted => "running the unchanged script",
        Way::ComparableRandom | Way::OtherLoading(_) | Way::Moved(..) | Way::OtherDropout(_) | Way::Proof { .. } => {
            "checking losses and batches"
        }
    }
}

fn record_into(command: &mut Command, into: &Path, notes: &Path) {
    command.env("HEADROOM_RECORD_FOLDER", into);
    command.env("HEADROOM_RECORD_NOTES", notes);
    command.env("HEADROOM_RECORD_STOP", "1");
}

fn measure(command: &mut Command, notes: &Path, measuring: Measuring) {
    command.env("HEADROOM_MEASURE_NOTES", notes);
    command.env("HEADROOM_MEASURE_WARMUP", measuring.warmup.to_string());
    command.env("HEADROOM_MEASURE_TIMED", measuring.timed.to_string());
    command.env("HEADROOM_MEASURE_SECONDS", TIMED_SECONDS);
    command.env("HEADROOM_MEASURE_SEED", measuring.seed.to_string());
}

/// The traces that a process left, or why there are none.
fn traces_of(ended: &Ended, place: &Place) -> Result<Vec<PathBuf>, String> {
    let notes = read_notes(&place.notes()).map_err(|error| error.to_string())?;
    let steps = notes.iter().map(|note| note.steps).max().unwrap_or(0);
    let mut traces: Vec<PathBuf> = notes.into_iter().filter_map(|note| note.trace).collect();
    traces.sort();
    traces.dedup();
    match (traces.is_empty(), steps) {
        (false, _) => Ok(traces),
        (true, 1..) if ended.is_well() => Err(format!("it ends after {steps} training steps, too few to record")),
        (true, _) => Err(ended.words(place)),
    }
}

/// A process that runs.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) place: Place,
    output: Capture,
    began: Instant,
    program: String,
    variant: Variant,
    way: Way,
}

#[cfg(unix)]
fn end_group(child: &Child) {
    signal_group(child, rustix::process::Signal::KILL);
}

#[cfg(unix)]
fn ask_group(child: &Child) {
    signal_group(child, rustix::process::Signal::TERM);
}

#[cfg(unix)]
fn signal_group(child: &Child, signal: rustix::process::Signal) {
    use rustix::process::{Pid, kill_process_group};
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, signal);
    }
}

#[cfg(not(unix))]
fn end_group(_child: &Child) {}

#[cfg(not(unix))]
fn ask_group(_child: &Child) {}
