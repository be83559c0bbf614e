//! Which partition holds which hashes, which were there before, and which of them a scope is about.
//!
//! Partitions tile the hashes of partition keys. They are kept in the order of their hashes, which is the order in which everything
//! that goes over several of them does so. A split puts two in the place of one; its number is never given out again, and what it had
//! promised (rids, session tokens, continuations) its children keep, because they go on counting where it stopped.

use std::sync::Arc;

use model::partition_key::{PartitionKey, PartitionKeyDefinition, from_hex, to_hex};
use model::resource::SessionToken;
use serde_json::{Value, json};

use crate::items::Scope;
use crate::partition::Partition;
use crate::{Container, Error, Result};

/// The hashes of one partition, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Its number in the container: the id that clients know.
    pub number: u32,
    /// The first hash.
    pub min: Vec<u8>,
    /// The first hash beyond.
    pub max: Vec<u8>,
    /// The partitions it was split from, the oldest first, each with the last item number it had given out.
    pub lineage: Vec<(u32, u64)>,
    /// The version of the container's list of partitions that it came with.
    pub since: u32,
}

/// Beyond all hashes.
const HASH_END: [u8; 1] = [0xFF];

impl Span {
    /// The spans of a new container with so many partitions.
    pub fn tile(definition: &PartitionKeyDefinition, parts: u32) -> Vec<Self> {
        let min = |part| match part == parts {
            true => HASH_END.to_vec(),
            false => definition.boundary(part, parts),
        };
        let span = |number| Self {
            number,
            min: min(number),
            max: min(number + 1),
            lineage: Vec::new(),
            since: 0,
        };
        (0..parts).map(span).collect()
    }

    fn overlaps(&self, min: &[u8], max: &[u8]) -> bool {
        self.min[..] < *max && *min < self.max[..]
    }

    fn is_within(&self, min: &[u8], max: &[u8]) -> bool {
        *min <= self.min[..] && self.max[..] <= *max
    }

    /// Whether what is known of partition `number` holds for this one: it is the same, or a part of it.
    pub fn comes_from(&self, number: u32) -> bool {
        self.number == number || self.lineage.iter().any(|(ancestor, _)| *ancestor == number)
    }

    /// The partition that gave an item its number, and so is part of its rid.
    pub fn birthplace(&self, ordinal: u64) -> u32 {
        let born = self.lineage.iter().find(|(_, last)| ordinal <= *last);
        born.map_or(self.number, |(ancestor, _)| *ancestor)
    }

    pub fn encode(&self) -> Value {
        json!({
            "number": self.number, "min": to_hex(&self.min), "max": to_hex(&self.max),
            "lineage": self.lineage, "since": self.since,
        })
    }

    pub fn decode(value: &Value) -> Option<Self> {
        let pair = |pair: &Value| Some((pair.get(0)?.as_u64()? as u32, pair.get(1)?.as_u64()?));
        Some(Self {
            number: value["number"].as_u64()? as u32,
            min: from_hex(value["min"].as_str()?)?,
            max: from_hex(value["max"].as_str()?)?,
            lineage: value["lineage"].as_array()?.iter().map(pair).collect::<Option<_>>()?,
            since: value["since"].as_u64()? as u32,
        })
    }

    /// The spans that a container's row lists; rows from before there were several have just their number.
    pub fn decode_all(list: &Value) -> Option<Vec<Self>> {
        if list.as_u64() == Some(1) {
            let (min, max) = (Vec::new(), HASH_END.to_vec());
            return Some(vec![Self { number: 0, min, max, lineage: Vec::new(), since: 0 }]);
        }
        list.as_array()?.iter().map(Self::decode).collect()
    }
}

/// The partitions of a container at one moment.
#[derive(Debug)]
pub(crate) struct Partitions {
    /// In the order of their hashes.
    pub all: Vec<Arc<Partition>>,
    /// Those that were split.
    pub gone: Vec<Span>,
    /// Counts splits.
    pub version: u32,
}

