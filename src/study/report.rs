//! A weight study as CSV, JSON and one self-contained page of HTML with its plots inside.
//!
//! Returns text; whoever asked writes it. The page names no address, loads nothing and runs no script.

use super::errors::{BINS, DEFINITIONS, Errors, change, edges};
use super::gate::Finding;
use super::measure::{Skipped, Summary, TensorErrors, TypeSummary, Wanted};
use super::plot::{self, COLOURS, GRID, INK, Strip, hex};
use crate::formats::policy::Group;
use anyhow::Context;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A finished study.
#[derive(Clone, Debug)]
pub struct Study {
    /// the model's file or directory
    pub model: String,
    /// what was asked for
    pub wanted: Wanted,
    /// every tensor that was measured
    pub tensors: Vec<TensorErrors>,
    /// matrices left out
    pub skipped: Vec<Skipped>,
    /// groups and the model
    pub summaries: Vec<Summary>,
    /// gates and what they found
    pub gates: Vec<(String, Vec<Finding>)>,
}

impl Study {
    /// Elements that were measured.
    pub fn elements(&self) -> u64 {
        self.tensors.iter().map(|t| t.types[0].n).sum()
    }

    /// The types the tensors have in the file, `F16` or `F16, Q6_K`.
    pub fn sources(&self) -> String {
        let mut names: Vec<&str> = self.tensors.iter().map(|t| t.source.name()).collect();
        names.sort_unstable();
        names.dedup();
        names.join(", ")
    }

    /// A sentence where the input is quantised already: the errors are those of quantising it again.
    pub fn caveat(&self) -> Option<String> {
        let n = self.tensors.iter().filter(|t| t.source.elems() > 1).count();
        (n > 0).then(|| {
            format!(
                "{n} of {} tensors are quantised already in the input: their errors are against its decoded values, \
                 not against the original weights",
                self.tensors.len()
            )
        })
    }

    /// Which tensors get the other types, in words.
    pub fn scope(&self) -> String {
        match self.wanted.policy {
            None => "every weight matrix, embeddings too".into(),
            Some(p) => {
                let n = self.tensors.iter().filter(|t| t.types.len() == self.wanted.types.len()).count();
                let n = if self.wanted.types.len() == 1 { 0 } else { n };
                format!(
                    "policy {}: {n} of {} tensors get the new type, the others keep the baseline",
                    p.name(),
                    self.tensors.len()
                )
            }
        }
    }

    fn type_name(&self, i: usize) -> &'static str {
        self.wanted.types[i].name()
    }

    fn bits(&self, i: usize) -> f64 {
        let t = self.wanted.types[i];
        (8 * t.bytes()) as f64 / t.elems() as f64
    }
}

const FIGURES: [&str; 12] = [
    "elements",
    "rmse",
    "rmse_change_percent",
    "mae",
    "max",
    "nrmse",
    "rel",
    "collapse",
    "blocks",
    "spiky",
    "layers_improved",
    "layers",
];

/// The columns every table of figures ends with, as text of full precision.
fn figures(base: &Errors, e: &Errors, layers: Option<(usize, usize)>) -> Vec<String> {
    let mut out = vec![
        e.n.to_string(),
        e.rmse().to_string(),
        change(base.rmse(), e.rmse()).to_string(),
        e.mae().to_string(),
        e.max.to_string(),
        e.nrmse().to_string(),
        e.rel().to_string(),
        e.collapsed.to_string(),
        e.blocks.to_string(),
        e.spiky.to_string(),
    ];
    if let Some((improved, layers)) = layers {
        out.extend([improved.to_string(), layers.to_string()]);
    }
    out
}

fn csv_text(rows: impl Iterator<Item = Vec<String>>) -> anyhow::Result<String> {
    let mut w = csv::Writer::from_writer(Vec::new());
    for row in rows {
        w.write_record(row).context("writing CSV")?;
    }
    let bytes = w.into_inner().map_err(|e| anyhow::anyhow!("writing CSV: {e}"))?;
    String::from_utf8(bytes).context("writing CSV")
}

