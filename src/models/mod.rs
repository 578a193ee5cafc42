//! Config and weights to plans. Claims every tensor of a file exactly once; names no device.

mod altup;
mod builder;
mod chatglm;
mod deepseek2;
mod delta;
mod dense;
mod encoder;
mod encoder_config;
mod error;
mod experts;
mod family;
mod gemma3n;
mod gemma4;
mod glm4moe;
mod gptoss;
mod hybrid;
pub mod hyper;
mod layernormed;
mod lfm2;
mod llama;
mod mamba2;
mod mixture;
mod mla;
mod normed;
mod per_layer;
mod phi3;
mod qwen;
mod rope;
mod short_conv;
mod ssm;
mod uneven;
mod vector;
pub mod weights;

pub use altup::AltUp;
pub use builder::{
    Built, Head, LayerCache, PlanOptions, RECENT_CHUNK, Recent, output_name, positions, recent_positions,
};
pub use delta::Delta;
pub use dense::Dense;
pub use encoder::Pooling;
pub use error::{Cached, PlanError};
pub use family::{Family, HeadNorms, Norms, Rotation};
pub use hyper::Hyper;
pub use mixture::Experts;
pub use mla::Mla;
pub use rope::{RopeTable, rope_divisors};
pub use short_conv::ShortConv;
pub use ssm::Ssm;
pub use uneven::{Heads, Uneven};
pub use weights::{Weights, rope_table, rope_tables};

use crate::formats::Container;
use anyhow::Context;
use builder::Builder;

/// Rows of a command that every adapter dispatches.
const MAX_ROWS: usize = 65535;

/// Makes the plan of a model; every tensor of the file is claimed once or named in the error.
pub fn build(c: &Container, h: &Hyper, o: &PlanOptions) -> anyhow::Result<Built> {
    build_paged(c, h, o, usize::MAX)
}

/// As [`build`], with cache pages of at most `page` positions (at least one chunk) where bindings would allow larger ones.
pub fn build_paged(c: &Container, h: &Hyper, o: &PlanOptions, page: usize) -> anyhow::Result<Built> {
    let mut o = encoder::options(h, *o)?;
    // each head of a token is a row there, and what it has for each layer; fewer tokens at once give the same bits
    if h.mla.is_some() {
        o.ubatch = o.ubatch.min(MAX_ROWS / h.heads).max(1);
    }
    if h.uneven.embedding > 0 {
        o.ubatch = o.ubatch.min(MAX_ROWS / h.layers).max(1);
    }
    let o = &o;
    let mut b = Builder::new(c, h, o, page)?;
    if h.family.norms_embedding() {
        encoder::embedding(&mut b)?;
    }
    match h.family {
        Family::Gemma3n => gemma3n::before(&mut b)?,
        Family::Gemma4 => gemma4::before(&mut b)?,
        _ => {}
    }
    for l in 0..h.layers {
        b.start_layer(l)?;
        match h.family {
            Family::Llama | Family::SmolLm3 | Family::Granite | Family::GraniteMoe => llama::layer(&mut b)?,
            Family::ChatGlm | Family::Glm4 => chatglm::layer(&mut b)?,
            Family::Olmo2 | Family::Exaone4 | Family::Gemma2 | Family::Gemma3 | Family::GemmaEmbedding => {
                normed::layer(&mut b)?;
            }
            Family::Gemma3n => gemma3n::layer(&mut b)?,
            Family::Gemma4 => gemma4::layer(&mut b)?,
            Family::Phi3 => phi3::layer(&mut b)?,
            Family::Qwen2 | Family::Qwen3 | Family::Qwen2Moe | Family::Qwen3Moe => qwen::layer(&mut b)?,
            Family::Glm4Moe => glm4moe::layer(&mut b)?,
            Family::GptOss => gptoss::layer(&mut b)?,
            Family::StarCoder2 | Family::StableLm | Family::Cohere2 | Family::CommandR => layernormed::layer(&mut b)?,
            Family::Phi2 | Family::Gpt2 | Family::Falcon | Family::ModernBert => layernormed::layer(&mut b)?,
            Family::Qwen35 | Family::Qwen35Moe | Family::Qwen3Next => hybrid::layer(&mut b)?,
            Family::Lfm2 | Family::Lfm2Moe => lfm2::layer(&mut b)?,
            Family::Mamba2 => {
                let ssm = h.ssm.as_ref().context("a model of state spaces without its sizes")?;
                mamba2::layer(&mut b, ssm)?;
            }
            Family::DeepSeek2 => {
                let mla = h.mla.as_ref().context("a model of latent attention without its sizes")?;
                deepseek2::layer(&mut b, mla)?;
            }
            Family::Bert | Family::NomicBert => encoder::layer(&mut b)?,
        }
    }
    b.finish()
}
