//! A run in progress: loss, speed and memory of the steps so far.

use headroom_record::progress::ProgressLine;
use serde::Serialize;

use super::runs::Status;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Live {
    pub status: Status,
    pub last_step: Option<u64>,
    pub points: Vec<ProgressLine>,
    /// The last lines of the log.
    pub log: Vec<String>,
}

const LOG_LINES: usize = 24;

/// Parses `progress.jsonl` and the log. A half-written last line is left for the next call.
pub fn live(status: Status, last_step: Option<u64>, progress: &str, log: &str) -> Live {
    let whole = progress.rfind('\n').map_or("", |end| &progress[..end]);
    let lines: Vec<&str> = log.lines().collect();
    Live {
        status,
        last_step,
        points: match whole {
            // A run of a version that did not write this file yet.
            "" => log.lines().filter_map(step_of_log).collect(),
            whole => whole.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(),
        },
        log: lines[lines.len().saturating_sub(LOG_LINES)..].iter().map(|line| line.to_string()).collect(),
    }
}

/// `Step 3/30: Loss = 6.9131, Time = 0.0205 seconds, 389.7 samples/s`
fn step_of_log(line: &str) -> Option<ProgressLine> {
    let (step, rest) = line.strip_prefix("Step ")?.split_once('/')?;
    let mut parts = rest.split_once(": ")?.1.split(", ");
    let loss = parts.next()?.strip_prefix("Loss = ")?.parse().ok();
    let seconds = parts.next()?.strip_prefix("Time = ")?.strip_suffix(" seconds")?.parse().ok()?;
    let samples_per_sec = parts.next()?.split(' ').next()?.parse().ok()?;
    Some(ProgressLine {
        step: step.parse().ok()?,
        loss,
        seconds,
        samples_per_sec,
        memory_mb: None,
        gradient_norm: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_the_file_is_read_from_its_log() {
        let log = "LLaMA nano\nStep 3/30: Loss = 6.9131, Time = 0.0205 seconds, 389.7 samples/s, 401.3 overall [PROFILING]\n\
                   Step 4/30: Loss = not computed, Time = 0.0205 seconds, 389.7 samples/s\nStep 5/30: Lo";
        let read = live(Status::Finished, Some(30), "", log);
        let steps: Vec<_> = read.points.iter().map(|point| (point.step, point.loss, point.samples_per_sec)).collect();
        assert_eq!(steps, [(3, Some(6.9131), 389.7), (4, None, 389.7)]);
    }

    #[test]
    fn half_a_line_is_left_for_the_next_time() {
        let progress = "{\"schema_version\":1,\"provenance\":{}}\n\
                        {\"step\":1,\"loss\":6.9,\"seconds\":0.5,\"samples_per_sec\":16.0,\"memory_mb\":20.5}\n\
                        {\"step\":2,\"loss\":6.8,\"sec";
        let live = live(Status::Running, Some(30), progress, "one\ntwo\n");
        assert_eq!(live.points.iter().map(|point| point.step).collect::<Vec<_>>(), [1]);
        assert_eq!(live.points[0].memory_mb, Some(20.5));
        assert_eq!(live.log, ["one", "two"]);
    }
}
