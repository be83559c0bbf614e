//! Collections: what is stored beside their documents, read from the `documents` part of a container's definition.
//!
//! ```text
//! {"indexes": [{"number": 1, "spec": {"key": {"a": 1}, "name": "a_1", …}, "ready": true}],   in extended JSON
//!  "nextNumber": 2,            numbers are never used again
//!  "leaving": [..],            numbers whose entries are still being removed
//!  "options": {…},             as `create` was given them
//!  "ttlName": "_ts_1",         the name of the index on `_ts`, while the container's TTL is on
//!  "ttlPath": "at", "ttlSecs": 60, "ttlIndex": "at_1"}     a TTL index on a date (R29)
//! ```
//! An index term is the index's number, a section, and the keys of its fields ([`keycode`]), inverted where the index descends. A unique entry is
//! the number and the keys without inversion. Documents with one whole key stand in the section [`PLAIN`], in which what two conditions share
//! can be looked up, and which is in the order of the fields; those with several keys (arrays) or one that was cut stand in [`SEVERAL`].

use std::any::Any;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf};
use db::documents::{Description, Layout};
use model::ttl::Ttl;
use serde_json::Value;

use crate::language::filter::Filter;
use crate::language::geo;
use crate::language::keycode;
use crate::language::path::{Leaf, Path, field};
use crate::language::vars::Vars;

/// The most bytes of a field's key in a term; what is cut is told apart by the filter.
pub const KEY_BYTES_MAX: usize = 1_024;

/// The most entries of one document in one index.
const ENTRIES_MAX: usize = 20_000;

/// The section of documents that have one key, and that whole.
pub const PLAIN: u8 = 0;

/// The section of all others.
pub const SEVERAL: u8 = 1;

/// Begins every document's name, so that no item of the NoSQL API has such a name.
const NAME: u8 = 0xE0;

/// A collection, ready for use.
#[derive(Debug)]
pub struct Collection {
    /// Its indexes, without those on `_id` and `_ts`.
    pub indexes: Vec<Index>,
    /// As `create` was given them.
    pub options: Document,
    /// What documents must match to be written.
    pub validator: Option<Filter>,
    /// The date that documents expire by, if that is the rule.
    pub ttl_path: Option<Path>,
    /// The number for the next index.
    pub next_number: u32,
}

/// A secondary index.
#[derive(Debug)]
pub struct Index {
    /// Its number: what its entries begin with.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Its fields and whether each ascends.
    pub fields: Vec<(Path, bool)>,
    /// What its entries are.
    pub kind: Kind,
    /// Whether no two documents may have the same entry.
    pub unique: bool,
    /// Whether documents without any of the fields have no entry.
    pub sparse: bool,
    /// Which documents have entries.
    pub partial: Option<Filter>,
    /// Whether all documents have their entries: only then may it be used.
    pub ready: bool,
    /// Whether its terms have sections: those of stores that were made before sections have none.
    pub sectioned: bool,
    /// As it was created.
    pub spec: Document,
}

/// What an index's entries are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The values of its fields.
    Fields,
    /// Every path below this one (all, if empty) with its values.
    Wildcard(String),
    /// The cells of the world that hold the geometries at this path: a `2dsphere` index.
    Cells(Path),
    /// None: the index is there by name only, and its questions are answered without it.
    Nothing,
}

/// Reads the `documents` part of a definition. What [`db::Options::layouts`] wants.
pub fn compile(documents: &Value) -> Result<Arc<dyn Layout>, String> {
    Ok(Arc::new(Collection::read(documents)?))
}

/// The collection of a container, if it is one.
pub fn of(container: &db::Container) -> Option<&Collection> {
    let layout: &dyn Any = container.layout()?;
    layout.downcast_ref::<Collection>()
}

/// The name under which a document with this `_id` is stored. Numbers of different types that are equal are one name.
pub fn name_of(id: RawBsonRef<'_>) -> Vec<u8> {
    let mut name = vec![NAME];
    keycode::append(&mut name, id, None);
    name
}

