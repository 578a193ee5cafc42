//! What answers were: digests, receipts, runs that are kept, and checks of them on another device.

use super::app::App;
use super::fault::Fault;
use super::fields::Fields;
use crate::engine::{Devices, Ended, Output, Piece, Request};
use crate::receipts::{Difference, Error, Extras, Hex, Receipt, Run, check, make};
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::RuntimeFlavor;

/// What a path names, which may be no text.
pub type Named = Result<Path<String>, PathRejection>;

/// What is told of a text beside its numbers, and what is needed for it.
#[derive(Clone)]
pub struct Proving {
    /// the request whose text it is
    pub request: Request,
    /// the prompt as text, where it was one
    pub prompt: String,
    /// whether anything is told, or the run is kept alone
    pub told: bool,
    /// whether the receipt is told too, not its digest alone
    pub receipt: bool,
}

impl Proving {
    /// What a text was: its digest, and as far as it was asked for its receipt. Keeps the run where runs are kept.
    ///
    /// Errors: those of [`make`], of which the text knows nothing; they are logged, and nothing is told.
    pub fn of(&self, app: &Arc<App>, prompt: &[u32], pieces: Vec<Piece>, ended: Ended) -> Option<Value> {
        let work = || self.make(app, prompt, pieces, ended);
        match tokio::runtime::Handle::current().runtime_flavor() {
            // other texts go on meanwhile
            RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
            _ => work(),
        }
    }

    fn make(&self, app: &Arc<App>, prompt: &[u32], pieces: Vec<Piece>, ended: Ended) -> Option<Value> {
        let engine = app.engine().ok()?;
        let chain: Option<Vec<[u8; 32]>> = pieces.iter().map(|p| p.chain).collect();
        let digest = Hex(*chain.as_ref()?.last()?).to_string();
        let ids = pieces.iter().map(|p| p.id).collect();
        let output = Output { ids, prompt: prompt.into(), ended, chain: chain?, ..Output::default() };
        let receipt = match make(&engine, &self.request, &output) {
            Ok(receipt) => receipt,
            Err(e) => {
                log::error!("a receipt was not made: {e}");
                return Some(json!({ "digest": digest }));
            }
        };
        let mut told = json!({ "digest": digest, "run": receipt.body.id() });
        if self.receipt {
            told["receipt"] = String::from_utf8_lossy(&receipt.to_bytes()).into();
        }
        if let Some(folder) = &app.options.record {
            let top = pieces.into_iter().filter_map(|p| p.logprobs).map(|l| l.top).collect();
            let prompt = Some(self.prompt.clone()).filter(|p| !p.is_empty());
            let run = Run { receipt, extras: Extras { prompt, parent: None, top } };
            if let Err(e) = run.save(folder) {
                log::error!("a run was not kept: {e}");
            }
        }
        self.told.then_some(told)
    }
}

/// What is wrong with a receipt or a run.
fn refused(e: &Error) -> Fault {
    Fault::bad("receipt", e.to_string())
}

fn token(app: &App, id: Option<u32>) -> Value {
    let text = |id| app.model.tokenizer().ok().map(|t| String::from_utf8_lossy(&t.piece(id)).into_owned());
    json!({ "id": id, "token": id.and_then(text) })
}

/// The first difference, for a page.
fn difference(app: &App, d: &Difference) -> Value {
    let line = d.to_string();
    match d {
        Difference::Token { index, position, expected, found, .. } => json!({
            "what": "token", "index": index, "position": position, "expected": token(app, Some(*expected)),
            "found": token(app, *found), "message": line,
        }),
        Difference::Logits { index, position, id, .. } => json!({
            "what": "logits", "index": index, "position": position, "expected": token(app, Some(*id)),
            "found": token(app, Some(*id)), "message": line,
        }),
        _ => json!({ "what": "receipt", "message": line }),
    }
}

/// A session of its own on a device, in which a receipt is checked.
fn checked(app: &App, receipt: &Receipt, device: &str) -> Result<Value, Fault> {
    let begun = Instant::now();
    let opened = Devices::default().open(device).map_err(|e| Fault::bad("device", e.to_string()))?;
    let options = receipt.body.least(&app.model).map_err(|e| refused(&e))?;
    if options.context > app.context() {
        return Err(Fault::bad(
            "receipt",
            format!("its context is {}, this server's {}", options.context, app.context()),
        ));
    }
    let mut session = app.model.session(opened, options).map_err(|e| Fault::unavailable(e.to_string()))?;
    let done = check(receipt, &mut session, None).map_err(|e| refused(&e))?;
    Ok(json!({
        "equal": done.difference.is_none(),
        "tokens": done.tokens,
        "device": session.device(),
        "seconds": begun.elapsed().as_secs_f64(),
        "first": done.difference.map(|d| difference(app, &d)),
    }))
}

