//! Folds the block-sharing pattern of a few requests into few blocks.

use std::collections::{BTreeMap, BTreeSet};

use super::{BlockId, Folding, Imported, Logged, Taken};
use crate::scenario::types::Request;

/// A request that makes no more than this decodes nothing: its first token comes out of the prefill.
const PREFILLED_TOKENS: u64 = 1;

/// Blocks that always occur together, in every request the same neighbours, become one block named A, B, C..
pub(super) fn folded(taken: &Taken, blocks_max: Option<usize>) -> Imported {
    let heads = heads(&taken.requests);
    let mut names: BTreeMap<BlockId, String> = BTreeMap::new();
    let mut cut: Vec<String> = Vec::new();
    let (mut requests, mut outputs) = (Vec::new(), 0);
    for logged in &taken.requests {
        let starts = logged.blocks.iter().filter(|block| heads.contains(*block));
        let mut prompt = Vec::new();
        let mut whole = 0;
        for start in starts {
            whole += 1;
            if blocks_max.is_none_or(|max| whole <= max) {
                let next = letter(names.len());
                prompt.push(names.entry(*start).or_insert(next).clone());
            }
        }
        if whole > prompt.len() {
            cut.push(format!("{} from {whole} to {}", logged.name, prompt.len()));
        }
        let decodes = logged.output_tokens > PREFILLED_TOKENS;
        if decodes {
            outputs += 1;
        }
        requests.push(Request {
            name: logged.name.clone(),
            prompt,
            output: decodes.then(|| format!("out{outputs}")).into_iter().collect(),
            after: logged.after.iter().cloned().collect(),
            retries: 0,
            priority: 0,
        });
    }
    let real: BTreeSet<&BlockId> = taken.requests.iter().flat_map(|logged| &logged.blocks).collect();
    let folding = Folding {
        requests: requests.len(),
        blocks_real: real.len(),
        tokens_real: taken.requests.iter().map(|logged| logged.tokens).sum(),
        blocks_folded: names.len(),
        note: note(taken, real.len(), names.len(), &cut),
    };
    Imported { requests, folding }
}

/// The first block of every run: all blocks but those that always stand behind the same block that is always before them.
fn heads(requests: &[Logged]) -> BTreeSet<BlockId> {
    // The only neighbour on each side, or `None` where there are several or an end.
    let mut before: BTreeMap<BlockId, Option<BlockId>> = BTreeMap::new();
    let mut behind: BTreeMap<BlockId, Option<BlockId>> = BTreeMap::new();
    let note = |map: &mut BTreeMap<BlockId, Option<BlockId>>, block: BlockId, neighbour: Option<BlockId>| {
        let known = map.entry(block).or_insert(neighbour);
        if *known != neighbour {
            *known = None;
        }
    };
    for logged in requests {
        for (i, block) in logged.blocks.iter().enumerate() {
            note(&mut before, *block, i.checked_sub(1).map(|i| logged.blocks[i]));
            note(&mut behind, *block, logged.blocks.get(i + 1).copied());
        }
    }
    let joined = |block: &BlockId| {
        let left = before.get(block).copied().flatten();
        left.is_some_and(|left| behind.get(&left).copied().flatten() == Some(*block))
    };
    before.keys().filter(|block| !joined(block)).copied().collect()
}

/// A, B, .. Z, A1, B1, ..
fn letter(n: usize) -> String {
    let letter = char::from(b'A' + (n % 26) as u8);
    if n < 26 { letter.to_string() } else { format!("{letter}{}", n / 26) }
}

fn note(taken: &Taken, real: usize, folded: usize, cut: &[String]) -> String {
    let sizes: Vec<String> = taken.block_tokens.iter().map(u64::to_string).collect();
    let count = |n: usize, what: &str| {
        if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
    };
    let requests = count(taken.requests.len(), "request");
    let mut note =
        format!("{requests}, {} of {} tokens folded into {folded}", count(real, "real block"), sizes.join(" or "));
    if !cut.is_empty() {
        note.push_str(&format!("; prompts cut: {}", cut.join(", ")));
    }
    if taken.sub_agents > 0 {
        note.push_str(&format!("; {} left out", count(taken.sub_agents, "sub-agent")));
    }
    note
}
