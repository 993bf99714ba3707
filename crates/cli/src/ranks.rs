//! This process as one of several ranks that train a model: joining, agreeing with the others, and leaving together.

mod agreement;
mod neighbours;

use crate::output;
use crate::train::arguments::Arguments;
use crate::train::settings::{Settings, Sources};
use agreement::{Lines, first_difference};
use anyhow::{bail, ensure};
use headroom_engine::DeviceSpec;
use headroom_engine::cpu::pool::affinity;
use headroom_engine::ranks::launch::{self, Launched, Launcher};
use headroom_engine::ranks::{Ranks, RanksError};
use headroom_graph::Graph;
use headroom_trace::Distributed;
use headroom_training::checkpoint::CheckpointError;
use headroom_training::data::Source;
use headroom_training::trainer::Trainer;
use neighbours::{RankPlacement, Share, share_of};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Rank 0 reports what is wrong; the others wait this long before they end.
const FOR_RANK_0: Duration = Duration::from_secs(2);

/// Time for a launcher to forward a rank's last output.
const BEFORE_THE_END: Duration = Duration::from_millis(200);

pub struct RankGroup {
    pub launched: Launched,
    ranks: Arc<Ranks>,
    /// Whether all ranks reached the end of the run together, whatever the result.
    ended: Cell<bool>,
}

/// Joins the others if a launcher started several. From then on only rank 0 prints, except for errors.
pub fn join(arguments: &Arguments) -> anyhow::Result<Option<RankGroup>> {
    let device: DeviceSpec = arguments.machine.device.parse()?;
    connected(device, arguments.machine.rank_timeout)
}

/// The device of one rank, as `--device` names it: `cuda` means the rank's own GPU on its machine.
pub fn device_of(named: &str, launched: &Launched) -> String {
    match (named, launched.local_rank) {
        ("cuda", Some(own)) => format!("cuda:{own}"),
        _ => named.into(),
    }
}

/// Refuses a single-process command if a launcher started several. A job's own variables are set in every shell on its
/// machines.
pub fn check_alone(command: Option<&'static str>) -> anyhow::Result<()> {
    let (Some(command), Some(launched)) = (command, launch::from_environment()?) else { return Ok(()) };
    ensure!(
        launched.by == Launcher::PyTorchJob,
        "`headroom {command}` runs as one process, and {} started {}\n  help: start it without a launcher",
        launched.by.name(),
        launched.size
    );
    Ok(())
}

/// Like [`join`], for any command.
pub fn connected(device: DeviceSpec, timeout_seconds: u64) -> anyhow::Result<Option<RankGroup>> {
    let Some(launched) = launch::from_environment()? else { return Ok(None) };
    output::set_output_rank(launched.rank);
    let by = launched.by.name();
    ensure!(
        device != DeviceSpec::Null,
        "--device null computes nothing, and {by} started {} ranks\n  help: --ranks {} predicts them in one process without a launcher",
        launched.size,
        launched.size
    );
    let patience = Duration::from_secs(timeout_seconds);
    let ranks = match device {
        DeviceSpec::Cuda(_) => Ranks::connect_words(&launched, patience)?,
        _ => {
            ensure!(
                launched.by.serves_mpi(),
                "{by} started {} ranks; on the CPU they communicate through MPI, which it does not provide\n  help: start them \
                 with mpirun or srun, or train on GPUs with --device cuda",
                launched.size
            );
            Ranks::connect(&launched, patience)?
        }
    };
    Ok(Some(RankGroup { launched, ranks: Arc::new(ranks), ended: Cell::new(false) }))
}

impl RankGroup {
    pub fn rank(&self) -> usize {
        self.launched.rank
    }

    pub fn ranks(&self) -> Arc<Ranks> {
        Arc::clone(&self.ranks)
    }

    /// The line that the opening prints.
    pub fn line(&self) -> String {
        format!("{}, started by {}, through {}", self.launched.size, self.launched.by.name(), self.ranks.library())
    }

