//! Two files of rows against each other: ratios with their spread, and whether digests agree.
//!
//! Rows of two files match when model, test, cache types and activations are the same. Where a file has several such rows
//! (several devices or batch sizes), those of the same device and options are matched first, and the rest in order.
//!
//! A ratio is of geometric means over the repetitions. Its spread is the 95 % interval of Welch's t-test on the
//! logarithms of the samples, which does not assume that both sides vary alike. "No difference beyond noise" means that
//! the interval holds 1.

use super::{deviation, mean};
use crate::stats::student95;
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use std::fmt::Write;

/// Reads rows from JSON (an array) or JSONL (an object a line).
pub fn parse(text: &str) -> anyhow::Result<Vec<Value>> {
    let rows = if text.trim_start().starts_with('[') {
        serde_json::from_str::<Vec<Value>>(text).context("not a JSON array of rows")?
    } else {
        let lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty());
        lines
            .map(|(i, l)| serde_json::from_str(l).with_context(|| format!("line {}: not a row in JSON", i + 1)))
            .collect::<anyhow::Result<Vec<Value>>>()?
    };
    ensure!(!rows.is_empty(), "no rows in it; write them with -o json or -o jsonl");
    for (i, row) in rows.iter().enumerate() {
        if !row.is_object() || !row["n_prompt"].is_u64() || !row["samples_ts"].is_array() {
            bail!("row {} is none of `bench -o json`: it has no n_prompt or no samples_ts", i + 1);
        }
    }
    Ok(rows)
}

/// Two rows of the same test.
#[derive(Clone, Debug)]
pub struct Pair {
    /// model, test, types
    pub name: String,
    /// mean tokens a second of the first
    pub a: f64,
    /// of the second
    pub b: f64,
    /// second over first
    pub ratio: f64,
    /// logarithm of the ratio: its standard error, where there are samples enough
    error: Option<f64>,
    /// 95 % interval of the ratio
    pub interval: Option<(f64, f64)>,
    /// both have digests of the same task and they are not the same
    pub digests_differ: bool,
    /// both have digests and they are the same
    pub digests_agree: bool,
}

impl Pair {
    /// `faster`, `slower` (the second than the first), `no difference beyond noise`, or why that cannot be said.
    pub fn verdict(&self) -> &'static str {
        match self.interval {
            None => "one repetition: cannot say",
            Some((low, _)) if low > 1.0 => "faster",
            Some((_, high)) if high < 1.0 => "slower",
            Some(_) => "no difference beyond noise",
        }
    }
}

/// Every pair, and the rows of either file without one.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// in the order of the first file
    pub pairs: Vec<Pair>,
    /// rows of the first and of the second file that matched none, or that hold an error
    pub alone: (usize, usize),
}

