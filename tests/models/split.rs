//! One model over several devices: wherever its layers are cut, the logits are those of one device, and each device holds
//! what its own layers need.

use crate::checkpoint::model;
use crate::common::{boxed_gpus, cpu};
use futures::executor::block_on;
use futures::future::LocalBoxFuture;
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::batch::Part;
use isobit::internals::generate::pool::{Pool, Sequence};
use isobit::internals::generate::{Session, SessionOptions, Want};
use isobit::internals::models::{Head, Hyper, PlanOptions};
use isobit::internals::ops::cache::CacheType;
use isobit::internals::record::{
    Best, BufId, Device as Runs, DeviceInfo, Part as Rows, Plan, Role, Stats, Step, WeightSource,
};
use isobit::internals::simd::Level;
use isobit::internals::split::{Member, Split, SplitError};
use isobit::{
    Device, DeviceOptions, Devices, Engine, EngineOptions, Guess, Model, Request, SamplerOptions, Session as Front,
    SessionOptions as FrontOptions,
};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::rc::Rc;

const QWEN2: &str = "--preset qwen2-tiny --layers 4";
const GEMMA3: &str =
    "--preset tiny --arch gemma3 --tied --layers 7 --window 20 --head-dim 32 --dim 288 --ffn 320 --type q8_0";
const DEEPSEEK: &str = "--preset tiny --arch deepseek2 --layers 4 --latent 0,96,32,32,32 --experts 6 --used 3 --expert-ffn 100 \
                        --shared 100 --dense 1 --type f16";
const QWEN3MOE: &str = "--preset tiny --arch qwen3moe --layers 4 --experts 6 --used 3 --expert-ffn 100 --type f16";

fn open(path: &Path) -> (Container, Hyper) {
    let c = Container::open(path, LoadMode::Read).unwrap_or_else(|e| panic!("{e}"));
    let h = Hyper::read(&c).unwrap_or_else(|e| panic!("{e:#}"));
    (c, h)
}

fn options(cache: CacheType, ubatch: usize) -> SessionOptions {
    let plan = PlanOptions { n_ctx: 256, ubatch, max_out: 4, k_type: cache, v_type: cache, ..PlanOptions::default() };
    SessionOptions { plan, memory: None, fuse: Fuse::On }
}

fn split(devices: Vec<Box<dyn Runs>>, counts: &[usize]) -> Split {
    let members = devices.into_iter().map(|device| Member { device, memory: None }).collect();
    Split::new(members, Some(counts.to_vec())).unwrap_or_else(|e| panic!("{e}"))
}

fn scalar() -> Box<dyn Runs> {
    Box::new(cpu(None, 0))
}

fn best() -> Box<dyn Runs> {
    Box::new(cpu(Some(Level::detect()), 0))
}

fn portable() -> Box<dyn Runs> {
    Box::new(cpu(Some(Level::Portable), 0))
}

/// Every row of logits of a prompt in uneven steps and of single tokens after it, and what is selected of the last.
fn logits(device: &mut dyn Runs, (c, h): &(Container, Hyper), o: SessionOptions) -> Vec<u32> {
    let name = device.info().name;
    block_on(async {
        let mut s = Session::new(device, c, h, o, |_| {}).await?;
        let mut words = Vec::new();
        let mut at = 0u64;
        let mut ids = |n: u64| -> Vec<u32> {
            at += n;
            (at - n..at).map(|i| ((i * i * 7919 + i * 31 + 3) % h.vocab as u64) as u32).collect()
        };
        for (n, wanted) in [(24, 1), (5, 3), (3, 1), (70, 2), (1, 1), (1, 1), (6, 6), (1, 1), (1, 1)] {
            let rows = |_: usize, row: &[f32]| {
                words.extend(row.iter().map(|v| v.to_bits()));
                Ok(())
            };
            s.feed(&ids(n), Want::From((n - wanted) as usize), rows).await?;
        }
        if s.ahead() > 0 {
            s.start(&ids(1), 8).await?;
            let mut best = Vec::new();
            s.best(&mut best).await?;
            words.extend(best.iter().flat_map(|b| [b.logit.to_bits(), b.id]));
        }
        anyhow::Ok(words)
    })
    .unwrap_or_else(|e| panic!("{name}: {e:#}"))
}

