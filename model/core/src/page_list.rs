//! A list of pages that many can look at and nobody has to copy.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::{Deref, DerefMut};

use crate::ids::BlockRef;

/// The first pages of a shared table: a slice that is cloned without copying it. A step names every page of its requests,
/// and the next step names the same ones again.
#[derive(Clone, Default)]
pub struct PageList {
    /// `None` where there never was a page: an empty list costs no memory.
    table: Option<Arc<Vec<BlockRef>>>,
    len: usize,
}

impl PageList {
    /// The first `len` pages.
    pub(crate) fn first(&self, len: usize) -> PageList {
        debug_assert!(len <= self.len);
        PageList { table: self.table.clone(), len }
    }

    /// Whether both are of one table, however many pages of it they have.
    pub fn same_table(&self, other: &PageList) -> bool {
        match (&self.table, &other.table) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }

    /// The whole table, to be written anew; `None` while somebody else looks at it.
    pub(crate) fn table_mut(&mut self) -> Option<&mut Vec<BlockRef>> {
        Arc::get_mut(self.table.get_or_insert_default())
    }

    /// Looks at the whole table again after it was written.
    pub(crate) fn look_at_all(&mut self) {
        self.len = self.table.as_ref().map_or(0, |table| table.len());
    }
}

impl From<Vec<BlockRef>> for PageList {
    fn from(pages: Vec<BlockRef>) -> PageList {
        PageList { len: pages.len(), table: Some(Arc::new(pages)) }
    }
}

impl Deref for PageList {
    type Target = [BlockRef];

    fn deref(&self) -> &[BlockRef] {
        self.table.as_ref().map_or(&[], |table| &table[..self.len])
    }
}

/// Writing to a list that others look at writes to a copy.
impl DerefMut for PageList {
    fn deref_mut(&mut self) -> &mut [BlockRef] {
        &mut Arc::make_mut(self.table.get_or_insert_default())[..self.len]
    }
}

impl<'a> IntoIterator for &'a PageList {
    type Item = &'a BlockRef;
    type IntoIter = core::slice::Iter<'a, BlockRef>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for PageList {
    fn eq(&self, other: &PageList) -> bool {
        **self == **other
    }
}

impl Eq for PageList {}

impl Hash for PageList {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for PageList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for PageList {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for PageList {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<PageList, D::Error> {
        Vec::deserialize(deserializer).map(PageList::from)
    }
}
