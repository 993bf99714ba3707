//! CUPTI, loaded on demand: records what the GPU and its driver do between a start and a stop. Reads only fields that
//! have the same offset in all versions since CUDA 11.

use super::activity::{Alignment, CuptiActivity, Kind, Pushed, is_traced, plain_name};
use super::library;
use crate::recorder::ActivityKind;
use libloading::Library;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

type Status = u32;
const SUCCESS: Status = 0;
const MULTIPLE_SUBSCRIBERS: Status = 39;

/// Record kinds, by CUPTI's numbers: copies, fills, kernels, driver and runtime calls, external correlations.
const COPY: u32 = 1;
const FILL: u32 = 2;
const DRIVER: u32 = 4;
const RUNTIME: u32 = 5;
const KERNEL: u32 = 10;
const EXTERNAL: u32 = 39;
const KINDS: [u32; 6] = [COPY, FILL, KERNEL, DRIVER, RUNTIME, EXTERNAL];

/// Kind of the external ids that we push: one that CUPTI reserves for programs.
const OURS: u32 = 3;

/// Bytes of a buffer that CUPTI fills; a kernel's record takes about 200.
const BUFFER: usize = 4 << 20;

type Ask = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Give = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

struct Functions {
    enable: unsafe extern "C" fn(u32) -> Status,
    disable: unsafe extern "C" fn(u32) -> Status,
    register: unsafe extern "C" fn(Ask, Give) -> Status,
    flush: unsafe extern "C" fn(u32) -> Status,
    next: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> Status,
    push: unsafe extern "C" fn(u32, u64) -> Status,
    pop: unsafe extern "C" fn(u32, *mut u64) -> Status,
    timestamp: unsafe extern "C" fn(*mut u64) -> Status,
    call_name: unsafe extern "C" fn(u32, u32, *mut *const c_char) -> Status,
    status_name: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
}

static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();

/// Records of completed buffers, until they are fetched. CUPTI delivers buffers on any thread.
static TOLD: Mutex<Vec<CuptiActivity>> = Mutex::new(vec![]);

/// CUPTI with its callbacks registered.
pub struct Tracer {
    functions: &'static Functions,
    pushed: RefCell<Vec<Pushed>>,
}

/// CUPTI is shared by all devices of the process. The first launch after enabling it takes a millisecond or more, so it
/// stays on from one recorded step to the next.
static IS_ON: AtomicBool = AtomicBool::new(false);

impl Tracer {
    /// Opens CUPTI; the error says why it is not available.
    pub fn open() -> Result<Tracer, String> {
        let functions = FUNCTIONS.get_or_init(load).as_ref().map_err(String::clone)?;
        let tracer = Tracer { functions, pushed: RefCell::new(vec![]) };
        // Starts once now, so that a refusal is known before the first recorded step.
        tracer.start()?;
        Ok(tracer)
    }

    pub fn start(&self) -> Result<(), String> {
        self.pushed.borrow_mut().clear();
        if !IS_ON.swap(true, Ordering::Relaxed) {
            for kind in KINDS {
                // SAFETY: takes a number, has no preconditions.
                self.check("cuptiActivityEnable", unsafe { (self.functions.enable)(kind) })?;
            }
        }
        Ok(())
    }

    /// Call before work that is not recorded: it then runs as if there were no CUPTI.
    pub fn rest(&self) -> Result<(), String> {
        if IS_ON.swap(false, Ordering::Relaxed) {
            self.stop()?;
            for kind in KINDS {
                // SAFETY: takes a number, has no preconditions.
                self.check("cuptiActivityDisable", unsafe { (self.functions.disable)(kind) })?;
            }
        }
        Ok(())
    }

    /// All activities since the start, and what was pushed meanwhile. The device must have finished them.
    pub fn stop(&self) -> Result<(Vec<CuptiActivity>, Vec<Pushed>), String> {
        const EVERYTHING: u32 = 1;
        // SAFETY: takes a number; completed buffers come through `give`.
        self.check("cuptiActivityFlushAll", unsafe { (self.functions.flush)(EVERYTHING) })?;
        let records = TOLD.lock().map(|mut told| std::mem::take(&mut *told)).unwrap_or_default();
        Ok((records, self.pushed.take()))
    }

