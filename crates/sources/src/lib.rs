//! The files and settings that a question about scripts takes in: those named, the rest of their projects, and
//! `[tool.headroom]` around them.

pub mod configuration;
pub mod discovery;
pub mod patterns;
pub mod roots;
pub mod within;
