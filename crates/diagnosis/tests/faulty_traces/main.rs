//! Traces made with one fault each, with none, and in odd shapes.

mod faults;
mod foreign;
mod healthy;
mod odd;
mod ranks;
mod run;
