//! How results are shown. Everything here makes text; printing is the command line's business.

pub mod lint;
pub mod numbers;
pub mod profile;
pub mod training;
