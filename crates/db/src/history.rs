//! The change feed, all versions and deletes: a log of every change beside the feed, for containers that ask for it.
//!
//! A container's `changeFeedPolicy.retentionDuration` (minutes) turns it on. Each write then puts one entry into the log, in its own batch: what the
//! item became, what it was, and why it went. An item that expires stands there once, when it is removed (R24), with its last
//! body if the policy's `expiredBodies` says so, which is ours.
//!
//! The head knows from which change on the log is complete (`log_from`), and where its first entry is (`log_begin`). Whoever asks for
//! less than the former is told that it is too late: a log with holes would be worse than none. The purge cuts what is older than the retention;
//! a writer whose log has reached its size (`maxSizeInMB`, ours) cuts the oldest entries first.
//!
//! ```text
//!  0 kind: 1 create, 2 replace, 3 delete, 4 expiry, 5 update   1 when (u64)   9 lsn of what it was (u64)
//! 17 length of the name (u32)   21 length of what it became (u32)   25 CRC-32C of all the rest (u32)
//! 29 name (partition key, id)   … what it became   … what it was
//! ```

use bytes::Bytes;
use model::clock::Timestamp;
use serde_json::{Map, Value, json};
use storage::{Direction, Family};

use crate::feed::{self, FeedPage, FeedRead};
use crate::keys::{Key, PartitionId, decode_partition_key, encode_partition_key, history_from};
use crate::partition::Partition;
use crate::purge::Purged;
use crate::ranges::Target;
use crate::scan::successor;
use crate::settings::Settings;
use crate::writer::{Round, Stored};
use crate::{Container, Db, Error, Result};

/// How long, and how much, a container remembers of its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryPolicy {
    /// For how many seconds.
    pub retention_secs: u64,
    /// Whether the entry of an expired item holds its last body.
    pub expired_bodies: bool,
    /// The most bytes that the log of a partition takes.
    pub bytes_max: u64,
}

impl HistoryPolicy {
    /// Reads `changeFeedPolicy`; a retention of nothing is no policy.
    pub fn parse(policy: Option<&Value>) -> Result<Option<Self>> {
        let Some(policy) = policy.filter(|policy| !policy.is_null()) else { return Ok(None) };
        let minutes = match policy.get("retentionDuration") {
            None | Some(Value::Null) => 0,
            Some(value) => value.as_u64().filter(|minutes| *minutes <= MINUTES_MAX).ok_or_else(|| {
                Error::Invalid(format!(
                    "The changeFeedPolicy's retentionDuration {value} is invalid: it is a number of minutes from 0 (off) to \
                     {MINUTES_MAX}."
                ))
            })?,
        };
        let expired_bodies = policy["expiredBodies"].as_bool().unwrap_or(false);
        let megabytes = match policy.get("maxSizeInMB") {
            None | Some(Value::Null) => MEGABYTES_DEFAULT,
            Some(value) => {
                let legal = value.as_u64().filter(|size| (1..=MEGABYTES_MAX).contains(size));
                legal.ok_or_else(|| {
                    Error::Invalid(format!(
                        "The changeFeedPolicy's maxSizeInMB {value} is invalid: it is a number of megabytes from 1 to {MEGABYTES_MAX}."
                    ))
                })?
            }
        };
        let (retention_secs, bytes_max) = (60 * minutes, megabytes << 20);
        Ok((minutes > 0).then_some(Self { retention_secs, expired_bodies, bytes_max }))
    }
}

/// The longest retention: thirty days, as the service's.
const MINUTES_MAX: u64 = 30 * 24 * 60;

/// What the log of a partition may take where the policy does not say, and at most.
const MEGABYTES_DEFAULT: u64 = 1 << 10;
const MEGABYTES_MAX: u64 = 1 << 20;

/// Entries that are cut at a time to make room.
const SHORTENED_BY: usize = 256;

/// How many entries of the log are read at a time.
const CHUNK: usize = 128;

/// Why an entry is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The item is new.
    Create = 1,
    /// Another body was put in its place.
    Replace = 2,
    /// A client removed it.
    Delete = 3,
    /// It had expired, and the purge removed it.
    Expiry = 4,
    /// Parts of it were changed, by an [edit](crate::documents::Edit).
    Update = 5,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// What happened.
    pub change: Change,
    /// When.
    pub ts: Timestamp,
    previous_lsn: u64,
    /// The item's name: partition key and id, or a document's name.
    pub name: Bytes,
    /// What it became; empty if it went.
    pub current: Bytes,
    /// What it was; empty if it was not there.
    pub previous: Bytes,
}

