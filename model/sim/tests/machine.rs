//! Runs whose results are known: everything adds up with every rule kept, and a dropped rule is seen for what it is.

mod common;

use common::{agents, bf16, profile, settings, small, when_dropping};
use kvweft_core::{Rule, Site};
use kvweft_sim::timeline::Class;
use kvweft_sim::workload::{Form, Synthetic, Workload};
use kvweft_sim::{
    Arrival, Before, Faults, Profile, Report, Settings, simulate, simulate_after, simulate_with_timeline,
};

#[test]
fn with_every_rule_kept_every_session_is_ok_and_everything_adds_up() {
    for split in [false, true] {
        for timeout_ms in [0, 500] {
            let mut settings = settings(split);
            settings.timeout_ns = timeout_ms * 1_000_000;
            let report = simulate(&agents(), &settings).expect("it can begin");
            let sessions = report.sessions;
            assert_eq!(sessions.ok + sessions.timeout, sessions.total, "{report:?}");
            assert_eq!(sessions.timeout > 0, timeout_ms > 0, "{sessions:?}");
            assert!(report.conservation.holds() && report.conservation.checks > 0, "{:?}", report.conservation);
            assert_eq!(report.stuck, Default::default());
            assert_eq!(report.corrupt_reads, Default::default());
            // The pools are too small for all sessions: what is tested needs reloads.
            assert!(timeout_ms > 0 || report.links.load.pages > 1000, "{:?}", report.links);
        }
    }
}

#[test]
fn one_seed_gives_one_run_and_another_seed_another_one() {
    let workload = agents();
    let run = |seed| {
        let mut settings = settings(true);
        settings.seed = seed;
        simulate(&workload, &settings).expect("it can begin")
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).elapsed_ns, run(2).elapsed_ns);
}

#[test]
fn a_store_that_does_not_wait_for_the_forward_leaves_wrong_bytes_in_the_host_tier() {
    let report = when_dropping(Rule::StoreWaitsForward.at(Site::Offload), &settings(false));
    assert!(report.corrupt_reads.index_k_from_host > 0 && report.corrupt_reads.kv_from_host > 0, "{report:?}");
    assert!(report.sessions.corrupt > 0);
}

#[test]
fn index_keys_that_are_not_copied_are_missing_and_kv_is_not() {
    let report = when_dropping(Rule::IndexWithKv.at(Site::Offload), &settings(false));
    assert!(report.corrupt_reads.index_k_from_host > 0);
    assert_eq!(report.corrupt_reads.kv_from_host, 0);
}

#[test]
fn an_index_read_that_does_not_wait_is_wrong_only_where_the_copy_is_slower_than_the_layers() {
    let mut slow = settings(false);
    slow.profile.load_mb_per_s.value = 200;
    let at = Rule::IndexReadWaitsLayer.at(Site::RaggedPrefill);
    let report = when_dropping(at, &slow);
    assert!(report.corrupt_reads.index_k_from_host > 0, "{report:?}");
    assert_eq!(report.corrupt_reads.kv_from_host, 0);
    let mut fast = settings(false);
    fast.profile.load_mb_per_s.value = 10_000_000;
    fast.profile.copy_launch_ns.value = 0;
    let report = when_dropping(at, &fast);
    assert_eq!(report.corrupt_reads, Default::default(), "the race is there, and is always won");
}

#[test]
fn a_host_pool_laid_out_as_fp8_spoils_bf16_index_keys_and_no_fp8_ones() {
    let at = Rule::HostLayoutFromDevice.at(Site::HostPool);
    let mut settings = settings(false);
    assert_eq!(when_dropping(at, &settings).corrupt_reads, Default::default());
    settings.geometry = bf16();
    let report = when_dropping(at, &settings);
    assert!(report.corrupt_reads.index_k_from_host > 0);
    assert_eq!(report.corrupt_reads.kv_from_host, 0);
}

#[test]
fn a_send_that_does_not_wait_for_the_forward_brings_the_peer_wrong_bytes() {
    let report = when_dropping(Rule::SendWaitsWrites.at(Site::Forward), &settings(true));
    assert!(report.corrupt_reads.kv_on_device > 0, "{report:?}");
}

