//! A conducted script in a shielded process: the socket lies in the process's folder.

use super::{Processes, Running};
use crate::conductor::line::{Line, Listener, Received};
use crate::conductor::messages::{Hello, Order, Report};
use crate::conductor::{Lost, Stage};
use crate::moment::Moment;
use crate::variant::{Runner, Variant, Way};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Interval between looks at a process that has not connected.
const GLANCE: Duration = Duration::from_millis(20);

/// Time for a process to end by itself once it was told to.
const ENDING: Duration = Duration::from_secs(5);

/// Processes of a script that take orders, one after the other.
pub struct ShieldedStage<'a, 'b> {
    processes: &'a mut Processes<'b>,
    /// Remedies that act when the script starts.
    variant: Variant,
    /// Seconds of the command's time that are left to others.
    reserve: f64,
    now: Option<(Running, Line)>,
    /// Whether a process has taken orders.
    has_begun: bool,
}

impl<'a, 'b> ShieldedStage<'a, 'b> {
    pub fn new(processes: &'a mut Processes<'b>, variant: Variant, reserve: f64) -> ShieldedStage<'a, 'b> {
        ShieldedStage { processes, variant, reserve, now: None, has_begun: false }
    }

    fn begin(&mut self) -> Result<(Running, Line), Lost> {
        let failed = |error: std::io::Error| Lost::Failed(format!("cannot talk to the script: {error}"));
        let mut listener = None;
        let mut refused = None;
        let running =
            self.processes.start(&self.variant, Way::Conducted, |command, notes| match Listener::in_folder(notes) {
                Ok(made) => {
                    command.env("HEADROOM_CONDUCTOR", &made.path);
                    listener = Some(made);
                }
                Err(error) => refused = Some(error),
            });
        let mut running = running.map_err(|error| Lost::Failed(error.words()))?;
        let Some(listener) = listener else {
            self.processes.stop(running);
            return Err(refused.map_or(Lost::TimeUp, failed));
        };
        loop {
            match listener.accept() {
                Ok(Some(line)) => return Ok((running, line)),
                Ok(None) => {}
                Err(error) => {
                    self.processes.stop(running);
                    return Err(failed(error));
                }
            }
            if let Ok(Some(status)) = running.child.try_wait() {
                return Err(self.lost(running, Some(status)));
            }
            if self.is_time_up() {
                self.processes.stop(running);
                return Err(Lost::TimeUp);
            }
            sleep(GLANCE);
        }
    }

    fn is_time_up(&self) -> bool {
        // Before the first order there is nothing to confirm.
        let is_over = self.is_over() && !self.has_begun;
        self.seconds_left() <= 0.0 || is_over || self.processes.is_asked_to_end()
    }

    /// The end of a process that ended by itself.
    fn lost(&mut self, running: Running, status: Option<std::process::ExitStatus>) -> Lost {
        match self.processes.ended(running, status, Duration::ZERO) {
            Ok((ended, _)) if ended.is_well() => Lost::Ended,
            Ok((ended, place)) => Lost::Failed(ended.words(&place)),
            Err(error) => Lost::Failed(error.words()),
        }
    }

    /// The next report, within so many seconds.
    fn report(&mut self, within: f64) -> Result<Report, Lost> {
        let until = Instant::now() + Duration::try_from_secs_f64(within).unwrap_or(Duration::ZERO);
        loop {
            let Some((mut running, mut line)) = self.now.take() else { return Err(Lost::Ended) };
            match line.receive() {
                Received::Report(report) => {
                    self.now = Some((running, line));
                    return Ok(report);
                }
                Received::Wrong(why) => {
                    self.processes.stop(running);
                    return Err(Lost::Failed(format!("the hook said something that is not a report: {why}")));
                }
                Received::Closed => {
                    // A process that was killed has said nothing.
                    let ended = self.processes.wait(&mut running.child, Instant::now() + ENDING);
                    return Err(self.lost(running, ended.unwrap_or(None)));
                }
                Received::Nothing if self.is_time_up() => {
                    self.processes.stop(running);
                    return Err(Lost::TimeUp);
                }
                Received::Nothing if Instant::now() >= until => {
                    self.processes.stop(running);
                    return Err(Lost::Failed(format!("no answer within {within:.0} s")));
                }
                Received::Nothing => self.now = Some((running, line)),
            }
        }
    }
}

impl Stage for ShieldedStage<'_, '_> {
    fn start(&mut self) -> Result<Hello, Lost> {
        self.end();
        self.processes.show(&Moment { phase: "starting a process to switch remedies in", ..Moment::default() });
        self.now = Some(self.begin()?);
        match self.report(self.seconds_left())? {
            Report::Hello(hello) => {
                self.has_begun = true;
                Ok(hello)
            }
            Report::Failed { text, .. } => Err(Lost::Failed(text)),
            Report::Ended { .. } => Err(Lost::Ended),
            other => Err(Lost::Failed(format!("unexpected greeting: {other:?}"))),
        }
    }

    fn perform(&mut self, order: &Order, within: f64) -> Result<Report, Lost> {
        let Some((_, line)) = &mut self.now else { return Err(Lost::Ended) };
        // A process that is gone shows when its report is awaited.
        let _ = line.send(order);
        self.report(within)
    }

    fn end(&mut self) {
        if let Some((mut running, mut line)) = self.now.take() {
            let _ = line.send(&Order::Finish {});
            let _ = self.processes.wait(&mut running.child, Instant::now() + ENDING);
        }
    }

    fn seconds_left(&self) -> f64 {
        self.processes.seconds_left() - self.reserve
    }

    fn is_over(&self) -> bool {
        self.processes.is_over()
    }

    fn show(&mut self, moment: &Moment) {
        self.processes.show(moment);
    }
}
