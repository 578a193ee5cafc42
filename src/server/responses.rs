//! `/v1/responses`, as far as it needs no memory of earlier ones: text in, text and tool calls out, and the events of a
//! stream.

use super::app::{App, now};
use super::choice::{Delta, Finish, Over, Timings, Usage, Whole};
use super::fault::Fault;
use super::fields::Fields;
use super::openai::{Names, asked, logprobs_of, new_id, proven};
use super::prepare::{self, Ask, FORMS, SAMPLER};
use super::tell::{self, Frame, Teller};
use crate::chat::Event;
use crate::engine::Piece;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// A chat's request for what a response is asked for.
fn ask(app: &App, body: &[u8]) -> Result<Ask, Fault> {
    let mut f = Fields::parse(body)?;
    for name in ["previous_response_id", "conversation"] {
        if f.get(name).is_some() {
            return Err(Fault::bad(
                name,
                format!("{name}: this server remembers no responses; send all of the messages"),
            ));
        }
    }
    let mut messages = Vec::new();
    if let Some(text) = f.text("instructions")? {
        messages.push(json!({ "role": "system", "content": text }));
    }
    match f.take("input") {
        Some(Value::String(text)) => messages.push(json!({ "role": "user", "content": text })),
        Some(Value::Array(items)) => {
            for (i, item) in items.into_iter().enumerate() {
                messages.push(message(i, item)?);
            }
        }
        _ => return Err(Fault::bad("input", "input: a text or a list of messages expected")),
    }
    let mut out = Map::from_iter([("messages".to_owned(), Value::Array(messages))]);
    let same = [
        "max_output_tokens",
        "stream",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "model",
        "stop",
        "chat_template_kwargs",
        "top_logprobs",
        "digest",
        "receipt",
    ];
    for name in same.iter().chain(&SAMPLER).chain(&FORMS) {
        if let Some(v) = f.take(name) {
            out.insert((*name).into(), v);
        }
    }
    let wanted = f.list("include")?.is_some_and(|list| list.iter().any(|v| v == "message.output_text.logprobs"));
    if wanted || out.contains_key("top_logprobs") {
        out.insert("logprobs".into(), true.into());
    }
    if f.get("n").is_some_and(|n| *n != 1) {
        return Err(Fault::bad("n", "n: a response is one text"));
    }
    if f.get("background").is_some_and(|b| *b == true) {
        return Err(Fault::bad("background", "background: this server remembers no responses; stream this one"));
    }
    if let Some(format) = f.object("text")?.and_then(|t| t.get("format")) {
        let format = match format.get("type").and_then(Value::as_str) {
            Some("json_schema") => json!({ "type": "json_schema", "json_schema": format }),
            _ => format.clone(),
        };
        out.insert("response_format".into(), format);
    }
    prepare::chat_of(app, &mut Fields::of(out))
}

/// An item of the input as a message.
fn message(i: usize, item: Value) -> Result<Value, Fault> {
    let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("type") {
        "" | "message" => Ok(json!({ "role": item.get("role"), "content": item.get("content") })),
        "function_call" => Ok(json!({ "role": "assistant", "content": "", "tool_calls": [{
            "id": text("call_id"), "type": "function",
            "function": { "name": text("name"), "arguments": text("arguments") },
        }] })),
        "function_call_output" => {
            Ok(json!({ "role": "tool", "tool_call_id": text("call_id"), "content": item.get("output") }))
        }
        "reasoning" => Ok(json!({ "role": "assistant", "content": "" })),
        _ => Err(Fault::bad(&format!("input[{i}].type"), format!("input[{i}]: items of this type are not supported"))),
    }
}

/// A response that grows.
struct Growing {
    app: Arc<App>,
    id: String,
    item: String,
    created: u64,
    whole: Whole,
    timings: Option<Timings>,
    proof: Option<Value>,
    /// whether log probabilities are told
    logprobs: bool,
    events: u64,
    begun: bool,
}

impl Growing {
    fn new(app: Arc<App>, logprobs: bool) -> Growing {
        let (id, item, created, whole) = (new_id("resp_"), new_id("msg_"), now(), Whole::default());
        Growing { app, id, item, created, whole, timings: None, proof: None, logprobs, events: 0, begun: false }
    }

    /// Log probabilities of tokens, where they were asked for.
    fn logprobs(&self, pieces: &[Piece]) -> Value {
        match self.logprobs {
            true => Names(&self.app).chat(&logprobs_of(pieces))["content"].take(),
            false => json!([]),
        }
    }

    fn content(&self) -> Value {
        let mut content = json!({ "type": "output_text", "text": self.whole.content, "annotations": [] });
        if self.logprobs {
            content["logprobs"] = self.logprobs(&self.whole.pieces);
        }
        content
    }

    fn item(&self, status: &str) -> Value {
        json!({ "id": self.item, "type": "message", "role": "assistant", "status": status, "content": [self.content()] })
    }

    fn calls(&self) -> Vec<Value> {
        let call = |(i, (name, arguments)): (usize, &(String, String))| {
            let id = format!("{}_{i}", self.id.replace("resp_", "fc_"));
            json!({
                "id": id, "call_id": id, "type": "function_call", "status": "completed", "name": name, "arguments": arguments,
            })
        };
        self.whole.calls.iter().enumerate().map(call).collect()
    }

