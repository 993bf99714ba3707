//! Kinds of events: Kineto's categories, and kinds of runtime calls, for NVIDIA and AMD alike.

/// The category of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// An operator on the host: `aten::mm`.
    CpuOp,
    /// A range named by the program or the profiler: `ProfilerStep#5`.
    UserAnnotation,
    PythonFunction,
    /// A call into the device's runtime or driver: `cudaLaunchKernel`, `hipMemcpyAsync`.
    Runtime,
    Kernel,
    Memcpy,
    Memset,
    /// A user annotation as the device saw it: from its first kernel to its last.
    GpuAnnotation,
    /// A synchronisation as the device saw it; it does not keep the device busy.
    GpuSync,
    /// Time that the profiler itself cost.
    Overhead,
    Other,
}

impl Category {
    /// Parses the spelling of any version of Kineto.
    pub fn from_kineto(text: &str) -> Category {
        match text {
            "cpu_op" | "operator" | "Operator" => Category::CpuOp,
            "user_annotation" => Category::UserAnnotation,
            "python_function" | "Python" => Category::PythonFunction,
            "cuda_runtime"
            | "cuda_driver"
            | "Runtime"
            | "hip_runtime"
            | "hip_driver"
            | "rocm_runtime"
            | "xpu_runtime"
            | "xpu_driver"
            | "mtia_runtime"
            | "privateuse1_runtime"
            | "privateuse1_driver" => Category::Runtime,
            "kernel" | "Kernel" | "mtia_ccp_events" | "concurrent_kernel" => Category::Kernel,
            "gpu_memcpy" | "Memcpy" => Category::Memcpy,
            "gpu_memset" | "Memset" => Category::Memset,
            "gpu_user_annotation" => Category::GpuAnnotation,
            "cuda_sync" | "hip_sync" => Category::GpuSync,
            "overhead" => Category::Overhead,
            _ => Category::Other,
        }
    }

    /// Corrects the category of torch's own annotations, which old versions of Kineto wrote as operators, by their
    /// name.
    pub fn of_span_named(self, name: &[u8]) -> Category {
        let is_annotation = || ANNOTATIONS.iter().any(|start| name.starts_with(start));
        if self == Category::CpuOp && is_annotation() { Category::UserAnnotation } else { self }
    }

    /// Kineto's current spelling.
    pub fn kineto(self) -> &'static str {
        match self {
            Category::CpuOp => "cpu_op",
            Category::UserAnnotation => "user_annotation",
            Category::PythonFunction => "python_function",
            Category::Runtime => "cuda_runtime",
            Category::Kernel => "kernel",
            Category::Memcpy => "gpu_memcpy",
            Category::Memset => "gpu_memset",
            Category::GpuAnnotation => "gpu_user_annotation",
            Category::GpuSync => "cuda_sync",
            Category::Overhead => "overhead",
            Category::Other => "Trace",
        }
    }

    /// Whether it is on a device's stream rather than on a host thread.
    pub fn is_on_device(self) -> bool {
        matches!(
            self,
            Category::Kernel | Category::Memcpy | Category::Memset | Category::GpuAnnotation | Category::GpuSync
        )
    }

    /// Whether the device is working during such a span.
    pub fn keeps_device_busy(self) -> bool {
        matches!(self, Category::Kernel | Category::Memcpy | Category::Memset)
    }
}

/// Prefixes of torch's own annotations: a step, an optimizer's call, a fetched batch.
const ANNOTATIONS: [&[u8]; 3] = [b"ProfilerStep#", b"Optimizer.", b"enumerate(DataLoader)#"];

/// Kind of runtime call, by what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    Launch,
    GraphLaunch,
    Copy,
    Fill,
    /// The host waits for the device.
    Synchronise,
    Allocate,
    Free,
    Other,
}

impl CallKind {
    /// Classifies a call by its name: the prefix (`cuda`, `cu`, `hip`, `hsa_`, `ze`) only says whose runtime it is.
    pub fn of(name: &str) -> CallKind {
        let plain = ["cuda", "cu", "hip", "roc"].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
        let plain = plain.split("_v").next().unwrap_or(plain);
        let has = |word: &str| plain.contains(word);
        if has("GraphLaunch") {
            CallKind::GraphLaunch
        } else if has("LaunchKernel") || has("LaunchCooperative") || plain == "Launch" || has("urEnqueueKernelLaunch") {
            CallKind::Launch
        } else if has("Synchronize") || plain == "Memcpy" || plain == "MemcpyWithStream" {
            // A copy without "Async" returns only when it is done.
            CallKind::Synchronise
        } else if has("Memcpy") {
            CallKind::Copy
        } else if has("Memset") {
            CallKind::Fill
        } else if has("Malloc") || has("MemAlloc") || has("MemCreate") || has("HostAlloc") {
            CallKind::Allocate
        } else if plain.starts_with("Free") || plain.starts_with("MemFree") || plain.starts_with("HostFree") {
            CallKind::Free
        } else {
            CallKind::Other
        }
    }

    /// Whether it puts work on a stream.
    pub fn queues_work(self) -> bool {
        matches!(self, CallKind::Launch | CallKind::GraphLaunch | CallKind::Copy | CallKind::Fill)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torchs_own_annotations_are_recognised_where_kineto_wrote_them_as_operators() {
        let of = |name: &str| Category::from_kineto("Operator").of_span_named(name.as_bytes());
        assert_eq!(of("ProfilerStep#3"), Category::UserAnnotation);
        assert_eq!(of("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"), Category::UserAnnotation);
        assert_eq!(of("Optimizer.step#SGD.step"), Category::UserAnnotation);
        assert_eq!(of("aten::mm"), Category::CpuOp);
        assert_eq!(Category::Runtime.of_span_named(b"ProfilerStep#3"), Category::Runtime);
    }

    #[test]
    fn the_same_calls_of_nvidia_and_amd_are_of_one_kind() {
        let kinds = |names: &[&str]| names.iter().map(|name| CallKind::of(name)).collect::<Vec<_>>();
        assert_eq!(
            kinds(&["cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx"]),
            [CallKind::Launch; 4]
        );
        assert_eq!(
            kinds(&["hipLaunchKernel", "hipExtLaunchKernel", "hipModuleLaunchKernel", "hipExtModuleLaunchKernel"]),
            [CallKind::Launch; 4]
        );
        assert_eq!(kinds(&["cudaGraphLaunch", "hipGraphLaunch"]), [CallKind::GraphLaunch; 2]);
        assert_eq!(kinds(&["cudaMemcpyAsync", "hipMemcpyAsync", "cuMemcpyHtoDAsync_v2"]), [CallKind::Copy; 3]);
        assert_eq!(
            kinds(&["cudaStreamSynchronize", "hipDeviceSynchronize", "hipMemcpyWithStream", "cudaMemcpy"]),
            [CallKind::Synchronise; 4]
        );
        assert_eq!(kinds(&["cudaMalloc", "hipMalloc", "cuMemCreate"]), [CallKind::Allocate; 3]);
        assert_eq!(kinds(&["cudaFree", "hipFree", "cudaFreeAsync"]), [CallKind::Free; 3]);
        assert_eq!(kinds(&["cudaStreamIsCapturing", "cudaEventQuery"]), [CallKind::Other; 2]);
    }
}
