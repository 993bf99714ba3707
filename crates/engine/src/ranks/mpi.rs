//! Bindings for the dozen MPI functions that are needed, with the three handle representations of its libraries.

use super::error::RanksError;
use libloading::Library;
use std::ffi::{c_char, c_int, c_void};

/// How a library represents handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The ABI of MPI 5: pointers with the standard's values.
    Standard,
    /// Addresses of objects in the library.
    OpenMpi,
    /// 32-bit integers, in MPICH and libraries that follow its ABI.
    Mpich,
}

impl Kind {
    /// Whether a library with this version string has these handles.
    pub fn fits(self, version: &str) -> bool {
        let any = |names: &[&str]| names.iter().any(|name| version.contains(name));
        match self {
            Kind::Standard => true,
            Kind::OpenMpi => any(&["Open MPI", "Spectrum MPI"]),
            Kind::Mpich => any(&["MPICH", "Intel", "MVAPICH", "CRAY", "Cray"]),
        }
    }
}

#[cfg(target_endian = "big")]
compile_error!("handles of 32 bits are passed in the lower half of a register, which is little-endian's first");

/// A handle as it is passed: a pointer, or a 32-bit integer in the lower half of the same register or memory slot.
type Handle = usize;

type InitThread = unsafe extern "C" fn(*mut c_int, *mut c_void, c_int, *mut c_int) -> c_int;
type OfWorld = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;
type SetErrors = unsafe extern "C" fn(Handle, Handle) -> c_int;
type Send = unsafe extern "C" fn(*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;
type Receive = unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;
type Test = unsafe extern "C" fn(*mut Handle, *mut c_int, *mut c_void) -> c_int;
type GetCount = unsafe extern "C" fn(*const c_void, Handle, *mut c_int) -> c_int;
type Abort = unsafe extern "C" fn(Handle, c_int) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;
type Version = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int, *mut c_char, *mut c_int) -> c_int;

pub struct Calls {
    init: InitThread,
    rank: OfWorld,
    size: OfWorld,
    set_errors: SetErrors,
    send: Send,
    receive: Receive,
    test: Test,
    get_count: GetCount,
    abort: Abort,
    finalize: Finalize,
    version: Version,
    error_string: ErrorString,
    world: Handle,
    byte: Handle,
    errors_return: Handle,
    funneled: c_int,
    /// Never closed: MPI's own threads and exit handlers would disappear with it.
    _library: std::mem::ManuallyDrop<Library>,
}

impl Calls {
    /// Loads all symbols. The error is the name of the first missing one.
    pub fn of(library: Library, kind: Kind) -> Result<Calls, &'static str> {
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the type is the one that MPI's standard gives the function of this name.
                unsafe { *library.get(concat!($name, "\0").as_bytes()).map_err(|_| $name)? }
            };
        }
        let address = |name: &'static str| -> Result<Handle, &'static str> {
            // SAFETY: only the address is taken.
            let symbol = unsafe { library.get::<*const u8>(name.as_bytes()) }.map_err(|_| name)?;
            Ok(*symbol as Handle)
        };
        let (world, byte, errors_return, funneled) = match kind {
            Kind::Standard => (0x101, 0x247, 0x143, 1024),
            Kind::Mpich => (0x4400_0000, 0x4c00_010d, 0x5400_0001, 1),
            Kind::OpenMpi => {
                let [world, byte, errors] =
                    ["ompi_mpi_comm_world", "ompi_mpi_byte", "ompi_mpi_errors_return"].map(address);
                (world?, byte?, errors?, 1)
            }
        };
        Ok(Calls {
            init: function!("MPI_Init_thread"),
            rank: function!("MPI_Comm_rank"),
            size: function!("MPI_Comm_size"),
            set_errors: function!("MPI_Comm_set_errhandler"),
            send: function!("MPI_Isend"),
            receive: function!("MPI_Irecv"),
            test: function!("MPI_Test"),
            get_count: function!("MPI_Get_count"),
            abort: function!("MPI_Abort"),
            finalize: function!("MPI_Finalize"),
            version: function!("MPI_Get_library_version"),
            error_string: function!("MPI_Error_string"),
            world,
            byte,
            errors_return,
            funneled,
            _library: std::mem::ManuallyDrop::new(library),
        })
    }

    /// Joins the other ranks; every later call must come from the same thread.
    pub fn start(self) -> Result<World, RanksError> {
        let mut provided = 0;
        // SAFETY: MPI takes no arguments here, and `provided` outlives the call. It is called once per process.
        let code = unsafe { (self.init)(std::ptr::null_mut(), std::ptr::null_mut(), self.funneled, &mut provided) };
        if code != 0 {
            return Err(RanksError::Call { function: "MPI_Init_thread", why: format!("code {code}") });
        }
        let (mut rank, mut size) = (0, 0);
        // SAFETY: MPI is initialised and `world` is its communicator; errors come back from here on.
        let codes = unsafe {
            [
                ("MPI_Comm_set_errhandler", (self.set_errors)(self.world, self.errors_return)),
                ("MPI_Comm_rank", (self.rank)(self.world, &mut rank)),
                ("MPI_Comm_size", (self.size)(self.world, &mut size)),
            ]
        };
        for (function, code) in codes {
            self.check(function, code)?;
        }
        if provided < self.funneled {
            let why = "it does not support programs with more than one thread".into();
            return Err(RanksError::Call { function: "MPI_Init_thread", why });
        }
        let version = self.version();
        Ok(World { rank: rank.max(0) as usize, size: size.max(0) as usize, version, calls: self })
    }

    /// Name and version: the first line, at most eighty characters. May be called before anything else.
    pub fn version(&self) -> String {
        let text = text_of(|text, length| {
            // SAFETY: the buffer is as long as any MPI asks for, and `length` outlives the call.
            unsafe { (self.version)(text, length) }
        });
        let line = text.lines().next().unwrap_or("").split(", package").next().unwrap_or("");
        line.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(80).collect()
    }

    fn check(&self, function: &'static str, code: c_int) -> Result<(), RanksError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: as in `version`.
        let why = text_of(|text, length| unsafe { (self.error_string)(code, text, length) });
        Err(RanksError::Call { function, why: format!("{} (code {code})", why.trim()) })
    }
}

