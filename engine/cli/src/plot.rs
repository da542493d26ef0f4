//! Charts as SVG, the same bytes for the same numbers.

use std::collections::BTreeSet;
use std::fmt::Write;

/// How points are drawn.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// Joined, with a dash pattern of SVG; empty for a whole line.
    Line(&'static str),
    /// Each by itself. Points that fall onto one place are drawn once.
    Dots,
}

/// Points that belong together.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) color: &'static str,
    pub(crate) shape: Shape,
    pub(crate) points: Vec<(f64, f64)>,
}

/// One axis.
pub(crate) struct Axis<'a> {
    pub(crate) label: &'a str,
    /// Where it begins and ends; positive where it is logarithmic.
    pub(crate) range: (f64, f64),
    pub(crate) logarithmic: bool,
    /// Numbers at it: where, and how they are written.
    pub(crate) ticks: Vec<(f64, String)>,
}

/// Two axes and what is drawn between them.
pub(crate) struct Panel<'a> {
    pub(crate) x: Axis<'a>,
    pub(crate) y: Axis<'a>,
    pub(crate) series: Vec<Series>,
}

/// Panels below each other.
pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    /// Said under the title.
    pub(crate) subtitle: &'a str,
    pub(crate) panels: Vec<Panel<'a>>,
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 730.0;
/// The first panel begins here, and is so high.
const TOP: f64 = 84.0;
const HEIGHT: f64 = 296.0;
/// From one panel to the next.
const PITCH: f64 = 376.0;
/// What lies below the last one.
const FOOT: f64 = 60.0;
const STYLE: &str = "text{font:13px sans-serif;fill:#222}.small{font-size:11px;fill:#555}.title{font-size:16px}\
    .axis{stroke:#999;fill:none}.grid{stroke:#e4e4e4}.line{fill:none;stroke-width:1.7}\
    .dots{fill:none;stroke-width:3.5;stroke-linecap:round;stroke-opacity:.7}";

/// An axis from 0 to 100.
pub(crate) fn percents(label: &str) -> Axis<'_> {
    let ticks = [0.0, 25.0, 50.0, 75.0, 100.0].map(|percent| (percent, format!("{percent:.0} %"))).to_vec();
    Axis { label, range: (0.0, 100.0), logarithmic: false, ticks }
}

impl Axis<'_> {
    /// Where a value stands, from 0 at the begin to 1 at the end.
    fn share(&self, value: f64) -> f64 {
        let (first, last) = self.range;
        if first == last {
            return 0.0;
        }
        if self.logarithmic {
            (value.ln() - first.ln()) / (last.ln() - first.ln())
        } else {
            (value - first) / (last - first)
        }
    }
}

impl Chart<'_> {
    /// The chart as a document.
    pub(crate) fn svg(&self) -> String {
        let height = TOP + PITCH * self.panels.len().saturating_sub(1) as f64 + HEIGHT + FOOT;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\">\n\
             <style>{STYLE}</style>\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n"
        );
        text(&mut out, "title", LEFT, 28.0, "start", self.title);
        text(&mut out, "small", LEFT, 48.0, "start", self.subtitle);
        for (at, panel) in self.panels.iter().enumerate() {
            panel.draw(&mut out, TOP + PITCH * at as f64);
        }
        out + "</svg>\n"
    }
}

impl Panel<'_> {
    fn draw(&self, out: &mut String, top: f64) {
        let bottom = top + HEIGHT;
        let x_of = |value: f64| LEFT + self.x.share(value) * (RIGHT - LEFT);
        let y_of = |value: f64| bottom - self.y.share(value) * HEIGHT;
        for (value, words) in &self.y.ticks {
            let y = y_of(*value);
            line(out, "grid", (LEFT, y), (RIGHT, y));
            text(out, "small", LEFT - 8.0, y + 4.0, "end", words);
        }
        for (value, words) in &self.x.ticks {
            let x = x_of(*value);
            line(out, "grid", (x, top), (x, bottom));
            text(out, "small", x, bottom + 18.0, "middle", words);
        }
        line(out, "axis", (LEFT, bottom), (RIGHT, bottom));
        line(out, "axis", (LEFT, top), (LEFT, bottom));
        text(out, "", (LEFT + RIGHT) / 2.0, bottom + 42.0, "middle", self.x.label);
        text(out, "small", LEFT, top - 8.0, "start", self.y.label);
        for (at, series) in self.series.iter().enumerate() {
            let points = series.points.iter().map(|(x, y)| (x_of(*x), y_of(*y)));
            let y = top + 8.0 + 20.0 * at as f64;
            let key = RIGHT + 16.0;
            let (class, dash, path, key) = match series.shape {
                Shape::Line(dash) => {
                    let path: Vec<String> = points.map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
                    ("line", dash, path.join("L"), format!("{key:.1} {y:.1}h30"))
                }
                Shape::Dots => {
                    let path: BTreeSet<String> = points.map(|(x, y)| format!("{x:.1} {y:.1}h0")).collect();
                    let path: Vec<String> = path.into_iter().collect();
                    ("dots", "", path.join("M"), format!("{:.1} {y:.1}h0", key + 15.0))
                }
            };
            let dash = if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
            for path in [path, key] {
                let _ = writeln!(out, "<path class=\"{class}\" stroke=\"{}\"{dash} d=\"M{path}\"/>", series.color);
            }
            text(out, "", RIGHT + 54.0, y + 4.0, "start", &series.name);
        }
    }
}

fn line(out: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let _ = writeln!(
        out,
        "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn text(out: &mut String, class: &str, x: f64, y: f64, anchor: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}
