//! Request traces of Dynamo, `dynamo.request.trace.v1`: a request that ended, with the hashes of its blocks.

use serde_json::Value;

use super::{Asked, Blocks, Log, integer, values};

pub(super) fn read(text: &str, mut names: Blocks) -> Result<Log, (usize, String)> {
    let mut log = Log { block_tokens: 0, requests: Vec::new(), notes: Vec::new() };
    let mut others = 0;
    for line in values(text) {
        let (number, value) = line?;
        if value["event_type"] != "request_end" {
            others += 1;
            continue;
        }
        let asked = request(&value, &mut log.block_tokens, &mut names).map_err(|why| (number, why))?;
        log.requests.push(asked);
    }
    if others > 0 {
        log.notes.push(format!("{others} lines that are no `request_end` were passed over"));
    }
    Ok(log)
}

fn request(value: &Value, block_tokens: &mut u64, names: &mut Blocks) -> Result<Asked, String> {
    let request = &value["request"];
    let replay = &request["replay"];
    let size = integer(replay, "trace_block_size").map_err(|why| format!("request.replay: {why}"))?;
    if size == 0 || *block_tokens != 0 && size != *block_tokens {
        return Err(format!("expected a trace_block_size of {}, as above, got {size}", (*block_tokens).max(1)));
    }
    *block_tokens = size;
    let input_tokens = integer(replay, "input_length").map_err(|why| format!("request.replay: {why}"))?;
    let hashes =
        replay["input_sequence_hashes"].as_array().ok_or("expected request.replay.input_sequence_hashes, a list")?;
    let mut blocks: Vec<Vec<u8>> = hashes.iter().map(|hash| hash.to_string().into_bytes()).collect();
    let (full, all) = (input_tokens / size, input_tokens.div_ceil(size));
    if input_tokens == 0 || ![full, all].contains(&(blocks.len() as u64)) {
        return Err(format!("expected {all} hashes for {input_tokens} tokens, got {}", blocks.len()));
    }
    if (blocks.len() as u64) < all {
        // The end of a prompt that fills no block is its own.
        blocks.push(format!("end {}", request["request_id"]).into_bytes());
    }
    let at_ms = integer(request, "request_received_ms").map_err(|why| format!("request: {why}"))?;
    Ok(Asked {
        session: value["agent_context"]["session_id"].as_str().map(str::to_owned),
        at_ms,
        end_ms: integer(request, "total_time_ms").ok().map(|took| at_ms + took),
        input_tokens,
        output_tokens: integer(request, "output_tokens").map_err(|why| format!("request: {why}"))?,
        blocks: names.of(blocks.iter().map(Vec::as_slice)),
    })
}
