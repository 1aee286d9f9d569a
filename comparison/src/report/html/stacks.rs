//! Stacked bars, one per implementation: the parts of a time.

use std::fmt::Write as _;

use super::svg::{pixel, safe, time};

/// A time and its parts, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stack<'a> {
    pub(super) name: &'a str,
    pub(super) whole: f64,
    /// Those that are known.
    pub(super) parts: [Option<f64>; 3],
}

/// What a part is called, and its colour.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) class: &'static str,
}

pub(super) const PARTS: [Part; 3] = [
    Part { name: "client", class: "s0" },
    Part { name: "server", class: "s1" },
    Part { name: "the rest", class: "floor" },
];

/// A chart of stacks from zero.
pub(super) fn chart(stacks: &[Stack<'_>]) -> String {
    let sum = |stack: &Stack<'_>| stack.parts.iter().flatten().sum::<f64>();
    let Some(highest) = stacks.iter().map(sum).reduce(f64::max).filter(|highest| *highest > 0.0) else {
        return String::new();
    };
    let height = ROW * stacks.len() as f64 + 4.0;
    let scale = (WIDTH - LEFT - RIGHT) / highest;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"the parts of a cycle, one bar per implementation\">"
    );
    for (index, stack) in stacks.iter().enumerate() {
        let top = 4.0 + ROW * index as f64;
        let middle = top + ROW / 2.0 - 2.0;
        let name = safe(stack.name);
        let known = || PARTS.iter().zip(stack.parts).filter_map(|(part, micros)| Some((part, micros?)));
        let told = known().map(|(part, micros)| format!("{} {}", part.name, time(micros)));
        let told = told.collect::<Vec<_>>().join("&#10;");
        let _infallible = write!(
            svg,
            "<g data-tip=\"{name}&#10;{told}\"><text class=\"end name\" x=\"{}\" y=\"{}\">{name}</text>",
            LEFT - 8.0,
            middle + 3.5
        );
        let mut from = LEFT;
        for (part, micros) in known() {
            let length = pixel(micros * scale);
            let _infallible = write!(
                svg,
                "<rect class=\"bar {}\" x=\"{}\" y=\"{}\" width=\"{length}\" height=\"{}\"/>",
                part.class,
                pixel(from),
                top,
                ROW - 6.0
            );
            from += length;
        }
        let _infallible = write!(
            svg,
            "<text x=\"{}\" y=\"{}\">{}</text></g>",
            pixel(from + 6.0),
            middle + 3.5,
            time(stack.whole)
        );
    }
    svg.push_str("</svg>");
    svg
}

const WIDTH: f64 = 390.0;
const LEFT: f64 = 108.0;
const RIGHT: f64 = 74.0;
const ROW: f64 = 24.0;
