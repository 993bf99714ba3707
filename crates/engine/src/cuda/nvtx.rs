//! NVTX ranges by phase and module, so that the vendors' profilers show our names. `NVTX_INJECTION64_PATH` names a tool
//! that listens, as in NVIDIA's headers: it is loaded and writes its functions into our table.

use libloading::Library;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The phase and the module of a call: one range each, nested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    phase: CString,
    module: CString,
}

impl Labels {
    pub fn of(phase: &str, op: &str, module: &str) -> Labels {
        let text = |text: &str| CString::new(text).unwrap_or_default();
        // A call outside any module is named by its op.
        Labels { phase: text(phase), module: text(if module.is_empty() { op } else { module }) }
    }
}

/// How many ranges to close, and which to open, between one call and the next.
fn changes<'a>(open: Option<&Labels>, next: Option<&'a Labels>) -> (usize, Vec<&'a CString>) {
    match (open, next) {
        (Some(open), Some(next)) if open == next => (0, vec![]),
        (Some(open), Some(next)) if open.phase == next.phase => (1, vec![&next.module]),
        (open, next) => {
            let opened = next.map_or(vec![], |next| vec![&next.phase, &next.module]);
            (if open.is_some() { 2 } else { 0 }, opened)
        }
    }
}

/// Ranges that a tool may listen to.
pub struct Ranges {
    /// Why nobody listens.
    silent: Option<String>,
    open: RefCell<Option<Labels>>,
}

impl Ranges {
    pub fn open() -> Ranges {
        static TOOL: OnceLock<Result<(), String>> = OnceLock::new();
        let silent = TOOL.get_or_init(inject).as_ref().err().cloned();
        Ranges { silent, open: RefCell::new(None) }
    }

    pub fn note(&self) -> Option<String> {
        let why = self.silent.as_ref()?;
        Some(format!("NVTX ranges were marked, but no tool listens: {why}"))
    }

    /// Call before a call.
    pub fn enter(&self, call: &Labels) {
        self.change(Some(call));
    }

    /// Call after a call; `next` is the one that follows it in the plan.
    pub fn leave(&self, call: &Labels, next: Option<&Labels>) {
        // The work after the last call of a phase is unknown here: another micro-batch, an update, or nothing.
        if next.is_none_or(|next| next.phase != call.phase) {
            self.change(None);
        }
    }

    fn change(&self, next: Option<&Labels>) {
        let mut open = self.open.borrow_mut();
        let (closed, opened) = changes(open.as_ref(), next);
        (0..closed).for_each(|_| pop());
        opened.into_iter().for_each(push);
        *open = next.cloned();
    }
}

/// Functions of NVTX's core module, by number; the tool fills in those it listens to.
const CORE: u32 = 1;
const CORE_FUNCTIONS: usize = 16;
const RANGE_PUSH: usize = 9;
const RANGE_POP: usize = 11;

static SLOTS: [AtomicPtr<c_void>; CORE_FUNCTIONS] = [const { AtomicPtr::new(null_mut()) }; CORE_FUNCTIONS];

fn push(name: &CString) {
    let function = SLOTS[RANGE_PUSH].load(Ordering::Relaxed);
    if !function.is_null() {
        // SAFETY: the tool put its `nvtxRangePushA` here.
        let function: extern "C" fn(*const c_char) -> i32 = unsafe { std::mem::transmute(function) };
        function(name.as_ptr());
    }
}

fn pop() {
    let function = SLOTS[RANGE_POP].load(Ordering::Relaxed);
    if !function.is_null() {
        // SAFETY: the tool put its `nvtxRangePop` here.
        let function: extern "C" fn() -> i32 = unsafe { std::mem::transmute(function) };
        function();
    }
}

type GetExportTable = extern "C" fn(u32) -> *const c_void;

#[repr(C)]
struct Callbacks {
    size: usize,
    function_table: extern "C" fn(u32, *mut *const *const AtomicPtr<c_void>, *mut u32) -> i32,
}

