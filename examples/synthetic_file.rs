//! Writes what `isobit bench --synthetic SHAPE:TYPE` runs as a GGUF file, for measuring another program on the same weights.
//! There is no tokeniser in it, as llama.cpp knows it: its `llama-bench` takes the file.
//!
//! ```text
//! cargo run --release --example synthetic_file -- llama-1b:iq2_xxs iq2_xxs.gguf
//! ```

use anyhow::{Context, Result};
use isobit::internals::formats::gguf_write::{self, Entry};
use isobit::internals::formats::meta::Value;
use isobit::internals::formats::synthetic::Synthetic;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::process::ExitCode;

/// Bytes made at once.
const AT_ONCE: u64 = 8 << 20;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [what, out] = &args[..] else {
        eprintln!("synthetic_file SHAPE:TYPE OUT.gguf");
        return ExitCode::from(2);
    };
    match write(what, out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn write(what: &str, out: &str) -> Result<()> {
    let c = Synthetic::parse(what).map_err(anyhow::Error::msg)?.container()?;
    let mut meta = c.meta.clone();
    meta.entries.retain(|(key, _)| !key.starts_with("tokenizer."));
    meta.entries.push(("tokenizer.ggml.model".into(), Value::Str("no_vocab".into())));
    let entries: Vec<Entry> =
        c.tensors.iter().map(|t| Entry { name: t.name.clone(), dtype: t.dtype, shape: t.shape.clone() }).collect();
    let head = gguf_write::head(out, &meta, &entries)?;
    let partial = format!("{out}.partial");
    let mut file = BufWriter::new(File::create(&partial).with_context(|| format!("{partial} cannot be made"))?);
    file.write_all(&head.bytes)?;
    let (mut at, mut bytes) = (head.bytes.len() as u64, Vec::new());
    for (t, &begin) in c.tensors.iter().zip(&head.offsets) {
        file.write_all(&vec![0; (begin - at) as usize])?;
        for from in (0..t.bytes).step_by(AT_ONCE as usize) {
            bytes.resize(AT_ONCE.min(t.bytes - from) as usize, 0);
            c.read(t, from, &mut bytes)?;
            file.write_all(&bytes)?;
        }
        at = begin + t.bytes;
    }
    file.write_all(&vec![0; (head.file_len - at) as usize])?;
    file.into_inner().map_err(|e| e.into_error())?.sync_all()?;
    Ok(std::fs::rename(partial, out)?)
}