#[test]
fn an_abort_that_does_not_reach_the_peer_leaves_both_sides_waiting_and_the_run_ends() {
    let mut settings = settings(true);
    settings.timeout_ns = 500_000_000;
    settings.deadline_ns = 10_000_000_000;
    let report = when_dropping(Rule::FailureReachesPeer.at(Site::DecodeAbort), &settings);
    assert!(report.stuck.draining > 0 && report.stuck.for_peer > 0, "{report:?}");
    assert!(report.conservation.holds());
}

#[test]
fn a_run_in_which_nothing_can_happen_any_more_says_what_waits() {
    // Two requests of 10 pages that each want 10 more, and one page is left.
    let agents = Synthetic { first_tokens: 640, answer_tokens: 640, rounds: 1, system_tokens: 0, ..common::AGENTS };
    let mut settings = settings(false);
    settings.arrival = Arrival::Closed(2);
    settings.prefix_cache = false;
    settings.device_pages = 21;
    assert_eq!(simulate(&agents.workload(), &settings).expect("it can begin").sessions.ok, 30);
    settings.rules = settings.rules.without(Rule::ReserveBeforeHold.at(Site::Admit));
    let report = simulate(&agents.workload(), &settings).expect("it can begin");
    assert_eq!((report.sessions.open, report.stuck.not_run), (30, 2), "{report:?}");
    assert_eq!(report.stuck.leaked_pages, [21, 0]);
}

#[test]
fn requests_without_an_answer_shrinking_contexts_and_sub_agents_are_played() {
    let log = r#"{"block_size":64,"requests":[
        {"t":0,"in":640,"out":0,"keep":0,"runs":[[0,10]]},
        {"t":1.5,"in":960,"out":70,"think":1.25,"keep":10,"runs":[[10,5]]},
        {"t":2,"subagent":"x","requests":[{"t":2,"in":300,"out":5,"keep":0,"runs":[[100,4]]},
            {"t":3,"in":400,"out":1,"keep":4,"runs":[[104,2]]}]},
        {"t":2,"subagent":"y","requests":[{"t":2,"in":200,"out":5,"keep":0,"runs":[[200,3]]}]},
        {"t":9,"in":512,"out":9,"think":0.5,"keep":6,"runs":[[300,2]]}]}"#;
    let log = log.replace('\n', " ");
    for split in [false, true] {
        let workload = Workload::parse(Form::Sessions, &log).expect("a log");
        assert_eq!((workload.sessions(), workload.requests()), (1, 6));
        let report = simulate(&workload, &settings(split)).expect("it can begin");
        assert_eq!((report.sessions.ok, report.requests.finished), (1, 6), "{report:?}");
        assert_eq!(report.tokens.output, 90);
        // The first prompt again, nothing for sub-agents but their own, six blocks at last. A prefill engine never hears how
        // an answer ended, so it does not keep the page whose last token was computed for it.
        let hits = if split { 9 + 4 + 6 } else { 10 + 4 + 6 };
        assert_eq!(report.tokens.device_hits, hits * 64);
        assert_eq!(report.tokens.input, 640 + 960 + 300 + 400 + 200 + 512);
    }
}

#[test]
fn a_request_that_can_never_fit_is_refused_and_its_session_is_an_error() {
    let mut settings = settings(false);
    settings.device_pages = 3;
    let report = simulate(&small(2), &settings).expect("it can begin");
    assert_eq!((report.sessions.error, report.requests.rejected), (2, 2));
    assert!(report.conservation.holds());
}

#[test]
fn what_is_wrong_with_a_profile_is_said_key_by_key() {
    let mut profile: Profile = profile();
    profile.load_mb_per_s.value = 0;
    profile.store_mb_per_s.assumed = Some("both".to_owned());
    profile.jitter_permille.value = 1000;
    assert_eq!(
        profile.faults(),
        [
            ("load_mb_per_s", format!("expected 1 to {}, got 0", 1_u64 << 40)),
            ("store_mb_per_s", "expected either `source` or `assumed`".to_owned()),
            ("jitter_permille", "expected 0 to 999, got 1000".to_owned()),
        ]
    );
}

