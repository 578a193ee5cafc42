//! llama.cpp's mixes of types: their names, their numbers, and the layers they store in more bits.
//!
//! The one table of these, and of what stands in for a type that rows do not fit: `quantize` makes files by it,
//! `synthetic` models that never were files. What else is raised (the output) `quantize::choose` decides by llama.cpp's
//! rules, and `synthetic` for itself.

use crate::blocks::BlockType;

/// What is made of a model's matrices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mix {
    /// one type for all, but for what llama.cpp's rules raise (the output matrix)
    Plain(BlockType),
    /// Q4_K with attn_v (or a fused attn_qkv) and ffn_down of some layers in Q6_K
    Q4KM,
    /// Q5_K with the same in Q6_K
    Q5KM,
    /// every tensor as it is
    Copy,
}

impl Mix {
    /// The mix of a name, in any case of letters.
    pub fn parse(name: &str) -> Option<Mix> {
        Some(match name.to_lowercase().as_str() {
            "q4_k_m" => Mix::Q4KM,
            "q5_k_m" => Mix::Q5KM,
            "copy" => Mix::Copy,
            other => Mix::Plain(BlockType::parse(other)?),
        })
    }

    /// The type most matrices get; `None` for a copy.
    pub fn base(self) -> Option<BlockType> {
        match self {
            Mix::Plain(t) => Some(t),
            Mix::Q4KM => Some(BlockType::Q4_K),
            Mix::Q5KM => Some(BlockType::Q5_K),
            Mix::Copy => None,
        }
    }

    /// `general.file_type`: llama.cpp's number.
    pub fn file_type(self) -> Option<u32> {
        Some(match self {
            Mix::Q4KM => 15,
            Mix::Q5KM => 17,
            Mix::Copy => return None,
            Mix::Plain(t) => match t {
                BlockType::F32 => 0,
                BlockType::F16 => 1,
                BlockType::Q4_0 => 2,
                BlockType::Q4_1 => 3,
                BlockType::Q8_0 => 7,
                BlockType::Q5_0 => 8,
                BlockType::Q5_1 => 9,
                BlockType::Q4_K => 14,
                BlockType::Q5_K => 16,
                BlockType::Q6_K => 18,
                BlockType::BF16 => 32,
                BlockType::Q2_K => 10,
                BlockType::IQ2_XXS => 19,
                BlockType::IQ2_XS => 20,
                BlockType::IQ3_XXS => 23,
                BlockType::IQ1_S => 24,
                BlockType::IQ4_NL => 25,
                BlockType::IQ3_S => 26,
                BlockType::IQ2_S => 28,
                BlockType::IQ4_XS => 30,
                BlockType::IQ1_M => 31,
                BlockType::TQ1_0 => 36,
                BlockType::TQ2_0 => 37,
                BlockType::MXFP4 => 38,
                BlockType::NVFP4 => 39,
                BlockType::Q1_0 => 40,
                BlockType::Q2_0 => 41,
                BlockType::Q3_K
                | BlockType::Q8_K
                | BlockType::Q8K128
                | BlockType::W8A16
                | BlockType::W4A16
                | BlockType::W8A8 => {
                    return None;
                }
            },
        })
    }

    /// Whether attn_v (or attn_qkv) and ffn_down of this layer are stored in more bits (Q6_K).
    pub fn raises(self, layer: usize, layers: usize) -> bool {
        matches!(self, Mix::Q4KM | Mix::Q5KM) && more_bits(layer, layers)
    }
}

/// `ty`, or what llama.cpp stores instead where rows of `columns` are not whole blocks of it: Q5_0 for Q4_K, Q5_1 for
/// Q5_K, Q8_0 for Q6_K, and F16 where rows are not whole blocks of that either.
pub fn that_fits(ty: BlockType, columns: u64) -> BlockType {
    let fits = |t: &BlockType| columns.is_multiple_of(t.elems() as u64);
    let instead = match ty {
        BlockType::Q4_K => BlockType::Q5_0,
        BlockType::Q5_K => BlockType::Q5_1,
        BlockType::Q6_K => BlockType::Q8_0,
        other => other,
    };
    [ty, instead].into_iter().find(fits).unwrap_or(BlockType::F16)
}

/// Layers whose attn_v (or attn_qkv) and ffn_down the `_M` mixes store in more bits: the first and last eighth, every
/// third between.
fn more_bits(layer: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_last_eighth_and_every_third_layer_between_are_raised() {
        let raised = |mix: Mix, n: usize| (0..n).filter(|l| mix.raises(*l, n)).collect::<Vec<_>>();
        for mix in [Mix::Q4KM, Mix::Q5KM] {
            assert_eq!(raised(mix, 22), [0, 1, 4, 7, 10, 13, 16, 19, 20, 21]);
            assert_eq!(raised(mix, 2), [1]);
        }
        assert!(raised(Mix::Plain(BlockType::Q4_K), 22).is_empty() && raised(Mix::Copy, 22).is_empty());
    }

    #[test]
    fn every_mix_that_a_file_can_have_has_a_number_of_its_own() {
        let names =
            ["f32", "f16", "q4_0", "q4_1", "q8_0", "q5_0", "q5_1", "q4_k", "q4_k_m", "q5_k", "q5_k_m", "q6_k", "bf16"];
        let numbers = names.map(|n| Mix::parse(n).unwrap().file_type().unwrap());
        assert_eq!(numbers, [0, 1, 2, 3, 7, 8, 9, 14, 15, 16, 17, 18, 32]);
        assert_eq!(Mix::parse("COPY").unwrap().file_type(), None);
        assert_eq!(Mix::parse("q8k128").unwrap().file_type(), None);
        assert_eq!(Mix::parse("q3_k"), None);
    }

    #[test]
    fn rows_that_are_not_whole_blocks_fall_back_as_in_llama_cpp() {
        use BlockType::*;
        for (ty, at_896, at_100) in [
            (Q4_K, Q5_0, F16),
            (Q5_K, Q5_1, F16),
            (Q6_K, Q8_0, F16),
            (Q4_0, Q4_0, F16),
            (Q8_0, Q8_0, F16),
            (BF16, BF16, BF16),
        ] {
            assert_eq!([512, 896, 100].map(|columns| that_fits(ty, columns)), [ty, at_896, at_100]);
        }
    }
}
