//! An engine: one thread that owns a session, and handles that any thread may hold.
//!
//! Handles put jobs into a bounded queue, and each job's reply is a stream. The thread does them one after another, or, where
//! the session's plan takes more sequences than one, takes steps for all of them (`schedule`).

use super::error::Error;
use super::events::{Events, Taken, events};
use super::generate::{Advance, Ended, Output, Piece, Prompt, Request};
use super::options::SessionOptions;
use super::schedule::{Schedule, Sink, text_of};
use super::score::Pooling;
use super::session::Session;
use super::{Device, DeviceOptions, Devices, Model};
use crate::generate::logprobs::Logprobs;
use crate::generate::pool::Pool;
use futures::Stream;
use futures::channel::oneshot;
use std::any::Any;
use std::collections::VecDeque;
use std::io::{Read, Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;

/// Choices of an [`Engine`].
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// the device, as [`Devices::open`] takes it
    pub device: String,
    /// how it is opened
    pub devices: DeviceOptions,
    /// the session's
    pub session: SessionOptions,
    /// jobs that may wait beside the one in hand; at least 1
    pub queue: usize,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            device: "auto".into(),
            devices: DeviceOptions::default(),
            session: SessionOptions::default(),
            queue: 64,
        }
    }
}

/// A handle of an engine. Clones are handles of the same; when the last one is dropped, what waits in the queue is still
/// done, and then the thread ends.
///
/// In an engine of many texts a panic of one text's sampler or grammar is the error of that text alone
/// ([`Error::Panicked`]). Any other panic in the thread, a lost device and an interruption end the engine: the job in hand gets the error, those that wait
/// get [`Error::Closed`], and so does every later one.
#[derive(Clone)]
pub struct Engine {
    jobs: SyncSender<Job>,
    shared: Arc<Shared>,
}

/// What an engine is busy with. An engine of one text counts nothing but those that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// texts of which tokens are being computed
    pub running: usize,
    /// texts that wait, in the queue and for chunks
    pub waiting: usize,
    /// chunks of 64 positions that the cache has
    pub chunks: usize,
    /// those that no text has and that are kept for none
    pub free: usize,
    /// those that are kept for prompts that begin alike, whoever has them besides
    pub kept: usize,
    /// steps taken since it was started, and the texts in all of them
    pub steps: u64,
    /// texts in all steps
    pub texts: u64,
}

/// What handles, replies and the thread know of each other.
struct Shared {
    /// as it was after the last step, without the queue
    status: Mutex<Status>,
    /// jobs in the queue
    queued: AtomicUsize,
    /// why the thread has ended; set before the last of its channels closes
    ended: OnceLock<String>,
    closing: AtomicBool,
    queue: usize,
    facts: OnceLock<Facts>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What is known once the model is loaded.
struct Facts {
    model: Model,
    device: String,
    driver: Option<String>,
    context: usize,
    options: SessionOptions,
}

/// Work on the cache, with its chunks where many texts share them.
type OnCache = Box<dyn FnOnce(&mut Session, Option<&mut Pool>) + Send>;

enum Job {
    Generate(Box<Request>, Events<Event>),
    Call(Box<dyn FnOnce(&mut Session) + Send>),
    Embed(Prompt, Pooling, Events<Event>),
    Cache(OnCache),
    /// the queue is looked at, nothing else
    Wake,
}

impl Job {
    /// Whether whoever asked is gone. Calls are made all the same.
    fn is_unwanted(&self) -> bool {
        matches!(self, Job::Generate(_, events) | Job::Embed(_, _, events) if events.is_closed())
    }
}

enum Event {
    Piece(Piece),
    Scored(Logprobs),
    Vector(Vec<f32>),
    /// with how many tokens of the prompt the cache had
    Begun(usize),
    /// with the prompt's tokens
    End(Ended, Vec<u32>),
    Failed(Error),
}

impl Shared {
    /// Says why it ended. The first reason stays.
    fn end(&self, why: String) {
        let _ = self.ended.set(why);
    }

    fn panicked(&self, panic: &(dyn Any + Send)) {
        self.end(format!("its thread panicked: {}", text_of(panic)));
    }