#[test]
fn a_reload_that_is_queued_when_a_step_begins_and_done_when_it_ends_was_still_too_late() {
    let mut settings = settings(false);
    settings.profile.load_mb_per_s.value = 2000;
    let report = when_dropping(Rule::IndexReadWaitsLayer.at(Site::RaggedPrefill), &settings);
    let lost = &report.lost_races;
    assert!(lost.index_k > 0 && lost.racing >= lost.index_k && lost.kv == 0, "{lost:?}");
    assert_eq!(lost.index_k_by_layer.first().copied(), Some(lost.index_k), "the first layer is read at once");
    assert!(lost.behind_ns.p50 > 0 && report.sessions.corrupt > 0, "{report:?}");
}

/// Reset while the first sessions are at work, before any client gives up.
const RESET_NS: u64 = 1_000_000_000;

fn after(settings: &Settings) -> Report {
    let (before, then) = (agents(), agents());
    let before = Before { workload: &before, reset_ns: RESET_NS };
    simulate_after(&before, &then, settings).expect("it can begin")
}

#[test]
fn a_complete_reset_leaves_nothing_and_no_count_of_the_run_before() {
    for split in [false, true] {
        let settings = settings(split);
        let alone = simulate(&agents(), &settings).expect("it can begin");
        let report = after(&settings);
        assert_eq!(
            (report.sessions.ok, report.sessions.total),
            (alone.sessions.ok, alone.sessions.total),
            "{report:?}"
        );
        assert_eq!(report.requests.submitted, alone.requests.submitted);
        assert_eq!(report.stuck, Default::default());
        assert!(report.conservation.holds() && report.conservation.checks > 0, "{:?}", report.conservation);
        assert_eq!(after(&settings), report, "one seed gives one run");
    }
}

#[test]
fn a_reset_that_forgets_its_rooms_leaves_their_pages() {
    let mut settings = settings(true);
    settings.arrival = Arrival::Closed(4);
    settings.rules = settings.rules.without(Rule::ResetClearsEverything.at(Site::Rooms));
    let report = after(&settings);
    assert!(report.stuck.leaked_pages[0] > 0, "{report:?}");
}

#[test]
fn links_are_busy_for_as_long_as_their_bytes_take() {
    let mut settings = settings(true);
    settings.profile.jitter_permille.value = 0;
    settings.profile.copy_launch_ns.value = 0;
    settings.profile.copy_extent_ns.value = 0;
    settings.profile.both_ways_percent.value = 100;
    let links = |settings: &Settings| simulate(&agents(), settings).expect("it can begin").links;
    let bare = links(&settings);
    // Eight layers of 64 tokens: 656 bytes of KV and 132 of index keys each.
    let (kv, index) = (8 * 64 * 656, 8 * 64 * 132);
    for link in [bare.load, bare.store] {
        assert!(link.pages > 100, "{bare:?}");
        assert_eq!(link.bytes, link.pages * (kv + index));
    }
    // KV and index keys are parts of their own there.
    assert_eq!(bare.network.bytes, bare.network.pages / 2 * (kv + index));
    let profile = &settings.profile;
    for (link, rate) in [
        (bare.load, &profile.load_mb_per_s),
        (bare.store, &profile.store_mb_per_s),
        (bare.network, &profile.network_mb_per_s),
    ] {
        let took = link.bytes * 1000 / rate.value;
        // Each layer is rounded up.
        assert!(link.busy_ns.abs_diff(took) <= 16 * link.operations, "{link:?}: {took}");
    }
    let longer = |change: &dyn Fn(&mut Profile)| {
        let mut settings = settings.clone();
        change(&mut settings.profile);
        let links = links(&settings);
        links.store.busy_ns * bare.store.bytes > bare.store.busy_ns * links.store.bytes * 101 / 100
    };
    assert!(longer(&|profile| profile.both_ways_percent.value = 10));
    assert!(longer(&|profile| profile.copy_extent_ns.value = 1_000_000));
}

