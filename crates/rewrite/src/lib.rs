//! Python text: its tree and lines, questions about its syntax, and edits at given places.
//!
//! Fixes of `lint` and patches of `scripts` say which places change; here the text is read, changed and parsed again.

mod edit;
pub mod edits;
mod line_ends;
mod nesting;
mod notebook;
mod rewrite;
mod source;
pub mod syntax;

pub use edit::{Edit, Preview, apply};
pub use edits::preview;
pub use line_ends::LineEnds;
pub use notebook::Cell;
pub use rewrite::arguments::Argument;
pub use rewrite::{Refusal, Rewrite, Spot};
pub use source::{Depth, Problem, Source, is_notebook};
