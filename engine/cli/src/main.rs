//! kvweft.
fn main() {}
