//! `isobit score`: how likely a model holds one text after another, for a file of pairs.

use super::common::{self, note};
use super::many::{self, ManyArgs};
use crate::engine::{Head, Prompt, Request, Score};
use crate::generate::verify::hex;
use anyhow::Context;
use clap::Args;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit score pairs.jsonl -m model.gguf\n  isobit score pairs.jsonl --json --parallel 32 > scores.jsonl\n\nA line of pairs: {\"context\": \"The sky is\", \"continuation\": \" blue\"}; lists of token ids serve as well as texts.\nA score is the sum of the log probabilities of the continuation's tokens. Texts are tokenised as one, and spaces\nat the end of the context count to the continuation, as lm-evaluation-harness does it."
)]
pub struct ScoreArgs {
    /// Pairs, a JSON object a line; - for stdin
    input: PathBuf,
    /// Print one JSON object a pair, with the log probability of every token
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    many: ManyArgs,
}

/// A line of pairs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    context: Words,
    continuation: Words,
}

/// A text, or token ids.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub enum Words {
    Text(String),
    Ids(Vec<u32>),
}

impl From<Words> for Prompt {
    fn from(words: Words) -> Prompt {
        match words {
            Words::Text(text) => Prompt::Text(text),
            Words::Ids(ids) => Prompt::Ids(ids),
        }
    }
}

pub fn run(a: ScoreArgs) -> anyhow::Result<ExitCode> {
    let pairs: Vec<(usize, Pair)> = many::read(&a.input)?;
    let model = a.many.model()?;
    common::generates(&model)?;
    // all pairs are understood, and fit, before the first is computed
    let context = a.many.context(&model);
    let mut requests = Vec::with_capacity(pairs.len());
    for (line, pair) in pairs {
        let place = || format!("{} line {line}", a.input.display());
        let request = Request::score(&model, pair.context, pair.continuation).with_context(place)?;
        many::fits(&request.prompt, context).with_context(place)?;
        requests.push((line, request));
    }
    let engine = a.many.engine(&model, a.many.ubatch().min(ROWS), Head::Logits)?;
    let (started, bar) =
        (Instant::now(), common::bar(requests.len() as u64, "scoring {bar:30} {pos}/{len} pairs {eta}"));
    let (mut out, mut hash) = (BufWriter::new(std::io::stdout().lock()), Sha256::new());
    let (mut tokens, mut sum, mut greedy) = (0, 0.0, 0);
    let ask = |(line, request): &(usize, Request)| Ok((*line, engine.generate(request.clone())?));
    let pairs = requests.len();
    a.many.in_order(&requests, ask, |_, (line, reply)| {
        let place = || format!("{} line {line}", a.input.display());
        let score: Score = reply.wait().with_context(place)?.score();
        hash.update(score.logprob.to_le_bytes());
        (tokens, sum) = (tokens + score.tokens.len(), sum + score.logprob);
        greedy += usize::from(score.is_greedy);
        match a.json {
            true => {
                let list: Vec<f64> = score.tokens.iter().map(|t| t.logprob).collect();
                let ids: Vec<u32> = score.tokens.iter().map(|t| t.id).collect();
                let v = json!({ "logprob": score.logprob, "is_greedy": score.is_greedy, "ids": ids, "logprobs": list });
                writeln!(out, "{v}")?;
            }
            false => {
                let word = if score.is_greedy { "greedy" } else { "-" };
                writeln!(out, "{:.6}\t{}\t{word}", score.logprob, score.tokens.len())?;
            }
        }
        bar.inc(1);
        Ok(())
    })?;
    bar.finish_and_clear();
    out.flush()?;
    note!(
        "{pairs} pairs, {tokens} tokens, mean {:.6} a token, {greedy} greedy, {:.1} s; sha256 {}",
        sum / tokens as f64,
        started.elapsed().as_secs_f64(),
        hex(&hash.finalize())
    );
    Ok(ExitCode::SUCCESS)
}

/// Rows of logits a step gives at most: each takes the memory of a vocabulary.
const ROWS: usize = 64;
