//! Whether a model gives what a receipt says.
//!
//! What a token was drawn from depends on the tokens before it alone, and all of them are known: so many positions are
//! computed at once, as of a prompt, and their logits have the bits that they had one by one. A sampler that keeps a state,
//! and a grammar, are run again from the first token.

use super::error::Error;
use super::hex::Hex;
use super::receipt::{Body, Ending, Receipt};
use crate::engine::{Ended, Output, Piece, Session};
use crate::generate::sampling::Sampler;
use sha2::{Digest, Sha256};
use std::ops::{ControlFlow, Range};

/// Tokens of a piece of the chain that a sample takes or leaves.
const CHUNK: usize = 16;

/// Positions that are computed between two looks at what was found. Whole chunks of the cache, so that none is computed twice.
const PIECE: usize = 256;

/// A random part of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// of its chunks of 16 tokens, more than 0 and at most 1
    pub share: f64,
    /// what chooses them; whoever made the receipt must not have known it
    pub seed: u64,
}

/// The first thing that is not as the receipt says.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// it is of another model
    Model {
        /// the receipt's
        expected: Hex<32>,
        /// of the model here
        found: String,
    },
    /// with its options the model has another line
    Fingerprint {
        /// the receipt's
        expected: String,
        /// of the session here
        found: String,
    },
    /// the model has another name
    Name {
        /// the receipt's
        expected: String,
        /// the model's
        found: String,
    },
    /// another token is drawn
    Token {
        /// among the tokens that came, from 0
        index: usize,
        /// in the sequence, the prompt counted
        position: usize,
        /// the receipt's
        expected: u32,
        /// what is drawn here; `None`: the text had ended before
        found: Option<u32>,
        /// whether its link fits it: then the logits are right, and the choice is not
        link: bool,
    },
    /// the token is right, and the logits are others, or the link is
    Logits {
        /// among the tokens that came, from 0
        index: usize,
        /// in the sequence, the prompt counted
        position: usize,
        /// the token
        id: u32,
    },
    /// the tokens have another text
    Text {
        /// bytes that are the same
        same: usize,
    },
    /// it ended for another reason
    End {
        /// the receipt's
        expected: Ending,
        /// as it is here
        found: Ending,
    },
}

/// What a check has seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// tokens of the text
    pub tokens: usize,
    /// tokens that were computed again
    pub checked: usize,
    /// of a sample, chunks that were computed, and chunks there are
    pub chunks: Option<(usize, usize)>,
    /// the first difference; `None`: all that was checked is as the receipt says
    pub difference: Option<Difference>,
}

/// Computes a text again and compares: the model's digest and the fingerprint, why the text ended, its letters, and for each
/// token, or those of a sample, its logits and the choice.
///
/// The session should have a context and options as [`Body::options`] says; more rows make it faster.
///
/// Errors: those of the session; [`Error::Share`]; [`Error::Unsupported`].
pub fn check(receipt: &Receipt, session: &mut Session, sample: Option<Sample>) -> Result<Checked, Error> {
    let body = &receipt.body;
    let mut done = Checked { tokens: body.ids.len(), checked: 0, chunks: None, difference: told(body, session)? };
    if done.difference.is_some() {
        return Ok(done);
    }
    if in_order(body) {
        return replay(receipt, session, |_| ControlFlow::Continue(()));
    }
    let parts = match sample {
        Some(sample) => {
            let (chosen, of) = sample.of(body.ids.len())?;
            done.chunks = Some((chosen.len(), of));
            chosen.iter().map(|chunk| chunk * CHUNK..body.ids.len().min((chunk + 1) * CHUNK)).collect()
        }
        None => pieces(body),
    };
    let mut sampler = Sampler::new(body.sampling.clone()).map_err(|e| Error::Unsound(e.to_string()))?;
    for part in parts {
        done.checked += part.len();
        done.difference = part_differs(body, session, &mut sampler, part)?;
        if done.difference.is_some() {
            break;
        }
    }
    Ok(done)
}

/// Whether tokens must be drawn one after another, from the first: nothing of that kind is recorded yet.
fn in_order(body: &Body) -> bool {
    body.grammar.is_some() || body.sampling.mirostat != 0
}

