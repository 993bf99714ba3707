//! `headroom profile` as its users meet it: every test runs the binary and reads what it left.

mod endings;
mod figures;
mod files;
mod one_road;
mod peaks;
mod runs;
mod workshop;
