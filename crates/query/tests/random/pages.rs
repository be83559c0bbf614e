//! However a result is cut into pages, its rows are the same.

use std::sync::Arc;

use query::{Compiled, Context, Flow, Options, Pipeline};

use crate::generate::{items, run};

#[test]
fn pages_of_any_size_give_the_same_rows() {
    let mut random = fastrand::Rng::with_seed(4);
    let items = items(&mut random, 40);
    let queries = [
        "SELECT c.id FROM c ORDER BY c.a",
        "SELECT c.id, c.n FROM c ORDER BY c.n DESC, c.a",
        "SELECT TOP 7 VALUE c.id FROM c ORDER BY c.x",
        "SELECT c.id FROM c ORDER BY c.a OFFSET 3 LIMIT 20",
        "SELECT c.id, t FROM c JOIN t IN c.tags ORDER BY c.b DESC",
        "SELECT DISTINCT c.n FROM c ORDER BY c.n",
        "SELECT DISTINCT VALUE c.n FROM c ORDER BY c.a DESC",
        "SELECT DISTINCT VALUE c.n FROM c ORDER BY c.a OFFSET 1 LIMIT 5",
        "SELECT c.a, COUNT(1) AS n FROM c GROUP BY c.a",
        "SELECT c.n, MAX(c.id) AS last FROM c GROUP BY c.n OFFSET 1 LIMIT 4",
        "SELECT c.id FROM c ORDER BY RANK FullTextScore(c.s, \"a\")",
    ];
    for text in queries {
        let query = Arc::new(Compiled::new(text, &[], &Options::default()).unwrap());
        let whole = run(&query, &items, &Context::default()).unwrap();
        for page in 1..12 {
            assert_eq!(paged(&query, &items, page), whole, "{text} in pages of {page}");
        }
    }
}

/// The rows of a query that holds its rows back, taken a page at a time.
fn paged(query: &Arc<Compiled>, items: &[String], page: usize) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    let mut resume = None;
    loop {
        let context = Context { page_rows_max: Some(page), resume, ..Context::default() };
        let mut pipeline = Pipeline::new(query.clone(), &context);
        for (ordinal, item) in items.iter().enumerate() {
            if pipeline.push(item.as_bytes(), ordinal as u64).unwrap() == Flow::Done {
                break;
            }
        }
        let given = pipeline.finish().unwrap();
        let taken = given.len().min(page);
        rows.extend(given.iter().take(page).map(|row| String::from_utf8(row.to_vec()).unwrap()));
        if taken == 0 {
            return rows;
        }
        let mut progress = pipeline.progress();
        progress.given -= (given.len() - taken) as u64;
        let sorts = given.positions().iter().any(|position| !position.key.is_empty());
        resume = Some((progress, sorts.then(|| given.positions()[taken - 1].clone())));
    }
}

#[test]
fn streams_resume_within_an_item() {
    let mut random = fastrand::Rng::with_seed(5);
    let items = items(&mut random, 300);
    let queries = [
        "SELECT c.id, t FROM c JOIN t IN c.tags",
        "SELECT c.id, t, u FROM c JOIN t IN c.tags JOIN u IN c.tags OFFSET 3 LIMIT 17",
        "SELECT TOP 11 c.id FROM c WHERE IS_DEFINED(c.a)",
    ];
    for text in queries {
        let query = Arc::new(Compiled::new(text, &[], &Options::default()).unwrap());
        let whole = run(&query, &items, &Context::default()).unwrap();
        assert!(whole.len() > 10, "{text}");
        for page in 1..8 {
            assert_eq!(streamed(&query, &items, page), whole, "{text} in pages of {page}");
        }
    }
}

/// The rows of a streaming query, stopped when a page is full and resumed at the item of its last
/// row.
fn streamed(query: &Arc<Compiled>, items: &[String], page: usize) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    let (mut start, mut resume) = (0, None);
    loop {
        let context = Context { page_rows_max: Some(page), resume, ..Context::default() };
        let mut pipeline = Pipeline::new(query.clone(), &context);
        let mut items = items.iter().enumerate().skip(start);
        let ended = items.find_map(|(ordinal, item)| {
            let flow = pipeline.push(item.as_bytes(), ordinal as u64).unwrap();
            (flow != Flow::More).then_some(flow)
        });
        let given = pipeline.take_rows();
        assert!(given.len() <= page);
        rows.extend(given.iter().map(|row| String::from_utf8(row.to_vec()).unwrap()));
        let Some(last) = given.positions().last().filter(|_| ended == Some(Flow::Full)) else {
            return rows;
        };
        start = last.ordinal as usize;
        resume = Some((pipeline.progress(), Some(last.clone())));
    }
}
