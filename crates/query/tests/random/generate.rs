//! Random queries and items, and how to run them.

use std::path::Path;
use std::sync::Arc;

use query::{Compiled, Context, Flow, Pipeline};
use serde_json::{Value as Json, json};

/// Every query of the scripts.
pub fn corpus() -> Vec<String> {
    let mut queries = Vec::new();
    for folder in ["clauses", "functions"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testscripts").join(folder);
        let mut paths: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            let text = std::fs::read_to_string(path).unwrap();
            let lines = text.lines().filter_map(|line| line.split_once("> "));
            let lines = lines.filter(|(tags, _)| tags.is_empty() || tags.starts_with('['));
            queries.extend(lines.map(|(tags, text)| match tags {
                // A case of a function is an expression.
                tags if !tags.is_empty() && !text.starts_with("SELECT ") => {
                    format!("SELECT VALUE {text} FROM c")
                }
                _ => text.to_owned(),
            }));
        }
    }
    assert!(queries.len() > 200);
    queries
}

/// How many rounds a test runs.
pub fn rounds(default: usize) -> usize {
    std::env::var("QUERY_TEST_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// Values for the parameters that the scripts use.
pub fn parameters() -> Vec<(String, Json)> {
    let values = [("@n", json!(5)), ("@list", json!([1, {"a": "x"}])), ("@null", json!(null))];
    values.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

/// A value of any type, small numbers and letters mostly, so that equal ones are met.
pub fn value(random: &mut fastrand::Rng, depth: usize) -> Json {
    match random.u8(0..if depth > 2 { 5 } else { 7 }) {
        0 => Json::Null,
        1 => json!(random.bool()),
        2 => json!(random.i8(-2..4)),
        3 => json!(f64::from(random.i8(-4..8)) / 2.0),
        4 => {
            json!(["", "a", "ab", "b", "B", "é", "1", "x\"\\\n", "2024-02-29"][random.usize(0..9)])
        }
        5 => (0..random.usize(0..4)).map(|_| value(random, depth + 1)).collect(),
        _ => object(random, depth + 1),
    }
}

/// An object with a few members of a few names.
pub fn object(random: &mut fastrand::Rng, depth: usize) -> Json {
    const NAMES: [&str; 12] =
        ["a", "b", "n", "x", "k", "t", "o", "s", "tags", "list", "c d", "flag"];
    let mut members = serde_json::Map::new();
    for _ in 0..random.usize(0..8) {
        members.insert(NAMES[random.usize(0..NAMES.len())].to_owned(), value(random, depth));
    }
    Json::Object(members)
}

/// The text of so many items; half of them have an array of tags.
pub fn items(random: &mut fastrand::Rng, count: usize) -> Vec<String> {
    let item = |id: usize| {
        let mut item = object(random, 0);
        item["id"] = json!(id.to_string());
        item["pk"] = json!(["p", "q"][id % 2]);
        if random.bool() {
            item["tags"] = (0..random.usize(0..5)).map(|_| value(random, 1)).collect();
        }
        item.to_string()
    };
    (0..count).map(item).collect()
}

/// The query with a few characters or words changed, moved, doubled or dropped.
pub fn mutated(random: &mut fastrand::Rng, corpus: &[String]) -> String {
    let pick = |random: &mut fastrand::Rng| corpus[random.usize(0..corpus.len())].clone();
    let mut text: Vec<char> = pick(random).chars().collect();
    for _ in 0..random.usize(1..6) {
        let at = random.usize(0..=text.len());
        let end = (at + random.usize(0..8)).min(text.len());
        match random.u8(0..6) {
            0 => drop(text.drain(at..end)),
            1 => text.insert(
                at,
                *random
                    .choice(&['(', ')', '[', '"', '\'', '.', '-', '\\', '@', '{', '%', 'é', '\0'])
                    .unwrap(),
            ),
            2 => {
                let part: Vec<char> = text[at..end].to_vec();
                text.splice(at..at, part);
            }
            3 => {
                let words = [
                    "NOT ",
                    "SELECT ",
                    " FROM c ",
                    "(SELECT VALUE 1)",
                    " AND ",
                    "COUNT(",
                    "1e309",
                    " IN (",
                    " ?? ",
                    "undefined",
                    "GROUP BY ",
                    "c.a",
                ];
                text.splice(at..at, random.choice(&words).unwrap().chars());
            }
            4 => {
                let other: Vec<char> = pick(random).chars().collect();
                let cut = random.usize(0..=other.len());
                text.truncate(at);
                text.extend(&other[cut..]);
            }
            _ => {
                if let Some(c) = text.get_mut(at) {
                    *c = random.char('\0'..'\u{80}');
                }
            }
        }
    }
    text.into_iter().collect()
}

/// All rows of a query.
pub fn run(
    query: &Arc<Compiled>,
    items: &[String],
    context: &Context,
) -> query::Result<Vec<String>> {
    let mut rows = Vec::new();
    let mut keep = |given: &query::Rows| {
        rows.extend(given.iter().map(|row| String::from_utf8(row.to_vec()).unwrap()));
    };
    let mut pipeline = Pipeline::new(query.clone(), context);
    for (ordinal, item) in items.iter().enumerate() {
        let flow = pipeline.push(item.as_bytes(), ordinal as u64)?;
        keep(&pipeline.take_rows());
        if flow == Flow::Done {
            break;
        }
    }
    keep(&pipeline.finish()?);
    Ok(rows)
}