    /// Associates the driver calls until `pop` with `what`.
    pub fn push(&self, what: Pushed) {
        let mut pushed = self.pushed.borrow_mut();
        // SAFETY: takes numbers. A refusal shows up as work that belongs to no call.
        unsafe { (self.functions.push)(OURS, pushed.len() as u64) };
        pushed.push(what);
    }

    pub fn pop(&self) {
        let mut last = 0;
        // SAFETY: `last` is a live local.
        unsafe { (self.functions.pop)(OURS, &mut last) };
    }

    /// The offset between CUPTI's clock and the one that began at `started`.
    pub fn alignment(&self, started: Instant) -> Option<Alignment> {
        const READINGS: usize = 16;
        let read = |_| {
            let (before, mut theirs) = (started.elapsed(), 0);
            // SAFETY: `theirs` is a live local.
            let status = unsafe { (self.functions.timestamp)(&mut theirs) };
            (status == SUCCESS).then(|| (before, theirs, started.elapsed()))
        };
        Alignment::of(&(0..READINGS).filter_map(read).collect::<Vec<_>>())
    }

    fn check(&self, call: &str, status: Status) -> Result<(), String> {
        if status == SUCCESS {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: `text` is a live local that CUPTI points at a constant string.
        unsafe { (self.functions.status_name)(status, &mut text) };
        let name = owned(text).unwrap_or_else(|| status.to_string());
        let hint = if status == MULTIPLE_SUBSCRIBERS { " (is another profiler attached?)" } else { "" };
        Err(format!("{call} was refused with {name}{hint}"))
    }
}

fn load() -> Result<Functions, String> {
    let library = library::optional("libcupti.so")?;
    // Lives as long as the process: buffers may arrive at any time.
    let library: &'static Library = Box::leak(Box::new(library));
    macro_rules! function {
        ($name:literal) => {
            // SAFETY: the type of the field it goes into is that of the function in CUPTI's documentation.
            *unsafe { library.get($name) }.map_err(|error| format!("libcupti has no {:?}: {error}", $name))?
        };
    }
    let functions = Functions {
        enable: function!(b"cuptiActivityEnable\0"),
        disable: function!(b"cuptiActivityDisable\0"),
        register: function!(b"cuptiActivityRegisterCallbacks\0"),
        flush: function!(b"cuptiActivityFlushAll\0"),
        next: function!(b"cuptiActivityGetNextRecord\0"),
        push: function!(b"cuptiActivityPushExternalCorrelationId\0"),
        pop: function!(b"cuptiActivityPopExternalCorrelationId\0"),
        timestamp: function!(b"cuptiGetTimestamp\0"),
        call_name: function!(b"cuptiGetCallbackName\0"),
        status_name: function!(b"cuptiGetResultString\0"),
    };
    // SAFETY: both functions live as long as the program and follow CUPTI's requirements.
    match unsafe { (functions.register)(ask, give) } {
        SUCCESS => Ok(functions),
        status => Err(format!("cuptiActivityRegisterCallbacks was refused with {status}")),
    }
}

/// Callback: CUPTI requests an empty buffer. Allocating `u64` words keeps it aligned.
extern "C" fn ask(buffer: *mut *mut u8, size: *mut usize, most_records: *mut usize) {
    let words = vec![0u64; BUFFER / 8].into_boxed_slice();
    // SAFETY: CUPTI passes three locations to write to; the buffer comes back through `give`.
    unsafe {
        *buffer = Box::into_raw(words).cast();
        *size = BUFFER;
        *most_records = 0;
    }
}

/// Callback: CUPTI returns a buffer.
extern "C" fn give(_context: *mut c_void, _stream: u32, buffer: *mut u8, _size: usize, valid: usize) {
    // SAFETY: every buffer was allocated by `ask`, with exactly this many words.
    let words = unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(buffer.cast::<u64>(), BUFFER / 8)) };
    let Some(Ok(functions)) = FUNCTIONS.get() else { return };
    let mut records = vec![];
    let mut names = Names { functions, calls: HashMap::new(), kernels: HashMap::new() };
    let mut record = std::ptr::null_mut();
    // SAFETY: the buffer is CUPTI's own; `record` is null or the previous record.
    while unsafe { (functions.next)(buffer, valid, &mut record) } == SUCCESS {
        // SAFETY: a CUPTI record begins with its kind, and a record of one of these kinds is at least this long.
        let fields = unsafe { Fields::of(record) };
        records.extend(fields.and_then(|fields| read(&fields, &mut names)));
    }
    drop(words);
    if let Ok(mut told) = TOLD.lock() {
        told.extend(records);
    }
}

