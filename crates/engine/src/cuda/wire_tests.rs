//! Ops as NCCL calls, executed by a mock of the library on host memory: all ranks' calls together compute the op, and
//! nothing beyond a tensor is touched.

use super::*;
use headroom_graph::TensorType;
use headroom_graph::ops::collective::{AllGather, AllReduce, ReduceScatter, shard_type};

/// Memory of one rank, by address: four bytes of address per float, two per half.
#[derive(Clone)]
struct Memory {
    places: Vec<(u64, Vec<f64>, u64)>,
}

impl Memory {
    fn new() -> Memory {
        Memory { places: vec![] }
    }

    /// A tensor followed by guard space that nobody may touch.
    fn hold(&mut self, ty: &TensorType, data: Vec<f64>) -> Operand {
        let at = 0x1000 * (1 + self.places.len() as u64);
        let number = if ty.dtype == DType::Bf16 { 2 } else { 4 };
        self.places.push((at, data, number));
        Operand { at, ty: ty.clone(), pitch: ty.shape.row() }
    }

    fn slice(&mut self, at: u64, count: usize) -> &mut [f64] {
        let (start, data, bytes) =
            self.places.iter_mut().rev().find(|(start, ..)| *start <= at).expect("an address of a tensor");
        let first = ((at - *start) / *bytes) as usize;
        assert!(first + count <= data.len(), "{count} elements from {first} of {}", data.len());
        &mut data[first..first + count]
    }
}

/// Executes what all ranks queue; every rank's list has the same calls in the same order.
fn carried_out(ranks: &mut [Memory], lists: &[Vec<WireCall>]) {
    let size = ranks.len();
    for number in 0..lists[0].len() {
        let calls: Vec<WireCall> = lists.iter().map(|list| list[number]).collect();
        let summed = |ranks: &mut [Memory], of: &dyn Fn(&WireCall) -> (u64, usize)| -> Vec<f64> {
            let (_, count) = of(&calls[0]);
            let mut sum = vec![0.0; count];
            for (memory, call) in ranks.iter_mut().zip(&calls) {
                let (from, own) = of(call);
                assert_eq!(own, count, "all ranks send as much");
                memory.slice(from, count).iter().zip(&mut sum).for_each(|(x, sum)| *sum += x);
            }
            sum
        };
        match calls[0] {
            WireCall::AllReduce { sum, .. } => {
                let mut all = summed(ranks, &|call| match *call {
                    WireCall::AllReduce { from, count, .. } => (from, count),
                    _ => panic!("another call on another rank"),
                });
                if sum == Sum::Mean {
                    all.iter_mut().for_each(|x| *x /= size as f64);
                }
                for (memory, call) in ranks.iter_mut().zip(&calls) {
                    let WireCall::AllReduce { to, count, .. } = *call else { panic!() };
                    memory.slice(to, count).copy_from_slice(&all);
                }
            }
            WireCall::ReduceScatter { .. } => {
                let all = summed(ranks, &|call| match *call {
                    WireCall::ReduceScatter { from, count, .. } => (from, count * size),
                    _ => panic!("another call on another rank"),
                });
                for (rank, (memory, call)) in ranks.iter_mut().zip(&calls).enumerate() {
                    let WireCall::ReduceScatter { to, count, .. } = *call else { panic!() };
                    memory.slice(to, count).copy_from_slice(&all[rank * count..][..count]);
                }
            }
            WireCall::AllGather { count, .. } => {
                let shards: Vec<f64> = ranks
                    .iter_mut()
                    .zip(&calls)
                    .flat_map(|(memory, call)| match *call {
                        WireCall::AllGather { from, count, .. } => memory.slice(from, count).to_vec(),
                        _ => panic!("another call on another rank"),
                    })
                    .collect();
                for (memory, call) in ranks.iter_mut().zip(&calls) {
                    let WireCall::AllGather { to, .. } = *call else { panic!() };
                    memory.slice(to, count * size).copy_from_slice(&shards);
                }
            }
            WireCall::Reduce { root, .. } => {
                let all = summed(ranks, &|call| match *call {
                    WireCall::Reduce { from, count, root: own, .. } if own == root => (from, count),
                    _ => panic!("another call on another rank"),
                });
                let WireCall::Reduce { to, count, .. } = calls[root] else { panic!() };
                ranks[root].slice(to, count).copy_from_slice(&all);
            }
            WireCall::Broadcast { root, .. } => {
                let WireCall::Broadcast { from, count, .. } = calls[root] else { panic!() };
                let sent = ranks[root].slice(from, count).to_vec();
                for (memory, call) in ranks.iter_mut().zip(&calls) {
                    let WireCall::Broadcast { to, count, root: own, .. } = *call else { panic!() };
                    assert_eq!(own, root);
                    memory.slice(to, count).copy_from_slice(&sent);
                }
            }
        }
    }
}

/// Tensors that divide evenly and tensors that do not, in both number types.
fn types() -> Vec<TensorType> {
    let half = |ty: TensorType| TensorType { dtype: DType::Bf16, ..ty };
    vec![TensorType::f32(&[4, 6]), TensorType::f32(&[7]), half(TensorType::f32(&[5, 3])), TensorType::f32(&[1])]
}

fn value(rank: usize, tensor: usize, element: usize) -> f64 {
    (100 * rank + 10 * tensor + element) as f64
}