fn header(first: &[&str], figures: &[&str]) -> Vec<String> {
    first.iter().chain(figures).map(|s| s.to_string()).collect()
}

/// One line per tensor and type.
pub fn tensors_csv(s: &Study) -> anyhow::Result<String> {
    let rows = s.tensors.iter().flat_map(|t| {
        t.types.iter().enumerate().map(move |(i, e)| {
            let layer = t.place.layer.map_or(String::new(), |l| l.to_string());
            let mut row: Vec<String> =
                vec![t.name.clone(), t.place.group.name().into(), layer, t.source.name().into(), s.type_name(i).into()];
            row.extend(figures(&t.types[0], e, None));
            row
        })
    });
    let first = header(&["tensor", "group", "layer", "source", "type"], &FIGURES[..10]);
    csv_text(std::iter::once(first).chain(rows))
}

/// One line per group and type.
pub fn groups_csv(s: &Study) -> anyhow::Result<String> {
    let rows = s.summaries.iter().flat_map(|g| {
        g.types.iter().enumerate().map(move |(i, t)| {
            let mut row: Vec<String> = vec![g.name().into(), g.tensors.to_string(), s.type_name(i).into()];
            row.extend(figures(&g.types[0].errors, &t.errors, Some((t.improved, t.layers))));
            row
        })
    });
    csv_text(std::iter::once(header(&["group", "tensors", "type"], &FIGURES)).chain(rows))
}

/// One line per tensor, type and bin that is not empty; the counts of a tensor and type add up to its elements.
pub fn histogram_csv(s: &Study) -> anyhow::Result<String> {
    let rows = s.tensors.iter().flat_map(|t| {
        t.types.iter().enumerate().flat_map(move |(i, e)| {
            let used = e.histogram.iter().enumerate().filter(|(_, n)| **n > 0);
            used.map(move |(b, n)| {
                let (low, high) = edges(b);
                vec![t.name.clone(), s.type_name(i).into(), low.to_string(), high.to_string(), n.to_string()]
            })
        })
    });
    csv_text(std::iter::once(header(&["tensor", "type", "from", "to", "count"], &[])).chain(rows))
}

fn errors_json(base: &Errors, e: &Errors) -> serde_json::Map<String, Value> {
    let number = |v: f64| if v.is_finite() { json!(v) } else { Value::Null };
    [
        ("elements", json!(e.n)),
        ("rmse", number(e.rmse())),
        ("rmse_change_percent", number(change(base.rmse(), e.rmse()))),
        ("mae", number(e.mae())),
        ("max", number(e.max)),
        ("nrmse", number(e.nrmse())),
        ("rel", number(e.rel())),
        ("collapse", json!(e.collapsed)),
        ("blocks", json!(e.blocks)),
        ("spiky", json!(e.spiky)),
    ]
    .into_iter()
    .map(|(k, v)| (k.to_string(), v))
    .collect()
}

