//! `isobit serve`: the HTTP server, from flags to sockets and back to an exit code.

mod limit;

use super::common::{self, CheckpointArgs, EngineArgs, ModelArgs, SpecArgs, note};
use super::interrupt;
use super::sampling::SamplingArgs;
use crate::chat::Template;
use crate::engine::{DeviceOptions, EngineOptions, Head, Model, Pooling, SessionOptions};
use crate::server::{self, App, Options};
use crate::stop::Stop;
use anyhow::{Context, ensure};
use clap::Args;
use limit::Limit;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};

/// Requests that may wait beside those at work.
const QUEUE: usize = 1024;
/// How long the end of the program waits for the step in hand.
const CLOSING: Duration = Duration::from_secs(5);

/// How often the server looks whether Ctrl-C was pressed.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit serve                          # the story model, and a page at http://127.0.0.1:8080\n  isobit serve model.gguf -np 8 -c 8192 --device gpu\n  isobit serve model.gguf --host 0.0.0.0 --api-key-file key.txt\n\n  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'\n\nOpenAI's clients use http://127.0.0.1:8080/v1 as their base, Ollama's http://127.0.0.1:8080. An answer depends on its request\nalone: the same seed gives the same text, whoever asks besides, on any device."
)]
pub struct ServeArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The address to listen on; beyond this machine only with a key
    #[arg(long, default_value = "127.0.0.1", env = "ISOBIT_HOST", hide_env_values = true, value_name = "ADDRESS")]
    host: String,
    /// The port; 0: one that is free
    #[arg(long, default_value = "8080", env = "ISOBIT_PORT", hide_env_values = true)]
    port: u16,
    /// Who knows this key may ask (ISOBIT_API_KEY keeps it out of the list of processes)
    #[arg(long, env = "ISOBIT_API_KEY", hide_env_values = true, value_name = "KEY", conflicts_with = "api_key_file")]
    api_key: Option<String>,
    /// A file whose first line is the key
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Listen beyond this machine without a key
    #[arg(long)]
    insecure: bool,
    /// Another name this server goes by, or whose pages may ask; * for any; may be repeated
    #[arg(long = "allowed-host", value_name = "NAME", value_delimiter = ',')]
    allowed_hosts: Vec<String>,
    /// What the model is called in answers [default: its file's name]
    #[arg(short = 'a', long, value_name = "NAME")]
    alias: Option<String>,
    /// Texts at once (-np); never changes a result
    #[arg(long, default_value = "4", value_name = "N", value_parser = common::whole::<1, 4096>)]
    parallel: usize,
    /// Positions the cache holds for all of them together; 0: the context for each
    #[arg(long, default_value = "0", value_name = "N", value_parser = common::whole::<0, {1 << 28}>)]
    pool: usize,
    /// Make vectors of texts (/v1/embeddings) instead of texts
    #[arg(long, alias = "embedding")]
    embeddings: bool,
    /// A built-in chat template by name, or a file with one, instead of the model's own
    #[arg(long, value_name = "NAME|FILE")]
    chat_template: Option<String>,
    /// Tokens of an answer where a request does not say; -1: until it ends
    #[arg(short = 'n', long = "predict", default_value = "-1", value_name = "N", allow_negative_numbers = true)]
    n: i64,
    /// Keep every request and its answer here, to be replayed and compared
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Bytes of a request, at most
    #[arg(long, default_value = "8388608", value_name = "BYTES", hide = true)]
    max_body: usize,
    /// auto, cpu, cpu:LEVEL, gpu, an index of `isobit devices`, part of a name; A,B: layers on each
    #[arg(short = 'd', long, alias = "devices", default_value = "auto", env = "ISOBIT_DEVICE", hide_env_values = true)]
    #[arg(value_parser = common::devices)]
    device: String,
    /// Print a JSON object when the model is loaded: address, model, device
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    spec: SpecArgs,
    #[command(flatten)]
    checkpoints: CheckpointArgs,
}

impl ServeArgs {
    /// The key that is asked for.
    fn key(&self) -> anyhow::Result<Option<String>> {
        let key = match &self.api_key_file {
            Some(path) => {
                let text =
                    std::fs::read_to_string(path).with_context(|| format!("--api-key-file {}", path.display()))?;
                Some(text.lines().next().unwrap_or_default().trim().to_owned())
            }
            None => self.api_key.clone(),
        };
        ensure!(key.as_deref() != Some(""), "the key is empty");
        Ok(key)
    }

    /// Listens, of a runtime's thread. The queue of connections that wait to be taken is as long as there may be connections:
    /// one that finds it full is dropped by the system, which the client is not told.
    fn listen(&self, key: bool) -> anyhow::Result<TcpListener> {
        use std::net::ToSocketAddrs;
        let place = || format!("--host {} --port {}", self.host, self.port);
        let addresses: Vec<SocketAddr> =
            (self.host.as_str(), self.port).to_socket_addrs().with_context(place)?.collect();
        let local = addresses.iter().all(|a| a.ip().is_loopback());
        ensure!(
            local || key || self.insecure,
            "--host {} lets others in: give them a key (--api-key-file), or say --insecure",
            self.host
        );
        let bind = |address: &SocketAddr| {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            // as the standard library has it: elsewhere this lets a server begin where one has just ended
            socket.set_reuseaddr(cfg!(not(windows)))?;
            socket.bind(*address)?;
            socket.listen(server::CONNECTIONS as u32)
        };
        let mut failed = None;
        for address in &addresses {
            match bind(address) {
                Ok(listener) => return Ok(listener),
                Err(e) => failed = Some(e),
            }
        }
        Err(failed.unwrap_or_else(|| std::io::ErrorKind::AddrNotAvailable.into())).with_context(place)
    }

