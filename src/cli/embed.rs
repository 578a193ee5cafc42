//! `isobit embed`: texts as vectors.

use super::common::{self, note};
use super::many::{self, ManyArgs};
use super::score::Words;
use crate::engine::{Head, Pooling, Prompt};
use crate::generate::verify::hex;
use anyhow::{Context, bail, ensure};
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
    after_help = "Examples:\n  isobit embed -p \"Once upon a time\" -m model.gguf\n  isobit embed texts.jsonl --pooling last --json > vectors.jsonl\n\nA line of texts: {\"input\": \"Once upon a time\"}; a list of token ids serves as well as a text.\nA vector is made of the hidden states before the output matrix (of an encoder, those of its last layer), and has length 1."
)]
pub struct EmbedArgs {
    /// Texts, a JSON object a line; - for stdin
    #[arg(required_unless_present = "prompt")]
    input: Option<PathBuf>,
    /// One text, in place of a file
    #[arg(short = 'p', long, value_name = "TEXT", conflicts_with = "input", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// What is made of the tokens' states: mean, cls, last [default: what the file says, else mean]
    #[arg(long, value_name = "HOW", value_parser = ["mean", "cls", "last"], hide_possible_values = true)]
    pooling: Option<String>,
    /// Print one JSON object a text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    many: ManyArgs,
}

/// A line of texts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    input: Words,
}

pub fn run(a: EmbedArgs) -> anyhow::Result<ExitCode> {
    let texts: Vec<(usize, Line)> = match (&a.input, &a.prompt) {
        (Some(path), _) => many::read(path)?,
        (None, Some(text)) => vec![(1, Line { input: Words::Text(text.clone()) })],
        (None, None) => bail!("no text: name a file, or write -p TEXT"),
    };
    let place = |line: usize| a.input.as_ref().map_or("the text".into(), |f| format!("{} line {line}", f.display()));
    let model = a.many.model()?;
    let pooling = match a.pooling.as_deref().and_then(Pooling::parse) {
        Some(pooling) => pooling,
        None => model.pooling()?,
    };
    let context = a.many.context(&model);
    let mut prompts = Vec::with_capacity(texts.len());
    for (line, text) in texts {
        let prompt = match text.input {
            Words::Ids(ids) => Prompt::Ids(ids),
            Words::Text(text) => {
                let t = model.tokenizer()?;
                Prompt::Ids(t.encode_whole(&text, false).with_context(|| place(line))?)
            }
        };
        many::fits(&prompt, context).with_context(|| place(line))?;
        prompts.push((line, prompt));
    }
    // a row of hidden states is small
    let engine = a.many.engine(&model, a.many.ubatch(), Head::Hidden)?;
    let (started, bar) =
        (Instant::now(), common::bar(prompts.len() as u64, "embedding {bar:30} {pos}/{len} texts {eta}"));
    let (mut out, mut hash, mut dim) = (BufWriter::new(std::io::stdout().lock()), Sha256::new(), 0);
    let ask = |(line, prompt): &(usize, Prompt)| Ok((*line, engine.embed(prompt.clone(), pooling)?));
    a.many.in_order(&prompts, ask, |i, (line, reply)| {
        let vector = reply.wait().with_context(|| place(line))?;
        ensure!(!vector.is_empty(), "a vector of nothing");
        hash.update(bytemuck::cast_slice::<f32, u8>(&vector));
        dim = vector.len();
        match a.json {
            true => writeln!(out, "{}", json!({ "index": i, "embedding": vector }))?,
            false => {
                let words: Vec<String> = vector.iter().map(|x| x.to_string()).collect();
                writeln!(out, "{}", words.join(" "))?;
            }
        }
        bar.inc(1);
        Ok(())
    })?;
    bar.finish_and_clear();
    out.flush()?;
    let (n, seconds) = (prompts.len(), started.elapsed().as_secs_f64());
    note!("{n} vectors of {dim}, {seconds:.1} s; sha256 {}", hex(&hash.finalize()));
    Ok(ExitCode::SUCCESS)
}
