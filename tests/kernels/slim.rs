//! W8A8 over the sample of msModelSlim's formulas: codes, sums and results of `row_quantize` and `w8a8_matvec`.

use isobit::internals::blocks::{BlockType, pack};
use isobit::internals::formats::{Activations, Container, LoadMode};
use isobit::internals::ops::linear::{LinearParams, act_words};
use isobit::internals::ops::row_quantize::{RowQuantizeParams, row_quantize};
use isobit::internals::ops::types::twins;
use isobit::internals::simd::{self, Act, Level};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/vectors/msmodelslim");
const LAYER: &str = "model.layers.0.self_attn";
const K: usize = 64;
const ROWS: usize = 16;
const TOKENS: usize = 5;

fn expected(name: &str) -> Vec<u8> {
    let file = std::fs::read(format!("{DATA}/expected.safetensors")).unwrap();
    let all = safetensors::SafeTensors::deserialize(&file).unwrap();
    all.tensor(name).unwrap_or_else(|e| panic!("{name}: {e}")).data().to_vec()
}

fn floats(name: &str) -> Vec<f32> {
    expected(name).as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// The matrix `name` packed, d and b of its rows, and how its activations become codes.
fn matrix(name: &str) -> (Vec<u32>, Vec<(f32, i32)>, RowQuantizeParams) {
    let dir = tempfile::tempdir().unwrap();
    for file in ["quant_model_weights.safetensors", "quant_model_description.json"] {
        std::fs::copy(format!("{DATA}/{file}"), dir.path().join(file)).unwrap();
    }
    std::fs::write(dir.path().join("config.json"), b"{\"model_type\":\"llama\"}").unwrap();
    let c = Container::open(dir.path(), LoadMode::Read).unwrap_or_else(|e| panic!("{e}"));
    let name = format!("{LAYER}.{name}.weight");
    let t = c.tensor(&name).unwrap();
    assert_eq!((t.dtype.block(), &t.shape[..]), (Some(BlockType::W8A8), &[K as u64, ROWS as u64][..]));
    let mut bytes = vec![0; t.bytes as usize];
    c.read(t, 0, &mut bytes).unwrap();
    let mut w = vec![0; pack::packed_words(BlockType::W8A8, ROWS, K)];
    pack::pack_rows(BlockType::W8A8, K, ROWS, &bytes, &mut w).unwrap();
    let heads = (0..ROWS).map(|row| (f32::from_bits(w[row]), w[32 + row] as i32)).collect();
    let (limit, scale, offset) = match c.activations(&name).unwrap() {
        Activations::Dynamic { limit } => (limit, 0.0, 0.0),
        Activations::Static { scale, offset } => (0, scale, offset),
    };
    (w, heads, RowQuantizeParams { n_tokens: TOKENS as u32, k: K as u32, limit, scale, offset })
}

/// Rows of X as blocks, and their codes.
fn activations(p: &RowQuantizeParams) -> (Vec<u32>, Vec<i8>) {
    let mut act = vec![0; TOKENS * act_words(K, 1)];
    row_quantize(p, &floats("X"), &mut act);
    let codes = act.chunks_exact(37).flat_map(|b| bytemuck::cast_slice::<u32, i8>(&b[1..33])[..K].to_vec()).collect();
    (act, codes)
}

/// Results of the twin, which every level must give as well.
fn product(w: &[u32], act: &[u32]) -> Vec<f32> {
    let (n_tokens, k, rows) = (TOKENS as u32, K as u32, ROWS as u32);
    let p = LinearParams { n_tokens, k, rows, digits: 1, y_stride: rows, y_offset: 0, residual: 0 };
    let mut y = vec![f32::NAN; TOKENS * ROWS];
    (twins(BlockType::W8A8).matvec)(&p, w, act, &mut y);
    for level in Level::available() {
        let mut got = vec![f32::NAN; y.len()];
        simd::matvec(level, BlockType::W8A8, &p, w, Act::Blocks(act), &mut got);
        assert!(got.iter().zip(&y).all(|(a, b)| a.to_bits() == b.to_bits()), "{}", level.name());
    }
    y
}

/// Whether `got` is no more than one f32 away from the f32 nearest to `want`.
fn beside(got: f32, want: f64) -> bool {
    let near = want as f32;
    got >= near.next_down() && got <= near.next_up()
}

#[test]
fn a_fixed_scale_gives_the_samples_codes_sums_and_results() {
    let (w, heads, p) = matrix("q_proj");
    let (act, codes) = activations(&p);
    assert_eq!(bytemuck::cast_slice::<i8, u8>(&codes), expected("w8a8_qact"));
    let sums: Vec<i32> = expected("w8a8_acc_i32").as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
    // results whose scale is 1 are the sums, bias and all
    let mut plain = w.clone();
    plain[..ROWS].fill(1f32.to_bits());
    assert_eq!(product(&plain, &act), sums.iter().map(|s| *s as f32).collect::<Vec<_>>());
    let stored = floats("w8a8_out");
    for (i, got) in product(&w, &act).into_iter().enumerate() {
        let want = f64::from(sums[i]) * f64::from(heads[i % ROWS].0);
        assert_eq!(got, want as f32, "result {i} is rounded once");
        assert!(beside(stored[i], want), "the sample's result {i}: {} beside {want}", stored[i]);
    }
}

#[test]
fn a_scale_for_each_token_gives_the_samples_results() {
    // the sample's results are of the codes of q_proj
    let ((w, _, _), (_, heads, p)) = (matrix("q_proj"), matrix("o_proj"));
    let (act, codes) = activations(&p);
    let rows: Vec<Vec<i8>> = (0..ROWS)
        .map(|row| (0..K).map(|e| (w[32 * (2 + e / 4) + row] >> (8 * (e % 4))) as u8 as i8).collect())
        .collect();
    let mut dynamic = w.clone();
    for (row, (d, b)) in heads.iter().enumerate() {
        (dynamic[row], dynamic[32 + row]) = (d.to_bits(), *b as u32);
    }
    let stored = floats("w8a8dyn_out");
    for (i, got) in product(&dynamic, &act).into_iter().enumerate() {
        let (token, row) = (i / ROWS, i % ROWS);
        let sum: i64 = (0..K).map(|e| i64::from(codes[token * K + e]) * i64::from(rows[row][e])).sum();
        let scale = f32::from_bits(act[token * 37]);
        let want = sum as f64 * f64::from(scale) * f64::from(heads[row].0);
        assert!(beside(got, want), "result {i}: {got} beside {want}");
        assert!((f64::from(stored[i]) - want).abs() <= want.abs() * 1e-6 + 1e-9, "{}: {want}", stored[i]);
    }
}
