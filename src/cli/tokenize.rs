//! `isobit tokenize`: text to ids.

use super::common::{self, ModelArgs};
use crate::generate::tokenizer::Tokenizer;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit tokenize model.gguf -p \"Hello, world\"\n  isobit tokenize -f book.txt --no-bos --json"
)]
pub struct TokenizeArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The text
    #[arg(short = 'p', long, value_name = "TEXT", conflicts_with = "file", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// A file with the text; - for stdin
    #[arg(short = 'f', long)]
    file: Option<PathBuf>,
    /// Do not put the beginning-of-text token, or tokens, in front
    #[arg(long)]
    no_bos: bool,
    /// Read texts such as <|eot_id|> as control tokens
    #[arg(long)]
    special: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(a: TokenizeArgs) -> anyhow::Result<ExitCode> {
    let text = common::text(a.prompt.as_deref(), a.file.as_deref())?;
    let c = a.model.open()?;
    let tok = Tokenizer::read(&c)?;
    let ids = tok.encode(&text, !a.no_bos && tok.adds_bos(), a.special)?;
    let mut out = std::io::stdout().lock();
    let text = |id: u32| match tok.piece(id) {
        bytes if bytes.is_empty() => Ok(tok.token_text(id).unwrap_or_default()),
        bytes => String::from_utf8(bytes).map_err(|e| e.as_bytes().escape_ascii().to_string()),
    };
    if a.json {
        let pieces: Vec<String> = ids.iter().map(|&id| text(id).unwrap_or_else(|bytes| bytes)).collect();
        writeln!(out, "{}", serde_json::json!({ "ids": ids, "pieces": pieces }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for &id in &ids {
        match text(id) {
            Ok(text) => writeln!(out, "{id:>7}  {text:?}")?,
            Err(bytes) => writeln!(out, "{id:>7}  \"{bytes}\"")?,
        }
    }
    Ok(ExitCode::SUCCESS)
}
