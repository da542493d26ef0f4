//! The manager's two state machines as a reviewer reads them: every (state, event) outcome, and the graphs.
//!
//! A change of protocol is a change of these snapshots in the same commit.

use kvweft_check::graph::{request_dot, request_table, slot_dot, slot_table};

#[test]
fn the_request_machine() {
    insta::assert_snapshot!("request_table", request_table());
    insta::assert_snapshot!("request_dot", request_dot());
}

#[test]
fn the_slot_machine() {
    insta::assert_snapshot!("slot_table", slot_table());
    insta::assert_snapshot!("slot_dot", slot_dot());
}
