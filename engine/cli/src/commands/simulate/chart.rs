//! A run over virtual time, as a chart.

use kvweft_sim::Timeline;
use kvweft_sim::timeline::Class;

use super::Chosen;
use crate::plot::{Axis, Chart, Panel, Series, Shape, percents};

const CLASSES: [(Class, &str, &str); 7] = [
    (Class::Ok, "ok", "#1f6fb4"),
    (Class::Corrupt, "corrupt", "#d62728"),
    (Class::Stuck, "stuck", "#7b3fa0"),
    (Class::Timeout, "timeout", "#e08a00"),
    (Class::Error, "error", "#222222"),
    (Class::Left, "left", "#3a8f3a"),
    (Class::Open, "open", "#999999"),
];
const POOLS: [&str; 4] = ["#1f6fb4", "#c8511b", "#3a8f3a", "#7b3fa0"];
/// Numbers at the axis of time at most, but for the one at 0.
const TIMES_MAX: u64 = 8;

/// First tokens and pools over time.
pub(super) fn chart(chosen: &Chosen, timeline: &Timeline, elapsed_ns: u64, seed: u64, seeds: usize) -> String {
    let waited = |ns: u64| ns.max(1);
    let longest = timeline.requests.iter().map(|request| waited(request.waited_ns)).max().unwrap_or(1);
    let shortest = timeline.requests.iter().map(|request| waited(request.waited_ns)).min().unwrap_or(1);
    let requests = CLASSES.into_iter().filter_map(|(class, name, color)| {
        let of_class = timeline.requests.iter().filter(|request| request.class == class);
        let points: Vec<(f64, f64)> =
            of_class.map(|request| (request.asked_ns as f64, waited(request.waited_ns) as f64)).collect();
        let name = format!("{name}, {}", points.len());
        (!points.is_empty()).then_some(Series { name, color, shape: Shape::Dots, points })
    });
    let pools = timeline.pools.iter().zip(POOLS).map(|(pool, color)| {
        let at = |sample: usize| (sample as u64 * timeline.interval_ns) as f64;
        let share = |taken: u32| f64::from(taken) * 100.0 / f64::from(pool.pages);
        let points = pool.taken.iter().enumerate().map(|(sample, taken)| (at(sample), share(*taken))).collect();
        Series { name: format!("{}, {} pages", pool.name, pool.pages), color, shape: Shape::Line(""), points }
    });
    let first_tokens =
        Panel { x: time(elapsed_ns, "asked at, s"), y: decades(shortest, longest), series: requests.collect() };
    let of_pools = Panel {
        x: time(elapsed_ns, "virtual time, s"),
        y: percents("pages that are not free, cached ones too"),
        series: pools.collect(),
    };
    let of = if seeds > 1 { format!("seed {seed} alone, of {seeds} runs") } else { format!("seed {seed}") };
    let name = chosen.name.rsplit(['/', '\\']).next().unwrap_or_default();
    Chart {
        title: &format!("{name}: {} sessions on {}", chosen.workload.sessions(), chosen.settings.profile.name),
        subtitle: &format!("{}; {of}; times depend on the cost model", chosen.model),
        panels: vec![first_tokens, of_pools],
    }
    .svg()
}

/// Time from 0, with round numbers of seconds.
fn time(end_ns: u64, label: &str) -> Axis<'_> {
    let end = end_ns.max(1);
    let powers = std::iter::successors(Some(1_u64), |power| power.checked_mul(10));
    let mut steps = powers.flat_map(|power| [1, 2, 5].map(|times| power.saturating_mul(times)));
    let step = steps.find(|step| end / step <= TIMES_MAX).unwrap_or(end);
    let ticks = (0..=end / step).map(|tick| (tick * step) as f64);
    let ticks = ticks.map(|at| (at, (at / 1e9).to_string())).collect();
    Axis { label, range: (0.0, end as f64), logarithmic: false, ticks }
}

/// Waiting times, from one power of ten to another.
fn decades(shortest_ns: u64, longest_ns: u64) -> Axis<'static> {
    const UNITS: [&str; 4] = ["ns", "µs", "ms", "s"];
    let first = shortest_ns.ilog10();
    let last = (longest_ns - 1).checked_ilog10().map_or(first + 1, |below| below + 1).max(first + 1);
    let words = |power: u32| {
        let unit = (power / 3).min(3);
        format!("{} {}", 10_u64.pow(power - 3 * unit), UNITS[unit as usize])
    };
    let at = |power: u32| 10_f64.powi(power as i32);
    Axis {
        label: "to the first token; without one, until the request ended",
        range: (at(first), at(last)),
        logarithmic: true,
        ticks: (first..=last).map(|power| (at(power), words(power))).collect(),
    }
}
