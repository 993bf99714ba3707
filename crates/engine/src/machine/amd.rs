//! AMD's GPUs on this machine, and the parts of ROCm that PyTorch needs there. Everything is read from the system's
//! files; `smi` asks the management libraries for the rest.

mod files;
mod smi;

use crate::cuda::library::{beginning_with, python_prefixes};
use files::{Card, Files, Node};
pub use smi::Managed;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

/// Folders to read: this machine's, or those of a tree that a test has made.
#[derive(Clone, Debug)]
pub struct Places {
    root: PathBuf,
    /// Folders that ROCm may be installed in, the one that the environment names first.
    rocm: Vec<PathBuf>,
    /// Prefixes of Python installations.
    python: Vec<PathBuf>,
    libraries: LibraryPath,
}

/// Whether the system's library path is searched besides ROCm's folders.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LibraryPath {
    Searched,
    Unused,
}

impl Places {
    pub fn of_this_machine() -> Places {
        let named = ["ROCM_PATH", "ROCM_HOME"].iter().filter_map(std::env::var_os).map(PathBuf::from);
        let rocm = named.chain(["/opt/rocm".into()]).collect();
        Places { root: "/".into(), rocm, python: python_prefixes(), libraries: LibraryPath::Searched }
    }

    /// A system whose root is this folder.
    pub fn below(root: &Path) -> Places {
        let python = ["usr/local", "usr"].map(|prefix| root.join(prefix)).into();
        Places { root: root.into(), rocm: vec![root.join("opt/rocm")], python, libraries: LibraryPath::Unused }
    }
}

/// Everything found, present or not.
#[derive(Clone, Debug)]
pub struct AmdSystem {
    /// Version of the kernel's driver; `None` if it is not loaded.
    pub driver: Option<String>,
    /// GPUs of AMD on the PCI bus, with or without a driver.
    pub on_the_bus: usize,
    pub devices: Vec<AmdDevice>,
    pub links: Vec<AmdLink>,
    /// Device files that a program must open, and why it cannot.
    pub device_files: Vec<(PathBuf, Option<String>)>,
    /// ROCm's version and folder.
    pub rocm: Option<(String, PathBuf)>,
    /// The answer of `amd-smi`'s or `rocm-smi`'s library, or why there is none.
    pub managed: Result<Managed, String>,
    /// ROCm's programs that are installed, out of `TOOLS`.
    pub tools: Vec<&'static str>,
    pub torch: Option<Torch>,
    /// Files that could not be read or understood, each with the reason.
    pub unreadable: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AmdDevice {
    pub name: String,
    pub address: Address,
    /// Number of the compute node; ROCm does not use a GPU without one.
    pub node: Option<u64>,
    /// `gfx942`.
    pub architecture: Option<String>,
    pub compute_units: Option<u64>,
    pub memory_total_bytes: Option<u64>,
    pub memory_used_bytes: Option<u64>,
    pub engine_clock: Clock,
    pub memory_clock: Clock,
    pub unique_id: Option<String>,
    pub numa_node: Option<u64>,
    /// Number of `/dev/dri/renderD…`.
    pub render_minor: Option<u64>,
}

/// A clock in MHz.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Clock {
    pub now: Option<u64>,
    pub most: Option<u64>,
}

/// A connection from a GPU to another node of the topology.
#[derive(Clone, Debug, PartialEq)]
pub struct AmdLink {
    pub from: u64,
    pub to: u64,
    /// `XGMI`, `PCIe`, or the driver's number for another type.
    pub kind: String,
    pub bytes_per_second: Option<u64>,
}

/// PCI domain, and bus, device and function in 16 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Address {
    pub domain: u64,
    pub location: u16,
}

impl Address {
    /// Parses `0000:c3:00.0`.
    fn parse(text: &str) -> Option<Address> {
        let (domain, rest) = text.split_once(':')?;
        let (bus, rest) = rest.split_once(':')?;
        let (device, function) = rest.split_once('.')?;
        let hex = |digits: &str| u16::from_str_radix(digits, 16).ok();
        let (bus, device, function) = (hex(bus)?, hex(device)?, hex(function)?);
        let is_valid = bus < 1 << 8 && device < 1 << 5 && function < 1 << 3;
        let domain = u64::from_str_radix(domain, 16).ok()?;
        is_valid.then_some(Address { domain, location: (bus << 8) | (device << 3) | function })
    }

