//! SVG plots, drawn by plotters: lines over layers or windows, bands, and error histograms.
//!
//! Every plot has a light background of its own. Inside a page the colours are those of [`COLOURS`], [`INK`] and
//! [`GRID`], which a style sheet can map to others (attribute selectors), and the background is left out.

use super::errors::{BINS, edges};
use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
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
    /// below the x axis
    pub x: &'a str,
    /// the lines
    pub series: &'a [Series],
    /// (x, low, high) drawn behind the lines in the colour of the first
    pub band: &'a [(f64, f64, f64)],
    /// a value that must be visible, with a dashed line at it
    pub mark: Option<f64>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

const SIZE: (u32, u32) = (620, 300);

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

/// Digits enough to tell the ticks of a range apart.
fn tick(v: f64, range: (f64, f64)) -> String {
    // a little more than the smallest step there is room for, so that a step of exactly 0.1 has one digit
    let (largest, step) = (range.0.abs().max(range.1.abs()), (range.1 - range.0) / 5.99);
    if v.abs() < step / 1e6 {
        return "0".into();
    }
    if !(1e-3..1e5).contains(&largest) {
        let digits = (largest.log10().floor() - step.log10().floor()).max(0.0) as usize;
        return format!("{v:.digits$e}");
    }
    format!("{v:.*}", (-step.log10().floor()).max(0.0) as usize)
}

fn start<'a, 'b>(
    area: &'a Area<'b>,
    x: (f64, f64),
    y: (f64, f64),
    x_text: &str,
    whole_x: bool,
    label_x: &dyn Fn(f64) -> String,
) -> anyhow::Result<Chart<'a, 'b>> {
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_top(4)
        .margin_right(18)
        .x_label_area_size(38)
        .y_label_area_size(72)
        .build_cartesian_2d(x.0..x.1, y.0..y.1)
        .map_err(fault)?;
    let small = ("sans-serif", 12).into_font().color(&INK);
    let wide = (x.1 - x.0).ceil() as usize;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(small.clone())
        .axis_desc_style(small)
        .x_desc(x_text)
        .x_labels(if whole_x { wide.clamp(2, 12) } else { 12 })
        .y_labels(6)
        .x_label_formatter(&|v| label_x(*v))
        .y_label_formatter(&|v| tick(*v, y))
        .draw()
        .map_err(fault)?;
    Ok(chart)
}

/// A label only where the tick is a whole number.
fn whole(v: f64) -> String {
    if (v - v.round()).abs() < 1e-6 { format!("{}", v.round()) } else { String::new() }
}

/// Draws a title, and below it the names beside their colours, in as many rows as they need; returns what is left.
fn head<'b>(area: &Area<'b>, title: &str, names: &[(String, RGBColor)]) -> anyhow::Result<Area<'b>> {
    let width = area.dim_in_pixel().0 as i32;
    let text = ("sans-serif", 15).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Top));
    area.draw_text(title, &text, (16, 8)).map_err(fault)?;
    let small = ("sans-serif", 12).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    let (mut x, mut y) = (16, 38);
    for (name, c) in names {
        // letters are about 7 pixels wide
        let wide = 30 + 7 * name.chars().count() as i32;
        if x > 16 && x + wide > width {
            (x, y) = (16, y + 17);
        }
        area.draw(&Rectangle::new([(x, y - 2), (x + 16, y + 2)], c.filled())).map_err(fault)?;
        area.draw_text(name, &small, (x + 22, y)).map_err(fault)?;
        x += wide + 10;
    }
    Ok(area.split_vertically(if names.is_empty() { 30 } else { y + 12 }).1)
}

fn draw_lines(area: &Area, p: &Lines, first_colour: usize) -> anyhow::Result<()> {
    let points = || p.series.iter().flat_map(|s| &s.points);
    let x = span(points().map(|p| p.0)).unwrap_or((0.0, 1.0));
    let banded = p.band.iter().flat_map(|b| [b.1, b.2]);
    let y = span(points().map(|p| p.1).chain(banded).chain(p.mark)).unwrap_or((0.0, 1.0));
    let room = if y.1 > y.0 { (y.1 - y.0) * 0.08 } else { y.0.abs().max(1e-3) * 0.1 };
    let y = (y.0 - room, y.1 + room);
    let x = if x.1 > x.0 { x } else { (x.0 - 0.5, x.1 + 0.5) };
    let named = p.series.iter().enumerate().map(|(i, s)| (s.name.clone(), colour(first_colour + i)));
    let names: Vec<_> = named.filter(|_| p.series.len() > 1).collect();
    let area = head(area, p.title, &names)?;
    let mut chart = start(&area, x, y, p.x, true, &whole)?;
    if p.band.len() > 1 {
        let up = p.band.iter().map(|b| (b.0, b.2));
        let down = p.band.iter().rev().map(|b| (b.0, b.1));
        let outline: Vec<(f64, f64)> = up.chain(down).collect();
        chart.draw_series([Polygon::new(outline, colour(first_colour).mix(0.18))]).map_err(fault)?;
    }
    if let Some(mark) = p.mark {
        let line = [(x.0, mark), (x.1, mark)];
        chart.draw_series(DashedLineSeries::new(line, 6, 4, INK.stroke_width(1))).map_err(fault)?;
    }
    for (i, s) in p.series.iter().enumerate() {
        let c = colour(first_colour + i);
        let style = c.stroke_width(2);
        chart.draw_series(LineSeries::new(s.points.iter().copied(), style)).map_err(fault)?;
        if s.points.len() <= 80 {
            let dots = s.points.iter().map(|&at| Circle::new(at, 3, c.filled()));
            chart.draw_series(dots).map_err(fault)?;
        }
    }
    Ok(())
}

