//! Attention over selected rows.

use crate::kv::{NOPE_DIM, ROW_DIM};
use crate::math::{exp, ln};

/// Partial sums of a dot product.
const LANES: usize = 8;

/// What one token asks of the rows that were selected for it.
#[derive(Clone, Copy, Debug)]
pub struct AttentionQuery<'a> {
    /// Heads of the attention.
    pub heads: usize,
    /// `[heads, 576]`, in the order of a row: 512 values without position, then 64 with it.
    pub q: &'a [f32],
    /// The factor of every score, for instance `192^-0.5` in DeepSeek-V3.2.
    pub scale: f32,
    /// `[heads]`: the score of a row that is all zeros and takes its share of the weights, as in DeepSeek-V4.
    pub sink: Option<&'a [f32]>,
}

/// Softmax attention of one token over rows, which are keys, and in their first 512 values values.
///
/// For each head: scores `s[i] = scale * q . rows[i]`, weights `exp(s[i])` over the sum of them all (and of
/// `exp(sink)`), and the weighted sum of rows. `out` is `[heads, 512]`. `lse` is `[heads]`, the natural logarithm of
/// the sum of `exp(s[i])` *without* the sink, so that parts of a row set can be merged and the sink applied once.
/// Without rows, or if all scores are -infinity, outputs are 0 and `lse` is -infinity.
///
/// All arithmetic is in `f64` and is rounded once. Scores add the products of dimensions `l`, `l + 8`, ... in lane `l`
/// of eight, and then lanes from 0 to 7; all other sums follow the order of `rows`. NaN in a row or in the query
/// reaches the outputs and `lse`.
///
/// # Panics
///
/// If a length differs from what `heads` says.
pub fn sparse_attention(query: &AttentionQuery, rows: &[[f32; ROW_DIM]], out: &mut [f32], lse: &mut [f32]) {
    let heads = query.heads;
    let sinks = query.sink.map_or(heads, <[f32]>::len);
    let expected = (heads * ROW_DIM, heads, heads * NOPE_DIM, heads);
    let got = (query.q.len(), sinks, out.len(), lse.len());
    assert!(got == expected, "lengths of q, sink, out and lse: expected {expected:?}, got {got:?}");
    let queries = query.q.as_chunks::<ROW_DIM>().0.iter();
    let outputs = out.as_chunks_mut::<NOPE_DIM>().0.iter_mut().zip(lse);
    let mut weights = vec![0.0; rows.len()];
    for (head, (q, (out, lse))) in queries.zip(outputs).enumerate() {
        for (weight, row) in weights.iter_mut().zip(rows) {
            *weight = f64::from(query.scale) * dot(q, row);
        }
        *lse = attend(&mut weights, rows, query.sink.map(|sink| sink[head]), out) as f32;
    }
}

/// Attends with these scores, which become weights on the way, and returns the logarithm of their sum.
fn attend(scores: &mut [f64], rows: &[[f32; ROW_DIM]], sink: Option<f32>, out: &mut [f32; NOPE_DIM]) -> f64 {
    if scores.iter().all(|score| *score == f64::NEG_INFINITY) {
        out.fill(0.0);
        return f64::NEG_INFINITY;
    }
    // NaN is passed over here, and makes the sum NaN below.
    let max = scores.iter().fold(f64::NEG_INFINITY, |max, score| max.max(*score));
    let mut sum = 0.0;
    let mut values = [0.0; NOPE_DIM];
    for (score, row) in scores.iter_mut().zip(rows) {
        *score = exp(*score - max);
        sum += *score;
        for (value, x) in values.iter_mut().zip(row) {
            *value += *score * f64::from(*x);
        }
    }
    let lse = max + ln(sum);
    let share = sink.map_or(1.0, |sink| 1.0 / (1.0 + exp(f64::from(sink) - lse)));
    for (out, value) in out.iter_mut().zip(values) {
        *out = (value / sum * share) as f32;
    }
    lse
}

