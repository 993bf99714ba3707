//! Whether torch.compile made the step's kernels: then nobody is told to compile.

use headroom_trace::Category;
use serde::Serialize;

use super::view::View;
use crate::constants::compiled::MOSTLY;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Compiled {
    /// Share of the kernels in the steps that compiled code launched, or that Inductor generated.
    pub share_of_kernels: f64,
}

impl Compiled {
    pub fn is_most(self) -> bool {
        self.share_of_kernels >= MOSTLY.get()
    }
}

pub fn compiled(view: &View) -> Compiled {
    let (host, device) = (&view.trace.host, &view.trace.device);
    let regions: Vec<bool> = view.trace.names.iter().map(|(_, name)| is_compiled_region(name)).collect();
    let generated = view.of_kernels(is_generated);
    if !regions.contains(&true) && !generated.contains(&true) {
        return Compiled::default();
    }
    // A span comes after the spans around it, so one pass is enough.
    let mut inside = vec![false; host.len()];
    for at in 0..host.len() {
        let parent = view.parent[at];
        inside[at] = regions[host.name[at].index()] || inside.get(parent as usize).copied().unwrap_or(false);
    }
    let kernels = device
        .busy()
        .filter(|&at| device.category[at] == Category::Kernel && view.steps.at(device.start[at]).is_some());
    let (mut all, mut ours) = (0u64, 0u64);
    for at in kernels {
        all += 1;
        let is_launched = inside.get(view.call_of[at] as usize).copied().unwrap_or(false);
        ours += u64::from(is_launched || generated[device.name[at].index()]);
    }
    Compiled { share_of_kernels: ours as f64 / all.max(1) as f64 }
}

/// Spans that torch.compile puts around its code.
pub fn is_compiled_region(name: &str) -> bool {
    name.starts_with("Torch-Compiled Region") || name.contains("CompiledFxGraph") || name == "CompiledFunction"
}

/// Kernels that Inductor generates, by their kinds: pointwise, reduction, persistent reduction, templates.
fn is_generated(kernel: &str) -> bool {
    ["triton_poi_", "triton_red_", "triton_per_", "triton_tem_", "triton_for_", "triton_mm"]
        .iter()
        .any(|start| kernel.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    fn share(kernels: &[&str], region: Option<&str>) -> f64 {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 1_000 * MICRO);
        if let Some(region) = region {
            made.span("user_annotation", region, 1, MICRO, 900 * MICRO, "");
        }
        for (at, kernel) in kernels.iter().enumerate() {
            let start = (10 + 50 * at as i64) * MICRO;
            made.operator("aten::mm", start, start + 20 * MICRO);
            made.launch((start + MICRO, start + 5 * MICRO), kernel, (start + 10 * MICRO, start + 15 * MICRO));
        }
        compiled(&View::new(&made.trace())).share_of_kernels
    }

    #[test]
    fn kernels_of_inductor_and_those_launched_in_its_regions_are_compiled() {
        assert_eq!(share(&["triton_poi_fused_add_0", "gemm"], None), 0.5);
        assert_eq!(share(&["gemm", "gemm"], Some("Torch-Compiled Region: 0/0")), 1.0);
        assert_eq!(share(&["gemm", "_my_triton_kernel"], None), 0.0);
        assert!(Compiled { share_of_kernels: 0.5 }.is_most() && !Compiled::default().is_most());
    }
}
