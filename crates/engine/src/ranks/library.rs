//! Finds the MPI library: beside the launcher, else on the library path.

use super::error::RanksError;
use super::launch::Launcher;
use super::mpi::{Calls, Kind};
use std::path::{Path, PathBuf};

/// An MPI library with all needed functions.
pub struct Found {
    pub calls: Calls,
    pub path: PathBuf,
}

/// Environment variable that names a library to use instead of searching.
const NAMED: &str = "HEADROOM_MPI_LIBRARY";

const STANDARD: [&str; 2] = ["libmpi_abi.so.1", "libmpi_abi.so.0"];
const OPEN_MPI: &str = "libmpi.so.40";
const MPICH: &str = "libmpi.so.12";

/// Tries the library of the launcher's own MPI first: another one would not find the other ranks.
pub fn open(by: Launcher) -> Result<Found, RanksError> {
    if let Some(named) = std::env::var_os(NAMED) {
        return open_file(Path::new(&named));
    }
    let names: Vec<&str> = match by {
        Launcher::OpenMpi => [[OPEN_MPI].as_slice(), &STANDARD].concat(),
        _ => [STANDARD.as_slice(), &[OPEN_MPI, MPICH]].concat(),
    };
    let folders = folders();
    let mut tried = vec![];
    for name in &names {
        for folder in &folders {
            let file = folder.join(name);
            if file.exists() {
                return open_file(&file);
            }
        }
        match open_file(Path::new(name)) {
            Err(RanksError::NotOpened { .. }) => tried.push(format!("{name} on the library path")),
            found => return found,
        }
    }
    tried.extend(folders.iter().map(|folder| folder.display().to_string()));
    Err(RanksError::NoLibrary { tried })
}

fn open_file(path: &Path) -> Result<Found, RanksError> {
    let not_opened = |error: libloading::Error| RanksError::NotOpened { path: path.into(), why: error.to_string() };
    let library = global(path).map_err(not_opened)?;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
    let kind = match name {
        _ if name.starts_with("libmpi_abi.so") => Kind::Standard,
        // SAFETY: only the presence of the symbol is checked.
        _ if unsafe { library.get::<*mut u8>(b"ompi_mpi_comm_world\0") }.is_ok() => Kind::OpenMpi,
        _ => Kind::Mpich,
    };
    let missing = |symbol: &str| RanksError::NoSymbol { path: path.into(), symbol: symbol.into() };
    // Drafts of the standard ABI had other values under the same file name, and lacked this function.
    // SAFETY: only the presence of the symbol is checked.
    if kind == Kind::Standard && unsafe { library.get::<*mut u8>(b"MPI_Abi_get_version\0") }.is_err() {
        return Err(missing("MPI_Abi_get_version"));
    }
    let calls = Calls::of(library, kind).map_err(missing)?;
    let version = calls.version();
    match kind.fits(&version) {
        true => Ok(Found { calls, path: path.into() }),
        false => Err(RanksError::OtherLibrary { path: path.into(), version }),
    }
}

/// Opens with global symbols: modules that MPI opens later look up its symbols in the whole process.
#[cfg(unix)]
fn global(path: &Path) -> Result<libloading::Library, libloading::Error> {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    // SAFETY: opening a library runs its initialisers; MPI's have no preconditions.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map(Into::into)
}

#[cfg(not(unix))]
fn global(path: &Path) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: opening a library runs its initialisers; MPI's have no preconditions.
    unsafe { libloading::Library::new(path) }
}

/// Library folders that belong to a launcher: under the prefixes it sets, and beside the programs on the path.
fn folders() -> Vec<PathBuf> {
    let named = ["OPAL_PREFIX", "PMIX_PREFIX", "VIRTUAL_ENV"].iter().filter_map(std::env::var_os).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_launcher = |folder: &PathBuf| ["mpirun", "mpiexec"].iter().any(|name| folder.join(name).exists());
    let beside = std::env::split_paths(&path).filter(has_launcher).filter_map(|folder| Some(folder.parent()?.into()));
    let mut found: Vec<PathBuf> =
        named.chain(beside).flat_map(|home: PathBuf| ["lib", "lib64"].map(|lib| home.join(lib))).collect();
    found.retain(|folder| folder.is_dir());
    found.dedup();
    found
}
