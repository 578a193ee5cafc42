//! The same request to another model, or to the same in other blocks: where the choices part, and by how much the logits
//! differ as far as both have the same tokens.

use super::error::Error;
use super::receipt::Receipt;
use crate::engine::{Ended, Session};
use crate::generate::logprobs::log_softmax;
use std::ops::ControlFlow;

/// Rows that are held at once, of two models.
const AT_ONCE: usize = 16;

/// Two rows of logits of one position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// the greatest difference of two logits of one token
    pub max_abs: f64,
    /// Kullback-Leibler divergence of the other's distribution from the first's, in nats: the sum of p ln(p / q)
    pub kl: f64,
    /// whether one token is the likeliest in both
    pub same_top: bool,
}

impl Row {
    /// In f64, in the order of the vocabulary.
    fn of(a: &[f32], b: &[f32]) -> Row {
        let max_abs = a.iter().zip(b).map(|(x, y)| (f64::from(*x) - f64::from(*y)).abs()).fold(0.0, f64::max);
        // of equals the lowest id is the first
        let top = |row: &[f32]| (0..row.len()).reduce(|best, i| if row[i] > row[best] { i } else { best });
        // logarithms of both sums; what is left of each token is its logit
        let (first_a, first_b) = (log_softmax(a, 0) - f64::from(a[0]), log_softmax(b, 0) - f64::from(b[0]));
        let kl = a.iter().zip(b).fold(0.0, |sum, (x, y)| {
            let (p, q) = (f64::from(*x) + first_a, f64::from(*y) + first_b);
            sum + libm::exp(p) * (p - q)
        });
        // rounding may leave something below nothing
        Row { max_abs, kl: kl.max(0.0), same_top: top(a) == top(b) }
    }
}

/// Two runs of one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// tokens that are the same
    pub same: usize,
    /// the first token that differs, of each; `None` where that run had ended
    pub parted: Option<(Option<u32>, Option<u32>)>,
    /// the other's tokens
    pub ids: Vec<u32>,
    /// the other's text
    pub text: String,
    /// why it ended
    pub ended: Ended,
    /// of each token as far as both have had the same tokens before it
    pub rows: Vec<Row>,
}

impl Compared {
    /// The mean divergence a token, in nats; 0 without rows.
    pub fn mean_kl(&self) -> f64 {
        self.rows.iter().map(|r| r.kl).sum::<f64>() / self.rows.len().max(1) as f64
    }

    /// The greatest difference of two logits.
    pub fn max_abs(&self) -> f64 {
        self.rows.iter().map(|r| r.max_abs).fold(0.0, f64::max)
    }

    /// The share of tokens for which one token is the likeliest in both; 1 without rows.
    pub fn same_top(&self) -> f64 {
        let same = self.rows.iter().filter(|r| r.same_top).count();
        if self.rows.is_empty() { 1.0 } else { same as f64 / self.rows.len() as f64 }
    }
}

/// Asks `other` for what `first` has made, and compares. `first` must be the receipt's model with its options.
///
/// Errors: vocabularies of two sizes; those of the sessions.
pub fn compare(receipt: &Receipt, first: &mut Session, other: &mut Session) -> Result<Compared, Error> {
    let body = &receipt.body;
    let (expected, found) = (first.model().vocabulary(), other.model().vocabulary());
    if expected != found {
        return Err(Error::Vocabulary { found, expected });
    }
    let mut request = body.request(other.model())?;
    (request.chain, request.max_tokens) = (false, request.max_tokens.min(body.ids.len()));
    let made = other.generate(request, |_| ControlFlow::Continue(()))?;
    let same = body.ids.iter().zip(&made.ids).take_while(|(a, b)| a == b).count();
    let (a, b) = (body.ids.get(same).copied(), made.ids.get(same).copied());
    let parted = (a.is_some() || b.is_some()).then_some((a, b));
    // of the first token that differs both have had the same tokens before it
    let count = (same + 1).min(body.ids.len().min(made.ids.len()));
    let ids: Vec<u32> = body.prompt.iter().chain(&body.ids).copied().collect();
    let (mut rows, mut kept) = (Vec::with_capacity(count), Vec::new());
    while rows.len() < count {
        let from = body.prompt.len() - 1 + rows.len();
        let fed = &ids[..from + AT_ONCE.min(count - rows.len())];
        kept.clear();
        first.each_logits(fed, from, |_, row| kept.extend_from_slice(row))?;
        other.each_logits(fed, from, |at, row| {
            let a = &kept[(at - from) * expected..][..expected];
            rows.push(Row::of(a, row));
        })?;
    }
    Ok(Compared { same, parted, ids: made.ids, text: made.text, ended: made.ended, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_compared_as_their_distributions_are() {
        let a = [0.0, (2f32).ln(), (5f32).ln()];
        assert_eq!(Row::of(&a, &a), Row { max_abs: 0.0, kl: 0.0, same_top: true });
        // 1/8, 2/8, 5/8 against 4/8, 2/8, 2/8, shifted by a constant, which changes no probability
        let b = [(4f32).ln() + 3.0, (2f32).ln() + 3.0, (2f32).ln() + 3.0];
        let want = 0.125 * (0.25f64).ln() + 0.625 * (2.5f64).ln();
        let row = Row::of(&a, &b);
        assert!((row.kl - want).abs() < 1e-6 && !row.same_top, "{row:?}, {want}");
        assert!((row.max_abs - f64::from((4f32).ln() + 3.0)).abs() < 1e-6);
    }
}
