//! scratch
use kvweft_tests::operation::*;
use kvweft_tests::rig::Rig;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
#[test]
fn stats() {
    let mut runner = TestRunner::deterministic();
    let mut kinds = std::collections::BTreeMap::<String, u64>::new();
    let mut cells = [0u16; 9];
    let split = std::env::var("SPLIT").is_ok();
    for _ in 0..1000 {
        let case = any_case(split, 1, 80).new_tree(&mut runner).unwrap().current();
        let mut rig = Rig::new(&case.setup);
        rig.log = Some(vec![]);
        for op in &case.operations {
            if let Err(e) = rig.operate(op) {
                *kinds.entry(format!("ERR {}", &e[..e.len().min(20)])).or_default() += 1;
                break;
            }
        }
        for e in &mut rig.engines {
            let t = e.manager.take_touched();
            for (a, b) in cells.iter_mut().zip(t.request_cells) {
                *a |= b;
            }
        }
        for t in rig.log.unwrap() {
            match t.effects {
                Err(r) => {
                    *kinds
                        .entry(format!(
                            "rej {}",
                            format!("{r:?}").split(|c: char| !c.is_alphanumeric()).next().unwrap()
                        ))
                        .or_default() += 1
                }
                Ok(v) => {
                    *kinds
                        .entry(format!("in {}", t.input.split(|c: char| !c.is_alphanumeric()).next().unwrap()))
                        .or_default() += 1;
                    for f in v {
                        *kinds
                            .entry(format!(
                                "eff {}",
                                format!("{f:?}")
                                    .replace("Move { what: ", "Move_")
                                    .split(|c: char| !c.is_alphanumeric() && c != '_')
                                    .take(3)
                                    .collect::<Vec<_>>()
                                    .join(" ")
                            ))
                            .or_default() += 1;
                    }
                }
            }
        }
    }
    for (k, v) in kinds {
        println!("{v:8} {k}");
    }
    println!("{cells:?}");
}
