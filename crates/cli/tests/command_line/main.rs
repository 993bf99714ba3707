//! The `headroom` command from its users' side: every test runs the binary in its own folder.

mod auto_precision;
mod bad_files;
mod bad_input;
mod bounded_reading;
mod colour;
mod commands;
mod convention;
mod corpus;
mod coursework;
mod data;
mod determinism;
mod evaluation;
mod families;
mod full_disk;
mod gates;
mod generation;
mod home;
mod interruption;
#[cfg(target_os = "linux")]
mod isolated_processes;
#[cfg(target_os = "linux")]
mod isolation;
mod kept_files;
mod limits;
mod long_runs;
mod memory;
mod names;
mod not_finite;
mod optimize_script;
mod place;
mod readme;
mod record;
mod replay;
mod resume;
mod resumed_data;
mod run_folder;
mod runs;
mod saved_models;
mod scale;
mod selective;
mod several_runs;
mod small_file_system;
mod standard_output;
mod study;
mod tokenizers;
mod workshop;
