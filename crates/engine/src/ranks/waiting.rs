//! Waits for messages, and names the ranks whose messages did not come.

use super::error::RanksError;
use super::heartbeats::{Heartbeats, RankActivity};
use super::mpi::{Request, World};
use super::shared::Shared;
use std::thread;
use std::time::{Duration, Instant};

/// Polls without pausing for this long, then with pauses: the compute threads need the cores.
const EAGER: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_micros(50);

/// Interval between polls for heartbeats.
const BETWEEN_SIGNS: Duration = Duration::from_millis(5);

/// The context through which a job communicates.
pub struct Line<'a> {
    pub world: &'a World,
    pub shared: &'a Shared,
    pub heartbeats: Heartbeats,
    /// The job's number, the same on all ranks, and whether it sends control messages.
    pub job: u64,
    pub words: bool,
}

/// The smallest upper limit for tags that any MPI may have.
const MOST_TAGS: u64 = 32767;

impl Line<'_> {
    /// A tag that differs from those of nearby jobs: a rank that runs another call receives nothing, and sums nothing
    /// wrong.
    pub fn tag(&self) -> i32 {
        (1 + (2 * self.job + u64::from(self.words)) % (MOST_TAGS - 1)) as i32
    }

    fn doing(&self) -> RankActivity {
        if self.words { RankActivity::Words } else { RankActivity::Tensors }
    }

    /// Ends all ranks if requested; sends and polls heartbeats.
    fn attend(&mut self, doing: RankActivity) -> Result<(), RanksError> {
        if let Some(code) = self.shared.abort_code() {
            self.world.abort(code);
            return Err(RanksError::Left);
        }
        let (calls, _) = self.shared.progress();
        self.heartbeats.tell(self.world, (calls, doing), self.job)
    }
}

/// Waits until all requests are done. A rank that sends no heartbeat, or whose work makes no progress, for as long as
/// the patience lasts is named in the error; one that is merely slow is waited for.
pub fn wait(line: &mut Line, requests: &mut Vec<Request>) -> Result<(), RanksError> {
    let begin = Instant::now();
    let (mut since, mut attended) = (begin, begin);
    loop {
        let progressed = line.world.look(requests)?;
        if requests.is_empty() {
            return Ok(());
        }
        let now = Instant::now();
        if progressed {
            since = now;
        }
        if now - attended > BETWEEN_SIGNS {
            attended = now;
            line.attend(line.doing())?;
            let receives = requests.iter().any(|request| request.receives);
            let mut missing: Vec<usize> =
                requests.iter().filter(|request| request.receives == receives).map(|request| request.peer).collect();
            missing.sort_unstable();
            missing.dedup();
            if let Some(error) = line.heartbeats.verdict(&missing, line.job, line.doing(), since) {
                return Err(error);
            }
        }
        match now - since < EAGER {
            true => thread::yield_now(),
            false => thread::sleep(PAUSE),
        }
    }
}

/// Leaves once all other ranks do.
pub fn leave(line: &mut Line) -> Result<(), RanksError> {
    let since = Instant::now();
    let others: Vec<usize> = (0..line.world.size).filter(|rank| *rank != line.world.rank).collect();
    loop {
        line.attend(RankActivity::Leaves)?;
        if line.heartbeats.all_left() {
            line.world.finalize();
            return Ok(());
        }
        if let Some(error) = line.heartbeats.verdict(&others, line.job, RankActivity::Leaves, since) {
            return Err(error);
        }
        thread::sleep(Duration::from_millis(1));
    }
}
