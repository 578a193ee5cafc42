//! Rows as one page of HTML with SVG charts, without a reference to anything outside it.
//!
//! `maud` writes the markup, and escapes what comes from files and drivers. The charts are markup too, bars and one kind of
//! line chart: plotting crates write their colours into the drawing, while here they are CSS variables, so that the page
//! follows the reader's light or dark setting. Bars are boxes of HTML, whose text keeps its size on a phone.

use super::compare::{label, test_name};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Colours of series.
const SERIES: usize = 8;

/// What a warning says where the percentage of the limit is in question.
pub const UNSTEADY: &str = "its share says little";

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1b1f24; --faint: #d8dde3; --soft: #59636e; --back: #ffffff; --card: #f6f8fa;
  --bad: #c0182b; --s0: #0969da; --s1: #bc4c00; --s2: #1a7f37; --s3: #8250df; --s4: #bf3989; --s5: #9a6700; --s6: #0c7d83;
  --s7: #57606a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --faint: #343b44; --soft: #9198a1; --back: #0d1117;
  --card: #161b22; --bad: #ff7b72; --s0: #58a6ff; --s1: #f0883e; --s2: #3fb950; --s3: #bc8cff; --s4: #f778ba; --s5: #d29922;
  --s6: #39c5cf; --s7: #8b949e; } }
body { margin: 0 auto; padding: 1.5rem; max-width: 70rem; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 0 0 .25rem; }
p { margin: .25rem 0 .75rem; color: var(--soft); overflow-wrap: anywhere; } p.bad { color: var(--bad); font-weight: 600; }
section { background: var(--card); border: 1px solid var(--faint); border-radius: 8px; padding: 1rem; margin: 1rem 0;
  overflow-x: auto; }
ul { margin: .25rem 0; padding-left: 1.2rem; overflow-wrap: anywhere; }
svg { width: 100%; max-width: 36rem; height: auto; display: block; } svg text { font-family: system-ui, sans-serif; fill: var(--ink); }
svg text.soft { fill: var(--soft); }
.bar { display: grid; grid-template-columns: minmax(5rem, 21rem) 1fr; gap: .6rem; align-items: center; font-size: 14px; }
.bar .name { text-align: right; overflow-wrap: anywhere; } .track { position: relative; display: block; height: 1.5rem; }
.track > * { position: absolute; } .track .fill { top: .15rem; height: 1.2rem; left: 0; border-radius: 2px; min-width: 1px; }
.track .spread { top: .68rem; height: .14rem; background: var(--ink); } .track .value { white-space: nowrap; }
@media (max-width: 640px) { body { padding: .75rem; } section { padding: .75rem; } .bar { display: block; }
  .bar .name { display: block; text-align: left; } }
.key { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: 0 0 .5rem; font-size: 13px; }
.key i { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: left; border-bottom: 1px solid var(--faint); white-space: nowrap; }
td.n, th.n { text-align: right; } tr.bad td { color: var(--bad); } code { font-size: 12px; }
";

/// What a chart needs of a row.
struct Entry<'a> {
    row: &'a Value,
    device: String,
    /// what charts call the model: its kind, or where two files are of one kind the file
    model: String,
    kind: String,
    file: String,
    test: String,
    cache: String,
    speed: f64,
    spread: f64,
}

impl Entry<'_> {
    fn number(&self, key: &str) -> Option<f64> {
        self.row[key].as_f64()
    }

    fn decode(&self) -> bool {
        self.row["n_prompt"].as_u64() == Some(0)
    }

    fn wrong(&self) -> bool {
        let differs = |key: &str| self.row[key].as_str().is_some_and(|s| s.starts_with("DIFFERENT"));
        differs("digest_check") || differs("logits_check")
    }
}

