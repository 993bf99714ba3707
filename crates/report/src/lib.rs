//! How results are shown. Everything here makes text; printing is the command line's business.

pub mod analyze;
pub mod attribution;
pub mod compare;
pub mod dashboard;
pub mod k1;
pub mod lint;
mod names;
pub mod numbers;
pub mod optimize;
pub mod page;
mod plots;
pub mod printable;
pub mod profile;
pub mod runs;
pub mod scale;
pub mod study;
pub mod svg;
pub mod table;
mod text_table;
pub mod training;
