//! Prints how fast each kernel is on this machine, with one thread:
//! `cargo run --release -p kvweft-kernels --example speed`.

use std::hint::black_box;
use std::time::Instant;

use kvweft_kernels::{
    AttentionQuery, IndexFormat, KEY_DIM, KvFormat, NOPE_DIM, Query, ROW_DIM, ScaleRule, checksum_bytes, decode_keys,
    logits, mix64, page_logits, read_row, select_sum, sparse_attention, top_k, write_key, write_row,
};

const PAGE: usize = 64;
const REPEATS: usize = 7;

/// Prints the least of a few times, per unit.
fn measure(what: &str, units: usize, unit: &str, mut work: impl FnMut()) {
    let mut best_ns = f64::INFINITY;
    for _ in 0..REPEATS {
        let start = Instant::now();
        work();
        best_ns = best_ns.min(start.elapsed().as_nanos() as f64);
    }
    let each = best_ns / units as f64;
    println!("{what:<40} {each:>10.3} ns per {unit:<8} {:>8.2} G/s", 1.0 / each);
}

fn random(seed: u64, len: usize) -> Vec<f32> {
    let real = |i: u64| (mix64(mix64(seed) ^ i) >> 40) as f32 / (1 << 23) as f32 - 1.0;
    (0..len as u64).map(real).collect()
}

fn index() {
    for format in IndexFormat::ALL {
        let mut page = vec![0; format.page_bytes(PAGE)];
        let values = random(1, PAGE * KEY_DIM);
        measure(&format!("write_key {format:?}"), PAGE, "key", || {
            for (token, key) in values.as_chunks::<KEY_DIM>().0.iter().enumerate() {
                write_key(format, ScaleRule::PowerOfTwo, &mut page, PAGE, token, key);
            }
        });
        let (mut keys, mut scales) = (Vec::new(), Vec::new());
        measure(&format!("decode_keys {format:?}"), PAGE, "key", || {
            keys.clear();
            scales.clear();
            decode_keys(format, black_box(&page), PAGE, 0..PAGE, &mut keys, &mut scales);
        });
        for heads in [4, 64] {
            let (q, weights) = (random(2, heads * KEY_DIM), random(3, heads));
            let query = Query { heads, q: &q, weights: &weights };
            let mut out = Vec::new();
            measure(&format!("page_logits {format:?}, {heads} heads"), PAGE, "key", || {
                out.clear();
                page_logits(format, black_box(&page), PAGE, 0..PAGE, &query, &mut out);
            });
            measure(&format!("logits, {heads} heads"), PAGE, "key", || {
                out.clear();
                logits(black_box(&keys), &scales, &query, &mut out);
            });
        }
    }
}

fn select() {
    let mut out = Vec::new();
    for len in [4096, 32_768, 131_072, 1_000_000] {
        let row = random(4, len);
        measure(&format!("top_k 2048 of {len}, random"), len, "logit", || {
            top_k(black_box(&row), 2048, &mut out);
        });
    }
    let plateau: Vec<f32> = random(5, 131_072).iter().map(|logit| (logit - 0.99).max(0.0)).collect();
    measure("top_k 2048 of 131072, plateau of zeros", plateau.len(), "logit", || {
        top_k(black_box(&plateau), 2048, &mut out);
    });
}

fn attend() {
    let (heads, count) = (16, 2048);
    let values = random(6, count * ROW_DIM);
    let rows = values.as_chunks::<ROW_DIM>().0;
    for format in KvFormat::ALL {
        let mut row = vec![0; format.row_bytes()];
        let mut read = [0.0; ROW_DIM];
        measure(&format!("write_row {format:?}"), count, "row", || {
            rows.iter().for_each(|values| write_row(format, ScaleRule::Amax, &mut row, values));
        });
        measure(&format!("read_row {format:?}"), count, "row", || {
            (0..count).for_each(|_| read_row(format, black_box(&row), &mut read));
        });
    }
    let (q, mut out, mut lse) = (random(7, heads * ROW_DIM), vec![0.0; heads * NOPE_DIM], vec![0.0; heads]);
    let query = AttentionQuery { heads, q: &q, scale: 0.1, sink: None };
    measure("sparse_attention", heads * count, "head row", || {
        sparse_attention(black_box(&query), rows, &mut out, &mut lse);
    });
    let integers: Vec<f32> = values.iter().map(|value| (value * 8.0).round()).collect();
    let integers: Vec<&[f32]> = integers.chunks_exact(ROW_DIM).map(|row| &row[..NOPE_DIM]).collect();
    measure("select_sum", count, "row", || {
        select_sum(black_box(&integers), &mut out[..NOPE_DIM]).expect("values are small integers");
    });
}

fn main() {
    for len in [8448, 41_984, 64 << 20] {
        let bytes: Vec<u8> = (0..len).map(|i| mix64(i as u64) as u8).collect();
        measure(&format!("checksum_bytes of {len}"), len, "byte", || {
            black_box(checksum_bytes(black_box(&bytes), 1));
        });
    }
    index();
    select();
    attend();
}
