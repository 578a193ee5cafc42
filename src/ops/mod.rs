//! One plain Rust twin per operation, the text of `docs/exactness.md` as code.
//!
//! A twin is read, not run fast: loops as in the shader, no unsafe, no threads. `exact` holds the arithmetic they share.

pub mod act_quantize;
pub mod add;
pub mod add_bias;
pub mod attention;
pub mod attention_quantize;
pub mod bf16_matvec;
#[cfg(test)]
mod bounds;
pub mod cache;
pub mod embed;
pub mod encode;
pub mod exact;
pub mod f16_matvec;
pub mod f32_matvec;
pub mod float_probe;
pub mod gate_up;
pub mod linear;
pub mod matvec_pair;
pub mod norm_quantize;
pub mod q4_0_matvec;
pub mod q4k_matvec;
pub mod q5_0_matvec;
pub mod q5_1_matvec;
pub mod q5k_matvec;
pub mod q6k_matvec;
pub mod q8_0_matvec;
pub mod q8k128_matvec;
pub mod rms_norm;
pub mod rope;
pub mod rope_cache_write;
pub mod select_rows;
pub mod swiglu;
pub mod swiglu_quantize;
pub mod top_k;
pub mod tq3;
