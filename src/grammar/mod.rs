//! Answers that keep to a schema or a grammar: which tokens may come next, by [llguidance], which follows the text
//! with an Earley parser over the bytes of tokens.
//!
//! Schemas and grammars come from whoever asks and are hostile until they are compiled. So there are bounds on everything:
//! the length of the text, how deep it nests, how many rules it has, the work of compiling and of every token, and the states
//! that are kept. All of them are counts, none is a clock: a grammar that is refused on one machine is refused on every, and
//! what a text may go on with depends on the grammar and the text alone, whatever else runs.

mod gbnf;
mod vocabulary;

use crate::generate::sampling::Constraint;
use anyhow::bail;
use llguidance::Matcher;
use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{InferenceCapabilities, SimpleVob};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::{Mutex, PoisonError};
pub use vocabulary::Vocabulary;

/// What an answer must be. A receipt has it in this form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grammar {
    /// a JSON object
    JsonObject,
    /// JSON that a schema allows, of those keywords that llguidance knows; with another one the schema is refused. Between the
    /// words of JSON there may be a space, or one or two line breaks and up to 20 spaces, where the schema does not say otherwise
    /// (`x-guidance`)
    JsonSchema(Value),
    /// a text that a regular expression matches from its begin to its end, in the syntax of Rust's `regex`
    Regex(String),
    /// a text of a grammar in llguidance's dialect of Lark, from its rule `start`
    Lark(String),
    /// a text of a grammar in llama.cpp's notation, from its rule `root`
    Gbnf(String),
}

/// Why a grammar is refused: one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// longer than is taken
    #[error("{what} has {bytes} bytes, {most} at most are taken")]
    TooLong {
        /// grammar or schema
        what: &'static str,
        /// how long it is
        bytes: usize,
        /// how long it may be
        most: usize,
    },
    /// nested deeper, or of more parts, than is taken
    #[error("{what}: {most} at most are taken")]
    TooMuch {
        /// what there is too much of
        what: String,
        /// how much there may be
        most: usize,
    },
    /// it is wrong, not supported, or too large when compiled
    #[error("{what}: {why}")]
    Refused {
        /// grammar or schema
        what: &'static str,
        /// what is wrong
        why: String,
    },
    /// the model's tokens cannot be held to a grammar
    #[error("the vocabulary: {0}")]
    Vocabulary(String),
}

/// Bytes that a grammar or a schema may have.
pub const TEXT_MAX: usize = 256 << 10;
/// Levels of a schema.
const DEPTH_MAX: usize = 64;
/// Members of an object of a schema: the work grows with their square.
const MEMBERS_MAX: usize = 1000;
/// Brackets in brackets of a grammar: the large stack takes more.
const BRACKETS_MAX: usize = 500;
/// Expressions that one text may have to match all of: whether any text does takes twice as long with each. Of a schema
/// those of all patterns where it has `allOf` or something beside a `$ref`; of Lark the operators `&` and `~`.
const INTERSECTED_MAX: usize = 12;
/// Rules of a grammar, as lines with a colon at most.
const RULES_MAX: usize = 4000;
/// Stack for compiling: rules that refer to rules go as deep as there are rules.
#[cfg(not(target_family = "wasm"))]
const STACK: usize = 256 << 20;

/// llguidance's own bounds. Compiling: 1 million units of fuel are about 20 ms, 100,000 symbols a few megabytes. A token:
/// 200,000 units of fuel are 15 ms, and a million items 50 ms; a grammar without terminals of several characters (what GBNF
/// becomes) takes an item or more for each byte of the vocabulary that goes on. A state of the lexer takes 1 to 2 kB.
fn limits() -> ParserLimits {
    ParserLimits {
        max_items_in_row: 2000,
        initial_lexer_fuel: 1_000_000,
        step_lexer_fuel: 200_000,
        step_max_items: 1_000_000,
        max_lexer_states: 30_000,
        max_grammar_size: 100_000,
        precompute_large_lexemes: false,
        verbose_errors: false,
    }
}

