//! `kvweft exposure`: how often a missing rule shows, and what that hangs on.

use std::process::ExitCode;

use clap::ValueEnum;
use kvweft_sim::{Report, Settings, Workload, simulate};
use serde_json::{Value, json};

use super::compare::matrix;
use super::simulate::choose::choose;
use crate::args::{self, Format, IndexK};
use crate::failure::Failure;
use crate::json::print;
use crate::output;
use crate::parallel::in_parallel;
use crate::plot::{Axis, Chart, Panel, Series, Shape, percents};
use crate::share::Share;
use crate::table::table;

/// What is said wherever these numbers are.
const LABEL: &str = "Rates depend on the cost model and on the workload; verdicts of `kvweft check` do not.";

/// One point of the grid, and what its runs showed.
struct Point {
    index_k: String,
    concurrency: u32,
    load_mb_per_s: u64,
    reports: Vec<Report>,
}

/// Runs the command.
pub(crate) fn run(args: &args::Exposure) -> Result<ExitCode, Failure> {
    let (mut exposure, base) = matrix::exposure(&args.matrix)?;
    exposure.seeds = args.seeds.unwrap_or(exposure.seeds);
    exposure.load_mb_per_s.sort_unstable();
    let points = points(&exposure, &base, args.threads)?;
    if let Some(path) = &args.plot {
        output::to_file(path, "the chart", &chart(&exposure, &points))?;
    }
    output::result(&match args.format {
        Format::Text => text(&exposure, &points),
        Format::Json => document(&exposure, &points),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn points(
    exposure: &matrix::Exposure,
    base: &args::Simulate,
    threads: Option<std::num::NonZeroU16>,
) -> Result<Vec<Point>, Failure> {
    let mut points = Vec::new();
    let mut runs: Vec<(Workload, Settings)> = Vec::new();
    for index_k in &exposure.index_k {
        for &concurrency in &exposure.concurrency {
            for &load_mb_per_s in &exposure.load_mb_per_s {
                for seed in 1..=u64::from(exposure.seeds) {
                    let mut args = args::Simulate { seed, ..base.clone() };
                    let dtype = IndexK::from_str(index_k, false);
                    args.engine.index_k =
                        Some(dtype.map_err(|why| Failure::Option { option: "index-k".to_owned(), why })?);
                    args.engine.drop = vec![exposure.drop.clone()];
                    args.clients.sessions = Some(concurrency);
                    args.clients.concurrency = Some(concurrency);
                    let mut chosen = choose(&args)?;
                    chosen.settings.profile.load_mb_per_s.value = load_mb_per_s;
                    chosen.settings.check(&chosen.workload).map_err(|why| Failure::Run(why.to_string()))?;
                    runs.push((chosen.workload, chosen.settings));
                }
                points.push(Point { index_k: index_k.clone(), concurrency, load_mb_per_s, reports: Vec::new() });
            }
        }
    }
    let reports =
        in_parallel(&runs, threads, |(workload, settings)| simulate(workload, settings).expect("checked before"));
    for (at, report) in reports.into_iter().enumerate() {
        points[at / exposure.seeds as usize].reports.push(report);
    }
    Ok(points)
}

impl Point {
    fn sum(&self, of: impl Fn(&Report) -> u64) -> u64 {
        self.reports.iter().map(of).sum()
    }

    /// Sessions that read wrong bytes.
    fn corrupt(&self) -> Share {
        Share::new(self.sum(|report| report.sessions.corrupt), self.sum(|report| report.sessions.total))
    }

    /// Steps that came before the reload which they needed, of those that began while one was under way.
    fn lost(&self) -> Share {
        let lost = |report: &Report| report.lost_races.index_k.max(report.lost_races.kv);
        Share::new(self.sum(lost), self.sum(|report| report.lost_races.racing))
    }

    fn reloading(&self) -> u64 {
        self.sum(|report| report.lost_races.reloading)
    }

    /// How far reads came before the bytes: half of them no farther in the worst run, and the farthest.
    fn window_ns(&self) -> [u64; 2] {
        let most = |of: fn(&Report) -> u64| self.reports.iter().map(of).max().unwrap_or(0);
        [most(|report| report.lost_races.behind_ns.p50), most(|report| report.lost_races.behind_ns.max)]
    }

    /// Lost races by layer.
    fn by_layer(&self) -> Vec<u64> {
        let mut layers: Vec<u64> = Vec::new();
        for report in &self.reports {
            let lost = &report.lost_races.index_k_by_layer;
            layers.resize(layers.len().max(lost.len()), 0);
            layers.iter_mut().zip(lost).for_each(|(sum, lost)| *sum += lost);
        }
        layers
    }
}

fn ms(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000_000, ns / 1000 % 1000)
}

fn text(exposure: &matrix::Exposure, points: &[Point]) -> String {
    let rows: Vec<Vec<String>> = points
        .iter()
        .map(|point| {
            let [half, most] = point.window_ns();
            let lost = point.lost();
            let first = point.by_layer().iter().position(|lost| *lost > 0);
            vec![
                point.index_k.clone(),
                point.concurrency.to_string(),
                point.load_mb_per_s.to_string(),
                point.reloading().to_string(),
                format!("{} of {}", lost.count, lost.of),
                ms(half),
                ms(most),
                first.map_or("-".to_owned(), |layer| layer.to_string()),
                point.corrupt().text(),
                point.corrupt().sessions_to_see().map_or("-".to_owned(), |sessions| sessions.to_string()),
            ]
        })
        .collect();
    let header = [
        "index keys",
        "sessions at once",
        "link MB/s",
        "reloads",
        "races lost",
        "window p50 ms",
        "longest",
        "first layer",
        "sessions corrupt",
        "sessions to see it",
    ];
    format!("{} dropped\n{LABEL}\n\n{}", exposure.drop, table(&header, &rows))
}

fn document(exposure: &matrix::Exposure, points: &[Point]) -> String {
    let points: Vec<Value> = points
        .iter()
        .map(|point| {
            let [half, most] = point.window_ns();
            json!({
                "index_k": point.index_k,
                "concurrency": point.concurrency,
                "load_mb_per_s": point.load_mb_per_s,
                "reloading": point.reloading(),
                "races": point.lost().of,
                "races_lost": point.lost().count,
                "races_lost_by_layer": point.by_layer(),
                "window_p50_ns": half,
                "window_max_ns": most,
                "corrupt": crate::json::share(point.corrupt()),
                "sessions_to_see": point.corrupt().sessions_to_see(),
            })
        })
        .collect();
    print(&json!({
        "format": "kvweft-exposure",
        "version": 1,
        "dropped": exposure.drop,
        "label": LABEL,
        "seeds": exposure.seeds,
        "points": points,
    }))
}

/// Shares over the speed of the link, a line for each dtype and number of sessions.
fn chart(exposure: &matrix::Exposure, points: &[Point]) -> String {
    const COLORS: [&str; 3] = ["#1f6fb4", "#c8511b", "#3a8f3a"];
    const DASHES: [&str; 4] = ["2 4", "6 4", "12 4", ""];
    let mut series = Vec::new();
    for (index_k, color) in exposure.index_k.iter().zip(COLORS.into_iter().cycle()) {
        let from = DASHES.len().saturating_sub(exposure.concurrency.len());
        for (concurrency, dash) in exposure.concurrency.iter().zip(DASHES[from..].iter().cycle()) {
            let of_line = |point: &&Point| point.index_k == *index_k && point.concurrency == *concurrency;
            let points = points.iter().filter(of_line);
            let points = points.map(|point| (point.load_mb_per_s as f64, point.corrupt().value() * 100.0)).collect();
            let name = format!("{index_k}, {concurrency} at once");
            series.push(Series { name, color, shape: Shape::Line(dash), points });
        }
    }
    let ticks: Vec<(f64, String)> =
        exposure.load_mb_per_s.iter().map(|speed| (*speed as f64, speed.to_string())).collect();
    let speeds =
        Axis { label: "host to device, MB/s", range: (ticks[0].0, ticks[ticks.len() - 1].0), logarithmic: true, ticks };
    Chart {
        title: &format!("{} dropped", exposure.drop),
        subtitle: LABEL,
        panels: vec![Panel { x: speeds, y: percents("sessions that read wrong bytes"), series }],
    }
    .svg()
}
