//! BPE of GGUF files: split rules, then merges by rank. Byte-level (`tokenizer.ggml.model` = `gpt2`), or over characters with
//! U+2581 for a space (`gemma4`).
//!
//! A split rule is a list of regular expressions; each one cuts the pieces the one before left, matches and gaps alike.
//! The published expressions end in `\s+(?!\S)|\s+`: the only look-around in them. It is left to four lines of code
//! here (`Step::split`), so that the rest stays a regular language, which the regex engine matches in linear time
//! whatever the text: there is no backtracking to run out of. Merging uses a heap, n log n in the length of a word.
//! No Unicode normalisation is done: GGUF files have no field for it.

use super::shown;
use anyhow::{Context, Result, bail, ensure};
use fancy_regex::Regex;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::LazyLock;

/// What the trailing `\s+(?!\S)|\s+` of a published expression needs when its look-ahead is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tail {
    /// no white-space rule in the expression
    None,
    /// any match that ends in white space is that rule's
    Space,
    /// as `Space`, but a match ending in CR or LF comes from `\s*[\r\n]+` (or punctuation with newlines) before it
    SpaceNotNewline,
}

/// One regular expression of a rule.
#[derive(Debug)]
struct Step {
    regex: Regex,
    tail: Tail,
}

/// How text is cut before merging.
#[derive(Debug)]
pub(super) struct Rule {
    steps: Vec<Step>,
    /// a word that is a token is that token, whatever the merges say
    pub ignore_merges: bool,
    /// `add_bos` of this family when the file does not say
    pub add_bos: bool,
    /// false where the family has no BOS unless the file names one
    pub default_bos: bool,
    /// whether merges are of characters rather than of bytes
    characters: bool,
}

// The expressions as published with the models (`tokenizer.json`), less their look-ahead.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
const LLAMA3: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const QWEN35: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"##;
/// The cased letters of deepseek-llm, by code point: some endpoints would change if this text were NFC-normalised.
const DEEPSEEK_LETTERS: &str = r"\s?[A-Za-z\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}\u{1c4}-\u{293}\u{295}-\u{2af}\u{370}-\u{373}\u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}\u{38c}\u{38e}-\u{3a1}\u{3a3}-\u{3f5}\u{3f7}-\u{481}\u{48a}-\u{52f}\u{531}-\u{556}\u{10a0}-\u{10c5}\u{13a0}-\u{13f5}\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}\u{1d00}-\u{1d2b}\u{1d6b}-\u{1d77}\u{1d79}-\u{1d9a}\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}\u{1f20}-\u{1f45}\u{1f48}-\u{1f4d}\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}\u{1f5d}\u{1f5f}-\u{1f7d}\u{1f80}-\u{1fb4}\u{1fb6}-\u{1fbc}\u{1fbe}\u{1fc2}-\u{1fc4}\u{1fc6}-\u{1fcc}\u{1fd0}-\u{1fd3}\u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}\u{1ff2}-\u{1ff4}\u{1ff6}-\u{1ffc}\u{2102}\u{2107}\u{210a}-\u{2113}\u{2115}\u{2119}-\u{211d}\u{2124}\u{2126}\u{2128}\u{212a}-\u{212d}\u{212f}-\u{2134}\u{2139}\u{213c}-\u{213f}\u{2145}-\u{2149}\u{214e}\u{2183}\u{2184}\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}\u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}\u{a680}-\u{a69b}\u{a722}-\u{a76f}\u{a771}-\u{a787}\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}\u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}\u{1e900}-\u{1e943}]+";
const DEEPSEEK_CJK: &str = r"[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+";

// Kimi's runs of Han and its letters without them; llama.cpp takes a run of letters whatever their case, so that it has one
// word in `helloWorld` where this expression has two, and makes words by merges alone, where the model's own code (tiktoken)
// first looks whether a word is a token.
const KIMI: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";

/// What stands for a space where merges are of characters.
const SPACE: char = '\u{2581}';

/// The rule whose merges are of characters.
pub(super) const CHARACTERS: &str = "gemma4";
/// `tokenizer.ggml.pre` of a `gpt2` whose merges are of characters all the same.
const CHARACTERS_TOO: &str = "granite-embed-multi-311m";

type Expressions = &'static [(&'static str, Tail)];