/// The part of a record that all versions share.
struct Fields<'a> {
    kind: u32,
    bytes: &'a [u8],
}

impl Fields<'_> {
    /// Returns `None` for a kind that was not enabled.
    ///
    /// # Safety
    /// `record` points to a CUPTI record.
    unsafe fn of<'a>(record: *const u8) -> Option<Fields<'a>> {
        // SAFETY: every record begins with its kind.
        let kind = unsafe { record.cast::<u32>().read() };
        let length = match kind {
            KERNEL => 152,
            COPY | FILL => 72,
            DRIVER | RUNTIME => 40,
            EXTERNAL => 24,
            _ => return None,
        };
        // SAFETY: records of these kinds are at least this long.
        Some(Fields { kind, bytes: unsafe { std::slice::from_raw_parts(record, length) } })
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|byte| self.bytes[at + byte]))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|byte| self.bytes[at + byte]))
    }

    fn sizes(&self, at: usize) -> [u32; 3] {
        std::array::from_fn(|axis| self.u32(at + 4 * axis))
    }
}

/// Caches names, so that each is looked up once.
struct Names {
    functions: &'static Functions,
    calls: HashMap<(u32, u32), Arc<str>>,
    kernels: HashMap<u64, Arc<str>>,
}

impl Names {
    /// Looks up a callback number in the driver's or the runtime's domain.
    fn call(&mut self, domain: u32, number: u32) -> Arc<str> {
        let functions = self.functions;
        let name = self.calls.entry((domain, number)).or_insert_with(|| {
            let mut text = std::ptr::null();
            // SAFETY: `text` is a live local that CUPTI points at a constant string, or leaves null.
            unsafe { (functions.call_name)(domain, number, &mut text) };
            plain_name(&owned(text).unwrap_or_default()).into()
        });
        Arc::clone(name)
    }

    /// Looks up a kernel's name by the address at which CUPTI keeps the text.
    fn kernel(&mut self, at: u64) -> Arc<str> {
        let name =
            self.kernels.entry(at).or_insert_with(|| owned(at as *const c_char).unwrap_or_else(|| "?".into()).into());
        Arc::clone(name)
    }
}

/// Returns `None` for a driver call that is not traced.
fn read(fields: &Fields, names: &mut Names) -> Option<CuptiActivity> {
    Some(match fields.kind {
        KERNEL => CuptiActivity {
            kind: Kind::OnDevice {
                what: ActivityKind::Kernel { stream: fields.u32(48), grid: fields.sizes(52), block: fields.sizes(64) },
                node: fields.u64(144),
            },
            name: names.kernel(fields.u64(104)),
            start: fields.u64(16),
            end: fields.u64(24),
            correlation: fields.u32(92),
        },
        kind @ (COPY | FILL) => {
            let (stream, bytes) = (fields.u32(40), fields.u64(8));
            let (what, name) = match kind {
                COPY => (ActivityKind::Copy { stream, bytes }, copy_name(fields.bytes[4])),
                _ => (ActivityKind::Fill { stream, bytes }, "Memset (Device)"),
            };
            CuptiActivity {
                kind: Kind::OnDevice { what, node: fields.u64(64) },
                name: name.into(),
                start: fields.u64(16),
                end: fields.u64(24),
                correlation: fields.u32(44),
            }
        }
        kind @ (DRIVER | RUNTIME) => {
            // Domains are numbered 1 and 2.
            let name = names.call(kind - DRIVER + 1, fields.u32(4));
            if !is_traced(&name) {
                return None;
            }
            let (start, end) = (fields.u64(8), fields.u64(16));
            CuptiActivity { kind: Kind::DriverCall, name, start, end, correlation: fields.u32(32) }
        }
        _ => {
            let kind = Kind::Tie { pushed: fields.u64(8) };
            CuptiActivity { kind, name: "".into(), start: 0, end: 0, correlation: fields.u32(16) }
        }
    })
}

