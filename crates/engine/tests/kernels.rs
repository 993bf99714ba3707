//! Checks every backend's kernel of every op against the reference, at every instruction-set level and for several
//! thread counts, whose results must have the same bytes. A new op is covered through its examples.

use headroom_engine::cpu::isa::Isa;
use headroom_engine::cpu::{Cpu, Reductions};
use headroom_engine::examples as fill;
use headroom_engine::reference::{self, Tensor};
use headroom_engine::{Device, Program};
use headroom_graph::op::{Example, Fill, Op};
use headroom_graph::ops::flash_attention::{FlashAttention, FlashAttentionGrad, Rotation};
use headroom_graph::{Category, DType, Graph, TensorType, ValueId};

#[test]
fn every_cpu_kernel_agrees_with_the_reference() {
    for example in Op::examples() {
        let want = expected(&example);
        for isa in Isa::available() {
            let alone = on_cpu(&example, isa, 1);
            assert_close(&example, isa, &want, &alone);
            for threads in [2, 5] {
                let together = on_cpu(&example, isa, threads);
                let same =
                    alone.iter().flatten().map(|x| x.to_bits()).eq(together.iter().flatten().map(|x| x.to_bits()));
                assert!(same, "{} at {isa} gives other bytes on {threads} threads", example.op.name());
            }
        }
    }
}

/// Long enough that keys are processed in several blocks and ranges, which threads share.
#[test]
fn attention_of_a_long_sequence_agrees_with_the_reference() {
    let (seq, heads, kv_heads, hd) = (1700, 2, 1, 8);
    let q = (TensorType::f32(&[seq, heads * hd]), Fill::Normal);
    let k = (TensorType::f32(&[seq, kv_heads * hd]), Fill::Normal);
    let lse = (TensorType::f32(&[1, heads, seq]), Fill::Constant(4.0));
    let tables = vec![(TensorType::f32(&[seq, hd / 2]), Fill::Normal); 2];
    let rotation = Rotation::Inside;
    let forward = Example {
        op: FlashAttention { heads, kv_heads, seq, scale: 0.3, rotation }.into(),
        inputs: [vec![q.clone(), k.clone(), k.clone()], tables.clone()].concat(),
    };
    let backward = Example {
        op: FlashAttentionGrad { heads, kv_heads, seq, scale: 0.1, rotation }.into(),
        inputs: [vec![q.clone(), k.clone(), k, q.clone(), lse, q], tables].concat(),
    };
    for example in [forward, backward] {
        let want = expected(&example);
        for isa in Isa::available() {
            let alone = on_cpu(&example, isa, 1);
            assert_close(&example, isa, &want, &alone);
            for threads in [2, 5] {
                assert!(alone == on_cpu(&example, isa, threads), "other bytes on {threads} threads at {isa}");
            }
        }
    }
}

#[test]
fn a_nan_in_an_input_reaches_an_output() {
    // A parameter with rates of zero is not updated, and nothing of it is read.
    let stands_still =
        |example: &Example| example.inputs.iter().any(|input| *input == (TensorType::f32(&[3]), Fill::Constant(0.0)));
    let swallows_nothing =
        |example: &Example| !matches!(example.op, Op::Zero(_) | Op::Arrive(_)) && !stands_still(example);
    for example in Op::examples().into_iter().filter(swallows_nothing) {
        for isa in Isa::available() {
            // Muon's momentum uses the rates only to decide whether the parameter is updated.
            let asks = |index: usize| matches!(example.op, Op::MuonMomentum(_)) && index == 2;
            let floats = example.inputs.iter().enumerate().filter(|(_, (ty, _))| ty.dtype.is_float());
            // A gathered tensor is written, not read.
            let is_written = |index: usize| matches!(example.op, Op::AllGather(op) if index < op.tensors);
            let floats = floats.filter(|(index, _)| !asks(*index) && !is_written(*index));
            for (index, _) in floats {
                let mut inputs = fill::inputs(&example);
                inputs[index].data[0] = f64::NAN;
                let made = run(&example, &inputs, isa, 2);
                let name = example.op.name();
                assert!(made.iter().flatten().any(|x| x.is_nan()), "{name} at {isa} swallows a NaN in input {index}");
            }
        }
    }
}

fn expected(example: &Example) -> Vec<Tensor> {
    let mut inputs = fill::inputs(example);
    let types: Vec<_> = inputs.iter().map(|input| input.ty.clone()).collect();
    let mut outputs: Vec<Tensor> = example.op.outputs(&types).unwrap().iter().map(Tensor::zeros).collect();
    reference::run(&example.op, &mut inputs, &mut outputs);
    let updated = example.op.updates().into_iter().map(|index| inputs[index].clone());
    outputs.into_iter().chain(updated).collect()
}

fn on_cpu(example: &Example, isa: Isa, threads: usize) -> Vec<Vec<f32>> {
    run(example, &fill::inputs(example), isa, threads)
}

/// Returns the outputs, then the updated inputs.
fn run(example: &Example, inputs: &[Tensor], isa: Isa, threads: usize) -> Vec<Vec<f32>> {
    let mut graph = Graph::new();
    let values: Vec<ValueId> = inputs
        .iter()
        .enumerate()
        .map(|(index, input)| match example.op.updates().contains(&index) {
            true => graph.state(&format!("kept{index}"), input.ty.clone(), Category::OptimizerState),
            false => graph.input(&format!("input{index}"), input.ty.clone()),
        })
        .collect();
    let mut results = graph.add(example.op, &values).unwrap();
    for (index, &result) in results.iter().enumerate() {
        graph.output(&format!("output{index}"), result);
    }
    results.extend(example.op.updates().into_iter().map(|index| values[index]));
    let program = Program::new(graph);
    let sizes: Vec<usize> = results.iter().map(|id| program.graph.ty(*id).elements()).collect();
    let calls = 0..program.plan.calls.len();
    let mut cpu = Cpu::new(threads, isa, Reductions::Fixed, &[program]).unwrap();
    for (&value, input) in values.iter().zip(inputs) {
        match input.ty.dtype {
            DType::I32 => cpu.write_i32(0, value, 0, &input.data.iter().map(|x| *x as i32).collect::<Vec<_>>()),
            _ => cpu.write_f32(0, value, 0, &input.data.iter().map(|x| *x as f32).collect::<Vec<_>>()),
        }
    }
    cpu.run(0, calls);
    let read = |(id, size): (&ValueId, usize)| {
        let mut data = vec![0.0; size];
        cpu.read_f32(0, *id, 0, &mut data);
        data
    };
    results.iter().zip(sizes).map(read).collect()
}

fn assert_close(example: &Example, isa: Isa, want: &[Tensor], have: &[Vec<f32>]) {
    for (index, (want, have)) in want.iter().zip(have).enumerate() {
        let scale = want.data.iter().fold(0.0f64, |top, x| top.max(x.abs())).max(1e-3);
        let worst = want.data.iter().zip(have).map(|(a, b)| (a - f64::from(*b)).abs()).fold(0.0, f64::max);
        let name = example.op.name();
        assert!(worst <= 2e-6 * scale, "{name} at {isa}: output {index} is off by {worst:e} of {scale:e}");
    }
}
