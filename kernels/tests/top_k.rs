//! The selection against a sort, on rows that have broken public kernels and on generated ones.

use kvweft_kernels::{TopK, mix64, top_k};
use proptest::prelude::*;

/// By sorting: larger first, NaN last, then the lower position.
fn oracle(logits: &[f32], k: usize) -> (Vec<u32>, TopK) {
    let key = |i: &u32| {
        let logit = logits[*i as usize];
        // Adding +0 makes one zero of both.
        if logit.is_nan() { (true, 0.0) } else { (false, logit + 0.0) }
    };
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    order.sort_by(|a, b| {
        let ((a_nan, a_logit), (b_nan, b_logit)) = (key(a), key(b));
        a_nan.cmp(&b_nan).then(b_logit.total_cmp(&a_logit)).then(a.cmp(b))
    });
    let nan = logits.iter().filter(|logit| logit.is_nan()).count() as u32;
    let rest = order.split_off(k.min(order.len()));
    let ties = order.last().map_or(0, |last| rest.iter().filter(|i| key(i) == key(last)).count() as u32);
    order.sort_unstable();
    (order, TopK { nan, ties })
}

#[track_caller]
fn check(what: &str, logits: &[f32], k: usize) {
    let mut out = Vec::new();
    let met = top_k(logits, k, &mut out);
    let (expected, expected_met) = oracle(logits, k);
    assert!(out == expected, "{what}: {} logits, k {k}: other positions than a sort's", logits.len());
    assert_eq!(met, expected_met, "{what}: {} logits, k {k}", logits.len());
}

fn random(seed: u64, len: usize) -> Vec<f32> {
    let real = |i: u64| (mix64(mix64(seed) ^ i) >> 40) as f32 / (1 << 20) as f32 - 8.0;
    (0..len as u64).map(real).collect()
}

const K: usize = 2048;

#[test]
fn rows_of_every_length_around_k_agree_with_a_sort() {
    for len in [0, 1, 2, 15, 16, 17, K - 1, K, K + 1, K + 17, 2 * K] {
        for k in [0, 1, 2, K - 1, K, K + 1] {
            check("random", &random(1, len), k);
            check("equal", &vec![0.0; len], k);
        }
    }
}

#[test]
fn rows_of_one_value_select_the_first_positions() {
    let values = [0.0, -0.0, 1.5, -1.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::from_bits(1)];
    for value in values {
        let mut out = Vec::new();
        let met = top_k(&[value; 20_000], K, &mut out);
        assert!(out.iter().copied().eq(0..K as u32), "{value}");
        assert_eq!(met, TopK { nan: if value.is_nan() { 20_000 } else { 0 }, ties: 20_000 - K as u32 });
    }
}

#[test]
fn rows_of_special_values_agree_with_a_sort() {
    let tiny = f32::from_bits(1);
    let sets: [(&str, &[f32]); 6] = [
        ("zeros of both signs", &[0.0, -0.0]),
        ("infinities", &[f32::INFINITY, f32::NEG_INFINITY, 1.0]),
        ("NaN of both signs", &[f32::NAN, -f32::NAN, f32::NEG_INFINITY, 0.0]),
        ("subnormals", &[tiny, -tiny, 2.0 * tiny, 0.0, -0.0, f32::MIN_POSITIVE]),
        ("neighbours", &[1.0, 1.0f32.next_up(), 1.0f32.next_down()]),
        ("extremes", &[f32::MAX, f32::MIN, f32::INFINITY, f32::NAN, 0.0]),
    ];
    for (what, values) in sets {
        let row: Vec<f32> = (0..5000u64).map(|i| values[mix64(i) as usize % values.len()]).collect();
        for k in [1, 100, 1250, 1667, 2500, 4000, 4999] {
            check(what, &row, k);
        }
    }
}

#[test]
fn a_plateau_of_a_relu_is_cut_at_the_lowest_positions() {
    let row: Vec<f32> = random(2, 100_000).into_iter().map(|logit| (logit - 7.9).max(0.0)).collect();
    assert!(row.iter().filter(|logit| **logit > 0.0).count() < K);
    check("plateau", &row, K);
}

#[test]
fn a_row_that_differs_in_the_last_bits_only_agrees_with_a_sort() {
    // All in one bin of the first two digits, and 256 values in the third.
    let row: Vec<f32> = (0..100_000u64).map(|i| f32::from_bits(0x3f80_0000 | mix64(i) as u32 & 0xffff)).collect();
    check("one bin", &row, K);
}

#[test]
fn a_million_logits_agree_with_a_sort() {
    let mut row = random(3, 1_000_000);
    check("random", &row, K);
    row.sort_by(f32::total_cmp);
    check("sorted", &row, K);
    row.reverse();
    check("reversed", &row, K);
}

/// Logits of which many are equal, and many are special.
fn logit() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => (-8i32..8).prop_map(|v| v as f32),
        2 => any::<u32>().prop_map(f32::from_bits),
        1 => Just(-0.0),
        1 => Just(f32::NAN),
        1 => (0u32..4).prop_map(f32::from_bits),
    ]
}

proptest! {
    #[test]
    fn generated_rows_agree_with_a_sort(logits in prop::collection::vec(logit(), 0..300), k in 0usize..320) {
        check("generated", &logits, k);
    }
}
