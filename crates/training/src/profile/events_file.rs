//! TensorBoard scalars.
