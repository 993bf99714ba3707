//! The kernel's files about AMD's GPUs: the compute topology (`/sys/class/kfd`) and the cards (`/sys/class/drm`).
//!
//! Any of them may be missing, forbidden or odd: a figure that is not there is `None`, and a file that cannot be read or
//! understood is noted with the reason.

use super::{Address, Clock};
use std::collections::BTreeMap;
use std::fs::{File, read_dir};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// PCI vendor number of AMD's GPUs.
const AMD: &str = "0x1002";

/// Such files are a few lines long; nothing beyond this is read.
const MOST_BYTES: u64 = 64 << 10;

/// Reads a system's files and collects the reasons why some could not be read.
pub struct Files {
    root: PathBuf,
    pub unreadable: Vec<String>,
}

/// A GPU in the compute topology.
pub struct Node {
    pub number: u64,
    pub address: Address,
    pub properties: BTreeMap<String, u64>,
    /// Properties of its memory banks.
    banks: Vec<BTreeMap<String, u64>>,
    /// Properties of its connections to other nodes.
    pub links: Vec<BTreeMap<String, u64>>,
}

impl Node {
    /// Size of the GPU's own memory.
    pub fn memory_bytes(&self) -> u64 {
        const SYSTEM: u64 = 0;
        let own = self.banks.iter().filter(|bank| bank.get("heap_type").is_some_and(|heap| *heap != SYSTEM));
        own.filter_map(|bank| bank.get("size_in_bytes")).fold(0, |sum, size| sum.saturating_add(*size))
    }

    pub fn memory_megahertz(&self) -> Option<u64> {
        self.banks.iter().filter_map(|bank| bank.get("mem_clk_max").copied()).max()
    }
}

/// A GPU as the graphics driver shows it.
#[derive(Clone, Default)]
pub struct Card {
    pub address: Address,
    pub product_name: Option<String>,
    pub unique_id: Option<String>,
    pub memory_total_bytes: Option<u64>,
    pub memory_used_bytes: Option<u64>,
    pub engine_clock: Clock,
    pub memory_clock: Clock,
    pub numa_node: Option<u64>,
}

impl Files {
    pub fn below(root: &Path) -> Files {
        Files { root: root.into(), unreadable: vec![] }
    }

    /// GPUs of the topology; its other nodes are CPUs.
    pub fn nodes(&mut self) -> Vec<Node> {
        let mut nodes = vec![];
        for (number, folder) in self.numbered("sys/class/kfd/kfd/topology/nodes", "") {
            let Some(properties) = self.properties(&folder.join("properties")) else { continue };
            if properties.get("simd_count").is_none_or(|count| *count == 0) {
                continue;
            }
            let part = |key: &str| properties.get(key).copied().unwrap_or(0);
            // Newer drivers write the number of a partition above these 16 bits.
            let address = Address { domain: part("domain"), location: part("location_id") as u16 };
            let banks = self.properties_of_each(&folder.join("mem_banks"));
            let mut links = self.properties_of_each(&folder.join("io_links"));
            links.extend(self.properties_of_each(&folder.join("p2p_links")));
            nodes.push(Node { number, address, properties, banks, links });
        }
        nodes
    }

    /// AMD's cards, in the order of their numbers.
    pub fn cards(&mut self) -> Vec<Card> {
        let mut cards = vec![];
        for (_, card) in self.numbered("sys/class/drm", "card") {
            let device = card.join("device");
            if self.line(&device.join("vendor")).as_deref() != Some(AMD) {
                continue;
            }
            let uevent = self.text(&device.join("uevent")).unwrap_or_default();
            let slot = uevent.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME="));
            let Some(address) = slot.and_then(Address::parse) else {
                self.note(&device.join("uevent"), "no PCI_SLOT_NAME such as 0000:c3:00.0");
                continue;
            };
            cards.push(Card {
                product_name: self.line(&device.join("product_name")),
                unique_id: self.line(&device.join("unique_id")),
                memory_total_bytes: self.number(&device.join("mem_info_vram_total")),
                memory_used_bytes: self.number(&device.join("mem_info_vram_used")),
                engine_clock: self.clock(&device.join("pp_dpm_sclk")),
                memory_clock: self.clock(&device.join("pp_dpm_mclk")),
                // -1 where the system has no such nodes.
                numa_node: self.line(&device.join("numa_node")).and_then(|text| text.parse().ok()),
                address,
            });
        }
        cards
    }

    /// The driver's own version, or that of the kernel that it is a part of.
    pub fn driver(&mut self) -> Option<String> {
        let module = self.root.join("sys/module/amdgpu");
        if !module.is_dir() {
            return None;
        }
        let kernel = self.root.join("proc/sys/kernel/osrelease");
        let of_kernel = |text: String| format!("of kernel {text}");
        let version = self.line(&module.join("version")).or_else(|| self.line(&kernel).map(of_kernel));
        Some(version.unwrap_or_else(|| "of unknown version".into()))
    }