    /// Whether both are one GPU: where a GPU is partitioned, the driver puts the partition into the function's bits.
    fn is_same_gpu(self, other: Address) -> bool {
        (self.domain, self.location >> 3) == (other.domain, other.location >> 3)
    }
}

impl Display for Address {
    fn fmt(&self, out: &mut Formatter) -> fmt::Result {
        let (bus, device, function) = (self.location >> 8, (self.location >> 3) & 0x1f, self.location & 7);
        write!(out, "{:04x}:{bus:02x}:{device:02x}.{function}", self.domain)
    }
}

/// An installed PyTorch.
#[derive(Clone, Debug, PartialEq)]
pub struct Torch {
    pub version: String,
    /// Version of HIP that it was built for; `None` for a build without ROCm.
    pub hip: Option<String>,
    pub folder: PathBuf,
}

/// Programs of ROCm that profile or describe a GPU.
const TOOLS: [&str; 7] =
    ["amd-smi", "rocm-smi", "rocminfo", "rocprofv3", "rocprof", "rocprof-compute", "rocprof-sys-run"];

/// AMD's GPUs by the system's files alone.
pub fn devices(places: &Places) -> Vec<AmdDevice> {
    let mut files = Files::below(&places.root);
    let (nodes, cards) = (files.nodes(), files.cards());
    listed(&nodes, &cards, &[])
}

pub fn read(places: &Places) -> AmdSystem {
    let mut files = Files::below(&places.root);
    let (nodes, cards) = (files.nodes(), files.cards());
    let managed = smi::ask(&places.rocm, places.libraries);
    let devices = listed(&nodes, &cards, managed.as_ref().map_or(&[][..], |managed| &managed.devices[..]));
    let dev = places.root.join("dev");
    let renders = devices.iter().filter(|device| device.node.is_some()).filter_map(|device| device.render_minor);
    let device_files =
        [dev.join("kfd")].into_iter().chain(renders.map(|minor| dev.join(format!("dri/renderD{minor}"))));
    let tools = TOOLS.into_iter().filter(|tool| places.rocm.iter().any(|rocm| rocm.join("bin").join(tool).is_file()));
    AmdSystem {
        driver: files.driver(),
        on_the_bus: files.gpus_on_the_bus(),
        links: nodes.iter().flat_map(links).collect(),
        device_files: device_files.map(opened).collect(),
        rocm: places.rocm.iter().find_map(|folder| Some((files.rocm_version(folder)?, folder.clone()))),
        tools: tools.collect(),
        torch: torch(&mut files, &places.python),
        unreadable: files.unreadable,
        devices,
        managed,
    }
}

/// GPUs of the topology in its order, then those that can only draw.
fn listed(nodes: &[Node], cards: &[Card], managed: &[smi::ManagedDevice]) -> Vec<AmdDevice> {
    let card_of = |node: &Node| {
        let exact = cards.iter().find(|card| card.address == node.address);
        exact.or_else(|| cards.iter().find(|card| card.address.is_same_gpu(node.address)))
    };
    let computing = nodes.iter().map(|node| (Some(node), card_of(node)));
    let is_drawing = |card: &&Card| !nodes.iter().any(|node| node.address.is_same_gpu(card.address));
    let drawing = cards.iter().filter(is_drawing).map(|card| (None, Some(card)));
    computing.chain(drawing).filter_map(|(node, card)| device(node, card, managed)).collect()
}