#[test]
fn a_timeline_changes_nothing_and_has_every_request_and_few_samples() {
    for (split, timeout_ms) in [(false, 0), (true, 500)] {
        let mut settings = settings(split);
        settings.timeout_ns = timeout_ms * 1_000_000;
        let workload = agents();
        let (report, timeline) = simulate_with_timeline(&workload, &settings).expect("it can begin");
        assert_eq!(report, simulate(&workload, &settings).expect("it can begin"));
        assert_eq!(timeline.requests.len() as u64, report.requests.submitted);
        let of = |class| timeline.requests.iter().filter(|request| request.class == class).count() as u64;
        assert_eq!(of(Class::Ok), report.requests.finished);
        assert_eq!(of(Class::Timeout), report.sessions.timeout);
        assert_eq!(of(Class::Timeout) > 0, timeout_ms > 0);
        let names: Vec<&str> = timeline.pools.iter().map(|pool| pool.name).collect();
        assert_eq!(names, if split { vec!["device", "host", "decode"] } else { vec!["device", "host"] });
        for pool in &timeline.pools {
            let samples = pool.taken.len() as u64;
            assert!((500..2_000).contains(&samples), "{samples} samples");
            assert_eq!(samples, report.elapsed_ns / timeline.interval_ns + 1, "they reach to the end");
            assert!(pool.taken.iter().all(|taken| *taken <= pool.pages));
        }
        assert!(timeline.pools[0].taken.iter().any(|taken| *taken > 190), "the device pool is too small for all");
    }
}

/// A prefill and a decode engine behind a slow network, whose deadlines pass soon; nothing but faults is left to chance.
fn faulty(faults: Faults) -> Settings {
    let mut settings = Settings { faults, deadline_ns: 2_000_000_000, ..settings(true) };
    settings.profile.network_mb_per_s.value = 100;
    settings.profile.jitter_permille.value = 0;
    settings
}

#[test]
fn faults_befall_so_many_and_spoil_no_byte_while_every_rule_is_kept() {
    let none = Faults::default();
    let table = [
        Faults { lose_permille: 20, ..none },
        Faults { fail_permille: 20, ..none },
        Faults { leave_permille: 100, leave_ns: 400_000_000, ..none },
        Faults { lose_permille: 10, fail_permille: 10, leave_permille: 50, leave_ns: 400_000_000 },
    ];
    for faults in table {
        let report = simulate(&agents(), &faulty(faults)).expect("it can begin");
        let struck = [report.faults.lost_messages, report.faults.failed_parts, report.faults.clients_left];
        let wanted = [faults.lose_permille, faults.fail_permille, faults.leave_permille];
        assert_eq!(struck.map(|count| count > 0), wanted.map(|permille| permille > 0), "{faults:?}: {report:?}");
        let sessions = report.sessions;
        // A lost message is found out, and costs time alone.
        let only_lost = wanted[1..] == [0, 0];
        assert!(sessions.ok > 0 && (sessions.ok == sessions.total) == only_lost, "{faults:?}: {sessions:?}");
        assert_eq!([sessions.corrupt, sessions.stuck, sessions.open], [0; 3], "{faults:?}: {report:?}");
        assert_eq!(report.stuck, Default::default(), "{faults:?}");
        assert!(report.conservation.holds(), "{faults:?}: {:?}", report.conservation);
        assert_eq!(report, simulate(&agents(), &faulty(faults)).expect("it can begin"));
        let other = Settings { seed: 2, ..faulty(faults) };
        assert_ne!(report, simulate(&agents(), &other).expect("it can begin"), "{faults:?}");
    }
}

#[test]
fn a_fault_shows_what_a_dropped_rule_of_the_handover_leaves_behind() {
    let none = Faults::default();
    let leave = Faults { leave_permille: 300, leave_ns: 400_000_000, ..none };
    let lose = Faults { lose_permille: 20, ..none };
    type Seen = fn(&Report) -> u64;
    let table: [(Rule, Site, Faults, Seen); 3] = [
        (Rule::HoldUntilDrained, Site::Abort, leave, |report| {
            report.corrupt_reads.foreign_writes + report.corrupt_reads.requests
        }),
        (Rule::FailureReachesPeer, Site::DecodeAbort, leave, |report| report.stuck.leaked_pages[0]),
        (Rule::LostStatusRecovers, Site::Receive, lose, |report| report.sessions.total - report.sessions.ok),
    ];
    for (rule, site, faults, seen) in table {
        let at = rule.at(site);
        assert_eq!(seen(&simulate(&agents(), &faulty(faults)).expect("it can begin")), 0, "{at}");
        assert!(seen(&when_dropping(at, &faulty(faults))) > 0, "{at}: {:?}", when_dropping(at, &faulty(faults)));
        assert_eq!(seen(&when_dropping(at, &faulty(none))), 0, "{at} shows without a fault");
    }
}
