//! What attention gains from its variants: decode split over chunks of 64 positions, prefill in tiles.
//!
//!     cargo bench --bench split -- split [ADAPTER [DEPTH]]
//!     cargo bench --bench split -- tile [ADAPTER [DEPTH]]
//!
//! Steps that are nothing but attention commands, of one token ("split") or of 64 ("tile") at the end of so many positions,
//! plain and with the variant, on two devices of one adapter, in turn within each round; a round's ratio is theirs, printed
//! are the medians. `ADAPTER`: its index in `isobit devices`, 0 unless given; `DEPTH`: one instead of three (software takes
//! minutes). Both must leave the same words.

#[cfg(not(feature = "gpu"))]
fn main() {
    eprintln!("split: this build has no gpu feature");
}

#[cfg(feature = "gpu")]
fn main() -> anyhow::Result<()> {
    gpu::main()
}

#[cfg(feature = "gpu")]
mod gpu {
    use anyhow::{Context, ensure};
    use futures::executor::block_on;
    use isobit::internals::host::variants::Forced;
    use isobit::internals::host::{GpuDevice, GpuOptions, adapters, connect};
    use isobit::internals::ops::attention::{AttentionParams, SCOPE_ALL};
    use isobit::internals::ops::cache::CacheType;
    use isobit::internals::ops::places::in_order_words;
    use isobit::internals::record::{
        Args, BufDecl, Command, Device, Op, Placing, Plan, Recording, Role, Rows, Step, WeightSource,
    };
    use std::time::Instant;

    /// Timed rounds, a second for each case at least.
    const ROUNDS: usize = 11;
    const SECONDS: f64 = 1.0;

    /// (heads, key-value heads, elements of a head): the 58 M model, a 1 B, a 7 B, and one of wide heads.
    const SHAPES: [(u32, u32, u32); 4] = [(8, 4, 64), (32, 8, 64), (32, 32, 128), (8, 4, 256)];

    /// What is compared with the plain form.
    struct Matter {
        variant: &'static str,
        tokens: u32,
        /// attention commands in a step
        layers: usize,
        depths: [u32; 3],
        /// of keys and values
        types: &'static [CacheType],
    }

    const SPLIT: Matter = Matter {
        variant: "split",
        tokens: 1,
        layers: 4,
        depths: [1024, 2048, 8192],
        types: &[CacheType::F16, CacheType::Q8_0, CacheType::TQ3_1],
    };
    const TILE: Matter =
        Matter { variant: "tile", tokens: 64, layers: 1, depths: [64, 512, 2048], types: &CacheType::ALL };

    /// Words of queries, keys and values: halves and floats of some units, whatever a type makes of them.
    struct Words;

    impl WeightSource for Words {
        fn fill(&mut self, buffer: &BufDecl, out: &mut [u32]) -> anyhow::Result<()> {
            let float = buffer.name == "q";
            for (i, w) in out.iter_mut().enumerate() {
                let x = ((i * 37 % 251) as f32 - 125.0) * 0.01;
                *w = if float {
                    x.to_bits()
                } else {
                    0x2c00_2e00 + ((i as u32 * 37 % 251) << 16) + (i as u32 * 53 % 247)
                };
            }
            Ok(())
        }
    }

    fn plan(m: &Matter, t: CacheType, (heads, kv_heads, head_dim): (u32, u32, u32), depth: u32) -> Plan {
        let words = t.words(head_dim as usize).expect("heads of whole blocks");
        let cached = (kv_heads * depth) as usize * words;
        let weight = |name: &str, words| {
            let role = Role::Given(0);
            BufDecl { name: name.into(), words, role }
        };
        let scratch = |name: &str, words| BufDecl { name: name.into(), words, role: Role::Scratch };
        let width = (m.tokens * heads * head_dim) as usize;
        let p = AttentionParams {
            n_tokens: 0,
            chunk0: 0,
            chunks: 0,
            heads,
            kv_heads,
            head_dim,
            page_first: 0,
            page_len: depth,
            scale: (1.0 / f64::from(head_dim).sqrt()) as f32,
            scope: SCOPE_ALL,
            window: 0,
            table: 0,
            softcap: 0.0,
            inv_softcap: 0.0,
            sinks: 0,
        };
        let command = Command {
            op: Op::Attention(t, t),
            args: Args::Attention(p),
            binds: vec![0, 1, 2, 5, 3, 4],
            rows: Rows::Tokens,
            layer: None,
            label: "attention".into(),
        };
        Plan {
            buffers: vec![
                weight("q", width),
                weight("k", cached),
                weight("v", cached),
                scratch("state", 4),
                scratch("out", width),
                BufDecl {
                    name: "places".into(),
                    words: in_order_words(depth as usize, m.tokens as usize),
                    role: Role::Input,
                },
            ],
            recording: Recording { commands: vec![command; m.layers] },
            placing: Some(Placing { buffer: 5, ring: 0, outputs: None }),
            max_tokens: m.tokens as usize,
            ..Plan::default()
        }
    }

