//! What is typed: llama.cpp's habits understood or answered, and names that were nearly right.
//!
//! llama.cpp has long flags of one dash. clap reads such a word as a cluster, `-ngl` as `-n gl`, and then complains of a flag
//! that nobody typed. So words of one dash are looked at before clap sees them: known ones are rewritten, left out with a
//! note, or answered; unknown ones are refused as they are.

use super::common::note;
use clap::{Arg, Command};
use std::ffi::OsString;

/// How a flag of llama.cpp's tools is treated.
#[derive(Clone, Copy)]
enum Means {
    /// the same as ours
    Ours(&'static str),
    /// it changes nothing here and is left out: the reason, and whether a value follows
    Idle(&'static str, Takes),
    /// it asks for something isobit lacks: the answer
    Answer(&'static str),
}

#[derive(Clone, Copy, PartialEq)]
enum Takes {
    Nothing,
    Value,
    /// a value where the next word is on, off or auto
    Switch,
}

use Means::{Answer, Idle, Ours};
use Takes::{Nothing, Switch, Value};

const NO_CHAT: &str = "this command continues the prompt as it is: `isobit chat` talks to a model by its template, or write the whole \
     prompt with -p or -f, the model's own control tokens in it, and add --special";
const NO_URLS: &str = "isobit fetches models of the hub alone, by name: -hf user/model, or `isobit pull user/model`";
const ONE_DEVICE: &str =
    "--devices A,B, --split N,M and --cpu-moe say which device has what (`isobit devices` lists them)";
const SAMPLERS: &str = "the samplers are always in llama.cpp's default order: penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature; \
     each is off until its flag is given";
const NO_ADAPTERS: &str =
    "isobit runs the model's own weights: adapters, control vectors and draft models are not supported";
const NO_IMAGES: &str = "isobit reads text alone: images and sound are not supported";
const FILES_ROPE: &str = "RoPE is as the model's file says, and no flag changes it";
const COMPARE: &str =
    "isobit perplexity measures perplexity alone; `isobit compare A B -f FILE` has KL divergence and top tokens";

const ALL_LAYERS: Means = Idle("all layers run on one device, which --device chooses", Value);
const FUSED: Means = Idle("attention is always fused", Switch);
const BATCH: Means = Idle("tokens are computed --ubatch at once, whatever a batch is", Value);
const IN_MEMORY: Means = Idle("weights are in memory, as they are read", Nothing);
const TALK: Means = Idle("RUST_LOG=info shows more", Nothing);
const SYSTEM: Means = Idle("that is left to the system", Value);
const NO_SHIFT: Means = Idle("positions are never shifted: the text ends with the context", Nothing);
const AS_IT_IS: Means = Idle("the prompt is continued as it is in any case", Nothing);

/// Flags of llama.cpp's tools that are not ours.
const FLAGS: &[(&[&str], Means)] = &[
    (&["-ctk"], Ours("--ctk")),
    (&["-ctv"], Ours("--ctv")),
    (&["-ub"], Ours("--ubatch")),
    (&["-dev"], Ours("--device")),
    (&["--n-predict"], Ours("--predict")),
    (&["--temperature"], Ours("--temp")),
    (&["--mmap"], Ours("--load-mode=mmap")),
    (&["--no-mmap"], Ours("--load-mode=read")),
    (&["-ngl", "--ngl", "--gpu-layers", "--n-gpu-layers"], ALL_LAYERS),
    (&["-fa", "--flash-attn"], FUSED),
    (&["-b", "--batch-size"], BATCH),
    (&["-np", "--parallel"], Idle("one text is made at a time", Value)),
    (&["-cb", "--cont-batching", "-nocb", "--no-cont-batching"], Idle("one text is made at a time", Nothing)),
    (&["-tb", "--threads-batch"], Idle("-t counts for prompts too", Value)),
    (&["--mlock"], IN_MEMORY),
    (&["-kvo", "--kv-offload", "-nkvo", "--no-kv-offload"], Idle("the cache lies where the layers are", Nothing)),
    (&["--op-offload", "--no-op-offload", "-nopo"], Idle("every operation runs on the one device", Nothing)),
    (&["-nr", "--no-repack", "--repack"], Idle("weights are packed as the device wants them", Nothing)),
    (&["--warmup", "--no-warmup"], Idle("there is no warm-up", Nothing)),
    (&["--perf", "--no-perf"], Idle("timings come on stderr, or with --json", Nothing)),
    (&["-co", "--color", "--simple-io"], Idle("text is written plainly", Nothing)),
    (&["-v", "--verbose", "--log-verbose", "--verbose-prompt", "--log-disable"], TALK),
    (&["-lv", "--verbosity", "--log-verbosity"], Idle("RUST_LOG=info shows more", Value)),
    (&["--numa", "--prio", "--poll", "-C", "--cpu-mask", "-Cr", "--cpu-range", "--cpu-strict"], SYSTEM),
    (&["--check-tensors"], Idle("tensors are always checked", Nothing)),
    (&["--no-context-shift", "--swa-full"], NO_SHIFT),
    (&["-no-cnv", "--no-conversation", "-st", "--single-turn", "--no-jinja"], AS_IT_IS),
    (&["--no-escape"], Idle("escapes are replaced with -e alone", Nothing)),
    (&["-mg", "--main-gpu"], Answer(ONE_DEVICE)),
    (&["-sm", "--split-mode", "-ts", "--tensor-split", "-ot", "--override-tensor"], Answer(ONE_DEVICE)),
    (&["-cmoe"], Ours("--cpu-moe")),
    (&["-ncmoe"], Ours("--n-cpu-moe")),
    (&["--rpc"], Answer(ONE_DEVICE)),
    (&["-cnv", "--conversation", "-i", "--interactive", "-if", "--interactive-first"], Answer(NO_CHAT)),
    (&["-sys", "--system-prompt", "-sysf", "--system-prompt-file", "-r", "--reverse-prompt"], Answer(NO_CHAT)),
    (&["--jinja", "--chat-template", "--chat-template-file", "--chat-template-kwargs"], Answer(NO_CHAT)),
    (&["-sp"], Answer("control tokens are not printed; --special reads them in the prompt")),
    (&["-hf", "-hfr"], Ours("--hf-repo")),
    (&["-hff"], Ours("--hf-file")),
    (&["-hft"], Ours("--hf-token")),
    (&["-mu", "--model-url", "-dr", "--docker-repo"], Answer(NO_URLS)),
    (&["--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled"], Answer(NO_ADAPTERS)),
    (&["-md", "--model-draft", "--draft", "--draft-max", "--draft-min"], Answer(NO_ADAPTERS)),
    (&["--mmproj", "-mm", "--image", "--audio"], Answer(NO_IMAGES)),
    (&["--include-weights", "--exclude-weights"], Answer("importances count for every tensor that --imatrix FILE has")),
    (&["-jf"], Ours("--json-schema-file")),
    (&["--samplers", "--sampler-seq", "--sampling-seq"], Answer(SAMPLERS)),
    (&["--rope-scaling", "--rope-scale", "--rope-freq-base", "--rope-freq-scale"], Answer(FILES_ROPE)),
    (&["--yarn-orig-ctx", "--yarn-ext-factor", "--yarn-attn-factor"], Answer(FILES_ROPE)),
    (&["--context-shift"], Answer("positions are never shifted: the text ends with the context; raise -c")),
    (&["--kl-divergence", "--kl-divergence-base"], Answer(COMPARE)),
    (&["--hellaswag", "--winogrande", "--multiple-choice", "--ppl-stride"], Answer(COMPARE)),
    (&["-bf", "--binary-file"], Answer("a prompt is UTF-8 text: give it with -f")),
];

/// Words that other programs have for a command.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["server"], "the server is `isobit serve`"),
    (&["interactive", "talk"], "`isobit chat` talks to a model"),
    (&["download", "get", "fetch", "install"], "`isobit pull user/model` fetches a model"),
    (
        &["list", "ls", "ps", "rm", "search"],
        "isobit keeps no models of its own: `isobit models` lists those of other programs, `isobit devices` lists devices",
    ),
    (&["version"], "the version is printed by `isobit --version`"),
    (&["convert"], "`isobit quantize IN OUT TYPE` converts as well (TYPE f16, or copy)"),
];

/// What to say to a word in the place of a command.
pub fn answer(word: &str) -> Option<&'static str> {
    COMMANDS.iter().find(|(words, _)| words.contains(&word)).map(|(_, answer)| *answer)
}

/// The arguments as clap is to see them.
///
/// Errors: a line that answers a flag.
pub fn rewrite(args: Vec<OsString>, cli: &Command) -> Result<Vec<OsString>, String> {
    let Some(command) = args.get(1).and_then(|a| cli.find_subcommand(a)) else { return Ok(args) };
    let name = command.get_name().to_string();
    // a command of a command has flags of its own
    let part = args.get(2).and_then(|a| command.find_subcommand(a));
    let mut left = args.iter().cloned().peekable();
    let mut out: Vec<OsString> = left.by_ref().take(if part.is_some() { 3 } else { 2 }).collect();
    let command = part.unwrap_or(command);
    let mut cpu = false;
    while let Some(arg) = left.next() {
        let Some(word) = arg.to_str().filter(|w| w.starts_with('-') && w.len() > 1) else {
            out.push(arg);
            continue;
        };
        if word == "--" {
            out.push(arg);
            out.extend(left);
            break;
        }
        let short = match name.as_str() {
            "bench" => super::bench::short_form(word),
            "chat" => super::chat::short_form(word),
            // where several texts are made at a time
            "serve" | "batch" if word == "-np" => Some("--parallel"),
            _ => None,
        };
        if let Some(ours) = short {
            out.push(ours.into());
            // the value of a flag may look like a flag itself
            out.extend(left.next());
            continue;
        }
        let (flag, attached) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (word, None),
        };
        if let Some(own) = find(command, flag) {
            let takes = own.get_action().takes_values() && attached.is_none();
            let optional = own.get_num_args().is_some_and(|n| n.min_values() == 0);
            out.push(arg);
            if takes && !optional {
                out.extend(left.next());
            }
            continue;
        }
        match FLAGS.iter().find(|(words, _)| words.contains(&flag)).map(|(_, means)| *means) {
            Some(Ours(ours)) => {
                let (ours, value) = ours.split_once('=').map_or((ours, attached), |(o, v)| (o, Some(v)));
                match value {
                    _ if find(command, ours).is_none() => {
                        return Err(format!("{flag}: isobit {name} has no {ours}"));
                    }
                    Some(value) => out.push(format!("{ours}={value}").into()),
                    None => {
                        out.push(ours.into());
                        out.extend(left.next());
                    }
                }
            }
            Some(Idle(why, takes)) => {
                let switch = |w: &OsString| matches!(w.to_str(), Some("on" | "off" | "auto" | "0" | "1"));
                let value = match (attached, takes) {
                    (Some(value), _) => Some(value.to_string()),
                    (None, Value) => left.next().map(|v| v.to_string_lossy().into_owned()),
                    (None, Switch) => left.next_if(switch).map(|v| v.to_string_lossy().into_owned()),
                    (None, Nothing) => None,
                };
                if takes == Value && value.is_none() {
                    return Err(format!("a value is required for {flag}"));
                }
                // llama.cpp keeps all layers off the GPU with it; here `--device cpu` does
                if matches!(flag, "-ngl" | "--ngl" | "--gpu-layers" | "--n-gpu-layers") && value.as_deref() == Some("0")
                {
                    cpu = true;
                    continue;
                }
                let value = value.map_or(String::new(), |v| format!(" {v}"));
                note!("note: {flag}{value} changes nothing: {why}");
            }
            Some(Answer(answer)) => return Err(format!("{flag}: {answer}")),
            None if is_cluster(command, word) => out.push(arg),
            None => {
                let near = near(word, command.get_arguments().filter_map(Arg::get_long));
                let tip = near.map_or(String::new(), |n| format!("; did you mean --{n}?"));
                return Err(format!("unknown flag {word}{tip}; see isobit {name} --help"));
            }
        }
    }
    let chosen = |a: &OsString| {
        a.to_str().is_some_and(|a| {
            ["-d", "--device", "--devices"].contains(&a) || a.starts_with("--device=") || a.starts_with("--devices=")
        })
    };
    let has = ["device", "devices"].into_iter().find(|d| find(command, &format!("--{d}")).is_some());
    if let (true, Some(flag), false) = (cpu, has, out.iter().any(chosen)) {
        out.insert(2, format!("--{flag}=cpu").into());
    }
    Ok(out)
}

