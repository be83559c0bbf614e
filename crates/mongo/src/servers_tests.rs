//! Two servers on one store, and drivers that talk to both.

use std::sync::Arc;

use bson::{Document, doc};
use model::clock::{Timestamp, VirtualClock};
use storage::Engine;
use storage::memory::Memory;

use crate::script_tests::World;

fn servers() -> (World, World, Arc<VirtualClock>) {
    let clock = Arc::new(VirtualClock::frozen(Timestamp(1_700_000_000)));
    let engine: Arc<dyn Engine> = Arc::new(Memory::new());
    (World::sharing(&engine, &clock), World::sharing(&engine, &clock), clock)
}

fn batch(reply: &Document, name: &str) -> Vec<Document> {
    let cursor = reply.get_document("cursor").unwrap_or_else(|_| panic!("{reply}"));
    cursor.get_array(name).unwrap().iter().map(|row| row.as_document().unwrap().clone()).collect()
}

fn found(world: &mut World) -> Vec<Document> {
    batch(&world.ask("d", doc! {"find": "c", "sort": {"_id": 1}}).unwrap(), "firstBatch")
}

#[test]
fn what_one_server_has_written_the_other_reads_and_changes() {
    let (mut a, mut b, _) = servers();
    a.ask("d", doc! {"insert": "c", "documents": [{"_id": 1, "n": 1}, {"_id": 2, "n": 2}]})
        .unwrap();
    assert_eq!(found(&mut b), [doc! {"_id": 1, "n": 1}, doc! {"_id": 2, "n": 2}]);
    let add = doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 10}}}]};
    for _ in 0..5 {
        b.ask("d", add.clone()).unwrap();
        a.ask("d", add.clone()).unwrap();
    }
    assert_eq!(found(&mut a)[0], doc! {"_id": 1, "n": 101});
    // A unique index that one has made holds for the other.
    let index = doc! {"key": {"n": 1}, "name": "n", "unique": true};
    a.ask("d", doc! {"createIndexes": "c", "indexes": [index]}).unwrap();
    let reply = b.ask("d", doc! {"insert": "c", "documents": [{"_id": 3, "n": 2}]}).unwrap();
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!(error.get_i32("code").unwrap(), 11_000);
    b.ask("d", doc! {"drop": "c"}).unwrap();
    assert!(found(&mut a).is_empty());
}

/// R25: a TTL index that one server makes counts for the other from its next command on; dropped, too.
#[test]
fn ttl_r25_an_index_counts_for_both() {
    let (mut a, mut b, clock) = servers();
    b.ask("d", doc! {"insert": "c", "documents": [{"_id": 1}]}).unwrap();
    clock.advance(10);
    let index = doc! {"key": {"_ts": 1}, "name": "t", "expireAfterSeconds": 10};
    a.ask("d", doc! {"createIndexes": "c", "indexes": [index]}).unwrap();
    assert!(found(&mut b).is_empty());
    a.ask("d", doc! {"dropIndexes": "c", "index": "t"}).unwrap();
    b.ask("d", doc! {"insert": "c", "documents": [{"_id": 2}]}).unwrap();
    clock.advance(20);
    assert_eq!(found(&mut b), [doc! {"_id": 2}]);
    // What has expired stays so, and its name is free (R13, R09).
    b.ask("d", doc! {"insert": "c", "documents": [{"_id": 1}]}).unwrap();
    assert_eq!(found(&mut a).len(), 2);
}

#[test]
fn a_change_stream_shows_what_another_server_writes() {
    let (mut a, mut b, _) = servers();
    a.ask("d", doc! {"insert": "c", "documents": [{"_id": 0}]}).unwrap();
    let watch = doc! {"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}};
    let opened = b.ask("d", watch).unwrap();
    let cursor = opened.get_document("cursor").unwrap().get_i64("id").unwrap();
    for n in 1..4 {
        a.ask("d", doc! {"insert": "c", "documents": [{"_id": n}]}).unwrap();
    }
    let more = doc! {"getMore": cursor, "collection": "c", "maxTimeMS": 1};
    let rows = batch(&b.ask("d", more).unwrap(), "nextBatch");
    let ids: Vec<_> = rows.iter().map(|row| row.get_document("documentKey").unwrap()).collect();
    assert_eq!(ids, [&doc! {"_id": 1}, &doc! {"_id": 2}, &doc! {"_id": 3}]);
    // A place in the stream that one server has given is good at the other.
    let resume =
        doc! {"$changeStream": {"resumeAfter": rows[0].get_document("_id").unwrap().clone()}};
    let again = doc! {"aggregate": "c", "pipeline": [resume], "cursor": {}};
    let rows = batch(&a.ask("d", again).unwrap(), "firstBatch");
    assert_eq!(rows.len(), 2);
}
