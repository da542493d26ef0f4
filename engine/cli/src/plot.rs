//! Line charts as SVG, the same bytes for the same numbers.

use std::fmt::Write;

/// One line.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) color: &'static str,
    /// A dash pattern of SVG; empty for a whole line.
    pub(crate) dash: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A chart. The horizontal axis is logarithmic, the vertical one goes from 0 to 100 percent.
pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    /// Said under the title.
    pub(crate) subtitle: &'a str,
    pub(crate) x_label: &'a str,
    pub(crate) y_label: &'a str,
    /// Where the horizontal axis has its numbers; at least two, growing, positive.
    pub(crate) ticks: &'a [f64],
    pub(crate) series: &'a [Series],
}

const WIDTH: f64 = 920.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 730.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 380.0;
const STYLE: &str = "text{font:13px sans-serif;fill:#222}.small{font-size:11px;fill:#555}.title{font-size:16px}\
    .axis{stroke:#999;fill:none}.grid{stroke:#e4e4e4}";

impl Chart<'_> {
    fn x(&self, value: f64) -> f64 {
        let (first, last) = (self.ticks[0].ln(), self.ticks[self.ticks.len() - 1].ln());
        LEFT + (value.ln() - first) / (last - first) * (RIGHT - LEFT)
    }

    fn y(percent: f64) -> f64 {
        BOTTOM - percent / 100.0 * (BOTTOM - TOP)
    }

    /// The chart as a document.
    pub(crate) fn svg(&self) -> String {
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\">\n\
             <style>{STYLE}</style>\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
        );
        text(&mut out, "title", LEFT, 28.0, "start", self.title);
        text(&mut out, "small", LEFT, 48.0, "start", self.subtitle);
        for percent in [0.0, 25.0, 50.0, 75.0, 100.0] {
            let y = Self::y(percent);
            line(&mut out, "grid", (LEFT, y), (RIGHT, y));
            text(&mut out, "small", LEFT - 8.0, y + 4.0, "end", &format!("{percent:.0} %"));
        }
        for tick in self.ticks {
            let x = self.x(*tick);
            line(&mut out, "grid", (x, TOP), (x, BOTTOM));
            text(&mut out, "small", x, BOTTOM + 18.0, "middle", &tick.to_string());
        }
        line(&mut out, "axis", (LEFT, BOTTOM), (RIGHT, BOTTOM));
        line(&mut out, "axis", (LEFT, TOP), (LEFT, BOTTOM));
        text(&mut out, "", (LEFT + RIGHT) / 2.0, BOTTOM + 42.0, "middle", self.x_label);
        text(&mut out, "small", LEFT, TOP - 8.0, "start", self.y_label);
        for (at, series) in self.series.iter().enumerate() {
            let points = series.points.iter().map(|(x, y)| (self.x(*x), Self::y(*y)));
            let path: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let stroke = format!("stroke=\"{}\" stroke-dasharray=\"{}\"", series.color, series.dash);
            let _ =
                writeln!(out, "<polyline fill=\"none\" stroke-width=\"2\" {stroke} points=\"{}\"/>", path.join(" "));
            let y = TOP + 8.0 + 20.0 * at as f64;
            let _ =
                writeln!(out, "<path d=\"M{:.1} {y:.1}h30\" fill=\"none\" stroke-width=\"2\" {stroke}/>", RIGHT + 16.0);
            text(&mut out, "", RIGHT + 54.0, y + 4.0, "start", &series.name);
        }
        out + "</svg>\n"
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