    fn closed(&self) -> Error {
        Error::Closed(self.ended.get().cloned().unwrap_or_else(|| "its thread is gone".into()))
    }
}

impl Engine {
    /// Starts the thread, which opens the device and loads the model; returns when that is done.
    ///
    /// Errors: those of [`Devices::open`] and [`Model::session`]; [`Error::Options`] where no thread can be started.
    pub fn start(model: &Model, options: EngineOptions) -> Result<Engine, Error> {
        let EngineOptions { device, devices, session, queue } = options;
        Engine::start_on(model, session, queue, move || Devices::new(devices).open(&device))
    }

    /// As [`Engine::start`], on a device that `open` opens in the thread.
    pub fn start_on(
        model: &Model,
        options: SessionOptions,
        queue: usize,
        open: impl FnOnce() -> Result<Device, Error> + Send + 'static,
    ) -> Result<Engine, Error> {
        let queue = queue.max(1);
        let (jobs, waiting) = sync_channel(queue);
        let (ended, facts, closing) = (OnceLock::new(), OnceLock::new(), AtomicBool::new(false));
        let shared = Arc::new(Shared {
            status: Mutex::default(),
            queued: AtomicUsize::new(0),
            ended,
            closing,
            queue,
            facts,
            thread: Mutex::default(),
        });
        let (loaded, when_loaded) = sync_channel(1);
        let (model, of_thread) = (model.clone(), shared.clone());
        let work = move || {
            let mut worker = Worker {
                session: None,
                in_hand: None,
                schedule: None,
                waiting,
                queue: VecDeque::new(),
                shared: of_thread,
            };
            let why = catch_unwind(AssertUnwindSafe(|| {
                match open().and_then(|device| Session::new(&model, device, options, |_| {})) {
                    Ok(session) => {
                        let (device, context) = (session.device().to_string(), session.context());
                        let driver = session.driver().map(str::to_string);
                        // set once, here
                        let _ = worker.shared.facts.set(Facts { model, device, driver, context, options });
                        worker.session = Some(session);
                        let _ = loaded.send(Ok(()));
                    }
                    Err(e) => {
                        let _ = loaded.send(Err(e));
                        return "its model was not loaded".to_string();
                    }
                }
                worker.run()
            }));
            // before the worker is dropped, and with it the other ends of replies
            match why {
                Ok(why) => worker.shared.end(why),
                Err(panic) => worker.shared.panicked(panic.as_ref()),
            }
        };
        let builder = std::thread::Builder::new().name("isobit-engine".into());
        let handle =
            builder.spawn(work).map_err(|e| Error::options(format!("cannot start the engine's thread: {e}")))?;
        *lock(&shared.thread) = Some(handle);
        match when_loaded.recv() {
            Ok(Ok(())) => Ok(Engine { jobs, shared }),
            Ok(Err(e)) => Err(e),
            Err(_) => {
                // it panicked: why is known when it has ended
                join(&shared);
                Err(shared.closed())
            }
        }
    }

    fn facts(&self) -> &Facts {
        self.shared.facts.get().unwrap_or_else(|| unreachable!("a handle is made when the model is loaded"))
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.facts().model
    }

    /// The device, as it names itself.
    pub fn device(&self) -> &str {
        &self.facts().device
    }

    /// The driver of an adapter and its version; `None` for the CPU.
    pub fn driver(&self) -> Option<&str> {
        self.facts().driver.as_deref()
    }

    /// Tokens a sequence may have.
    pub fn context(&self) -> usize {
        self.facts().context
    }

    /// What its session was made with, and the context that it has.
    pub fn options(&self) -> SessionOptions {
        SessionOptions { context: self.context(), ..self.facts().options }
    }

    /// One line that says what decides results: see [`Session::fingerprint`].
    ///
    /// Errors: [`Error::Model`].
    pub fn fingerprint(&self) -> Result<String, Error> {
        self.model().fingerprint(&self.facts().options)
    }

    /// Why the engine takes no more jobs; `None` while it does.
    pub fn ended(&self) -> Option<&str> {
        self.shared.ended.get().map(String::as_str)
    }

