//! A grammar that has a model call a tool as its format writes calls: Lark, in llguidance's dialect.
//!
//! Markers are plain text in it, whether or not the vocabulary has a token for them.

use super::format::{Calls, Format};
use serde_json::{Value, json};

/// Whether a model must call a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// as it likes
    Auto,
    /// one of them
    Required,
    /// this one
    Named(String),
}

/// The rules of a grammar, as they grow.
struct Rules {
    text: String,
    /// names of rules with a call of each tool
    calls: Vec<String>,
}

impl Format {
    /// The grammar of an answer that calls tools of this list (each `{"type": "function", "function": {..}}` or the inner
    /// object alone), with arguments that keep to the tools' schemas; several calls where `parallel`. Where the format has
    /// reasoning, an answer may begin with it, marked as such. `None` where nothing is forced ([`ToolChoice::Auto`]), or
    /// where no tool is left to choose.
    pub fn grammar(&self, tools: &[Value], choice: &ToolChoice, parallel: bool) -> Option<String> {
        let reasoning = self.thinking.tags().map(|(open, close)| {
            format!("reasoning: {} thought\nthought[suffix={}]: /(?s:.*)/\n", quoted(open), quoted(close))
        });
        self.lark(tools, choice, parallel, reasoning, true)
    }

    /// The same for a prompt that ended with what opens reasoning ([`Format::opened`]): the answer goes on with it and closes
    /// it before the call.
    pub fn grammar_within_reasoning(&self, tools: &[Value], choice: &ToolChoice, parallel: bool) -> Option<String> {
        let (_, close) = self.thinking.tags()?;
        let reasoning = format!("reasoning: thought\nthought[suffix={}]: /(?s:.*)/\n", quoted(close));
        self.lark(tools, choice, parallel, Some(reasoning), false)
    }

    fn lark(
        &self,
        tools: &[Value],
        choice: &ToolChoice,
        parallel: bool,
        reasoning: Option<String>,
        optional: bool,
    ) -> Option<String> {
        let tools = chosen(tools, choice)?;
        let mut rules = Rules { text: String::new(), calls: Vec::new() };
        for (i, (name, schema)) in tools.iter().enumerate() {
            rules.add(self.calls, i, name, schema);
        }
        let one = rules.calls.join(" | ");
        let repeat = |separator: &str| match (parallel, separator) {
            (false, _) => "call".to_string(),
            (true, "") => "call+".to_string(),
            (true, _) => format!("call ({} call)*", quoted(separator)),
        };
        let list = |before: &str, after: &str| {
            format!("{} WS? {} WS? {}", quoted(before), repeat_in_list(parallel), quoted(after))
        };
        let calls = match self.calls {
            Calls::Hermes => repeat("\n"),
            Calls::Llama3 => repeat("; "),
            Calls::Mistral => list("[TOOL_CALLS][", "]"),
            Calls::MistralArgs | Calls::Harmony | Calls::Gemma => repeat(""),
            Calls::Phi4 => list("<|tool_call|>[", "]<|/tool_call|>"),
            Calls::Functools => list("functools[", "]"),
            Calls::Generic if parallel => list("[", "]"),
            Calls::Generic => "call".into(),
        };
        let start = match (&reasoning, optional) {
            (Some(_), true) => "(reasoning WS?)? calls",
            (Some(_), false) => "reasoning WS? calls",
            (None, _) => "calls",
        };
        let (reasoning, rules) = (reasoning.unwrap_or_default(), rules.text);
        Some(format!(
            "%llguidance {{}}\nstart: {start}\ncalls: {calls}\ncall: {one}\n{reasoning}{rules}WS: /[ \\n]{{1,4}}/\n"
        ))
    }
}

fn repeat_in_list(parallel: bool) -> &'static str {
    if parallel { "call (WS? \",\" WS? call)*" } else { "call" }
}

/// Names and schemas of the tools that may be called.
fn chosen(tools: &[Value], choice: &ToolChoice) -> Option<Vec<(String, Value)>> {
    let named = |v: &Value| {
        let function = v.get("function").unwrap_or(v);
        let schema = function.get("parameters").filter(|p| p.is_object()).cloned();
        Some((function.get("name")?.as_str()?.to_string(), schema.unwrap_or_else(|| json!({"type": "object"}))))
    };
    let mut all: Vec<_> = tools.iter().filter_map(named).collect();
    match choice {
        ToolChoice::Auto => return None,
        ToolChoice::Required => {}
        ToolChoice::Named(name) => all.retain(|(n, _)| n == name),
    }
    (!all.is_empty()).then_some(all)
}