/// The model cut at every layer over pairs of devices that are made anew each time.
fn cut_everywhere(args: &str, cache: CacheType, pairs: &[&dyn Fn() -> Vec<Box<dyn Runs>>]) {
    let (_dir, path) = model(args);
    let (read, o) = (open(&path), options(cache, 48));
    let want = logits(best().as_mut(), &read, o);
    assert!(want.len() > 15 * read.1.vocab && read.1.layers > 2);
    for devices in pairs {
        for n in 1..read.1.layers {
            let mut both = split(devices(), &[n, read.1.layers - n]);
            let name = both.info().name;
            let got = logits(&mut both, &read, o);
            assert!(got == want, "{args}: {n} layers of {} on the first of {name}", read.1.layers);
            let parts: Vec<_> = both.parts().collect();
            assert_eq!((parts[0].layers.clone(), parts[1].layers.clone()), (0..n, n..read.1.layers));
            let turns: Vec<_> = both.turns().collect();
            let [x] = turns[1].handed[..] else { panic!("{args}: {:?} go to the second", turns[1].handed) };
            assert_eq!(x.row, Some(read.1.dim), "the hidden state by rows");
        }
        println!("{args}: {} cuts of {}", read.1.layers - 1, split(devices(), &[1, 1]).info().name);
    }
}

#[test]
fn a_model_may_be_cut_at_any_layer() {
    let pairs: [&dyn Fn() -> Vec<Box<dyn Runs>>; 2] = [&|| vec![scalar(), best()], &|| vec![best(), portable()]];
    for (args, cache) in
        [(QWEN2, CacheType::TQ3_1), (GEMMA3, CacheType::F16), (QWEN3MOE, CacheType::Q8_0), (DEEPSEEK, CacheType::F16)]
    {
        cut_everywhere(args, cache, &pairs);
    }
}

/// Layers that read the keys and values of earlier ones lie with them; before these a model may be cut, and what goes over goes
/// by rows.
#[test]
fn layers_that_share_keys_stay_together() {
    for (args, handed) in [
        ("--arch gemma4 --head-dim 64 --uneven 32,2,3,2,2,32,0", 2),
        // the streams besides
        ("--arch gemma3n --head-dim 64 --uneven 64,2,3,2,2,32,0", 3),
    ] {
        let (_dir, path) = model(&format!("--preset tiny {args} --tied --layers 6 --window 20 --dim 288 --type f16"));
        let (read, o) = (open(&path), options(CacheType::F16, 48));
        let want = logits(best().as_mut(), &read, o);
        for n in 1..6 {
            let mut both = split(vec![best(), portable()], &[n, 6 - n]);
            // layers 4 and 5 read what 3 and 2 have
            if n <= 2 {
                assert!(logits(&mut both, &read, o) == want, "{args}: {n} layers on the first");
                let turns: Vec<_> = both.turns().collect();
                let rows: Vec<_> = turns[1].handed.iter().map(|x| x.row.is_some()).collect();
                assert_eq!(rows, vec![true; handed], "{args}");
                continue;
            }
            let error = block_on(async { Session::new(&mut both, &read.0, &read.1, o, |_| {}).await.map(|_| ()) });
            let error = format!("{:#}", error.expect_err("it may not be cut there"));
            assert!(error.contains("is used by parts 1 and 2"), "{args}: {n}: {error}");
        }
    }
}

#[test]
fn of_every_architecture_the_hidden_state_alone_is_handed_over() {
    let gemma2 = "--preset tiny --arch gemma2 --tied --layers 4 --window 20 --head-dim 32 --dim 288 --ffn 320";
    let glm4moe = "--preset tiny --arch glm4moe --layers 3 --experts 6 --used 2 --expert-ffn 96 --shared 96 --dense 1";
    for args in [
        "--preset tiny",
        DEEPSEEK,
        "--preset phi3-tiny",
        "--preset qwen3-tiny",
        "--preset chatglm-tiny",
        "--preset tiny --arch olmo2 --layers 5 --window 20",
        "--preset tiny --arch exaone4 --layers 5 --window 20",
        "--preset tiny --arch glm4 --layers 2",
        gemma2,
        "--preset tiny --arch smollm3 --layers 5",
        "--preset tiny --arch granite",
        "--preset tiny --experts 5 --used 2",
        "--preset tiny --arch qwen2moe --experts 6 --used 3 --expert-ffn 96 --shared 160",
        "--preset tiny --arch granitemoe --experts 5 --used 3",
        glm4moe,
        "--preset tiny --arch starcoder2 --window 20",
        "--preset tiny --arch stablelm --larger --type q8_0",
        "--preset tiny --arch cohere2 --tied --layers 5 --window 20",
        "--preset tiny --arch command-r --larger --type f16",
        "--preset tiny --arch phi2 --dim 320 --heads 4 --kv-heads 4",
        "--preset tiny --arch gpt2 --tied --kv-heads 4",
        "--preset tiny --arch falcon --tied --kv-heads 1",
    ] {
        let (_dir, path) = model(args);
        let read = open(&path);
        for (fuse, cache) in [(Fuse::On, CacheType::TQ3_1), (Fuse::Off, CacheType::F16)] {
            // whose heads of 80 have no whole blocks
            let cache = if args.contains("phi2") { CacheType::F16 } else { cache };
            let o = SessionOptions { fuse, ..options(cache, 48) };
            let mut two = split(vec![best(), portable()], &[1, read.1.layers - 1]);
            assert!(logits(&mut two, &read, o) == logits(best().as_mut(), &read, o), "{args}");
            let handed = &two.turns().nth(1).expect("two turns").handed;
            let [x] = handed[..] else { panic!("{args}, {fuse:?}: {handed:?} are handed over") };
            assert_eq!(x.row, Some(read.1.dim), "{args}");
        }
    }
}