    /// Names that requests may use for this server.
    fn hosts(&self) -> Vec<String> {
        let own = ["localhost", "127.0.0.1", "::1", self.host.as_str()].map(str::to_lowercase);
        own.into_iter().chain(self.allowed_hosts.iter().map(|h| h.to_lowercase())).collect()
    }

    fn template(&self, model: &Model) -> anyhow::Result<Option<Arc<Template>>> {
        let Some(name) = &self.chat_template else { return Ok(None) };
        Ok(Some(Arc::new(super::chat::template_of(name, model)?)))
    }

    fn options(&self, model: &Model, key: Option<String>) -> anyhow::Result<Options> {
        let file = model.file().file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let alias = self.alias.clone().unwrap_or_else(|| file.trim_matches(['<', '>']).to_owned());
        let any = self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
        let head = if self.embeddings { Head::Hidden } else { Head::Logits };
        // before the model is loaded
        ensure!(
            self.embeddings || !model.is_encoder(),
            "{}: the model makes vectors of texts and generates none: serve it with --embeddings",
            model.file().display()
        );
        let context = self.engine.n_ctx(model.hyper());
        // an engine of one text does not tell what it is busy with
        let sequences = self.parallel.max(2);
        let pool = if self.pool > 0 { self.pool } else { context * self.parallel };
        let options = self.engine.options(context, self.spec.rows(sequences));
        Ok(Options {
            alias,
            hosts: self.hosts(),
            origins: self.allowed_hosts.iter().map(|h| h.to_lowercase()).collect(),
            addresses: any,
            api_key: key,
            sampling: self.sampling.options_for(model)?,
            max_tokens: usize::try_from(self.n).unwrap_or(usize::MAX),
            parallel: self.parallel,
            session: SessionOptions { sequences, pool, head, checkpoints: self.checkpoints.ctx_checkpoints, ..options },
            template: self.template(model)?,
            embeddings: self.embeddings,
            pooling: if self.embeddings { model.pooling()? } else { Pooling::default() },
            record: self.record.clone(),
            limit: None,
            guess: self.spec.guess(),
            body: self.max_body,
        })
    }
}

pub fn run(a: ServeArgs) -> anyhow::Result<ExitCode> {
    let key = a.key()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // before the model is loaded, which may take minutes
    let listener = runtime.block_on(async { a.listen(key.is_some()) })?;
    let model = a.model.model()?;
    let options = a.options(&model, key)?;
    let hold = interrupt::hold();
    // texts that are at work when the server is asked to end come to theirs
    let devices = DeviceOptions { stop: Stop::default(), ..a.engine.device_options() };
    let engine = EngineOptions { device: a.engine.device(&a.device), devices, session: options.session, queue: QUEUE };
    let limit = Arc::new(Limit::new(model.clone(), engine));
    let measured = limit.clone();
    let options = Options { limit: Some(Arc::new(move || measured.measure())), ..options };
    let app = App::new(model, options, Box::new(move || limit.start()));
    let served = runtime.block_on(serve(app, listener, a.json));
    // what waits for a thread that is busy for minutes waits no longer
    runtime.shutdown_background();
    drop(hold);
    served
}

/// Serves until it is asked to end.
async fn serve(app: Arc<App>, listener: TcpListener, json: bool) -> anyhow::Result<ExitCode> {
    let address = listener.local_addr()?;
    let shown = if address.ip().is_unspecified() { "127.0.0.1".into() } else { address.ip().to_string() };
    let shown = if shown.contains(':') { format!("[{shown}]") } else { shown };
    let url = format!("http://{shown}:{}", address.port());
    note!("listening on {url}");
    let (loaded, load) = (app.clone(), Arc::new(tokio::sync::Notify::new()));
    let failed = load.clone();
    let loading = tokio::task::spawn_blocking(move || {
        let status = common::Status::new("loading the model");
        let result = loaded.load();
        drop(status);
        match &result {
            Ok(()) => {
                let (alias, device, n) = (&loaded.options.alias, loaded.device(), loaded.options.parallel);
                note!("{alias} on {device}, {n} texts at once");
                let fingerprint = loaded.fingerprint();
                let line = serde_json::json!({
                    "url": url, "model": alias, "device": device, "parallel": n, "fingerprint": fingerprint,
                });
                if json && writeln!(std::io::stdout(), "{line}").is_err() {
                    note!("warning: nobody reads stdout");
                }
            }
            Err(_) => failed.notify_one(),
        }
        result
    });
    let stop = async {
        tokio::select! {
            () = asked() => {}
            // without a model there is nothing to serve
            () = load.notified() => {}
        }
    };
    server::serve(listener, server::router(app.clone()), app.phase.clone(), stop).await;
    // a driver is not to be unloaded under the engine's thread
    let closed = tokio::task::spawn_blocking(move || app.close());
    let _ = tokio::time::timeout(CLOSING, closed).await;
    if loading.is_finished() {
        loading.await??;
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits until somebody asks the program to end. Whoever asks twice ends it at once.
async fn asked() {
    let pressed = async {
        while !interrupt::stop().asked() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        () = pressed => {}
        () = terminated() => {
            note!("stopping; another signal ends at once");
            tokio::spawn(async {
                terminated().await;
                interrupt::leave();
            });
        }
    }
}

/// Waits for SIGTERM, where there are signals.
#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut signal) => drop(signal.recv().await),
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}
