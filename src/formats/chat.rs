//! Chat templates of a model file, and the texts of special tokens that a Hugging Face config names. Text as it is: nobody
//! here knows what it says.

use super::error::FormatError;
use super::meta::Value;
use super::source::read_whole;
use super::{Container, hf};
use std::path::Path;

/// Longest template, in bytes.
const MAX_TEMPLATE: u64 = 4 << 20;

/// Templates of a model, at most.
const MAX_TEMPLATES: usize = 64;

/// The name of a template that has none.
pub const DEFAULT: &str = "default";

impl Container {
    /// The model's chat templates as name and source, the one called `default` first. GGUF: `tokenizer.chat_template` and
    /// `tokenizer.chat_template.NAME`. A directory: `chat_template.jinja`, `chat_templates/NAME.jinja`, then `chat_template` of
    /// `tokenizer_config.json` (text, or a list of `{"name", "template"}`); of two of one name the first counts.
    ///
    /// Errors: a file that cannot be read, is longer than 4 MiB or not UTF-8.
    pub fn chat_templates(&self) -> Result<Vec<(String, String)>, FormatError> {
        let mut all: Vec<(String, String)> = Vec::new();
        let mut add = |name: &str, text: &str| {
            if all.len() < MAX_TEMPLATES && !all.iter().any(|(n, _)| n == name) {
                all.push((name.into(), text.into()));
            }
        };
        for (key, value) in &self.meta.entries {
            let (Some(rest), Value::Str(text)) = (key.strip_prefix("tokenizer.chat_template"), value) else { continue };
            match rest.strip_prefix('.') {
                Some(name) => add(name, text),
                None if rest.is_empty() => add(DEFAULT, text),
                None => {}
            }
        }
        // what is in memory lies beside nothing
        let dir = self.files.first().filter(|f| f.is_file() && !self.kind.is_named_as_gguf()).and_then(|f| f.parent());
        if let Some(dir) = dir {
            let main = dir.join("chat_template.jinja");
            if main.is_file() {
                add(DEFAULT, &text(&main)?);
            }
            for (name, path) in named(&dir.join("chat_templates")) {
                add(&name, &text(&path)?);
            }
        }
        match self.tokenizer_config.as_ref().and_then(|c| c.get("chat_template")) {
            Some(serde_json::Value::String(text)) => add(DEFAULT, text),
            Some(serde_json::Value::Array(list)) => {
                for t in list {
                    if let (Some(name), Some(text)) = (t["name"].as_str(), t["template"].as_str()) {
                        add(name, text);
                    }
                }
            }
            _ => {}
        }
        all.sort_by_key(|(name, _)| name != DEFAULT);
        Ok(all)
    }

    /// Special tokens as `tokenizer_config.json` names them (`bos_token` and so on), with their texts.
    pub fn named_tokens(&self) -> Vec<(String, String)> {
        const NAMES: [&str; 7] =
            ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
        let Some(config) = &self.tokenizer_config else { return Vec::new() };
        let text = |name: &&str| {
            let v = config.get(*name)?;
            let text = v.as_str().or_else(|| v.get("content")?.as_str())?;
            Some((name.to_string(), text.to_string()))
        };
        NAMES.iter().filter_map(text).collect()
    }
}

/// The templates of a directory of them, in the order of their names.
fn named(dir: &Path) -> Vec<(String, std::path::PathBuf)> {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|f| f.path());
    let name = |p: &Path| Some(p.file_name()?.to_str()?.strip_suffix(".jinja")?.to_string());
    let mut all: Vec<_> = files.filter_map(|p| Some((name(&p)?, p))).filter(|(_, p)| p.is_file()).collect();
    all.sort();
    all.truncate(MAX_TEMPLATES);
    all
}

fn text(path: &Path) -> Result<String, FormatError> {
    let bytes = read_whole(path, MAX_TEMPLATE.min(hf::MAX_CONFIG))?;
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let place = super::error::show_path(path);
        FormatError::invalid(&place, "whole file", "not a text", "UTF-8", format_args!("another byte at {at}"))
    })
}