    fn response(&self, status: &str) -> Value {
        let mut output = Vec::new();
        if status != "in_progress" {
            if !self.whole.content.is_empty() || self.whole.calls.is_empty() {
                output.push(self.item(status));
            }
            output.extend(self.calls());
        }
        let cut = self.whole.finish == Some(Finish::Length) && status == "incomplete";
        let usage = self.timings.map(|t| {
            let u = Usage::of([&t], 1);
            json!({
                "input_tokens": u.prompt, "output_tokens": u.predicted, "total_tokens": u.prompt + u.predicted,
                "input_tokens_details": { "cached_tokens": u.cached },
                "output_tokens_details": { "reasoning_tokens": 0 },
            })
        });
        json!({
            "id": self.id, "object": "response", "created_at": self.created, "status": status,
            "model": self.app.options.alias, "output": output, "usage": usage, "error": null,
            "incomplete_details": cut.then(|| json!({ "reason": "max_output_tokens" })),
            "parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "metadata": {},
            "instructions": null, "temperature": null, "top_p": null,
        })
    }

    fn status(&self) -> &'static str {
        if self.whole.finish == Some(Finish::Length) { "incomplete" } else { "completed" }
    }

    fn frame(&mut self, event: &'static str, mut data: Value) -> Frame {
        data["type"] = event.into();
        data["sequence_number"] = self.events.into();
        self.events += 1;
        Frame { event: Some(event), data: data.to_string() }
    }

    fn place(&self) -> Value {
        json!({ "item_id": self.item, "output_index": 0, "content_index": 0 })
    }
}

impl Teller for Growing {
    fn begin(&mut self) -> Vec<Frame> {
        let response = json!({ "response": self.response("in_progress") });
        vec![self.frame("response.created", response.clone()), self.frame("response.in_progress", response)]
    }

    fn delta(&mut self, d: Delta) -> Vec<Frame> {
        let mut frames = Vec::new();
        for event in &d.events {
            let Event::Content(text) = event else { continue };
            if !self.begun {
                self.begun = true;
                let mut item = self.item("in_progress");
                item["content"] = json!([]);
                frames.push(self.frame("response.output_item.added", json!({ "output_index": 0, "item": item })));
                let mut part = self.place();
                part["part"] = json!({ "type": "output_text", "text": "", "annotations": [] });
                frames.push(self.frame("response.content_part.added", part));
            }
            let mut delta = self.place();
            delta["delta"] = text.as_str().into();
            delta["logprobs"] = self.logprobs(d.piece.as_slice());
            frames.push(self.frame("response.output_text.delta", delta));
        }
        self.whole.push(d);
        frames
    }

    fn over(&mut self, _: usize, over: Over) {
        (self.timings, self.proof) = (Some(over.timings), over.proof);
    }

    fn fault(&mut self, fault: &Fault) -> Vec<Frame> {
        let mut error = fault.body()["error"].take();
        error["sequence_number"] = self.events.into();
        vec![self.frame("error", error)]
    }

    fn end(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        if self.begun {
            let (mut done, mut part) = (self.place(), self.place());
            done["text"] = self.whole.content.as_str().into();
            done["logprobs"] = self.logprobs(&self.whole.pieces);
            part["part"] = self.content();
            let item = json!({ "output_index": 0, "item": self.item("completed") });
            frames.push(self.frame("response.output_text.done", done));
            frames.push(self.frame("response.content_part.done", part));
            frames.push(self.frame("response.output_item.done", item));
        }
        for (i, call) in self.calls().into_iter().enumerate() {
            let at = i + usize::from(self.begun);
            let mut added = call.clone();
            added["status"] = "in_progress".into();
            let arguments = json!({ "item_id": call["id"], "output_index": at, "arguments": call["arguments"] });
            frames.push(self.frame("response.output_item.added", json!({ "output_index": at, "item": added })));
            frames.push(self.frame("response.function_call_arguments.done", arguments));
            frames.push(self.frame("response.output_item.done", json!({ "output_index": at, "item": call })));
        }
        let (status, name) = match self.status() {
            "incomplete" => ("incomplete", "response.incomplete"),
            _ => ("completed", "response.completed"),
        };
        let mut response = self.response(status);
        if let Some(proof) = self.proof.take() {
            response["isobit"] = proof;
        }
        frames.push(self.frame(name, json!({ "response": response })));
        frames
    }
}

/// `POST /v1/responses`
pub async fn responses(State(app): State<Arc<App>>, headers: HeaderMap, body: Bytes) -> Result<Response, Fault> {
    let ask = asked(&app, &headers, body, ask).await?;
    let mut choices = app.begin(&ask)?;
    let mut growing = Growing::new(app, ask.logprobs.is_some());
    if ask.stream {
        return Ok(tell::events(choices, growing));
    }
    growing.whole = Whole::of(&mut choices[0]).await?;
    let over = choices[0].over();
    growing.timings = Some(over.timings);
    Ok(proven(growing.response(growing.status()), over.proof))
}
