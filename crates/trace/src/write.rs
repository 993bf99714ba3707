//! Writes traces in Kineto's format, event by event, so that memory use does not grow with the trace.

pub mod tfevents;

use std::io::{self, Write};

use serde_json::Value;

use crate::run::{Phase, RunHeader};
use crate::trace::{DeviceProperties, Distributed};

/// Metadata before the events.
#[derive(Clone, Debug, Default)]
pub struct WrittenHeader {
    pub devices: Vec<DeviceProperties>,
    pub distributed: Distributed,
    /// Wall-clock nanoseconds at the trace's zero; every time below counts from it.
    pub base_nanos: u64,
    /// The run's own facts; other readers ignore them.
    pub headroom: Option<RunHeader>,
}

/// Time and place on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPlace {
    pub process: u32,
    pub thread: u32,
    pub start_nanos: u64,
    pub duration_nanos: u64,
}

/// Time and place on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicePlace {
    /// Must be below 64: TensorBoard's plugin fails on larger numbers.
    pub device: u32,
    pub stream: u32,
    pub start_nanos: u64,
    pub duration_nanos: u64,
}

#[derive(Clone, Debug)]
pub struct WrittenOperator<'a> {
    pub name: &'a str,
    pub place: HostPlace,
    pub external_id: u32,
    pub sequence: Option<u32>,
    /// One list of sizes per input, and its element type as torch spells it: `float`, `c10::BFloat16`, `long int`.
    pub input_dims: &'a [Vec<u64>],
    pub input_types: &'a [&'a str],
    pub flops: u64,
    pub bytes: u64,
    pub is_product: bool,
    pub phase: Phase,
    pub module: &'a str,
    /// Each module's share where the call does the work of several; empty otherwise.
    pub shares: &'a [f64],
    /// Bytes live while it runs, in the order of [`crate::run::CATEGORIES`].
    pub live: [u64; 5],
}

/// A call into the device's runtime. The correlation links it to the work it queued; Holistic Trace Analysis requires
/// 100,000 or more.
#[derive(Clone, Debug)]
pub struct WrittenCall<'a> {
    pub name: &'a str,
    pub place: HostPlace,
    pub external_id: u32,
    pub correlation: u32,
    pub queues_work: Queues,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queues {
    Work,
    Nothing,
}

#[derive(Clone, Debug)]
pub struct WrittenKernel<'a> {
    pub name: &'a str,
    pub place: DevicePlace,
    pub external_id: u32,
    pub correlation: u32,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Message of a collective; absent for other kernels.
    pub message: Option<WrittenMessage<'a>>,
}

/// The message of a collective's kernel, as PyTorch's profiler records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenMessage<'a> {
    /// `allreduce`, `reduce_scatter`, `allgather`.
    pub collective: &'a str,
    pub elements_in: u64,
    pub elements_out: u64,
    /// `Float`, `BFloat16`.
    pub element_type: &'a str,
    pub ranks: u32,
}

/// A copy (`Memcpy HtoD (Pinned -> Device)`) or a fill (`Memset (Device)`).
#[derive(Clone, Debug)]
pub struct WrittenTransfer<'a> {
    pub name: &'a str,
    pub place: DevicePlace,
    pub external_id: u32,
    pub correlation: u32,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct WrittenMemory {
    pub process: u32,
    pub thread: u32,
    pub time_nanos: u64,
    pub address: u64,
    /// Negative when released.
    pub bytes: i64,
    pub total_allocated: u64,
    pub total_reserved: u64,
    /// `None` for the host.
    pub device: Option<u32>,
}

pub struct TraceWriter<'w> {
    out: &'w mut dyn Write,
    written: u64,
}

