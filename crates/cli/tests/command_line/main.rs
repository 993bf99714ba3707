//! The `headroom` command as its users meet it: every test runs the binary in a folder of its own.

mod auto_precision;
mod bad_files;
mod bad_input;
mod commands;
mod data;
mod determinism;
mod families;
mod full_disk;
mod home;
mod interruption;
mod kept_files;
mod memory;
mod names;
mod not_finite;
mod place;
mod record;
mod replay;
mod resume;
mod run_folder;
mod runs;
mod scale;
mod selective;
mod small_file_system;
mod standard_output;
mod study;
mod workshop;
