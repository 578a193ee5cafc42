//! Ollama's routes, so that its clients work: chats and completions that stream lines, and what models there are.

use super::app::App;
use super::choice::{Choice, Delta, Finish, Over, Timings, Whole};
use super::fault::Fault;
use super::fields::Fields;
use super::openai::{asked, prepared, proven};
use super::prepare::{self, Ask, FORMS, SAMPLER};
use super::tell::{self, Frame, Teller};
use crate::chat::Event;
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// The fields of OpenAI's request that an Ollama request stands for.
fn translated(f: &Fields) -> Result<Map<String, Value>, Fault> {
    let mut out = Map::new();
    if let Some(options) = f.object("options")? {
        if let Some(n) = options.get("num_predict") {
            out.insert("max_tokens".into(), n.clone());
        }
        for name in SAMPLER.iter().chain(&FORMS).chain(&["stop"]) {
            if let Some(v) = options.get(*name) {
                out.insert((*name).into(), v.clone());
            }
        }
    }
    for name in ["digest", "receipt"] {
        if let Some(v) = f.get(name) {
            out.insert(name.into(), v.clone());
        }
    }
    // negative numbers all mean without an end
    if out.get("max_tokens").and_then(Value::as_i64).is_some_and(|n| n < 0) {
        out.insert("max_tokens".into(), (-1).into());
    }
    match f.get("format") {
        None => {}
        Some(Value::String(s)) if s.is_empty() => {}
        Some(Value::String(s)) if s == "json" => {
            out.insert("response_format".into(), json!({ "type": "json_object" }));
        }
        Some(schema @ Value::Object(_)) => {
            let format = json!({ "type": "json_schema", "json_schema": { "name": "format", "schema": schema } });
            out.insert("response_format".into(), format);
        }
        Some(_) => return Err(f.wrong("format", "json or a schema")),
    }
    // lines, unless the request says otherwise
    out.insert("stream".into(), f.maybe_flag("stream")?.unwrap_or(true).into());
    Ok(out)
}

fn chat_ask(app: &App, body: &[u8]) -> Result<Ask, Fault> {
    let mut f = Fields::parse(body)?;
    let mut out = translated(&f)?;
    for name in ["messages", "tools"] {
        if let Some(v) = f.take(name) {
            out.insert(name.into(), v);
        }
    }
    let think = match f.get("think") {
        // how much of it
        Some(Value::String(much)) => Some(json!({ "enable_thinking": true, "reasoning_effort": much })),
        _ => f.maybe_flag("think")?.map(|think| json!({ "enable_thinking": think })),
    };
    if let Some(think) = think {
        out.insert("chat_template_kwargs".into(), think);
    }
    prepare::chat_of(app, &mut Fields::of(out))
}

fn generate_ask(app: &App, body: &[u8]) -> Result<Ask, Fault> {
    let f = Fields::parse(body)?;
    let mut out = translated(&f)?;
    let prompt = f.text("prompt")?.unwrap_or_default().to_owned();
    if f.get("images").is_some() {
        return Err(Fault::bad("images", "images are not supported"));
    }
    if !f.flag("raw")? && app.template.is_ok() {
        let mut messages = Vec::new();
        if let Some(system) = f.text("system")?.filter(|s| !s.is_empty()) {
            messages.push(json!({ "role": "system", "content": system }));
        }
        messages.push(json!({ "role": "user", "content": prompt }));
        out.insert("messages".into(), messages.into());
        return prepare::chat_of(app, &mut Fields::of(out));
    }
    out.insert("prompt".into(), prompt.into());
    out.entry("max_tokens").or_insert(json!(-1));
    prepare::completion_of(app, &Fields::of(out))
}