/// A partition that a request is about.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub partition: Arc<Partition>,
    /// Whether all of its items belong to the scope.
    pub whole: bool,
}

impl Partitions {
    /// The partition of a key. A container with one has nothing to hash.
    pub fn of(&self, definition: &PartitionKeyDefinition, key: &PartitionKey) -> &Arc<Partition> {
        match &self.all[..] {
            [only] => only,
            _ => self.at(&definition.hash_bytes(key)),
        }
    }

    /// The partition of a hash.
    pub fn at(&self, hash: &[u8]) -> &Arc<Partition> {
        let beyond = self.all.partition_point(|partition| partition.span.min[..] <= *hash);
        &self.all[beyond.saturating_sub(1)]
    }

    /// The partition with a number. [`Error::PartitionGone`] if it was split, or never was.
    pub fn numbered(&self, number: u32) -> Result<&Arc<Partition>> {
        let found = self.all.iter().find(|partition| partition.id.partition == number);
        found.ok_or(Error::PartitionGone)
    }

    /// The hashes that a partition has, or had.
    fn span(&self, number: u32) -> Option<&Span> {
        let spans = self.all.iter().map(|partition| &partition.span).chain(&self.gone);
        spans.into_iter().find(|span| span.number == number)
    }

    /// The number of the next partition: none is given out twice.
    pub fn next_number(&self) -> u32 {
        let spans = self.all.iter().map(|partition| &partition.span).chain(&self.gone);
        spans.map(|span| span.number + 1).max().unwrap_or(0)
    }

    /// The spans as they are stored.
    pub fn encode(&self) -> (Value, Value) {
        let all = self.all.iter().map(|partition| partition.span.encode()).collect();
        (all, self.gone.iter().map(Span::encode).collect())
    }

    /// What a client has seen after an answer from all of these partitions.
    pub fn sessions(targets: &[Target]) -> Vec<SessionToken> {
        targets.iter().map(|target| target.partition.session()).collect()
    }
}

impl Container {
    /// The partition that holds the items of a key.
    pub(crate) fn partition_of(&self, key: &PartitionKey) -> &Arc<Partition> {
        self.partitions.of(&self.settings.partition_key, key)
    }

    /// The one partition of a container of documents.
    pub(crate) fn partition(&self) -> &Partition {
        &self.partitions.all[0]
    }

    /// Refuses the number of a partition that is not there (any more).
    pub fn check_partition(&self, number: u32) -> Result<()> {
        self.partitions.numbered(number).map(|_| ())
    }

    /// The partitions that hold the items of a scope, in the order of their hashes.
    pub(crate) fn targets(&self, scope: &Scope) -> Result<Vec<Target>> {
        let one = |partition: &Arc<Partition>, whole| {
            vec![Target { partition: partition.clone(), whole }]
        };
        let definition = &self.settings.partition_key;
        let (min, max) = match scope {
            Scope::Container => (Vec::new(), HASH_END.to_vec()),
            Scope::Partition(number) => return Ok(one(self.partitions.numbered(*number)?, true)),
            Scope::Key(key) if key.0.len() >= definition.paths.len() => {
                return Ok(one(self.partition_of(key), false));
            }
            Scope::Key(prefix) => {
                let min = definition.hash_bytes(prefix);
                let max = [&min[..], &HASH_END].concat();
                (min, max)
            }
            Scope::Hashes { min, max } => {
                let bytes = |text: &str| {
                    from_hex(text).ok_or_else(|| {
                        Error::Invalid(format!("The effective partition key '{text}' is not hex."))
                    })
                };
                (bytes(min)?, bytes(max)?)
            }
        };
        let overlapping = self.partitions.all.iter().filter(|p| p.span.overlaps(&min, &max));
        let is_key = matches!(scope, Scope::Key(_));
        let target = |partition: &Arc<Partition>| Target {
            partition: partition.clone(),
            whole: !is_key && partition.span.is_within(&min, &max),
        };
        Ok(overlapping.map(target).collect())
    }
}

