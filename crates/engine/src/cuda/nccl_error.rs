//! Failures of communication between GPUs; each says what to do.

use std::path::PathBuf;
use thiserror::Error;

/// Failures of NCCL and of its requirements; each says what to do.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum NcclError {
    #[error(
        "NCCL was not found, and several ranks on GPUs communicate through it: looked for {}\n  help: pip install nvidia-nccl-cu12 \
         into the active environment, put libnccl.so.2 on LD_LIBRARY_PATH, or name the file in HEADROOM_NCCL_LIBRARY",
        tried.join(", ")
    )]
    NoLibrary { tried: Vec<String> },
    #[error("{} is not a usable NCCL: it has no {symbol}\n  help: NCCL 2.10 or newer is needed", path.display())]
    NoSymbol { path: PathBuf, symbol: &'static str },
    #[error("{} cannot be opened: {why}", path.display())]
    NotOpened { path: PathBuf, why: String },
    #[error("{function} failed: {why}\n  help: NCCL_DEBUG=WARN makes NCCL say more")]
    Call { function: &'static str, why: String },
    #[error(
        "ranks {first} and {second} are both on GPU {gpu}: NCCL needs one GPU per rank\n  help: --device cuda gives every rank of \
         a machine its own; start as many ranks as there are GPUs. For a test on one GPU, give each rank another NCCL_HOSTID"
    )]
    SameGpu { first: usize, second: usize, gpu: String },
    #[error("rank {rank} cannot take part: {why}")]
    NotReady { rank: usize, why: String },
    #[error(
        "the ranks did not join through NCCL within {seconds} s\n  help: --rank-timeout waits longer; NCCL_DEBUG=INFO shows which \
         network it tries"
    )]
    NotJoined { seconds: f64 },
    #[error(
        "the other ranks' GPUs made no progress for {seconds} s\n  help: --rank-timeout waits longer; --resume continues from the \
         last checkpoint"
    )]
    NoProgress { seconds: f64 },
    #[error(transparent)]
    Ranks(#[from] crate::ranks::RanksError),
}
