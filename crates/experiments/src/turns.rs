//! Models of this process take turns in a race; the race itself is [`headroom_record::turns`], which everything that
//! measures shares.

pub use headroom_record::turns::*;

use crate::bench::{Bench, ExperimentError};

/// The better of two steps: the first one finds the caches filled by another model, whose threads go to sleep meanwhile. So
/// only the second one is watched.
impl Contestant for Bench {
    type Error = ExperimentError;

    fn turn(&mut self) -> Result<Turn, ExperimentError> {
        let first = self.seconds()?;
        let turn = watched(Work::Here, || self.seconds())?;
        Ok(Turn { seconds: turn.seconds.min(first), ..turn })
    }
}