/// Returns the one table that a tool needs from us.
extern "C" fn export_table(which: u32) -> *const c_void {
    const CALLBACKS: u32 = 1;
    static TABLE: Callbacks = Callbacks { size: size_of::<Callbacks>(), function_table };
    if which == CALLBACKS { (&raw const TABLE).cast() } else { null_mut() }
}

/// Returns the locations where the tool writes its functions; the first is unused.
extern "C" fn function_table(module: u32, table: *mut *const *const AtomicPtr<c_void>, size: *mut u32) -> i32 {
    static PLACES: OnceLock<usize> = OnceLock::new();
    if module != CORE {
        return 0;
    }
    let places = PLACES.get_or_init(|| {
        let places: Vec<*const AtomicPtr<c_void>> =
            SLOTS.iter().map(std::ptr::from_ref).chain([std::ptr::null()]).collect();
        Box::leak(places.into_boxed_slice()).as_ptr() as usize
    });
    // SAFETY: a tool passes two locations to write to, or null.
    unsafe {
        if !table.is_null() {
            *table = *places as *const *const AtomicPtr<c_void>;
        }
        if !size.is_null() {
            *size = CORE_FUNCTIONS as u32;
        }
    }
    1
}

fn inject() -> Result<(), String> {
    const VARIABLE: &str = "NVTX_INJECTION64_PATH";
    let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) else {
        return Err(format!("{VARIABLE} is not set (`nsys profile` sets it)"));
    };
    let shown = path.to_string_lossy().into_owned();
    // SAFETY: opening a library runs its initialisers; this is the one that the user's tool named.
    let library = unsafe { Library::new(&path) }.map_err(|error| format!("{shown}, of {VARIABLE}: {error}"))?;
    let library: &'static Library = Box::leak(Box::new(library));
    // SAFETY: the type is that of NVTX's injection protocol.
    let start = unsafe { library.get::<extern "C" fn(GetExportTable) -> i32>(b"InitializeInjectionNvtx2\0") }
        .map_err(|error| format!("{shown}, of {VARIABLE}: {error}"))?;
    match start(export_table) {
        0 => Err(format!("{shown}, of {VARIABLE}, refused to start")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    static HEARD: Mutex<Vec<String>> = Mutex::new(vec![]);

    extern "C" fn heard_push(name: *const c_char) -> i32 {
        // SAFETY: `push` hands a text that ends with a zero.
        let name = unsafe { std::ffi::CStr::from_ptr(name) };
        HEARD.lock().unwrap().push(name.to_string_lossy().into_owned());
        0
    }

    extern "C" fn heard_pop() -> i32 {
        HEARD.lock().unwrap().push("end".into());
        0
    }

    #[test]
    fn a_tool_hears_phases_and_the_modules_within_them() {
        let table = export_table(1).cast::<Callbacks>();
        let (mut places, mut size) = (std::ptr::null(), 0);
        // SAFETY: as a tool does it.
        unsafe {
            assert_eq!(((*table).function_table)(CORE, &mut places, &mut size), 1);
            assert!(size as usize > RANGE_POP);
            (**places.add(RANGE_PUSH)).store(heard_push as *mut c_void, Ordering::Relaxed);
            (**places.add(RANGE_POP)).store(heard_pop as *mut c_void, Ordering::Relaxed);
        }
        let ranges = Ranges { silent: None, open: RefCell::new(None) };
        let calls = [
            Labels::of("forward", "rms_norm", "layers.0.norm"),
            Labels::of("forward", "matmul", "layers.0.q_proj"),
            Labels::of("forward", "add", "layers.0.q_proj"),
            Labels::of("backward", "add", "layers.0.q_proj"),
            Labels::of("optimizer", "adamw", ""),
        ];
        for (index, call) in calls.iter().enumerate() {
            ranges.enter(call);
            ranges.leave(call, calls.get(index + 1));
        }
        let want = "forward layers.0.norm end layers.0.q_proj end end backward layers.0.q_proj end end \
                    optimizer adamw end end";
        assert_eq!(HEARD.lock().unwrap().join(" "), want);
    }

    #[test]
    fn other_tables_than_the_core_are_refused() {
        assert!(export_table(3).is_null());
        assert_eq!(function_table(2, null_mut(), null_mut()), 0);
    }
}
