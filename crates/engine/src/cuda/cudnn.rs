//! cuDNN's graph API, loaded if it is installed: opaque descriptors, graphs of operations, and plans that run them.

pub mod attention;

use super::SumOrder;
use super::driver::Stream;
use super::error::CudaError;
use super::library;
use libloading::Library;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::rc::Rc;

type Raw = *mut c_void;

/// Descriptor kinds, by cuDNN's numbers.
mod kind {
    pub const POINTWISE: i32 = 0;
    pub const ENGINE_CONFIGURATION: i32 = 3;
    pub const HEURISTIC: i32 = 4;
    pub const PLAN: i32 = 5;
    pub const POINTWISE_OPERATION: i32 = 13;
    pub const GRAPH: i32 = 15;
    pub const PACK: i32 = 16;
    pub const TENSOR: i32 = 17;
    pub const PRODUCT: i32 = 18;
    pub const PRODUCT_OPERATION: i32 = 19;
    pub const REDUCTION: i32 = 21;
    pub const REDUCTION_OPERATION: i32 = 22;
    pub const RESHAPE_OPERATION: i32 = 31;
}

/// Attribute types.
mod of_type {
    pub const HANDLE: i32 = 0;
    pub const DATA: i32 = 1;
    pub const BOOLEAN: i32 = 2;
    pub const INTEGER: i32 = 3;
    pub const POINTER: i32 = 6;
    pub const HEURISTIC: i32 = 8;
    pub const POINTWISE: i32 = 14;
    pub const DESCRIPTOR: i32 = 15;
    pub const REDUCTION: i32 = 18;
}

/// How elements are stored or computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Data {
    Float = 0,
    Int32 = 4,
    Bf16 = 9,
    Boolean = 11,
}

/// An element-wise operation.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub enum Pointwise {
    Add = 0,
    Multiply = 1,
    Divide = 6,
    Subtract = 9,
    Exponential = 13,
    Logarithm = 15,
    Identity = 21,
    AtLeast = 303,
    Index = 501,
    Select = 601,
}

#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub enum Reduction {
    Sum = 0,
    Highest = 3,
}

type Set = unsafe extern "C" fn(Raw, c_int, c_int, i64, *const c_void) -> c_int;
type Get = unsafe extern "C" fn(Raw, c_int, c_int, i64, *mut i64, *mut c_void) -> c_int;

struct Functions {
    make: unsafe extern "C" fn(c_int, *mut Raw) -> c_int,
    end: unsafe extern "C" fn(Raw) -> c_int,
    set: Set,
    get: Get,
    finish: unsafe extern "C" fn(Raw) -> c_int,
    execute: unsafe extern "C" fn(Raw, Raw, Raw) -> c_int,
    set_stream: unsafe extern "C" fn(Raw, *mut c_void) -> c_int,
    last_error: unsafe extern "C" fn(*mut c_char, usize),
    destroy: unsafe extern "C" fn(Raw) -> c_int,
}

/// The library with its own handle.
pub struct Cudnn {
    functions: Functions,
    handle: Raw,
    /// For example 91900.
    pub version: usize,
    /// Keeps the functions loaded.
    _library: Library,
}

impl Cudnn {
    /// Opens the library; the error says why it is not available.
    pub fn open() -> Result<Rc<Cudnn>, String> {
        let library = library::optional("libcudnn.so.9")?;
        fn function<T: Copy>(library: &Library, name: &str) -> Result<T, String> {
            // SAFETY: each is asked for by the type that cuDNN 9 declares it with.
            unsafe { library.get::<T>(name.as_bytes()) }.map(|symbol| *symbol).map_err(|error| error.to_string())
        }
        let create: unsafe extern "C" fn(*mut Raw) -> c_int = function(&library, "cudnnCreate")?;
        let version: unsafe extern "C" fn() -> usize = function(&library, "cudnnGetVersion")?;
        let functions = Functions {
            make: function(&library, "cudnnBackendCreateDescriptor")?,
            end: function(&library, "cudnnBackendDestroyDescriptor")?,
            set: function(&library, "cudnnBackendSetAttribute")?,
            get: function(&library, "cudnnBackendGetAttribute")?,
            finish: function(&library, "cudnnBackendFinalize")?,
            execute: function(&library, "cudnnBackendExecute")?,
            set_stream: function(&library, "cudnnSetStream")?,
            last_error: function(&library, "cudnnGetLastErrorString")?,
            destroy: function(&library, "cudnnDestroy")?,
        };
        let mut handle = null_mut();
        // SAFETY: `handle` is a live local; the driver's context is current.
        let (made, version) = unsafe { (create(&mut handle), version()) };
        if made != 0 {
            return Err(format!("cudnnCreate failed with status {made}"));
        }
        Ok(Rc::new(Cudnn { functions, handle, version, _library: library }))
    }

