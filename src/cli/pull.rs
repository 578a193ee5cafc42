//! `isobit pull`: a model of the hub into Hugging Face's cache.

use super::names;
use crate::hub::Access;
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit pull user/model\n  isobit pull user/model:Q8_0\n  isobit pull user/model --file model-Q6_K.gguf --revision v1.0\n  isobit run -hf user/model -p Hello\n\nThe file whose name holds the word behind the colon is taken, else Q4_K_M, else the first; all its shards; where there is no GGUF file, config.json, tokeniser and safetensors files. It lies in Hugging Face's cache, where Python finds it (HF_HUB_CACHE, HF_HOME). HF_ENDPOINT names another hub, HF_HUB_OFFLINE=1 allows no requests. A download that ended goes on where it was. Commands that run a model take -hf NAME, -hff FILE, -hft TOKEN and --offline as llama.cpp does."
)]
pub struct PullArgs {
    /// user/model, or user/model:Q4_K_M
    name: String,
    /// A branch, tag or commit
    #[arg(long, value_name = "R", default_value = "main")]
    revision: String,
    /// This file of the repository, whatever it is
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
    /// Print one JSON object rather than the model's path
    #[arg(long)]
    json: bool,
    /// Sent to the hub and to no other server (also -hft)
    #[arg(long, value_name = "TOKEN", env = "HF_TOKEN", hide_env_values = true)]
    hf_token: Option<String>,
    /// Ask nobody: only say whether it is here
    #[arg(long)]
    offline: bool,
}

impl PullArgs {
    fn access(&self) -> Access {
        names::access(self.hf_token.as_ref(), self.offline)
    }
}

#[cfg(feature = "hub")]
pub fn run(a: PullArgs) -> anyhow::Result<ExitCode> {
    use std::io::Write;
    let typed = crate::hub::Name::parse(&a.name)?;
    // a bare name is most likely Ollama's
    let name = if typed.is_of_hub() { names::of_hub(&a.name, a.file.as_deref())? } else { typed };
    let access = a.access();
    if access.offline
        && let Some(path) = names::here(&name)
    {
        writeln!(std::io::stdout(), "{}", path.display())?;
        return Ok(ExitCode::SUCCESS);
    }
    let fetched = names::fetch::now(&name, Some(&a.revision), &access)?;
    let mut out = std::io::stdout().lock();
    if !a.json {
        writeln!(out, "{}", fetched.path.display())?;
        return Ok(ExitCode::SUCCESS);
    }
    let files: Vec<_> = fetched
        .files
        .iter()
        .map(|f| {
            serde_json::json!({
                "file": f.name, "bytes": f.bytes, "etag": f.etag, "fetched_bytes": f.fetched, "digest_checked": f.checked,
            })
        })
        .collect();
    let object = serde_json::json!({
        "repository": name.repo, "revision": a.revision, "commit": fetched.commit,
        "path": fetched.path.display().to_string(), "files": files,
    });
    writeln!(out, "{object}")?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(not(feature = "hub"))]
pub fn run(a: PullArgs) -> anyhow::Result<ExitCode> {
    let name = names::of_hub(&a.name, a.file.as_deref())?;
    // whatever form the result would have had
    let _ = a.json;
    names::fetch::now(&name, Some(&a.revision), &a.access())?;
    Ok(ExitCode::SUCCESS)
}