/// Everything as one object; a change from nothing to something is null.
pub fn json(s: &Study) -> Value {
    let tensors: Vec<Value> = s
        .tensors
        .iter()
        .map(|t| {
            let types: serde_json::Map<String, Value> = (t.types.iter().enumerate())
                .map(|(i, e)| {
                    let mut o = errors_json(&t.types[0], e);
                    o.insert("histogram".into(), json!(e.histogram.as_slice()));
                    (s.type_name(i).to_string(), Value::Object(o))
                })
                .collect();
            json!({"name": t.name, "group": t.place.group.name(), "layer": t.place.layer, "source": t.source.name(),
                "shape": t.shape, "types": types})
        })
        .collect();
    let groups: Vec<Value> = s
        .summaries
        .iter()
        .map(|g| {
            let types: serde_json::Map<String, Value> = (g.types.iter().enumerate())
                .map(|(i, t)| {
                    let mut o = errors_json(&g.types[0].errors, &t.errors);
                    o.insert("layers".into(), json!(t.layers));
                    o.insert("layers_improved".into(), json!(t.improved));
                    o.insert("layers_worse".into(), json!(t.worse));
                    (s.type_name(i).to_string(), Value::Object(o))
                })
                .collect();
            json!({"group": g.name(), "tensors": g.tensors, "types": types})
        })
        .collect();
    let gates: Vec<Value> = s
        .gates
        .iter()
        .map(|(text, found)| {
            let found: Vec<Value> =
                (found.iter()).map(|f| json!({"type": f.ty.name(), "value": f.value, "fails": f.fails})).collect();
            json!({"gate": text, "findings": found})
        })
        .collect();
    // the last bin has no upper edge
    let bins: Vec<f64> = (1..BINS).map(|b| edges(b).0).collect();
    json!({
        "model": s.model,
        "baseline": s.type_name(0),
        "types": s.wanted.types.iter().map(|t| t.name()).collect::<Vec<_>>(),
        "policy": s.wanted.policy.map(|p| p.name()),
        "spiky_threshold": s.wanted.spiky,
        "quantised_input": s.caveat(),
        "definitions": DEFINITIONS.iter().map(|(k, v)| (k.to_string(), json!(v))).collect::<serde_json::Map<_, _>>(),
        "histogram_bins": "bin 0: exactly 0; bin i from 1 on: |e| from histogram_edges[i - 1] up to the next edge",
        "histogram_edges": bins,
        "groups": groups,
        "tensors": tensors,
        "skipped": s.skipped.iter().map(|k| json!({"name": k.name, "why": k.why})).collect::<Vec<_>>(),
        "gates": gates,
    })
}

/// What each type beside the baseline did, in sentences.
pub fn sentences(s: &Study) -> Vec<String> {
    let Some(model) = s.summaries.last() else { return vec![] };
    let base = &model.types[0].errors;
    let mut out = vec![format!(
        "{}: root mean square error {:.4e}, {:.3} % of the weights' root mean square, at {:.3} bits a weight.",
        s.type_name(0),
        base.rmse(),
        base.nrmse() * 100.0,
        s.bits(0)
    )];
    let compared = |base: &TypeSummary, t: &TypeSummary| {
        let c = change(base.errors.rmse(), t.errors.rmse());
        let word = if c < 0.0 { "below" } else { "above" };
        let how = if c == 0.0 { "equal to".to_string() } else { format!("{:.2} % {word}", c.abs()) };
        format!(
            "root mean square error {:.4e}, {how} {}'s, lower in {} and higher in {} of {} layers",
            t.errors.rmse(),
            s.type_name(0),
            t.improved,
            t.worse,
            t.layers
        )
    };
    for (i, t) in model.types.iter().enumerate().skip(1) {
        // a policy's own tensors first: in the whole model they may be lost among the others
        let groups = s.summaries.iter().filter(|g| s.wanted.policy.is_some() && g.group.is_some());
        for g in groups {
            out.push(format!("{} in {}: {}.", s.type_name(i), g.name(), compared(&g.types[0], &g.types[i])));
        }
        let whole = if s.wanted.policy.is_some() { " in the whole model" } else { "" };
        out.push(format!(
            "{}{whole}: {} (each group of a layer counted), at {:.3} bits a weight.",
            s.type_name(i),
            compared(&model.types[0], t),
            s.bits(i)
        ));
    }
    out
}

