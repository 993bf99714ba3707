//! Detects whether a round through all functions learned anything new.

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

use crate::program::{FunctionFacts, Loader, Program};
use crate::value::Value;

/// A digest of everything that one round leaves for the next: two rounds with equal digests read the same values.
pub fn digest(program: &Program) -> u64 {
    let mut state = FxHasher::default();
    for facts in &program.functions {
        digest_function(facts, &mut state);
    }
    for class in &program.sources.classes {
        unordered(&class.attributes).hash(&mut state);
    }
    for loader in &program.constructed.loaders {
        digest_loader(loader, &mut state);
    }
    program.constructed.sites.len().hash(&mut state);
    unordered(&program.constructed.alike).hash(&mut state);
    state.finish()
}

fn digest_function(facts: &FunctionFacts, state: &mut FxHasher) {
    facts.returns.hash(state);
    for names in [&facts.passed, &facts.locals] {
        unordered(names).hash(state);
    }
    (facts.is_called, facts.is_handed_over, facts.kind, facts.trained.len()).hash(state);
    unordered(&facts.loaders).hash(state);
}

fn digest_loader(loader: &Loader, state: &mut FxHasher) {
    let options: [&Option<Value>; 4] = [&loader.workers, &loader.pin_memory, &loader.persistent, &loader.batch_size];
    (options, &loader.dataset, &loader.collate, loader.has_unknown_keywords).hash(state);
}

/// Sums the digests of a map's entries, since maps have no stable order.
fn unordered<K: Hash, V: Hash>(map: &FxHashMap<K, V>) -> u64 {
    map.iter().fold(map.len() as u64, |sum, entry| {
        let mut state = FxHasher::default();
        entry.hash(&mut state);
        sum.wrapping_add(state.finish())
    })
}