/// The argument of a command that a word names as a whole: `-x`, `--long`, or another name of it.
fn find<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let long = word.strip_prefix("--");
    let short = word.strip_prefix('-').filter(|w| w.chars().count() == 1).and_then(|w| w.chars().next());
    command.get_arguments().find(|a| {
        let has = |name: &str| a.get_long() == Some(name) || a.get_all_aliases().is_some_and(|all| all.contains(&name));
        long.is_some_and(has) || short.is_some_and(|s| a.get_short() == Some(s))
    })
}

/// Whether clap may read a word of one dash as short flags together or as one with its value: what is left are numbers,
/// texts and files that hang on their flag (`-n5`, `-t=2`, `-pHello`), and words of two dashes.
fn is_cluster(command: &Command, word: &str) -> bool {
    /// Short flags whose values are texts or names of files.
    const TEXTS: &str = "pfmodj";

    if word.starts_with("--") {
        return true;
    }
    let mut rest = word[1..].chars();
    while let Some(c) = rest.next() {
        let Some(arg) = find(command, &format!("-{c}")) else {
            // a number, or clap's own -h and -V
            return c.is_ascii_digit() || "hV".contains(c) && word.len() == 2;
        };
        if arg.get_action().takes_values() {
            let value = rest.as_str();
            let number = value.starts_with(|c: char| c.is_ascii_digit() || "-+.=".contains(c));
            let text = TEXTS.contains(c) && command.get_name() != "bench";
            return value.is_empty() || number || text;
        }
    }
    true
}

/// The name that a word was probably meant to be: few letters differ.
pub fn near<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.trim_start_matches('-').to_lowercase();
    let most = match word.chars().count() {
        0..=2 => 0,
        3..=5 => 1,
        6..=8 => 2,
        _ => 3,
    };
    let distance = |name: &str| strsim::osa_distance(&word, name);
    names.filter(|n| distance(n) <= most).min_by_key(|n| distance(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_names_are_suggested() {
        let names =
            ["run", "devices", "verify", "tokenize", "inspect", "bench", "perplexity", "compare", "hist", "quantize"];
        let of = |word| near(word, names.into_iter());
        assert_eq!(
            [of("rnu"), of("vrify"), of("quantise"), of("tokenise")].map(Option::unwrap),
            ["run", "verify", "quantize", "tokenize"]
        );
        assert_eq!([of("version"), of("completions"), of("serve"), of("model"), of("x")], [None; 5]);
    }

    #[test]
    fn no_flag_is_listed_twice() {
        let mut all: Vec<&str> = FLAGS.iter().flat_map(|(words, _)| *words).copied().collect();
        let n = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), n);
    }
}