/// Style of the page: one palette for light, one for dark, the plots' colours mapped to the latter.
fn style() -> String {
    const DARK: [&str; 8] = ["#60a5fa", "#fbbf24", "#34d399", "#f472b6", "#a78bfa", "#22d3ee", "#f87171", "#d6d3d1"];
    let mut dark = String::from(
        ":root{--paper:#0f172a;--card:#1e293b;--ink:#e2e8f0;--soft:#94a3b8;--line:#334155;--good:#34d399;--bad:#f87171}",
    );
    let light = COLOURS.map(hex);
    let pairs = light.iter().map(String::as_str).zip(DARK);
    let (ink, grid) = (hex(INK), hex(GRID));
    for (from, to) in pairs.chain([(ink.as_str(), "#cbd5e1"), (grid.as_str(), "#334155")]) {
        dark.push_str(&format!("svg [fill=\"{from}\"]{{fill:{to}}}svg [stroke=\"{from}\"]{{stroke:{to}}}"));
    }
    format!(
        "{}@media(prefers-color-scheme:dark){{{dark}}}",
        ":root{color-scheme:light dark;--paper:#f8fafc;--card:#fff;--ink:#0f172a;--soft:#64748b;--line:#e2e8f0;--good:#047857;--bad:#b91c1c}\
         body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}\
         main{max-width:1320px;margin:0 auto;padding:24px}\
         h1{font-size:26px;margin:0}h2{font-size:19px;margin:36px 0 10px}p{margin:6px 0;max-width:110ch}\
         .soft{color:var(--soft)}.good{color:var(--good)}.bad{color:var(--bad)}\
         .card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px;overflow-x:auto}\
         .grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr));gap:14px;align-items:start}\
         .below{margin-top:14px}svg{width:100%;max-width:500px;height:auto;display:block}\
         table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}\
         th{font-weight:600;text-align:right;color:var(--soft);font-size:13px}td{text-align:right}\
         th,td{padding:4px 6px;border-bottom:1px solid var(--line);white-space:nowrap}\
         th.l,td.l{text-align:left}tr.first td{border-top:2px solid var(--line)}\
         summary{cursor:pointer;padding:6px 0}dt{font-weight:600}dd{margin:0 0 8px;max-width:90ch}\
         @media(max-width:640px){main{padding:12px}.card{padding:8px}}"
    )
}

fn percent(c: f64) -> Markup {
    let class = if c < 0.0 {
        "good"
    } else if c > 0.0 {
        "bad"
    } else {
        "soft"
    };
    html! { span class=(class) { (format!("{c:+.2} %")) } }
}

fn figure_cells(base: &Errors, e: &Errors, is_base: bool) -> Markup {
    html! {
        td { (format!("{:.4e}", e.rmse())) }
        td { @if is_base { span.soft { "baseline" } } @else { (percent(change(base.rmse(), e.rmse()))) } }
        td { (format!("{:.4e}", e.mae())) }
        td { (format!("{:.3e}", e.max)) }
        td { (format!("{:.3} %", e.nrmse() * 100.0)) }
        td { (format!("{:.3} %", e.rel() * 100.0)) }
        td { (e.collapsed) }
        td { @if e.blocks == 0 { "none" } @else { (e.spiky) " of " (e.blocks) } }
    }
}

fn figure_heads() -> Markup {
    html! {
        @for h in ["rmse", "change", "mae", "max", "nrmse", "rel", "collapse", "spiky blocks"] { th { (h) } }
    }
}

fn group_table(s: &Study) -> Markup {
    html! {
        table {
            tr { th.l { "group" } th.l { "type" } (figure_heads()) th { "improved" } }
            @for g in &s.summaries {
                @for (i, t) in g.types.iter().enumerate() {
                    tr class=(if i == 0 { "first" } else { "" }) {
                        td.l { @if i == 0 { b { (g.name()) } " " span.soft { (g.tensors) (if g.tensors == 1 { " tensor" } else { " tensors" }) } } }
                        td.l { (s.type_name(i)) }
                        (figure_cells(&g.types[0].errors, &t.errors, i == 0))
                        td { @if i > 0 { (t.improved) " of " (t.layers) " layers" } }
                    }
                }
            }
        }
    }
}

