//! The server's state: the engine that does the work, what is known of the model, and what was asked for at the start.

use super::fault::Fault;
use super::listen::Phase;
use super::metrics::Metrics;
use crate::chat::Template;
use crate::engine::{Engine, Error, Guess, Model, Pooling, SessionOptions, Status};
use crate::generate::sampling::SamplerOptions;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{OnceCell, Semaphore, watch};

/// What a server is started with.
#[derive(Clone)]
pub struct Options {
    /// what the model is called in answers
    pub alias: String,
    /// names this server goes by, in lower case and without ports; `*`: any
    pub hosts: Vec<String>,
    /// names whose pages may ask, beside this server's own
    pub origins: Vec<String>,
    /// whether it goes by any address besides, as a server does that listens on all of them: a name that leads here is what
    /// a hostile page would need, not an address
    pub addresses: bool,
    /// who knows it may ask; `None`: everybody who can connect
    pub api_key: Option<String>,
    /// what is not said in a request
    pub sampling: SamplerOptions,
    /// tokens of an answer where a request does not say
    pub max_tokens: usize,
    /// texts at once
    pub parallel: usize,
    /// what sessions are made with
    pub session: SessionOptions,
    /// a template instead of the model's own
    pub template: Option<Arc<Template>>,
    /// texts are made vectors, and nothing is generated
    pub embeddings: bool,
    /// how
    pub pooling: Pooling,
    /// where runs are kept
    pub record: Option<PathBuf>,
    /// whether tokens are guessed ahead, which changes none of them
    pub guess: Guess,
    /// how many tokens a second the device allows one text at most, measured when it is asked for; `None`: nobody knows
    pub limit: Option<Measure>,
    /// bytes of a request's body
    pub body: usize,
}

/// How an engine is made: again after a device was lost.
pub type Start = Box<dyn Fn() -> Result<Engine, Error> + Send + Sync>;

/// How a limit of the device is measured, which takes a moment.
pub type Measure = Arc<dyn Fn() -> Option<f64> + Send + Sync>;

/// The engine, or why there is none.
enum Slot {
    /// it is being loaded
    Loading,
    Ready(Engine),
    /// it cannot be had
    Gone(String),
}

/// Requests that are read at once.
const READ: usize = 8;
/// Large bodies that are held at once.
const LARGE: usize = 32;
/// Bytes of a body that is not large.
pub const SMALL: u64 = 64 << 10;

/// A server.
pub struct App {
    /// what it was started with
    pub options: Options,
    /// the model
    pub model: Model,
    /// the template of chats; the error says why there is none
    pub template: Result<Arc<Template>, String>,
    /// what is counted
    pub metrics: Metrics,
    /// how far the server's end is
    pub phase: Arc<watch::Sender<Phase>>,
    /// one check of a receipt at a time: it takes a second copy of the model
    pub checking: Arc<tokio::sync::Mutex<()>>,
    /// requests that are read at once: JSON takes many times its text
    pub reading: Semaphore,
    /// bodies of more than 64 KiB, or of nobody knows how many, that are held at once
    pub large: Arc<Semaphore>,
    /// when it was started
    pub started: Instant,
    start: Start,
    slot: Mutex<Slot>,
    fingerprint: Mutex<Option<String>>,
    limit: OnceCell<Option<f64>>,
    /// when an engine was made last after one was lost
    revived: Mutex<Option<Instant>>,
}

