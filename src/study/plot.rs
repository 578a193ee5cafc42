//! SVG plots, drawn by plotters: lines over layers or windows, bands, bars of changes, and error histograms.
//!
//! Plots of a page are drawn narrow, [`WIDTH`] units, so that their text can still be read on a phone. Every plot has a
//! light background of its own. Inside a page the colours are those of [`COLOURS`], [`INK`] and [`GRID`], which a style
//! sheet can map to others (attribute selectors), and the background is left out.

use super::errors::{BINS, edges};
use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Colours of the series, in order: blue, orange, green, magenta, violet, teal, red, grey. Told apart by most eyes.
pub const COLOURS: [RGBColor; 8] = [
    RGBColor(0x25, 0x63, 0xeb),
    RGBColor(0xd9, 0x77, 0x06),
    RGBColor(0x04, 0x78, 0x57),
    RGBColor(0xbe, 0x18, 0x5d),
    RGBColor(0x7c, 0x3a, 0xed),
    RGBColor(0x0e, 0x74, 0x90),
    RGBColor(0xb9, 0x1c, 0x1c),
    RGBColor(0x57, 0x53, 0x4e),
];
/// What is better than the baseline, and what is worse: the green and the red of [`COLOURS`].
const BETTER: RGBColor = COLOURS[2];
const WORSE: RGBColor = COLOURS[6];
/// Text and axes.
pub const INK: RGBColor = RGBColor(0x47, 0x55, 0x69);
/// Grid lines.
pub const GRID: RGBColor = RGBColor(0xe2, 0xe8, 0xf0);
const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);

/// Colour of series `i`.
pub fn colour(i: usize) -> RGBColor {
    COLOURS[i % COLOURS.len()]
}

/// `#RRGGBB`, as plotters writes it.
pub fn hex(c: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", c.0, c.1, c.2)
}

/// A line of a plot.
#[derive(Clone, Debug)]
pub struct Series {
    /// what it is, for the legend
    pub name: String,
    /// (x, y), in order of x
    pub points: Vec<(f64, f64)>,
}

/// A plot of lines.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    /// above it
    pub title: &'a str,
    /// a sentence below the title
    pub note: &'a str,
    /// below the x axis
    pub x: &'a str,
    /// beside the y axis
    pub y: &'a str,
    /// the lines
    pub series: &'a [Series],
    /// (x, low, high) drawn behind the lines in the colour of the first
    pub band: &'a [(f64, f64, f64)],
    /// a value that must be visible, with a dashed line at it
    pub mark: Option<f64>,
}

/// One of several plots over the same x axis, each with a y axis of its own.
#[derive(Clone, Debug)]
pub struct Strip {
    /// above it
    pub title: String,
    /// beside the y axis
    pub y: String,
    /// (x, y), in order of x; values that are not finite are left out
    pub points: Vec<(f64, f64)>,
    /// a value that must be visible, with a dashed line at it
    pub mark: Option<f64>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

/// Width of a plot of a page. Shown at 360 pixels its text of `TEXT` is as large as small print.
pub const WIDTH: u32 = 460;
const HEIGHT: u32 = 300;
/// Size of text, and of titles, as plotters counts: it writes 0.8 of that.
const TEXT: i32 = 17;
const TITLE: i32 = 20;
/// Width of a letter of text, about.
const LETTER: i32 = 8;

/// Draws to a string of SVG with its own background.
fn svg(size: (u32, u32), draw: impl FnOnce(&Area) -> anyhow::Result<()>) -> anyhow::Result<String> {
    let mut out = String::new();
    {
        let area = SVGBackend::with_string(&mut out, size).into_drawing_area();
        area.fill(&PAPER).map_err(fault)?;
        draw(&area)?;
        area.present().map_err(fault)?;
    }
    Ok(out)
}

fn fault(e: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("drawing a plot: {e}")
}

/// As part of a page: no prolog, no namespace, no background, as wide as its place.
pub fn inline(svg: &str) -> String {
    let paper = format!("fill=\"{}\"", hex(PAPER));
    let background = |l: &&str| !(l.starts_with("<rect x=\"0\" y=\"0\"") && l.contains(&paper));
    let lines: Vec<&str> = svg.lines().filter(background).collect();
    let text = lines.join("\n").replace(" xmlns=\"http://www.w3.org/2000/svg\"", "");
    match text.split_once("<svg width=") {
        Some((_, rest)) => format!("<svg role=\"img\" data-width={rest}"),
        None => text,
    }
}

fn span(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|v| v.is_finite()).fold(None, |s, v| match s {
        None => Some((v, v)),
        Some((low, high)) => Some((low.min(v), high.max(v))),
    })
}

