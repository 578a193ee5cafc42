//! A model's chat template: messages to a prompt, byte for byte as Hugging Face transformers renders it.

use super::filters::{self, Raised};
use super::methods;
use super::time::strftime;
use minijinja::value::{Serde, Value as Any};
use minijinja::{Environment, ErrorKind, syntax::SyntaxConfig};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

/// Work that a template may do, in the units of `minijinja` (an instruction or 64 bytes each).
const FUEL: u64 = 10_000_000;

/// Bytes that a template may write.
const OUTPUT: usize = 16 << 20;

/// What the environment calls the one template it has.
const NAME: &str = "chat";

/// Why there is no prompt. `Display` is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// it is no template
    #[error("the chat template, line {line}: {what}")]
    Syntax {
        /// from 1
        line: usize,
        /// what is wrong there
        what: String,
    },
    /// the template does not take this conversation and says why
    #[error("the chat template refuses the conversation: {0}")]
    Raised(String),
    /// it does what cannot be done
    #[error("the chat template fails in line {line}: {what}")]
    Failed {
        /// from 1
        line: usize,
        /// what cannot be done
        what: String,
    },
    /// it did not come to an end
    #[error("the chat template takes more than 10,000,000 steps")]
    Fuel,
    /// it wrote too much
    #[error("the chat template writes more than 16 MiB")]
    TooLong,
}

/// What a prompt is made of.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// messages as OpenAI's clients send them, handed to the template as they are: objects with `role`, `content` (text or
    /// a list of parts), `tool_calls`, `tool_call_id`, `reasoning_content` and so on
    pub messages: Vec<Value>,
    /// descriptions of tools, each as `{"type": "function", "function": {...}}`
    pub tools: Option<Vec<Value>>,
    /// end with what an answer begins with
    pub add_generation_prompt: bool,
    /// what else the template may ask for, such as `enable_thinking`; goes before special tokens of the same name
    pub kwargs: Map<String, Value>,
    /// what `strftime_now` tells, in UTC: the same request gives the same prompt wherever it runs
    pub now: SystemTime,
}

impl Conversation {
    /// Messages that are to be answered, now.
    pub fn new(messages: Vec<Value>) -> Conversation {
        Conversation { messages, tools: None, add_generation_prompt: true, kwargs: Map::new(), now: SystemTime::now() }
    }
}

/// A template, compiled. Clones share it.
///
/// It is Jinja2 as transformers sets it up: `trim_blocks`, `lstrip_blocks`, loop controls, `raise_exception`,
/// `strftime_now`, `tojson` by Python's `json.dumps`, `{% generation %}`, methods of Python's strings, lists and dicts.
/// Nothing of it reaches outside: it reads the conversation and writes text, 10 million steps and 16 MiB at most.
#[derive(Clone)]
pub struct Template {
    env: Arc<Environment<'static>>,
    source: Arc<str>,
    specials: Arc<[(String, String)]>,
    takes: Arc<OnceLock<Takes>>,
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template").field("source", &self.source).field("specials", &self.specials).finish()
    }
}

/// In what form a template takes what OpenAI's clients send in another.
#[derive(Clone, Copy, Debug)]
struct Takes {
    /// arguments of calls as objects: it looks into them
    objects: bool,
    /// content as a list of parts
    parts: bool,
}

impl Template {
    /// Compiles a template. `specials` are variables that it may name, as transformers passes them: `bos_token`,
    /// `eos_token`, `unk_token`, `pad_token` and so on, with their texts.
    ///
    /// Errors: [`TemplateError::Syntax`].
    pub fn new(source: &str, specials: &[(String, String)]) -> Result<Template, TemplateError> {
        let mut env = Environment::new();
        env.set_fuel(Some(FUEL));
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        env.set_syntax(syntax.map_err(|e| TemplateError::Syntax { line: 1, what: told(&e) })?);
        env.set_unknown_method_callback(methods::unknown);
        filters::add(&mut env);
        env.add_template_owned(NAME, prepared(source))
            .map_err(|e| TemplateError::Syntax { line: e.line().unwrap_or(1), what: told(&e) })?;
        Ok(Template {
            env: Arc::new(env),
            source: source.into(),
            specials: specials.into(),
            takes: Arc::new(OnceLock::new()),
        })
    }

    /// The text it was compiled from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The prompt of a conversation.
    ///
    /// Errors: the template's own message where it refuses the conversation, what it fails at, or that it is endless.
    pub fn render(&self, c: &Conversation) -> Result<String, TemplateError> {
        let mut context: BTreeMap<&str, Any> = BTreeMap::new();
        let now = c.now;
        context.insert("strftime_now", Any::from_function(move |format: &str| strftime(now, format)));
        context.insert("documents", Any::from(()));
        context.extend(self.specials.iter().map(|(name, text)| (name.as_str(), Any::from(text.as_str()))));
        context.extend(c.kwargs.iter().map(|(name, value)| (name.as_str(), Any::from(Serde(value)))));
        let messages: Vec<Value> = c.messages.iter().map(with_reasoning).collect();
        context.insert("messages", Any::from(Serde(&messages)));
        context.insert("tools", c.tools.as_ref().map_or_else(|| Any::from(()), |t| Any::from(Serde(t))));
        context.insert("add_generation_prompt", Any::from(c.add_generation_prompt));
        let template = self.env.get_template(NAME).map_err(|e| failed(&e))?;
        let mut out = Limited { bytes: Vec::new(), full: false };
        let rendered = template.render_captured_to(Any::from(context), &mut out).map(drop);
        if out.full {
            return Err(TemplateError::TooLong);
        }
        rendered.map_err(|e| failed(&e))?;
        Ok(String::from_utf8_lossy(&out.bytes).into_owned())
    }