const RULE_GPT2: Expressions = &[(GPT2, Tail::Space)];
const RULE_LLAMA3: Expressions = &[(LLAMA3, Tail::SpaceNotNewline)];
const RULE_QWEN2: Expressions = &[(QWEN2, Tail::SpaceNotNewline)];
const RULE_QWEN35: Expressions = &[(QWEN35, Tail::SpaceNotNewline)];
const RULE_TEKKEN: Expressions = &[(TEKKEN, Tail::SpaceNotNewline)];
const RULE_GPT4O: Expressions = &[(GPT4O, Tail::SpaceNotNewline)];
const RULE_DIGITS_GPT2: Expressions = &[(r"\p{N}", Tail::None), (GPT2, Tail::Space)];
const RULE_FALCON: Expressions =
    &[(r"[\p{P}$+<=>^~|`]+", Tail::None), (GPT2, Tail::Space), ("[0-9][0-9][0-9]", Tail::None)];
const RULE_DEEPSEEK_LLM: Expressions = &[
    (r"[\r\n]", Tail::None),
    (DEEPSEEK_LETTERS, Tail::None),
    (r"\s?[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3000}-\u{3002}]+", Tail::None),
    (r"\s+$", Tail::None),
    (DEEPSEEK_CJK, Tail::None),
    (r"\p{N}+", Tail::None),
];
const RULE_DEEPSEEK_CODER: Expressions = &[
    (r"[\r\n]", Tail::None),
    (r"\s?\p{L}+", Tail::None),
    (r"\s?\p{P}+", Tail::None),
    (DEEPSEEK_CJK, Tail::None),
    (r"\p{N}", Tail::None),
];
const RULE_DEEPSEEK3: Expressions = &[
    (r"\p{N}{1,3}", Tail::None),
    (r"[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+", Tail::None),
    (DEEPSEEK3, Tail::SpaceNotNewline),
];
const RULE_KIMI: Expressions = &[(KIMI, Tail::SpaceNotNewline)];
const RULE_LINES: Expressions = &[(r"\n+", Tail::None)];
const RULE_DEFAULT: Expressions =
    &[(r"[\p{P}$+<=>^~|]+", Tail::None), (GPT2, Tail::Space), (r"\p{N}+", Tail::None), ("[0-9][0-9][0-9]", Tail::None)];

/// The names of `tokenizer.ggml.pre` that are known: (names, expressions, ignore_merges, add_bos, has a default BOS).
/// Names and flags are those of llama.cpp's vocabulary loader, but for `kimi-k2`'s.
const FAMILIES: &[(&[&str], Expressions, bool, bool, bool)] = &[
    (&["default"], RULE_DEFAULT, false, false, true),
    (
        &["gpt-2", "gpt2", "mpt", "olmo", "phi-2", "jais", "exaone4", "roberta-bpe", "modern-bert"],
        RULE_GPT2,
        false,
        false,
        true,
    ),
    (
        &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
        RULE_LLAMA3,
        true,
        true,
        true,
    ),
    (&["dbrx", "smaug-bpe"], RULE_LLAMA3, false, false, true),
    (&["chatglm-bpe", "glm4"], RULE_LLAMA3, false, false, false),
    (&["qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "kormo", "f2llmv2"], RULE_QWEN2, false, false, true),
    (&["qwen35"], RULE_QWEN35, false, false, true),
    (&["tekken"], RULE_TEKKEN, true, true, true),
    (&["gpt-4o", "llama4"], RULE_GPT4O, false, false, true),
    (&["granite-embed-multi-97m"], RULE_GPT4O, true, false, true),
    (&["deepseek-llm"], RULE_DEEPSEEK_LLM, false, false, true),
    (&["deepseek-coder"], RULE_DEEPSEEK_CODER, false, false, true),
    (&["deepseek-v3"], RULE_DEEPSEEK3, false, false, true),
    (&["kimi-k2"], RULE_KIMI, true, false, true),
    (&["falcon"], RULE_FALCON, false, false, true),
    (&[CHARACTERS, CHARACTERS_TOO], RULE_LINES, false, true, true),
    (
        &["starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"],
        RULE_DIGITS_GPT2,
        false,
        false,
        true,
    ),
];

/// Whether a regular expression is one of those published with the models, look-ahead and all.
pub(super) fn is_published(regex: &str) -> bool {
    [LLAMA3, QWEN2, QWEN35, TEKKEN, GPT4O, KIMI].iter().any(|known| {
        let stem = known.strip_suffix(r"|\s+");
        stem.is_some_and(|stem| regex.strip_prefix(stem) == Some(r"|\s+(?!\S)|\s+"))
    })
}

impl Rule {
    /// The rule that `tokenizer.ggml.pre` names. A name not known is an error: any other rule would give other ids than
    /// the model was trained on.
    pub fn named(name: &str) -> Result<Rule> {
        let Some((_, expressions, ignore_merges, add_bos, default_bos)) = FAMILIES.iter().find(|f| f.0.contains(&name))
        else {
            let known: Vec<&str> = FAMILIES.iter().flat_map(|f| f.0).copied().collect();
            bail!("tokenizer.ggml.pre: split rule {} is not known; known are {}", shown(name), known.join(", "));
        };
        let steps = expressions
            .iter()
            .map(|&(pattern, tail)| {
                let regex = Regex::new(pattern).with_context(|| format!("split rule {name}: {pattern}"))?;
                Ok(Step { regex, tail })
            })
            .collect::<Result<_>>()?;
        Ok(Rule {
            steps,
            ignore_merges: *ignore_merges,
            add_bos: *add_bos,
            default_bos: *default_bos,
            characters: [CHARACTERS, CHARACTERS_TOO].contains(&name),
        })
    }

    /// Whether merges are of characters rather than of bytes.
    pub fn is_of_characters(&self) -> bool {
        self.characters
    }

    /// Cuts `text` into words; joined they are the text.
    pub fn split<'a>(&self, text: &'a str) -> Result<Vec<&'a str>> {
        let mut words = vec![text];
        for step in &self.steps {
            let mut next = Vec::with_capacity(words.len());
            for word in words {
                step.split(word, &mut next)?;
            }
            words = next;
        }
        Ok(words)
    }
}

