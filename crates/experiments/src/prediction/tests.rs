//! Predictions from synthetic times, with results worked out by hand.

use super::*;

fn program(text: &str) -> Program {
    Program::new(text.parse().unwrap())
}

const SEPARATE: &str = "\
input x: f32[4, 8]
input up: f32[4, 8]
%2: f32[4, 8] = silu(x) @ forward act
%3: f32[4, 8] = mul(%2, up) @ forward act
output y = %3
";
const FUSED: &str = "\
input x: f32[4, 8]
input up: f32[4, 8]
%2: f32[4, 8] = swiglu(x, up) @ forward act
output y = %2
";
const TWO_PRODUCTS: &str = "\
input x: f32[4, 8]
input a: f32[6, 8]
input b: f32[2, 8]
%3: f32[4, 6] = matmul{form=nt}(x, a) @ forward one
%4: f32[4, 2] = matmul{form=nt}(x, b) @ forward two
output y = %3
output z = %4
";
const ONE_PRODUCT: &str = "\
input x: f32[4, 8]
input a: f32[6, 8]
input b: f32[2, 8]
%3: f32[4, 6], %4: f32[4, 2] = linears(x, a, b) @ forward both
output y = %3
output z = %4
";

fn learned(text: &str, seconds: &[f64]) -> Calibration {
    let mut calibration = Calibration::default();
    calibration.learn(&program(text), seconds);
    calibration
}

fn predicted(calibration: &Calibration, text: &str) -> f64 {
    calibration.predict(&program(text)).seconds
}

#[test]
fn a_call_that_was_measured_is_predicted_to_take_as_long_again() {
    assert!((predicted(&learned(SEPARATE, &[3e-6, 5e-6]), SEPARATE) - 8e-6).abs() < 1e-12);
}

#[test]
fn a_fused_call_is_predicted_from_the_rates_of_what_it_replaces() {
    // Both run at 64 bytes per microsecond: 256 bytes in 4 µs, 384 bytes in 6 µs.
    let calibration = learned(SEPARATE, &[4e-6, 6e-6]);
    // Three tensors of 128 bytes at the same rate.
    assert!((predicted(&calibration, FUSED) - 6e-6).abs() < 1e-12);
}

#[test]
fn joined_products_take_as_long_as_the_same_ones_apart() {
    let calibration = learned(TWO_PRODUCTS, &[7e-6, 2e-6]);
    assert!((predicted(&calibration, ONE_PRODUCT) - 9e-6).abs() < 1e-12);
}

#[test]
fn a_probe_says_how_a_fused_kernel_compares_with_its_pieces() {
    let mut calibration = learned(TWO_PRODUCTS, &[7e-6, 2e-6]);
    let probe = learned(TWO_PRODUCTS, &[5e-6, 5e-6]);
    calibration.learn_factors(&probe, &program(ONE_PRODUCT), &[8e-6]);
    assert!((predicted(&calibration, ONE_PRODUCT) - 0.8 * 9e-6).abs() < 1e-12);
}

/// Predicted time in microseconds.
fn micros(calibration: &Calibration, text: &str) -> f64 {
    1e6 * predicted(calibration, text)
}

/// One product of `x` with a weight of this many rows: 64 FLOPs per row.
fn product(rows: usize) -> String {
    format!(
        "input x: f32[4, 8]\ninput w: f32[{rows}, 8]\n%2: f32[4, {rows}] = matmul{{form=nt}}(x, w) @ forward one\noutput y = %2\n"
    )
}

/// `silu` of this many rows, 64 bytes per row.
fn silu(rows: usize) -> String {
    format!("input x: f32[{rows}, 8]\n%1: f32[{rows}, 8] = silu(x) @ forward act\noutput y = %1\n")
}

fn near(found: f64, wanted: f64) {
    assert!((found - wanted).abs() < 1e-9 * wanted.abs().max(1.0), "{found} where {wanted} is wanted");
}

