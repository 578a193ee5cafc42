//! Flags of sampling and of grammars, spelled as llama.cpp spells them.

use crate::engine::{Compiled, Grammar, Model};
use crate::generate::breakers::{BREAKERS, breakers};
use crate::generate::sampling::SamplerOptions;
use anyhow::{Context, ensure};
use clap::Args;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;

/// What a help page says of the flags that it has no line for.
pub const REST: &str = "Also -j SCHEMA, -jf FILE, --grammar[-file] GBNF, --regex RE, -l ID+BIAS, --typical, --top-nsigma,\n--xtc-*, --dry-*, --dynatemp-*, --mirostat*, --presence- and --frequency-penalty, --repeat-last-n";

/// How tokens are chosen. What has no line in a help page is `hide`.
#[derive(Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Same seed, same text, everywhere; -1: a new one, printed
    #[arg(short = 's', long, default_value = "0", value_parser = seed, allow_negative_numbers = true)]
    pub seed: u64,
    /// Temperature; 0 takes the likeliest token
    #[arg(long, default_value_t = 0.8, value_name = "T", allow_negative_numbers = true)]
    temp: f32,
    /// Sample from the k likeliest; 0: from all
    #[arg(long, default_value = "40", value_name = "K", value_parser = super::common::count)]
    #[arg(allow_negative_numbers = true)]
    top_k: usize,
    /// Sample from the likeliest, up to this probability
    #[arg(long, default_value_t = 0.95, value_name = "P", allow_negative_numbers = true)]
    top_p: f32,
    /// Drop tokens less likely than this share of the likeliest
    #[arg(long, default_value_t = 0.05, value_name = "P", allow_negative_numbers = true)]
    min_p: f32,
    /// Divide the logits of recent tokens by this
    #[arg(long, default_value_t = 1.0, value_name = "X", allow_negative_numbers = true)]
    repeat_penalty: f32,
    /// How many tokens count as recent; -1: all
    #[arg(long, default_value = "64", value_name = "N", value_parser = last, allow_negative_numbers = true, hide = true)]
    repeat_last_n: usize,
    /// Take this from the logits of recent tokens
    #[arg(long, default_value_t = 0.0, value_name = "X", allow_negative_numbers = true, hide = true)]
    presence_penalty: f32,
    /// Take this from the logits of recent tokens for each time they came
    #[arg(long, default_value_t = 0.0, value_name = "X", allow_negative_numbers = true, hide = true)]
    frequency_penalty: f32,
    /// Locally typical sampling, up to this probability
    #[arg(
        long,
        default_value_t = 1.0,
        value_name = "P",
        alias = "typical-p",
        allow_negative_numbers = true,
        hide = true
    )]
    typical: f32,
    /// Keep logits within so many standard deviations of the greatest; -1: all
    #[arg(long, default_value_t = -1.0, value_name = "N", alias = "top-n-sigma", allow_negative_numbers = true)]
    #[arg(hide = true)]
    top_nsigma: f32,
    /// How likely the likeliest tokens are dropped (XTC)
    #[arg(long, default_value_t = 0.0, value_name = "P", allow_negative_numbers = true, hide = true)]
    xtc_probability: f32,
    /// Of tokens at least this probable XTC leaves the last
    #[arg(long, default_value_t = 0.1, value_name = "P", allow_negative_numbers = true, hide = true)]
    xtc_threshold: f32,
    /// What repeating sequences costs (DRY); 0: nothing
    #[arg(long, default_value_t = 0.0, value_name = "X", allow_negative_numbers = true, hide = true)]
    dry_multiplier: f32,
    /// How fast that grows with the sequence
    #[arg(long, default_value_t = 1.75, value_name = "X", allow_negative_numbers = true, hide = true)]
    dry_base: f32,
    /// Tokens that may come again for nothing
    #[arg(long, default_value = "2", value_name = "N", value_parser = super::common::count, hide = true)]
    dry_allowed_length: usize,
    /// How many tokens DRY looks back; -1: all
    #[arg(long, default_value = "-1", value_name = "N", value_parser = last, allow_negative_numbers = true, hide = true)]
    dry_penalty_last_n: usize,
    /// A text at which sequences end, instead of \n : " *; none: nowhere; may be repeated
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, hide = true)]
    dry_sequence_breaker: Vec<String>,
    /// The temperature is so much lower or higher, by entropy
    #[arg(long, default_value_t = 0.0, value_name = "T", allow_negative_numbers = true, hide = true)]
    dynatemp_range: f32,
    /// How entropy becomes temperature
    #[arg(long, default_value_t = 1.0, value_name = "X", allow_negative_numbers = true, hide = true)]
    dynatemp_exp: f32,
    /// Mirostat, version 1 or 2, in place of the other samplers; 0: off
    #[arg(long, default_value_t = 0, value_name = "N", hide = true)]
    mirostat: u8,
    /// How fast mirostat learns
    #[arg(long, default_value_t = 0.1, value_name = "X", allow_negative_numbers = true, hide = true)]
    mirostat_lr: f32,
    /// The surprise that mirostat aims at, in bits
    #[arg(long, default_value_t = 5.0, value_name = "BITS", allow_negative_numbers = true, hide = true)]
    mirostat_ent: f32,
    /// Add to a token's logit, as 15043+1 or 15043-inf; may be repeated
    #[arg(short = 'l', long, value_name = "ID+BIAS", value_parser = bias, hide = true)]
    logit_bias: Vec<(u32, f32)>,
    /// Tokens that samplers leave at least
    #[arg(long, default_value = "0", value_name = "N", value_parser = super::common::count, hide = true)]
    min_keep: usize,
}

