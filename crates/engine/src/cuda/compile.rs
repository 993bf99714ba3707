//! Kernels compiled at run time for the device that is there, and kept on disk for the next time.

use super::driver::cu;
use super::error::CudaError;
use super::library;
use cudarc::driver::sys::{CUfunction, CUfunction_attribute, CUmodule};
use cudarc::nvrtc::sys as nvrtc;
use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};

const TYPES: &str = include_str!("kernels/types.cuh");
const ROWS: &str = include_str!("kernels/rows.cuh");
const TILES: &str = include_str!("kernels/flash_tiles.cuh");

/// A file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    pub name: &'static str,
    before: &'static [&'static str],
    text: &'static str,
}

macro_rules! sources {
    ($($constant:ident $file:literal after $before:expr),* $(,)?) => {
        $(pub const $constant: Source =
            Source { name: $file, before: &$before, text: include_str!(concat!("kernels/", $file)) };)*
    };
}
sources! {
    ELEMENTWISE "elementwise.cu" after [TYPES, ROWS],
    NORM "norm.cu" after [TYPES, ROWS],
    LOSS "loss.cu" after [TYPES, ROWS],
    ATTENTION "attention.cu" after [TYPES, ROWS],
    OPTIMIZER "optimizer.cu" after [TYPES, ROWS],
    CHOOSE "choose.cu" after [TYPES],
    EXCHANGE "exchange.cu" after [TYPES, ROWS],
    FP8 "fp8.cu" after [TYPES, ROWS],
    RANDOM "random.cu" after [TYPES, ROWS],
    FLASH_FORWARD "flash_forward.cu" after [TYPES, TILES],
    FLASH_BACKWARD "flash_backward.cu" after [TYPES, TILES],
    FLASH_PLAIN "flash_attention_plain.cu" after [TYPES],
}

impl Source {
    fn whole(&self) -> String {
        self.before.iter().copied().chain([self.text]).collect::<Vec<_>>().join("\n")
    }
}

/// A source and what it is compiled with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unit {
    pub source: Source,
    pub options: Vec<String>,
}

/// Every way in which a source is compiled, for a check without a device.
pub fn all_units() -> Vec<Unit> {
    let unit = |source: Source, options: &[&str]| Unit {
        source,
        options: options.iter().map(|option| option.to_string()).collect(),
    };
    let mut all = vec![unit(EXCHANGE, &[]), unit(RANDOM, NO_CONTRACTION), unit(CHOOSE, NO_CONTRACTION), unit(FP8, &[])];
    for source in [ELEMENTWISE, NORM, LOSS, ATTENTION] {
        all.extend([unit(source, &[]), unit(source, &["-DACT_BF16"])]);
    }
    // Compiled once a head size: a small, an odd and the largest one stand for all.
    all.extend([unit(FLASH_FORWARD, &["-DHEAD_DIM=32"]), unit(FLASH_BACKWARD, &["-DHEAD_DIM=128"])]);
    all.extend([unit(FLASH_PLAIN, &["-DHEAD_DIM=64"]), unit(FLASH_PLAIN, &["-DHEAD_DIM=6", "-DSTORAGE_BF16"])]);
    for options in [&[][..], &["-DGRADIENT_BF16"], &["-DWEIGHT_BF16", "-DGRADIENT_BF16"]] {
        all.push(unit(OPTIMIZER, options));
    }
    all
}

/// Is it to be compiled for an architecture where no device is there to ask? The tensor-core attention exists for Hopper
/// alone, and its stand-in takes long and has nothing that is special to an architecture.
pub fn compiles_for(unit: &Unit, architecture: &str) -> bool {
    if unit.source == FP8 && !has_fp8(architecture) {
        return false;
    }
    architecture == "sm_90a" || ![FLASH_FORWARD, FLASH_BACKWARD, FLASH_PLAIN].contains(&unit.source)
}

/// Numbers of eight bits came with Ada: `sm_89`.
fn has_fp8(architecture: &str) -> bool {
    let number = architecture.trim_start_matches("sm_").trim_end_matches(|letter: char| !letter.is_ascii_digit());
    number.parse().is_ok_and(|number: u32| number >= 89)
}

/// Random numbers are the host's to the bit only without fused multiply-adds.
pub const NO_CONTRACTION: &[&str] = &["--fmad=false"];

/// `sm_90a` for Hopper, whose own instructions need the `a`; plain before it.
pub fn architecture((major, minor): (u32, u32)) -> String {
    let own = if major >= 9 { "a" } else { "" };
    format!("sm_{major}{minor}{own}")
}

/// Loaded kernels, by where they come from.
pub struct Kernels {
    architecture: String,
    cache: Option<PathBuf>,
    modules: HashMap<Unit, CUmodule>,
    functions: HashMap<(Unit, String), CUfunction>,
}

impl Kernels {
    pub fn new(capability: (u32, u32), cache: Option<&Path>) -> Kernels {
        let cache = cache.map(Path::to_path_buf);
        Kernels { architecture: architecture(capability), cache, modules: HashMap::new(), functions: HashMap::new() }
    }