/// A time as RFC 3339 has it, in UTC.
fn time() -> String {
    let t = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = ((t.as_secs() / 86400) as i64, t.as_secs() % 86400);
    // Howard Hinnant's algorithm for civil days, from the first of March of the year 0
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day = z.rem_euclid(146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (d, m) = (of_year - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let y = year + era * 400 + i64::from(m <= 2);
    let (h, min, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{y:04}-{m:02}-{d:02}T{h:02}:{min:02}:{s:02}.{:06}Z", t.subsec_micros())
}

/// What the last line of an answer tells.
fn numbers(into: &mut Value, finish: Option<Finish>, t: &Timings, begun: Instant) {
    let ns = |d: std::time::Duration| d.as_nanos() as u64;
    into["done"] = true.into();
    into["done_reason"] = if finish == Some(Finish::Length) { "length" } else { "stop" }.into();
    into["total_duration"] = ns(begun.elapsed()).into();
    into["load_duration"] = 0.into();
    into["prompt_eval_count"] = t.prompt.into();
    into["prompt_eval_duration"] = ns(t.prompt_time).into();
    into["eval_count"] = t.predicted.into();
    into["eval_duration"] = ns(t.predicted_time).into();
}

/// Lines of a chat or of a completion.
struct Lines {
    app: Arc<App>,
    chat: bool,
    begun: Instant,
    finish: Option<Finish>,
    timings: Option<Timings>,
    proof: Option<Value>,
}

impl Lines {
    fn line(&self, text: &str, thinking: &str, calls: &[Value]) -> Value {
        let mut line = json!({ "model": self.app.options.alias, "created_at": time() });
        if self.chat {
            line["message"] = json!({ "role": "assistant", "content": text });
            if !thinking.is_empty() {
                line["message"]["thinking"] = thinking.into();
            }
            if !calls.is_empty() {
                line["message"]["tool_calls"] = calls.into();
            }
        } else {
            line["response"] = text.into();
            if !thinking.is_empty() {
                line["thinking"] = thinking.into();
            }
        }
        line["done"] = false.into();
        line
    }
}

/// A call as Ollama has it: arguments are a value.
fn call(name: &str, arguments: &str) -> Value {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
    json!({ "function": { "name": name, "arguments": arguments } })
}

impl Teller for Lines {
    fn delta(&mut self, d: Delta) -> Vec<Frame> {
        self.finish = d.finish.or(self.finish);
        let line = |event: &Event| match event {
            Event::Content(text) => self.line(text, "", &[]),
            Event::Reasoning(text) => self.line("", text, &[]),
            Event::ToolCall { name, arguments, .. } => self.line("", "", &[call(name, arguments)]),
        };
        d.events.iter().map(|e| Frame::of(&line(e))).collect()
    }

    fn over(&mut self, _: usize, over: Over) {
        (self.timings, self.proof) = (Some(over.timings), over.proof);
    }

    fn fault(&mut self, fault: &Fault) -> Vec<Frame> {
        vec![Frame::of(&json!({ "error": fault.message() }))]
    }

    fn end(&mut self) -> Vec<Frame> {
        let mut last = self.line("", "", &[]);
        if let Some(t) = &self.timings {
            numbers(&mut last, self.finish, t, self.begun);
        }
        if let Some(proof) = self.proof.take() {
            last["isobit"] = proof;
        }
        vec![Frame::of(&last)]
    }
}

/// An error as Ollama's clients read it.
pub struct Refused(Fault);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        self.0.at("/api/")
    }
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Refused {
        Refused(fault)
    }
}

async fn answer(app: Arc<App>, ask: Ask, chat: bool) -> Result<Response, Refused> {
    let begun = Instant::now();
    let mut choices: Vec<Choice> = app.begin(&ask)?;
    let lines = Lines { app, chat, begun, finish: None, timings: None, proof: None };
    if ask.stream {
        return Ok(tell::lines(choices, lines));
    }
    let whole = Whole::of(&mut choices[0]).await?;
    let calls: Vec<Value> = whole.calls.iter().map(|(name, arguments)| call(name, arguments)).collect();
    let mut line = lines.line(&whole.content, &whole.reasoning, &calls);
    let over = choices[0].over();
    numbers(&mut line, whole.finish, &over.timings, begun);
    Ok(proven(line, over.proof))
}

/// Whether a request has nothing to answer: a client that wants the model to be loaded sends one.
fn asks_for_nothing(body: &[u8], what: &str) -> bool {
    let small = body.len() < 4096;
    small
        && Fields::parse(body).is_ok_and(|f| match f.get(what) {
            None => true,
            Some(Value::String(s)) => s.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            Some(_) => false,
        })
}

/// The answer to such a request: the model is there.
fn loaded(app: &Arc<App>, chat: bool) -> Value {
    let (app, begun) = (app.clone(), Instant::now());
    let mut line = Lines { app, chat, begun, finish: None, timings: None, proof: None }.line("", "", &[]);
    line["done"] = true.into();
    line["done_reason"] = "load".into();
    line
}

/// `POST /api/chat`
pub async fn chat(State(app): State<Arc<App>>, headers: HeaderMap, body: Bytes) -> Result<Response, Refused> {
    if asks_for_nothing(&body, "messages") {
        return Ok(Json(loaded(&app, true)).into_response());
    }
    let ask = asked(&app, &headers, body, chat_ask).await?;
    answer(app, ask, true).await
}

/// `POST /api/generate`
pub async fn generate(State(app): State<Arc<App>>, headers: HeaderMap, body: Bytes) -> Result<Response, Refused> {
    if asks_for_nothing(&body, "prompt") {
        return Ok(Json(loaded(&app, false)).into_response());
    }
    let ask = asked(&app, &headers, body, generate_ask).await?;
    answer(app, ask, false).await
}

/// `POST /api/embed`
pub async fn embed(State(app): State<Arc<App>>, body: Bytes) -> Result<Response, Refused> {
    if !app.options.embeddings {
        return Err(
            Fault::not_supported("this server generates text; one started with --embeddings makes vectors").into()
        );
    }
    let list = prepared(&app, body, |app, body| {
        let f = Fields::parse(body)?;
        let texts = f.texts("input", 256)?;
        texts.iter().map(|t| app.whole_ids(t)).collect::<Result<Vec<_>, _>>()
    });
    let (list, engine) = (list.await?, app.engine()?);
    let (mut vectors, tokens) = (Vec::new(), list.iter().map(Vec::len).sum::<usize>());
    for ids in list {
        let embedding = engine.embed(ids, app.options.pooling).map_err(Fault::from)?;
        vectors.push(embedding.vector().await.map_err(Fault::from)?);
    }
    let answer = json!({ "model": app.options.alias, "embeddings": vectors, "prompt_eval_count": tokens });
    Ok(Json(answer).into_response())
}

/// What kind of model it is.
fn details(app: &App) -> Value {
    let (c, family) = (app.model.container(), &app.model.hyper().arch);
    let parameters: u64 = c.tensors.iter().map(|t| t.elems()).sum();
    let size = match parameters {
        n if n < 1_000_000_000 => format!("{:.1}M", n as f64 / 1e6),
        n => format!("{:.1}B", n as f64 / 1e9),
    };
    // the type that most of its bytes have
    let mut types: BTreeMap<&str, u64> = BTreeMap::new();
    for t in &c.tensors {
        *types.entry(t.dtype.name()).or_default() += t.bytes;
    }
    let level = types.into_iter().max_by_key(|(_, bytes)| *bytes).map_or("", |(name, _)| name);
    json!({
        "parent_model": "", "format": format!("{:?}", c.kind).to_lowercase(), "family": family, "families": [family],
        "parameter_size": size, "quantization_level": level.to_uppercase(),
    })
}

fn model(app: &App) -> Value {
    json!({
        "name": app.options.alias,
        "model": app.options.alias,
        "modified_at": "1970-01-01T00:00:00Z",
        "size": app.model.container().total_bytes(),
        // known when the model is loaded, and not read for this
        "digest": if app.fingerprint().is_empty() { "" } else { app.model.digest().unwrap_or_default() },
        "details": details(app),
    })
}

/// `GET /api/tags`
pub async fn tags(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({ "models": [model(&app)] }))
}