fn entry(row: &Value) -> Entry<'_> {
    let text = |k: &str| row[k].as_str().unwrap_or("").to_string();
    let (k, v) = (text("type_k"), text("type_v"));
    let path = text("model_filename");
    let recent = if row["kv_recent"] == true { "+r64" } else { "" };
    Entry {
        row,
        device: label(row),
        model: text("model_type"),
        kind: text("model_type"),
        file: path.rsplit(['/', '\\']).next().unwrap_or_default().to_string(),
        test: test_name(row),
        cache: format!("{}{recent}", if k == v { k } else { format!("{k}/{v}") }),
        speed: row["avg_ts"].as_f64().unwrap_or(0.0),
        spread: row["stddev_ts"].as_f64().unwrap_or(0.0),
    }
}

/// The page of some rows (as `bench -o json` writes them, or llama-bench).
pub fn page(rows: &[Value]) -> String {
    let mut all: Vec<Entry> = rows.iter().map(entry).collect();
    let files: BTreeSet<(String, String)> = all.iter().map(|e| (e.kind.clone(), e.file.clone())).collect();
    for e in &mut all {
        if files.iter().filter(|(kind, _)| *kind == e.kind).count() > 1 {
            e.model.clone_from(&e.file);
        }
    }
    let titles: Vec<String> = (files.iter())
        .map(|(kind, file)| if file.is_empty() { kind.clone() } else { format!("{kind} ({file})") })
        .collect();
    let said: Vec<&str> =
        rows.iter().filter_map(|r| r["warnings"].as_array()).flatten().filter_map(Value::as_str).collect();
    let warnings = numbering(said.into_iter());
    let fine: Vec<&Entry> = all.iter().filter(|e| e.row["error"].is_null() && e.speed > 0.0).collect();
    let wrong = all.iter().filter(|e| e.wrong()).count();
    let failed = all.len() - fine.len();
    let models: BTreeSet<&str> = all.iter().map(|e| e.model.as_str()).collect();
    let many = models.len() > 1;
    let first =
        |key: &str| rows.iter().filter_map(|r| r[key].as_str()).find(|s| !s.is_empty()).unwrap_or("").to_string();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "isobit bench" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "isobit bench" }
                p { (titles.join(", ")) " on " (first("cpu_info"))
                    @if !first("gpu_info").is_empty() { ", " (first("gpu_info")) }
                    "; " (first("test_time")) "; build " (first("build_commit")) }
                @if wrong > 0 { p.bad { (wrong) " rows have digests that differ from another device's: their speed is that of a wrong result." } }
                @if failed > 0 { p.bad { (failed) " rows failed; the table says why." } }
                @if !warnings.is_empty() {
                    section { h2 { "Warnings" } ul { @for text in in_order(&warnings) { li { (text) } } } }
                }
                (tests(&fine, many))
                (by_depth(&fine, many))
                (by_cache(&fine, many))
                (limits(&fine, many))
                (latency(&fine, many))
                (table(&all))
            }
        }
    }
    .into_string()
}

/// What the legend of a chart tells, and its labels need not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Legend {
    Device,
    Cache,
    Other,
}

/// The names of the rows of a chart: as short as tells them apart, together with its legend.
fn names(list: &[&Entry], many: bool, with_test: bool, legend: Legend) -> Vec<String> {
    let devices: BTreeSet<&str> = list.iter().map(|e| e.device.as_str()).collect();
    let caches: BTreeSet<&str> = list.iter().map(|e| e.cache.as_str()).collect();
    let ubatches: BTreeSet<u64> = list.iter().filter_map(|e| e.row["n_ubatch"].as_u64()).collect();
    let name = |e: &&Entry| {
        let mut parts = Vec::new();
        parts.extend(Some(e.test.clone()).filter(|_| with_test));
        parts.extend(Some(e.model.clone()).filter(|_| many));
        parts.extend(Some(e.cache.clone()).filter(|_| caches.len() > 1 && legend != Legend::Cache));
        parts.extend(e.row["n_ubatch"].as_u64().filter(|_| ubatches.len() > 1).map(|u| format!("ub {u}")));
        parts.extend(Some(short(&e.device)).filter(|_| devices.len() > 1 && legend != Legend::Device));
        if parts.is_empty() { short(&e.device) } else { parts.join(" · ") }
    };
    list.iter().map(name).collect()
}

