//! Waits for messages, and says whose did not come.

use super::error::RanksError;
use super::heartbeats::{Heartbeats, RankActivity};
use super::mpi::{Request, World};
use super::shared::Shared;
use std::thread;
use std::time::{Duration, Instant};

/// Looks without a pause for so long, then now and then: the threads that compute need the cores.
const EAGER: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_micros(50);

/// Looks for signs of life are this much rarer.
const BETWEEN_SIGNS: Duration = Duration::from_millis(5);

/// All that a job speaks through.
pub struct Line<'a> {
    pub world: &'a World,
    pub shared: &'a Shared,
    pub heartbeats: Heartbeats,
    /// Number of the job, the same on all ranks, and whether it is one of words.
    pub job: u64,
    pub words: bool,
}

/// The least that every MPI allows a tag to be at most.
const MOST_TAGS: u64 = 32767;

impl Line<'_> {
    /// Messages of a job are told from those of all that are near: a rank that runs another call gets nothing, and adds up nothing.
    pub fn tag(&self) -> i32 {
        (1 + (2 * self.job + u64::from(self.words)) % (MOST_TAGS - 1)) as i32
    }

    fn doing(&self) -> RankActivity {
        if self.words { RankActivity::Words } else { RankActivity::Tensors }
    }

    /// Ends all ranks where that was asked for; gives and looks for signs of life.
    fn attend(&mut self, doing: RankActivity) -> Result<(), RanksError> {
        if let Some(code) = self.shared.abort_code() {
            self.world.abort(code);
            return Err(RanksError::Left);
        }
        let (calls, _) = self.shared.progress();
        self.heartbeats.tell(self.world, (calls, doing), self.job)
    }
}

/// Until all requests are done. A rank that gives no sign of life, or whose work stands still, for as long as the patience lasts is
/// named; one that is merely slow is waited for.
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

/// Takes leave of the others, once all of them do.
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