impl Step {
    fn split<'a>(&self, text: &'a str, out: &mut Vec<&'a str>) -> Result<()> {
        let mut done = 0;
        while done < text.len() {
            let found = self.regex.find_from_pos(text, done).context("split rule")?;
            let Some(m) = found.filter(|m| !m.as_str().is_empty()) else {
                break;
            };
            let (start, mut end) = (m.start(), m.end());
            // `\s+(?!\S)|\s+`: a run of white space before something else gives up its last character, unless that
            // is all there is of it.
            let last = m.as_str().chars().next_back().filter(|c| match self.tail {
                Tail::None => false,
                Tail::Space => c.is_whitespace(),
                Tail::SpaceNotNewline => c.is_whitespace() && *c != '\r' && *c != '\n',
            });
            if let Some(c) = last
                && end < text.len()
                && end - c.len_utf8() > start
            {
                end -= c.len_utf8();
            }
            if start > done {
                out.push(&text[done..start]);
            }
            out.push(&text[start..end]);
            done = end;
        }
        if done < text.len() {
            out.push(&text[done..]);
        }
        Ok(())
    }
}

/// GPT-2's printable stand-in for each byte: printable Latin-1 stands for itself, the rest take U+0100 upwards in order.
static BYTE_CHARS: LazyLock<[char; 256]> = LazyLock::new(|| {
    let mut next = 0x100u32;
    std::array::from_fn(|b| {
        let plain = matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        let code = if plain {
            b as u32
        } else {
            next += 1;
            next - 1
        };
        char::from_u32(code).unwrap_or('\u{fffd}')
    })
});

/// Whether a vocabulary has a token for every single byte.
pub(super) fn has_all_bytes(vocab: &serde_json::Map<String, serde_json::Value>) -> bool {
    BYTE_CHARS.iter().all(|c| vocab.contains_key(c.encode_utf8(&mut [0; 4]) as &str))
}

/// The byte a stand-in character means.
fn byte_of(c: char) -> Option<u8> {
    static BYTES: LazyLock<HashMap<char, u8>> =
        LazyLock::new(|| (0..=255u8).map(|b| (BYTE_CHARS[b as usize], b)).collect());
    BYTES.get(&c).copied()
}

/// The bytes that a token written in stand-in characters means. A character that stands for no byte is kept as it is
/// when `lenient_char`, else the whole text is taken literally.
pub(super) fn bytes_of(text: &str, lenient_char: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match byte_of(c) {
            Some(b) => bytes.push(b),
            None if lenient_char => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            None => return text.as_bytes().to_vec(),
        }
    }
    bytes
}

/// The vocabulary and merges of one model.
#[derive(Debug)]
pub(super) struct Bpe {
    rule: Rule,
    /// token of each single byte
    byte_ids: [Option<u32>; 256],
    /// (left, right) to (rank, merged)
    merges: HashMap<(u32, u32), (u32, u32)>,
    /// tokens of one character; empty where merges are of bytes
    characters: HashMap<char, u32>,
    /// whole words, by their bytes; filled only when the rule ignores merges, or with runs of newlines where merges are of
    /// characters
    words: HashMap<Vec<u8>, u32>,
    /// the longest of `words` in bytes
    longest_word: usize,
    unknown: Option<u32>,
}

