//! The reference: what every page holds and who has it, kept in the plainest way from what the manager says.

use std::collections::BTreeMap;

use kvweft_core::{BlockHash, BlockRef, Component, Move, MoveKind, Tier};

use crate::operation::LAYERS;

/// What a check says when it does not hold.
pub type Checked = Result<(), String>;

/// What one component of one layer of a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing that anybody may rely on.
    Poison,
    /// Bytes of several writes, or of a write that failed.
    Torn,
    /// The first `tokens` tokens of a block.
    Tokens {
        /// The block's name.
        block: BlockHash,
        /// How many of its tokens are there.
        tokens: u32,
    },
}

/// One component of one layer of a page.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// What it holds.
    pub content: Content,
    /// Writes under way.
    pub writers: u32,
    /// Copies and sends that are reading it.
    pub readers: u32,
}

/// Who has a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Nobody.
    Free,
    /// A request or the tree.
    Taken,
    /// Nobody, but an operation may still touch it.
    Draining,
}

/// A page.
#[derive(Clone, Debug)]
pub struct Page {
    /// Who has it.
    pub owner: Owner,
    /// The life that the manager named last.
    pub generation: u32,
    /// The block under which others may find it.
    pub published: Option<BlockHash>,
    /// The block that a reload under way will put there.
    pub loading: Option<BlockHash>,
    cells: BTreeMap<(u8, Component), Cell>,
}

/// How many pages of a tier are in which hands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Counts {
    pub free: u32,
    pub taken: u32,
    pub draining: u32,
    pub published: u32,
}

/// Both tiers of one engine.
#[derive(Clone, Debug)]
pub struct Shadow {
    /// Pages by tier and number.
    pub pages: BTreeMap<(Tier, u32), Page>,
    page_tokens: u32,
}

/// The published pages of an engine: which page, in which life, under which name.
pub type Published = BTreeMap<(Tier, u32, u32), BlockHash>;

/// How many blocks of a prompt are published from its start without a gap.
pub fn longest_match(published: &Published, names: &[BlockHash]) -> usize {
    names.iter().take_while(|name| published.values().any(|known| known == *name)).count()
}

fn describe(block: BlockRef) -> String {
    let tier = if block.tier == Tier::DEVICE { "device" } else { "host" };
    format!("{tier} page {} of generation {}", block.page.0, block.generation.0)
}

impl Shadow {
    /// All pages free.
    pub fn new(device: u32, host: u32, page_tokens: u16, index_keys: bool) -> Shadow {
        let mut components = vec![Component::Kv];
        if index_keys {
            components.push(Component::IndexK);
        }
        let cell = Cell { content: Content::Poison, writers: 0, readers: 0 };
        let units = (0..LAYERS).flat_map(|layer| components.iter().map(move |&component| (layer, component)));
        let cells: BTreeMap<_, _> = units.map(|unit| (unit, cell)).collect();
        let page = Page { owner: Owner::Free, generation: 0, published: None, loading: None, cells };
        let mut pages = BTreeMap::new();
        for (tier, count) in [(Tier::DEVICE, device), (Tier::HOST, host)] {
            for number in 0..count {
                pages.insert((tier, number), page.clone());
            }
        }
        Shadow { pages, page_tokens: u32::from(page_tokens) }
    }

    /// A page in whatever life it is.
    pub fn page(&self, block: BlockRef) -> &Page {
        &self.pages[&(block.tier, block.page.0)]
    }

    /// A page in whatever life it is.
    pub fn page_mut(&mut self, block: BlockRef) -> &mut Page {
        self.pages.get_mut(&(block.tier, block.page.0)).expect("pages are numbered from 0")
    }

    fn cell_mut(&mut self, block: BlockRef, unit: (u8, Component)) -> &mut Cell {
        self.page_mut(block).cells.get_mut(&unit).expect("every page has every unit")
    }

    /// Which components a layer has.
    pub fn components(&self) -> Vec<Component> {
        let page = self.pages.values().next().expect("a pool has at least one page");
        page.cells.keys().filter(|(layer, _)| *layer == 0).map(|&(_, component)| component).collect()
    }

    /// The manager says that ownership or visibility has changed.
    pub fn moved(&mut self, moved: &Move) -> Checked {
        for (at, &block) in moved.pages.iter().enumerate() {
            let name = describe(block);
            let page = self.page_mut(block);
            match moved.what {
                MoveKind::Take if page.owner != Owner::Free => return Err(format!("{name} is handed out twice")),
                MoveKind::Take if page.generation == block.generation.0 => {
                    return Err(format!("{name} is handed out again in the same life"));
                }
                MoveKind::Take => {
                    page.owner = Owner::Taken;
                    page.generation = block.generation.0;
                }
                MoveKind::Free | MoveKind::Drain | MoveKind::Publish if page.owner == Owner::Free => {
                    return Err(format!("{name} is free already: {:?}", moved.what));
                }
                MoveKind::Free | MoveKind::Drain | MoveKind::Publish if page.generation != block.generation.0 => {
                    return Err(format!("{name} has another life by now, {}: {:?}", page.generation, moved.what));
                }
                MoveKind::Free => {
                    page.owner = Owner::Free;
                    page.published = None;
                    page.loading = None;
                    page.cells.values_mut().for_each(|cell| cell.content = Content::Poison);
                }
                MoveKind::Drain if page.owner == Owner::Draining => return Err(format!("{name} drains twice")),
                MoveKind::Drain => {
                    page.owner = Owner::Draining;
                    page.published = None;
                }
                MoveKind::Publish => self.publish(block, *moved.blocks.get(at).ok_or("a page without a name")?)?,
            }
        }
        Ok(())
    }