/// A schema whose JSON has no white space but a space after `,` and `:`, so that no model can go on with white space for
/// ever.
fn tight(mut schema: Value) -> Value {
    if let Some(object) = schema.as_object_mut().filter(|o| !o.contains_key("x-guidance")) {
        let how = json!({"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "});
        object.insert("x-guidance".into(), how);
    }
    schema
}

impl Rules {
    /// The rule of a call of one tool.
    fn add(&mut self, calls: Calls, i: usize, name: &str, schema: &Value) {
        let object = |key: &str| {
            let mut object = json!({
                "type": "object",
                "properties": {"name": {"const": name}, key: schema},
                "required": ["name", key],
                "additionalProperties": false,
            });
            // what a schema refers to is named from the root, which is another one now
            for defs in ["$defs", "definitions"] {
                if let Some(all) = schema.get(defs) {
                    object[defs] = all.clone();
                }
            }
            format!("%json {}", tight(object))
        };
        let body = match calls {
            Calls::Hermes => {
                format!("\"<tool_call>\\n\" object_{i} \"\\n</tool_call>\"\nobject_{i}: {}", object("arguments"))
            }
            Calls::Llama3 => object("parameters"),
            Calls::MistralArgs => {
                format!("{} %json {}", quoted(&format!("[TOOL_CALLS]{name}[ARGS]")), tight(schema.clone()))
            }
            Calls::Harmony => {
                let head = format!("<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>");
                format!("{} %json {} \"<|call|>\"", quoted(&head), tight(schema.clone()))
            }
            // which is read as its own notation is
            Calls::Gemma => {
                let head = quoted(&format!("<|tool_call>call:{name}"));
                format!("{head} %json {} \"<tool_call|>\"", tight(schema.clone()))
            }
            Calls::Mistral | Calls::Phi4 | Calls::Functools | Calls::Generic => object("arguments"),
        };
        self.text.push_str(&format!("call_{i}: {body}\n"));
        self.calls.push(format!("call_{i}"));
    }
}

