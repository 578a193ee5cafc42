//! How likely a model holds one text after another, and what a text looks like to it as a vector.

use super::Model;
use super::error::{Error, Place, at};
use super::generate::{Output, Prompt, Request};
use crate::generate::logprobs::Logprobs;
use crate::models::Dense;
pub use crate::models::Pooling;
use std::sync::Arc;

/// How likely a continuation is after its context.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// the sum over its tokens: the natural logarithm of the probability that the model goes on with it
    pub logprob: f64,
    /// whether each of its tokens is the likeliest in its place
    pub is_greedy: bool,
    /// its tokens
    pub tokens: Vec<Logprobs>,
}

impl Request {
    /// A request that scores a continuation ([`Output::score`]) and generates nothing. Where both are texts they are tokenised
    /// as one, and the continuation begins where the tokens of the context alone end; spaces at the end of the context count
    /// to the continuation. That is the rule of EleutherAI's lm-evaluation-harness.
    ///
    /// Errors: a continuation without a token, or one that nothing comes before (no context, and the model has no
    /// beginning-of-text token); those of the tokeniser.
    pub fn score(model: &Model, context: impl Into<Prompt>, continuation: impl Into<Prompt>) -> Result<Request, Error> {
        let (ids, from) = match (context.into(), continuation.into()) {
            (Prompt::Text(context), Prompt::Text(continuation)) => {
                let tokenizer = model.tokenizer()?;
                let encode = |text: &str| tokenizer.encode(text, tokenizer.adds_bos(), false).map_err(at(Place::Model));
                let end = context.trim_end().len();
                let from = encode(&context[..end])?.len();
                (encode(&(context + &continuation))?, from)
            }
            (context, continuation) => {
                let mut ids = Request::ids_of(model, context, true)?;
                let from = ids.len();
                ids.extend(Request::ids_of(model, continuation, false)?);
                (ids, from)
            }
        };
        if from == 0 || from >= ids.len() {
            let what = if from == 0 { "nothing comes before it" } else { "it has no token of its own" };
            return Err(Error::options(format!("a continuation that cannot be scored: {what}")));
        }
        Ok(Request { max_tokens: 0, prompt_logprobs: Some(from), ..Request::new(ids) })
    }

    fn ids_of(model: &Model, prompt: Prompt, begins: bool) -> Result<Vec<u32>, Error> {
        match prompt {
            Prompt::Ids(ids) => Ok(ids),
            Prompt::Text(text) => {
                let tokenizer = model.tokenizer()?;
                tokenizer.encode(&text, begins && tokenizer.adds_bos(), false).map_err(at(Place::Model))
            }
        }
    }
}

impl Output {
    /// How likely the tokens of the prompt are whose log probabilities were asked for: of [`Request::score`], the continuation.
    pub fn score(self) -> Score {
        let tokens = self.prompt_logprobs;
        Score { logprob: tokens.iter().map(|t| t.logprob).sum(), is_greedy: tokens.iter().all(|t| t.is_top), tokens }
    }
}

/// Rows of hidden states as they come, and the vector they make.
pub(super) struct Pooled {
    pooling: Pooling,
    /// what comes behind
    dense: Arc<[Dense]>,
    sum: Vec<f64>,
    rows: usize,
}

impl Pooled {
    pub fn new(pooling: Pooling, dense: Arc<[Dense]>) -> Pooled {
        Pooled { pooling, dense, sum: Vec::new(), rows: 0 }
    }

    /// The first token of `n` whose row is wanted; of one that sees the whole text (`whole`) the text is computed whole.
    pub fn first(&self, n: usize, whole: bool) -> usize {
        if self.pooling == Pooling::Last && !whole { n - 1 } else { 0 }
    }

    /// The next row.
    pub fn push(&mut self, row: &[f32]) {
        self.sum.resize(row.len(), 0.0);
        match self.pooling {
            Pooling::Cls if self.rows > 0 => return,
            Pooling::Last => {
                self.sum.fill(0.0);
                self.rows = 0;
            }
            _ => {}
        }
        self.sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
        self.rows += 1;
    }

    /// The vector, of length 1: computed in f64, in the order of the tokens and of the elements, and rounded once.
    pub fn vector(&self) -> Vec<f32> {
        let mean = self.sum.iter().map(|s| s / self.rows as f64).collect();
        let vector: Vec<f64> = self.dense.iter().fold(mean, |x, layer| layer.apply(&x));
        let length = vector.iter().fold(0.0, |sum, x| sum + x * x).sqrt();
        let scale = if length > 0.0 { length } else { 1.0 };
        vector.iter().map(|x| (x / scale) as f32).collect()
    }
}
