//! The computation: ops and the graph they form, its gradient, the passes that rewrite it, the memory plan and the
//! predicted cost. Pure data and functions: no files, no clock, no device.

pub mod choice;
pub mod cost;
pub mod fp8;
pub mod gradient;
pub mod graph;
pub mod op;
pub mod ops;
pub mod pass;
pub mod passes;
pub mod plan;
pub mod precision;
pub mod role;
pub mod spread;
pub mod storage;
pub mod tensor;
pub mod text;

pub use choice::{Among, Rule};
pub use gradient::differentiate;
pub use graph::{Category, Graph, GraphError, Node, NodeId, Phase, Source, Value, ValueId};
pub use op::{Op, Operator, ShapeError};
pub use plan::{Layout, Plan};
pub use precision::Precision;
pub use role::{Part, Role};
pub use storage::Kept;
pub use tensor::{DType, Shape, TensorType};
