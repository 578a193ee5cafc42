//! The token loop takes no memory: a counting global allocator, in a test binary of its own.

use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::formats::Container;
use isobit::internals::generate::batch::Part;
use isobit::internals::generate::generation::Reads;
use isobit::internals::generate::pool::{Pool, Sequence};
use isobit::internals::generate::sampling::{Sampler, SamplerOptions};
use isobit::internals::generate::{Generation, Session, SessionOptions, Want};
use isobit::internals::models::{Hyper, PlanOptions};
use isobit::internals::ops::cache::CacheType;
use isobit::{DeviceOptions, Engine, EngineOptions, Guess, Model, Request};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The system's allocator, counting what every thread asks of it.
struct Counting;

static ASKED: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(p, layout) }
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ASKED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(p, layout, size) }
    }
}

static EMBEDDED: &[u8] = include_bytes!("../assets/tiny-stories-Q4_K_M.gguf");

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations while `n` tokens are fed one by one, after one that may warm up: with all logits read, or sampled from what
/// the device selects.
fn allocations(types: (CacheType, CacheType), threads: usize, n: u32, sampler: Option<SamplerOptions>) -> u64 {
    let container = Container::from_bytes("tiny", EMBEDDED.into()).unwrap();
    let hyper = Hyper::read(&container).unwrap();
    let mut device = CpuDevice::new(CpuOptions { threads, ..CpuOptions::default() }).unwrap();
    let plan = PlanOptions { n_ctx: 64, ubatch: 8, k_type: types.0, v_type: types.1, ..PlanOptions::default() };
    pollster::block_on(async {
        let options = SessionOptions { plan, memory: None, fuse: isobit::internals::fuse::Fuse::On };
        let mut session = Session::new(&mut device, &container, &hyper, options, |_| ()).await.unwrap();
        let mut before = 0;
        if let Some(options) = sampler {
            let mut g = Generation::new(&mut session, Sampler::new(options).unwrap(), Reads::Ahead);
            g.prompt(&[1], true).await.unwrap();
            for i in 0..=n {
                g.next(true).await.unwrap();
                if i == 0 {
                    before = ASKED.load(Ordering::Relaxed);
                }
            }
            return ASKED.load(Ordering::Relaxed) - before;
        }
        let mut id = 1u32;
        for i in 0..=n {
            let fed = [id];
            let greedy = |_: usize, logits: &[f32]| {
                let better = |a: usize, b: usize| if logits[b] > logits[a] { b } else { a };
                id = (0..logits.len()).reduce(better).unwrap_or(0) as u32;
                Ok(())
            };
            session.feed(&fed, Want::Last, greedy).await.unwrap();
            if i == 0 {
                before = ASKED.load(Ordering::Relaxed);
            }
        }
        ASKED.load(Ordering::Relaxed) - before
    })
}

/// Allocations while a token of each of 8 sequences is fed in one step, `n` times, after one step that may warm up; with a
/// cache of exactly the bytes that were planned.
fn allocations_of_many(types: (CacheType, CacheType), threads: usize, n: u32) -> u64 {
    const MANY: usize = 8;
    let container = Container::from_bytes("tiny", EMBEDDED.into()).unwrap();
    let hyper = Hyper::read(&container).unwrap();
    let mut device = CpuDevice::new(CpuOptions { threads, ..CpuOptions::default() }).unwrap();
    let (k_type, v_type) = types;
    let (sequences, pool) = (MANY, Some(MANY * 64));
    let plan =
        PlanOptions { n_ctx: 64, ubatch: 16, max_out: MANY, sequences, pool, k_type, v_type, ..PlanOptions::default() };
    pollster::block_on(async {
        let options = SessionOptions { plan, memory: None, fuse: isobit::internals::fuse::Fuse::On };
        let mut session = Session::new(&mut device, &container, &hyper, options, |_| ()).await.unwrap();
        let planned = MANY * 64 * hyper.cache_bytes(k_type, v_type).unwrap();
        assert_eq!(session.built().cache_words * 4, planned);
        let mut pool = Pool::new(session.built());
        let mut texts: [Sequence; MANY] = std::array::from_fn(|_| pool.begin(&[]));
        let (mut before, mut rows) = (0, 0);
        for i in 0..=n {
            let ids: [[u32; 1]; MANY] = std::array::from_fn(|s| [i * 8 + s as u32]);
            texts.iter_mut().for_each(|t| pool.reserve(t, 1).unwrap());
            let parts: [Part; MANY] = std::array::from_fn(|s| Part { sequence: &texts[s], ids: &ids[s], rows: 1 });
            let count = |_, _, _: &[f32]| {
                rows += 1;
                Ok(())
            };
            session.step(&parts, count).await.unwrap();
            texts.iter_mut().zip(&ids).for_each(|(t, ids)| pool.written(t, ids));
            if i == 0 {
                before = ASKED.load(Ordering::Relaxed);
            }
        }
        assert_eq!(rows, (n as usize + 1) * MANY);
        ASKED.load(Ordering::Relaxed) - before
    })
}