    fn check(&self, call: &'static str, status: c_int) -> Result<(), CudaError> {
        if status == 0 {
            return Ok(());
        }
        let mut text = [0; 1024];
        // SAFETY: cuDNN writes at most this many bytes and ends them with a zero.
        let text = unsafe {
            (self.functions.last_error)(text.as_mut_ptr(), text.len());
            CStr::from_ptr(text.as_ptr()).to_string_lossy().trim().replace('\n', "; ")
        };
        Err(CudaError::Cudnn { call, status, text })
    }
}

impl Drop for Cudnn {
    fn drop(&mut self) {
        // SAFETY: the handle is live, and nothing made with it is left.
        unsafe { (self.functions.destroy)(self.handle) };
    }
}

/// A descriptor that is destroyed when nobody holds it any more.
struct Descriptor {
    cudnn: Rc<Cudnn>,
    raw: Raw,
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: created by cuDNN and destroyed once.
        unsafe { (self.cudnn.functions.end)(self.raw) };
    }
}

impl Descriptor {
    fn new(cudnn: &Rc<Cudnn>, kind: i32) -> Result<Descriptor, CudaError> {
        let mut raw = null_mut();
        // SAFETY: `raw` is a live local.
        cudnn.check("cudnnBackendCreateDescriptor", unsafe { (cudnn.functions.make)(kind, &mut raw) })?;
        Ok(Descriptor { cudnn: cudnn.clone(), raw })
    }

    fn set<T>(&self, name: i32, of: i32, values: &[T]) -> Result<(), CudaError> {
        let (count, from) = (values.len() as i64, values.as_ptr().cast());
        // SAFETY: `from` holds this many values of the attribute's type.
        let status = unsafe { (self.cudnn.functions.set)(self.raw, name, of, count, from) };
        self.cudnn.check("cudnnBackendSetAttribute", status)
    }

    fn set_descriptor(&self, name: i32, other: &Descriptor) -> Result<(), CudaError> {
        self.set(name, of_type::DESCRIPTOR, &[other.raw])
    }

    /// Returns how many there are, and writes as many as fit to `into`.
    fn get<T>(&self, name: i32, of: i32, into: &mut [T]) -> Result<i64, CudaError> {
        let mut count = 0;
        let (room, to) = (into.len() as i64, into.as_mut_ptr().cast());
        // SAFETY: there is room for this many values of the attribute's type.
        let status = unsafe { (self.cudnn.functions.get)(self.raw, name, of, room, &mut count, to) };
        self.cudnn.check("cudnnBackendGetAttribute", status).map(|()| count)
    }

    fn finished(self) -> Result<Descriptor, CudaError> {
        // SAFETY: a live descriptor.
        self.cudnn.check("cudnnBackendFinalize", unsafe { (self.cudnn.functions.finish)(self.raw) })?;
        Ok(self)
    }
}

pub type Four = [i64; 4];

/// A tensor of a graph.
#[derive(Clone)]
pub struct Tensor {
    descriptor: Rc<Descriptor>,
    dims: Four,
    strides: Four,
}

/// Where the elements of a tensor come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// Memory that is bound under this number when the graph runs.
    Given(i64),
    /// One number, known at build time.
    Value(f32),
    /// Intermediate between operations; never in memory.
    Between,
}

