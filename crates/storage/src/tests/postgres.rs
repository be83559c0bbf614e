//! A store on PostgreSQL: opening, when all is well and when it is not; two servers; lost connections.

use std::sync::Arc;

use super::put;
use crate::postgres::{Buckets, Options, Postgres};
use crate::testing::postgres::{as_user, database, sql};
use crate::{Batch, Direction, Engine, Error, Family};

/// Eight bytes of the key; rows of the catalog are anywhere.
pub(super) const BUCKETS: Buckets = Buckets {
    of: |family, key| match family {
        Family::Catalog => key.last().map_or(0, |last| u64::from(*last)),
        _ => {
            let byte = |at: usize| key.get(at).copied().unwrap_or(0);
            u64::from_be_bytes(std::array::from_fn(byte)) >> 1
        }
    },
    home: |bucket| bucket,
};

pub(super) async fn open(url: &str) -> crate::Result<Postgres> {
    let options = Options { writers: 2, readers: 2, snapshots_max: 100 };
    Postgres::open(url, BUCKETS, options).await
}

async fn refusal(url: &str) -> String {
    super::refusal(open(url).await)
}

/// A batch as a partition's: its head is checked and counted up.
pub(super) fn counted(from: u64, key: &str) -> Batch {
    let mut batch = put(key, "x");
    let head = |n: u64| (n > 0).then(|| n.to_string().into());
    batch.check(Family::Catalog, "head", head(from));
    batch.put(Family::Catalog, "head", (from + 1).to_string());
    batch
}

/// That head, as soon as a session lives long enough to ask for it.
pub(super) async fn head(engine: &Postgres) -> u64 {
    loop {
        if let Ok(head) = engine.get(Family::Catalog, b"head").await {
            return head.map_or(0, |head| std::str::from_utf8(&head).unwrap().parse().unwrap());
        }
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_used_says_why() {
    let Some(url) = database() else { return };
    drop(open(&url).await.unwrap());

    let text = refusal("postgres://127.0.0.1:1/x").await;
    assert!(text.contains("127.0.0.1:1") && text.contains("refused"), "{text}");
    let text = refusal(&url.replacen("/t", "/not_t", 1)).await;
    assert!(text.contains("there is no database 'not_t"), "{text}");

    sql(&url, "DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN");
    let text = refusal(&as_user(&url, "guest")).await;
    assert!(text.contains("permission denied"), "{text}");
    sql(&url, "GRANT SELECT ON sidereal_store, sidereal_kv TO guest");
    let text = refusal(&as_user(&url, "guest")).await;
    assert!(text.contains("GRANT SELECT, INSERT, UPDATE, DELETE"), "{text}");

    sql(&url, "ALTER ROLE guest SET default_transaction_read_only = on");
    let text = refusal(&as_user(&url, "guest")).await;
    assert!(text.contains("it is read-only"), "{text}");

    sql(&url, "UPDATE sidereal_store SET format = 2");
    let text = refusal(&url).await;
    assert!(text.contains("newer version of Sidereal (format 2; this version knows 1)"), "{text}");
    sql(&url, "UPDATE sidereal_store SET format = 1, places = 2");
    let text = refusal(&url).await;
    assert!(text.contains("is number 1 of 2"), "{text}");
    sql(&url, "DROP OWNED BY guest; DROP ROLE guest");
}

#[tokio::test]
async fn without_rights_the_tables_are_not_made() {
    let Some(url) = database() else { return };
    sql(
        &url,
        "DROP ROLE IF EXISTS maker; CREATE ROLE maker LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC",
    );
    let text = refusal(&as_user(&url, "maker")).await;
    assert!(text.contains("GRANT CREATE ON SCHEMA public"), "{text}");
}

/// Many at once, on one head: each number is given out once, nothing is lost and nothing torn.
#[tokio::test(flavor = "multi_thread")]
async fn two_servers_never_interleave() {
    let Some(url) = database() else { return };
    let mut servers = Vec::new();
    let start = Arc::new(tokio::sync::Barrier::new(2));
    for server in 0..2 {
        let engine = Arc::new(open(&url).await.unwrap());
        let start = start.clone();
        servers.push(tokio::spawn(async move {
            let (mut made, mut conflicts) = (0, 0);
            while made < 50 {
                let head = head(&engine).await;
                if made + conflicts == 0 {
                    // Both have the same head at first: one of them is refused.
                    start.wait().await;
                }
                match engine.commit(counted(head, &format!("{head:03}-{server}"))).await {
                    Ok(()) => made += 1,
                    Err(Error::Conflict) => conflicts += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            conflicts
        }));
    }
    let mut conflicts = 0;
    for server in servers {
        conflicts += server.await.unwrap();
    }
    assert!(conflicts > 0, "they never met");
    let engine = open(&url).await.unwrap();
    let all = engine.snapshot();
    let all = all.scan(Family::Item, "".into().."9".into(), Direction::Forward, usize::MAX);
    let numbers: Vec<_> = all.await.unwrap().iter().map(|(key, _)| key.slice(..3)).collect();
    let expected: Vec<_> = (0..100).map(|n| format!("{n:03}")).collect();
    assert_eq!(numbers, expected);
}

/// Sessions are killed under load: each commit is known to be made or not, by the next check of the head.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_commit_is_found_out() {
    let Some(url) = database() else { return };
    let engine = Arc::new(open(&url).await.unwrap());
    let killing = {
        let url = url.clone();
        tokio::task::spawn_blocking(move || {
            for _ in 0..10 {
                sql(
                    &url,
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                     WHERE datname = current_database() AND pid <> pg_backend_pid()",
                );
            }
        })
    };
    let mut next = 0;
    while !killing.is_finished() || next < 2 {
        match engine.commit(counted(next, &format!("{next:05}"))).await {
            Ok(()) => next += 1,
            // The look for it was killed, too.
            Err(Error::Unknown(_)) => next = head(&engine).await,
            Err(Error::Unavailable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(head(&engine).await, next);
}

#[tokio::test]
async fn a_pulse_has_the_value_and_the_time() {
    let Some(url) = database() else { return };
    let engine = open(&url).await.unwrap();
    engine.commit(put("k", "v")).await.unwrap();
    let pulse = engine.pulse(Family::Item, b"k").unwrap().await.unwrap();
    assert_eq!(pulse.value, Some("v".into()));
    assert!(pulse.now_secs > 1_700_000_000);
    engine.close().await.unwrap();
    assert!(matches!(engine.pulse(Family::Item, b"k").unwrap().await, Err(Error::Closed)));
}

/// A conflict in the middle of many commits of a bucket fails those behind it that were made on it, and no others.
#[tokio::test]
async fn commits_of_a_bucket_keep_their_order() {
    let Some(url) = database() else { return };
    let engine = open(&url).await.unwrap();
    let commits: Vec<_> = (0..20).map(|n| engine.commit(counted(n, "k"))).collect();
    for commit in commits {
        commit.await.unwrap();
    }
    let bad = engine.commit(counted(3, "k"));
    let good = engine.commit(counted(20, "k"));
    assert!(matches!(bad.await, Err(Error::Conflict)));
    good.await.unwrap();
}
