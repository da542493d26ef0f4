//! The built-in model files have the published figures, and a faulty one is refused with reasons.
#![cfg(feature = "scenario-files")]

use kvweft_check::scenario::Component::{IndexK, Kv};
use kvweft_check::scenario::Dtype::{Bf16, Fp4, Fp8};
use kvweft_check::scenario::{Embedded, ModelFile, ModelSource, Scale};

fn model(name: &str) -> ModelFile {
    let text = Embedded.model(name).expect("readable").expect("built in");
    ModelFile::parse(&text.name, &text.text).unwrap_or_else(|errors| panic!("{}", errors.render_plain()))
}

fn layers_of(model: &ModelFile, kind: &str) -> Vec<usize> {
    (0..model.layers.len()).filter(|index| model.layers[*index] == kind).collect()
}

#[test]
fn every_built_in_model_parses_and_has_the_name_of_its_file() {
    for name in Embedded.model_names() {
        assert_eq!(model(&name).name, name);
    }
}

#[test]
fn pages_have_the_published_sizes() {
    let cases = [
        ("deepseek-v3.2", "dsa", IndexK, Fp8, 8_448),
        ("deepseek-v3.2", "dsa", IndexK, Bf16, 16_384),
        ("deepseek-v3.2", "dsa", IndexK, Fp4, 4_352),
        ("deepseek-v3.2", "dsa", Kv, Fp8, 41_984),
        ("deepseek-v3.2", "dsa", Kv, Bf16, 73_728),
        ("deepseek-v4-flash", "c4", IndexK, Fp8, 8_448),
        ("deepseek-v4-flash", "c4", IndexK, Bf16, 16_384),
        ("deepseek-v4-flash", "c4", IndexK, Fp4, 4_352),
        ("deepseek-v4-flash", "c4", Kv, Fp8, 37_440),
        ("deepseek-v4-flash", "c128", Kv, Fp8, 1_728),
        ("deepseek-v4-flash", "window", Kv, Fp8, 149_760),
        ("glm-5", "producer", IndexK, Fp8, 8_448),
        ("glm-5", "reuser", Kv, Fp8, 41_984),
        ("dense", "dense", Kv, Bf16, 32_768),
    ];
    for (name, kind, component, dtype, bytes) in cases {
        let model = model(name);
        let layout = model.layout(kind, component, dtype).expect("the model file has this layout");
        assert_eq!(layout.page_bytes(model.page_tokens), bytes, "{name} {kind} {component} {dtype}");
    }
}

#[test]
fn entries_and_scales_have_the_published_form() {
    let v3 = model("deepseek-v3.2");
    let v4 = model("deepseek-v4-flash");
    let index = v3.layout("dsa", IndexK, Fp8).expect("fp8 index keys");
    assert_eq!((index.entry_bytes(), index.scale), (132, Scale::PerPage));
    assert_eq!(v3.layout("dsa", IndexK, Bf16).map(|l| (l.entry_bytes(), l.scale)), Some((256, Scale::None)));
    assert_eq!(v3.layout("dsa", Kv, Fp8).map(|l| (l.entry_bytes(), l.scale)), Some((656, Scale::PerRow)));
    assert_eq!(v4.layout("c4", IndexK, Fp4).map(|l| l.entry_bytes()), Some(68));
    assert_eq!(v4.layout("c4", Kv, Fp8).map(|l| (l.entry_bytes(), l.entries_per_page(256))), Some((584, 64)));
    assert_eq!(v4.layout("c128", Kv, Fp8).map(|l| (l.entry_bytes(), l.entries_per_page(256))), Some((584, 2)));
    assert_eq!(v4.layout("c128", IndexK, Fp8), None);
    assert_eq!(v4.layout("window", Kv, Fp8).and_then(|l| l.retained_tokens), Some(128));
}

