//! Which of many copies lie side by side.

/// Sorts copies by where they come from, and parts them into runs: in each, both ends of a copy lie directly behind those of
/// the copy before. A copy without a place is a run by itself.
pub(super) fn runs<T>(copies: &mut [T], place: impl Fn(&T) -> Option<[usize; 2]>) -> Vec<&[T]> {
    copies.sort_by_key(&place);
    let adjoin = |a: &T, b: &T| match (place(a), place(b)) {
        (Some([from, to]), Some(next)) => next == [from + 1, to + 1],
        _ => false,
    };
    copies.chunk_by(adjoin).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pairs: &[[usize; 2]]) -> Vec<Vec<[usize; 2]>> {
        let mut pairs = pairs.to_vec();
        runs(&mut pairs, |pair| Some(*pair)).into_iter().map(<[_]>::to_vec).collect()
    }

    #[test]
    fn a_run_is_contiguous_on_both_sides() {
        assert!(found(&[]).is_empty());
        assert_eq!(found(&[[3, 7], [4, 8], [5, 9]]), [vec![[3, 7], [4, 8], [5, 9]]]);
        assert_eq!(found(&[[3, 7], [4, 9], [5, 10]]), [vec![[3, 7]], vec![[4, 9], [5, 10]]], "a gap at the target");
        assert_eq!(found(&[[3, 7], [5, 8]]), [vec![[3, 7]], vec![[5, 8]]], "a gap at the source");
        assert_eq!(found(&[[3, 8], [4, 7]]), [vec![[3, 8]], vec![[4, 7]]], "one end goes up, the other down");
    }

    #[test]
    fn the_order_of_copies_does_not_matter() {
        let run = vec![[3, 7], [4, 8], [5, 9]];
        assert_eq!(found(&[[5, 9], [3, 7], [9, 1], [4, 8]]), [run.clone(), vec![[9, 1]]]);
        assert_eq!(found(&[[5, 9], [4, 8], [3, 7]]), [run], "pages that were given out downwards");
    }

    #[test]
    fn a_page_that_is_copied_twice_and_one_without_a_place_end_a_run() {
        assert_eq!(found(&[[3, 7], [3, 7], [4, 8]]), [vec![[3, 7]], vec![[3, 7], [4, 8]]]);
        let mut halves = [1, 2, 3];
        assert_eq!(runs(&mut halves, |_| None), [[1], [2], [3]]);
    }
}