/// Longer than the 8192 that the standard ABI allows.
const MOST_TEXT: usize = 1 << 14;

fn text_of(call: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> String {
    let mut text = vec![0u8; MOST_TEXT];
    let mut length = 0;
    if call(text.as_mut_ptr().cast(), &mut length) != 0 {
        return "unknown".into();
    }
    text.truncate((length.max(0) as usize).min(MOST_TEXT));
    String::from_utf8_lossy(&text).trim_end_matches('\0').into()
}

/// All ranks, connected.
pub struct World {
    pub rank: usize,
    pub size: usize,
    pub version: String,
    calls: Calls,
}

/// A message in flight.
pub struct Request {
    handle: Handle,
    pub peer: usize,
    pub receives: bool,
    bytes: usize,
    done: bool,
}

/// Messages are cut into pieces of at most this many bytes, because MPI counts in 32 bits.
pub const MOST_BYTES: usize = 1 << 28;

/// Larger than the status of any of the libraries.
type Status = [u64; 16];

impl World {
    /// Starts sending bytes to a rank, as one or more messages.
    ///
    /// # Safety
    /// The bytes live and do not change until the requests are done.
    pub unsafe fn send(
        &self,
        to: usize,
        tag: c_int,
        bytes: &[u8],
        requests: &mut Vec<Request>,
    ) -> Result<(), RanksError> {
        for piece in bytes.chunks(MOST_BYTES) {
            let mut handle = 0;
            let (start, count, peer) = (piece.as_ptr().cast(), piece.len() as c_int, to as c_int);
            // SAFETY: the piece outlives the request, as the caller promises; handles are MPI's own.
            let code =
                unsafe { (self.calls.send)(start, count, self.calls.byte, peer, tag, self.calls.world, &mut handle) };
            self.calls.check("MPI_Isend", code)?;
            requests.push(Request { handle, peer: to, receives: false, bytes: piece.len(), done: false });
        }
        Ok(())
    }

    /// Starts receiving bytes from a rank that sends the same number.
    ///
    /// # Safety
    /// The bytes live and nothing else touches them until the requests are done.
    pub unsafe fn receive(
        &self,
        from: usize,
        tag: c_int,
        bytes: &mut [u8],
        requests: &mut Vec<Request>,
    ) -> Result<(), RanksError> {
        for piece in bytes.chunks_mut(MOST_BYTES) {
            let mut handle = 0;
            let (start, count, peer) = (piece.as_mut_ptr().cast(), piece.len() as c_int, from as c_int);
            // SAFETY: as in `send`.
            let code = unsafe {
                (self.calls.receive)(start, count, self.calls.byte, peer, tag, self.calls.world, &mut handle)
            };
            self.calls.check("MPI_Irecv", code)?;
            requests.push(Request { handle, peer: from, receives: true, bytes: piece.len(), done: false });
        }
        Ok(())
    }

    /// Tests each unfinished request; returns true if one is done now. A message of unexpected length is an error: the
    /// ranks are not at the same place.
    pub fn look(&self, requests: &mut Vec<Request>) -> Result<bool, RanksError> {
        let before = requests.len();
        for request in requests.iter_mut() {
            let mut done = 0;
            let mut status: Status = [0; 16];
            // SAFETY: MPI returned the handle and its request was not done before; the status has room for any
            // library's.
            let code = unsafe { (self.calls.test)(&mut request.handle, &mut done, status.as_mut_ptr().cast()) };
            match self.calls.check("MPI_Test", code) {
                Err(RanksError::Call { why, .. }) if request.receives => {
                    return Err(RanksError::OtherMessage { rank: request.peer, why });
                }
                outcome => outcome?,
            }
            request.done = done != 0;
            if request.done && request.receives {
                let mut have = 0;
                // SAFETY: the status is the one that MPI wrote.
                let code = unsafe { (self.calls.get_count)(status.as_ptr().cast(), self.calls.byte, &mut have) };
                self.calls.check("MPI_Get_count", code)?;
                if have as usize != request.bytes {
                    let have = have.max(0) as usize;
                    return Err(RanksError::OtherLength { rank: request.peer, have, want: request.bytes });
                }
            }
        }
        requests.retain(|request| !request.done);
        Ok(requests.len() < before)
    }

    pub fn abort(&self, code: i32) {
        // SAFETY: MPI is initialised.
        unsafe { (self.calls.abort)(self.calls.world, code) };
    }

    pub fn finalize(&self) {
        // SAFETY: MPI is initialised, and nothing is in flight any more.
        unsafe { (self.calls.finalize)() };
    }
}
