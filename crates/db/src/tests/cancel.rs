//! A query whose client has gone reads no further: front ends drop it, and it lets them do so every few items.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use serde_json::json;

use super::World;
use crate::items::{PageRequest, ReadOptions, Scope, Verb, Write};
use crate::{Options, QueryRequest};

const ITEMS: usize = 3_000;

#[tokio::test]
async fn a_query_whose_client_has_gone_reads_no_further() {
    let world = World::in_memory(Options::default()).await;
    let definition = json!({"id": "c", "partitionKey": {"paths": ["/id"], "version": 2}, "indexingPolicy": {"excludedPaths": [{"path": "/*"}]}});
    world.db.create_container("d", &definition, None).await.unwrap();
    let container = world.container();
    for first in (0..ITEMS).step_by(100) {
        let create = |n: usize| Write {
            verb: Verb::Create,
            partition_key: None,
            body: json!({"id": n.to_string(), "n": n}).to_string().into(),
            if_match: None,
            if_none_match: None,
        };
        let created = world.db.bulk(&container, (first..first + 100).map(create).collect()).await;
        assert!(created.result.unwrap().iter().all(|outcome| outcome.result.is_ok()));
    }
    let query = QueryRequest {
        text: "SELECT VALUE c.id FROM c WHERE c.n < 0".to_owned(),
        parameters: Vec::new(),
        cross_partition: true,
        scan: true,
        scope: Scope::Container,
        resume: None,
    };
    let page = PageRequest { items_max: 1, continuation: None };
    let mut turns = 0;
    let mut running = pin!(world.db.query(&container, &query, &page, ReadOptions::default()));
    let reply = poll_fn(|context| {
        turns += 1;
        running.as_mut().poll(context)
    });
    let page_read = reply.await.result.unwrap();
    assert_eq!((page_read.rows.len(), page_read.account.items), (0, ITEMS));
    assert!(turns > ITEMS / 512, "it gave way {turns} times only");

    // Between two of its turns it can be dropped.
    let mut dropped = Box::pin(world.db.query(&container, &query, &page, ReadOptions::default()));
    let pending = poll_fn(|context| Poll::Ready(dropped.as_mut().poll(context).is_pending())).await;
    assert!(pending);
}
