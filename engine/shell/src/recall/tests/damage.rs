//! Any wrong page shows.

use std::sync::Arc;

use kvweft_core::{Component, Dtype};

use super::pages::{Cache, compressed, mixed, mixed_closed_last, narrow, narrow_behind, transcript, uniform};
use crate::recall::chain::{below, word};
use crate::recall::{POISON, RecallModel, Token};

/// What a reader finds in place of a page.
#[derive(Clone, Copy, Debug)]
enum Damage {
    /// A page that nothing was written to.
    Poison,
    /// The page at the same position of a sequence that is the same up to that page.
    Other,
    /// The page of a sequence that differs in the last half of that page only.
    Fork,
    /// Another page of the same sequence.
    Moved,
    /// The first half of the right page, the rest of another.
    TornBehind,
    /// The first half of another page, the rest of the right one.
    TornBefore,
    /// The first half of the right page, the rest never written.
    Short,
}

const DAMAGES: [Damage; 7] =
    [Damage::Poison, Damage::Other, Damage::Fork, Damage::Moved, Damage::TornBehind, Damage::TornBefore, Damage::Short];

/// One page at one place.
#[derive(Clone, Debug)]
struct Place {
    layer: usize,
    component: Component,
    page: usize,
}

impl Place {
    fn random(model: &RecallModel, pages: usize, random: u64) -> Place {
        let layer = below(word(random, 0), model.layers.len());
        let indexed = model.layers[layer].index.is_some() && word(random, 1) & 1 == 0;
        let component = if indexed { Component::IndexK } else { Component::Kv };
        Place { layer, component, page: below(word(random, 2), pages) }
    }

    fn bytes<'a>(&self, cache: &'a mut Cache) -> &'a mut Vec<u8> {
        let part = usize::from(self.component == Component::Kv);
        &mut cache.pages[self.layer][part][self.page]
    }

    /// The page as a reader finds it.
    fn damaged(&self, model: &RecallModel, tokens: &[Token], damage: Damage, random: u64) -> Vec<u8> {
        let (page_tokens, begin) = (model.page_tokens, self.page * model.page_tokens);
        let bytes = |tokens: &[Token], page| model.expected_page(tokens, self.layer, self.component, page);
        let forked = |from: usize| {
            let mut other = tokens.to_vec();
            other[from..].iter_mut().enumerate().for_each(|(at, token)| *token = (word(random, at) & 0x7f) as Token);
            bytes(&other, self.page)
        };
        let halves = |first: Vec<u8>, last: Vec<u8>| {
            let half = first.len() / 2;
            [&first[..half], &last[half..]].concat()
        };
        let right = || bytes(tokens, self.page);
        match damage {
            Damage::Poison => vec![POISON; right().len()],
            Damage::Other => forked(begin),
            Damage::Fork => forked(begin + page_tokens / 2),
            Damage::Moved => bytes(tokens, if self.page == 0 { 1 } else { self.page - 1 }),
            Damage::TornBehind => halves(right(), forked(begin)),
            Damage::TornBefore => halves(forked(begin), right()),
            Damage::Short => halves(right(), vec![POISON; right().len()]),
        }
    }
}

/// Prompts whose first pages are cached; some pages are computed by the last step, with the marker.
fn answers(model: &Arc<RecallModel>, seed: u64, cases: usize) {
    let cached = 6 * model.page_tokens;
    let len = (cached + 5 + seed as usize % 40).next_multiple_of(model.align);
    let tokens = transcript(seed, len, &[model.page_tokens + 9]);
    let (sound, right) = (Cache::right(model, &tokens[..cached]), model.answer(&tokens));
    for case in 0..cases {
        let random = word(seed, case);
        let (damage, place) = (DAMAGES[case % 7], Place::random(model, 6, random));
        let mut bytes = place.damaged(model, &tokens, damage, random);
        let mut wrong = sound.clone();
        *place.bytes(&mut wrong) = bytes.clone();
        for (prefill, decode) in [(true, false), (false, true), (true, true)] {
            let mut cache = sound.clone();
            let (_, draft) = cache.run(model, &tokens, cached, prefill.then_some(&wrong)).unwrap();
            let got = cache.decode(model, &mut tokens.clone(), draft[0], right.len(), |cache| {
                if decode {
                    core::mem::swap(place.bytes(cache), &mut bytes);
                }
            });
            assert_ne!(got, right, "{damage:?} {place:?}, prefill {prefill}, decode {decode}");
            assert!(!prefill || draft[0] != right[0], "{damage:?} {place:?}: the first byte hides it");
        }
    }
}

