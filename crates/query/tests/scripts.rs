//! Runs every script under `testscripts/`: items and queries in, rows out.
//!
//! A line after `>` is one of
//! - an item, `{…}`: kept, under the next ordinal;
//! - a parameter, `@name = value`;
//! - anything else: a query over the items kept so far; it is shown again above its rows.
//!
//! Under `functions/` most lines are calls of functions, tagged with the case that they show: `[normal]`, `[undefined]` (an argument is),
//! `[type]` (an argument has a wrong one) or `[edge]`. Such a line may be a bare expression, whose `c` is the first item. Every
//! function has all four.
//!
//! `clear` forgets items and parameters. A tag in brackets asks for more or other output: `[info]` the
//! plan that SDKs get, `[plan]` what an index could serve, `[condition]` which items meet a patch
//! condition, `[text]` the text printed back.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use query::{Compiled, Context, Flow, Options, Pipeline, Plan, Udfs};
use serde_json::{Value as Json, json};

/// The moment at which every script runs: 2024-02-29T12:34:56.789Z.
const NOW_MILLIS: i64 = 1_709_210_096_789;

#[derive(Default)]
struct Runner {
    items: Vec<String>,
    parameters: Vec<(String, Json)>,
    computed: Vec<(String, String)>,
    /// Whether shapes lie on a plane.
    flat: bool,
}

impl goldenscript::Runner for Runner {
    type Command = goldenscript::Command;

    fn run(
        &mut self,
        command: &goldenscript::Command,
        context: &goldenscript::Context,
    ) -> Result<String, Box<dyn Error>> {
        let text = command.name.trim();
        if text == "clear" {
            *self = Self::default();
            return Ok(String::new());
        }
        if text.starts_with('{') {
            self.items.push(serde_json::from_str::<Json>(text)?.to_string());
            return Ok(String::new());
        }
        if let Some((name, value)) = text.split_once('=').filter(|_| text.starts_with('@')) {
            let name = name.trim().to_owned();
            self.parameters.retain(|(known, _)| *known != name);
            self.parameters.push((name, serde_json::from_str(value.trim())?));
            return Ok(String::new());
        }
        if text == "plane" {
            self.flat = true;
            return Ok(String::new());
        }
        if let Some((name, query)) = text.strip_prefix("computed ").and_then(|t| t.split_once('='))
        {
            self.computed.push((name.trim().to_owned(), query.trim().to_owned()));
            return Ok(String::new());
        }
        if context.tags.iter().any(|tag| CASES.contains(&tag.as_str())) && !is_query(text) {
            return Ok(self.case(text)?);
        }
        let mut out = format!("{text}\n");
        let result = if context.tags.contains("condition") {
            self.condition(text, &mut out)
        } else {
            self.query(text, &context.tags, &mut out)
        };
        if let Err(error) = result {
            writeln!(out, "  error: {error}")?;
        }
        Ok(out)
    }
}

/// The cases that every function is shown in.
const CASES: [&str; 4] = ["normal", "undefined", "type", "edge"];

fn is_query(text: &str) -> bool {
    text.starts_with("SELECT ")
}

impl Runner {
    /// `expression = value`.
    fn case(&self, expression: &str) -> Result<String, std::fmt::Error> {
        let first = self.items.iter().take(1).cloned().collect::<Vec<_>>();
        let items = if first.is_empty() { vec!["{}".to_owned()] } else { first };
        let parameters = self.parameters.clone();
        let alone = Self { items, parameters, flat: self.flat, ..Self::default() };
        let mut rows = String::new();
        let text = format!("SELECT VALUE {expression} FROM c");
        let result = alone.query(&text, &BTreeSet::new(), &mut rows);
        let value = match (result, rows.trim()) {
            (Err(error), _) => format!("error: {error}"),
            (Ok(()), "") => "undefined".to_owned(),
            (Ok(()), value) => value.to_owned(),
        };
        let mut out = String::new();
        writeln!(out, "{expression} = {value}")?;
        Ok(out)
    }