    fn publish(&mut self, block: BlockRef, hash: BlockHash) -> Checked {
        let page = self.page_mut(block);
        if page.owner == Owner::Draining {
            return Err(format!("{} is published while it drains", describe(block)));
        }
        if let Some(known) = page.published {
            return Err(format!("{} is published as {} and again as {}", describe(block), known.0, hash.0));
        }
        page.published = Some(hash);
        page.loading = None;
        self.check_complete(block)
    }

    /// A published page holds every byte of its block.
    fn check_complete(&self, block: BlockRef) -> Checked {
        let page = self.page(block);
        let Some(hash) = page.published else { return Ok(()) };
        let whole = Content::Tokens { block: hash, tokens: self.page_tokens };
        for (unit, cell) in &page.cells {
            if cell.content != whole || cell.writers > 0 {
                let name = describe(block);
                return Err(format!("{name} is visible as block {} but its {unit:?} is {cell:?}", hash.0));
            }
        }
        Ok(())
    }

    /// Every published page holds every byte of its block.
    pub fn check_published(&self) -> Checked {
        for (&(tier, number), page) in &self.pages {
            let block = BlockRef {
                group: kvweft_core::Group(0),
                tier,
                page: kvweft_core::PageId(number),
                generation: kvweft_core::Generation(page.generation),
            };
            self.check_complete(block)?;
        }
        Ok(())
    }

    /// The published pages.
    pub fn published(&self) -> Published {
        let named = |(&(tier, number), page): (&(Tier, u32), &Page)| {
            page.published.map(|block| ((tier, number, page.generation), block))
        };
        self.pages.iter().filter_map(named).collect()
    }

    /// How many pages of a tier are in which hands.
    pub fn counts(&self, tier: Tier) -> Counts {
        let mut counts = Counts::default();
        for page in self.pages.iter().filter(|((of, _), _)| *of == tier).map(|(_, page)| page) {
            match page.owner {
                Owner::Free => counts.free += 1,
                Owner::Taken => counts.taken += 1,
                Owner::Draining => counts.draining += 1,
            }
            counts.published += u32::from(page.published.is_some());
        }
        counts
    }

    /// An operation issued for this life of a page may touch it.
    pub fn check_owned(&self, block: BlockRef, who: &str) -> Checked {
        let page = self.page(block);
        if page.owner == Owner::Free || page.generation != block.generation.0 {
            return Err(format!("{who} touches {}, which is {:?}/{}", describe(block), page.owner, page.generation));
        }
        Ok(())
    }

    /// A copy or send begins to read.
    pub fn begin_read(&mut self, block: BlockRef, unit: (u8, Component), who: &str) -> Result<Content, String> {
        self.check_owned(block, who)?;
        let cell = self.cell_mut(block, unit);
        cell.readers += 1;
        if cell.writers > 0 {
            return Err(format!("{who} reads {} while it is written", describe(block)));
        }
        Ok(cell.content)
    }

    /// A copy or send has read; what it got.
    pub fn end_read(
        &mut self,
        block: BlockRef,
        unit: (u8, Component),
        seen: Content,
        who: &str,
    ) -> Result<Content, String> {
        self.check_owned(block, who)?;
        let cell = self.cell_mut(block, unit);
        cell.readers -= 1;
        Ok(if cell.writers > 0 || cell.content != seen { Content::Torn } else { seen })
    }

    /// Somebody begins to write.
    pub fn begin_write(&mut self, block: BlockRef, unit: (u8, Component), who: &str) -> Checked {
        let cell = self.cell_mut(block, unit);
        cell.writers += 1;
        if cell.readers > 0 {
            return Err(format!("{who} writes {} while a copy or send reads it", describe(block)));
        }
        Ok(())
    }

    /// A copy or send has written.
    pub fn end_write(&mut self, block: BlockRef, unit: (u8, Component), content: Content) {
        let cell = self.cell_mut(block, unit);
        cell.content = if cell.writers > 1 { Content::Torn } else { content };
        cell.writers -= 1;
    }

    /// A step has written tokens `from..to` of a block.
    pub fn end_tokens(
        &mut self,
        block: BlockRef,
        unit: (u8, Component),
        name: BlockHash,
        from: u32,
        to: u32,
        spoiled: bool,
    ) {
        let before = Content::Tokens { block: name, tokens: from };
        let cell = self.cell_mut(block, unit);
        let fits = from == 0 || cell.content == before;
        let whole = fits && !spoiled && cell.writers == 1;
        cell.content = if whole { Content::Tokens { block: name, tokens: to } } else { Content::Torn };
        cell.writers -= 1;
    }

    /// A step reads the first `tokens` tokens of a block and must find them.
    pub fn check_read(&self, block: BlockRef, unit: (u8, Component), name: BlockHash, tokens: u32) -> Checked {
        let cell = self.page(block).cells[&unit];
        let right =
            matches!(cell.content, Content::Tokens { block, tokens: there } if block == name && there >= tokens);
        if right && cell.writers == 0 {
            return Ok(());
        }
        let place = describe(block);
        Err(format!("a step reads {tokens} tokens of block {} in {place} and finds {cell:?} in {unit:?}", name.0))
    }

    /// All cells of a page hold the first `tokens` tokens of a block.
    pub fn check_arrived(&self, block: BlockRef, name: BlockHash, tokens: u32) -> Checked {
        for &unit in self.page(block).cells.keys() {
            self.check_read(block, unit, name, tokens)?;
        }
        Ok(())
    }
}
