//! GGUF files of every block type (`tests/data/gguf_types`): read, listed and packed, or refused where their blocks cannot
//! be computed with.

use std::path::{Path, PathBuf};

use isobit::internals::blocks::{BlockType, pack};
use isobit::internals::formats::{Container, LoadMode, Tensor};
use isobit::internals::models::Weights;
use isobit::internals::record::{BufDecl, Part, Piece, Role, WeightSource};

const TYPES: [BlockType; 18] = [
    BlockType::Q4_1,
    BlockType::Q2_K,
    BlockType::Q3_K,
    BlockType::IQ4_NL,
    BlockType::IQ4_XS,
    BlockType::IQ3_S,
    BlockType::IQ3_XXS,
    BlockType::IQ2_S,
    BlockType::IQ2_XS,
    BlockType::IQ2_XXS,
    BlockType::IQ1_S,
    BlockType::IQ1_M,
    BlockType::TQ1_0,
    BlockType::TQ2_0,
    BlockType::MXFP4,
    BlockType::NVFP4,
    BlockType::Q1_0,
    BlockType::Q2_0,
];

fn data(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data")).join(path)
}

fn open(path: &Path) -> Result<Container, String> {
    Container::open(path, LoadMode::Read).map_err(|e| e.to_string())
}

fn whole(c: &Container, t: &Tensor) -> Vec<u8> {
    let mut bytes = vec![0; t.bytes as usize];
    c.read(t, 0, &mut bytes).unwrap();
    bytes
}

/// Packs a matrix as the loader of a model does; the words, or what it says.
fn packed(c: &Container, tensor: usize) -> Result<Vec<u32>, String> {
    let t = &c.tensors[tensor];
    let k = t.shape[0] as usize;
    let block = t.dtype.block().unwrap();
    let part = Part::Rows { t: block, packed: pack::packed_type(block), k, row0: 0, rows: t.elems() as usize / k };
    let words = part.words().0;
    let buffer = BufDecl { name: t.name.clone(), words, role: Role::Weight(vec![Piece { tensor, part }]) };
    let mut out = vec![0; words];
    Weights::new(c, |_| {}).fill(&buffer, &mut out).map(|()| out).map_err(|e| format!("{e:#}"))
}

/// The rows of 512 that the files' matrices are of.
fn rows(ty: BlockType) -> Vec<Vec<u8>> {
    let dir = ty.name().to_lowercase();
    let vectors = data("vectors").join(dir);
    let bytes =
        std::fs::read(vectors.join("quantized.bin")).or_else(|_| std::fs::read(vectors.join("quantized_im.bin")));
    bytes.unwrap().chunks_exact(ty.row_bytes(512).unwrap()).map(<[u8]>::to_vec).collect()
}

/// Reads, decodes and packs a matrix whose bytes are known.
fn check(c: &Container, name: &str, ty: BlockType, shape: &[u64], want: &[u8]) {
    let tensor = c.index_of(name).unwrap_or_else(|| panic!("no {name}"));
    let t = &c.tensors[tensor];
    assert_eq!((t.dtype.block(), &t.shape[..]), (Some(ty), shape), "{name}");
    let bytes = whole(c, t);
    assert_eq!(bytes, want, "{name}");
    let mut values = vec![f32::NAN; t.elems() as usize];
    ty.decode_row(&bytes, &mut values);
    assert!(values.iter().all(|v| v.is_finite()), "{name}");
    assert!(packed(c, tensor).unwrap().iter().any(|w| *w != 0), "{name}");
}

#[test]
fn a_file_of_each_block_type_is_read_decoded_and_packed() {
    for ty in TYPES {
        let c = open(&data(&format!("gguf_types/{}.gguf", ty.name().to_lowercase()))).unwrap();
        let rows = rows(ty);
        check(&c, "blk.0.ffn_up.weight", ty, &[512, 4], &rows[..4].concat());
        check(&c, "blk.0.ffn_up_exps.weight", ty, &[256, 2, 2], &rows[18..20].concat());
        let mut names: Vec<&str> = c.tensors.iter().map(|t| &t.name[..]).collect();
        names.sort();
        let mut want = vec!["blk.0.ffn_norm.weight", "blk.0.ffn_up.weight", "blk.0.ffn_up_exps.weight"];
        if ty == BlockType::NVFP4 {
            want.extend(["blk.0.ffn_up.input_scale", "blk.0.ffn_up.scale", "blk.0.ffn_up_exps.scale"]);
            want.sort();
        }
        assert_eq!(names, want);
    }
    let c = open(&data("gguf_types/all.gguf")).unwrap();
    assert_eq!(c.tensors.len(), TYPES.len());
    for ty in TYPES {
        check(&c, &format!("t.{}.weight", ty.name().to_lowercase()), ty, &[512, 2], &rows(ty)[..2].concat());
    }
}

#[test]
#[cfg(feature = "cli")]
fn a_file_of_each_block_type_is_inspected() {
    let inspected = |name: &str| {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_isobit"));
        let out = program.args(["inspect", "--tensors"]).arg(data("gguf_types").join(name)).output().unwrap();
        assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let all = inspected("all.gguf");
    for ty in TYPES {
        let name = ty.name().to_lowercase();
        for (text, tensor) in
            [(&all, format!("t.{name}.weight")), (&inspected(&format!("{name}.gguf")), "ffn_up.weight".into())]
        {
            let line =
                text.lines().find(|l| l.contains(&tensor)).unwrap_or_else(|| panic!("{name}: no {tensor}: {text}"));
            assert!(line.contains(ty.name()), "{line}");
        }
    }
}

#[test]
fn a_bad_file_is_refused_with_a_line_that_says_why() {
    // refused when opened, or when its matrix is packed
    let bad: [(&str, bool, &[&str]); 9] = [
        ("row-288-of-256-block", true, &["288", "a multiple of 256 for IQ4_XS"]),
        ("nvfp4-row-96-of-64-block", true, &["96", "a multiple of 64 for NVFP4"]),
        ("removed-type-36", true, &["removed tensor type", "36 (IQ4_NL_4_4)"]),
        ("unknown-type-43", true, &["unknown tensor type", "43"]),
        ("mxfp4-e-255", false, &["MXFP4", "scale"]),
        ("mxfp4-e-254-overflows", false, &["MXFP4", "scale"]),
        ("iq1_m-scale-inf", false, &["IQ1_M", "scale d is NaN or infinite"]),
        ("q2_k-dmin-inf", false, &["Q2_K", "scale dmin is NaN or infinite"]),
        ("tq2_0-scale-nan", false, &["TQ2_0", "scale d is NaN or infinite"]),
    ];
    let files = std::fs::read_dir(data("gguf_types/bad")).unwrap().count();
    assert_eq!(files, bad.len());
    for (name, at_once, texts) in bad {
        let file = format!("gguf_types/bad/{name}.gguf");
        let message = match open(&data(&file)) {
            Err(e) => {
                assert!(at_once, "{e}");
                e
            }
            Ok(c) => {
                assert!(!at_once, "{name} was opened");
                packed(&c, c.index_of("blk.0.ffn_up.weight").unwrap()).expect_err(name)
            }
        };
        assert!(!message.contains('\n'), "{message}");
        for text in texts.iter().chain(&[&*format!("{name}.gguf"), "blk.0.ffn_up.weight"]) {
            assert!(message.contains(text), "{text:?} is not in: {message}");
        }
        println!("{message}");
    }
}
