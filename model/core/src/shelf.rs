//! Emptied lists, kept to be used again.

use alloc::vec::Vec;

/// The capacity of the smallest lists that are made.
const LEAST: usize = 4;

/// Emptied lists by the power of two that their capacity reaches, so that a long list is never spent on a short need
/// while a short one is there, and a short one never grows.
#[derive(Debug)]
pub(crate) struct Shelf<T> {
    powers: Vec<Power<T>>,
    keeps: bool,
}

/// The lists of one power of two.
#[derive(Debug)]
struct Power<T> {
    lists: Vec<Vec<T>>,
    made: usize,
}

impl<T> Default for Shelf<T> {
    fn default() -> Shelf<T> {
        Shelf { powers: Vec::new(), keeps: true }
    }
}

/// Lists are memory, not state: a copy has none. It keeps none either, for managers are copied where each of them takes
/// a few inputs only, as in the explorer, and there keeping costs more than it saves.
impl<T> Clone for Shelf<T> {
    fn clone(&self) -> Shelf<T> {
        Shelf { powers: Vec::new(), keeps: false }
    }
}

impl<T> Shelf<T> {
    /// An empty list with room for `len` entries.
    pub(crate) fn take(&mut self, len: usize) -> Vec<T> {
        if len == 0 || !self.keeps {
            return Vec::with_capacity(len);
        }
        let room = len.next_power_of_two().max(LEAST);
        let power = room.ilog2() as usize;
        if let Some(list) = self.powers.iter_mut().skip(power).find_map(|power| power.lists.pop()) {
            return list;
        }
        // A few more than are needed now: how many are in use goes up and down, and a high tide should not allocate.
        let Power { lists, made } = self.power(power);
        let more = 1 + *made / 4;
        *made += more;
        lists.extend((1..more).map(|_| Vec::with_capacity(room)));
        lists.reserve(*made - lists.len());
        Vec::with_capacity(room)
    }

    fn power(&mut self, power: usize) -> &mut Power<T> {
        if self.powers.len() <= power {
            self.powers.resize_with(power + 1, || Power { lists: Vec::new(), made: 0 });
        }
        &mut self.powers[power]
    }

    /// Puts a list that nobody needs on the shelf.
    pub(crate) fn keep(&mut self, mut list: Vec<T>) {
        if list.capacity() == 0 || !self.keeps {
            return;
        }
        list.clear();
        let power = list.capacity().ilog2() as usize;
        self.power(power).lists.push(list);
    }

    /// Makes room for `more` further entries in a list in use.
    pub(crate) fn reserve(&mut self, list: &mut Vec<T>, more: usize) {
        if list.capacity() - list.len() >= more {
            return;
        }
        let mut roomier = self.take(list.len() + more);
        roomier.append(list);
        self.keep(core::mem::replace(list, roomier));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_list_is_handed_out_again_to_any_need_that_fits() {
        let mut shelf: Shelf<u32> = Shelf::default();
        let mut list = shelf.take(100);
        list.push(1);
        let place = list.as_ptr();
        shelf.keep(list);
        assert!(shelf.take(129).capacity() >= 129);
        let again = shelf.take(3);
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
    }

    #[test]
    fn a_copy_has_no_lists_and_keeps_none() {
        let mut copy = Shelf::<u32>::default().clone();
        copy.keep(Vec::with_capacity(8));
        assert_eq!(copy.take(3).capacity(), 3);
    }

    #[test]
    fn a_list_in_use_keeps_its_entries_when_it_gets_room() {
        let mut shelf: Shelf<u32> = Shelf::default();
        let mut list = shelf.take(4);
        list.extend(0..4);
        shelf.reserve(&mut list, 60);
        let place = list.as_ptr();
        list.extend(4..64);
        assert_eq!(list.as_ptr(), place);
        assert!(list.iter().copied().eq(0..64));
    }
}