    /// Queues a request; tokens come from the reply, which may be dropped at any time.
    ///
    /// Errors, at once: [`Error::Busy`] where the queue is full, [`Error::Closed`]. All others come from the reply.
    pub fn generate(&self, request: impl Into<Request>) -> Result<Reply, Error> {
        let (events, reply) = events();
        self.put(Job::Generate(Box::new(request.into()), events))?;
        Ok(self.reply(reply))
    }

    fn reply(&self, events: Taken<Event>) -> Reply {
        let shared = self.shared.clone();
        Reply {
            events,
            shared,
            scores: Vec::new(),
            vector: Vec::new(),
            begun: None,
            cached: 0,
            end: None,
            failed: false,
        }
    }

    /// Queues a text that is to be a vector: see [`Session::embed`].
    ///
    /// Errors, at once: [`Error::Busy`] where the queue is full, [`Error::Closed`]. All others come with the vector.
    pub fn embed(&self, prompt: impl Into<Prompt>, pooling: Pooling) -> Result<Embedding, Error> {
        let (events, reply) = events();
        self.put(Job::Embed(prompt.into(), pooling, events))?;
        Ok(Embedding(self.reply(reply)))
    }

    /// Writes what the cache has of the beginning of a prompt, in whole chunks of 64 tokens, for [`Engine::restore`] or
    /// [`Session::restore`] anywhere; the answer is how many tokens that are. 0: none, and nothing was written.
    ///
    /// Errors, at once: as [`Engine::call`]. With the answer: those of [`Session::save`].
    pub fn save(
        &self,
        prompt: impl Into<Prompt>,
        out: impl Write + Send + 'static,
    ) -> Result<Answer<Result<usize, Error>>, Error> {
        let prompt = prompt.into();
        self.with_cache(move |session, pool| session.save_beginning(&prompt, pool, out))
    }

    /// Takes up what was saved, for prompts that begin with it; the answer is how many tokens that are.
    ///
    /// Errors, at once: as [`Engine::call`]. With the answer: those of [`Session::restore`]; the chunks that no text has are
    /// fewer.
    pub fn restore(&self, from: impl Read + Seek + Send + 'static) -> Result<Answer<Result<usize, Error>>, Error> {
        self.with_cache(move |session, pool| match pool {
            Some(pool) => session.restore_to(pool, from),
            None => session.restore(from),
        })
    }

    /// Queues a call with the session, such as `engine.call(|s| s.logits("Once"))`. It is done even where nobody waits for
    /// its answer.
    ///
    /// Errors, at once: [`Error::Busy`] where the queue is full, [`Error::Closed`]; the answer may be [`Error::Closed`].
    pub fn call<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Session) -> T + Send + 'static,
    ) -> Result<Answer<T>, Error> {
        let (send, answer) = oneshot::channel();
        let shared = self.shared.clone();
        self.put(Job::Call(Box::new(move |session| tell(send, &shared, || f(session)))))?;
        Ok(Answer { answer, shared: self.shared.clone() })
    }

    fn with_cache<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Session, Option<&mut Pool>) -> T + Send + 'static,
    ) -> Result<Answer<T>, Error> {
        let (send, answer) = oneshot::channel();
        let shared = self.shared.clone();
        self.put(Job::Cache(Box::new(move |session, pool| tell(send, &shared, || f(session, pool)))))?;
        Ok(Answer { answer, shared: self.shared.clone() })
    }

    fn put(&self, job: Job) -> Result<(), Error> {
        if self.shared.ended.get().is_some() {
            return Err(self.shared.closed());
        }
        // counted before the thread can take it
        if self.shared.queued.fetch_add(1, Ordering::Relaxed) >= self.shared.queue {
            self.shared.queued.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::Busy { waiting: self.shared.queue });
        }
        self.jobs.try_send(job).map_err(|e| {
            self.shared.queued.fetch_sub(1, Ordering::Relaxed);
            match e {
                TrySendError::Full(_) => Error::Busy { waiting: self.shared.queue },
                TrySendError::Disconnected(_) => self.shared.closed(),
            }
        })
    }

    /// What it is busy with.
    pub fn status(&self) -> Status {
        let status = *lock(&self.shared.status);
        Status { waiting: status.waiting + self.shared.queued.load(Ordering::Relaxed), ..status }
    }

    /// Ends the engine after the step in hand, for all handles, and waits for its thread. Jobs in hand and in the queue get
    /// [`Error::Closed`].
    pub fn close(&self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        // where the queue is full the thread is awake
        let _ = self.jobs.try_send(Job::Wake);
        join(&self.shared);
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({} on {}{})", self.model().name(), self.device(), self.ended().map_or("", |_| ", ended"))
    }
}

