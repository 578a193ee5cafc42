//! A conversation with a loaded model: what was said, and the next answer.

use super::super::common::{self, note};
use super::super::interrupt;
use crate::chat::{Conversation, Event, Format, Parser, Template};
use crate::engine::{Advance, Ended, Error, Guess, Model, Prompt, Request, Session};
use crate::generate::breakers::{BREAKERS, breakers};
use crate::generate::sampling::SamplerOptions;
use anyhow::ensure;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::time::{Duration, Instant};

/// Where answers go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// a terminal: reasoning too, dimmed where colours are wanted
    Terminal { color: bool },
    /// a pipe or file: the answer alone
    Plain,
    /// an object for each
    Json,
}

/// What an answer, or all of them, took.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    pub answers: usize,
    pub prompt: usize,
    /// of the prompt, what was in the cache
    pub cached: usize,
    pub tokens: usize,
    pub reading: Duration,
    pub writing: Duration,
}

impl Counts {
    fn add(&mut self, o: Counts) {
        self.answers += o.answers;
        self.prompt += o.prompt;
        self.cached += o.cached;
        self.tokens += o.tokens;
        self.reading += o.reading;
        self.writing += o.writing;
    }

    /// Tokens a second of the prompts, and of the answers after their first tokens, which come out of the prompts' logits.
    fn rates(&self) -> (f64, f64) {
        let rate = |n: usize, t: Duration| if t.is_zero() { 0.0 } else { n as f64 / t.as_secs_f64() };
        (rate(self.prompt - self.cached, self.reading), rate(self.tokens.saturating_sub(self.answers), self.writing))
    }

    /// One line.
    pub fn line(&self) -> String {
        let (reading, writing) = self.rates();
        format!(
            "prompt {}, {} of them from the cache, {reading:.1} t/s; answer {}, {writing:.1} t/s",
            common::tokens(self.prompt),
            self.cached,
            common::tokens(self.tokens)
        )
    }
}

/// A conversation.
pub struct Talk {
    session: Session,
    model: Model,
    /// `None`: the text so far is continued
    pub template: Option<Template>,
    pub sampling: SamplerOptions,
    /// whether tokens are guessed ahead
    pub guess: Guess,
    /// tokens of an answer
    pub most: usize,
    pub kwargs: Map<String, Value>,
    /// messages, the system's first where there is one
    pub messages: Vec<Value>,
    pub last: Counts,
    pub all: Counts,
    shown: Shown,
}

/// What reads an answer, and the format it is in.
type Reader = (Parser, Format);

/// An answer as it grows.
#[derive(Default)]
struct Answer {
    content: String,
    reasoning: String,
}

impl Talk {
    pub fn new(
        session: Session,
        template: Option<Template>,
        sampling: SamplerOptions,
        most: usize,
        shown: Shown,
    ) -> Talk {
        let (model, kwargs, messages) = (session.model().clone(), Map::new(), Vec::new());
        let (last, all) = (Counts::default(), Counts::default());
        let guess = Guess::Off;
        Talk { session, model, template, sampling, guess, most, kwargs, messages, last, all, shown }
    }

    /// Where DRY's sequences end where nothing else was said.
    pub fn breakers(&self) -> anyhow::Result<Vec<Vec<u32>>> {
        breakers(self.model.tokenizer()?, &BREAKERS)
    }

    /// Replaces what the model is told first; without a text there is nothing.
    pub fn set_system(&mut self, text: Option<String>) {
        self.messages.retain(|m| m["role"] != "system");
        if let Some(text) = text {
            self.messages.insert(0, json!({"role": "system", "content": text}));
        }
    }

    /// Tokens the context holds, and those in the cache.
    pub fn context(&self) -> (usize, usize) {
        (self.session.context(), self.session.position())
    }

    /// Whether the chat can go on after an error: what was asked for was wrong, not the device.
    pub fn goes_on(&self, e: &anyhow::Error) -> bool {
        let of_device =
            |e: &Error| matches!(e, Error::Device(_) | Error::Lost(_) | Error::Closed(_) | Error::Interrupted(_));
        !e.chain().any(|c| c.downcast_ref().is_some_and(of_device) || c.is::<std::io::Error>())
    }

