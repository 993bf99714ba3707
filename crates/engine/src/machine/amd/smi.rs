//! AMD's management libraries: `amd-smi`'s, or the older `rocm-smi`'s. Both are optional and opened on request.
//!
//! Only functions whose arguments are the same in every release are called. The one structure that they fill begins with
//! the GPU's name in all of them, and the room given to it is larger than any.

use super::{Address, LibraryPath};
use crate::cuda::library::newest;
use libloading::Library;
use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use std::ptr::null_mut;

/// The answer of a management library.
#[derive(Clone, Debug, PartialEq)]
pub struct Managed {
    pub library: &'static str,
    pub devices: Vec<ManagedDevice>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ManagedDevice {
    pub address: Address,
    pub name: Option<String>,
    pub memory_total_bytes: Option<u64>,
    pub memory_used_bytes: Option<u64>,
}

/// Asks the first library that answers; the error says why none does.
pub(super) fn ask(rocm: &[PathBuf], path: LibraryPath) -> Result<Managed, String> {
    let answers: [(&str, fn(&Library) -> Result<Managed, String>); 2] =
        [("libamd_smi.so", amd_smi), ("librocm_smi64.so", rocm_smi)];
    let mut reasons = vec![];
    for (name, answer) in answers {
        // Such a library may keep threads and handlers of its own, so that it is never closed.
        match open(name, rocm, path).map(|library| &*Box::leak(Box::new(library))).and_then(answer) {
            Ok(managed) => return Ok(managed),
            Err(reason) => reasons.push(reason),
        }
    }
    Err(reasons.join("; "))
}

fn open(name: &str, rocm: &[PathBuf], path: LibraryPath) -> Result<Library, String> {
    let in_rocm = rocm.iter().filter_map(|folder| newest(&folder.join("lib"), name));
    let by_name = (path == LibraryPath::Searched).then(|| PathBuf::from(name));
    let mut reason = None;
    for file in in_rocm.chain(by_name.clone()) {
        // SAFETY: opening a library runs its initialisers; these are the vendor's own and have no preconditions.
        match unsafe { Library::new(&file) } {
            Ok(library) => return Ok(library),
            Err(_) if Some(&file) == by_name.as_ref() => {}
            Err(error) => reason = Some(format!("{} cannot be opened: {error}", file.display())),
        }
    }
    let folders: Vec<String> = rocm.iter().map(|folder| folder.join("lib").display().to_string()).collect();
    Err(reason.unwrap_or_else(|| format!("{name} is not in {}", folders.join(" or "))))
}

type Handle = *mut c_void;
type Status = u32;
type Start = unsafe extern "C" fn(u64) -> Status;
type Stop = unsafe extern "C" fn() -> Status;

/// The memory on the GPU, to both libraries.
const VRAM: u32 = 0;

/// More handles than this are not believed.
const MOST_HANDLES: u32 = 1024;

macro_rules! function {
    ($library:expr, $name:literal) => {
        // SAFETY: the type that it is assigned to is the function's type in the library's header.
        *unsafe { $library.get($name) }.map_err(|error| format!("the library has no {}: {error}", $name))?
    };
}

fn amd_smi(library: &Library) -> Result<Managed, String> {
    const GPUS: u64 = 1 << 1;
    let start: Start = function!(library, "amdsmi_init");
    let stop: Stop = function!(library, "amdsmi_shut_down");
    let sockets: unsafe extern "C" fn(*mut u32, *mut Handle) -> Status =
        function!(library, "amdsmi_get_socket_handles");
    let processors: unsafe extern "C" fn(Handle, *mut u32, *mut Handle) -> Status =
        function!(library, "amdsmi_get_processor_handles");
    let address: unsafe extern "C" fn(Handle, *mut u64) -> Status = function!(library, "amdsmi_get_gpu_device_bdf");
    let describe: unsafe extern "C" fn(Handle, *mut u64) -> Status = function!(library, "amdsmi_get_gpu_asic_info");
    let total: unsafe extern "C" fn(Handle, u32, *mut u64) -> Status =
        function!(library, "amdsmi_get_gpu_memory_total");
    let used: unsafe extern "C" fn(Handle, u32, *mut u64) -> Status = function!(library, "amdsmi_get_gpu_memory_usage");
    // SAFETY: has no preconditions.
    begun("amdsmi_init", unsafe { start(GPUS) })?;
    let mut devices = vec![];
    // SAFETY: the library is started, and writes at most as many handles as it is given room for.
    for socket in handles("amdsmi_get_socket_handles", |count, room| unsafe { sockets(count, room) })? {
        // SAFETY: as above; the socket is one that the library gave.
        for gpu in handles("amdsmi_get_processor_handles", |count, room| unsafe { processors(socket, count, room) })? {
            let mut description = [0_u64; 2048];
            // SAFETY: the handle is one that the library gave, and 16 KiB hold the largest such structure many times.
            let is_described = unsafe { describe(gpu, description.as_mut_ptr()) } == 0;
            let bytes: Vec<u8> = description.iter().flat_map(|word| word.to_ne_bytes()).collect();
            // SAFETY: the handle is one that the library gave, the word a live local.
            let Some(bits) = word(|word| unsafe { address(gpu, word) }) else { continue };
            devices.push(ManagedDevice {
                address: Address { domain: bits >> 16, location: bits as u16 },
                name: is_described.then(|| text(&bytes)).flatten(),
                // SAFETY: as for the address.
                memory_total_bytes: word(|word| unsafe { total(gpu, VRAM, word) }),
                // SAFETY: as for the address.
                memory_used_bytes: word(|word| unsafe { used(gpu, VRAM, word) }),
            });
        }
    }
    // SAFETY: the library is started, and none of its handles is used any more.
    unsafe { stop() };
    Ok(Managed { library: "amd-smi", devices })
}

fn rocm_smi(library: &Library) -> Result<Managed, String> {
    let start: Start = function!(library, "rsmi_init");
    let stop: Stop = function!(library, "rsmi_shut_down");
    let number: unsafe extern "C" fn(*mut u32) -> Status = function!(library, "rsmi_num_monitor_devices");
    let address: unsafe extern "C" fn(u32, *mut u64) -> Status = function!(library, "rsmi_dev_pci_id_get");
    let name: unsafe extern "C" fn(u32, *mut c_char, usize) -> Status = function!(library, "rsmi_dev_name_get");
    let total: unsafe extern "C" fn(u32, u32, *mut u64) -> Status = function!(library, "rsmi_dev_memory_total_get");
    let used: unsafe extern "C" fn(u32, u32, *mut u64) -> Status = function!(library, "rsmi_dev_memory_usage_get");
    // SAFETY: has no preconditions.
    begun("rsmi_init", unsafe { start(0) })?;
    let mut count = 0;
    // SAFETY: the library is started, the count a live local.
    begun("rsmi_num_monitor_devices", unsafe { number(&mut count) })?;
    let mut devices = vec![];
    for at in 0..count.min(MOST_HANDLES) {
        let mut bytes = [0_u8; 256];
        // SAFETY: the library is started and writes at most as many bytes as it is told.
        let is_named = unsafe { name(at, bytes.as_mut_ptr().cast(), bytes.len()) } == 0;
        // SAFETY: the library is started, the word a live local.
        let Some(bits) = word(|word| unsafe { address(at, word) }) else { continue };
        devices.push(ManagedDevice {
            address: Address { domain: bits >> 32, location: bits as u16 },
            name: is_named.then(|| text(&bytes)).flatten(),
            // SAFETY: as for the address.
            memory_total_bytes: word(|word| unsafe { total(at, VRAM, word) }),
            // SAFETY: as for the address.
            memory_used_bytes: word(|word| unsafe { used(at, VRAM, word) }),
        });
    }
    // SAFETY: the library is started, and nothing of it is used any more.
    unsafe { stop() };
    Ok(Managed { library: "rocm-smi", devices })
}

fn begun(call: &str, status: Status) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("{call} failed with status {status}")) }
}

fn word(read: impl FnOnce(*mut u64) -> Status) -> Option<u64> {
    let mut word = 0;
    (read(&mut word) == 0).then_some(word)
}

/// Asks how many handles there are, then for the handles.
fn handles(call: &str, read: impl Fn(*mut u32, *mut Handle) -> Status) -> Result<Vec<Handle>, String> {
    let mut count = 0;
    begun(call, read(&mut count, null_mut()))?;
    count = count.min(MOST_HANDLES);
    let mut handles = vec![null_mut(); count as usize];
    begun(call, read(&mut count, handles.as_mut_ptr()))?;
    handles.truncate(count as usize);
    Ok(handles)
}

/// The text up to its zero.
fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let text = String::from_utf8_lossy(&bytes[..end]).trim().to_string();
    (!text.is_empty()).then_some(text)
}
