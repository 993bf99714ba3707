//! Waits for messages, and says whose did not come.

use super::error::RanksError;
use super::mpi::{Request, World};
use std::thread;
use std::time::{Duration, Instant};

/// Looks without a pause for so long, then now and then: the threads that compute need the cores.
const EAGER: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_micros(50);

/// Until all requests are done. Who has sent nothing for as long as the patience lasts is named.
pub fn wait(world: &World, requests: &mut Vec<Request>, patience: Duration) -> Result<(), RanksError> {
    let mut since = Instant::now();
    loop {
        let progressed = world.look(requests)?;
        if requests.is_empty() {
            return Ok(());
        }
        if progressed {
            since = Instant::now();
        }
        let waited = since.elapsed();
        if waited > patience {
            let receives = requests.iter().any(|request| request.receives);
            let mut missing: Vec<usize> =
                requests.iter().filter(|request| request.receives == receives).map(|request| request.peer).collect();
            missing.sort_unstable();
            missing.dedup();
            return Err(RanksError::Silent { missing, seconds: patience.as_secs_f64() });
        }
        match waited < EAGER {
            true => thread::yield_now(),
            false => thread::sleep(PAUSE),
        }
    }
}
