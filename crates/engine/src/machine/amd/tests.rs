//! AMD's devices from stored trees of the system's files, whole and broken, and from stand-ins of AMD's libraries.

use super::*;
use std::fs;
use std::process::Command;
use tempfile::TempDir;

const MI300X: &str = include_str!("../../../tests/data/amd/mi300x.txt");
const MI210: &str = include_str!("../../../tests/data/amd/mi210.txt");

/// Unpacks a stored tree: `== path`, then the file's lines.
fn unpacked(tree: &str) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files_of(tree) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn files_of(tree: &str) -> Vec<(&str, &str)> {
    tree.split("== ").skip(1).map(|file| file.split_once('\n').unwrap()).collect()
}

/// Compiles a stand-in into the tree's ROCm.
fn install(root: &TempDir, source: &str, library: &str, start: u32) {
    let folder = root.path().join("opt/rocm/lib");
    fs::create_dir_all(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/amd").join(source);
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", &format!("-DSTART={start}"), "-o"]).arg(folder.join(library)).arg(source);
    assert!(compiler.status().unwrap().success(), "{compiler:?}");
}

#[test]
fn two_gpus_are_read_from_the_systems_files() {
    let root = unpacked(MI300X);
    let system = read(&Places::below(root.path()));
    assert_eq!(system.unreadable, Vec::<String>::new());
    let [first, second] = &system.devices[..] else { panic!("{:?}", system.devices) };
    let want = AmdDevice {
        name: "AMD Instinct MI300X OAM".into(),
        address: Address { domain: 0, location: 0x0500 },
        node: Some(1),
        architecture: Some("gfx942".into()),
        compute_units: Some(304),
        memory_total_bytes: Some(206_141_652_992),
        memory_used_bytes: Some(297_639_936),
        engine_clock: Clock { now: Some(132), most: Some(2100) },
        memory_clock: Clock { now: Some(900), most: Some(1300) },
        unique_id: Some("4d41b0c3e11d2a5e".into()),
        numa_node: Some(0),
        render_minor: Some(128),
    };
    assert_eq!(*first, want);
    assert_eq!((second.address.to_string(), second.node), ("0000:15:00.0".into(), Some(2)));
    let links: Vec<_> = system.links.iter().map(|link| (link.from, link.to, link.kind.as_str())).collect();
    assert_eq!(links, [(1, 0, "PCIe"), (1, 2, "XGMI"), (2, 0, "PCIe"), (2, 1, "XGMI")]);
    assert!(system.links.iter().all(|link| link.bytes_per_second == Some(64_000_000_000)));
    assert_eq!((system.driver.as_deref(), system.on_the_bus), (Some("6.12.12"), 2));
    assert_eq!(system.rocm.unwrap().0, "6.4.1-83");
    assert_eq!(system.tools, ["amd-smi", "rocm-smi", "rocminfo", "rocprofv3"]);
    let torch = system.torch.unwrap();
    assert_eq!((torch.version.as_str(), torch.hip.as_deref()), ("2.7.1+rocm6.4", Some("6.4.43482-0f2d60242")));
    assert_eq!(system.device_files.len(), 3);
    assert!(system.device_files.iter().all(|(_, refused)| refused.is_none()), "{:?}", system.device_files);
    let reason = system.managed.unwrap_err();
    assert!(reason.contains("libamd_smi.so is not in") && reason.contains("librocm_smi64.so"), "{reason}");
}

#[test]
fn parts_that_are_missing_are_none_or_have_a_reason() {
    let root = unpacked(MI210);
    let system = read(&Places::below(root.path()));
    assert_eq!(system.unreadable, Vec::<String>::new());
    assert_eq!(system.driver.as_deref(), Some("of kernel 6.8.0-45-generic"));
    assert_eq!((system.rocm, system.tools.len()), (None, 0));
    assert_eq!(system.torch.map(|torch| (torch.version, torch.hip)), Some(("2.7.1+cpu".into(), None)));
    let [(kfd, refused), (_, None)] = &system.device_files[..] else { panic!("{:?}", system.device_files) };
    assert!(kfd.ends_with("dev/kfd") && refused.as_ref().is_some_and(|reason| reason.contains("No such file")));
    assert_eq!((system.devices[0].name.as_str(), system.devices[0].numa_node), ("AMD GPU gfx90a", None));
    let nothing = tempfile::tempdir().unwrap();
    let system = read(&Places::below(nothing.path()));
    assert_eq!((system.devices.len(), system.driver, system.unreadable.len(), system.on_the_bus), (0, None, 0, 0));
}

#[test]
fn a_gpu_that_the_files_do_not_name_is_named_by_the_library() {
    let root = unpacked(MI210);
    install(&root, "amd_smi.c", "libamd_smi.so.26", 0);
    for file in ["mem_info_vram_total", "mem_info_vram_used"] {
        fs::remove_file(root.path().join("sys/class/drm/card0/device").join(file)).unwrap();
    }
    fs::remove_dir_all(root.path().join("sys/class/kfd/kfd/topology/nodes/1/mem_banks")).unwrap();
    let system = read(&Places::below(root.path()));
    assert_eq!(system.managed.unwrap().library, "amd-smi");
    let [device] = &system.devices[..] else { panic!("{:?}", system.devices) };
    assert_eq!(device.name, "AMD Instinct MI210");
    assert_eq!((device.memory_total_bytes, device.memory_used_bytes), (Some(68_702_699_520), Some(11_116_544)));
    assert_eq!(devices(&Places::below(root.path()))[0].name, "AMD GPU gfx90a", "files alone");
}

#[test]
fn the_older_library_is_asked_where_the_newer_one_fails() {
    let root = unpacked(MI210);
    install(&root, "amd_smi.c", "libamd_smi.so", 34);
    let reason = read(&Places::below(root.path())).managed.unwrap_err();
    assert!(reason.starts_with("amdsmi_init failed with status 34; librocm_smi64.so is not in"), "{reason}");
    install(&root, "rocm_smi.c", "librocm_smi64.so", 0);
    let system = read(&Places::below(root.path()));
    let managed = system.managed.unwrap();
    assert_eq!((managed.library, managed.devices[0].memory_used_bytes), ("rocm-smi", None));
    assert_eq!(system.devices[0].name, "Instinct MI210");
    // A file that is not a library, and a library without the functions.
    let root = unpacked(MI210);
    install(&root, "amd_smi.c", "librocm_smi64.so", 0);
    fs::write(root.path().join("opt/rocm/lib/libamd_smi.so"), "text").unwrap();
    let reason = read(&Places::below(root.path())).managed.unwrap_err();
    assert!(reason.contains("cannot be opened") && reason.contains("the library has no rsmi_init"), "{reason}");
}

#[test]
fn every_broken_file_is_survived_and_garbage_is_named() {
    for (path, _) in files_of(MI300X) {
        let root = unpacked(MI300X);
        let broken = root.path().join(path);
        let say = |why: &str| {
            let system = read(&Places::below(root.path()));
            let named = system.unreadable.iter().any(|line| line.contains(path));
            (system, named, format!("{path} {why}"))
        };
        for garbage in [&b""[..], b"\xff\xfe\0 \n-7 x\n: * Mhz", b"99999999999999999999999999"] {
            fs::write(&broken, garbage).unwrap();
            let (system, named, what) = say("with garbage");
            // Other files may hold any text, and a CPU's links are not read.
            let is_figure = ["/properties", "vram_total", "vram_used", "uevent"].iter().any(|end| path.ends_with(end))
                && !path.contains("nodes/0/io_links");
            assert!(named || garbage.is_empty() || !is_figure, "{what}: {:?}", system.unreadable);
        }
        fs::remove_file(&broken).unwrap();
        fs::create_dir(&broken).unwrap();
        say("as a folder");
        fs::remove_dir(&broken).unwrap();
        // Opens, and fails as soon as it is read.
        std::os::unix::fs::symlink("/proc/self/mem", &broken).unwrap();
        say("that fails");
        fs::remove_file(&broken).unwrap();
        let (system, named, what) = say("missing");
        assert!(!named || path.ends_with("uevent"), "{what}: {:?}", system.unreadable);
    }
    let root = unpacked(MI300X);
    let properties = root.path().join("sys/class/kfd/kfd/topology/nodes/2/properties");
    fs::remove_file(&properties).unwrap();
    std::os::unix::fs::symlink("/proc/self/mem", &properties).unwrap();
    let system = read(&Places::below(root.path()));
    assert_eq!(system.unreadable, [format!("{}: Input/output error (os error 5)", properties.display())]);
    // The card is still known, but not as one that computes.
    assert_eq!(system.devices.iter().map(|device| device.node).collect::<Vec<_>>(), [Some(1), None]);
}

#[test]
fn partitions_of_one_gpu_share_its_card() {
    let root = unpacked(MI300X);
    let properties = root.path().join("sys/class/kfd/kfd/topology/nodes/2/properties");
    let text = fs::read_to_string(&properties).unwrap();
    // Bus 5, and partition 1 in the bits of the function.
    fs::write(&properties, text.replace("location_id 5376", "location_id 1281")).unwrap();
    let found = devices(&Places::below(root.path()));
    let [first, second, unused] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&first.unique_id, second.address.to_string()), (&second.unique_id, "0000:05:00.1".into()));
    assert_eq!((unused.node, unused.address.to_string()), (None, "0000:15:00.0".into()));
}
