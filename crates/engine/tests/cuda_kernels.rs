//! Every CUDA kernel compiles, for Hopper and for older devices, by NVRTC itself and without a GPU.
//!
//! Where NVRTC comes from is told by CUDA_HOME or found in the active Python environment; `cargo xtask test` installs it.

use headroom_engine::cuda::compile::{all_units, compile, compiles_for};

#[test]
#[ignore = "needs NVRTC: `cargo xtask test` installs it and runs this"]
fn every_kernel_compiles() {
    for (architecture, unit) in
        ["sm_80", "sm_90a"].into_iter().flat_map(|to| all_units().into_iter().map(move |unit| (to, unit)))
    {
        if compiles_for(&unit, architecture) {
            let image = compile(&unit, architecture).unwrap_or_else(|error| panic!("{error}"));
            assert!(image.starts_with(b"\x7fELF"), "{} for {architecture}", unit.source.name);
        }
    }
}

#[test]
#[ignore = "needs NVRTC: `cargo xtask test` installs it and runs this"]
fn a_kernel_that_does_not_compile_is_named_with_what_the_compiler_says() {
    let mut unit = all_units().remove(0);
    unit.options.push("-Dfloat=nonsense".into());
    let error = compile(&unit, "sm_90a").map(|image| image.len()).unwrap_err().to_string();
    assert!(error.contains(unit.source.name) && error.contains("nonsense"), "{error}");
}
