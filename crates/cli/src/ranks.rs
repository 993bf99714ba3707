//! This process among others that train the same model: joined at the start, agreed with, and left together.

mod agreement;

use crate::output;
use crate::train::arguments::Arguments;
use crate::train::settings::{Settings, Sources};
use agreement::{Lines, first_difference};
use anyhow::{bail, ensure};
use headroom_engine::DeviceSpec;
use headroom_engine::ranks::launch::{self, Launched};
use headroom_engine::ranks::{Ranks, RanksError};
use headroom_training::data::Source;
use headroom_training::persist::WHILE_SAVING;
use headroom_training::trainer::Trainer;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Rank 0 says what is wrong; the others give it the time before they end.
const FOR_RANK_0: Duration = Duration::from_secs(2);

pub struct Company {
    pub launched: Launched,
    ranks: Arc<Ranks>,
}

/// Joins the others, where a launcher started several. From then on rank 0 alone speaks, but for errors.
pub fn join(arguments: &Arguments) -> anyhow::Result<Option<Company>> {
    let device: DeviceSpec = arguments.machine.device.parse()?;
    let Some(company) = connected(device, arguments.machine.rank_timeout)? else { return Ok(None) };
    ensure!(
        !arguments.profiling.is_on(),
        "a profile is of one process, and {} started {} ranks\n  help: profile one process without a launcher",
        company.launched.by.name(),
        company.launched.size
    );
    Ok(Some(company))
}

/// The same for any command.
pub fn connected(device: DeviceSpec, timeout_seconds: u64) -> anyhow::Result<Option<Company>> {
    let Some(launched) = launch::from_environment()? else { return Ok(None) };
    output::speak_as(launched.rank);
    let by = launched.by.name();
    ensure!(
        device == DeviceSpec::Cpu,
        "--device {} does not work on several ranks, and {by} started {}\n  help: --device cpu, or one process without a launcher",
        device.name(),
        launched.size
    );
    ensure!(
        launched.by.serves_mpi(),
        "{by} started {} ranks; on the CPU they speak through MPI, which it does not serve\n  help: start them with mpirun or srun",
        launched.size
    );
    let ranks = Ranks::connect(&launched, Duration::from_secs(timeout_seconds))?;
    Ok(Some(Company { launched, ranks: Arc::new(ranks) }))
}

impl Company {
    pub fn rank(&self) -> usize {
        self.launched.rank
    }

    pub fn ranks(&self) -> Arc<Ranks> {
        Arc::clone(&self.ranks)
    }

    /// As the opening says it.
    pub fn line(&self) -> String {
        format!("{}, started by {}, through {}", self.launched.size, self.launched.by.name(), self.ranks.library())
    }

    /// Refuses what ranks would disagree about: flags, data, checkpoint or binary.
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

    /// Refuses to start from other weights than the others.
    pub fn agree_on_weights(&self, trainer: &mut Trainer) -> anyhow::Result<()> {
        let mine = agreement::of_weights(trainer);
        let said = self.ranks.gather(&mine.to_le_bytes())?;
        match said.iter().position(|words| *words != said[0]) {
            Some(rank) => self.refuse(&format!("rank {rank} starts from other weights than rank 0")),
            None => Ok(()),
        }
    }

    fn refuse(&self, what: &str) -> anyhow::Result<()> {
        if self.rank() > 0 {
            // The same words from everybody would help nobody.
            thread::sleep(FOR_RANK_0);
        }
        bail!("{what}\n  help: every rank needs the same flags, files and program")
    }

    /// Is the newest evaluation one to keep the checkpoint of? Rank 0 says so.
    pub fn better(&self, rank_0_says: Option<bool>) -> Result<bool, RanksError> {
        Ok(self.ranks.largest(rank_0_says.unwrap_or(false).into())? > 0)
    }

    /// After a save that rank 0 made: the others wait for it.
    pub fn saved(&self) -> Result<(), RanksError> {
        self.ranks.gather_within(&[], WHILE_SAVING).map(|_| ())
    }

    /// Leaves together with the others, or ends all of them where this one failed.
    pub fn part(self, failed: Option<u8>) {
        let Company { mut ranks, .. } = self;
        match (failed, Arc::get_mut(&mut ranks)) {
            (Some(code), _) => ranks.abort(code.into()),
            (None, Some(ranks)) => ranks.finish(),
            (None, None) => {}
        }
    }
}