fn tensor_table(s: &Study) -> Markup {
    html! {
        table {
            tr { th.l { "tensor" } th.l { "source" } th.l { "type" } (figure_heads()) }
            @for t in &s.tensors {
                @for (i, e) in t.types.iter().enumerate() {
                    tr class=(if i == 0 { "first" } else { "" }) {
                        td.l { @if i == 0 { (t.name) " " span.soft { (format!("{:?}", t.shape)) } } }
                        td.l { @if i == 0 { (t.source.name()) } }
                        td.l { (s.type_name(i)) }
                        (figure_cells(&t.types[0], e, i == 0))
                    }
                }
            }
        }
    }
}

/// RMSE of a group by layer: the baseline's own, and of every other type the change against it; `None` without two layers.
fn layer_plot(s: &Study, group: Group) -> anyhow::Result<Option<String>> {
    let n = s.wanted.types.len();
    let mut layers: BTreeMap<usize, Vec<Errors>> = BTreeMap::new();
    for t in s.tensors.iter().filter(|t| t.place.group == group && t.types.len() == n) {
        let Some(layer) = t.place.layer else { continue };
        let sums = layers.entry(layer).or_insert_with(|| vec![Errors::default(); n]);
        sums.iter_mut().zip(&t.types).for_each(|(sum, e)| sum.add(e));
    }
    if layers.len() < 2 {
        return Ok(None);
    }
    let along = |value: &dyn Fn(&[Errors]) -> f64| layers.iter().map(|(&l, e)| (l as f64, value(e))).collect();
    let mut strips = vec![Strip {
        title: format!("{}: rmse", s.type_name(0)),
        y: "rmse".into(),
        points: along(&|e| e[0].rmse()),
        mark: None,
    }];
    strips.extend((1..n).map(|i| Strip {
        title: format!("{}: change against {}", s.type_name(i), s.type_name(0)),
        y: "change, %".into(),
        points: along(&|e| change(e[0].rmse(), e[i].rmse())),
        mark: Some(0.0),
    }));
    plot::strips(&format!("{}: rmse by layer", group.name()), "layer", &strips).map(Some)
}

fn plots(s: &Study) -> anyhow::Result<Vec<Vec<String>>> {
    let mut out = Vec::new();
    for g in &s.summaries {
        let series: Vec<(String, _)> =
            (g.types.iter().enumerate()).map(|(i, t)| (s.type_name(i).to_string(), t.errors.histogram)).collect();
        let mut row = vec![plot::histograms(&format!("{}: errors", g.name()), &series)?];
        if let Some(group) = g.group {
            row.extend(layer_plot(s, group)?);
        }
        out.push(row);
    }
    Ok(out)
}

/// The change of rmse of every group, a plot for each type beside the baseline: one far type must not flatten the others.
fn change_plots(s: &Study) -> anyhow::Result<Vec<String>> {
    let plot = |i: usize| {
        let rows: Vec<(String, f64)> = (s.summaries.iter())
            .filter(|g| g.types.len() > i)
            .map(|g| (g.name().to_string(), change(g.types[0].errors.rmse(), g.types[i].errors.rmse())))
            .collect();
        plot::changes(&format!("{}: change of rmse against {}", s.type_name(i), s.type_name(0)), &rows)
    };
    (1..s.wanted.types.len()).map(plot).collect()
}

