//! Gradients of one result requested in several passes (one per input), each leaving a graph to be differentiated.

use hashbrown::{HashMap, HashSet};
use headroom_trace::{NONE, NameId, TrackId};

use crate::measures::view::{View, is_backward_node};

type Id = (u32, NameId);

/// Nodes that a single pass for all inputs would not visit again. These are all nodes of a pass that begins where an
/// earlier one of the step began, and, if a later pass differentiates what several of them left, all but the first.
/// `nodes` are the numbered nodes of each thread and step, in order.
pub fn repeated_backward(view: &View, nodes: &HashMap<(TrackId, usize), Vec<usize>>) -> Vec<usize> {
    let Some((caller, calls)) = caller(view) else { return Vec::new() };
    let mut again = Vec::new();
    for (_, nodes) in nodes.iter().filter(|((track, _), _)| *track != caller) {
        of_one_step(view, &passes(view, nodes, &calls), &mut again);
    }
    again
}

fn of_one_step(view: &View, passes: &[Vec<usize>], again: &mut Vec<usize>) {
    let id = |at: usize| -> Id { (view.trace.host.sequence[at], view.trace.host.name[at]) };
    // For each first node, the first pass that began there; for each number that a later pass left, the one that the
    // first pass left.
    let mut began: HashMap<Id, HashMap<Id, usize>> = HashMap::new();
    let mut first_left: HashMap<u32, u32> = HashMap::new();
    for pass in passes {
        let all: HashSet<Id> = pass.iter().map(|&at| id(at)).collect();
        let earlier = pass.first().and_then(|&first| began.get(&id(first)));
        for &at in pass {
            let (number, name) = id(at);
            let left = numbers_to_differentiate(view, at);
            let before = earlier.and_then(|earlier| earlier.get(&(number, name)));
            let left_before = before.map(|&before| numbers_to_differentiate(view, before)).unwrap_or_default();
            if !left.is_empty() && left.len() == left_before.len() {
                first_left.extend(left.into_iter().zip(left_before));
                again.push(at);
            } else if first_left.get(&number).is_some_and(|&first| first != number && all.contains(&(first, name))) {
                again.push(at);
            }
        }
        if let (Some(&first), None) = (pass.first(), earlier) {
            began.insert(id(first), pass.iter().map(|&at| (id(at), at)).collect());
        }
    }
}

/// Numbers of the operators within a node whose results will be differentiated.
pub fn numbers_to_differentiate(view: &View, node: usize) -> Vec<u32> {
    let host = &view.trace.host;
    let is_numbered =
        |&at: &usize| view.is_operator(at) && host.sequence[at] != NONE && host.sequence[at] != host.sequence[node];
    view.within(node).skip(1).filter(is_numbered).map(|at| host.sequence[at]).collect()
}

/// Splits nodes into passes: while a pass runs, its caller waits, and no node runs twice.
fn passes(view: &View, nodes: &[usize], calls: &[i64]) -> Vec<Vec<usize>> {
    let host = &view.trace.host;
    let called_before = |at: usize| calls.partition_point(|&start| start < host.start[at]);
    let mut passes: Vec<Vec<usize>> = Vec::new();
    let (mut met, mut called) = (HashSet::new(), usize::MAX);
    for &at in nodes {
        let is_new = met.insert((host.sequence[at], host.name[at]));
        match passes.last_mut() {
            Some(pass) if is_new && called == called_before(at) => pass.push(at),
            _ => {
                met = HashSet::from([(host.sequence[at], host.name[at])]);
                called = called_before(at);
                passes.push(vec![at]);
            }
        }
    }
    passes
}

/// The thread of the forward pass, and when it called operators.
fn caller(view: &View) -> Option<(TrackId, Vec<i64>)> {
    let host = &view.trace.host;
    let is_node = |at: usize| is_backward_node(view.host_name(at));
    let mut numbered: HashMap<TrackId, usize> = HashMap::new();
    let operators = || (0..host.len()).filter(|&at| view.is_operator(at));
    for at in operators().filter(|&at| host.sequence[at] != NONE && !view.ancestors(at).any(is_node)) {
        *numbered.entry(host.track[at]).or_default() += 1;
    }
    let (&track, _) = numbered.iter().max_by_key(|(_, count)| **count)?;
    let mut starts: Vec<i64> = operators().filter(|&at| host.track[at] == track).map(|at| host.start[at]).collect();
    starts.sort_unstable();
    Some((track, starts))
}