/// Waits for the thread, unless this is it.
fn join(shared: &Shared) {
    let handle = lock(&shared.thread).take();
    if let Some(handle) = handle.filter(|h| h.thread().id() != std::thread::current().id()) {
        // what it panicked with is in `ended`
        let _ = handle.join();
    }
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives whoever waits what a call gives. A panic goes on after the engine knows of it.
fn tell<T>(send: oneshot::Sender<T>, shared: &Shared, f: impl FnOnce() -> T) {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => {
            // nobody may wait any more
            let _ = send.send(value);
        }
        Err(panic) => {
            // before whoever waits hears that there is no answer
            shared.panicked(panic.as_ref());
            drop(send);
            resume_unwind(panic);
        }
    }
}

/// The thread's side. Outside what may panic, so that nobody hears that a channel closed before it is known why.
struct Worker {
    session: Option<Session>,
    in_hand: Option<Events<Event>>,
    schedule: Option<Schedule<Events<Event>>>,
    waiting: Receiver<Job>,
    /// jobs that have come and have no place yet, where many texts are worked on
    queue: VecDeque<Job>,
    shared: Arc<Shared>,
}

impl Worker {
    /// Does jobs until there are none to come; why it ended.
    fn run(&mut self) -> String {
        const CLOSED: &str = "it was closed";
        let Worker { session: Some(session), in_hand, schedule, waiting, queue, shared } = self else {
            return "its model was not loaded".into();
        };
        let closing = || shared.closing.load(Ordering::SeqCst);
        if shared.facts.get().is_some_and(|f| f.options.sequences > 1) {
            let (most, tokens) = (session.sequences(), session.tokens());
            let schedule = schedule.insert(Schedule::new(session, most, tokens));
            return many(session, schedule, waiting, queue, shared).unwrap_or_else(|| CLOSED.into());
        }
        while let Ok(job) = waiting.recv() {
            taken(shared, &job);
            if closing() {
                return CLOSED.into();
            }
            match job {
                Job::Wake => {}
                Job::Call(f) => f(session),
                Job::Cache(f) => f(session, None),
                Job::Generate(..) | Job::Embed(..) => {
                    let done = one(session, job, in_hand, closing);
                    let Some(events) = in_hand else { continue };
                    if closing() {
                        return CLOSED.into();
                    }
                    if let Err(e) = done {
                        let last = e.is_final().then(|| e.to_string());
                        // whoever asked may be gone
                        let _ = events.send(Event::Failed(e));
                        if let Some(why) = last {
                            return why;
                        }
                    }
                    *in_hand = None;
                }
            }
        }
        "no handle is left".into()
    }
}

impl Sink for Events<Event> {
    fn piece(&self, piece: Piece) -> Result<(), ()> {
        self.send(Event::Piece(piece))
    }

    // whoever asked may be gone, here and below

    fn scored(&self, logprobs: Logprobs) {
        let _ = self.send(Event::Scored(logprobs));
    }

    fn vector(&self, vector: Vec<f32>) {
        let _ = self.send(Event::Vector(vector));
    }

    fn begun(&self, cached: usize) {
        let _ = self.send(Event::Begun(cached));
    }

    fn end(&self, ended: Ended, prompt: Vec<u32>) {
        let _ = self.send(Event::End(ended, prompt));
    }

    fn failed(&self, e: Error) {
        let _ = self.send(Event::Failed(e));
    }

    fn is_closed(&self) -> bool {
        Events::is_closed(self)
    }
}

