//! This rank's end of the wire between GPUs: the plan's collectives as NCCL calls on their own stream, and a watch that
//! aborts them if another rank has gone or makes no progress.
//!
//! The calls of one collective are queued as a group, so that NCCL launches them together. Sums are NCCL's, by its ring
//! unless another algorithm is requested: the same bytes for the same ranks on the same machines.

use super::Prepared;
use super::driver::{Context, Event, Stream, Urgency, cu};
use super::error::CudaError;
use super::lower::Operand;
use super::nccl::{Comm, Nccl, Number, Sum, UniqueId, WireCall};
use super::nccl_error::NcclError;
use super::watch::Watch;
use crate::device::Program;
use crate::ranks::Ranks;
use headroom_graph::ops::collective::shard_elements;
use headroom_graph::{DType, Node, Op};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

/// A collective that is ready to run.
pub enum PreparedCollective {
    Exchange {
        calls: Vec<WireCall>,
        later: bool,
        /// Recorded when its inputs are ready, and when its results are.
        ready: Event,
        done: Event,
    },
    /// Waits for the exchange started by this call.
    Arrival { of: usize },
}

impl PreparedCollective {
    /// Returns `None` if the call does not involve other ranks.
    pub fn of(
        nodes: &[Node],
        node: &Node,
        (inputs, outputs): (&[Operand], &[Operand]),
        rank: usize,
    ) -> Result<Option<PreparedCollective>, CudaError> {
        let later = match node.op {
            Op::Arrive(_) => return Ok(arrival(nodes, node)),
            Op::AllReduce(op) => op.later,
            Op::ReduceScatter(op) => op.later,
            _ => false,
        };
        let calls = wire_calls(&node.op, inputs, outputs, rank);
        if calls.is_empty() {
            return Ok(None);
        }
        Ok(Some(PreparedCollective::Exchange { calls, later, ready: Event::untimed()?, done: Event::untimed()? }))
    }
}

fn arrival(nodes: &[Node], node: &Node) -> Option<PreparedCollective> {
    let made = *node.inputs.get(node.inputs.len() / 2)?;
    let of = nodes.iter().position(|other| other.outputs.contains(&made))?;
    (ranks_of(&nodes[of].op) > 1).then_some(PreparedCollective::Arrival { of })
}

/// Number of ranks that take part in an op.
pub fn ranks_of(op: &Op) -> usize {
    match op {
        Op::AllReduce(op) => op.ranks,
        Op::ReduceScatter(op) => op.ranks,
        Op::AllGather(op) => op.ranks,
        _ => 1,
    }
}

/// Number of ranks that the programs are built for.
pub fn ranks_of_programs(programs: &[Program]) -> usize {
    programs.iter().flat_map(|program| program.graph.nodes()).map(|node| ranks_of(&node.op)).max().unwrap_or(1)
}

/// The calls by which this rank takes part in an op. A tensor that does not divide into equal shards is sent in pieces:
/// NCCL's own calls would read and write beyond its end.
pub fn wire_calls(op: &Op, inputs: &[Operand], outputs: &[Operand], rank: usize) -> Vec<WireCall> {
    let number = |operand: &Operand| if operand.ty.dtype == DType::Bf16 { Number::Bf16 } else { Number::F32 };
    match op {
        Op::AllReduce(op) if op.ranks > 1 => {
            let to = if op.kept > 0 { inputs } else { outputs };
            let sum = if op.mean { Sum::Mean } else { Sum::Plain };
            let call = |(from, to): (&Operand, &Operand)| WireCall::AllReduce {
                from: from.at,
                to: to.at,
                count: from.ty.elements(),
                number: number(from),
                sum,
            };
            inputs.iter().zip(to).map(call).collect()
        }
        Op::ReduceScatter(op) if op.ranks > 1 => {
            let calls = inputs.iter().zip(outputs).flat_map(|(from, to)| {
                let number = number(from);
                match from.ty.elements().is_multiple_of(op.ranks) {
                    true => {
                        let count = from.ty.elements() / op.ranks;
                        vec![WireCall::ReduceScatter { from: from.at, to: to.at, count, number }]
                    }
                    false => pieces(from, op.ranks)
                        .map(|(root, first, count)| WireCall::Reduce {
                            from: from.at + first as u64 * number.bytes(),
                            // Only the root writes to its output.
                            to: if root == rank { to.at } else { from.at },
                            count,
                            number,
                            root,
                        })
                        .collect(),
                }
            });
            calls.collect()
        }
        Op::AllGather(op) if op.ranks > 1 => {
            let (whole, shards) = inputs[..2 * op.tensors].split_at(op.tensors);
            let calls = whole.iter().zip(shards).flat_map(|(whole, shard)| {
                let number = number(whole);
                match whole.ty.elements().is_multiple_of(op.ranks) {
                    true => {
                        let count = whole.ty.elements() / op.ranks;
                        vec![WireCall::AllGather { from: shard.at, to: whole.at, count, number }]
                    }
                    false => pieces(whole, op.ranks)
                        .map(|(root, first, count)| WireCall::Broadcast {
                            from: shard.at,
                            to: whole.at + first as u64 * number.bytes(),
                            count,
                            number,
                            root,
                        })
                        .collect(),
                }
            });
            calls.collect()
        }
        _ => vec![],
    }
}

