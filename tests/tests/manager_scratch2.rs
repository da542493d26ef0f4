//! scratch
use kvweft_tests::operation::Operation as O;
use kvweft_tests::operation::*;
use kvweft_core::*;
fn sub(request: u8, prompt: &[u8]) -> O { O::Submit { request, prompt: prompt.to_vec(), tail: 0, output: 0, priority: 0, late: false } }
#[test]
fn give_up() {
    let setup = Setup { split: false, page_tokens: 1, device_pages: [4, 1], host_pages: 3, index_keys: false, write_policy: WritePolicy::Back, event_slots: 2, chunk_pages: 0, max_batch: 2, pipeline_depth: 1, prefix_cache: true, deadlines: true, concluded_kept: 64, rules: RuleSet::ALL, order: AllocationOrder::Ascending };
    let operations = vec![sub(0, &[0]), O::Round, sub(1, &[1,1]), O::Settle, sub(2, &[2, 2]), O::Abort { engine: 0, request: 2 },
       sub(3, &[0, 0]), O::RoundWithout(2), O::Go(vec![0;5]), O::Finish{request:1, drop:0}, O::Go(vec![0;8]), sub(3, &[0,0,0]), O::Round];
    let case = Case { setup, operations };
    let mut rig = kvweft_tests::rig::Rig::new(&case.setup);
    rig.log = Some(vec![]);
    for op in &case.operations { let r = rig.operate(op); println!("== {op:?} {r:?}"); for t in rig.log.replace(vec![]).unwrap() { println!("  {}", t.input); if let Ok(v) = t.effects { for e in v { println!("      {e:?}"); } } else { println!("     {:?}", t.effects); } } if r.is_err() { break; } }
    println!("{:?}", kvweft_tests::drive::run(&case));
}
