//! Verification notes: per GPU, how its kernels compared with their references, and whether its kind was ever verified.

use crate::kept;
use headroom_engine::cuda::{self, compile};
use headroom_record::reading;
use headroom_record::timestamp::utc_iso;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::SystemTime;

/// Kinds of GPUs on which every kernel was checked against its reference, with the GPU used.
const KNOWN: [((u32, u32), &str); 1] = [((9, 0), "NVIDIA H200")];

/// Saved with the measured peaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    pub timestamp: String,
    pub device: String,
    /// Fingerprint of the sources of all kernels.
    pub kernels: String,
    /// Generation of the tensor-core kernels: the device's own, or an older one that was requested.
    pub level: String,
    pub checks: usize,
    pub failed: usize,
}

fn file(device: &str, level: &str) -> Option<PathBuf> {
    Some(kept::folder()?.join(format!("verified-{}-{level}.json", kept::slug(device))))
}

/// Saves the result. A failure to save does not fail a verification.
pub fn keep(facts: &cuda::Facts, checks: usize, failed: usize) {
    let level = facts.level.to_string();
    let Some(path) = file(&facts.name, &level) else { return };
    let record = Verified {
        timestamp: utc_iso(SystemTime::now()),
        device: facts.name.clone(),
        kernels: compile::fingerprint(),
        level,
        checks,
        failed,
    };
    let made = path.parent().is_some_and(|folder| std::fs::create_dir_all(folder).is_ok());
    if made {
        let _ = headroom_record::atomic::write_json(&path, &record);
    }
}

fn load(facts: &cuda::Facts) -> Option<Verified> {
    let path = file(&facts.name, &facts.level.to_string())?;
    serde_json::from_slice(&reading::read(&path, reading::RECORD).ok()?).ok()
}

/// A line about this GPU's verification.
pub fn said(facts: &cuda::Facts) -> String {
    told(load(facts).as_ref(), facts.capability, &compile::fingerprint())
}

/// Advice to verify first, if neither this GPU nor its kind was ever verified.
pub fn advice(facts: &cuda::Facts) -> Option<String> {
    let known = KNOWN.iter().any(|(capability, _)| *capability == facts.capability);
    (!known && load(facts).is_none()).then(|| {
        let (major, minor) = facts.capability;
        format!(
            "note: kernels were never verified on {} (sm_{major}{minor}); `headroom device --device cuda --verify nano` checks \
             each against a reference, in a minute",
            facts.name
        )
    })
}

fn told(record: Option<&Verified>, capability: (u32, u32), kernels: &str) -> String {
    let Some(Verified { timestamp, checks, failed, level, kernels: which, .. }) = record else {
        return match KNOWN.iter().find(|(known, _)| *known == capability) {
            Some((_, part)) => format!("not on this machine, but on the same kind of GPU, an {part}"),
            None => "never: `headroom device --device cuda --verify nano` does it".into(),
        };
    };
    let day = timestamp.split('T').next().unwrap_or(timestamp);
    let outcome = match failed {
        0 => format!("{day}, all {checks} checks passed, kernels of level {level}"),
        failed => format!("{day}, {failed} of {checks} checks FAILED, kernels of level {level}"),
    };
    match which == kernels {
        true => outcome,
        false => format!("{outcome}; the kernels have changed since: `headroom device --device cuda --verify nano`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(failed: usize) -> Verified {
        Verified {
            timestamp: "2026-11-15T12:00:00Z".into(),
            device: "NVIDIA A100".into(),
            kernels: "cafe".into(),
            level: "ampere".into(),
            checks: 321,
            failed,
        }
    }

    #[test]
    fn what_was_verified_is_told_with_its_day_and_whether_it_still_stands() {
        let held = told(Some(&record(0)), (8, 0), "cafe");
        assert_eq!(held, "2026-11-15, all 321 checks passed, kernels of level ampere");
        let changed = told(Some(&record(0)), (8, 0), "beef");
        assert!(changed.starts_with(&held) && changed.contains("--verify"), "{changed}");
        assert!(told(Some(&record(2)), (8, 0), "cafe").contains("2 of 321 checks FAILED"));
    }

    #[test]
    fn a_kind_that_never_was_is_offered_to_be_verified_and_a_known_one_is_named() {
        assert!(told(None, (8, 6), "cafe").contains("--verify"));
        let known = told(None, (9, 0), "cafe");
        assert!(known.contains("H200") && !known.contains("--verify"), "{known}");
    }
}
