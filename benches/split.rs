//! What decode attention gains where each chunk of 64 positions has a workgroup: `cargo bench --bench split -- [ADAPTER [DEPTH]]`.
//!
//! Steps of one token that are nothing but attention commands, plain and split, on two devices of one adapter, in turn
//! within each round; a round's ratio is theirs, printed are the medians. `ADAPTER`: its index in `isobit devices`, 0
//! unless given; `DEPTH`: one depth instead of three (software takes minutes). Both must leave the same words.

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
    use isobit::host::variants::Forced;
    use isobit::host::{GpuDevice, GpuOptions, adapters, connect};
    use isobit::ops::attention::{AttentionParams, SCOPE_ALL};
    use isobit::ops::cache::CacheType;
    use isobit::record::{Args, BufDecl, Command, Device, Op, Plan, Recording, Role, Rows, Step, WeightSource};
    use std::time::Instant;

    /// Attention commands in a step, and timed rounds.
    const LAYERS: usize = 4;
    const ROUNDS: usize = 11;

    /// (heads, key-value heads, elements of a head): the 58 M model, a 1 B and a 7 B.
    const SHAPES: [(u32, u32, u32); 3] = [(8, 4, 64), (32, 8, 64), (32, 32, 128)];
    const DEPTHS: [u32; 3] = [1024, 2048, 8192];

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

    fn plan(t: CacheType, (heads, kv_heads, head_dim): (u32, u32, u32), depth: u32) -> Plan {
        let words = t.words(head_dim as usize).expect("heads of whole blocks");
        let cached = (kv_heads * depth) as usize * words;
        let weight = |name: &str, words| {
            let role = Role::Weight { tensor: name.into(), row0: 0, rows: 1 };
            BufDecl { name: name.into(), words, role }
        };
        let scratch = |name: &str, words| BufDecl { name: name.into(), words, role: Role::Scratch };
        let width = (heads * head_dim) as usize;
        let p = AttentionParams {
            n_tokens: 0,
            pos: 0,
            heads,
            kv_heads,
            head_dim,
            page_first: 0,
            page_len: depth,
            scale: (1.0 / f64::from(head_dim).sqrt()) as f32,
            scope: SCOPE_ALL,
            window: 0,
        };
        let command = Command {
            op: Op::Attention(t, t),
            args: Args::Attention(p),
            binds: vec![0, 1, 2, 3, 4],
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
            ],
            recording: Recording { commands: vec![command; LAYERS] },
            max_tokens: 1,
            ..Plan::default()
        }
    }

    fn median(list: &mut [f64]) -> f64 {
        list.sort_by(f64::total_cmp);
        list[list.len() / 2]
    }

    pub fn main() -> anyhow::Result<()> {
        let mut numbers = std::env::args().skip(1).filter_map(|a| a.parse::<u32>().ok());
        let (index, depth) = (numbers.next().unwrap_or(0) as usize, numbers.next());
        let depths: Vec<u32> = depth.map_or(DEPTHS.into(), |d| vec![d.next_multiple_of(64)]);
        let list = block_on(adapters());
        let adapter = list.get(index).with_context(|| format!("there is no adapter {index}"))?;
        println!("{}", adapter.title());
        let open = |name: &str| -> anyhow::Result<GpuDevice> {
            let variants = vec![Forced::parse(name).map_err(anyhow::Error::msg)?];
            Ok(block_on(connect(adapter, GpuOptions { variants, ..GpuOptions::default() }))?.0)
        };
        let mut both = [open("plain")?, open("split")?];
        println!("| cache | heads | depth | plain, µs | split, µs | speed of split |\n|---|---|---:|---:|---:|---:|");
        for t in [CacheType::F16, CacheType::Q8_0, CacheType::TQ3_1] {
            for (shape, &depth) in SHAPES.into_iter().flat_map(|s| depths.iter().map(move |d| (s, d))) {
                let mut left = Vec::new();
                let step = Step { n_tokens: 1, pos: depth as usize - 1, ..Step::default() };
                for device in &mut both {
                    block_on(device.load(plan(t, shape, depth), &mut Words))?;
                    block_on(device.run(&step))?;
                    left.push(block_on(device.read(4))?);
                }
                ensure!(left[0] == left[1], "plain and split differ");
                let (mut times, mut ratios) = ([vec![], vec![]], vec![]);
                for round in 0..ROUNDS {
                    let mut took = [0.0; 2];
                    for which in [round % 2, 1 - round % 2] {
                        let start = Instant::now();
                        block_on(both[which].run(&step))?;
                        took[which] = start.elapsed().as_secs_f64() / LAYERS as f64;
                        times[which].push(took[which] * 1e6);
                    }
                    ratios.push(took[0] / took[1]);
                }
                let [plain, split] = times.each_mut().map(|t| median(t));
                let (heads, kv_heads, hd) = shape;
                println!(
                    "| {} | {heads}/{kv_heads} of {hd} | {depth} | {plain:.0} | {split:.0} | {:.2} |",
                    t.name(),
                    median(&mut ratios)
                );
            }
        }
        Ok(())
    }
}