/// What can be said before a step is computed.
fn told(body: &Body, session: &Session) -> Result<Option<Difference>, Error> {
    let model = session.model();
    let found = model.digest()?;
    if found != body.model.to_string() {
        return Ok(Some(Difference::Model { expected: body.model, found: found.into() }));
    }
    let found = session.fingerprint()?;
    if found != body.fingerprint {
        return Ok(Some(Difference::Fingerprint { expected: body.fingerprint.clone(), found }));
    }
    if model.name() != body.name {
        return Ok(Some(Difference::Name { expected: body.name.clone(), found: model.name().into() }));
    }
    if let Some(id) = body.ids.iter().find(|id| **id as usize >= model.vocabulary()) {
        return Err(Error::Unsound(format!("token {id} is outside the vocabulary of {}", model.vocabulary())));
    }
    let told = Output::of(model, body.context, &body.request(model)?, &body.prompt, &body.ids);
    let told = told.ok_or_else(|| Error::Unsound("tokens come after the end of the text".into()))?;
    if told.text != body.text {
        let same = told.text.bytes().zip(body.text.bytes()).take_while(|(a, b)| a == b).count();
        return Ok(Some(Difference::Text { same }));
    }
    let found = Ending::from(told.ended);
    Ok((found != body.ended).then_some(Difference::End { expected: body.ended, found }))
}

/// All tokens, in pieces that begin where chunks of the cache do.
fn pieces(body: &Body) -> Vec<Range<usize>> {
    let (before, n) = (body.prompt.len() - 1, body.ids.len());
    let (mut parts, mut from) = (Vec::new(), 0);
    while from < n {
        let to = n.min(((before + from) / PIECE + 1) * PIECE - before);
        parts.push(from..to);
        from = to;
    }
    parts
}

impl Sample {
    /// The chunks it takes, in order, and how many there are. Each subset of as many is as likely as any other.
    fn of(&self, tokens: usize) -> Result<(Vec<usize>, usize), Error> {
        if !(self.share > 0.0 && self.share <= 1.0) {
            return Err(Error::Share(self.share));
        }
        let all = tokens.div_ceil(CHUNK);
        let wanted = ((self.share * all as f64).ceil() as usize).clamp(all.min(1), all);
        let rank = |chunk: &usize| -> [u8; 32] {
            let mut hash = Sha256::new();
            hash.update(b"isobit sample 1\0");
            hash.update(self.seed.to_le_bytes());
            hash.update((*chunk as u64).to_le_bytes());
            hash.finalize().into()
        };
        let mut chunks: Vec<usize> = (0..all).collect();
        chunks.sort_by_cached_key(rank);
        chunks.truncate(wanted);
        chunks.sort_unstable();
        Ok((chunks, all))
    }
}

/// Computes the logits of some of the tokens, in one go where the session has as many rows; the first that differs.
fn part_differs(
    body: &Body,
    session: &mut Session,
    sampler: &mut Sampler,
    part: Range<usize>,
) -> Result<Option<Difference>, Error> {
    let (prompt, from) = (body.prompt.len(), part.start);
    let all: Vec<u32> = body.prompt.iter().chain(&body.ids[..part.end]).copied().collect();
    let (mut difference, mut chain) = (None, body.chain_at(from));
    let mut failed = None;
    // the last token's own logits are nobody's
    let fed = &all[..all.len() - 1];
    session.each_logits(fed, prompt - 1 + from, |at, row| {
        if difference.is_some() || failed.is_some() {
            return;
        }
        let position = at + 1;
        let (index, expected) = (position - prompt, all[position]);
        let link = chain.push(expected, row) == body.chain[index].0;
        match sampler.sample(row, &all[..position], position) {
            Err(e) => failed = Some(Error::Unsound(e.to_string())),
            Ok(found) if found != expected => {
                difference = Some(Difference::Token { index, position, expected, found: Some(found), link });
            }
            Ok(id) if !link => difference = Some(Difference::Logits { index, position, id }),
            Ok(_) => {}
        }
    })?;
    failed.map_or(Ok(difference), Err)
}

