//! Traces made with one fault each, with none, and in odd shapes.

mod faults;
mod foreign;
mod healthy;
mod odd;
mod peers;
mod ranks;
mod run;
