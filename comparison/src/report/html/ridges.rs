//! Distributions of times, one above the other, on one logarithmic axis.

use std::fmt::Write as _;

use super::svg::{Axis, pixel, safe, time};
use crate::figures::Times;

/// A distribution to draw.
#[derive(Clone, Debug)]
pub(super) struct Ridge<'a> {
    pub(super) name: String,
    pub(super) class: String,
    pub(super) times: &'a Times,
}

/// A chart of them, the fastest first; empty if there is nothing to draw.
pub(super) fn chart(mut ridges: Vec<Ridge<'_>>) -> String {
    ridges.sort_by(|a, b| f64::total_cmp(&quantile(a, 0.5), &quantile(b, 0.5)));
    let ends = ridges.iter().flat_map(|ridge| [quantile(ridge, 0.001), quantile(ridge, 0.995)]);
    let ends: Vec<f64> = ends.collect();
    let Some(axis) = Axis::over(ends.iter().copied(), LEFT, WIDTH - RIGHT).map(Axis::widened) else {
        return String::new();
    };
    let height = TOP + ROW * ridges.len() as f64 + BOTTOM;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"distribution of the time of a cycle\">"
    );
    for tick in axis.ticks() {
        let x = axis.at(tick);
        let _infallible = write!(
            svg,
            "<line class=\"grid\" x1=\"{x}\" x2=\"{x}\" y1=\"{TOP}\" y2=\"{}\"/><text class=\"middle\" x=\"{x}\" y=\"{}\">{}</text>",
            height - BOTTOM,
            height - BOTTOM + 16.0,
            time(tick).replace(".00", "").replace(".0 ", " ")
        );
    }
    for (index, ridge) in ridges.iter().enumerate() {
        draw(&mut svg, ridge, &axis, TOP + ROW * (index as f64 + 1.0));
    }
    svg.push_str("</svg>");
    svg
}

fn draw(svg: &mut String, ridge: &Ridge<'_>, axis: &Axis, base: f64) {
    let shares = smooth(&ridge.times.density(axis.low(), axis.high(), STEPS));
    let highest = shares.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let step = (WIDTH - RIGHT - LEFT) / STEPS as f64;
    let mut path = format!("M{LEFT},{base}");
    for (index, share) in shares.iter().enumerate() {
        let x = pixel(LEFT + step * (index as f64 + 0.5));
        let _infallible = write!(path, "L{x},{}", pixel(base - share / highest * (ROW - 8.0)));
    }
    let _infallible = write!(path, "L{},{base}Z", WIDTH - RIGHT);
    let (p50, p99) = (quantile(ridge, 0.5), quantile(ridge, 0.99));
    let name = safe(&ridge.name);
    let _infallible = write!(
        svg,
        "<g class=\"{}\"><path class=\"ridge\" d=\"{path}\"/><text class=\"end name\" x=\"{}\" y=\"{}\">{name}</text>",
        ridge.class,
        LEFT - 8.0,
        base - 3.0,
    );
    for (at, share) in [(p50, 0.9), (p99, 0.5)] {
        let x = axis.at(at);
        let _infallible = write!(
            svg,
            "<line class=\"mark\" x1=\"{x}\" x2=\"{x}\" y1=\"{base}\" y2=\"{}\"/>",
            pixel(base - (ROW - 8.0) * share)
        );
    }
    let _infallible = write!(
        svg,
        "<rect class=\"hit\" x=\"{LEFT}\" y=\"{}\" width=\"{}\" height=\"{ROW}\" data-tip=\"{name}&#10;p50 {}&#10;p99 {}&#10;longest {}\"/></g>",
        base - ROW,
        WIDTH - RIGHT - LEFT,
        time(p50),
        time(p99),
        time(quantile(ridge, 1.0)),
    );
}

/// Steps of a histogram are no news.
fn smooth(shares: &[f64]) -> Vec<f64> {
    const KERNEL: [f64; 5] = [0.06, 0.24, 0.4, 0.24, 0.06];
    let at = |index: usize, offset: usize| {
        (index + offset).checked_sub(2).and_then(|at| shares.get(at)).unwrap_or(&0.0)
    };
    (0..shares.len())
        .map(|index| KERNEL.iter().enumerate().map(|(offset, weight)| weight * at(index, offset)).sum())
        .collect()
}

fn quantile(ridge: &Ridge<'_>, quantile: f64) -> f64 {
    ridge.times.micros(quantile).unwrap_or(0.0)
}

const STEPS: usize = 90;
const WIDTH: f64 = 390.0;
const LEFT: f64 = 108.0;
const RIGHT: f64 = 14.0;
const ROW: f64 = 36.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 24.0;
