//! The values of a function's names at one place. Branches and loops copy all of them and change a few, so copies share
//! their values until one is written.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::statements::Names;
use crate::value::Value;

#[derive(Clone, Default)]
pub(super) struct Bindings<'a>(FxHashMap<&'a str, Rc<Value>>);

impl<'a> Bindings<'a> {
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).map(Rc::as_ref)
    }

    pub fn contains_key(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.0.values().map(Rc::as_ref)
    }

    /// Returns the value before.
    pub fn insert(&mut self, name: &'a str, value: Value) -> Option<Value> {
        self.0.insert(name, Rc::new(value)).map(Rc::unwrap_or_clone)
    }

    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Adds all names of another path.
    pub fn add_all(&mut self, others: &Bindings<'a>) {
        for (name, value) in &others.0 {
            match self.0.get_mut(name) {
                Some(known) if Rc::ptr_eq(known, value) || known == value => {}
                Some(known) => *known = Rc::new(known.join(value)),
                None => drop(self.0.insert(name, Rc::clone(value))),
            }
        }
    }

    pub fn into_names(self) -> Names<'a> {
        self.0.into_iter().map(|(name, value)| (name, Rc::unwrap_or_clone(value))).collect()
    }
}
