//! The types with codebooks (IQ2, IQ3, IQ1) against blocks and values of ggml (`tests/data/README.md`).

use isobit::internals::blocks::BlockType;

const TYPES: [(BlockType, &str); 7] = [
    (BlockType::IQ2_XXS, "iq2_xxs"),
    (BlockType::IQ2_XS, "iq2_xs"),
    (BlockType::IQ2_S, "iq2_s"),
    (BlockType::IQ3_XXS, "iq3_xxs"),
    (BlockType::IQ3_S, "iq3_s"),
    (BlockType::IQ1_S, "iq1_s"),
    (BlockType::IQ1_M, "iq1_m"),
];

/// The bytes of a file under `tests/data/vectors`, which must be there and not be empty.
fn file(name: &str) -> Vec<u8> {
    let path = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/vectors/{}"), name);
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    assert!(!bytes.is_empty(), "{path} is empty");
    bytes
}

fn floats(name: &str) -> Vec<f32> {
    file(name).as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

/// Whether a file's blocks decode to another's values, bit for bit.
fn decodes(ty: BlockType, blocks: &str, values: &str) {
    let (blocks, want) = (file(blocks), floats(values));
    let mut got = vec![f32::NAN; blocks.len() / ty.bytes() * ty.elems()];
    ty.decode_row(&blocks, &mut got);
    assert_eq!(got.len(), want.len(), "{values}");
    let wrong = got.iter().zip(&want).position(|(g, w)| g.to_bits() != w.to_bits());
    assert_eq!(wrong.map(|i| (i, got[i], want[i])), None, "{values}");
}

#[test]
fn quantised_random_and_edge_blocks_decode_to_the_references_bits() {
    for (ty, dir) in TYPES {
        // what the values of the quantised blocks are of: those without importances where there are such
        let blocks = match ty {
            BlockType::IQ2_XXS | BlockType::IQ2_XS | BlockType::IQ1_S => "quantized_im",
            _ => "quantized",
        };
        decodes(ty, &format!("{dir}/{blocks}.bin"), &format!("{dir}/dequantized.f32"));
        for name in ["random_blocks", "edge_blocks"] {
            decodes(ty, &format!("{dir}/{name}.bin"), &format!("{dir}/{name}.f32"));
        }
    }
}
