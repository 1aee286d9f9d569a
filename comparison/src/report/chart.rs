//! The one way to draw: marks, texts and paths in an SVG of a fixed width, and the two kinds of chart
//! that are made of them.

use std::fmt::Write as _;

use super::axis::{Axis, pixel, safe, short};
use super::table::number;

struct Chart(String);

impl Chart {
    fn new(height: f64, label: &str) -> Self {
        let label = safe(label);
        Self(format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{label}\">"))
    }

    /// A shape at its place; it tells `tip` when pointed at.
    fn mark(&mut self, shape: &str, class: &str, place: &[(&str, f64)], tip: &str) {
        self.push(format_args!("<{shape} class=\"{class}\""));
        for (name, value) in place {
            self.push(format_args!(" {name}=\"{}\"", pixel(*value)));
        }
        if !tip.is_empty() {
            self.push(format_args!(" data-tip=\"{}\"", safe(tip).replace('\n', "&#10;")));
        }
        self.0.push_str("/>");
    }

    fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.mark("line", class, &[("x1", x1), ("x2", x2), ("y1", y1), ("y2", y2)], "");
    }

    fn text(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let (x, y) = (pixel(x), pixel(y));
        self.push(format_args!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", safe(text)));
    }

    fn path(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        let points: Vec<_> = points.map(|(x, y)| format!("{},{}", pixel(x), pixel(y))).collect();
        self.push(format_args!("<path class=\"{class}\" d=\"M{}\"/>", points.join("L")));
    }

    /// What has a colour in common.
    fn group(&mut self, class: &str, draw: impl FnOnce(&mut Self)) {
        self.push(format_args!("<g class=\"{class}\">"));
        draw(self);
        self.0.push_str("</g>");
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("a string takes everything");
    }

    fn end(mut self) -> String {
        self.0.push_str("</svg>");
        self.0
    }
}

/// Who is drawn, and the class that gives it its colour.
#[derive(Clone, Debug)]
pub(super) struct Who {
    pub(super) name: String,
    pub(super) class: String,
}

/// A bar from zero.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) who: Who,
    pub(super) length: f64,
    /// Every one that was measured, if there are several.
    pub(super) dots: Vec<f64>,
    /// What stands at its end.
    pub(super) end: String,
    pub(super) tip: String,
}

/// A bar for each; `limit` is a line that they are held against.
pub(super) fn bars(bars: &[Bar], label: &str, limit: Option<(f64, &str)>) -> String {
    let lengths = bars.iter().flat_map(|bar| bar.dots.iter().chain([&bar.length]));
    let highest = lengths.copied().reduce(f64::max);
    // One bar is no comparison.
    let Some(highest) = highest.filter(|highest| *highest > 0.0 && bars.len() > 1) else {
        return String::new();
    };
    let highest = limit.map_or(highest, |(at, _)| highest.max(at));
    let room = if limit.is_some() { 18.0 } else { 4.0 };
    let height = room + BAR * bars.len() as f64;
    let scale = (WIDTH - NAMES - 88.0) / highest;
    let mut chart = Chart::new(height, label);
    if let Some((at, what)) = limit {
        let x = NAMES + at * scale;
        chart.line("limit", (x, 14.0), (x, height));
        chart.text("middle", (x, 10.0), what);
    }
    for (index, bar) in bars.iter().enumerate() {
        let top = room + BAR * index as f64;
        let middle = top + BAR / 2.0;
        chart.group(&bar.who.class, |chart| {
            chart.text("end name", (NAMES - 8.0, middle + 3.5), &bar.who.name);
            let (y, width) = (top + 3.0, (bar.length * scale).max(1.0));
            let place = [("x", NAMES), ("y", y), ("width", width), ("height", BAR - 6.0), ("rx", 2.0)];
            chart.mark("rect", "bar", &place, &bar.tip);
            for dot in &bar.dots {
                chart.mark("circle", "dot", &[("cx", NAMES + dot * scale), ("cy", middle), ("r", 3.0)], "");
            }
            let end = bar.dots.iter().map(|dot| dot * scale + 3.0).fold(width, f64::max);
            chart.text("", (NAMES + end + 6.0, middle + 3.5), &bar.end);
        });
    }
    chart.end()
}

/// A line over the number of contenders.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) who: Who,
    pub(super) points: Vec<Point>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// The interval of 95 %, where it is a rate.
    pub(super) range: Option<(f64, f64)>,
}

/// A line for each, both axes logarithmic; empty if there is nothing to draw.
pub(super) fn lines(lines: &[Line], across: &str, unit: &str) -> String {
    const HEIGHT: f64 = 260.0;
    const BASE: f64 = HEIGHT - 40.0;
    const LEFT: f64 = 48.0;
    let points = || lines.iter().flat_map(|line| line.points.iter());
    let xs = Axis::over(points().map(|point| point.x), LEFT, WIDTH - RIGHT);
    let heights = points().flat_map(|point| {
        let (low, high) = point.range.unwrap_or((point.y, point.y));
        [low, point.y, high]
    });
    let ys = Axis::over(heights, BASE, 20.0).map(Axis::widened);
    let (Some(xs), Some(ys)) = (xs, ys) else { return String::new() };
    let mut chart = Chart::new(HEIGHT, &format!("{unit} over {across}"));
    for tick in ys.ticks() {
        let y = ys.at(tick);
        chart.line("grid", (LEFT, y), (WIDTH - RIGHT, y));
        chart.text("end", (LEFT - 6.0, y + 3.5), &short(tick));
    }
    let mut counts: Vec<f64> = points().map(|point| point.x).collect();
    counts.sort_by(f64::total_cmp);
    counts.dedup();
    let mut free_from = 0.0;
    for count in counts {
        // Numbers that would touch are left out; the points are there all the same.
        if xs.at(count) >= free_from {
            chart.text("middle", (xs.at(count), BASE + 16.0), &short(count));
            free_from = xs.at(count) + 22.0;
        }
    }
    let place = (f64::midpoint(LEFT, WIDTH - RIGHT), HEIGHT - 4.0);
    chart.text("middle axis", place, &format!("{across} (logarithmic)"));
    chart.text("axis", (4.0, 8.0), &format!("{unit} (logarithmic)"));
    for Line { who, points } in lines {
        chart.group(&who.class, |chart| {
            chart.path("line", points.iter().map(|point| (xs.at(point.x), ys.at(point.y))));
            for Point { x, y, range } in points {
                if let Some((low, high)) = range {
                    chart.line("mark", (xs.at(*x), ys.at(*low)), (xs.at(*x), ys.at(*high)));
                }
                let place = |radius| [("cx", xs.at(*x)), ("cy", ys.at(*y)), ("r", radius)];
                let tip = format!("{}\n{} {unit}\n{} {across}", who.name, number(*y), short(*x));
                chart.mark("circle", "dot", &place(3.5), "");
                chart.mark("circle", "hit", &place(10.0), &tip);
            }
        });
    }
    chart.end()
}

/// That of a card on a phone: text is no smaller there than it is here.
const WIDTH: f64 = 340.0;
const RIGHT: f64 = 14.0;

/// Where names end, and values begin.
const NAMES: f64 = 108.0;

/// How tall one is, with what keeps them apart.
const BAR: f64 = 24.0;