/// The range of an axis: that of the values with some room, and never empty.
fn roomy(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let y = span(values).unwrap_or((0.0, 1.0));
    let room = if y.1 > y.0 { (y.1 - y.0) * 0.08 } else { y.0.abs().max(1e-3) * 0.1 };
    (y.0 - room, y.1 + room)
}

/// Round values within a range, `most` or fewer and no closer than `least`, and the step between them: 1, 2 or 5 times a
/// power of ten.
fn ticks(range: (f64, f64), most: usize, least: f64) -> (Vec<f64>, f64) {
    let wide = (range.1 - range.0).max(f64::MIN_POSITIVE);
    let power = 10f64.powf((wide / most as f64).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|m| m * power);
    let step = steps.into_iter().find(|s| wide / s <= most as f64).unwrap_or(steps[3]).max(least);
    let (first, last) = ((range.0 / step - 1e-9).ceil(), (range.1 / step + 1e-9).floor());
    let n = if last >= first { (last - first) as usize + 1 } else { 0 };
    ((0..n.min(most + 1)).map(|i| (first + i as f64) * step).collect(), step)
}

/// Digits enough to tell the ticks of a step apart.
fn tick(v: f64, step: f64, largest: f64) -> String {
    if v.abs() < step / 1e6 {
        return "0".into();
    }
    // a little less, so that a step of exactly 0.1 has one digit
    let power = (step * 1.000001).log10().floor();
    if !(1e-3..1e5).contains(&largest) {
        let digits = (largest.log10().floor() - power).max(0.0) as usize;
        return format!("{v:.digits$e}");
    }
    format!("{v:.*}", (-power).max(0.0) as usize)
}

/// An axis: its range, its ticks, their labels and its name.
struct Scale<'a> {
    range: (f64, f64),
    ticks: Vec<f64>,
    label: Box<dyn Fn(f64) -> String + 'a>,
    name: &'a str,
}

impl<'a> Scale<'a> {
    /// A linear axis with about `most` ticks, no closer than `least`.
    fn linear(range: (f64, f64), most: usize, least: f64, name: &'a str) -> Scale<'a> {
        let (list, step) = ticks(range, most, least);
        let largest = range.0.abs().max(range.1.abs());
        Scale { range, ticks: list, label: Box::new(move |v| tick(v, step, largest)), name }
    }

    fn axis(&self) -> Axis {
        Axis { range: self.range, ticks: self.ticks.clone() }
    }
}

/// What plotters needs of an axis. Its own linear one chooses its ticks itself, and leaves out layers.
struct Axis {
    range: (f64, f64),
    ticks: Vec<f64>,
}

impl Ranged for Axis {
    type ValueType = f64;
    type FormatOption = DefaultFormatting;

