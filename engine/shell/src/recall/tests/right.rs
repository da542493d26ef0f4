//! Right caches give right answers, and steps write exactly what is expected, however the work is split.

use std::sync::Arc;

use kvweft_core::Dtype;

use super::pages::{Cache, compressed, ends, mixed, mixed_closed_last, narrow, narrow_behind, transcript, uniform};
use crate::recall::{ANSWER_MAX, ANSWER_MIN, Agent, MARK, RecallModel, Shape, Step, Token, text};

fn models() -> Vec<Arc<RecallModel>> {
    let mut models = vec![mixed(Dtype::Fp8), mixed(Dtype::Bf16), mixed(Dtype::Fp4), mixed_closed_last()];
    for index in [Dtype::Fp8, Dtype::Bf16, Dtype::Fp4] {
        models.extend([uniform(2, 64, index, Dtype::Fp8), uniform(3, 16, index, Dtype::Bf16)]);
    }
    models.extend(compressed());
    models.extend([narrow(Dtype::Fp8, 256), narrow(Dtype::Bf16, 512), narrow(Dtype::Fp8, 193), narrow_behind()]);
    models
}

#[test]
fn any_split_into_steps_writes_the_expected_pages_and_drafts_the_answer() {
    for (seed, model) in (0u64..).zip(models()) {
        let len = (5 * model.page_tokens + 7 + seed as usize).next_multiple_of(model.align);
        let tokens = transcript(seed, len, &[model.page_tokens - 1, 2 * model.page_tokens + 3, len - 4]);
        let (right, answer) = (Cache::right(&model, &tokens), model.answer(&tokens));
        for split in 0..6 {
            let mut cache = Cache::new(&model);
            let ends = ends(seed << 8 | split as u64, len, split);
            let (first, draft) = cache.prefill(&model, &tokens, 0, &ends, None).unwrap();
            assert_eq!((first, text(&draft), draft.len()), (0, &answer[..], model.answer_max), "{ends:?}");
            assert!(cache == right, "{ends:?}");
        }
    }
}

#[test]
fn decode_steps_of_any_size_repeat_the_answer_and_then_end() {
    for (seed, model) in (20u64..).zip(models()) {
        let len = (3 * model.page_tokens + 11).next_multiple_of(model.align);
        let mut tokens = transcript(seed, len, &[]);
        let right = model.answer(&tokens);
        let mut cache = Cache::new(&model);
        let (_, draft) = cache.prefill(&model, &tokens, 0, &[len / 2], None).unwrap();
        let mut before = cache.clone();
        let mut decoded = tokens.clone();
        let answer = cache.decode(&model, &mut decoded, draft[0], right.len() + 2, |_| ());
        assert_eq!((text(&answer), answer.len()), (&right[..], right.len() + 2));
        assert!(cache == Cache::right(&model, &decoded));
        // All at once, past the longest answer.
        tokens.extend(right.iter().map(|byte| Token::from(*byte)));
        tokens.resize(len + ANSWER_MAX + 50, 0);
        let (first, bytes) = before.run(&model, &tokens, len, None).unwrap();
        assert_eq!((first, bytes.len(), text(&bytes)), (1, ANSWER_MAX + 50, &right[1..]));
        assert!(bytes[right.len()..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_session_recalls_its_facts_round_by_round_from_cached_prefixes() {
    let shape = Shape { system_tokens: 150, first_tokens: 250, round_tokens: 90 };
    for model in models() {
        let mut agent = Agent::new(1, 0, &shape).aligned(model.align);
        let (mut cache, mut answer, mut done) = (Cache::new(&model), None, 0);
        for round in 0..5 {
            let mut tokens = agent.next_prompt(answer.as_deref());
            let right = model.answer(&tokens);
            let (_, draft) = cache.prefill(&model, &tokens, done, &[done + 50], None).unwrap();
            assert_eq!(text(&draft), right, "round {round}");
            let (call, prompt) = (String::from_utf8(right.clone()).unwrap(), tokens.iter().copied());
            let prompt: String = prompt.filter_map(|token| u8::try_from(token).ok().map(char::from)).collect();
            let value = call.split("\"value\":\"").nth(1).unwrap().split('"').next().unwrap();
            assert!(prompt.contains(&format!("={value};")), "round {round}: {call} is not what was asked");
            let got = cache.decode(&model, &mut tokens, draft[0], right.len(), |_| ());
            assert_eq!(got, right);
            // The last byte is never written by a decode step.
            done = tokens.len() / model.page_tokens * model.page_tokens;
            answer = Some(got);
        }
    }
}

#[test]
fn long_contexts_are_exact() {
    let [c4, ..] = compressed();
    let dense = narrow(Dtype::Fp8, 256);
    for (model, pages) in
        [(uniform(2, 64, Dtype::Fp8, Dtype::Fp8), 300), (mixed(Dtype::Fp4), 40), (c4, 100), (dense, 300)]
    {
        let len = (pages * model.page_tokens + 30).next_multiple_of(model.align);
        let mut tokens = transcript(5, len, &[]);
        let right = model.answer(&tokens);
        let mut cache = Cache::new(&model);
        let ends = [len / 2, len - 10];
        let (_, draft) = cache.prefill(&model, &tokens, 0, &ends, None).unwrap();
        assert_eq!(text(&draft), right);
        tokens.extend(right.iter().map(|byte| Token::from(*byte)));
        let (first, bytes) = cache.run(&model, &tokens, len, None).unwrap();
        assert_eq!((first, text(&bytes)), (1, &right[1..]));
    }
}

#[test]
fn the_answer_to_a_prompt_that_ends_within_an_entry_is_wrong_and_its_pages_are_right() {
    for model in compressed() {
        let len = 3 * model.page_tokens + model.align;
        for len in [len - 1, len + 1] {
            let mut tokens = transcript(9, len, &[len - 20]);
            let right = model.answer(&tokens);
            let mut cache = Cache::new(&model);
            let (_, draft) = cache.prefill(&model, &tokens, 0, &[len / 3], None).unwrap();
            let decoded = cache.decode(&model, &mut tokens, draft[0], right.len(), |_| ());
            assert!(text(&draft) != right && decoded != right);
            assert!(cache == Cache::right(&model, &tokens));
        }
    }
}

#[test]
fn answers_are_as_long_as_the_narrowest_row_allows() {
    let maxima = |model: &RecallModel| (model.answer_max, model.align);
    assert_eq!(maxima(&mixed(Dtype::Fp4)), (ANSWER_MAX, 1));
    assert_eq!(compressed().map(|model| maxima(&model)), [4, 4, 4, 4, 128].map(|align| (ANSWER_MAX, align)));
    assert_eq!(maxima(&narrow(Dtype::Fp8, 256)), (128, 1));
    assert_eq!(maxima(&narrow(Dtype::Bf16, 512)), (128, 1));
    assert_eq!(maxima(&narrow(Dtype::Fp8, 193)), (ANSWER_MIN, 1));
}

#[test]
fn without_a_marker_nothing_is_sampled() {
    let model = uniform(1, 16, Dtype::Fp8, Dtype::Fp8);
    let mut tokens = vec![7; 40];
    let mut step = Step::new(model.clone(), tokens.clone(), 32);
    let page = vec![0xff; model.layers[0].index_page_bytes()];
    step.select(0, &[&page, &page]);
    assert_eq!((step.sampled(), step.asks()), (None, None));
    assert_eq!((step.pages(), step.cached_pages(), step.first()), (2..3, 2, 32));
    tokens[33] = MARK;
    assert_eq!(Step::new(model, tokens, 39).asks(), Some(33));
}
