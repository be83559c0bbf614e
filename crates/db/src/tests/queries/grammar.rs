//! Random queries, and what they mean, worked out the plain way: over a tree of the whole item, one item after the other.
//!
//! Nothing here uses the query crate: what a comparison, a sort or an aggregate gives is written down once more.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Value, json};

/// A query of the grammar.
#[derive(Clone, Debug)]
pub struct Query {
    pub select: Select,
    /// Whether there is a `JOIN t IN c.tags`.
    pub join: bool,
    /// What the items come from.
    pub inner: Inner,
    /// For `ORDER BY RANK`: the search terms of each score.
    pub rank: Vec<Vec<&'static str>>,
    pub filter: Option<Filter>,
    /// Paths, and whether each is descending.
    pub order: Vec<(&'static str, bool)>,
    pub offset: usize,
    pub limit: Option<usize>,
}

/// What comes after FROM.
#[derive(Clone, Copy, Debug)]
pub enum Inner {
    /// `c`.
    No,
    /// `(SELECT * FROM c) c`.
    All,
    /// `(SELECT * FROM c ORDER BY c.p DESC OFFSET o LIMIT l) c`, sorted or not.
    Some { order: Option<(&'static str, bool)>, offset: usize, limit: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    Star,
    /// `SELECT VALUE c.p`.
    Value(&'static str),
    /// `SELECT c.a, c.b`, with `t` where there is a JOIN.
    Fields,
    Distinct(&'static str),
    /// `SELECT VALUE COUNT(1)`, or another aggregate of a path.
    Aggregate(&'static str, &'static str),
    /// `SELECT c.p AS k, COUNT(1) AS n, MAX(c.b) AS m … GROUP BY c.p`.
    Group(&'static str),
}

#[derive(Clone, Debug)]
pub enum Filter {
    Compare(&'static str, &'static str, Value),
    Between(&'static str, Value, Value),
    In(&'static str, Vec<Value>),
    StartsWith(&'static str, &'static str),
    Defined(&'static str),
    Contains(Value),
    Exists(Value),
    And(Box<Filter>, Box<Filter>),
    Or(Box<Filter>, Box<Filter>),
    Not(Box<Filter>),
}

const PATHS: [&str; 5] = ["a", "b", "a.c", "id", "_ts"];

impl Query {
    pub fn random(random: &mut fastrand::Rng) -> Self {
        let path = |random: &mut fastrand::Rng| *random.choice(&["a", "b", "a.c", "n"]).unwrap();
        let select = match random.u8(0..14) {
            0..3 => Select::Star,
            3..5 => Select::Value("id"),
            5 => Select::Value(path(random)),
            6..8 => Select::Fields,
            8 | 9 => Select::Distinct(path(random)),
            10 | 11 => {
                let call = random.choice(&["COUNT", "SUM", "AVG", "MIN", "MAX"]).unwrap();
                Select::Aggregate(call, random.choice(&["1", "a", "n", "b"]).unwrap())
            }
            _ => Select::Group(path(random)),
        };
        let plain =
            !matches!(select, Select::Aggregate(..) | Select::Group(_) | Select::Distinct(_));
        let join = random.u8(0..5) == 0 && select != Select::Star;
        let descending = |random: &mut fastrand::Rng| random.bool();
        let order = match (select, random.u8(0..9)) {
            (Select::Distinct(path), 0..3) => vec![(path, descending(random))],
            (_, 0 | 1) if plain => vec![(*random.choice(&PATHS).unwrap(), descending(random))],
            (_, 2) if plain => vec![("a", false), ("b", false)],
            (_, 3) if plain => vec![("b", true), ("a", false)],
            (_, 4) if plain => vec![("_ts", true), ("a", true)],
            _ => Vec::new(),
        };
        let (offset, limit) = match random.u8(0..6) {
            0 if plain => (0, Some(random.usize(1..9))),
            1 if plain => (random.usize(1..6), Some(random.usize(1..12))),
            _ => (0, None),
        };
        let filter = (random.u8(0..4) > 0).then(|| Filter::random(random, 2));
        let rank = match random.u8(0..10) {
            0 if plain && order.is_empty() && !join => vec![vec!["k", "z"]],
            1 if plain && order.is_empty() && !join => vec![vec!["k"], vec!["z", "kk"]],
            _ => Vec::new(),
        };
        let inner = match random.u8(0..8) {
            _ if !order.is_empty() || !rank.is_empty() => Inner::No,
            0 if !join => Inner::All,
            1 | 2 if plain => Inner::Some {
                order: random.bool().then(|| (*random.choice(&PATHS).unwrap(), random.bool())),
                offset: random.usize(0..3),
                limit: random.usize(1..12),
            },
            _ => Inner::No,
        };
        Self { select, join, inner, rank, filter, order, offset, limit }
    }

    /// The items in the order in which an inner query would give them, before it counts any off.
    pub fn inner_order(
        &self,
        items: &[Value],
        by_age: impl Fn(&Value, &Value) -> Ordering,
    ) -> Vec<Value> {
        let mut items = items.to_vec();
        if let Inner::Some { order: Some((path, descending)), .. } = self.inner {
            items.sort_by(|a, b| {
                let order = compare(get(a, path), get(b, path));
                let order = if descending { order.reverse() } else { order };
                order.then_with(|| by_age(a, b))
            });
        }
        items
    }

    /// The places and rows of the items, given in the order in which a scan meets them. With `by_age`, how two items of the same keys are ordered.
    pub fn rows<'i>(
        &self,
        items: &'i [Value],
        by_age: impl Fn(&Value, &Value) -> Ordering,
    ) -> Vec<((&'i Value, usize), Value)> {
        let mut rows = Vec::new();
        for item in items {
            if self.filter.as_ref().is_some_and(|filter| filter.holds(item) != Some(true)) {
                continue;
            }
            let tags = item["tags"].as_array().map_or(&[][..], Vec::as_slice);
            let count = if self.join { tags.len() } else { 1 };
            for place in 0..count {
                let tag = tags.get(place).filter(|_| self.join);
                if let Some(row) = self.row(item, tag) {
                    rows.push(((item, place), row));
                }
            }
        }
        if !self.order.is_empty() {
            rows.sort_by(|((a, a_row), _), ((b, b_row), _)| {
                let keys = self.order.iter().map(|(path, descending)| {
                    let order = compare(get(a, path), get(b, path));
                    if *descending { order.reverse() } else { order }
                });
                let keys = keys.fold(Ordering::Equal, Ordering::then);
                keys.then_with(|| by_age(a, b)).then(a_row.cmp(b_row))
            });
        }
        rows
    }

    /// A row before grouping; `None` if it is undefined.
    fn row(&self, item: &Value, tag: Option<&Value>) -> Option<Value> {
        match self.select {
            Select::Star => Some(item.clone()),
            Select::Value(path) | Select::Distinct(path) => get(item, path).cloned(),
            Select::Fields => {
                let fields = [("a", get(item, "a")), ("b", get(item, "b")), ("t", tag)];
                let fields = fields.into_iter();
                let defined = fields.filter_map(|(name, v)| Some((name.to_owned(), v?.clone())));
                Some(Value::Object(defined.collect::<Map<_, _>>()))
            }
            Select::Aggregate(..) | Select::Group(_) => Some(item.clone()),
        }
    }

    /// The rows of a query that groups, in any order.
    pub fn groups(&self, items: &[Value]) -> Vec<Value> {
        let rows = self.rows(items, |_, _| Ordering::Equal);
        let rows: Vec<&Value> = rows.iter().map(|((item, _), _)| *item).collect();
        match self.select {
            Select::Aggregate(call, path) => aggregate(call, path, &rows).into_iter().collect(),
            Select::Group(path) => {
                let mut keys: Vec<Option<&Value>> = Vec::new();
                for row in &rows {
                    let key = get(row, path);
                    if !keys.iter().any(|known| compare(*known, key).is_eq()) {
                        keys.push(key);
                    }
                }
                let group = |key: Option<&Value>| {
                    let of_group = |row: &&&Value| compare(get(row, path), key).is_eq();
                    let rows: Vec<&Value> = rows.iter().filter(of_group).copied().collect();
                    let mut row = json!({"n": rows.len()});
                    key.into_iter().for_each(|key| row["k"] = key.clone());
                    let largest = aggregate("MAX", "b", &rows);
                    largest.into_iter().for_each(|largest| row["m"] = largest);
                    row
                };
                keys.into_iter().map(group).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// How well items match, measured by what there was when the first page was asked for.
#[derive(Clone, Debug)]
pub struct Measure {
    /// For each score: its terms, how many items have each, and all results.
    scores: Vec<(Vec<&'static str>, Vec<f64>, Vec<f64>)>,
    documents: f64,
    words: f64,
}

impl Measure {
    /// By all items of the scope, and by those of them that pass the filter.
    pub fn new(query: &Query, items: &[Value], passing: &[&Value]) -> Self {
        let has = |term: &str| items.iter().filter(|item| words(item).contains(&term)).count();
        let hits = |terms: &Vec<&str>| terms.iter().map(|term| has(term) as f64).collect();
        let scores = query.rank.iter().map(|terms| (terms.clone(), hits(terms), Vec::new()));
        let scores = scores.collect();
        let all_words: usize = items.iter().map(|item| words(item).len()).sum();
        let mut measure = Self { scores, documents: items.len() as f64, words: all_words as f64 };
        for n in 0..measure.scores.len() {
            measure.scores[n].2 = passing.iter().map(|item| measure.score(n, item)).collect();
        }
        measure
    }

    /// BM25.
    fn score(&self, n: usize, item: &Value) -> f64 {
        let words = words(item);
        let relative = 0.25 + 0.75 * words.len() as f64 / (self.words / self.documents).max(1.0);
        let (terms, hits, _) = &self.scores[n];
        let score = |(term, hits): (&&str, &f64)| {
            let count = words.iter().filter(|word| *word == term).count() as f64;
            let rarity = (1.0 + (self.documents - hits + 0.5) / (hits + 0.5)).ln();
            rarity * count * 2.2 / (count + 1.2 * relative)
        };
        terms.iter().zip(hits).map(score).sum()
    }

    /// The score, or several fused by their ranks.
    pub fn result(&self, item: &Value) -> f64 {
        if self.scores.len() == 1 {
            return self.score(0, item);
        }
        let fused = self.scores.iter().enumerate().map(|(n, (_, _, all))| {
            let mut better: Vec<f64> = all.clone();
            better.retain(|other| *other > self.score(n, item));
            better.sort_by(f64::total_cmp);
            better.dedup();
            1.0 / (61.0 + better.len() as f64)
        });
        fused.sum()
    }
}

fn words(item: &Value) -> Vec<&str> {
    item["s"]
        .as_str()
        .map(|text| text.split(' ').filter(|word| !word.is_empty()).collect())
        .unwrap_or_default()
}

/// What an aggregate comes to; `None` for undefined.
fn aggregate(call: &str, path: &str, rows: &[&Value]) -> Option<Value> {
    let one = json!(1);
    let value =
        |row: &&'_ Value| if path == "1" { Some(one.clone()) } else { get(row, path).cloned() };
    let values: Vec<Value> = rows.iter().filter_map(value).collect();
    let sum: Option<f64> = values.iter().map(Value::as_f64).sum();
    let primitive = values.iter().all(|value| !value.is_array() && !value.is_object());
    let sorted = || {
        let mut values = values.clone();
        values.sort_by(|a, b| compare(Some(a), Some(b)));
        values
    };
    match call {
        "COUNT" => Some(values.len().into()),
        "SUM" => sum.map(Value::from),
        "AVG" if values.is_empty() => None,
        "AVG" => sum.map(|sum| Value::from(sum / values.len() as f64)),
        "MIN" if primitive => sorted().into_iter().next(),
        "MAX" if primitive => sorted().pop(),
        _ => None,
    }
}

impl Filter {
    fn random(random: &mut fastrand::Rng, depth: u8) -> Self {
        let path = *random.choice(&PATHS).unwrap();
        let values = [
            json!(1),
            json!("k"),
            json!(null),
            json!(true),
            json!(3),
            json!(""),
            json!("7"),
            json!(1_000_004),
        ];
        let value = |random: &mut fastrand::Rng| random.choice(&values).unwrap().clone();
        let part = |random: &mut fastrand::Rng| Box::new(Self::random(random, depth - 1));
        match random.u8(0..if depth == 0 { 9 } else { 13 }) {
            0..4 => {
                let op = *random.choice(&["=", "=", "!=", "<", "<=", ">", ">="]).unwrap();
                Self::Compare(path, op, value(random))
            }
            4 => Self::Between(path, value(random), value(random)),
            5 => Self::In(path, vec![json!(1), value(random), json!("z")]),
            6 => Self::StartsWith(path, ["k", "kk", ""][random.usize(0..3)]),
            7 if random.bool() => Self::Defined(path),
            7 => Self::Contains(value(random)),
            8 => Self::Exists(value(random)),
            9 | 10 => Self::And(part(random), part(random)),
            11 => Self::Or(part(random), part(random)),
            _ => Self::Not(part(random)),
        }
    }

    /// `None` for undefined.
    fn holds(&self, item: &Value) -> Option<bool> {
        match self {
            Self::Compare(path, op, value) => compared(get(item, path)?, op, value),
            Self::Between(path, low, high) => {
                let found = get(item, path)?;
                both(compared(found, ">=", low), compared(found, "<=", high))
            }
            Self::In(path, list) => {
                let found = get(item, path)?;
                Some(list.iter().any(|value| compare(Some(found), Some(value)).is_eq()))
            }
            Self::StartsWith(path, start) => Some(get(item, path)?.as_str()?.starts_with(start)),
            Self::Defined(path) => Some(get(item, path).is_some()),
            Self::Contains(value) => Some(item["tags"].as_array()?.contains(value)),
            Self::Exists(value) => {
                let tags = item["tags"].as_array();
                Some(tags.is_some_and(|tags| tags.contains(value)))
            }
            Self::And(a, b) => both(a.holds(item), b.holds(item)),
            Self::Or(a, b) => {
                let neither = both(a.holds(item).map(|a| !a), b.holds(item).map(|b| !b));
                neither.map(|neither| !neither)
            }
            Self::Not(a) => a.holds(item).map(|a| !a),
        }
    }
}

/// AND of three values.
fn both(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn compared(found: &Value, op: &str, value: &Value) -> Option<bool> {
    let order = compare(Some(found), Some(value));
    // Booleans rank as two kinds in a sort.
    let kind = |value: &Value| if value.is_boolean() { 2 } else { rank(Some(value)) };
    match op {
        "=" => Some(order.is_eq()),
        "!=" => Some(order.is_ne()),
        _ if kind(found) != kind(value) => None,
        "<" => Some(order.is_lt()),
        "<=" => Some(order.is_le()),
        ">" => Some(order.is_gt()),
        _ => Some(order.is_ge()),
    }
}

/// The order of all values: undefined, null, false, true, numbers, strings, arrays, objects.
pub fn compare(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    let list = |map: &Map<String, Value>| {
        let mut members: Vec<_> = map.iter().map(|(k, v)| json!([k, v])).collect();
        members.sort_by(|a, b| compare(Some(a), Some(b)));
        members
    };
    match (a, b) {
        (Some(Value::Number(a)), Some(Value::Number(b))) => {
            a.as_f64().partial_cmp(&b.as_f64()).unwrap()
        }
        (Some(Value::String(a)), Some(Value::String(b))) => a.cmp(b),
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            let pairs = a.iter().zip(b).map(|(a, b)| compare(Some(a), Some(b)));
            pairs.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
        }
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            compare(Some(&list(a).into()), Some(&list(b).into()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

fn rank(value: Option<&Value>) -> u8 {
    match value {
        None => 0,
        Some(Value::Null) => 1,
        Some(Value::Bool(false)) => 2,
        Some(Value::Bool(true)) => 3,
        Some(Value::Number(_)) => 4,
        Some(Value::String(_)) => 5,
        Some(Value::Array(_)) => 6,
        Some(Value::Object(_)) => 7,
    }
}

/// What an item has at a path; `None` for undefined.
fn get<'v>(item: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(item, |value, name| value.get(name))
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = (self.offset, self.limit);
        write!(f, "SELECT ")?;
        if let (0, Some(limit)) = offset {
            write!(f, "TOP {limit} ")?;
        }
        match self.select {
            Select::Star => write!(f, "*")?,
            Select::Value(path) => write!(f, "VALUE c.{path}")?,
            Select::Fields if self.join => write!(f, "c.a, c.b, t")?,
            Select::Fields => write!(f, "c.a, c.b")?,
            Select::Distinct(path) => write!(f, "DISTINCT VALUE c.{path}")?,
            Select::Aggregate(call, "1") => write!(f, "VALUE {call}(1)")?,
            Select::Aggregate(call, path) => write!(f, "VALUE {call}(c.{path})")?,
            Select::Group(path) => write!(f, "c.{path} AS k, COUNT(1) AS n, MAX(c.b) AS m")?,
        }
        match self.inner {
            Inner::No => write!(f, " FROM c")?,
            Inner::All => write!(f, " FROM (SELECT * FROM c) c")?,
            Inner::Some { order, offset, limit } => {
                write!(f, " FROM (SELECT * FROM c")?;
                if let Some((path, descending)) = order {
                    write!(f, " ORDER BY c.{path}{}", if descending { " DESC" } else { "" })?;
                }
                write!(f, " OFFSET {offset} LIMIT {limit}) c")?;
            }
        }
        if self.join {
            write!(f, " JOIN t IN c.tags")?;
        }
        if let Some(filter) = &self.filter {
            write!(f, " WHERE {filter}")?;
        }
        if let Select::Group(path) = self.select {
            write!(f, " GROUP BY c.{path}")?;
        }
        for (at, (path, descending)) in self.order.iter().enumerate() {
            let (before, after) = (if at == 0 { " ORDER BY" } else { "," }, *descending);
            write!(f, "{before} c.{path}{}", if after { " DESC" } else { "" })?;
        }
        let score = |terms: &Vec<&str>| format!("FullTextScore(c.s, '{}')", terms.join("', '"));
        let scores: Vec<String> = self.rank.iter().map(score).collect();
        match scores.as_slice() {
            [] => {}
            [one] => write!(f, " ORDER BY RANK {one}")?,
            several => write!(f, " ORDER BY RANK RRF({})", several.join(", "))?,
        }
        match offset {
            (1.., Some(limit)) => write!(f, " OFFSET {} LIMIT {limit}", self.offset),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compare(path, op, value) => write!(f, "c.{path} {op} {value}"),
            Self::Between(path, low, high) => write!(f, "(c.{path} BETWEEN {low} AND {high})"),
            Self::In(path, list) => {
                let list: Vec<String> = list.iter().map(Value::to_string).collect();
                write!(f, "c.{path} IN ({})", list.join(", "))
            }
            Self::StartsWith(path, start) => write!(f, "STARTSWITH(c.{path}, '{start}')"),
            Self::Defined(path) => write!(f, "IS_DEFINED(c.{path})"),
            Self::Contains(value) => write!(f, "ARRAY_CONTAINS(c.tags, {value})"),
            Self::Exists(value) => {
                write!(f, "EXISTS(SELECT VALUE s FROM s IN c.tags WHERE s = {value})")
            }
            Self::And(a, b) => write!(f, "({a} AND {b})"),
            Self::Or(a, b) => write!(f, "({a} OR {b})"),
            Self::Not(a) => write!(f, "NOT ({a})"),
        }
    }
}