    /// A kernel by name, allowed as much shared memory as `shared` bytes.
    pub fn function(&mut self, unit: &Unit, name: &str, shared: u32) -> Result<CUfunction, CudaError> {
        let key = (unit.clone(), name.to_string());
        let function = match self.functions.get(&key) {
            Some(&function) => function,
            None => {
                let module = self.module(unit)?;
                let mut function = null_mut();
                let text = CString::new(name).unwrap_or_default();
                cu!(cuModuleGetFunction(&mut function, module, text.as_ptr()))?;
                self.functions.insert(key, function);
                function
            }
        };
        const WITHOUT_ASKING: u32 = 48 * 1024;
        if shared > WITHOUT_ASKING {
            let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            cu!(cuFuncSetAttribute(function, most, shared as i32))?;
        }
        Ok(function)
    }

    fn module(&mut self, unit: &Unit) -> Result<CUmodule, CudaError> {
        if let Some(&module) = self.modules.get(unit) {
            return Ok(module);
        }
        let file = self.cache.as_ref().map(|folder| folder.join(kept_name(unit, &self.architecture)));
        let kept = file.as_ref().and_then(|file| std::fs::read(file).ok());
        let mut module = null_mut();
        // A kept file that does not load (cut short, another driver's) is compiled anew.
        let loaded = kept.is_some_and(|image| cu!(cuModuleLoadData(&mut module, image.as_ptr().cast())).is_ok());
        if !loaded {
            let image = compile(unit, &self.architecture)?;
            cu!(cuModuleLoadData(&mut module, image.as_ptr().cast()))?;
            if let Some(file) = file {
                keep(&file, &image);
            }
        }
        self.modules.insert(unit.clone(), module);
        Ok(module)
    }
}

/// Written under another name first, so that nobody reads half a file. That it cannot be kept is no reason to stop.
fn keep(file: &Path, image: &[u8]) {
    let partial = file.with_extension(format!("{}.partial", std::process::id()));
    let made = file.parent().is_some_and(|folder| std::fs::create_dir_all(folder).is_ok());
    if made && std::fs::write(&partial, image).is_ok() {
        let _ = std::fs::rename(&partial, file);
    }
}

fn kept_name(unit: &Unit, architecture: &str) -> String {
    let parts = [&unit.source.whole(), &unit.options.join(" "), architecture, &compiler_version()];
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in parts.iter().flat_map(|part| part.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let stem = unit.source.name.trim_end_matches(".cu");
    format!("{stem}-{architecture}-{hash:016x}.cubin")
}

fn compiler_version() -> String {
    if library::compiler().is_err() {
        return "none".into();
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both are live locals.
    unsafe { nvrtc::nvrtcVersion(&mut major, &mut minor) };
    format!("{major}.{minor}")
}

/// The machine code of a unit.
pub fn compile(unit: &Unit, architecture: &str) -> Result<Vec<u8>, CudaError> {
    library::compiler()?;
    let failed = |log: String| CudaError::Compile { file: unit.source.name, architecture: architecture.into(), log };
    let text = CString::new(unit.source.whole()).map_err(|error| failed(error.to_string()))?;
    let name = CString::new(unit.source.name).unwrap_or_default();
    let options: Vec<CString> =
        [format!("--gpu-architecture={architecture}"), "-std=c++17".into(), "-default-device".into()]
            .into_iter()
            .chain(unit.options.iter().cloned())
            .filter_map(|option| CString::new(option).ok())
            .collect();
    let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let mut program = null_mut();
    // SAFETY: all pointers are to live locals, strings end with a zero, and each buffer has the size that NVRTC asked for.
    unsafe {
        let made = nvrtc::nvrtcCreateProgram(&mut program, text.as_ptr(), name.as_ptr(), 0, null(), null());
        if made != nvrtc::nvrtcResult::NVRTC_SUCCESS {
            return Err(failed(format!("{made:?}")));
        }
        let compiled = nvrtc::nvrtcCompileProgram(program, pointers.len() as i32, pointers.as_ptr());
        let result = if compiled == nvrtc::nvrtcResult::NVRTC_SUCCESS {
            let mut size = 0;
            nvrtc::nvrtcGetCUBINSize(program, &mut size);
            let mut image = vec![0u8; size];
            nvrtc::nvrtcGetCUBIN(program, image.as_mut_ptr().cast());
            Ok(image)
        } else {
            let mut size = 0;
            nvrtc::nvrtcGetProgramLogSize(program, &mut size);
            let mut log = vec![0u8; size];
            nvrtc::nvrtcGetProgramLog(program, log.as_mut_ptr().cast());
            Err(failed(format!("{compiled:?}\n{}", String::from_utf8_lossy(&log).trim_end_matches('\0'))))
        };
        nvrtc::nvrtcDestroyProgram(&mut program);
        result
    }
}
