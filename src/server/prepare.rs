//! From a request's body to requests of the engine: fields checked, messages made a prompt, the prompt made tokens. All that
//! can be wrong is found here, before anything is queued.

use super::app::App;
use super::fault::Fault;
use super::fields::{Fields, id};
use super::runs::Proving;
use crate::chat::{Conversation, Format, ToolChoice};
use crate::engine::{Grammar, Prompt, Request};
use crate::generate::breakers::{BREAKERS, breakers};
use crate::generate::sampling::SamplerOptions;
use crate::generate::tokenizer::Tokenizer;
use crate::grammar::GrammarError;
use serde_json::{Value, json};
use std::time::SystemTime;

/// Texts of an answer, at most.
const CHOICES: i64 = 16;
/// Texts of a request with several prompts, at most.
const TEXTS: usize = 128;
/// Stop strings, and bytes of one.
const STOPS: usize = 16;
const STOP_BYTES: usize = 1024;
/// Likeliest tokens told beside each, at most.
const TOP: i64 = 20;
/// Tokens with a bias, at most.
const BIASES: usize = 1024;
/// Tools of a request, at most.
const TOOLS: usize = 128;

/// How an answer is read: as the model's template writes it.
#[derive(Clone, Copy)]
pub struct Reading {
    /// the template's
    pub format: Format,
    /// whether it may call tools
    pub tools: bool,
    /// whether the prompt ends where the model has begun to think
    pub reasons: bool,
}

/// What is asked for, checked.
pub struct Ask {
    /// one for each text
    pub requests: Vec<Request>,
    /// texts of each prompt, side by side
    pub each: usize,
    /// strings that end a text
    pub stops: Vec<String>,
    /// how texts are read; `None`: as they are
    pub parse: Option<Reading>,
    /// whether the answer streams
    pub stream: bool,
    /// whether a stream tells numbers of tokens
    pub usage: bool,
    /// of how many of the likeliest tokens log probabilities are told; `None`: of none
    pub logprobs: Option<usize>,
    /// what is shown before the texts of each prompt; empty: nothing
    pub echo: Vec<String>,
    /// whether the digest of the logits is told
    pub digest: bool,
    /// whether a receipt is
    pub receipt: bool,
    /// each prompt as text, where it was one
    pub prompts: Vec<String>,
}

/// Names of the fields that [`sampling`] reads, for requests of another form that may have them too.
pub const SAMPLER: [&str; 27] = [
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "typical",
    "top_n_sigma",
    "repeat_penalty",
    "repeat_last_n",
    "presence_penalty",
    "frequency_penalty",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "xtc_probability",
    "xtc_threshold",
    "dynatemp_range",
    "dynatemp_exponent",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
    "min_keep",
    "logit_bias",
    "seed",
    "ignore_eos",
];

/// Names of the fields that say what a text must be, beside those a form has of its own.
pub const FORMS: [&str; 8] = [
    "grammar",
    "grammar_type",
    "json_schema",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
];

/// Texts of a choice, at most.
const CHOSEN: usize = 256;

/// What a text must be in vLLM's fields, the older ones with `guided_` before their names.
fn guided(f: &Fields, before: &str) -> Result<Vec<Grammar>, Fault> {
    let name = |of: &str| format!("{before}{of}");
    let json = match f.get(&name("json")) {
        None => None,
        Some(schema @ Value::Object(_)) => Some(Grammar::JsonSchema(schema.clone())),
        // a schema as text is what Python's clients send
        Some(Value::String(text)) => {
            let schema = serde_json::from_str(text).map_err(|_| f.wrong(&name("json"), "a schema"))?;
            Some(Grammar::JsonSchema(schema))
        }
        Some(_) => return Err(f.wrong(&name("json"), "a schema")),
    };
    let regex = f.text(&name("regex"))?.map(|text| Grammar::Regex(text.into()));
    let choice = Some(f.texts(&name("choice"), CHOSEN)?).filter(|list| !list.is_empty());
    let lark = f.text(&name("grammar"))?.map(|text| Grammar::Lark(text.into()));
    Ok([json, regex, choice.map(|list| Grammar::choice(&list)), lark].into_iter().flatten().collect())
}

