//! Local names: what a trace calls the pages, transfers and steps that the manager hands out.
//!
//! Names count from one in order of appearance, so that they survive a change of allocator: a trace never shows the number
//! of a slot.

use kvweft_core::{BlockRef, StepId, Tier, TransferId};

/// The pools whose pages a trace tells apart, with the letter of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageSet {
    /// Which engine.
    pub engine: u8,
    /// Which tier.
    pub tier: Tier,
}

impl PageSet {
    /// `p` for the first engine's device, `q` for the second's, `h` for host pages.
    pub fn letter(self) -> char {
        match (self.engine, self.tier) {
            (_, Tier::HOST) => 'h',
            (0, _) => 'p',
            _ => 'q',
        }
    }
}

/// The names bound so far.
#[derive(Clone, Debug, Default)]
pub struct LocalNames {
    pages: Vec<(PageSet, BlockRef)>,
    transfers: Vec<(u8, TransferId)>,
    steps: Vec<(u8, StepId)>,
}

fn number<T: PartialEq>(list: &mut Vec<T>, item: T) -> usize {
    let position = list.iter().position(|known| *known == item);
    position.unwrap_or_else(|| {
        list.push(item);
        list.len() - 1
    })
}

impl LocalNames {
    /// The name of a page in one life of its slot.
    pub fn page(&mut self, engine: u8, block: BlockRef) -> String {
        let set = PageSet { engine, tier: block.tier };
        number(&mut self.pages, (set, block));
        let same = self.pages.iter().filter(|(other, _)| other.letter() == set.letter());
        let position = same.clone().position(|(_, known)| *known == block).unwrap_or(0);
        format!("{}{}", set.letter(), position + 1)
    }

    /// The name of a copy or send.
    pub fn transfer(&mut self, engine: u8, id: TransferId) -> String {
        format!("t{}", number(&mut self.transfers, (engine, id)) + 1)
    }

    /// The name of a step.
    pub fn step(&mut self, engine: u8, id: StepId) -> String {
        format!("s{}", number(&mut self.steps, (engine, id)) + 1)
    }
}