const NONE: u32 = u32::MAX;

impl Bpe {
    /// `ids` maps the text of every token to its id; `usable` says whether ordinary text may become that id.
    pub fn new(
        rule: Rule,
        ids: &HashMap<&str, u32>,
        usable: impl Fn(u32) -> bool,
        merges: &[String],
        unknown: Option<u32>,
    ) -> Result<Bpe> {
        let byte_ids = std::array::from_fn(|b| match rule.characters {
            true => ids.get(format!("<0x{b:02X}>").as_str()).copied(),
            false => ids.get(BYTE_CHARS[b].encode_utf8(&mut [0; 4]) as &str).copied(),
        });
        ensure!(
            merges.len() < NONE as usize,
            "tokenizer.ggml.merges: {} merges, at most {NONE} expected",
            merges.len()
        );
        let mut map = HashMap::with_capacity(merges.len());
        for (rank, merge) in merges.iter().enumerate() {
            // The first space after the first character: a left part may itself begin with one.
            let first = merge.chars().next().map_or(0, char::len_utf8);
            let Some((left, right)) =
                merge[first..].find(' ').map(|at| (&merge[..first + at], &merge[first + at + 1..]))
            else {
                bail!("tokenizer.ggml.merges[{rank}]: {} is not two tokens with a space between", shown(merge));
            };
            let look = |part: &str| {
                ids.get(part).copied().with_context(|| {
                    format!(
                        "tokenizer.ggml.merges[{rank}]: {} names {}, which is not in the vocabulary",
                        shown(merge),
                        shown(part)
                    )
                })
            };
            let (a, b) = (look(left)?, look(right)?);
            let whole = look(&[left, right].concat())?;
            // A merge listed twice keeps its first rank.
            map.entry((a, b)).or_insert((rank as u32, whole));
        }
        let mut words = HashMap::new();
        if rule.ignore_merges {
            for (text, &id) in ids {
                if usable(id) {
                    words.insert(bytes_of(text, false), id);
                }
            }
        }
        let mut characters = HashMap::new();
        for (text, &id) in ids.iter().filter(|(_, id)| rule.characters && usable(**id)) {
            let mut chars = text.chars();
            if let (Some(c), None) = (chars.next(), chars.next()) {
                characters.insert(c, id);
            }
            if text.bytes().all(|b| b == b'\n') {
                words.insert(text.as_bytes().to_vec(), id);
            }
        }
        let longest_word = words.keys().map(Vec::len).max().unwrap_or(0);
        Ok(Bpe { rule, byte_ids, merges: map, characters, words, longest_word, unknown })
    }

    /// Appends the ids of a text without special tokens.
    pub fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<()> {
        let mut room = Room::default();
        for word in self.rule.split(text)? {
            if word.len() <= self.longest_word
                && let Some(&id) = self.words.get(word.as_bytes())
            {
                out.push(id);
                continue;
            }
            room.symbols.clear();
            if self.rule.characters {
                for c in word.chars().map(|c| if c == ' ' { SPACE } else { c }) {
                    match self.characters.get(&c) {
                        Some(&id) => room.push(id),
                        None => self.push_bytes(c.encode_utf8(&mut [0; 4]).as_bytes(), &mut room)?,
                    }
                }
            } else {
                self.push_bytes(word.as_bytes(), &mut room)?;
            }
            if let Some(last) = room.symbols.last_mut() {
                last.next = NONE;
            }
            self.merge(&mut room);
            let mut at = 0;
            while let Some(s) = room.symbols.get(at as usize) {
                out.push(s.id);
                at = s.next;
            }
        }
        Ok(())
    }

    fn push_bytes(&self, bytes: &[u8], room: &mut Room) -> Result<()> {
        for &b in bytes {
            let Some(id) = self.byte_ids[b as usize].or(self.unknown) else {
                bail!(
                    "the vocabulary has no token for byte 0x{b:02X} of the text and no unknown token; leave it out of the text"
                );
            };
            room.push(id);
        }
        Ok(())
    }