impl<'w> TraceWriter<'w> {
    /// Writes the header. `out` should be buffered.
    pub fn start(out: &'w mut dyn Write, header: &WrittenHeader) -> io::Result<TraceWriter<'w>> {
        let devices = serde_json::to_string(&header.devices).map_err(io::Error::from)?;
        let Distributed { backend, rank, world_size } = &header.distributed;
        writeln!(out, "{{\"schemaVersion\": 1,")?;
        writeln!(out, "\"deviceProperties\": {devices},")?;
        // The space after "rank": matters: Holistic Trace Analysis finds the rank with a pattern that expects it.
        let backend = quoted(backend);
        writeln!(
            out,
            "\"distributedInfo\": {{\"backend\": {backend}, \"rank\": {rank}, \"world_size\": {world_size}}},"
        )?;
        writeln!(out, "\"record_shapes\": 1, \"profile_memory\": 1, \"with_flops\": 1,")?;
        if let Some(ours) = &header.headroom {
            writeln!(out, "\"headroom\": {},", serde_json::to_string(ours).map_err(io::Error::from)?)?;
        }
        writeln!(out, "\"displayTimeUnit\": \"ms\",")?;
        writeln!(out, "\"baseTimeNanoseconds\": {},", header.base_nanos)?;
        write!(out, "\"traceEvents\": [")?;
        Ok(TraceWriter { out, written: 0 })
    }

    /// Names a process in the viewer, and sets its label (`CPU`, `GPU 0`).
    pub fn process(&mut self, process: u32, name: &str, label: &str) -> io::Result<()> {
        let (name, label) = (quoted(name), quoted(label));
        self.raw(&format!(
            r#"{{"name": "process_name", "ph": "M", "ts": 0.000, "pid": {process}, "tid": 0, "args": {{"name": {name}}}}}"#
        ))?;
        self.raw(&format!(
            r#"{{"name": "process_labels", "ph": "M", "ts": 0.000, "pid": {process}, "tid": 0, "args": {{"labels": {label}}}}}"#
        ))
    }

    pub fn thread(&mut self, process: u32, thread: u32, name: &str) -> io::Result<()> {
        let name = quoted(name);
        self.raw(&format!(
            r#"{{"name": "thread_name", "ph": "M", "ts": 0.000, "pid": {process}, "tid": {thread}, "args": {{"name": {name}}}}}"#
        ))
    }

    /// Marks a step. Write one more than there are profiled steps: readers drop the last.
    pub fn step(&mut self, number: u32, place: HostPlace, external_id: u32) -> io::Result<()> {
        self.annotation(&format!("ProfilerStep#{number}"), place, external_id)
    }

    pub fn annotation(&mut self, name: &str, place: HostPlace, external_id: u32) -> io::Result<()> {
        let head = host_span("user_annotation", name, place);
        self.raw(&format!(r#"{{{head}, "args": {{"External id": {external_id}}}}}"#))
    }

    /// An annotation as the device saw it: from its first kernel to its last.
    pub fn device_annotation(&mut self, name: &str, place: DevicePlace, external_id: u32) -> io::Result<()> {
        let head = device_span("gpu_user_annotation", name, place);
        self.raw(&format!(r#"{{{head}, "args": {{"External id": {external_id}}}}}"#))
    }

    /// Writes a span of the profiler's own overhead.
    pub fn overhead(&mut self, name: &str, place: HostPlace) -> io::Result<()> {
        let head = host_span("overhead", name, place);
        self.raw(&format!("{{{head}}}"))
    }

    pub fn operator(&mut self, operator: &WrittenOperator) -> io::Result<()> {
        let head = host_span("cpu_op", operator.name, operator.place);
        let dims: Vec<String> = operator.input_dims.iter().map(|sizes| list(sizes)).collect();
        let types: Vec<String> = operator.input_types.iter().map(|kind| quoted(kind)).collect();
        let sequence = operator.sequence.map(|number| format!(r#""Sequence number": {number}, "#)).unwrap_or_default();
        let WrittenOperator { external_id, flops, bytes, is_product, .. } = operator;
        let (phase, module, live) = (operator.phase.name(), quoted(operator.module), list(&operator.live));
        let shares = match operator.shares {
            [] => String::new(),
            shares => format!(r#", "shares": {}"#, serde_json::to_string(shares).map_err(io::Error::from)?),
        };
        self.raw(&format!(
            r#"{{{head}, "args": {{"External id": {external_id}, {sequence}"Input Dims": [{}], "Input type": [{}], "flops": {flops}, "bytes": {bytes}, "product": {is_product}, "phase": "{phase}", "module": {module}{shares}, "live": {live}}}}}"#,
            dims.join(", "),
            types.join(", "),
        ))
    }

    pub fn call(&mut self, call: &WrittenCall) -> io::Result<()> {
        let head = host_span("cuda_runtime", call.name, call.place);
        let WrittenCall { external_id, correlation, place, .. } = call;
        self.raw(&format!(r#"{{{head}, "args": {{"External id": {external_id}, "correlation": {correlation}}}}}"#))?;
        if call.queues_work == Queues::Nothing {
            return Ok(());
        }
        let (process, thread, at) = (place.process, place.thread, microseconds(place.start_nanos));
        self.raw(&format!(
            r#"{{"ph": "s", "id": {correlation}, "pid": {process}, "tid": {thread}, "ts": {at}, "cat": "ac2g", "name": "ac2g"}}"#
        ))
    }

    pub fn kernel(&mut self, kernel: &WrittenKernel) -> io::Result<()> {
        let WrittenKernel { name, place, external_id, correlation, grid, block, message } = kernel;
        let head = device_span("kernel", name, *place);
        let (device, stream) = (place.device, place.stream);
        let sizes = |sizes: &[u32; 3]| list(&sizes.map(u64::from));
        let message = message.as_ref().map_or(String::new(), arguments_of);
        self.raw(&format!(
            r#"{{{head}, "args": {{"External id": {external_id}, "device": {device}, "context": 1, "stream": {stream}, "correlation": {correlation}, "grid": {}, "block": {}{message}}}}}"#,
            sizes(grid),
            sizes(block),
        ))?;
        self.arrival(*place, *correlation)
    }

    pub fn copy(&mut self, copy: &WrittenTransfer) -> io::Result<()> {
        self.transfer("gpu_memcpy", copy)
    }

    pub fn fill(&mut self, fill: &WrittenTransfer) -> io::Result<()> {
        self.transfer("gpu_memset", fill)
    }

    pub fn memory(&mut self, memory: &WrittenMemory) -> io::Result<()> {
        let WrittenMemory { process, thread, address, bytes, total_allocated, total_reserved, .. } = memory;
        let at = microseconds(memory.time_nanos);
        // Torch's device types: 0 is the host (with id -1), 1 is CUDA.
        let (kind, id) = memory.device.map_or((0, -1), |device| (1, i64::from(device)));
        self.raw(&format!(
            r#"{{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": {process}, "tid": {thread}, "ts": {at}, "args": {{"Total Reserved": {total_reserved}, "Total Allocated": {total_allocated}, "Bytes": {bytes}, "Device Id": {id}, "Device Type": {kind}, "Addr": {address}}}}}"#
        ))
    }

    /// Ends the event list and the file.
    pub fn finish(self, trace_name: &str) -> io::Result<()> {
        writeln!(self.out, "\n],\n\"traceName\": {}\n}}", quoted(trace_name))?;
        self.out.flush()
    }

    fn transfer(&mut self, category: &str, transfer: &WrittenTransfer) -> io::Result<()> {
        let WrittenTransfer { name, place, external_id, correlation, bytes } = transfer;
        let head = device_span(category, name, *place);
        let (device, stream) = (place.device, place.stream);
        let seconds = place.duration_nanos.max(1) as f64 / 1e9;
        let bandwidth = *bytes as f64 / seconds / 1e9;
        self.raw(&format!(
            r#"{{{head}, "args": {{"External id": {external_id}, "device": {device}, "context": 1, "stream": {stream}, "correlation": {correlation}, "bytes": {bytes}, "memory bandwidth (GB/s)": {bandwidth}}}}}"#
        ))?;
        self.arrival(*place, *correlation)
    }

    /// The end of the arrow from the launch.
    fn arrival(&mut self, place: DevicePlace, correlation: u32) -> io::Result<()> {
        let (device, stream, at) = (place.device, place.stream, microseconds(place.start_nanos));
        self.raw(&format!(
            r#"{{"ph": "f", "id": {correlation}, "pid": {device}, "tid": {stream}, "ts": {at}, "cat": "ac2g", "name": "ac2g", "bp": "e"}}"#
        ))
    }

    fn raw(&mut self, event: &str) -> io::Result<()> {
        let before = if self.written == 0 { "\n" } else { ",\n" };
        self.written += 1;
        self.out.write_all(before.as_bytes())?;
        self.out.write_all(event.as_bytes())
    }
}

fn arguments_of(message: &WrittenMessage) -> String {
    let WrittenMessage { collective, elements_in, elements_out, element_type, ranks } = message;
    let (collective, element_type) = (quoted(collective), quoted(element_type));
    let numbers: Vec<u64> = (0..u64::from(*ranks)).collect();
    let all = quoted(&list(&numbers));
    format!(
        r#", "Collective name": {collective}, "In msg nelems": {elements_in}, "Out msg nelems": {elements_out}, "Group size": {ranks}, "dtype": {element_type}, "Process Group Name": "0", "Process Group Ranks": {all}"#
    )
}

fn host_span(category: &str, name: &str, place: HostPlace) -> String {
    let HostPlace { process, thread, start_nanos, duration_nanos } = place;
    span(category, name, [process, thread], start_nanos, duration_nanos)
}

fn device_span(category: &str, name: &str, place: DevicePlace) -> String {
    let DevicePlace { device, stream, start_nanos, duration_nanos } = place;
    span(category, name, [device, stream], start_nanos, duration_nanos)
}

fn span(category: &str, name: &str, [process, thread]: [u32; 2], start: u64, duration: u64) -> String {
    let (name, start, duration) = (quoted(name), microseconds(start), microseconds(duration));
    format!(
        r#""ph": "X", "cat": "{category}", "name": {name}, "pid": {process}, "tid": {thread}, "ts": {start}, "dur": {duration}"#
    )
}

/// Microseconds with three decimals, so whole nanoseconds.
fn microseconds(nanos: u64) -> String {
    format!("{}.{:03}", nanos / 1000, nanos % 1000)
}

fn list(numbers: &[u64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    format!("[{}]", numbers.join(", "))
}

/// Quotes a string. Perfetto rejects control characters even when escaped, so they are dropped.
fn quoted(text: &str) -> String {
    let printable: String = text.chars().filter(|character| !character.is_control()).collect();
    Value::String(printable).to_string()
}
