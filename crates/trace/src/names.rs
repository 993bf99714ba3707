//! Interned text: each name is stored once and referred to by its number.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// A name's number in the trace's [`Names`]. Number 0 is the empty text: "not given".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

impl NameId {
    pub const NONE: NameId = NameId(0);

    pub fn is_none(self) -> bool {
        self == NameId::NONE
    }

    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// All names of a trace in one string, numbered in order of first use.
#[derive(Clone, Debug)]
pub struct Names {
    text: String,
    /// Where each name ends in `text`; it begins where the one before it ends.
    ends: Vec<usize>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Default for Names {
    fn default() -> Names {
        let hasher = DefaultHashBuilder::default();
        let mut names = Names { text: String::new(), ends: Vec::new(), table: HashTable::new(), hasher };
        names.intern("");
        names
    }
}

impl Names {
    /// The number of `name`, which is added if it is new.
    pub fn intern(&mut self, name: &str) -> NameId {
        let hash = self.hasher.hash_one(name.as_bytes());
        match self.find(hash, name.as_bytes()) {
            Some(found) => found,
            None => self.add(hash, name),
        }
    }

    /// Like [`Names::intern`], for bytes from a file: invalid UTF-8 is replaced by U+FFFD. Only new names are
    /// validated.
    pub fn intern_bytes(&mut self, name: &[u8]) -> NameId {
        let hash = self.hasher.hash_one(name);
        if let Some(found) = self.find(hash, name) {
            return found;
        }
        match std::str::from_utf8(name) {
            Ok(name) => self.add(hash, name),
            Err(_) => self.intern(&String::from_utf8_lossy(name)),
        }
    }

    /// The number of `name`, if the trace has it.
    pub fn lookup(&self, name: &str) -> Option<NameId> {
        self.find(self.hasher.hash_one(name.as_bytes()), name.as_bytes())
    }

    pub fn get(&self, id: NameId) -> &str {
        slice(&self.text, &self.ends, id.0)
    }

    /// The number of names, including the empty one.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (NameId, &str)> {
        (0..self.ends.len() as u32).map(|number| (NameId(number), self.get(NameId(number))))
    }

    fn add(&mut self, hash: u64, name: &str) -> NameId {
        let number = self.ends.len() as u32;
        self.text.push_str(name);
        self.ends.push(self.text.len());
        let (text, ends, hasher) = (&self.text, &self.ends, &self.hasher);
        self.table.insert_unique(hash, number, |&other| hasher.hash_one(slice(text, ends, other).as_bytes()));
        NameId(number)
    }

    fn find(&self, hash: u64, name: &[u8]) -> Option<NameId> {
        let same = |&number: &u32| slice(&self.text, &self.ends, number).as_bytes() == name;
        self.table.find(hash, same).map(|&number| NameId(number))
    }
}

fn slice<'a>(text: &'a str, ends: &[usize], number: u32) -> &'a str {
    let number = number as usize;
    let start = if number == 0 { 0 } else { ends[number - 1] };
    &text[start..ends[number]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number_and_the_empty_one_is_none() {
        let mut names = Names::default();
        let first = names.intern("aten::mm");
        let second = names.intern("aten::add");
        assert_eq!((names.intern("aten::mm"), names.intern("")), (first, NameId::NONE));
        assert!(NameId::NONE.is_none() && !first.is_none());
        assert_eq!((names.get(first), names.get(second)), ("aten::mm", "aten::add"));
        assert_eq!((names.lookup("aten::add"), names.lookup("aten::mul")), (Some(second), None));
        assert_eq!(names.count(), 3);
        let all = [(NameId::NONE, ""), (first, "aten::mm"), (second, "aten::add")];
        assert_eq!(names.iter().collect::<Vec<_>>(), all);
    }

    #[test]
    fn bytes_that_are_no_text_become_one_readable_name() {
        let mut names = Names::default();
        let first = names.intern_bytes(b"k\xff");
        assert_eq!(names.intern_bytes(b"k\xff"), first);
        assert_eq!(names.get(first), "k\u{fffd}");
        assert_eq!(names.intern_bytes("k\u{fffd}".as_bytes()), first);
    }
}