/// Mixtures of every kind: with one that all tokens meet, dense first layers, biases, convolutions and delta nets between.
const MIXTURES: [&str; 7] = [
    QWEN3MOE,
    DEEPSEEK,
    "--preset tiny --arch qwen2moe --layers 3 --experts 6 --used 3 --expert-ffn 96 --shared 160",
    "--preset tiny --arch glm4moe --layers 4 --experts 6 --used 2 --expert-ffn 96 --shared 96 --dense 1 --type q8_0",
    "--preset tiny --arch gpt-oss --layers 4 --window 20 --experts 6 --used 3 --expert-ffn 96",
    "--preset tiny --arch lfm2moe --layers 4 --experts 6 --used 2 --expert-ffn 40 --dense 1 --type f16",
    "--preset tiny --arch qwen35moe --layers 4 --head-dim 32 --experts 6 --used 3 --expert-ffn 40 --shared 72",
];

/// Layers of these devices, and the experts of the first `layers` on another.
fn apart(devices: Vec<Box<dyn Runs>>, counts: &[usize], experts: Box<dyn Runs>, layers: usize) -> Split {
    split(devices, counts).with_experts(Member { device: experts, memory: None }, layers)
}

/// Layers of a model that have experts, by its tensors.
fn with_experts(c: &Container) -> usize {
    c.tensors.iter().filter(|t| t.name.ends_with("ffn_down_exps.weight")).count()
}

/// The names of weights in a plan that are of experts.
fn experts_in(plan: &Plan) -> Vec<&str> {
    let names = plan.buffers.iter().filter(|b| matches!(b.role, Role::Weight(_))).map(|b| b.name.as_str());
    names.filter(|name| name.contains("_exps")).collect()
}

#[test]
fn experts_on_another_device_change_nothing() {
    for args in MIXTURES {
        let (_dir, path) = model(args);
        let (read, layers) = (open(&path), with_experts(&open(&path).0));
        for (fuse, cache, n) in [(Fuse::On, CacheType::F16, usize::MAX), (Fuse::Off, CacheType::Q8_0, 1)] {
            let o = SessionOptions { fuse, ..options(cache, 48) };
            let want = logits(best().as_mut(), &read, o);
            let mut two = apart(vec![best()], &[read.1.layers], portable(), n);
            assert!(logits(&mut two, &read, o) == want, "{args}, {fuse:?}");
            let parts: Vec<_> = two.parts().collect();
            let (on, off) = (experts_in(&parts[1].plan), experts_in(&parts[0].plan));
            let has = |names: &[&str]| names.iter().filter(|name| name.contains("ffn_down_exps.weight")).count();
            assert_eq!((has(&on), has(&off)), (n.min(layers), layers - n.min(layers)), "{args}: {on:?}, {off:?}");
            assert!(parts[1].plan.buffers.iter().all(|b| !matches!(b.role, Role::Cache | Role::State)), "{args}");
            assert_eq!(two.turns().count(), 2 * n.min(layers) + 1, "{args}");
            // what goes over is of the tokens that there are
            for h in two.turns().flat_map(|t| &t.handed) {
                assert!(h.row.is_some(), "{args}: all of buffer {} is handed over", h.buffer);
            }
        }
        println!("{args}: {layers} layers with experts");
    }
}

#[test]
fn experts_of_several_devices_and_of_many_sequences_change_nothing() {
    let (_dir, path) = model(QWEN3MOE);
    let (read, o) = (open(&path), options(CacheType::F16, 48));
    let want = logits(best().as_mut(), &read, o);
    for (counts, n) in [([1, 3], usize::MAX), ([3, 1], 2), ([2, 2], 3)] {
        let mut three = apart(vec![best(), portable()], &counts, scalar(), n);
        assert!(logits(&mut three, &read, o) == want, "{counts:?}, {n}");
    }
    // of a model without any, the device has nothing to do
    let (_dir, path) = model(QWEN2);
    let read = open(&path);
    let mut none = apart(vec![best()], &[read.1.layers], portable(), usize::MAX);
    assert!(logits(&mut none, &read, o) == logits(best().as_mut(), &read, o));
    assert_eq!(none.parts().count(), 1);
}