/// An engine that is lost so soon after the one before it was is not made again.
const SOON: Duration = Duration::from_secs(10);
/// After which it is tried once more.
const LATER: Duration = Duration::from_secs(60);

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl App {
    /// A server for a model whose engine is not there yet: [`App::load`] makes it.
    pub fn new(model: Model, options: Options, start: Start) -> Arc<App> {
        let own = || model.chat_template(None).map(Arc::new).map_err(|e| e.to_string());
        let template = options.template.clone().map_or_else(own, Ok);
        Arc::new(App {
            options,
            model,
            template,
            metrics: Metrics::default(),
            phase: Arc::new(watch::Sender::new(Phase::Open)),
            checking: Arc::default(),
            reading: Semaphore::new(READ),
            large: Arc::new(Semaphore::new(LARGE)),
            started: Instant::now(),
            start,
            slot: Mutex::new(Slot::Loading),
            fingerprint: Mutex::default(),
            limit: OnceCell::new(),
            revived: Mutex::default(),
        })
    }

    /// Makes the engine. Takes as long as loading the model does.
    ///
    /// Errors: those of [`Engine::start`], which requests are told from then on as well.
    pub fn load(&self) -> Result<(), Error> {
        let made = (self.start)().and_then(|engine| {
            // read now, so that no request waits for it
            *lock(&self.fingerprint) = Some(engine.fingerprint()?);
            Ok(engine)
        });
        match made {
            Ok(engine) => {
                *lock(&self.slot) = Slot::Ready(engine);
                Ok(())
            }
            Err(e) => {
                *lock(&self.slot) = Slot::Gone(e.to_string());
                Err(e)
            }
        }
    }

    /// Ends the engine, where there is one, after the step in hand, and waits for its thread.
    pub fn close(&self) {
        let slot = lock(&self.slot);
        let engine = if let Slot::Ready(engine) = &*slot { Some(engine.clone()) } else { None };
        drop(slot);
        if let Some(engine) = engine {
            engine.close();
        }
    }

    /// The engine. One that has ended is made again, once in a while; meanwhile requests are asked to come again.
    pub fn engine(self: &Arc<App>) -> Result<Engine, Fault> {
        let mut slot = lock(&self.slot);
        let mut revived = lock(&self.revived);
        let why = match &*slot {
            Slot::Loading => return Err(Fault::unavailable("the model is being loaded")),
            // one that was lost twice may have come back since; one that never was there will not
            Slot::Gone(why) if revived.is_none_or(|at| at.elapsed() < LATER) => {
                return Err(Fault::unavailable(format!("there is no engine: {why}")));
            }
            Slot::Gone(why) => why.clone(),
            Slot::Ready(engine) => match engine.ended() {
                None => return Ok(engine.clone()),
                Some(why) if revived.is_some_and(|at| at.elapsed() < SOON) => {
                    let why = why.to_owned();
                    *slot = Slot::Gone(why.clone());
                    return Err(Fault::unavailable(format!("the engine has ended: {why}")));
                }
                Some(why) => why.to_owned(),
            },
        };
        if *self.phase.borrow() != Phase::Open {
            return Err(Fault::unavailable("the server is ending"));
        }
        *revived = Some(Instant::now());
        log::warn!("the engine has ended ({why}); another is made");
        *slot = Slot::Loading;
        let app = self.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(e) = app.load() {
                log::error!("no engine could be made again: {e}");
            }
            *lock(&app.revived) = Some(Instant::now());
        });
        Err(Fault::unavailable(format!("the engine has ended ({why}); another is being made")))
    }

    /// What the engine is busy with; nothing while there is none.
    pub fn status(&self) -> Status {
        match &*lock(&self.slot) {
            Slot::Ready(engine) => engine.status(),
            _ => Status::default(),
        }
    }

    /// The device, as it names itself; empty while there is none.
    pub fn device(&self) -> String {
        match &*lock(&self.slot) {
            Slot::Ready(engine) => engine.device().to_owned(),
            _ => String::new(),
        }
    }

    /// The line that says what decides results; empty before the model is loaded.
    pub fn fingerprint(&self) -> String {
        lock(&self.fingerprint).clone().unwrap_or_default()
    }

    /// Tokens a second that the device allows one text at most, as far as that is known: measured once, when nothing is at
    /// work that would disturb it.
    pub async fn limit(&self) -> Option<f64> {
        let measure = self.options.limit.clone()?;
        if let Some(limit) = self.limit.get() {
            return *limit;
        }
        let ready = matches!(&*lock(&self.slot), Slot::Ready(_));
        let status = self.status();
        if !ready || status.running + status.waiting > 0 || *self.phase.borrow() != Phase::Open {
            return None;
        }
        let work = || async { tokio::task::spawn_blocking(move || measure()).await.ok().flatten() };
        *self.limit.get_or_init(work).await
    }

    /// Tokens a text may have.
    pub fn context(&self) -> usize {
        match self.options.session.context {
            0 => self.model.context().min(4096),
            n => n,
        }
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
