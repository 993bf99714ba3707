//! The dashboard: its server over loopback, and every page in a real Chromium.

mod browser;
mod claims;
mod http;
mod large_trace;
mod pages_of_a_run;
mod pages_of_a_trace;
mod ranks;
mod runs_in_progress;
mod screenshots;
mod security;
mod server;