/// The page.
pub fn html(s: &Study) -> anyhow::Result<String> {
    let inline = |svg: &str| PreEscaped(plot::inline(svg));
    let failed = s.gates.iter().filter(|g| g.1.iter().any(|f| f.fails)).count();
    let (changes, plots) = (change_plots(s)?, plots(s)?);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                title { "Weight errors of " (s.model) }
                style { (PreEscaped(style())) }
            }
            body { main {
                h1 { "Weight errors" }
                p.soft { (s.model) " · " (s.tensors.len()) " tensors, " (s.elements()) " weights, stored as " (s.sources()) " · " (s.scope()) }
                @if let Some(c) = s.caveat() { p.bad { (c) "." } }
                @for line in sentences(s) { p { (line) } }
                @if !s.gates.is_empty() {
                    h2 { "Gates: " @if failed > 0 { span.bad { (failed) " of " (s.gates.len()) " failed" } } @else { span.good { "passed" } } }
                    div.card { table {
                        tr { th.l { "fails if" } th.l { "type" } th { "found" } th { "" } }
                        @for (text, found) in &s.gates { @for f in found { tr {
                            td.l { code { (text) } }
                            td.l { (f.ty.name()) }
                            td { (f.text()) }
                            td { @if f.fails { b.bad { "fails" } } @else { span.good { "passes" } } }
                        } } }
                    } }
                }
                h2 { "By group" }
                div.card { (group_table(s)) }
                @if !changes.is_empty() {
                    div.grid.below { @for p in &changes { div.card { (inline(p)) } } }
                    p.soft { "Green is a smaller error than " (s.type_name(0)) "'s, red a larger one. A bar is the logarithm of the ratio; each type has its own scale." }
                }
                @for (g, row) in s.summaries.iter().zip(&plots) {
                    h2 { (g.name()) }
                    div.grid { @for p in row { div.card { (inline(p)) } } }
                }
                h2 { "Tensors" }
                details { summary { "All " (s.tensors.len()) " tensors" } div.card { (tensor_table(s)) } }
                @if !s.skipped.is_empty() {
                    details { summary { (s.skipped.len()) " matrices were left out" } div.card { table {
                        @for k in &s.skipped { tr { td.l { (k.name) } td.l { (k.why) } } }
                    } } }
                }
                h2 { "What the figures mean" }
                dl { @for (name, text) in DEFINITIONS { dt { (name) } dd { (text) "." } } }
                p.soft { "Threshold of a spiky block: " (s.wanted.spiky) ". Written by isobit hist." }
            } }
        }
    };
    Ok(page.into_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::BlockType;
    use crate::formats::policy::place;
    use crate::study::measure::summarise;

    fn study() -> Study {
        let types = vec![BlockType::Q8_K, BlockType::Q8K128];
        let tensor = |layer: usize, scale: f32| {
            let w: Vec<f32> = (0..256).map(|i| (i as f32 - 99.5) * scale).collect();
            let name = format!("blk.{layer}.attn_q.weight");
            let of = |step: f32| {
                let mut e = Errors::default();
                let d: Vec<f32> = w.iter().map(|v| (v / step).round() * step).collect();
                e.row(&w, &d, 256, 6.0);
                e
            };
            TensorErrors {
                place: place(&name).unwrap(),
                name,
                source: BlockType::F16,
                shape: vec![256, 1],
                types: vec![of(0.02), of(0.01)],
            }
        };
        let tensors = vec![tensor(0, 0.11), tensor(1, 0.013)];
        let summaries = summarise(&tensors, 2);
        let wanted = Wanted { types, policy: None, spiky: 6.0 };
        Study { model: "<&model>".into(), wanted, tensors, skipped: vec![], summaries, gates: vec![] }
    }

    #[test]
    fn a_page_is_self_contained_and_escapes_what_came_from_the_file() {
        let page = html(&study()).unwrap();
        assert!(page.contains("&lt;&amp;model&gt;") && !page.contains("<&model>"));
        for outside in ["http", "src=", "href=", "url(", "@import", "<script"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.matches("<svg").count() >= 4);
    }

    #[test]
    fn a_groups_figures_are_those_of_its_tensors_together() {
        let s = study();
        let (q, model) = (&s.summaries[0], s.summaries.last().unwrap());
        assert_eq!((q.name(), q.types[1].errors.n, q.types[1].layers), ("qkv", 512, 2));
        let squares: f64 = s.tensors.iter().map(|t| t.types[1].squares).sum();
        assert_eq!(q.types[1].errors.rmse(), (squares / 512.0).sqrt());
        assert_eq!(q.types[1].errors, model.types[1].errors);
        assert_eq!(q.types[0].improved, 0);
    }
}
