//! OpenAI's routes: chats, completions, vectors, models. Its shapes are those of its API reference; what is ours beside them
//! is `timings` (as llama.cpp has them) and `isobit`.

use super::app::{App, now};
use super::choice::{Choice, Delta, Finish, Over, Timings, Usage, Whole};
use super::fault::Fault;
use super::fields::Fields;
use super::prepare::{self, Ask};
use super::runs::Named;
use super::tell::{self, Frame, Teller};
use crate::chat::Event;
use crate::engine::{Logprobs, Piece};
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A name that no other answer of this server has.
pub fn new_id(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{prefix}{:08x}{:06x}", now() as u32, NEXT.fetch_add(1, Ordering::Relaxed) & 0xff_ffff)
}

/// What all objects of an answer begin with.
#[derive(Clone)]
pub struct Head {
    id: String,
    created: u64,
    app: Arc<App>,
}

impl Head {
    fn new(app: &Arc<App>, prefix: &str) -> Head {
        Head { id: new_id(prefix), created: now(), app: app.clone() }
    }

    fn object(&self, kind: &str, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.app.options.alias,
            "system_fingerprint": self.app.fingerprint(),
            "choices": choices,
        })
    }
}

/// Numbers of tokens.
pub fn usage(u: Usage) -> Value {
    json!({
        "prompt_tokens": u.prompt,
        "completion_tokens": u.predicted,
        "total_tokens": u.prompt + u.predicted,
        "prompt_tokens_details": { "cached_tokens": u.cached },
    })
}

/// llama.cpp's numbers of one text.
pub fn timings(t: &Timings) -> Value {
    let (prompt, predicted) = (t.prompt_time.as_secs_f64(), t.predicted_time.as_secs_f64());
    let computed = t.prompt - t.cached.min(t.prompt);
    let rate = |n: usize, s: f64| if s > 0.0 { n as f64 / s } else { 0.0 };
    json!({
        "cache_n": t.cached,
        "prompt_n": computed,
        "prompt_ms": prompt * 1e3,
        "prompt_per_second": rate(computed, prompt),
        "predicted_n": t.predicted,
        "predicted_ms": predicted * 1e3,
        // the first comes out of the prompt
        "predicted_per_second": rate(t.predicted.saturating_sub(1), predicted),
    })
}

/// A token as log probabilities name it.
pub struct Names<'a>(pub &'a App);

impl Names<'_> {
    fn bytes(&self, id: u32) -> Vec<u8> {
        self.0.model.tokenizer().map_or_else(|_| id.to_string().into_bytes(), |t| t.piece(id))
    }

    fn text(&self, id: u32) -> String {
        String::from_utf8_lossy(&self.bytes(id)).into_owned()
    }

    fn token(&self, id: u32, logprob: f64) -> Value {
        let bytes = self.bytes(id);
        json!({ "id": id, "token": String::from_utf8_lossy(&bytes), "logprob": logprob, "bytes": bytes })
    }

    /// As chats have them.
    pub fn chat(&self, list: &[&Logprobs]) -> Value {
        let one = |l: &&Logprobs| {
            let mut token = self.token(l.id, l.logprob);
            token["top_logprobs"] = l.top.iter().map(|(id, p)| self.token(*id, *p)).collect();
            token
        };
        json!({ "content": list.iter().map(one).collect::<Vec<_>>() })
    }

    /// As completions have them, of tokens that begin `at` characters into the text.
    fn completion(&self, list: &[&Logprobs], mut at: usize) -> Value {
        let mut offsets = Vec::new();
        for l in list {
            offsets.push(at);
            at += self.text(l.id).chars().count();
        }
        let top = |l: &&Logprobs| -> Map<String, Value> {
            l.top.iter().map(|(id, p)| (self.text(*id), (*p).into())).collect()
        };
        json!({
            "tokens": list.iter().map(|l| self.text(l.id)).collect::<Vec<_>>(),
            "token_logprobs": list.iter().map(|l| l.logprob).collect::<Vec<_>>(),
            "top_logprobs": list.iter().map(top).collect::<Vec<_>>(),
            "text_offset": offsets,
        })
    }
}