    fn query(
        &self,
        text: &str,
        tags: &BTreeSet<String>,
        out: &mut String,
    ) -> Result<(), Box<dyn Error>> {
        let options = Options {
            computed: self.computed.clone(),
            flat: self.flat,
            now_millis: Some(NOW_MILLIS),
            ..Options::default()
        };
        let query = Arc::new(Compiled::new(text, &self.parameters, &options)?);
        if tags.contains("text") {
            let printed = query::sql::print::query(query.tree());
            assert_eq!(query::sql::print::query(&query::sql::parse(&printed)?), printed);
            writeln!(out, "  {printed}")?;
            return Ok(());
        }
        if tags.contains("plan") {
            return write_plan(out, &query.plan());
        }
        if tags.contains("info") {
            let info = query.info()?;
            for (name, value) in info.query_info.as_object().into_iter().flatten() {
                // What is as in the plan that asks for nothing is not worth a line.
                let dull =
                    [json!(null), json!([]), json!({}), json!(""), json!(false), json!("None")];
                if !dull.contains(value) {
                    writeln!(out, "  {name}: {value}")?;
                }
            }
            for (name, value) in info.hybrid_info.as_object().into_iter().flatten() {
                writeln!(out, "  {name}: {value}")?;
            }
            writeln!(out, "  features: {}", info.features.join(", "))?;
            return Ok(());
        }
        let context = Context {
            now_millis: NOW_MILLIS,
            udfs: Some(Arc::new(TestUdfs)),
            ..Context::default()
        };
        let mut pipeline = Pipeline::new(query, &context);
        for (ordinal, item) in self.items.iter().enumerate() {
            let flow = pipeline.push(item.as_bytes(), ordinal as u64)?;
            write_rows(out, &pipeline.take_rows())?;
            if flow == Flow::Done {
                break;
            }
        }
        write_rows(out, &pipeline.finish()?)?;
        Ok(())
    }

    fn condition(&self, text: &str, out: &mut String) -> Result<(), Box<dyn Error>> {
        let condition = Compiled::condition(text)?;
        for item in &self.items {
            let matches = condition.matches(item.as_bytes(), &Context::default())?;
            writeln!(out, "  {matches} {item}")?;
        }
        Ok(())
    }
}

fn write_rows(out: &mut String, rows: &query::Rows) -> Result<(), Box<dyn Error>> {
    for row in rows.iter() {
        serde_json::from_slice::<Json>(row)?;
        writeln!(out, "  {}", str::from_utf8(row)?)?;
    }
    Ok(())
}

fn write_plan(out: &mut String, plan: &Plan) -> Result<(), Box<dyn Error>> {
    writeln!(out, "  {plan}")?;
    if let Some(pinned) = plan.pinned(&["/pk/?", "/id/?"]) {
        writeln!(out, "  pins pk and id to {}", json!(pinned))?;
    }
    Ok(())
}

/// `udf.double(n)` doubles; `udf.fail()` fails; any other is unknown.
struct TestUdfs;

impl Udfs for TestUdfs {
    fn call(&self, name: &str, args: &[Option<Json>]) -> Result<Option<Json>, String> {
        match name {
            "double" => {
                let number = args.first().and_then(|arg| arg.as_ref()?.as_f64());
                Ok(number.map(|n| Json::from(2.0 * n)))
            }
            "fail" => Err("it failed".to_owned()),
            _ => Err(format!("no function {name}")),
        }
    }
}

#[test]
fn scripts() {
    for path in files("") {
        goldenscript::run(&mut Runner::default(), &path).unwrap();
    }
}

/// A function that a query can call and no script shows is not done yet.
#[test]
fn every_function_is_shown_in_every_case() {
    let names: BTreeSet<&str> = query::function_names().collect();
    let mut shown = BTreeSet::new();
    for path in files("functions") {
        for line in std::fs::read_to_string(path).unwrap().lines() {
            let Some((case, text)) = line.strip_prefix('[').and_then(|l| l.split_once("]> "))
            else {
                continue;
            };
            for name in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
                shown.insert((name.to_ascii_uppercase(), case.to_owned()));
            }
        }
    }
    let missing =
        names.iter().flat_map(|name| CASES.map(|case| (name.to_string(), case.to_owned())));
    let missing: Vec<_> = missing.filter(|wanted| !shown.contains(wanted)).collect();
    assert!(names.len() > 150, "only {} functions", names.len());
    assert_eq!(missing, []);
}

/// Every code that the crate can complain with is shown by a script or asked for by a test.
#[test]
fn every_complaint_is_shown() {
    let codes = |paths: Vec<PathBuf>| -> BTreeSet<String> {
        let texts = paths.iter().map(|path| std::fs::read_to_string(path).unwrap());
        let texts: Vec<String> = texts.collect();
        let words = texts.iter().flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric()));
        let is_code = |word: &&str| {
            let number = word.strip_prefix("SC").unwrap_or_default();
            number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit())
        };
        words.filter(is_code).map(str::to_owned).collect()
    };
    let known = codes(files("../src"));
    let shown: BTreeSet<String> =
        codes(files("")).into_iter().chain(codes(files("../tests"))).collect();
    assert!(known.len() > 20, "{known:?}");
    assert_eq!(known.difference(&shown).collect::<Vec<_>>(), Vec::<&String>::new());
}

/// All files below a folder of scripts.
fn files(folder: &str) -> Vec<PathBuf> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("testscripts").join(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        let paths = std::fs::read_dir(folder).expect("the scripts are there");
        let paths = paths.map(|entry| entry.expect("a folder can be read").path());
        let (more, found): (Vec<_>, Vec<_>) = paths.partition(|path| path.is_dir());
        folders.extend(more);
        files.extend(found);
    }
    files.sort();
    files
}