    /// Messages in the form that this template understands, where clients may send another: arguments of calls as objects
    /// if it looks into them and as texts if not, lists of text parts as one text if it knows no parts. What it understands is
    /// found out with a conversation of our own.
    pub fn suited(&self, messages: &[Value]) -> Vec<Value> {
        let takes = *self.takes.get_or_init(|| self.find_out());
        messages.iter().map(|m| takes.suited(m)).collect()
    }

    fn find_out(&self) -> Takes {
        const NEEDLE: &str = "nee7dle";
        let render = |messages: Value| {
            let messages = messages.as_array().cloned().unwrap_or_default();
            self.render(&Conversation { add_generation_prompt: false, ..Conversation::new(messages) }).ok()
        };
        let call = |arguments: Value| {
            render(serde_json::json!([
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": "", "tool_calls": [
                    {"id": "call00001", "type": "function", "function": {"name": "f", "arguments": arguments}}
                ]},
            ]))
        };
        let object = call(serde_json::json!({ NEEDLE: "y" }));
        let text = call(Value::from(format!("{{\"{NEEDLE}\": \"y\"}}")));
        // a text that is written as JSON once more has its quotes escaped
        let good = |s: &Option<String>| s.as_ref().is_some_and(|s| s.contains(NEEDLE) && !s.contains("\\\""));
        let parts = render(serde_json::json!([{"role": "user", "content": [{"type": "text", "text": NEEDLE}]}]));
        let printed = |s: &str| s.contains("'type'") || s.contains("\"type\"");
        Takes {
            // templates that take both write the object
            objects: good(&object) || !good(&text),
            parts: parts.is_some_and(|s| s.contains(NEEDLE) && !printed(&s)),
        }
    }
}

impl Takes {
    fn suited(self, message: &Value) -> Value {
        let mut message = message.clone();
        if let (false, Some(parts)) = (self.parts, message.get("content").and_then(Value::as_array)) {
            let texts: Option<Vec<&str>> = parts.iter().map(|p| p.as_str().or_else(|| p["text"].as_str())).collect();
            if let Some(texts) = texts {
                message["content"] = texts.concat().into();
            }
        }
        for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(arguments) = call.pointer_mut("/function/arguments") else { continue };
            match arguments.as_str() {
                Some(text) if self.objects => {
                    if let Ok(object @ Value::Object(_)) = serde_json::from_str(text) {
                        *arguments = object;
                    }
                }
                None if !self.objects => *arguments = arguments.to_string().into(),
                _ => {}
            }
        }
        message
    }
}

/// A message whose reasoning has every name that templates know it by, as transformers sees to since version 5.
fn with_reasoning(message: &Value) -> Value {
    let Some(fields) = message.as_object() else { return message.clone() };
    let names = ["reasoning_content", "thinking", "reasoning"];
    let Some(reasoning) = names.iter().find_map(|n| fields.get(*n).filter(|v| !v.is_null())) else {
        return message.clone();
    };
    let mut all = Map::new();
    all.insert("thinking".into(), reasoning.clone());
    all.extend(fields.clone());
    all.insert("reasoning_content".into(), reasoning.clone());
    Value::Object(all)
}

/// The source as the engine takes it: line ends as one character, and `generation` blocks, by which transformers finds the
/// answers of a conversation, as blocks that have a scope and do nothing.
fn prepared(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let (mut out, mut rest) = (String::with_capacity(source.len()), source.as_str());
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        rest = tag;
        let word = tag.trim_start_matches(['-', '+']).trim_start();
        let space = &tag[..tag.len() - word.len()];
        for (name, ours) in [("generation", "with"), ("endgeneration", "endwith")] {
            let Some(after) = word.strip_prefix(name) else { continue };
            if after.trim_start().trim_start_matches(['-', '+']).starts_with("%}") {
                out.push_str(space);
                out.push_str(ours);
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

/// A writer that takes so much and no more.
struct Limited {
    bytes: Vec<u8>,
    full: bool,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + bytes.len() > OUTPUT {
            self.full = true;
            return Err(std::io::Error::other("full"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What an error is about, in one line.
fn told(e: &minijinja::Error) -> String {
    let text = match e.detail() {
        Some(detail) => format!("{}: {detail}", e.kind()),
        None => e.kind().to_string(),
    };
    text.replace(['\n', '\r'], " ")
}

/// The error of a template, from the innermost of its causes.
fn failed(e: &minijinja::Error) -> TemplateError {
    let mut innermost = e;
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(e);
    while let Some(c) = cause {
        if let Some(Raised(what)) = c.downcast_ref() {
            return TemplateError::Raised(what.clone());
        }
        if let Some(inner) = c.downcast_ref::<minijinja::Error>() {
            innermost = inner;
        }
        cause = c.source();
    }
    if innermost.kind() == ErrorKind::OutOfFuel {
        return TemplateError::Fuel;
    }
    TemplateError::Failed { line: innermost.line().or(e.line()).unwrap_or(1), what: told(innermost) }
}