/// How far a reading that goes from partition to partition has come: in these, up to an item; in all before them in the order of
/// their hashes, to the end; in all behind them, not at all. It is one, but for a while after a split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places(pub Vec<(u32, Place)>);

/// A place among the items of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The last item that is done.
    pub ordinal: u64,
    /// How many rows of the item with the next ordinal have been given. After a split that item is in one of the parts, and
    /// its rows are remembered until the reading comes there.
    pub rows: u32,
}

impl Place {
    /// Right behind an item.
    pub fn behind(ordinal: u64) -> Self {
        Self { ordinal, rows: 0 }
    }

    /// How many rows of an item have been given.
    pub fn rows_of(&self, ordinal: u64) -> u32 {
        if ordinal == self.ordinal + 1 { self.rows } else { 0 }
    }
}

/// What is left to do in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    All,
    /// What comes after this place.
    After(Place),
}

impl Places {
    /// What is left of a partition.
    pub fn left(&self, partitions: &Partitions, span: &Span) -> Result<Left> {
        let Some((last, _)) = self.0.last() else { return Ok(Left::All) };
        let own = self.0.iter().find(|(number, _)| *number == span.number);
        let known = own.or_else(|| self.0.iter().rfind(|(number, _)| span.comes_from(*number)));
        if let Some((_, place)) = known {
            return Ok(Left::After(*place));
        }
        let last = partitions.span(*last).ok_or_else(invalid_token)?;
        Ok(if span.min >= last.max { Left::All } else { Left::Nothing })
    }

    /// As the continuation token of a list, which gives each item as a whole.
    pub fn text(&self) -> String {
        let place = |(number, place): &(u32, Place)| format!("{number:x}.{:x}", place.ordinal);
        let parts = self.0.iter().map(place);
        let text = parts.collect::<Vec<_>>().join("-");
        format!("{text}.{:08x}", crc32c::crc32c(text.as_bytes()))
    }

    pub fn parse(token: &str) -> Result<Self> {
        Self::read(token).filter(|places| places.text() == token).ok_or_else(invalid_token)
    }

    fn read(token: &str) -> Option<Self> {
        let (places, _) = token.rsplit_once('.')?;
        let place = |place: &str| {
            let (number, ordinal) = place.split_once('.')?;
            let ordinal = u64::from_str_radix(ordinal, 16).ok()?;
            Some((u32::from_str_radix(number, 16).ok()?, Place::behind(ordinal)))
        };
        places.split('-').map(place).collect::<Option<_>>().map(Self)
    }
}

/// The answer to a continuation token that is not ours, or is another request's.
pub(crate) fn invalid_token() -> Error {
    Error::Invalid("Invalid Continuation Token".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_token_is_refused() {
        let one = Places(vec![(0, Place::behind(77))]);
        let token = one.text();
        assert_eq!(Places::parse(&token).unwrap(), one);
        for bad in ["", "x", "0.4e", "0.4e.00000000", &token[1..], &format!("{token}0"), "+0.4d.0"]
        {
            assert!(Places::parse(bad).is_err(), "{bad}");
        }
        let two = Places(vec![(1, Place::behind(5)), (0, Place::behind(3))]);
        assert_eq!(Places::parse(&two.text()).unwrap(), two);
    }

    #[test]
    fn an_item_keeps_the_partition_of_its_birth() {
        let lineage = vec![(0, 500), (1, 800)];
        let span = Span { number: 3, min: vec![], max: vec![0xFF], lineage, since: 2 };
        let born = |ordinal| span.birthplace(ordinal);
        assert_eq!([born(1), born(500), born(501), born(800), born(801)], [0, 0, 1, 1, 3]);
        assert_eq!(Span::decode(&span.encode()), Some(span));
    }
}
