//! People's PyTorch scripts: the hook that runs inside them, the isolation that keeps them from files, remedies (named
//! changes applied from outside), the search for those that pay, the gates that prove them, and the patch that writes them
//! down.
//!
//! The unmodified script is measured, then each remedy in alternation with the best so far, then the kept remedies
//! against the unmodified script, with gates for losses, batches and memory. The search starts no process: a
//! [`variant::Runner`] does, and returns what the hook recorded. `python/` holds the side of the hook: `sitecustomize.py`,
//! and the package `headroom_hook` with its parts.

pub mod candidates;
pub mod conductor;
pub mod error;
pub mod gates;
pub mod hook;
pub mod isolation;
pub mod measurements;
pub mod moment;
pub mod note;
pub mod outcome;
pub mod patch;
pub mod places;
pub mod printed;
pub mod processes;
pub mod proposal;
pub mod recording;
pub mod remedies;
mod rereading;
mod runs;
pub mod search;
pub mod secrets;
pub mod stored_patch;
pub mod variant;
pub mod variation;
