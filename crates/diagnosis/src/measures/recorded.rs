//! Detects whether a device did the work that the trace shows only from the host's side (`activities=[CPU]`).
//!
//! The rule: the trace contains no device work, is not from headroom's own CPU runs, and has one of these: calls of a
//! device's runtime; memory of a device; operators or functions that exist only for a device; a GPU in the header,
//! which the profiler lists wherever the machine has one. The last does not prove that the run used it, but then host
//! times cannot be compared with that GPU's peaks either. Without any of them the run was on the host, and its times
//! are the work's.

use headroom_trace::{Category, HOST_MEMORY};

use super::roles::is_for_a_device;
use super::view::View;

/// Whether the host's side says what it was doing: by operators, functions or annotations.
pub fn tells_what_the_host_did(view: &View) -> bool {
    let tells =
        |category: &Category| matches!(category, Category::CpuOp | Category::PythonFunction | Category::UserAnnotation);
    view.trace.host.category.iter().any(tells)
}

/// The evidence that a device worked, or may have, without being recorded.
pub fn unrecorded_device(view: &View) -> Option<String> {
    let trace = view.trace;
    if view.has_device_work() || trace.header.headroom.is_some() {
        return None;
    }
    let unused = || Some(format!("the machine has a {}, and it is unknown whether the run used it", gpu(view)?));
    used_device(view).or_else(unused)
}

/// A GPU that the header lists.
pub fn gpu<'t>(view: &View<'t>) -> Option<&'t str> {
    view.trace.header.devices.first().map(|gpu| gpu.name.as_str())
}

/// The evidence that the run used a device.
pub fn used_device(view: &View) -> Option<String> {
    let trace = view.trace;
    let calls = trace.host.category.iter().filter(|category| **category == Category::Runtime).count();
    if calls > 0 {
        return Some(format!("the run made {calls} calls to a device runtime"));
    }
    if trace.memory.device.iter().any(|device| *device != HOST_MEMORY) {
        return Some("the run allocated device memory".into());
    }
    let used: Vec<bool> = trace.names.iter().map(|(_, name)| is_for_a_device(name)).collect();
    let at = (0..trace.host.len()).find(|&at| used[trace.host.name[at].index()])?;
    Some(format!("the run called {}, which works on a device", view.host_name(at)))
}