/// A device's name without what nobody needs twice.
fn short(device: &str) -> String {
    match device.split_once(" (") {
        // `llvmpipe (LLVM 15.0.6, 256 bits) [Vulkan]`
        Some((name, rest)) if device.ends_with(']') => {
            format!("{name}{}", rest.rsplit_once(')').map_or("", |(_, backend)| backend))
        }
        _ => device.to_string(),
    }
}

/// A bar of a chart: name, value, what the number says, series and what the legend calls it, and the whisker's half-length.
struct Bar {
    name: String,
    value: f64,
    text: String,
    series: usize,
    title: String,
    whisker: f64,
}

/// Horizontal bars from zero to `most`. Those of one name stand together, and the name once.
fn bars(mut list: Vec<Bar>, most: f64) -> Markup {
    let names: Vec<String> = list.iter().map(|b| b.name.clone()).collect();
    let places = numbering(names.iter().map(String::as_str));
    list.sort_by_key(|b| places[b.name.as_str()]);
    // beside the longest bar there is room for its number
    let x = |v: f64| format!("calc((100% - 12rem) * {:.4})", (v / most).clamp(0.0, 1.0));
    html! {
        div.bars { @for (i, b) in list.iter().enumerate() {
            div.bar {
                span.name { @if i == 0 || list[i - 1].name != b.name { (b.name) } }
                span.track title=(format!("{}: {}", b.title, b.text)) {
                    span.fill style=(format!("width:{};background:var(--s{})", x(b.value), b.series % SERIES)) {}
                    @if b.whisker > 0.0 {
                        @let (low, high) = ((b.value - b.whisker).max(0.0), b.value + b.whisker);
                        span.spread style=(format!("left:{};width:{}", x(low), x(high - low))) {}
                    }
                    span.value style=(format!("left:calc({} + 6px)", x(b.value + b.whisker))) { (b.text) }
                }
            }
        } }
    }
}

/// The number of each distinct text, in order of first use.
fn numbering<'a>(all: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut map = BTreeMap::new();
    for s in all {
        let next = map.len();
        map.entry(s).or_insert(next);
    }
    map
}

/// The texts by their numbers.
fn in_order<'a>(numbers: &BTreeMap<&'a str, usize>) -> Vec<&'a str> {
    let mut list: Vec<_> = numbers.iter().map(|(text, i)| (*i, *text)).collect();
    list.sort_unstable();
    list.into_iter().map(|(_, text)| text).collect()
}

/// A legend: names and series, in this order.
fn key(list: &[(&str, usize)]) -> Markup {
    html! { div.key { @for (name, i) in list { span { i style=(format!("background:var(--s{})", i % SERIES)) {} (name) } } } }
}

/// The legend of numbered texts.
fn key_of(series: &BTreeMap<&str, usize>) -> Markup {
    key(&in_order(series).into_iter().enumerate().map(|(i, name)| (name, i)).collect::<Vec<_>>())
}

/// Tokens a second of every test at the first depth, prompts and generation apart.
fn tests(list: &[&Entry], many: bool) -> Markup {
    let shallow = list.iter().filter_map(|e| e.row["n_depth"].as_u64()).min();
    let devices = numbering(list.iter().map(|e| e.device.as_str()));
    let part = |decode: bool| -> Vec<&Entry> {
        list.iter().copied().filter(|e| e.decode() == decode && e.row["n_depth"].as_u64() == shallow).collect()
    };
    html! {
        @for (decode, title) in [(false, "Prompt: tokens a second"), (true, "Generation: tokens a second")] {
            @let rows = part(decode);
            @if !rows.is_empty() {
                @let most = rows.iter().map(|e| e.speed + e.spread).fold(0.0, f64::max);
                section {
                    h2 { (title) }
                    p { "Mean of the repetitions, with one standard deviation to either side." }
                    @if devices.len() > 1 { (key_of(&devices)) }
                    (bars(rows.iter().zip(names(&rows, many, true, Legend::Device)).map(|(e, name)| Bar {
                        name, value: e.speed, series: devices[e.device.as_str()], title: e.device.clone(), whisker: e.spread,
                        text: format!("{}{}", number(e.speed), if e.wrong() { "  WRONG RESULT" } else { "" }),
                    }).collect(), most))
                }
            }
        }
    }
}