    /// Joins neighbours, lowest rank first and leftmost first among equals, until nothing joins.
    fn merge(&self, room: &mut Room) {
        let Room { symbols, queue } = room;
        queue.clear();
        let offer = |queue: &mut BinaryHeap<_>, symbols: &[Symbol], left: u32| {
            let (Some(l), next) = (symbols.get(left as usize), symbols.get(left as usize).map_or(NONE, |s| s.next))
            else {
                return;
            };
            if let Some(r) = symbols.get(next as usize)
                && let Some(&(rank, _)) = self.merges.get(&(l.id, r.id))
            {
                queue.push(Reverse((rank, left, l.id, r.id)));
            }
        };
        for i in 0..symbols.len() {
            offer(queue, symbols, i as u32);
        }
        while let Some(Reverse((_, left, a, b))) = queue.pop() {
            let l = symbols[left as usize];
            let Some(&r) = symbols.get(l.next as usize) else {
                continue;
            };
            // Stale when either side has been merged since; a dead symbol has id NONE.
            if l.id != a || r.id != b {
                continue;
            }
            let Some(&(_, whole)) = self.merges.get(&(a, b)) else {
                continue;
            };
            symbols[l.next as usize].id = NONE;
            symbols[l.next as usize].next = NONE;
            symbols[left as usize] = Symbol { id: whole, prev: l.prev, next: r.next };
            if let Some(after) = symbols.get_mut(r.next as usize) {
                after.prev = left;
            }
            offer(queue, symbols, l.prev);
            offer(queue, symbols, left);
        }
    }
}

/// A link of the chain of a word; `prev` and `next` index the chain, `NONE` at its ends.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    id: u32,
    prev: u32,
    next: u32,
}

/// Buffers kept from word to word.
#[derive(Default)]
struct Room {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<(u32, u32, u32, u32)>>,
}

impl Room {
    /// A symbol behind those there are.
    fn push(&mut self, id: u32) {
        let i = self.symbols.len() as u32;
        self.symbols.push(Symbol { id, prev: i.wrapping_sub(1), next: i + 1 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_cuts_the_hard_texts_where_the_reference_cuts_them() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tokenizer/bpe_golden.json");
        let golden: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let texts: Vec<&str> = golden["texts"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
        assert!(texts.len() >= 60);
        let rules = golden["rules"].as_object().unwrap();
        assert_eq!(rules.len(), 14);
        let mut wrong = Vec::new();
        for (name, data) in rules {
            let rule = Rule::named(name).unwrap();
            for (text, want) in texts.iter().zip(data["splits"].as_array().unwrap()) {
                let want: Vec<usize> = serde_json::from_value(want.clone()).unwrap();
                let want: Vec<usize> = want.into_iter().filter(|&n| n > 0).collect();
                let words = if text.is_empty() { vec![] } else { rule.split(text).unwrap() };
                let got: Vec<usize> = words.iter().map(|w| w.chars().count()).collect();
                if got != want {
                    wrong.push(format!("{name}: {text:?}\n  want {want:?}\n  got  {got:?} {words:?}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn no_expression_needs_the_backtracking_engine() {
        for (names, expressions, ..) in FAMILIES {
            for (pattern, _) in *expressions {
                assert!(!pattern.contains("(?!") && !pattern.contains("(?="), "{names:?}");
            }
            for name in *names {
                let words = Rule::named(name).unwrap();
                assert_eq!(words.split("a  b\n\n 12").unwrap().concat(), "a  b\n\n 12");
            }
        }
    }

    #[test]
    fn the_letters_of_deepseek_llm_are_all_cased_letters() {
        let cased = Regex::new(r"^[\p{Lu}\p{Ll}\p{Lt}]$").unwrap();
        let letters = Regex::new(&format!("^{}$", DEEPSEEK_LETTERS.trim_start_matches(r"\s?"))).unwrap();
        let count = ('\0'..=char::MAX)
            .filter(|c| letters.is_match(c.encode_utf8(&mut [0; 4])).unwrap())
            .inspect(|c| assert!(cased.is_match(c.encode_utf8(&mut [0; 4])).unwrap(), "{c:?}"))
            .count();
        assert_eq!(count, 2729);
    }

    #[test]
    fn byte_characters_are_those_of_gpt_2_and_go_both_ways() {
        assert_eq!(BYTE_CHARS[b' ' as usize], 'Ġ');
        assert_eq!(BYTE_CHARS[b'\n' as usize], 'Ċ');
        assert_eq!(BYTE_CHARS[0xad], 'Ń');
        assert_eq!(BYTE_CHARS[b'a' as usize], 'a');
        let all: String = BYTE_CHARS.iter().collect();
        assert_eq!(bytes_of(&all, false), (0..=255).collect::<Vec<u8>>());
    }
}