/// A text as a string of Lark: as in JSON, whose escapes it has.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{Event, Parser, Thinking};
    use llguidance::api::TopLevelGrammar;
    use llguidance::{Matcher, ParserFactory};
    use toktrie::ApproximateTokEnv;

    /// How many bytes of a text a grammar takes, and whether it may end after them.
    fn takes(grammar: &str, text: &str) -> (usize, bool) {
        let factory = ParserFactory::new_simple(&ApproximateTokEnv::single_byte_env()).unwrap();
        let parser = factory.create_parser(TopLevelGrammar::from_lark(grammar.into()));
        let mut matcher = Matcher::new(parser);
        let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
        let n = matcher.try_consume_tokens(&tokens).unwrap_or_else(|e| panic!("{e}\n{grammar}"));
        (n, matcher.is_accepting().unwrap_or(false))
    }

    fn tools() -> Vec<Value> {
        let schema = json!({
            "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
            "additionalProperties": false
        });
        let shared = json!({
            "type": "object", "$defs": {"n": {"type": "integer"}},
            "properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"], "additionalProperties": false
        });
        vec![
            json!({"type": "function", "function": {"name": "get_\"weather", "parameters": schema}}),
            json!({"type": "function", "function": {"name": "count", "parameters": shared}}),
            json!({"type": "function", "function": {"name": "ping"}}),
        ]
    }

    const ALL: [(Calls, &str, &str); 9] = [
        (Calls::Hermes, "<tool_call>\n{\"name\": \"count\", \"arguments\": {\"n\": 3}}\n</tool_call>", "\n"),
        (Calls::Llama3, "{\"name\": \"count\", \"parameters\": {\"n\": 3}}", "; "),
        (Calls::Mistral, "[TOOL_CALLS][{\"name\": \"count\", \"arguments\": {\"n\": 3}}]", ""),
        (Calls::MistralArgs, "[TOOL_CALLS]count[ARGS]{\"n\": 3}", ""),
        (Calls::Phi4, "<|tool_call|>[{\"name\": \"count\", \"arguments\": {\"n\": 3}}]<|/tool_call|>", ""),
        (Calls::Functools, "functools[{\"name\": \"count\", \"arguments\": {\"n\": 3}}]", ""),
        (Calls::Harmony, "<|channel|>commentary to=functions.count <|constrain|>json<|message|>{\"n\": 3}<|call|>", ""),
        (Calls::Gemma, "<|tool_call>call:count{\"n\": 3}<tool_call|>", ""),
        (Calls::Generic, "{\"name\": \"count\", \"arguments\": {\"n\": 3}}", ""),
    ];

    #[test]
    fn every_format_is_forced_and_read_again() {
        for (calls, text, between) in ALL {
            let format = Format { calls, thinking: Thinking::None };
            let grammar = format.grammar(&tools(), &ToolChoice::Required, false).unwrap();
            assert_eq!(takes(&grammar, text), (text.len(), true), "{calls:?}\n{grammar}");
            // neither text before a call, nor arguments that break the schema, nor an unknown tool
            assert_eq!(takes(&grammar, "Sure").0, 0, "{calls:?}");
            for (right, wrong) in [("3", "\"3\""), ("count", "kount")] {
                let wrong = text.replace(right, wrong);
                assert!(takes(&grammar, &wrong).0 < wrong.len(), "{calls:?}: {wrong}");
            }
            let other = format.grammar(&tools(), &ToolChoice::Named("ping".into()), false).unwrap();
            assert!(takes(&other, text).0 < text.len(), "{calls:?}");
            let ping = text.replace("count", "ping");
            assert_eq!(takes(&other, &ping), (ping.len(), true), "{calls:?}");
            let mut parser = Parser::new(format, true, false);
            let mut events = parser.push(text);
            events.extend(parser.finish());
            let call = Event::ToolCall { index: 0, name: "count".into(), arguments: "{\"n\":3}".into() };
            let call = |e: &Event| match (e, &call) {
                (Event::ToolCall { name, arguments, .. }, Event::ToolCall { name: n, arguments: a, .. }) => {
                    name == n && arguments.replace(' ', "") == *a
                }
                _ => false,
            };
            assert!(events.len() == 1 && call(&events[0]), "{calls:?}: {events:?}");
            if !between.is_empty() || calls == Calls::MistralArgs {
                let two = format!("{text}{between}{text}");
                let parallel = format.grammar(&tools(), &ToolChoice::Required, true).unwrap();
                assert_eq!(takes(&parallel, &two), (two.len(), true), "{calls:?}\n{parallel}");
                assert!(takes(&grammar, &two).0 < two.len());
            }
        }
    }

    #[test]
    fn names_with_quotes_and_lists_of_calls() {
        let format = Format { calls: Calls::Generic, thinking: Thinking::None };
        let grammar = format.grammar(&tools(), &ToolChoice::Required, true).unwrap();
        let text = r#"[{"name": "get_\"weather", "arguments": {"city": "Bern"}}, {"name": "ping", "arguments": {}}]"#;
        assert_eq!(takes(&grammar, text), (text.len(), true), "{grammar}");
    }

    #[test]
    fn reasoning_may_come_first() {
        let format = Format { calls: Calls::Hermes, thinking: Thinking::Think };
        let call = ALL[0].1;
        let grammar = format.grammar(&tools(), &ToolChoice::Required, false).unwrap();
        for text in [call.to_string(), format!("<think>\nhm < 3\n</think>\n\n{call}")] {
            assert_eq!(takes(&grammar, &text), (text.len(), true), "{grammar}");
        }
        assert!(takes(&grammar, "hm").0 < 2);
        let within = format.grammar_within_reasoning(&tools(), &ToolChoice::Required, false).unwrap();
        let text = format!("hm\n</think>\n\n{call}");
        assert_eq!(takes(&within, &text), (text.len(), true), "{within}");
        assert!(takes(&within, "hm\n</think>\n\nno").0 < 17);
    }

    #[test]
    fn nothing_is_forced_where_nothing_is_asked() {
        let format = Format::of("");
        assert_eq!(format.grammar(&tools(), &ToolChoice::Auto, true), None);
        assert_eq!(format.grammar(&[], &ToolChoice::Required, true), None);
        assert_eq!(format.grammar(&tools(), &ToolChoice::Named("no".into()), true), None);
    }
}