/// One GPU: the card's files say more about it than the topology, and those more than the library.
fn device(node: Option<&Node>, card: Option<&Card>, managed: &[smi::ManagedDevice]) -> Option<AmdDevice> {
    let address = node.map(|node| node.address).or(card.map(|card| card.address))?;
    let managed = managed.iter().find(|device| device.address.is_same_gpu(address));
    let property = |key: &str| node.and_then(|node| node.properties.get(key).copied());
    // `90402` is gfx942, `90010` gfx90a, `110000` gfx1100.
    let architecture = property("gfx_target_version").filter(|version| *version > 0).map(|version| {
        let (major, minor, stepping) = (version / 10_000, version / 100 % 100, version % 100);
        format!("gfx{major}{minor:x}{stepping:x}")
    });
    let card = card.cloned().unwrap_or_default();
    let unnamed = || format!("AMD GPU{}", architecture.as_ref().map_or(String::new(), |name| format!(" {name}")));
    let positive = |figure: Option<u64>| figure.filter(|figure| *figure > 0);
    let name = card.product_name.or_else(|| managed.and_then(|device| device.name.clone())).unwrap_or_else(unnamed);
    Some(AmdDevice {
        name,
        address,
        node: node.map(|node| node.number),
        architecture,
        compute_units: property("simd_count").zip(positive(property("simd_per_cu"))).map(|(simds, per)| simds / per),
        memory_total_bytes: card
            .memory_total_bytes
            .or(positive(node.map(Node::memory_bytes)))
            .or(managed.and_then(|device| device.memory_total_bytes)),
        memory_used_bytes: card.memory_used_bytes.or(managed.and_then(|device| device.memory_used_bytes)),
        engine_clock: Clock {
            most: card.engine_clock.most.or(positive(property("max_engine_clk_fcompute"))),
            ..card.engine_clock
        },
        memory_clock: Clock {
            most: card.memory_clock.most.or(positive(node.and_then(Node::memory_megahertz))),
            ..card.memory_clock
        },
        unique_id: card.unique_id,
        numa_node: card.numa_node,
        render_minor: positive(property("drm_render_minor")),
    })
}

fn links(node: &Node) -> Vec<AmdLink> {
    let link = |properties: &BTreeMap<String, u64>| {
        let kind = match properties.get("type")? {
            2 => "PCIe".into(),
            11 => "XGMI".into(),
            other => format!("type {other}"),
        };
        // The driver counts in megabytes per second, and writes 0 where it does not know.
        let bytes_per_second =
            properties.get("max_bandwidth").filter(|rate| **rate > 0).map(|rate| rate.saturating_mul(1_000_000));
        Some(AmdLink { from: node.number, to: *properties.get("node_to")?, kind, bytes_per_second })
    };
    node.links.iter().filter_map(link).collect()
}

/// A device file, and why this process may not use it. It is opened: a container's rules show only then.
fn opened(path: PathBuf) -> (PathBuf, Option<String>) {
    let refusal = OpenOptions::new().read(true).write(true).open(&path).err();
    (path, refusal.map(|error| error.to_string()))
}

/// The first PyTorch that was built for ROCm, else the first one.
fn torch(files: &mut Files, prefixes: &[PathBuf]) -> Option<Torch> {
    let pythons = prefixes.iter().flat_map(|prefix| beginning_with(&prefix.join("lib"), "python3"));
    let folders =
        pythons.flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name).join("torch")));
    let mut found: Vec<Torch> = folders
        .filter_map(|folder| {
            let text = files.text(&folder.join("version.py"))?;
            Some(Torch { version: quoted(&text, "__version__")?, hip: quoted(&text, "hip"), folder })
        })
        .collect();
    let best = found.iter().position(|torch| torch.hip.is_some()).unwrap_or(0);
    (!found.is_empty()).then(|| found.swap_remove(best))
}

/// The text that a line of Python such as `hip: Optional[str] = '6.4.43483'` gives this name.
fn quoted(text: &str, name: &str) -> Option<String> {
    let line = text
        .lines()
        .find(|line| line.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with([':', '='])))?;
    let value = line.split_once('=')?.1.trim();
    let mark = value.chars().next().filter(|letter| "'\"".contains(*letter))?;
    value[1..].split_once(mark).map(|(text, _)| text.to_string())
}

#[cfg(test)]
mod tests;
