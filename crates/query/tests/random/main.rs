//! Random tests with fixed seeds: no text can make the crate panic, no page boundary changes a
//! result, and a plan never leaves out an item that belongs to the result.
//!
//! `QUERY_TEST_ROUNDS` makes them longer.

#![expect(clippy::unwrap_used, reason = "all of this file is a test")]

mod generate;
mod pages;
mod plans;

use std::sync::Arc;

use generate::{corpus, items, mutated, parameters, rounds, run};
use query::{Compiled, Context, Options, Pipeline};

#[test]
fn no_text_panics() {
    let corpus = corpus();
    let mut random = fastrand::Rng::with_seed(1);
    let items = items(&mut random, 6);
    let context = Context { steps_max: 10_000, held_bytes_max: 100_000, ..Context::default() };
    let mut ran = 0;
    for _ in 0..rounds(6_000) {
        let text = mutated(&mut random, &corpus);
        if let Ok(tree) = query::sql::parse(&text) {
            let printed = query::sql::print::query(&tree);
            let again = query::sql::parse(&printed).map(|tree| query::sql::print::query(&tree));
            assert_eq!(again.ok().as_ref(), Some(&printed), "{text}");
        }
        if let Ok(condition) = Compiled::condition(&text) {
            condition.matches(items[0].as_bytes(), &context).ok();
        }
        if let Ok(query) = Compiled::new(&text, &parameters(), &Options::default()) {
            query.plan();
            query.info().ok();
            ran += usize::from(run(&Arc::new(query), &items, &context).is_ok());
        }
    }
    assert!(ran > rounds(6_000) / 50, "too few of the texts ran: {ran}");
}

#[test]
fn deep_and_long_texts_are_refused_or_run() {
    let deep = |open: &str, close: &str| {
        let text = format!("SELECT VALUE {}1{}", open.repeat(50_000), close.repeat(50_000));
        assert!(Compiled::new(&text, &[], &Options::default()).is_err(), "{open}");
    };
    deep("(", ")");
    deep("[", "]");
    deep("{\"a\":", "}");
    deep("-", "");
    deep("NOT ", "");
    deep("ABS(", ")");
    deep("(SELECT VALUE ", ")");
    deep("1 ? ", " : 2");
    deep("1 + ", "");
    deep("", " BETWEEN c.a AND c.b");
    deep("\"a\" ?? ", "");
    // As deep as is allowed must run, on the stack of an ordinary thread.
    let allowed = |count: usize, open: &str, close: &str| {
        let text = format!("SELECT VALUE {}1{}", open.repeat(count), close.repeat(count));
        let query = Arc::new(Compiled::new(&text, &[], &Options::default()).unwrap());
        assert_eq!(run(&query, &[], &Context::default()).unwrap().len(), 1, "{open}");
    };
    allowed(126, "(", ")");
    allowed(60, "((", " AND true) OR RAND() < 2)");
    allowed(24, "(SELECT VALUE ", ")");
    allowed(24, "ARRAY(SELECT VALUE ", ")");
    allowed(20, "[(SELECT VALUE COUNT(1) WHERE 1 = ", ")]");
    allowed(60, "IIF(RAND() < 2, ", ", 1)");
    let text = format!("SELECT VALUE c.a{} FROM c", " BETWEEN c.a AND c.b".repeat(120));
    assert!(Compiled::new(&text, &[], &Options::default()).is_ok());
    let text = format!("SELECT VALUE c{} FROM c", ".a".repeat(100_000));
    assert!(Compiled::new(&text, &[], &Options::default()).is_err());
    let text = format!("SELECT VALUE '{}'", "x".repeat(600_000));
    let refusal = Compiled::new(&text, &[], &Options::default()).unwrap_err().to_string();
    assert!(refusal.contains("\"SC1003\""), "{refusal}");
}

/// As long as is allowed, and nothing about it takes more than its share of time.
#[test]
fn long_texts_run() {
    let list = |count: usize, part: &dyn Fn(usize) -> String, between: &str| {
        (0..count).map(part).collect::<Vec<_>>().join(between)
    };
    let texts = [
        format!("SELECT * FROM c WHERE {}", list(25_000, &|n| format!("c.a = {n}"), " OR ")),
        format!("SELECT * FROM c WHERE {}", list(25_000, &|n| format!("c.a{n} = 1"), " OR ")),
        format!("SELECT * FROM c WHERE {}", list(20_000, &|n| format!("c.a{n} != 1"), " AND ")),
        format!("SELECT * FROM c WHERE {}", list(20_000, &|n| format!("c.a < {n}"), " AND ")),
        format!(
            "SELECT * FROM c WHERE c.a IN ({0}) AND c.a IN ({0})",
            list(20_000, &|n| n.to_string(), ",")
        ),
        format!("SELECT {} FROM c", list(30_000, &|n| format!("c.a{n}"), ",")),
        format!("SELECT VALUE {{{}}} FROM c", list(30_000, &|n| format!("a{n}: {n}"), ",")),
        format!(
            "SELECT COUNT(1) AS n FROM c GROUP BY {}",
            list(3_000, &|n| format!("c.a{n}"), ",")
        ),
    ];
    let items = items(&mut fastrand::Rng::with_seed(6), 10);
    for text in texts {
        let query = Arc::new(Compiled::new(&text, &[], &Options::default()).unwrap());
        query.plan().pinned(&["/a/?"]);
        query.info().unwrap();
        run(&query, &items, &Context::default()).unwrap();
    }
}

#[test]
fn broken_items_are_errors_not_panics() {
    let mut random = fastrand::Rng::with_seed(2);
    let corpus = corpus();
    let queries: Vec<Arc<Compiled>> = corpus
        .iter()
        .filter_map(|text| Compiled::new(text, &parameters(), &Options::default()).ok())
        .map(Arc::new)
        .collect();
    for round in 0..rounds(500) {
        let mut item = items(&mut random, 1).remove(0).into_bytes();
        for _ in 0..random.usize(0..4) {
            let at = random.usize(0..item.len().max(1));
            match random.u8(0..3) {
                _ if item.is_empty() => {}
                0 => drop(item.remove(at)),
                1 => item[at] = random.u8(..),
                _ => item.truncate(at.max(1)),
            }
        }
        let query = &queries[round % queries.len()];
        let mut pipeline = Pipeline::new(query.clone(), &Context::default());
        pipeline.push(&item, 0).ok();
        pipeline.finish().ok();
    }
}
