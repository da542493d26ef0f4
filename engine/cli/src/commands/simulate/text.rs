//! The results as tables.

use kvweft_sim::report::{Link, Percentiles, Report};
use kvweft_sim::{Arrival, Settings};

use super::{Chosen, Run};
use crate::table::table;

pub(super) fn text(chosen: &Chosen, runs: &[Run]) -> String {
    let mut out = header(chosen);
    match runs {
        [run] => out += &one(&run.report),
        runs => out += &several(runs),
    }
    out.push('\n');
    out += &profile(&chosen.settings);
    out
}

fn header(chosen: &Chosen) -> String {
    let settings = &chosen.settings;
    let starts = match settings.arrival {
        Arrival::Open => "each session at its time".to_owned(),
        Arrival::Closed(count) => format!("{count} sessions at once"),
    };
    let host =
        if settings.prefix_cache { settings.host_pages.to_string() } else { "none, the cache is off".to_owned() };
    let engines = match settings.split {
        false => format!("one engine: device {} pages, host {host}", settings.device_pages),
        true => format!(
            "prefill engine: device {} pages, host {host}; decode engine: {} pages",
            settings.device_pages, settings.decode_pages
        ),
    };
    let dropped = if chosen.dropped.is_empty() { "none".to_owned() } else { chosen.dropped.join(" ") };
    format!(
        "{}: {} sessions, {} requests; {starts}\n{}, pages of {} tokens\n{engines}\nrules dropped: {dropped}\n\n",
        chosen.name,
        chosen.workload.sessions(),
        chosen.workload.requests(),
        chosen.model,
        settings.geometry.page_tokens,
    )
}

fn cells(numbers: &[u64]) -> Vec<String> {
    numbers.iter().map(u64::to_string).collect()
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / whole as f64) }
}

/// The share of prompt tokens that were found, with four digits.
pub(super) fn reused(report: &Report) -> String {
    let share = report.tokens.prefix_cache_reused_per_10k();
    format!("{}.{:04}", share / 10_000, share % 10_000)
}

fn several(runs: &[Run]) -> String {
    let rows: Vec<Vec<String>> = runs
        .iter()
        .map(|run| {
            let Report { sessions, first_token_ns, corrupt_reads, stuck, .. } = &run.report;
            let mut row =
                cells(&[run.seed, sessions.ok, sessions.corrupt, sessions.stuck, sessions.timeout, sessions.error]);
            row.extend(cells(&[sessions.left, sessions.open, corrupt_reads.requests, stuck.transfers]));
            row.extend([stuck.leaked_pages.iter().sum::<u64>().to_string(), reused(&run.report)]);
            row.extend([ms(first_token_ns.p50), ms(first_token_ns.p99)]);
            row
        })
        .collect();
    let mut header = vec!["seed", "ok", "corrupt", "stuck", "timeout", "error", "left", "open"];
    header.extend(["corrupt requests", "stuck transfers", "leaked pages", "reused", "first token p50 ms", "p99 ms"]);
    let total: u64 = runs.iter().map(|run| run.report.sessions.total).sum();
    let corrupt: u64 = runs.iter().map(|run| run.report.sessions.corrupt).sum();
    let broken = runs.iter().filter(|run| !run.report.conservation.holds()).count();
    format!(
        "{}\n{corrupt} of {total} sessions corrupt, {}; {broken} of {} runs do not add up\n",
        table(&header, &rows),
        share(corrupt, total),
        runs.len()
    )
}

fn one(report: &Report) -> String {
    let sessions = &report.sessions;
    let header = ["sessions", "ok", "corrupt", "stuck", "timeout", "error", "left", "open", "share corrupt"];
    let mut row = cells(&[sessions.total, sessions.ok, sessions.corrupt, sessions.stuck, sessions.timeout]);
    row.extend(cells(&[sessions.error, sessions.left, sessions.open]));
    row.push(share(sessions.corrupt, sessions.total));
    let mut out = table(&header, &[row]) + "\n" + &measured(report) + "\n";
    let times = [
        ("to the first token, ms", &report.first_token_ns),
        ("per token, ms", &report.per_token_ns),
        ("end to end, ms", &report.end_to_end_ns),
    ];
    let times = times.map(|(name, times)| {
        let Percentiles { mean, p50, p90, p95, p99, max, .. } = *times;
        [name.to_owned()].into_iter().chain([mean, p50, p90, p95, p99, max].map(ms)).collect()
    });
    out += &table(&["virtual time", "mean", "p50", "p90", "p95", "p99", "max"], &times);
    out.push('\n');
    let links = [
        ("host to device", &report.links.load),
        ("device to host", &report.links.store),
        ("prefill to decode", &report.links.network),
    ];
    let links = links.map(|(name, link)| {
        let Link { operations, pages, bytes, busy_ns } = *link;
        let gb = format!("{}.{:03}", bytes / 1_000_000_000, bytes / 1_000_000 % 1000);
        vec![name.to_owned(), operations.to_string(), pages.to_string(), gb, share(busy_ns, report.elapsed_ns)]
    });
    out += &table(&["link", "operations", "pages", "GB a rank", "busy"], &links);
    out + &wrong(report)
}

