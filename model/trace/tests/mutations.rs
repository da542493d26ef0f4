//! Damaged traces: read or refused, never a panic, and what is read is written as it was read.

use kvweft_trace::TraceFile;

const TRACE: &str = "kvweft-trace 1
scenario  reload  digest c6ba3313cf25fb05  drops index-read-waits-layer@ragged-prefill pin-until-sent@send
violates  reads-see-own-content
because   r3 reads index-k of layer 0: expects A, finds -
1  client   submit r1 [A]  -> => p1; => s1 prefill r1 writes p1; => h1; => t1 offload p1 to h1
2  forward  s1 begin write layer 0
# a word
3  d2h      t1 end kv layer 0; t1 begin index-k layer 0  <- the loop begins
4  forward  s3 read index-k layer 0  -> expects A, finds -  <- violation
end  4 steps
";

fn mutations() -> usize {
    // A long run asks for more cases; the first ones are always the same.
    std::env::var("KVWEFT_FUZZ_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(60_000)
}

/// Pieces that the format gives a meaning to, and some that it does not.
const PIECES: [&str; 20] = [
    "  ",
    " ",
    "\n",
    "\r\n",
    "\t",
    "  -> ",
    "  <- ",
    "; ",
    "=> ",
    "end",
    "scenario",
    "violates",
    "because",
    "digest",
    "drops",
    "#",
    "1  ",
    "kvweft-trace 1",
    "\u{2003}é\u{0}",
    "99999999999999999999",
];

/// SplitMix64: the same numbers on every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}

/// A place between two characters.
fn place(numbers: &mut Numbers, text: &str) -> usize {
    let mut at = numbers.below(text.len() + 1);
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn mutate(numbers: &mut Numbers, text: &mut String) {
    let (a, b) = (place(numbers, text), place(numbers, text));
    let span = a.min(b)..a.max(b).min(a.min(b) + 40);
    let span = span.start..(span.start..=span.end).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(span.start);
    match numbers.below(5) {
        0 => text.insert_str(a, PIECES[numbers.below(PIECES.len())]),
        1 => text.replace_range(span, ""),
        2 => text.replace_range(span, PIECES[numbers.below(PIECES.len())]),
        3 => {
            let piece = text[span].to_owned();
            text.insert_str(a, &piece);
        }
        _ => {
            let mut lines: Vec<&str> = text.lines().collect();
            if !lines.is_empty() {
                let (from, to) = (numbers.below(lines.len()), numbers.below(lines.len()));
                lines.swap(from, to);
            }
            *text = lines.join("\n");
        }
    }
}

#[test]
fn a_damaged_trace_is_read_or_refused_and_what_is_read_is_written_alike() {
    let mut numbers = Numbers(1);
    let mut read = 0;
    let mutations = mutations();
    for _ in 0..mutations {
        let mut text = TRACE.to_owned();
        for _ in 0..=numbers.below(3) {
            mutate(&mut numbers, &mut text);
        }
        match TraceFile::parse(&text) {
            Ok(trace) => {
                read += 1;
                let written = trace.to_string();
                assert_eq!(TraceFile::parse(&written), Ok(trace), "read from:\n{text}\nwritten as:\n{written}");
            }
            Err(error) => {
                let lines = text.lines().count().max(1);
                assert!((1..=lines).contains(&error.line), "{error}, of {lines} lines:\n{text}");
                assert!(error.message.len() < 300 && !error.message.contains('\n'), "{error}");
            }
        }
    }
    // Both sides of the test are exercised.
    assert!((mutations / 50..mutations - mutations / 50).contains(&read), "{read} of {mutations} were read");
}

#[test]
fn a_trace_cut_anywhere_but_at_its_end_is_refused() {
    for end in 0..TRACE.trim_end().len() {
        assert!(TraceFile::parse(&TRACE[..end]).is_err(), "cut at byte {end}");
    }
    assert!(TraceFile::parse(TRACE.trim_end()).is_ok());
}
