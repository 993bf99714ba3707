//! The search inside one process: remedies that a running script can switch between its steps are compared there, in
//! blocks of steps in random order, paired by round.
//!
//! [`messages`] are the words of both sides, `line` carries them, [`race`] measures and [`search`] decides. A
//! [`Stage`] is a process. The script's side is `python/headroom_hook/conductor.py`.

#[cfg(unix)]
pub mod line;
pub mod messages;
pub mod race;
pub mod search;
pub mod verdict;

use crate::moment::Moment;
use messages::{Hello, Order, Report};

/// A script that takes orders between its steps.
pub trait Stage {
    /// Starts a process, and returns what it offers once it takes orders.
    fn start(&mut self) -> Result<Hello, Lost>;
    /// Hands over an order and waits for its report, at most this many seconds.
    fn perform(&mut self, order: &Order, within: f64) -> Result<Report, Lost>;
    /// Ends the process.
    fn end(&mut self);
    /// Seconds left for the search inside processes.
    fn seconds_left(&self) -> f64;
    /// Whether a person has ended the selection; what was selected is still confirmed.
    fn is_over(&self) -> bool {
        false
    }
    /// Told at the beginning of every round.
    fn show(&mut self, _: &Moment) {}
}

/// Why there is no report.
#[derive(Clone, Debug, PartialEq)]
pub enum Lost {
    /// The script came to its end; another process goes on.
    Ended,
    /// The process failed, with its reason: an exception, too little memory.
    Failed(String),
    /// It took too long, or the time is up.
    TimeUp,
}
