//! msModelSlim's directories: a stored sample whose values are known, directories made by hand for every scheme, a named
//! error for every way they can be wrong, and mutations. Values are compared as bits.

use super::readers::{ALLOWANCE, Random, mutate, peak_of};
use isobit::internals::blocks::{BlockType, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use isobit::internals::formats::{Activations, Container, ContainerKind, FormatError, LoadMode, Tensor};
use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

// ---------------------------------------------------------------- directories

const WEIGHTS: &str = "quant_model_weights.safetensors";
const DESCRIPTION: &str = "quant_model_description.json";
const INDEX: &str = "quant_model_weights.safetensors.index.json";

/// Names of the sample's layer.
const UP: &str = "model.layers.0.mlp.up_proj";
const GATE: &str = "model.layers.0.mlp.gate_proj";
const DOWN: &str = "model.layers.0.mlp.down_proj";
const Q: &str = "model.layers.0.self_attn.q_proj";
const K: &str = "model.layers.0.self_attn.k_proj";
const V: &str = "model.layers.0.self_attn.v_proj";
const O: &str = "model.layers.0.self_attn.o_proj";
const NORM: &str = "model.layers.0.input_layernorm";

type Files = BTreeMap<String, Vec<u8>>;

/// A directory of one weight file, before it is written.
#[derive(Clone, Default)]
struct Made {
    tensors: BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>,
    description: Map<String, Value>,
    config: Value,
}

fn stored(name: &str) -> Vec<u8> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/vectors/msmodelslim")).join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

impl Made {
    /// The stored sample.
    fn sample() -> Made {
        let file = stored(WEIGHTS);
        let mut made = Made { config: json!({"model_type": "llama", "hidden_size": 64}), ..Made::default() };
        for (name, view) in SafeTensors::deserialize(&file).unwrap().tensors() {
            made.tensors.insert(name, (view.dtype(), view.shape().to_vec(), view.data().to_vec()));
        }
        made.description = serde_json::from_slice(&stored(DESCRIPTION)).unwrap();
        made
    }

    fn put(&mut self, name: &str, scheme: &str, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) -> &mut Made {
        self.tensors.insert(name.into(), (dtype, shape.to_vec(), bytes));
        self.description.insert(name.into(), scheme.into());
        self
    }

    fn floats(&mut self, name: &str, scheme: &str, shape: &[usize], values: &[f32]) -> &mut Made {
        self.put(name, scheme, Dtype::F32, shape, f32_bytes(values))
    }

    /// A float matrix or vector of zeros.
    fn float(&mut self, name: &str, shape: &[usize]) -> &mut Made {
        let zeros = vec![0.0; shape.iter().product()];
        self.floats(name, "FLOAT", shape, &zeros)
    }

    /// Other numbers for a tensor that is there.
    fn set(&mut self, name: &str, shape: &[usize], values: &[f32]) {
        let tensor = self.tensors.get_mut(name).unwrap();
        *tensor = (Dtype::F32, shape.to_vec(), f32_bytes(values));
    }

    fn remove(&mut self, name: &str) {
        self.tensors.remove(name).unwrap();
        self.description.remove(name).unwrap();
    }

    fn weights<'a>(&'a self, which: impl Fn(&str) -> bool + 'a) -> Vec<u8> {
        let views = self.tensors.iter().filter(|(name, _)| which(name)).map(|(name, (dtype, shape, bytes))| {
            (name.as_str(), safetensors::tensor::TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        safetensors::serialize(views, None).unwrap()
    }

    fn files(&self) -> Files {
        BTreeMap::from([
            ("config.json".to_string(), self.config.to_string().into_bytes()),
            (WEIGHTS.to_string(), self.weights(|_| true)),
            (DESCRIPTION.to_string(), Value::Object(self.description.clone()).to_string().into_bytes()),
        ])
    }

    fn open(&self) -> (tempfile::TempDir, Container) {
        let dir = write(&self.files());
        let c = open(dir.path()).unwrap();
        (dir, c)
    }
}

fn write(files: &Files) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(dir.path().join(name), content).unwrap();
    }
    dir
}

fn open(dir: &Path) -> Result<Container, FormatError> {
    Container::open(dir, LoadMode::Read)
}

fn read(c: &Container, t: &Tensor) -> Result<Vec<u8>, FormatError> {
    let mut out = vec![0; t.bytes as usize];
    c.read(t, 0, &mut out).map(|()| out)
}

/// Type, shape with the slowest dimension first, and bytes of a tensor.
fn tensor(c: &Container, name: &str) -> (&'static str, Vec<u64>, Vec<u8>) {
    let t = c.tensor(name).unwrap_or_else(|| panic!("no {name} in {:?}", c.tensors));
    (t.dtype.name(), t.shape.iter().rev().copied().collect(), read(c, t).unwrap())
}

/// The weights of a matrix.
fn decoded(c: &Container, name: &str) -> Vec<f32> {
    let t = c.tensor(name).unwrap();
    let mut out = vec![0.0; t.elems() as usize];
    t.dtype.block().unwrap().decode_row(&read(c, t).unwrap(), &mut out);
    out
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn words(bytes: &[u8]) -> Vec<[u8; 4]> {
    bytes.as_chunks::<4>().0.to_vec()
}

fn as_f32(bytes: &[u8]) -> Vec<f32> {
    words(bytes).into_iter().map(f32::from_le_bytes).collect()
}

fn as_i32(bytes: &[u8]) -> Vec<i32> {
    words(bytes).into_iter().map(i32::from_le_bytes).collect()
}

/// Rows of W8A8 taken apart: d, b, s and the codes of each, after all of a row's blocks were compared.
fn rows_of_w8a8(c: &Container, name: &str) -> Vec<(f32, i32, f32, Vec<i8>)> {
    let (dtype, shape, bytes) = tensor(c, name);
    assert_eq!(dtype, "W8A8");
    let row = |bytes: &[u8]| {
        let blocks: Vec<&[u8]> = bytes.chunks_exact(44).collect();
        assert!(blocks.iter().all(|b| b[..12] == blocks[0][..12]), "a row with two scales");
        let number = |at: usize| <[u8; 4]>::try_from(&blocks[0][at..at + 4]).unwrap();
        let codes = blocks.iter().flat_map(|b| b[12..].iter().map(|q| *q as i8)).collect();
        (f32::from_le_bytes(number(0)), i32::from_le_bytes(number(4)), f32::from_le_bytes(number(8)), codes)
    };
    bytes.chunks_exact(shape[1] as usize / 32 * 44).map(row).collect()
}

// ---------------------------------------------------------------- the sample

/// The tensors of a stored file.
fn expected() -> BTreeMap<String, Vec<u8>> {
    let file = stored("expected.safetensors");
    let all = SafeTensors::deserialize(&file).unwrap();
    all.tensors().into_iter().map(|(name, view)| (name, view.data().to_vec())).collect()
}

#[test]
fn the_sample_opens_as_stored_and_decodes_to_the_expected_weights() {
    let dir = tempfile::tempdir().unwrap();
    for name in [WEIGHTS, DESCRIPTION] {
        std::fs::write(dir.path().join(name), stored(name)).unwrap();
    }
    std::fs::write(dir.path().join("config.json"), b"{\"model_type\":\"llama\"}").unwrap();
    let c = open(dir.path()).unwrap();
    assert_eq!((c.kind, c.files.len()), (ContainerKind::HuggingFace, 1));
    let want = expected();
    for (name, values, dtype) in
        [(UP, "w8a16_channel", "W8A16"), (GATE, "w8a16_group32", "W8A16"), (DOWN, "w4a8_deq", "W8A8")]
    {
        let name = format!("{name}.weight");
        assert_eq!(tensor(&c, &name).1, [16, 64]);
        assert_eq!(tensor(&c, &name).0, dtype);
        assert_eq!(bits(&decoded(&c, &name)), bits(&as_f32(&want[values])), "{name}");
    }
    let codes: Vec<u8> =
        rows_of_w8a8(&c, &format!("{DOWN}.weight")).iter().flat_map(|r| r.3.iter().map(|q| *q as u8)).collect();
    assert_eq!(codes, want["w4a8_q_i8"]);
    let mut names: Vec<&str> = c.tensors.iter().map(|t| t.name.as_str()).collect();
    names.sort_unstable();
    let parts = [
        format!("{NORM}.weight"),
        format!("{DOWN}.weight"),
        format!("{GATE}.weight"),
        format!("{UP}.weight"),
        format!("{K}.kv_cache_offset"),
        format!("{K}.kv_cache_scale"),
        format!("{O}.weight"),
        format!("{Q}.bias"),
        format!("{Q}.weight"),
        format!("{V}.kv_cache_offset"),
        format!("{V}.kv_cache_scale"),
        "model.norm.weight".to_string(),
    ];
    assert_eq!(names, parts);
}

#[test]
fn the_samples_static_matrix_holds_its_scales_and_gives_the_expected_sums() {
    let made = Made::sample();
    let (_dir, c) = made.open();
    let bytes = |part: &str| made.tensors[&format!("{Q}.{part}")].2.clone();
    let one = |part: &str| as_f32(&bytes(part))[0];
    let (scale, offset) = (one("input_scale"), one("input_offset"));
    assert_eq!(c.activations(&format!("{Q}.weight")), Some(Activations::Static { scale, offset }));
    let rows = rows_of_w8a8(&c, &format!("{Q}.weight"));
    let deq: Vec<f32> =
        bytes("deq_scale").as_chunks::<8>().0.iter().map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let bias = as_i32(&bytes("quant_bias"));
    assert!(bias.iter().any(|b| *b != 0) && offset != 0.0);
    for (i, (d, b, s, codes)) in rows.iter().enumerate() {
        assert_eq!((d.to_bits(), *b, s.to_bits()), (deq[i].to_bits(), bias[i], (deq[i] / scale).to_bits()), "row {i}");
        let codes: Vec<u8> = codes.iter().map(|q| *q as u8).collect();
        assert_eq!(codes, bytes("weight")[i * 64..][..64], "row {i}");
    }
    // activations become the expected codes, and those give the expected sums
    let want = expected();
    let q: Vec<i32> =
        as_f32(&want["X"]).iter().map(|x| (x / scale + offset).round_ties_even().clamp(-128.0, 127.0) as i32).collect();
    assert_eq!(q, want["w8a8_qact"].iter().map(|q| i32::from(*q as i8)).collect::<Vec<_>>());
    let sum = |x: &[i32], row: &(f32, i32, f32, Vec<i8>)| {
        x.iter().zip(&row.3).map(|(x, w)| x * i32::from(*w)).sum::<i32>() + row.1
    };
    let sums: Vec<i32> = q.chunks_exact(64).flat_map(|x| rows.iter().map(|r| sum(x, r)).collect::<Vec<_>>()).collect();
    assert_eq!(sums, as_i32(&want["w8a8_acc_i32"]));
    // the layer's own bias is within quant_bias, and kept for other forms of the model
    assert_eq!(tensor(&c, &format!("{Q}.bias")).2, bytes("bias"));
}

#[test]
fn the_samples_other_parts_are_as_the_engine_wants_them() {
    let made = Made::sample();
    let (_dir, c) = made.open();
    let bytes = |name: &str| made.tensors[name].2.clone();
    let scales = as_f32(&bytes(&format!("{O}.weight_scale")));
    for ((d, b, s, _), scale) in rows_of_w8a8(&c, &format!("{O}.weight")).into_iter().zip(scales) {
        assert_eq!((d.to_bits(), b, s.to_bits()), (scale.to_bits(), 0, scale.to_bits()));
    }
    for name in [O, DOWN] {
        assert_eq!(c.activations(&format!("{name}.weight")), Some(Activations::Dynamic { limit: 127 }));
    }
    for name in [UP, GATE] {
        assert_eq!(c.activations(&format!("{name}.weight")), None);
    }
    let (dtype, shape, found) = tensor(&c, &format!("{NORM}.weight"));
    assert_eq!((dtype, &shape[..]), ("F32", &[64][..]));
    assert_eq!(found, bytes(&format!("{NORM}.module.weight")));
    // a bias of zeros is none
    assert!(
        bytes(&format!("{NORM}.module.bias")).iter().all(|b| *b == 0) && c.tensor(&format!("{NORM}.bias")).is_none()
    );
    assert_ne!(bytes(&format!("{NORM}.module.weight")), bytes(&format!("{NORM}.weight")));
    for name in [K, V].map(|p| ["scale", "offset"].map(|part| format!("{p}.kv_cache_{part}"))).concat() {
        assert_eq!(tensor(&c, &name), ("F32", vec![8], bytes(&name)));
    }
    assert_eq!(c.digest(|_| ()).unwrap().len(), 64);
}

#[test]
fn any_range_of_a_matrix_is_what_the_whole_has_there_in_both_modes() {
    let mut made = Made::sample();
    // more blocks than are made at once, in rows that end within them
    let (n, k) = (1400, 416);
    let codes = |len: usize| (0..len).map(|i| ((i as u64 * 2_654_435_761) >> 13) as u8).collect::<Vec<u8>>();
    let scales: Vec<f32> = (0..n).map(|i| 0.5 + i as f32).collect();
    made.put("a.weight", "W4A8_DYNAMIC", Dtype::I8, &[n / 2, k], codes(n / 2 * k));
    made.floats("a.weight_scale", "W4A8_DYNAMIC", &[n, 1], &scales);
    made.put("b.weight", "W4A16", Dtype::I8, &[n, k / 2], codes(n * k / 2));
    made.floats("b.weight_scale", "W4A16", &[n, 1], &scales);
    made.floats("b.weight_offset", "W4A16", &[n, 1], &vec![-3.0; n]);
    let (dir, c) = made.open();
    let mapped = Container::open(dir.path(), LoadMode::Mmap).unwrap();
    let mut random = Random(7);
    for t in &c.tensors {
        let whole = read(&c, t).unwrap();
        assert_eq!(read(&mapped, mapped.tensor(&t.name).unwrap()).unwrap(), whole);
        for _ in 0..200 {
            let at = (random.next() % t.bytes) as usize;
            let len = (random.next() % 700).min(t.bytes - at as u64) as usize;
            let mut part = vec![0; len];
            c.read(t, at as u64, &mut part).unwrap();
            assert_eq!(part, whole[at..at + len], "{} at {at}", t.name);
        }
        assert!(c.read(t, t.bytes, &mut [0]).is_err());
    }
    // the two lay out the same bytes as codes of row pairs and of column pairs
    let a = rows_of_w8a8(&c, "a.weight");
    let file = codes(n / 2 * k);
    let nibble = |byte: u8, high: bool| ((if high { byte & 0xf0 } else { byte << 4 }) as i8) >> 4;
    for (row, (d, _, _, q)) in a.iter().enumerate() {
        assert_eq!(d.to_bits(), scales[row].to_bits());
        let want: Vec<i8> = (0..k).map(|col| nibble(file[row / 2 * k + col], row % 2 == 1)).collect();
        assert_eq!(*q, want, "row {row}");
    }
    let file = codes(n * k / 2);
    for (i, v) in decoded(&c, "b.weight").into_iter().enumerate() {
        let q = nibble(file[i / 2], i % 2 == 1);
        assert_eq!(v.to_bits(), ((f32::from(q) + 3.0) * scales[i / k]).to_bits(), "element {i}");
    }
}

// ---------------------------------------------------------------- schemes, made by hand

/// Codes from -128 to 127, or from -8 to 7.
fn codes(len: usize, four: bool) -> Vec<i8> {
    (0..len).map(|i| ((i * 37 + i / 64 * 5) as i8) >> if four { 4 } else { 0 }).collect()
}

fn as_bytes(codes: &[i8]) -> Vec<u8> {
    codes.iter().map(|q| *q as u8).collect()
}

/// (q - offset) * scale, with a scale and an offset for each group of a row.
fn product(codes: &[i8], k: usize, scales: &[f32], offsets: &[f32]) -> Vec<f32> {
    let n = codes.len() / k;
    let groups = scales.len() / n;
    let group = |i: usize| i / k * groups + i % k / (k / groups);
    codes.iter().enumerate().map(|(i, q)| (f32::from(*q) - offsets[group(i)]) * scales[group(i)]).collect()
}

/// A layer of two W4A16 matrices of each packing, [6, 64] and [6, 64] in groups of 32.
fn of_four_bits(packing: &str) -> (Made, [Vec<f32>; 2]) {
    let (n, k) = (6, 64);
    let q = codes(n * k, true);
    let nibble = |q: i8| q as u8 & 15;
    let (shape, bytes): ([usize; 2], Vec<u8>) = match packing {
        "columns" => ([n, k / 2], q.chunks_exact(2).map(|p| nibble(p[0]) | nibble(p[1]) << 4).collect()),
        "rows" => {
            let byte = |i: usize| {
                let (pair, column) = (i / k, i % k);
                nibble(q[2 * pair * k + column]) | nibble(q[(2 * pair + 1) * k + column]) << 4
            };
            ([n / 2, k], (0..n / 2 * k).map(byte).collect())
        }
        _ => ([n, k], as_bytes(&q)),
    };
    let mut made = Made { config: json!({"hidden_size": k}), ..Made::default() };
    made.description.insert("group_size".into(), 32.into());
    let mut want = vec![];
    for (name, groups) in [(UP, 1), (GATE, 2)] {
        let scales: Vec<f32> = (0..n * groups).map(|i| f16_to_f32(f32_to_f16(0.01 + 0.003 * i as f32))).collect();
        let offsets: Vec<f32> = (0..n * groups).map(|i| [0.0, -8.0, 3.0, 119.0, -136.0][i % 5]).collect();
        let halves = |v: &[f32]| v.iter().flat_map(|v| f32_to_f16(*v).to_le_bytes()).collect::<Vec<u8>>();
        made.put(&format!("{name}.weight"), "W4A16", Dtype::I8, &shape, bytes.clone());
        made.put(&format!("{name}.weight_scale"), "W4A16", Dtype::F16, &[n, groups], halves(&scales));
        made.put(&format!("{name}.weight_offset"), "W4A16", Dtype::F16, &[n, groups], halves(&offsets));
        want.push(product(&q, k, &scales, &offsets));
    }
    (made, want.try_into().unwrap())
}

#[test]
fn four_bits_are_read_from_pairs_of_columns_pairs_of_rows_and_single_bytes() {
    for packing in ["columns", "rows", "bytes"] {
        let (made, want) = of_four_bits(packing);
        let (_dir, c) = made.open();
        for (name, want) in [UP, GATE].iter().zip(want) {
            let name = format!("{name}.weight");
            assert_eq!((tensor(&c, &name).0, &tensor(&c, &name).1[..]), ("W4A16", &[6, 64][..]), "{packing}");
            assert_eq!(bits(&decoded(&c, &name)), bits(&want), "{packing} of {name}");
        }
    }
}

#[test]
fn a_config_without_sizes_leaves_four_bits_packed_in_columns() {
    let (mut made, want) = of_four_bits("columns");
    made.config = json!({});
    made.description.remove("group_size");
    let (_dir, c) = made.open();
    assert_eq!(bits(&decoded(&c, &format!("{UP}.weight"))), bits(&want[0]));
    assert_eq!(bits(&decoded(&c, &format!("{GATE}.weight"))), bits(&want[1]));
}

#[test]
fn a_byte_with_more_than_four_bits_is_an_error_when_it_is_read() {
    let (mut made, _) = of_four_bits("bytes");
    made.tensors.get_mut(&format!("{UP}.weight")).unwrap().2[100] = 8;
    let (_dir, c) = made.open();
    let e = read(&c, c.tensor(&format!("{UP}.weight")).unwrap()).unwrap_err().to_string();
    assert!(e.contains("more than four bits") && e.contains(UP) && e.contains("expected -8 to 7, found 8"), "{e}");
    assert!(read(&c, c.tensor(&format!("{GATE}.weight")).unwrap()).is_ok());
}

/// A W8A16 [5, k] in groups, with scales of BF16.
fn of_eight_bits(k: usize, shape: &[usize], offset: f32) -> (Made, Vec<f32>) {
    let (n, count) = (5, shape.iter().product());
    let q = codes(n * k, false);
    let scales: Vec<f32> = (0..count).map(|i| bf16_to_f32(f32_to_bf16(0.02 - 0.007 * i as f32))).collect();
    let mut offsets = vec![0.0; count];
    offsets[count - 1] = offset;
    let halves = |v: &[f32]| v.iter().flat_map(|v| f32_to_bf16(*v).to_le_bytes()).collect::<Vec<u8>>();
    let mut made = Made { config: json!({}), ..Made::default() };
    made.put(&format!("{UP}.weight"), "W8A16", Dtype::I8, &[n, k], as_bytes(&q));
    made.put(&format!("{UP}.weight_scale"), "W8A16", Dtype::BF16, shape, halves(&scales));
    made.put(&format!("{UP}.weight_offset"), "W8A16", Dtype::BF16, shape, halves(&offsets));
    made.put(&format!("{UP}.bias"), "W8A16", Dtype::F16, &[n], vec![1; 2 * n]);
    (made, product(&q, k, &scales, &offsets))
}

#[test]
fn eight_bits_without_offsets_become_blocks_of_128_where_groups_are_as_long() {
    for (k, shape, offset, dtype) in [
        (256, &[5][..], 0.0, "Q8K128"),
        (256, &[5, 1], 0.0, "Q8K128"),
        (384, &[5, 3], 0.0, "Q8K128"),
        (512, &[5, 2], 0.0, "Q8K128"),
        (256, &[5, 4], 0.0, "W8A16"),
        (96, &[5, 1], 0.0, "W8A16"),
        (576, &[5, 3], 0.0, "W8A16"),
        (256, &[5, 2], 1.0, "W8A16"),
        (96, &[5, 3], -128.0, "W8A16"),
        (96, &[5], 127.0, "W8A16"),
    ] {
        let (made, want) = of_eight_bits(k, shape, offset);
        let (_dir, c) = made.open();
        let name = format!("{UP}.weight");
        assert_eq!((tensor(&c, &name).0, &tensor(&c, &name).1[..]), (dtype, &[5, k as u64][..]), "{shape:?}");
        assert_eq!(bits(&decoded(&c, &name)), bits(&want), "{k} columns, {shape:?}, {offset}");
        assert_eq!(tensor(&c, &format!("{UP}.bias")), ("F16", vec![5], vec![1; 10]));
        if dtype == "Q8K128" {
            // the sums are part of the block, though packing leaves them behind
            let (_, _, bytes) = tensor(&c, &name);
            for block in bytes.chunks_exact(BlockType::Q8K128.bytes()) {
                let sum = |codes: &[u8]| codes.iter().map(|q| i16::from(*q as i8)).sum::<i16>().to_le_bytes();
                let sums: Vec<u8> = block[4..132].chunks_exact(16).flat_map(sum).collect();
                assert_eq!(sums, block[132..]);
            }
        }
    }
}

/// A W8A8 [4, 32] whose result scales are these bytes.
fn of_static(dtype: Dtype, deq_scale: Vec<u8>) -> Made {
    let mut made = Made { config: json!({}), ..Made::default() };
    let half = |v: f32| f32_to_f16(v).to_le_bytes().to_vec();
    made.put(&format!("{O}.weight"), "W8A8S", Dtype::I8, &[4, 32], as_bytes(&codes(128, false)));
    made.put(&format!("{O}.deq_scale"), "W8A8S", dtype, &[4], deq_scale);
    let bias: Vec<u8> = [0, 7, -9, 1 << 20].iter().flat_map(|b: &i32| b.to_le_bytes()).collect();
    made.put(&format!("{O}.quant_bias"), "W8A8", Dtype::I32, &[4], bias);
    made.put(&format!("{O}.input_scale"), "W8A8S", Dtype::F16, &[1], half(0.0625));
    made.put(&format!("{O}.input_offset"), "W8A8S", Dtype::F16, &[1], half(-12.0));
    // some savers write these as well
    made.floats(&format!("{O}.weight_scale"), "W8A8S", &[4, 1], &[1.0; 4]);
    made.floats(&format!("{O}.weight_offset"), "W8A8S", &[4, 1], &[0.0; 4]);
    made
}

#[test]
fn result_scales_are_f32_or_their_bits_in_i64_with_the_sign_extended() {
    let scales = [0.5f32, 1e-6, 3.25, 0.0];
    let wide = |v: f32| i64::from(v.to_bits() as i32).to_le_bytes();
    let negative = scales.map(|v| -v);
    assert!(i64::from_le_bytes(wide(-0.5)) < 0);
    for (dtype, bytes, want) in [
        (Dtype::F32, f32_bytes(&scales), scales),
        (Dtype::I64, scales.iter().flat_map(|v| wide(*v)).collect(), scales),
        (Dtype::I64, negative.iter().flat_map(|v| wide(*v)).collect(), negative),
        // of fp16 models some have the bits alone
        (Dtype::I64, negative.iter().flat_map(|v| u64::from(v.to_bits()).to_le_bytes()).collect(), negative),
    ] {
        let (_dir, c) = of_static(dtype, bytes).open();
        let rows = rows_of_w8a8(&c, &format!("{O}.weight"));
        let found: Vec<(u32, i32, u32)> = rows.iter().map(|r| (r.0.to_bits(), r.1, r.2.to_bits())).collect();
        let want: Vec<(u32, i32, u32)> =
            want.iter().zip([0, 7, -9, 1 << 20]).map(|(d, b)| (d.to_bits(), b, (d / 0.0625).to_bits())).collect();
        assert_eq!(found, want);
        let how = Activations::Static { scale: 0.0625, offset: -12.0 };
        assert_eq!(c.activations(&format!("{O}.weight")), Some(how));
    }
}

#[test]
fn a_mixed_matrix_is_read_as_dynamic_and_keeps_its_bias() {
    let mut made = of_static(Dtype::F32, f32_bytes(&[0.5; 4]));
    for entry in made.description.values_mut() {
        *entry = "W8A8_MIX".into();
    }
    made.floats(&format!("{O}.bias"), "FLOAT", &[4], &[1.0, 2.0, 3.0, 4.0]);
    let (_dir, c) = made.open();
    assert_eq!(c.activations(&format!("{O}.weight")), Some(Activations::Dynamic { limit: 127 }));
    assert!(rows_of_w8a8(&c, &format!("{O}.weight")).iter().all(|r| (r.0, r.1, r.2) == (1.0, 0, 1.0)));
    assert_eq!(tensor(&c, &format!("{O}.bias")).2, f32_bytes(&[1.0, 2.0, 3.0, 4.0]));
    assert_eq!(c.tensors.len(), 2);
}

#[test]
fn four_bits_on_both_sides_have_activations_up_to_7_and_may_lack_offsets() {
    let mut made = Made { config: json!({}), ..Made::default() };
    let q = codes(128, true);
    made.put(&format!("{O}.weight"), "W4A4_DYNAMIC", Dtype::I8, &[4, 32], as_bytes(&q));
    made.floats(&format!("{O}.weight_scale"), "W4A4_DYNAMIC", &[4], &[0.5, 1.0, -2.0, 0.0]);
    let (_dir, c) = made.open();
    assert_eq!(c.activations(&format!("{O}.weight")), Some(Activations::Dynamic { limit: 7 }));
    let rows = rows_of_w8a8(&c, &format!("{O}.weight"));
    assert_eq!(rows.iter().flat_map(|r| r.3.clone()).collect::<Vec<_>>(), q);
    assert_eq!(rows.iter().map(|r| r.0).collect::<Vec<_>>(), [0.5, 1.0, -2.0, 0.0]);
}

#[test]
fn the_digest_says_how_activations_become_codes() {
    let digest = |made: &Made| made.open().1.digest(|_| ()).unwrap();
    let mut of_four = Made { config: json!({}), ..Made::default() };
    of_four.put(&format!("{O}.weight"), "W4A4_DYNAMIC", Dtype::I8, &[4, 32], as_bytes(&codes(128, true)));
    of_four.floats(&format!("{O}.weight_scale"), "W4A4_DYNAMIC", &[4], &[0.5; 4]);
    let four = digest(&of_four);
    assert_eq!(four, digest(&of_four));
    // the same blocks, other activations
    for part in ["weight", "weight_scale"] {
        of_four.description.insert(format!("{O}.{part}"), "W8A8_DYNAMIC".into());
    }
    assert_ne!(four, digest(&of_four));
    let mut fixed = of_static(Dtype::F32, f32_bytes(&[0.5; 4]));
    let before = digest(&fixed);
    fixed.set(&format!("{O}.input_offset"), &[1], &[-11.0]);
    assert_ne!(before, digest(&fixed));
}

#[test]
fn old_names_one_type_in_them_and_shards_give_the_same_model() {
    let made = Made::sample();
    let (_dir, whole) = made.open();
    let digest = whole.digest(|_| ()).unwrap();
    for (weights, description) in [
        ("quant_model_weight.safetensors", DESCRIPTION),
        ("quant_model_weight_w8a8.safetensors", "quant_model_description_w8a8.json"),
        ("model.safetensors", DESCRIPTION),
    ] {
        let mut files = made.files();
        for (now, old) in [(WEIGHTS, weights), (DESCRIPTION, description)] {
            let content = files.remove(now).unwrap();
            files.insert(old.into(), content);
        }
        let dir = write(&files);
        assert_eq!(open(dir.path()).unwrap().digest(|_| ()).unwrap(), digest, "{weights}");
    }
    // codes in one file, everything else in the other; float weights beside them are not what is described
    let mut files = made.files();
    files.remove(WEIGHTS);
    files.insert("model.safetensors".into(), made.weights(|name| name == "model.norm.weight"));
    let parts = [1, 2].map(|i| format!("quant_model_weights-0000{i}-of-00002.safetensors"));
    let of = |name: &str| usize::from(!name.ends_with("_proj.weight"));
    for (i, part) in parts.iter().enumerate() {
        files.insert(part.clone(), made.weights(|name| of(name) == i));
    }
    let map: Map<String, Value> = made.tensors.keys().map(|n| (n.clone(), parts[of(n)].as_str().into())).collect();
    files.insert(INDEX.into(), json!({"metadata": {"total_size": 1}, "weight_map": map}).to_string().into_bytes());
    let dir = write(&files);
    let c = open(dir.path()).unwrap();
    assert_eq!(c.files.len(), 2);
    assert_eq!(c.digest(|_| ()).unwrap(), digest);
}

#[test]
fn names_of_chatglm_are_kept_and_its_cache_is_named_as_that_of_all_models() {
    let mut made = Made { config: json!({"model_type": "chatglm"}), ..Made::default() };
    let layer = "transformer.encoder.layers.3";
    let (qkv, up) = (format!("{layer}.self_attention.query_key_value"), format!("{layer}.mlp.dense_h_to_4h"));
    made.float("transformer.embedding.word_embeddings.weight", &[8, 32]);
    made.float("transformer.rotary_pos_emb.inv_freq", &[4]);
    made.put(&format!("{qkv}.weight"), "W8A16", Dtype::I8, &[12, 32], as_bytes(&codes(384, false)));
    made.floats(&format!("{qkv}.weight_scale"), "W8A16", &[12], &[0.5; 12]);
    made.floats(&format!("{qkv}.weight_offset"), "W8A16", &[12], &[0.0; 12]);
    made.floats(&format!("{qkv}.bias"), "FLOAT", &[12], &[2.0; 12]);
    for part in ["k_proj.kv_cache_scale", "v_proj.kv_cache_scale", "k_proj.kv_cache_offset", "v_proj.kv_cache_offset"] {
        made.floats(&format!("{qkv}.{part}"), "W8A16", &[4, 1], &[0.5, 1.0, 2.0, 4.0]);
    }
    made.put(&format!("{up}.weight"), "W8A8", Dtype::I8, &[4, 32], as_bytes(&codes(128, false)));
    made.floats(&format!("{up}.deq_scale"), "W8A8", &[4], &[0.5; 4]);
    made.put(&format!("{up}.quant_bias"), "W8A8", Dtype::I32, &[4], vec![0; 16]);
    made.floats(&format!("{up}.input_scale"), "W8A8", &[1], &[0.5]);
    made.floats(&format!("{up}.input_offset"), "W8A8", &[1], &[0.0]);
    // the type of a norm says nothing; a smoothed one takes its place
    for (norm, scheme) in [("input_layernorm", "W8A16"), ("post_attention_layernorm", "FLOAT")] {
        made.floats(&format!("{layer}.{norm}.weight"), scheme, &[32], &[1.0; 32]);
        made.floats(&format!("{layer}.{norm}.module.weight"), "W8A8", &[32], &[3.0; 32]);
        made.floats(&format!("{layer}.{norm}.module.bias"), "FLOAT", &[32], &[4.0; 32]);
    }
    let (_dir, c) = made.open();
    for norm in ["input_layernorm", "post_attention_layernorm"] {
        assert_eq!(tensor(&c, &format!("{layer}.{norm}.weight")).2, f32_bytes(&[3.0; 32]));
        assert_eq!(tensor(&c, &format!("{layer}.{norm}.bias")).2, f32_bytes(&[4.0; 32]));
    }
    for part in ["k_proj.kv_cache_scale", "v_proj.kv_cache_offset"] {
        let want = ("F32", vec![4], f32_bytes(&[0.5, 1.0, 2.0, 4.0]));
        assert_eq!(tensor(&c, &format!("model.layers.3.self_attn.{part}")), want);
    }
    assert_eq!(tensor(&c, &format!("{qkv}.weight")).0, "W8A16");
    assert_eq!(tensor(&c, &format!("{up}.weight")).0, "W8A8");
    assert!(c.tensor("transformer.rotary_pos_emb.inv_freq").is_some());
    assert_eq!(c.tensors.len(), 13);
}

#[test]
fn a_norm_before_float_matrices_keeps_its_own_weights() {
    let mut made = Made::sample();
    for part in ["quant_bias", "input_scale", "input_offset", "deq_scale", "weight", "bias"] {
        made.remove(&format!("{Q}.{part}"));
    }
    made.float(&format!("{Q}.weight"), &[16, 64]).float(&format!("{Q}.bias"), &[16]);
    let own = made.tensors[&format!("{NORM}.weight")].2.clone();
    let (_dir, c) = made.open();
    assert_eq!(tensor(&c, &format!("{NORM}.weight")).2, own);
    assert!(c.tensor(&format!("{NORM}.bias")).is_none());
    assert!(c.tensors.iter().all(|t| !t.name.contains(".module.")));
    assert!(c.tensor(&format!("{Q}.bias")).is_some());
}

// ---------------------------------------------------------------- what is refused

/// Opens what must be refused in one line with `words`, of a file of the directory, in memory of the files' own size.
fn refused(case: &str, files: &Files, words: &[&str]) -> String {
    let dir = write(files);
    let len: usize = files.values().map(Vec::len).sum();
    let (result, peak) = peak_of(|| open(dir.path()));
    let message = result.err().unwrap_or_else(|| panic!("{case} was accepted")).to_string();
    for word in words {
        assert!(message.contains(word), "{case}: no {word:?} in: {message}");
    }
    assert!(message.starts_with(&*dir.path().to_string_lossy()) && !message.contains('\n'), "{case}: {message}");
    assert!(peak <= len as i64 + (4 << 20), "{case}: {peak} bytes for {len}");
    message
}

/// What is wrong, how it came to be, and words of the message.
type Bad<T> = (&'static str, fn(&mut T), &'static [&'static str]);

fn shorten(bytes: &mut Vec<u8>) {
    bytes.truncate(bytes.len() - 100);
}

const BAD_FILES: &[Bad<Files>] = &[
    ("a truncated file", |f| shorten(f.get_mut(WEIGHTS).unwrap()), &[WEIGHTS, "the file ends inside the data"]),
    ("no description", |f| drop(f.remove(DESCRIPTION)), &[WEIGHTS, "weights without their description"]),
    ("no weights", |f| drop(f.remove(WEIGHTS)), &[DESCRIPTION, "a description without weights"]),
    ("no JSON", |f| shorten(f.get_mut(DESCRIPTION).unwrap()), &[DESCRIPTION, "not valid", "JSON"]),
    ("no object", |f| drop(f.insert(DESCRIPTION.into(), b"[]".to_vec())), &[DESCRIPTION, "an object of tensor names"]),
    (
        "a name twice",
        |f| drop(f.insert(DESCRIPTION.into(), b"{\"a\":\"FLOAT\",\"a\":\"FLOAT\"}".to_vec())),
        &[DESCRIPTION, "\"a\" occurs twice"],
    ),
    (
        "two descriptions",
        |f| drop(f.insert("quant_model_description_w8a8.json".into(), f[DESCRIPTION].clone())),
        &["several descriptions", "quant_model_description_w8a8.json"],
    ),
    (
        "two weights",
        |f| drop(f.insert("quant_model_weight_w8a8.safetensors".into(), f[WEIGHTS].clone())),
        &["several safetensors files and no index", "quant_model_weight_w8a8.safetensors"],
    ),
    (
        "an index to a file outside",
        |f| drop(f.insert(INDEX.into(), br#"{"weight_map":{"model.norm.weight":"../x.safetensors"}}"#.to_vec())),
        &[INDEX, "could leave the directory"],
    ),
    (
        "a missing shard",
        |f| drop(f.insert(INDEX.into(), br#"{"weight_map":{"model.norm.weight":"part.safetensors"}}"#.to_vec())),
        &["part.safetensors", "opening it"],
    ),
    (
        "nesting without end",
        |f| drop(f.insert(DESCRIPTION.into(), [b"{\"metadata\":".to_vec(), vec![b'['; 100_000]].concat())),
        &[DESCRIPTION, "not valid"],
    ),
];

#[test]
fn wrong_files_are_refused_with_what_is_wrong() {
    for (case, change, words) in BAD_FILES {
        let mut files = Made::sample().files();
        change(&mut files);
        println!("{case}: {}", refused(case, &files, words));
    }
}

const UP_SCALE: &str = "model.layers.0.mlp.up_proj.weight_scale";
const UP_OFFSET: &str = "model.layers.0.mlp.up_proj.weight_offset";
const GATE_SCALE: &str = "model.layers.0.mlp.gate_proj.weight_scale";
const GATE_OFFSET: &str = "model.layers.0.mlp.gate_proj.weight_offset";
const O_SCALE: &str = "model.layers.0.self_attn.o_proj.weight_scale";
const O_OFFSET: &str = "model.layers.0.self_attn.o_proj.weight_offset";
const DOWN_SCALE: &str = "model.layers.0.mlp.down_proj.weight_scale";
const DEQ_SCALE: &str = "model.layers.0.self_attn.q_proj.deq_scale";
const QUANT_BIAS: &str = "model.layers.0.self_attn.q_proj.quant_bias";
const INPUT_SCALE: &str = "model.layers.0.self_attn.q_proj.input_scale";
const INPUT_OFFSET: &str = "model.layers.0.self_attn.q_proj.input_offset";
const K_SCALE: &str = "model.layers.0.self_attn.k_proj.kv_cache_scale";
const K_OFFSET: &str = "model.layers.0.self_attn.k_proj.kv_cache_offset";

/// The numbers of a tensor with the last one changed.
fn last(made: &mut Made, name: &str, value: f32) {
    let (_, shape, bytes) = made.tensors[name].clone();
    let mut values = as_f32(&bytes);
    *values.last_mut().unwrap() = value;
    made.set(name, &shape, &values);
}

fn entry(made: &mut Made, name: &str, value: impl Into<Value>) {
    made.description.insert(name.to_string(), value.into());
}

/// Another type and shape, of zeros.
fn zeros(made: &mut Made, name: &str, dtype: Dtype, shape: &[usize]) {
    let bytes = vec![0; shape.iter().product::<usize>() * dtype.bitsize() / 8];
    made.tensors.insert(name.to_string(), (dtype, shape.to_vec(), bytes));
}

/// One more tensor, of ones.
fn add(made: &mut Made, name: &str, scheme: &str, shape: &[usize]) {
    made.floats(name, scheme, shape, &vec![1.0; shape.iter().product()]);
}

const NOT_SHAPE: &str = "a shape that is not its matrix's";

const BAD: &[Bad<Made>] = &[
    ("an entry that is a number", |m| entry(m, UP_SCALE, 8), &[DESCRIPTION, "up_proj.weight_scale", "wrong type"]),
    ("an entry that is an object", |m| entry(m, UP_SCALE, json!({"a": 1})), &["wrong type", "found an object"]),
    ("an entry without tensor", |m| entry(m, "x.weight", "W8A16"), &[DESCRIPTION, "x.weight", "without its tensor"]),
    (
        "a tensor without entry",
        |m| drop(m.description.remove(O_SCALE)),
        &[WEIGHTS, "o_proj.weight_scale", "the description does not name"],
    ),
    (
        "an unknown scheme",
        |m| entry(m, "model.layers.0.mlp.up_proj.weight", "W3A5"),
        &[DESCRIPTION, "up_proj.weight", "an unknown quantisation type", "W3A5"],
    ),
    (
        "a scheme that is not read",
        |m| entry(m, "model.layers.0.mlp.up_proj.weight", "W8A8_MXFP8"),
        &["the scheme W8A8_MXFP8 of \"model.layers.0.mlp.up_proj.weight\" is not supported"],
    ),
    (
        "attention in another scheme",
        |m| entry(m, "model.layers.0.self_attn.quant_type", "FAQuant"),
        &["the scheme FAQuant of \"model.layers.0.self_attn.quant_type\" is not supported"],
    ),
    (
        "a part of another scheme than its matrix",
        |m| entry(m, UP_SCALE, "W8A8"),
        &["up_proj.weight_scale", "a scheme that is not its matrix's"],
    ),
    ("a matrix of the cache's type", |m| entry(m, "model.layers.0.mlp.up_proj.weight", "C8"), &["type of a cache"]),
    ("a scale of the wrong shape", |m| zeros(m, UP_SCALE, Dtype::F32, &[15, 1]), &["up_proj.weight_scale", NOT_SHAPE]),
    ("a scale for each row too many", |m| zeros(m, O_SCALE, Dtype::F32, &[16, 2]), &["o_proj.weight_scale", NOT_SHAPE]),
    ("a scale of three dimensions", |m| zeros(m, UP_SCALE, Dtype::F32, &[16, 1, 1]), &[NOT_SHAPE]),
    ("a scale of no elements", |m| zeros(m, UP_SCALE, Dtype::F32, &[0]), &["up_proj.weight_scale", NOT_SHAPE]),
    ("a scale of no columns", |m| zeros(m, UP_SCALE, Dtype::F32, &[16, 0]), &["up_proj.weight_scale", NOT_SHAPE]),
    ("a missing scale", |m| m.remove(UP_SCALE), &["up_proj.weight\"", "without all of its parts", "weight_scale"]),
    ("a missing offset", |m| m.remove(UP_OFFSET), &["up_proj.weight\"", "without all of its parts", "weight_offset"]),
    ("a missing scale of results", |m| m.remove(DEQ_SCALE), &["q_proj.weight\"", "deq_scale"]),
    (
        "a scale that is NaN",
        |m| last(m, UP_SCALE, f32::NAN),
        &["up_proj.weight_scale", "not finite", "NaN at element 15"],
    ),
    ("a scale without end", |m| last(m, O_SCALE, f32::INFINITY), &["o_proj.weight_scale", "not finite", "inf"]),
    ("scales of whole numbers", |m| zeros(m, UP_SCALE, Dtype::I32, &[16, 1]), &["numbers of another type", "I32"]),
    (
        "an offset that is not whole",
        |m| last(m, UP_OFFSET, 0.5),
        &["up_proj.weight_offset", "blocks do not hold", "0.5"],
    ),
    ("an offset out of range", |m| last(m, UP_OFFSET, 128.0), &["from -128 to 127", "found 128.0"]),
    ("an offset that is NaN", |m| last(m, UP_OFFSET, f32::NAN), &["up_proj.weight_offset", "not finite"]),
    ("offsets of another shape", |m| zeros(m, GATE_OFFSET, Dtype::F32, &[16, 1]), &["another shape than the scales"]),
    ("an offset in W8A8", |m| last(m, O_OFFSET, 1.0), &["o_proj.weight_offset", "an offset in W8A8_DYNAMIC", "zeros"]),
    (
        "a scale of results that is no f32",
        |m| m.tensors.get_mut(DEQ_SCALE).unwrap().2[12] = 1,
        &["deq_scale", "a scale that is no f32", "in row 1"],
    ),
    ("scales of results in f16", |m| zeros(m, DEQ_SCALE, Dtype::F16, &[16]), &["deq_scale", "numbers of another type"]),
    (
        "a bias that is too large",
        |m| m.tensors.get_mut(QUANT_BIAS).unwrap().2[..4].copy_from_slice(&i32::MIN.to_le_bytes()),
        &["quant_bias", "a bias that is too large", "-2147483648 in row 0"],
    ),
    (
        "a bias of floats",
        |m| zeros(m, QUANT_BIAS, Dtype::F32, &[16]),
        &["quant_bias", "numbers of another type", "I32"],
    ),
    ("a bias of another length", |m| zeros(m, QUANT_BIAS, Dtype::I32, &[17]), &["quant_bias", NOT_SHAPE]),
    ("an input scale of zero", |m| last(m, INPUT_SCALE, 0.0), &["input_scale", "too small", "at least 2^-40"]),
    ("an input scale below zero", |m| last(m, INPUT_SCALE, -1.0), &["input_scale", "too small", "found -1.0"]),
    ("an input scale that is NaN", |m| last(m, INPUT_SCALE, f32::NAN), &["input_scale", "not finite"]),
    ("two input scales", |m| m.set(INPUT_SCALE, &[2], &[1.0, 1.0]), &["input_scale", "not one number", "[2]"]),
    ("an input offset beyond all codes", |m| last(m, INPUT_OFFSET, 32769.0), &["input_offset", "too large", "32769.0"]),
    (
        "a scale of weights that overflows",
        |m| {
            last(m, INPUT_SCALE, 1e-12);
            m.set(DEQ_SCALE, &[16], &[1e38; 16]);
        },
        &["deq_scale", "not finite", "in row 0"],
    ),
    (
        "odd rows of nibbles",
        |m| zeros(m, DOWN_SCALE, Dtype::F32, &[15, 1]),
        &["down_proj.weight_scale", "another number of scales than rows", "an even number"],
    ),
    (
        "part of a block",
        |m| zeros(m, "model.layers.0.mlp.up_proj.weight", Dtype::I8, &[16, 48]),
        &["up_proj.weight", "not whole blocks", "a multiple of 32 columns, found 48"],
    ),
    (
        "groups that do not divide the columns",
        |m| {
            zeros(m, GATE_SCALE, Dtype::F32, &[16, 3]);
            zeros(m, GATE_OFFSET, Dtype::F32, &[16, 3]);
        },
        &["gate_proj.weight_scale", "groups that are not whole blocks", "3 of a row"],
    ),
    (
        "groups shorter than a block",
        |m| {
            zeros(m, GATE_SCALE, Dtype::F32, &[16, 4]);
            zeros(m, GATE_OFFSET, Dtype::F32, &[16, 4]);
        },
        &["gate_proj.weight_scale", "groups that are not whole blocks", "4 of a row"],
    ),
    (
        "codes of another type",
        |m| zeros(m, "model.layers.0.mlp.up_proj.weight", Dtype::U8, &[16, 64]),
        &["up_proj.weight", "not a matrix of codes", "I8 for W8A16", "U8 [16, 64]"],
    ),
    (
        "codes that are a list",
        |m| zeros(m, "model.layers.0.self_attn.o_proj.weight", Dtype::I8, &[1024]),
        &["o_proj.weight", "not a matrix of codes", "I8 [1024]"],
    ),
    (
        "a FLOAT matrix of codes",
        |m| {
            zeros(m, "lm_head.weight", Dtype::I8, &[16, 64]);
            entry(m, "lm_head.weight", "FLOAT");
        },
        &["lm_head.weight", "a FLOAT weight of another type", "I8"],
    ),
    (
        "a second scale that is not known",
        |m| add(m, "model.layers.0.mlp.down_proj.weight_scale_second", "W4A8_DYNAMIC", &[16, 2]),
        &["weight_scale_second", "a tensor that no matrix of its scheme has", "W4A8_DYNAMIC"],
    ),
    (
        "a norm before quantised and other matrices",
        |m| add(m, "model.layers.0.self_attn.v_proj.weight", "FLOAT", &[8, 64]),
        &[
            "input_layernorm.module.weight",
            "a norm before quantised and other matrices",
            "v_proj.weight",
            "q_proj.weight",
        ],
    ),
    (
        "parts of a norm with two lengths",
        |m| zeros(m, "model.layers.0.input_layernorm.module.bias", Dtype::F32, &[65]),
        &["module.bias", "two lengths", "expected [64], found [65]"],
    ),
    (
        "a bias without its norm",
        |m| m.remove("model.layers.0.input_layernorm.module.weight"),
        &["module.bias", "a bias without its norm"],
    ),
    (
        "a norm before nothing",
        |m| add(m, "model.layers.7.input_layernorm.module.weight", "W8A8", &[64]),
        &["layers.7.input_layernorm.module.weight", "a norm before nothing"],
    ),
    ("a cache of two lengths", |m| m.set(K_SCALE, &[4], &[1.0; 4]), &["k_proj.kv_cache_", "number of channels"]),
    (
        "a cache of another length than its projection",
        |m| {
            m.remove("model.layers.0.input_layernorm.module.weight");
            m.remove("model.layers.0.input_layernorm.module.bias");
            add(m, "model.layers.0.self_attn.v_proj.weight", "FLOAT", &[9, 64]);
        },
        &["v_proj.kv_cache_", "number of channels", "expected 9, found 8"],
    ),
    (
        "a cache of two dimensions",
        |m| zeros(m, K_SCALE, Dtype::F32, &[4, 2]),
        &["k_proj.kv_cache_scale", "each channel"],
    ),
    ("a cache without offsets", |m| m.remove(K_OFFSET), &["k_proj.kv_cache_scale", "half of a cache's numbers"]),
    ("a cache's scale of zero", |m| last(m, K_SCALE, 0.0), &["k_proj.kv_cache_scale", "too small"]),
    ("a cache's offset beyond all codes", |m| last(m, K_OFFSET, -4e4), &["k_proj.kv_cache_offset", "too large"]),
    (
        "numbers of a cache that is not known",
        |m| add(m, "model.layers.0.self_attn.q_proj.kv_cache_scale", "C8", &[8]),
        &["q_proj.kv_cache_scale", "a name of the cache that is not known"],
    ),
];

#[test]
fn wrong_tensors_and_entries_are_refused_with_what_is_wrong() {
    for (case, change, words) in BAD {
        let mut made = Made::sample();
        change(&mut made);
        println!("{case}: {}", refused(case, &made.files(), words));
    }
    assert!(BAD.len() + BAD_FILES.len() > 60, "{} and {}", BAD.len(), BAD_FILES.len());
}

#[test]
fn offsets_of_four_bits_have_8_added_and_groups_must_be_those_of_the_description() {
    let (made, _) = of_four_bits("columns");
    let mut bad = made.clone();
    last(bad.floats(UP_OFFSET, "W4A16", &[6, 1], &[0.0; 6]), UP_OFFSET, 120.0);
    refused("an offset", &bad.files(), &["up_proj.weight_offset", "from -136 to 119", "found 120.0"]);
    let mut bad = made.clone();
    entry(&mut bad, "group_size", 128);
    refused("a group", &bad.files(), &["gate_proj.weight", "another number of columns", "256 columns"]);
    let mut bad = made;
    zeros(&mut bad, UP_SCALE, Dtype::F32, &[5, 1]);
    refused("rows", &bad.files(), &["up_proj.weight_scale", NOT_SHAPE]);
}

#[test]
fn descriptions_that_would_swell_in_memory_stay_within_the_allowance() {
    let entries = |n: usize| (0..n).map(|i| format!("\"{i:x}\":0")).collect::<Vec<_>>().join(",");
    for (case, text, words) in [
        ("65,536 entries", format!("{{{}}}", entries(65_536)), "wrong type"),
        ("65,537 entries", format!("{{{}}}", entries(65_537)), "more than 65536 tensors"),
        ("a list in a key", format!("{{\"optional\":[{}0]}}", "0,".repeat(4 << 20)), "does not name"),
        ("more than 32 MiB", format!("{{\"version\":\"{}\"}}", "1".repeat(32 << 20)), "longer than this reader allows"),
    ] {
        let mut files = Made::sample().files();
        let len = text.len() as i64;
        files.insert(DESCRIPTION.into(), text.into_bytes());
        let dir = write(&files);
        let (result, peak) = peak_of(|| open(dir.path()));
        let e = result.unwrap_err().to_string();
        assert!(e.contains(words), "{case}: {e}");
        assert!(peak <= len + ALLOWANCE / 2, "{case}: {peak} bytes for {len}");
    }
}

// ---------------------------------------------------------------- mutations

/// Opens the directory and reads all of it; whether it was accepted.
fn survive(dir: &Path, len: i64) -> bool {
    let (result, peak) = peak_of(|| open(dir));
    assert!(peak <= len + ALLOWANCE / 4, "{peak} bytes for {len}");
    match result {
        Ok(c) => {
            for t in &c.tensors {
                // codes that have too many bits are found here
                let _ = read(&c, t);
                assert!(t.bytes <= 64 * len as u64 && c.read(t, t.bytes, &mut [0]).is_err());
                if let Some(Activations::Static { scale, offset }) = c.activations(&t.name) {
                    assert!(scale.is_finite() && scale > 0.0 && offset.is_finite());
                }
                assert_eq!(c.activations(&t.name).is_some(), t.dtype.name() == "W8A8");
            }
            true
        }
        Err(e) => {
            let text = e.to_string();
            assert!(text.starts_with(&*dir.to_string_lossy()), "{text}");
            assert!(!text.contains(|c: char| c.is_control()) && text.len() < 2000, "{text}");
            false
        }
    }
}

/// A new file in place of the one there: some file systems wait for the disk where a file is cut off and written again.
fn replace(path: &Path, content: &[u8]) {
    std::fs::remove_file(path).unwrap();
    std::fs::write(path, content).unwrap();
}

fn bombard(cases: u64, seed: u64) {
    let mut seeds = vec![Made::sample().files()];
    seeds.extend(["columns", "rows", "bytes"].map(|packing| of_four_bits(packing).0.files()));
    let dirs: Vec<(tempfile::TempDir, Files)> = seeds.into_iter().map(|files| (write(&files), files)).collect();
    let mut accepted = 0;
    for case in 0..cases {
        let mut random = Random(seed ^ case.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let (dir, files) = &dirs[if random.next().is_multiple_of(2) { 0 } else { 1 + (random.next() % 3) as usize }];
        let name = [WEIGHTS, DESCRIPTION, WEIGHTS, WEIGHTS][(random.next() % 4) as usize];
        let mut file = files[name].clone();
        let head = match name {
            DESCRIPTION => file.len(),
            // in half of the cases the numbers too
            _ if random.next().is_multiple_of(2) => file.len(),
            _ => 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize,
        };
        mutate(&mut file, head, &mut random);
        let path: PathBuf = dir.path().join(name);
        replace(&path, &file);
        let len = files.values().map(Vec::len).sum::<usize>().max(file.len()) as i64;
        match catch_unwind(AssertUnwindSafe(|| survive(dir.path(), len))) {
            Ok(ok) => accepted += u64::from(ok),
            Err(cause) => {
                let why = cause.downcast_ref::<String>().map_or("?", String::as_str);
                panic!("case {case} of seed {seed:#x} ({name}): {why}\n{}", file[..file.len().min(400)].escape_ascii());
            }
        }
        replace(&path, &files[name]);
    }
    println!("{accepted} of {cases} mutated directories were still valid");
    assert!(accepted > cases / 50 && accepted < cases * 3 / 4, "{accepted} of {cases}");
}

#[test]
fn ten_thousand_mutated_directories_are_refused_or_read_within_bounds() {
    bombard(10_000, 0x1507_b17d);
}

#[test]
#[ignore = "the long run: two hundred thousand mutations"]
fn two_hundred_thousand_mutated_directories_are_refused_or_read_within_bounds() {
    bombard(200_000, 0x1507_b17e);
}
