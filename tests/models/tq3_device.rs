//! The published TQ3_0 through the engine's own operations, on the CPU and through the shaders, against the golden blocks.

use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::models::{Hyper, PlanOptions, build, recent_positions};
use isobit::internals::ops::cache::{CacheType, CacheWriteParams};
use isobit::internals::ops::exact::CANON_MAX;
use isobit::internals::ops::places;
use isobit::internals::record::{
    Args, BufDecl, Command, Device, Op, Placing, Plan, Recording, Role, Rows, Step, WeightSource,
};
use std::path::Path;

const BLOCKS: usize = 720;

fn golden(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/vectors/tq3_0").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

struct Words(Vec<u32>);

impl WeightSource for Words {
    fn fill(&mut self, _: &BufDecl, out: &mut [u32]) -> anyhow::Result<()> {
        out.copy_from_slice(&self.0);
        Ok(())
    }
}

/// The golden inputs as 360 value rows of a head of 64: written by `cache_write_v` on a device, read back as 14-byte blocks.
fn encode(device: &mut dyn Device, t: CacheType) -> Vec<[u8; 14]> {
    let rows = BLOCKS / 2;
    let page = rows.next_multiple_of(64);
    let words = t.words(64).expect("64 is a multiple of 32");
    assert_eq!(words * 4, 28, "3.5 bits a value");
    let (page_first, page_len) = (0, page as u32);
    let p = CacheWriteParams { n_tokens: 0, kv_heads: 1, head_dim: 64, page_first, page_len, ring: 0, table: 0 };
    let input: Vec<u32> = golden("input.f32").chunks_exact(4).map(|b| u32_at(b, 0)).collect();
    assert_eq!(input.len(), BLOCKS * 32);
    let plan = Plan {
        buffers: vec![
            BufDecl { name: "rows".into(), words: input.len(), role: Role::Given(0) },
            BufDecl { name: "page".into(), words: page * words, role: Role::Cache },
            BufDecl { name: "places".into(), words: places::in_order_words(0, rows), role: Role::Input },
        ],
        recording: Recording {
            commands: vec![Command {
                op: Op::CacheWriteV(t),
                args: Args::CacheWrite(p),
                binds: vec![0, 2, 1],
                rows: Rows::Tokens,
                layer: None,
                label: "values".into(),
            }],
        },
        placing: Some(Placing { buffer: 2, ring: 0, outputs: None }),
        max_tokens: rows,
        ..Plan::default()
    };
    let page = pollster::block_on(async {
        device.load(plan, &mut Words(input)).await?;
        device.begin(&Step { n_tokens: rows, ..Step::default() }).await?;
        device.run_one(0).await?;
        device.read(1).await
    })
    .unwrap_or_else(|e| panic!("{e:#}"));
    // a row of 7 words: two scales, then qs, qs, qr of each block
    let mut blocks = Vec::new();
    for row in page.chunks_exact(words).take(rows) {
        for b in 0..2 {
            let mut bytes = [0u8; 14];
            for i in 0..3 {
                bytes[4 * i..4 * i + 4].copy_from_slice(&row[1 + 3 * b + i].to_le_bytes());
            }
            bytes[12..].copy_from_slice(&((row[0] >> (16 * b)) as u16).to_le_bytes());
            blocks.push(bytes);
        }
    }
    blocks
}

/// What the golden data's README asks of us, block by block.
fn check(device: &str, blocks: &[[u8; 14]]) {
    let (expected, fragile) = (golden("blocks.bin"), golden("fragile.bin"));
    let input: Vec<f32> = golden("input.f32").chunks_exact(4).map(|b| f32::from_bits(u32_at(b, 0))).collect();
    let (mut equal, mut masked) = (0, 0);
    for (i, found) in blocks.iter().enumerate() {
        let want = &expected[14 * i..][..14];
        if found == want {
            equal += 1;
            continue;
        }
        let gamma = u16::from_le_bytes([found[12], found[13]]);
        let want_gamma = u16::from_le_bytes([want[12], want[13]]);
        match i {
            // subnormal territory: a device may flush, the block must decode to 0
            688..=695 => assert_eq!(gamma, 0, "{device}: block {i}"),
            // elements of 2^64 and more are not stored: they count as 0
            712..=719 if input.as_chunks::<32>().0[i].iter().any(|x| x.abs() >= CANON_MAX) => {
                assert!(gamma & 0x7c00 != 0x7c00, "{device}: block {i}");
            }
            // gamma is clamped to the largest finite f16 where the reference writes infinity
            712..=719 if want_gamma == 0x7c00 => {
                assert_eq!(gamma, 0x7bff, "{device}: block {i}");
                assert_eq!(found[..12], want[..12], "{device}: block {i}");
            }
            _ => {
                assert_eq!(gamma, want_gamma, "{device}: block {i}");
                let (qr_mask, idx_mask) = (u32_at(&fragile, 8 * i), u32_at(&fragile, 8 * i + 4));
                let diff = |at: usize| u32_at(found, at) ^ u32_at(want, at);
                assert_eq!(diff(8) & !qr_mask, 0, "{device}: block {i}: residual bits");
                for j in 0..32 {
                    let d = diff(4 * (j / 16)) >> (2 * (j % 16)) & 3;
                    assert!(d == 0 || idx_mask >> j & 1 == 1, "{device}: block {i} element {j}");
                }
                masked += 1;
            }
        }
    }
    println!("{device}: {equal} of {BLOCKS} blocks equal byte for byte, {masked} within the fragile mask");
    assert_eq!(masked, 0, "{device}: our arithmetic is the reference's, the mask is not needed");
    assert!(equal >= BLOCKS - 14);
}

#[test]
fn the_720_golden_blocks_come_out_of_the_cpu_and_of_every_adapter() {
    let mut devices: Vec<Box<dyn Device>> =
        vec![Box::new(CpuDevice::new(CpuOptions::default()).expect("threads start"))];
    devices.extend(crate::common::boxed_gpus(None));
    let mut first: Option<Vec<[u8; 14]>> = None;
    for d in &mut devices {
        let name = d.info().name;
        let blocks = encode(d.as_mut(), CacheType::TQ3_0);
        check(&name, &blocks);
        let first = first.get_or_insert_with(|| blocks.clone());
        assert!(*first == blocks, "{name}: differs from the first device");
    }
}

#[test]
#[should_panic(expected = "block 200")]
fn a_flipped_bit_in_a_golden_block_is_caught() {
    let mut cpu = CpuDevice::new(CpuOptions::default()).expect("threads start");
    let mut blocks = encode(&mut cpu, CacheType::TQ3_0);
    blocks[200][12] ^= 1;
    check("planted", &blocks);
}

#[test]
fn the_two_formats_never_give_the_same_bytes_for_the_same_values() {
    let mut cpu = CpuDevice::new(CpuOptions::default()).expect("threads start");
    let (a, b) = (encode(&mut cpu, CacheType::TQ3_0), encode(&mut cpu, CacheType::TQ3_1));
    let same = a.iter().zip(&b).filter(|(a, b)| a == b).count();
    assert_eq!(same, 0, "{same} blocks could be taken for the other format");
}

#[test]
fn at_64k_positions_the_cache_takes_3_5_bits_a_value() {
    let c =
        Container::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/tiny-stories-Q4_K_M.gguf"), LoadMode::Read)
            .expect("opens");
    let h = Hyper::read(&c).expect("hyperparameters");
    let bytes = |t: CacheType, role: Role| {
        let o = PlanOptions { n_ctx: 65536, ubatch: 16, k_type: t, v_type: t, ..PlanOptions::default() };
        let plan = build(&c, &h, &o).expect("the plan is made").plan;
        // what a device allocates: one buffer per declaration
        plan.buffers.iter().filter(|b| b.role == role).map(|b| b.words * 4).sum::<usize>()
    };
    let values = 65536 * 2 * h.kv_heads * h.head_dim * h.layers;
    let cache = |t| bytes(t, Role::Cache);
    assert_eq!(cache(CacheType::TQ3_1) * 8, values * 7 / 2);
    assert_eq!(cache(CacheType::TQ3_0), cache(CacheType::TQ3_1));
    let ratio = cache(CacheType::F16) as f64 / cache(CacheType::TQ3_1) as f64;
    assert!((ratio - 64.0 / 14.0).abs() < 1e-9, "{ratio}");
    // the f16 copy of recent positions comes on top, the same for every context
    assert_eq!(bytes(CacheType::TQ3_1, Role::Recent), values / 65536 * recent_positions(16, 1) * 2);
    assert_eq!(bytes(CacheType::Q4_0, Role::Recent), 0);
}
