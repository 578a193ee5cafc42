//! The flags of `isobit bench`, and the lists they stand for.

use super::Source;
use crate::bench::grid::{self, Test};
#[cfg(feature = "gpu")]
use crate::bench::predict::{self, Target};
use crate::bench::schema::{Config, Format, Kernels, Varied};
use crate::cli::common::{self, KernelArgs};
use crate::formats::synthetic::Synthetic;
use crate::models::Recent;
use crate::ops::cache::CacheType;
use crate::simd::Level;
use clap::Args;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Numbers of one word.
#[derive(Clone, Debug)]
pub(super) struct Numbers(pub(super) Vec<usize>);

fn numbers<const MAX: usize>(s: &str) -> Result<Numbers, String> {
    grid::numbers(s, MAX).map(Numbers)
}

fn positive<const MAX: usize>(s: &str) -> Result<Numbers, String> {
    let list = numbers::<MAX>(s)?;
    if list.0.contains(&0) { Err(format!("expected numbers from 1 to {MAX}")) } else { Ok(list) }
}

fn pair(s: &str) -> Result<(usize, usize), String> {
    let list = grid::numbers(s, 1 << 24)?;
    match list[..] {
        [p, g] if p + g > 0 => Ok((p, g)),
        _ => Err("expected two numbers, PROMPT,GENERATED".into()),
    }
}

fn format(s: &str) -> Result<Format, String> {
    Format::parse(s).ok_or_else(|| "expected md, json, jsonl, csv or sql".into())
}

fn level(s: &str) -> Result<String, String> {
    let known = || {
        let names: Vec<&str> = Level::available().into_iter().map(Level::name).collect();
        format!("this CPU has scalar, {}", names.join(", "))
    };
    let word = s.trim().to_lowercase();
    let has = word == "scalar" || Level::parse(&word).is_some_and(Level::is_available);
    if has { Ok(word) } else { Err(known()) }
}

fn on_or_off(s: &str) -> Result<bool, String> {
    match s.to_lowercase().as_str() {
        "1" | "on" | "auto" => Ok(true),
        "0" | "off" => Ok(false),
        _ => Err("expected on, off or auto".into()),
    }
}

/// What `--predict` names.
#[cfg(feature = "gpu")]
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    /// all targets there are
    All,
    /// that of the adapter in the file of `--measured`
    Measured,
    One(&'static Target),
}

#[cfg(feature = "gpu")]
impl Asked {
    fn parse(word: &str) -> Result<Asked, String> {
        match word.to_lowercase().as_str() {
            "all" => Ok(Asked::All),
            "auto" => Ok(Asked::Measured),
            name => predict::target(name).map(Asked::One).map_err(|e| format!("{e}; or all, or auto with --measured")),
        }
    }
}