/// How tokens are chosen: as the request says, and else as the server was started.
pub fn sampling(f: &Fields, app: &App) -> Result<SamplerOptions, Fault> {
    let base = &app.options.sampling;
    let (tiny, far) = (f64::MIN_POSITIVE, f64::from(f32::MAX));
    let float = |name: &str, from: f64, to: f64, else_: f32| Ok::<_, Fault>(f.float(name, from, to)?.unwrap_or(else_));
    let count = |name: &str, else_: usize| Ok::<_, Fault>(f.whole(&[name], -1, MANY)?.map_or(else_, last));
    let bias = biases(f, app.model.vocabulary())?;
    let mut options = SamplerOptions {
        temperature: float("temperature", 0.0, 100.0, base.temperature)?,
        top_k: f.whole(&["top_k"], -1, MANY)?.map_or(base.top_k, |k| k.max(0) as usize),
        top_p: float("top_p", tiny, 1.0, base.top_p)?,
        min_p: float("min_p", 0.0, 1.0, base.min_p)?,
        typical_p: match f.get("typical_p") {
            Some(_) => float("typical_p", tiny, 1.0, base.typical_p)?,
            None => float("typical", tiny, 1.0, base.typical_p)?,
        },
        top_n_sigma: float("top_n_sigma", -1.0, 1e6, base.top_n_sigma)?,
        repeat_penalty: float("repeat_penalty", tiny, far, base.repeat_penalty)?,
        repeat_last_n: count("repeat_last_n", base.repeat_last_n)?,
        presence_penalty: float("presence_penalty", -100.0, 100.0, base.presence_penalty)?,
        frequency_penalty: float("frequency_penalty", -100.0, 100.0, base.frequency_penalty)?,
        dry_multiplier: float("dry_multiplier", 0.0, 1e6, base.dry_multiplier)?,
        dry_base: float("dry_base", 1.0, 1e6, base.dry_base)?,
        dry_allowed_length: count("dry_allowed_length", base.dry_allowed_length)?,
        dry_penalty_last_n: count("dry_penalty_last_n", base.dry_penalty_last_n)?,
        xtc_probability: float("xtc_probability", 0.0, 1.0, base.xtc_probability)?,
        xtc_threshold: float("xtc_threshold", 0.0, 1.0, base.xtc_threshold)?,
        dynatemp_range: float("dynatemp_range", 0.0, 100.0, base.dynatemp_range)?,
        dynatemp_exponent: float("dynatemp_exponent", tiny, 100.0, base.dynatemp_exponent)?,
        mirostat: f.whole(&["mirostat"], 0, 2)?.map_or(base.mirostat, |m| m as u8),
        mirostat_tau: float("mirostat_tau", tiny, 100.0, base.mirostat_tau)?,
        mirostat_eta: float("mirostat_eta", tiny, 100.0, base.mirostat_eta)?,
        min_keep: f.whole(&["min_keep"], 0, MANY)?.map_or(base.min_keep, |n| n as usize),
        logit_bias: if bias.is_empty() { base.logit_bias.clone() } else { bias },
        seed: f.seed()?.unwrap_or(base.seed),
        ..base.clone()
    };
    let own = f.texts("dry_sequence_breakers", STOPS)?;
    if let (true, Ok(tokenizer)) = (options.dry_multiplier > 0.0, app.model.tokenizer()) {
        let wrong = |e: anyhow::Error| Fault::bad("dry_sequence_breakers", format!("{e:#}"));
        if !own.is_empty() {
            options.dry_breakers = breakers(tokenizer, &own).map_err(wrong)?;
        } else if options.dry_breakers.is_empty() {
            options.dry_breakers = breakers(tokenizer, &BREAKERS).map_err(wrong)?;
        }
    }
    // what is no number of 32 bits is found here, not after the answer has begun
    options.check().map_err(|e| Fault::bad("", format!("{e:#}")))?;
    Ok(options)
}