    /// Answers a message. One that cannot be answered is forgotten.
    pub fn say(&mut self, text: &str) -> anyhow::Result<()> {
        self.messages.push(json!({"role": "user", "content": text}));
        let answered = self.answer();
        if answered.is_err() {
            self.messages.pop();
        }
        answered
    }

    /// Answers the last message anew, with the next seed.
    pub fn again(&mut self) -> anyhow::Result<()> {
        let at = self.messages.iter().rposition(|m| m["role"] == "user");
        let Some(at) = at else { anyhow::bail!("there is no message to answer again") };
        let forgotten = self.messages.split_off(at + 1);
        self.sampling.seed = self.sampling.seed.wrapping_add(1);
        note!("seed {}", self.sampling.seed);
        let answered = self.answer();
        if answered.is_err() {
            self.messages.extend(forgotten);
        }
        answered
    }

    /// The prompt of the conversation, its tokens, and a parser of what comes after it.
    fn prompt(&self) -> anyhow::Result<(Vec<u32>, Option<Reader>)> {
        let tokenizer = self.model.tokenizer()?;
        let Some(template) = &self.template else {
            let said: Vec<&str> = self.messages.iter().filter_map(|m| m["content"].as_str()).collect();
            return Ok((tokenizer.encode(&said.concat(), tokenizer.adds_bos(), false)?, None));
        };
        let messages = template.suited(&self.messages);
        let conversation = Conversation { kwargs: self.kwargs.clone(), ..Conversation::new(messages) };
        let text = template.render(&conversation)?;
        let format = Format::of(template.source());
        let parser = Parser::new(format, false, format.opened(&text));
        Ok((tokenizer.encode(&text, false, true)?, Some((parser, format))))
    }

    fn answer(&mut self) -> anyhow::Result<()> {
        let (ids, parser) = self.prompt()?;
        let (context, n) = (self.session.context(), ids.len());
        ensure!(n > 0, "the prompt has no tokens: write something");
        ensure!(
            n < context,
            "the conversation has {n} tokens, the context holds {context}: /clear begins anew, -c makes it larger"
        );
        let sampling = self.sampling.clone();
        let request = Request { max_tokens: self.most, sampling, guess: self.guess, ..Request::new(Prompt::Ids(ids)) };
        let (answer, counts, ended) = self.generate(request, parser)?;
        self.last = counts;
        self.all.add(counts);
        let mut message = json!({"role": "assistant", "content": answer.content});
        if !answer.reasoning.is_empty() {
            message["reasoning_content"] = answer.reasoning.into();
        }
        if self.shown == Shown::Json {
            self.print_json(&message, ended)?;
        }
        if ended == "context full" {
            note!("the context of {context} tokens is full: /clear begins anew, -c makes it larger");
        }
        self.messages.push(message);
        Ok(())
    }

    /// Streams an answer, until it ends or Ctrl-C is pressed.
    fn generate(&mut self, request: Request, parser: Option<Reader>) -> anyhow::Result<(Answer, Counts, &'static str)> {
        let listening = interrupt::answering();
        let (mut parser, format) = parser.unzip();
        let mut screen = Screen { shown: self.shown, dim: false };
        let (mut answer, mut ended) = (Answer::default(), "interrupted");
        let mut generating = self.session.stream(request)?;
        let n = generating.prompt().len();
        let mut counts = Counts { answers: 1, prompt: n, cached: generating.cached(), ..Counts::default() };
        let bar = common::bar(n as u64, "reading {bar:30} {pos}/{len} tokens {eta}");
        let mut started = Instant::now();
        let tokenizer = self.model.tokenizer()?;
        while !listening.stopped() {
            let piece = match pollster::block_on(generating.advance())? {
                Advance::Prompt { done, of } => {
                    bar.set_position(done as u64);
                    if done == of {
                        bar.finish_and_clear();
                        counts.reading = started.elapsed();
                        started = Instant::now();
                    }
                    continue;
                }
                Advance::End(e) => {
                    ended = word_for(e);
                    break;
                }
                Advance::Piece(piece) => piece,
            };
            counts.tokens += 1;
            let mut text = piece.text;
            // a marker that is a control token has no text of its own
            if let (true, Some(format)) = (text.is_empty() && piece.ended.is_none(), format) {
                text = tokenizer.token_text(piece.id).filter(|t| format.wants(t)).unwrap_or_default();
            }
            match &mut parser {
                Some(parser) => screen.take(parser.push(&text), &mut answer)?,
                None => screen.take(vec![Event::Content(text)], &mut answer)?,
            }
            if let Some(e) = piece.ended {
                ended = word_for(e);
                break;
            }
        }
        bar.finish_and_clear();
        counts.writing = started.elapsed();
        let rest = generating.rest();
        match &mut parser {
            Some(parser) => {
                let mut events = parser.push(&rest);
                events.extend(parser.finish());
                screen.take(events, &mut answer)?;
            }
            None => screen.take(vec![Event::Content(rest)], &mut answer)?,
        }
        screen.end()?;
        pollster::block_on(generating.end())?;
        Ok((answer, counts, ended))
    }

