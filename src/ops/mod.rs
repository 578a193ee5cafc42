//! One plain Rust twin per operation, the text of `docs/exactness.md` as code.
//!
//! A twin is read, not run fast: loops as in the shader, no unsafe, no threads. `exact` holds the arithmetic they share.

pub mod act_quantize;
pub mod add;
pub mod add_bias;
pub mod attention;
pub mod attention_quantize;
pub mod attention_sinks;
#[cfg(test)]
mod bounds;
pub mod cache;
pub mod channel_quantize;
pub mod channel_scale;
pub mod conv_silu;
pub mod copy_columns;
pub mod delta_rule;
pub mod embed;
pub mod encode;
pub mod exact;
pub mod expert_bias;
pub mod expert_combine;
pub mod expert_linear;
pub mod expert_order;
pub mod expert_scale;
pub mod float_probe;
pub mod gate_up;
pub mod gdn_gates;
pub mod geglu;
pub mod gelu;
pub mod layer_norm;
pub mod linear;
pub mod matvec_pair;
pub mod norm_quantize;
pub mod packed;
pub mod params;
pub mod places;
pub mod rms_norm;
pub mod rope;
pub mod rope_cache_write;
pub mod rope_channel_cache_write;
pub mod router;
pub mod row_quantize;
pub mod scale;
pub mod select_rows;
pub mod short_conv;
pub mod sigmoid_gate;
pub mod softcap;
pub mod ssm_discretize;
pub mod ssm_scan;
pub mod strands;
pub mod swiglu;
pub mod swiglu_oai;
pub mod swiglu_quantize;
pub mod top_k;
pub mod tq3;
pub mod types;