/// Jobs side by side, a step for all texts at a time; why it ended, `None` where it was closed.
fn many(
    session: &mut Session,
    schedule: &mut Schedule<Events<Event>>,
    jobs: &Receiver<Job>,
    queue: &mut VecDeque<Job>,
    shared: &Shared,
) -> Option<String> {
    let closing = || shared.closing.load(Ordering::SeqCst);
    let (mut steps, mut texts) = (0, 0);
    loop {
        if schedule.is_idle() && queue.is_empty() {
            match jobs.recv() {
                Ok(job) => queue.push_back(job),
                Err(_) => return Some("no handle is left".into()),
            }
        }
        queue.extend(jobs.try_iter());
        // nobody waits behind those that nobody waits for
        queue.retain(|job| {
            let wanted = !job.is_unwanted();
            if !wanted {
                taken(shared, job);
            }
            wanted
        });
        while schedule.has_room() {
            // what waits hears why when that is known
            if closing() {
                return None;
            }
            let Some(job) = queue.pop_front() else { break };
            taken(shared, &job);
            match job {
                Job::Wake => {}
                Job::Generate(request, events) => schedule.put(session, &request, events),
                Job::Embed(prompt, pooling, events) => schedule.embed(session, &prompt, pooling, events),
                Job::Cache(f) => f(session, Some(schedule.pool())),
                Job::Call(f) => {
                    // it has the session for itself
                    schedule.yield_cache();
                    f(session);
                    session.forget();
                }
            }
        }
        if closing() {
            return None;
        }
        if schedule.is_idle() {
            continue;
        }
        let done = pollster::block_on(schedule.step(session));
        texts += *done.as_ref().unwrap_or(&0) as u64;
        if let Err(e) = done {
            let last = e.is_final().then(|| e.to_string());
            // texts that wait hear of the end as those in the queue do
            schedule.fail(e);
            if last.is_some() {
                return last;
            }
            schedule.yield_cache();
        }
        let ((running, waiting), usage) = (schedule.texts(), schedule.pool().usage());
        steps += 1;
        let (chunks, free, kept) = (usage.chunks, usage.free, usage.kept);
        *lock(&shared.status) = Status { running, waiting, chunks, free, kept, steps, texts };
    }
}

