//! What the 14 bytes of TQ3 can hold: `cargo run --release --example tq3_study`.
//!
//! Measures candidates for a rotated 3.5-bit cache format on made-up data and on the queries, keys and values of the
//! small model in `tests/data/tiny`, prints the tables of `docs/tq3.md` as Markdown and draws `docs/tq3.svg`. Error is
//! relative: sum of squared differences over sum of squares, after decoding and rotating back. Seeds are fixed.

use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::tokenizer::Tokenizer;
use isobit::internals::generate::{Session, SessionOptions};
use isobit::internals::models::{Hyper, PlanOptions};
use isobit::internals::ops::cache::CacheType;
use isobit::internals::ops::exact::{f16_to_f32, f32_to_f16};
use isobit::internals::ops::tq3;
use std::fmt::Write;
use std::path::Path;

/// Tokens fed to the model at a time.
const TOKENS: usize = 512;
/// Where the pieces of the text begin, in tokens. tq3_1's constants were chosen on the first 512, so not there.
const PIECES: [usize; 4] = [4096, 8192, 12288, 16384];
/// Heads of 128 elements in each made-up data set: 20480 blocks.
const HEADS: usize = 5120;

fn main() -> anyhow::Result<()> {
    let candidates = candidates();
    let (hyper, layers) = real()?;
    let sets = sets(&layers, hyper.head_dim);
    let mut errors = Vec::new();
    println!("| candidate |{}", sets.iter().map(|s| format!(" {} |", s.name)).collect::<String>());
    println!("|---|{}", "---:|".repeat(sets.len()));
    for c in &candidates {
        let row: Vec<f64> = sets.iter().map(|s| relative_error(c, s)).collect();
        println!("| {} |{}", c.name, row.iter().map(|e| format!(" {e:.4} |")).collect::<String>());
        errors.push(row);
    }
    println!("\n| candidate | scores | scores, centred | softmax weights | attention output, K | K and V |");
    println!("|---|---:|---:|---:|---:|---:|");
    for c in &candidates {
        let a = attention(c, &hyper, &layers);
        println!("| {} |{}", c.name, a.iter().map(|e| format!(" {e:.4} |")).collect::<String>());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tq3.svg");
    std::fs::write(&path, svg(&candidates, &sets, &errors))?;
    Ok(())
}

// ---- candidates ----------------------------------------------------------------------------------------------------

/// How many elements are rotated together.
#[derive(Clone, Copy, PartialEq)]
enum Turn {
    /// none
    Off,
    /// blocks of 32
    Block,
    /// the largest power of two dividing the head, at most 256
    Head,
    /// blocks of 32 without the sign flips
    Unsigned,
}

/// How a rotated block is coded and decoded.
enum Coder {
    /// the library's tq3_0
    Tq30,
    /// the library's tq3_1
    Tq31,
    /// tq3_0's bytes and encoder, read with the residual bit by table: levels of (inner, outer) x (residual towards 0, away)
    Tq30Residual,
    /// ggml's Q4_0: 18 bytes, to compare
    Q40,
    /// levels in ascending order; gamma = amax / `top`
    Amax { levels: Vec<f32>, top: f32 },
    /// levels in ascending order; gamma = RMS / `unit` without a fit
    Rms { levels: Vec<f32>, unit: f32 },
    /// gamma starts from each of RMS / tries and is fitted by least squares `fits` times; the smallest error wins
    Fitted { levels: Vec<f32>, tries: Vec<f32>, fits: usize },
}

struct Candidate {
    name: &'static str,
    turn: Turn,
    coder: Coder,
    /// in the chart
    drawn: bool,
}

/// Levels `shift` +- each distance, ascending.
fn about(shift: f32, distances: [f32; 4]) -> Vec<f32> {
    let [a, b, c, d] = distances;
    [-d, -c, -b, -a, a, b, c, d].iter().map(|v| shift + v).collect()
}

fn with_both_signs(tries: &[f32]) -> Vec<f32> {
    tries.iter().flat_map(|&t| [t, -t]).collect()
}

fn candidates() -> Vec<Candidate> {
    use Coder::*;
    use Turn::*;
    let lloyd = || about(0.0, [14.0, 44.0, 79.0, 127.0]);
    let ours = || about(tq3::TQ3_1_SHIFT as f32, tq3::TQ3_1_LEVELS.map(|l| l as f32));
    let tries5 = || vec![60.0, 53.0, 69.0, 44.0, 79.0];
    let many = |unit: f32| (0..40).map(|i| unit * 0.5 * 1.04f32.powi(i)).collect::<Vec<f32>>();
    let c = |name, turn, coder, drawn| Candidate { name, turn, coder, drawn };
    let four = || vec![-1.510, -0.4528, 0.4528, 1.510];
    vec![
        c("tq3_0 (v1 as published)", Block, Tq30, true),
        c("v1, gamma = RMS", Block, Rms { levels: four(), unit: 1.0 }, true),
        c("v1 bytes, residual bit read by table", Block, Tq30Residual, true),
        c(
            "v2 (8 levels, gamma from amax)",
            Block,
            Amax { levels: about(0.0, [0.2428, 0.7434, 1.3336, 2.1573]), top: 2.1573 },
            true,
        ),
        c("Lloyd-Max 14 44 79 127, gamma = RMS / 59", Block, Rms { levels: lloyd(), unit: 59.0 }, true),
        c("the same, 1 fit", Block, Fitted { levels: lloyd(), tries: vec![59.0], fits: 1 }, false),
        c("the same, 2 fits", Block, Fitted { levels: lloyd(), tries: vec![59.0], fits: 2 }, false),
        c("best of 3 scales", Block, Fitted { levels: lloyd(), tries: vec![58.0, 48.0, 70.0], fits: 1 }, true),
        c("best of 5 scales", Block, Fitted { levels: lloyd(), tries: tries5(), fits: 1 }, true),
        c("best of 5 scales, whole head", Head, Fitted { levels: lloyd(), tries: tries5(), fits: 1 }, false),
        c(
            "best of 6 scales",
            Block,
            Fitted { levels: lloyd(), tries: vec![60.0, 53.0, 67.0, 46.0, 75.0, 84.0], fits: 1 },
            false,
        ),
        c("best of 40 scales", Block, Fitted { levels: lloyd(), tries: many(59.0), fits: 1 }, false),
        c(
            "small integers 1 3 5 8, best of 5",
            Block,
            Fitted {
                levels: about(0.0, [1.0, 3.0, 5.0, 8.0]),
                tries: tries5().iter().map(|t| t / 15.8).collect(),
                fits: 1,
            },
            false,
        ),
        c(
            "even steps 1 3 5 7, best of 5",
            Block,
            Fitted {
                levels: about(0.0, [1.0, 3.0, 5.0, 7.0]),
                tries: tries5().iter().map(|t| t / 17.3).collect(),
                fits: 1,
            },
            true,
        ),
        c(
            "lopsided, sign by trial, 2 x 2 scales",
            Block,
            Fitted { levels: about(12.0, [13.0, 40.0, 71.0, 115.0]), tries: with_both_signs(&[50.0, 63.0]), fits: 1 },
            false,
        ),
        c(
            "half a step off (15 of 14 44 79 127), 2 x 3 scales",
            Block,
            Fitted {
                levels: about(15.0, [14.0, 44.0, 79.0, 127.0]),
                tries: with_both_signs(&[50.0, 59.0, 69.0]),
                fits: 1,
            },
            false,
        ),
        c("tq3_1 (11 +- 13 39 68 111, 2 x 3 scales)", Block, Tq31, true),
        c(
            "tq3_1's levels, 2 x 3 scales, 2 fits",
            Block,
            Fitted { levels: ours(), tries: with_both_signs(&tq3::TQ3_1_TRIES), fits: 2 },
            false,
        ),
        c(
            "tq3_1's levels, 2 x 40 scales",
            Block,
            Fitted { levels: ours(), tries: with_both_signs(&many(52.0)), fits: 1 },
            true,
        ),
        c("tq3_1, whole head rotated", Head, Tq31, true),
        c("tq3_1, no sign flips", Unsigned, Tq31, false),
        c("tq3_1, not rotated", Off, Tq31, true),
        c("Q4_0, not rotated (18 bytes)", Off, Q40, true),
    ]
}

/// Index of the level nearest to `x`, halves upwards.
fn nearest(levels: &[f32], x: f32) -> usize {
    levels.windows(2).take_while(|w| x >= (w[0] + w[1]) * 0.5).count()
}

fn rms(r: &[f32]) -> f32 {
    (r.iter().map(|v| v * v).sum::<f32>() / r.len() as f32).sqrt()
}

/// Codes and decodes 32 rotated elements in place.
fn code(coder: &Coder, r: &mut [f32; 32]) {
    let (levels, gamma) = match coder {
        Coder::Tq30 => return *r = tq3::tq3_0_decode(&tq3::tq3_0_encode(r)),
        Coder::Tq31 => return *r = tq3::tq3_1_decode(&tq3::tq3_1_encode(r)),
        Coder::Tq30Residual => {
            let b = tq3::tq3_0_encode(r);
            let gamma = f16_to_f32(b.gamma);
            for (j, v) in r.iter_mut().enumerate() {
                *v = gamma
                    * match (b.low2(j), b.bit(j)) {
                        (0, _) => -1.262,
                        (1, 0) => -0.672,
                        (1, _) => -0.215,
                        (2, 0) => 0.215,
                        (2, _) => 0.673,
                        _ => 1.262,
                    };
            }
            return;
        }
        Coder::Q40 => return q4_0(r),
        Coder::Amax { levels, top } => (levels, r.iter().fold(0f32, |m, v| m.max(v.abs())) / top),
        Coder::Rms { levels, unit } => (levels, rms(r) / unit),
        Coder::Fitted { levels, tries, fits } => (levels, fitted(r, levels, tries, *fits)),
    };
    let gamma = f16_to_f32(f32_to_f16(gamma));
    if gamma == 0.0 {
        return *r = [0.0; 32];
    }
    for v in r.iter_mut() {
        *v = gamma * levels[nearest(levels, *v / gamma)];
    }
}

fn fitted(r: &[f32; 32], levels: &[f32], tries: &[f32], fits: usize) -> f32 {
    let rms = rms(r);
    if rms == 0.0 {
        return 0.0;
    }
    let (mut best, mut gamma) = (0f32, 0f32);
    for m in tries {
        let mut k = m / rms;
        for _ in 0..fits {
            let (mut n, mut d) = (0f32, 0f32);
            for v in r {
                let level = levels[nearest(levels, v * k)];
                n += level * v;
                d += level * level;
            }
            if n * (n / d) > best {
                (best, gamma) = (n * (n / d), n / d);
            }
            k = d / n;
        }
    }
    gamma
}

fn q4_0(r: &mut [f32; 32]) {
    let max = r.iter().fold(0f32, |m, v| if v.abs() > m.abs() { *v } else { m });
    let d = max / -8.0;
    if d == 0.0 {
        return;
    }
    let stored = f16_to_f32(f32_to_f16(d));
    for v in r.iter_mut() {
        *v = stored * ((*v / d + 8.5).clamp(0.0, 15.0).trunc() - 8.0);
    }
}

impl Candidate {
    fn turned(&self, head: usize) -> usize {
        if self.turn == Turn::Head { (1 << head.trailing_zeros()).min(256) } else { 32 }
    }

    /// The head as the cache gives it back.
    fn round_trip(&self, head: &[f32]) -> Vec<f32> {
        let mut x = head.to_vec();
        let flips: Vec<f32> = (0..32).map(|j| if tq3::SIGNS[0] >> j & 1 == 1 { -1.0 } else { 1.0 }).collect();
        let flip = |x: &mut [f32]| x.iter_mut().zip(&flips).for_each(|(v, s)| *v *= s);
        for piece in x.chunks_exact_mut(self.turned(head.len())) {
            match self.turn {
                Turn::Off => {}
                Turn::Block | Turn::Head => tq3::rotate(piece),
                // a second flip undoes that of the rotation
                Turn::Unsigned => {
                    flip(piece);
                    tq3::rotate(piece);
                }
            }
            for block in piece.chunks_exact_mut(32) {
                code(&self.coder, block.try_into().expect("32 elements"));
            }
            match self.turn {
                Turn::Off => {}
                Turn::Block | Turn::Head => tq3::unrotate(piece),
                Turn::Unsigned => {
                    tq3::unrotate(piece);
                    flip(piece);
                }
            }
        }
        x
    }
}

// ---- data ----------------------------------------------------------------------------------------------------------

struct Set {
    name: &'static str,
    head: usize,
    data: Data,
    drawn: bool,
}

enum Data {
    /// heads one after another
    Fixed(Vec<f32>),
    /// heads that one rotation turns into a single spike per piece: the worst for that rotation
    Aligned,
}

/// Random numbers, and what is made from them; the state is the seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        isobit::internals::random::next(&mut self.0)
    }

    /// in (0, 1)
    fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        libm::sqrt(-2.0 * libm::log(self.uniform())) * libm::cos(std::f64::consts::TAU * self.uniform())
    }

    fn laplace(&mut self) -> f64 {
        let sign = if self.next() & 1 == 1 { 1.0 } else { -1.0 };
        -sign * libm::log(self.uniform())
    }

    /// Student's t with three degrees of freedom: tails so heavy that the variance hardly exists
    fn student(&mut self) -> f64 {
        let chi = (0..3).map(|_| self.normal().powi(2)).sum::<f64>();
        self.normal() / libm::sqrt(chi / 3.0)
    }
}

