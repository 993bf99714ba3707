//! The GPU's state during a run: clocks, power, temperature, and what throttled the clocks. Read from NVML, the
//! driver's own monitoring library; optional.

use super::library;
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, park_timeout, spawn};
use std::time::Duration;

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub multiprocessor_megahertz: u32,
    pub memory_megahertz: u32,
    pub watts: f64,
    pub celsius: u32,
    /// NVML's bit mask.
    pub reasons: u64,
}

/// Summary of several samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    pub samples: usize,
    pub multiprocessor_megahertz_median: f64,
    pub multiprocessor_megahertz_least: f64,
    /// The highest clock that the GPU allows.
    pub multiprocessor_megahertz_most: f64,
    pub memory_megahertz_median: f64,
    pub watts_median: f64,
    pub watts_most: f64,
    pub watts_limit: f64,
    pub celsius_most: f64,
    /// Causes of throttling, each with its share of the samples, the most frequent first.
    pub held_back_by: Vec<(&'static str, f64)>,
}

/// Upper limits of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    pub multiprocessor_megahertz: u32,
    pub watts: f64,
}

/// NVML's bits for a clock below the requested one. Idle and an application's own setting do not count.
const REASONS: [(u64, &str); 7] = [
    (0x4, "power limit"),
    (0x8, "hardware slowdown"),
    (0x10, "the slowest GPU of a group"),
    (0x20, "temperature, by the driver"),
    (0x40, "temperature, by the hardware"),
    (0x80, "power brake, by the hardware"),
    (0x2, "clocks set by the user"),
];

impl Health {
    /// Returns `None` when there are no samples.
    pub fn of(samples: &[Sample], limits: Limits) -> Option<Health> {
        let sorted = |figure: &dyn Fn(&Sample) -> f64| {
            let mut figures: Vec<f64> = samples.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures
        };
        let median = |figures: &[f64]| figures.get(figures.len() / 2).copied();
        let clocks = sorted(&|sample| f64::from(sample.multiprocessor_megahertz));
        let memory = sorted(&|sample| f64::from(sample.memory_megahertz));
        let watts = sorted(&|sample| sample.watts);
        let celsius = sorted(&|sample| f64::from(sample.celsius));
        let share = |bit: u64| {
            samples.iter().filter(|sample| sample.reasons & bit != 0).count() as f64 / samples.len().max(1) as f64
        };
        let mut held_back_by: Vec<(&str, f64)> = REASONS.iter().map(|(bit, name)| (*name, share(*bit))).collect();
        held_back_by.retain(|(_, share)| *share > 0.0);
        held_back_by.sort_by(|left, right| right.1.total_cmp(&left.1));
        Some(Health {
            samples: samples.len(),
            multiprocessor_megahertz_median: median(&clocks)?,
            multiprocessor_megahertz_least: *clocks.first()?,
            multiprocessor_megahertz_most: f64::from(limits.multiprocessor_megahertz),
            memory_megahertz_median: median(&memory)?,
            watts_median: median(&watts)?,
            watts_most: *watts.last()?,
            watts_limit: limits.watts,
            celsius_most: *celsius.last()?,
            held_back_by,
        })
    }
}

/// Samples a GPU periodically from its own thread until ended.
pub struct Watch {
    limits: Limits,
    ends: Arc<AtomicBool>,
    looking: JoinHandle<Vec<Sample>>,
}

/// Time between two samples; taking one takes a millisecond or less.
const PAUSE: Duration = Duration::from_millis(20);

/// Sampling stops after this many: a run of days needs no more.
const MOST_SAMPLES: usize = 100_000;

impl Watch {
    /// Watches the GPU at this bus address; the error says why NVML cannot be used.
    pub fn start(bus: &str) -> Result<Watch, String> {
        let functions = functions()?;
        let device = functions.device(bus)?;
        let limits = device.limits();
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let looking = spawn(move || {
            let mut samples = vec![];
            while !ended.load(Ordering::Relaxed) && samples.len() < MOST_SAMPLES {
                samples.extend(device.sample());
                park_timeout(PAUSE);
            }
            samples
        });
        Ok(Watch { limits, ends, looking })
    }

    /// Returns `None` if no sample could be taken.
    pub fn end(self) -> Option<Health> {
        self.ends.store(true, Ordering::Relaxed);
        self.looking.thread().unpark();
        Health::of(&self.looking.join().unwrap_or_default(), self.limits)
    }
}

/// Version of NVIDIA's kernel module, such as `580.65.06`.
pub fn driver_version() -> Option<String> {
    let functions = functions().ok()?;
    let mut text = [0 as c_char; 96];
    // SAFETY: NVML writes at most this many bytes, the last a zero.
    let status = unsafe { (functions.driver_version)(text.as_mut_ptr(), text.len() as u32) };
    // SAFETY: the text ends with a zero.
    (status == 0).then(|| unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
}

type Handle = *mut c_void;
type ReadWord = unsafe extern "C" fn(Handle, *mut u32) -> u32;
type ReadWordOf = unsafe extern "C" fn(Handle, u32, *mut u32) -> u32;

struct Functions {
    driver_version: unsafe extern "C" fn(*mut c_char, u32) -> u32,
    by_bus: unsafe extern "C" fn(*const c_char, *mut Handle) -> u32,
    clock: ReadWordOf,
    most_clock: ReadWordOf,
    power: ReadWord,
    power_limit: ReadWord,
    temperature: ReadWordOf,
    reasons: unsafe extern "C" fn(Handle, *mut u64) -> u32,
}

fn functions() -> Result<&'static Functions, String> {
    static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
    FUNCTIONS.get_or_init(load).as_ref().map_err(String::clone)
}