fn dot(a: &[f32; ROW_DIM], b: &[f32; ROW_DIM]) -> f64 {
    let mut lanes = [0.0; LANES];
    for (a, b) in a.as_chunks::<LANES>().0.iter().zip(b.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            lanes[lane] += f64::from(a[lane]) * f64::from(b[lane]);
        }
    }
    lanes.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix64;

    type Row = [f32; ROW_DIM];

    fn random(seed: u64, count: usize) -> Vec<Row> {
        let real = |i: u64| (mix64(mix64(seed) ^ i) >> 40) as f32 / (1 << 23) as f32 - 1.0;
        (0..count).map(|row| core::array::from_fn(|i| real((row * ROW_DIM + i) as u64))).collect()
    }

    fn run(q: &[Row], scale: f32, sink: Option<&[f32]>, rows: &[Row]) -> (Vec<f32>, Vec<f32>) {
        let (mut out, mut lse) = (vec![7.0; q.len() * NOPE_DIM], vec![7.0; q.len()]);
        let query = AttentionQuery { heads: q.len(), q: q.as_flattened(), scale, sink };
        sparse_attention(&query, rows, &mut out, &mut lse);
        (out, lse)
    }

    /// Straight from the formula, with the platform's functions.
    fn oracle(q: &Row, scale: f32, sink: Option<f32>, rows: &[Row]) -> (Vec<f64>, f64) {
        let product = |row: &Row| q.iter().zip(row).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let weights: Vec<f64> = rows.iter().map(|row| (f64::from(scale) * product(row)).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let all = sum + sink.map_or(0.0, |sink| f64::from(sink).exp());
        let value = |i: usize| rows.iter().zip(&weights).map(|(row, weight)| weight * f64::from(row[i])).sum::<f64>();
        ((0..NOPE_DIM).map(|i| value(i) / all).collect(), sum.ln())
    }

    #[test]
    fn it_agrees_with_the_formula() {
        let (q, rows) = (random(1, 3), random(2, 50));
        for sink in [None, Some([0.5, -2.0, 9.0])] {
            let (out, lse) = run(&q, 0.25, sink.as_ref().map(|sink| sink.as_slice()), &rows);
            for head in 0..3 {
                let (expected, expected_lse) = oracle(&q[head], 0.25, sink.map(|sink| sink[head]), &rows);
                assert!((f64::from(lse[head]) - expected_lse).abs() < 1e-6);
                for (got, expected) in out[head * NOPE_DIM..].iter().zip(expected) {
                    assert!((f64::from(*got) - expected).abs() < 1e-7, "head {head}: {got} and {expected}");
                }
            }
        }
    }

    #[test]
    fn one_row_is_returned_and_equal_scores_give_the_mean() {
        let rows = random(3, 4);
        let (out, _) = run(&random(4, 1), 1.0, None, &rows[..1]);
        assert_eq!(out, rows[0][..NOPE_DIM]);
        let (out, lse) = run(&[[0.0; ROW_DIM]], 1.0, None, &rows);
        assert_eq!(lse, [4f64.ln() as f32]);
        for (i, out) in out.into_iter().enumerate() {
            let mean = rows.iter().map(|row| f64::from(row[i])).sum::<f64>() / 4.0;
            assert_eq!(out, mean as f32);
        }
    }

    #[test]
    fn the_position_counts_for_scores_and_not_for_values() {
        let mut rows = [[0.0; ROW_DIM]; 2];
        (rows[0][0], rows[1][0], rows[1][ROW_DIM - 1]) = (1.0, 3.0, 1000.0);
        let mut q = [0.0; ROW_DIM];
        q[ROW_DIM - 1] = 1.0;
        let (out, lse) = run(&[q], 1.0, None, &rows);
        assert_eq!((out[0], lse[0]), (3.0, 1000.0));
    }

    #[test]
    fn a_sink_takes_its_share_and_leaves_lse() {
        let rows = random(5, 3);
        let q = [[0.0; ROW_DIM]];
        let (plain, lse) = run(&q, 1.0, None, &rows);
        // Three rows of score 0 against a sink of ln 3: half of the weight each.
        let (halved, same) = run(&q, 1.0, Some(&[3f32.ln()]), &rows);
        assert_eq!(lse, same);
        assert!(plain.iter().zip(&halved).all(|(plain, half)| (plain / 2.0 - half).abs() < 1e-7));
        assert_eq!(run(&q, 1.0, Some(&[f32::NEG_INFINITY]), &rows), (plain, lse.clone()));
        assert_eq!(run(&q, 1.0, Some(&[f32::INFINITY]), &rows).0, [0.0; NOPE_DIM]);
        assert_eq!(run(&q, 1.0, Some(&[1.0]), &[]), (vec![0.0; NOPE_DIM], vec![f32::NEG_INFINITY]));
    }

    #[test]
    fn poison_reaches_the_head_that_sees_it_and_its_lse() {
        let mut rows = random(6, 3);
        rows[1] = [f32::NAN; ROW_DIM];
        let (out, lse) = run(&random(7, 2), 1.0, None, &rows);
        assert!(out.iter().chain(&lse).all(|value| value.is_nan()));
        let (out, lse) = run(&random(7, 1), 1.0, None, &[[f32::NAN; ROW_DIM]]);
        assert!(out.iter().chain(&lse).all(|value| value.is_nan()));
    }

    #[test]
    fn scores_far_apart_do_not_overflow() {
        let mut rows = random(8, 2);
        (rows[0][0], rows[1][0]) = (1e30, -1e30);
        let mut q = [[0.0; ROW_DIM]];
        q[0][0] = 1e7;
        let (out, lse) = run(&q, 1.0, None, &rows);
        assert!(out == rows[0][..NOPE_DIM] && lse[0] == 1e37, "{}", lse[0]);
    }
}
