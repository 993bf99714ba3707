//! `--device rocm`: AMD's devices and what PyTorch lacks there, from stored trees of the system's files; training refused.

use crate::place::Place;
use headroom_record::provenance::check_provenance;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

const MI300X: &str = include_str!("../../../engine/tests/data/amd/mi300x.txt");
const MI210: &str = include_str!("../../../engine/tests/data/amd/mi210.txt");

/// A place with a stored tree in `system`: `== path`, then the file's lines.
fn with_system(tree: &str) -> Place {
    let place = Place::new();
    for file in tree.split("== ").skip(1) {
        let (path, text) = file.split_once('\n').unwrap();
        let path = place.path("system").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    place
}

/// The system of the tree with AMD's library, of which a stand-in is compiled.
fn with_library(tree: &str) -> Place {
    let place = with_system(tree);
    let folder = place.path("system/opt/rocm/lib");
    fs::create_dir_all(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/data/amd/amd_smi.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-DSTART=0", "-o"]).arg(folder.join("libamd_smi.so")).arg(source);
    assert!(compiler.status().unwrap().success(), "{compiler:?}");
    place
}

fn checked(place: &Place, code: i32) -> (String, Value) {
    let text = place.run("device --device rocm --system-root system");
    assert_eq!(text.code, Some(code), "{}\n{}", text.stdout, text.stderr);
    let done = place.run("device --device rocm --system-root system --json");
    assert_eq!(done.code, Some(code), "{}", done.stderr);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    check_provenance(&document).unwrap();
    (text.stdout, document)
}

fn has_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|found| found.starts_with(line)), "no line begins with `{line}`:\n{text}");
    }
}

#[test]
fn a_machine_that_is_ready_for_rocm_says_so_with_its_devices() {
    let place = with_system(MI300X);
    let (text, document) = checked(&place, 0);
    has_lines(
        &text,
        &[
            "AMD Instinct MI300X OAM · gfx942 · 304 compute units · 0000:05:00.0",
            "  memory            192.0 GiB, 283.9 MiB in use",
            "  engine clock      132 MHz now, 2100 at most",
            "  memory clock      900 MHz now, 1300 at most",
            "  NUMA node         1",
            "  link              PCIe to CPU node 0, 64.0 GB/s",
            "  link              XGMI to 0000:15:00.0, 64.0 GB/s",
            "  driver            amdgpu 6.12.12",
            "  compute devices   2",
            "  device files      /dev/kfd and 2 in /dev/dri may be opened",
            "  PyTorch           2.7.1+rocm6.4 for HIP 6.4.43482-0f2d60242, in system/usr/lib",
            "  ROCm              6.4.1-83, in system/opt/rocm",
            "  profilers         rocprofv3",
            "ready: `headroom record`, `optimize` and `analyze` work on PyTorch here",
        ],
    );
    assert_eq!((&document["ready"], &document["devices"][1]["node"]), (&true.into(), &2.into()));
    assert_eq!(document["devices"][0]["memory_total_bytes"], 206_141_652_992_u64);
    assert_eq!(document["links"][1]["kind"], "XGMI");
}

#[test]
fn parts_that_rocm_lacks_are_named_with_how_to_install_them() {
    let place = with_library(MI210);
    let (text, document) = checked(&place, 1);
    has_lines(
        &text,
        &[
            "AMD Instinct MI210 · gfx90a · 104 compute units · 0000:c3:00.0",
            "  driver            amdgpu of kernel 6.8.0-45-generic",
            "  device files      missing: system/dev/kfd cannot be opened: No such file",
            "                    help: `sudo usermod -aG render,video $USER`, then log in again; in a container",
            "  PyTorch           missing: 2.7.1+cpu in system/usr/lib/python3/dist-packages/torch was built without ROCm",
            "                    help: install PyTorch's build for ROCm",
            "  ROCm              missing (optional): neither in /opt/rocm",
            "  amd-smi library   amd-smi; GPUs that it shows: 1",
            "  profilers         missing (optional): no rocprof",
            "not ready: device files, PyTorch missing",
        ],
    );
    let part = |name: &str| document["parts"].as_array().unwrap().iter().find(|part| part["name"] == name).unwrap();
    assert_eq!((&part("PyTorch")["needed"], &part("ROCm")["needed"]), (&true.into(), &false.into()));
    assert!(part("PyTorch")["help"].as_str().unwrap().contains("pytorch.org"));
    assert_eq!(part("driver")["missing"], Value::Null);

    let nothing = Place::new();
    let (text, document) = checked(&nothing, 1);
    let lines = ["  driver            missing: amdgpu is not loaded; GPUs of AMD on the PCI bus: 0"];
    has_lines(&text, &lines);
    assert_eq!((&document["devices"], &document["ready"]), (&Value::Array(vec![]), &false.into()));
    let place = with_system(MI210);
    fs::remove_dir_all(place.path("system/sys/module")).unwrap();
    has_lines(
        &checked(&place, 1).0,
        &["  driver            missing: amdgpu is not loaded; GPUs of AMD on the PCI bus: 1"],
    );
}

#[test]
fn broken_files_of_the_system_are_named_in_the_check() {
    let place = with_system(MI300X);
    place.write("system/sys/class/drm/card1/device/mem_info_vram_total", b"\x1b[31mlots\xff\n");
    place.write("system/sys/class/kfd/kfd/topology/nodes/2/properties", "simd_count many\n");
    let (text, document) = checked(&place, 0);
    has_lines(
        &text,
        &["  not read          system/sys/class/kfd/kfd/topology/nodes/2/properties: `simd_count many` is not a"],
    );
    assert!(text.contains("mem_info_vram_total: `") && !text.contains('\x1b'), "{text}");
    assert_eq!(document["unreadable"].as_array().unwrap().len(), 2);
    // The topology tells the size as well.
    assert_eq!(document["devices"][0]["memory_total_bytes"], 206_141_652_992_u64);
}

#[test]
fn a_measured_machine_lists_its_amd_devices_beside_the_peaks() {
    let place = with_system(MI300X);
    let done = place.succeeds("device --threads 1 --json --system-root system");
    let record: Value = serde_json::from_str(&done.stdout).unwrap();
    check_provenance(&record).unwrap();
    assert_eq!((&record["kind"], &record["rocm"]["ready"]), (&"cpu".into(), &true.into()));
    assert_eq!(record["rocm"]["devices"].as_array().unwrap().len(), 2);
    let plain = place.succeeds("device --threads 1 --system-root nowhere --json").stdout;
    assert!(!plain.contains("rocm"), "{plain}");
}

#[test]
fn computing_on_rocm_is_refused_with_what_works_instead() {
    let place = Place::new();
    let words = ["kernels for CPUs and NVIDIA GPUs", "`headroom record`, `headroom optimize` and `headroom analyze`"];
    let sized = ["train", "profile", "optimize", "scale", "k1"].map(|command| format!("{command} --size nano"));
    for command in sized.iter().map(String::as_str).chain(["study nano", "race"]) {
        place.refuses(&format!("{command} --device rocm"), &words);
    }
    place.refuses("train --size nano --device hip:1", &["`hip:1`", "PyTorch for ROCm", "--device rocm` checks"]);
    place.refuses("device --device rocm --verify nano", &words);
    place.refuses("device --device rocm:1", &words);
}