#[test]
fn a_wrong_word_of_experts_is_seen_and_verify_compares_each_command() {
    let (_dir, path) = model(QWEN3MOE);
    let (read, o) = (open(&path), options(CacheType::F16, 48));
    let want = logits(best().as_mut(), &read, o);
    let with = |fault| {
        let experts = Told { fault, ..Told::new(portable()) };
        logits(&mut apart(vec![best()], &[4], Box::new(experts), usize::MAX), &read, o)
    };
    assert!(with(None) == want);
    for n in [0, 5, 21] {
        assert!(with(Some(n)) != want, "the signs of hand-over {n}");
    }
    let file = Model::open(&path).unwrap_or_else(|e| panic!("{e}"));
    let plain = || Device::custom(portable(), true);
    let experts = || Device::custom(Box::new(apart(vec![best()], &[4], portable(), 3)), true);
    let session = FrontOptions { context: 128, ..FrontOptions::default() };
    let alone = file.verify(vec![plain(), Device::custom(best(), true)], session, 40, 3).unwrap();
    let two = file.verify(vec![plain(), experts()], session, 40, 3).unwrap();
    assert!(two.ok(), "{:?}", two.first);
    assert_eq!((alone.words, alone.commands, alone.digest), (two.words, two.commands, two.digest));
}

#[cfg(feature = "gpu")]
mod gpu {
    use super::*;

    #[test]
    fn experts_on_the_cpu_and_the_rest_on_an_adapter_change_nothing() {
        for backend in ["Vulkan", "Gl"] {
            if adapter(backend).is_none() {
                continue;
            }
            for args in [MIXTURES[0], MIXTURES[3], MIXTURES[5]] {
                let (_dir, path) = model(args);
                let (read, o) = (open(&path), options(CacheType::F16, 48));
                let rest = adapter(backend).expect("it was there");
                let mut two = apart(vec![rest], &[read.1.layers], best(), usize::MAX);
                assert!(logits(&mut two, &read, o) == logits(best().as_mut(), &read, o), "{args}, {backend}");
            }
        }
    }

    #[test]
    fn devices_keep_experts_in_main_memory_where_asked() {
        if adapter("Vulkan").is_none() {
            return;
        }
        let (_dir, path) = model(QWEN3MOE);
        let file = Model::open(&path).unwrap_or_else(|e| panic!("{e}"));
        let of = |word: &str, cpu_experts| {
            let devices = Devices::new(DeviceOptions { threads: 2, cpu_experts, ..DeviceOptions::default() });
            let device = devices.open(word).unwrap_or_else(|e| panic!("{e}"));
            let adapter = device.adapter().is_some();
            let mut s = file.session(device, FrontOptions::default()).unwrap_or_else(|e| panic!("{e}"));
            let r = Request { max_tokens: 9, ignore_end: true, ..Request::new("a dragon") };
            (s.device().to_string(), adapter, ids(&mut s, &r))
        };
        let (one, two) = (of("cpu", usize::MAX), of("vulkan", 3));
        assert!(!one.0.contains("experts") && !one.1, "{}: all of it is on the CPU anyway", one.0);
        assert!(two.0.contains("[Vulkan], experts on CPU (") && two.1, "{}", two.0);
        let three = of("vulkan+cpu@3+1", 2);
        assert!(three.0.contains("[Vulkan] + CPU (") && three.0.contains(", experts on CPU ("), "{}", three.0);
        assert!(one.2 == two.2 && one.2 == three.2);
    }

    /// Adapters by how their name ends, each opened anew.
    fn adapter(backend: &str) -> Option<Box<dyn Runs>> {
        boxed_gpus(None).into_iter().find(|d| d.info().name.contains(backend))
    }

    #[test]
    fn a_model_may_be_cut_at_any_layer_between_cpu_and_adapter() {
        if adapter("Vulkan").is_none() {
            return;
        }
        let vulkan = || adapter("Vulkan").expect("it was there");
        let pairs: [&dyn Fn() -> Vec<Box<dyn Runs>>; 2] = [&|| vec![best(), vulkan()], &|| vec![vulkan(), best()]];
        cut_everywhere(QWEN2, CacheType::TQ3_1, &pairs);
        cut_everywhere(GEMMA3, CacheType::F16, &pairs[..1]);
        cut_everywhere(QWEN3MOE, CacheType::Q8_0, &pairs[1..]);
    }

