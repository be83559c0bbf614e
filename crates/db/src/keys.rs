//! Every key that is ever stored: one enum, encoded so that byte order is logical order.
//!
//! ```text
//! catalog  00 name                              format version, clock, next numbers
//!          01 database                          a database's definition
//!          02 container                         a container's definition and TTL state
//!          03 offer                             throughput
//!          04 container                         a dropped container whose data is still being removed
//!          05 container partition               the partition's head
//!          06 resource                          a user, permission, encryption key or script
//!          07 container partition               how far its index is rebuilt
//!          08 container partition key           -> lsn: items of the key up to this change are being deleted
//!          09 container partition               a partition whose data is to be removed: a split's parent, or what one has left
//!                                               (shared stores: and when; empty from then on)
//!          10 container partition               the change of the catalog that last touched the container's rule (shared stores only);
//!                                               while it is split, until when that is waited for
//!          11 container partition               who purges it, and until when (shared stores only)
//! id       container partition key id           -> ordinal
//! item     container partition ordinal          -> record
//! feed     container partition lsn ordinal      -> when, whether the item has an own ttl, bytes
//!          container log       lsn seq          -> a version        (containers that remember all; log = partition + 2^31)
//! expiry   container partition instant ordinal  -> lsn, bytes    (items with an own ttl > 0 only)
//! index    container partition 01 key ordinal   the items of a partition key, in order
//!          container partition 02 n key values  -> ordinal        unique keys
//!          container partition 03 path value ordinal              index terms: paths, shapes, composites
//! ```

use bytes::Bytes;
use model::clock::Timestamp;
use model::partition_key::{Component, PartitionKey};
use storage::Family;
use storage::keycode::{Reader, Writer, prefix_end};

/// A partition of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PartitionId {
    /// The container's number.
    pub container: u32,
    /// The partition's number in it.
    pub partition: u32,
}

/// Single values of the whole store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meta {
    /// The version of what is stored under these keys.
    Format = 0,
    /// The last `now` that was handed out, as far as it is known.
    Clock = 1,
    /// The next numbers of databases, containers and offers, and the catalog's last change.
    Numbers = 2,
}