/// Lines with dots, one series per colour.
pub fn lines(p: &Lines) -> anyhow::Result<String> {
    svg(SIZE, |area| draw_lines(area, p, 0))
}

/// Two plots of lines, one above the other; the lower one takes the colour after the upper one's.
pub fn two_panels(upper: &Lines, lower: &Lines) -> anyhow::Result<String> {
    svg((860, 620), |area| {
        let (top, bottom) = area.split_vertically(340);
        draw_lines(&top, upper, 0)?;
        draw_lines(&bottom, lower, upper.series.len())
    })
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
    svg(SIZE, |area| {
        let power = |v: f64| match whole(v) {
            w if w.is_empty() => w,
            w => format!("1e{w}"),
        };
        let area = head(area, title, &names)?;
        let text = "|error|   (height: % of elements per half octave)";
        let mut chart = start(&area, x, (0.0, highest * 1.08), text, false, &power)?;
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

/// Horizontal bars from 0, one per row (name, value, series), each with its value beside it.
pub fn bars(title: &str, rows: &[(String, f64, usize)], unit: &str) -> anyhow::Result<String> {
    let (left, step) = (170i32, 22i32);
    let height = 44 + step as u32 * rows.len() as u32;
    svg((SIZE.0, height), |area| {
        head(area, title, &[])?;
        let values = || rows.iter().map(|r| r.1).filter(|v| v.is_finite());
        let (low, high) = (values().fold(0.0, f64::min), values().fold(0.0, f64::max));
        // room for a value at either end
        let room = (left + 70, SIZE.0 as i32 - 80);
        let scale = f64::from(room.1 - room.0) / (high - low).max(1e-12);
        let at = |v: f64| room.0 + ((v - low) * scale).round() as i32;
        let small = ("sans-serif", 12).into_font().color(&INK);
        for (i, (name, value, c)) in rows.iter().enumerate() {
            let y = 36 + step * i as i32;
            let right = small.clone().pos(Pos::new(HPos::Right, VPos::Center));
            area.draw_text(name, &right, (left - 10, y + 8)).map_err(fault)?;
            let end = if value.is_finite() { at(*value) } else { room.1 };
            let (from, to) = (at(0.0).min(end), at(0.0).max(end).max(at(0.0) + 1));
            area.draw(&Rectangle::new([(from, y), (to, y + 16)], colour(*c).filled())).map_err(fault)?;
            let (side, x) = if *value < 0.0 { (HPos::Right, from - 6) } else { (HPos::Left, to + 6) };
            let style = small.clone().pos(Pos::new(side, VPos::Center));
            area.draw_text(&format!("{value:+.2}{unit}"), &style, (x, y + 8)).map_err(fault)?;
        }
        let zero = at(0.0);
        area.draw(&PathElement::new([(zero, 32), (zero, height as i32 - 8)], INK.stroke_width(1))).map_err(fault)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inline_plot_names_no_address_and_keeps_its_lines() {
        let series = [Series { name: "a <b>".into(), points: vec![(0.0, 1.0), (1.0, 2.0)] }];
        let p = Lines { title: "t & u", x: "layer", series: &series, band: &[], mark: None };
        let whole = lines(&p).unwrap();
        assert!(whole.starts_with("<svg") && whole.contains("xmlns") && whole.contains("t &amp; u"), "{whole}");
        let part = inline(&whole);
        assert!(!part.contains("http") && part.contains("<polyline") && part.contains(&hex(COLOURS[0])), "{part}");
        assert!(whole.contains("fill=\"#FFFFFF\"") && !part.contains("fill=\"#FFFFFF\""), "{part}");
    }

    #[test]
    fn plots_of_nothing_of_one_point_and_of_equal_values_are_drawn() {
        for points in [vec![], vec![(3.0, 1.0)], vec![(0.0, 0.0), (1.0, 0.0)], vec![(0.0, f64::INFINITY)]] {
            let series = [Series { name: "s".into(), points }];
            let p = Lines { title: "", x: "", series: &series, band: &[], mark: Some(0.0) };
            assert!(lines(&p).unwrap().ends_with("</svg>\n"));
        }
        assert!(histograms("h", &[("none".into(), [0; BINS])]).unwrap().contains("</svg>"));
        assert!(bars("b", &[("x".into(), f64::INFINITY, 0)], " %").unwrap().contains("+inf %"));
    }

    #[test]
    fn ticks_show_the_digits_that_tell_them_apart() {
        assert_eq!(tick(23.8, (23.6, 24.2)), "23.8");
        assert_eq!(tick(2.5e-4, (2e-4, 3e-4)), "2.5e-4");
        assert_eq!(tick(0.0, (-1.0, 1.0)), "0");
        assert_eq!(tick(150.0, (0.0, 600.0)), "150");
    }
}