/// Every rank's part of a tensor: the rank, the first element, and the count.
fn pieces(whole: &Operand, ranks: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let (elements, each) = (whole.ty.elements(), shard_elements(whole.ty.elements(), ranks));
    (0..ranks)
        .map(move |rank| (rank, rank * each, elements.saturating_sub(rank * each).min(each)))
        .filter(|piece| piece.2 > 0)
}

/// The communicator of all ranks, on this rank.
pub struct Wire {
    nccl: Arc<Nccl>,
    comm: Comm,
    stream: Stream,
    watch: Watch,
    ranks: Arc<Ranks>,
}

/// Fixes the order of sums over ranks: the ring's.
const ALGORITHM: (&str, &str) = ("NCCL_ALGO", "Ring");

impl Wire {
    /// Joins the other ranks. All ranks must call this together.
    pub fn join(context: &Context, ranks: &Arc<Ranks>, fixed_order: bool) -> Result<Wire, CudaError> {
        if fixed_order && std::env::var_os(ALGORITHM.0).is_none() {
            // SAFETY: no other thread of this process reads the environment yet: the CLI's listen for signals, and
            // MPI's thread waits for jobs.
            unsafe { std::env::set_var(ALGORITHM.0, ALGORITHM.1) };
        }
        let opened = Nccl::open();
        let host = std::env::var("NCCL_HOSTID").unwrap_or_else(|_| host_name());
        // Each rank reports a failure, or the location of its GPU.
        let mine = match &opened {
            Ok(_) => format!("ok\t{host}\t{}", context.bus),
            Err(error) => format!("no\t{error}"),
        };
        let said: Vec<String> = gathered(ranks, mine.as_bytes())?;
        let nccl = Arc::new(opened.map_err(CudaError::from)?);
        check_places(&said)?;
        let mine = if ranks.rank() == 0 { nccl.unique_id()?.0.to_vec() } else { vec![] };
        let said = ranks.gather(&mine).map_err(NcclError::from)?;
        let Ok(id) = <[u8; 128]>::try_from(&said[0][..]) else {
            return Err(NcclError::NotReady { rank: 0, why: "it has no id of NCCL's".into() }.into());
        };
        let comm = joined(&nccl, UniqueId(id), ranks)?;
        let watch = Watch::start(Arc::clone(&nccl), comm, Arc::clone(ranks));
        Ok(Wire { nccl, comm, stream: Stream::with(Urgency::First)?, watch, ranks: Arc::clone(ranks) })
    }

    /// Reports progress to the other ranks.
    pub fn called(&self) {
        self.ranks.called();
    }

    pub fn version(&self) -> String {
        self.nccl.version().unwrap_or_default()
    }

    /// Runs work that may take as long as another rank takes; an error if that rank was given up.
    pub fn patiently<T>(&self, work: impl FnOnce() -> Result<T, CudaError>) -> Result<T, CudaError> {
        match self.watch.around(work) {
            Ok(done) => done,
            Err(error @ NcclError::Ranks(_)) => Err(error.into()),
            Err(error) => {
                // The ranks that are still there answer, which identifies the missing ones.
                let named = self.ranks.gather(&[]).err();
                Err(named.map_or(error, NcclError::from).into())
            }
        }
    }