/// A key of the store.
#[derive(Clone, Debug)]
pub(crate) enum Key<'a> {
    Meta(Meta),
    Database(u32),
    Container(u32),
    Offer(u32),
    Dropped(u32),
    Head(PartitionId),
    Resource(u32),
    Reindex(PartitionId),
    Deletion { partition: PartitionId, key: &'a [u8] },
    Abandoned(PartitionId),
    Epoch(PartitionId),
    Lease(PartitionId),
    Id { partition: PartitionId, name: &'a [u8] },
    Item { partition: PartitionId, ordinal: u64 },
    Feed { partition: PartitionId, lsn: u64, ordinal: u64 },
    Version { partition: PartitionId, lsn: u64, seq: u32 },
    Expiry { partition: PartitionId, at: Timestamp, ordinal: u64 },
    Member { partition: PartitionId, key: &'a [u8], ordinal: u64 },
    Unique { partition: PartitionId, suffix: &'a [u8] },
    Term { partition: PartitionId, term: &'a [u8], ordinal: u64 },
}

const MEMBER: u8 = 1;
const UNIQUE: u8 = 2;
const TERM: u8 = 3;

impl Key<'_> {
    /// The family the key lives in.
    pub fn family(&self) -> Family {
        match self {
            Self::Meta(_)
            | Self::Database(_)
            | Self::Container(_)
            | Self::Offer(_)
            | Self::Dropped(_)
            | Self::Head(_)
            | Self::Resource(_)
            | Self::Reindex(_)
            | Self::Deletion { .. }
            | Self::Abandoned(_)
            | Self::Epoch(_)
            | Self::Lease(_) => Family::Catalog,
            Self::Id { .. } => Family::Id,
            Self::Item { .. } => Family::Item,
            Self::Feed { .. } | Self::Version { .. } => Family::Feed,
            Self::Expiry { .. } => Family::Expiry,
            Self::Member { .. } | Self::Unique { .. } | Self::Term { .. } => Family::Index,
        }
    }

    /// The key's bytes.
    pub fn encode(&self) -> Bytes {
        match *self {
            Self::Meta(meta) => Bytes::copy_from_slice(&[0, meta as u8]),
            Self::Database(number) => catalog_key(1, number),
            Self::Container(number) => catalog_key(2, number),
            Self::Offer(number) => catalog_key(3, number),
            Self::Dropped(number) => catalog_key(4, number),
            Self::Head(partition) => partition_key(5, partition, &[]),
            Self::Resource(number) => catalog_key(6, number),
            Self::Reindex(partition) => partition_key(7, partition, &[]),
            Self::Deletion { partition, key } => partition_key(8, partition, key),
            Self::Abandoned(partition) => partition_key(9, partition, &[]),
            Self::Epoch(partition) => partition_key(10, partition, &[]),
            Self::Lease(partition) => partition_key(11, partition, &[]),
            Self::Id { partition, name } => in_partition(partition, name.len()).rest(name).take(),
            Self::Item { partition, ordinal } => in_partition(partition, 8).u64(ordinal).take(),
            Self::Feed { partition, lsn, ordinal } => {
                in_partition(partition, 16).u64(lsn).u64(ordinal).take()
            }
            Self::Version { partition, lsn, seq } => {
                in_partition(log_of(partition), 12).u64(lsn).u32(seq).take()
            }
            Self::Expiry { partition, at, ordinal } => {
                in_partition(partition, 16).u64(at.0).u64(ordinal).take()
            }
            Self::Member { partition, key, ordinal } => {
                in_partition(partition, key.len() + 9).u8(MEMBER).rest(key).u64(ordinal).take()
            }
            Self::Unique { partition, suffix } => {
                in_partition(partition, suffix.len() + 1).u8(UNIQUE).rest(suffix).take()
            }
            Self::Term { partition, term, ordinal } => {
                in_partition(partition, term.len() + 9).u8(TERM).rest(term).u64(ordinal).take()
            }
        }
    }
}

/// Which rows lie together on a store that has buckets: those of a partition. Definitions, and what is listed with them, are in the first.
pub const BUCKETS: storage::postgres::Buckets = storage::postgres::Buckets {
    of: |family, key| {
        let eight = |at: usize| {
            let byte = |i: usize| key.get(at + i).copied().unwrap_or(0);
            u64::from_be_bytes(std::array::from_fn(byte))
        };
        match (family, key.first()) {
            (Family::Catalog, Some(5 | 7 | 8 | 10 | 11)) => eight(1),
            (Family::Catalog, _) => 0,
            _ => eight(0),
        }
    },
    // The log of versions is beside its partition; the partitions of a container are neighbours, and so are containers made one after the other.
    home: |bucket| (bucket >> 32) + (bucket & u64::from(!LOG)),
};

/// All catalog keys of one kind, by the numbers above.
pub(crate) fn catalog_range(kind: u8) -> std::ops::Range<Bytes> {
    Bytes::copy_from_slice(&[kind])..Bytes::copy_from_slice(&[kind + 1])
}

/// The catalog's keys of one kind of all partitions of a container.
pub(crate) fn partitions_range(kind: u8, container: u32) -> std::ops::Range<Bytes> {
    prefix_range(catalog_key(kind, container))
}

/// All keys of a partition in a family other than the catalog.
pub(crate) fn partition_range(partition: PartitionId) -> std::ops::Range<Bytes> {
    prefix_range(in_partition(partition, 0).take())
}

/// A partition's log of versions, from a change on.
pub(crate) fn history_from(partition: PartitionId, lsn: u64) -> std::ops::Range<Bytes> {
    Key::Version { partition, lsn, seq: 0 }.encode()..partition_range(log_of(partition)).end
}

/// Where a partition's log of versions is: beside the feed, under a number that no partition has.
pub(crate) fn log_of(partition: PartitionId) -> PartitionId {
    PartitionId { partition: partition.partition | LOG, ..partition }
}

const LOG: u32 = 1 << 31;

/// All keys of a container in a family other than the catalog.
pub(crate) fn container_range(container: u32) -> std::ops::Range<Bytes> {
    prefix_range(Bytes::copy_from_slice(&container.to_be_bytes()))
}

/// The members of a partition key (or of all keys that begin with `key`).
pub(crate) fn member_range(partition: PartitionId, key: &[u8]) -> std::ops::Range<Bytes> {
    prefix_range(in_partition(partition, key.len() + 1).u8(MEMBER).rest(key).take())
}

/// The index terms that begin with `term`.
pub(crate) fn term_range(partition: PartitionId, term: &[u8]) -> std::ops::Range<Bytes> {
    prefix_range(in_partition(partition, term.len() + 1).u8(TERM).rest(term).take())
}

/// The unique entries that begin with `suffix`.
pub(crate) fn unique_range(partition: PartitionId, suffix: &[u8]) -> std::ops::Range<Bytes> {
    prefix_range(in_partition(partition, suffix.len() + 1).u8(UNIQUE).rest(suffix).take())
}

fn prefix_range(prefix: Bytes) -> std::ops::Range<Bytes> {
    let end = prefix_end(&prefix);
    prefix..end
}

/// The last eight bytes of a key: the ordinal, in every family that ends with one.
pub(crate) fn ordinal_of(key: &[u8]) -> storage::Result<u64> {
    key.last_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes)).ok_or_else(|| {
        storage::Error::Corrupt(format!("a key of {} bytes is too short for an ordinal", key.len()))
    })
}

/// The number between the partition and the ordinal of a feed or expiry key.
pub(crate) fn position_of(key: &[u8]) -> storage::Result<u64> {
    let mut reader = Reader::new(key);
    reader.u32()?;
    reader.u32()?;
    reader.u64()
}

/// The change and the number within it of a key of the log.
pub(crate) fn log_position_of(key: &[u8]) -> storage::Result<(u64, u32)> {
    let mut reader = Reader::new(key);
    reader.u32()?;
    reader.u32()?;
    Ok((reader.u64()?, reader.u32()?))
}

/// What follows the container, partition and tag of an index key.
pub(crate) fn index_suffix(key: &[u8]) -> &[u8] {
    key.get(9..).unwrap_or_default()
}

/// Whether an index key is a term; if not, it is a member or unique entry.
pub(crate) fn is_term(key: &[u8]) -> bool {
    key.get(8) == Some(&TERM)
}

/// Whether an index key is a unique key entry.
pub(crate) fn is_unique(key: &[u8]) -> bool {
    key.get(8) == Some(&UNIQUE)
}

/// The bytes of a partition key, in the order of its values; those of a prefix are a prefix.
pub(crate) fn encode_partition_key(key: &PartitionKey) -> Vec<u8> {
    let mut writer = Writer::append_to(Vec::with_capacity(32));
    key.0.iter().for_each(|component| push_component(&mut writer, component));
    writer.into_inner()
}

/// The partition key that a stored name begins with.
pub(crate) fn decode_partition_key(
    name: &[u8],
    components: usize,
) -> storage::Result<PartitionKey> {
    let mut reader = Reader::new(name);
    let mut component = || {
        Ok(match reader.u8()? {
            0x08 => Component::Undefined,
            0x10 => Component::Null,
            0x20 => Component::Bool(false),
            0x21 => Component::Bool(true),
            0x30 => Component::Number(reader.f64()?),
            0x40 => Component::String(String::from_utf8_lossy(&reader.bytes()?).into_owned()),
            other => {
                return Err(storage::Error::Corrupt(format!(
                    "a partition key component of kind {other:02x}"
                )));
            }
        })
    };
    Ok(PartitionKey((0..components).map(|_| component()).collect::<storage::Result<_>>()?))
}

/// The bytes that name an item in its partition: partition key, then id.
pub(crate) fn encode_name(key: &[u8], id: &str) -> Vec<u8> {
    let mut name = Vec::with_capacity(key.len() + id.len());
    name.extend_from_slice(key);
    name.extend_from_slice(id.as_bytes());
    name
}

fn push_component(writer: &mut Writer<Vec<u8>>, component: &Component) {
    match component {
        Component::Undefined => writer.u8(0x08),
        Component::Null => writer.u8(0x10),
        Component::Bool(false) => writer.u8(0x20),
        Component::Bool(true) => writer.u8(0x21),
        Component::Number(number) => writer.u8(0x30).f64(*number),
        Component::String(text) => writer.u8(0x40).bytes(text.as_bytes()),
    };
}

fn catalog_key(kind: u8, number: u32) -> Bytes {
    let mut key = Writer::new();
    key.u8(kind).u32(number);
    key.finish()
}

/// The catalog's key of a partition.
fn partition_key(kind: u8, partition: PartitionId, rest: &[u8]) -> Bytes {
    let mut key = Writer::append_to(Vec::with_capacity(9 + rest.len()));
    key.u8(kind).u32(partition.container).u32(partition.partition).rest(rest);
    key.into_inner().into()
}

fn in_partition(partition: PartitionId, room: usize) -> Builder {
    let mut writer = Writer::append_to(Vec::with_capacity(8 + room));
    writer.u32(partition.container).u32(partition.partition);
    Builder(writer)
}

/// A key writer that can be chained by value.
struct Builder(Writer<Vec<u8>>);

impl Builder {
    fn u8(mut self, value: u8) -> Self {
        self.0.u8(value);
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.u32(value);
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.u64(value);
        self
    }

    fn rest(mut self, value: &[u8]) -> Self {
        self.0.rest(value);
        self
    }

    fn take(self) -> Bytes {
        self.0.into_inner().into()
    }
}
