//! `headroom device --device rocm`: lists AMD's devices, and says what PyTorch for ROCm lacks on this machine.

use crate::shown::{Plain, Shown};
use headroom_engine::machine::amd::{AmdDevice, AmdSystem, Clock, Places, devices, read};
use headroom_record::provenance::{Origin, Provenance};
use headroom_report::numbers::{bytes, metric};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Exits with 1 where something is missing that PyTorch needs.
pub fn run(places: &Places, shown: Shown<Plain>) -> anyhow::Result<ExitCode> {
    let check = Check::of(read(places));
    shown.print(&check.document(), |_| check.text())?;
    Ok(ExitCode::from(u8::from(!check.is_ready())))
}

/// AMD's devices on a machine and the state of each part that they need.
pub struct Check {
    system: AmdSystem,
    parts: Vec<Part>,
}

struct Part {
    name: &'static str,
    use_of_it: UseOfIt,
    /// The part as found, or its absence and how to mend that.
    state: Result<String, Absence>,
}

#[derive(Clone, Copy, PartialEq)]
enum UseOfIt {
    Needed,
    Optional,
}

struct Absence {
    what: String,
    help: &'static str,
}

const IN_A_CONTAINER: &str = "in a container, start it with `--device /dev/kfd --device /dev/dri`";

impl Check {
    /// The check of a machine that has such a device.
    pub fn where_present(places: &Places) -> Option<Check> {
        (!devices(places).is_empty()).then(|| Check::of(read(places)))
    }

    fn of(system: AmdSystem) -> Check {
        let part = |name, use_of_it, state| Part { name, use_of_it, state };
        let parts = vec![
            part("driver", UseOfIt::Needed, driver(&system)),
            part("compute devices", UseOfIt::Needed, computing(&system)),
            part("device files", UseOfIt::Needed, device_files(&system)),
            part("PyTorch", UseOfIt::Needed, torch(&system)),
            part("ROCm", UseOfIt::Optional, rocm(&system)),
            part("amd-smi library", UseOfIt::Optional, library(&system)),
            part("profilers", UseOfIt::Optional, profilers(&system)),
        ];
        Check { system, parts }
    }

    fn is_ready(&self) -> bool {
        self.parts.iter().all(|part| part.use_of_it == UseOfIt::Optional || part.state.is_ok())
    }

    pub fn document(&self) -> Value {
        let clock = |clock: Clock| json!({ "now_mhz": clock.now, "most_mhz": clock.most });
        let device = |device: &AmdDevice| {
            json!({
                "name": device.name, "architecture": device.architecture, "address": device.address.to_string(),
                "node": device.node, "compute_units": device.compute_units, "unique_id": device.unique_id,
                "memory_total_bytes": device.memory_total_bytes, "memory_used_bytes": device.memory_used_bytes,
                "engine_clock": clock(device.engine_clock), "memory_clock": clock(device.memory_clock),
                "numa_node": device.numa_node,
                "render_file": device.render_minor.map(|minor| format!("/dev/dri/renderD{minor}")),
            })
        };
        let part = |part: &Part| {
            let (found, missing) = match &part.state {
                Ok(found) => (Some(found), None),
                Err(absence) => (None, Some(absence)),
            };
            json!({
                "name": part.name, "needed": part.use_of_it == UseOfIt::Needed, "found": found,
                "missing": missing.map(|absence| &absence.what), "help": missing.map(|absence| absence.help),
            })
        };
        let links = self.system.links.iter().map(|link| {
            let rate = link.bytes_per_second;
            json!({ "from_node": link.from, "to_node": link.to, "kind": link.kind, "bytes_per_second": rate })
        });
        let mut provenance = Provenance::default();
        for (key, is_empty) in [("devices", self.system.devices.is_empty()), ("links", self.system.links.is_empty())] {
            if !is_empty {
                provenance.set(key, Origin::Measured);
            }
        }
        json!({
            "schema_version": headroom_record::SCHEMA_VERSION, "kind": "rocm", "ready": self.is_ready(),
            "driver_version": self.system.driver,
            "rocm_version": self.system.rocm.as_ref().map(|(version, _)| version),
            "devices": self.system.devices.iter().map(device).collect::<Vec<_>>(),
            "links": links.collect::<Vec<_>>(),
            "parts": self.parts.iter().map(part).collect::<Vec<_>>(),
            "unreadable": self.system.unreadable,
            "provenance": provenance,
        })
    }

    pub fn text(&self) -> String {
        let mut lines: Vec<String> = self.system.devices.iter().flat_map(|device| self.lines_of(device)).collect();
        let line = |name: &str, text: &str| format!("  {name:<17} {text}");
        lines.push("PyTorch for ROCm".into());
        for part in &self.parts {
            match &part.state {
                Ok(found) => lines.push(line(part.name, found)),
                Err(Absence { what, help }) => {
                    let optional = if part.use_of_it == UseOfIt::Optional { " (optional)" } else { "" };
                    lines.push(line(part.name, &format!("missing{optional}: {what}")));
                    lines.push(line("", &format!("help: {help}")));
                }
            }
        }
        lines.extend(self.system.unreadable.iter().map(|reason| line("not read", reason)));
        let missing = self.parts.iter().filter(|part| part.use_of_it == UseOfIt::Needed && part.state.is_err());
        let missing: Vec<&str> = missing.map(|part| part.name).collect();
        lines.push(match missing[..] {
            [] => "ready: `headroom record`, `optimize` and `analyze` work on PyTorch here; Headroom's own training does not"
                .into(),
            _ => format!("not ready: {} missing", missing.join(", ")),
        });
        lines.join("\n") + "\n"
    }