    fn map(&self, v: &f64, limit: (i32, i32)) -> i32 {
        let share = ((v - self.range.0) / (self.range.1 - self.range.0)).clamp(-9.0, 9.0);
        limit.0 + (f64::from(limit.1 - limit.0) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { vec![] } else { self.ticks.clone() }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.range.0..self.range.1
    }
}

/// Draws grid and axes; without `foot` the x axis has no labels, as another plot below has them.
fn start<'a, 'b>(area: &'a Area<'b>, x: &Scale, y: &Scale, foot: bool) -> anyhow::Result<Chart<'a, 'b>> {
    let mut chart = ChartBuilder::on(area)
        .margin(6)
        .margin_top(4)
        .margin_right(16)
        .x_label_area_size(if foot { 46 } else { 4 })
        .y_label_area_size(84)
        .build_cartesian_2d(x.axis(), y.axis())
        .map_err(fault)?;
    let text = ("sans-serif", TEXT).into_font().color(&INK);
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(text.clone())
        .axis_desc_style(text)
        .x_desc(if foot { x.name } else { "" })
        .y_desc(y.name)
        .x_label_formatter(&|v| if foot { (x.label)(*v) } else { String::new() })
        .y_label_formatter(&|v| (y.label)(*v))
        .draw()
        .map_err(fault)?;
    Ok(chart)
}

/// Draws a title, below it a sentence, and the names beside their colours, in as many rows as they need; returns what is
/// left.
fn head<'b>(area: &Area<'b>, title: &str, note: &str, names: &[(String, RGBColor)]) -> anyhow::Result<Area<'b>> {
    let width = area.dim_in_pixel().0 as i32;
    let text = ("sans-serif", TITLE).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Top));
    area.draw_text(title, &text, (12, 8)).map_err(fault)?;
    let small = ("sans-serif", TEXT).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    let mut end = 30;
    if !note.is_empty() {
        area.draw_text(note, &small, (12, end + 6)).map_err(fault)?;
        end += 20;
    }
    let (mut x, mut y) = (12, end + 10);
    for (name, c) in names {
        let wide = 30 + LETTER * name.chars().count() as i32;
        if x > 12 && x + wide > width {
            (x, y) = (12, y + 20);
        }
        area.draw(&Rectangle::new([(x, y - 2), (x + 16, y + 2)], c.filled())).map_err(fault)?;
        area.draw_text(name, &small, (x + 22, y)).map_err(fault)?;
        x += wide + 8;
    }
    Ok(area.split_vertically(if names.is_empty() { end } else { y + 14 }).1)
}

/// Draws a line with its dots; points that are not finite are left out.
fn draw_line(chart: &mut Chart, points: &[(f64, f64)], c: RGBColor) -> anyhow::Result<()> {
    let points: Vec<(f64, f64)> = points.iter().copied().filter(|p| p.1.is_finite()).collect();
    chart.draw_series(LineSeries::new(points.iter().copied(), c.stroke_width(2))).map_err(fault)?;
    if points.len() <= 80 {
        chart.draw_series(points.iter().map(|&at| Circle::new(at, 3, c.filled()))).map_err(fault)?;
    }
    Ok(())
}

fn draw_mark(chart: &mut Chart, x: (f64, f64), mark: Option<f64>) -> anyhow::Result<()> {
    if let Some(mark) = mark {
        let line = [(x.0, mark), (x.1, mark)];
        chart.draw_series(DashedLineSeries::new(line, 6, 4, INK.stroke_width(1))).map_err(fault)?;
    }
    Ok(())
}

/// The range of an axis of layers or windows: as wide as the points.
fn along(points: impl Iterator<Item = f64>) -> (f64, f64) {
    let x = span(points).unwrap_or((0.0, 1.0));
    if x.1 > x.0 { x } else { (x.0 - 0.5, x.1 + 0.5) }
}

