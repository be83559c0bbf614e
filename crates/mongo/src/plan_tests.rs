//! The way to the documents must not change which they are, nor their order: random documents, indexes, filters and sorts, with the planner's
//! choice against reading everything. A failure names its seed.

use bson::{Bson, Document, RawDocumentBuf, doc};
use fastrand::Rng;

use crate::language::sort::Sort;
use crate::script_tests::World;

/// Collections that are tried.
const SEEDS: u64 = 30;

/// Documents in each, and questions about them.
const DOCUMENTS: i32 = 40;
const QUESTIONS: usize = 25;

#[test]
fn an_index_changes_neither_what_is_found_nor_its_order() {
    let mut along = 0;
    for seed in 0..SEEDS {
        let mut random = Rng::with_seed(seed);
        let mut world = World::new();
        // Half of the collections have no arrays: sorts can go along their indexes.
        let arrays = random.bool();
        let documents: Vec<Bson> =
            (0..DOCUMENTS).map(|id| Bson::Document(document(&mut random, id, arrays))).collect();
        let indexes: Vec<Bson> = (0..3).map(|at| Bson::Document(index(&mut random, at))).collect();
        let mut ask = |command: Document| {
            let reply = world.ask("d", command.clone()).unwrap();
            assert!(reply.get_f64("ok").is_ok_and(|ok| ok == 1.0), "{command}: {reply}");
            reply
        };
        ask(doc! {"createIndexes": "c", "indexes": &indexes});
        // Parallel arrays cannot be indexed: such documents stay out.
        ask(doc! {"insert": "c", "documents": documents, "ordered": false});
        for _ in 0..QUESTIONS {
            let filter = filter(&mut random);
            let sort = order(&mut random);
            let find = doc! {"find": "c", "filter": &filter, "sort": &sort};
            let mut natural = find.clone();
            natural.insert("hint", doc! {"$natural": 1});
            let (found, wanted) = (rows(&ask(find.clone())), rows(&ask(natural)));
            let when = format!("seed {seed}: {find}, indexes {indexes:?}");
            assert_eq!(by_id(&found), by_id(&wanted), "{when}");
            if !sort.is_empty() {
                let raw = RawDocumentBuf::try_from(&sort).unwrap();
                let order = Sort::parse(&raw, None).unwrap();
                let key = |row: &Document| order.key(&RawDocumentBuf::try_from(row).unwrap());
                assert!(found.is_sorted_by_key(key), "{when}: {found:?}");
                let plan = ask(doc! {"explain": find, "verbosity": "queryPlanner"}).to_string();
                along += usize::from(plan.contains("IXSCAN") && !plan.contains("SORT"));
            }
        }
    }
    assert!(along > 50, "only {along} sorts went along an index: the test tests little");
}

const FIELDS: [&str; 3] = ["a", "b", "s.x"];

fn value(random: &mut Rng) -> Bson {
    match random.u32(0..9) {
        0..4 => Bson::Int32(random.i32(0..8)),
        4 => Bson::Double(f64::from(random.i32(0..16)) / 2.0),
        5 | 6 => Bson::String(["", "a", "b", "bb"][random.usize(..4)].into()),
        7 => Bson::Null,
        _ => Bson::Boolean(random.bool()),
    }
}

fn document(random: &mut Rng, id: i32, arrays: bool) -> Document {
    let mut out = doc! {"_id": id};
    for field in ["a", "b"] {
        match random.u32(0..10) {
            0 => {}
            1 | 2 if arrays => {
                let count = random.usize(0..4);
                out.insert(field, (0..count).map(|_| value(random)).collect::<Vec<_>>());
            }
            _ => drop(out.insert(field, value(random))),
        }
    }
    match random.u32(0..4) {
        0 => {}
        1 if arrays => {
            let list = [doc! {"x": value(random)}, doc! {"y": 1}, doc! {"x": value(random)}];
            out.insert("s", list[..random.usize(1..4)].to_vec());
        }
        _ => drop(out.insert("s", doc! {"x": value(random)})),
    }
    out
}

fn index(random: &mut Rng, at: usize) -> Document {
    let mut fields = FIELDS;
    random.shuffle(&mut fields);
    let mut key = Document::new();
    for field in &fields[..random.usize(1..4)] {
        key.insert(*field, if random.bool() { 1 } else { -1 });
    }
    let mut index = doc! {"key": key, "name": format!("i{at}")};
    if random.u32(0..4) == 0 {
        index.insert("sparse", true);
    }
    index
}

/// Equality, one comparison, two at a time, or a list.
fn condition(random: &mut Rng) -> Bson {
    let condition = match random.u32(0..6) {
        0 => return value(random),
        1 => doc! {"$gte": value(random)},
        2 => doc! {"$gt": value(random), "$lte": value(random)},
        3 => doc! {"$gte": value(random), "$lt": value(random)},
        4 => doc! {"$in": [value(random), value(random), value(random)]},
        _ => doc! {"$ne": value(random)},
    };
    Bson::Document(condition)
}

fn filter(random: &mut Rng) -> Document {
    let mut filter = Document::new();
    for field in FIELDS {
        if random.u32(0..3) == 0 {
            filter.insert(field, condition(random));
        }
    }
    if random.u32(0..5) == 0 {
        filter.insert("_id", doc! {"$gte": random.i32(0..20), "$lt": random.i32(10..40)});
    }
    filter
}

fn order(random: &mut Rng) -> Document {
    let mut fields = FIELDS;
    random.shuffle(&mut fields);
    let mut order = Document::new();
    for field in &fields[..random.usize(0..3)] {
        order.insert(*field, if random.bool() { 1 } else { -1 });
    }
    order
}

fn rows(reply: &Document) -> Vec<Document> {
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|row| row.as_document().unwrap().clone()).collect()
}

fn by_id(rows: &[Document]) -> Vec<i32> {
    let mut ids: Vec<i32> = rows.iter().map(|row| row.get_i32("_id").unwrap()).collect();
    ids.sort_unstable();
    ids
}
