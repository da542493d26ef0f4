//! A trace as a picture of lanes: one column an actor, time downwards, what came of each step below it.

use kvweft_trace::TraceFile;

/// The widest line.
pub const WIDTH_MAX: usize = 100;

/// The width of a lane where its actor's name fits above it.
const WIDE: usize = 9;
/// The width of a lane where there are too many actors for that.
const NARROW: usize = 3;
/// Columns kept for what happens in the last lane.
const TEXT_MIN: usize = 46;

/// Draws a trace. `memory` holds, for each step, the pages with an owner and what they hold; what a step changes is shown
/// below it.
pub fn draw(trace: &TraceFile, memory: &[Vec<(String, String)>]) -> String {
    let actors = actors(trace);
    let margin = trace.steps.len().to_string().len() + 2;
    let mut out = String::new();
    out.push_str(&format!("{} violates {}\n", trace.scenario, trace.violates));
    if !trace.drops.is_empty() {
        wrap(&mut out, "", &format!("with {} dropped", trace.drops.join(", ")));
    }
    wrap(&mut out, "", &trace.detail);
    out.push('\n');
    let wide = margin + actors.len() * WIDE + TEXT_MIN <= WIDTH_MAX + WIDE;
    let bars = |upto: usize| format!("|{}", " ".repeat(if wide { WIDE } else { NARROW } - 1)).repeat(upto);
    header(&mut out, &actors, margin, wide, &bars);
    for (i, step) in trace.steps.iter().enumerate() {
        let lane = actors.iter().position(|actor| *actor == step.actor).unwrap_or(0);
        let name = if wide { String::new() } else { format!("{}: ", step.actor) };
        let number = format!("{:>width$}  ", i + 1, width = margin - 2);
        let indent = format!("{}{}", " ".repeat(margin), bars(lane));
        let mark = if step.mark.is_empty() { String::new() } else { format!("   <- {}", step.mark) };
        fold(&mut out, &format!("{number}{}", bars(lane)), &indent, &format!("{name}{}{mark}", step.action));
        if !step.result.is_empty() {
            fold(&mut out, &format!("{indent}  "), &format!("{indent}    "), &step.result);
        }
        let changed = changes(memory, i);
        if !changed.is_empty() {
            fold(&mut out, &format!("{indent}  ["), &format!("{indent}   "), &format!("{}]", changed.join(" | ")));
        }
    }
    out
}

/// Names above their lanes; as a staircase where lanes are narrow.
fn header(out: &mut String, actors: &[String], margin: usize, wide: bool, bars: &dyn Fn(usize) -> String) {
    if wide {
        let names: String = actors.iter().map(|actor| format!("{actor:<WIDE$}")).collect();
        out.push_str(&format!("{}{}\n", " ".repeat(margin), names.trim_end()));
        return;
    }
    for (lane, actor) in actors.iter().enumerate() {
        out.push_str(&format!("{}{}{actor}\n", " ".repeat(margin), bars(lane)));
    }
}

/// The pages whose contents step `i` changed, as `p1: kv0 A`.
fn changes(memory: &[Vec<(String, String)>], i: usize) -> Vec<String> {
    let Some(after) = memory.get(i) else { return Vec::new() };
    let before: &[(String, String)] = if i == 0 { &[] } else { &memory[i - 1] };
    let changed = after.iter().filter(|page| !before.contains(page));
    changed.map(|(page, cells)| format!("{page}: {cells}")).collect()
}

/// The actors in the order of a usual machine, those that appear only.
fn actors(trace: &TraceFile) -> Vec<String> {
    const ORDER: [&str; 16] = [
        "client",
        "operator",
        "fault",
        "timer",
        "net",
        "d.sched",
        "sched",
        "p.sched",
        "d.forward",
        "forward",
        "p.forward",
        "h2d",
        "p.h2d",
        "d2h",
        "p.d2h",
        "p.nic",
    ];
    let mut actors: Vec<String> = Vec::new();
    for step in &trace.steps {
        if !actors.contains(&step.actor) {
            actors.push(step.actor.clone());
        }
    }
    let rank = |actor: &String| ORDER.iter().position(|known| known == actor).unwrap_or(ORDER.len());
    actors.sort_by_key(|actor| (rank(actor), actor.clone()));
    actors
}

fn wrap(out: &mut String, indent: &str, text: &str) {
    if !text.is_empty() {
        fold(out, indent, &format!("{indent}  "), text);
    }
}

/// Writes words behind `first`, going on behind `next` where a line would become too long.
fn fold(out: &mut String, first: &str, next: &str, text: &str) {
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split(' ') {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH_MAX {
            out.push_str(line.trim_end());
            out.push('\n');
            line = next.to_owned();
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_stands_in_the_lane_of_its_actor_and_no_line_is_too_long() {
        let text = "kvweft-trace 1\nscenario  s  digest 0  drops a@b\nviolates  p\nbecause   reasons\n\
                    1  client   submit r1 [A]  -> => p1\n\
                    2  forward  s1 read index-k layer 0  -> expects A, finds -  <- violation\nend  2 steps\n";
        let trace = TraceFile::parse(text).unwrap();
        let drawn = draw(&trace, &[]);
        assert_eq!(
            drawn,
            "s violates p\nwith a@b dropped\nreasons\n\n   client   forward\n1  submit r1 [A]\n     => p1\n\
             2  |        s1 read index-k layer 0   <- violation\n   |          expects A, finds -\n"
        );
        assert!(drawn.lines().all(|line| line.chars().count() <= WIDTH_MAX));
    }
}