#[test]
fn any_wrong_page_read_once_or_twice_changes_the_answer() {
    for (seed, index) in (0..).zip([Dtype::Fp8, Dtype::Bf16, Dtype::Fp4]) {
        answers(&uniform(2, 64, index, Dtype::Fp8), seed, 21);
        answers(&uniform(3, 32, index, Dtype::Bf16), seed + 10, 14);
        answers(&mixed(index), seed + 20, 7);
    }
    answers(&mixed_closed_last(), 40, 7);
    let narrow = [narrow(Dtype::Fp8, 256), narrow(Dtype::Bf16, 512), narrow(Dtype::Fp8, 193), narrow_behind()];
    for (seed, model) in (60u64..).zip(compressed().into_iter().chain(narrow)) {
        answers(&model, seed, 7);
    }
}

#[test]
fn a_wrong_page_read_by_an_early_chunk_only_changes_the_answer() {
    let mut models = vec![uniform(2, 64, Dtype::Fp8, Dtype::Fp8), mixed(Dtype::Fp8), mixed_closed_last()];
    models.extend(compressed());
    models.extend([narrow(Dtype::Fp8, 256), narrow(Dtype::Bf16, 512), narrow_behind()]);
    for (seed, model) in (50u64..).zip(models) {
        // The second chunk fills a page at least, whose rows the answer sums.
        let (cached, chunk) = (3 * model.page_tokens, 5 * model.page_tokens);
        let len = (chunk + 9).next_multiple_of(model.align);
        let tokens = transcript(seed, len, &[]);
        let (sound, right) = (Cache::right(&model, &tokens[..cached]), model.answer(&tokens));
        for case in 0..21 {
            let random = word(seed, case);
            let (damage, place) = (DAMAGES[case % 7], Place::random(&model, 3, random));
            let mut wrong = sound.clone();
            *place.bytes(&mut wrong) = place.damaged(&model, &tokens, damage, random);
            let mut cache = sound.clone();
            cache.run(&model, &tokens[..chunk], cached, Some(&wrong));
            let (_, draft) = cache.run(&model, &tokens, chunk, None).unwrap();
            let got = cache.decode(&model, &mut tokens.clone(), draft[0], right.len(), |_| ());
            assert_ne!(got, right, "{damage:?} {place:?}");
        }
    }
}

#[test]
fn a_wrong_row_of_the_marker_changes_the_answer() {
    let mut models = vec![uniform(2, 64, Dtype::Fp8, Dtype::Fp8), narrow(Dtype::Fp8, 256), narrow_behind()];
    models.extend(compressed());
    for model in models {
        let len = (3 * model.page_tokens + 8).next_multiple_of(model.align);
        let tokens = transcript(3, len, &[]);
        let right = model.answer(&tokens);
        let mut cache = Cache::new(&model);
        let (_, draft) = cache.prefill(&model, &tokens, 0, &[], None).unwrap();
        for layer in model.closing_layers() {
            let other = transcript(4, len, &[]);
            let other = model.expected_page(&other, layer, Component::Kv, 3);
            for mut bytes in [vec![POISON; other.len()], other] {
                let place = Place { layer, component: Component::Kv, page: 3 };
                let damage = |cache: &mut Cache| core::mem::swap(place.bytes(cache), &mut bytes);
                let got = cache.clone().decode(&model, &mut tokens.clone(), draft[0], right.len(), damage);
                assert!(got != right && got[0] == right[0], "layer {layer}");
            }
        }
    }
}