pub fn logprobs_of(pieces: &[Piece]) -> Vec<&Logprobs> {
    pieces.iter().filter_map(|p| p.logprobs.as_ref()).collect()
}

/// Checks a body where it holds up nobody: templates and tokenisers take their time.
pub async fn prepared<T: Send + 'static>(
    app: &Arc<App>,
    body: Bytes,
    f: fn(&App, &[u8]) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let mistake = || Fault::internal("the server made a mistake: this request is lost, others go on");
    let _one = app.reading.acquire().await.map_err(|_| mistake())?;
    let app = app.clone();
    let checked = tokio::task::spawn_blocking(move || f(&app, &body)).await;
    checked.map_err(|_| mistake())?
}

/// As [`prepared`], where texts are asked for: a header may ask for the digest of their logits.
pub async fn asked(
    app: &Arc<App>,
    headers: &HeaderMap,
    body: Bytes,
    f: fn(&App, &[u8]) -> Result<Ask, Fault>,
) -> Result<Ask, Fault> {
    let mut ask = prepared(app, body, f).await?;
    if headers.contains_key(DIGEST) {
        ask.tell_digest();
    }
    Ok(ask)
}

/// A text with the log probabilities of its prompt.
type Scored = (Whole, Vec<Logprobs>);

/// All texts of an answer, when all are there.
async fn all(mut choices: Vec<Choice>, each: usize) -> Result<(Vec<Scored>, Overs), Fault> {
    // side by side, so that times are those of the tokens
    let wholes = futures::future::try_join_all(choices.iter_mut().map(Whole::of)).await?;
    let (mut list, mut overs) = (Vec::new(), Overs::new(each));
    for ((i, choice), whole) in choices.iter_mut().enumerate().zip(wholes) {
        list.push((whole, choice.take_scores()));
        overs.push(i, choice.over());
    }
    Ok((list, overs))
}

/// A call of a tool.
pub fn call(index: usize, name: &str, arguments: &str) -> Value {
    json!({
        "index": index,
        "id": new_id("call_"),
        "type": "function",
        "function": { "name": name, "arguments": arguments },
    })
}

/// `POST /v1/chat/completions`
pub async fn chat(State(app): State<Arc<App>>, headers: HeaderMap, body: Bytes) -> Result<Response, Fault> {
    let ask = asked(&app, &headers, body, prepare::chat).await?;
    let (choices, head) = (app.begin(&ask)?, Head::new(&app, "chatcmpl-"));
    if ask.stream {
        let teller = Chunks {
            head,
            usage: ask.usage,
            logprobs: ask.logprobs.is_some(),
            overs: Overs::new(ask.each),
            n: choices.len(),
        };
        return Ok(tell::events(choices, teller));
    }
    let (texts, overs) = all(choices, ask.each).await?;
    let choice = |(i, (w, _)): (usize, &Scored)| {
        let mut message = json!({ "role": "assistant", "content": w.content });
        if !w.reasoning.is_empty() {
            message["reasoning_content"] = w.reasoning.as_str().into();
        }
        if !w.calls.is_empty() {
            let calls = w.calls.iter().enumerate().map(|(i, (name, arguments))| call(i, name, arguments));
            message["tool_calls"] = calls.collect();
            if w.content.is_empty() {
                message["content"] = Value::Null;
            }
        }
        let list = ask.logprobs.map(|_| Names(&app).chat(&logprobs_of(&w.pieces)));
        let reason = w.finish.map(Finish::name);
        json!({ "index": i, "message": message, "logprobs": list, "finish_reason": reason })
    };
    let answer = head.object("chat.completion", texts.iter().enumerate().map(choice).collect());
    Ok(whole(answer, overs))
}

/// What is known of texts that have ended.
struct Overs {
    /// with the number of the text
    timings: Vec<(usize, Timings)>,
    proofs: Vec<(usize, Value)>,
    /// texts of each prompt
    each: usize,
}

