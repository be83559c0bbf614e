//! How fast a filter on a field that no index knows passes over items of 1 KB.
//!
//! `cargo run --release -p query --example scan [text of a query]`

use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

use query::{Compiled, Context, Options, Pipeline};

const ITEMS: usize = 20_000;
const ROUNDS: usize = 20;

/// An item of about 1 KB whose last field but the system's is the one that is filtered on.
fn item(n: usize) -> String {
    let mut item = format!(r#"{{"id":"item-{n:08}","pk":"partition-{}","#, n % 100);
    for field in 0..12 {
        write!(item, r#""field{field}":"some text of usual length {n}-{field}","#).expect("memory");
    }
    item.push_str(r#""address":{"street":"1 Main Street","city":"Springfield","zip":"12345"},"#);
    item.push_str(r#""tags":["red","green","blue"],"price":12.5,"active":true,"nothing":null,"#);
    write!(item, r#""score":{},"_rid":"abcdEFGHIJ==","_ts":1700000000,"#, n % 1000)
        .expect("memory");
    item.push_str(
        r#""_etag":"\"00000000-0000-0000-0000-000000000000\"","_self":"dbs/x/colls/y/"}"#,
    );
    item
}

#[expect(clippy::disallowed_methods, reason = "a measurement needs the clock")]
fn main() {
    let default = "SELECT * FROM c WHERE c.score = 7".to_owned();
    let text = std::env::args().nth(1).unwrap_or(default);
    let query = Compiled::new(&text, &[], &Options::default()).expect("a query that can run");
    let query = Arc::new(query);
    let items: Vec<String> = (0..ITEMS).map(item).collect();
    let bytes: usize = items.iter().map(String::len).sum();
    let mut best = 0.0f64;
    let mut rows = 0;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let mut pipeline = Pipeline::new(query.clone(), &Context::default());
        rows = 0;
        for (ordinal, item) in items.iter().enumerate() {
            pipeline.push(item.as_bytes(), ordinal as u64).expect("items that are JSON");
            rows += pipeline.take_rows().len();
        }
        rows += pipeline.finish().expect("items that are JSON").len();
        best = best.max(bytes as f64 / start.elapsed().as_secs_f64() / 1e6);
    }
    println!("{text}");
    println!("{rows} rows of {ITEMS} items of {} bytes: {best:.0} MB/s", bytes / ITEMS);
}
