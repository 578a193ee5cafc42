//! Ollama's folder of models: `manifests/HOST/USER/MODEL/TAG` are lists of layers in JSON, `blobs/sha256-...` are the
//! layers. The one with weights is a GGUF file; templates, parameters and licences, which are layers too, are not read.
//!
//! Source: Ollama's questions and answers (where models are) and the manifests' own media types.

use super::entry::{Entry, Held, Place};
use super::walk::Root;
use crate::formats::source::read_whole;
use serde::Deserialize;
use std::path::{Path, PathBuf};

const PLACE: Place = Place::Ollama;
/// Bytes of a manifest, at most.
const LONGEST: u64 = 1 << 20;
/// The registry whose models have no host in their names, and its user whose models have no user either.
const REGISTRY: &str = "registry.ollama.ai";
const LIBRARY: &str = "library";
const WEIGHTS: &str = "application/vnd.ollama.image.model";

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
struct Layer {
    #[serde(rename = "mediaType")]
    media: String,
    digest: String,
    size: u64,
}

/// Everything in the folder.
pub(super) fn read(dir: &Path) -> Held {
    let mut held = Held::default();
    let Some(root) = Root::new(dir) else { return held };
    let manifests = dir.join("manifests");
    for (name, path) in root.files(&manifests) {
        let parts: Vec<&str> = name.split('/').collect();
        // host, user, model, tag
        let [host, user, model, tag] = parts[..] else { continue };
        if parts.iter().any(|p| p.starts_with('.')) {
            continue;
        }
        let repo = match (host, user) {
            (REGISTRY, LIBRARY) => model.to_owned(),
            (REGISTRY, _) => format!("{user}/{model}"),
            _ => format!("{host}/{user}/{model}"),
        };
        match weights(&root, dir, &path) {
            Ok((path, bytes)) => {
                held.entries.push(Entry { place: PLACE, repo, file: tag.to_owned(), path, is_dir: false, bytes });
            }
            Err(why) => held.pass(PLACE, format!("{repo}:{tag}"), path, why),
        }
    }
    held
}

/// The file of weights that a manifest names, and its length.
fn weights(root: &Root, dir: &Path, manifest: &Path) -> Result<(PathBuf, u64), String> {
    root.file(manifest)?;
    let bytes = read_whole(manifest, LONGEST).map_err(|e| e.to_string())?;
    let wrong = |e: serde_json::Error| format!("not a manifest: line {} column {}", e.line(), e.column());
    let manifest: Manifest = serde_json::from_slice(&bytes).map_err(wrong)?;
    let layers: Vec<&Layer> = manifest.layers.iter().filter(|l| l.media == WEIGHTS).collect();
    let [layer] = layers[..] else {
        return Err(match layers.len() {
            0 => "its manifest names no weights (it may run in the cloud)".into(),
            n => format!("its manifest names {n} files of weights"),
        });
    };
    let digest =
        layer.digest.strip_prefix("sha256:").filter(|d| d.len() == 64 && d.bytes().all(|b| b.is_ascii_hexdigit()));
    let digest = digest.ok_or("its manifest names weights by no digest")?;
    let blob = dir.join("blobs").join(format!("sha256-{digest}"));
    let have = root.file(&blob).map_err(|e| format!("its weights: {e}"))?;
    if have != layer.size {
        return Err(format!("its weights have {have} bytes, its manifest says {}", layer.size));
    }
    Ok((blob, have))
}
