//! The bottleneck table, from made-up places.

use super::*;
use crate::run::kinds::Roles;
use std::collections::BTreeMap;

fn place(name: &str, module: &str, phase: &str, time: f64, floor: f64) -> PlaceStats {
    PlaceStats {
        name: name.into(),
        module: module.into(),
        role: Roles::new(&BTreeMap::new()).of(module),
        phase: phase.into(),
        count: 4,
        time,
        host_time: time,
        percent_of_step: time * 100.0,
        flops: 1,
        bytes: 1,
        intensity: 1.0,
        bound: Bound::ComputeBound,
        floor,
        percent_of_roof: 100.0 * floor / time,
        target_time: 0.0,
        target_passes: vec![],
    }
}

fn check(places: &[PlaceStats], missing: &[&str], look: impl Fn(&StepFacts, &Bottlenecks)) {
    check_launches(places, missing, (0.02, false), look);
}

fn check_launches(
    places: &[PlaceStats],
    missing: &[&str],
    (launch_seconds, has_gpu): (f64, bool),
    look: impl Fn(&StepFacts, &Bottlenecks),
) {
    let missing: Vec<String> = missing.iter().map(|pass| pass.to_string()).collect();
    let facts = StepFacts {
        places,
        breakdown: StepBreakdown { wall: 1.0, ..StepBreakdown::default() },
        launch_seconds,
        causal_share: 0.5,
        fragmentation_percent: 1.0,
        passes: Passes { list: "v1", missing: &missing },
        instrumentation: &["gradient_norm".to_string()],
        has_gpu,
    };
    look(&facts, &bottlenecks(&facts));
}

fn row<'a>(found: &'a Bottlenecks, category: &str) -> &'a BottleneckCategory {
    found.categories.iter().find(|row| row.category == category).unwrap()
}

#[test]
fn a_gain_is_what_lies_above_the_roof() {
    let places = [place("matmul", "layers.*.self_attn.q_proj", "forward", 0.5, 0.3)];
    check(&places, &["fuse-qkv"], |_, found| {
        let row = row(found, "QKV Projections");
        assert_eq!((row.percent_of_time, row.impact, row.priority_rank), (Some(50.0), Level::High, 1));
        assert!((row.speedup_at_most.unwrap() - 1.25).abs() < 1e-9);
        assert_eq!(found.optimization_targets[0].priority, "high");
    });
}

#[test]
fn masked_scores_and_softmax_go_with_tiled_attention() {
    let places = [
        place("attention_scores", "layers.*.self_attn", "forward", 0.2, 0.1),
        place("causal_softmax", "layers.*.self_attn", "forward", 0.1, 0.05),
    ];
    check(&places, &["flash-attention"], |_, found| {
        // 0.3 of the step; half of the scores' floor remains.
        assert!((row(found, "Attention Computation").speedup_at_most.unwrap() - 1.0 / 0.75).abs() < 1e-9);
    });
}

#[test]
fn a_bound_is_of_what_the_missing_pass_touches() {
    // Gate and up are already one GEMM, far above their roof; only the activation is left to fuse.
    let places = [
        place("linears", "layers.*.mlp.gate_proj+up_proj", "forward", 0.5, 0.2),
        place("silu", "layers.*.mlp", "forward", 0.05, 0.01),
    ];
    check(&places, &["fuse-swiglu"], |facts, found| {
        let row = row(found, "SwiGLU Gate/Up");
        assert!((row.percent_of_time.unwrap() - 55.0).abs() < 1e-9);
        assert!((row.speedup_at_most.unwrap() - 1.0 / 0.95).abs() < 1e-9, "{:?}", row.speedup_at_most);
        assert_eq!(row.remedy, "--passes v1,+fuse-swiglu");
        assert_eq!(PassEffect::of("fuse-swiglu").unwrap().seconds(facts), (0.05, 0.05));
    });
}

#[test]
fn a_pass_that_is_applied_is_not_advised() {
    let places = [place("linears", "layers.*.self_attn.q_proj+k_proj+v_proj", "forward", 0.5, 0.3)];
    check(&places, &["fuse-norm"], |_, found| {
        let row = row(found, "QKV Projections");
        assert_eq!((row.impact, row.effort, row.speedup_at_most), (Level::Low, Level::High, None));
        assert!(!found.optimization_targets[0].optimization.contains("--passes"));
    });
}

#[test]
fn what_has_nothing_left_to_do_comes_after_what_has() {
    let places = [
        place("linears", "layers.*.self_attn.q_proj+k_proj+v_proj", "forward", 0.8, 0.1),
        place("rms_norm", "norm", "forward", 0.02, 0.01),
    ];
    check(&places, &["fuse-norm"], |_, found| {
        let order: Vec<&str> = found.categories.iter().map(|row| row.category.as_str()).collect();
        assert_eq!((order[0], *order.last().unwrap()), ("Norms", "Memory Fragmentation"));
        assert_eq!(row(found, "QKV Projections").priority_rank, 2);
    });
}

#[test]
fn what_runs_above_the_memory_roof_promises_nothing() {
    let places = [place("add", "layers.*", "forward", 0.1, 0.2)];
    check(&places, &[], |_, found| assert!(found.optimization_targets.is_empty()));
}