impl SamplingArgs {
    /// All but DRY's breakers, which need a tokeniser.
    pub fn options(&self) -> SamplerOptions {
        SamplerOptions {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            repeat_last_n: self.repeat_last_n,
            seed: self.seed,
            logit_bias: self.logit_bias.clone(),
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            dry_multiplier: self.dry_multiplier,
            dry_base: self.dry_base,
            dry_allowed_length: self.dry_allowed_length,
            dry_penalty_last_n: self.dry_penalty_last_n,
            dry_breakers: Vec::new(),
            top_n_sigma: self.top_nsigma,
            typical_p: self.typical,
            xtc_probability: self.xtc_probability,
            xtc_threshold: self.xtc_threshold,
            dynatemp_range: self.dynatemp_range,
            dynatemp_exponent: self.dynatemp_exp,
            mirostat: self.mirostat,
            mirostat_tau: self.mirostat_ent,
            mirostat_eta: self.mirostat_lr,
            min_keep: self.min_keep,
        }
    }

    /// All, with the breakers as the model spells them; without a tokeniser there are none.
    pub fn options_for(&self, model: &Model) -> anyhow::Result<SamplerOptions> {
        let mut options = self.options();
        if let (true, Ok(tokenizer)) = (options.dry_multiplier > 0.0, model.tokenizer()) {
            let own = &self.dry_sequence_breaker;
            options.dry_breakers = match own.as_slice() {
                [] => breakers(tokenizer, &BREAKERS)?,
                _ => breakers(tokenizer, &own.iter().filter(|b| *b != "none").collect::<Vec<_>>())?,
            };
        }
        Ok(options)
    }
}

/// What the text must be.
#[derive(Args)]
#[command(next_help_heading = "Sampling")]
pub struct GrammarArgs {
    /// The text is JSON of this schema; {}: any JSON
    #[arg(short = 'j', long, value_name = "SCHEMA", conflicts_with_all = ["json_schema_file", "grammar", "grammar_file"])]
    #[arg(hide = true)]
    json_schema: Option<String>,
    /// A file with the schema
    #[arg(long, value_name = "FILE", conflicts_with_all = ["grammar", "grammar_file"], hide = true)]
    json_schema_file: Option<PathBuf>,
    /// The text is of this grammar, in llama.cpp's notation (GBNF)
    #[arg(long, value_name = "GBNF", conflicts_with = "grammar_file", allow_hyphen_values = true, hide = true)]
    grammar: Option<String>,
    /// A file with the grammar; a name that ends in .lark: in llguidance's notation
    #[arg(long, value_name = "FILE", hide = true)]
    grammar_file: Option<PathBuf>,
    /// The text is what this regular expression matches, from its begin to its end
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true, hide = true)]
    #[arg(conflicts_with_all = ["json_schema", "json_schema_file", "grammar", "grammar_file"])]
    regex: Option<String>,
}

