//! The service's tables of what its version 7.0 supports, line by line, each with a use of it.
//!
//! ```text
//! > kind name yes|partly|no {…}      what the service says of it, and how it is tried
//! name: yes, … | name: no, …         what is done here: the result, or the refusal
//! ```
//! What the service has must work here; what it has not may, and else the refusal says that it is not supported. Kinds are `command`,
//! `stage`, `expression`, `accumulator`, `filter`, `projection`, `update`, `index` and `type`. Each line is tried on a new database with
//! the same two documents.

use std::error::Error;
use std::path::Path;

use bson::{Bson, Document, doc};
use goldenscript::{Command, Context, Runner};

use crate::script_tests::{World, shown};

/// Codes of refusals that say that something is not there: NotSupported, CommandNotFound, CannotCreateIndex, an unknown stage, operator or expression.
const NOT_THERE: [i32; 7] = [115, 59, 67, 40324, 168, 238, 9];

struct Tables {
    world: World,
}

impl Runner for Tables {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let mut words = command.name.trim().splitn(4, ' ');
        let mut word = || words.next().ok_or("kind, name, what the service says, and a use");
        let (kind, name, service, text) = (word()?, word()?, word()?, word()?);
        let json: serde_json::Value = serde_json::from_str(text)?;
        let used = Bson::try_from(json)?;
        let (reply, result) = self.try_out(kind, used)?;
        if reply.get_f64("ok")? == 1.0 {
            return Ok(format!("{name}: yes, {}\n", shown(result.into_relaxed_extjson())));
        }
        let code = reply.get_i32("code")?;
        let message = reply.get_str("errmsg")?;
        if service != "no" {
            return Err(format!("{kind} {name} is refused: {code} {message}").into());
        }
        if !NOT_THERE.contains(&code) {
            return Err(format!("{kind} {name}: {code} {message} does not say so").into());
        }
        Ok(format!("{name}: no, {code} {message}\n"))
    }
}

impl Tables {
    /// The reply to a use of something, and what of it is worth showing.
    fn try_out(&mut self, kind: &str, used: Bson) -> Result<(Document, Bson), Box<dyn Error>> {
        let world = &mut self.world;
        world.ask("d", doc! {"dropDatabase": 1})?;
        let point = |x: f64| doc! {"type": "Point", "coordinates": [x, 0.0]};
        let documents = vec![
            doc! {"_id": 1, "n": 1, "s": "ab", "tags": ["x", "y"], "at": point(0.0)},
            doc! {"_id": 2, "n": 2, "s": "cd", "tags": ["z"], "at": point(1.0)},
        ];
        world.ask("d", doc! {"insert": "c", "documents": documents})?;
        let aggregate =
            |stages: Vec<Bson>| doc! {"aggregate": "c", "pipeline": stages, "cursor": {}};
        let find = |filter: Document| doc! {"find": "c", "filter": filter};
        let as_document = || used.as_document().cloned().ok_or("not a document");
        let command = match kind {
            "command" => as_document()?,
            "stage" => match used {
                Bson::Array(stages) => aggregate(stages),
                stage => aggregate(vec![stage]),
            },
            "expression" => {
                let set = doc! {"$project": {"_id": 0, "is": used}};
                aggregate(vec![doc! {"$match": {"_id": 1}}.into(), set.into()])
            }
            "accumulator" => aggregate(vec![doc! {"$group": {"_id": 0, "is": used}}.into()]),
            "filter" => {
                let mut find = find(as_document()?);
                find.insert("projection", doc! {"_id": 1});
                find
            }
            "projection" => {
                let mut find = find(doc! {"_id": 1});
                find.insert("projection", used);
                find
            }
            "update" => {
                let mut change =
                    doc! {"findAndModify": "c", "query": {"_id": 1, "tags": "y"}, "new": true};
                // What needs more than the change itself says so with a command.
                match as_document()? {
                    more if more.contains_key("update") => change.extend(more),
                    update => drop(change.insert("update", update)),
                }
                change
            }
            "index" => {
                let mut index = as_document()?;
                index.insert("name", "i");
                let made = world.ask("d", doc! {"createIndexes": "c", "indexes": [index]})?;
                if made.get_f64("ok")? != 1.0 {
                    return Ok((made, Bson::Null));
                }
                doc! {"listIndexes": "c"}
            }
            "type" => {
                world.ask("d", doc! {"insert": "c", "documents": [{"_id": 3, "is": used}]})?;
                let mut find = find(doc! {"_id": 3});
                find.insert("projection", doc! {"_id": 0});
                find
            }
            other => return Err(format!("no kind {other}").into()),
        };
        let mut reply = world.ask("d", command)?;
        for name in ["operationTime", "$clusterTime"] {
            reply.remove(name);
        }
        let rows = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        let rows = rows.cloned().unwrap_or_default();
        let is = |row: &Bson| row.as_document().and_then(|row| row.get("is").cloned());
        let result = match kind {
            "expression" | "accumulator" => rows.first().and_then(is).unwrap_or(Bson::Undefined),
            "update" => reply.get("value").cloned().unwrap_or(Bson::Null),
            "index" => rows.last().cloned().unwrap_or(Bson::Null),
            "type" | "projection" => rows.first().cloned().unwrap_or(Bson::Null),
            "stage" | "filter" => Bson::Array(rows),
            _ => Bson::Boolean(true),
        };
        Ok((reply, result))
    }
}

#[test]
fn what_the_service_supports_works() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testscripts/support");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        goldenscript::run(&mut Tables { world: World::new() }, &path).unwrap();
    }
}

/// Every operator, stage and expression that the language knows stands in a script.
#[test]
fn every_operator_has_a_script() {
    // Names of errors, of former days, and of parts that are no operators.
    let others = ["$_internalSetWindowFields", "$const", "$db", "$id", "$ref", "$schema"];
    fn texts(folder: &Path, out: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => texts(&path, out),
                false => out.push(std::fs::read_to_string(path).unwrap()),
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut sources, mut scripts) = (Vec::new(), Vec::new());
    texts(&root.join("src/language"), &mut sources);
    sources.push(include_str!("commands/sources.rs").to_owned());
    texts(&root.join("testscripts"), &mut scripts);
    let scripts = scripts.concat();
    let mut names = std::collections::BTreeSet::new();
    for source in &sources {
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        let is_name = |text: &&str| {
            text.strip_prefix('$').is_some_and(|name| {
                !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            })
        };
        names.extend(code.split('"').filter(is_name));
    }
    assert!(names.len() > 200, "only {} names were found: the test tests nothing", names.len());
    let missing: Vec<_> = names
        .into_iter()
        .filter(|name| !others.contains(name) && !scripts.contains(&format!("\"{name}\"")))
        .collect();
    assert!(missing.is_empty(), "no script tries {missing:?}");
}