#[derive(Args)]
#[command(
    after_help = "Numbers are lists: 512, 128,512, 0-4096+1024, 128-1024*2; flags may be repeated.\n\nExamples:\n  isobit bench model.gguf --device cpu,gpu\n  isobit bench -m model.gguf -p 512 -n 128 -d 0,4096 -ctk f16,q8_0,tq3_1 -ctv f16 -o json > a.json\n  isobit bench --synthetic llama-7b --device gpu --html report.html\n  isobit bench --ops --synthetic llama-1b --simd avx2,avx512\n  isobit bench --predict rtx-4090 --synthetic llama-8b -d 0,4096\n  isobit bench --compare a.json b.json\n\nExit code 1: digests differ, so one of the speeds is that of a wrong result. Fields: docs/bench.md."
)]
pub struct BenchArgs {
    /// GGUF files or Hugging Face directories [default: the embedded story model]
    #[arg(env = "ISOBIT_MODEL", hide_env_values = true)]
    pub(super) models: Vec<PathBuf>,
    /// The same as MODEL
    #[arg(short = 'm', long = "model", value_name = "MODEL")]
    pub(super) model_flags: Vec<PathBuf>,
    /// A model by shape, generated in memory: llama-58m, llama-1b, llama-3b, llama-7b, llama-8b, phi3-mini, qwen2-0.5b,
    /// qwen2-1.5b, qwen3-1.7b, chatglm-6b, glm4-9b, smollm3-3b, olmo2-7b, exaone4-1.2b, gemma2-2b, gemma3-270m, gemma3-1b, gemma3n-e2b, gemma3n-e4b, gemma4-e2b, gemma4-26b-a4b, granite-2b, starcoder2-3b, stablelm2-1.6b, command-r7b, command-r-35b, phi2-2.7b, gpt2-124m, falcon-7b, qwen35-9b, qwen35moe-35b, qwen3next-80b, minilm-l6, bge-base, bge-large, bge-m3, nomic-embed, embeddinggemma-300m, with :TYPE (q4_k_m, or a type of weights: q8_0, q4_k, q3_k, iq4_xs, mxfp4, w8a16, f16, ...)
    #[arg(long, value_name = "SHAPE[:TYPE]", value_delimiter = ',', value_parser = Synthetic::parse)]
    pub(super) synthetic: Vec<Synthetic>,
    /// cpu, cpu:LEVEL, gpu, auto, an index of `isobit devices`, part of an adapter's name
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_value = "auto", value_parser = common::word)]
    pub(super) device: Vec<String>,
    /// Levels for `--device cpu`: scalar, portable, avx2, avx512, …
    #[arg(long, value_name = "LEVEL", value_delimiter = ',', value_parser = level)]
    pub(super) simd: Vec<String>,
    /// Compute digests, and the logits that tests end with, on this device first (say cpu)
    #[arg(long, value_name = "DEVICE", value_parser = common::word)]
    pub(super) reference: Option<String>,
    /// About the seconds that --reference may take for the tests of one configuration; beyond, digests alone are compared
    #[arg(long, value_name = "S", default_value = "120", value_parser = common::whole::<0, {1 << 20}>)]
    pub(super) reference_limit: usize,

    // no default_value: `--ops` must know whether 512 was asked for
    /// Prompt tokens; 0: no such test [default: 512]
    #[arg(short = 'p', long, value_name = "N", value_parser = numbers::<{1 << 24}>)]
    #[arg(help_heading = "Tests")]
    pub(super) n_prompt: Vec<Numbers>,
    /// Generated tokens; 0: no such test
    #[arg(short = 'n', long, value_name = "N", default_value = "128", value_parser = numbers::<{1 << 24}>)]
    #[arg(help_heading = "Tests")]
    pub(super) n_gen: Vec<Numbers>,
    /// Prompt and generation in one test (also -pg)
    #[arg(long = "pg", value_name = "PP,TG", value_parser = pair, help_heading = "Tests")]
    pub(super) pairs: Vec<(usize, usize)>,
    /// Tokens in the cache before a test
    #[arg(short = 'd', long, value_name = "N", default_value = "0", value_parser = numbers::<{1 << 24}>)]
    #[arg(help_heading = "Tests")]
    pub(super) n_depth: Vec<Numbers>,
    /// Timed repetitions
    #[arg(short = 'r', long, value_name = "N", default_value = "5", value_parser = common::whole::<1, 100_000>)]
    #[arg(help_heading = "Tests")]
    pub(super) repetitions: usize,
    /// Seconds to wait before each repetition
    #[arg(long, value_name = "S", default_value = "0", value_parser = common::whole::<0, 86400>)]
    #[arg(help_heading = "Tests")]
    pub(super) delay: usize,
    /// Do not run each test once before it is timed
    #[arg(long, help_heading = "Tests")]
    pub(super) no_warmup: bool,
    /// Do not measure the devices' limits
    #[arg(long, help_heading = "Tests")]
    pub(super) no_limits: bool,

    /// Tokens handed over at once
    #[arg(short = 'b', long, value_name = "N", default_value = "2048", value_parser = positive::<{1 << 24}>)]
    #[arg(help_heading = "Engine")]
    pub(super) batch_size: Vec<Numbers>,
    /// Tokens computed at once (also -ub)
    #[arg(long = "ubatch", value_name = "N", alias = "ubatch-size", default_value = "512")]
    #[arg(value_parser = positive::<65535>, help_heading = "Engine")]
    pub(super) ubatch: Vec<Numbers>,
    /// Types of cached keys (also -ctk): f32, f16, q8_0, q4_0, q8_0r, q4_0r, tq3_0, tq3_1; c8 where the model brings
    /// scales
    #[arg(long, value_name = "TYPE", alias = "cache-type-k", value_delimiter = ',', default_value = "f16")]
    #[arg(value_parser = common::cache_type, help_heading = "Engine")]
    pub(super) ctk: Vec<CacheType>,
    /// Types of cached values (also -ctv); `same`: the keys'
    #[arg(long, value_name = "TYPE", alias = "cache-type-v", value_delimiter = ',', default_value = "same")]
    #[arg(value_parser = value_type, help_heading = "Engine")]
    pub(super) ctv: Vec<ValueType>,
    /// Read the query's own chunk of 64 positions from an f16 copy: auto (where K or V is tq3_1), on, off
    #[arg(long, value_name = "WHEN", value_delimiter = ',', default_value = "auto", value_parser = common::recent)]
    #[arg(help_heading = "Engine")]
    pub(super) kv_recent: Vec<Recent>,
    /// Bits of the activations: 8, 16
    #[arg(long, value_name = "BITS", value_delimiter = ',', default_value = "8", value_parser = ["8", "16"])]
    #[arg(hide_possible_values = true, help_heading = "Engine")]
    pub(super) activations: Vec<String>,
    /// Worker threads of the CPU; 0: one per core
    #[arg(short = 't', long, value_name = "N", default_value = "0", value_parser = numbers::<1024>)]
    #[arg(help_heading = "Engine")]
    pub(super) threads: Vec<Numbers>,
    /// The CPU has the experts of the first N layers that have some (also -ncmoe); 0: of none
    #[arg(long = "n-cpu-moe", value_name = "N", alias = "ncmoe", default_value = "0", value_parser = common::count)]
    #[arg(help_heading = "Engine")]
    pub(super) cpu_experts: usize,
    #[command(flatten)]
    pub(super) kernels: KernelArgs,
    /// Taken for llama-bench's sake (also -ngl): 0 means the CPU where no --device is given, else nothing
    #[arg(long = "ngl", value_name = "N", alias = "n-gpu-layers", default_value = "99", value_parser = common::count)]
    #[arg(help_heading = "Engine")]
    pub(super) gpu_layers: usize,
    /// Taken for llama-bench's sake (also -fa): attention is always fused
    #[arg(long = "flash-attn", value_name = "on|off", value_parser = on_or_off, help_heading = "Engine")]
    pub(super) flash_attn: Option<bool>,

    /// md, json, jsonl, csv, sql
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "md", value_parser = format)]
    #[arg(help_heading = "Output")]
    pub(super) output: Format,
    /// The same as -o json; with --compare one object
    #[arg(long, conflicts_with = "output", help_heading = "Output")]
    pub(super) json: bool,
    /// The same on stderr (also -oe)
    #[arg(long, value_name = "FORMAT", value_parser = format, help_heading = "Output")]
    pub(super) output_err: Option<Format>,
    /// Say on stderr what runs, a line for each test (a terminal shows it anyway)
    #[arg(long, help_heading = "Output")]
    pub(super) progress: bool,
    /// Also write one page with charts
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) html: Option<PathBuf>,

    /// Time each operation instead: of the model (`model`), or every case of the case table (`cases`)
    #[arg(long, value_name = "WHAT", num_args = 0..=1, default_missing_value = "model", help_heading = "Instead")]
    #[arg(value_parser = ["model", "cases"], hide_possible_values = true, require_equals = true)]
    pub(super) ops: Option<String>,
    /// Estimate speeds on devices that are not here (nothing runs): strix-halo, rtx-4090, h100, arc-a770, m1, m3-max, all, or
    /// auto for the adapter of --measured
    #[cfg(feature = "gpu")]
    #[arg(long, value_name = "TARGET", value_delimiter = ',', value_parser = Asked::parse, help_heading = "Instead")]
    pub(super) predict: Vec<Asked>,
    /// Show beside the estimates what this file of rows holds (JSON or JSONL)
    #[cfg(feature = "gpu")]
    #[arg(long, value_name = "FILE", requires = "predict", help_heading = "Instead")]
    pub(super) measured: Option<PathBuf>,
    /// Compare two files of rows (ours or llama-bench's; JSON or JSONL)
    #[arg(long, num_args = 2, value_names = ["A", "B"], help_heading = "Instead")]
    pub(super) compare: Vec<PathBuf>,
    /// Draw the page of --html from files of rows (JSON or JSONL)
    #[arg(long, value_name = "FILE", requires = "html", help_heading = "Instead")]
    pub(super) from: Vec<PathBuf>,
    /// Make the digests of this device wrong, to see it found
    #[arg(long, hide = true, value_name = "DEVICE")]
    pub(super) plant_fault: Option<String>,
}

