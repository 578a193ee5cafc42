//! What is typed for a model: a path, or the name of one that another program keeps; and fetching one.

use super::interrupt;
#[cfg(feature = "hub")]
use super::notes::BARS;
use super::notes::note;
#[cfg(feature = "hub")]
use super::one_line;
use crate::hub::{Access, Entry, Folders, Listing, Missing, Name};
use anyhow::{bail, ensure};
use clap::Args;
use std::path::{Path, PathBuf};

/// llama.cpp's flags for models of the hub; `isobit pull --help` tells of them.
#[derive(Args, Clone, Default)]
pub struct HubArgs {
    /// A model of the hub, as user/model[:Q4_K_M]: taken from the cache, or fetched (also -hf)
    #[arg(long, hide = true, value_name = "NAME")]
    hf_repo: Option<String>,
    /// The file of it (also -hff)
    #[arg(long, hide = true, value_name = "FILE", requires = "hf_repo")]
    hf_file: Option<String>,
    /// Sent to the hub and to no other server (also -hft)
    #[arg(long, hide = true, value_name = "TOKEN", env = "HF_TOKEN", hide_env_values = true)]
    hf_token: Option<String>,
    /// Fetch nothing
    #[arg(long, hide = true)]
    offline: bool,
}

/// How the hub is reached: as flags say, else the environment.
pub fn access(token: Option<&String>, offline: bool) -> Access {
    let env = Access::from_env();
    let token = token.map(|t| t.trim().to_owned()).filter(|t| !t.is_empty());
    Access { token: token.or(env.token), offline: offline || env.offline, ..env }
}

impl HubArgs {
    /// Whether a model of the hub is asked for; a model that was named besides is an error.
    pub fn asked(&self, model: Option<&Path>) -> anyhow::Result<bool> {
        if let (Some(repo), Some(model)) = (&self.hf_repo, model) {
            // what the environment names is there for when nothing is asked for
            let from_environment = std::env::var_os("ISOBIT_MODEL").is_some_and(|e| e == *model.as_os_str());
            ensure!(from_environment, "two models, {} and -hf {repo}: give one", model.display());
        }
        Ok(self.hf_repo.is_some())
    }

    /// The model: from the folders, or fetched.
    pub fn model(&self) -> anyhow::Result<PathBuf> {
        let repo = self.hf_repo.as_deref().unwrap_or_default();
        let name = of_hub(repo, self.hf_file.as_deref())?;
        match here(&name) {
            Some(path) => Ok(path),
            None => Ok(fetch::now(&name, None, &access(self.hf_token.as_ref(), self.offline))?.path),
        }
    }
}

/// A name that is the hub's, whether `hf:` stands in front or not.
pub fn of_hub(name: &str, file: Option<&str>) -> anyhow::Result<Name> {
    let bare = name.strip_prefix("hf:").unwrap_or(name);
    let name = Name::parse(&format!("hf:{bare}"))?;
    Ok(match file {
        Some(file) => name.with_file(file)?,
        None => name,
    })
}

/// What a name stands for here.
pub fn here(name: &Name) -> Option<PathBuf> {
    Listing::read(&Folders::from_env()).find(name).ok().map(|entry| taken(name, entry))
}

/// Says which file a name stands for.
fn taken(name: &Name, entry: &Entry) -> PathBuf {
    note!("{name}: {} ({})", entry.path.display(), entry.place.name());
    entry.path.clone()
}

