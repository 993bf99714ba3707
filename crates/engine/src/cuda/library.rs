//! Finds the driver and the CUDA libraries, and opens them before they are used.

use super::error::CudaError;
use cudarc::{cublaslt, driver, nvrtc};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Opens the driver, NVRTC and cuBLASLt; the error says what was looked for.
pub fn open() -> Result<(), CudaError> {
    driver()?;
    compiler()?;
    // SAFETY: as in `driver`.
    find("cuBLASLt", &["libcublasLt.so"], || unsafe { cublaslt::sys::is_culib_present() })
}

/// Opens only the driver.
pub fn driver() -> Result<(), CudaError> {
    // SAFETY: opening a library runs its initialisers; these are the vendor's own and have no preconditions.
    if unsafe { driver::sys::is_culib_present() } {
        return Ok(());
    }
    let tried = vec!["libcuda.so.1 on the library path".into()];
    let help = "install NVIDIA's driver, or use --device cpu";
    Err(CudaError::NoLibrary { what: "NVIDIA driver", tried, help })
}

/// Opens only NVRTC: kernels compile without a driver or a GPU.
pub fn compiler() -> Result<(), CudaError> {
    // SAFETY: as in `driver`.
    find("NVRTC", &["libnvrtc-builtins.so", "libnvrtc.so"], || unsafe { nvrtc::sys::is_culib_present() })
}

/// Opens libraries that are not on the library path by their full path; later lookups then find them by name.
fn find(what: &'static str, names: &[&str], is_there: impl Fn() -> bool) -> Result<(), CudaError> {
    let folders = folders();
    for folder in folders {
        let files: Vec<PathBuf> = names.iter().filter_map(|name| newest(folder, name)).collect();
        if files.len() == names.len() {
            files.iter().for_each(|file| keep_open(file));
            break;
        }
    }
    if is_there() {
        return Ok(());
    }
    let tried = names
        .iter()
        .map(|name| format!("{name} on the library path"))
        .chain(folders.iter().map(|folder| folder.display().to_string()))
        .collect();
    let help = "install the CUDA toolkit (12 or 13), or its PyPI packages into the active environment, or point CUDA_HOME at it";
    Err(CudaError::NoLibrary { what, tried, help })
}

/// Opens an optional library, kept open by the caller; the error says where it was looked for.
pub fn optional(name: &str) -> Result<libloading::Library, String> {
    let by_path = folders().iter().filter_map(|folder| newest(folder, name));
    let versions = ["", ".1", ".13", ".12"].map(|version| PathBuf::from(format!("{name}{version}")));
    for file in by_path.chain(versions) {
        // SAFETY: as in `driver`.
        if let Ok(library) = unsafe { libloading::Library::new(&file) } {
            return Ok(library);
        }
    }
    let places: Vec<String> = folders().iter().map(|folder| folder.display().to_string()).collect();
    let in_folders = if places.is_empty() { String::new() } else { format!(", nor in {}", places.join(", ")) };
    Err(format!("{name} is not on the library path{in_folders}"))
}

/// Files of this name in every folder that may hold CUDA libraries.
pub fn files(name: &str) -> Vec<PathBuf> {
    folders().iter().filter_map(|folder| newest(folder, name)).collect()
}

/// The file of this name in the folder, with or without a version suffix; the highest version if there are several.
pub fn newest(folder: &Path, name: &str) -> Option<PathBuf> {
    let files = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let named = |path: &PathBuf| {
        let file = path.file_name().and_then(|file| file.to_str()).unwrap_or("");
        file.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    files.filter(named).max()
}

#[cfg(unix)]
fn keep_open(file: &Path) {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    // SAFETY: as in `driver`.
    if let Ok(library) = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_GLOBAL) } {
        std::mem::forget(library);
    }
}

#[cfg(not(unix))]
fn keep_open(file: &Path) {
    // SAFETY: as in `driver`.
    if let Ok(library) = unsafe { libloading::Library::new(file) } {
        std::mem::forget(library);
    }
}

/// Library folders, most specific first: those named by the environment, toolkits, and Python packages.
fn folders() -> &'static [PathBuf] {
    static FOLDERS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    FOLDERS.get_or_init(|| {
        let mut homes: Vec<PathBuf> =
            ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(std::env::var_os).map(PathBuf::from).collect();
        homes.extend(beginning_with(Path::new("/usr/local"), "cuda"));
        homes.push("/opt/cuda".into());
        let mut folders: Vec<PathBuf> = homes
            .iter()
            .flat_map(|home| {
                ["lib64", "lib", "targets/x86_64-linux/lib", "extras/CUPTI/lib64"].map(|lib| home.join(lib))
            })
            .collect();
        for prefix in python_prefixes() {
            for python in beginning_with(&prefix.join("lib"), "python3") {
                let packages = beginning_with(&python.join("site-packages/nvidia"), "");
                folders.extend(packages.into_iter().map(|package| package.join("lib")));
            }
        }
        folders.retain(|folder| folder.is_dir());
        folders
    })
}

pub fn beginning_with(folder: &Path, start: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    let named = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start));
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(named).collect();
    found.sort();
    found.reverse();
    found
}

/// The active environment, and where the `python3` on the path lives.
pub fn python_prefixes() -> Vec<PathBuf> {
    let active = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).filter(|folder| folder.join("python3").exists());
    active.into_iter().chain(on_path.filter_map(|folder| Some(folder.parent()?.to_path_buf()))).collect()
}
