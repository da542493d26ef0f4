//! What steps read, against what they must read.
//!
//! A request reads all its pages at every step. Looking at each of them each time would cost more than everything else, so
//! a page that was found right is *watched*: nothing but a write to it or its release can change it, and both look whether
//! somebody watches. Then everybody looks at everything again.

use kvweft_core::{PageList, StepItem};

use crate::engine::StepRun;
use crate::memory::{NIL, STEP, Tag};
use crate::simulation::Simulation;

/// The first pages of a request in one engine, found right.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    pages: PageList,
    count: usize,
}

/// What a step read wrong, in pages: by component, KV first, and whether it came from the host tier.
#[derive(Clone, Copy, Debug, Default)]
struct Wrong {
    pages: [[u64; 2]; 2],
}

impl Simulation<'_> {
    /// How many of the first pages of an item are watched.
    pub(crate) fn watched(&self, e: usize, item: &StepItem) -> usize {
        self.clients.open(item.request).watch[e].count
    }

    /// Stops watching pages that are not the item's any more.
    pub(crate) fn sync_watch(&mut self, e: usize, item: &StepItem) {
        let watch = &self.clients.open(item.request).watch[e];
        if !watch.pages.same_table(&item.pages) {
            self.unwatch(e, item.request.0);
        }
    }

    /// Stops watching the pages of a request.
    pub(crate) fn unwatch(&mut self, e: usize, request: u32) {
        let watch = std::mem::take(&mut self.clients.open_mut(request).watch[e]);
        for block in &watch.pages[..watch.count] {
            let page = self.engines[e].tiers[0].page_mut(block.page);
            page.watchers = page.watchers.saturating_sub(1);
        }
        self.engines[e].manager.recycle_pages(watch.pages);
    }

    /// A page that somebody watches has changed.
    pub(crate) fn disturb(&mut self, e: usize) {
        for request in self.clients.in_flight() {
            self.unwatch(e, request);
        }
    }

    /// Looks at everything that an item has read.
    pub(crate) fn check_reads(&mut self, e: usize, item: &StepItem, at: u32, run: &StepRun) {
        let wanted = self.engines[e].manager.live_life(item.request) == Some(item.life);
        if !wanted || self.clients.open(item.request).corrupt {
            return;
        }
        let wrong = self.wrong_reads(e, item, at, run);
        if wrong.pages == [[0; 2]; 2] {
            return;
        }
        self.clients.open_mut(item.request.0).corrupt = true;
        let reads = &mut self.report.corrupt_reads;
        reads.requests += 1;
        reads.kv_on_device += wrong.pages[0][0];
        reads.kv_from_host += wrong.pages[0][1];
        reads.index_k_on_device += wrong.pages[1][0];
        reads.index_k_from_host += wrong.pages[1][1];
    }

    fn wrong_reads(&mut self, e: usize, item: &StepItem, at: u32, run: &StepRun) -> Wrong {
        let has_index = self.engines[e].has_index;
        let mut wrong = Wrong::default();
        // A page that this step wrote too was read before, in the layer at hand.
        let complete = (item.first_token / self.page_tokens) as usize;
        let start = self.watched(e, item);
        let mut count = start;
        let read = item.pages.len().min(item.read as usize);
        for (offset, block) in item.pages.get(start..read).unwrap_or_default().iter().enumerate() {
            let position = start + offset;
            let expected: Tag = self.clients.expected(item.request, position);
            let page = self.engines[e].tiers[0].page_mut(block.page);
            let found = [0, 1].map(|c| {
                let torn = page.is_written(c) && page.writers[c] != STEP || page.clash;
                page.content[c] == expected && !torn
            });
            let found = [found[0], found[1] || !has_index];
            if !(found[0] && found[1]) {
                let moved = page.writers.iter().any(|writer| ![NIL, STEP].contains(writer));
                let from_host = usize::from(page.reloaded || moved);
                for (component, right) in found.into_iter().enumerate() {
                    wrong.pages[component][from_host] += u64::from(!right);
                }
            } else if position < complete && count == position {
                page.watchers += 1;
                count += 1;
            }
        }
        if !run.races.is_empty() {
            self.add_lost_races(e, at, run, &mut wrong);
        }
        if count > start {
            let watch = &mut self.clients.open_mut(item.request.0).watch[e];
            watch.pages = item.pages.clone();
            watch.count = count;
        }
        wrong
    }

    /// Pages that were right in the end, but not yet when they were read.
    fn add_lost_races(&mut self, e: usize, at: u32, run: &StepRun, wrong: &mut Wrong) {
        let mut behind: [Option<u64>; 2] = [None; 2];
        let mut raced = false;
        let mut layers = 0u64;
        for race in run.races.iter().filter(|race| race.item == at) {
            let moved = &self.moves[race.moved as usize];
            raced = true;
            let mut lost = [false; 2];
            for layer in 0..self.engines[e].layers {
                let landed = moved.landed.get(usize::from(layer)).copied();
                let [index, kv] = run.read_at(layer);
                let has = self.engines[e].has[usize::from(layer)];
                for (component, (has, read)) in [(has[1], kv), (has[0], index)].into_iter().enumerate() {
                    if has && landed.is_none_or(|landed| read < landed) {
                        lost[component] = true;
                        layers |= (component as u64) << layer;
                        let by = landed.unwrap_or(self.now).saturating_sub(read);
                        behind[component] = behind[component].max(Some(by));
                    }
                }
            }
            // Where the move still goes on, its pages hold what they held before, and that was seen already.
            for (component, lost) in lost.into_iter().enumerate().filter(|_| moved.done) {
                wrong.pages[component][1] += u64::from(lost) * race.pages;
            }
        }
        let races = &mut self.report.lost_races;
        races.racing += u64::from(raced);
        races.kv += u64::from(behind[0].is_some());
        races.index_k += u64::from(behind[1].is_some());
        let count = 64 - layers.leading_zeros() as usize;
        races.index_k_by_layer.resize(count.max(races.index_k_by_layer.len()), 0);
        for (layer, lost) in races.index_k_by_layer.iter_mut().enumerate() {
            *lost += layers >> layer & 1;
        }
        self.behind.extend(behind.into_iter().flatten().max());
    }
}