#[test]
fn what_costs_no_time_is_ranked_below_what_saves_some() {
    let places = [
        place("rms_norm", "layers.*.input_layernorm", "forward", 0.06, 0.01),
        place("adamw", "optimizer", "optimizer", 0.01, 0.01),
    ];
    let missing = ["fuse-norm", "graph-replay"];
    let launches = |found: &Bottlenecks| row(found, "Kernel Launch Overhead").priority_rank;
    for has_gpu in [false, true] {
        check_launches(&places, &missing, (1e-7, has_gpu), |_, found| {
            assert_eq!(row(found, "Norms").priority_rank, 1, "{:?}", found.categories);
            assert!(launches(found) > 1);
        });
    }
    // A CPU has no graph to replay, whatever its calls cost.
    check_launches(&places, &missing, (0.3, false), |_, found| {
        assert_eq!(row(found, "Kernel Launch Overhead").speedup_at_most, None);
        assert_eq!(row(found, "Norms").priority_rank, 1);
    });
    check_launches(&places, &missing, (0.3, true), |_, found| assert_eq!(launches(found), 1));
}

#[test]
fn what_is_there_to_be_looked_at_is_part_of_no_row_and_nothing_is_no_negative_share() {
    let places = [
        place("gradient_norm", "optimizer", "optimizer", 0.09, 0.001),
        place("adamw_all", "optimizer", "optimizer", 0.01, 0.01),
    ];
    check(&places, &[], |_, found| {
        assert!((row(found, "Optimizer").percent_of_time.unwrap() - 1.0).abs() < 1e-9);
        let nothing = row(found, "Softmax Operations").percent_of_time.unwrap();
        assert!(nothing == 0.0 && nothing.is_sign_positive(), "{nothing}");
    });
}

#[test]
fn a_target_is_the_roof_until_a_missing_pass_takes_more_away() {
    let of = |place: &PlaceStats, missing: &[&str]| {
        let found = std::cell::RefCell::new((0.0, vec![]));
        check(std::slice::from_ref(place), missing, |facts, _| *found.borrow_mut() = target(place, facts));
        found.into_inner()
    };
    let query = place("matmul", "layers.*.self_attn.q_proj", "forward", 0.5, 0.3);
    assert_eq!(of(&query, &[]), (0.3, vec![]));
    assert_eq!(of(&query, &["fuse-qkv", "fuse-norm"]), (0.3, vec!["fuse-qkv".to_string()]));
    let activation = place("silu", "layers.*.mlp", "forward", 0.5, 0.3);
    assert_eq!(of(&activation, &["fuse-swiglu"]), (0.0, vec!["fuse-swiglu".to_string()]));
    let watched = place("gradient_norm", "optimizer", "optimizer", 0.5, 0.3);
    assert_eq!(of(&watched, &["fuse-optimizer"]), (0.3, vec![]));
    // A cache made it faster than the roof: there is nothing to gain.
    let cached = place("silu", "layers.*.mlp", "forward", 0.2, 0.3);
    assert_eq!(of(&cached, &[]), (0.2, vec![]));
}

#[test]
fn an_operator_that_only_watches_the_run_is_not_what_a_pass_shortens() {
    let places = [
        place("adamw", "optimizer", "optimizer", 0.05, 0.01),
        place("gradient_norm", "optimizer", "optimizer", 0.04, 0.01),
    ];
    check(&places, &["fuse-optimizer"], |facts, found| {
        let effect = PassEffect::of("fuse-optimizer").unwrap();
        let (time, _) = effect.seconds(facts);
        assert!((time - 0.05).abs() < 1e-12, "{time}");
        assert_eq!(row(found, "Optimizer").percent_of_time, Some(5.0), "the same share in both");
    });
}

#[test]
fn a_row_with_a_flag_is_low_effort_and_ranks_before_rows_without() {
    // The first three are hard to write by hand, and one flag here.
    let places = [
        place("causal_softmax", "layers.*.self_attn", "forward", 0.05, 0.01),
        place("rms_norm", "norm", "forward", 0.05, 0.01),
        place("cross_entropy", "loss", "forward", 0.03, 0.01),
        place("adamw_all", "optimizer", "optimizer", 0.5, 0.1),
    ];
    check(&places, &["flash-attention", "fuse-norm", "fuse-loss"], |_, found| {
        let (with, without): (Vec<_>, Vec<_>) = found.categories.iter().partition(|row| row.has_remedy());
        let names = |rows: &[&BottleneckCategory]| rows.iter().map(|row| row.category.clone()).collect::<Vec<_>>();
        // Softmax is a part of attention, with the same time here: the order of the table decides.
        assert_eq!(names(&with), ["Attention Computation", "Softmax Operations", "Norms", "LM Head and Loss"]);
        assert!(with.iter().all(|row| row.effort == Level::Low && row.remedy.starts_with("--passes")), "{with:?}");
        assert!(without.iter().all(|row| !row.remedy.starts_with("--") && row.speedup_at_most.is_none()));
        assert_eq!(without[0].category, "Optimizer", "the longest of those without a flag");
        let ranks: Vec<u64> = with.iter().chain(&without).map(|row| row.priority_rank).collect();
        assert_eq!(ranks, (1..=9).collect::<Vec<u64>>());
    });
}
