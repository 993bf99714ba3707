//! The last stop of errors: prints them once and maps them to an exit code.

use crate::output;
use headroom_engine::EngineError;
use headroom_engine::ranks::RanksError;
use headroom_record::atomic::FileError;
use headroom_training::checkpoint::CheckpointError;
use headroom_training::data::DataError;
use std::process::ExitCode;
use thiserror::Error;

/// Bad input or usage.
const BAD_INPUT: u8 = 2;
/// The run itself failed.
const RUN_FAILED: u8 = 3;

/// Marks an error of the run itself: the input was fine, but the run failed.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct RunFailed(pub String);

/// Prints the error and returns the process's exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    output::error(&message(error));
    ExitCode::from(code(error))
}

/// The error and its causes, each once.
pub fn message(error: &anyhow::Error) -> String {
    let mut message = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // A transparent error repeats its source's message.
        if !message.contains(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    message
}

/// Exit code of the process.
pub fn code(error: &anyhow::Error) -> u8 {
    if is_of_the_run(error) { RUN_FAILED } else { BAD_INPUT }
}

fn is_of_the_run(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.is::<RunFailed>()
            || matches!(
                cause.downcast_ref(),
                Some(EngineError::Arena { .. } | EngineError::Threads { .. } | EngineError::Ranks(_))
            )
            || matches!(
                cause.downcast_ref(),
                Some(
                    RanksError::Silent { .. }
                        | RanksError::Hung { .. }
                        | RanksError::Gone { .. }
                        | RanksError::Lost { .. }
                        | RanksError::OutOfStep { .. }
                        | RanksError::OtherMessage { .. }
                        | RanksError::OtherLength { .. }
                        | RanksError::NotAllCame { .. }
                        | RanksError::Closed { .. }
                        | RanksError::NotCome { .. }
                        | RanksError::Call { .. }
                )
            )
            || cause.downcast_ref::<FileError>().is_some_and(FileError::is_disk_full)
            || cause.downcast_ref::<CheckpointError>().is_some_and(CheckpointError::is_disk_full)
            || cause.downcast_ref::<DataError>().is_some_and(DataError::is_disk_full)
    })
}
