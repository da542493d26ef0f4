//! Model files: which layers a model has, and how each stores what it keeps of a token.

use super::choices::{Component, Dtype, Scale};
use super::document::document;
use super::error::{Code, Errors, SourceFile};
use super::reader::{At, Reader, Table};

/// How one component is stored on the layers of some kinds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// What it stores.
    pub component: Component,
    /// The layer kinds that have it.
    pub kinds: Vec<String>,
    /// How numbers are stored.
    pub dtype: Dtype,
    /// Bytes of one entry without its scale.
    pub bytes_per_entry: u32,
    /// Tokens that share one entry.
    pub tokens_per_entry: u32,
    /// Where scales lie.
    pub scale: Scale,
    /// Bytes of one entry's scale; 0 with [`Scale::None`].
    pub scale_bytes_per_entry: u32,
    /// A page's bytes are rounded up to a multiple of this.
    pub page_align: u32,
    /// The entries of so many last tokens are kept; all when `None`.
    pub retained_tokens: Option<u32>,
}

impl Layout {
    /// Bytes of one entry with its scale.
    pub fn entry_bytes(&self) -> u64 {
        u64::from(self.bytes_per_entry) + u64::from(self.scale_bytes_per_entry)
    }

    /// Entries of a page of `page_tokens` tokens.
    pub fn entries_per_page(&self, page_tokens: u32) -> u32 {
        page_tokens / self.tokens_per_entry
    }

    /// Bytes of a page of `page_tokens` tokens, with padding.
    pub fn page_bytes(&self, page_tokens: u32) -> u64 {
        let bytes = u64::from(self.entries_per_page(page_tokens)) * self.entry_bytes();
        bytes.next_multiple_of(u64::from(self.page_align))
    }
}

/// A model's geometry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelFile {
    /// Its name.
    pub name: String,
    /// One line about it.
    pub title: String,
    /// The public source of the figures.
    pub source: String,
    /// Tokens of a page.
    pub page_tokens: u32,
    /// How KV is stored.
    pub kv_dtype: Dtype,
    /// How index-K is stored unless a scenario says otherwise; `None` in a model without an indexer.
    pub index_k_dtype: Option<Dtype>,
    /// The kind of each layer, in the model's order.
    pub layers: Vec<String>,
    /// One per component, dtype and set of kinds.
    pub layouts: Vec<Layout>,
}

impl ModelFile {
    /// Parses a model file; `name` is what diagnostics call it.
    ///
    /// # Errors
    /// Everything that is wrong with the text.
    pub fn parse(name: &str, text: &str) -> Result<ModelFile, Errors> {
        let source = SourceFile::new(name, text);
        let tree = document(&source).map_err(|errors| Errors::new(errors).expect("a refused document has an error"))?;
        let mut reader = Reader::new(&source);
        let model = read(&mut reader, tree.get_ref());
        match (Errors::new(reader.errors), model) {
            (Some(errors), _) => Err(errors),
            (None, Some(model)) => Ok(model),
            (None, None) => unreachable!("an absent value is always noted"),
        }
    }

    /// How layers of `kind` store `component` as `dtype`, if the model says so.
    pub fn layout(&self, kind: &str, component: Component, dtype: Dtype) -> Option<&Layout> {
        let fits = |l: &&Layout| l.component == component && l.dtype == dtype && l.kinds.iter().any(|k| k == kind);
        self.layouts.iter().find(fits)
    }

    /// Whether layers of `kind` have `component`, in any dtype.
    pub fn has(&self, kind: &str, component: Component) -> bool {
        self.layouts.iter().any(|l| l.component == component && l.kinds.iter().any(|k| k == kind))
    }

