//! Answers that stream: what comes of several texts, made frames by whoever speaks a client's language.

use super::choice::{Choice, Delta, Over};
use super::fault::Fault;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response, Sse, sse};
use futures::stream::{self, Stream, StreamExt};
use serde_json::Value;
use std::convert::Infallible;
use std::time::Duration;

/// How often a stream without news says that it is there.
const PING: Duration = Duration::from_secs(30);

/// What comes of a text.
pub enum Came {
    /// a token, or the end
    Delta(Delta),
    /// an error; nothing comes after it
    Fault(Fault),
    /// all has come
    Over(usize, Over),
}

/// One message of a stream.
pub struct Frame {
    /// its kind, where the protocol names it
    pub event: Option<&'static str>,
    /// what it says, in one line
    pub data: String,
}

impl Frame {
    /// A message without a kind.
    pub fn of(data: &Value) -> Frame {
        Frame { event: None, data: data.to_string() }
    }
}

/// Who makes frames of what comes.
pub trait Teller: Send + 'static {
    /// Before anything comes.
    fn begin(&mut self) -> Vec<Frame> {
        Vec::new()
    }

    /// Of what a token adds.
    fn delta(&mut self, delta: Delta) -> Vec<Frame>;

    /// A text has ended.
    fn over(&mut self, index: usize, over: Over);

    /// After an error, which nothing follows.
    fn fault(&mut self, fault: &Fault) -> Vec<Frame> {
        vec![Frame::of(&fault.body())]
    }

    /// After everything.
    fn end(&mut self) -> Vec<Frame>;
}

fn run(choice: Choice) -> impl Stream<Item = Came> + Send {
    stream::unfold(Some(choice), |choice| async {
        let mut choice = choice?;
        Some(match choice.next().await {
            Some(Ok(delta)) => (Came::Delta(delta), Some(choice)),
            Some(Err(fault)) => (Came::Fault(fault), None),
            None => (Came::Over(choice.index(), choice.over()), None),
        })
    })
}

/// All frames of an answer. Whoever drops the stream cancels the texts.
fn frames(choices: Vec<Choice>, mut teller: impl Teller) -> impl Stream<Item = Frame> + Send {
    let begin = teller.begin();
    let came = stream::select_all(choices.into_iter().map(|c| Box::pin(run(c))));
    let all = came.map(Some).chain(stream::once(async { None }));
    let told = all.scan((teller, false), |(teller, dead), came| {
        let frames = match came {
            _ if *dead => None,
            Some(Came::Delta(delta)) => Some(teller.delta(delta)),
            Some(Came::Over(index, over)) => {
                teller.over(index, over);
                Some(Vec::new())
            }
            Some(Came::Fault(fault)) => {
                *dead = true;
                Some(teller.fault(&fault))
            }
            None => Some(teller.end()),
        };
        std::future::ready(frames)
    });
    stream::iter([begin]).chain(told).flat_map(stream::iter)
}

/// An answer of server-sent events.
pub fn events(choices: Vec<Choice>, teller: impl Teller) -> Response {
    let event = |frame: Frame| {
        let event = sse::Event::default().data(frame.data);
        Ok::<_, Infallible>(frame.event.map_or(event.clone(), |name| event.event(name)))
    };
    let keep = sse::KeepAlive::new().interval(PING).text("ping");
    let mut response = Sse::new(frames(choices, teller).map(event)).keep_alive(keep).into_response();
    // what stands between may not wait until there is more
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// An answer of lines, a JSON object each.
pub fn lines(choices: Vec<Choice>, teller: impl Teller) -> Response {
    let line = |frame: Frame| Ok::<_, Infallible>(frame.data + "\n");
    let body = Body::from_stream(frames(choices, teller).map(line));
    ([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response()
}
