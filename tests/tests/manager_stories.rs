//! The shortest sequences that have broken the manager. While a defect of `known` is stepped around, its story holds because
//! the driver leaves out the decisive moment; with the defect fixed, because the manager does what it owes.

use kvweft_core::{
    BlockHash, Config, Effect, Geometry, Input, Manager, MoveKind, RequestId, Role, StepId, Submit, WritePolicy,
};
use kvweft_tests::drive::run;
use kvweft_tests::operation::{Case, Operation, Setup};

fn submit(request: u8, prompt: &[u8]) -> Operation {
    Operation::Submit { request, prompt: prompt.to_vec(), tail: 0, output: 0, priority: 0, late: false }
}

fn holds(setup: Setup, operations: Vec<Operation>) {
    assert_eq!(run(&Case { setup, operations }), Ok(()));
}

#[test]
fn an_abort_that_comes_again_frees_nothing_under_the_offload_of_the_first() {
    let abort = Operation::Abort { engine: 0, request: 0 };
    holds(Setup::small(), vec![submit(0, &[0]), abort.clone(), abort, Operation::Round]);
}

#[test]
fn a_write_back_keeps_the_device_pages_above_new_blocks() {
    let setup = Setup { write_policy: WritePolicy::Back, ..Setup::small() };
    let operations = vec![
        submit(0, &[0]),
        Operation::Round,
        // Holds two of the other three pages.
        submit(1, &[1, 1]),
        Operation::Settle,
        // Needs more than is free, so the first block is written back; then nobody needs its page any more.
        submit(2, &[2, 2]),
        Operation::Abort { engine: 0, request: 2 },
        // Puts a block below the first, and ends, before the write-back does.
        submit(3, &[0, 0]),
        Operation::RoundWithout(2),
        Operation::Round,
        submit(3, &[0, 0, 0]),
        Operation::Round,
    ];
    holds(setup, operations);
}

#[test]
fn a_room_that_was_refused_before_its_request_came_is_never_served() {
    let setup = Setup { split: true, device_pages: [3, 8], host_pages: 0, ..Setup::small() };
    let late = Operation::Submit { request: 0, prompt: vec![0], tail: 0, output: 0, priority: 0, late: true };
    let operations = vec![
        late,
        // Asks for the status: two reservations are under way.
        Operation::Fire { engine: 1, at: 0 },
        // The first is answered with "failed", whereupon the decode engine frees its pages.
        Operation::Go(vec![0]),
        // Now the request arrives, and then the second reservation.
        Operation::SubmitLate(0),
        Operation::Round,
    ];
    holds(setup, operations);
}

#[test]
fn a_failed_reload_keeps_the_pages_that_a_posted_send_still_reads() {
    let setup = Setup { split: true, device_pages: [2, 3], event_slots: 1, ..Setup::small() };
    let operations = vec![
        submit(0, &[1, 1]),
        Operation::Round,
        submit(3, &[0]),
        Operation::Settle,
        Operation::Finish { request: 3, drop: 0 },
        // Its only block must be reloaded, and its send is posted behind the reload.
        submit(0, &[1]),
        Operation::Go(vec![0]),
        Operation::Fail { engine: 0, at: 0 },
        submit(0, &[0]),
        Operation::Round,
    ];
    holds(setup, operations);
}

#[test]
fn a_failed_reload_leaves_no_gap_above_blocks_that_are_loaded_by_another() {
    let setup = Setup { device_pages: [6, 1], host_pages: 12, ..Setup::small() };
    let operations = vec![
        submit(0, &[0]),
        Operation::Round,
        submit(0, &[0, 0]),
        Operation::Round,
        // Evicts both from the device.
        submit(0, &[1, 1, 1, 1, 1, 1]),
        Operation::Round,
        // Two reloads: of the first block, and of the one below it.
        submit(1, &[0]),
        submit(2, &[0, 0]),
        Operation::Fail { engine: 0, at: 0 },
        Operation::Round,
        submit(3, &[0, 0, 1]),
        Operation::Round,
    ];
    holds(setup, operations);
}

#[test]
fn a_prefix_that_was_computed_meanwhile_is_shared_and_its_pages_go_back() {
    let config = Config::new(Role::Together, Geometry::uniform(1, 64, None), 8, 0);
    let mut manager = Manager::new(config);
    let submit = |manager: &mut Manager, request, blocks: &[u128]| {
        let blocks: Vec<BlockHash> = blocks.iter().copied().map(BlockHash).collect();
        let submit = Submit {
            request: RequestId(request),
            room: None,
            blocks: &blocks,
            tail_tokens: 3,
            output_tokens: 5,
            priority: 0,
        };
        manager.handle(Input::Submit(submit)).unwrap();
        effects(manager)
    };
    submit(&mut manager, 0, &[1, 2]);
    assert!(submit(&mut manager, 1, &[1, 2, 3]).iter().any(|effect| matches!(effect, Effect::Move(_))), "it has pages");
    manager.handle(Input::StepDone { step: StepId(0) }).unwrap();
    let after = effects(&mut manager);
    let freed = after.iter().find_map(|effect| match effect {
        Effect::Move(moved) if moved.what == MoveKind::Free => Some(moved.pages.len()),
        _ => None,
    });
    let launched = after.iter().find_map(|effect| match effect {
        Effect::RunStep(step) => Some((step.items[0].request, step.items[0].first_token, step.items[0].tokens)),
        _ => None,
    });
    assert_eq!((freed, launched), (Some(2), Some((RequestId(1), 128, 67))), "{after:#?}");
}

fn effects(manager: &mut Manager) -> Vec<Effect> {
    std::iter::from_fn(|| manager.poll_effect()).collect()
}
