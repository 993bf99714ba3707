//! The dashboard: its pages, scripts and styles, and the data for each page.
//!
//! Nothing here reads a file or a socket: the server in `cli` passes in records, analyses and traces, and gets back
//! bytes, or structs to send as JSON.

mod assets;
pub mod attribution;
pub mod comparison;
pub mod live;
pub mod memory;
pub mod operators;
pub mod overview;
pub mod overview_of_run;
pub mod overview_of_trace;
pub mod records;
pub mod roofline;
pub mod runs;
mod shell;
pub mod timeline;

pub use assets::{Asset, asset};
pub use records::RunRecords;
pub use shell::{Page, Subject, page};
