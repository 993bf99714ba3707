//! Compiles kernels at run time for the device at hand, and caches them on disk.

use super::driver::cu;
use super::error::CudaError;
use super::library;
use cudarc::driver::sys::{CUfunction, CUfunction_attribute, CUmodule};
use cudarc::nvrtc::sys as nvrtc;
use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::time::SystemTime;

const TYPES: &str = include_str!("kernels/types.cuh");
const ROWS: &str = include_str!("kernels/rows.cuh");
const INSTRUCTIONS: &str = include_str!("kernels/flash_instructions.cuh");
const TILES: &str = include_str!("kernels/flash_tiles.cuh");
const WGMMA: &str = include_str!("kernels/flash_wgmma.cuh");
const MMA: &str = include_str!("kernels/flash_mma.cuh");

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
    LAYER_NORM "layer_norm.cu" after [TYPES, ROWS],
    TABLES "tables.cu" after [TYPES, ROWS],
    LOSS "loss.cu" after [TYPES, ROWS],
    ATTENTION "attention.cu" after [TYPES, ROWS],
    CACHED_ATTENTION "cached_attention.cu" after [TYPES, ROWS],
    OPTIMIZER "optimizer.cu" after [TYPES, ROWS],
    CHOOSE "choose.cu" after [TYPES],
    EXCHANGE "exchange.cu" after [TYPES, ROWS],
    FP8 "fp8.cu" after [TYPES, ROWS],
    RANDOM "random.cu" after [TYPES, ROWS],
    FLASH_ROTATE "flash_rotate.cu" after [TYPES, INSTRUCTIONS, TILES],
    FLASH_FORWARD "flash_forward.cu" after [TYPES, INSTRUCTIONS, TILES, WGMMA],
    FLASH_BACKWARD "flash_backward.cu" after [TYPES, INSTRUCTIONS, TILES, WGMMA],
    FLASH_FORWARD_MMA "flash_forward_mma.cu" after [TYPES, INSTRUCTIONS, TILES, MMA],
    FLASH_BACKWARD_MMA "flash_backward_mma.cu" after [TYPES, INSTRUCTIONS, TILES, MMA],
    FLASH_PLAIN "flash_attention_plain.cu" after [TYPES],
}

impl Source {
    fn whole(&self) -> String {
        self.before.iter().copied().chain([self.text]).collect::<Vec<_>>().join("\n")
    }
}

/// A source and its compile options.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unit {
    pub source: Source,
    pub options: Vec<String>,
}

/// Every way in which a source is compiled, for a check that needs no device.
pub fn all_units() -> Vec<Unit> {
    let unit = |source: Source, options: &[&str]| Unit {
        source,
        options: options.iter().map(|option| option.to_string()).collect(),
    };
    let mut all = vec![unit(EXCHANGE, &[]), unit(RANDOM, NO_CONTRACTION), unit(CHOOSE, NO_CONTRACTION), unit(FP8, &[])];
    for source in [ELEMENTWISE, NORM, LAYER_NORM, TABLES, LOSS, ATTENTION] {
        all.extend([unit(source, &[]), unit(source, &["-DACT_BF16"])]);
    }
    // Compiled once per head size: a small, an odd and the largest one stand for all.
    all.extend([unit(FLASH_FORWARD, &["-DHEAD_DIM=32"]), unit(FLASH_BACKWARD, &["-DHEAD_DIM=128"])]);
    all.extend([unit(FLASH_ROTATE, &["-DHEAD_DIM=64"]), unit(FLASH_FORWARD_MMA, &["-DHEAD_DIM=32"])]);
    all.extend([unit(FLASH_FORWARD_MMA, &[LARGEST]), unit(FLASH_BACKWARD_MMA, &["-DHEAD_DIM=32"])]);
    all.extend([
        unit(FLASH_BACKWARD_MMA, &[LARGEST]),
        unit(FLASH_BACKWARD_MMA, &[LARGEST, "-DKEY_TILES=1", "-DSTAGES=1"]),
        unit(FLASH_BACKWARD_MMA, &[LARGEST, ANY_ORDER]),
    ]);
    all.extend([unit(FLASH_PLAIN, &["-DHEAD_DIM=64"]), unit(FLASH_PLAIN, &["-DHEAD_DIM=6", "-DSTORAGE_BF16"])]);
    for options in [&[][..], &["-DCHUNK=4096", "-DGRADIENT_BF16"], &["-DWEIGHT_BF16", "-DGRADIENT_BF16"]] {
        all.push(unit(OPTIMIZER, options));
    }
    all
}