    /// Display controllers (class 03) and accelerators (class 12) of AMD.
    pub fn gpus_on_the_bus(&mut self) -> usize {
        let devices = read_dir(self.root.join("sys/bus/pci/devices")).into_iter().flatten().flatten();
        let devices: Vec<PathBuf> = devices.map(|entry| entry.path()).collect();
        let is_gpu = |device: &&PathBuf| {
            let class = self.line(&device.join("class")).unwrap_or_default();
            (class.starts_with("0x03") || class.starts_with("0x12"))
                && self.line(&device.join("vendor")).as_deref() == Some(AMD)
        };
        devices.iter().filter(is_gpu).count()
    }

    /// ROCm's version; `None` where the folder holds no ROCm.
    pub fn rocm_version(&mut self, folder: &Path) -> Option<String> {
        let file = folder.join(".info/version");
        match self.line(&file) {
            Some(version) if version.starts_with(|first: char| first.is_ascii_digit()) => Some(version),
            Some(odd) => {
                self.note(&file, &format!("`{}` is not a version", shortened(&odd)));
                Some("of unknown version".into())
            }
            None => folder.join("bin").is_dir().then(|| "of unknown version".into()),
        }
    }

    /// Folders with this prefix and a number in their names, in the order of the numbers.
    fn numbered(&mut self, folder: &str, prefix: &str) -> Vec<(u64, PathBuf)> {
        let folder = self.root.join(folder);
        let entries = match read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    self.note(&folder, &error.to_string());
                }
                return vec![];
            }
        };
        let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix(prefix)?.parse::<u64>().ok();
        let paths = entries.flatten().map(|entry| entry.path());
        let mut found: Vec<(u64, PathBuf)> = paths.filter_map(|path| Some((number(&path)?, path))).collect();
        found.sort();
        found
    }

    fn properties_of_each(&mut self, folder: &Path) -> Vec<BTreeMap<String, u64>> {
        let mut folders: Vec<PathBuf> =
            read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        folders.sort();
        folders.iter().filter_map(|folder| self.properties(&folder.join("properties"))).collect()
    }

    /// Lines of a name and a number; what follows a line of another form is not used.
    fn properties(&mut self, path: &Path) -> Option<BTreeMap<String, u64>> {
        let text = self.text(path)?;
        let mut found = BTreeMap::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match line.split_once(' ').map(|(name, value)| (name, value.trim().parse())) {
                Some((name, Ok(number))) => found.insert(name.to_string(), number),
                _ => {
                    self.note(path, &format!("`{}` is not a name and a number", shortened(line)));
                    break;
                }
            };
        }
        Some(found)
    }

    /// A line for each level, such as `1: 800Mhz *`; the star marks the current one.
    fn clock(&mut self, path: &Path) -> Clock {
        let Some(text) = self.text(path) else { return Clock::default() };
        let level = |line: &str| {
            let value = line.split_once(':')?.1.trim();
            let digits = value.split(|letter: char| !letter.is_ascii_digit()).next()?;
            Some((digits.parse::<u64>().ok()?, value.ends_with('*')))
        };
        let levels: Vec<(u64, bool)> = text.lines().filter_map(level).collect();
        if levels.is_empty() && !text.trim().is_empty() {
            self.note(path, &format!("`{}` is not a level such as `1: 800Mhz *`", shortened(text.trim())));
        }
        Clock {
            now: levels.iter().find(|(_, is_current)| *is_current).map(|(clock, _)| *clock),
            most: levels.iter().map(|(clock, _)| *clock).max(),
        }
    }

    fn number(&mut self, path: &Path) -> Option<u64> {
        let line = self.line(path)?;
        let number = line.parse().ok();
        if number.is_none() {
            self.note(path, &format!("`{}` is not a number", shortened(&line)));
        }
        number
    }

    /// The first line; `None` where it is empty.
    fn line(&mut self, path: &Path) -> Option<String> {
        let text = self.text(path)?;
        text.lines().next().map(|line| line.trim().to_string()).filter(|line| !line.is_empty())
    }

    pub fn text(&mut self, path: &Path) -> Option<String> {
        let read = || -> io::Result<String> {
            if !path.metadata()?.is_file() {
                return Err(io::Error::other("not a file"));
            }
            let mut bytes = vec![];
            File::open(path)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        match read() {
            Ok(text) => Some(text),
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    self.note(path, &error.to_string());
                }
                None
            }
        }
    }

    fn note(&mut self, path: &Path, reason: &str) {
        self.unreadable.push(format!("{}: {reason}", path.display()));
    }
}

fn shortened(text: &str) -> String {
    const MOST: usize = 40;
    if text.chars().count() <= MOST { text.into() } else { text.chars().take(MOST).chain(['…']).collect() }
}
