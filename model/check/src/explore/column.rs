//! A list that only grows, and never moves what is in it.

/// Entries of one segment.
const SEGMENT: usize = 1 << 16;

/// Values by number, in segments of a fixed size: growing takes one segment more and copies nothing, so that the memory
/// of a search is what its tables hold. The first segment grows with what is in it, for small worlds.
#[derive(Debug)]
pub(crate) struct Column<T> {
    segments: Vec<Vec<T>>,
}

impl<T> Default for Column<T> {
    fn default() -> Self {
        Self { segments: vec![Vec::new()] }
    }
}

impl<T: Copy> Column<T> {
    pub(crate) fn len(&self) -> usize {
        (self.segments.len() - 1) * SEGMENT + self.segments.last().map_or(0, Vec::len)
    }

    pub(crate) fn push(&mut self, value: T) {
        if self.segments.last().is_none_or(|last| last.len() == SEGMENT) {
            self.segments.push(Vec::with_capacity(SEGMENT));
        }
        self.segments.last_mut().expect("there is one").push(value);
    }

    #[inline]
    pub(crate) fn at(&self, index: u32) -> T {
        self.segments[index as usize / SEGMENT][index as usize % SEGMENT]
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = T> + '_ {
        (0..self.len() as u32).map(|index| self.at(index))
    }

    /// Bytes in use.
    pub(crate) fn bytes(&self) -> u64 {
        (self.len() * size_of::<T>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_under_their_number_across_segments() {
        let mut column = Column::default();
        let count = 3 * SEGMENT as u32 + 7;
        (0..count).for_each(|value| column.push(value));
        assert_eq!((column.len(), column.bytes()), (count as usize, 4 * u64::from(count)));
        assert!((0..count).all(|index| column.at(index) == index));
        assert!(column.iter().eq(0..count));
    }
}