/// Generation by depth, a line for each device, cache and model.
fn by_depth(list: &[&Entry], many: bool) -> Markup {
    let decode: Vec<&Entry> = list.iter().copied().filter(|e| e.decode()).collect();
    let depths: BTreeSet<u64> = decode.iter().filter_map(|e| e.row["n_depth"].as_u64()).collect();
    if depths.len() < 2 {
        return html! {};
    }
    let mut lines: Vec<(String, Vec<Point>)> = Vec::new();
    for (e, name) in decode.iter().zip(names(&decode, many, false, Legend::Other)) {
        let gen_tests: BTreeSet<u64> = decode.iter().filter_map(|e| e.row["n_gen"].as_u64()).collect();
        let name = if gen_tests.len() > 1 { format!("tg{} · {name}", e.row["n_gen"]) } else { name };
        let point = Point { x: e.row["n_depth"].as_u64().unwrap_or(0) as f64, y: e.speed, spread: e.spread };
        match lines.iter_mut().find(|(n, _)| *n == name) {
            Some((_, points)) => points.push(point),
            None => lines.push((name, vec![point])),
        }
    }
    lines.iter_mut().for_each(|(_, p)| p.sort_by(|a, b| a.x.total_cmp(&b.x)));
    let chart = line_chart(&lines, "tokens in the cache", "tokens a second");
    let series = numbering(lines.iter().map(|(n, _)| n.as_str()));
    html! {
        section {
            h2 { "Generation by depth" }
            p { "Tokens a second after so many tokens are in the cache, with one standard deviation up and down." }
            (key_of(&series))
            (chart)
        }
    }
}

/// A round step that divides `most` into four to ten parts: 1, 2 or 5 times a power of ten.
fn step(most: f64) -> f64 {
    let power = 10f64.powf((most / 4.0).log10().floor());
    let parts = most / 4.0 / power;
    power
        * if parts >= 5.0 {
            5.0
        } else if parts >= 2.0 {
            2.0
        } else {
            1.0
        }
}

/// A point of a line, with half the length of its whisker.
struct Point {
    x: f64,
    y: f64,
    spread: f64,
}