/// A place in the log: the next entry to be read, or where it will be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition {
    /// The change.
    pub lsn: u64,
    /// Which of its entries.
    pub seq: u32,
}

const HEADER: usize = 29;
const CRC_AT: usize = 25;

impl Version {
    fn encode(&self) -> Vec<u8> {
        let room = HEADER + self.name.len() + self.current.len() + self.previous.len();
        let mut bytes = Vec::with_capacity(room);
        bytes.push(self.change as u8);
        bytes.extend_from_slice(&self.ts.0.to_le_bytes());
        bytes.extend_from_slice(&self.previous_lsn.to_le_bytes());
        bytes.extend_from_slice(&(self.name.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.current.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for part in [&self.name, &self.current, &self.previous] {
            bytes.extend_from_slice(part);
        }
        let crc = checksum(&bytes);
        bytes[CRC_AT..HEADER].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(key: &[u8], bytes: &Bytes) -> storage::Result<Self> {
        Self::read(bytes).ok_or_else(|| {
            storage::Error::Corrupt(format!("the entry {key:02x?} of the log of changes"))
        })
    }

    fn read(bytes: &Bytes) -> Option<Self> {
        let u64_at = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let change = match bytes.first()? {
            1 => Change::Create,
            2 => Change::Replace,
            3 => Change::Delete,
            4 => Change::Expiry,
            5 => Change::Update,
            _ => return None,
        };
        let name_end = HEADER.checked_add(u32_at(17)? as usize)?;
        let current_end = name_end.checked_add(u32_at(21)? as usize)?;
        if bytes.len() < current_end || u32_at(CRC_AT)? != checksum(bytes) {
            return None;
        }
        Some(Self {
            change,
            ts: Timestamp(u64_at(1)?),
            previous_lsn: u64_at(9)?,
            name: bytes.slice(HEADER..name_end),
            current: bytes.slice(name_end..current_end),
            previous: bytes.slice(current_end..),
        })
    }

    /// As the wire shows it.
    fn to_json(&self, lsn: u64, settings: &Settings) -> storage::Result<Bytes> {
        let operation = match self.change {
            Change::Create => "create",
            Change::Replace | Change::Update => "replace",
            Change::Delete | Change::Expiry => "delete",
        };
        let mut metadata = json!({"operationType": operation, "lsn": lsn, "crts": self.ts.0});
        if self.previous_lsn > 0 {
            metadata["previousImageLSN"] = self.previous_lsn.into();
        }
        if self.change == Change::Expiry {
            metadata["timeToLiveExpired"] = true.into();
        }
        if matches!(self.change, Change::Delete | Change::Expiry) {
            let paths = &settings.partition_key.paths;
            let key = decode_partition_key(&self.name, paths.len())?;
            let id = &self.name[encode_partition_key(&key).len()..];
            let pair = |(path, value): (&model::path::Path, &model::partition_key::Component)| {
                (path.segments().join("/"), value.to_json())
            };
            metadata["id"] = String::from_utf8_lossy(id).into();
            metadata["partitionKey"] =
                Value::Object(paths.iter().zip(&key.0).map(pair).collect::<Map<_, _>>());
        }
        let metadata = metadata.to_string();
        let current: &[u8] = if self.current.is_empty() { b"{}" } else { &self.current };
        let mut text =
            Vec::with_capacity(current.len() + metadata.len() + self.previous.len() + 40);
        for part in [br#"{"current":"#, current, br#","metadata":"#, metadata.as_bytes()] {
            text.extend_from_slice(part);
        }
        if !self.previous.is_empty() {
            text.extend_from_slice(br#","previous":"#);
            text.extend_from_slice(&self.previous);
        }
        text.push(b'}');
        Ok(text.into())
    }
}

/// What an entry of the log takes.
pub(crate) fn entry_bytes(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64
}

fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..CRC_AT]), &bytes[HEADER..])
}