impl Overs {
    fn new(each: usize) -> Overs {
        Overs { timings: Vec::new(), proofs: Vec::new(), each }
    }

    fn push(&mut self, index: usize, over: Over) {
        self.timings.push((index, over.timings));
        self.proofs.extend(over.proof.map(|p| (index, p)));
    }

    /// Sums over all, and the times of the first, which stands for them.
    fn numbers(&mut self) -> (Value, Value) {
        self.timings.sort_by_key(|(index, _)| *index);
        let first = self.timings.first().map_or(Value::Null, |(_, t)| timings(t));
        (usage(Usage::of(self.timings.iter().map(|(_, t)| t), self.each)), first)
    }

    /// What is told of them: the first one's, and all in the order of the texts where there are several.
    fn proof(&mut self) -> Option<Value> {
        self.proofs.sort_by_key(|(index, _)| *index);
        let mut all: Vec<Value> = self.proofs.drain(..).map(|(_, p)| p).collect();
        match all.len() {
            0 => None,
            1 => all.pop(),
            _ => {
                let mut first = all[0].clone();
                first["choices"] = all.into();
                Some(first)
            }
        }
    }

    /// The last frames of a stream: numbers where they were asked for, what proves the texts, and the word for the end.
    fn last(&mut self, mut last: Value, numbers: bool) -> Vec<Frame> {
        let proof = self.proof();
        let mut frames = Vec::new();
        if numbers || proof.is_some() {
            let (usage, timings) = self.numbers();
            last["usage"] = if numbers { usage } else { Value::Null };
            last["timings"] = timings;
            if let Some(proof) = proof {
                last["isobit"] = proof;
            }
            frames.push(Frame::of(&last));
        }
        frames.push(Frame { event: None, data: "[DONE]".into() });
        frames
    }
}

/// An answer that is whole, with what proves it.
fn whole(mut answer: Value, mut overs: Overs) -> Response {
    let (usage, timings) = overs.numbers();
    answer["usage"] = usage;
    answer["timings"] = timings;
    proven(answer, overs.proof())
}

/// An answer that is whole as a response, with what proves it where that was asked for.
pub fn proven(mut answer: Value, proof: Option<Value>) -> Response {
    let mut digest = None;
    if let Some(proof) = proof {
        digest = proof["digest"].as_str().and_then(|d| HeaderValue::from_str(d).ok());
        answer["isobit"] = proof;
    }
    let mut response = Json(answer).into_response();
    if let Some(digest) = digest {
        response.headers_mut().insert(DIGEST, digest);
    }
    response
}

/// The header that asks for the digest of an answer's logits, and that has it.
const DIGEST: HeaderName = HeaderName::from_static("x-isobit-digest");

/// The chunks of a chat.
struct Chunks {
    head: Head,
    usage: bool,
    logprobs: bool,
    overs: Overs,
    n: usize,
}

