//! Bindings for the dozen NCCL functions that are needed, found at run time.

use super::library;
use super::nccl_error::NcclError;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

/// Environment variable that names a library to use instead of searching.
const NAMED: &str = "HEADROOM_NCCL_LIBRARY";

const NAME: &str = "libnccl.so.2";

/// The id by which ranks find each other.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId(pub [u8; 128]);

/// NCCL's communicator handle.
pub type Comm = *mut c_void;

type Status = c_int;
type GetVersion = unsafe extern "C" fn(*mut c_int) -> Status;
type GetUniqueId = unsafe extern "C" fn(*mut UniqueId) -> Status;
type InitRank = unsafe extern "C" fn(*mut Comm, c_int, UniqueId, c_int) -> Status;
type OfComm = unsafe extern "C" fn(Comm) -> Status;
type AsyncError = unsafe extern "C" fn(Comm, *mut Status) -> Status;
type ErrorText = unsafe extern "C" fn(Status) -> *const c_char;
type LastError = unsafe extern "C" fn(Comm) -> *const c_char;
type Group = unsafe extern "C" fn() -> Status;
type AllReduceCall = unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Comm, *mut c_void) -> Status;
type AllGatherCall = unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, Comm, *mut c_void) -> Status;
type ReduceCall =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, c_int, Comm, *mut c_void) -> Status;
type BroadcastCall = unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Comm, *mut c_void) -> Status;

pub struct Nccl {
    get_version: GetVersion,
    get_unique_id: GetUniqueId,
    init_rank: InitRank,
    abort: OfComm,
    async_error: AsyncError,
    error_text: ErrorText,
    last_error: Option<LastError>,
    group_start: Group,
    group_end: Group,
    all_reduce: AllReduceCall,
    reduce_scatter: AllReduceCall,
    all_gather: AllGatherCall,
    reduce: ReduceCall,
    broadcast: BroadcastCall,
    /// Never closed: its threads may outlive the caller.
    _library: std::mem::ManuallyDrop<Library>,
}

/// Number type of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    F32,
    Bf16,
}

impl Number {
    pub fn bytes(self) -> u64 {
        match self {
            Number::F32 => 4,
            Number::Bf16 => 2,
        }
    }

    fn code(self) -> c_int {
        match self {
            Number::F32 => 7,
            Number::Bf16 => 9,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    Plain,
    Mean,
}

impl Sum {
    fn code(self) -> c_int {
        match self {
            Sum::Plain => 0,
            Sum::Mean => 4,
        }
    }
}

/// One call: addresses on this rank, counts in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireCall {
    AllReduce {
        from: u64,
        to: u64,
        count: usize,
        number: Number,
        sum: Sum,
    },
    /// `count` elements for each rank.
    ReduceScatter {
        from: u64,
        to: u64,
        count: usize,
        number: Number,
    },
    AllGather {
        from: u64,
        to: u64,
        count: usize,
        number: Number,
    },
    Reduce {
        from: u64,
        to: u64,
        count: usize,
        number: Number,
        root: usize,
    },
    Broadcast {
        from: u64,
        to: u64,
        count: usize,
        number: Number,
        root: usize,
    },
}

const IN_PROGRESS: Status = 7;

impl Nccl {
    pub fn open() -> Result<Nccl, NcclError> {
        if let Some(named) = std::env::var_os(NAMED) {
            return Nccl::of_file(Path::new(&named));
        }
        let mut tried = vec![];
        for file in library::files(NAME).into_iter().chain([PathBuf::from(NAME), PathBuf::from("libnccl.so")]) {
            match Nccl::of_file(&file) {
                Err(NcclError::NotOpened { path, .. }) => tried.push(path.display().to_string()),
                found => return found,
            }
        }
        tried.push("the library path".into());
        Err(NcclError::NoLibrary { tried })
    }

