//! Safe wrappers around the driver API: context, streams, events, memory, graphs.

use super::error::CudaError;
use super::level::{self, Level};
use cudarc::driver::sys;
use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

/// Calls the driver and converts its status into a result that names the call.
macro_rules! cu {
    ($call:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: pointers passed are to live locals or to memory that this module owns; the driver checks handles.
        $crate::cuda::driver::check(stringify!($call), unsafe { cudarc::driver::sys::$call($($argument),*) })
    };
}
pub(super) use cu;

pub fn check(call: &'static str, result: sys::CUresult) -> Result<(), CudaError> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let text = |get: unsafe fn(sys::CUresult, *mut *const std::ffi::c_char) -> sys::CUresult| {
        let mut text = std::ptr::null();
        // SAFETY: `text` is a live local; the driver points it at a constant string or leaves it null.
        unsafe { get(result, &mut text) };
        match text.is_null() {
            true => format!("{result:?}"),
            // SAFETY: not null, and the driver's strings end with a zero.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        }
    };
    Err(CudaError::Driver { call, name: text(sys::cuGetErrorName), text: text(sys::cuGetErrorString) })
}

/// A device with its primary context current on this thread.
#[derive(Debug)]
pub struct Context {
    pub name: String,
    /// Compute capability, such as (9, 0).
    pub capability: (u32, u32),
    /// Level of the attention kernels that it runs.
    pub level: Level,
    pub multiprocessors: u32,
    /// Opt-in limit of shared memory per block, in bytes.
    pub shared_memory: usize,
    pub driver_version: i32,
    /// PCI bus address, by which NVML identifies it: `0000:1B:00.0`.
    pub bus: String,
    device: sys::CUdevice,
}

/// Names of all devices, without creating a context.
pub fn names() -> Result<Vec<String>, CudaError> {
    (0..count()?).map(|ordinal| named(ordinal).map(|(_, name)| name)).collect()
}

fn count() -> Result<usize, CudaError> {
    cu!(cuInit(0))?;
    let mut count = 0;
    cu!(cuDeviceGetCount(&mut count))?;
    Ok(count as usize)
}

fn named(ordinal: usize) -> Result<(sys::CUdevice, String), CudaError> {
    let mut device = 0;
    cu!(cuDeviceGet(&mut device, ordinal as i32))?;
    let mut name = [0; 128];
    cu!(cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device))?;
    // SAFETY: the driver ended the name with a zero.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    Ok((device, name))
}

impl Context {
    pub fn new(ordinal: usize) -> Result<Context, CudaError> {
        let found = count()?;
        if ordinal >= found {
            return Err(CudaError::NoDevice { ordinal, found });
        }
        let (device, name) = named(ordinal)?;
        let mut context = null_mut();
        cu!(cuDevicePrimaryCtxRetain(&mut context, device))?;
        cu!(cuCtxSetCurrent(context))?;
        let attribute = |which: sys::CUdevice_attribute| {
            let mut value = 0;
            cu!(cuDeviceGetAttribute(&mut value, which, device)).map(|()| value as u32)
        };
        use sys::CUdevice_attribute as A;
        let major = attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let multiprocessors = attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let shared_memory = attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as usize;
        let level = Level::chosen((major, minor), std::env::var(level::FORCED).ok().as_deref())?;
        let mut driver_version = 0;
        cu!(cuDriverGetVersion(&mut driver_version))?;
        let mut bus = [0; 32];
        cu!(cuDeviceGetPCIBusId(bus.as_mut_ptr(), bus.len() as i32, device))?;
        // SAFETY: the driver ended the text with a zero.
        let bus = unsafe { CStr::from_ptr(bus.as_ptr()) }.to_string_lossy().into_owned();
        let capability = (major, minor);
        Ok(Context { name, capability, level, multiprocessors, shared_memory, driver_version, bus, device })
    }

    /// Free and total bytes of the device.
    pub fn memory(&self) -> Result<(usize, usize), CudaError> {
        let (mut free, mut total) = (0, 0);
        cu!(cuMemGetInfo_v2(&mut free, &mut total))?;
        Ok((free, total))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let _ = cu!(cuDevicePrimaryCtxRelease_v2(self.device));
    }
}

