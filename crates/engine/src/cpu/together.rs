//! Takes part in a program's collectives, and waits for those that were started.

use super::collective::PreparedCollective;
use super::load::Loaded;
use crate::ranks::{Ranks, RanksError};

/// Takes part in a collective; returns false if the call does not involve other ranks.
pub(super) fn run(ranks: Option<&Ranks>, program: &mut Loaded, index: usize) -> Result<bool, RanksError> {
    let Some(together) = &mut program.calls[index].together else { return Ok(false) };
    let Some(ranks) = ranks else { return Err(RanksError::Left) };
    match together {
        PreparedCollective::Exchange { transfer, later, ticket } => {
            // SAFETY: the plan keeps inputs and outputs apart from everything else until the arrival, and the device
            // leaves the ranks before its arena is freed.
            *ticket = unsafe { ranks.start(transfer) };
            if !*later {
                ranks.wait_for(*ticket)?;
            }
        }
        PreparedCollective::Arrival { of } => {
            let of = *of;
            if let Some(PreparedCollective::Exchange { ticket, .. }) = &program.calls[of].together {
                ranks.wait_for(*ticket)?;
            }
        }
    }
    Ok(true)
}
