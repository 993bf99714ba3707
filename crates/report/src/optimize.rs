//! The optimisation ladder's report: for the terminal, as Markdown, and as one self-contained HTML page.

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