#[derive(Debug)]
pub struct Stream(pub sys::CUstream, Early);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    First,
    /// Takes the resources that the other leaves.
    Last,
}

/// Whether kernels may be launched before the previous one has ended, and whether a kernel was queued last.
#[derive(Debug, Default)]
struct Early {
    is_allowed: Cell<bool>,
    follows_kernel: Cell<bool>,
}

impl Stream {
    pub fn new() -> Result<Stream, CudaError> {
        Stream::with(Urgency::First)
    }

    /// Blocks of the more urgent of two streams are started first.
    pub fn with(urgency: Urgency) -> Result<Stream, CudaError> {
        let (mut last, mut first) = (0, 0);
        cu!(cuCtxGetStreamPriorityRange(&mut last, &mut first))?;
        let priority = if urgency == Urgency::First { first } else { last };
        let mut stream = null_mut();
        cu!(cuStreamCreateWithPriority(&mut stream, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32, priority))?;
        Ok(Stream(stream, Early::default()))
    }

    /// Sets whether kernels may be launched early from here on.
    pub fn allow_early(&self, is_allowed: bool) {
        self.1.is_allowed.set(is_allowed);
        self.1.follows_kernel.set(false);
    }

    /// Whether the next kernel may be launched before the previous work has ended. Only a kernel may be overlapped this
    /// way.
    pub fn takes_early(&self) -> bool {
        self.1.is_allowed.get() && self.1.follows_kernel.get()
    }

    /// Notes that a kernel was queued.
    pub fn queued_kernel(&self) {
        self.1.follows_kernel.set(true);
    }

    /// Notes that something other than a single kernel was queued.
    pub fn queued_other(&self) {
        self.1.follows_kernel.set(false);
    }

    pub fn wait(&self) -> Result<(), CudaError> {
        cu!(cuStreamSynchronize(self.0))
    }

    /// Whether all queued work is done.
    pub fn is_idle(&self) -> bool {
        cu!(cuStreamQuery(self.0)).is_ok()
    }

    pub fn wait_for(&self, event: &Event) -> Result<(), CudaError> {
        self.queued_other();
        cu!(cuStreamWaitEvent(self.0, event.0, 0))
    }

    /// Number of nodes in the graph that is being captured from this stream.
    pub fn captured_nodes(&self) -> Result<usize, CudaError> {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let (mut graph, mut count) = (null_mut(), 0);
        let (id, dependencies, edges, dependency_count) = (null_mut(), null_mut(), null_mut(), null_mut());
        cu!(cuStreamGetCaptureInfo_v3(self.0, &mut status, id, &mut graph, dependencies, edges, dependency_count))?;
        if !graph.is_null() {
            cu!(cuGraphGetNodes(graph, null_mut(), &mut count))?;
        }
        Ok(count)
    }

    /// Captures the work that `queue` puts on this stream as a graph that can be launched repeatedly.
    pub fn captured(&self, queue: impl FnOnce() -> Result<(), CudaError>) -> Result<Replay, CudaError> {
        cu!(cuStreamBeginCapture_v2(self.0, sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))?;
        let queued = queue();
        let mut graph = null_mut();
        let ended = cu!(cuStreamEndCapture(self.0, &mut graph));
        queued?;
        ended?;
        let mut ready = null_mut();
        let made = cu!(cuGraphInstantiateWithFlags(&mut ready, graph, 0));
        cu!(cuGraphDestroy(graph))?;
        made?;
        Ok(Replay(ready))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = cu!(cuStreamDestroy_v2(self.0));
    }
}

/// A captured graph, ready to launch.
#[derive(Debug)]
pub struct Replay(sys::CUgraphExec);

impl Replay {
    pub fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        cu!(cuGraphLaunch(self.0, stream.0))
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        let _ = cu!(cuGraphExecDestroy(self.0));
    }
}

#[derive(Debug)]
pub struct Event(pub sys::CUevent);