impl Round<'_> {
    /// Remembers a change, if the container asks for that.
    pub fn remember(
        &mut self,
        change: Change,
        name: &Bytes,
        current: Option<&Bytes>,
        previous: Option<&Stored>,
    ) {
        let Some(policy) = self.writer.runtime.settings().history else {
            // From here on the log has a hole.
            self.head.log_from = 0;
            return;
        };
        let kept = change != Change::Expiry || policy.expired_bodies;
        let version = Version {
            change,
            ts: self.now(),
            previous_lsn: previous.map_or(0, |previous| previous.record.lsn),
            name: name.clone(),
            current: current.cloned().unwrap_or_default(),
            previous: previous.filter(|_| kept).map_or_else(Bytes::new, |p| p.record.body.clone()),
        };
        let lsn = self.head.lsn;
        if self.head.log_from == 0 {
            self.head.log_from = lsn;
        }
        if self.head.log_begin == 0 {
            self.head.log_begin = lsn;
        }
        let seq = self.next_in_log();
        let key = Key::Version { partition: self.writer.partition.id, lsn, seq }.encode();
        let value = version.encode();
        self.head.log_bytes += entry_bytes(&key, &value);
        self.batch.put(Family::Feed, key, value);
    }

    /// Removes an expired item, and remembers that it went (R24).
    pub fn remove_expired(&mut self, dead: &Stored) -> Result<usize> {
        let terms = self.remove(dead)?;
        self.remember(Change::Expiry, &dead.record.name.clone(), None, Some(dead));
        Ok(terms)
    }

    /// Cuts up to so many entries off the log that are older than the retention, or from before a hole.
    pub async fn cut_history(&mut self, entries_max: usize) -> Result<Purged> {
        if self.head.log_begin == 0 {
            return Ok(Purged::default());
        }
        let policy = self.writer.runtime.settings().history;
        let range = history_from(self.writer.partition.id, self.head.log_begin);
        let pairs =
            self.snapshot.scan(Family::Feed, range, Direction::Forward, entries_max).await?;
        let mut cut = 0;
        for (key, value) in &pairs {
            let (lsn, version) = (crate::keys::position_of(key)?, Version::decode(key, value)?);
            let old = policy.is_none_or(|p| version.ts.plus(p.retention_secs) <= self.now());
            let before_hole = self.head.log_from == 0 || lsn < self.head.log_from;
            if !old && !before_hole {
                break;
            }
            self.cut(lsn, key, value);
            cut += 1;
        }
        if cut == pairs.len() && cut < entries_max && self.head.log_from == 0 {
            self.head.log_begin = 0;
            self.head.log_bytes = 0;
        }
        Ok(Purged { items: 0, more: cut == entries_max })
    }

    /// Cuts some of the oldest entries off a log that takes more than so many bytes; gives how many.
    pub async fn shorten_history(&mut self, bytes_max: u64) -> Result<usize> {
        let range = history_from(self.writer.partition.id, self.head.log_begin);
        let pairs =
            self.snapshot.scan(Family::Feed, range, Direction::Forward, SHORTENED_BY).await?;
        let mut cut = 0;
        // Down to a little less, so that this is not for every write.
        while self.head.log_bytes > bytes_max - bytes_max / 16
            && let Some((key, value)) = pairs.get(cut)
        {
            self.cut(crate::keys::position_of(key)?, key, value);
            cut += 1;
        }
        Ok(cut)
    }

    /// Removes the log's first entry: whoever has not read it is too late.
    fn cut(&mut self, lsn: u64, key: &Bytes, value: &[u8]) {
        self.batch.delete(Family::Feed, key.clone());
        self.head.log_begin = lsn;
        self.head.log_bytes = self.head.log_bytes.saturating_sub(entry_bytes(key, value));
        if self.head.log_from > 0 {
            self.head.log_from = self.head.log_from.max(lsn + 1);
        }
    }
}

impl Db {
    /// When the oldest entry of a partition's log is to go.
    pub(crate) async fn history_due(
        &self,
        container: &Container,
        partition: &Partition,
    ) -> Result<Option<Timestamp>> {
        let head = partition.head();
        if head.log_begin == 0 {
            return Ok(None);
        }
        let range = history_from(partition.id, head.log_begin);
        let first = self.engine.snapshot().scan(Family::Feed, range, Direction::Forward, 1).await?;
        let Some((key, value)) = first.first() else { return Ok(None) };
        let policy = container.runtime.settings().history;
        let version = Version::decode(key, value)?;
        Ok(Some(policy.map_or(Timestamp(0), |policy| version.ts.plus(policy.retention_secs))))
    }
}