/// What to open for what was typed: an existing path goes first, then names. What can be no name stays as it is.
///
/// Errors: a name that stands for nothing here.
pub fn resolve(typed: &Path) -> anyhow::Result<PathBuf> {
    let text = typed.to_str().unwrap_or_default();
    let is_path = std::fs::symlink_metadata(typed).is_ok()
        || [".gguf", ".bump", ".safetensors", ".json"].iter().any(|e| text.to_lowercase().ends_with(e));
    let name = match Name::parse(text) {
        _ if is_path => return Ok(typed.to_path_buf()),
        Ok(name) => name,
        Err(e) if text.starts_with("hf:") => return Err(e.into()),
        // what opens files has the sentence for it
        Err(_) => return Ok(typed.to_path_buf()),
    };
    let listing = Listing::read(&Folders::from_env());
    let missing = match listing.find(&name) {
        Ok(entry) => return Ok(taken(&name, entry)),
        Err(missing) => missing,
    };
    match missing {
        Missing::Broken(why) => bail!("{name}: {why}{}", remedy(&name)),
        Missing::Others(mut have) => {
            have.retain(|h| !h.is_empty());
            have.truncate(20);
            bail!("{name}: no file of it has that in its name; there is {}{}", have.join(", "), remedy(&name))
        }
        Missing::Unknown => bail!(
            "{name}: no file or folder, and no model of that name that Hugging Face's hub, LM Studio or Ollama keep here \
             (`isobit models` lists them){}",
            remedy(&name)
        ),
    }
}

/// What would fetch it.
fn remedy(name: &Name) -> String {
    let bare = name.to_string();
    let bare = bare.strip_prefix("hf:").unwrap_or(&bare);
    match name.is_of_hub() {
        true if cfg!(feature = "hub") => format!("; `isobit pull {bare}` fetches it"),
        true => String::new(),
        false => format!("; `ollama pull {bare}` would fetch it from Ollama's registry"),
    }
}

/// Fetching, with a bar.
#[cfg(feature = "hub")]
pub mod fetch {
    use super::*;
    use crate::hub::fetch::{Fetched, Hub, Watch};
    use anyhow::Context;
    use indicatif::{BinaryBytes, ProgressBar, ProgressStyle};

    struct Bar(ProgressBar);

    impl Watch for Bar {
        fn begin(&mut self, file: &str, bytes: u64, have: u64) {
            let from = if have > 0 { format!(", going on at byte {have}") } else { String::new() };
            note!("fetching {file} ({}{from})", BinaryBytes(bytes));
            self.0.set_message(one_line(file));
            self.0.set_length(bytes);
            self.0.set_position(have);
            // the speed is that of what comes now
            self.0.reset_eta();
        }

        fn at(&mut self, have: u64) {
            self.0.set_position(have);
        }

        fn waiting(&mut self, why: &str) {
            note!("{why}");
        }
    }

    impl Drop for Bar {
        fn drop(&mut self) {
            self.0.finish_and_clear();
        }
    }

    /// Fetches a model, and says where it lies.
    ///
    /// Nothing is held meanwhile, so Ctrl-C ends the program where it stands: what is there of a file is a file of its own,
    /// from which the next download goes on.
    pub fn now(name: &Name, revision: Option<&str>, access: &Access) -> anyhow::Result<Fetched> {
        let folder = Folders::from_env().hf.context("no home directory: set HF_HUB_CACHE to where models are kept")?;
        let hub = Hub::new(access, interrupt::stop().clone()).with_context(|| name.to_string())?;
        let style =
            ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta} {wide_msg}")?;
        let mut bar = Bar(BARS.add(ProgressBar::new(0).with_style(style)));
        bar.0.set_message(format!("asking {} for {name}", hub.endpoint()));
        bar.0.tick();
        let plan = hub.plan(name, revision, &mut bar)?;
        let fetched = hub.fetch(&folder, &plan, &mut bar)?;
        drop(bar);
        if fetched.files.iter().any(|f| f.fetched > 0 && f.checked.is_none()) {
            note!("warning: the hub gave no digest of it, so only its length was checked");
        }
        Ok(fetched)
    }
}

/// Without the feature there is nothing that fetches.
#[cfg(not(feature = "hub"))]
pub mod fetch {
    use super::*;

    /// What was fetched: nothing.
    pub struct Fetched {
        /// never there
        pub path: PathBuf,
    }

    /// Says that it cannot.
    pub fn now(name: &Name, _: Option<&str>, _: &Access) -> anyhow::Result<Fetched> {
        let _ = interrupt::stop();
        bail!("{name} is not here, and this isobit was built without the feature hub, which fetches models")
    }
}
