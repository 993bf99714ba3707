//! The exported trace.
