//! Compiles every CUDA kernel with NVRTC, for every generation from Turing to Blackwell, without a GPU.
//!
//! NVRTC is named by CUDA_HOME or found in the active Python environment. `cargo xtask test` installs it and compiles
//! for the oldest generation, Hopper and the newest (HEADROOM_TEST_GENERATIONS=ends); `cargo xtask kernels` compiles
//! for all.

use headroom_engine::cuda::compile::{CAPABILITIES, all_units, architecture, compile, compiles_for};
use std::sync::Mutex;

#[test]
#[ignore = "needs NVRTC: `cargo xtask test` installs it and runs this"]
fn every_kernel_compiles() {
    let wanted = |to| all_units().into_iter().filter(move |unit| compiles_for(unit, to)).map(move |unit| (to, unit));
    let ends = std::env::var("HEADROOM_TEST_GENERATIONS").is_ok_and(|asked| asked == "ends");
    let is_asked = |to: &(u32, u32)| !ends || [(7, 5), (9, 0), (12, 0)].contains(to);
    let left = Mutex::new(CAPABILITIES.into_iter().filter(is_asked).flat_map(wanted).collect::<Vec<_>>());
    let next = || left.lock().unwrap().pop();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((capability, unit)) = next() {
                    let architecture = architecture(capability);
                    let image = compile(&unit, &architecture).unwrap_or_else(|error| panic!("{error}"));
                    assert!(image.starts_with(b"\x7fELF"), "{} for {architecture}", unit.source.name);
                }
            });
        }
    });
}

#[test]
#[ignore = "needs NVRTC: `cargo xtask test` installs it and runs this"]
fn a_kernel_that_does_not_compile_is_named_with_what_the_compiler_says() {
    let mut unit = all_units().remove(0);
    unit.options.push("-Dfloat=nonsense".into());
    let error = compile(&unit, "sm_90a").map(|image| image.len()).unwrap_err().to_string();
    assert!(error.contains(unit.source.name) && error.contains("nonsense"), "{error}");
}