/// All names.
pub fn names() -> std::ops::Range<Vec<u8>> {
    vec![NAME]..vec![NAME + 1]
}

impl Collection {
    fn read(documents: &Value) -> Result<Self, String> {
        let list = documents["indexes"].as_array().cloned().unwrap_or_default();
        let indexes = list.iter().map(Index::read).collect::<Result<_, _>>()?;
        let options = to_bson(documents.get("options").cloned().unwrap_or_default())?;
        let validator = match options.get_document("validator") {
            Err(_) => None,
            Ok(validator) => Some(filter(validator)?),
        };
        Ok(Self {
            indexes,
            options,
            validator,
            ttl_path: documents["ttlPath"].as_str().map(Path::new),
            next_number: documents["nextNumber"].as_u64().unwrap_or(1) as u32,
        })
    }

    /// An index by name.
    pub fn index(&self, name: &str) -> Option<&Index> {
        self.indexes.iter().find(|index| index.name == name)
    }

    fn own_ttl(&self, document: &RawDocument) -> Ttl {
        let Some(path) = &self.ttl_path else {
            // R27: only whole numbers count, and what does not count has no effect.
            return Ttl::lenient(match field(document, "ttl") {
                Some(RawBsonRef::Int32(secs)) => Some(secs.into()),
                Some(RawBsonRef::Int64(secs)) => Some(secs),
                Some(RawBsonRef::Double(secs)) if secs.fract() == 0.0 && secs.abs() < 1e12 => {
                    Some(secs as i64)
                }
                _ => None,
            });
        };
        let mut earliest: Option<i64> = None;
        let walked: ControlFlow<()> = path.walk(document, Leaf::Expand, &mut |found| {
            if let Some(RawBsonRef::DateTime(date)) = found.value {
                let millis = date.timestamp_millis();
                earliest = Some(earliest.map_or(millis, |other| other.min(millis)));
            }
            ControlFlow::Continue(())
        });
        debug_assert!(walked.is_continue());
        earliest.map_or(Ttl::Never, Ttl::from_date)
    }
}

impl Layout for Collection {
    fn describe(&self, body: &[u8]) -> db::Result<Description> {
        let document = RawDocument::from_bytes(body).map_err(|error| {
            db::Error::Storage(format!("corrupt data: a stored document is not BSON: {error}"))
        })?;
        let mut description =
            Description { own_ttl: self.own_ttl(document), ..Description::default() };
        for index in &self.indexes {
            index.describe(document, &mut description)?;
        }
        Ok(description)
    }

    fn show(&self, body: &[u8]) -> db::Result<Value> {
        let document = RawDocument::from_bytes(body).and_then(Document::try_from);
        let document = document.map_err(|error| {
            db::Error::Storage(format!("corrupt data: a stored document is not BSON: {error}"))
        })?;
        Ok(readable(document.into()))
    }

    /// An `_id` as [`Layout::show`] has it, or its bare text: a string, an object id or a number.
    fn names(&self, id: &str) -> Vec<Vec<u8>> {
        let told = serde_json::from_str(id).ok().and_then(|id: Value| Bson::try_from(id).ok());
        let object = bson::oid::ObjectId::parse_str(id).ok().map(Bson::ObjectId);
        let ids = told.into_iter().chain(object).chain([Bson::String(id.to_owned())]);
        ids.filter_map(|id| bson::RawBson::try_from(id).ok())
            .map(|id| name_of(id.as_raw_bson_ref()))
            .collect()
    }
}

impl Index {
    fn read(json: &Value) -> Result<Self, String> {
        let spec = to_bson(json["spec"].clone())?;
        let number = json["number"].as_u64().ok_or("an index without a number")? as u32;
        let mut index = Self::new(number, spec, json["ready"].as_bool().unwrap_or(false))?;
        index.sectioned = json["sections"].as_bool().unwrap_or(false);
        // Those of stores that were made before cells have no entries.
        if matches!(index.kind, Kind::Cells(_)) && json["cells"] != true {
            index.kind = Kind::Nothing;
        }
        Ok(index)
    }

