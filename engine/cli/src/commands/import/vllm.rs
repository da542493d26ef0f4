//! KV events of vLLM, a batch a line: which blocks were stored behind which. Requests are not in them; each block that no other
//! one follows stands for a request with everything before it.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{Asked, Blocks, Log, values};

/// A block that was stored.
struct Stored {
    parent: Option<String>,
    at_ms: u64,
}

pub(super) fn read(text: &str, mut names: Blocks) -> Result<Log, (usize, String)> {
    let notes = vec!["KV events name no requests: each last block stands for one, with 1 token of answer".to_owned()];
    let mut log = Log { block_tokens: 0, requests: Vec::new(), notes };
    let mut order: Vec<String> = Vec::new();
    let mut stored: HashMap<String, Stored> = HashMap::new();
    for line in values(text) {
        let (number, batch) = line?;
        let (ts, events) = if batch.is_array() { (&batch[0], &batch[1]) } else { (&batch["ts"], &batch["events"]) };
        let (Some(ts), Some(events)) = (ts.as_f64(), events.as_array()) else {
            return Err((
                number,
                "expected a batch: [ts, [event, ..], rank], or an object with ts and events".to_owned(),
            ));
        };
        for event in events {
            let Some((hashes, parent, size)) = stored_event(event).map_err(|why| (number, why))? else { continue };
            if size == 0 || log.block_tokens != 0 && size != log.block_tokens {
                let expected = log.block_tokens.max(1);
                return Err((number, format!("expected blocks of {expected} tokens, as above, got {size}")));
            }
            log.block_tokens = size;
            let mut before = parent.filter(|parent| stored.contains_key(parent));
            for hash in hashes {
                if !stored.contains_key(&hash) {
                    stored.insert(hash.clone(), Stored { parent: before, at_ms: (ts * 1000.0) as u64 });
                    order.push(hash.clone());
                }
                before = Some(hash);
            }
        }
    }
    let inner: HashSet<&String> = stored.values().filter_map(|block| block.parent.as_ref()).collect();
    for last in order.iter().filter(|hash| !inner.contains(hash)) {
        let mut path = vec![last.as_bytes()];
        let mut at = &stored[last];
        while let Some(parent) = &at.parent {
            path.push(parent.as_bytes());
            at = &stored[parent];
        }
        path.reverse();
        let input_tokens = path.len() as u64 * log.block_tokens;
        let at_ms = stored[last].at_ms;
        let blocks = names.of(path);
        log.requests.push(Asked { session: None, at_ms, end_ms: None, input_tokens, output_tokens: 1, blocks });
    }
    Ok(log)
}

type Hashes = (Vec<String>, Option<String>, u64);

/// Hashes, parent and block size of a `BlockStored`, as an array or as an object.
fn stored_event(event: &Value) -> Result<Option<Hashes>, String> {
    let is_array = event.is_array();
    let field = |at: usize, name: &str| if is_array { &event[at] } else { &event[name] };
    if field(0, "type") != "BlockStored" {
        return Ok(None);
    }
    let hashes = field(1, "block_hashes").as_array().ok_or("expected the block_hashes of a BlockStored, a list")?;
    let size = field(4, "block_size").as_u64().ok_or("expected the block_size of a BlockStored, an integer")?;
    let parent = field(2, "parent_block_hash");
    let parent = (!parent.is_null()).then(|| parent.to_string());
    Ok(Some((hashes.iter().map(Value::to_string).collect(), parent, size)))
}