/// What the text must be: a schema, a grammar, a call of a tool; `None`: anything.
fn grammar(f: &Fields, forced: Option<String>) -> Result<Option<Grammar>, Fault> {
    let format = f.object("response_format")?.map(|o| Value::Object(o.clone()));
    let refused = |name: &'static str| move |e: GrammarError| Fault::bad(name, e.to_string());
    let notation = f.text("grammar_type")?;
    let text = f.text("grammar")?.map(|text| Grammar::named(notation, text)).transpose();
    let own = Grammar::of_request(format.as_ref(), text.map_err(refused("grammar_type"))?);
    let own = own.map_err(refused("response_format"))?;
    let schema = f.object("json_schema")?.map(|s| Grammar::JsonSchema(Value::Object(s.clone())));
    let mut wanted: Vec<Grammar> = [own, schema, forced.map(Grammar::Lark)].into_iter().flatten().collect();
    wanted.extend(guided(f, "guided_")?);
    if let Some(object) = f.object("structured_outputs")? {
        wanted.extend(guided(&Fields::of(object.clone()), "")?);
    }
    match wanted.len() {
        0 | 1 => Ok(wanted.into_iter().next()),
        _ => Err(Fault::bad(
            "response_format",
            "a schema, a grammar and a tool that must be called: one of them expected",
        )),
    }
}

/// The greatest whole number that an option takes.
const MANY: i64 = i32::MAX as i64;