/// `POST /isobit/check`: replays a receipt on a device, the CPU if nothing else is said.
pub async fn check_receipt(State(app): State<Arc<App>>, body: Bytes) -> Result<Json<Value>, Fault> {
    let Ok(one) = app.checking.clone().try_lock_owned() else {
        return Err(Fault::unavailable("another receipt is being checked, which takes a second copy of the model"));
    };
    let of = app.clone();
    let done = tokio::task::spawn_blocking(move || {
        // until it is done, whether or not somebody waits for it
        let _one = one;
        let f = Fields::parse(&body)?;
        let given = f.get("receipt").ok_or_else(|| Fault::bad("receipt", "receipt is missing"))?;
        let receipt = match given {
            // as it was told, which a browser keeps best
            Value::String(text) => Receipt::parse(text.as_bytes()),
            value => Receipt::from_value(value),
        };
        let receipt = receipt.map_err(|e| refused(&e))?;
        checked(&of, &receipt, f.text("device")?.unwrap_or("cpu"))
    });
    done.await.map_err(|_| Fault::internal("the check made a mistake"))?.map(Json)
}

/// Runs that are listed, at most.
const SHOWN: usize = 200;

/// `GET /isobit/runs`: those that are kept, the newest first.
pub async fn runs(State(app): State<Arc<App>>) -> Result<Json<Value>, Fault> {
    let Some(folder) = app.options.record.clone() else { return Ok(Json(json!({ "runs": [], "record": false }))) };
    let alias = app.options.alias.clone();
    let newest = move || if folder.is_dir() { Run::newest(&folder, SHOWN) } else { Ok(Vec::new()) };
    let list = tokio::task::spawn_blocking(newest);
    let list = list.await.map_err(|_| Fault::internal("runs could not be read"))?;
    let list = list.map_err(|e| Fault::internal(e.to_string()))?;
    let one = |run: &Run| {
        let body = &run.receipt.body;
        json!({
            "id": run.id(),
            "created": body.time,
            "model": if body.name.is_empty() { &alias } else { &body.name },
            "prompt_tokens": body.prompt.len(),
            "tokens": body.ids.len(),
            "digest": body.chain.last().map(Hex::to_string),
            "device": body.device,
            "preview": body.text.chars().take(120).collect::<String>(),
            "parent": run.extras.parent.as_ref().map(|p| &p.run),
        })
    };
    let list: Vec<Value> = list.iter().rev().filter_map(|(_, run)| run.as_ref().ok()).map(one).collect();
    Ok(Json(json!({ "runs": list, "record": true })))
}

/// `GET /isobit/runs/{id}`: a run whole.
pub async fn one_run(State(app): State<Arc<App>>, id: Named) -> Result<Json<Value>, Fault> {
    let Path(id) = id.map_err(|_| Fault::bad("id", "a name in UTF-8 expected"))?;
    let none = || Fault::refused(StatusCode::NOT_FOUND, "not_found_error", "there is no run of that name");
    let folder = app.options.record.clone().ok_or_else(none)?;
    let found = tokio::task::spawn_blocking(move || Run::find(&folder, &id));
    let found = found.await.map_err(|_| Fault::internal("the run could not be read"))?;
    let run = found.map_err(|e| Fault::bad("id", e.to_string()))?.ok_or_else(none)?;
    let (body, text) = (&run.receipt.body, |id: u32| token(&app, Some(id)));
    let one = |(i, id): (usize, &u32)| {
        let mut told = text(*id);
        if let Some(top) = run.extras.top.get(i) {
            told["logprob"] = top.iter().find(|t| t.0 == *id).map(|t| t.1).into();
            let top = top.iter().map(|(id, p)| {
                let mut one = text(*id);
                one["logprob"] = (*p).into();
                one
            });
            told["top"] = top.collect();
        }
        told
    };
    Ok(Json(json!({
        "id": run.id(),
        // the file's text: numbers of 64 bits do not live through a browser
        "receipt": String::from_utf8_lossy(&run.receipt.to_bytes()),
        "tokens": body.ids.iter().enumerate().map(one).collect::<Vec<_>>(),
        "text": body.text,
        "prompt": run.extras.prompt,
    })))
}