#[test]
fn gradients_are_summed_over_the_ranks_and_the_loss_is_their_mean() {
    for (size, mean, kept) in [(2, false, false), (3, true, false), (4, false, true)] {
        let kept = if kept { types().len() } else { 0 };
        let op: Op = AllReduce { ranks: size, mean, kept, later: false }.into();
        let (mut memories, mut lists, mut made) = (vec![], vec![], vec![]);
        for rank in 0..size {
            let mut memory = Memory::new();
            let fill = |tensor: usize, ty: &TensorType| (0..ty.elements()).map(|at| value(rank, tensor, at)).collect();
            let inputs: Vec<Operand> =
                types().iter().enumerate().map(|(tensor, ty)| memory.hold(ty, fill(tensor, ty))).collect();
            let outputs: Vec<Operand> = match kept {
                0 => types().iter().map(|ty| memory.hold(ty, vec![f64::NAN; ty.elements()])).collect(),
                _ => vec![],
            };
            lists.push(wire_calls(&op, &inputs, &outputs, rank));
            made.push(if kept > 0 { inputs } else { outputs });
            memories.push(memory);
        }
        assert_eq!(lists[0].len(), types().len(), "one call for each tensor");
        carried_out(&mut memories, &lists);
        for (memory, made) in memories.iter_mut().zip(&made) {
            for (tensor, operand) in made.iter().enumerate() {
                for (at, x) in memory.slice(operand.at, operand.ty.elements()).iter().enumerate() {
                    let sum: f64 = (0..size).map(|rank| value(rank, tensor, at)).sum();
                    assert_eq!(*x, if mean { sum / size as f64 } else { sum });
                }
            }
        }
    }
}

#[test]
fn shards_of_sums_put_together_are_the_sums() {
    for size in [2, 3, 4] {
        let scatter: Op = ReduceScatter { ranks: size, later: true }.into();
        let gather: Op = AllGather { ranks: size, tensors: types().len(), bf16_copies: 0 }.into();
        let (mut memories, mut scattered, mut gathered, mut whole) = (vec![], vec![], vec![], vec![]);
        for rank in 0..size {
            let mut memory = Memory::new();
            let fill = |tensor: usize, ty: &TensorType| (0..ty.elements()).map(|at| value(rank, tensor, at)).collect();
            let inputs: Vec<Operand> =
                types().iter().enumerate().map(|(tensor, ty)| memory.hold(ty, fill(tensor, ty))).collect();
            let shards: Vec<Operand> = types()
                .iter()
                .map(|ty| shard_type(ty, size))
                .map(|ty| memory.hold(&ty, vec![0.0; ty.elements()]))
                .collect();
            let all: Vec<Operand> = types().iter().map(|ty| memory.hold(ty, vec![f64::NAN; ty.elements()])).collect();
            scattered.push(wire_calls(&scatter, &inputs, &shards, rank));
            gathered.push(wire_calls(&gather, &[all.clone(), shards].concat(), &[], rank));
            whole.push(all);
            memories.push(memory);
        }
        carried_out(&mut memories, &scattered);
        carried_out(&mut memories, &gathered);
        for (memory, whole) in memories.iter_mut().zip(&whole) {
            for (tensor, operand) in whole.iter().enumerate() {
                for (at, x) in memory.slice(operand.at, operand.ty.elements()).iter().enumerate() {
                    assert_eq!(*x, (0..size).map(|rank| value(rank, tensor, at)).sum::<f64>(), "{size} ranks");
                }
            }
        }
        // A tensor that divides evenly takes one call; another takes one for each rank that has a part of it.
        let calls = |list: &[WireCall]| {
            let whole = |call: &WireCall| matches!(call, WireCall::ReduceScatter { .. } | WireCall::AllGather { .. });
            (list.iter().filter(|call| whole(call)).count(), list.len())
        };
        assert_eq!(calls(&scattered[0]), calls(&gathered[0]));
        assert_eq!(calls(&scattered[0]).0, types().iter().filter(|ty| ty.elements() % size == 0).count());
    }
}

#[test]
fn one_rank_alone_calls_nobody() {
    let mut memory = Memory::new();
    let ty = TensorType::f32(&[4]);
    let one = memory.hold(&ty, vec![1.0; 4]);
    let op: Op = AllReduce { ranks: 1, mean: false, kept: 0, later: false }.into();
    assert!(wire_calls(&op, std::slice::from_ref(&one), std::slice::from_ref(&one), 0).is_empty());
}

#[test]
fn ranks_without_nccl_or_on_one_gpu_are_told_by_number() {
    let words = |list: &[&str]| list.iter().map(|text| text.to_string()).collect::<Vec<_>>();
    assert_eq!(check_places(&words(&["ok\ta\t0000:1B:00.0", "ok\ta\t0000:1C:00.0", "ok\tb\t0000:1B:00.0"])), Ok(()));
    let same = check_places(&words(&["ok\ta\t0000:1B:00.0", "ok\tb\t0000:1B:00.0", "ok\ta\t0000:1B:00.0"]));
    assert_eq!(same, Err(NcclError::SameGpu { first: 0, second: 2, gpu: "0000:1B:00.0".into() }));
    let without = check_places(&words(&["ok\ta\t0", "no\tNCCL was not found"])).unwrap_err().to_string();
    assert_eq!(without, "rank 1 cannot take part: NCCL was not found");
}