    fn lines_of(&self, device: &AmdDevice) -> Vec<String> {
        let units = device.compute_units.map(|units| format!("{units} compute units"));
        let head = [Some(device.name.clone()), device.architecture.clone(), units, Some(device.address.to_string())];
        let mut lines = vec![head.into_iter().flatten().collect::<Vec<_>>().join(" · ")];
        let mut line = |name: &str, text: Option<String>| lines.extend(text.map(|text| format!("  {name:<17} {text}")));
        let used = device.memory_used_bytes.map_or(String::new(), |used| format!(", {} in use", bytes(used)));
        line("memory", device.memory_total_bytes.map(|total| bytes(total) + &used));
        line("engine clock", clock(device.engine_clock));
        line("memory clock", clock(device.memory_clock));
        line("NUMA node", device.numa_node.map(|node| node.to_string()));
        let name_of = |node: u64| {
            let gpu = self.system.devices.iter().find(|device| device.node == Some(node));
            gpu.map_or_else(|| format!("CPU node {node}"), |gpu| gpu.address.to_string())
        };
        for link in self.system.links.iter().filter(|link| Some(link.from) == device.node) {
            let rate = link.bytes_per_second.map_or(String::new(), |rate| format!(", {}", metric(rate as f64, "B/s")));
            line("link", Some(format!("{} to {}{rate}", link.kind, name_of(link.to))));
        }
        lines
    }
}

fn clock(clock: Clock) -> Option<String> {
    match (clock.now, clock.most) {
        (Some(now), Some(most)) => Some(format!("{now} MHz now, {most} at most")),
        (None, Some(most)) => Some(format!("{most} MHz at most")),
        (_, None) => None,
    }
}

fn driver(system: &AmdSystem) -> Result<String, Absence> {
    if let Some(version) = &system.driver {
        return Ok(format!("amdgpu {version}"));
    }
    let help = match system.on_the_bus {
        0 => "use a machine with an AMD GPU; a virtual machine must be given it",
        _ => "load it with `sudo modprobe amdgpu`, or install it first: AMD's package `amdgpu-dkms`, or a newer kernel",
    };
    let what = format!("amdgpu is not loaded; GPUs of AMD on the PCI bus: {}", system.on_the_bus);
    Err(Absence { what, help })
}

fn computing(system: &AmdSystem) -> Result<String, Absence> {
    let count = system.devices.iter().filter(|device| device.node.is_some()).count();
    match (count, system.devices.len()) {
        (0, 0) => Err(Absence { what: "no node of the compute topology is a GPU".into(), help: IN_A_CONTAINER }),
        (0, drawing) => Err(Absence {
            what: format!("{drawing} found, none of them in the compute topology"),
            help: "AMD's list of GPUs that ROCm supports says which can compute; `sudo dmesg | grep amdgpu` says why not",
        }),
        _ => Ok(count.to_string()),
    }
}

fn device_files(system: &AmdSystem) -> Result<String, Absence> {
    let refused = system.device_files.iter().find_map(|(path, reason)| Some((path, reason.as_ref()?)));
    match refused {
        None => Ok(format!("/dev/kfd and {} in /dev/dri may be opened", system.device_files.len() - 1)),
        Some((path, reason)) => Err(Absence {
            what: format!("{} cannot be opened: {reason}", path.display()),
            help: "`sudo usermod -aG render,video $USER`, then log in again; in a container, start it with `--device /dev/kfd \
                   --device /dev/dri --group-add render --group-add video`",
        }),
    }
}

fn torch(system: &AmdSystem) -> Result<String, Absence> {
    const HELP: &str = "install PyTorch's build for ROCm into the active environment: the page Get Started of pytorch.org has \
                        the command, with ROCm as the compute platform";
    match &system.torch {
        None => Err(Absence { what: "no torch in the active environment".into(), help: HELP }),
        Some(torch) => match &torch.hip {
            Some(hip) => Ok(format!("{} for HIP {hip}, in {}", torch.version, torch.folder.display())),
            None => {
                let what = format!("{} in {} was built without ROCm", torch.version, torch.folder.display());
                Err(Absence { what, help: HELP })
            }
        },
    }
}

fn rocm(system: &AmdSystem) -> Result<String, Absence> {
    let found = system.rocm.as_ref().map(|(version, folder)| format!("{version}, in {}", folder.display()));
    found.ok_or_else(|| Absence {
        what: "neither in /opt/rocm nor in a folder that ROCM_PATH names".into(),
        help: "PyTorch brings the libraries that it needs; for profilers and compilers install AMD's package `rocm`",
    })
}

fn library(system: &AmdSystem) -> Result<String, Absence> {
    match &system.managed {
        Ok(managed) => Ok(format!("{}; GPUs that it shows: {}", managed.library, managed.devices.len())),
        Err(reason) => Err(Absence {
            what: reason.clone(),
            help: "names and memory come from the system's files without it; AMD's package is `amd-smi-lib`",
        }),
    }
}

fn profilers(system: &AmdSystem) -> Result<String, Absence> {
    let names: Vec<&str> = system.tools.iter().copied().filter(|tool| tool.starts_with("rocprof")).collect();
    if !names.is_empty() {
        return Ok(names.join(", "));
    }
    let help = "`headroom record` uses PyTorch's own; for hardware counters install AMD's package `rocprofiler-sdk`";
    Err(Absence { what: "no rocprof among ROCm's programs".into(), help })
}