    fn median(list: &mut [f64]) -> f64 {
        list.sort_by(f64::total_cmp);
        list[list.len() / 2]
    }

    pub fn main() -> anyhow::Result<()> {
        let words: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
        let matter = match words.first().map(String::as_str) {
            Some("split") => SPLIT,
            Some("tile") => TILE,
            other => anyhow::bail!("split or tile, not {}", other.unwrap_or("nothing")),
        };
        let mut numbers = words[1..].iter().map(|a| a.parse::<u32>().with_context(|| format!("{a} is no number")));
        let (index, depth) = (numbers.next().transpose()?.unwrap_or(0) as usize, numbers.next().transpose()?);
        let depths = depth.map_or(matter.depths.into(), |d| vec![d.next_multiple_of(64)]);
        let list = block_on(adapters());
        let adapter = list.get(index).with_context(|| format!("there is no adapter {index}"))?;
        println!("{}, {} tokens", adapter.title(), matter.tokens);
        let open = |name: &str| -> anyhow::Result<GpuDevice> {
            // wide heads have a tile of their own
            let names = [name, if name == "tile" { "wide" } else { name }];
            let forced = |name: &str| Forced::parse(name).map_err(anyhow::Error::msg);
            let variants = names.map(forced).into_iter().collect::<anyhow::Result<_>>()?;
            Ok(block_on(connect(adapter, GpuOptions { variants, ..GpuOptions::default() }))?.0)
        };
        let name = matter.variant;
        let mut both = [open("plain")?, open(name)?];
        println!("| cache | heads | depth | plain, µs | {name}, µs | speed of {name} |\n|---|---|---:|---:|---:|---:|");
        for &t in matter.types {
            for (shape, &depth) in SHAPES.into_iter().flat_map(|s| depths.iter().map(move |d| (s, d))) {
                let mut left = Vec::new();
                let n_tokens = matter.tokens as usize;
                let step = Step { n_tokens, pos: depth as usize - n_tokens, ..Step::default() };
                for device in &mut both {
                    block_on(device.load(plan(&matter, t, shape, depth), &mut Words))?;
                    block_on(device.run(&step))?;
                    left.push(block_on(device.read(4))?);
                }
                ensure!(left[0] == left[1], "plain and {name} differ");
                let (mut times, mut ratios) = ([vec![], vec![]], vec![]);
                let started = Instant::now();
                while ratios.len() < ROUNDS && (ratios.len() < 3 || started.elapsed().as_secs_f64() < SECONDS) {
                    let round = ratios.len();
                    let mut took = [0.0; 2];
                    for which in [round % 2, 1 - round % 2] {
                        let start = Instant::now();
                        block_on(both[which].run(&step))?;
                        took[which] = start.elapsed().as_secs_f64() / matter.layers as f64;
                        times[which].push(took[which] * 1e6);
                    }
                    ratios.push(took[0] / took[1]);
                }
                let [plain, other] = times.each_mut().map(|t| median(t));
                let (heads, kv_heads, hd) = shape;
                println!(
                    "| {} | {heads}/{kv_heads} of {hd} | {depth} | {plain:.0} | {other:.0} | {:.2} |",
                    t.name(),
                    median(&mut ratios)
                );
            }
        }
        Ok(())
    }
}