fn draw_lines(area: &Area, p: &Lines, first_colour: usize) -> anyhow::Result<()> {
    let points = || p.series.iter().flat_map(|s| &s.points);
    let banded = p.band.iter().flat_map(|b| [b.1, b.2]);
    let x = Scale::linear(along(points().map(|p| p.0)), 12, 1.0, p.x);
    let y = Scale::linear(roomy(points().map(|p| p.1).chain(banded).chain(p.mark)), 6, 0.0, p.y);
    let named = p.series.iter().enumerate().map(|(i, s)| (s.name.clone(), colour(first_colour + i)));
    let names: Vec<_> = named.filter(|_| p.series.len() > 1).collect();
    let area = head(area, p.title, p.note, &names)?;
    let mut chart = start(&area, &x, &y, true)?;
    if p.band.len() > 1 {
        let up = p.band.iter().map(|b| (b.0, b.2));
        let down = p.band.iter().rev().map(|b| (b.0, b.1));
        let outline: Vec<(f64, f64)> = up.chain(down).collect();
        chart.draw_series([Polygon::new(outline, colour(first_colour).mix(0.18))]).map_err(fault)?;
    }
    draw_mark(&mut chart, x.range, p.mark)?;
    for (i, s) in p.series.iter().enumerate() {
        draw_line(&mut chart, &s.points, colour(first_colour + i))?;
    }
    Ok(())
}

/// Two plots of lines, one above the other; the lower one takes the colour after the upper one's.
pub fn two_panels(upper: &Lines, lower: &Lines) -> anyhow::Result<String> {
    svg((860, 680), |area| {
        let (top, bottom) = area.split_vertically(340);
        draw_lines(&top, upper, 0)?;
        draw_lines(&bottom, lower, upper.series.len())
    })
}

/// Plots over one x axis of whole numbers, one below the other, each with its own scale, so that none flattens another.
/// Strip `i` has the colour of series `i`.
pub fn strips(title: &str, x_name: &str, list: &[Strip]) -> anyhow::Result<String> {
    let (step, foot) = (130i32, 42i32);
    let x = Scale::linear(along(list.iter().flat_map(|s| &s.points).map(|p| p.0)), 8, 1.0, x_name);
    svg((WIDTH, (30 + step * list.len() as i32 + foot) as u32), |area| {
        let mut rest = head(area, title, "", &[])?;
        for (i, strip) in list.iter().enumerate() {
            let last = i + 1 == list.len();
            let (own, below) = rest.split_vertically(if last { step + foot } else { step });
            rest = below;
            let y = Scale::linear(roomy(strip.points.iter().map(|p| p.1).chain(strip.mark)), 4, 0.0, &strip.y);
            let own = head_of_strip(&own, &strip.title, colour(i))?;
            let mut chart = start(&own, &x, &y, last)?;
            draw_mark(&mut chart, x.range, strip.mark)?;
            draw_line(&mut chart, &strip.points, colour(i))?;
        }
        Ok(())
    })
}

fn head_of_strip<'b>(area: &Area<'b>, title: &str, c: RGBColor) -> anyhow::Result<Area<'b>> {
    let text = ("sans-serif", TEXT).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    area.draw(&Rectangle::new([(12, 8), (28, 12)], c.filled())).map_err(fault)?;
    area.draw_text(title, &text, (34, 10)).map_err(fault)?;
    Ok(area.split_vertically(20).1)
}

/// Bins with fewer elements than this, in percent, are not drawn at either end.
const VISIBLE: f64 = 0.1;