/// -1: all of the context.
fn last(n: i64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

impl App {
    fn tokenizer(&self) -> Result<&Tokenizer, Fault> {
        self.model.tokenizer().map_err(|e| Fault::bad("", format!("this model reads no text: {e}")))
    }

    /// The tokens of a text, of which the context holds all.
    pub fn ids_of(&self, text: &str, bos: bool, special: bool) -> Result<Vec<u32>, Fault> {
        self.ids_by(text, |t| t.encode(text, bos && t.adds_bos(), special))
    }

    /// The same of a text that becomes a vector.
    pub fn whole_ids(&self, text: &str) -> Result<Vec<u32>, Fault> {
        self.ids_by(text, |t| t.encode_whole(text, false))
    }

    fn ids_by(&self, text: &str, encode: impl Fn(&Tokenizer) -> anyhow::Result<Vec<u32>>) -> Result<Vec<u32>, Fault> {
        let (tokenizer, context) = (self.tokenizer()?, self.context());
        // tokenising takes far more memory than the text
        let least = if text.len() > 1 << 16 { tokenizer.least_ids(text) } else { 0 };
        if least > context {
            return Err(Fault::too_long(least, context));
        }
        self.fits(encode(tokenizer).map_err(|e| Fault::bad("", format!("{e:#}")))?)
    }

    fn fits(&self, ids: Vec<u32>) -> Result<Vec<u32>, Fault> {
        match ids.len() {
            0 => Err(Fault::bad("prompt", "the prompt has no tokens: write something")),
            n if n > self.context() => Err(Fault::too_long(n, self.context())),
            _ => Ok(ids),
        }
    }

    /// A prompt as OpenAI has it: a text, of which `read` makes ids, or a list of token ids.
    pub fn prompt_ids(
        &self,
        v: &Value,
        name: &str,
        read: impl Fn(&str) -> Result<Vec<u32>, Fault>,
    ) -> Result<(Vec<u32>, String), Fault> {
        let wrong = || Fault::bad(name, format!("{name}: a text or a list of token ids expected, one a request"));
        // a list of one text is a text
        let v = match v {
            Value::Array(list) if list.len() == 1 && !list[0].is_number() => &list[0],
            v => v,
        };
        match v {
            Value::String(text) => Ok((read(text)?, text.clone())),
            Value::Array(list) if list.len() > self.context() => Err(Fault::too_long(list.len(), self.context())),
            Value::Array(list) => {
                let n = self.model.vocabulary();
                let ids: Option<Vec<u32>> = list.iter().map(|v| id(v, n)).collect();
                Ok((self.fits(ids.ok_or_else(wrong)?)?, String::new()))
            }
            _ => Err(wrong()),
        }
    }
}

/// What all requests for texts have in common.
fn common(app: &App, f: &Fields, prompts: Vec<Vec<u32>>, most: usize, forced: Option<String>) -> Result<Ask, Fault> {
    let model = f.text("model")?;
    if model.is_some_and(|m| m.len() > 1024) {
        return Err(Fault::bad("model", "model: a name of 1024 bytes at most expected"));
    }
    let stops = f.texts("stop", STOPS)?;
    if stops.iter().any(|s| s.len() > STOP_BYTES) {
        return Err(Fault::bad("stop", format!("stop: strings of {STOP_BYTES} bytes at most expected")));
    }
    let n = f.whole(&["n"], 1, CHOICES)?.unwrap_or(1) as u64;
    let first = sampling(f, app)?;
    let names = ["max_completion_tokens", "max_tokens", "max_output_tokens", "n_predict"];
    let max_tokens = match f.whole(&names, -1, i64::from(u32::MAX))? {
        Some(-1) => usize::MAX,
        Some(n) => n as usize,
        None => most,
    };
    let ignore_end = f.flag("ignore_eos")?;
    let stream = f.flag("stream")?;
    let usage = match f.object("stream_options")? {
        Some(options) => Fields::of(options.clone()).flag("include_usage")?,
        None => false,
    };
    let (digest, receipt) = (f.flag("digest")?, f.flag("receipt")?);
    let chain = digest || receipt || app.options.record.is_some();
    let grammar = match grammar(f, forced)? {
        None => None,
        Some(g) => Some(app.model.grammar(&g).map_err(|e| Fault::bad("response_format", e.to_string()))?),
    };
    if prompts.len() * n as usize > TEXTS {
        let texts = prompts.len() * n as usize;
        return Err(Fault::bad("prompt", format!("{} prompts make {texts} texts: {TEXTS} at most", prompts.len())));
    }
    let one = |ids: &Vec<u32>, i: u64| Request {
        grammar: grammar.clone(),
        max_tokens,
        sampling: SamplerOptions { seed: first.seed.wrapping_add(i), ..first.clone() },
        ignore_end,
        guess: app.options.guess,
        chain,
        ..Request::new(ids.clone())
    };
    Ok(Ask {
        requests: prompts.iter().flat_map(|ids| (0..n).map(|i| one(ids, i))).collect(),
        each: n as usize,
        stops,
        parse: None,
        stream,
        usage,
        logprobs: None,
        echo: Vec::new(),
        digest,
        receipt,
        prompts: Vec::new(),
    })
}

/// Log probabilities that an answer which does not stream holds, at most.
const TOLD: usize = 200_000;

impl Ask {
    /// The tokens of a text's prompt.
    pub fn prompt_of(&self, index: usize) -> &[u32] {
        self.requests.get(index).map_or(&[], prompt_of)
    }

    /// What is shown before a text.
    pub fn echo_of(&self, index: usize) -> &str {
        self.echo.get(index / self.each).map_or("", String::as_str)
    }

    /// What is to be told of a text, where its logits are hashed.
    pub fn proving(&self, index: usize) -> Option<Proving> {
        let request = self.requests.get(index).filter(|r| r.chain)?.clone();
        let prompt = self.prompts.get(index / self.each).cloned().unwrap_or_default();
        Some(Proving { request, prompt, told: self.digest || self.receipt, receipt: self.receipt })
    }

    /// Has the logits hashed, as a header may ask for.
    pub fn tell_digest(&mut self) {
        self.digest = true;
        self.requests.iter_mut().for_each(|r| r.chain = true);
    }

    fn tell_logprobs(&mut self, top: usize, context: usize) -> Result<(), Fault> {
        self.logprobs = Some(top);
        self.requests.iter_mut().for_each(|r| r.logprobs = Some(top));
        let room = |r: &Request| r.max_tokens.min(context - prompt_of(r).len().min(context));
        match self.requests.iter().map(room).sum::<usize>() * (1 + top) {
            n if n > TOLD && !self.stream => {
                let line =
                    format!("{n} log probabilities in one answer, {TOLD} at most: stream it, or ask for fewer tokens");
                Err(Fault::bad("logprobs", line))
            }
            _ => Ok(()),
        }
    }
}

/// `/v1/completions`.
pub fn completion(app: &App, body: &[u8]) -> Result<Ask, Fault> {
    completion_of(app, &Fields::parse(body)?)
}

/// As [`completion`], of fields.
pub fn completion_of(app: &App, f: &Fields) -> Result<Ask, Fault> {
    let prompt = f.get("prompt").ok_or_else(|| Fault::bad("prompt", "prompt is missing"))?;
    let list = match prompt {
        // a list of numbers is a prompt of ids
        Value::Array(list) if list.first().is_some_and(|first| !first.is_number()) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    if list.len() > TEXTS {
        return Err(Fault::bad("prompt", format!("prompt has {}: {TEXTS} at most", list.len())));
    }
    let prompts = list
        .iter()
        .map(|v| app.prompt_ids(v, "prompt", |text| app.ids_of(text, true, false)))
        .collect::<Result<Vec<_>, _>>()?;
    let (ids, texts): (Vec<Vec<u32>>, Vec<String>) = prompts.into_iter().unzip();
    let mut ask = common(app, f, ids, 16, None)?;
    if f.whole(&["best_of"], 1, CHOICES)?.is_some_and(|b| b as usize != ask.each) {
        return Err(Fault::bad("best_of", "best_of other than n is not supported here; `isobit batch` has it"));
    }
    // -1 or so is nobody's meaning
    if let Some(top) = f.whole(&["logprobs"], 0, TOP)? {
        ask.tell_logprobs(top as usize, app.context())?;
    }
    if f.flag("echo")? {
        if ask.logprobs.is_some() && ask.stream {
            return Err(Fault::bad("echo", "echo with logprobs tells the prompt's too, and so is not streamed"));
        }
        let echo = |(i, text): (usize, &String)| match (text.is_empty(), app.tokenizer()) {
            (true, Ok(t)) => t.decode(ask.prompt_of(i * ask.each)),
            _ => text.clone(),
        };
        ask.echo = texts.iter().enumerate().map(echo).collect();
        for request in ask.requests.iter_mut().filter(|r| r.logprobs.is_some() && prompt_of(r).len() > 1) {
            request.prompt_logprobs = Some(1);
        }
    }
    ask.prompts = texts;
    Ok(ask)
}

/// The tokens of a request's prompt.
pub fn prompt_of(request: &Request) -> &[u32] {
    match &request.prompt {
        Prompt::Ids(ids) => ids,
        Prompt::Text(_) => &[],
    }
}

/// `/v1/chat/completions`.
pub fn chat(app: &App, body: &[u8]) -> Result<Ask, Fault> {
    chat_of(app, &mut Fields::parse(body)?)
}

/// As [`chat`], of fields.
pub fn chat_of(app: &App, f: &mut Fields) -> Result<Ask, Fault> {
    let (text, reading, forced) = render(app, f)?;
    // the template has written what a text begins with
    let ids = app.ids_of(&text, false, true)?;
    let mut ask = common(app, f, vec![ids], app.options.max_tokens, forced)?;
    let top = f.whole(&["top_logprobs"], 0, TOP)?;
    match (f.flag("logprobs")?, top) {
        (true, top) => ask.tell_logprobs(top.unwrap_or(0) as usize, app.context())?,
        (false, Some(1..)) => return Err(Fault::bad("top_logprobs", "top_logprobs is there without logprobs: true")),
        (false, _) => {}
    }
    (ask.parse, ask.prompts) = (Some(reading), vec![text]);
    Ok(ask)
}

/// The prompt that a chat's messages make, how its answer is read, and the grammar of a tool's call where one must come. What
/// was used is taken out of the fields.
pub fn render(app: &App, f: &mut Fields) -> Result<(String, Reading, Option<String>), Fault> {
    let template = app.template.as_ref().map_err(|why| Fault::bad("messages", why.clone()))?;
    let messages = match f.take("messages") {
        Some(Value::Array(list)) if !list.is_empty() => list,
        Some(_) => return Err(Fault::bad("messages", "messages: a list of at least one message expected")),
        None => return Err(Fault::bad("messages", "messages is missing")),
    };
    let messages: Vec<Value> =
        messages.into_iter().enumerate().map(|(i, m)| message(i, m)).collect::<Result<_, _>>()?;
    let tools = tools(f)?;
    let kwargs = f.object("chat_template_kwargs")?.cloned().unwrap_or_default();
    let (choice, parallel) = (choice(f)?, f.maybe_flag("parallel_tool_calls")?.unwrap_or(true));
    let callable = tools.clone().unwrap_or_default();
    let continues = f.maybe_flag("add_generation_prompt")? == Some(false);
    let conversation = Conversation {
        messages: template.suited(&messages),
        tools,
        add_generation_prompt: !continues,
        kwargs,
        now: SystemTime::now(),
    };
    let text = template.render(&conversation).map_err(|e| Fault::bad("messages", e.to_string()))?;
    let format = Format::of(template.source());
    let reasons = format.opened(&text);
    if choice != ToolChoice::Auto {
        for parameters in callable.iter().filter_map(|t| t.pointer("/function/parameters")) {
            Grammar::check_schema(parameters).map_err(|e| Fault::bad("tools", e.to_string()))?;
        }
    }
    let forced = match reasons {
        true => format.grammar_within_reasoning(&callable, &choice, parallel),
        false => format.grammar(&callable, &choice, parallel),
    };
    if choice != ToolChoice::Auto && forced.is_none() {
        return Err(Fault::bad("tool_choice", "tool_choice asks for a tool that is not among the tools"));
    }
    Ok((text, Reading { format, tools: !callable.is_empty(), reasons }, forced))
}

/// A message that a template can be given: with a role, and content of text alone.
fn message(i: usize, message: Value) -> Result<Value, Fault> {
    let wrong = |what: &str, why: String| {
        let place = format!("messages[{i}]{what}");
        Fault::bad(&place, format!("{place}: {why}"))
    };
    let Value::Object(mut m) = message else {
        return Err(wrong("", "an object expected".into()));
    };
    match m.get("role").and_then(Value::as_str).unwrap_or_default() {
        "" => return Err(wrong(".role", "a string expected".into())),
        // models were trained with the older name
        "developer" => drop(m.insert("role".into(), "system".into())),
        _ => {}
    }
    match m.get("content") {
        None | Some(Value::Null) => drop(m.insert("content".into(), "".into())),
        Some(Value::String(_)) => {}
        Some(Value::Array(parts)) => {
            let parts = parts.iter().map(|p| part(p).map(|text| json!({ "type": "text", "text": text })));
            let parts = parts.collect::<Result<Vec<_>, _>>().map_err(|why| wrong(".content", why))?;
            m.insert("content".into(), parts.into());
        }
        Some(_) => return Err(wrong(".content", "a string or a list of parts expected".into())),
    }
    Ok(Value::Object(m))
}

/// The text of a part.
fn part(p: &Value) -> Result<&str, String> {
    let text = |name: &str| p.get(name).and_then(Value::as_str);
    match (text("type"), text("text")) {
        (Some("text" | "input_text" | "output_text") | None, Some(text)) => Ok(text),
        (Some(kind), _) => {
            let kind: String = kind.chars().take(40).collect();
            Err(format!("a part of type {kind:?} is not supported: text is"))
        }
        _ => Err("a part without text".into()),
    }
}

/// Which tool must be called.
fn choice(f: &Fields) -> Result<ToolChoice, Fault> {
    let expected = "none, auto, required, or an object that names a function";
    match f.get("tool_choice") {
        None => Ok(ToolChoice::Auto),
        Some(Value::String(s)) if s == "none" || s == "auto" => Ok(ToolChoice::Auto),
        Some(Value::String(s)) if s == "required" => Ok(ToolChoice::Required),
        Some(v) => {
            let name = v.pointer("/function/name").or_else(|| v.get("name")).and_then(Value::as_str);
            name.map(|n| ToolChoice::Named(n.into())).ok_or_else(|| f.wrong("tool_choice", expected))
        }
    }
}

/// The tools that may be called.
fn tools(f: &Fields) -> Result<Option<Vec<Value>>, Fault> {
    let choice = f.get("tool_choice");
    if choice.is_some_and(|c| c == "none") {
        return Ok(None);
    }
    let Some(tools) = f.list("tools")?.filter(|t| !t.is_empty()) else { return Ok(None) };
    if tools.len() > TOOLS {
        return Err(Fault::bad("tools", format!("tools has {}: {TOOLS} at most expected", tools.len())));
    }
    let named = |t: &&Value| t.pointer("/function/name").and_then(Value::as_str).is_some_and(|n| !n.is_empty());
    // of the responses API the function is the tool itself
    let flat = |t: &Value| match t.get("function") {
        None => json!({ "type": "function", "function": {
            "name": t.get("name"), "description": t.get("description"), "parameters": t.get("parameters"),
        }}),
        Some(_) => t.clone(),
    };
    let tools: Vec<Value> = tools.iter().map(flat).collect();
    match tools.iter().find(|t| !named(t)) {
        Some(_) => Err(Fault::bad("tools", "tools: functions with a name expected")),
        None => Ok(Some(tools)),
    }
}

/// Biases of tokens, of `logit_bias` in OpenAI's form (an object of ids) or llama.cpp's (a list of pairs).
pub fn biases(f: &Fields, vocabulary: usize) -> Result<Vec<(u32, f32)>, Fault> {
    let wrong = || f.wrong("logit_bias", "an object from token ids to numbers from -100 to 100");
    let pairs: Vec<(Value, Value)> = match f.get("logit_bias") {
        None => return Ok(Vec::new()),
        Some(Value::Object(map)) => {
            let pair = |(k, v): (&String, &Value)| Some((Value::from(k.parse::<u64>().ok()?), v.clone()));
            map.iter().map(pair).collect::<Option<_>>().ok_or_else(wrong)?
        }
        Some(Value::Array(list)) => {
            let pair = |p: &Value| Some((p.get(0)?.clone(), p.get(1)?.clone()));
            list.iter().map(pair).collect::<Option<_>>().ok_or_else(wrong)?
        }
        Some(_) => return Err(wrong()),
    };
    if pairs.len() > BIASES {
        return Err(Fault::bad("logit_bias", format!("logit_bias has {}: {BIASES} at most expected", pairs.len())));
    }
    let one = |(k, v): &(Value, Value)| {
        let bias = match v {
            // llama.cpp's word for never
            Value::Bool(false) => f32::NEG_INFINITY,
            v => v.as_f64().filter(|b| b.abs() <= 100.0)? as f32,
        };
        Some((id(k, vocabulary)?, bias))
    };
    pairs.iter().map(one).collect::<Option<_>>().ok_or_else(wrong)
}