/// Lines over a common pair of axes from zero. Drawn narrow, so that the text can be read on a phone.
fn line_chart(lines: &[(String, Vec<Point>)], x_name: &str, y_name: &str) -> Markup {
    let (left, upper, right, lower) = (62.0, 28.0, 500.0, 270.0);
    let points = || lines.iter().flat_map(|(_, p)| p);
    let (most_x, most_y) = points().fold((1.0, 1e-9), |(x, y): (f64, f64), p| (x.max(p.x), y.max(p.y + p.spread)));
    let (mut step_x, step_y) = (step(most_x), step(most_y));
    // numbers of tokens are wide
    while most_x / step_x > 6.0 {
        step_x *= 2.0;
    }
    let top = (most_y / step_y).ceil() * step_y;
    let x = |v: f64| left + (right - left) * v / (most_x * 1.02);
    let y = |v: f64| lower - (lower - upper) * v / top;
    let ticks = |step: f64, most: f64| (0..=(most / step + 1e-9) as usize).map(move |i| i as f64 * step);
    html! {
        svg viewBox="0 0 520 326" role="img" {
            @for v in ticks(step_y, top) {
                line x1=(left) x2=(right) y1=(y(v)) y2=(y(v)) stroke="var(--faint)" {}
                text.soft x=(left - 8.0) y=(y(v) + 5.5) text-anchor="end" font-size="16" { (number(v)) }
            }
            @for v in ticks(step_x, most_x) {
                text.soft x=(x(v)) y=(lower + 22.0) text-anchor="middle" font-size="16" { (format!("{v:.0}")) }
            }
            text.soft x="4" y=(upper - 12.0) font-size="16" { (y_name) }
            text.soft x=((left + right) / 2.0) y=(lower + 47.0) text-anchor="middle" font-size="16" { (x_name) }
            @for (i, (name, p)) in lines.iter().enumerate() {
                @let colour = format!("var(--s{})", i % SERIES);
                polyline fill="none" stroke=(colour) stroke-width="2"
                    points=(p.iter().map(|p| format!("{:.1},{:.1}", x(p.x), y(p.y))).collect::<Vec<_>>().join(" ")) {}
                @for p in p {
                    @if p.spread > 0.0 {
                        // beside each other, not upon each other
                        @let at = x(p.x) + 3.0 * (i as f64 - (lines.len() - 1) as f64 / 2.0);
                        line.spread x1=(at) x2=(at) y1=(y(p.y + p.spread)) y2=(y((p.y - p.spread).max(0.0)))
                            stroke=(colour) stroke-width="1.5" {}
                    }
                    circle cx=(x(p.x)) cy=(y(p.y)) r="3.5" fill=(colour) {
                        title { (name) " at " (p.x) ": " (number(p.y)) " ± " (number(p.spread)) }
                    }
                }
            }
        }
    }
}

/// Generation by cache type at each depth, where there are several types.
fn by_cache(list: &[&Entry], many: bool) -> Markup {
    let decode: Vec<&Entry> = list.iter().copied().filter(|e| e.decode()).collect();
    let caches = numbering(decode.iter().map(|e| e.cache.as_str()));
    if caches.len() < 2 {
        return html! {};
    }
    let mut rows = decode.clone();
    let place = |e: &&Entry| (e.row["n_depth"].as_u64(), e.device.clone(), caches[e.cache.as_str()]);
    rows.sort_by_key(place);
    let most = rows.iter().map(|e| e.speed + e.spread).fold(0.0, f64::max);
    let bar = |(e, name): (&&Entry, String)| {
        let same = |o: &&&Entry| {
            (o.row["n_depth"].as_u64(), &o.device, &o.model) == (e.row["n_depth"].as_u64(), &e.device, &e.model)
        };
        let first = rows.iter().find(same).map_or(e.speed, |o| o.speed);
        let text = format!("{}  ({:.2} of {})", number(e.speed), e.speed / first, decode[0].cache);
        Bar { name, value: e.speed, text, series: caches[e.cache.as_str()], title: e.cache.clone(), whisker: e.spread }
    };
    html! {
        section {
            h2 { "Generation by cache type" }
            p { "Tokens a second; in brackets the ratio to the first type at the same depth." }
            (key_of(&caches))
            (bars(rows.iter().zip(names(&rows, many, true, Legend::Cache)).map(bar).collect(), most))
        }
    }
}

/// Percent of the limit.
fn limits(list: &[&Entry], many: bool) -> Markup {
    let rows: Vec<&Entry> = list.iter().copied().filter(|e| e.number("limit_percent").is_some()).collect();
    if rows.is_empty() {
        return html! {};
    }
    let bounds = [("bounded by reading memory", 0), ("bounded by int8 operations", 1)];
    let bar = |(e, name): (&&Entry, String)| {
        let value = e.number("limit_percent").unwrap_or(0.0);
        let series = usize::from(e.row["limit_by"] == "int8");
        let unsteady = (e.row["warnings"].as_array().into_iter().flatten())
            .any(|w| w.as_str().is_some_and(|w| w.contains(UNSTEADY)));
        let text = format!("{value:.1} %{}", if unsteady { " (see Warnings)" } else { "" });
        Bar { name, value, text, series, title: bounds[series].0.into(), whisker: 0.0 }
    };
    let list: Vec<Bar> = rows.iter().zip(names(&rows, many, true, Legend::Other)).map(bar).collect();
    let most = list.iter().map(|b| b.value).fold(100.0, f64::max);
    html! {
        section {
            h2 { "Percent of the device's limit" }
            p { "The least time that the measured read bandwidth and int8 rate allow, over the time taken. Caches can lift small models beyond 100 %." }
            (key(&bounds))
            (bars(list, most))
        }
    }
}