fn text(row: &Value, key: &str) -> String {
    match &row[key] {
        Value::String(s) => s.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// What makes rows comparable. The activations of other programs' rows count as 8 bits, and the second word of a model's
/// type (`1B`, `1.1B`) does not count: the number of parameters says it better.
fn task(row: &Value) -> Vec<String> {
    let mut list: Vec<String> =
        ["model_n_params", "n_prompt", "n_gen", "n_depth", "type_k", "type_v"].map(|k| text(row, k)).into();
    list.extend(text(row, "model_type").split(' ').enumerate().filter(|(i, _)| *i != 1).map(|(_, w)| w.to_string()));
    list.push(row["activations"].as_u64().unwrap_or(8).to_string());
    list.push(row["kv_recent"].as_bool().unwrap_or(false).to_string());
    list
}

fn place(row: &Value) -> Vec<String> {
    ["devices", "device", "backends", "n_threads", "n_batch", "n_ubatch", "fuse", "variant", "tune"]
        .map(|k| text(row, k))
        .into()
}

fn samples(row: &Value) -> Vec<f64> {
    let list = row["samples_ts"].as_array().map_or(&[][..], Vec::as_slice);
    list.iter().filter_map(Value::as_f64).filter(|v| v.is_finite() && *v > 0.0).collect()
}

/// Matches the rows of two files.
pub fn compare(first: &[Value], second: &[Value]) -> Comparison {
    let usable = |r: &&Value| !samples(r).is_empty();
    let a: Vec<&Value> = first.iter().filter(usable).collect();
    let b: Vec<&Value> = second.iter().filter(usable).collect();
    let mut partner: Vec<Option<usize>> = vec![None; a.len()];
    let mut taken = vec![false; b.len()];
    for exactly in [true, false] {
        for (i, x) in
            a.iter().enumerate().filter(|(i, _)| partner[*i].is_none()).map(|(i, x)| (i, *x)).collect::<Vec<_>>()
        {
            let fits = |y: &Value| task(x) == task(y) && (!exactly || place(x) == place(y));
            if let Some(j) = (0..b.len()).find(|&j| !taken[j] && fits(b[j])) {
                partner[i] = Some(j);
                taken[j] = true;
            }
        }
    }
    let pairs: Vec<Pair> = a.iter().zip(&partner).filter_map(|(x, j)| Some(pair(x, b[(*j)?]))).collect();
    let alone = (first.len() - pairs.len(), second.len() - pairs.len());
    Comparison { pairs, alone }
}

fn pair(x: &Value, y: &Value) -> Pair {
    let (sa, sb) = (samples(x), samples(y));
    let logs = |v: &[f64]| v.iter().map(|x| x.ln()).collect::<Vec<f64>>();
    let (la, lb) = (logs(&sa), logs(&sb));
    let log_ratio = mean(&lb) - mean(&la);
    let spread = (la.len() > 1 && lb.len() > 1).then(|| {
        let (va, vb) = (deviation(&la).powi(2) / la.len() as f64, deviation(&lb).powi(2) / lb.len() as f64);
        let freedom = if va + vb > 0.0 {
            (va + vb).powi(2) / (va * va / (la.len() - 1) as f64 + vb * vb / (lb.len() - 1) as f64)
        } else {
            f64::INFINITY
        };
        ((va + vb).sqrt(), student95(freedom))
    });
    let digest = |row: &Value, key: &str| row[key].as_str().map(str::to_string);
    let both = ["digest", "last_logits"].map(|k| Some((digest(x, k)?, digest(y, k)?)));
    let known: Vec<bool> = both.into_iter().flatten().map(|(a, b)| a == b).collect();
    let mut name = format!("{} {}", text(x, "model_type"), test_name(x));
    let (k, v) = (text(x, "type_k"), text(x, "type_v"));
    if (k.as_str(), v.as_str()) != ("f16", "f16") {
        let recent = if x["kv_recent"] == true { "+r64" } else { "" };
        let _ = write!(name, " {k}/{v}{recent}");
    }
    let (here, there) = [x, y].map(|r| label(r) + &kernels(r)).into();
    let _ = if here == there { write!(name, ", {here}") } else { write!(name, ", {here} -> {there}") };
    Pair {
        name,
        a: mean(&sa),
        b: mean(&sb),
        ratio: log_ratio.exp(),
        error: spread.map(|(e, _)| e),
        interval: spread.map(|(e, t)| ((log_ratio - t * e).exp(), (log_ratio + t * e).exp())),
        digests_differ: known.contains(&false),
        digests_agree: !known.is_empty() && !known.contains(&false),
    }
}

/// `pp512`, `tg128 @ d512`.
pub fn test_name(row: &Value) -> String {
    let n = |key: &str| row[key].as_u64().unwrap_or(0) as usize;
    super::grid::Test { prompt: n("n_prompt"), generate: n("n_gen"), depth: n("n_depth") }.to_string()
}

/// What was asked of the kernels, where that is not the usual: ` fuse off, variant matmul`.
fn kernels(row: &Value) -> String {
    let odd: Vec<String> = [("fuse", "on"), ("variant", ""), ("tune", "auto")]
        .into_iter()
        .filter(|(key, usual)| ![*usual, ""].contains(&text(row, key).as_str()))
        .map(|(key, _)| format!("{key} {}", text(row, key)))
        .collect();
    if odd.is_empty() { String::new() } else { format!(" {}", odd.join(", ")) }
}

/// The device of a row in few words.
pub fn label(row: &Value) -> String {
    let device = text(row, "device");
    if device.is_empty() { text(row, "backends") } else { device }
}

impl Comparison {
    /// Geometric mean of the ratios and, where every pair has a spread, its 95 % interval.
    pub fn mean(&self) -> (f64, Option<(f64, f64)>) {
        let logs: Vec<f64> = self.pairs.iter().map(|p| p.ratio.ln()).collect();
        let m = mean(&logs);
        let errors: Option<Vec<f64>> = self.pairs.iter().map(|p| p.error).collect();
        let interval = errors.filter(|e| !e.is_empty()).map(|e| {
            let all = e.iter().map(|e| e * e).sum::<f64>().sqrt() / e.len() as f64;
            ((m - 1.96 * all).exp(), (m + 1.96 * all).exp())
        });
        (m.exp(), interval)
    }

    /// The same as one object; intervals are null where there are too few samples.
    pub fn json(&self, first: &str, second: &str) -> Value {
        let interval = |i: Option<(f64, f64)>| i.map(|(low, high)| [low, high]);
        let pairs: Vec<Value> = (self.pairs.iter())
            .map(|p| {
                let digests = match (p.digests_differ, p.digests_agree) {
                    (true, _) => json!("differ"),
                    (_, true) => json!("same"),
                    _ => Value::Null,
                };
                json!({"row": p.name, "a_ts": p.a, "b_ts": p.b, "ratio": p.ratio, "interval": interval(p.interval),
                    "b_is": p.verdict(), "digests": digests})
            })
            .collect();
        let (ratio, range) = self.mean();
        json!({"a": first, "b": second, "rows": pairs, "ratio": ratio, "interval": interval(range),
            "alone_a": self.alone.0, "alone_b": self.alone.1})
    }

    /// A Markdown table and a plain sentence.
    pub fn text(&self, first: &str, second: &str) -> String {
        let mut out = String::new();
        let range = |i: Option<(f64, f64)>| i.map_or("-".to_string(), |(l, h)| format!("{l:.3} to {h:.3}"));
        let mut line = |s: &str| out.push_str(&format!("{s}\n"));
        line(&format!("A: {first}\nB: {second}\n"));
        line("| row | A t/s | B t/s | B / A | 95 % | B is | digests |");
        line("|---|---:|---:|---:|---:|---|---|");
        for p in &self.pairs {
            let digests = match (p.digests_differ, p.digests_agree) {
                (true, _) => "DIFFER",
                (_, true) => "same",
                _ => "-",
            };
            let name = p.name.replace('|', "\\|");
            line(&format!(
                "| {name} | {:.2} | {:.2} | {:.3} | {} | {} | {digests} |",
                p.a,
                p.b,
                p.ratio,
                range(p.interval),
                p.verdict()
            ));
        }
        let (ratio, interval) = self.mean();
        let verdict = match interval {
            None => "how much of that is noise cannot be said",
            Some((low, _)) if low > 1.0 => "B is faster",
            Some((_, high)) if high < 1.0 => "B is slower",
            Some(_) => "no difference beyond noise",
        };
        let n = self.pairs.len();
        let rows = if n == 1 { "row" } else { "rows" };
        line(&format!("\nB / A over {n} {rows}, geometric mean: {ratio:.3} ({}): {verdict}", range(interval)));
        if self.alone != (0, 0) {
            line(&format!("without a match: {} of A, {} of B", self.alone.0, self.alone.1));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(test: u64, device: &str, samples: &[f64], digest: &str) -> Value {
        json!({"model_type": "m", "n_prompt": test, "n_gen": 0, "n_depth": 0, "type_k": "f16", "type_v": "f16",
            "device": device, "samples_ts": samples, "digest": digest})
    }

    #[test]
    fn a_ratio_comes_with_the_interval_of_welchs_test() {
        let a = [row(1, "x", &[100.0, 110.0, 105.0, 95.0], "d")];
        let same = compare(&a, &a);
        assert_eq!(same.pairs[0].verdict(), "no difference beyond noise");
        assert!((same.pairs[0].ratio - 1.0).abs() < 1e-12 && same.pairs[0].digests_agree);
        let faster = compare(&a, &[row(1, "x", &[150.0, 160.0, 155.0, 152.0], "d")]);
        assert_eq!(faster.pairs[0].verdict(), "faster");
        assert!((faster.pairs[0].ratio - 1.507).abs() < 0.002, "{}", faster.pairs[0].ratio);
        // by hand: logs differ by 0.4105, se 0.0330, 3.9 degrees of freedom (t 2.8)
        let (low, high) = faster.pairs[0].interval.unwrap();
        assert!((low - 1.375).abs() < 0.01 && (high - 1.653).abs() < 0.01, "{low} {high}");
        let slower = compare(&[row(1, "x", &[150.0, 160.0], "d")], &[row(1, "x", &[1.0, 1.1], "e")]);
        assert_eq!(slower.pairs[0].verdict(), "slower");
        assert!(slower.pairs[0].digests_differ);
        let one = compare(&a, &[row(1, "x", &[100.0], "d")]);
        assert_eq!((one.pairs[0].interval, one.mean().1), (None, None));
    }

    #[test]
    fn rows_of_the_same_device_match_first_and_the_rest_in_order() {
        let a =
            [row(1, "x", &[1.0], "d"), row(1, "y", &[2.0], "d"), row(2, "x", &[3.0], "d"), row(9, "x", &[1.0], "d")];
        let b = [row(1, "z", &[4.0], "d"), row(1, "x", &[5.0], "d"), row(2, "x", &[6.0], "d"), row(3, "x", &[], "d")];
        let c = compare(&a, &b);
        let found: Vec<_> = c.pairs.iter().map(|p| (p.a, p.b)).collect();
        assert_eq!(found, [(1.0, 5.0), (2.0, 4.0), (3.0, 6.0)]);
        assert_eq!(c.alone, (1, 1));
    }

    #[test]
    fn what_is_no_file_of_rows_is_refused_with_its_place() {
        for (text, says) in [
            ("", "no rows"),
            ("[]", "no rows"),
            ("[1]", "row 1"),
            ("{\"n_prompt\": 1}", "row 1"),
            ("{\"n_prompt\": 1, \"samples_ts\": []}\n{", "line 2"),
            ("[{]", "JSON array"),
        ] {
            let e = format!("{:#}", parse(text).unwrap_err());
            assert!(e.contains(says), "{text}: {e}");
        }
    }
}