/// What an engine of 8 texts asks for while they grow, beyond the pieces of text that it gives away, of how many: from when
/// each has its first token to when all have ended, which is before any has a full chunk of the cache.
fn allocations_of_an_engine(threads: usize, guess: Guess) -> (u64, u64) {
    const MANY: usize = 8;
    const TOKENS: usize = 50;
    let devices = DeviceOptions { threads, ..DeviceOptions::default() };
    let session = isobit::SessionOptions {
        context: 64,
        sequences: MANY,
        rows: MANY * Guess::ROWS,
        ..isobit::SessionOptions::default()
    };
    let options = EngineOptions { device: "cpu".into(), devices, session, queue: MANY };
    let engine = Engine::start(&Model::embedded(), options).unwrap();
    let ask = |i: usize| {
        let sampling = SamplerOptions { seed: i as u64, ..SamplerOptions::default() };
        // a prompt that repeats itself, so that there is something to guess
        let prompt = vec![1, 5 + i as u32, 9, 12, 3, 5 + i as u32, 9, 12];
        let request = Request { max_tokens: TOKENS, sampling, guess, ignore_end: true, ..Request::new(prompt) };
        engine.generate(request).unwrap().into_iter()
    };
    let mut replies: [_; MANY] = std::array::from_fn(ask);
    for reply in &mut replies {
        reply.next().unwrap().unwrap();
    }
    let (before, mut texts, mut tokens) = (ASKED.load(Ordering::Relaxed), 0, MANY);
    for _ in 1..TOKENS {
        for reply in &mut replies {
            let piece = reply.next().unwrap().unwrap();
            texts += u64::from(!piece.text.is_empty());
            tokens += 1;
        }
    }
    let asked = ASKED.load(Ordering::Relaxed) - before;
    assert_eq!(tokens, MANY * TOKENS);
    (asked.saturating_sub(texts), texts)
}

/// Held by a test that counts.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_token_allocates_nothing_and_the_counter_counts() {
    let _alone = ALONE.lock();
    let before = ASKED.load(Ordering::Relaxed);
    assert_eq!(std::hint::black_box(vec![1u8; 100]).len(), 100);
    assert!(ASKED.load(Ordering::Relaxed) > before);
    for types in [(CacheType::F16, CacheType::F16), (CacheType::Q8_0, CacheType::TQ3_1)] {
        for threads in [1, 2, 3] {
            for sampler in [None, Some(SamplerOptions::default())] {
                // the test harness's own thread may take memory meanwhile; what a token takes shows every time
                let asked = (0..5).map(|_| allocations(types, threads, 20, sampler.clone())).min();
                assert_eq!(asked, Some(0), "{types:?}, {threads} threads, {sampler:?}");
            }
            let asked = (0..5).map(|_| allocations_of_many(types, threads, 20)).min();
            assert_eq!(asked, Some(0), "{types:?}, {threads} threads, many sequences");
        }
    }
}

#[test]
fn an_engines_token_allocates_nothing_but_the_text_it_gives_away() {
    let _alone = ALONE.lock();
    for threads in [1, 2] {
        for guess in [Guess::Off, Guess::Ngram] {
            let (more, texts) = (0..5).map(|_| allocations_of_an_engine(threads, guess)).min().unwrap();
            assert!(texts > 200, "{texts} pieces of text");
            // where this thread is held up a reply's queue grows, twice at most for so many tokens
            assert!(more <= 16, "{threads} threads, {guess:?}: {more} beside {texts} pieces of text");
        }
    }
}