/// p50, p90 and p99 of single tokens.
fn latency(list: &[&Entry], many: bool) -> Markup {
    let rows: Vec<&Entry> = list.iter().copied().filter(|e| e.number("p50_ns").is_some()).collect();
    if rows.is_empty() {
        return html! {};
    }
    let kinds = [("p50", 0), ("p90", 5), ("p99", 1)];
    let most = rows.iter().filter_map(|e| e.number("p99_ns")).fold(0.0, f64::max);
    let mut list = Vec::new();
    for (e, name) in rows.iter().zip(names(&rows, many, true, Legend::Other)) {
        for (k, series) in kinds {
            let value = e.number(&format!("{k}_ns")).unwrap_or(0.0);
            let text = format!("{k} {} ms", number(value / 1e6));
            list.push(Bar { name: name.clone(), value, text, series, title: name.clone(), whisker: 0.0 });
        }
    }
    html! {
        section {
            h2 { "Time of a generated token" }
            p { "Half of the tokens, 90 % and 99 % of them took no longer." }
            (key(&kinds))
            (bars(list, most))
        }
    }
}

/// Four digits at most.
fn number(v: f64) -> String {
    match v.abs() {
        a if a >= 100.0 => format!("{v:.0}"),
        a if a >= 10.0 => format!("{v:.1}"),
        a if a >= 1.0 => format!("{v:.2}"),
        a if a > 0.0 => format!("{v:.3}"),
        _ => "0".into(),
    }
}

