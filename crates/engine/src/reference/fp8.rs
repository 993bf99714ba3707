//! Reference: quantization to eight bits by trying every code, and the plain product of the decoded values.

use super::Tensor;
use headroom_graph::fp8::{Format, LARGEST, OUT_OF_RANGE, SATURATED, UNIT, UPDATES};
use headroom_graph::ops::fp8_product::{Fp8Product, Part};
use headroom_graph::ops::quantize::{Quantize, QuantizedCopies, QuantizedValues, Scaling, UpdateScales};

pub fn quantize(op: &Quantize, inputs: &mut [Tensor], outputs: &mut [Tensor]) {
    let matrix = made(op, op.sources(inputs));
    let slot = match op.scaling {
        Scaling::Delayed => &mut inputs[0].data,
        Scaling::Current => {
            let last = outputs.len() - 1;
            &mut outputs[last].data
        }
    };
    let all = || matrix.iter().flatten();
    let largest = match all().any(|x| x.is_nan()) {
        true => f64::NAN,
        false => all().fold(0.0f64, |most, x| most.max(x.abs())),
    };
    if slot[UNIT] == 0.0 {
        slot[UNIT] = unit_for(op.format, largest, op.margin);
    }
    slot[LARGEST] = if largest > slot[LARGEST] || largest.is_nan() { largest } else { slot[LARGEST] };
    let (unit, most) = (slot[UNIT], f64::from(op.format.largest()));
    slot[SATURATED] += all().filter(|x| x.abs() / unit > most).count() as f64;
    let codes: Vec<f64> = (0..=255).map(|code| f64::from(op.format.decode(code))).filter(|x| x.is_finite()).collect();
    let rounded: Vec<Vec<f64>> =
        matrix.iter().map(|row| row.iter().map(|x| nearest(op.format, &codes, x / unit)).collect()).collect();
    let plain = || rounded.iter().flatten().copied().collect::<Vec<f64>>();
    let transposed = || (0..rounded[0].len()).flat_map(|column| rounded.iter().map(move |row| row[column])).collect();
    match op.ways {
        QuantizedCopies::Plain => outputs[0].data = plain(),
        QuantizedCopies::Transposed => outputs[0].data = transposed(),
        QuantizedCopies::Both => (outputs[0].data, outputs[1].data) = (plain(), transposed()),
    }
}

/// The values to be quantized, row by row.
fn made(op: &Quantize, sources: &[Tensor]) -> Vec<Vec<f64>> {
    let rows: Vec<Vec<Vec<f64>>> = sources.iter().map(|one| one.rows().map(<[f64]>::to_vec).collect()).collect();
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match op.of {
        QuantizedValues::Rows => rows.concat(),
        QuantizedValues::Columns => {
            (0..rows[0].len()).map(|row| rows.iter().flat_map(|one| one[row].clone()).collect()).collect()
        }
        QuantizedValues::Norm => {
            let (weight, scales) = (&sources[1].data, &sources[2].data);
            let row = |(x, scale): (&Vec<f64>, &f64)| x.iter().zip(weight).map(|(x, w)| w * x * scale).collect();
            rows[0].iter().zip(scales).map(row).collect()
        }
        QuantizedValues::SwiGlu => {
            let pairs = rows[0].iter().zip(&rows[1]);
            pairs.map(|(gate, up)| gate.iter().zip(up).map(|(g, u)| g * sigmoid(*g) * u).collect()).collect()
        }
        QuantizedValues::SwiGluGrad => (0..rows[0].len())
            .map(|row| {
                let each = |of: &dyn Fn(f64, f64, f64) -> f64| -> Vec<f64> {
                    let columns = 0..rows[0][row].len();
                    columns.map(|column| of(rows[0][row][column], rows[1][row][column], rows[2][row][column])).collect()
                };
                let gates = each(&|g, u, d| d * u * sigmoid(g) * (1.0 + g * (1.0 - sigmoid(g))));
                [gates, each(&|g, _, d| d * g * sigmoid(g))].concat()
            })
            .collect(),
    }
}

/// The nearest number of a format; on a tie, the one with an even code.
fn nearest(format: Format, codes: &[f64], x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    let even = |candidate: f64| format.encode(candidate as f32) & 1 == 0;
    let apart = |candidate: f64| (candidate - x.clamp(-57344.0, 57344.0)).abs();
    codes.iter().copied().fold(0.0, |best, next| match apart(next).total_cmp(&apart(best)) {
        std::cmp::Ordering::Less => next,
        std::cmp::Ordering::Equal if even(next) && !even(best) => next,
        _ => best,
    })
}

fn unit_for(format: Format, largest: f64, margin: i32) -> f64 {
    if !largest.is_finite() || largest == 0.0 {
        return 1.0;
    }
    (largest / f64::from(format.largest())).log2().ceil().exp2() * f64::from(margin).exp2()
}

pub fn product(op: &Fp8Product, inputs: &[Tensor], outputs: &mut [Tensor]) {
    let alpha = inputs[2].data[UNIT] * inputs[3].data[UNIT];
    let whole: Vec<Vec<f64>> = inputs[0]
        .rows()
        .map(|a| inputs[1].rows().map(|b| alpha * a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>()).collect())
        .collect();
    let mut start = 0;
    for (&width, output) in op.widths.as_slice().iter().zip(outputs) {
        output.data = match op.part {
            Part::GradWeights => whole[start..start + width].concat(),
            _ => whole.iter().flat_map(|row| row[start..start + width].to_vec()).collect(),
        };
        start += width;
    }
}

pub fn update_scales(op: &UpdateScales, inputs: &mut [Tensor]) {
    const HISTORY: usize = 8;
    for slot in inputs.iter_mut().map(|input| &mut input.data) {
        let largest = std::mem::replace(&mut slot[LARGEST], 0.0);
        if slot[UNIT].is_nan() || largest == 0.0 {
            continue;
        }
        if !largest.is_finite() {
            slot[OUT_OF_RANGE] += 1.0;
            continue;
        }
        let place = HISTORY + slot[UPDATES] as usize % (slot.len() - HISTORY);
        slot[place] = largest;
        slot[UPDATES] += 1.0;
        slot[UNIT] = unit_for(op.format, slot[HISTORY..].iter().copied().fold(0.0, f64::max), op.margin);
    }
}
