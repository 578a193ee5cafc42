//! Heads of gated delta nets (Qwen3.5, Qwen3-Next) in the order that GGUF files have them.
//!
//! In a directory the heads of values that share a head of keys are neighbours. llama.cpp's converter deals those of Qwen3.5
//! out in turns, so that head h of values goes by head h mod keys: rows of what makes values, and the columns that meet
//! them. Of Qwen3-Next it takes one tensor apart, whose rows are those of one head of keys after the other. A convolution
//! loses a dimension of 1. (`conversion/qwen.py` of v0.5.0.)

use super::Tensor;
use super::order::{Anew, Blocks, Order};
use serde_json::Value;
use std::ops::Range;

/// The heads of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nets {
    /// heads of keys
    keys: u64,
    /// of values
    heads: u64,
    /// elements of one
    size: u64,
    /// Qwen3-Next, whose heads of values stay where they are
    next: bool,
}

impl Nets {
    /// Of a model's config; `None` where it is another model, or its numbers make none, which `models` will say.
    pub fn of(config: &Value) -> Option<Nets> {
        let next = match config["model_type"].as_str()? {
            "qwen3_5" | "qwen3_5_text" | "qwen3_5_moe" | "qwen3_5_moe_text" => false,
            "qwen3_next" => true,
            _ => return None,
        };
        let whole = |key: &str, usual: u64| match &config[key] {
            Value::Null => Some(usual),
            v => v.as_u64().filter(|n| (1..=1024).contains(n)),
        };
        let (keys, heads) = (whole("linear_num_key_heads", 16)?, whole("linear_num_value_heads", 32)?);
        let size = whole("linear_key_head_dim", 128)?;
        (heads.is_multiple_of(keys) && whole("linear_value_head_dim", 128)? == size).then_some(Nets {
            keys,
            heads,
            size,
            next,
        })
    }

    /// Which of a directory's heads of values is head `h` of a GGUF file.
    fn source(self, h: u64) -> u64 {
        if self.next { h } else { h % self.keys * (self.heads / self.keys) + h / self.keys }
    }

    /// What a tensor becomes; `None`: it stays. One of another shape than the config says stays, and `models` refuses it.
    pub fn anew(self, t: &Tensor) -> Option<Vec<Anew>> {
        let (layer, what) = t.name.split_once(".linear_attn.")?;
        let (front, size) = (2 * self.keys * self.size, self.size);
        let one = |made: Option<Anew>| made.map(|m| vec![m]);
        match what {
            "in_proj_qkv.weight" => one(self.rows(t, front, size)),
            "in_proj_z.weight" => one(self.rows(t, 0, size)),
            "in_proj_b.weight" | "in_proj_a.weight" | "dt.bias" | "A_log.weight" => one(self.rows(t, 0, 1)),
            "out_proj.weight" => one(self.columns(t)),
            "conv1d.weight" => {
                let &[taps, 1, channels] = &t.shape[..] else { return None };
                let shape = vec![taps, channels];
                let whole = || Order::Pieces(vec![(t.file, t.offset..t.offset + t.bytes)]);
                let order = self.rows(t, front, size).map_or_else(whole, |m| m.order);
                Some(vec![Anew { like: t.clone(), name: t.name.clone(), shape, order, bytes: t.bytes }])
            }
            "in_proj_qkvz.weight" => self.apart(t, layer),
            _ => None,
        }
    }

    /// `each` rows, or elements, of every head of values in GGUF's order, behind `front` that stay.
    fn rows(self, t: &Tensor, front: u64, each: u64) -> Option<Anew> {
        let rows = *t.shape.last()?;
        if self.next || self.heads == self.keys || rows != front + self.heads * each || !t.bytes.is_multiple_of(rows) {
            return None;
        }
        let heads = (0..self.heads).map(|h| front + self.source(h) * each).map(|first| first..first + each);
        let order = runs(t, rows, (front > 0).then_some(0..front).into_iter().chain(heads));
        Some(Anew { like: t.clone(), name: t.name.clone(), shape: t.shape.clone(), order, bytes: t.bytes })
    }

    /// Columns that meet heads of values, in GGUF's order.
    fn columns(self, t: &Tensor) -> Option<Anew> {
        let &[cols, _] = &t.shape[..] else { return None };
        if self.next || self.heads == self.keys || cols != self.heads * self.size {
            return None;
        }
        let bytes = t.dtype.block().filter(|b| b.is_float())?.bytes();
        let order = (0..self.heads).map(|h| self.source(h) as usize).collect();
        let order = Order::Columns(Blocks { at: t.offset, size: self.size as usize * bytes, order });
        Some(Anew { like: t.clone(), name: t.name.clone(), shape: t.shape.clone(), order, bytes: t.bytes })
    }

    /// Qwen3-Next's queries, keys and values, and its gate, which lie in the rows of one tensor head of keys by head of keys.
    fn apart(self, t: &Tensor, layer: &str) -> Option<Vec<Anew>> {
        let &[cols, rows] = &t.shape[..] else { return None };
        let (size, each) = (self.size, self.heads / self.keys * self.size);
        let group = 2 * (size + each);
        if rows != self.keys * group || !t.bytes.is_multiple_of(rows) {
            return None;
        }
        let part = |first: u64, n: u64| (0..self.keys).map(move |k| k * group + first..k * group + first + n);
        let made = |name: &str, rows_of: Vec<Range<u64>>| {
            let n: u64 = rows_of.iter().map(|r| r.end - r.start).sum();
            let name = format!("{layer}.linear_attn.{name}.weight");
            let order = runs(t, rows, rows_of.into_iter());
            Anew { like: t.clone(), name, shape: vec![cols, n], order, bytes: t.bytes / rows * n }
        };
        let qkv = part(0, size).chain(part(size, size)).chain(part(2 * size, each)).collect();
        Some(vec![made("in_proj_qkv", qkv), made("in_proj_z", part(2 * size + each, each).collect())])
    }
}

/// Runs of the rows of a tensor that has `rows` of them, as pieces of its file.
fn runs(t: &Tensor, rows: u64, list: impl Iterator<Item = Range<u64>>) -> Order {
    let row = t.bytes / rows;
    Order::Pieces(list.map(|r| (t.file, t.offset + r.start * row..t.offset + r.end * row)).collect())
}