fn table(all: &[Entry]) -> Markup {
    let cell = |e: &Entry, k: &str, scale: f64| e.number(k).map_or("-".into(), |v| number(v / scale));
    html! {
        section {
            h2 { "All rows" }
            table {
                tr {
                    @for h in ["model", "device", "test", "cache"] { th { (h) } }
                    @for h in ["t/s", "±", "% of limit", "TTFT ms", "p50 ms", "p99 ms", "MB/token", "dispatches", "host µs", "read back B", "load ms", "peak MiB", "J/token"] { th.n { (h) } }
                    th { "digest" }
                }
                @for e in all {
                    tr.bad[e.wrong() || !e.row["error"].is_null()] {
                        td { (e.kind) @if !e.file.is_empty() { br; (e.file) } } td { (e.device) } td { (e.test) } td { (e.cache) }
                        @if let Some(error) = e.row["error"].as_str() {
                            td colspan="13" { (error) }
                        } @else {
                            td.n { (number(e.speed)) } td.n { (number(e.spread)) }
                            @for (k, scale) in [("limit_percent", 1.0), ("ttft_ns", 1e6), ("p50_ns", 1e6), ("p99_ns", 1e6),
                                ("bytes_per_token", 1e6), ("dispatches_per_token", 1.0), ("host_us_per_token", 1.0),
                                ("read_back_per_token", 1.0), ("load_ms", 1.0), ("peak_memory", 1_048_576.0), ("joules_per_token", 1.0)] {
                                td.n { (cell(e, k, scale)) }
                            }
                        }
                        td { code { (e.row["digest"].as_str().unwrap_or("-").chars().take(12).collect::<String>())
                            @if e.wrong() { " DIFFERENT" } } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use serde_json::json;

    #[test]
    fn axes_have_four_to_ten_round_steps() {
        for most in [0.003, 1.0, 7.9, 8.1, 19.0, 100.0, 4096.0, 99999.0] {
            let parts = most / step(most);
            assert!((3.9..=10.0).contains(&parts), "{most}: {parts}");
        }
    }

    #[test]
    fn a_page_holds_every_row_escapes_what_it_shows_and_refers_to_nothing_outside() {
        let row = |depth: u64, k: &str, ts: f64| {
            json!({"model_type": "<script>m", "device": "d (x) [y]", "n_prompt": 0, "n_gen": 4, "n_depth": depth,
                "type_k": k, "type_v": k, "avg_ts": ts, "stddev_ts": 1.0, "p50_ns": 1e6, "p90_ns": 2e6, "p99_ns": 3e6,
                "limit_percent": 50.0, "limit_by": "read"})
        };
        let mut rows = vec![row(0, "f16", 10.0), row(64, "f16", 8.0), row(0, "q8_0", 11.0), row(64, "q8_0", 9.0)];
        rows.push(json!({"model_type": "m", "n_prompt": 1, "n_gen": 0, "n_depth": 0, "error": "it broke"}));
        let page = page(&rows);
        assert!(page.contains("&lt;script&gt;m") && !page.contains("<script"), "not escaped");
        assert!(!page.contains("http") && !page.contains("url("), "a reference to something outside");
        for words in
            ["Generation by depth", "by cache type", "Percent of the device", "Time of a generated", "it broke"]
        {
            assert!(page.contains(words), "{words}");
        }
        assert_eq!(page.matches("<polyline").count(), 2, "a line for each cache type");
        assert_eq!(page.matches("<tr").count(), 1 + rows.len());
        // each point of a line has its spread
        assert_eq!(page.matches("<line class=\"spread\"").count(), 4);
        let places: Vec<_> = ["p50", "p90", "p99"].map(|k| page.find(&format!("</i>{k}</span>"))).into();
        assert!(places[0].is_some() && places.is_sorted(), "the legend of quantiles: {places:?}");
    }

    fn of(file: &str, device: &str, test: u64) -> Value {
        json!({"model_filename": file, "model_type": "llama 1B", "device": device, "n_prompt": test, "n_gen": 0, "n_depth": 0,
            "avg_ts": 9.0, "stddev_ts": 1.0, "limit_percent": 5.0, "warnings": []})
    }

    #[test]
    fn a_page_names_the_file_and_two_of_a_kind_by_their_files() {
        let one = page(&[of("/models/a.gguf", "d", 8)]);
        assert!(one.contains("llama 1B (a.gguf) on "), "{one}");
        let two = page(&[of("/models/a.gguf", "d", 8), of("C:\\b.gguf", "d", 8)]);
        assert!(["pp8 · a.gguf", "pp8 · b.gguf"].iter().all(|name| two.contains(&format!(">{name}<"))), "{two}");
    }

    #[test]
    fn a_label_does_not_repeat_the_legend_and_stands_once_for_bars_of_its_name() {
        let rows = [of("a", "x", 8), of("a", "x", 16), of("a", "y", 8), of("a", "y", 16)];
        let page = page(&rows);
        let chart = page.split("</section>").find(|s| s.contains("Prompt: tokens a second")).expect("it is drawn");
        assert_eq!((chart.matches(">pp8<").count(), chart.matches(">pp16<").count()), (1, 1), "{chart}");
        assert!(!chart.contains("pp8 · x") && chart.matches("class=\"fill\"").count() == 4, "{chart}");
    }

    #[test]
    fn warnings_stand_on_the_page_once_and_beside_the_bars_they_are_about() {
        let mut rows = [of("a", "x", 8), of("a", "x", 16), of("a", "x", 32)];
        let unsteady = format!("pp16: plain reading went from 12.0 to 7.9 GB/s meanwhile: {UNSTEADY}");
        rows[0]["warnings"] = json!(["<fa> off"]);
        rows[1]["warnings"] = json!(["<fa> off", unsteady]);
        let page = page(&rows);
        assert_eq!((page.matches("&lt;fa&gt; off").count(), page.matches(UNSTEADY).count()), (1, 1), "{page}");
        assert_eq!(page.matches("5.0 % (see Warnings)</span>").count(), 1, "{page}");
    }
}