/// Error histograms over each other: share of elements per half octave of |e|, logarithmic in |e|. Each series is a
/// name and its counts. The share of exact elements, which no logarithm has, stands beside the name.
pub fn histograms(title: &str, series: &[(String, [u64; BINS])]) -> anyhow::Result<String> {
    let share = |s: &[u64; BINS], b: usize| s[b] as f64 / s.iter().sum::<u64>().max(1) as f64 * 100.0;
    let seen = |b: &usize| series.iter().any(|s| share(&s.1, *b) >= VISIBLE);
    // bins with two finite edges above 0
    let inner = 2..BINS - 1;
    let first = inner.clone().find(seen).unwrap_or(2);
    let last = inner.rev().find(seen).unwrap_or(first);
    let x = (edges(first).0.log10() - 0.1, edges(last).1.log10() + 0.1);
    let highest = series.iter().flat_map(|(_, s)| (first..=last).map(|b| share(s, b))).fold(1e-9, f64::max);
    let named = series.iter().enumerate().map(|(i, (name, counts))| match share(counts, 0) {
        0.0 => (name.clone(), colour(i)),
        exact => (format!("{name} ({exact:.2} % exact)"), colour(i)),
    });
    let names: Vec<_> = named.collect();
    // in powers of ten
    let mut x = Scale::linear(x, 6, 1.0, "|error|, in bins of half an octave");
    x.label = Box::new(|v| format!("1e{v:.0}"));
    let y = Scale::linear((0.0, highest * 1.08), 6, 0.0, "% of elements");
    let rows = names.len().div_ceil(2) as u32;
    svg((WIDTH, HEIGHT + 20 * rows), |area| {
        let area = head(area, title, "", &names)?;
        let mut chart = start(&area, &x, &y, true)?;
        for (i, (_, counts)) in series.iter().enumerate() {
            let mut outline = vec![(edges(first).0.log10(), 0.0)];
            for b in first..=last {
                let (low, high) = edges(b);
                outline.extend([(low.log10(), share(counts, b)), (high.log10(), share(counts, b))]);
            }
            outline.push((edges(last).1.log10(), 0.0));
            chart.draw_series([Polygon::new(outline.clone(), colour(i).mix(0.12))]).map_err(fault)?;
            chart.draw_series([PathElement::new(outline, colour(i).stroke_width(2))]).map_err(fault)?;
        }
        Ok(())
    })
}

