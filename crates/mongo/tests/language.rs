//! Runs every script under `testscripts/language`: documents and commands in, documents out, all as extended JSON.
//!
//! A line after `>` is one of
//! - a document, `{…}`: kept;
//! - `find {filter} [{projection} [{sort}]]`: the kept documents that match;
//! - `update {filter} {update} [[arrayFilters]]`: each match as the update leaves it; the kept ones stay as they are;
//! - `upsert {filter} {update}`: what is inserted;
//! - `eval expression`: its value for each kept document, or once if there is none;
//! - `aggregate [stages]`: the results over the kept documents; `$lookup` and the like find them in every collection;
//! - `order v1 v2 …`: the values in their order, those that count as the same in one line;
//! - `collation {…}` and `let {…}`: for what follows; `clear` forgets everything.
//!
//! A document with an `_id` is shown by it alone where it comes back unchanged.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::error::Error;
use std::fmt::Write;
use std::path::Path;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, RawBson, RawDocumentBuf};
use mongo::language::aggregate::{Pipeline, Step};
use mongo::language::expression::Expression;
use mongo::language::{
    Collation, Failure, Filter, Projection, Sort, Update, Vars, compare, keycode, value,
};
use serde_json::Value as Json;

/// The moment at which every script runs: 2024-02-29T12:34:56.789Z.
const NOW_MILLIS: i64 = 1_709_210_096_789;

struct Runner {
    documents: Vec<RawDocumentBuf>,
    vars: Vars,
}

impl Default for Runner {
    fn default() -> Self {
        let vars = Vars::new(DateTime::from_millis(NOW_MILLIS));
        Self { documents: Vec::new(), vars }
    }
}

impl goldenscript::Runner for Runner {
    type Command = goldenscript::Command;

    fn run(
        &mut self,
        command: &goldenscript::Command,
        _context: &goldenscript::Context,
    ) -> Result<String, Box<dyn Error>> {
        let text = command.name.trim();
        if text == "clear" {
            *self = Self::default();
            return Ok(String::new());
        }
        if text.starts_with('{') {
            self.documents.push(document(&arguments(text)?[0])?);
            return Ok(String::new());
        }
        let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
        let arguments = arguments(rest).map_err(|error| format!("{text}: {error}"))?;
        let mut out = format!("{text}\n");
        match self.command(verb, &arguments, &mut out) {
            Ok(()) => {}
            Err(failure) => writeln!(out, "{failure}")?,
        }
        Ok(out)
    }
}