/// Names copies as PyTorch's profiler does.
fn copy_name(kind: u8) -> &'static str {
    match kind {
        1 => "Memcpy HtoD (Pageable -> Device)",
        2 => "Memcpy DtoH (Device -> Pageable)",
        8 => "Memcpy DtoD (Device -> Device)",
        _ => "Memcpy",
    }
}

fn owned(text: *const c_char) -> Option<String> {
    // SAFETY: null, or a text of CUPTI's that ends with a zero and stays valid.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a record's bytes from (offset, value) pairs of its words.
    fn bytes(length: usize, words: &[(usize, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; length];
        for (at, word) in words {
            bytes[*at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    extern "C" fn no_name(_: u32, number: u32, text: *mut *const c_char) -> Status {
        let name: &CStr = if number == 1 { c"cuGraphLaunch" } else { c"cuEventQuery" };
        // SAFETY: `read` hands a live local.
        unsafe { *text = name.as_ptr() };
        SUCCESS
    }

    fn names() -> Names {
        // Only `call_name` is called.
        extern "C" fn number(_: u32) -> Status {
            1
        }
        extern "C" fn register(_: Ask, _: Give) -> Status {
            1
        }
        extern "C" fn next(_: *mut u8, _: usize, _: *mut *mut u8) -> Status {
            1
        }
        extern "C" fn push(_: u32, _: u64) -> Status {
            1
        }
        extern "C" fn pop(_: u32, _: *mut u64) -> Status {
            1
        }
        extern "C" fn timestamp(_: *mut u64) -> Status {
            1
        }
        extern "C" fn status_name(_: Status, _: *mut *const c_char) -> Status {
            1
        }
        let functions = Functions {
            enable: number,
            disable: number,
            register,
            flush: number,
            next,
            push,
            pop,
            timestamp,
            call_name: no_name,
            status_name,
        };
        let functions = Box::leak(Box::new(functions));
        Names { functions, calls: HashMap::new(), kernels: HashMap::new() }
    }

    #[test]
    fn a_kernels_fields_are_where_cupti_puts_them() {
        let words = [
            (16, 1000),
            (24, 1200),
            (48, 7),
            (52, 4),
            (56, 2),
            (60, 1),
            (64, 128),
            (68, 1),
            (72, 1),
            (92, 55),
            (144, 9),
        ];
        let bytes = bytes(152, &words);
        let record = read(&Fields { kind: KERNEL, bytes: &bytes }, &mut names()).unwrap();
        let what = ActivityKind::Kernel { stream: 7, grid: [4, 2, 1], block: [128, 1, 1] };
        assert_eq!(record.kind, Kind::OnDevice { what, node: 9 });
        assert_eq!((record.start, record.end, record.correlation, &*record.name), (1000, 1200, 55, "?"));
    }

    #[test]
    fn copies_fills_and_pushes_are_read() {
        let words = [(4, 8), (8, 4096), (16, 10), (24, 30), (40, 7), (44, 5)];
        let copy = read(&Fields { kind: COPY, bytes: &bytes(72, &words) }, &mut names()).unwrap();
        assert_eq!(&*copy.name, "Memcpy DtoD (Device -> Device)");
        assert_eq!(copy.kind, Kind::OnDevice { what: ActivityKind::Copy { stream: 7, bytes: 4096 }, node: 0 });
        let fill = read(&Fields { kind: FILL, bytes: &bytes(72, &words) }, &mut names()).unwrap();
        assert_eq!(fill.kind, Kind::OnDevice { what: ActivityKind::Fill { stream: 7, bytes: 4096 }, node: 0 });
        let tie = read(&Fields { kind: EXTERNAL, bytes: &bytes(24, &[(8, 3), (16, 5)]) }, &mut names()).unwrap();
        assert_eq!((tie.kind, tie.correlation), (Kind::Tie { pushed: 3 }, 5));
    }

    #[test]
    fn of_driver_calls_those_that_queue_or_wait_are_told() {
        let words = |number: u32| [(4, number), (8, 100), (16, 140), (32, 6)];
        let launch = read(&Fields { kind: DRIVER, bytes: &bytes(40, &words(1)) }, &mut names()).unwrap();
        assert_eq!((&*launch.name, launch.start, launch.end, launch.correlation), ("cuGraphLaunch", 100, 140, 6));
        assert_eq!(read(&Fields { kind: DRIVER, bytes: &bytes(40, &words(2)) }, &mut names()), None);
    }
}