    /// The layer kinds, in the order of their first layers.
    pub fn kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<&str> = Vec::new();
        for kind in &self.layers {
            if !kinds.contains(&kind.as_str()) {
                kinds.push(kind);
            }
        }
        kinds
    }

    /// Bytes that `pages` full pages of tokens take over all layers, without padding and without components that keep
    /// only the last tokens; index-K as `index_k`, or as the model file says.
    pub fn bytes_of_pages(&self, pages: u64, index_k: Option<Dtype>) -> u64 {
        let mut bytes = 0;
        for kind in &self.layers {
            let kv = self.layout(kind, Component::Kv, self.kv_dtype);
            let index = index_k.or(self.index_k_dtype).and_then(|dtype| self.layout(kind, Component::IndexK, dtype));
            for layout in [kv, index].into_iter().flatten().filter(|layout| layout.retained_tokens.is_none()) {
                bytes += pages * u64::from(layout.entries_per_page(self.page_tokens)) * layout.entry_bytes();
            }
        }
        bytes
    }

    /// Bytes of one more token over all layers, rounded down; otherwise as [`ModelFile::bytes_of_pages`].
    pub fn bytes_per_token(&self, index_k: Option<Dtype>) -> u64 {
        self.bytes_of_pages(1, index_k) / u64::from(self.page_tokens)
    }
}

fn read(reader: &mut Reader<'_>, entries: &toml::de::DeTable<'_>) -> Option<ModelFile> {
    if !reader.format_is_known("model file", entries) {
        return None;
    }
    let top = reader.table("model file", 0..0, entries);
    reader.integer(&top, "format");
    let name = reader.text(&top, "name");
    let title = reader.text(&top, "title");
    let source = reader.text(&top, "source");
    let page_tokens = reader.integer(&top, "page_tokens");
    let kv_dtype = reader.choice(&top, "kv_dtype", Dtype::from_name);
    let index_k_dtype = reader.choice(&top, "index_k_dtype", Dtype::from_name);
    let layers = read_layers(reader, &top);
    let layouts: Vec<At<Layout>> = reader
        .sections(&top, "layout", "layout")
        .iter()
        .filter_map(|table| read_layout(reader, table, page_tokens.as_ref().map(|p| p.value as u32)))
        .collect();
    let model = ModelFile {
        name: name?.value,
        title: title?.value,
        source: source?.value,
        page_tokens: page_tokens?.value as u32,
        kv_dtype: kv_dtype?.value,
        index_k_dtype: index_k_dtype.map(|dtype| dtype.value),
        layers,
        layouts: layouts.iter().map(|layout| layout.value.clone()).collect(),
    };
    check(reader, &top, &model, &layouts);
    Some(model)
}

fn read_layers(reader: &mut Reader<'_>, top: &Table<'_>) -> Vec<String> {
    let mut layers = Vec::new();
    for table in reader.sections(top, "layers", "layers") {
        let kinds = reader.names(&table, "kinds", 24);
        let times = reader.integer(&table, "times").map_or(0, |times| times.value);
        for _ in 0..times {
            layers.extend(kinds.iter().map(|kind| kind.value.clone()));
        }
        if layers.len() > 1024 {
            let error = reader.error(table.span.clone(), Code::OutOfBounds, "the model has too many layers");
            error.expected = "at most 1024 layers".to_owned();
            error.help = "lower `times`".to_owned();
            break;
        }
    }
    layers
}