#[test]
fn a_token_takes_the_published_bytes_over_all_layers() {
    assert_eq!(model("deepseek-v3.2").bytes_per_token(None), 48_068);
    assert_eq!(model("deepseek-v4-flash").bytes_per_token(None), 3_514);
    assert_eq!(model("deepseek-v4-flash").bytes_per_token(Some(Fp8)), 3_850);
    let glm = model("glm-5");
    let kv = 78 * 656;
    assert_eq!(glm.bytes_per_token(None) - kv, 2_772);
    assert_eq!(model("dense").bytes_per_token(None), 1_024);
}

#[test]
fn layers_stand_in_the_published_order() {
    let v4 = model("deepseek-v4-flash");
    assert_eq!(v4.layers.len(), 43);
    assert_eq!(v4.layers[..6], ["window", "window", "c4", "c128", "c4", "c128"]);
    assert_eq!(["window", "c4", "c128"].map(|kind| layers_of(&v4, kind).len()), [2, 21, 20]);
    assert_eq!(layers_of(&model("deepseek-v3.2"), "dsa").len(), 61);
    let glm = model("glm-5");
    let producers = [0, 1, 2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 54, 58, 62, 66, 70, 74];
    assert_eq!((glm.layers.len(), layers_of(&glm, "producer")), (78, producers.to_vec()));
    assert!(!glm.has("reuser", IndexK));
    assert_eq!(model("dense").layers, ["dense", "dense"]);
}

#[test]
fn a_faulty_model_file_is_refused_with_all_reasons() {
    let text = r#"format = 1
name = "m"
title = "t"
source = "s"
page_tokens = 64
kv_dtype = "fp8"

[[layers]]
kinds = ["a", "b"]

[[layout]]
component = "kv"
kinds = ["a", "c"]
dtype = "fp8"
bytes_per_entry = 10
tokens_per_entry = 3
scale = "per-page"
page_aling = 2
"#;
    let errors = ModelFile::parse("m.toml", text).expect_err("the file is faulty");
    let expected = r#"
m.toml:11:1: error: no layer is of kind "c"
 11 | [[layout]]
    | ^^^^^^^^^^
expected: one of a, b
found: "c"
help: did you mean "a"?

m.toml:11:1: error: `scale` and `scale_bytes_per_entry` contradict each other
 11 | [[layout]]
    | ^^^^^^^^^^
expected: 0 bytes with "none", more with any other scale
found: "per-page" and 0
help: state where the scales lie and how many bytes one has

m.toml:16:20: error: an entry would straddle two pages
 16 | tokens_per_entry = 3
    |                    ^
expected: a divisor of page_tokens = 64
found: 3
help: choose page_tokens as a multiple of every tokens_per_entry

m.toml:18:1: error: unknown key `page_aling` in [layout]
 18 | page_aling = 2
    | ^^^^^^^^^^
expected: one of component, kinds, dtype, bytes_per_entry, tokens_per_entry, scale, scale_bytes_per_entry, page_align, retained_tokens
help: did you mean `page_align`?
"#;
    assert_eq!(errors.render_plain().trim(), expected.trim());
}

#[test]
fn a_kind_without_kv_and_an_index_without_a_dtype_are_refused() {
    let text = r#"format = 1
name = "m"
title = "t"
source = "s"
page_tokens = 64
kv_dtype = "bf16"

[[layers]]
kinds = ["a"]

[[layout]]
component = "index-k"
kinds = ["a"]
dtype = "bf16"
bytes_per_entry = 256
"#;
    let errors = ModelFile::parse("m.toml", text).expect_err("the file is faulty");
    let expected = r#"
m.toml:1:1: error: `index_k_dtype` is missing
 1 | format = 1
   | ^
expected: a dtype, since layers of kind "a" have index-K
help: add `index_k_dtype = "fp8"`

m.toml:6:1: error: layers of kind "a" have no kv layout as bf16
 6 | kv_dtype = "bf16"
   | ^^^^^^^^
expected: a `[[layout]]` of component "kv" with this dtype for every kind
help: add the layout, or change kv_dtype
"#;
    assert_eq!(errors.render_plain().trim(), expected.trim());
}