impl Event {
    /// An event that records a time.
    pub fn timed() -> Result<Event, CudaError> {
        Event::with(sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    /// An event that only orders work.
    pub fn untimed() -> Result<Event, CudaError> {
        Event::with(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    fn with(flags: sys::CUevent_flags) -> Result<Event, CudaError> {
        let mut event = null_mut();
        cu!(cuEventCreate(&mut event, flags as u32))?;
        Ok(Event(event))
    }

    pub fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        cu!(cuEventRecord(self.0, stream.0))
    }

    /// Records during a capture: the time is taken at every replay.
    pub fn record_from_a_graph(&self, stream: &Stream) -> Result<(), CudaError> {
        const EXTERNAL: u32 = 1;
        stream.queued_other();
        cu!(cuEventRecordWithFlags(self.0, stream.0, EXTERNAL))
    }

    pub fn wait(&self) -> Result<(), CudaError> {
        cu!(cuEventSynchronize(self.0))
    }

    pub fn seconds_since(&self, start: &Event) -> Result<f64, CudaError> {
        let mut milliseconds = 0.0;
        cu!(cuEventElapsedTime_v2(&mut milliseconds, start.0, self.0))?;
        Ok(f64::from(milliseconds) * 1e-3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = cu!(cuEventDestroy_v2(self.0));
    }
}

/// Device memory.
#[derive(Debug)]
pub struct Memory {
    pub at: u64,
    pub bytes: usize,
}

impl Memory {
    pub fn new(context: &Context, bytes: usize) -> Result<Memory, CudaError> {
        let mut at = 0;
        let bytes = bytes.max(256);
        match cu!(cuMemAlloc_v2(&mut at, bytes)) {
            Err(CudaError::Driver { name, .. }) if name == "CUDA_ERROR_OUT_OF_MEMORY" => {
                let (free, total) = context.memory()?;
                Err(CudaError::Memory { bytes, device: context.name.clone(), free, total })
            }
            other => other.map(|()| Memory { at, bytes }),
        }
    }

    /// Allocates a copy of these bytes.
    pub fn of(context: &Context, data: &[u8]) -> Result<Memory, CudaError> {
        let memory = Memory::new(context, data.len())?;
        write(memory.at, data)?;
        Ok(memory)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = cu!(cuMemFree_v2(self.at));
    }
}

/// Pinned host memory that the device reads and writes directly.
#[derive(Debug)]
pub struct Pinned {
    at: *mut u32,
    words: usize,
}

impl Pinned {
    pub fn new(words: usize) -> Result<Pinned, CudaError> {
        let mut at = null_mut();
        let words = words.max(1);
        cu!(cuMemHostAlloc(&mut at, words * 4, 0))?;
        // SAFETY: the driver allocated `words` words at `at`.
        unsafe { std::ptr::write_bytes(at.cast::<u32>(), 0, words) };
        Ok(Pinned { at: at.cast(), words })
    }

    /// Its address, which on 64-bit systems is also the device's.
    pub fn device(&self) -> u64 {
        self.at as u64
    }

    pub fn write(&mut self, first: usize, data: &[u32]) {
        assert!(first + data.len() <= self.words, "within the ring");
        // SAFETY: in bounds by the check above; the device reads a slot only after it was filled and before it is
        // reused.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.at.add(first), data.len()) }
    }

    pub fn read(&self, index: usize) -> u32 {
        assert!(index < self.words, "within the ring");
        // SAFETY: in bounds; volatile because the device writes it.
        unsafe { self.at.add(index).read_volatile() }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = cu!(cuMemFreeHost(self.at.cast::<c_void>()));
    }
}

/// Copies to the device and waits. The copy call returns once the driver has the bytes; the transfer finishes on the
/// default stream, which our own streams do not wait for.
pub fn write(at: u64, data: &[u8]) -> Result<(), CudaError> {
    cu!(cuMemcpyHtoD_v2(at, data.as_ptr().cast(), data.len()))?;
    cu!(cuStreamSynchronize(null_mut()))
}

/// Copies from the device and waits.
pub fn read(at: u64, data: &mut [u8]) -> Result<(), CudaError> {
    cu!(cuMemcpyDtoH_v2(data.as_mut_ptr().cast(), at, data.len()))
}

pub fn zero(at: u64, bytes: usize, stream: &Stream) -> Result<(), CudaError> {
    stream.queued_other();
    cu!(cuMemsetD8Async(at, 0, bytes, stream.0))
}

pub fn copy(to: u64, from: u64, bytes: usize, stream: &Stream) -> Result<(), CudaError> {
    stream.queued_other();
    cu!(cuMemcpyDtoDAsync_v2(to, from, bytes, stream.0))
}
