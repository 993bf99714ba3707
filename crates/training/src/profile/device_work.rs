//! What a GPU did in the recorded steps: how long it was busy, with how many kernels, and for which of the plan's calls.

use super::{Profiled, seconds};
use headroom_engine::recorder::{Activity, Timing, What};
use std::collections::BTreeSet;
use std::time::Duration;

/// Over all recorded steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceWork {
    pub kernels: usize,
    pub distinct_kernels: usize,
    /// Calls that put work on the device: launches, and replays of whole steps.
    pub launches: usize,
    /// The host in such calls.
    pub launch_seconds: f64,
    /// At least one kernel, copy or fill ran.
    pub busy_seconds: f64,
    /// By call: of its kernels, and of the host that launched them. A replay's launch is shared by its kernels alike.
    pub kernel_seconds: Vec<f64>,
    pub host_seconds: Vec<f64>,
    pub kernels_by_call: Vec<usize>,
}

/// None where no kernels were told apart.
pub fn device_work(profiled: &Profiled) -> Option<DeviceWork> {
    let recording = profiled.recording;
    if !matches!(recording.timing(), Timing::Kernels | Timing::ReplayedKernels) {
        return None;
    }
    let activities: Vec<&Activity> = recording.steps().iter().flat_map(|step| recording.activities(step)).collect();
    Some(work_of(&activities, profiled.plan().calls.len()))
}

fn work_of(activities: &[&Activity], calls: usize) -> DeviceWork {
    let mut work =
        DeviceWork { kernel_seconds: vec![0.0; calls], host_seconds: vec![0.0; calls], ..DeviceWork::default() };
    let answered: BTreeSet<u32> =
        activities.iter().filter(|one| one.stream().is_some()).map(|one| one.correlation).collect();
    let mut names = BTreeSet::new();
    let mut kernels_by_call = vec![0usize; calls];
    let mut shared = 0.0;
    let mut spans = vec![];
    for one in activities {
        let length = seconds(one.end.saturating_sub(one.start));
        let call = one.call.map(|call| call.call as usize).filter(|call| *call < calls);
        match one.what {
            What::DriverCall if answered.contains(&one.correlation) => {
                work.launches += 1;
                work.launch_seconds += length;
                match call {
                    Some(call) => work.host_seconds[call] += length,
                    None => shared += length,
                }
            }
            What::DriverCall => {}
            what => {
                if matches!(what, What::Kernel { .. }) {
                    work.kernels += 1;
                    names.insert(&one.name);
                }
                spans.push((one.start, one.end));
                if let Some(call) = call {
                    work.kernel_seconds[call] += length;
                    kernels_by_call[call] += 1;
                }
            }
        }
    }
    let of_calls = kernels_by_call.iter().sum::<usize>().max(1) as f64;
    for (host, kernels) in work.host_seconds.iter_mut().zip(&kernels_by_call) {
        *host += shared * *kernels as f64 / of_calls;
    }
    work.kernels_by_call = kernels_by_call;
    work.distinct_kernels = names.len();
    work.busy_seconds = seconds(covered(spans));
    work
}

/// The time in which at least one of the spans runs.
fn covered(mut spans: Vec<(Duration, Duration)>) -> Duration {
    spans.sort();
    let (mut sum, mut until) = (Duration::ZERO, Duration::ZERO);
    for (start, end) in spans {
        sum += end.saturating_sub(start.max(until));
        until = until.max(end);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_engine::recorder::CallId;

    fn kernel(name: &str, (start, end): (u64, u64), stream: u32, call: Option<u32>, correlation: u32) -> Activity {
        Activity {
            what: What::Kernel { stream, grid: [1; 3], block: [32, 1, 1] },
            name: name.into(),
            start: Duration::from_nanos(start),
            end: Duration::from_nanos(end),
            correlation,
            call: call.map(|call| CallId { program: 0, call }),
        }
    }

    #[test]
    fn busy_time_counts_overlapping_kernels_once() {
        let all = [
            kernel("a", (0, 100), 7, Some(0), 1),
            kernel("b", (50, 150), 8, Some(1), 1),
            kernel("a", (200, 250), 7, Some(1), 1),
        ];
        let work = work_of(&all.iter().collect::<Vec<_>>(), 2);
        assert_eq!((work.kernels, work.distinct_kernels), (3, 2));
        assert!((work.busy_seconds - 200e-9).abs() < 1e-15);
        assert!((work.kernel_seconds[1] - 150e-9).abs() < 1e-15);
    }

    #[test]
    fn a_replays_launch_is_shared_by_its_kernels() {
        let launch = Activity { what: What::DriverCall, call: None, ..kernel("cuGraphLaunch", (0, 90), 0, None, 1) };
        let waits = Activity { what: What::DriverCall, correlation: 9, ..launch.clone() };
        let all = [
            launch,
            waits,
            kernel("a", (100, 120), 7, Some(0), 1),
            kernel("b", (130, 150), 7, Some(0), 1),
            kernel("c", (160, 170), 7, Some(1), 1),
            kernel("take_inputs", (90, 95), 7, None, 1),
        ];
        let work = work_of(&all.iter().collect::<Vec<_>>(), 2);
        assert_eq!(work.launches, 1, "a call that waits launches nothing");
        assert!((work.host_seconds[0] - 60e-9).abs() < 1e-15 && (work.host_seconds[1] - 30e-9).abs() < 1e-15);
    }
}
