//! However a result is cut into pages, its rows are the same.

use std::sync::Arc;

use query::{Compiled, Context, Flow, Options, Pipeline, Resume};

use serde_json::json;

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
        "SELECT DISTINCT c.n FROM c ORDER BY RANK FullTextScore(c.s, \"a\") OFFSET 1 LIMIT 9",
        "SELECT c.id FROM c ORDER BY RANK RRF(FullTextScore(c.s, \"a\"), VectorDistance([c.n, 1], [1, 2]))",
        "SELECT VALUE x.id FROM (SELECT c.id FROM c ORDER BY c.a OFFSET 2 LIMIT 15) x",
        "SELECT x.n, t FROM (SELECT c.n, c.tags FROM c ORDER BY c.n) x JOIN t IN x.tags",
        "SELECT x.k, t FROM (SELECT c.n AS k, COUNT(1) AS m FROM c GROUP BY c.n) x JOIN t IN (SELECT VALUE [1, x.m])",
        "SELECT * FROM (SELECT TOP 9 c.n FROM c ORDER BY c.id) x ORDER BY x.n",
        "SELECT DISTINCT VALUE x.m FROM (SELECT COUNT(1) AS m FROM c GROUP BY c.n) x ORDER BY x.m",
    ];
    for text in queries {
        let query = Arc::new(Compiled::new(text, &[], &Options::default()).unwrap());
        let whole = run(&query, &items, &Context::default()).unwrap();
        for page in 1..12 {
            assert_eq!(paged(&query, &items, page), whole, "{text} in pages of {page}");
        }
    }
}

/// Which values an inner query gives first is for it to say, as long as it says the same on every page.
#[test]
fn pages_over_an_inner_distinct_agree() {
    let items = items(&mut fastrand::Rng::with_seed(7), 40);
    let text =
        "SELECT x.n, t FROM (SELECT DISTINCT TOP 5 c.n FROM c) x JOIN t IN (SELECT VALUE [1, 2])";
    let query = Arc::new(Compiled::new(text, &[], &Options::default()).unwrap());
    let whole = paged(&query, &items, 100);
    assert_eq!(whole.len(), 10);
    for page in 1..12 {
        assert_eq!(paged(&query, &items, page), whole, "pages of {page}");
    }
}

/// Items go between pages, and with them what ranks are made of; the others come once, and in the order in which they first stood.
#[test]
fn ranks_outlast_the_items_that_they_were_made_of() {
    let mut random = fastrand::Rng::with_seed(8);
    let mut item = |id: usize| {
        let count = random.usize(0..9);
        let words: Vec<&str> =
            (0..count).map(|_| ["a", "b", "c", "d"][random.usize(0..4)]).collect();
        json!({"id": id, "s": words.join(" "), "v": [random.f64(), random.f64()]}).to_string()
    };
    let items: Vec<String> = (0..500).map(&mut item).collect();
    let queries = [
        "SELECT VALUE c.id FROM c ORDER BY RANK FullTextScore(c.s, \"a\", \"b\")",
        "SELECT VALUE c.id FROM c ORDER BY RANK VectorDistance(c.v, [1, 0])",
        "SELECT VALUE c.id FROM c ORDER BY RANK RRF(VectorDistance(c.v, [1, 0]), VectorDistance(c.v, [1, 1]))",
        "SELECT VALUE c.id FROM c ORDER BY RANK RRF(FullTextScore(c.s, \"a\"), VectorDistance(c.v, [1, 0]), [3, -1])",
    ];
    for text in queries {
        let query = Arc::new(Compiled::new(text, &[], &Options::default()).unwrap());
        let whole = run(&query, &items, &Context::default()).unwrap();
        let mut living = vec![true; items.len()];
        let mut random = fastrand::Rng::with_seed(9);
        let given = paged_while(&query, 13, || {
            let now = items.iter().enumerate().filter(|(n, _)| living[*n]);
            let now = now.map(|(n, item)| (n as u64, item.clone())).collect();
            let gone = (0..8).map(|_| random.usize(0..items.len()));
            gone.for_each(|gone| living[gone] = false);
            now
        });
        let survived = |id: &&String| living[id.parse::<usize>().unwrap()];
        let expected: Vec<&String> = whole.iter().filter(survived).collect();
        assert!(expected.len() < 400 && expected.len() > 100, "{text}: {}", expected.len());
        assert_eq!(given.iter().filter(survived).collect::<Vec<_>>(), expected, "{text}");
    }
}

/// The rows of a query that holds its rows back, taken a page at a time.
fn paged(query: &Arc<Compiled>, items: &[String], page: usize) -> Vec<String> {
    let numbered = || items.iter().cloned().enumerate().map(|(n, item)| (n as u64, item)).collect();
    paged_while(query, page, numbered)
}

/// The same, of the items that there are at each page.
fn paged_while(
    query: &Arc<Compiled>,
    page: usize,
    mut items: impl FnMut() -> Vec<(u64, String)>,
) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    let mut resume = None;
    loop {
        let context = Context { page_rows_max: Some(page), resume, ..Context::default() };
        let mut pipeline = Pipeline::new(query.clone(), &context);
        for (ordinal, item) in items() {
            if pipeline.push(item.as_bytes(), ordinal).unwrap() == Flow::Done {
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
        let last = given.positions()[taken - 1].clone();
        assert!(pipeline.measure().len() < 2_000);
        resume = Some(Resume::new(progress, last, pipeline.measure()));
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
        "SELECT x.id, t FROM (SELECT c.id, c.tags FROM c OFFSET 3 LIMIT 30) x JOIN t IN x.tags",
        "SELECT x.id FROM (SELECT c.id FROM c JOIN t IN c.tags OFFSET 2 LIMIT 31) x WHERE x.id != 3",
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
    let (mut start, mut rows_given, mut resume) = (0, 0, None);
    loop {
        let context = Context { page_rows_max: Some(page), resume, ..Context::default() };
        let mut pipeline = Pipeline::new(query.clone(), &context);
        let mut items = items.iter().enumerate().skip(start);
        let ended = items.find_map(|(ordinal, item)| {
            let given = if ordinal == start { rows_given } else { 0 };
            let flow = pipeline.push_from(item.as_bytes(), ordinal as u64, given).unwrap();
            (flow != Flow::More).then_some(flow)
        });
        let given = pipeline.take_rows();
        assert!(given.len() <= page);
        rows.extend(given.iter().map(|row| String::from_utf8(row.to_vec()).unwrap()));
        let Some(last) = given.positions().last().filter(|_| ended == Some(Flow::Full)) else {
            return rows;
        };
        (start, rows_given) = (last.ordinal as usize, last.row + 1);
        resume = Some(Resume::new(pipeline.progress(), last.clone(), Vec::new()));
    }
}