fn ms(ns: u64) -> String {
    format!("{}.{:02}", ns / 1_000_000, ns / 10_000 % 100)
}

fn measured(report: &Report) -> String {
    let Report { requests, tokens, .. } = report;
    let rows = [
        ("requests that ended with an answer", format!("{} of {}", requests.finished, requests.submitted)),
        ("requests refused", requests.rejected.to_string()),
        ("requests whose client went away", requests.aborted.to_string()),
        ("requests past a deadline of an engine", requests.past_deadline.to_string()),
        ("requests that failed", requests.failed.to_string()),
        ("requests not asked", requests.not_asked.to_string()),
        ("decodes running at the peak", requests.decodes_peak.to_string()),
        ("prompt tokens", tokens.input.to_string()),
        ("  found on the device", format!("{}, {}", tokens.device_hits, share(tokens.device_hits, tokens.input))),
        ("  found in the host tier", format!("{}, {}", tokens.host_hits, share(tokens.host_hits, tokens.input))),
        ("prefix_cache_reused_ratio", reused(report)),
        ("answer tokens", tokens.output.to_string()),
        (
            "virtual time, s",
            format!("{}.{:03}", report.elapsed_ns / 1_000_000_000, report.elapsed_ns / 1_000_000 % 1000),
        ),
    ];
    let faults = [
        ("messages that were lost", report.faults.lost_messages),
        ("parts of transfers that were made to fail", report.faults.failed_parts),
        ("clients that went away of their own accord", report.faults.clients_left),
    ];
    let faults = faults.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name, count.to_string()));
    listed(&rows.into_iter().chain(faults).collect::<Vec<_>>())
}

fn listed(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    rows.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect()
}

/// What is not as it should be; nothing where everything is.
fn wrong(report: &Report) -> String {
    let Report { corrupt_reads, stuck, conservation, .. } = report;
    let rows = [
        ("requests with a corrupt read", corrupt_reads.requests),
        ("pages of index keys from the host tier", corrupt_reads.index_k_from_host),
        ("pages of KV from the host tier", corrupt_reads.kv_from_host),
        ("pages of index keys on the device", corrupt_reads.index_k_on_device),
        ("pages of KV on the device", corrupt_reads.kv_on_device),
        ("writes into pages of another owner", corrupt_reads.foreign_writes),
        ("stuck for pages", stuck.for_pages),
        ("stuck for input", stuck.for_input),
        ("stuck for their peer", stuck.for_peer),
        ("stuck sending", stuck.sending),
        ("stuck, not run", stuck.not_run),
        ("stuck draining", stuck.draining),
        ("stuck transfers", stuck.transfers),
        ("leaked pages, device", stuck.leaked_pages[0]),
        ("leaked pages, host", stuck.leaked_pages[1]),
        ("leases left", stuck.leases),
        ("the clock went back", conservation.clock),
        ("requests do not add up", conservation.requests),
        ("pages do not add up", conservation.pages),
        ("bytes do not add up", conservation.bytes),
        ("leases do not add up", conservation.leases),
    ];
    let rows: Vec<(&str, String)> =
        rows.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name, count.to_string())).collect();
    if rows.is_empty() {
        return format!(
            "\neverything adds up, {} times; no corrupt read, nothing stuck, nothing leaked\n",
            conservation.checks
        );
    }
    "\n".to_owned() + &listed(&rows)
}

fn profile(settings: &Settings) -> String {
    let profile = &settings.profile;
    let rows: Vec<Vec<String>> = profile
        .quantities()
        .into_iter()
        .map(|(key, quantity)| {
            let from = match (&quantity.source, &quantity.assumed) {
                (Some(source), _) => source.clone(),
                (None, why) => format!("assumed: {}", why.as_deref().unwrap_or_default()),
            };
            vec![key.to_owned(), quantity.value.to_string(), from]
        })
        .collect();
    format!("profile {}: {}\n{}", profile.name, profile.title, table(&["cost", "value", "source"], &rows))
}
