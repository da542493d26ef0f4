//! Reads typed values out of a TOML tree and notes everything that is wrong on the way.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Code, Error, SourceFile};
use super::nearest::nearest;
use super::schema::{Default, Key, Kind, key, keys_of};
use super::words::{dotted, elsewhere, example, fits, shortened, subject, titled, wanted};

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) span: Range<usize>,
}

/// One table of the file, under the name that the schema has for it.
#[derive(Clone, Debug)]
pub(super) struct Table<'t> {
    pub(super) place: &'static str,
    pub(super) span: Range<usize>,
    entries: &'t DeTable<'t>,
}

impl<'t> Table<'t> {
    /// Whether the file has the key.
    pub(super) fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Where the key stands, or the table where it does not.
    pub(super) fn key_span(&self, name: &str) -> Range<usize> {
        self.entries.get_key_value(name).map_or(self.span.clone(), |(key, _)| key.span())
    }

    fn value(&self, name: &str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.entries.get(name)
    }
}

/// Reads one file. Every method notes what is wrong and goes on; `None` means that a value is absent or was refused.
pub(super) struct Reader<'s> {
    pub(super) source: &'s SourceFile,
    pub(super) errors: Vec<Error>,
}

impl<'s> Reader<'s> {
    /// A reader of that text.
    pub(super) fn new(source: &'s SourceFile) -> Reader<'s> {
        Reader { source, errors: Vec::new() }
    }

    /// Notes an error about `span`; the caller completes it.
    pub(super) fn error(&mut self, span: Range<usize>, code: Code, what: impl Into<String>) -> &mut Error {
        self.errors.push(Error::at(self.source, span, code, what));
        self.errors.last_mut().expect("one was just pushed")
    }

    /// Whether the file is of a format that this program reads; if not, nothing else is worth a word.
    pub(super) fn format_is_known(&mut self, place: &'static str, entries: &DeTable<'_>) -> bool {
        let key = key(place, "format");
        let Some(value) = entries.get("format") else {
            return true;
        };
        let (DeValue::Integer(integer), Kind::Integer { max, .. }) = (value.get_ref(), key.kind) else {
            return true;
        };
        let newer = u64::from_str_radix(integer.as_str(), integer.radix()).is_ok_and(|format| format > max);
        if newer {
            let found = format!("format {}", shortened(self.source.text().get(value.span()).unwrap_or("")));
            let error = self.error(value.span(), Code::NewerFormat, "the file is written for a later kvweft");
            error.expected = format!("format {max}");
            error.found = found;
            error.help = "use a later kvweft for this file".to_owned();
        }
        !newer
    }

    /// A whole table: notes its unknown keys and the required ones that are absent.
    pub(super) fn table<'t>(&mut self, place: &'static str, span: Range<usize>, entries: &'t DeTable<'t>) -> Table<'t> {
        for name in entries.keys() {
            if !keys_of(place).any(|key| key.name == name.get_ref().as_ref()) {
                self.unknown_key(place, name.get_ref(), name.span());
            }
        }
        for key in keys_of(place) {
            if key.default == Default::Required && !entries.contains_key(key.name) {
                self.missing_key(&span, key);
            }
        }
        Table { place, span, entries }
    }

    fn unknown_key(&mut self, place: &str, name: &str, span: Range<usize>) {
        let valid: Vec<&str> = keys_of(place).map(|key| key.name).collect();
        let help = match (nearest(name, valid.iter().copied()), elsewhere(place, name)) {
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, Some(other)) => format!("`{name}` belongs {}", titled(other)),
            (None, None) => "remove it; docs/scenarios.md lists every key".to_owned(),
        };
        let error = self.error(span, Code::UnknownKey, format!("unknown key `{}` {}", shortened(name), titled(place)));
        error.expected = format!("one of {}", valid.join(", "));
        error.help = help;
    }

    /// Notes that a key is absent which must be there.
    pub(super) fn missing_key(&mut self, table: &Range<usize>, key: &Key) {
        let place = titled(key.place);
        let error = self.error(table.clone(), Code::MissingKey, format!("`{}` is missing {place}", key.name));
        error.expected = key.kind.to_string();
        error.help = match key.kind {
            Kind::Section if key.place == "model file" => {
                format!("add `[[{}]]` as docs/scenarios.md shows", key.name)
            }
            Kind::Section => format!("add `[{}]` as docs/scenarios.md shows", dotted(key.place, key.name)),
            _ => format!("add `{}` {place}", example(key)),
        };
    }

    fn wrong_type(&mut self, key: &Key, value: &Spanned<DeValue<'_>>) {
        let found = self.described(value);
        let what = format!("{} has the wrong type", subject(key));
        let error = self.error(value.span(), Code::WrongType, what);
        error.expected = wanted(key).to_string();
        error.found = found;
        error.help = match key.kind {
            Kind::Section => format!("write a table `[{}]`", dotted(key.place, key.name)),
            _ => format!("write it as `{}`", example(key)),
        };
    }

    /// Notes a value of the right type that its key does not take.
    pub(super) fn out_of_bounds(&mut self, key: &Key, span: Range<usize>, found: impl Into<String>) {
        let error = self.error(span, Code::OutOfBounds, format!("{} is out of bounds", subject(key)));
        error.expected = wanted(key).to_string();
        error.found = found.into();
        error.help = "choose a value within the bounds".to_owned();
    }

    /// The value in words.
    fn described(&self, value: &Spanned<DeValue<'_>>) -> String {
        let text = shortened(self.source.text().get(value.span()).unwrap_or(""));
        match value.get_ref() {
            DeValue::String(_) => format!("the text {text}"),
            DeValue::Integer(_) => format!("the integer {text}"),
            DeValue::Float(_) => format!("the float {text}"),
            DeValue::Boolean(_) => format!("the flag {text}"),
            DeValue::Datetime(_) => format!("the date {text}"),
            DeValue::Array(list) => format!("a list of {}", list.len()),
            DeValue::Table(_) => "a table".to_owned(),
        }
    }

    /// A table within a table.
    pub(super) fn section<'t>(&mut self, table: &Table<'t>, name: &str, place: &'static str) -> Option<Table<'t>> {
        let value = table.value(name)?;
        match value.get_ref() {
            DeValue::Table(entries) => Some(self.table(place, value.span(), entries)),
            _ => {
                self.wrong_type(key(table.place, name), value);
                None
            }
        }
    }

    /// The tables of a list of tables.
    pub(super) fn sections<'t>(&mut self, table: &Table<'t>, name: &str, place: &'static str) -> Vec<Table<'t>> {
        let Some(value) = table.value(name) else {
            return Vec::new();
        };
        let DeValue::Array(list) = value.get_ref() else {
            self.wrong_type(key(table.place, name), value);
            let last = self.errors.last_mut().expect("one was just pushed");
            last.expected = "a list of tables".to_owned();
            last.help = format!("write it as `[[{name}]]`, with two brackets");
            return Vec::new();
        };
        let mut tables = Vec::new();
        for element in list.iter() {
            match element.get_ref() {
                DeValue::Table(entries) => tables.push(self.table(place, element.span(), entries)),
                _ => self.wrong_type(key(table.place, name), element),
            }
        }
        tables
    }

    /// The table that an element is, if it is one.
    pub(super) fn element_table<'t>(
        &mut self,
        element: &'t Spanned<DeValue<'t>>,
        place: &'static str,
    ) -> Option<Table<'t>> {
        let DeValue::Table(entries) = element.get_ref() else {
            return None;
        };
        Some(self.table(place, element.span(), entries))
    }

    /// The raw value of a key.
    pub(super) fn raw<'t>(&self, table: &Table<'t>, name: &str) -> Option<&'t Spanned<DeValue<'t>>> {
        table.value(name)
    }

    /// An integer within its key's bounds, or its key's default.
    pub(super) fn integer(&mut self, table: &Table<'_>, name: &str) -> Option<At<u64>> {
        let key = key(table.place, name);
        let Some(value) = table.value(name) else {
            let Default::Integer(value) = key.default else {
                return None;
            };
            return Some(At { value, span: table.span.clone() });
        };
        self.integer_of(key, value)
    }

    /// An integer within `key`'s bounds.
    pub(super) fn integer_of(&mut self, key: &Key, value: &Spanned<DeValue<'_>>) -> Option<At<u64>> {
        let (DeValue::Integer(integer), Kind::Integer { min, max }) = (value.get_ref(), key.kind) else {
            self.wrong_type(key, value);
            return None;
        };
        let number = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
        match number.and_then(|n| u64::try_from(n).ok()).filter(|n| (min..=max).contains(n)) {
            Some(number) => Some(At { value: number, span: value.span() }),
            None => {
                let found = shortened(self.source.text().get(value.span()).unwrap_or(""));
                self.out_of_bounds(key, value.span(), found);
                None
            }
        }
    }

    /// A flag, or its key's default.
    pub(super) fn flag(&mut self, table: &Table<'_>, name: &str) -> Option<At<bool>> {
        let key = key(table.place, name);
        match (table.value(name), key.default) {
            (None, Default::Flag(value)) => Some(At { value, span: table.span.clone() }),
            (None, _) => None,
            (Some(value), _) => match value.get_ref() {
                DeValue::Boolean(flag) => Some(At { value: *flag, span: value.span() }),
                _ => {
                    self.wrong_type(key, value);
                    None
                }
            },
        }
    }

    /// A text that fits its key.
    pub(super) fn text(&mut self, table: &Table<'_>, name: &str) -> Option<At<String>> {
        let value = table.value(name)?;
        self.text_of(key(table.place, name), value)
    }

    /// A text that fits `key`.
    pub(super) fn text_of(&mut self, key: &Key, value: &Spanned<DeValue<'_>>) -> Option<At<String>> {
        let DeValue::String(text) = value.get_ref() else {
            self.wrong_type(key, value);
            return None;
        };
        if fits(key.kind, text) {
            return Some(At { value: text.clone().into_owned(), span: value.span() });
        }
        let found = format!("{} characters, \"{}\"", text.chars().count(), shortened(text));
        self.out_of_bounds(key, value.span(), found);
        None
    }

    /// One of a few names, or its key's default.
    pub(super) fn choice<T>(
        &mut self,
        table: &Table<'_>,
        name: &str,
        from_name: impl Fn(&str) -> Option<T>,
    ) -> Option<At<T>> {
        let key = key(table.place, name);
        let Some(value) = table.value(name) else {
            let Default::Name(default) = key.default else {
                return None;
            };
            return from_name(default).map(|value| At { value, span: table.span.clone() });
        };
        let (DeValue::String(text), Kind::OneOf(names)) = (value.get_ref(), key.kind) else {
            self.wrong_type(key, value);
            return None;
        };
        let found = from_name(text);
        if found.is_none() {
            let what = format!("`{}` has no value of this name", dotted(key.place, key.name));
            self.unknown_name(value.span(), what, text, names.iter().copied());
        }
        found.map(|found| At { value: found, span: value.span() })
    }

    /// Notes a name that is none of the valid ones.
    pub(super) fn unknown_name<'n>(
        &mut self,
        span: Range<usize>,
        what: impl Into<String>,
        given: &str,
        valid: impl Iterator<Item = &'n str> + Clone,
    ) {
        let names: Vec<&str> = valid.clone().take(13).collect();
        let found = format!("\"{}\"", shortened(given));
        let error = self.error(span, Code::UnknownName, what);
        error.found = found;
        error.expected = match names.len() {
            0 => "nothing: there is none".to_owned(),
            13 => "a known name".to_owned(),
            _ => format!("one of {}", names.join(", ")),
        };
        error.help = match nearest(given, valid) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => "take one of the valid names; docs/scenarios.md says where they come from".to_owned(),
        };
    }

    /// The elements of a list whose length fits its key; an absent list is empty.
    pub(super) fn list<'t>(&mut self, table: &Table<'t>, name: &str) -> Vec<&'t Spanned<DeValue<'t>>> {
        let key = key(table.place, name);
        let Some(value) = table.value(name) else {
            return Vec::new();
        };
        let (DeValue::Array(list), Kind::List { min, max, .. }) = (value.get_ref(), key.kind) else {
            self.wrong_type(key, value);
            return Vec::new();
        };
        if !(min..=max).contains(&list.len()) {
            self.out_of_bounds(key, value.span(), format!("a list of {}", list.len()));
        }
        list.iter().take(max).collect()
    }

    /// A list of names, each of at most `chars_max` characters.
    pub(super) fn names(&mut self, table: &Table<'_>, name: &str, chars_max: usize) -> Vec<At<String>> {
        let list_key = key(table.place, name);
        let element = Key { kind: Kind::Name { chars_max }, ..*list_key };
        let values = self.list(table, name);
        values.into_iter().filter_map(|value| self.text_of(&element, value)).collect()
    }
}