const LARGEST: &str = "-DHEAD_DIM=128";

/// Adds partial sums of attention's gradients in the order in which they arrive.
pub const ANY_ORDER: &str = "-DANY_ORDER=1";

/// Devices that kernels are compiled for without a device at hand: Turing, Ampere's two, Ada, Hopper, Blackwell's
/// three.
pub const CAPABILITIES: [(u32, u32); 8] = [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0)];

/// Whether to compile the unit for such a device without one at hand. Tensor-core attention exists from Ampere on, and
/// Hopper's for Hopper only. The parts that are slowest to compile are compiled once per generation: another size uses
/// no other instructions.
pub fn compiles_for(unit: &Unit, capability: (u32, u32)) -> bool {
    let largest = unit.options.iter().any(|option| option == LARGEST);
    match unit.source {
        // Eight-bit floats came with Ada.
        FP8 => capability >= (8, 9),
        FLASH_FORWARD | FLASH_BACKWARD => capability == (9, 0),
        FLASH_PLAIN => capability == (9, 0) || unit.options.len() > 1,
        FLASH_BACKWARD_MMA if unit.options.iter().any(|option| option == ANY_ORDER) => {
            [(8, 0), (9, 0)].contains(&capability)
        }
        // These devices have less shared memory than the large ones: fewer tiles at a time.
        FLASH_BACKWARD_MMA if unit.options.len() > 1 => [(8, 6), (12, 0)].contains(&capability),
        FLASH_FORWARD_MMA | FLASH_BACKWARD_MMA if largest => [(8, 0), (9, 0), (10, 0)].contains(&capability),
        FLASH_FORWARD_MMA | FLASH_BACKWARD_MMA | FLASH_ROTATE => capability >= (8, 0),
        _ => true,
    }
}

/// Hash of all sources: a verification is valid only for these.
pub fn fingerprint() -> String {
    let units = all_units();
    let texts: Vec<String> = units.iter().map(|unit| unit.source.whole() + &unit.options.join(" ")).collect();
    format!("{:016x}", hashed(texts.iter().map(String::as_str)))
}

fn hashed<'a>(parts: impl Iterator<Item = &'a str>) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in parts.flat_map(|part| part.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

/// Random numbers match the host's bit for bit only without fused multiply-adds.
pub const NO_CONTRACTION: &[&str] = &["--fmad=false"];

/// `sm_90a` for Hopper, whose own instructions need the `a`; without it before Hopper.
pub fn architecture((major, minor): (u32, u32)) -> String {
    let own = if major >= 9 { "a" } else { "" };
    format!("sm_{major}{minor}{own}")
}

/// Loaded kernels, by source and options.
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

    /// A kernel by name, with permission to use `shared` bytes of shared memory.
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
        // A cached file that does not load (truncated, or from another driver) is recompiled.
        let loaded = kept.is_some_and(|image| cu!(cuModuleLoadData(&mut module, image.as_ptr().cast())).is_ok());
        if loaded {
            file.iter().for_each(|file| used(file));
        }
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

/// Writes under another name first, so that nobody reads a partial file. A failure to save is not a reason to stop.
fn keep(file: &Path, image: &[u8]) {
    let partial = file.with_extension(format!("{}.partial", std::process::id()));
    let made = file.parent().is_some_and(|folder| std::fs::create_dir_all(folder).is_ok());
    if made && std::fs::write(&partial, image).is_ok() {
        let _ = std::fs::rename(&partial, file);
        file.parent().into_iter().for_each(|folder| prune(folder, MOST_KEPT));
    }
}

/// Most bytes of compiled kernels on disk; one binary on one device takes about 5 MB.
const MOST_KEPT: u64 = 64 << 20;

/// Marks a file as used, so that it is not the first to be deleted.
fn used(file: &Path) {
    let opened = std::fs::File::options().append(true).open(file);
    let _ = opened.and_then(|file| file.set_modified(SystemTime::now()));
}

/// Deletes the least recently used files until the rest fits.
fn prune(folder: &Path, most: u64) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let known = |entry: std::fs::DirEntry| {
        let path = entry.path();
        let about = entry.metadata().ok()?;
        let compiled = path.extension().is_some_and(|extension| extension == "cubin");
        compiled.then_some((about.modified().ok()?, about.len(), path))
    };
    let mut kept: Vec<(SystemTime, u64, PathBuf)> = entries.flatten().filter_map(known).collect();
    kept.sort();
    let mut total: u64 = kept.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, bytes, path) in kept {
        if total <= most {
            break;
        }
        if std::fs::remove_file(path).is_ok() {
            total -= bytes;
        }
    }
}

