//! Memory for weights and everything else a kernel reads: zeroed words that start at a cache line.
//!
//! Two things are worth a type of its own. A load of 64 bytes that crosses a cache line costs twice as much, and what the
//! allocator gives for a large vector lies 16 bytes past a line. And where the system offers huge pages on request they
//! are asked for, since a token walks through all weights once.

use bytemuck::{Pod, Zeroable};
use memmap2::MmapMut;
use std::ops::{Deref, DerefMut};

/// A cache line.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u32; 16]);

/// Bytes from which memory is mapped, with huge pages where there are some.
const MAPPED: usize = 1 << 20;

enum Memory {
    Lines(Vec<Line>),
    Map(MmapMut),
}

/// A fixed number of words, zero at first.
pub struct Words {
    memory: Memory,
    len: usize,
}

impl Words {
    /// `len` zeros. Large ones are not touched: a page belongs to the thread that writes it first.
    pub fn zeroed(len: usize) -> Words {
        let memory = match Self::map(len * 4) {
            Some(map) => Memory::Map(map),
            None => Memory::Lines(vec![Line::zeroed(); len.div_ceil(16)]),
        };
        Words { memory, len }
    }

    fn map(bytes: usize) -> Option<MmapMut> {
        if bytes < MAPPED {
            return None;
        }
        let map = MmapMut::map_anon(bytes).ok()?;
        #[cfg(target_os = "linux")]
        if let Err(e) = map.advise(memmap2::Advice::HugePage) {
            log::debug!("no huge pages: {e}");
        }
        Some(map)
    }
}

impl Default for Words {
    fn default() -> Words {
        Words { memory: Memory::Lines(Vec::new()), len: 0 }
    }
}

impl Deref for Words {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        match &self.memory {
            Memory::Lines(lines) => &bytemuck::cast_slice(lines)[..self.len],
            Memory::Map(map) => &bytemuck::cast_slice(map)[..self.len],
        }
    }
}

impl DerefMut for Words {
    fn deref_mut(&mut self) -> &mut [u32] {
        match &mut self.memory {
            Memory::Lines(lines) => &mut bytemuck::cast_slice_mut(lines)[..self.len],
            Memory::Map(map) => &mut bytemuck::cast_slice_mut(map)[..self.len],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_zero_start_at_a_line_and_keep_what_is_written() {
        for len in [0, 1, 15, 16, 17, MAPPED / 4 - 1, MAPPED / 4, MAPPED / 4 + 5] {
            let mut words = Words::zeroed(len);
            assert_eq!(words.len(), len);
            assert!(words.iter().all(|&w| w == 0));
            assert!(words.as_ptr().addr().is_multiple_of(64), "{len}");
            for (i, w) in words.iter_mut().enumerate() {
                *w = i as u32;
            }
            assert!(words.iter().enumerate().all(|(i, &w)| w == i as u32));
        }
        assert!(Words::default().is_empty());
    }
}
