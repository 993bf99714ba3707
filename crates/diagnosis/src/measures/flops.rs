//! FLOPs of operators from their shapes: GEMMs, convolutions and attention, forward and true backward. A multiply-add
//! counts as 2.

use hashbrown::HashMap;
use headroom_trace::{NONE, NameId};

use super::view::{View, shapes};

/// An operator's FLOPs and bytes moved, from its input shapes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    pub flops: f64,
    pub bytes: f64,
    pub precision: Precision,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    #[default]
    Fp32,
    /// bf16 or fp16.
    Half,
    Fp8,
    Int8,
    Fp64,
}

/// The operator whose FLOPs a device span computes: the innermost around its call that has any.
pub fn owner_of(view: &View, costs: &[Cost], at: usize) -> Option<usize> {
    let call = Some(view.call_of[at]).filter(|call| *call != NONE)?;
    view.ancestors(call as usize).find(|&outer| costs[outer].flops > 0.0)
}

/// The share of its operator's FLOPs that each span computes: an operator with several kernels (both gradients of a
/// convolution, a split GEMM) divides them by time. Spans without FLOPs are left out.
pub fn shares(view: &View, costs: &[Cost], spans: impl Iterator<Item = usize>) -> HashMap<usize, f64> {
    let duration = &view.trace.device.duration;
    let owned: Vec<(usize, usize)> =
        spans.filter_map(|at| owner_of(view, costs, at).map(|owner| (at, owner))).collect();
    let mut of_owner: HashMap<usize, i64> = HashMap::new();
    owned.iter().for_each(|&(at, owner)| *of_owner.entry(owner).or_default() += duration[at]);
    let share = |&(at, owner): &(usize, usize)| (at, duration[at] as f64 / of_owner[&owner].max(1) as f64);
    owned.iter().map(share).collect()
}

/// The cost of each host span; zero if it is unknown, or counted with an operator around it.
pub fn costs(view: &View) -> Vec<Cost> {
    let host = &view.trace.host;
    let counted: Vec<bool> = view.trace.names.iter().map(|(_, name)| kind(name).is_some()).collect();
    let mut known: HashMap<[NameId; 4], Cost> = HashMap::new();
    let mut costs = vec![Cost::default(); host.len()];
    for at in 0..host.len() {
        if let Some(stated) = view.trace.stated(at).filter(|stated| stated.flops > 0 || stated.bytes > 0) {
            let half = view.name(host.types[at]).contains("BFloat16");
            let precision = if half { Precision::Half } else { Precision::Fp32 };
            costs[at] = Cost { flops: stated.flops as f64, bytes: stated.bytes as f64, precision };
            continue;
        }
        if !view.is_operator(at) || !counted[host.name[at].index()] {
            continue;
        }
        // `aten::convolution` contains the library's own convolution: the outer one counts.
        if view.ancestors(at).skip(1).take(6).any(|outer| costs[outer].flops > 0.0) {
            continue;
        }
        let key = [host.name[at], host.dims[at], host.types[at], host.concrete[at]];
        costs[at] = *known.entry(key).or_insert_with(|| {
            let [name, dims, types, concrete] = key.map(|id| view.name(id));
            cost(name, dims, types, concrete).unwrap_or_default()
        });
    }
    costs
}

#[derive(Clone, Copy)]
enum Kind {
    /// `a · b`, with the indices of the operands among the inputs.
    Product(usize, usize),
    Convolution,
    ConvolutionBackward,
    Attention,
    AttentionBackward,
}

fn kind(name: &str) -> Option<Kind> {
    let name = name.strip_prefix("aten::")?;
    Some(match name {
        "mm" | "bmm" | "_scaled_mm" | "mv" | "_int_mm" | "mkldnn_linear" => Kind::Product(0, 1),
        "addmm" | "addmm_" | "baddbmm" | "baddbmm_" | "addbmm" | "_addmm_activation" | "addmv" => Kind::Product(1, 2),
        "convolution" | "_convolution" | "convolution_overrideable" => Kind::Convolution,
        "convolution_backward" => Kind::ConvolutionBackward,
        _ if name.contains("attention") && name.ends_with("backward") => Kind::AttentionBackward,
        _ if name.starts_with("_scaled_dot_product") || name.starts_with("_flash_attention") => Kind::Attention,
        _ if name.starts_with("_efficient_attention") => Kind::Attention,
        _ => return None,
    })
}

