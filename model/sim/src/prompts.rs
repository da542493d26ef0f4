//! Prompts as pages: the blocks of a log cut, or put together, to the size of a page.

use kvweft_core::BlockHash;

use crate::workload::{Request, Workload, block_hash};

/// The prompt of the last request of a chain.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chain {
    ids: Vec<u64>,
    /// Hashes of the pages that the blocks fill.
    pub(crate) pages: Vec<BlockHash>,
}

/// How blocks become pages; one divides the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    block_tokens: usize,
    page_tokens: usize,
}

impl Cut {
    pub(crate) fn new(block_tokens: u32, page_tokens: u32) -> Cut {
        Cut { block_tokens: block_tokens as usize, page_tokens: page_tokens as usize }
    }

    /// Pages that so many blocks fill.
    fn pages(self, blocks: usize) -> usize {
        blocks * self.block_tokens / self.page_tokens
    }

    /// The hash of a page; a block's id stands for everything before it too, so that of the last block will do.
    fn hash(self, scope: u64, page: usize, id: impl Fn(usize) -> u64) -> BlockHash {
        let end = (page + 1) * self.page_tokens;
        let block = end.div_ceil(self.block_tokens) - 1;
        block_hash(scope, id(block), (end - block * self.block_tokens) as u64)
    }
}

impl Chain {
    /// Goes on from the last request of the chain to this one.
    pub(crate) fn advance(&mut self, workload: &Workload, scope: u64, request: &Request, cut: Cut) {
        self.ids.truncate(request.keep as usize);
        for run in &workload.runs[request.runs.start as usize..request.runs.end as usize] {
            self.ids.extend(run.first..run.first + u64::from(run.count));
        }
        self.pages.truncate(cut.pages(request.keep as usize));
        let ids = &self.ids;
        let fresh = (self.pages.len()..cut.pages(ids.len())).map(|page| cut.hash(scope, page, |block| ids[block]));
        self.pages.extend(fresh);
    }

    /// The pages from `first` on that the answer completes, where the log knows its blocks.
    pub(crate) fn answer(&self, scope: u64, request: &Request, cut: Cut, first: usize) -> Vec<BlockHash> {
        let Some(run) = request.answer else { return Vec::new() };
        let known = self.ids.len();
        let id = |block: usize| {
            let behind = || run.first + (block - known) as u64;
            self.ids.get(block).copied().unwrap_or_else(behind)
        };
        let pages = first..cut.pages(known + run.count as usize);
        pages.map(|page| cut.hash(scope, page, id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Asked, Builder};

    /// Two requests of one chain: ten blocks, then six of them and six others.
    fn pages(block_tokens: u32, page_tokens: u32) -> [Vec<BlockHash>; 2] {
        let mut builder = Builder::new(block_tokens);
        builder.request(0, &Asked { runs: vec![(0, 10)], ..Asked::default() });
        builder.request(0, &Asked { keep: 6, runs: vec![(100, 6)], ..Asked::default() });
        builder.session(7, 0);
        let workload = builder.finish();
        let cut = Cut::new(block_tokens, page_tokens);
        let mut chain = Chain::default();
        [0, 1].map(|request| {
            chain.advance(&workload, 7, &workload.requests[request], cut);
            chain.pages.clone()
        })
    }

    fn shared([a, b]: &[Vec<BlockHash>; 2]) -> usize {
        a.iter().zip(b).take_while(|(a, b)| a == b).count()
    }

    #[test]
    fn pages_share_what_blocks_share_whatever_their_sizes() {
        for (block, page, lengths, common) in
            [(64, 64, [10, 12], 6), (512, 64, [80, 96], 48), (64, 256, [2, 3], 1), (64, 128, [5, 6], 3)]
        {
            let pages = pages(block, page);
            assert_eq!(pages.each_ref().map(Vec::len), lengths, "blocks of {block}, pages of {page}");
            assert_eq!(shared(&pages), common, "blocks of {block}, pages of {page}");
            let mut all: Vec<BlockHash> = pages[0].iter().chain(&pages[1][common..]).copied().collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), pages[0].len() + pages[1].len() - common);
        }
    }
}