fn kept_name(unit: &Unit, architecture: &str) -> String {
    let (whole, options, compiler) = (unit.source.whole(), unit.options.join(" "), compiler_version());
    let parts = [whole.as_str(), &options, architecture, &compiler];
    let hash = hashed(parts.into_iter());
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
    // SAFETY: all pointers are to live locals, strings end with a zero, and each buffer has the size that NVRTC asked
    // for.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::time::Duration;

    #[test]
    fn of_kept_kernels_those_not_used_for_the_longest_time_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let ago = |seconds: u64| SystemTime::now() - Duration::from_secs(seconds);
        for (name, seconds) in [("new.cubin", 10), ("old.cubin", 300), ("older.cubin", 400), ("products.txt", 500)] {
            let path = folder.path().join(name);
            std::fs::write(&path, [0; 100]).unwrap();
            std::fs::File::options().append(true).open(path).unwrap().set_modified(ago(seconds)).unwrap();
        }
        let names = || {
            let mut names: Vec<String> = std::fs::read_dir(folder.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        prune(folder.path(), 300);
        assert_eq!(names().len(), 4);
        used(&folder.path().join("older.cubin"));
        prune(folder.path(), 200);
        assert_eq!(names(), ["new.cubin", "older.cubin", "products.txt"]);
    }

    #[test]
    fn every_kernel_waits_for_the_one_before_it_first() {
        let mut kernels = 0;
        for source in all_units().iter().map(|unit| unit.source).collect::<HashSet<_>>() {
            for after in source.text.split("__global__").skip(1) {
                let body = after.split_once('{').map_or("", |(_, body)| body);
                let start = body.trim_start_matches([' ', '\n', '\\']);
                let name = after.split('{').next().unwrap_or_default();
                assert!(start.starts_with("in_turn();"), "{} in {}", name.trim(), source.name);
                kernels += 1;
            }
        }
        assert!(kernels > 40, "{kernels}");
    }

    #[test]
    fn every_unit_is_compiled_somewhere_and_no_tensor_cores_where_there_are_none() {
        let on = |capability| all_units().into_iter().filter(move |unit| compiles_for(unit, capability));
        for unit in all_units() {
            assert!(CAPABILITIES.iter().any(|&capability| compiles_for(&unit, capability)), "{unit:?}");
        }
        for capability in CAPABILITIES {
            let sources: Vec<&str> = on(capability).map(|unit| unit.source.name).collect();
            assert!(sources.contains(&"flash_attention_plain.cu"), "{capability:?}");
            assert_eq!(sources.contains(&"flash_backward_mma.cu"), capability >= (8, 0), "{capability:?}");
            assert_eq!(sources.contains(&"flash_backward.cu"), capability == (9, 0), "{capability:?}");
        }
    }
}