    fn print_json(&self, message: &Value, ended: &str) -> anyhow::Result<()> {
        let (reading, writing) = self.last.rates();
        let object = json!({
            "message": message,
            "stop": ended,
            "seed": self.sampling.seed,
            "usage": {
                "prompt_tokens": self.last.prompt,
                "cached_tokens": self.last.cached,
                "completion_tokens": self.last.tokens,
            },
            "timings": {
                "prompt_ms": self.last.reading.as_secs_f64() * 1e3,
                "prompt_per_second": reading,
                "predicted_ms": self.last.writing.as_secs_f64() * 1e3,
                "predicted_per_second": writing,
            },
        });
        writeln!(std::io::stdout(), "{object}")?;
        Ok(())
    }
}

/// Why an answer ended, as it is printed.
fn word_for(ended: Ended) -> &'static str {
    match ended {
        Ended::EndOfText => "eos",
        Ended::Length => "length",
        Ended::Context => "context full",
        Ended::BrokenOff => "interrupted",
    }
}

/// Shows an answer as it comes.
struct Screen {
    shown: Shown,
    /// reasoning is being shown
    dim: bool,
}

impl Screen {
    fn take(&mut self, events: Vec<Event>, answer: &mut Answer) -> anyhow::Result<()> {
        for event in events {
            let (text, reasoning) = match event {
                Event::Content(text) => (text, false),
                Event::Reasoning(text) => (text, true),
                // none is looked for
                Event::ToolCall { name, arguments, .. } => (format!("{name}({arguments})"), false),
            };
            let kept = if reasoning { &mut answer.reasoning } else { &mut answer.content };
            kept.push_str(&text);
            self.show(&text, reasoning)?;
        }
        Ok(())
    }

    fn show(&mut self, text: &str, reasoning: bool) -> anyhow::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        match self.shown {
            Shown::Json => return Ok(()),
            Shown::Plain if reasoning => return Ok(()),
            Shown::Plain => out.write_all(text.as_bytes())?,
            Shown::Terminal { color } => {
                if reasoning != self.dim {
                    let (begin, end) =
                        if color { ("\x1b[2m", "\x1b[0m\n\n") } else { ("[thinking]\n", "\n[answer]\n") };
                    out.write_all(if reasoning { begin } else { end }.as_bytes())?;
                    self.dim = reasoning;
                }
                out.write_all(without_controls(text).as_bytes())?;
            }
        }
        Ok(out.flush()?)
    }

    /// The line ends, and with it whatever was dimmed.
    fn end(&mut self) -> anyhow::Result<()> {
        let end = match self.shown {
            Shown::Json => return Ok(()),
            Shown::Terminal { color: true } if self.dim => "\x1b[0m\n",
            _ => "\n",
        };
        self.dim = false;
        let mut out = std::io::stdout().lock();
        out.write_all(end.as_bytes())?;
        Ok(out.flush()?)
    }
}

/// A model's text may hold anything; a terminal gets no control sequences of it.
fn without_controls(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_no_control_sequences() {
        assert_eq!(without_controls("a\x1b[31mb\n\tc\u{9b}1m\r"), "a[31mb\n\tc1m");
    }

    #[test]
    fn rates_leave_out_what_was_cached_and_the_first_tokens() {
        let second = Duration::from_secs(1);
        let one = Counts { answers: 1, prompt: 100, cached: 64, tokens: 5, reading: second, writing: second };
        let mut two = one;
        two.add(one);
        assert_eq!((one.rates(), two.rates()), ((36.0, 4.0), (36.0, 4.0)));
        assert!(one.line().contains("64 of them from the cache"), "{}", one.line());
    }
}
