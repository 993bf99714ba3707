//! The time of a command, and of one process.

use std::time::{Duration, Instant};

/// A process may take this many times as long as the unchanged script, plus this extra time: compilers are slow.
const PATIENCE: f64 = 5.0;
const COMPILING: Duration = Duration::from_secs(180);
/// Once started, a process gets at least this many times the unchanged script's time, while any time is left.
const AT_LEAST: f64 = 1.3;

/// The time limit of a command.
#[derive(Clone, Copy, Debug)]
pub struct TimeLimit {
    pub(super) ends: Instant,
    /// A proof that has begun may go on until then.
    pub(super) latest: Instant,
}

/// A limit holds to this share of it, processes that are slow to end and the files of the result included.
const TOLERANCE: f64 = 0.1;
const AFTERWARDS: Duration = Duration::from_secs(6);

impl TimeLimit {
    pub fn of(began: Instant, limit: Duration) -> TimeLimit {
        let ends = began + limit;
        TimeLimit { ends, latest: ends + limit.mul_f64(TOLERANCE).saturating_sub(AFTERWARDS) }
    }
}

/// How long a process may take, from the unchanged script's time, the time left (and that until the latest end), and the
/// seconds it is allowed.
pub(super) fn limit(own: Option<Duration>, (left, latest): (Duration, Duration), within: f64) -> Duration {
    // The first process may use all the time there is.
    let Some(own) = own else { return left };
    let most = own.mul_f64(PATIENCE) + COMPILING;
    let given = match within {
        within if within == f64::INFINITY => most,
        // Zero or negative time is a limit too.
        within => most.min(Duration::try_from_secs_f64(within.max(0.0)).unwrap_or(most)),
    };
    given.max(own.mul_f64(AT_LEAST).min(left)).min(latest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_given_what_it_was_granted_and_never_more_for_want_of_time() {
        let seconds = Duration::from_secs;
        let own = Some(seconds(10));
        let limit = |own, left, within| limit(own, (seconds(left), seconds(left + 24)), within);
        assert_eq!(limit(None, 300, -5.0), seconds(300), "the first one");
        assert_eq!(limit(own, 300, 40.0), seconds(40));
        assert_eq!(limit(own, 300, f64::INFINITY), seconds(230));
        assert_eq!(limit(own, 300, 1e300), seconds(230));
        for nothing in [0.0, -5.0, f64::NEG_INFINITY, f64::NAN] {
            assert_eq!(limit(own, 300, nothing), seconds(13), "{nothing}");
            assert_eq!(limit(own, 4, nothing), seconds(4), "{nothing}");
        }
        for much in [60.0, f64::INFINITY] {
            assert_eq!(limit(own, 3, much), seconds(27), "a limit holds, whatever was granted");
        }
    }

    #[test]
    fn a_time_limit_holds_to_a_tenth_with_time_to_end_and_write() {
        let began = Instant::now();
        for (limit, more) in [(300, 24), (60, 0), (10, 0), (3600, 354)] {
            let time = TimeLimit::of(began, Duration::from_secs(limit));
            assert_eq!(time.latest - time.ends, Duration::from_secs(more), "{limit} s");
            assert_eq!(time.ends - began, Duration::from_secs(limit));
        }
    }
}