/// A grammar for one vocabulary. Texts that follow it are independent of each other, whichever threads they run on.
pub struct Compiled {
    /// at the begin of a text; never moves
    template: Mutex<Matcher>,
    tokens: usize,
    source: Grammar,
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Compiled").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

impl Compiled {
    /// Compiles a grammar.
    ///
    /// Errors: it is wrong, not supported, or over a bound.
    pub fn new(grammar: &Grammar, vocabulary: &Vocabulary) -> Result<Compiled, GrammarError> {
        let (what, source, grammar) = (grammar.what(), grammar.clone(), grammar.checked()?);
        let factory = vocabulary.factory();
        let compile = move || {
            let init = GrammarInit::Serialized(grammar);
            let logger = llguidance::Logger::new(0, 0);
            let caps = InferenceCapabilities::default();
            let matcher = Matcher::new(factory.create_parser_from_init_ext(init, logger, caps, limits()));
            match matcher.get_error() {
                Some(why) => Err(GrammarError::Refused { what, why: one_line(&why) }),
                None => Ok(matcher),
            }
        };
        let matcher = on_a_large_stack(what, compile)?;
        Ok(Compiled { template: Mutex::new(matcher), tokens: vocabulary.tokens(), source })
    }

    /// What may come at the begin of a text, and from there on.
    pub fn start(&self) -> Box<dyn Constraint> {
        // with a lexer of its own: one that is shared would make the bound on a text's work depend on other texts
        let template = self.template.lock().unwrap_or_else(PoisonError::into_inner);
        Box::new(Following { matcher: template.deep_clone(), allowed: SimpleVob::new() })
    }

    /// What it was compiled from.
    pub fn grammar(&self) -> &Grammar {
        &self.source
    }

    /// How many ids the vocabulary has that it was compiled for.
    pub fn tokens(&self) -> usize {
        self.tokens
    }
}

/// Runs what may go deep.
#[cfg(not(target_family = "wasm"))]
fn on_a_large_stack<T: Send>(
    what: &'static str,
    work: impl FnOnce() -> Result<T, GrammarError> + Send,
) -> Result<T, GrammarError> {
    let refused = |why: String| GrammarError::Refused { what, why };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("grammar".into()).stack_size(STACK).spawn_scoped(scope, work);
        let thread = thread.map_err(|e| refused(format!("no thread to compile it on: {e}")))?;
        thread.join().unwrap_or_else(|_| Err(refused("the compiler gave up".into())))
    })
}

/// There is one stack.
#[cfg(target_family = "wasm")]
fn on_a_large_stack<T>(_: &'static str, work: impl FnOnce() -> Result<T, GrammarError>) -> Result<T, GrammarError> {
    work()
}

/// The first line of a message, and of what is in the next ones as much as fits.
fn one_line(message: &str) -> String {
    let lines = message.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('<'));
    let mut line: String = lines.collect::<Vec<_>>().join("; ");
    if let Some((cut, _)) = line.char_indices().nth(300) {
        line.truncate(cut);
        line.push('…');
    }
    line
}

impl Grammar {
    /// Whether a schema is within the bounds that can be seen before it is compiled: for one that becomes part of a grammar.
    ///
    /// Errors: it is longer, deeper or of more parts than is taken.
    pub fn check_schema(schema: &Value) -> Result<(), GrammarError> {
        shallow(schema)?;
        match schema.to_string().len() {
            0..=TEXT_MAX => Ok(()),
            bytes => Err(GrammarError::TooLong { what: "JSON schema", bytes, most: TEXT_MAX }),
        }
    }

