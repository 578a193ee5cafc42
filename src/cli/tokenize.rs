//! `isobit tokenize`: text to ids.

use super::common::{self, ModelArgs};
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub struct TokenizeArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The text
    #[arg(short = 'p', long, conflicts_with = "file")]
    prompt: Option<String>,
    /// A file with the text; - for stdin
    #[arg(short = 'f', long)]
    file: Option<PathBuf>,
    /// Do not put the beginning-of-text token in front
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
    let tok = common::tokenizer(&c)?;
    let ids = tok.encode(&text, !a.no_bos && tok.adds_bos(), a.special)?;
    let mut out = std::io::stdout().lock();
    let piece = |id: u32| match tok.piece(id) {
        bytes if bytes.is_empty() => tok.token_text(id).unwrap_or_default(),
        bytes => String::from_utf8_lossy(&bytes).into_owned(),
    };
    if a.json {
        let pieces: Vec<String> = ids.iter().map(|&id| piece(id)).collect();
        writeln!(out, "{}", serde_json::json!({ "ids": ids, "pieces": pieces }))?;
    } else {
        for &id in &ids {
            writeln!(out, "{id:>7}  {:?}", piece(id))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