    /// Makes these calls together with the other ranks, and waits until they are done.
    pub fn exchanged(&self, calls: &[WireCall]) -> Result<(), CudaError> {
        self.patiently(|| {
            // SAFETY: the watch keeps the handle alive while this thread works; operands live until the stream was
            // waited for.
            unsafe { self.nccl.queue(self.comm, calls, self.stream.0.cast()) }?;
            self.stream.wait()
        })
    }

    /// Takes part in a collective: starts it after the work queued on `main`, and makes `main` wait for it.
    pub fn run(&self, calls: &[Prepared], call: usize, main: &Stream) -> Result<(), CudaError> {
        let started = calls;
        match &calls[call].together {
            Some(PreparedCollective::Exchange { calls, later, ready, done }) => {
                ready.record(main)?;
                self.stream.wait_for(ready)?;
                // SAFETY: the watch keeps the handle alive while this thread works; the plan keeps every operand in
                // place until the exchange was waited for.
                unsafe { self.nccl.queue(self.comm, calls, self.stream.0.cast()) }?;
                done.record(&self.stream)?;
                if !later {
                    main.wait_for(done)?;
                }
            }
            Some(PreparedCollective::Arrival { of }) => {
                if let Some(PreparedCollective::Exchange { done, .. }) = &started[*of].together {
                    main.wait_for(done)?;
                }
            }
            None => {}
        }
        Ok(())
    }
}

impl Drop for Wire {
    /// With nothing in flight, the handle is left until the process ends: other ranks may still be receiving from this
    /// one. Otherwise the work in flight is aborted, because its memory is about to be freed.
    fn drop(&mut self) {
        if self.stream.is_idle() {
            self.watch.leave();
        } else {
            self.watch.abort();
        }
    }
}

fn gathered(ranks: &Ranks, mine: &[u8]) -> Result<Vec<String>, CudaError> {
    let said = ranks.gather(mine).map_err(NcclError::from)?;
    Ok(said.into_iter().map(|words| String::from_utf8_lossy(&words).into_owned()).collect())
}

/// Checks that every rank has NCCL and a GPU of its own.
fn check_places(said: &[String]) -> Result<(), NcclError> {
    for (rank, words) in said.iter().enumerate() {
        if let Some(why) = words.strip_prefix("no\t") {
            return Err(NcclError::NotReady { rank, why: why.into() });
        }
        if let Some(first) = said[..rank].iter().position(|other| other == words) {
            let gpu = words.rsplit('\t').next().unwrap_or("").into();
            return Err(NcclError::SameGpu { first, second: rank, gpu });
        }
    }
    Ok(())
}

/// A handle that moves between threads.
struct Carried(Comm);

// SAFETY: NCCL's handles may be used by any thread, one at a time.
unsafe impl Send for Carried {}

/// Joins in a separate thread, so that a rank which never comes is waited for no longer than the patience.
fn joined(nccl: &Arc<Nccl>, id: UniqueId, ranks: &Ranks) -> Result<Comm, CudaError> {
    let mut context = std::ptr::null_mut();
    cu!(cuCtxGetCurrent(&mut context))?;
    let (context, own) = (context as usize, Arc::clone(nccl));
    let (tell, told) = sync_channel(1);
    let (rank, size) = (ranks.rank(), ranks.size());
    let join = move || {
        let current = cu!(cuCtxSetCurrent(context as *mut _));
        let joined = current.and_then(|()| Ok(Carried(own.init(id, rank, size)?)));
        let _ = tell.send(joined);
    };
    let thread = thread::Builder::new().name("nccl".into()).spawn(join);
    thread.map_err(|error| NcclError::NotReady { rank, why: error.to_string() })?;
    match told.recv_timeout(ranks.patience()) {
        Ok(joined) => Ok(joined?.0),
        Err(_) => Err(NcclError::NotJoined { seconds: ranks.patience().as_secs_f64() }.into()),
    }
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().into()
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