    /// What a request's `response_format` and `grammar` ask for, as OpenAI and llama.cpp have them: `{"type": "json_object"}`
    /// (with a `schema` beside it where there is one), `{"type": "json_schema", "json_schema": {"schema": ...}}`,
    /// `{"type": "text"}`; a grammar of its own ([`Grammar::named`]).
    ///
    /// Errors: another type; no schema; both a schema and a grammar.
    pub fn of_request(format: Option<&Value>, grammar: Option<Grammar>) -> Result<Option<Grammar>, GrammarError> {
        let refused = |why: String| Err(GrammarError::Refused { what: "response_format", why });
        let found = match format.filter(|f| !f.is_null()) {
            None => None,
            Some(format) => {
                match (format["type"].as_str(), format.get("schema"), format["json_schema"].get("schema")) {
                    (Some("text"), ..) => None,
                    (Some("json_object"), None, _) => Some(Grammar::JsonObject),
                    (Some("json_object"), Some(schema), _) | (Some("json_schema"), _, Some(schema)) => {
                        Some(Grammar::JsonSchema(schema.clone()))
                    }
                    (Some("json_schema"), Some(schema), None) => Some(Grammar::JsonSchema(schema.clone())),
                    (Some("json_schema"), None, None) => return refused("json_schema.schema is missing".into()),
                    (other, ..) => {
                        let kinds = "text, json_object or json_schema expected";
                        return refused(format!("type is {}: {kinds}", other.unwrap_or("no text")));
                    }
                }
            }
        };
        match (found, grammar) {
            (Some(_), Some(_)) => refused("a schema and a grammar: one of them expected".into()),
            (found, None) => Ok(found),
            (None, grammar) => Ok(grammar),
        }
    }

    /// A grammar whose notation a request names: gbnf, lark or regex. Where it does not, a text that begins with `%llguidance`
    /// is Lark, as in llama.cpp, and any other GBNF.
    ///
    /// Errors: another notation.
    pub fn named(notation: Option<&str>, text: &str) -> Result<Grammar, GrammarError> {
        match notation {
            Some("gbnf") => Ok(Grammar::Gbnf(text.into())),
            Some("lark") => Ok(Grammar::Lark(text.into())),
            Some("regex") => Ok(Grammar::Regex(text.into())),
            None if text.trim_start().starts_with("%llguidance") => Ok(Grammar::Lark(text.into())),
            None => Ok(Grammar::Gbnf(text.into())),
            Some(other) => {
                let other: String = other.chars().take(40).collect();
                let why = format!("grammar_type is {other:?}: gbnf, lark or regex expected");
                Err(GrammarError::Refused { what: "grammar", why })
            }
        }
    }

    /// One of several texts.
    pub fn choice(texts: &[String]) -> Grammar {
        let quoted: Vec<String> = texts.iter().map(|t| Value::from(t.as_str()).to_string()).collect();
        Grammar::Lark(format!("start: {}\n", quoted.join(" | ")))
    }

    /// What a message calls it.
    fn what(&self) -> &'static str {
        match self {
            Grammar::JsonObject | Grammar::JsonSchema(_) => "JSON schema",
            Grammar::Regex(_) => "regular expression",
            Grammar::Lark(_) => "grammar",
            Grammar::Gbnf(_) => "GBNF grammar",
        }
    }

    /// What llguidance compiles, within the bounds that can be seen before.
    fn checked(&self) -> Result<TopLevelGrammar, GrammarError> {
        let what = self.what();
        let short = |bytes: usize| match bytes <= TEXT_MAX {
            true => Ok(()),
            false => Err(GrammarError::TooLong { what, bytes, most: TEXT_MAX }),
        };
        Ok(match self {
            Grammar::JsonObject => schema(json!({ "type": "object" })),
            Grammar::JsonSchema(value) => {
                shallow(value)?;
                short(value.to_string().len())?;
                schema(value.clone())
            }
            Grammar::Regex(text) => {
                short(text.len())?;
                nested(text)?;
                TopLevelGrammar::from_regex(text)
            }
            Grammar::Lark(text) => {
                short(text.len())?;
                nested(text)?;
                few_rules(text)?;
                few_intersections(text)?;
                TopLevelGrammar::from_lark(text.clone())
            }
            Grammar::Gbnf(text) => {
                short(text.len())?;
                nested(text)?;
                few_rules(text)?;
                gbnf::convert(text).map_err(|why| GrammarError::Refused { what, why })?
            }
        })
    }
}