/// Makes a text again, token by token as it was made, and compares each with the receipt's; `each` sees them as they come,
/// the first that differs too, and may break off. Slower than [`check`], which is for whoever wants no more than the answer.
///
/// Errors: those of the session.
pub fn replay(
    receipt: &Receipt,
    session: &mut Session,
    mut each: impl FnMut(&Piece) -> ControlFlow<()>,
) -> Result<Checked, Error> {
    let body = &receipt.body;
    let mut done = Checked { tokens: body.ids.len(), checked: 0, chunks: None, difference: told(body, session)? };
    if done.difference.is_some() || body.ids.is_empty() {
        return Ok(done);
    }
    let mut request = body.request(session.model())?;
    // what somebody broke off is not gone on with
    request.max_tokens = request.max_tokens.min(body.ids.len());
    let prompt = body.prompt.len();
    let mut difference = None;
    let out = session.generate(request, |piece| {
        let (index, position) = (piece.position - prompt, piece.position);
        let (expected, id) = (body.ids[index], piece.id);
        let link = piece.chain.is_some_and(|link| link == body.chain[index].0);
        difference = match () {
            () if id != expected => Some(Difference::Token { index, position, expected, found: Some(id), link: false }),
            () if !link => Some(Difference::Logits { index, position, id }),
            () => None,
        };
        if each(piece).is_break() || difference.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    done.checked = out.ids.len();
    let (index, early) = (out.ids.len(), out.ended != Ended::BrokenOff && out.ids.len() < body.ids.len());
    done.difference = difference.or_else(|| {
        let missing = || Difference::Token {
            index,
            position: prompt + index,
            expected: body.ids[index],
            found: None,
            link: false,
        };
        early.then(missing)
    });
    Ok(done)
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Difference::Model { expected, found } => {
                write!(f, "the receipt is of the model {expected}, this one is {found}")
            }
            Difference::Fingerprint { expected, found } => {
                write!(f, "the receipt's fingerprint is {expected}, with its model and options it is {found}")
            }
            Difference::Name { expected, found } => {
                write!(f, "the receipt's model is named {expected:?}, this one {found:?}")
            }
            Difference::Token { index, position, expected, found: None, .. } => {
                write!(
                    f,
                    "token {index} (position {position}) is {expected} in the receipt, and here the text has ended"
                )
            }
            Difference::Token { index, position, expected, found: Some(found), link } => {
                let logits = if *link { "of the same logits" } else { "and the link of the chain is another" };
                write!(
                    f,
                    "token {index} (position {position}) is {expected} in the receipt, {found} is drawn here, {logits}"
                )
            }
            Difference::Logits { index, position, id } => write!(
                f,
                "the logits of token {index} (position {position}) differ from the link of the chain, the token {id} is equal"
            ),
            Difference::Text { same } => {
                write!(f, "the text is not that of its tokens: after {same} bytes it is another")
            }
            Difference::End { expected, found } => {
                write!(f, "the text ended by {} in the receipt, here by {}", expected.name(), found.name())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_its_share_and_another_seed_takes_others() {
        let of = |share, seed, tokens| Sample { share, seed }.of(tokens).unwrap();
        assert_eq!(of(1.0, 3, 100).0, (0..7).collect::<Vec<_>>());
        assert_eq!((of(0.05, 0, 16 * 100).0.len(), of(0.05, 0, 16 * 100).1), (5, 100));
        assert_eq!((of(0.01, 0, 1), of(0.5, 0, 0)), ((vec![0], 1), (vec![], 0)));
        assert_ne!(of(0.05, 0, 16 * 100), of(0.05, 1, 16 * 100));
        for bad in [0.0, -1.0, 1.5, f64::NAN] {
            assert!(Sample { share: bad, seed: 0 }.of(5).is_err());
        }
        // every chunk is taken as often as another, as far as 400 seeds show: 5 of 100 each, 20 times expected
        let mut taken = [0; 100];
        (0..400).for_each(|seed| of(0.05, seed, 1600).0.into_iter().for_each(|c| taken[c] += 1));
        assert!(taken.iter().all(|n| (3..45).contains(n)), "{taken:?}");
    }
}
