//! How results are shown. Everything here makes text; printing is the command line's business.

pub mod analyze;
pub mod attribution;
mod breakdown_bar;
pub mod compare;
pub mod dashboard;
pub mod evaluation;
pub mod k1;
pub mod k1_speed;
pub mod k1_tree;
pub mod lint;
mod memory_plot;
mod names;
pub mod numbers;
pub mod optimize;
pub mod page;
mod plots;
pub mod printable;
pub mod profile;
mod roofline_plot;
pub mod runs;
mod saving_plot;
pub mod scale;
pub mod script;
pub mod study;
pub mod svg;
pub mod table;
pub mod training;