impl Runner {
    fn command(&mut self, verb: &str, given: &[Bson], out: &mut String) -> Result<(), Failure> {
        let vars = &self.vars;
        match verb {
            "find" => {
                let filter = Filter::parse(&document(&given[0])?, vars)?;
                let projection = match given.get(1) {
                    Some(spec) => Some(Projection::parse(&document(spec)?, vars)?),
                    None => None,
                };
                let mut found = Vec::new();
                for each in &self.documents {
                    let (matched, position) = filter.matches_at(each)?;
                    if matched {
                        found.push((each.clone(), position));
                    }
                }
                if let Some(spec) = given.get(2) {
                    let sort = Sort::parse(&document(spec)?, vars.collation.as_ref())?;
                    found.sort_by_cached_key(|(each, _)| sort.key(each));
                }
                for (each, position) in found {
                    match &projection {
                        Some(projection) => show(out, &projection.apply(&each, position)?),
                        None => self.show(out, &each),
                    }
                }
            }
            "update" | "upsert" => {
                let filter = Filter::parse(&document(&given[0])?, vars)?;
                let update = value::raw(given[1].clone())?;
                let filters = match given.get(2) {
                    Some(Bson::Array(filters)) => {
                        filters.iter().map(document).collect::<Result<Vec<_>, _>>()?
                    }
                    _ => Vec::new(),
                };
                let filters: Vec<_> = filters.iter().map(|filter| &**filter).collect();
                let update = Update::parse(update.as_raw_bson_ref(), &filters, vars)?;
                if verb == "upsert" {
                    let id = ObjectId::from_bytes([7; 12]);
                    show(out, &update.insert(&filter, id)?);
                    return Ok(());
                }
                for each in &self.documents {
                    let (matched, position) = filter.matches_at(each)?;
                    if matched {
                        match update.apply(each, position)? {
                            Some(next) => show(out, &next),
                            None => self.show(out, each),
                        }
                    }
                }
            }
            "eval" => {
                let expression = Expression::parse(&given[0], vars)?;
                let none = [RawDocumentBuf::new()];
                let over = if self.documents.is_empty() { &none[..] } else { &self.documents };
                for each in over {
                    match expression.value(each) {
                        Ok(Bson::Undefined) => out.push_str("missing\n"),
                        Ok(value) => show_value(out, value),
                        Err(failure) => writeln!(out, "{failure}").unwrap(),
                    }
                }
            }
            "aggregate" => {
                let Bson::Array(stages) = &given[0] else { panic!("an array of stages") };
                let stages: Vec<RawBson> = stages
                    .iter()
                    .map(|stage| value::raw(stage.clone()))
                    .collect::<Result<_, _>>()?;
                for each in self.results(&stages, vars)? {
                    show(out, &each);
                }
            }
            "order" => {
                let mut sorted = given.to_vec();
                sorted.sort_by(|a, b| compare::order_values(a, b, vars.collation.as_ref()));
                let mut last: Option<Vec<u8>> = None;
                for each in sorted {
                    let key = keycode::key_of(&each, vars.collation.as_ref());
                    if last.as_ref() == Some(&key) {
                        out.pop();
                        out.push_str(" = ");
                    }
                    assert!(last.is_none_or(|last| last <= key), "{each} has a key out of order");
                    last = Some(key);
                    show_value(out, each);
                }
            }
            "collation" => {
                self.vars.collation = Collation::parse(&document(&given[0])?)?;
            }
            "let" => {
                self.vars.variables = given[0].as_document().cloned().unwrap_or_default();
            }
            other => panic!("no command {other}"),
        }
        Ok(())
    }

    /// Runs a pipeline over the kept documents.
    fn results(&self, stages: &[RawBson], vars: &Vars) -> Result<Vec<RawDocumentBuf>, Failure> {
        let stages: Vec<_> = stages.iter().map(RawBson::as_raw_bson_ref).collect();
        let mut pipeline = Pipeline::parse(&stages, vars)?;
        let mut input = self.documents.iter();
        let mut found = Vec::new();
        loop {
            match pipeline.step()? {
                Step::Document(each) => found.push(each),
                Step::Done => return Ok(found),
                Step::Input => match input.next() {
                    Some(each) => pipeline.feed(each.clone()),
                    None => pipeline.end(),
                },
                Step::Foreign(foreign) => {
                    let stages: Vec<RawBson> =
                        foreign.stages.into_iter().map(RawBson::Document).collect();
                    pipeline.supply(self.results(&stages, &foreign.vars)?);
                }
            }
        }
    }

    fn show(&self, out: &mut String, each: &RawDocumentBuf) {
        match each.get("_id") {
            Ok(Some(id)) => show_value(out, Bson::try_from(id).unwrap()),
            _ => show(out, each),
        }
    }
}

fn show(out: &mut String, document: &RawDocumentBuf) {
    show_value(out, Bson::Document(Document::try_from(document.as_ref()).unwrap()));
}

fn show_value(out: &mut String, value: Bson) {
    writeln!(out, "{}", value.into_relaxed_extjson()).unwrap();
}

fn arguments(text: &str) -> Result<Vec<Bson>, Box<dyn Error>> {
    let mut out = Vec::new();
    for json in serde_json::Deserializer::from_str(text).into_iter::<Json>() {
        out.push(Bson::try_from(json?)?);
    }
    Ok(out)
}

fn document(value: &Bson) -> Result<RawDocumentBuf, Failure> {
    match value {
        Bson::Document(document) => value::raw_document(document),
        other => panic!("{other} is no document"),
    }
}

fn scripts(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(scripts(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

#[test]
fn scripts_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testscripts/language");
    let all = scripts(&folder);
    assert!(all.len() > 2, "no scripts were found");
    for script in all {
        println!("{}", script.display());
        goldenscript::run(&mut Runner::default(), &script)
            .unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    }
}
