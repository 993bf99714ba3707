//! The device's work for a call: a list of kernels with their arguments, products, and memory set to zero.

use super::cudnn::Placed;
use super::driver::{Stream, cu, zero};
use super::error::CudaError;
use super::product::{Addresses, Products, Shape};
use cudarc::driver::sys::{self, CUfunction};
use std::ffi::c_void;

pub enum Action {
    Kernel(Kernel),
    Product(Shape, Addresses),
    /// A product of 8-bit operands, with the addresses of their two scales.
    Scaled(Shape, Addresses, [u64; 2]),
    Zero {
        at: u64,
        bytes: usize,
    },
    /// A cuDNN graph.
    Cudnn(Box<Placed>),
    /// The faster of two implementations.
    Either(Box<Either>),
    /// A kernel that only has an effect before the first step is done: replays of later steps leave it out.
    FirstUse(Kernel),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Ours,
    Theirs,
}

/// Two implementations of the same work; `either` measures which is faster.
pub struct Either {
    /// Names the work and the library: choices are kept under it.
    pub key: String,
    pub ours: Vec<Action>,
    pub theirs: Vec<Action>,
    pub side: Side,
}

impl Either {
    pub fn chosen(&self) -> &[Action] {
        match self.side {
            Side::Ours => &self.ours,
            Side::Theirs => &self.theirs,
        }
    }
}

pub struct Kernel {
    pub function: CUfunction,
    pub name: String,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    pub arguments: Arguments,
}

/// Arguments of a kernel, one word each; small types use the low bytes.
#[derive(Clone, Debug, Default)]
pub struct Arguments(Vec<u64>);

impl Arguments {
    pub fn pointer(mut self, at: u64) -> Arguments {
        self.0.push(at);
        self
    }

    pub fn none(self) -> Arguments {
        self.pointer(0)
    }

    pub fn u32(mut self, value: usize) -> Arguments {
        self.0.push(value as u64);
        self
    }

    pub fn u64(mut self, value: usize) -> Arguments {
        self.0.push(value as u64);
        self
    }

    pub fn f32(mut self, value: f64) -> Arguments {
        self.0.push(u64::from((value as f32).to_bits()));
        self
    }

    pub fn f64(mut self, value: f64) -> Arguments {
        self.0.push(value.to_bits());
        self
    }
}

/// Upper limit for all kernels.
const MOST_ARGUMENTS: usize = 32;

impl Kernel {
    fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        let mut pointers = [std::ptr::null_mut::<c_void>(); MOST_ARGUMENTS];
        for (pointer, argument) in pointers.iter_mut().zip(&self.arguments.0) {
            *pointer = (argument as *const u64).cast_mut().cast();
        }
        let ([gx, gy, gz], [bx, by, bz]) = (self.grid, self.block);
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            sharedMemBytes: self.shared,
            hStream: stream.0,
            attrs: &mut attribute,
            numAttrs: u32::from(stream.takes_early()),
        };
        stream.queued_kernel();
        cu!(cuLaunchKernelEx(&config, self.function, pointers.as_mut_ptr(), std::ptr::null_mut())).map_err(|error| {
            match error {
                CudaError::Driver { call, name, text } => {
                    let text = format!("{text}; {} on {:?} blocks of {:?}", self.name, self.grid, self.block);
                    CudaError::Driver { call, name, text }
                }
                other => other,
            }
        })
    }
}

impl Action {
    /// The same kernel, left out of replays.
    pub fn on_first_use(self) -> Action {
        match self {
            Action::Kernel(kernel) => Action::FirstUse(kernel),
            other => other,
        }
    }

    pub fn is_for_first_use(&self) -> bool {
        matches!(self, Action::FirstUse(_))
    }

    /// Queues it; `workspace` is the index of the workspace that a product uses.
    pub fn run(&self, stream: &Stream, workspace: usize, products: &Products) -> Result<(), CudaError> {
        match self {
            Action::Kernel(kernel) => kernel.launch(stream),
            Action::FirstUse(kernel) => kernel.launch(stream),
            Action::Product(shape, at) => products.run(stream, workspace, shape, *at).map(|()| stream.queued_kernel()),
            Action::Scaled(shape, at, scales) => {
                products.run_scaled(stream, workspace, shape, *at, *scales).map(|()| stream.queued_kernel())
            }
            Action::Zero { at, bytes } => zero(*at, *bytes, stream),
            Action::Cudnn(placed) => placed.run(stream).map(|()| stream.queued_other()),
            Action::Either(either) => {
                either.chosen().iter().try_for_each(|action| action.run(stream, workspace, products))
            }
        }
    }
}