/// A graph under construction.
pub struct Graph {
    cudnn: Rc<Cudnn>,
    operations: Vec<Descriptor>,
    /// Descriptors that operations refer to.
    parts: Vec<Descriptor>,
    values: Vec<(i64, Box<f32>)>,
    next: i64,
}

impl Graph {
    pub fn new(cudnn: &Rc<Cudnn>) -> Graph {
        Graph { cudnn: cudnn.clone(), operations: vec![], parts: vec![], values: vec![], next: 1000 }
    }

    pub fn tensor(&mut self, place: Place, data: Data, dims: Four, strides: Four) -> Result<Tensor, CudaError> {
        self.next += 1;
        let number = match place {
            Place::Given(number) => number,
            Place::Value(_) | Place::Between => self.next,
        };
        let descriptor = Descriptor::new(&self.cudnn, kind::TENSOR)?;
        descriptor.set(900, of_type::INTEGER, &[16i64])?;
        descriptor.set(901, of_type::DATA, &[data as i32])?;
        descriptor.set(902, of_type::INTEGER, &dims)?;
        descriptor.set(903, of_type::INTEGER, &strides)?;
        descriptor.set(906, of_type::INTEGER, &[number])?;
        descriptor.set(907, of_type::BOOLEAN, &[place == Place::Between])?;
        if let Place::Value(value) = place {
            descriptor.set(908, of_type::BOOLEAN, &[true])?;
            self.values.push((number, Box::new(value)));
        }
        Ok(Tensor { descriptor: Rc::new(descriptor.finished()?), dims, strides })
    }

    /// One number, broadcast to all elements.
    pub fn value(&mut self, value: f32) -> Result<Tensor, CudaError> {
        self.tensor(Place::Value(value), Data::Float, [1; 4], [1; 4])
    }

    /// An intermediate tensor with the layout of another.
    pub fn like(&mut self, other: &Tensor, data: Data) -> Result<Tensor, CudaError> {
        self.tensor(Place::Between, data, other.dims, other.strides)
    }

    /// Takes one or two `inputs`, or three for a selection; `axis` is for an index.
    pub fn pointwise_to(
        &mut self,
        mode: Pointwise,
        (computed, axis): (Data, Option<i64>),
        inputs: &[&Tensor],
        output: &Tensor,
    ) -> Result<(), CudaError> {
        let how = Descriptor::new(&self.cudnn, kind::POINTWISE)?;
        how.set(0, of_type::POINTWISE, &[mode as i32])?;
        how.set(1, of_type::DATA, &[computed as i32])?;
        if let Some(axis) = axis {
            how.set(9, of_type::INTEGER, &[axis])?;
        }
        let how = how.finished()?;
        let operation = Descriptor::new(&self.cudnn, kind::POINTWISE_OPERATION)?;
        operation.set_descriptor(750, &how)?;
        for (name, input) in [751, 752, 758].into_iter().zip(inputs) {
            operation.set_descriptor(name, &input.descriptor)?;
        }
        operation.set_descriptor(753, &output.descriptor)?;
        self.operations.push(operation.finished()?);
        self.parts.push(how);
        Ok(())
    }

    /// Computes in floats, into a new tensor like the first input.
    pub fn pointwise(&mut self, mode: Pointwise, inputs: &[&Tensor]) -> Result<Tensor, CudaError> {
        let output = self.like(inputs[0], Data::Float)?;
        self.pointwise_to(mode, (Data::Float, None), inputs, &output)?;
        Ok(output)
    }

    pub fn product_to(&mut self, a: &Tensor, b: &Tensor, output: &Tensor) -> Result<(), CudaError> {
        let how = Descriptor::new(&self.cudnn, kind::PRODUCT)?;
        how.set(1500, of_type::DATA, &[Data::Float as i32])?;
        let how = how.finished()?;
        let operation = Descriptor::new(&self.cudnn, kind::PRODUCT_OPERATION)?;
        operation.set_descriptor(1523, &how)?;
        operation.set_descriptor(1520, &a.descriptor)?;
        operation.set_descriptor(1521, &b.descriptor)?;
        operation.set_descriptor(1522, &output.descriptor)?;
        self.operations.push(operation.finished()?);
        self.parts.push(how);
        Ok(())
    }