fn cost(name: &str, dims: &str, types: &str, concrete: &str) -> Option<Cost> {
    let shapes = shapes(dims);
    let kinds: Vec<String> = serde_json::from_str(types).unwrap_or_default();
    let concrete: Vec<String> = serde_json::from_str(concrete).unwrap_or_default();
    let main = match kind(name)? {
        Kind::Product(left, _) => left,
        _ => 0,
    };
    let element = kinds.get(main).map_or(4.0, |kind| element_bytes(kind));
    let read: f64 = shapes.iter().zip(&kinds).map(|(shape, kind)| count(shape) * element_bytes(kind)).sum();
    let (flops, written) = match kind(name)? {
        Kind::Product(left, right) => product(shapes.get(left)?, shapes.get(right)?)?,
        Kind::Convolution => convolution(shapes.first()?, shapes.get(1)?, &concrete)?,
        Kind::ConvolutionBackward => {
            let (grad, input, weight) = (shapes.first()?, shapes.get(1)?, shapes.get(2)?);
            // One convolution for each requested gradient.
            let mask =
                concrete.last().map_or(2, |mask| mask.split(',').take(2).filter(|part| part.contains("True")).count());
            let one = 2.0 * count(grad) * count(weight.get(1..)?);
            (one * mask as f64, count(input) + count(weight))
        }
        Kind::Attention => attention(shapes.first()?, shapes.get(1)?, shapes.get(2)?, &concrete)?,
        Kind::AttentionBackward => {
            // Four GEMMs (dv, dp, dq, dk) where forward has two; recomputed scores do not count as work of the model.
            let (flops, out) = attention(shapes.get(1)?, shapes.get(2)?, shapes.get(3)?, &concrete)?;
            (2.0 * flops, 3.0 * out)
        }
    };
    let precision = match kinds.get(main).map(String::as_str) {
        Some("c10::BFloat16" | "c10::Half") => Precision::Half,
        Some("double") => Precision::Fp64,
        Some("signed char" | "unsigned char") => Precision::Int8,
        Some(kind) if kind.starts_with("c10::Float8") => Precision::Fp8,
        _ => Precision::Fp32,
    };
    Some(Cost { flops, bytes: read + written * element, precision })
}

/// FLOPs and output elements of `[…, m, k] · […, k, n]`.
fn product(left: &[u64], right: &[u64]) -> Option<(f64, f64)> {
    let (rows, inner) = left.split_at(left.len().checked_sub(1)?);
    let columns = if right.len() < 2 { 1 } else { *right.last()? };
    let out = count(rows) * columns as f64;
    Some((2.0 * out * count(inner), out))
}

/// Input `[n, c_in, …]`, weight `[c_out, c_in / groups, …]`; stride, padding and dilation are among the concrete
/// inputs.
fn convolution(input: &[u64], weight: &[u64], concrete: &[String]) -> Option<(f64, f64)> {
    let list = |index: usize| -> Vec<u64> {
        concrete.get(index).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    };
    let (stride, padding, dilation) = (list(3), list(4), list(5));
    let at = |list: &[u64], axis: usize, default: u64| list.get(axis).or(list.last()).copied().unwrap_or(default);
    let transposed = concrete.get(6).is_some_and(|text| text == "True");
    if transposed {
        return Some((2.0 * count(input) * count(weight.get(1..)?), count(input)));
    }
    let mut out = *input.first()? as f64 * *weight.first()? as f64;
    for (axis, (size, kernel)) in input.get(2..)?.iter().zip(weight.get(2..)?).enumerate() {
        let reach = at(&dilation, axis, 1) * kernel.saturating_sub(1) + 1;
        let padded = size + 2 * at(&padding, axis, 0);
        out *= (padded.saturating_sub(reach) / at(&stride, axis, 1).max(1) + 1) as f64;
    }
    Some((2.0 * out * count(weight.get(1..)?), out))
}

/// Query `[b, h, s, d]`, key and value likewise; a causal mask reduces the scores to `s (s + 1) / 2`.
fn attention(query: &[u64], key: &[u64], value: &[u64], concrete: &[String]) -> Option<(f64, f64)> {
    let [.., queries, width] = *query else { return None };
    let keys = *key.get(key.len().checked_sub(2)?)?;
    let value_width = *value.last()?;
    let heads = count(&query[..query.len() - 2]);
    // The only other Booleans are "compute log-sumexp" and "return debug mask"; causal is the last that is True.
    let is_causal = concrete.iter().filter(|text| *text == "True").count() > 0
        && concrete.iter().rev().find(|text| *text == "True" || *text == "False").is_some_and(|text| text == "True")
        && queries == keys;
    let pairs = if is_causal { (queries * (queries + 1) / 2) as f64 } else { (queries * keys) as f64 };
    Some((2.0 * heads * pairs * (width + value_width) as f64, heads * (queries * value_width) as f64))
}

fn count(sizes: &[u64]) -> f64 {
    sizes.iter().map(|size| *size as f64).product()
}