    fn of_file(path: &Path) -> Result<Nccl, NcclError> {
        // SAFETY: opening a library runs its initialisers; NCCL's have no preconditions.
        let library = unsafe { Library::new(path) }
            .map_err(|error| NcclError::NotOpened { path: path.into(), why: error.to_string() })?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the type is the one that NCCL's header gives the function of this name.
                match unsafe { library.get(concat!($name, "\0").as_bytes()) } {
                    Ok(symbol) => *symbol,
                    Err(_) => return Err(NcclError::NoSymbol { path: path.into(), symbol: $name }),
                }
            };
        }
        Ok(Nccl {
            get_version: function!("ncclGetVersion"),
            get_unique_id: function!("ncclGetUniqueId"),
            init_rank: function!("ncclCommInitRank"),
            abort: function!("ncclCommAbort"),
            async_error: function!("ncclCommGetAsyncError"),
            error_text: function!("ncclGetErrorString"),
            // SAFETY: the field has the function's type in NCCL's header; it exists since 2.13.
            last_error: unsafe { library.get(b"ncclGetLastError\0") }.ok().map(|symbol| *symbol),
            group_start: function!("ncclGroupStart"),
            group_end: function!("ncclGroupEnd"),
            all_reduce: function!("ncclAllReduce"),
            reduce_scatter: function!("ncclReduceScatter"),
            all_gather: function!("ncclAllGather"),
            reduce: function!("ncclReduce"),
            broadcast: function!("ncclBroadcast"),
            _library: std::mem::ManuallyDrop::new(library),
        })
    }

    fn check(&self, function: &'static str, status: Status) -> Result<(), NcclError> {
        if status == 0 || status == IN_PROGRESS {
            return Ok(());
        }
        Err(NcclError::Call { function, why: self.text(status) })
    }

    fn text(&self, status: Status) -> String {
        // SAFETY: NCCL returns a constant text for any number.
        let short = unsafe { text_at((self.error_text)(status)) };
        // SAFETY: the last error of this process is asked for, which needs no handle.
        let long = self.last_error.map_or(String::new(), |last| unsafe { text_at(last(std::ptr::null_mut())) });
        let long = long.trim().lines().last().unwrap_or("").to_string();
        if long.is_empty() { short } else { format!("{short} ({long})") }
    }

    /// For example `2.28.3`.
    pub fn version(&self) -> Result<String, NcclError> {
        let mut number = 0;
        // SAFETY: `number` outlives the call.
        self.check("ncclGetVersion", unsafe { (self.get_version)(&mut number) })?;
        Ok(match number >= 10_000 {
            true => format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100),
            false => format!("{}.{}.{}", number / 1000, number / 100 % 10, number % 100),
        })
    }

    pub fn unique_id(&self) -> Result<UniqueId, NcclError> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: `id` outlives the call.
        self.check("ncclGetUniqueId", unsafe { (self.get_unique_id)(&mut id) })?;
        Ok(id)
    }

    /// Joins the other ranks; the calling thread's current device becomes this rank's.
    pub fn init(&self, id: UniqueId, rank: usize, size: usize) -> Result<Comm, NcclError> {
        let mut comm = std::ptr::null_mut();
        // SAFETY: `comm` outlives the call; rank and size come from the launcher.
        let status = unsafe { (self.init_rank)(&mut comm, size as c_int, id, rank as c_int) };
        self.check("ncclCommInitRank", status)?;
        Ok(comm)
    }

    /// An asynchronous error.
    ///
    /// # Safety
    /// The handle was not aborted.
    pub unsafe fn failure(&self, comm: Comm) -> Option<NcclError> {
        let mut status = 0;
        // SAFETY: `status` outlives the call, and the handle is alive as the caller promises.
        let asked = unsafe { (self.async_error)(comm, &mut status) };
        self.check("ncclCommGetAsyncError", asked).and_then(|()| self.check("a collective", status)).err()
    }

    /// Aborts everything in flight. The handle is invalid afterwards.
    ///
    /// # Safety
    /// The handle was not aborted before.
    pub unsafe fn abort(&self, comm: Comm) {
        // SAFETY: as the caller promises.
        unsafe { (self.abort)(comm) };
    }

    /// Queues calls as one group.
    ///
    /// # Safety
    /// The handle is alive; addresses are on this rank's device, with room for the counts, until the stream has
    /// finished them.
    pub unsafe fn queue(&self, comm: Comm, calls: &[WireCall], stream: *mut c_void) -> Result<(), NcclError> {
        // SAFETY: it has no preconditions.
        self.check("ncclGroupStart", unsafe { (self.group_start)() })?;
        // SAFETY: as the caller promises.
        let queued = calls.iter().try_for_each(|call| unsafe { self.queue_one(comm, call, stream) });
        // SAFETY: it ends the group that was begun on this thread, and has no other precondition.
        let ended = self.check("ncclGroupEnd", unsafe { (self.group_end)() });
        queued.and(ended)
    }

    /// # Safety
    /// As for `queue`.
    unsafe fn queue_one(&self, comm: Comm, call: &WireCall, stream: *mut c_void) -> Result<(), NcclError> {
        let (read, written) = (|at: u64| at as *const c_void, |at: u64| at as *mut c_void);
        // SAFETY: as the caller promises.
        unsafe {
            match *call {
                WireCall::AllReduce { from, to, count, number, sum } => self.check(
                    "ncclAllReduce",
                    (self.all_reduce)(read(from), written(to), count, number.code(), sum.code(), comm, stream),
                ),
                WireCall::ReduceScatter { from, to, count, number } => self.check(
                    "ncclReduceScatter",
                    (self.reduce_scatter)(read(from), written(to), count, number.code(), 0, comm, stream),
                ),
                WireCall::AllGather { from, to, count, number } => self.check(
                    "ncclAllGather",
                    (self.all_gather)(read(from), written(to), count, number.code(), comm, stream),
                ),
                WireCall::Reduce { from, to, count, number, root } => self.check(
                    "ncclReduce",
                    (self.reduce)(read(from), written(to), count, number.code(), 0, root as c_int, comm, stream),
                ),
                WireCall::Broadcast { from, to, count, number, root } => self.check(
                    "ncclBroadcast",
                    (self.broadcast)(read(from), written(to), count, number.code(), root as c_int, comm, stream),
                ),
            }
        }
    }
}

/// # Safety
/// Null, or a text that ends with a zero.
unsafe fn text_at(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_nccl_is_told() {
        let error = Nccl::of_file(Path::new("no/such/libnccl.so.2")).err().unwrap();
        assert!(error.to_string().starts_with("no/such/libnccl.so.2 cannot be opened"), "{error}");
        #[cfg(target_os = "linux")]
        {
            let error = Nccl::of_file(Path::new("libc.so.6")).err().unwrap().to_string();
            assert!(error.starts_with("libc.so.6 is not a usable NCCL: it has no ncclGetVersion"), "{error}");
        }
    }

    #[test]
    fn two_ranks_on_one_gpu_are_told_what_to_do() {
        let error = NcclError::SameGpu { first: 0, second: 2, gpu: "0000:1B:00.0".into() }.to_string();
        assert!(error.starts_with("ranks 0 and 2 are both on GPU 0000:1B:00.0") && error.contains("NCCL_HOSTID"));
    }
}
