//! isobit runs quantised language models with the same bits on every device.
//!
//! ```
//! use isobit::{Devices, Model, SessionOptions};
//! use std::io::Write;
//! use std::ops::ControlFlow;
//!
//! fn main() -> Result<(), isobit::Error> {
//!     // the story model that the library carries; `Model::open` takes a GGUF file or a Hugging Face directory
//!     let model = Model::embedded();
//!     let device = Devices::default().open("cpu")?;
//!     let mut session = model.session(device, SessionOptions::default())?;
//!     let output = session.generate("Once upon a time", |piece| {
//!         print!("{}", piece.text);
//!         let _ = std::io::stdout().flush();
//!         if piece.text.contains('.') { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
//!     })?;
//!     // whoever has this line and the seed gets this text, on any device
//!     println!("\n{} tokens, {:?}, {}", output.ids.len(), output.ended, session.fingerprint()?);
//!     Ok(())
//! }
//! ```
//!
//! A [`Session`] is one sequence on one device, on the thread that made it. An [`Engine`] is a thread with a session, which
//! takes requests from any other:
//!
//! ```
//! use isobit::{Engine, EngineOptions, Model, Request};
//!
//! # fn main() -> Result<(), isobit::Error> {
//! let options = EngineOptions { device: "cpu".into(), ..EngineOptions::default() };
//! let engine = Engine::start(&Model::embedded(), options)?;
//! let request = Request { max_tokens: 8, ..Request::new("The king") };
//! let whole = engine.generate(request.clone())?.wait()?;
//! // or token by token; a reply is a stream as well, and dropping it cancels
//! let mut text = String::new();
//! for piece in engine.generate(request)? {
//!     text += &piece?.text;
//! }
//! assert_eq!(text, whole.text);
//! # Ok(())
//! # }
//! ```
//!
//! Logits, for scoring and for other samplers:
//!
//! ```
//! use isobit::{Devices, Model, SessionOptions};
//!
//! # fn main() -> Result<(), isobit::Error> {
//! let model = Model::embedded();
//! let mut session = model.session(Devices::default().open("cpu")?, SessionOptions::default())?;
//! let logits = session.logits("The king had three")?;
//! let best = (0..logits.len()).reduce(|a, b| if logits[b] > logits[a] { b } else { a });
//! assert_eq!(logits.len(), model.vocabulary());
//! println!("after it comes {:?}", best.and_then(|id| model.tokenizer().ok()?.token_text(id as u32)));
//! # Ok(())
//! # }
//! ```
//!
//! And whether two devices agree on every word of every buffer (`isobit verify` is this with every device there is):
//!
//! ```
//! use isobit::{Devices, Model, SessionOptions};
//!
//! # fn main() -> Result<(), isobit::Error> {
//! let devices = Devices::default();
//! let two = vec![devices.open("cpu:scalar")?, devices.open("cpu")?];
//! let report = Model::embedded().verify(two, SessionOptions::default(), 9, 2)?;
//! assert!(report.ok() && report.words > 100_000, "{:?}", report.first);
//! # Ok(())
//! # }
//! ```
//!
//! Cargo features, all on by default: `gpu` is the wgpu device, without which the library runs on CPUs alone; `cli` is the
//! program, with the pages and plots that only it draws; `server` is the HTTP server; `hub` fetches models.

mod engine;

#[path = ""]
pub mod internals {
    //! The rooms below the front door, for this project's own program, tests, benchmarks and studies.
    //!
    //! **These are no promise.** Whatever is in here may change or go in any version, without a word in the change log: its
    //! types are as wide as the rooms need them, and some let a caller break rules that the front door keeps. What is
    //! missing at the front door is worth asking for.
    //!
    //! The map, in the order a reader should take it (`docs/architecture.md` has the arrows):
    //!
    //! - [`blocks`]: block layouts of the weight formats, their decoders and encoders, and packing for the kernels
    //! - [`ops`]: one plain Rust twin per operation; `ops::exact` holds the arithmetic every twin and shader shares
    //! - [`simd`]: the same operations per instruction set, bit-equal to the twins
    //! - [`limits`]: what this machine can do at most, measured, and what the system tells of it
    //! - [`store`]: small files kept between runs, given by whoever opens a device
    //! - [`record`]: a model's work as data (`Recording`), and the `Device` trait that runs it
    //! - [`fuse`]: fewer commands for the same bits
    //! - [`cases`]: small runs of every operation, for tests and timing
    //! - [`cpu`]: the CPU device
    //! - `host`: the wgpu device (feature `gpu`)
    //! - [`split`]: several devices as one, each with layers of its own
    //! - [`formats`]: GGUF, safetensors and BUMP files, untrusted bytes to named tensors
    //! - [`models`]: config and weights to Recordings
    //! - [`quantize`]: one model file into another, block by block
    //! - [`generate`]: tokens, sampling, sessions
    //! - [`grammar`]: answers that keep to a schema or a grammar
    //! - [`chat`]: templates, and what an answer holds besides text
    //! - [`receipts`]: what a run was, to be checked and replayed
    //! - `hub`: models by name (feature `cli`)
    //! - `server`: the HTTP server (feature `server`)
    //! - [`random`]: one generator of random numbers
    //! - [`stop`]: asking long work to stop
    //! - [`stats`]: the quantiles that intervals are made of
    //! - [`study`]: what quantising does to weights and to predictions
    //! - [`mod@bench`]: tests, rows, comparisons and pages of `isobit bench`
    //! - `cli`: the command line (feature `cli`)

    pub mod bench;
    pub mod blocks;
    pub mod cases;
    pub mod chat;
    #[cfg(feature = "cli")]
    pub mod cli;
    pub mod cpu;
    pub mod formats;
    pub mod fuse;
    pub mod generate;
    pub mod grammar;
    #[cfg(feature = "cli")]
    pub mod hub;
    pub mod limits;
    pub mod models;
    pub mod ops;
    pub mod quantize;
    pub mod random;
    pub mod receipts;
    pub mod record;
    #[cfg(feature = "server")]
    pub mod server;
    pub mod simd;
    pub mod split;
    pub mod stats;
    pub mod stop;
    pub mod store;
    pub mod study;

    #[cfg(feature = "gpu")]
    #[path = "../host/mod.rs"]
    pub mod host;
}

// so that a room is `crate::blocks` in every other
use internals::*;

pub use cpu::Codebooks;
pub use engine::{
    ARITHMETIC, About, Activations, Advance, Answer, Cause, Chain, Compiled, Device, DeviceOptions, Devices, Embedding,
    Ended, Engine, EngineOptions, Error, Generating, Grammar, Guess, Head, Logprobs, Model, Output, Piece, Pieces,
    Pooling, Prompt, Reads, Reply, Request, Score, Session, SessionOptions, Status,
};
pub use formats::LoadMode;
pub use fuse::Fuse;
pub use generate::sampling::SamplerOptions;
pub use generate::tokenizer::Tokenizer;
pub use generate::verify::Report;
pub use models::Recent;
pub use ops::cache::CacheType;
pub use record::Stats;
pub use stop::Stop;
pub use store::{Store, Tune};
