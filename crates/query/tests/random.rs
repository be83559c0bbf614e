//! Random tests with fixed seeds: no text can make the crate panic, no page boundary changes a
//! result, and a plan never leaves out an item that belongs to the result.
//!
//! `QUERY_TEST_ROUNDS` makes them longer.

#![expect(clippy::unwrap_used, reason = "all of this file is a test")]

use std::path::Path;
use std::sync::Arc;

use query::plan::{Condition, Range};
use query::{Compiled, Context, Flow, Options, Pipeline};
use serde_json::{Value as Json, json};

/// Every query of the scripts.
fn corpus() -> Vec<String> {
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
            queries.extend(lines.map(|(_, query)| query.to_owned()));
        }
    }
    assert!(queries.len() > 200);
    queries
}

fn rounds(default: usize) -> usize {
    std::env::var("QUERY_TEST_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn parameters() -> Vec<(String, Json)> {
    let values = [("@n", json!(5)), ("@list", json!([1, {"a": "x"}])), ("@null", json!(null))];
    values.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

/// A value of any type, small numbers and letters mostly, so that equal ones are met.
fn value(random: &mut fastrand::Rng, depth: usize) -> Json {
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

fn object(random: &mut fastrand::Rng, depth: usize) -> Json {
    const NAMES: [&str; 12] =
        ["a", "b", "n", "x", "k", "t", "o", "s", "tags", "list", "c d", "flag"];
    let mut members = serde_json::Map::new();
    for _ in 0..random.usize(0..8) {
        members.insert(NAMES[random.usize(0..NAMES.len())].to_owned(), value(random, depth));
    }
    Json::Object(members)
}

fn items(random: &mut fastrand::Rng, count: usize) -> Vec<String> {
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
fn mutated(random: &mut fastrand::Rng, corpus: &[String]) -> String {
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

fn run(query: &Arc<Compiled>, items: &[String], context: &Context) -> query::Result<Vec<String>> {
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
    let text = format!("SELECT VALUE c{} FROM c", ".a".repeat(100_000));
    assert!(Compiled::new(&text, &[], &Options::default()).is_err());
    let text = format!("SELECT VALUE '{}'", "x".repeat(600_000));
    assert!(Compiled::new(&text, &[], &Options::default()).is_err());
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

/// Whether an item meets a condition, decided the slow and plain way.
fn meets(condition: &Condition, item: &Json) -> bool {
    match condition {
        Condition::All => true,
        Condition::Nothing => false,
        Condition::And(all) => all.iter().all(|condition| meets(condition, item)),
        Condition::Or(any) => any.iter().any(|condition| meets(condition, item)),
        Condition::Defined(path) => !values(path, item).is_empty(),
        Condition::Path(path, ranges) => {
            let values = values(path.strip_suffix("/?").unwrap(), item);
            values.iter().any(|value| ranges.iter().any(|range| holds(range, value)))
        }
    }
}

fn holds(range: &Range, value: &Json) -> bool {
    let low = model::value::compare_defined(value, &range.low.value);
    let high = model::value::compare_defined(value, &range.high.value);
    (low.is_gt() || low.is_eq() && range.low.inclusive)
        && (high.is_lt() || high.is_eq() && range.high.inclusive)
}

fn values<'j>(path: &str, item: &'j Json) -> Vec<&'j Json> {
    let mut found = vec![item];
    for segment in path.split('/').skip(1) {
        let name = serde_json::from_str(segment).ok().filter(|_| segment.starts_with('"'));
        let name: String = name.unwrap_or_else(|| segment.to_owned());
        found = match segment {
            "[]" => found.into_iter().filter_map(Json::as_array).flatten().collect(),
            _ => found.into_iter().filter_map(|value| value.get(&name)).collect(),
        };
    }
    found
}

/// A filter made of comparisons on a few paths.
fn filter(random: &mut fastrand::Rng, depth: usize) -> String {
    const PATHS: [&str; 9] =
        ["c.a", "c.b", "c.n", "c.o.a", "c.tags[0]", "c.tags[1].a", "c[\"c d\"]", "c.id", "c.pk"];
    let path = *random.choice(&PATHS).unwrap();
    let constant = value(random, 3);
    match random.u8(0..if depth > 2 { 9 } else { 13 }) {
        0..3 => {
            let op = random.choice(&["=", "!=", "<", "<=", ">", ">="]).unwrap();
            format!("{path} {op} {constant}")
        }
        3 => format!("{constant} > {path}"),
        4 => format!("{path} IN ({constant}, {}, {})", value(random, 2), value(random, 3)),
        5 => format!("{path} BETWEEN {constant} AND {}", value(random, 3)),
        6 => {
            let call = random.choice(&[
                "IS_DEFINED",
                "IS_NULL",
                "IS_NUMBER",
                "IS_STRING",
                "IS_BOOL",
                "IS_ARRAY",
                "IS_INTEGER",
            ]);
            format!("{}({path})", call.unwrap())
        }
        7 => {
            let call =
                random.choice(&["STARTSWITH", "CONTAINS", "STRINGEQUALS", "ENDSWITH"]).unwrap();
            let blind = random.choice(&["", ", true", ", false"]).unwrap();
            format!("{call}({path}, {constant}{blind})")
        }
        8 => match random.u8(0..4) {
            0 => format!("ARRAY_CONTAINS(c.tags, {constant})"),
            1 => format!("ARRAY_CONTAINS({}, {path})", json!([constant, 1])),
            2 => format!(
                "{path} LIKE {}",
                random.choice(&["\"a%\"", "\"%b\"", "\"a\"", "\"_\""]).unwrap()
            ),
            _ => format!("EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = {constant} OR t.a > 1)"),
        },
        9 => format!("NOT ({})", filter(random, depth + 1)),
        10 => path.to_owned(),
        11 => format!("({} AND {})", filter(random, depth + 1), filter(random, depth + 1)),
        _ => format!("({} OR {})", filter(random, depth + 1), filter(random, depth + 1)),
    }
}

#[test]
fn plans_leave_nothing_out() {
    let mut random = fastrand::Rng::with_seed(3);
    let items = items(&mut random, 300);
    let trees: Vec<Json> = items.iter().map(|item| serde_json::from_str(item).unwrap()).collect();
    let mut exact = 0;
    for _ in 0..rounds(600) {
        let text = format!("SELECT * FROM c WHERE {}", filter(&mut random, 0));
        let query = Arc::new(Compiled::new(&text, &[], &Options::default()).unwrap());
        let plan = query.plan();
        exact += usize::from(plan.exact);
        let pinned = plan.pinned(&["/pk/?"]);
        for (item, tree) in items.iter().zip(&trees) {
            let passes = query.matches(item.as_bytes(), &Context::default()).unwrap();
            let met = meets(&plan.condition, tree);
            assert!(met || !passes, "left out: {text}\n{item}\n{:?}", plan.condition);
            assert!(
                !plan.exact || met == passes,
                "not exact: {text}\n{item}\n{:?}",
                plan.condition
            );
            if let (true, Some(pinned)) = (passes, &pinned) {
                assert!(pinned.contains(&vec![tree["pk"].clone()]), "pinned: {text}\n{item}");
            }
        }
    }
    assert!(exact > rounds(600) / 10, "too few plans were exact: {exact}");
}

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

/// The rows of a streaming query, stopped after each page and resumed at the item of its last row.
fn streamed(query: &Arc<Compiled>, items: &[String], page: usize) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    let (mut start, mut resume) = (0, None);
    loop {
        let context = Context { resume: resume.clone(), ..Context::default() };
        let mut pipeline = Pipeline::new(query.clone(), &context);
        let mut taken = 0;
        for (ordinal, item) in items.iter().enumerate().skip(start) {
            let flow = pipeline.push(item.as_bytes(), ordinal as u64).unwrap();
            let given = pipeline.take_rows();
            let wanted = given.len().min(page - taken);
            rows.extend(
                given.iter().take(wanted).map(|row| String::from_utf8(row.to_vec()).unwrap()),
            );
            taken += wanted;
            if taken == page {
                let mut progress = pipeline.progress();
                progress.given -= (given.len() - wanted) as u64;
                let last = given.positions()[wanted - 1].clone();
                (start, resume) = (last.ordinal as usize, Some((progress, Some(last))));
                break;
            }
            if flow == Flow::Done || ordinal + 1 == items.len() {
                return rows;
            }
        }
        if taken < page {
            return rows;
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
