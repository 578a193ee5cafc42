//! `isobit shaders`: every shader as drivers get it, for compilers and checks outside of this program (`scripts/isa`).

use crate::cases;
use crate::host::shaders::{SHADERS, code};
use crate::host::{spirv, variants};
use anyhow::Context;
use clap::{Args, ValueEnum};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
#[command(
    after_help = "Writes DIR/NAME.wgsl with every import expanded and marks of where each part is from, and DIR/index.tsv: a line for each shader and set of override values\nwith the stem, the WGSL file, the SHA-256 of its code (comments and spacing left out), the entry point, what the text must enable first for readers other than naga, the values as NAME=NUMBER, the SPIR-V file, and `1` where a device may run the shader for some model before it has measured any (files that are not of this build count as such).\n\nExamples:\n  isobit shaders --out expanded\n  isobit shaders --out expanded --spirv --sets cover"
)]
pub struct ShadersArgs {
    /// The folder to write to
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Write SPIR-V too, as wgpu gives it to Vulkan drivers
    #[arg(long)]
    spirv: bool,
    /// Sets of override values: all that can be asked for, or a few in which every value of every override occurs
    #[arg(long, value_enum, default_value_t = Sets::All)]
    sets: Sets,
    /// Expanded WGSL to take in place of the shaders of this build
    files: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sets {
    All,
    Cover,
}

/// The columns of the index.
const HEAD: &str = "shader\twgsl\tsha256\tentry\tenable\toverrides\tspirv\tdefault\n";

/// Shaders that no device runs for any model unless it has measured them or a user asks for them.
fn others() -> HashSet<&'static str> {
    let defaults: HashSet<String> = cases::ops().into_iter().flat_map(variants::defaults).collect();
    SHADERS.iter().map(|s| s.name).filter(|name| !defaults.contains(*name)).collect()
}

pub fn run(a: ShadersArgs) -> anyhow::Result<ExitCode> {
    // stem, text, what it must enable first
    let mut shaders: Vec<(String, String, &str)> = Vec::new();
    for file in &a.files {
        let name = || file.display().to_string();
        let stem = file.file_stem().and_then(|s| s.to_str()).with_context(|| format!("{}: no file name", name()))?;
        shaders.push((stem.to_string(), std::fs::read_to_string(file).with_context(name)?, ""));
    }
    if a.files.is_empty() {
        let enable = |subgroups| if subgroups { "subgroups" } else { "" };
        shaders.extend(SHADERS.iter().map(|s| (s.name.to_string(), s.source.to_string(), enable(s.subgroups))));
    }
    let mut stems = HashSet::new();
    if let Some((twice, ..)) = shaders.iter().find(|(stem, ..)| !stems.insert(stem.clone())) {
        anyhow::bail!("two files are called {twice}.wgsl: give one of them another name");
    }
    std::fs::create_dir_all(&a.out).with_context(|| a.out.display().to_string())?;
    let write = |name: &str, bytes: &[u8]| {
        let file = a.out.join(name);
        std::fs::write(&file, bytes).with_context(|| file.display().to_string())
    };
    let others = others();
    let mut index = HEAD.to_string();
    for (stem, source, enable) in &shaders {
        let wgsl = format!("{stem}.wgsl");
        write(&wgsl, source.as_bytes())?;
        let default = if others.contains(stem.as_str()) { "" } else { "1" };
        let hash = format!("{:x}", Sha256::digest(code(source)));
        let sets = variants::override_sets(stem);
        for set in if a.sets == Sets::Cover { variants::cover(sets) } else { sets } {
            let values: Vec<String> = set.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let mut spv = String::new();
            if a.spirv {
                let words = spirv::compile(source, &set).map_err(|e| anyhow::anyhow!("{wgsl}: {e}"))?;
                spv =
                    [stem.as_str()].into_iter().chain(values.iter().map(|v| v.as_str())).collect::<Vec<_>>().join(",");
                spv.push_str(".spv");
                write(&spv, bytemuck::cast_slice(&words))?;
            }
            writeln!(index, "{stem}\t{wgsl}\t{hash}\tmain\t{enable}\t{}\t{spv}\t{default}", values.join(" "))
                .expect("a String grows");
        }
    }
    // written last, so that every file an index names is there
    write("index.tsv", index.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
