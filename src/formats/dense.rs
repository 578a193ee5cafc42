//! Layers behind pooling, which sentence-transformers keeps in folders of their own beside a model: their tensors are named
//! `dense_2`, `dense_3` and so on, in the order of `modules.json`, as llama.cpp's converter does, and the functions behind them
//! go into the config.

use super::error::FormatError;
use super::source::Source;
use super::{LoadMode, Tensor, safetensors};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The field of the config with the functions' names, one for each layer.
pub const FUNCTIONS: &str = "dense_functions";

/// A tensor of layer `i`, `weight` or `bias`.
pub fn name(i: usize, what: &str) -> String {
    format!("dense_{}.{what}", i + 2)
}

/// Whether a tensor is of such a layer.
pub fn is_one(tensor: &str) -> bool {
    tensor.strip_prefix("dense_").is_some_and(|rest| {
        let number = rest.trim_end_matches(".weight").trim_end_matches(".bias");
        !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
    })
}

/// What the folders hold.
#[derive(Default)]
pub(super) struct Layers {
    pub files: Vec<PathBuf>,
    pub sources: Vec<Source>,
    pub tensors: Vec<Tensor>,
    pub functions: Vec<Value>,
}

/// The layers that `modules` names, whose files follow `first` others; `read` gives a file of JSON, where there is one. `None`
/// where there are none, or where one of them is kept in a form that is not read.
pub(super) fn open(
    dir: &Path,
    mode: LoadMode,
    modules: Option<&Value>,
    first: usize,
    read: impl Fn(&Path) -> Result<Option<Value>, FormatError>,
) -> Result<Option<Layers>, FormatError> {
    let mut found = Layers::default();
    let listed = modules.iter().flat_map(|m| m.as_array()).flatten();
    for module in listed.filter(|m| m["type"].as_str().is_some_and(|t| t.ends_with(".Dense"))) {
        let plain = |p: &&str| !p.is_empty() && p.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
        let Some(folder) = module["path"].as_str().filter(plain).map(|p| dir.join(p)) else { return Ok(None) };
        let path = folder.join("model.safetensors");
        if !path.is_file() {
            return Ok(None);
        }
        let config = read(&folder.join("config.json"))?.unwrap_or_default();
        let source = Source::open(&path, mode)?;
        let i = found.functions.len();
        for t in safetensors::parse(&source, first + i)?.tensors {
            let Some(what) = t.name.strip_prefix("linear.").map(String::from) else { return Ok(None) };
            found.tensors.push(Tensor { name: name(i, &what), ..t });
        }
        // torch.nn.modules.linear.Identity
        let function = config["activation_function"].as_str().and_then(|f| f.rsplit('.').next()).unwrap_or("Tanh");
        found.functions.push(function.into());
        found.files.push(path);
        found.sources.push(source);
    }
    Ok(Some(found).filter(|f| !f.files.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_of_dense_layers_are_told_by_their_numbers() {
        assert_eq!((name(0, "weight"), name(1, "bias")), ("dense_2.weight".into(), "dense_3.bias".into()));
        assert!(is_one("dense_2.weight") && is_one("dense_12.bias"));
        assert!(!is_one("dense_.weight") && !is_one("dense_h_to_4h.weight") && !is_one("blk.0.dense_2.weight"));
    }
}
