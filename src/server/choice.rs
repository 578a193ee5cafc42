//! One text of an answer as it grows: pieces from the engine become what is shown, until a stop string, the end, or the
//! client's leaving.

use super::app::App;
use super::fault::Fault;
use super::listen::Phase;
use super::metrics::Outcome;
use super::prepare::{Ask, prompt_of};
use super::runs::Proving;
use crate::chat::{Event, Format, Parser};
use crate::engine::{Ended, Logprobs, Piece, Reply, Request};
use crate::generate::stops::Stops;
use futures::StreamExt;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

impl App {
    /// Queues what a request asks for.
    pub fn begin(self: &Arc<App>, ask: &Ask) -> Result<Vec<Choice>, Fault> {
        if *self.phase.borrow() != Phase::Open {
            return Err(Fault::unavailable("the server is ending"));
        }
        if self.options.embeddings {
            return Err(Fault::not_supported(
                "this server makes vectors; one started without --embeddings generates text",
            ));
        }
        let engine = self.engine()?;
        let one = |(index, request): (usize, &Request)| {
            let reply = engine.generate(request.clone())?;
            Ok(Choice::new(self.clone(), index, reply, ask))
        };
        ask.requests.iter().enumerate().map(one).collect()
    }
}

/// Why a text ended, in OpenAI's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// its end, or a stop string
    Stop,
    /// as many tokens as were asked for, or as the context holds
    Length,
    /// it calls tools
    ToolCalls,
}

impl Finish {
    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::ToolCalls => "tool_calls",
        }
    }
}

/// What a token adds to a text, or its end does.
#[derive(Debug, Default)]
pub struct Delta {
    /// which of several texts
    pub index: usize,
    /// the token
    pub piece: Option<Piece>,
    /// what is shown
    pub events: Vec<Event>,
    /// why it was the last
    pub finish: Option<Finish>,
}

/// Times and numbers of a text.
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    /// tokens of the prompt, and how many of them the cache had
    pub prompt: usize,
    /// see there
    pub cached: usize,
    /// tokens generated
    pub predicted: usize,
    /// from request to first token
    pub prompt_time: Duration,
    /// from the first token to the last
    pub predicted_time: Duration,
}

/// What is known of a text that has ended.
#[derive(Debug)]
pub struct Over {
    /// its times and numbers
    pub timings: Timings,
    /// its digest, and its receipt, as far as they were asked for
    pub proof: Option<Value>,
}

/// A text that grows.
pub struct Choice {
    app: Arc<App>,
    index: usize,
    /// dropped, and with it the work, when nothing more is wanted
    reply: Option<Reply>,
    stops: Stops,
    parser: Option<Parser>,
    format: Option<Format>,
    called: bool,
    phase: watch::Receiver<Phase>,
    begun: Instant,
    last: Option<Instant>,
    outcome: Outcome,
    scores: Vec<Logprobs>,
    proving: Option<Proving>,
    /// the tokens, where something is to be said of them at the end
    told: Vec<Piece>,
    proof: Option<Value>,
    /// see there
    pub timings: Timings,
}

impl Choice {
    /// Which of several texts it is.
    pub fn index(&self) -> usize {
        self.index
    }

    /// How likely the prompt's tokens are, where that was asked for; known at the end.
    pub fn take_scores(&mut self) -> Vec<Logprobs> {
        std::mem::take(&mut self.scores)
    }

    /// The text number `index` of what was asked for.
    pub fn new(app: Arc<App>, index: usize, reply: Reply, ask: &Ask) -> Choice {
        app.metrics.begin();
        let zero = Duration::ZERO;
        let timings = Timings {
            prompt: ask.prompt_of(index).len(),
            cached: 0,
            predicted: 0,
            prompt_time: zero,
            predicted_time: zero,
        };
        Choice {
            index,
            reply: Some(reply),
            stops: Stops::new(ask.stops.clone()),
            parser: ask.parse.as_ref().map(|p| Parser::new(p.format, p.tools, p.reasons)),
            format: ask.parse.as_ref().map(|p| p.format),
            called: false,
            phase: app.phase.subscribe(),
            begun: Instant::now(),
            last: None,
            outcome: Outcome::Cancelled,
            scores: Vec::new(),
            proving: ask.proving(index),
            told: Vec::new(),
            proof: None,
            timings,
            app,
        }
    }

    /// What comes next; `None` after the end and after an error.
    pub async fn next(&mut self) -> Option<Result<Delta, Fault>> {
        let reply = self.reply.as_mut()?;
        let ending = self.phase.wait_for(|p| *p == Phase::Ending);
        let came = tokio::select! {
            came = reply.next() => Some(came),
            _ = ending => None,
        };
        let Some(came) = came else {
            return Some(Err(self.fail(Fault::unavailable("the server is ending"))));
        };
        match came {
            Some(Ok(piece)) => {
                self.time(reply_cached(self.reply.as_ref()));
                Some(Ok(self.take(piece)))
            }
            Some(Err(e)) => Some(Err(self.fail(e.into()))),
            // without a token: nothing was to be generated
            None => Some(Ok(self.end(Delta { index: self.index, ..Delta::default() }, Finish::Length))),
        }
    }

