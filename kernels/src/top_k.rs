//! The positions of the largest logits, exactly.
//!
//! The threshold is found by its bits, eight at a time from the top: four histograms, each over the whole row. No
//! candidates are collected on the way, so that no buffer for them can be too small, which is how several public
//! kernels lose some (for instance sglang issue 36807 and vLLM issue 51782).

/// Ranks that are looked at together: if none of them matters, they cost a comparison each.
const CHUNK: usize = 16;

/// What a selection met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TopK {
    /// How many logits are NaN, selected or not. A sound cache has none: poison was read.
    pub nan: u32,
    /// How many logits were left out although they equal the smallest selected one. With 0, the selection is the only
    /// one possible; otherwise it is this one because ties go to the lowest position. A relu makes this common.
    pub ties: u32,
}

/// Writes the positions of the `k` largest logits to `out`, ascending, in place of what it held.
///
/// Of equal logits, the one at the lower position is larger; -0 equals +0; all NaN are equal, and below -infinity.
/// If there are no more than `k` logits, all are selected. The time is linear in the number of logits, and so is the
/// capacity that `out` comes to have.
///
/// # Panics
///
/// If there are more than `u32::MAX` logits.
pub fn top_k(logits: &[f32], k: usize, out: &mut Vec<u32>) -> TopK {
    let len = u32::try_from(logits.len()).expect("positions are 32-bit");
    let nan = logits.iter().map(|logit| u32::from(logit.is_nan())).sum();
    out.clear();
    if logits.len() <= k {
        out.extend(0..len);
        return TopK { nan, ties: 0 };
    }
    if k == 0 {
        return TopK { nan, ties: 0 };
    }
    // The ranks make room for the positions: there are never more positions than ranks that are done with.
    out.extend(logits.iter().map(|logit| rank(*logit)));
    let threshold = threshold(out, k);
    let selected = emit(out, &threshold);
    debug_assert_eq!(selected, k);
    out.truncate(selected);
    TopK { nan, ties: threshold.equal - threshold.equal_selected }
}

/// The `k`-th largest of more than `k` logits.
struct Threshold {
    /// Its rank.
    rank: u32,
    /// How many logits have this rank.
    equal: u32,
    /// How many of them belong to the `k` largest; at least 1.
    equal_selected: u32,
}

/// A number whose order as an integer is that of logits: NaN is 0, and both zeros are the same.
#[inline]
fn rank(logit: f32) -> u32 {
    let bits = logit.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let negative = bits >> 31 == 1 && magnitude != 0;
    let ordered = if negative { !bits } else { magnitude | 0x8000_0000 };
    if magnitude > 0x7f80_0000 { 0 } else { ordered }
}

/// Finds the `k`-th largest rank, for `k` from 1 to the number of ranks.
fn threshold(ranks: &[u32], k: usize) -> Threshold {
    // Both fit, as the positions do.
    let (mut found, mut wanted, mut equal) = (0, k as u32, ranks.len() as u32);
    for shift in [24, 16, 8, 0] {
        let histogram = histogram(ranks, found, shift);
        // Down from the largest digit, until those passed and those of the digit reach the place.
        for digit in (0..256).rev() {
            let count = histogram[digit];
            if wanted <= count {
                found |= (digit as u32) << shift;
                equal = count;
                break;
            }
            wanted -= count;
        }
    }
    Threshold { rank: found, equal, equal_selected: wanted }
}

/// How often each digit at `shift` occurs among the ranks whose higher digits are those of `prefix`.
fn histogram(ranks: &[u32], prefix: u32, shift: u32) -> [u32; 256] {
    // No bits for the top digit: above it is nothing that could differ.
    let higher = if shift == 24 { 0 } else { u32::MAX << (shift + 8) };
    // Neighbours often share a digit: four tables, so that one need not wait for another. Behind the digits is a place
    // for ranks that do not count, so that no branch has to be predicted.
    let mut tables = [[0u32; 512]; 4];
    let place = |rank: u32| if rank & higher == prefix { rank >> shift & 0xff } else { 256 } as usize;
    let (chunks, rest) = ranks.as_chunks::<CHUNK>();
    for chunk in chunks.iter().filter(|chunk| any(chunk, |rank| rank & higher == prefix)) {
        for quad in chunk.as_chunks::<4>().0 {
            for (table, rank) in tables.iter_mut().zip(quad) {
                table[place(*rank)] += 1;
            }
        }
    }
    for rank in rest {
        tables[0][place(*rank)] += 1;
    }
    core::array::from_fn(|digit| tables.iter().map(|table| table[digit]).sum())
}

/// Whether one of these passes the test, without a branch for each.
#[inline]
fn any(chunk: &[u32; CHUNK], test: impl Fn(u32) -> bool) -> bool {
    chunk.iter().fold(0, |any, rank| any | u32::from(test(*rank))) != 0
}

/// Replaces the first ranks by the positions of those above the threshold and of the first of those at it, and returns
/// how many they are.
fn emit(ranks: &mut [u32], threshold: &Threshold) -> usize {
    let (mut selected, mut at_left) = (0, threshold.equal_selected);
    let mut begin = 0;
    while begin < ranks.len() {
        let mut chunk = [0; CHUNK];
        let len = CHUNK.min(ranks.len() - begin);
        chunk[..len].copy_from_slice(&ranks[begin..begin + len]);
        if any(&chunk, |rank| rank >= threshold.rank) {
            for (rank, position) in chunk[..len].iter().zip(begin as u32..) {
                let at = *rank == threshold.rank && at_left > 0;
                at_left -= u32::from(at);
                // Written in any case, and kept if it counts: `selected` is at most `position`.
                ranks[selected] = position;
                selected += usize::from(at || *rank > threshold.rank);
            }
        }
        begin += len;
    }
    selected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_order_every_kind_of_number() {
        let tiny = f32::from_bits(1);
        let ascending = [f32::NAN, f32::NEG_INFINITY, f32::MIN, -1.0, -f32::MIN_POSITIVE, -tiny, 0.0, tiny]
            .into_iter()
            .chain([f32::MIN_POSITIVE, 1.0, 1.0f32.next_up(), f32::MAX, f32::INFINITY]);
        let ranks: Vec<u32> = ascending.map(rank).collect();
        assert!(ranks.is_sorted_by(|a, b| a < b), "{ranks:x?}");
        assert_eq!(rank(-0.0), rank(0.0));
        for bits in [0x7f80_0001, 0x7fff_ffff, 0xff80_0001, 0xffff_ffff] {
            assert_eq!(rank(f32::from_bits(bits)), 0, "{bits:#x}");
        }
    }

    #[test]
    fn ties_counts_those_left_out() {
        let mut out = vec![77];
        assert_eq!(top_k(&[1.0, 0.0, -0.0, 0.0, -1.0], 2, &mut out), TopK { nan: 0, ties: 2 });
        assert_eq!(out, [0, 1]);
        assert_eq!(top_k(&[1.0, 0.0, -0.0, 0.0, -1.0], 4, &mut out), TopK { nan: 0, ties: 0 });
        assert_eq!(out, [0, 1, 2, 3]);
        assert_eq!(top_k(&[1.0, f32::NAN, 2.0], 0, &mut out), TopK { nan: 1, ties: 0 });
        assert_eq!(out, []);
        assert_eq!(top_k(&[f32::NAN, 1.0, f32::NAN], 2, &mut out), TopK { nan: 2, ties: 1 });
        assert_eq!(out, [0, 1]);
    }
}