    /// From its specification.
    pub fn new(number: u32, spec: Document, ready: bool) -> Result<Self, String> {
        let name = spec.get_str("name").map_err(|_| "an index without a name")?.to_owned();
        let key = spec.get_document("key").map_err(|_| "an index without a key")?;
        let mut kind = Kind::Fields;
        let mut fields = Vec::new();
        for (path, direction) in key {
            if let Some(root) = path.strip_suffix("$**") {
                kind = Kind::Wildcard(root.trim_end_matches('.').to_owned());
            }
            match direction {
                Bson::String(name) if name == "hashed" => {}
                Bson::String(name) if name == "2dsphere" => kind = Kind::Cells(Path::new(path)),
                Bson::String(_) => kind = Kind::Nothing,
                _ => {}
            }
            let ascends = !number_of(direction).is_some_and(|number| number < 0.0);
            fields.push((Path::new(path), ascends));
        }
        let flag = |name: &str| spec.get_bool(name).unwrap_or(false);
        let (unique, sparse) = (flag("unique"), flag("sparse"));
        let partial = match spec.get_document("partialFilterExpression") {
            Err(_) => None,
            Ok(expression) => Some(filter(expression)?),
        };
        let sectioned = true;
        Ok(Self { number, name, fields, kind, unique, sparse, partial, ready, sectioned, spec })
    }

    /// What its entries begin with.
    pub fn prefix(&self) -> [u8; 4] {
        self.number.to_be_bytes()
    }

    /// What the terms of a section begin with; of all documents, where there are no sections.
    pub fn section(&self, section: u8) -> Vec<u8> {
        let mut prefix = self.prefix().to_vec();
        if self.sectioned {
            prefix.push(section);
        }
        prefix
    }

    /// What terms of what is in a cell begin with.
    pub fn in_cell(&self, cell: &[u8]) -> Vec<u8> {
        let mut term = self.section(PLAIN);
        term.extend(cell.iter().map(|quarter| quarter + 1));
        term
    }

    /// The term of what is kept under a cell itself.
    pub fn cell(&self, cell: &[u8]) -> Vec<u8> {
        let mut term = self.in_cell(cell);
        term.push(0);
        term
    }

    fn describe(&self, document: &RawDocument, to: &mut Description) -> db::Result<()> {
        if let Some(partial) = &self.partial
            && !partial.matches(document).unwrap_or(false)
        {
            return Ok(());
        }
        match &self.kind {
            Kind::Nothing => {}
            Kind::Cells(path) => {
                let mut terms = BTreeSet::new();
                path.each(document, Leaf::Keep, |found| {
                    let cells = found.value.map(geo::cells_of).unwrap_or_default();
                    terms.extend(cells.iter().map(|cell| self.cell(cell)));
                });
                to.terms.extend(terms);
            }
            Kind::Wildcard(root) => {
                let mut terms = BTreeSet::new();
                let mut path = root.clone();
                let parts: Vec<&str> = root.split('.').filter(|part| !part.is_empty()).collect();
                if let Some(inner) = below(document, &parts) {
                    self.wildcard(&mut path, inner, &mut terms);
                }
                to.terms.extend(terms);
            }
            Kind::Fields => self.describe_fields(document, to)?,
        }
        Ok(())
    }

