//! Models of this process take turns in a race; the race itself is [`headroom_record::turns`], which everything that
//! measures shares.

pub use headroom_record::turns::*;

use crate::bench::{Bench, ExperimentError};

/// The better of two steps: the first one finds the caches filled by somebody else.
impl Contestant for Bench {
    type Error = ExperimentError;

    fn turn(&mut self) -> Result<Turn, ExperimentError> {
        watched(Work::Here, || Ok(self.seconds()?.min(self.seconds()?)))
    }
}
