use kvweft_check::scenario::*;
use std::fmt::Write;
fn show(r: Result<Imported, Errors>) -> String { match r { Ok(i) => { let mut s=String::new(); for r in &i.requests { let _=write!(s,"{} {:?} {:?} {:?}; ",r.name,r.prompt,r.output,r.after);} format!("{s}| {:?}",i.folding)}, Err(e)=>e.render_plain() } }
#[test]
fn dump() {
    let e = Embedded;
    let syn = e.data("mooncake-synthetic-head.jsonl").unwrap().unwrap();
    let con = e.data("mooncake-conversation-head.jsonl").unwrap().unwrap();
    let ses = e.data("agentic-sessions-head.jsonl").unwrap().unwrap();
    for rows in [vec![42,49],vec![15,58],vec![15,58,74],vec![57,61],vec![15,42,49],vec![57,61,66]] { println!("syn {rows:?} {}", show(import(&syn.name,&syn.text,&Pick::Mooncake{rows:rows.clone(),blocks_max:None}))); }
    for rows in [vec![0,3],vec![66,133],vec![10,134],vec![1,137],vec![1,3,137],vec![0,1,2],vec![33],vec![66,133,139]] { println!("con {rows:?} {}", show(import(&con.name,&con.text,&Pick::Mooncake{rows:rows.clone(),blocks_max:None}))); }
    println!("con max2 {}", show(import(&con.name,&con.text,&Pick::Mooncake{rows:vec![1,3,137],blocks_max:Some(2)})));
    for (skip,sessions,turns) in [(0,1,2),(0,1,3),(1,1,3),(0,2,2),(0,2,3),(2,1,3),(2,1,8),(0,3,2)] { println!("ses {skip} {sessions} {turns} {}", show(import(&ses.name,&ses.text,&Pick::Sessions{skip,sessions,turns,blocks_max:None}))); }
    println!("{}", show(import(&ses.name,&ses.text,&Pick::Sessions{skip:3,sessions:1,turns:2,blocks_max:None})));
    println!("{}", show(import(&ses.name,&ses.text,&Pick::Sessions{skip:0,sessions:1,turns:4,blocks_max:None})));
    println!("{}", show(import(&syn.name,&syn.text,&Pick::Mooncake{rows:vec![80],blocks_max:None})));
    for bad in ["{\"timestamp\":0,\"input_length\":513,\"output_length\":1,\"hash_ids\":[0]}\n", "{\"timestamp\":5,\"input_length\":1,\"output_length\":1,\"hash_ids\":[0]}\n{\"timestamp\":4,\"input_length\":1,\"output_length\":1,\"hash_ids\":[0]}\nnonsense\n{\"timestamp\":9,\"input_length\":1,\"output_length\":1}\n",
      "{\"timestamp\":0,\"input_length\":600,\"output_length\":1,\"hash_ids\":[0,1]}\n{\"timestamp\":4,\"input_length\":600,\"output_length\":1,\"hash_ids\":[2,1]}\n"] { println!("{}", show(import("log.jsonl",bad,&Pick::Mooncake{rows:vec![0,1],blocks_max:None}))); }
    for bad in ["{\"id\":\"x\",\"block_size\":64,\"requests\":[{\"in\":64,\"out\":1,\"keep\":1,\"runs\":[]}]}","{\"id\":\"x\",\"block_size\":64,\"requests\":[{\"in\":64,\"out\":1,\"keep\":0,\"runs\":[[0,99999999999]]}]}","{\"id\":\"x\",\"block_size\":64,\"requests\":[{\"in\":64,\"out\":1}]}"] { println!("{}", show(import("log.jsonl",bad,&Pick::Sessions{skip:0,sessions:1,turns:1,blocks_max:None}))); }
}