/// A type of values, or that of the keys.
#[derive(Clone, Copy)]
pub(super) struct ValueType(Option<CacheType>);

fn value_type(s: &str) -> Result<ValueType, String> {
    if s == "same" { Ok(ValueType(None)) } else { common::cache_type(s).map(|t| ValueType(Some(t))) }
}

/// What llama-bench's users type in one dash, as `main` rewrites it.
pub fn short_form(word: &str) -> Option<&'static str> {
    Some(match word {
        "-pg" => "--pg",
        "-ngl" => "--ngl",
        "-ncmoe" => "--ncmoe",
        "-fa" => "--flash-attn",
        "-oe" => "--output-err",
        _ => return None,
    })
}

impl BenchArgs {
    /// The format of stdout.
    pub(super) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.output }
    }

    /// Names of the models, each to be opened when its turn comes.
    pub(super) fn sources(&self) -> Vec<Source> {
        // a model that only the environment names gives way to -m and --synthetic
        let variable = std::env::var_os("ISOBIT_MODEL");
        let typed = !matches!((&self.models[..], &variable), ([one], Some(v)) if one.as_os_str() == v.as_os_str());
        let others = !self.model_flags.is_empty() || !self.synthetic.is_empty();
        let named = if typed || !others { &self.models[..] } else { &[] };
        let mut list: Vec<Source> = named.iter().chain(&self.model_flags).map(|p| Source::File(p.clone())).collect();
        list.extend(self.synthetic.iter().map(|s| Source::Synthetic(*s)));
        if list.is_empty() {
            list.push(Source::Embedded);
        }
        list
    }

    /// `--device` and `--simd` as words of `--device`.
    pub(super) fn specs(&self) -> Vec<String> {
        let mut list: Vec<String> = Vec::new();
        for d in &self.device {
            let levels = d.eq_ignore_ascii_case("cpu") || (d == "auto" && !self.simd.is_empty());
            match d.as_str() {
                "auto" if self.gpu_layers == 0 && self.simd.is_empty() => list.push("cpu".into()),
                _ if levels && !self.simd.is_empty() => list.extend(self.simd.iter().map(|l| format!("cpu:{l}"))),
                d => list.push(d.to_string()),
            }
        }
        let mut seen = BTreeSet::new();
        list.retain(|d| seen.insert(d.to_lowercase()));
        list
    }

    pub(super) fn configs(&self) -> Vec<(Config, CacheType, CacheType)> {
        let flat = |v: &[Numbers]| -> Vec<usize> { v.iter().flat_map(|n| n.0.clone()).collect() };
        let mut list: Vec<(Config, CacheType, CacheType)> = Vec::new();
        for batch in flat(&self.batch_size) {
            for ubatch in flat(&self.ubatch) {
                for &k in &self.ctk {
                    for v in self.ctv.iter().map(|v| v.0.unwrap_or(k)) {
                        for (activations, recent) in
                            self.kv_recent.iter().flat_map(|r| self.activations.iter().map(move |a| (a, r)))
                        {
                            let activations = if activations == "16" { 16 } else { 8 };
                            let names = (k.name().to_string(), v.name().to_string());
                            let recent = recent.applies(k, v);
                            let config = Config {
                                batch,
                                ubatch,
                                activations,
                                k: names.0,
                                v: names.1,
                                recent,
                                ..Config::default()
                            };
                            if !list.iter().any(|(c, ..)| *c == config) {
                                list.push((config, k, v));
                            }
                        }
                    }
                }
            }
        }
        list
    }

    pub(super) fn tests(&self) -> Vec<Test> {
        let flat = |v: &[Numbers]| -> Vec<usize> { v.iter().flat_map(|n| n.0.clone()).collect() };
        let prompts = if self.n_prompt.is_empty() { vec![512] } else { flat(&self.n_prompt) };
        grid::tests(&prompts, &flat(&self.n_gen), &self.pairs, &flat(&self.n_depth))
    }

    /// The prompt of `--ops`: 64 tokens unless `-p` says otherwise, as the twin computes every one of them.
    pub(super) fn ops_tokens(&self) -> usize {
        self.n_prompt.iter().flat_map(|n| n.0.clone()).filter(|&n| n > 0).min().unwrap_or(64)
    }

    /// The columns of the Markdown table that tell rows of this run apart.
    pub(super) fn varied(&self, specs: &[String], threads: &[usize], kernels: &Kernels) -> Varied {
        let configs = self.configs();
        let differ =
            |f: &dyn Fn(&Config) -> String| configs.iter().map(|(c, ..)| f(c)).collect::<BTreeSet<_>>().len() > 1;
        let default = Config { batch: 2048, ubatch: 512, activations: 8, ..Config::default() };
        let f16 = |s: &str| s != "f16";
        let mut v = BTreeSet::new();
        let mut add = |name, when| v.extend(Some(name).filter(|_| when));
        add("device", specs.len() > 1);
        add("threads", threads.len() > 1);
        add("n_batch", differ(&|c| c.batch.to_string()) || configs.iter().any(|(c, ..)| c.batch != default.batch));
        add("n_ubatch", differ(&|c| c.ubatch.to_string()) || configs.iter().any(|(c, ..)| c.ubatch != default.ubatch));
        add("type_k", configs.iter().any(|(c, ..)| f16(&c.k)));
        add("type_v", configs.iter().any(|(c, ..)| f16(&c.v)));
        add("kv_recent", configs.iter().any(|(c, ..)| c.recent));
        add("activations", configs.iter().any(|(c, ..)| c.activations != default.activations));
        add("fuse", kernels.fuse != "on");
        add("variant", !kernels.variant.is_empty());
        add("tune", kernels.tune != "auto");
        add("read back B", specs.iter().any(|s| !s.starts_with("cpu")));
        Varied(v)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn parsed(words: &[&str]) -> BenchArgs {
        Line::try_parse_from([&["bench"], words].concat()).unwrap_or_else(|e| panic!("{e}")).bench
    }

    #[test]
    fn a_prompt_of_512_tokens_is_a_default_of_the_tests_and_a_wish_for_operations() {
        let prompts = |a: &BenchArgs| a.tests().iter().map(|t| t.prompt).filter(|&p| p > 0).collect::<Vec<_>>();
        for (words, tests, ops) in [
            (&[][..], &[512][..], 64),
            (&["-p", "512"], &[512], 512),
            (&["-p", "0"], &[], 64),
            (&["-p", "128,0,32"], &[128, 32], 32),
        ] {
            let a = parsed(words);
            assert_eq!((prompts(&a), a.ops_tokens()), (tests.to_vec(), ops), "{words:?}");
        }
    }
}
