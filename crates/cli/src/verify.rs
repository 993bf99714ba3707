//! `headroom device --verify`: compares every kernel and whole steps of a device with references, and prints the
//! differences.

use crate::shown::{Plain, Shown};
use crate::train::start::opening;
use crate::{output, verified};
use anyhow::bail;
use headroom_engine::cuda::{self, SumOrder};
use headroom_engine::{Device, DeviceSpec, EngineError, Opening, Program};
use headroom_experiments::exactness::{self, Check};
use serde_json::json;
use std::process::ExitCode;

/// The number of losses compared at each size.
const LOSSES: usize = 20;

pub fn run(device: DeviceSpec, sizes: &[String], shown: Shown<Plain>) -> anyhow::Result<ExitCode> {
    let open = |programs: &[Program]| -> Result<Box<dyn Device>, EngineError> { device.open(&opening(2), programs) };
    if device == DeviceSpec::Null {
        bail!("the null device computes nothing that could be verified\n  help: --device cpu or cuda");
    }
    let mut failed = 0;
    let mut total = 0;
    let mut groups = vec![];
    let mut show = |title: &str, checks: &[Check]| -> anyhow::Result<()> {
        let mut text = format!("{title}\n");
        for check in checks {
            let mark = if check.holds() { "ok  " } else { "FAIL" };
            let Check { what, difference, tolerance } = check;
            text.push_str(&format!("  {mark} {what:<86} {difference:.1e} of {tolerance:.0e}\n"));
        }
        failed += checks.iter().filter(|check| !check.holds()).count();
        total += checks.len();
        let of_check = |check: &Check| {
            let Check { what, difference, tolerance } = check;
            json!({ "what": what, "difference": difference, "tolerance": tolerance, "holds": check.holds() })
        };
        groups.push(json!({ "title": title, "checks": checks.iter().map(of_check).collect::<Vec<_>>() }));
        // Checks take a while, so each group is printed when done.
        if !shown.is_json() {
            output::text(&text)?;
        }
        Ok(())
    };
    show("kernels against the reference in double precision", &exactness::kernels(&open)?)?;
    if matches!(device, DeviceSpec::Cuda(_)) {
        let any = Opening { order: SumOrder::Any, ..opening(2) };
        let open = |programs: &[Program]| -> Result<Box<dyn Device>, EngineError> { device.open(&any, programs) };
        show("attention that adds in any order (--no-deterministic)", &exactness::in_any_order(&open)?)?;
    }
    for size in sizes {
        show(&format!("steps of {size} against the CPU in single precision"), &exactness::steps(&open, size, LOSSES)?)?;
        show(&format!("steps of {size} that choose what they update"), &exactness::selective(&open, size, LOSSES)?)?;
    }
    let record = json!({ "device": device.name(), "checks": total, "failed": failed, "groups": groups });
    shown.print(&record, |_| format!("{} of {total} pass\n", total - failed))?;
    if let DeviceSpec::Cuda(ordinal) = device {
        verified::keep(&cuda::facts(ordinal)?, total, failed);
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