impl Chunks {
    fn chunk(&self, index: usize, delta: Value, logprobs: Value, finish: Option<Finish>) -> Frame {
        let choice =
            json!({ "index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish.map(Finish::name) });
        Frame::of(&self.head.object("chat.completion.chunk", json!([choice])))
    }
}

impl Teller for Chunks {
    fn begin(&mut self) -> Vec<Frame> {
        let role = || json!({ "role": "assistant", "content": "" });
        (0..self.n).map(|i| self.chunk(i, role(), Value::Null, None)).collect()
    }

    fn delta(&mut self, d: Delta) -> Vec<Frame> {
        let mut logprobs = match &d.piece {
            Some(piece) if self.logprobs => Names(&self.head.app).chat(&logprobs_of(std::slice::from_ref(piece))),
            _ => Value::Null,
        };
        let mut frames = Vec::new();
        for event in &d.events {
            let delta = match event {
                Event::Content(text) => json!({ "content": text }),
                Event::Reasoning(text) => json!({ "reasoning_content": text }),
                Event::ToolCall { index, name, arguments } => json!({ "tool_calls": [call(*index, name, arguments)] }),
            };
            frames.push(self.chunk(d.index, delta, logprobs.take(), None));
        }
        if frames.is_empty() && !logprobs.is_null() {
            // its text waits for what follows
            frames.push(self.chunk(d.index, json!({ "content": "" }), logprobs, None));
        }
        if d.finish.is_some() {
            frames.push(self.chunk(d.index, json!({}), Value::Null, d.finish));
        }
        frames
    }

    fn over(&mut self, index: usize, over: Over) {
        self.overs.push(index, over);
    }

    fn end(&mut self) -> Vec<Frame> {
        let last = self.head.object("chat.completion.chunk", json!([]));
        self.overs.last(last, self.usage)
    }
}

/// `POST /v1/completions`
pub async fn completions(State(app): State<Arc<App>>, headers: HeaderMap, body: Bytes) -> Result<Response, Fault> {
    let ask = asked(&app, &headers, body, prepare::completion).await?;
    let (choices, head) = (app.begin(&ask)?, Head::new(&app, "cmpl-"));
    if ask.stream {
        let n = choices.len();
        let (logprobs, overs) = (ask.logprobs.is_some(), Overs::new(ask.each));
        let echo = (0..n).map(|i| ask.echo_of(i).to_owned()).collect();
        let teller = Texts { head, usage: ask.usage, logprobs, echo, overs, shown: vec![0; n] };
        return Ok(tell::events(choices, teller));
    }
    let (texts, overs) = all(choices, ask.each).await?;
    let choice = |(i, (w, scores)): (usize, &Scored)| {
        let list = ask.logprobs.map(|_| {
            let names = Names(&app);
            let mut list = names.completion(&logprobs_of(&w.pieces), ask.echo_of(i).chars().count());
            if let (Some(_), Some(&first)) = (ask.requests[i].prompt_logprobs, ask.prompt_of(i).first()) {
                put_before(
                    &mut list,
                    &names.completion(&scores.iter().collect::<Vec<_>>(), names.text(first).chars().count()),
                    &names.text(first),
                );
            }
            list
        });
        let text = format!("{}{}", ask.echo_of(i), w.content);
        json!({ "index": i, "text": text, "logprobs": list, "finish_reason": w.finish.map(Finish::name) })
    };
    let answer = head.object("text_completion", texts.iter().enumerate().map(choice).collect());
    Ok(whole(answer, overs))
}

/// Puts the prompt's log probabilities before those of the text; nothing says how likely the first token is.
fn put_before(list: &mut Value, prompt: &Value, first: &str) {
    for (name, value) in [
        ("tokens", json!(first)),
        ("token_logprobs", Value::Null),
        ("top_logprobs", Value::Null),
        ("text_offset", json!(0)),
    ] {
        let both = [&prompt[name], &list[name]].map(|v| v.as_array().cloned().unwrap_or_default());
        list[name] = std::iter::once(value).chain(both.into_iter().flatten()).collect();
    }
}

/// The chunks of completions.
struct Texts {
    head: Head,
    usage: bool,
    logprobs: bool,
    /// before each text
    echo: Vec<String>,
    overs: Overs,
    /// characters of tokens told so far
    shown: Vec<usize>,
}

impl Texts {
    fn chunk(&self, index: usize, text: &str, logprobs: Value, finish: Option<Finish>) -> Frame {
        let choice =
            json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": finish.map(Finish::name) });
        Frame::of(&self.head.object("text_completion", json!([choice])))
    }
}

impl Teller for Texts {
    fn begin(&mut self) -> Vec<Frame> {
        self.shown = self.echo.iter().map(|echo| echo.chars().count()).collect();
        let told = self.echo.iter().enumerate().filter(|(_, echo)| !echo.is_empty());
        told.map(|(i, echo)| self.chunk(i, echo, Value::Null, None)).collect()
    }

    fn delta(&mut self, d: Delta) -> Vec<Frame> {
        let mut logprobs = Value::Null;
        if let Some(piece) = d.piece.as_ref().filter(|_| self.logprobs) {
            let names = Names(&self.head.app);
            logprobs = names.completion(&logprobs_of(std::slice::from_ref(piece)), self.shown[d.index]);
            self.shown[d.index] += names.text(piece.id).chars().count();
        }
        let text: String =
            d.events.iter().filter_map(|e| if let Event::Content(t) = e { Some(t.as_str()) } else { None }).collect();
        if text.is_empty() && logprobs.is_null() && d.finish.is_none() {
            return Vec::new();
        }
        vec![self.chunk(d.index, &text, logprobs, d.finish)]
    }

    fn over(&mut self, index: usize, over: Over) {
        self.overs.push(index, over);
    }

    fn end(&mut self) -> Vec<Frame> {
        let last = self.head.object("text_completion", json!([]));
        self.overs.last(last, self.usage)
    }
}

/// Texts of a request for vectors, at most.
const VECTORS: usize = 256;

/// What is to be vectors: one prompt or several.
fn inputs(app: &App, body: &[u8]) -> Result<(Vec<Vec<u32>>, bool), Fault> {
    let f = Fields::parse(body)?;
    let input = f.get("input").ok_or_else(|| Fault::bad("input", "input is missing"))?;
    let base64 = match f.text("encoding_format")? {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(f.wrong("encoding_format", "float or base64")),
    };
    if f.get("dimensions").is_some() {
        return Err(Fault::bad(
            "dimensions",
            "dimensions is not supported: vectors are as long as the model makes them",
        ));
    }
    let many = |list: &[Value]| list.iter().all(|v| v.is_string() || v.is_array());
    let list = match input {
        Value::Array(list) if !list.is_empty() && many(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    if list.len() > VECTORS {
        return Err(Fault::bad("input", format!("input has {} texts: {VECTORS} at most expected", list.len())));
    }
    let whole = |text: &str| app.whole_ids(text);
    let ids = list.iter().map(|v| app.prompt_ids(v, "input", whole).map(|(ids, _)| ids)).collect::<Result<_, _>>()?;
    Ok((ids, base64))
}

/// `POST /v1/embeddings`
pub async fn embeddings(State(app): State<Arc<App>>, body: Bytes) -> Result<Response, Fault> {
    if !app.options.embeddings {
        return Err(Fault::not_supported("this server generates text; one started with --embeddings makes vectors"));
    }
    let (list, base64) = prepared(&app, body, inputs).await?;
    let engine = app.engine()?;
    let tokens: usize = list.iter().map(Vec::len).sum();
    let mut data = Vec::new();
    // one after the other: a queue full of one client's texts would keep others out
    for (index, ids) in list.into_iter().enumerate() {
        let vector = engine.embed(ids, app.options.pooling)?.vector().await?;
        let embedding = if base64 { encode(&vector).into() } else { json!(vector) };
        data.push(json!({ "object": "embedding", "index": index, "embedding": embedding }));
    }
    let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
    Ok(Json(json!({ "object": "list", "data": data, "model": app.options.alias, "usage": usage })).into_response())
}

/// A vector's f32, little-endian, in base64.
fn encode(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|v| v.to_le_bytes()).collect();
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// `GET /v1/models`
pub async fn models(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({ "object": "list", "data": [model(&app)] }))
}

/// `GET /v1/models/{id}`
pub async fn one_model(State(app): State<Arc<App>>, id: Named) -> Result<Json<Value>, Fault> {
    if id.is_ok_and(|id| *id == app.options.alias) {
        return Ok(Json(model(&app)));
    }
    let line = format!("there is no model of that name: {:?} is what this server has", app.options.alias);
    Err(Fault::refused(axum::http::StatusCode::NOT_FOUND, "not_found_error", line))
}

fn model(app: &App) -> Value {
    json!({
        "id": app.options.alias,
        "object": "model",
        "created": now() - app.started.elapsed().as_secs(),
        "owned_by": "isobit",
        "meta": { "n_vocab": app.model.vocabulary(), "n_ctx": app.context(), "n_ctx_train": app.model.context() },
    })
}
