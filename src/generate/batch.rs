//! One step for many sequences.

#[cfg(doc)]
use super::pool::Pool;
use super::pool::Sequence;
use super::session::Session;
#[cfg(doc)]
use super::session::finite;
use crate::ops::places::{self, CHUNK, GONE, TABLES, TOKEN, Touches};
use crate::ops::strands::{self, STRAND};
use crate::record::Scattered;
use anyhow::ensure;

/// Tokens of one sequence in a step, for which the pool has reserved chunks.
pub struct Part<'a> {
    /// whose they are
    pub sequence: &'a Sequence,
    /// the tokens after those it has
    pub ids: &'a [u32],
    /// of how many of the last of them logits are wanted
    pub rows: usize,
}

impl Session<'_> {
    /// Feeds tokens of many sequences in one step, and hands each wanted row of logits to `row(part, token, logits)`: those of
    /// a part in the order of its tokens, `token` being an index into its ids. The bits of a row are those that its sequence
    /// gives alone. Logits that are not finite are handed over as they are ([`finite`]): they are that sequence's own matter.
    /// Which of the tokens count as cached is then for the pool to be told ([`Pool::written`]).
    ///
    /// Errors: those of the device; more tokens, rows or sequences than the plan has room for.
    pub async fn step(
        &mut self,
        parts: &[Part<'_>],
        mut row: impl FnMut(usize, usize, &[f32]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.settle().await?;
        let n_out: usize = parts.iter().map(|p| p.rows).sum();
        self.place(parts, n_out)?;
        let (device, step, logits) = self.under();
        device.run_into(step, logits).await?;
        let mut rows = self.logits().chunks_exact(self.width());
        for (i, part) in parts.iter().enumerate() {
            let first = part.ids.len() - part.rows;
            for token in first..part.ids.len() {
                let logits = rows.next().expect("a row for each that is wanted");
                row(i, token, logits)?;
            }
        }
        Ok(())
    }

    /// Writes the step: tokens whose logits are not wanted first, each part's side by side, then those whose are.
    fn place(&mut self, parts: &[Part<'_>], n_out: usize) -> anyhow::Result<()> {
        let plan = &self.built().plan;
        let n: usize = parts.iter().map(|p| p.ids.len()).sum();
        ensure!(n > 0 && n <= plan.max_tokens, "{n} tokens in a step of at most {}", plan.max_tokens);
        ensure!(n_out <= plan.max_out, "{n_out} rows of logits in a step of at most {}", plan.max_out);
        let room = plan.placing.map_or(0, |p| plan.buffers[p.buffer].words);
        let (whole, recurrent) = (self.feeds_whole(), self.is_recurrent());
        let side = self.built().span.map(|(_, side)| side);
        let (tables, step) = self.writing();
        let [(_, ids), ropes @ ..] = &mut step.inputs[..] else { unreachable!("ids and the tables of angles") };
        let scattered = step.scattered.get_or_insert_with(Scattered::default);
        ids.clear();
        ropes.iter_mut().for_each(|(_, words)| words.clear());
        scattered.words.clear();
        (scattered.end, scattered.touches) = (0, [NOTHING; TABLES]);
        step.pos = usize::MAX;
        let words = &mut scattered.words;
        for wanted in [false, true] {
            let mut at = n * TOKEN;
            for part in parts {
                let (len, first) = (part.sequence.len(), part.ids.len() - part.rows);
                let tokens = if wanted { first..part.ids.len() } else { 0..first };
                // where this part's tables are going to be, with a word after them, so that no two sequences have one place
                let [a, b] = [at, at + part.sequence.chunks(0).len()];
                at = b + part.sequence.chunks(1).len() + 1;
                for t in tokens {
                    let position = len + t;
                    ids.push(part.ids[t]);
                    for (table, (_, words)) in tables.iter().zip(&mut *ropes) {
                        table.append(position, words);
                    }
                    words.extend([position as u32, part.sequence.recent(position / CHUNK), a as u32, b as u32]);
                }
            }
        }
        for part in parts {
            let (len, end) = (part.sequence.len(), part.sequence.len() + part.ids.len());
            step.pos = step.pos.min(len);
            scattered.end = scattered.end.max(end);
            for (t, touches) in scattered.touches.iter_mut().enumerate() {
                let chunks = part.sequence.chunks(t);
                words.extend(chunks);
                chunks.iter().filter(|c| **c != GONE).for_each(|c| widen(&mut touches.read, *c));
                chunks.iter().skip(len / CHUNK).for_each(|c| widen(&mut touches.written, *c));
            }
            words.push(GONE);
        }
        ensure!(words.len() <= room, "{} sequences in a step are more than the plan has room for", parts.len());
        if let (true, Some((_, seen))) = (whole, ropes.last_mut()) {
            ensure!(n_out == n && step.pos == 0, "a text of an encoder is fed whole, and gives a row for each token");
            let lasts: Vec<u32> = parts.iter().flat_map(|p| vec![p.ids.len() as u32 - 1; p.ids.len()]).collect();
            seen.extend_from_slice(words);
            places::see_all(n, seen, |t| lasts[t]);
            if let (Some(side), [.., (_, span), _]) = (side, &mut *ropes) {
                span.extend_from_slice(words);
                places::see_span(n, span, side, |t| lasts[t]);
            }
        }
        scattered.strands = parts.len();
        if let (true, Some((_, words))) = (recurrent, ropes.last_mut()) {
            put_strands(parts, n - n_out, words);
        }
        (step.n_tokens, step.out_first, step.n_out) = (n, n - n_out, n_out);
        (step.select, step.follow) = (0, None);
        Ok(())
    }
}

/// The words of the parts' strands, in a step whose first `unwanted` tokens are those without rows.
fn put_strands(parts: &[Part<'_>], unwanted: usize, words: &mut Vec<u32>) {
    let mut at = parts.len() * STRAND;
    for part in parts {
        let [source, target] = part.sequence.slots();
        words.extend([at as u32, part.ids.len() as u32, source, target]);
        at += part.ids.len();
    }
    let (mut before, mut wanted) = (0, unwanted);
    for part in parts {
        let first = part.ids.len() - part.rows;
        words.extend((before..before + first).chain(wanted..wanted + part.rows).map(|t| t as u32));
        (before, wanted) = (before + first, wanted + part.rows);
    }
    debug_assert_eq!(words.len(), strands::words(before + wanted - unwanted, parts.len()));
}

/// No chunks.
const NOTHING: Touches = Touches { read: (u32::MAX, 0), written: (u32::MAX, 0) };

fn widen(range: &mut (u32, u32), chunk: u32) {
    *range = (range.0.min(chunk), range.1.max(chunk + 1));
}