impl GrammarArgs {
    /// The grammar, read.
    pub fn grammar(&self) -> anyhow::Result<Option<Grammar>> {
        let read = |path: &PathBuf| std::fs::read_to_string(path).with_context(|| path.display().to_string());
        let schema = |text: &str, name: &str| {
            let value = serde_json::from_str(text).with_context(|| format!("{name} is no JSON"))?;
            Ok::<_, anyhow::Error>(Grammar::JsonSchema(value))
        };
        if let Some(pattern) = &self.regex {
            return Ok(Some(Grammar::Regex(pattern.clone())));
        }
        Ok(Some(match (&self.json_schema, &self.json_schema_file, &self.grammar, &self.grammar_file) {
            // a text is JSON, a name is not
            (Some(text), ..) if text.trim_start().starts_with(['{', 't', 'f']) => schema(text, "--json-schema")?,
            (Some(name), ..) => {
                let path = PathBuf::from(name);
                ensure!(path.is_file(), "--json-schema {name:?} is neither a schema nor a file");
                schema(&read(&path)?, name)?
            }
            (_, Some(path), ..) => schema(&read(path)?, &path.display().to_string())?,
            (_, _, Some(text), _) => Grammar::Gbnf(text.clone()),
            (.., Some(path)) if path.extension().is_some_and(|e| e == "lark") => Grammar::Lark(read(path)?),
            (.., Some(path)) => Grammar::Gbnf(read(path)?),
            (None, None, None, None) => return Ok(None),
        }))
    }

    /// The grammar for a model.
    pub fn compiled(&self, model: &Model) -> anyhow::Result<Option<Arc<Compiled>>> {
        Ok(self.grammar()?.map(|g| model.grammar(&g)).transpose()?)
    }
}

fn seed(s: &str) -> Result<u64, String> {
    if s == "-1" {
        // the keys of a hash map are the one source of chance in the standard library
        return Ok(RandomState::new().build_hasher().finish() >> 32);
    }
    s.parse().map_err(|_| "expected a whole number, or -1 for a new one".to_string())
}

/// How many of the last tokens; -1: all.
fn last(s: &str) -> Result<usize, String> {
    if s == "-1" { Ok(usize::MAX) } else { super::common::count(s) }
}

/// A token and what is added to its logit.
pub fn bias(s: &str) -> Result<(u32, f32), String> {
    let wrong = || "expected ID+BIAS or ID-BIAS, as in 15043+1 or 15043-inf".to_string();
    let at = s.find(['+', '-']).ok_or_else(wrong)?;
    let (id, number) = (s[..at].parse(), s[at..].parse::<f32>());
    match (id, number) {
        (Ok(id), Ok(bias)) if bias.is_finite() || bias == f32::NEG_INFINITY => Ok((id, bias)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn biases_are_read_as_llama_cpp_reads_them() {
        assert_eq!(bias("15043+1"), Ok((15043, 1.0)));
        assert_eq!(bias("7-0.5"), Ok((7, -0.5)));
        assert_eq!(bias("0-inf"), Ok((0, f32::NEG_INFINITY)));
        for wrong in ["", "7", "+1", "7+", "7+inf", "7+nan", "x-1", "7--1"] {
            assert!(bias(wrong).is_err(), "{wrong}");
        }
        assert_eq!((last("-1"), last("64")), (Ok(usize::MAX), Ok(64)));
    }
}
