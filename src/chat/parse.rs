//! An answer as it streams: text, reasoning, calls of tools.
//!
//! Half a marker is never shown: what may become one is held until it does or does not. What turns out to be no call comes
//! out as it was written. How the text was cut into pushes changes when events come, not what they hold together.

use super::format::{Calls, Format, Found};
use super::gemma;
use serde_json::Value;

/// What an answer holds. Texts come in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// text for whoever asked
    Content(String),
    /// what the model thinks before it answers
    Reasoning(String),
    /// a call, whole
    ToolCall {
        /// from 0
        index: usize,
        /// the tool's name
        name: String,
        /// its arguments, the text of a JSON object
        arguments: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// nothing has been said yet, or nothing but reasoning
    Start,
    Reasoning,
    Content,
    /// within a call that this marker began
    Call(&'static str),
    /// within JSON that may be a call
    Bare,
    /// after a call
    Between,
    /// a message's head, before `<|message|>`
    Head,
    /// the text of a message that calls a tool
    Arguments,
}

/// Reads one answer.
#[derive(Clone, Debug)]
pub struct Parser {
    format: Format,
    tools: bool,
    mode: Mode,
    /// text that no event has had
    rest: String,
    /// calls so far
    calls: usize,
    /// white space that ends what was said so far: dropped where a call or the end of reasoning follows
    space: String,
    /// drop white space before the next text
    skip: bool,
    /// the tool that a message of gpt-oss is for
    tool: String,
    /// what came last may end a call
    closes: bool,
    events: Vec<Event>,
}

const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
const ENDS: [&str; 3] = ["<|end|>", "<|call|>", "<|start|>"];

impl Parser {
    /// A parser of an answer in this format. Without `tools` no text is taken for a call; `prompt_opened_reasoning` says that
    /// the prompt ended with what opens reasoning ([`Format::opened`]).
    pub fn new(format: Format, tools: bool, prompt_opened_reasoning: bool) -> Parser {
        let mode = match () {
            () if format.calls == Calls::Harmony => Mode::Head,
            () if prompt_opened_reasoning && format.thinking.tags().is_some() => Mode::Reasoning,
            () => Mode::Start,
        };
        let skip = mode == Mode::Reasoning;
        let (rest, space, tool, events) = (String::new(), String::new(), String::new(), Vec::new());
        Parser { format, tools, mode, rest, calls: 0, space, skip, tool, closes: false, events }
    }

    /// More of the answer; what is certain by now.
    pub fn push(&mut self, text: &str) -> Vec<Event> {
        self.rest.push_str(text);
        self.closes = text.contains(['}', ']', '>']);
        while self.advance(false) {}
        std::mem::take(&mut self.events)
    }

    /// The answer has ended; what was still held.
    pub fn finish(&mut self) -> Vec<Event> {
        while self.advance(true) {}
        let space = std::mem::take(&mut self.space);
        if !space.is_empty() && self.mode != Mode::Reasoning {
            self.push_text(false, &space);
        }
        std::mem::take(&mut self.events)
    }

    /// One step; whether another may follow. With `last` no more text comes.
    fn advance(&mut self, last: bool) -> bool {
        if self.rest.is_empty() {
            return false;
        }
        // a long call is not read anew with each of its tokens
        let within = matches!(self.mode, Mode::Call(_) | Mode::Bare);
        if within && !last && !self.closes && self.rest.len() > 256 {
            return false;
        }
        match self.mode {
            Mode::Start => self.start(last),
            Mode::Reasoning => self.reasoning(last),
            Mode::Content => self.content(last),
            Mode::Call(opener) => self.call(opener, last),
            Mode::Bare => self.bare(last),
            Mode::Between => self.between(last),
            Mode::Head => self.head(last),
            Mode::Arguments => self.arguments(last),
        }
    }

    fn start(&mut self, last: bool) -> bool {
        let text = self.rest.trim_start();
        let lead = self.rest.len() - text.len();
        if text.is_empty() && !last {
            return false;
        }
        if let Some((open, _)) = self.format.thinking.tags() {
            if text.starts_with(open) {
                self.rest.drain(..lead + open.len());
                self.begin(Mode::Reasoning);
                return true;
            }
            if open.starts_with(text) && !last {
                return false;
            }
        }
        if self.tools && self.format.calls.bare() && text.starts_with(['{', '[']) {
            self.mode = Mode::Bare;
            return true;
        }
        self.mode = Mode::Content;
        true
    }

    /// Text whose first white space is nothing.
    fn begin(&mut self, mode: Mode) {
        self.mode = mode;
        self.skip = true;
        self.space.clear();
    }

    fn reasoning(&mut self, last: bool) -> bool {
        if self.format.calls == Calls::Harmony {
            return self.message(true, last);
        }
        let close = self.format.thinking.tags().map_or("", |(_, close)| close);
        if let Some(at) = self.rest.find(close) {
            self.say(true, at);
            self.rest.drain(..close.len());
            self.begin(Mode::Start);
            return true;
        }
        self.say(true, self.rest.len() - if last { 0 } else { held(&self.rest, &[close]) });
        false
    }

    fn content(&mut self, last: bool) -> bool {
        if self.format.calls == Calls::Harmony {
            return self.message(false, last);
        }
        let openers = if self.tools { self.format.calls.openers() } else { &[] };
        let first = openers.iter().filter_map(|o| self.rest.find(o).map(|at| (at, *o))).min();
        if let Some((at, opener)) = first {
            self.say(false, at);
            self.mode = Mode::Call(opener);
            return true;
        }
        self.say(false, self.rest.len() - if last { 0 } else { held(&self.rest, openers) });
        false
    }

    /// A message of gpt-oss, to its end.
    fn message(&mut self, reasoning: bool, last: bool) -> bool {
        if let Some((at, end)) = ENDS.iter().filter_map(|e| self.rest.find(e).map(|at| (at, *e))).min() {
            self.say(reasoning, at);
            self.rest.drain(..end.len());
            self.begin(Mode::Head);
            return true;
        }
        self.say(reasoning, self.rest.len() - if last { 0 } else { held(&self.rest, &ENDS) });
        false
    }

    /// What stands before a message of gpt-oss: its channel, and whom it is for.
    fn head(&mut self, last: bool) -> bool {
        let text = self.rest.trim_start();
        let may_be = [CHANNEL, "<|start|>", "assistant"].iter().any(|m| text.starts_with(m) || m.starts_with(text));
        if !may_be {
            // not what this format says: an answer all the same
            self.mode = Mode::Content;
            return true;
        }
        let Some(at) = self.rest.find(MESSAGE) else {
            if last {
                self.rest.clear();
            }
            return false;
        };
        let head = self.rest[..at].to_string();
        self.rest.drain(..at + MESSAGE.len());
        let channel = head.rsplit(CHANNEL).next().unwrap_or_default().trim_start();
        self.tool = head
            .split_once("to=functions.")
            .map(|(_, name)| name.chars().take_while(|c| !c.is_whitespace() && *c != '<').collect())
            .unwrap_or_default();
        let mode = match () {
            () if !self.tool.is_empty() && self.tools => Mode::Arguments,
            () if channel.starts_with("analysis") => Mode::Reasoning,
            () => Mode::Content,
        };
        self.begin(mode);
        true
    }

    fn arguments(&mut self, last: bool) -> bool {
        let end = ENDS.iter().filter_map(|e| self.rest.find(e).map(|at| (at, e.len()))).min();
        let (at, len) = match end {
            Some(end) => end,
            None if last => (self.rest.len(), 0),
            None => return false,
        };
        let text = self.rest[..at].trim().to_string();
        match serde_json::from_str::<Value>(&text) {
            Ok(Value::Object(_)) => {
                self.rest.drain(..at + len);
                let name = std::mem::take(&mut self.tool);
                self.push_calls(vec![(name, text)]);
            }
            _ => {
                self.say(false, at);
                self.rest.drain(..len);
            }
        }
        self.begin(Mode::Head);
        true
    }

    fn call(&mut self, opener: &'static str, last: bool) -> bool {
        let inner = &self.rest[opener.len()..];
        let found = match opener {
            "<tool_call>" => tagged(inner, last),
            "[TOOL_CALLS]" => mistral(inner, last),
            "functools[" => json_calls(&self.rest[opener.len() - 1..], "", last, false),
            "<|tool_call|>" => json_calls(inner, "<|/tool_call|>", last, false),
            "<|tool_call>" => gemma::call(inner, last),
            _ => json_calls(inner, "", last, false),
        };
        let before = if opener == "functools[" { opener.len() - 1 } else { opener.len() };
        match found {
            Found::More => false,
            Found::Calls(calls, bytes) => {
                self.rest.drain(..before + bytes);
                self.push_calls(calls);
                self.begin(Mode::Between);
                true
            }
            Found::Nothing => {
                // the marker is text; behind it there may still be a call
                self.say(false, opener.len());
                self.mode = Mode::Content;
                true
            }
        }
    }

    fn bare(&mut self, last: bool) -> bool {
        let lead = self.rest.len() - self.rest.trim_start().len();
        match json_calls(&self.rest[lead..], "", last, true) {
            Found::More => false,
            Found::Calls(calls, bytes) => {
                self.rest.drain(..lead + bytes);
                self.push_calls(calls);
                self.begin(Mode::Between);
                true
            }
            Found::Nothing => {
                self.say(false, lead + 1);
                self.mode = Mode::Content;
                true
            }
        }
    }

    fn between(&mut self, last: bool) -> bool {
        let text = self.rest.trim_start();
        let next = text.trim_start_matches([';', ',']).trim_start();
        if next.is_empty() && !last {
            return false;
        }
        if self.format.calls.bare() && next.starts_with('{') {
            let lead = self.rest.len() - next.len();
            self.rest.drain(..lead);
            self.mode = Mode::Bare;
        } else {
            self.mode = Mode::Content;
        }
        true
    }

    fn push_calls(&mut self, calls: Vec<(String, String)>) {
        self.space.clear();
        for (name, arguments) in calls {
            self.events.push(Event::ToolCall { index: self.calls, name, arguments });
            self.calls += 1;
        }
    }

    /// Takes so many bytes as text. White space at its end waits for what follows.
    fn say(&mut self, reasoning: bool, bytes: usize) {
        let text: String = self.rest.drain(..bytes).collect();
        let mut text = text.as_str();
        if self.skip {
            text = text.trim_start();
        }
        if text.is_empty() {
            return;
        }
        self.skip = false;
        let said = if reasoning || self.tools { text.trim_end() } else { text };
        if !said.is_empty() {
            let whole = std::mem::take(&mut self.space) + said;
            self.push_text(reasoning, &whole);
        }
        self.space.push_str(&text[said.len()..]);
    }

    fn push_text(&mut self, reasoning: bool, text: &str) {
        match (self.events.last_mut(), reasoning) {
            (Some(Event::Content(s)), false) | (Some(Event::Reasoning(s)), true) => s.push_str(text),
            (_, false) => self.events.push(Event::Content(text.into())),
            (_, true) => self.events.push(Event::Reasoning(text.into())),
        }
    }
}

/// Bytes at the end of a text that may be the beginning of a marker.
fn held(text: &str, markers: &[&str]) -> usize {
    let longest = markers.iter().map(|m| m.len()).max().unwrap_or(0);
    let most = longest.saturating_sub(1).min(text.len());
    (1..=most)
        .rev()
        .filter(|n| text.is_char_boundary(text.len() - n))
        .find(|n| markers.iter().any(|m| m.len() > *n && m.starts_with(&text[text.len() - n..])))
        .unwrap_or(0)
}

enum Json {
    Whole(Value, usize),
    Cut,
    Bad,
}

/// The JSON value that a text begins with, and its bytes.
fn json(text: &str) -> Json {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    match values.next() {
        Some(Ok(v)) => Json::Whole(v, values.byte_offset()),
        Some(Err(e)) if e.is_eof() => Json::Cut,
        None => Json::Cut,
        Some(Err(_)) => Json::Bad,
    }
}

/// The name and arguments of a call; a bare one must have both.
fn call_of(v: &Value, bare: bool) -> Option<(String, String)> {
    let v = v.get("function").filter(|f| f.is_object()).unwrap_or(v);
    let name = v.get("name").or_else(|| v.get("function"))?.as_str()?;
    let arguments = v.get("arguments").or_else(|| v.get("parameters"));
    let arguments = match arguments {
        Some(object @ Value::Object(_)) => object.to_string(),
        Some(Value::String(text)) if serde_json::from_str::<Value>(text).is_ok_and(|v| v.is_object()) => text.clone(),
        Some(Value::Null) | None if !bare => "{}".into(),
        _ => return None,
    };
    Some((name.to_string(), arguments))
}

/// A call or a list of calls as JSON, with what may close them.
fn json_calls(text: &str, close: &str, last: bool, bare: bool) -> Found {
    if bare && !may_be_call(text) {
        return Found::Nothing;
    }
    let (value, mut bytes) = match json(text) {
        Json::Whole(value, bytes) => (value, bytes),
        Json::Cut if !last => return Found::More,
        Json::Cut | Json::Bad => return Found::Nothing,
    };
    let calls: Option<Vec<_>> = match &value {
        Value::Array(list) if !list.is_empty() => list.iter().map(|v| call_of(v, bare)).collect(),
        one => call_of(one, bare).map(|c| vec![c]),
    };
    let Some(calls) = calls else { return Found::Nothing };
    if !close.is_empty() {
        let after = text[bytes..].trim_start();
        if after.starts_with(close) {
            bytes = text.len() - after.len() + close.len();
        } else if close.starts_with(after) && !last {
            return Found::More;
        }
    }
    Found::Calls(calls, bytes)
}

/// Whether JSON that has begun may be that of a call, by its first key.
fn may_be_call(text: &str) -> bool {
    const KEYS: [&str; 6] = ["name", "parameters", "arguments", "type", "function", "id"];

    let text = text.trim_start();
    let inner = text.strip_prefix('[').map_or(text, str::trim_start);
    if inner.is_empty() {
        return true;
    }
    let Some(key) = inner.strip_prefix('{').map(str::trim_start) else { return false };
    let Some(key) = key.strip_prefix('"') else { return key.is_empty() };
    match key.split_once('"') {
        Some((key, _)) => KEYS.contains(&key),
        None => KEYS.iter().any(|k| k.starts_with(key)),
    }
}

/// What stands between `<tool_call>` and `</tool_call>`.
fn tagged(text: &str, last: bool) -> Found {
    const CLOSE: &str = "</tool_call>";

    let inner = text.trim_start();
    match inner.chars().next() {
        None if last => return Found::Nothing,
        None => return Found::More,
        Some('{' | '[') => return json_calls(text, CLOSE, last, false),
        _ => {}
    }
    let named = inner.find(|c: char| !(c.is_alphanumeric() || "_-.".contains(c))).unwrap_or(inner.len());
    let after = inner[named..].trim_start();
    let next: &[&str] = if named == 0 { &["<function="] } else { &["<arg_key>", CLOSE] };
    if !next.iter().any(|m| after.starts_with(m) || m.starts_with(after)) {
        return Found::Nothing;
    }
    let (body, bytes) = match text.find(CLOSE) {
        Some(at) => (text[..at].trim(), at + CLOSE.len()),
        None if last => (inner.trim_end(), text.len()),
        None => return Found::More,
    };
    let call = if body.starts_with("<function=") { by_parameters(body) } else { by_pairs(body) };
    call.map_or(Found::Nothing, |call| Found::Calls(vec![call], bytes))
}

/// A value that is written without quotes: JSON where it is that, else text.
fn plain(text: &str) -> Value {
    serde_json::from_str(text.trim()).unwrap_or_else(|_| Value::from(text))
}

/// `<function=NAME><parameter=KEY>value</parameter></function>`
fn by_parameters(body: &str) -> Option<(String, String)> {
    let (name, mut rest) = body.strip_prefix("<function=")?.split_once('>')?;
    let mut arguments = serde_json::Map::new();
    while let Some((_, after)) = rest.split_once("<parameter=") {
        let (key, value) = after.split_once('>')?;
        let (value, after) = value.split_once("</parameter>")?;
        let value = value.strip_prefix('\n').unwrap_or(value);
        arguments.insert(key.trim().into(), plain(value.strip_suffix('\n').unwrap_or(value)));
        rest = after;
    }
    rest.contains("</function>").then(|| (name.trim().to_string(), Value::Object(arguments).to_string()))
}

/// `NAME`, then `<arg_key>KEY</arg_key><arg_value>value</arg_value>`
fn by_pairs(body: &str) -> Option<(String, String)> {
    let (name, mut rest) = body.split_at(body.find('<').unwrap_or(body.len()));
    let name = name.trim();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
    let mut arguments = serde_json::Map::new();
    while !rest.trim().is_empty() {
        let (key, after) = rest.trim_start().strip_prefix("<arg_key>")?.split_once("</arg_key>")?;
        let (value, after) = after.trim_start().strip_prefix("<arg_value>")?.split_once("</arg_value>")?;
        arguments.insert(key.trim().into(), plain(value));
        rest = after;
    }
    is_name.then(|| (name.to_string(), Value::Object(arguments).to_string()))
}

/// Bytes before the arguments of a call of Mistral, at most.
const HEAD: usize = 256;

/// What stands after `[TOOL_CALLS]`: a list of calls, or a name and its arguments.
fn mistral(text: &str, last: bool) -> Found {
    let inner = text.trim_start();
    let lead = text.len() - inner.len();
    if inner.is_empty() {
        return if last { Found::Nothing } else { Found::More };
    }
    if inner.starts_with('[') {
        return json_calls(text, "", last, false);
    }
    let named = inner.find(|c: char| !(c.is_alphanumeric() || "_-.".contains(c))).unwrap_or(inner.len());
    let (name, after) = inner.split_at(named);
    let after = after.trim_start();
    let may_be =
        after.is_empty() || ["[ARGS]", "[CALL_ID]", "{"].iter().any(|m| after.starts_with(m) || m.starts_with(after));
    if name.is_empty() || !may_be {
        return Found::Nothing;
    }
    // so far a name and an id may reach
    let Some(brace) = inner.bytes().take(HEAD).position(|b| b == b'{') else {
        return if inner.len() < HEAD && !last { Found::More } else { Found::Nothing };
    };
    match json(&inner[brace..]) {
        Json::Whole(v, bytes) => Found::Calls(vec![(name.to_string(), v.to_string())], lead + brace + bytes),
        Json::Cut if !last => Found::More,
        Json::Cut | Json::Bad => Found::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::Thinking;
    use super::*;

    /// Events with neighbouring texts as one.
    fn joined(events: Vec<Event>) -> Vec<Event> {
        let mut out: Vec<Event> = Vec::new();
        for e in events {
            match (out.last_mut(), e) {
                (Some(Event::Content(a)), Event::Content(b)) | (Some(Event::Reasoning(a)), Event::Reasoning(b)) => {
                    a.push_str(&b);
                }
                (_, e) => out.push(e),
            }
        }
        out
    }

    fn read(parser: &Parser, pieces: &[&str]) -> Vec<Event> {
        let mut parser = parser.clone();
        let mut events: Vec<Event> = pieces.iter().flat_map(|p| parser.push(p)).collect();
        events.extend(parser.finish());
        joined(events)
    }

    fn text(s: &str) -> Event {
        Event::Content(s.into())
    }

    fn thought(s: &str) -> Event {
        Event::Reasoning(s.into())
    }

    fn called(index: usize, name: &str, arguments: &str) -> Event {
        Event::ToolCall { index, name: name.into(), arguments: arguments.into() }
    }

    fn parser(calls: Calls, thinking: Thinking) -> Parser {
        Parser::new(Format { calls, thinking }, true, false)
    }

    /// Answers and what they hold, for every format.
    fn cases() -> Vec<(Parser, &'static str, Vec<Event>)> {
        use Calls::{Functools, Generic, Hermes, Llama3, Mistral, MistralArgs, Phi4};
        let hermes = || parser(Hermes, Thinking::Think);
        let within = || Parser::new(Format { calls: Hermes, thinking: Thinking::Think }, true, true);
        let llama = || parser(Llama3, Thinking::None);
        let mistral = || parser(Mistral, Thinking::Brackets);
        let args = || parser(MistralArgs, Thinking::None);
        let phi = || parser(Phi4, Thinking::None);
        let generic = || parser(Generic, Thinking::None);
        let gemma = || parser(Calls::Gemma, Thinking::Channel);
        let harmony = || parser(Calls::Harmony, Thinking::Harmony);
        vec![
            (hermes(), "Hello there.", vec![text("Hello there.")]),
            (hermes(), "  Hi <b> a < b", vec![text("  Hi <b> a < b")]),
            (hermes(), "<think>\nhm\n\nyes \n</think>\n\nYes. ", vec![thought("hm\n\nyes"), text("Yes. ")]),
            (hermes(), "<think></think>x", vec![text("x")]),
            (hermes(), "so <think> is text", vec![text("so <think> is text")]),
            (hermes(), "<think>cut off </thin", vec![thought("cut off </thin")]),
            (within(), "\nhm</think>\nNo", vec![thought("hm"), text("No")]),
            (
                hermes(),
                "I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_call>\", \"b\": [1, 2.5]}}\n</tool_call>\n",
                vec![text("I look."), called(0, "f", r#"{"a":"</tool_call>","b":[1,2.5]}"#)],
            ),
            (
                hermes(),
                "<think>x</think><tool_call>{\"name\":\"f\"}</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": \"{\\\"a\\\": 1}\"}\n</tool_call> done",
                vec![thought("x"), called(0, "f", "{}"), called(1, "g", "{\"a\": 1}"), text("done")],
            ),
            (hermes(), "<tool_call>{\"name\": \"f\", \"arguments\": {}}", vec![called(0, "f", "{}")]),
            (hermes(), "<tool_call>{\"name\": \"f\", \"argum", vec![text("<tool_call>{\"name\": \"f\", \"argum")]),
            (hermes(), "<tool_call> is a tag", vec![text("<tool_call> is a tag")]),
            (hermes(), "<tool_call>{nonsense}</tool_call>", vec![text("<tool_call>{nonsense}</tool_call>")]),
            (
                hermes(),
                "<tool_call>\n<function=f>\n<parameter=a>\nx\ny\n</parameter>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>",
                vec![called(0, "f", r#"{"a":"x\ny","n":3}"#)],
            ),
            (
                hermes(),
                "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x y</arg_value>\n</tool_call>",
                vec![called(0, "f", r#"{"a":"x y"}"#)],
            ),
            (llama(), "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", vec![called(0, "f", "{\"a\":1}")]),
            (
                llama(),
                " <|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}} ok",
                vec![called(0, "f", "{}"), called(1, "g", "{}"), text("ok")],
            ),
            (llama(), "{\"answer\": 42}", vec![text("{\"answer\": 42}")]),
            (llama(), "{\"name\": \"Ann\", \"age\": 4}", vec![text("{\"name\": \"Ann\", \"age\": 4}")]),
            (llama(), "{\"name\": \"Ann", vec![text("{\"name\": \"Ann")]),
            (llama(), "a {\"name\": \"f\", \"parameters\": {}}", vec![text("a {\"name\": \"f\", \"parameters\": {}}")]),
            (
                mistral(),
                "[THINK]so[/THINK][TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}, \"id\": \"x\"}]",
                vec![thought("so"), called(0, "f", "{\"a\":1}"), called(1, "g", "{}")],
            ),
            (mistral(), "[TOOL_CALL] no, [1, 2]", vec![text("[TOOL_CALL] no, [1, 2]")]),
            (mistral(), "[TOOL_CALLS][1]", vec![text("[TOOL_CALLS][1]")]),
            (
                args(),
                "ok[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]a1[ARGS]{}",
                vec![text("ok"), called(0, "f", "{\"a\":1}"), called(1, "g", "{}")],
            ),
            (args(), "[TOOL_CALLS]f and g", vec![text("[TOOL_CALLS]f and g")]),
            (phi(), "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|>", vec![called(0, "f", "{}")]),
            (
                parser(Functools, Thinking::None),
                "functools[{\"name\": \"f\", \"arguments\": {}}] x",
                vec![called(0, "f", "{}"), text("x")],
            ),
            (phi(), "functools is a module", vec![text("functools is a module")]),
            (
                gemma(),
                "<|channel>thought\nhm\n<channel|>ok<|tool_call>call:f{a:<|\"|>x}<|\"|>,n:[1,{b:true}]}<tool_call|><|tool_call>call:g{}<tool_call|>",
                vec![
                    thought("hm"),
                    text("ok"),
                    called(0, "f", r#"{"a":"x}","n":[1,{"b":true}]}"#),
                    called(1, "g", "{}"),
                ],
            ),
            (gemma(), "<|channel>thought\n<channel|>Yes.", vec![text("Yes.")]),
            (gemma(), "<|channel>other <|tool_call>call me", vec![text("<|channel>other <|tool_call>call me")]),
            (gemma(), "<|tool_call>call:f{a:1}", vec![called(0, "f", "{\"a\":1}")]),
            (gemma(), "<|tool_call>call:f{a:", vec![text("<|tool_call>call:f{a:")]),
            (generic(), " [{\"name\": \"f\", \"arguments\": {}}]", vec![called(0, "f", "{}")]),
            (generic(), "[1, 2, 3]", vec![text("[1, 2, 3]")]),
            (
                harmony(),
                "<|channel|>analysis<|message|>hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>",
                vec![thought("hm."), called(0, "f", "{\"a\": 1}")],
            ),
            (harmony(), "<|channel|>final<|message|>Yes, a < b.", vec![text("Yes, a < b.")]),
            (harmony(), "assorted text", vec![text("assorted text")]),
            (harmony(), "a <|channel|>final<|message|>b", vec![text("a <|channel|>final<|message|>b")]),
        ]
    }

    #[test]
    fn answers_hold_what_they_hold() {
        for (parser, answer, events) in cases() {
            assert_eq!(read(&parser, &[answer]), events, "{answer}");
        }
    }

    #[test]
    fn it_does_not_matter_how_an_answer_is_cut() {
        let mut state = 1u64;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        for (parser, answer, events) in cases() {
            let chars: Vec<&str> = answer.char_indices().map(|(i, c)| &answer[i..i + c.len_utf8()]).collect();
            assert_eq!(read(&parser, &chars), events, "{answer}");
            for _ in 0..200 {
                let (mut pieces, mut rest) = (Vec::new(), answer);
                while !rest.is_empty() {
                    let (piece, after) = rest.split_at(1 + random(rest.len().min(12)));
                    pieces.push(piece);
                    rest = after;
                }
                assert_eq!(read(&parser, &pieces), events, "{pieces:?}");
            }
        }
    }

    #[test]
    fn made_up_answers_are_read_alike_however_they_are_cut() {
        const PARTS: [&str; 33] = [
            "<|tool_call>",
            "<tool_call|>",
            "call:f",
            "{a:1}",
            "<|\"|>",
            "<|channel>thought",
            "<channel|>",
            "<tool_call>",
            "</tool_call>",
            "{\"name\": \"f\", \"arguments\": {}}",
            "{",
            "}",
            "[",
            "]",
            "<think>",
            "</think>",
            " ",
            "\n",
            "a",
            "<|python_tag|>",
            ";",
            "[TOOL_CALLS]",
            "f[ARGS]",
            "{\"x\": 1}",
            "functools",
            "<|tool_call|>",
            "<|/tool_call|>",
            "<|channel|>",
            "analysis",
            "<|message|>",
            "<|end|>",
            "<|call|>",
            "\"name\"",
        ];
        let mut state = 7u64;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        let formats: Vec<Parser> = cases().into_iter().map(|(p, ..)| p).collect();
        for i in 0..20_000 {
            let answer: String = (0..1 + random(9)).map(|_| PARTS[random(PARTS.len())]).collect();
            let parser = &formats[i % formats.len()];
            let whole = read(parser, &[&answer]);
            let (mut pieces, mut rest) = (Vec::new(), answer.as_str());
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(1 + random(rest.len().min(6)));
                pieces.push(piece);
                rest = after;
            }
            assert_eq!(read(parser, &pieces), whole, "{:?} {answer:?} {pieces:?}", parser.format);
        }
    }

    #[test]
    fn text_comes_as_early_as_it_can() {
        let mut p = parser(Calls::Hermes, Thinking::Think);
        assert_eq!(p.push("Yes"), [text("Yes")]);
        assert_eq!(p.push("lo <"), [text("lo")]);
        assert_eq!(p.push("b"), [text(" <b")]);
        assert_eq!(p.push("<tool_"), []);
        assert_eq!(p.push("call>{"), []);
        assert_eq!(p.push("x"), [text("<tool_call>{x")]);
        let mut p = parser(Calls::Llama3, Thinking::None);
        assert_eq!(p.push("{\"na"), []);
        assert_eq!(p.push("tion\""), [text("{\"nation\"")]);
        // without tools nothing is held but reasoning
        let mut p = Parser::new(Format { calls: Calls::Hermes, thinking: Thinking::None }, false, false);
        assert_eq!(p.push("a <tool_call> "), [text("a <tool_call> ")]);
    }

    #[test]
    fn formats_are_found_in_templates() {
        let of = |source| Format::of(source);
        assert_eq!(of("... <tool_call> ... </think>"), Format { calls: Calls::Hermes, thinking: Thinking::Think });
        assert_eq!(of("[TOOL_CALLS] [ARGS]").calls, Calls::MistralArgs);
        assert_eq!(of("[TOOL_CALLS] [INST]").calls, Calls::Mistral);
        assert_eq!(of("<|start_header_id|>").calls, Calls::Llama3);
        assert_eq!(
            of("<|turn>{{ '<|tool_call>call:' }}<|channel>"),
            Format { calls: Calls::Gemma, thinking: Thinking::Channel }
        );
        assert_eq!(of("<|user|>"), Format { calls: Calls::Generic, thinking: Thinking::None });
        assert!(of("<think>").opened("<|assistant|><think>\n") && !of("<think>").opened("<think>\n\n</think>\n\n"));
    }
}
