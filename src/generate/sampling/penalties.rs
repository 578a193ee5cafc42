//! What changes logits for what was said before: biases, penalties of single ids and DRY. Candidates are in the order of ids.

use super::{Candidate, SamplerOptions};

/// A logit after a change; it stays finite, so that the order stays total.
fn narrow(logit: f64) -> f32 {
    (logit as f32).clamp(f32::MIN, f32::MAX)
}

fn find(c: &mut [Candidate], id: u32) -> Option<&mut Candidate> {
    let at = c.binary_search_by_key(&id, |c| c.id).ok()?;
    c.get_mut(at)
}

/// Adds what the options say to some logits, and drops the candidates that are never to come.
pub fn bias(c: &mut Vec<Candidate>, list: &[(u32, f32)]) {
    let mut drops = false;
    for &(id, bias) in list {
        let Some(one) = find(c, id).filter(|c| c.logit.is_finite()) else { continue };
        drops |= bias == f32::NEG_INFINITY;
        let changed = f64::from(one.logit) + f64::from(bias);
        one.logit = if bias.is_finite() { narrow(changed) } else { bias };
    }
    if drops {
        c.retain(|c| c.logit.is_finite());
    }
}

/// The last so many of a list.
fn last(history: &[u32], n: usize) -> &[u32] {
    &history[history.len() - n.min(history.len())..]
}

/// The penalties for ids that came among the last ones: repeat, frequency and presence. `ids` is memory.
pub fn recent(c: &mut [Candidate], o: &SamplerOptions, history: &[u32], ids: &mut Vec<u32>) {
    ids.clear();
    ids.extend_from_slice(last(history, o.repeat_last_n));
    ids.sort_unstable();
    for same in ids.chunk_by(|a, b| a == b) {
        let Some(c) = find(c, same[0]) else { continue };
        let changed = if c.logit <= 0.0 { c.logit * o.repeat_penalty } else { c.logit / o.repeat_penalty };
        let less = same.len() as f64 * f64::from(o.frequency_penalty) + f64::from(o.presence_penalty);
        c.logit = narrow(f64::from(changed) - less);
    }
}

/// DRY ("don't repeat yourself"), as its author's proposal and llama.cpp have it: an id that would go on with something that
/// was said before loses the more the longer that is.
#[derive(Debug)]
pub struct Dry {
    /// sequences at which nothing goes on, in the order of their first ids
    breakers: Vec<Vec<u32>>,
    /// for each distance how many of the last ids stand that far back too
    same: Vec<usize>,
    /// ids that would go on with something, and how long that is
    found: Vec<(u32, usize)>,
}

impl Dry {
    pub fn new(breakers: &[Vec<u32>]) -> Dry {
        let mut breakers = breakers.to_vec();
        breakers.sort_unstable();
        Dry { breakers, same: Vec::new(), found: Vec::new() }
    }

    /// The breakers that begin with an id.
    fn starting(&self, id: u32) -> impl Iterator<Item = &[u32]> {
        let first = self.breakers.partition_point(|b| b[0] < id);
        self.breakers[first..].iter().map(Vec::as_slice).take_while(move |b| b[0] == id)
    }

    /// How many of the last ids come after the last breaker among them.
    fn since_breaker(&self, ids: &[u32]) -> usize {
        for start in (0..ids.len()).rev() {
            let here = self.starting(ids[start]).filter(|b| ids[start..].starts_with(b)).map(<[u32]>::len).max();
            if let Some(n) = here {
                return ids.len() - start - n;
            }
        }
        ids.len()
    }

    pub fn apply(&mut self, c: &mut [Candidate], o: &SamplerOptions, history: &[u32]) {
        let ids = last(history, o.dry_penalty_last_n);
        let (n, least) = (ids.len(), o.dry_allowed_length);
        if n <= least {
            return;
        }
        let most = self.since_breaker(ids);
        if most < least {
            return;
        }
        // Z-algorithm (Gusfield 1997) over the ids from the last to the first: how many of the last ids stand k back too
        let back = |i: usize| ids[n - 1 - i];
        let (mut left, mut right) = (0, 0);
        self.same.clear();
        self.same.push(n);
        self.found.clear();
        for k in 1..n {
            let mut z = if k < right { self.same[k - left].min(right - k) } else { 0 };
            while k + z < n && back(z) == back(k + z) {
                z += 1;
            }
            if k + z > right {
                (left, right) = (k, k + z);
            }
            self.same.push(z);
            if z.min(most) >= least {
                self.found.push((back(k - 1), z.min(most)));
            }
        }
        self.found.sort_unstable();
        for same in self.found.chunk_by(|a, b| a.0 == b.0) {
            let (id, longest) = same[same.len() - 1];
            if self.starting(id).any(|b| b.len() == 1) {
                continue;
            }
            let Some(c) = find(c, id) else { continue };
            let power = libm::pow(f64::from(o.dry_base), (longest - least) as f64);
            c.logit = narrow(f64::from(c.logit) - f64::from(o.dry_multiplier) * power);
        }
    }
}