/// `GET /api/ps`
pub async fn ps(State(app): State<Arc<App>>) -> Json<Value> {
    let mut one = model(&app);
    one["expires_at"] = "9999-12-31T23:59:59Z".into();
    one["size_vram"] = 0.into();
    one["context_length"] = app.context().into();
    Json(json!({ "models": [one] }))
}

/// `GET /api/version`
pub async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

/// `POST /api/show`
pub async fn show(State(app): State<Arc<App>>) -> Json<Value> {
    let template = app.template.as_ref().map_or("", |t| t.source());
    let context = json!({ "general.name": app.model.name(), "context_length": app.model.context() });
    let capabilities: &[&str] = if app.options.embeddings { &["embedding"] } else { &["completion", "tools"] };
    Json(json!({
        "template": template, "details": model(&app)["details"], "model_info": context, "capabilities": capabilities,
        "modified_at": "1970-01-01T00:00:00Z",
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_translated() {
        let f = Fields::parse(
            br#"{"options": {"num_predict": -2, "temperature": 0.5, "unknown": 3}, "format": "json", "stream": false}"#,
        )
        .unwrap();
        let out = Value::Object(translated(&f).unwrap());
        let want = json!({
            "max_tokens": -1, "temperature": 0.5, "stream": false, "response_format": { "type": "json_object" },
        });
        assert_eq!(out, want);
        assert!(translated(&Fields::parse(br#"{"format": 3}"#).unwrap()).is_err());
    }

    #[test]
    fn a_time_is_rfc_3339() {
        let t = time();
        assert!(t.len() == 27 && t.as_bytes()[10] == b'T' && t.ends_with('Z') && t.starts_with("20"), "{t}");
    }
}
