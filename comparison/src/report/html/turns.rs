//! Who had the lock when: a lane per contender, a mark per grant.

use std::fmt::Write as _;

use super::svg::{pixel, safe, time};
use crate::history::Hold;

/// One implementation's turns; `lanes` is how many contend.
pub(super) fn strip(name: &str, class: &str, holds: &[Hold], lanes: usize) -> String {
    let height = LANE * lanes as f64;
    let step = WIDTH / holds.len().max(1) as f64;
    let mut svg = format!(
        "<svg class=\"{class} turns\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"turns of {}\" preserveAspectRatio=\"none\">",
        safe(name)
    );
    for lane in 0..lanes {
        let y = LANE * lane as f64;
        let _infallible = write!(
            svg,
            "<rect class=\"lane\" x=\"0\" y=\"{}\" width=\"{WIDTH}\" height=\"{}\"/>",
            y + 0.5,
            LANE - 1.0
        );
    }
    for (index, hold) in holds.iter().enumerate() {
        let _infallible = write!(
            svg,
            "<rect class=\"turn\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" data-tip=\"contender {} after {} ms&#10;waited {}\"/>",
            pixel(step * index as f64),
            LANE * hold.contender as f64 + 0.5,
            pixel((step - 0.4).max(0.6)),
            LANE - 1.0,
            hold.contender + 1,
            pixel(hold.from_ms),
            time(hold.waited_ms * 1e3),
        );
    }
    svg.push_str("</svg>");
    svg
}

const WIDTH: f64 = 390.0;
const LANE: f64 = 7.0;
