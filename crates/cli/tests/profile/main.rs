//! `headroom profile` from its users' side: every test runs the binary and reads its files.

mod endings;
mod figures;
mod files;
mod one_road;
mod peaks;
mod runs;
mod workshop;