    pub fn reduction_to(&mut self, mode: Reduction, input: &Tensor, output: &Tensor) -> Result<(), CudaError> {
        let how = Descriptor::new(&self.cudnn, kind::REDUCTION)?;
        how.set(1600, of_type::REDUCTION, &[mode as i32])?;
        how.set(1601, of_type::DATA, &[Data::Float as i32])?;
        let how = how.finished()?;
        let operation = Descriptor::new(&self.cudnn, kind::REDUCTION_OPERATION)?;
        operation.set_descriptor(1612, &how)?;
        operation.set_descriptor(1610, &input.descriptor)?;
        operation.set_descriptor(1611, &output.descriptor)?;
        self.operations.push(operation.finished()?);
        self.parts.push(how);
        Ok(())
    }

    /// Views the same elements with other sizes and strides.
    pub fn reshape_to(&mut self, input: &Tensor, output: &Tensor) -> Result<(), CudaError> {
        let operation = Descriptor::new(&self.cudnn, kind::RESHAPE_OPERATION)?;
        operation.set_descriptor(2200, &input.descriptor)?;
        operation.set_descriptor(2201, &output.descriptor)?;
        self.operations.push(operation.finished()?);
        Ok(())
    }

    /// The first of cuDNN's proposals that it can build with at most this much workspace.
    pub fn planned(self, most_workspace: usize) -> Result<Plan, CudaError> {
        const PROPOSALS: usize = 8;
        /// cuDNN's quick heuristic.
        const MODE: i32 = 3;
        let cudnn = &self.cudnn;
        let graph = Descriptor::new(cudnn, kind::GRAPH)?;
        let operations: Vec<Raw> = self.operations.iter().map(|operation| operation.raw).collect();
        graph.set(800, of_type::HANDLE, &[cudnn.handle])?;
        graph.set(801, of_type::DESCRIPTOR, &operations)?;
        let graph = graph.finished()?;
        let heuristic = Descriptor::new(cudnn, kind::HEURISTIC)?;
        heuristic.set_descriptor(201, &graph)?;
        heuristic.set(200, of_type::HEURISTIC, &[MODE])?;
        let heuristic = heuristic.finished()?;
        let proposals: Vec<Descriptor> =
            (0..PROPOSALS).map(|_| Descriptor::new(cudnn, kind::ENGINE_CONFIGURATION)).collect::<Result<_, _>>()?;
        let mut raw: Vec<Raw> = proposals.iter().map(|proposal| proposal.raw).collect();
        let count = heuristic.get(202, of_type::DESCRIPTOR, &mut raw)?;
        let mut refused = CudaError::Cudnn { call: "its heuristic", status: 0, text: "proposes nothing".into() };
        for proposal in proposals.iter().take(count.max(0) as usize) {
            match self.plan_of(proposal, most_workspace) {
                Ok((plan, workspace)) => {
                    let parts = [vec![graph, heuristic], proposals, self.operations, self.parts].into_iter().flatten();
                    return Ok(Plan { plan, workspace, values: self.values, _parts: parts.collect() });
                }
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    fn plan_of(&self, proposal: &Descriptor, most: usize) -> Result<(Descriptor, usize), CudaError> {
        let plan = Descriptor::new(&self.cudnn, kind::PLAN)?;
        plan.set(400, of_type::HANDLE, &[self.cudnn.handle])?;
        plan.set_descriptor(401, proposal)?;
        let plan = plan.finished()?;
        let mut workspace = [0i64];
        plan.get(402, of_type::INTEGER, &mut workspace)?;
        let workspace = workspace[0].max(0) as usize;
        if workspace > most {
            let text = format!("wants a workspace of {workspace} bytes, more than {most}");
            return Err(CudaError::Cudnn { call: "its plan", status: 0, text });
        }
        Ok((plan, workspace))
    }
}

/// A graph that is ready to run.
pub struct Plan {
    plan: Descriptor,
    pub workspace: usize,
    values: Vec<(i64, Box<f32>)>,
    _parts: Vec<Descriptor>,
}

impl Plan {
    /// Binds the plan to these addresses, by number.
    pub fn at(self: &Rc<Self>, places: &[(i64, u64)], workspace: u64) -> Result<Placed, CudaError> {
        let values =
            self.values.iter().map(|(number, value)| (*number, (&raw const **value).cast_mut().cast::<c_void>()));
        let given = places.iter().map(|&(number, at)| (number, at as *mut c_void));
        let (numbers, pointers): (Vec<i64>, Vec<*mut c_void>) = given.chain(values).unzip();
        let pack = Descriptor::new(&self.plan.cudnn, kind::PACK)?;
        pack.set(1000, of_type::INTEGER, &numbers)?;
        pack.set(1001, of_type::POINTER, &pointers)?;
        pack.set(1003, of_type::POINTER, &[workspace as *mut c_void])?;
        Ok(Placed { pack: pack.finished()?, plan: self.clone() })
    }
}

/// A plan bound to the addresses of its tensors.
pub struct Placed {
    pack: Descriptor,
    plan: Rc<Plan>,
}

impl Placed {
    pub fn run(&self, stream: &Stream) -> Result<(), CudaError> {
        let cudnn = &self.pack.cudnn;
        // SAFETY: handle, plan and pack are live; the pack's addresses are in the arena, the scratch or the plan
        // itself.
        let (set, ran) = unsafe {
            let set = (cudnn.functions.set_stream)(cudnn.handle, stream.0.cast());
            (set, (cudnn.functions.execute)(cudnn.handle, self.plan.plan.raw, self.pack.raw))
        };
        cudnn.check("cudnnSetStream", set)?;
        cudnn.check("cudnnBackendExecute", ran)
    }
}

/// Set by HEADROOM_CUDNN for comparisons and checks; replaces the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forced {
    Never,
    Always,
}

pub fn forced() -> Option<Forced> {
    match std::env::var("HEADROOM_CUDNN").ok()?.as_str() {
        "never" => Some(Forced::Never),
        "always" => Some(Forced::Always),
        _ => None,
    }
}

/// cuDNN, if available, and the plans built so far; layers share them.
pub struct Plans {
    cudnn: Option<Rc<Cudnn>>,
    made: BTreeMap<String, Option<Rc<Plan>>>,
    pub order: SumOrder,
    /// Why cuDNN does not run something.
    pub notes: Vec<String>,
}

impl Plans {
    pub fn none() -> Plans {
        Plans { cudnn: None, made: BTreeMap::new(), order: SumOrder::Fixed, notes: vec![] }
    }

    /// A missing library becomes a note.
    pub fn open(order: SumOrder) -> Plans {
        if forced() == Some(Forced::Never) {
            return Plans::none();
        }
        match Cudnn::open() {
            Ok(cudnn) => Plans { cudnn: Some(cudnn), order, ..Plans::none() },
            Err(why) => Plans { notes: vec![format!("attention without cuDNN: {why}")], ..Plans::none() },
        }
    }

    /// The key with the library's version, and the plan; `None` if cuDNN is missing or rejects it.
    pub fn plan(
        &mut self,
        key: &str,
        make: impl FnOnce(&Rc<Cudnn>) -> Result<Plan, CudaError>,
    ) -> Option<(String, Rc<Plan>)> {
        let cudnn = self.cudnn.as_ref()?;
        let key = format!("{key}-cudnn-{}", cudnn.version);
        if !self.made.contains_key(&key) {
            let plan = make(cudnn).map_err(|error| self.notes.push(format!("{key}: {error}"))).ok();
            self.made.insert(key.clone(), plan.map(Rc::new));
        }
        let plan = self.made[&key].clone()?;
        Some((key, plan))
    }
}