/// Bytes per element, by torch's name for its type.
pub fn element_bytes(kind: &str) -> f64 {
    match kind {
        "double" | "long int" | "long" | "c10::complex<float>" => 8.0,
        "float" | "int" => 4.0,
        "c10::BFloat16" | "c10::Half" | "short int" | "short" => 2.0,
        "bool" | "unsigned char" | "signed char" => 1.0,
        kind if kind.starts_with("c10::Float8") => 1.0,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, dims: &str, types: &str, concrete: &str, want: f64) {
        let found = cost(name, dims, types, concrete).map(|cost| cost.flops);
        assert_eq!(found, Some(want), "{name} {dims}");
    }

    #[test]
    fn several_kernels_of_one_operator_share_its_flops_out_by_their_time() {
        let mut made = crate::fabricated::Fabricated::on("NVIDIA H200");
        made.step(1, 0, 1_000_000);
        made.shaped("aten::mm", 10_000, 90_000, "[[64,64],[64,64]]", "float");
        made.launch((20_000, 25_000), "gemm", (100_000, 130_000));
        made.launch((30_000, 35_000), "splitKreduce", (130_000, 140_000));
        made.launch((95_000, 99_000), "copy", (140_000, 150_000));
        let trace = made.trace();
        let view = View::new(&trace);
        let shares = shares(&view, &costs(&view), 0..3);
        assert_eq!((shares.get(&0), shares.get(&1), shares.get(&2)), (Some(&0.75), Some(&0.25), None));
    }

    #[test]
    fn products_count_two_a_multiply_add() {
        check("aten::mm", "[[3, 4], [4, 5]]", r#"["float", "float"]"#, "", 120.0);
        check("aten::addmm", "[[5], [3, 4], [4, 5]]", r#"["float", "float", "float"]"#, "", 120.0);
        check("aten::bmm", "[[2, 3, 4], [2, 4, 5]]", r#"["float", "float"]"#, "", 240.0);
        let half = cost("aten::mm", "[[3, 4], [4, 5]]", r#"["c10::BFloat16", "c10::BFloat16"]"#, "");
        assert_eq!(half, Some(Cost { flops: 120.0, bytes: (12 + 20 + 15) as f64 * 2.0, precision: Precision::Half }));
    }

    #[test]
    fn products_of_eight_bits_have_their_own_precision() {
        let of = |name: &str, kind: &str| {
            let cost = cost(name, "[[3, 4], [4, 5]]", &format!(r#"["{kind}", "{kind}"]"#), "").expect("has a cost");
            (cost.precision, cost.bytes)
        };
        assert_eq!(of("aten::_scaled_mm", "c10::Float8_e4m3fn"), (Precision::Fp8, 47.0));
        assert_eq!(of("aten::_scaled_mm", "c10::Float8_e4m3fnuz"), (Precision::Fp8, 47.0));
        assert_eq!(of("aten::_int_mm", "signed char"), (Precision::Int8, 47.0));
    }

    #[test]
    fn convolutions_follow_stride_padding_and_groups() {
        // Output 8×8×4×4 from 3 channels with a 3×3 window.
        let concrete = r#"["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]"#;
        let want = 2.0 * (8 * 8 * 4 * 4) as f64 * 27.0;
        check("aten::convolution", "[[8, 3, 8, 8], [8, 3, 3, 3], []]", r#"["float", "float", ""]"#, concrete, want);
        let mask = r#"["", "", "", "", "[1, 1]", "[True, True, False]"]"#;
        let dims = "[[8, 8, 4, 4], [8, 3, 8, 8], [8, 3, 3, 3]]";
        check("aten::convolution_backward", dims, r#"["float", "float", "float"]"#, mask, 2.0 * want);
        let mask = r#"["", "", "", "", "[1, 1]", "[False, True, False]"]"#;
        check("aten::convolution_backward", dims, r#"["float", "float", "float"]"#, mask, want);
    }

    #[test]
    fn attention_is_halved_by_causality_and_doubled_backward() {
        let dims = "[[2, 8, 128, 32], [2, 8, 128, 32], [2, 8, 128, 32], []]";
        let types = r#"["float", "float", "float", ""]"#;
        let full = 2.0 * 16.0 * (128 * 128) as f64 * 64.0;
        let name = "aten::_scaled_dot_product_efficient_attention";
        check(name, dims, types, r#"["", "", "", "", "True", "0.", "False", ""]"#, full);
        let causal = 2.0 * 16.0 * (128 * 129 / 2) as f64 * 64.0;
        check(name, dims, types, r#"["", "", "", "", "True", "0.", "True", ""]"#, causal);
        let dims = "[[2, 8, 128, 32], [2, 8, 128, 32], [2, 8, 128, 32], [2, 8, 128, 32], []]";
        let backward = "aten::_scaled_dot_product_efficient_attention_backward";
        check(backward, dims, types, r#"["", "", "", "", "", "False"]"#, 2.0 * full);
    }

    #[test]
    fn shapes_that_cannot_be_read_cost_nothing() {
        for dims in ["", "[]", "[[]]", "[[3]]", "nonsense", "[[[1, 2]], 5]"] {
            assert!(cost("aten::mm", dims, "[]", "").is_none_or(|cost| cost.flops.is_finite()), "{dims}");
        }
    }
}
