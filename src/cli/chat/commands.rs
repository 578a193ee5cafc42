//! What begins with a slash.

use super::super::common::{self, note};
use super::super::sampling::bias;
use super::talk::Talk;
use crate::formats::output;
use crate::generate::sampling::Sampler;
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// What follows a line.
pub enum After {
    More,
    Leave,
}

const HELP: &[(&str, &str)] = &[
    ("/help", "this list (also /?)"),
    ("/clear", "forget what was said, but for the system message"),
    ("/system [TEXT]", "what the model is told first; alone: nothing"),
    (
        "/set [NAME VALUE]",
        "predict, or an option of the sampler under its name on the command line (temp, dry-base...); alone: all of them",
    ),
    ("/set think on|off|auto", "whether a model reasons that has both"),
    ("/regen", "answer again, with the next seed"),
    ("/save FILE", "the conversation as JSON"),
    ("/load FILE", "a conversation that was saved, or a list of messages"),
    ("/stats", "tokens, what the cache had, speed"),
    ("/bye", "leave (also /exit, Ctrl-D)"),
    ("\"\"\"", "begins and ends a message of several lines"),
];

/// The longest conversation that is read, in bytes.
const MOST: u64 = 64 << 20;

/// Does what a line asks for: a command, or a message to answer.
pub fn obey(talk: &mut Talk, line: &str) -> anyhow::Result<After> {
    let line = line.trim_end_matches(['\n', '\r']);
    let Some(command) = line.strip_prefix('/') else {
        talk.say(line)?;
        return Ok(After::More);
    };
    let (word, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let rest = rest.trim();
    match word {
        "help" | "?" => HELP.iter().for_each(|(name, what)| note!("{name:<24}{what}")),
        "clear" => {
            talk.messages.retain(|m| m["role"] == "system");
            note!("forgotten");
        }
        "system" => {
            talk.set_system((!rest.is_empty()).then(|| rest.to_string()));
            note!("{}", if rest.is_empty() { "no system message" } else { "from now on" });
        }
        "set" => set(talk, rest)?,
        "save" => save(talk, rest)?,
        "load" => load(talk, rest)?,
        "regen" => talk.again()?,
        "stats" => stats(talk),
        "bye" | "exit" | "quit" => return Ok(After::Leave),
        _ => bail!("no command /{word}: /help lists them; a message may begin with a space before its slash"),
    }
    Ok(After::More)
}

fn stats(talk: &Talk) {
    let (context, cached) = talk.context();
    if talk.all.answers == 0 {
        note!("nothing was said yet; the context holds {}", common::tokens(context));
        return;
    }
    note!("last: {}", talk.last.line());
    if talk.all.answers > 1 {
        note!("{} answers: {}", talk.all.answers, talk.all.line());
    }
    note!("context: {cached} of {} in the cache; seed {}", common::tokens(context), talk.sampling.seed);
}

/// All values, in the order of the chain.
fn show(talk: &Talk) {
    let o = &talk.sampling;
    let all = |n: usize| if n == usize::MAX { "-1".to_string() } else { n.to_string() };
    let biases: Vec<String> = o.logit_bias.iter().map(|(id, bias)| format!("{id}{bias:+}")).collect();
    let biases = if biases.is_empty() { "none".into() } else { biases.join(" ") };
    note!(
        "temp {}, top-k {}, top-p {}, min-p {}, repeat-penalty {}, repeat-last-n {}, seed {}, predict {}",
        o.temperature,
        o.top_k,
        o.top_p,
        o.min_p,
        o.repeat_penalty,
        all(o.repeat_last_n),
        o.seed,
        all(talk.most)
    );
    note!(
        "presence-penalty {}, frequency-penalty {}, dry-multiplier {}, dry-base {}, dry-allowed-length {}, dry-penalty-last-n {}",
        o.presence_penalty,
        o.frequency_penalty,
        o.dry_multiplier,
        o.dry_base,
        o.dry_allowed_length,
        all(o.dry_penalty_last_n)
    );
    note!(
        "typical {}, top-nsigma {}, xtc-probability {}, xtc-threshold {}, dynatemp-range {}, dynatemp-exp {}",
        o.typical_p,
        o.top_n_sigma,
        o.xtc_probability,
        o.xtc_threshold,
        o.dynatemp_range,
        o.dynatemp_exponent
    );
    note!(
        "mirostat {}, mirostat-ent {}, mirostat-lr {}, min-keep {}, logit-bias {biases}",
        o.mirostat,
        o.mirostat_tau,
        o.mirostat_eta,
        o.min_keep
    );
}

/// What a value is read as.
fn read<T: std::str::FromStr>(name: &str, value: &str) -> anyhow::Result<T> {
    value.parse().ok().with_context(|| format!("/set {name} {value}: expected a number"))
}

/// How many of the last tokens; -1: all.
fn last(name: &str, value: &str) -> anyhow::Result<usize> {
    Ok(usize::try_from(read::<i64>(name, value)?).unwrap_or(usize::MAX))
}

/// Changes one value of the sampler, or shows them all.
fn set(talk: &mut Talk, rest: &str) -> anyhow::Result<()> {
    let Some((name, value)) = rest.split_once(char::is_whitespace).map(|(n, v)| (n, v.trim())) else {
        ensure!(rest.is_empty(), "/set {rest}: a value is missing");
        show(talk);
        return Ok(());
    };
    let mut o = talk.sampling.clone();
    match name.trim_start_matches('-').replace('_', "-").as_str() {
        "temp" | "temperature" => o.temperature = read(name, value)?,
        "top-k" => o.top_k = read(name, value)?,
        "top-p" => o.top_p = read(name, value)?,
        "min-p" => o.min_p = read(name, value)?,
        "typical" | "typical-p" => o.typical_p = read(name, value)?,
        "top-nsigma" | "top-n-sigma" => o.top_n_sigma = read(name, value)?,
        "repeat-penalty" => o.repeat_penalty = read(name, value)?,
        "repeat-last-n" => o.repeat_last_n = last(name, value)?,
        "presence-penalty" => o.presence_penalty = read(name, value)?,
        "frequency-penalty" => o.frequency_penalty = read(name, value)?,
        "dry-multiplier" => o.dry_multiplier = read(name, value)?,
        "dry-base" => o.dry_base = read(name, value)?,
        "dry-allowed-length" => o.dry_allowed_length = read(name, value)?,
        "dry-penalty-last-n" => o.dry_penalty_last_n = last(name, value)?,
        "xtc-probability" => o.xtc_probability = read(name, value)?,
        "xtc-threshold" => o.xtc_threshold = read(name, value)?,
        "dynatemp-range" => o.dynatemp_range = read(name, value)?,
        "dynatemp-exp" | "dynatemp-exponent" => o.dynatemp_exponent = read(name, value)?,
        "mirostat" => o.mirostat = read(name, value)?,
        "mirostat-ent" | "mirostat-tau" => o.mirostat_tau = read(name, value)?,
        "mirostat-lr" | "mirostat-eta" => o.mirostat_eta = read(name, value)?,
        "min-keep" => o.min_keep = read(name, value)?,
        "logit-bias" if value == "none" => o.logit_bias.clear(),
        "logit-bias" => {
            let biases = value.split_whitespace().map(bias).collect::<Result<_, _>>();
            o.logit_bias = biases.map_err(|e| anyhow::anyhow!("/set {name} {value}: {e}"))?;
        }
        "seed" => o.seed = read(name, value)?,
        "predict" | "n" => talk.most = last(name, value)?,
        "think" => think(talk, value)?,
        _ => bail!("/set {name}: no such value; /help lists them"),
    }
    if o.dry_multiplier > 0.0 && o.dry_breakers.is_empty() {
        o.dry_breakers = talk.breakers()?;
    }
    Sampler::new(o.clone())?;
    talk.sampling = o;
    Ok(())
}

fn think(talk: &mut Talk, value: &str) -> anyhow::Result<()> {
    // the two names that templates have for it
    for key in ["enable_thinking", "thinking"] {
        match value {
            "on" => talk.kwargs.insert(key.into(), true.into()),
            "off" => talk.kwargs.insert(key.into(), false.into()),
            "auto" => talk.kwargs.shift_remove(key),
            _ => bail!("/set think {value}: expected on, off or auto"),
        };
    }
    Ok(())
}

fn save(talk: &Talk, file: &str) -> anyhow::Result<()> {
    ensure!(!file.is_empty(), "/save: the name of a file is missing");
    let path = Path::new(file);
    common::can_be_written("/save", path)?;
    let text = serde_json::to_string_pretty(&json!({"messages": talk.messages}))? + "\n";
    output::replace_file(path, text.as_bytes())?;
    note!("{}: {} messages", path.display(), talk.messages.len());
    Ok(())
}

fn load(talk: &mut Talk, file: &str) -> anyhow::Result<()> {
    ensure!(!file.is_empty(), "/load: the name of a file is missing");
    talk.messages = messages(Path::new(file)).with_context(|| format!("/load {file}"))?;
    note!("{file}: {} messages", talk.messages.len());
    Ok(())
}

/// The messages of a file: what `/save` writes, or a list alone.
fn messages(path: &Path) -> anyhow::Result<Vec<Value>> {
    let mut bytes = Vec::new();
    // an error of reading is no reason to leave: it is told as text
    File::open(path).and_then(|f| f.take(MOST + 1).read_to_end(&mut bytes)).map_err(|e| anyhow::anyhow!("{e}"))?;
    ensure!(bytes.len() as u64 <= MOST, "more than {} MiB", MOST >> 20);
    let mut value: Value = serde_json::from_slice(&bytes).map_err(|e| anyhow::anyhow!("no JSON: {e}"))?;
    if let Some(inner) = value.get_mut("messages") {
        value = inner.take();
    }
    let Value::Array(list) = value else { bail!("neither a list of messages nor an object with one") };
    let wrong = list.iter().position(|m| {
        let said = m["content"].is_string() || m["content"].is_array() || m["tool_calls"].is_array();
        !m["role"].is_string() || !said
    });
    if let Some(i) = wrong {
        bail!("message {}: a role and a content are expected", i + 1);
    }
    Ok(list)
}
