//! Made-up traces with one fault each, with none, and in odd shapes.

mod edges;
mod faults;
mod fixes;
mod foreign;
mod graphs;
mod healthy;
mod held;
mod host_alone;
mod odd;
mod peers;
mod ranks;
mod run;
