//! Numbers of files, functions and classes among those given.

pub type FileId = usize;
pub type FunctionId = usize;
pub type ClassId = usize;
