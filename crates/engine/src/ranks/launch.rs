//! Rank and size from the launcher's environment variables.

use thiserror::Error;

/// This process was started as one of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    pub rank: usize,
    pub size: usize,
    /// Number of ranks on this machine, if known.
    pub local_size: Option<usize>,
    /// Index of this rank among those on this machine.
    pub local_rank: Option<usize>,
    pub by: Launcher,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    Torchrun,
    OpenMpi,
    Pmi,
    PyTorchJob,
    Slurm,
}

impl Launcher {
    pub fn name(self) -> &'static str {
        match self {
            Launcher::Torchrun => "torchrun",
            Launcher::OpenMpi => "Open MPI's mpirun",
            Launcher::Pmi => "mpiexec (PMI)",
            Launcher::PyTorchJob => "the job (RANK and WORLD_SIZE)",
            Launcher::Slurm => "srun",
        }
    }

    /// Whether it sets up what MPI needs to find the other ranks.
    pub fn serves_mpi(self) -> bool {
        matches!(self, Launcher::OpenMpi | Launcher::Pmi | Launcher::Slurm)
    }
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LaunchError {
    #[error("{name} is `{value}`, which is not a number: {launcher} sets it")]
    NotANumber { name: &'static str, value: String, launcher: &'static str },
    #[error("{rank_name} is {rank} and {size_name} is {size}: ranks are counted from 0 and are fewer than the size")]
    NotAmong { rank_name: &'static str, size_name: &'static str, rank: usize, size: usize },
}

/// A launcher's variables: rank, size, and both on this machine. Those in `also` must be set too.
struct Names {
    by: Launcher,
    also: &'static [&'static str],
    rank: &'static str,
    size: &'static str,
    local_rank: &'static str,
    local_size: &'static str,
}

/// Innermost launcher first: torchrun may itself be started by srun, and mpirun within a batch job. SLURM's size is
/// that of the job step, which only srun sets: a batch script has a rank too, but is not one of several.
const KNOWN: [Names; 5] = [
    Names {
        by: Launcher::Torchrun,
        also: &["TORCHELASTIC_RUN_ID"],
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_size: "LOCAL_WORLD_SIZE",
    },
    Names {
        by: Launcher::OpenMpi,
        also: &[],
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
    },
    Names {
        by: Launcher::Pmi,
        also: &[],
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        local_size: "MPI_LOCALNRANKS",
    },
    Names {
        by: Launcher::PyTorchJob,
        also: &["MASTER_ADDR"],
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_size: "LOCAL_WORLD_SIZE",
    },
    Names {
        by: Launcher::Slurm,
        also: &[],
        rank: "SLURM_PROCID",
        size: "SLURM_STEP_NUM_TASKS",
        local_rank: "SLURM_LOCALID",
        local_size: "SLURM_NTASKS_PER_NODE",
    },
];

/// Returns `None` if no launcher started this process, or if it started only one.
pub fn launched(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Launched>, LaunchError> {
    for names in &KNOWN {
        let number = |name: &'static str| match variable(name) {
            None => Ok(None),
            Some(value) => match value.trim().parse::<usize>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(LaunchError::NotANumber { name, value, launcher: names.by.name() }),
            },
        };
        if names.also.iter().any(|name| variable(name).is_none()) {
            continue;
        }
        let (Some(rank), Some(size)) = (number(names.rank)?, number(names.size)?) else { continue };
        if rank >= size {
            return Err(LaunchError::NotAmong { rank_name: names.rank, size_name: names.size, rank, size });
        }
        if size == 1 {
            return Ok(None);
        }
        // These details only choose defaults: SLURM writes some of them as `2(x3)`.
        let hint = |name: &str| variable(name).and_then(|value| value.trim().parse().ok());
        let (local_size, local_rank) = (hint(names.local_size), hint(names.local_rank));
        return Ok(Some(Launched { rank, size, local_size, local_rank, by: names.by }));
    }
    Ok(None)
}

/// Reads this process's environment.
pub fn from_environment() -> Result<Option<Launched>, LaunchError> {
    launched(|name| std::env::var(name).ok())
}

/// Whether this process's terminal is a launcher's own device: Open MPI gives every rank one, also a single rank, and
/// copies what is printed there to its own output, which may be a file.
pub fn has_launchers_terminal(variable: impl Fn(&str) -> Option<String>) -> bool {
    KNOWN.iter().any(|names| names.by == Launcher::OpenMpi && variable(names.rank).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Option<Launched>, LaunchError> {
        launched(|name| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| value.to_string()))
    }

    fn place(variables: &[(&str, &str)]) -> Option<(usize, usize, Launcher)> {
        of(variables).unwrap().map(|found| (found.rank, found.size, found.by))
    }

    #[test]
    fn every_launcher_states_rank_and_size() {
        let torchrun = [("TORCHELASTIC_RUN_ID", "none"), ("RANK", "1"), ("WORLD_SIZE", "4")];
        assert_eq!(place(&torchrun), Some((1, 4, Launcher::Torchrun)));
        let open_mpi =
            [("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "3"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "3")];
        assert_eq!(place(&open_mpi), Some((2, 3, Launcher::OpenMpi)));
        assert_eq!(of(&open_mpi).unwrap().unwrap().local_size, Some(3));
        assert_eq!(place(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]), Some((0, 2, Launcher::Pmi)));
        let job = [("MASTER_ADDR", "job-master-0"), ("RANK", "3"), ("WORLD_SIZE", "8")];
        assert_eq!(place(&job), Some((3, 8, Launcher::PyTorchJob)));
        let slurm = [("SLURM_PROCID", "5"), ("SLURM_STEP_NUM_TASKS", "6"), ("SLURM_NTASKS_PER_NODE", "2(x3)")];
        assert_eq!(place(&slurm), Some((5, 6, Launcher::Slurm)));
    }

    #[test]
    fn one_rank_alone_is_none() {
        assert_eq!(place(&[]), None);
        assert_eq!(place(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")]), None);
        // A batch script has a rank of its own but is started only once.
        assert_eq!(place(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]), None);
        // Variables that belong to some other program.
        assert_eq!(place(&[("RANK", "1"), ("WORLD_SIZE", "4")]), None);
    }

    #[test]
    fn only_open_mpi_gives_a_rank_a_terminal_of_its_own() {
        let has_one = |set: &str| has_launchers_terminal(|name| (name == set).then(|| "0".into()));
        assert!(has_one("OMPI_COMM_WORLD_RANK"));
        assert!(["PMI_RANK", "RANK", "SLURM_PROCID", ""].iter().all(|name| !has_one(name)));
    }

    #[test]
    fn the_inner_launcher_wins() {
        let inner = [("TORCHELASTIC_RUN_ID", "x"), ("RANK", "1"), ("WORLD_SIZE", "2")];
        let outer = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "4")];
        assert_eq!(place(&[inner.as_slice(), &outer].concat()), Some((1, 2, Launcher::Torchrun)));
    }

    #[test]
    fn nonsense_is_told() {
        let error = of(&[("PMI_RANK", "x"), ("PMI_SIZE", "2")]).unwrap_err();
        assert_eq!(error.to_string(), "PMI_RANK is `x`, which is not a number: mpiexec (PMI) sets it");
        let error = of(&[("PMI_RANK", "2"), ("PMI_SIZE", "2")]).unwrap_err();
        assert!(error.to_string().starts_with("PMI_RANK is 2 and PMI_SIZE is 2"), "{error}");
    }
}