    /// Refuses a run whose ranks disagree about flags, data, checkpoint or binary.
    pub fn agree(&self, arguments: &Arguments, settings: &Settings, sources: &Sources) -> anyhow::Result<()> {
        ensure!(
            !matches!(sources.training, Source::BatchFile(_)),
            "one fixed batch cannot be divided among {} ranks\n  help: a text, a token file, or a generator",
            self.launched.size
        );
        let mine = Lines::of(arguments, settings, sources)?;
        let said = self.ranks.gather(&mine.to_bytes())?;
        let all: Vec<Lines> = said.iter().map(|words| Lines::from_bytes(words)).collect();
        match first_difference(&all) {
            Some(what) => self.refuse(&what),
            None => Ok(()),
        }
    }

    /// This rank's share of its machine, whichever launcher started it. Pins the process to CPUs that no other rank
    /// uses, unless more threads were requested than there are such CPUs.
    pub fn settle(&self, threads: Option<usize>) -> Result<Share, RanksError> {
        let seat = RankPlacement::here(affinity::allowed_cpus());
        let said = self.ranks.gather(&seat.to_bytes())?;
        let seats: Vec<RankPlacement> = said.iter().map(|words| RankPlacement::from_bytes(words)).collect();
        let share = share_of(&seats, self.rank());
        if share.sharing > 1 && !share.cpus.is_empty() && threads.is_none_or(|threads| threads <= share.cpus.len()) {
            affinity::keep_to(&share.cpus);
        }
        Ok(share)
    }

    /// Refuses a plan with other exchanges than the other ranks': they would wait for each other, or sum different
    /// tensors.
    pub fn agree_on_plan(&self, graph: &Graph) -> anyhow::Result<()> {
        match self.first_other(agreement::of_plan(graph))? {
            Some(rank) => self.refuse(&format!("rank {rank} plans different exchanges from rank 0")),
            None => Ok(()),
        }
    }

    /// Refuses to start from weights that differ between ranks.
    pub fn agree_on_weights(&self, trainer: &mut Trainer) -> anyhow::Result<()> {
        match self.first_other(agreement::of_weights(trainer))? {
            Some(rank) => self.refuse(&format!("rank {rank} starts from different weights than rank 0")),
            None => Ok(()),
        }
    }

    /// Checked before saving: all ranks must have the same weights, or nothing is saved.
    pub fn same_weights(&self, trainer: &mut Trainer) -> Result<(), CheckpointError> {
        let handover = |error: RanksError| CheckpointError::Handover(error.into());
        match self.first_other(agreement::of_weights(trainer)).map_err(handover)? {
            Some(rank) => Err(CheckpointError::Handover(
                format!(
                    "rank {rank} has different weights from rank 0 after step {}: nothing is saved, and the previous checkpoint \
                     stays",
                    trainer.step
                )
                .into(),
            )),
            None => Ok(()),
        }
    }

    /// The first rank whose value differs from rank 0's.
    fn first_other(&self, mine: u64) -> Result<Option<usize>, RanksError> {
        let said = self.ranks.gather(&mine.to_le_bytes())?;
        Ok(said.iter().position(|words| *words != said[0]))
    }

    fn refuse(&self, what: &str) -> anyhow::Result<()> {
        if self.rank() > 0 {
            // The same message from every rank would not help.
            thread::sleep(FOR_RANK_0);
        }
        bail!("{what}\n  help: every rank needs the same flags, files and program")
    }

    /// Whether to keep the checkpoint of the newest evaluation. Rank 0 decides.
    pub fn better(&self, rank_0_says: Option<bool>) -> Result<bool, RanksError> {
        Ok(self.ranks.largest(rank_0_says.unwrap_or(false).into())? > 0)
    }

    /// The folder that rank 0 writes into, once known; until then rank 0 may be measuring the machine.
    pub fn folder(&self, of_rank_0: Option<&Path>) -> anyhow::Result<PathBuf> {
        let mine = of_rank_0.map_or(String::new(), |folder| folder.display().to_string());
        let said = self.ranks.gather(mine.as_bytes())?;
        Ok(PathBuf::from(String::from_utf8_lossy(&said[0]).into_owned()))
    }

