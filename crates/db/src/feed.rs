//! The change feed, latest version: each living item once, at its last change.

use bytes::Bytes;
use model::clock::Timestamp;
use storage::{Direction, Family, Snapshot};

use crate::charge;
use crate::items::{PAGE_BYTES_MAX, Page, Scope};
use crate::keys::{Key, PartitionId, ordinal_of, partition_range, position_of};
use crate::record::Record;
use crate::scan::ScopeFilter;
use crate::{Container, Db, Error, Reply, Result};

/// Where a reading of the change feed begins.
#[derive(Clone, Debug)]
pub enum ChangesRequest {
    /// With the first change.
    Beginning,
    /// With the next change after now.
    Now,
    /// With the changes at or after an instant.
    Since(Timestamp),
    /// After the etag of an earlier answer.
    After(String),
}

/// How many feed entries are read at a time.
const CHUNK: usize = 128;

/// What a feed entry says besides its key.
pub(crate) struct FeedEntry {
    pub lsn: u64,
    pub ordinal: u64,
    pub ts: Timestamp,
    /// Whether the item has an own ttl, and so does not follow the default.
    pub has_own_ttl: bool,
}

impl FeedEntry {
    pub fn decode(key: &[u8], value: &[u8]) -> storage::Result<Self> {
        let (ts, own) = value.split_first_chunk::<8>().ok_or_else(|| {
            storage::Error::Corrupt(format!(
                "a feed entry of {} bytes where 9 are expected",
                value.len()
            ))
        })?;
        Ok(Self {
            lsn: position_of(key)?,
            ordinal: ordinal_of(key)?,
            ts: Timestamp(u64::from_le_bytes(*ts)),
            has_own_ttl: own.first() != Some(&0),
        })
    }
}

impl Db {
    /// Changed items in the order of their last change, each with `_lsn`. The page's continuation is always there: it
    /// is the etag (with quotes) to go on from; an empty page means "no changes" (304).
    pub async fn changes(
        &self,
        container: &Container,
        scope: &Scope,
        from: &ChangesRequest,
        items_max: usize,
    ) -> Reply<Page> {
        let partition = container.partition();
        let session = partition.session();
        let mut charge = charge::MISS;
        let result = async {
            self.admit(partition)?;
            let horizon = container.runtime.ttl.horizon(self.now());
            let filter = ScopeFilter::new(container, scope)?;
            let snapshot = self.engine.snapshot();
            // What the purge has passed holds only items with another fate, and dead keys: a reader that starts at the beginning
            // still wants the former.
            let mut next = match from {
                ChangesRequest::Beginning => 0,
                ChangesRequest::Now => session.lsn + 1,
                ChangesRequest::Since(ts) => {
                    first_at(&*snapshot, partition.id, *ts, session.lsn).await?
                }
                ChangesRequest::After(etag) => parse_etag(etag)? + 1,
            };
            let mut rows = Vec::new();
            let (mut bytes, mut looked) = (0, 0);
            'page: loop {
                let range = feed_from(partition.id, next);
                let pairs = snapshot.scan(Family::Feed, range, Direction::Forward, CHUNK).await?;
                looked += pairs.len();
                for (key, value) in &pairs {
                    let entry = FeedEntry::decode(key, value)?;
                    let full = rows.len() >= items_max || bytes > PAGE_BYTES_MAX;
                    if full && entry.lsn >= next {
                        break 'page;
                    }
                    next = entry.lsn + 1;
                    let key =
                        Key::Item { partition: partition.id, ordinal: entry.ordinal }.encode();
                    let Some(stored) = snapshot.get(Family::Item, &key).await? else { continue };
                    let record = Record::decode(&key, stored)?;
                    let live = horizon.is_live(record.ts, record.own_ttl);
                    if live && filter.admits(&record) {
                        bytes += record.body.len();
                        rows.push(with_lsn(&record));
                    }
                }
                if pairs.len() < CHUNK {
                    next = next.max(session.lsn + 1);
                    break;
                }
                tokio::task::yield_now().await;
            }
            charge = charge::scan(rows.len(), bytes, looked);
            Ok(Page { rows, continuation: Some(format!("\"{}\"", next - 1)) })
        }
        .await;
        self.settle(partition, charge);
        Reply { result, charge, session: Some(session) }
    }
}

/// The feed from a change on.
pub(crate) fn feed_from(partition: PartitionId, lsn: u64) -> std::ops::Range<Bytes> {
    Key::Feed { partition, lsn, ordinal: 0 }.encode()..partition_range(partition).end
}

/// The first change at or after an instant: `_ts` never decreases along the feed, so halving finds it.
async fn first_at(
    snapshot: &dyn Snapshot,
    partition: PartitionId,
    ts: Timestamp,
    last: u64,
) -> Result<u64> {
    let (mut low, mut high) = (0, last + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let found = snapshot
            .scan(Family::Feed, feed_from(partition, middle), Direction::Forward, 1)
            .await?;
        match found.first().map(|(key, value)| FeedEntry::decode(key, value)).transpose()? {
            Some(entry) if entry.ts < ts => low = entry.lsn + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

fn parse_etag(etag: &str) -> Result<u64> {
    etag.trim_matches('"')
        .parse()
        .map_err(|_| Error::Invalid(format!("The change feed's etag {etag} is invalid.")))
}

/// The item with its change's number behind the other system properties.
fn with_lsn(record: &Record) -> Bytes {
    let open = record.body.strip_suffix(b"}").unwrap_or(&record.body);
    [open, format!(",\"_lsn\":{}}}", record.lsn).as_bytes()].concat().into()
}