    #[test]
    fn a_model_may_be_cut_at_any_layer_between_adapters_and_over_one_twice() {
        let (Some(_), Some(_)) = (adapter("Vulkan"), adapter("Gl")) else { return };
        let two = || vec![adapter("Vulkan").expect("it was there"), adapter("Gl").expect("it was there")];
        for args in [QWEN2, GEMMA3, QWEN3MOE] {
            cut_everywhere(args, CacheType::F16, &[&two]);
        }
        let (_dir, path) = model(QWEN2);
        let (read, o) = (open(&path), options(CacheType::Q8_0, 48));
        let want = logits(best().as_mut(), &read, o);
        let twice = two().into_iter().zip(two()).map(|(a, _)| a).chain([best()]).collect();
        assert!(logits(&mut split(twice, &[1, 2, 1]), &read, o) == want, "three devices of three kinds");
        let same = vec![adapter("Vulkan").expect("it was there"), adapter("Vulkan").expect("it was there")];
        assert!(logits(&mut split(same, &[3, 1]), &read, o) == want, "one adapter twice");
    }
}

#[test]
fn three_devices_give_what_one_gives() {
    let (_dir, path) = model(GEMMA3);
    let (read, o) = (open(&path), options(CacheType::F16, 48));
    let want = logits(best().as_mut(), &read, o);
    for counts in [[1, 1, 5], [2, 3, 2], [5, 1, 1]] {
        let mut three = split(vec![scalar(), best(), portable()], &counts);
        assert!(logits(&mut three, &read, o) == want, "{counts:?}");
    }
    // an unfused plan, and one of small bindings and so of several pages
    let plain = SessionOptions { fuse: Fuse::Off, ..o };
    assert!(logits(&mut split(vec![best(), best(), best()], &[3, 3, 1]), &read, plain) == want);
    let small = PlanOptions { max_binding_words: 1 << 14, ..o.plan };
    let mut paged = split(vec![best(), scalar()], &[3, 4]);
    assert!(logits(&mut paged, &read, SessionOptions { plan: small, ..o }) == want);
    assert_eq!(paged.turns().nth(1).expect("two turns").handed.len(), 1, "pages hand nothing over besides");
}

/// Bytes by tensor and part of it of all that a plan loads, and bytes of its cache.
fn held(plans: &[&Plan]) -> (BTreeMap<String, u64>, u64) {
    let (mut weights, mut cache) = (BTreeMap::new(), 0);
    for b in plans.iter().flat_map(|p| &p.buffers) {
        for piece in b.role.pieces() {
            let words = match piece.part {
                part @ (Rows::Vector { .. } | Rows::Rows { .. }) => part.words().0 as u64,
            };
            *weights.entry(format!("{piece:?}")).or_insert(0) += words * 4;
        }
        if b.role == Role::Cache {
            cache += b.words as u64 * 4;
        }
    }
    (weights, cache)
}

/// A device that says what it was given to load.
struct Told {
    inner: Box<dyn Runs>,
    plans: Rc<std::cell::RefCell<Vec<Plan>>>,
    /// whether it says that it returns early, and the steps it was started with
    early: Option<Rc<Cell<usize>>>,
    /// which of the writes to it has its words' first bits flipped
    fault: Option<usize>,
}

impl Told {
    fn new(inner: Box<dyn Runs>) -> Told {
        Told { inner, plans: Rc::default(), early: None, fault: None }
    }
}

impl Runs for Told {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
    fn load<'a>(&'a mut self, plan: Plan, weights: &'a mut dyn WeightSource) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.plans.borrow_mut().push(plan.clone());
        self.inner.load(plan, weights)
    }
    fn run<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<Vec<f32>>> {
        self.inner.run(step)
    }
    fn overlaps(&self) -> bool {
        self.early.is_some()
    }
    fn start<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.early.iter().for_each(|n| n.set(n.get() + 1));
        self.inner.start(step)
    }
    fn ahead(&self) -> usize {
        self.inner.ahead()
    }
    fn submit<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.inner.submit(step)
    }
    fn collect<'a>(&'a mut self, best: &'a mut Vec<Best>) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.inner.collect(best)
    }
    fn begin<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.inner.begin(step)
    }
    fn run_one(&mut self, command: usize) -> LocalBoxFuture<'_, anyhow::Result<()>> {
        self.inner.run_one(command)
    }
    fn read(&mut self, buffer: BufId) -> LocalBoxFuture<'_, anyhow::Result<Vec<u32>>> {
        self.inner.read(buffer)
    }
    fn read_part(&mut self, buffer: BufId, part: Range<usize>) -> LocalBoxFuture<'_, anyhow::Result<Vec<u32>>> {
        self.inner.read_part(buffer, part)
    }
    fn take_stats(&mut self) -> Stats {
        self.inner.take_stats()
    }
    fn write<'a>(&'a mut self, buffer: BufId, words: &'a [u32]) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.inner.write(buffer, words)
    }
    fn write_part<'a>(
        &'a mut self,
        buffer: BufId,
        first: usize,
        words: &'a [u32],
    ) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            let mut words = words.to_vec();
            if let Some(n) = self.fault {
                // one bit of one word may be rounded away with the activations
                words.iter_mut().for_each(|w| *w ^= if n == 0 { 1 << 31 } else { 0 });
                self.fault = n.checked_sub(1);
            }
            self.inner.write_part(buffer, first, &words).await
        })
    }
}