/// A job has left the queue.
fn taken(shared: &Shared, job: &Job) {
    // wakes are not counted, since nobody waits for them
    if !matches!(job, Job::Wake) {
        shared.queued.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One text; who asked for it is then in hand.
fn one(
    session: &mut Session,
    job: Job,
    in_hand: &mut Option<Events<Event>>,
    closing: impl Fn() -> bool,
) -> Result<(), Error> {
    match job {
        Job::Generate(request, events) => generate(session, *request, in_hand.insert(events), closing),
        Job::Embed(prompt, pooling, events) => {
            let events = in_hand.insert(events);
            if !events.is_closed() {
                events.vector(session.embed(prompt, pooling)?);
                events.end(Ended::Length, Vec::new());
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// One request from beginning to end, or until nobody wants it.
fn generate(
    session: &mut Session,
    request: Request,
    events: &Events<Event>,
    closing: impl Fn() -> bool,
) -> Result<(), Error> {
    if events.is_closed() {
        return Ok(());
    }
    let mut generating = session.stream(request)?;
    loop {
        let sent = match pollster::block_on(generating.advance())? {
            Advance::Prompt { .. } => {
                generating.take_prompt_logprobs().into_iter().for_each(|l| events.scored(l));
                Ok(())
            }
            Advance::Piece(piece) => events.piece(piece),
            Advance::End(ended) => {
                // whoever asked may be gone
                events.end(ended, generating.prompt().to_vec());
                return Ok(());
            }
        };
        if sent.is_err() || events.is_closed() || closing() {
            return Ok(());
        }
    }
}

/// Tokens of a job: a [`Stream`], or by `for` an iterator that blocks. It ends after an error. Dropping it cancels the job
/// after the step in hand.
pub struct Reply {
    events: Taken<Event>,
    shared: Arc<Shared>,
    scores: Vec<Logprobs>,
    vector: Vec<f32>,
    begun: Option<usize>,
    cached: usize,
    end: Option<(Ended, Vec<u32>)>,
    failed: bool,
}

impl Reply {
    /// Tokens of the prompt that an engine of many texts had in its cache already, known with the first token.
    pub fn cached(&self) -> usize {
        self.cached
    }

    /// Takes the log probabilities of the prompt's tokens that were asked for, as far as they have come.
    pub fn take_prompt_logprobs(&mut self) -> Vec<Logprobs> {
        std::mem::take(&mut self.scores)
    }

    /// Why the text ended; `None` before it has.
    pub fn ended(&self) -> Option<Ended> {
        self.end.as_ref().map(|(ended, _)| *ended)
    }

    /// All that is still to come.
    ///
    /// Errors: those of [`Session::generate`]; [`Error::Closed`].
    pub async fn output(mut self) -> Result<Output, Error> {
        let mut out = Output::default();
        while let Some(piece) = std::future::poll_fn(|cx| Pin::new(&mut self).poll_next(cx)).await {
            out.push(&piece?);
        }
        if let Some((ended, prompt)) = self.end {
            (out.ended, out.prompt) = (ended, prompt);
        }
        out.prompt_logprobs = self.scores;
        Ok(out)
    }

    /// As [`Reply::output`], for a thread that may block.
    pub fn wait(self) -> Result<Output, Error> {
        pollster::block_on(self.output())
    }
}

impl Stream for Reply {
    type Item = Result<Piece, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Piece, Error>>> {
        if self.end.is_some() || self.failed {
            return Poll::Ready(None);
        }
        let event = loop {
            match std::task::ready!(Pin::new(&mut self.events).poll_next(cx)) {
                Some(Event::Scored(logprobs)) => self.scores.push(logprobs),
                Some(Event::Vector(vector)) => self.vector = vector,
                // one that begins anew has chunks of its own
                Some(Event::Begun(cached)) => self.cached = *self.begun.get_or_insert(cached),
                event => break event,
            }
        };
        Poll::Ready(match event {
            Some(Event::Piece(piece)) => Some(Ok(piece)),
            Some(Event::Scored(_) | Event::Vector(_) | Event::Begun(_)) => unreachable!("taken above"),
            Some(Event::End(ended, prompt)) => {
                self.end = Some((ended, prompt));
                None
            }
            Some(Event::Failed(e)) => {
                self.failed = true;
                Some(Err(e))
            }
            None => {
                self.failed = true;
                Some(Err(self.shared.closed()))
            }
        })
    }
}

impl IntoIterator for Reply {
    type Item = Result<Piece, Error>;
    type IntoIter = Pieces;

    fn into_iter(self) -> Pieces {
        Pieces(self)
    }
}

/// The pieces of a [`Reply`], for a thread that may block.
pub struct Pieces(Reply);

impl Iterator for Pieces {
    type Item = Result<Piece, Error>;

    fn next(&mut self) -> Option<Result<Piece, Error>> {
        pollster::block_on(std::future::poll_fn(|cx| Pin::new(&mut self.0).poll_next(cx)))
    }
}

/// A text as a vector, when it is there: [`Embedding::wait`], or [`Embedding::vector`]. Dropping it cancels the job.
pub struct Embedding(Reply);

impl Embedding {
    /// The vector, `[dim]`.
    ///
    /// Errors: those of [`Session::embed`]; [`Error::Closed`].
    pub async fn vector(mut self) -> Result<Vec<f32>, Error> {
        let reply = &mut self.0;
        while let Some(piece) = std::future::poll_fn(|cx| Pin::new(&mut *reply).poll_next(cx)).await {
            piece?;
        }
        Ok(self.0.vector)
    }

    /// As [`Embedding::vector`], for a thread that may block.
    pub fn wait(self) -> Result<Vec<f32>, Error> {
        pollster::block_on(self.vector())
    }
}

/// What a call gives: a future, or [`Answer::wait`].
pub struct Answer<T> {
    answer: oneshot::Receiver<T>,
    shared: Arc<Shared>,
}

impl<T> Answer<T> {
    /// For a thread that may block.
    ///
    /// Errors: [`Error::Closed`].
    pub fn wait(self) -> Result<T, Error> {
        pollster::block_on(self)
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, Error>> {
        let answer = std::task::ready!(Pin::new(&mut self.answer).poll(cx));
        Poll::Ready(answer.map_err(|_| self.shared.closed()))
    }
}
