//! Bars, one per implementation; or dots where a value was measured several times.

use std::fmt::Write as _;

use super::svg::{pixel, safe};

/// A bar to draw.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) class: String,
    /// Every one that was measured; the bar ends at the largest.
    pub(super) values: Vec<f64>,
}

/// A chart of bars from zero; `limit` is a line that they are held against.
pub(super) fn chart(bars: &[Bar], unit: impl Fn(f64) -> String, limit: Option<(f64, &str)>) -> String {
    let values = || bars.iter().flat_map(|bar| bar.values.iter().copied());
    let Some(highest) = values().reduce(f64::max).filter(|highest| *highest > 0.0) else {
        return String::new();
    };
    let highest = limit.map_or(highest, |(at, _)| highest.max(at));
    let room = if limit.is_some() { 18.0 } else { 4.0 };
    let height = room + ROW * bars.len() as f64;
    let scale = (WIDTH - LEFT - RIGHT) / highest;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"one bar per implementation\">"
    );
    for (index, bar) in bars.iter().enumerate() {
        let largest = bar.values.iter().copied().fold(0.0, f64::max);
        let top = room + ROW * index as f64;
        let (middle, length) = (top + ROW / 2.0, pixel(largest * scale));
        let _infallible = write!(
            svg,
            "<g class=\"{}\"><text class=\"end name\" x=\"{}\" y=\"{}\">{name}</text>\
             <rect class=\"bar\" x=\"{LEFT}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"2\" data-tip=\"{name}&#10;{}\"/>",
            bar.class,
            LEFT - 8.0,
            middle + 3.5,
            top + 3.0,
            length.max(1.0),
            ROW - 6.0,
            bar.values.iter().map(|value| unit(*value)).collect::<Vec<_>>().join("&#10;"),
            name = safe(&bar.name),
        );
        if bar.values.len() > 1 {
            for value in &bar.values {
                let x = pixel(LEFT + value * scale);
                let _infallible = write!(svg, "<circle class=\"dot\" cx=\"{x}\" cy=\"{middle}\" r=\"3\"/>");
            }
        }
        let _infallible = write!(
            svg,
            "<text x=\"{}\" y=\"{}\">{}</text></g>",
            LEFT + length + 6.0,
            middle + 3.5,
            unit(largest)
        );
    }
    if let Some((at, what)) = limit {
        let x = pixel(LEFT + at * scale);
        let _infallible = write!(
            svg,
            "<line class=\"limit\" x1=\"{x}\" x2=\"{x}\" y1=\"14\" y2=\"{height}\"/><text class=\"middle\" x=\"{x}\" y=\"10\">{}</text>",
            safe(what)
        );
    }
    svg.push_str("</svg>");
    svg
}

const WIDTH: f64 = 390.0;
const LEFT: f64 = 108.0;
const RIGHT: f64 = 74.0;
const ROW: f64 = 24.0;