#[test]
fn each_device_holds_its_own_layers_and_all_together_hold_the_model_once() {
    for args in [QWEN2, GEMMA3, QWEN3MOE] {
        let (_dir, path) = model(args);
        let (c, h) = open(&path);
        let o = options(CacheType::F16, 48);
        let all: Vec<Told> = (0..4).map(|_| Told::new(best())).collect();
        let plans: Vec<_> = all.iter().map(|t| t.plans.clone()).collect();
        let mut all = all.into_iter().map(|t| Box::new(t) as Box<dyn Runs>);
        let mut alone = all.next().expect("four");
        drop(block_on(Session::new(alone.as_mut(), &c, &h, o, |_| {})).unwrap_or_else(|e| panic!("{e:#}")));
        let mut three = split(all.collect(), &[1, 1, h.layers - 2]);
        drop(block_on(Session::new(&mut three, &c, &h, o, |_| {})).unwrap_or_else(|e| panic!("{e:#}")));
        let plans: Vec<Plan> = plans.iter().map(|p| p.borrow()[0].clone()).collect();
        let ((whole, cache), (parts, caches)) = (held(&[&plans[0]]), held(&plans[1..].iter().collect::<Vec<_>>()));
        assert_eq!(whole.keys().collect::<Vec<_>>(), parts.keys().collect::<Vec<_>>(), "{args}");
        let more: Vec<_> = parts.iter().filter(|(k, bytes)| whole[*k] != **bytes).collect();
        let tied = c.tensor("output.weight").is_none();
        assert_eq!(more.len(), usize::from(tied), "{args}: only a tied embedding is on two devices: {more:?}");
        assert!(more.iter().all(|(k, bytes)| **bytes == 2 * whole[*k]));
        assert_eq!(cache, caches, "{args}");
        for (p, plan) in plans[1..].iter().enumerate() {
            let layers: Vec<usize> = plan.recording.commands.iter().filter_map(|c| c.layer).collect();
            let own = [0..1, 1..2, 2..h.layers][p].clone();
            assert!(layers.iter().all(|l| own.contains(l)), "{args}");
            let pages = plan.buffers.iter().filter(|b| b.role == Role::Cache).count();
            assert_eq!(pages, 2 * own.len(), "{args}: keys and values of each of its layers");
            assert_eq!((plan.logits.is_some(), plan.selected.is_some()), (p == 2, p == 2));
        }
    }
}

#[test]
fn a_wrong_word_handed_over_is_seen() {
    let (_dir, path) = model(QWEN2);
    let (read, o) = (open(&path), options(CacheType::F16, 48));
    let want = logits(best().as_mut(), &read, o);
    let with = |fault| {
        let second = Told { fault, ..Told::new(best()) };
        logits(&mut split(vec![best(), Box::new(second)], &[2, 2]), &read, o)
    };
    assert!(with(None) == want);
    for n in [0, 3, 9] {
        assert!(with(Some(n)) != want, "the signs of hand-over {n}");
    }
}

