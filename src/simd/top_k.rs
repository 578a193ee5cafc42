//! Selection on the CPU, with the entries of `ops::top_k`: a list grows by insertion of the logits that reach a bar.

use super::team;
use crate::ops::top_k::{ABSENT, K_MAX, PAIR, TopKParams, key, logit_key};

/// Parts of a slice whose greatest logits are compared first: at least as many as a list has entries, so that the k-th of
/// them is a bar that k logits reach, and few others do.
const SHARES: usize = K_MAX as usize;

/// The list while it grows; entries come in the order of their ids, so that of equals the earlier stays in front.
struct List<'a> {
    entries: &'a mut [[u32; PAIR]],
    keys: [u32; K_MAX as usize],
    len: usize,
}

impl List<'_> {
    /// What a key must be above to enter.
    #[inline(always)]
    fn bar(&self) -> u32 {
        if self.len == self.entries.len() { self.keys[self.len - 1] } else { 0 }
    }

    fn offer(&mut self, key: u32, entry: [u32; PAIR]) {
        if key <= self.bar() {
            return;
        }
        let mut at = self.len.min(self.entries.len() - 1);
        while at > 0 && self.keys[at - 1] < key {
            (self.keys[at], self.entries[at]) = (self.keys[at - 1], self.entries[at - 1]);
            at -= 1;
        }
        (self.keys[at], self.entries[at]) = (key, entry);
        self.len = (self.len + 1).min(self.entries.len());
    }
}

/// `ops::top_k` on the current team, a task for each list. Takes no memory.
pub fn top_k(p: &TopKParams, x: &[u32], y: &mut [u32]) {
    let (n, k, slice) = (p.n as usize, p.k as usize, p.slice as usize);
    assert!((1..=K_MAX as usize).contains(&k), "top_k: lists of {k} entries, at most {K_MAX}");
    let lists = n.div_ceil(slice);
    let y = &mut y[..p.n_tokens as usize * lists * k * PAIR];
    team::chunks_mut(y, k * PAIR, 1, |first, y| {
        for (i, list) in y.chunks_exact_mut(k * PAIR).enumerate() {
            let (row, from) = ((first + i) / lists, (first + i) % lists * slice);
            let range = row * n + from..row * n + n.min(from + slice);
            let (entries, _) = list.as_chunks_mut();
            entries.fill([0, ABSENT]);
            let mut list = List { entries, keys: [0; K_MAX as usize], len: 0 };
            if p.lists == 0 {
                logits(&mut list, &x[range], from as u32);
            } else {
                // what stands for nothing has the least key and does not enter
                for &entry in &x.as_chunks::<PAIR>().0[range] {
                    list.offer(key(entry[0], entry[1]), entry);
                }
            }
        }
    });
}

fn logits(list: &mut List, x: &[u32], first: u32) {
    let share = x.len().div_ceil(SHARES).max(1);
    let mut most = [0; SHARES];
    for (most, x) in most.iter_mut().zip(x.chunks(share)) {
        *most = x.iter().fold(0, |most, &bits| most.max(logit_key(bits)));
    }
    let mut order = most;
    let (_, &mut bar, _) = order.select_nth_unstable_by(list.entries.len() - 1, |a, b| b.cmp(a));
    for ((x, first), _) in x.chunks(share).zip((first..).step_by(share)).zip(most).filter(|(_, most)| *most >= bar) {
        for (&bits, id) in x.iter().zip(first..) {
            let key = logit_key(bits);
            if key >= bar {
                list.offer(key, [bits, id]);
            }
        }
    }
}
