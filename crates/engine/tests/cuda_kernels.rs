//! Compiles every CUDA kernel with NVRTC, for every generation from Turing to Blackwell, without a GPU.
//!
//! NVRTC is named by CUDA_HOME or found in the active Python environment. `cargo xtask test` installs it and compiles
//! for the oldest generation, Hopper and the newest (HEADROOM_TEST_GENERATIONS=ends); `cargo xtask kernels` compiles
//! for all.

use headroom_engine::cuda::compile::{CAPABILITIES, all_units, architecture, compile, compiles_for};

/// The compiler works for one thread of a process at a time, so several processes have a part each (`0/2`, `1/2`).
fn part() -> (usize, usize) {
    let asked = std::env::var("HEADROOM_TEST_PART").unwrap_or_else(|_| "0/1".into());
    let (part, parts) = asked.split_once('/').expect("a part is PART/PARTS");
    (part.parse().expect("a number"), parts.parse().expect("a number"))
}

#[test]
#[ignore = "needs NVRTC: `cargo xtask test` installs it and runs this"]
fn every_kernel_compiles() {
    let wanted = |to| all_units().into_iter().filter(move |unit| compiles_for(unit, to)).map(move |unit| (to, unit));
    let ends = std::env::var("HEADROOM_TEST_GENERATIONS").is_ok_and(|asked| asked == "ends");
    let is_asked = |to: &(u32, u32)| !ends || [(7, 5), (9, 0), (12, 0)].contains(to);
    let (part, parts) = part();
    let of_part = CAPABILITIES.into_iter().filter(is_asked).flat_map(wanted).skip(part).step_by(parts);
    let mut compiled = 0;
    for (capability, unit) in of_part {
        let architecture = architecture(capability);
        let image = compile(&unit, &architecture).unwrap_or_else(|error| panic!("{error}"));
        assert!(image.starts_with(b"\x7fELF"), "{} for {architecture}", unit.source.name);
        compiled += 1;
    }
    assert!(compiled > 0, "part {part} of {parts} is empty");
}

#[test]
#[ignore = "needs NVRTC: `cargo xtask test` installs it and runs this"]
fn a_kernel_that_does_not_compile_is_named_with_what_the_compiler_says() {
    let mut unit = all_units().remove(0);
    unit.options.push("-Dfloat=nonsense".into());
    let error = compile(&unit, "sm_90a").map(|image| image.len()).unwrap_err().to_string();
    assert!(error.contains(unit.source.name) && error.contains("nonsense"), "{error}");
}