    fn time(&mut self, cached: usize) {
        let now = Instant::now();
        let t = &mut self.timings;
        t.predicted += 1;
        match self.last.replace(now) {
            None => {
                (t.cached, t.prompt_time) = (cached, now - self.begun);
                self.app.metrics.first(t.prompt, t.cached, t.prompt_time);
            }
            Some(last) => {
                t.predicted_time += now - last;
                self.app.metrics.next(now - last);
            }
        }
    }

    /// What is known of it, when it has ended.
    pub fn over(&mut self) -> Over {
        Over { timings: self.timings, proof: self.proof.take() }
    }

    fn take(&mut self, piece: Piece) -> Delta {
        if self.proving.is_some() {
            self.told.push(piece.clone());
        }
        let ended = piece.ended;
        let (events, stopped) = match self.control(&piece) {
            Some(control) => {
                let held = self.stops.finish();
                let mut events = self.parse(held);
                events.extend(self.parse(control));
                (events, false)
            }
            None => {
                let (text, stopped) = self.stops.push(&piece.text);
                (self.parse(text), stopped)
            }
        };
        let delta = Delta { index: self.index, piece: Some(piece), events, finish: None };
        match (stopped, ended) {
            (true, _) => self.end(delta, Finish::Stop),
            (false, None) => delta,
            (false, Some(ended)) => {
                let rest = self.stops.finish();
                let mut delta = delta;
                delta.events.extend(self.parse(rest));
                self.end(delta, if ended == Ended::EndOfText { Finish::Stop } else { Finish::Length })
            }
        }
    }

    /// The text of a control token that says what follows is, which does not show otherwise.
    fn control(&self, piece: &Piece) -> Option<String> {
        let format = self.format.filter(|_| piece.text.is_empty())?;
        let text = self.app.model.tokenizer().ok()?.token_text(piece.id)?;
        format.wants(&text).then_some(text)
    }

    fn parse(&mut self, text: String) -> Vec<Event> {
        let events = match &mut self.parser {
            _ if text.is_empty() => Vec::new(),
            Some(parser) => parser.push(&text),
            None => vec![Event::Content(text)],
        };
        self.called |= events.iter().any(|e| matches!(e, Event::ToolCall { .. }));
        events
    }

    fn end(&mut self, mut delta: Delta, finish: Finish) -> Delta {
        let rest = self.parser.as_mut().map_or_else(Vec::new, Parser::finish);
        self.called |= rest.iter().any(|e| matches!(e, Event::ToolCall { .. }));
        delta.events.extend(rest);
        delta.finish = Some(if self.called && finish == Finish::Stop { Finish::ToolCalls } else { finish });
        if let Some(mut reply) = self.reply.take() {
            self.scores = reply.take_prompt_logprobs();
        }
        self.outcome = Outcome::Done;
        if let Some(proving) = self.proving.take() {
            let pieces = std::mem::take(&mut self.told);
            // a stop string broke it off
            let ended = pieces.last().and_then(|p| p.ended).unwrap_or(Ended::BrokenOff);
            self.proof = proving.of(&self.app, prompt_of(&proving.request), pieces, ended);
        }
        delta
    }

    fn fail(&mut self, fault: Fault) -> Fault {
        (self.reply, self.outcome) = (None, Outcome::Failed);
        fault
    }
}

fn reply_cached(reply: Option<&Reply>) -> usize {
    reply.map_or(0, Reply::cached)
}

impl Drop for Choice {
    fn drop(&mut self) {
        self.app.metrics.end(self.outcome);
    }
}

/// A text that has ended, put together.
#[derive(Debug, Default)]
pub struct Whole {
    /// what is shown as text
    pub content: String,
    /// what the model thought before
    pub reasoning: String,
    /// tools it calls, with their arguments as JSON
    pub calls: Vec<(String, String)>,
    /// its tokens
    pub pieces: Vec<Piece>,
    /// why it ended
    pub finish: Option<Finish>,
}

impl Whole {
    /// Adds what came.
    pub fn push(&mut self, delta: Delta) {
        for event in delta.events {
            match event {
                Event::Content(text) => self.content += &text,
                Event::Reasoning(text) => self.reasoning += &text,
                Event::ToolCall { name, arguments, .. } => self.calls.push((name, arguments)),
            }
        }
        self.pieces.extend(delta.piece);
        self.finish = delta.finish.or(self.finish);
    }

    /// All of a text.
    ///
    /// Errors: those of the engine.
    pub async fn of(choice: &mut Choice) -> Result<Whole, Fault> {
        let mut whole = Whole::default();
        while let Some(delta) = choice.next().await {
            whole.push(delta?);
        }
        Ok(whole)
    }
}

/// Sums over the texts of an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// tokens of the prompts, each counted once
    pub prompt: usize,
    /// those of them that the cache had
    pub cached: usize,
    /// tokens generated
    pub predicted: usize,
}

impl Usage {
    /// Of several texts in their order, `each` of every prompt.
    pub fn of<'a>(choices: impl IntoIterator<Item = &'a Timings>, each: usize) -> Usage {
        let mut sum = Usage::default();
        for (i, t) in choices.into_iter().enumerate() {
            if i % each.max(1) == 0 {
                (sum.prompt, sum.cached) = (sum.prompt + t.prompt, sum.cached + t.cached);
            }
            sum.predicted += t.predicted;
        }
        sum
    }
}