fn read_layout(reader: &mut Reader<'_>, table: &Table<'_>, page_tokens: Option<u32>) -> Option<At<Layout>> {
    let component = reader.choice(table, "component", Component::from_name);
    let kinds = reader.names(table, "kinds", 24);
    let dtype = reader.choice(table, "dtype", Dtype::from_name);
    let bytes_per_entry = reader.integer(table, "bytes_per_entry");
    let tokens_per_entry = reader.integer(table, "tokens_per_entry");
    let scale = reader.choice(table, "scale", Scale::from_name);
    let scale_bytes = reader.integer(table, "scale_bytes_per_entry");
    let page_align = reader.integer(table, "page_align");
    let retained_tokens = reader.integer(table, "retained_tokens");
    let (tokens, scale, scale_bytes) = (tokens_per_entry?, scale?, scale_bytes?);
    if let Some(page) = page_tokens.filter(|page| !u64::from(*page).is_multiple_of(tokens.value)) {
        let error = reader.error(tokens.span.clone(), Code::Conflict, "an entry would straddle two pages");
        error.expected = format!("a divisor of page_tokens = {page}");
        error.found = tokens.value.to_string();
        error.help = "choose page_tokens as a multiple of every tokens_per_entry".to_owned();
    }
    if (scale.value == Scale::None) != (scale_bytes.value == 0) {
        let what = "`scale` and `scale_bytes_per_entry` contradict each other";
        let error = reader.error(scale_bytes.span.clone(), Code::Conflict, what);
        error.expected = "0 bytes with \"none\", more with any other scale".to_owned();
        error.found = format!("\"{}\" and {}", scale.value, scale_bytes.value);
        error.help = "state where the scales lie and how many bytes one has".to_owned();
    }
    let layout = Layout {
        component: component?.value,
        kinds: kinds.into_iter().map(|kind| kind.value).collect(),
        dtype: dtype?.value,
        bytes_per_entry: bytes_per_entry?.value as u32,
        tokens_per_entry: tokens.value as u32,
        scale: scale.value,
        scale_bytes_per_entry: scale_bytes.value as u32,
        page_align: page_align?.value as u32,
        retained_tokens: retained_tokens.map(|tokens| tokens.value as u32),
    };
    Some(At { value: layout, span: table.span.clone() })
}

/// What no single table can say: names of kinds, one layout for each, the default dtypes.
fn check(reader: &mut Reader<'_>, top: &Table<'_>, model: &ModelFile, layouts: &[At<Layout>]) {
    let kinds = model.kinds();
    for (i, layout) in layouts.iter().enumerate() {
        for kind in &layout.value.kinds {
            if !kinds.contains(&kind.as_str()) {
                let what = format!("no layer is of kind \"{kind}\"");
                reader.unknown_name(layout.span.clone(), what, kind, kinds.iter().copied());
            }
            let same = |other: &At<Layout>| {
                let (a, b) = (&other.value, &layout.value);
                a.component == b.component && a.dtype == b.dtype && a.kinds.contains(kind)
            };
            if layouts[..i].iter().any(same) {
                let of = format!("{} of kind \"{kind}\" as {}", layout.value.component, layout.value.dtype);
                let error = reader.error(layout.span.clone(), Code::Duplicate, format!("a second layout for {of}"));
                error.help = "keep one of them".to_owned();
            }
        }
    }
    if !reader.errors.is_empty() {
        return;
    }
    for kind in &kinds {
        if model.layout(kind, Component::Kv, model.kv_dtype).is_none() {
            let what = format!("layers of kind \"{kind}\" have no kv layout as {}", model.kv_dtype);
            let error = reader.error(top.key_span("kv_dtype"), Code::MissingKey, what);
            error.expected = "a `[[layout]]` of component \"kv\" with this dtype for every kind".to_owned();
            error.help = "add the layout, or change kv_dtype".to_owned();
        }
        let Some(dtype) = model.index_k_dtype else {
            if model.has(kind, Component::IndexK) {
                let error = reader.error(top.span.clone(), Code::MissingKey, "`index_k_dtype` is missing");
                error.expected = format!("a dtype, since layers of kind \"{kind}\" have index-K");
                error.help = "add `index_k_dtype = \"fp8\"`".to_owned();
            }
            continue;
        };
        if model.has(kind, Component::IndexK) && model.layout(kind, Component::IndexK, dtype).is_none() {
            let what = format!("layers of kind \"{kind}\" have no index-k layout as {dtype}");
            let error = reader.error(top.key_span("index_k_dtype"), Code::MissingKey, what);
            error.expected = "a `[[layout]]` of component \"index-k\" with this dtype".to_owned();
            error.help = "add the layout, or change index_k_dtype".to_owned();
        }
    }
}
