//! Index types of files, functions and classes.

pub type FileId = usize;
pub type FunctionId = usize;
pub type ClassId = usize;