    fn describe_fields(&self, document: &RawDocument, to: &mut Description) -> db::Result<()> {
        let mut keys: Vec<Vec<Vec<u8>>> = Vec::with_capacity(self.fields.len());
        let (mut multiple, mut present) = (None::<&str>, false);
        for (path, _) in &self.fields {
            let found = keys_at(document, path);
            present |= found.present;
            if found.keys.len() > 1 {
                let top = path.parts()[0].as_str();
                if multiple.is_some_and(|other| other != top) {
                    return Err(db::Error::Invalid(format!(
                        "cannot index parallel arrays [{top}] [{}]",
                        multiple.unwrap_or_default()
                    )));
                }
                multiple = Some(top);
            }
            keys.push(found.keys);
        }
        if self.sparse && !present {
            return Ok(());
        }
        let count: usize = keys.iter().map(Vec::len).product();
        if count > ENTRIES_MAX {
            return Err(db::Error::Invalid(format!(
                "The document has {count} keys in the index '{}', where {ENTRIES_MAX} are the most.",
                self.name
            )));
        }
        let whole = keys.iter().flatten().all(|key| key.len() <= KEY_BYTES_MAX);
        let section = self.section(if count == 1 && whole { PLAIN } else { SEVERAL });
        let mut terms = BTreeSet::new();
        let mut unique = BTreeSet::new();
        for number in 0..count {
            let (mut rest, mut term) = (number, section.clone());
            let mut entry = self.prefix().to_vec();
            for (keys, (_, ascends)) in keys.iter().zip(&self.fields) {
                let key = &keys[rest % keys.len()];
                rest /= keys.len();
                push_key(&mut term, key, *ascends);
                entry.extend_from_slice(key);
            }
            terms.insert(term);
            if self.unique {
                unique.insert(bounded(entry));
            }
        }
        to.terms.extend(terms);
        to.unique.extend(unique);
        Ok(())
    }

    fn wildcard(&self, path: &mut String, document: &RawDocument, terms: &mut BTreeSet<Vec<u8>>) {
        for element in document.iter().flatten() {
            let (name, value) = element;
            let length = path.len();
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(name.as_str());
            self.wildcard_value(path, value, terms);
            path.truncate(length);
        }
    }

    fn wildcard_value(
        &self,
        path: &mut String,
        value: RawBsonRef<'_>,
        terms: &mut BTreeSet<Vec<u8>>,
    ) {
        if terms.len() >= ENTRIES_MAX {
            return;
        }
        match value {
            RawBsonRef::Document(inner) if !inner.is_empty() => self.wildcard(path, inner, terms),
            RawBsonRef::Array(array) if !array.is_empty() => {
                for value in array.into_iter().flatten() {
                    self.wildcard_value(path, value, terms);
                }
            }
            scalar => {
                let mut term = self.wildcard_prefix(path);
                push_key(&mut term, &keycode::key(scalar), true);
                terms.insert(term);
            }
        }
    }

    /// What the terms of one path of a wildcard index begin with.
    pub fn wildcard_prefix(&self, path: &str) -> Vec<u8> {
        let mut prefix = self.prefix().to_vec();
        prefix.extend_from_slice(path.as_bytes());
        prefix.push(0);
        prefix
    }
}

/// The keys that a document has at a path.
struct Keys {
    keys: Vec<Vec<u8>>,
    present: bool,
}

fn keys_at(document: &RawDocument, path: &Path) -> Keys {
    let (mut keys, mut present) = (BTreeSet::new(), false);
    let walked: ControlFlow<()> = path.walk(document, Leaf::Expand, &mut |found| {
        present |= found.value.is_some();
        match found.value {
            // An array stands for its elements; one without any for nothing at all.
            Some(RawBsonRef::Array(array)) if found.position.is_none() => {
                if array.is_empty() {
                    keys.insert(keycode::key(RawBsonRef::Undefined));
                }
            }
            Some(value) => drop(keys.insert(keycode::key(value))),
            None => drop(keys.insert(keycode::key(RawBsonRef::Null))),
        }
        ControlFlow::Continue(())
    });
    debug_assert!(walked.is_continue());
    if keys.is_empty() {
        keys.insert(keycode::key(RawBsonRef::Null));
    }
    Keys { keys: keys.into_iter().collect(), present }
}

/// Appends a field's key to a term, cut where it is too long.
pub fn push_key(term: &mut Vec<u8>, key: &[u8], ascends: bool) {
    let cut = &key[..key.len().min(KEY_BYTES_MAX)];
    match ascends {
        true => term.extend_from_slice(cut),
        false => term.extend(cut.iter().map(|byte| !byte)),
    }
}

/// Long entries are told apart by their hash.
fn bounded(entry: Vec<u8>) -> Vec<u8> {
    const BYTES_MAX: usize = 4_096;
    if entry.len() <= BYTES_MAX {
        return entry;
    }
    let hash = ring::digest::digest(&ring::digest::SHA256, &entry);
    [&entry[..BYTES_MAX], hash.as_ref()].concat()
}