#[test]
fn pieces_of_a_prompt_on_devices_side_by_side_change_nothing() {
    let (_dir, path) = model(QWEN3MOE);
    let read = open(&path);
    let ids: Vec<u32> = (0..250).map(|i| (i * i * 37 + 11) % read.1.vocab as u32).collect();
    let of = |device: &mut dyn Runs, first: usize, select: bool| {
        let o = options(CacheType::F16, 256);
        let o = SessionOptions { plan: PlanOptions { max_out: 200, ..o.plan }, ..o };
        block_on(async {
            let mut s = Session::new(device, &read.0, &read.1, o, |_| {}).await?;
            let (mut words, mut best) = (Vec::new(), Vec::new());
            if select {
                s.start(&ids, 4).await?;
                s.best(&mut best).await?;
                words.extend(best.iter().flat_map(|b| [b.logit.to_bits(), b.id]));
                s.reset();
            }
            let row = |_: usize, row: &[f32]| {
                words.extend(row.iter().map(|v| v.to_bits()));
                Ok(())
            };
            s.feed(&ids, Want::From(first), row).await?;
            anyhow::Ok(words)
        })
        .unwrap_or_else(|e| panic!("{e:#}"))
    };
    for (first, select) in [(249, true), (100, false), (63, false)] {
        let want = of(best().as_mut(), first, select);
        for early in [[true, false, false], [false, true, true], [true; 3]] {
            let counters: Vec<_> = early.iter().map(|e| e.then(|| Rc::new(Cell::new(0)))).collect();
            let told = |i: usize| -> Box<dyn Runs> {
                Box::new(Told { early: counters[i].clone(), ..Told::new(if i == 1 { portable() } else { best() }) })
            };
            let mut three = split((0..3).map(told).collect(), &[1, 2, 1]);
            assert!(of(&mut three, first, select) == want, "rows from {first}, {early:?}");
            if let Some(n) = &counters[0] {
                assert!(n.get() >= 4, "{} pieces began on the first", n.get());
            }
        }
    }
}

#[test]
fn many_sequences_at_once_have_the_words_of_one_device() {
    let (_dir, path) = model(GEMMA3);
    let (c, h) = open(&path);
    let plan = PlanOptions {
        n_ctx: 128,
        sequences: 4,
        pool: Some(512),
        ubatch: 64,
        max_out: 8,
        k_type: CacheType::F16,
        v_type: CacheType::F16,
        ..PlanOptions::default()
    };
    let o = SessionOptions { plan, memory: None, fuse: Fuse::On };
    let of = |device: &mut dyn Runs| {
        block_on(async {
            let mut s = Session::new(device, &c, &h, o, |_| {}).await?;
            let mut pool = Pool::new(s.built());
            let mut words = Vec::new();
            let texts: Vec<Vec<u32>> =
                (0..4).map(|t| (0..40 + 9 * t).map(|i| (i * i * 7 + t * 5 + 1) % h.vocab as u32).collect()).collect();
            let mut all: Vec<Sequence> = texts.iter().map(|ids| pool.begin(ids)).collect();
            for (from, to) in [(0, 13), (13, 14), (14, 29), (29, 30)] {
                all.iter_mut().for_each(|q| pool.reserve(q, to - from).expect("there is room"));
                let ids: Vec<&[u32]> = texts.iter().map(|t| &t[from..to]).collect();
                let parts: Vec<Part> =
                    all.iter().zip(&ids).map(|(q, ids)| Part { sequence: q, ids, rows: 1 }).collect();
                s.step(&parts, |_, _, row| {
                    words.extend(row.iter().map(|v| v.to_bits()));
                    Ok(())
                })
                .await?;
                all.iter_mut().zip(&ids).for_each(|(q, ids)| pool.written(q, ids));
            }
            anyhow::Ok(words)
        })
        .unwrap_or_else(|e| panic!("{e:#}"))
    };
    let want = of(best().as_mut());
    for n in [1, 3, 6] {
        assert!(of(&mut split(vec![best(), scalar()], &[n, 7 - n])) == want, "{n}");
    }
}