impl FeedRead<'_> {
    /// Adds all versions of a partition's items from `next` on; gives the change to go on with.
    pub async fn versions(
        &self,
        target: &Target,
        mut next: u64,
        last: u64,
        page: &mut FeedPage,
    ) -> Result<u64> {
        let partition: PartitionId = target.partition.id;
        let mut range = history_from(partition, next);
        loop {
            let pairs = self
                .view
                .snapshot
                .scan(Family::Feed, range.clone(), Direction::Forward, CHUNK)
                .await?;
            for (key, value) in &pairs {
                let lsn = crate::keys::position_of(key)?;
                if page.is_full() && lsn >= next {
                    return Ok(next);
                }
                next = lsn + 1;
                let version = Version::decode(key, value)?;
                if target.whole || self.filter.admits_name(&version.name) {
                    page.look();
                    let json = version.to_json(lsn, &self.container.settings)?;
                    page.push(feed::Change { lsn, ts: version.ts, json });
                }
            }
            match pairs.last() {
                Some((last, _)) if pairs.len() == CHUNK => range.start = successor(last),
                _ => return Ok(next.max(last + 1)),
            }
            tokio::task::yield_now().await;
        }
    }

    /// Refuses to go on from a change that the log no longer follows without a hole.
    pub fn check_retention(&self, target: &Target, next: u64) -> Result<()> {
        match next >= complete_from(&target.partition) {
            true => Ok(()),
            false => Err(Error::Invalid(
                "The change feed with all versions and deletes does not reach back that far. You must read the change feed \
                 from within the retention period. Begin again from now."
                    .into(),
            )),
        }
    }
}

/// The change from which on a partition's log has no holes.
fn complete_from(partition: &Partition) -> u64 {
    let head = partition.head();
    if head.log_from == 0 { head.lsn + 1 } else { head.log_from }
}

impl Db {
    /// The first place of a collection's log from which on it has no holes, and the place after the last entry.
    pub fn log_of(&self, container: &Container) -> (LogPosition, LogPosition) {
        let partition = container.partition();
        let place = |lsn| LogPosition { lsn, seq: 0 };
        (place(complete_from(partition)), place(partition.head().lsn + 1))
    }

    /// The entries of a collection's log from a place on, at most so many, each with the place after it; `None` if the log does not reach
    /// back that far.
    pub async fn document_versions(
        &self,
        container: &Container,
        from: LogPosition,
        entries_max: usize,
    ) -> Result<Option<Vec<(LogPosition, Version)>>> {
        let partition = container.partition();
        let snapshot = self.engine.snapshot();
        if from.lsn < complete_from(partition) {
            return Ok(None);
        }
        let LogPosition { lsn, seq } = from;
        let start = Key::Version { partition: partition.id, lsn, seq }.encode();
        let range = start..history_from(partition.id, lsn).end;
        let pairs = snapshot.scan(Family::Feed, range, Direction::Forward, entries_max).await?;
        let mut versions = Vec::with_capacity(pairs.len());
        for (key, value) in &pairs {
            let (lsn, seq) = crate::keys::log_position_of(key)?;
            let after = LogPosition { lsn, seq: seq + 1 };
            versions.push((after, Version::decode(key, value)?));
        }
        Ok(Some(versions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_survives_and_a_changed_one_is_refused() {
        let version = Version {
            change: Change::Replace,
            ts: Timestamp(7),
            previous_lsn: 3,
            name: Bytes::from_static(b"name"),
            current: Bytes::from_static(b"{\"a\":1}"),
            previous: Bytes::from_static(b"{}"),
        };
        let bytes = version.encode();
        assert_eq!(Version::read(&bytes.clone().into()), Some(version));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(Version::read(&changed.into()), None, "byte {at}");
        }
    }

    #[test]
    fn the_retention_is_a_number_of_minutes() {
        let parse = |policy: Value| HistoryPolicy::parse(Some(&policy));
        assert_eq!(parse(json!({"retentionDuration": 0})).unwrap(), None);
        assert_eq!(parse(json!({"retentionDuration": 5})).unwrap().unwrap().retention_secs, 300);
        for bad in [json!(-1), json!(1.5), json!("5"), json!(43_201)] {
            assert!(parse(json!({"retentionDuration": bad})).is_err());
        }
    }

    #[test]
    fn the_size_is_a_number_of_megabytes() {
        let parse = |size| {
            HistoryPolicy::parse(Some(&json!({"retentionDuration": 1, "maxSizeInMB": size})))
        };
        assert_eq!(parse(json!(null)).unwrap().unwrap().bytes_max, 1 << 30);
        assert_eq!(parse(json!(3)).unwrap().unwrap().bytes_max, 3 << 20);
        for bad in [json!(0), json!(-1), json!(1.5), json!("5"), json!(1_048_577)] {
            assert!(parse(bad).is_err());
        }
    }
}
