//! Failures between ranks, with messages that say what to do.

use super::launch::Launched;
use std::path::PathBuf;
use thiserror::Error;

#[derive(Clone, Debug, Error, PartialEq)]
pub enum RanksError {
    #[error(
        "no MPI library was found: looked for {}\n  help: install Open MPI or MPICH, put its mpirun on the PATH or its library on \
         LD_LIBRARY_PATH, or name the file in HEADROOM_MPI_LIBRARY",
        tried.join(", ")
    )]
    NoLibrary { tried: Vec<String> },
    #[error(
        "{} is not a usable MPI: it has no {symbol}\n  help: Open MPI 4 or 5 (libmpi.so.40), MPICH 4 (libmpi.so.12) or the ABI of \
         MPI 5 (libmpi_abi.so.0, .1) is needed",
        path.display()
    )]
    NoSymbol { path: PathBuf, symbol: String },
    #[error(
        "{} calls itself {version}, whose handles are unknown\n  help: Open MPI, MPICH, libraries with MPICH's ABI, and any MPI \
         through libmpi_abi.so are known; HEADROOM_MPI_LIBRARY names another file",
        path.display()
    )]
    OtherLibrary { path: PathBuf, version: String },
    #[error("{} cannot be opened: {why}", path.display())]
    NotOpened { path: PathBuf, why: String },
    #[error(
        "{} started {} ranks, this one as rank {}, and the MPI of {} ({version}) knows it as rank {rank} of {size}\n  help: \
         launcher and library must belong to the same MPI; HEADROOM_MPI_LIBRARY names the library's file",
        launched.by.name(),
        launched.size,
        launched.rank,
        path.display()
    )]
    OtherWorld { launched: Launched, path: PathBuf, version: String, rank: usize, size: usize },
    #[error("the other ranks did not connect within {seconds} s\n  help: --rank-timeout waits longer")]
    NotAllCame { seconds: f64 },
    #[error("cannot start the thread that talks to the other ranks: {error}")]
    Thread { error: String },
    #[error("{function} failed: {why}")]
    Call { function: &'static str, why: String },
    #[error(
        "{} gave no sign of life for {seconds} s\n  help: --rank-timeout waits longer; --resume continues from the last \
         checkpoint",
        ranks(missing)
    )]
    Silent { missing: Vec<usize>, seconds: f64 },
    #[error(
        "{} made no progress for {seconds} s, though it gives signs of life\n  help: --rank-timeout waits longer; --resume \
         continues from the last checkpoint",
        ranks(missing)
    )]
    Hung { missing: Vec<usize>, seconds: f64 },
    #[error("{} ended while this rank still waits for a message", ranks(missing))]
    Gone { missing: Vec<usize> },
    #[error(
        "messages from {} did not arrive for {seconds} s, though both sides wait for them: the network is stalled",
        ranks(missing)
    )]
    Lost { missing: Vec<usize>, seconds: f64 },
    #[error("rank {rank} waits for {there} and this one for {here}: the ranks do not run the same plan")]
    OutOfStep { rank: usize, there: String, here: String },
    #[error("a message from rank {rank} is not the expected one ({why}): the ranks do not run the same plan")]
    OtherMessage { rank: usize, why: String },
    #[error("rank {rank} sent {have} bytes where {want} were expected: the ranks do not run the same plan")]
    OtherLength { rank: usize, have: usize, want: usize },
    #[error("this process has disconnected from the other ranks")]
    Left,
    #[error(
        "rank {rank} is gone\n  help: its own output or its launcher's says why; --resume continues from the last checkpoint"
    )]
    Closed { rank: usize },
    #[error(
        "{by} started several ranks without MPI, and MASTER_ADDR and MASTER_PORT do not say where rank 0 listens\n  help: set both \
         the same on every rank, or start with mpirun"
    )]
    NoMeeting { by: &'static str },
    #[error("MASTER_PORT is `{port}`, which is not a port")]
    NotAPort { port: String },
    #[error(
        "rank 0 cannot listen at {at}: {why}\n  help: MASTER_ADDR must be an address of rank 0's machine, and MASTER_PORT free \
         there"
    )]
    NotListening { at: String, why: String },
    #[error(
        "{} did not connect to {at} within {seconds} s\n  help: --rank-timeout waits longer; MASTER_ADDR and MASTER_PORT must be \
         the same on all ranks",
        ranks(missing)
    )]
    NotCome { missing: Vec<usize>, seconds: f64, at: String },
    #[error("rank 0 at {at} did not accept this rank: {why}\n  help: another job may use the same MASTER_PORT")]
    NotAdmitted { at: String, why: String },
}

/// Formats `rank 2`, `ranks 1 and 3`.
fn ranks(missing: &[usize]) -> String {
    let numbers: Vec<String> = missing.iter().map(usize::to_string).collect();
    match &numbers[..] {
        [] => "another rank".into(),
        [one] => format!("rank {one}"),
        [first @ .., last] => format!("ranks {} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_ranks_are_named() {
        let said = |missing: &[usize]| RanksError::Silent { missing: missing.to_vec(), seconds: 60.0 }.to_string();
        assert!(said(&[2]).starts_with("rank 2 gave no sign of life for 60 s"));
        assert!(said(&[1, 2, 5]).starts_with("ranks 1, 2 and 5 gave no sign"));
    }
}
