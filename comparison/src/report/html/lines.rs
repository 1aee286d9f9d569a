//! Lines over the number of contenders, one per implementation.

use std::fmt::Write as _;

use super::svg::{Axis, pixel, safe, short};
use crate::report::table::number;

/// A line to draw.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: String,
    /// The class that gives it its colour.
    pub(super) class: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// A chart of lines, both axes logarithmic; empty if there is nothing to draw.
pub(super) fn chart(lines: &[Line], across: &str, unit: &str) -> String {
    let points = || lines.iter().flat_map(|line| line.points.iter().copied());
    let xs = Axis::over(points().map(|(x, _)| x), LEFT, WIDTH - RIGHT);
    let ys = Axis::over(points().map(|(_, y)| y), HEIGHT - BOTTOM, TOP).map(Axis::widened);
    let (Some(xs), Some(ys)) = (xs, ys) else { return String::new() };
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{} over {}\">",
        safe(unit),
        safe(across)
    );
    for tick in ys.ticks() {
        let y = ys.at(tick);
        let _infallible = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/><text class=\"end\" x=\"{}\" y=\"{}\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 3.5,
            short(tick)
        );
    }
    let mut counts: Vec<f64> = points().map(|(x, _)| x).collect();
    counts.sort_by(f64::total_cmp);
    counts.dedup();
    for count in counts {
        let x = xs.at(count);
        let _infallible = write!(
            svg,
            "<text class=\"middle\" x=\"{x}\" y=\"{}\">{}</text>",
            HEIGHT - BOTTOM + 16.0,
            short(count)
        );
    }
    let _infallible = write!(
        svg,
        "<text class=\"middle axis\" x=\"{}\" y=\"{}\">{}</text>",
        pixel(f64::midpoint(LEFT, WIDTH - RIGHT)),
        HEIGHT - 4.0,
        safe(across)
    );
    for line in lines {
        draw(&mut svg, line, &xs, &ys, across, unit);
    }
    svg.push_str("</svg>");
    svg
}

fn draw(svg: &mut String, line: &Line, xs: &Axis, ys: &Axis, across: &str, unit: &str) {
    let Line { name, class, points } = line;
    let path: Vec<_> = points.iter().map(|(x, y)| format!("{},{}", xs.at(*x), ys.at(*y))).collect();
    let _infallible =
        write!(svg, "<g class=\"{class}\"><polyline class=\"line\" points=\"{}\"/>", path.join(" "));
    for (x, y) in points {
        let _infallible = write!(
            svg,
            "<circle class=\"dot\" cx=\"{0}\" cy=\"{1}\" r=\"3.5\"/><circle class=\"hit\" cx=\"{0}\" cy=\"{1}\" r=\"10\" \
             data-tip=\"{2}&#10;{3} {4}&#10;{5} {6}\"/>",
            xs.at(*x),
            ys.at(*y),
            safe(name),
            number(*y),
            safe(unit),
            short(*x),
            safe(across)
        );
    }
    svg.push_str("</g>");
}

const WIDTH: f64 = 390.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 40.0;
