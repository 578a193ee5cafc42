//! A hash table of positions in a list of names: constant-time lookup and duplicate detection without a second copy
//! of the names, which a hostile file could make many megabytes long.

use std::hash::{BuildHasher, RandomState};

/// Names to positions. The names stay in the caller's list, which is handed in as `name_of`.
#[derive(Debug, Default)]
pub(super) struct NameIndex {
    /// position + 1, 0 for a free slot; the length is a power of two, at most half full
    slots: Vec<u32>,
    /// seeded per table, so that a file cannot choose names that collide
    hasher: RandomState,
}

impl NameIndex {
    /// An index for up to `n` names.
    pub(super) fn with_capacity(n: usize) -> NameIndex {
        NameIndex { slots: vec![0; (n * 2).next_power_of_two().max(2)], hasher: RandomState::new() }
    }

    /// Bytes that [`NameIndex::with_capacity`] takes.
    pub(super) fn memory(n: usize) -> u64 {
        ((n * 2).next_power_of_two().max(2) * size_of::<u32>()) as u64
    }

    fn slot<'a>(&self, name: &str, name_of: impl Fn(usize) -> &'a str) -> (usize, Option<usize>) {
        let mask = self.slots.len() - 1;
        let mut slot = self.hasher.hash_one(name) as usize & mask;
        // Ends: the table is never full, see `insert`.
        loop {
            match self.slots[slot] {
                0 => return (slot, None),
                i if name_of(i as usize - 1) == name => return (slot, Some(i as usize - 1)),
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    /// Notes that `name` is at `position`; returns the earlier position when the name is known already.
    pub(super) fn insert<'a>(
        &mut self,
        name: &str,
        position: usize,
        name_of: impl Fn(usize) -> &'a str,
    ) -> Option<usize> {
        assert!(
            position < self.slots.len() / 2,
            "index made for {} names, given position {position}",
            self.slots.len() / 2
        );
        let (slot, known) = self.slot(name, name_of);
        if known.is_none() {
            self.slots[slot] = position as u32 + 1;
        }
        known
    }

    /// The position of `name`.
    pub(super) fn get<'a>(&self, name: &str, name_of: impl Fn(usize) -> &'a str) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        self.slot(name, name_of).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_at_its_place_and_no_other_name_is() {
        let names: Vec<String> = (0..1000).map(|i| format!("blk.{i}.weight")).collect();
        let name_of = |i: usize| names[i].as_str();
        let mut index = NameIndex::with_capacity(names.len());
        for (i, name) in names.iter().enumerate() {
            assert_eq!(index.insert(name, i, name_of), None);
        }
        assert_eq!(index.insert("blk.7.weight", 999, name_of), Some(7));
        for (i, name) in names.iter().enumerate() {
            assert_eq!(index.get(name, name_of), Some(i));
        }
        assert_eq!(index.get("blk.1000.weight", name_of), None);
        assert_eq!(NameIndex::default().get("a", name_of), None);
    }
}
