//! The search and the memory of the device.

use super::tests::{ScriptedRuns, candidate, made, same, searched};
use super::*;

#[test]
fn memory_refuses_one_remedy_or_keeps_it() {
    let memory = |variant: &Variant| match variant.asked().as_str() {
        "tf32" => 1400 << 20,
        "channels-last" => 800 << 20,
        _ => 1000 << 20,
    };
    let mut made = ScriptedRuns { memory, ..made(1e9, same, (0, false)) };
    let found = searched(&mut made, vec![candidate("tf32"), candidate("channels-last")], false);
    assert_eq!(found.rows[0].outcome.words(), "not kept: it takes 1.40 times the script's own memory, 1.25 allowed");
    assert_eq!(found.rows[1].outcome, Outcome::KeptSmaller);
    assert_eq!(found.kept.names(), ["channels-last"]);
}

#[test]
fn cheap_remedies_that_take_less_memory_together_are_kept_together() {
    let memory = |variant: &Variant| if variant.is_empty() { 1000 } else { 700 };
    let mut made = ScriptedRuns { speed: |_| 1.0, memory, ..made(1e9, same, (0, false)) };
    let names = ["zero-grad-none", "expandable-segments"];
    let found = searched(&mut made, names.iter().map(|name| candidate(name)).collect(), false);
    assert_eq!(found.kept.names(), names, "{:?}", found.rows);
    assert_eq!(found.rows[0].outcome.words(), "kept: as fast, in less memory together with expandable-segments");
    assert_eq!(found.links.len(), 1);
}

#[test]
fn less_memory_keeps_no_remedy_that_leaves_the_devices_memory_alone() {
    let memory = |variant: &Variant| if variant.names().contains(&"zero-grad-none") { 700 } else { 1000 };
    let mut made = ScriptedRuns { speed: |_| 1.0, memory, ..made(1e9, same, (0, false)) };
    let found = searched(&mut made, vec![candidate("loader-pinning"), candidate("zero-grad-none")], false);
    assert_eq!(found.kept.names(), ["zero-grad-none"], "{:?}", found.rows);
    let words: Vec<String> = found.rows.iter().map(|row| row.outcome.words()).collect();
    assert_eq!(words, ["together with zero-grad-none: no gain beyond the noise", "kept: as fast, in less memory"]);
    let memory = |variant: &Variant| if variant.is_empty() { 1000 } else { 700 };
    let mut made = ScriptedRuns { memory, ..made };
    let found = searched(&mut made, vec![candidate("loader-pinning")], false);
    assert!(found.kept.is_empty(), "{:?}", found.rows);
}