fn below<'a>(document: &'a RawDocument, parts: &[&str]) -> Option<&'a RawDocument> {
    match parts.split_first() {
        None => Some(document),
        Some((first, rest)) => below(field(document, first)?.as_document()?, rest),
    }
}

fn filter(expression: &Document) -> Result<Filter, String> {
    let raw = RawDocumentBuf::try_from(expression).map_err(|error| error.to_string())?;
    // What is stored names neither the moment nor variables.
    let vars = Vars::new(bson::DateTime::from_millis(0));
    Filter::parse(&raw, &vars).map_err(|failure| failure.message)
}

/// From extended JSON; null is an empty document.
pub fn to_bson(json: Value) -> Result<Document, String> {
    match Bson::try_from(json).map_err(|error| error.to_string())? {
        Bson::Document(document) => Ok(document),
        Bson::Null => Ok(Document::new()),
        other => Err(format!("{other} where a document is expected")),
    }
}

/// To extended JSON, in which every type is told.
pub fn to_json(document: &Document) -> Value {
    Bson::Document(document.clone()).into_canonical_extjson()
}

/// To extended JSON for people: numbers are plain, unless a reader of JSON could not hold them.
fn readable(value: Bson) -> Value {
    const EXACT_MAX: u64 = 1 << 53;
    match value {
        Bson::Document(document) => {
            document.into_iter().map(|(name, value)| (name, readable(value))).collect()
        }
        Bson::Array(values) => values.into_iter().map(readable).collect(),
        Bson::Int64(number) if number.unsigned_abs() > EXACT_MAX => {
            Bson::Int64(number).into_canonical_extjson()
        }
        other => other.into_relaxed_extjson(),
    }
}

/// A number of any type.
pub fn number_of(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(number) => Some((*number).into()),
        Bson::Int64(number) => Some(*number as f64),
        Bson::Double(number) => Some(*number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use serde_json::json;

    use super::*;

    fn collection() -> Collection {
        Collection::read(&json!({})).unwrap()
    }

    #[test]
    fn a_document_is_shown_so_that_json_can_hold_it() {
        let document = bson::doc! {
            "_id": ObjectId::parse_str("65a0c0ffee00000000000001").unwrap(), "n": 5, "half": 0.5, "big": 1_i64 << 60,
            "at": bson::DateTime::from_millis(1_500), "list": [1_i64, {"x": -(1_i64 << 60)}], "none": Bson::Null,
        };
        let shown = collection().show(&document.to_vec().unwrap()).unwrap();
        assert_eq!(
            shown,
            json!({
                "_id": {"$oid": "65a0c0ffee00000000000001"}, "n": 5, "half": 0.5, "big": {"$numberLong": "1152921504606846976"},
                "at": {"$date": "1970-01-01T00:00:01.5Z"}, "list": [1, {"x": {"$numberLong": "-1152921504606846976"}}], "none": null,
            })
        );
    }

    #[test]
    fn an_id_is_found_as_it_is_shown_or_bare() {
        let object = ObjectId::parse_str("65a0c0ffee00000000000001").unwrap();
        for (typed, id) in [
            (r#"{"$oid":"65a0c0ffee00000000000001"}"#, Bson::ObjectId(object)),
            ("65a0c0ffee00000000000001", Bson::ObjectId(object)),
            ("65a0c0ffee00000000000001", Bson::String("65a0c0ffee00000000000001".into())),
            ("650000000000000000000001", Bson::String("650000000000000000000001".into())),
            ("ada", Bson::String("ada".into())),
            (r#""ada""#, Bson::String("ada".into())),
            ("7", Bson::Int64(7)),
            ("7", Bson::Double(7.0)),
            (r#"{"a":1}"#, Bson::Document(bson::doc! {"a": 1})),
        ] {
            let name = name_of(bson::RawBson::try_from(id.clone()).unwrap().as_raw_bson_ref());
            assert!(collection().names(typed).contains(&name), "{typed} is {id}");
        }
    }
}