#[test]
fn the_best_time_of_a_call_counts_and_one_that_was_not_measured_does_not() {
    let mut calibration = learned(SEPARATE, &[4e-6, 6e-6]);
    calibration.learn(&program(SEPARATE), &[9e-6, 3e-6]);
    near(micros(&calibration, SEPARATE), 7.0);
    // Without a time of its own, `silu` moves its 256 bytes as fast as `mul` moves its 384.
    near(micros(&learned(SEPARATE, &[f64::NAN, 6e-6]), SEPARATE), 10.0);
    let both = calibration.predict(&program(SEPARATE));
    assert_eq!(both.by_op.keys().copied().collect::<Vec<_>>(), ["mul", "silu"]);
    near(1e6 * both.by_op["silu"], 4.0);
    near(1e6 * both.by_op["mul"], 3.0);
}

#[test]
fn operators_together_have_one_rate_and_each_kind_of_call_counts_once() {
    // 256 bytes in 4 µs and 384 in 12 µs: 40 bytes per µs.
    near(micros(&learned(SEPARATE, &[4e-6, 12e-6]), FUSED), 384.0 / 40.0);
    let add = "input x: f32[4, 8]\ninput z: f32[4, 8]\n%2: f32[4, 8] = add(x, z) @ forward sum\noutput y = %2\n";
    // Other operators do not count.
    let mut among_others = learned(SEPARATE, &[4e-6, 12e-6]);
    among_others.learn(&program(add), &[1e-6]);
    near(micros(&among_others, FUSED), 384.0 / 40.0);
    // Only one of them ran.
    near(micros(&learned(&silu(4), &[8e-6]), FUSED), 384.0 / 32.0);
    // Neither ran: use the rate of everything that ran. `add` moves 384 bytes.
    near(micros(&learned(add, &[3e-6]), FUSED), 3.0);
    // Two identical calls: the better one gives the rate, not their sum.
    let twice = "\
input x: f32[4, 8]
%1: f32[4, 8] = silu(x) @ forward act
%2: f32[4, 8] = silu(%1) @ forward act
output y = %2
";
    near(micros(&learned(twice, &[4e-6, 8e-6]), &silu(8)), 8.0);
    // From two programs: the rate of the later one counts, 512 bytes in 20 µs.
    let mut sizes = learned(&silu(4), &[4e-6]);
    sizes.learn(&program(&silu(8)), &[20e-6]);
    near(micros(&sizes, &silu(16)), 1024.0 / (512.0 / 20.0));
    let unequal = "\
input x: f32[4, 8]
input z: f32[8, 8]
%2: f32[4, 8] = silu(x) @ forward act
%3: f32[8, 8] = silu(z) @ forward act
output y = %2
output w = %3
";
    near(micros(&learned(unequal, &[4e-6, 20e-6]), &silu(16)), 1024.0 / (768.0 / 24.0));
}

#[test]
fn a_product_that_was_not_measured_has_the_rate_of_the_nearest() {
    // 384 FLOPs at 128 per µs, and 128 at 64 per µs.
    let calibration = learned(TWO_PRODUCTS, &[3e-6, 2e-6]);
    near(micros(&calibration, &product(5)), 320.0 / 128.0);
    near(micros(&calibration, &product(3)), 192.0 / 64.0);
    near(micros(&calibration, &product(1)), 64.0 / 64.0);
    near(micros(&calibration, &product(60)), 3840.0 / 128.0);
    // So do the products inside a fused call.
    let joined = ONE_PRODUCT.replace("f32[6, 8]", "f32[5, 8]").replace("f32[4, 6]", "f32[4, 5]");
    let joined = joined.replace("f32[2, 8]", "f32[3, 8]").replace("f32[4, 2]", "f32[4, 3]");
    near(micros(&calibration, &joined), 2.5 + 3.0);
}

#[test]
fn without_any_measurement_a_round_rate_is_assumed() {
    near(1e9 * predicted(&Calibration::default(), SEPARATE), 1e9 * 640.0 / 1e10);
    near(1e9 * predicted(&Calibration::default(), TWO_PRODUCTS), 1e9 * 512.0 / 1e11);
}

