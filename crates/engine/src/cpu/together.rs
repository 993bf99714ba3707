//! Takes part in the collectives of a program, and waits for those that were started.

use super::collective::PreparedCollective;
use super::load::Loaded;
use crate::ranks::{Ranks, RanksError};

/// Takes part in a collective; false where the call is not one between ranks.
pub(super) fn run(ranks: Option<&Ranks>, program: &mut Loaded, index: usize) -> Result<bool, RanksError> {
    let Some(together) = &mut program.calls[index].together else { return Ok(false) };
    let Some(ranks) = ranks else { return Err(RanksError::Left) };
    match together {
        PreparedCollective::Exchange { transfer, later, ticket } => {
            // SAFETY: the plan keeps what is read and made apart from all else until the arrival, and the device leaves the ranks
            // before its arena goes.
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
