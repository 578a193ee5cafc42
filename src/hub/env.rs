//! Where the folders are and how the hub is reached, as the programs that keep them decide it.
//!
//! Source: huggingface_hub's environment variables, Ollama's FAQ (`OLLAMA_MODELS`), LM Studio's folder of models.

use super::entry::Place;
use crate::formats::source::read_whole;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The folders of models of other programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folders {
    /// Hugging Face's cache, where models are fetched to as well; none without a home directory
    pub hf: Option<PathBuf>,
    /// LM Studio's, the present one first
    pub lmstudio: Vec<PathBuf>,
    /// Ollama's: the user's own and that of a service
    pub ollama: Vec<PathBuf>,
}

type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

fn process(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// A folder of a variable, `~` in front replaced; none where it is not set or empty.
fn folder(of: Variable, name: &str, home: Option<&Path>) -> Option<PathBuf> {
    let value = PathBuf::from(of(name).filter(|v| !v.is_empty())?);
    match (value.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => Some(home.join(rest)),
        _ => Some(value),
    }
}

/// Hugging Face's home: the cache of models, and the token that was left by a login.
fn hf_home(of: Variable, home: Option<&Path>) -> Option<PathBuf> {
    folder(of, "HF_HOME", home).or_else(|| {
        let cache = folder(of, "XDG_CACHE_HOME", home).or_else(|| Some(home?.join(".cache")))?;
        Some(cache.join("huggingface"))
    })
}

impl Folders {
    /// As the environment says.
    pub fn from_env() -> Folders {
        Folders::of(&process, std::env::home_dir().as_deref())
    }

    fn of(of: Variable, home: Option<&Path>) -> Folders {
        let named = || folder(of, "HF_HUB_CACHE", home).or_else(|| folder(of, "HUGGINGFACE_HUB_CACHE", home));
        let hf = named().or_else(|| Some(hf_home(of, home)?.join("hub")));
        let lmstudio = home.map(|h| vec![h.join(".lmstudio/models"), h.join(".cache/lm-studio/models")]);
        let ollama = match folder(of, "OLLAMA_MODELS", home) {
            Some(dir) => vec![dir],
            None => {
                let service = cfg!(target_os = "linux").then(|| PathBuf::from("/usr/share/ollama/.ollama/models"));
                home.map(|h| h.join(".ollama/models")).into_iter().chain(service).collect()
            }
        };
        Folders { hf, lmstudio: lmstudio.unwrap_or_default(), ollama }
    }

    /// All of them, in the order they are searched.
    pub(super) fn all(&self) -> Vec<(Place, PathBuf)> {
        let of = |place: Place| move |dir: &PathBuf| (place, dir.clone());
        let hf = self.hf.iter().map(of(Place::HuggingFace));
        hf.chain(self.lmstudio.iter().map(of(Place::LmStudio)))
            .chain(self.ollama.iter().map(of(Place::Ollama)))
            .collect()
    }
}

/// How the hub is reached.
#[derive(Clone, Debug)]
pub struct Access {
    /// address of the hub, without a slash at its end
    pub endpoint: String,
    /// sent to that address and to no other
    pub token: Option<String>,
    /// no requests at all
    pub offline: bool,
}

impl Access {
    /// As the environment says: `HF_ENDPOINT`, `HF_TOKEN` (or what a login left), `HF_HUB_OFFLINE`.
    pub fn from_env() -> Access {
        Access::of(&process, std::env::home_dir().as_deref())
    }

    fn of(of: Variable, home: Option<&Path>) -> Access {
        let text = |name: &str| of(name)?.into_string().ok().map(|t| t.trim().to_owned()).filter(|t| !t.is_empty());
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into());
        let file = folder(of, "HF_TOKEN_PATH", home).or_else(|| Some(hf_home(of, home)?.join("token")));
        let kept = || {
            let bytes = read_whole(&file?, 4096).ok()?;
            Some(String::from_utf8(bytes).ok()?.trim().to_owned()).filter(|t| !t.is_empty())
        };
        let yes = |name: &str| text(name).is_some_and(|v| ["1", "ON", "YES", "TRUE"].contains(&&v.to_uppercase()[..]));
        Access {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: text("HF_TOKEN").or_else(kept),
            offline: yes("HF_HUB_OFFLINE") || yes("TRANSFORMERS_OFFLINE"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_where_the_other_programs_have_them() {
        let of = |set: &[(&str, &str)]| {
            let set: Vec<(String, String)> = set.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            let get = move |name: &str| set.iter().find(|(k, _)| k == name).map(|(_, v)| OsString::from(v));
            let f = Folders::of(&get, Some(Path::new("/h")));
            (f.hf.unwrap(), f.ollama[0].clone())
        };
        let ollama = PathBuf::from("/h/.ollama/models");
        assert_eq!(of(&[]), ("/h/.cache/huggingface/hub".into(), ollama.clone()));
        assert_eq!(of(&[("XDG_CACHE_HOME", "/x")]), ("/x/huggingface/hub".into(), ollama.clone()));
        assert_eq!(of(&[("XDG_CACHE_HOME", "/x"), ("HF_HOME", "~/y")]), ("/h/y/hub".into(), ollama.clone()));
        assert_eq!(of(&[("HF_HOME", "/y"), ("HF_HUB_CACHE", "/z")]), ("/z".into(), ollama));
        assert_eq!(of(&[("HF_HOME", ""), ("OLLAMA_MODELS", "/o")]), ("/h/.cache/huggingface/hub".into(), "/o".into()));
        assert_eq!(Folders::of(&|_| None, None).hf, None);
    }

    #[test]
    fn access_is_what_the_variables_say() {
        let get = |name: &str| match name {
            "HF_ENDPOINT" => Some("http://127.0.0.1:9/".into()),
            "HF_TOKEN" => Some(" t ".into()),
            "HF_HUB_OFFLINE" => Some("true".into()),
            _ => None,
        };
        let a = Access::of(&get, None);
        assert_eq!((a.endpoint.as_str(), a.token.as_deref(), a.offline), ("http://127.0.0.1:9", Some("t"), true));
        let a = Access::of(&|_| None, None);
        assert_eq!((a.endpoint.as_str(), a.token, a.offline), ("https://huggingface.co", None, false));
    }
}