fn load() -> Result<Functions, String> {
    let library: &'static Library = Box::leak(Box::new(library::optional("libnvidia-ml.so")?));
    macro_rules! function {
        ($name:literal) => {
            // SAFETY: the type of the field it goes into is that of the function in NVML's documentation.
            *unsafe { library.get($name) }.map_err(|error| format!("NVML has no {:?}: {error}", $name))?
        };
    }
    let start: unsafe extern "C" fn() -> u32 = function!(b"nvmlInit_v2\0");
    // SAFETY: has no preconditions.
    let status = unsafe { start() };
    if status != 0 {
        return Err(format!("nvmlInit_v2 failed with {status}"));
    }
    Ok(Functions {
        driver_version: function!(b"nvmlSystemGetDriverVersion\0"),
        by_bus: function!(b"nvmlDeviceGetHandleByPciBusId_v2\0"),
        clock: function!(b"nvmlDeviceGetClockInfo\0"),
        most_clock: function!(b"nvmlDeviceGetMaxClockInfo\0"),
        power: function!(b"nvmlDeviceGetPowerUsage\0"),
        power_limit: function!(b"nvmlDeviceGetEnforcedPowerLimit\0"),
        temperature: function!(b"nvmlDeviceGetTemperature\0"),
        reasons: function!(b"nvmlDeviceGetCurrentClocksThrottleReasons\0"),
    })
}

impl Functions {
    fn device(&'static self, bus: &str) -> Result<Looked, String> {
        let text = CString::new(bus).map_err(|error| error.to_string())?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the text ends with a zero, the handle is a live local.
        match unsafe { (self.by_bus)(text.as_ptr(), &mut handle) } {
            0 => Ok(Looked { functions: self, handle }),
            status => Err(format!("NVML knows no GPU at {bus} (nvmlDeviceGetHandleByPciBusId_v2: {status})")),
        }
    }
}

/// A GPU and its NVML handle.
struct Looked {
    functions: &'static Functions,
    handle: Handle,
}

// SAFETY: NVML may be called from any thread, and its handles stand for devices, not for memory of ours.
unsafe impl Send for Looked {}

const MULTIPROCESSORS: u32 = 1;
const MEMORY: u32 = 2;

impl Looked {
    fn word(&self, read: ReadWord) -> Option<u32> {
        let mut word = 0;
        // SAFETY: the handle is NVML's, the word a live local.
        (unsafe { read(self.handle, &mut word) } == 0).then_some(word)
    }

    fn word_of(&self, read: ReadWordOf, which: u32) -> Option<u32> {
        let mut word = 0;
        // SAFETY: the handle is NVML's, the word a live local.
        (unsafe { read(self.handle, which, &mut word) } == 0).then_some(word)
    }

    fn limits(&self) -> Limits {
        Limits {
            multiprocessor_megahertz: self.word_of(self.functions.most_clock, MULTIPROCESSORS).unwrap_or(0),
            watts: self.word(self.functions.power_limit).map_or(0.0, |milliwatts| f64::from(milliwatts) / 1e3),
        }
    }

    fn sample(&self) -> Option<Sample> {
        const DIE: u32 = 0;
        let mut reasons = 0;
        // SAFETY: the handle is NVML's, the reasons a live local.
        let told = unsafe { (self.functions.reasons)(self.handle, &mut reasons) } == 0;
        Some(Sample {
            multiprocessor_megahertz: self.word_of(self.functions.clock, MULTIPROCESSORS)?,
            memory_megahertz: self.word_of(self.functions.clock, MEMORY)?,
            watts: f64::from(self.word(self.functions.power)?) / 1e3,
            celsius: self.word_of(self.functions.temperature, DIE)?,
            reasons: if told { reasons } else { 0 },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(clock: u32, watts: f64, reasons: u64) -> Sample {
        Sample { multiprocessor_megahertz: clock, memory_megahertz: 3201, watts, celsius: 40 + clock / 100, reasons }
    }

    #[test]
    fn samples_are_summed_up_with_what_held_the_clocks_down() {
        let samples = [sample(1980, 650.0, 0), sample(1500, 699.0, 0x4), sample(1600, 698.0, 0x4 | 0x20)];
        let limits = Limits { multiprocessor_megahertz: 1980, watts: 700.0 };
        let health = Health::of(&samples, limits).unwrap();
        assert_eq!((health.multiprocessor_megahertz_median, health.multiprocessor_megahertz_least), (1600.0, 1500.0));
        assert_eq!((health.watts_median, health.watts_most, health.celsius_most), (698.0, 699.0, 59.0));
        assert_eq!(health.held_back_by[0], ("power limit", 2.0 / 3.0));
        assert_eq!(health.held_back_by[1].0, "temperature, by the driver");
        assert_eq!(Health::of(&[], limits), None);
    }

    #[test]
    fn an_idle_gpu_is_not_held_back() {
        let health = Health::of(&[sample(345, 70.0, 0x1)], Limits::default()).unwrap();
        assert_eq!(health.held_back_by, []);
    }
}