/// A schema, with white space that ends.
fn schema(mut schema: Value) -> TopLevelGrammar {
    if let Some(object) = schema.as_object_mut().filter(|o| !o.contains_key("x-guidance")) {
        object.insert("x-guidance".into(), json!({ "whitespace_pattern": r" |\n{1,2}[ \t]{0,20}" }));
    }
    TopLevelGrammar::from_json_schema(schema)
}

/// Whether JSON nests no deeper than is taken; without recursion.
fn shallow(value: &Value) -> Result<(), GrammarError> {
    let (mut left, mut patterns, mut joins) = (vec![(value, 1)], 0, false);
    while let Some((value, depth)) = left.pop() {
        if depth > DEPTH_MAX {
            return Err(GrammarError::TooMuch { what: "levels of nesting in a JSON schema".into(), most: DEPTH_MAX });
        }
        match value {
            Value::Array(list) => left.extend(list.iter().map(|v| (v, depth + 1))),
            Value::Object(map) if map.len() > MEMBERS_MAX => {
                let what = "members of an object of a JSON schema".into();
                return Err(GrammarError::TooMuch { what, most: MEMBERS_MAX });
            }
            Value::Object(map) => {
                joins |= map.contains_key("allOf") || map.contains_key("$ref") && map.len() > 1;
                patterns += map.get("patternProperties").and_then(Value::as_object).map_or(0, serde_json::Map::len);
                patterns += usize::from(map.contains_key("pattern")) + usize::from(map.contains_key("format"));
                left.extend(map.values().map(|v| (v, depth + 1)));
            }
            _ => {}
        }
    }
    if joins && patterns > INTERSECTED_MAX {
        let what = "patterns and formats of a JSON schema with allOf, or with keywords beside $ref".into();
        return Err(GrammarError::TooMuch { what, most: INTERSECTED_MAX });
    }
    Ok(())
}

/// Whether a grammar's brackets nest no deeper than is taken, wherever they stand: those of literals count too, so that this
/// needs to know nothing of the notation.
fn nested(text: &str) -> Result<(), GrammarError> {
    let mut depth = 0_usize;
    for b in text.bytes() {
        match b {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > BRACKETS_MAX {
            return Err(GrammarError::TooMuch { what: "brackets in brackets".into(), most: BRACKETS_MAX });
        }
    }
    Ok(())
}

fn few_rules(text: &str) -> Result<(), GrammarError> {
    if text.lines().filter(|l| l.contains(':')).count() > RULES_MAX {
        return Err(GrammarError::TooMuch { what: "rules of a grammar".into(), most: RULES_MAX });
    }
    Ok(())
}

/// Those in literals count too: that costs an honest grammar little, and needs to know nothing of the notation.
fn few_intersections(text: &str) -> Result<(), GrammarError> {
    match text.matches(['&', '~']).count() <= 2 * INTERSECTED_MAX {
        true => Ok(()),
        false => {
            let what = "& and ~ in a grammar, in its literals too".into();
            Err(GrammarError::TooMuch { what, most: 2 * INTERSECTED_MAX })
        }
    }
}

/// A text that follows a grammar.
struct Following {
    matcher: Matcher,
    allowed: SimpleVob,
}

impl Constraint for Following {
    fn allowed(&mut self) -> anyhow::Result<&[u32]> {
        // of a text that is complete: end of text, again and again
        match self.matcher.compute_mask_or_eos() {
            Ok(allowed) => self.allowed = allowed,
            Err(e) => bail!("grammar: {}", why_not(&e.to_string())),
        }
        Ok(self.allowed.as_slice())
    }

    fn accept(&mut self, id: u32) -> anyhow::Result<()> {
        if self.matcher.is_stopped() && !self.matcher.is_error() {
            return Ok(());
        }
        self.matcher.consume_token(id).map_err(|e| anyhow::anyhow!("grammar: {}", why_not(&e.to_string())))
    }
}

/// Why a text cannot go on.
fn why_not(message: &str) -> String {
    match message {
        m if m.starts_with("NoExtensionBias") => "no token of the vocabulary goes on with this text".into(),
        other => one_line(other),
    }
}

#[cfg(test)]
mod tests;