    /// This rank as a trace names it.
    pub fn distributed(&self, device: DeviceSpec) -> Distributed {
        let backend = if device == DeviceSpec::Cpu { "mpi" } else { "nccl" };
        Distributed { backend: backend.into(), rank: self.launched.rank as u32, world_size: self.launched.size as u32 }
    }

    /// Waits for a save by rank 0.
    pub fn saved(&self) -> Result<(), RanksError> {
        self.ranks.gather(&[]).map(|_| ())
    }

    /// Records that all ranks reached the end of the run: a failure is shared, and no rank needs to be killed for it.
    pub fn ended_together(&self) {
        self.ended.set(true);
    }

    /// The rank that computes longest, if it stands out; a collective call.
    pub fn slowest(&self, steps: usize) -> Result<Option<String>, RanksError> {
        let nanos = self.ranks.worked().as_nanos() as u64;
        let said = self.ranks.gather(&nanos.to_le_bytes())?;
        let number = |words: &Vec<u8>| words[..].try_into().map_or(0, u64::from_le_bytes) as f64;
        let seconds: Vec<f64> = said.iter().map(|words| number(words) * 1e-9).collect();
        Ok(straggler(&seconds, steps))
    }

    /// Leaves together with the others, or ends all of them if this one failed alone.
    pub fn part(self, failed: Option<u8>) {
        let RankGroup { mut ranks, ended, .. } = self;
        match (failed.filter(|_| !ended.get()), Arc::get_mut(&mut ranks)) {
            (Some(code), _) => {
                // A launcher that is asked to end all ranks may drop what they printed just before.
                thread::sleep(BEFORE_THE_END);
                ranks.abort(code.into());
            }
            (None, Some(ranks)) => {
                if let Err(error) = ranks.finish() {
                    output::note(&format!("note: the ranks did not disconnect cleanly: {error}"));
                }
            }
            (None, None) => debug_assert!(false, "a device or trainer outlived the run"),
        }
    }
}

/// A rank stands out if its steps take this much longer than the others'.
const STANDS_OUT: f64 = 1.08;

/// And by at least this many seconds in total: the first steps of a run differ by their caches alone.
const LEAST_SECONDS: f64 = 1.0;

/// Finds a straggler: compares the longest total work of a rank with the median of the others.
fn straggler(seconds: &[f64], steps: usize) -> Option<String> {
    let (rank, &most) = seconds.iter().enumerate().max_by(|one, other| one.1.total_cmp(other.1))?;
    let mut others: Vec<f64> =
        seconds.iter().enumerate().filter(|(other, _)| *other != rank).map(|(_, x)| *x).collect();
    others.sort_by(f64::total_cmp);
    let median = *others.get(others.len() / 2)?;
    (most > STANDS_OUT * median && most > median + LEAST_SECONDS).then(|| {
        let percent = (most / median - 1.0) * 100.0;
        let each = 1e3 / steps.max(1) as f64;
        format!(
            "rank {rank} is {percent:.0}% slower than the others: {:.1} ms of work per step, against {:.1} ms",
            most * each,
            median * each
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_engine::ranks::Launcher;

    #[test]
    fn every_rank_of_a_machine_has_a_gpu_of_its_own_unless_one_is_named() {
        let launched = Launched { rank: 5, size: 8, local_size: Some(4), local_rank: Some(1), by: Launcher::Torchrun };
        assert_eq!(device_of("cuda", &launched), "cuda:1");
        assert_eq!(device_of("cuda:0", &launched), "cuda:0");
        assert_eq!(device_of("cpu", &launched), "cpu");
        assert_eq!(device_of("cuda", &Launched { local_rank: None, ..launched }), "cuda");
    }

    #[test]
    fn a_rank_that_is_slower_than_the_others_stands_out() {
        assert_eq!(straggler(&[100.0, 105.0, 102.0], 100), None);
        assert_eq!(straggler(&[1.0, 1.5], 100), None, "half a second does not count");
        assert_eq!(straggler(&[], 0), None);
        assert_eq!(straggler(&[1.0], 1), None);
        let said = straggler(&[10.0, 10.0, 10.0, 11.2], 100).unwrap();
        assert!(said.starts_with("rank 3 is 12% slower than the others: 112.0 ms"), "{said}");
    }
}