/// Changes in percent as horizontal bars, one per row (name, change), each with its value beside it: what fell is green,
/// what rose is red. Lengths are logarithms of the ratio, so that half and double are as long as each other.
pub fn changes(title: &str, rows: &[(String, f64)]) -> anyhow::Result<String> {
    let (left, step) = (84i32, 26i32);
    let height = 44 + step as u32 * rows.len() as u32;
    svg((WIDTH, height), |area| {
        head(area, title, "", &[])?;
        let length = |change: f64| (1.0 + change / 100.0).ln();
        let lengths = || rows.iter().map(|r| length(r.1)).filter(|v| v.is_finite());
        let (low, high) = (lengths().fold(0.0, f64::min), lengths().fold(0.0, f64::max));
        // room for a value where there is a bar
        let beside = |here: bool| if here { 84 } else { 10 };
        let (falls, rises) = (rows.iter().any(|r| r.1 < 0.0), rows.iter().any(|r| r.1 >= 0.0));
        let room = (left + beside(falls), WIDTH as i32 - beside(rises));
        let scale = f64::from(room.1 - room.0) / (high - low).max(1e-12);
        let at = |v: f64| (f64::from(room.0) + (v - low) * scale).round().clamp(room.0.into(), room.1.into()) as i32;
        let text = ("sans-serif", TEXT).into_font().color(&INK);
        for (i, (name, change)) in rows.iter().enumerate() {
            let y = 38 + step * i as i32;
            let right = text.clone().pos(Pos::new(HPos::Right, VPos::Center));
            area.draw_text(name, &right, (left - 8, y + 9)).map_err(fault)?;
            // from or to nothing: as long as there is room
            let (zero, end) = (at(0.0), at(length(*change)));
            let (from, to) = (zero.min(end), zero.max(end).max(zero + 1));
            let c = if *change < 0.0 { BETTER } else { WORSE };
            area.draw(&Rectangle::new([(from, y), (to, y + 18)], c.filled())).map_err(fault)?;
            let (side, x) = if *change < 0.0 { (HPos::Right, from - 6) } else { (HPos::Left, to + 6) };
            let style = text.clone().pos(Pos::new(side, VPos::Center));
            area.draw_text(&format!("{change:+.2} %"), &style, (x, y + 9)).map_err(fault)?;
        }
        let zero = at(0.0);
        area.draw(&PathElement::new([(zero, 34), (zero, height as i32 - 6)], INK.stroke_width(1))).map_err(fault)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(title: &str, series: &[Series]) -> String {
        let p = Lines { title, note: "why", x: "windows", y: "nats", series, band: &[], mark: Some(0.0) };
        two_panels(&p, &p).unwrap()
    }

    #[test]
    fn an_inline_plot_names_no_address_and_keeps_its_lines() {
        let whole = plot("t & u", &[Series { name: "a <b>".into(), points: vec![(0.0, 1.0), (1.0, 2.0)] }]);
        assert!(whole.starts_with("<svg") && whole.contains("xmlns") && whole.contains("t &amp; u"), "{whole}");
        assert!(["windows", "nats", "why"].iter().all(|text| whole.contains(text)), "axes and reasons are named");
        let part = inline(&whole);
        assert!(!part.contains("http") && part.contains("<polyline") && part.contains(&hex(COLOURS[0])), "{part}");
        assert!(whole.contains("fill=\"#FFFFFF\"") && !part.contains("fill=\"#FFFFFF\""), "{part}");
    }

    #[test]
    fn plots_of_nothing_of_one_point_and_of_equal_values_are_drawn() {
        for points in [vec![], vec![(3.0, 1.0)], vec![(0.0, 0.0), (1.0, 0.0)], vec![(0.0, f64::INFINITY)]] {
            assert!(plot("", &[Series { name: "s".into(), points: points.clone() }]).ends_with("</svg>\n"));
            let strip = Strip { title: "t".into(), y: "y".into(), points, mark: Some(0.0) };
            assert!(strips("s", "layer", &[strip.clone(), strip]).unwrap().ends_with("</svg>\n"));
        }
        assert!(histograms("h", &[("none".into(), [0; BINS])]).unwrap().contains("</svg>"));
        let text = changes("b", &[("x".into(), f64::INFINITY), ("y".into(), -100.0), ("z".into(), 0.0)]).unwrap();
        assert!(text.contains("+inf %") && text.contains("-100.00 %"), "{text}");
    }

    #[test]
    fn a_fall_is_green_and_a_rise_red_whatever_the_type() {
        let bars = |rows: &[(&str, f64)]| {
            let rows: Vec<_> = rows.iter().map(|(n, c)| (n.to_string(), *c)).collect();
            changes("b", &rows).unwrap()
        };
        let (green, red) = (hex(BETTER), hex(WORSE));
        let better = bars(&[("a", -7.0), ("b", -90.0)]);
        assert!(better.contains(&green) && !better.contains(&red), "{better}");
        let worse = bars(&[("a", 7.0), ("b", 927.0)]);
        assert!(worse.contains(&red) && !worse.contains(&green), "{worse}");
    }

    #[test]
    fn axes_have_round_ticks_and_every_layer_of_four() {
        assert_eq!(ticks((0.0, 3.0), 8, 1.0), (vec![0.0, 1.0, 2.0, 3.0], 1.0));
        assert_eq!(ticks((0.0, 31.0), 8, 1.0), (vec![0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0], 5.0));
        assert_eq!(ticks((3.0, 3.5), 8, 1.0).0, [3.0]);
        for range in [(-1e-9, 3e-7), (0.0, 1e300), (-7.4, 0.6), (1e9, 1e9 + 1.0)] {
            let list = ticks(range, 6, 0.0).0;
            assert!((3..=7).contains(&list.len()), "{range:?}: {list:?}");
        }
    }

    #[test]
    fn ticks_show_the_digits_that_tell_them_apart() {
        assert_eq!(tick(23.8, 0.1, 24.2), "23.8");
        assert_eq!(tick(2.5e-4, 2e-5, 3e-4), "2.5e-4");
        assert_eq!(tick(0.0, 0.5, 1.0), "0");
        assert_eq!(tick(150.0, 50.0, 600.0), "150");
    }
}
