//! The optimisation ladder as a person reads it: on the terminal, as Markdown, and as one HTML page that needs nothing else.

mod html;
mod markdown;
pub mod phase_3;
mod plots;
pub mod precisions;
mod tables;
mod terminal;

pub use html::html;
pub use markdown::markdown;
pub use tables::{gate_figure, times};
pub use terminal::terminal;