fn sets(layers: &[Layer], head_dim: usize) -> Vec<Set> {
    let mut rng = Random(1);
    let n = HEADS * 128;
    let mut make = |draw: &mut dyn FnMut(&mut Random, usize) -> f64| {
        Data::Fixed((0..n).map(|i| draw(&mut rng, i) as f32).collect())
    };
    let normal = make(&mut |r, _| r.normal());
    let laplace = make(&mut |r, _| r.laplace());
    let student = make(&mut |r, _| r.student());
    let mut at = 0;
    let per_block = make(&mut |r, i| {
        if i % 32 == 0 {
            at = i + r.next() as usize % 32;
        }
        r.normal() * if i == at { 50.0 } else { 1.0 }
    });
    let per_head = make(&mut |r, i| {
        if i % 128 == 0 {
            at = i + r.next() as usize % 128;
        }
        r.normal() * if i == at { 50.0 } else { 1.0 }
    });
    // sixteen families of keys, each with its own offsets: one draw of 128 offsets would be luck
    let mut offsets = vec![0.0; 128];
    let keys = make(&mut |r, i| {
        if i % (n / 16) == 0 {
            offsets.fill_with(|| 3.0 * r.normal());
        }
        r.normal() + offsets[i % 128]
    });
    let constant = make(&mut |_, i| 1.0 + (i / 128) as f64 * 0.37);
    let all = |f: fn(&Layer) -> &Vec<f32>| Data::Fixed(layers.iter().flat_map(|l| f(l).iter().copied()).collect());
    let set = |name, head, data, drawn| Set { name, head, data, drawn };
    vec![
        set("real keys", head_dim, all(|l| &l.k), true),
        set("real values", head_dim, all(|l| &l.v), false),
        set("N(0,1)", 128, normal, true),
        set("Laplace", 128, laplace, false),
        set("Student t, 3", 128, student, false),
        set("x50 in each 32", 128, per_block, true),
        set("x50 in each 128", 128, per_head, false),
        set("channel offsets", 128, keys, true),
        set("constant", 128, constant, false),
        set("aligned", 128, Data::Aligned, false),
    ]
}