const ATTENTION: &str = "\
input q: f32[4, 8]
input k: f32[4, 8]
input v: f32[4, 8]
%3: f32[1, 2, 4, 4] = attention_scores{heads=2, kv_heads=2, seq=4, scale=0.5}(q, k) @ forward attention
%4: f32[1, 2, 4, 4] = causal_softmax(%3) @ forward attention
%5: f32[4, 8] = attention_mix{heads=2, kv_heads=2, seq=4, scale=1}(%4, v) @ forward attention
output y = %5
";
const FLASH: &str = "\
input q: f32[4, 8]
input k: f32[4, 8]
input v: f32[4, 8]
%3: f32[4, 8], %4: f32[1, 2, 4] = flash_attention{heads=2, kv_heads=2, seq=4, scale=0.5, rotation=before}(q, k, v) @ forward attention
output y = %3
";

#[test]
fn tiled_attention_works_at_the_rates_of_its_pieces() {
    // Two products of 256 FLOPs in 2 and 6 µs, and a softmax of 256 bytes in 4 µs. 20 pairs are visible: 320 FLOPs, 160
    // bytes.
    let calibration = learned(ATTENTION, &[2e-6, 4e-6, 6e-6]);
    near(micros(&calibration, FLASH), 320.0 / 64.0 + 160.0 / 64.0);
    let mut among_others = calibration.clone();
    among_others.learn(&program(TWO_PRODUCTS), &[1e-6, 1e-6]);
    among_others.learn(&program(SEPARATE), &[1e-6, 1e-6]);
    near(micros(&among_others, FLASH), 320.0 / 64.0 + 160.0 / 64.0);
    // Without them, use the rate of the nearest product and of all bytes: 448 bytes in 3 µs and 2 µs.
    let products = learned(TWO_PRODUCTS, &[3e-6, 2e-6]);
    let bytes: f64 = program(TWO_PRODUCTS).plan.calls.iter().map(|call| call.bytes as f64).sum();
    near(micros(&products, FLASH), 320.0 / 128.0 + 160.0 / (bytes / 5.0));
}

#[test]
fn a_factor_is_that_of_the_same_kind_of_call_and_else_of_its_name() {
    let three = "\
input x: f32[4, 8]
input a: f32[6, 8]
input b: f32[2, 8]
input c: f32[2, 8]
%4: f32[4, 6], %5: f32[4, 2], %6: f32[4, 2] = linears(x, a, b, c) @ forward three
output y = %4
output z = %5
output w = %6
";
    let one = "\
input x: f32[4, 8]
input b: f32[2, 8]
%2: f32[4, 2] = linears(x, b) @ forward one
output y = %2
";
    let apart = learned(TWO_PRODUCTS, &[7e-6, 2e-6]);
    let mut calibration = apart.clone();
    calibration.learn_factors(&apart, &program(ONE_PRODUCT), &[4.5e-6]);
    near(micros(&calibration, ONE_PRODUCT), 4.5);
    // Three products do not match the factor for two, so they use the one by name.
    near(micros(&calibration, three), 11.0 / 2.0);
    calibration.learn_factors(&apart, &program(three), &[22e-6]);
    near(micros(&calibration, three), 22.0);
    near(micros(&calibration, ONE_PRODUCT), 4.5);
    near(micros(&calibration, one), 2.0 * 2.0);
    // A call without a time, and one that is not fused, teach nothing.
    let mut untaught = apart.clone();
    untaught.learn_factors(&apart, &program(ONE_PRODUCT), &[f64::NAN]);
    untaught.learn_factors(&apart, &program(&silu(4)), &[1.0]);
    near(micros(&untaught, ONE_PRODUCT), 9.0);
    assert!(untaught.factors.is_empty());
}

#[test]
fn factors_of_one_kind_are_of_their_sums() {
    let both = "\
input x: f32[4, 8]
input a: f32[6, 8]
input b: f32[2, 8]
%3: f32[4, 6] = linears(x, a) @ forward one
%4: f32[4, 2] = linears(x, b) @ forward two
output y = %3
output z = %4
";
    let mut calibration = learned(TWO_PRODUCTS, &[7e-6, 2e-6]);
    let apart = calibration.clone();
    calibration.learn_factors(&apart, &program(both), &[7e-6, 11e-6]);
    near(micros(&calibration, both), 18.0);
    near(micros(&calibration, ONE_PRODUCT), 18.0);
}