fn front(word: &str) -> Front {
    let device = devices().open(word).unwrap_or_else(|e| panic!("{e}"));
    Model::embedded().session(device, FrontOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn devices() -> Devices {
    Devices::new(DeviceOptions { threads: 2, ..DeviceOptions::default() })
}

fn request(n: usize, seed: u64) -> Request {
    let sampling = SamplerOptions { seed, ..SamplerOptions::default() };
    let text = "Once upon a time there was a dragon who had a small house and a big dragon who had a small house and ";
    Request { max_tokens: n, sampling, ignore_end: true, ..Request::new(text.repeat(4)) }
}

fn ids(s: &mut Front, r: &Request) -> Vec<u32> {
    s.generate(r.clone(), |_| ControlFlow::Continue(())).unwrap_or_else(|e| panic!("{e}")).ids
}

#[test]
fn texts_guesses_saved_sequences_and_vectors_are_those_of_one_device() {
    let (mut one, mut two) = (front("cpu"), front("cpu:portable+cpu"));
    assert_eq!(two.device().matches("CPU (").count(), 2, "{}", two.device());
    assert_eq!(one.fingerprint().unwrap(), two.fingerprint().unwrap());
    let greedy = SamplerOptions { temperature: 0.0, ..SamplerOptions::default() };
    for r in [request(24, 7), Request { sampling: greedy, ..request(24, 0) }] {
        let want = ids(&mut one, &r);
        assert_eq!(ids(&mut two, &r), want);
        assert_eq!(ids(&mut two, &Request { guess: Guess::Ngram, ..r }), want);
    }
    // whole chunks go from one to the other, both ways
    let (mut of_one, mut of_two) = (Cursor::new(Vec::new()), Cursor::new(Vec::new()));
    let (n, m) = (one.save(&mut of_one).unwrap(), two.save(&mut of_two).unwrap());
    assert!(n >= 64 && n == m, "{n} and {m} tokens saved");
    assert!(of_one.get_ref() == of_two.get_ref(), "the files are equal to the byte");
    let mut fresh = front("cpu+cpu:scalar");
    of_one.set_position(0);
    assert_eq!(fresh.restore(of_one).unwrap(), n);
    let r = request(12, 3);
    assert_eq!(ids(&mut fresh, &r), ids(&mut one, &r));
    let vectors = |word: &str| {
        let device: Device = devices().open(word).unwrap();
        let o = FrontOptions { head: Head::Hidden, ..FrontOptions::default() };
        let mut s = Model::embedded().session(device, o).unwrap();
        s.embed("a dragon", Default::default()).unwrap()
    };
    assert_eq!(vectors("cpu"), vectors("cpu+cpu:portable"));
}

#[test]
fn an_engine_of_many_texts_has_the_answers_of_one_device() {
    let answers = |word: &str| {
        let devices = DeviceOptions { threads: 1, ..DeviceOptions::default() };
        let session = FrontOptions { sequences: 3, context: 256, ..FrontOptions::default() };
        let o = EngineOptions { device: word.into(), devices, session, ..EngineOptions::default() };
        let engine = Engine::start(&Model::embedded(), o).unwrap_or_else(|e| panic!("{e}"));
        let replies: Vec<_> = (0..5).map(|seed| engine.generate(request(12, seed)).unwrap()).collect();
        replies.into_iter().map(|r| r.wait().unwrap().ids).collect::<Vec<_>>()
    };
    assert_eq!(answers("cpu+cpu:portable"), answers("cpu"));
}

#[test]
fn verify_compares_a_split_word_by_word() {
    let model = Model::embedded();
    let open = |word: &str| devices().open(word).unwrap_or_else(|e| panic!("{e}"));
    let alone = vec![open("cpu:portable"), open("cpu")];
    let two = vec![open("cpu:portable"), open("cpu+cpu:portable")];
    let (alone, two) = (
        model.verify(alone, FrontOptions::default(), 70, 4).unwrap(),
        model.verify(two, FrontOptions::default(), 70, 4).unwrap(),
    );
    assert!(two.ok(), "{:?}", two.first);
    assert_eq!((alone.words, alone.commands, alone.digest), (two.words, two.commands, two.digest));
}

#[test]
fn what_cannot_be_dealt_is_one_line_before_anything_is_loaded() {
    let (_dir, path) = model(QWEN2);
    let (c, h) = open(&path);
    let two = || -> Vec<Box<dyn Runs>> { vec![best(), best()] };
    let refused = |mut s: Split| {
        let loaded = block_on(Session::new(&mut s, &c, &h, options(CacheType::F16, 16), |_| {}));
        let e = loaded.err().expect("refused");
        let line = e.to_string();
        assert!(!line.contains('\n'), "{line}");
        e.downcast::<SplitError>().expect("a split's")
    };
    let sum = |sum| SplitError::Sum { split: format!("{},1", sum - 1), sum, layers: 4 };
    assert_eq!(refused(split(two(), &[2, 1])), sum(3));
    assert_eq!(refused(split(two(), &[4, 1])), sum(5));
    let many = (0..5).map(|_| Member { device: best(), memory: None }).collect();
    assert_eq!(refused(Split::new(many, None).unwrap()), SplitError::Devices { devices: 5, layers: 4 });
    let small = two().into_iter().map(|device| Member { device, memory: Some(1000) }).collect();
    let SplitError::Memory { bytes, parts, free: 2000 } = refused(Split::new(small, None).unwrap()) else {
        panic!("memory is refused")
    };
    assert!(bytes > 100_000 && parts.len() == 2, "{bytes} {parts:?}");
    let wrong = |counts: &[usize]| {
        let members = two().into_iter().map(|device| Member { device, memory: None }).collect();
        Split::new(members, Some(counts.to_vec())).err().expect("refused")
    };
    assert_eq!(wrong(&[4]), SplitError::Counts { counts: 1, devices: 2 });
    assert_eq!(wrong(&[0, 4]), SplitError::Empty { split: "0,4".into(), device: 1 });
    let error = Model::embedded().session(devices().open("cpu+cpu@1+1").unwrap(), FrontOptions::default());
    let line = error.err().expect("refused").to_string();
    assert!(line.contains("a split of 1,1 is 2 layers, and the model has"), "{line}");
}