fn relative_error(c: &Candidate, s: &Set) -> f64 {
    let aligned: Vec<f32>;
    let x = match &s.data {
        Data::Fixed(x) => x,
        Data::Aligned => {
            let turned = c.turned(s.head);
            aligned = (0..turned)
                .flat_map(|k| {
                    let mut x = vec![0f32; s.head];
                    for piece in x.chunks_exact_mut(turned) {
                        piece[k] = 1.0;
                        tq3::unrotate(piece);
                    }
                    x
                })
                .collect();
            &aligned
        }
    };
    let (mut error, mut square) = (0f64, 0f64);
    for head in x.chunks_exact(s.head) {
        for (a, b) in head.iter().zip(c.round_trip(head)) {
            error += f64::from(a - b).powi(2);
            square += f64::from(*a).powi(2);
        }
    }
    error / square
}

// ---- the small model -----------------------------------------------------------------------------------------------

/// One layer's queries and keys after the rotary embedding, and its values, for one piece: `[token][heads][head_dim]`.
#[derive(Default)]
struct Layer {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

/// The layers of every piece, one piece after another.
fn real() -> anyhow::Result<(Hyper, Vec<Layer>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny");
    let c = Container::open(&root.join("tiny-stories-f16.gguf"), LoadMode::Read)?;
    let h = Hyper::read(&c)?;
    let tokenizer = Tokenizer::from_gguf(&c.meta)?;
    let text = std::fs::read_to_string(root.join("valid.txt"))?;
    let ids = tokenizer.encode(&text, tokenizer.adds_bos(), false)?;
    let plan = PlanOptions {
        n_ctx: TOKENS,
        ubatch: TOKENS,
        k_type: CacheType::F32,
        v_type: CacheType::F32,
        ..PlanOptions::default()
    };
    let mut device = CpuDevice::new(CpuOptions::default())?;
    let mut layers: Vec<Layer> = Vec::new();
    pollster::block_on(async {
        let mut s =
            Session::new(&mut device, &c, &h, SessionOptions { plan, memory: None, fuse: Fuse::On }, |_| {}).await?;
        let commands = s.commands().to_vec();
        for first in PIECES {
            anyhow::ensure!(first + TOKENS <= ids.len(), "valid.txt has only {} tokens", ids.len());
            let step = s.prepare(&ids[first..first + TOKENS], 0).clone();
            let base = layers.len();
            layers.extend((0..h.layers).map(|_| Layer::default()));
            s.device().begin(&step).await?;
            for (i, command) in commands.iter().enumerate() {
                s.device().run_one(i).await?;
                let Some(layer) = command.layer.map(|l| &mut layers[base + l]) else { continue };
                let (place, heads) = match command.label.as_str() {
                    "q_rope" => (&mut layer.q, h.heads),
                    "k_rope" => (&mut layer.k, h.kv_heads),
                    "v" => (&mut layer.v, h.kv_heads),
                    _ => continue,
                };
                let words = s.device().read(command.outputs()[0]).await?;
                *place = words[..TOKENS * heads * h.head_dim].iter().map(|w| f32::from_bits(*w)).collect();
            }
        }
        anyhow::Ok(())
    })?;
    Ok((h, layers))
}

fn softmax(scores: &[f64]) -> Vec<f64> {
    let max = scores.iter().copied().fold(f64::MIN, f64::max);
    let e: Vec<f64> = scores.iter().map(|s| libm::exp(s - max)).collect();
    let sum: f64 = e.iter().sum();
    e.iter().map(|e| e / sum).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum()
}

/// Over all pieces, layers, heads and every fourth query: RMS error of the scores q.k / sqrt(head_dim); the same after taking
/// each query's mean error off, to which softmax is blind; mean total variation of the softmax weights; relative error
/// of the attention output with keys, and with keys and values, from the cache.
fn attention(c: &Candidate, h: &Hyper, layers: &[Layer]) -> [f64; 5] {
    let (hd, kv_width, width) = (h.head_dim, h.kv_heads * h.head_dim, h.heads * h.head_dim);
    let (mut score, mut centred, mut n_scores, mut variation, mut n) = (0f64, 0f64, 0f64, 0f64, 0f64);
    let (mut out_k, mut out_kv, mut out) = (0f64, 0f64, 0f64);
    let scale = 1.0 / (hd as f64).sqrt();
    for l in layers {
        let back = |x: &[f32]| x.chunks_exact(hd).flat_map(|head| c.round_trip(head)).collect::<Vec<f32>>();
        let (k, v) = (back(&l.k), back(&l.v));
        for t in (3..TOKENS).step_by(4) {
            for head in 0..h.heads {
                let q = &l.q[t * width + head * hd..][..hd];
                let at = |i: usize| i * kv_width + head / (h.heads / h.kv_heads) * hd;
                let scores = |k: &[f32]| (0..=t).map(|i| scale * dot(q, &k[at(i)..][..hd])).collect::<Vec<f64>>();
                let (s0, s1) = (scores(&l.k), scores(&k));
                let count = s0.len() as f64;
                let mean = s0.iter().zip(&s1).map(|(a, b)| b - a).sum::<f64>() / count;
                score += s0.iter().zip(&s1).map(|(a, b)| (b - a).powi(2)).sum::<f64>();
                centred += s0.iter().zip(&s1).map(|(a, b)| (b - a - mean).powi(2)).sum::<f64>();
                n_scores += count;
                let (p0, p1) = (softmax(&s0), softmax(&s1));
                variation += p0.iter().zip(&p1).map(|(a, b)| (a - b).abs()).sum::<f64>() / 2.0;
                n += 1.0;
                for e in 0..hd {
                    let sum = |p: &[f64], v: &[f32]| {
                        p.iter().enumerate().map(|(i, p)| p * f64::from(v[at(i) + e])).sum::<f64>()
                    };
                    let want = sum(&p0, &l.v);
                    out += want.powi(2);
                    out_k += (sum(&p1, &l.v) - want).powi(2);
                    out_kv += (sum(&p1, &v) - want).powi(2);
                }
            }
        }
    }
    [(score / n_scores).sqrt(), (centred / n_scores).sqrt(), variation / n, out_k / out, out_kv / out]
}

// ---- the chart -----------------------------------------------------------------------------------------------------

/// A dot per candidate and data set on a logarithmic axis.
fn svg(candidates: &[Candidate], sets: &[Set], errors: &[Vec<f64>]) -> String {
    const COLOURS: [&str; 4] = ["#d1495b", "#1b6ca8", "#2f9e6e", "#8a5fbf"];
    const LEFT: f64 = 350.0;
    const WIDTH: f64 = 560.0;
    const TOP: f64 = 84.0;
    const STEP: f64 = 30.0;
    let rows: Vec<usize> = (0..candidates.len()).filter(|&i| candidates[i].drawn).collect();
    let columns: Vec<usize> = (0..sets.len()).filter(|&i| sets[i].drawn).collect();
    let (low, high) = (0.005f64.log10(), 0.3f64.log10());
    let x = |e: f64| LEFT + WIDTH * (e.log10().clamp(low, high) - low) / (high - low);
    let bottom = TOP + STEP * rows.len() as f64;
    let mut s = String::new();
    let mut put = |line: String| writeln!(s, "{line}").expect("a string takes everything");
    put(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"13\">",
        LEFT + WIDTH + 30.0,
        bottom + 50.0
    ));
    put("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>".into());
    put(format!(
        "<text x=\"{}\" y=\"24\" font-size=\"16\" text-anchor=\"middle\">Relative squared error of the cache formats (left is better)</text>",
        (LEFT + WIDTH + 30.0) / 2.0
    ));
    for (i, &c) in columns.iter().enumerate() {
        let at = LEFT + 140.0 * i as f64;
        put(format!("<circle cx=\"{at}\" cy=\"50\" r=\"5\" fill=\"{}\"/>", COLOURS[i]));
        put(format!("<text x=\"{}\" y=\"54\">{}</text>", at + 10.0, sets[c].name));
    }
    for tick in [0.005, 0.01, 0.02, 0.05, 0.1, 0.2] {
        let at = x(tick);
        put(format!("<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#dddddd\"/>"));
        put(format!("<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{tick}</text>", bottom + 18.0));
    }
    let bound = x(0.0345);
    put(format!(
        "<line x1=\"{bound:.1}\" y1=\"{TOP}\" x2=\"{bound:.1}\" y2=\"{bottom}\" stroke=\"#555555\" stroke-dasharray=\"4 3\"/>"
    ));
    put(format!(
        "<text x=\"{bound:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555555\">0.0345: eight fixed levels on N(0,1)</text>",
        bottom + 38.0
    ));
    for (i, &r) in rows.iter().enumerate() {
        let y = TOP + STEP * (i as f64 + 0.5);
        let weight = if candidates[r].name.starts_with("tq3_1 (") { "bold" } else { "normal" };
        put(format!("<line x1=\"{LEFT}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"#eeeeee\"/>", LEFT + WIDTH));
        put(format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" font-weight=\"{weight}\">{}</text>",
            LEFT - 10.0,
            y + 4.5,
            candidates[r].name
        ));
        for (k, &c) in columns.iter().enumerate() {
            put(format!(
                "<circle cx=\"{:.1}\" cy=\"{}\" r=\"4\" fill=\"{}\"/>",
                x(errors[r][c]),
                // a lane each, or equal errors would hide one another
                y + 6.0 * (k as f64 - 1.5),
                COLOURS[k]
            ));
        }
    }
    put("</svg>".into());
    s
}
