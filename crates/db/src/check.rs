//! `sidereal check`: does everything that is stored agree?
//!
//! Reads every item, verifies its checksum, and computes what must be stored beside it; then reads every id, feed, expiry and index entry
//! and looks for the item that it belongs to. What is missing, orphaned or counted wrongly is a problem. Nothing is changed.

use bytes::Bytes;
use model::clock::Timestamp;
use model::ttl::Ttl;
use serde_json::Value;
use storage::{Direction, Engine, Family, Pair, Snapshot};

use crate::documents::Layouts;
use crate::feed::FeedEntry;
use crate::keys::{
    Key, PartitionId, catalog_range, index_suffix, is_term, is_unique, ordinal_of, partition_range,
    position_of,
};
use crate::partition::Head;
use crate::ranges::Span;
use crate::record::Record;
use crate::scan::successor;
use crate::settings::Beside;
use crate::writer::ordinal_of_value;
use crate::{Result, Settings};

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What is wrong, for people; at most 100 of them are listed.
    pub problems: Vec<String>,
    /// How many problems there are in all.
    pub problem_count: u64,
    /// Containers looked at.
    pub containers: u64,
    /// Items looked at.
    pub items: u64,
    /// Other entries looked at: ids, feed, expiry, index.
    pub entries: u64,
}

const PROBLEMS_MAX: usize = 100;
const PAGE: usize = 512;

/// Checks a whole store. `progress` is told how many items are done, and how many there are.
pub async fn run(
    engine: &dyn Engine,
    layouts: Option<Layouts>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report> {
    let snapshot = engine.snapshot();
    let mut report = Report::default();
    let rows =
        snapshot.scan(Family::Catalog, catalog_range(2), Direction::Forward, usize::MAX).await?;
    let mut partitions = Vec::new();
    for (key, value) in rows {
        report.containers += 1;
        let container = key.last_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let row: Value = match serde_json::from_slice(&value) {
            Ok(row) => row,
            Err(_) => {
                report.problem(format!("container {container}: its definition is not JSON"));
                continue;
            }
        };
        let mut settings = match Settings::stored(&row["settings"], layouts) {
            Ok(settings) => settings,
            Err(error) => {
                report.problem(format!("container {container}: {error}"));
                continue;
            }
        };
        if let Err(error) = settings.resume_rebuild(&row["indexing"]) {
            report.problem(format!("container {container}: {error}"));
        }
        let Some(spans) = Span::decode_all(&row["partitions"]) else {
            report.problem(format!("container {container}: its partitions cannot be read"));
            continue;
        };
        for span in spans {
            let id = PartitionId { container, partition: span.number };
            partitions.push((id, settings.clone()));
        }
    }
    let mut heads = Vec::new();
    for (id, _) in &partitions {
        let head = snapshot.get(Family::Catalog, &Key::Head(*id).encode()).await?;
        heads.push(head.and_then(|bytes| Head::decode(&bytes).ok()));
    }
    let total = heads.iter().flatten().map(|head| head.items).sum();
    for ((id, settings), head) in partitions.into_iter().zip(heads) {
        let Some(head) = head else {
            report.problem(format!(
                "container {} partition {}: it has no head",
                id.container, id.partition
            ));
            continue;
        };
        let mut check = Check { snapshot: &*snapshot, id, settings, head, report: &mut report };
        check.items(&mut |done| progress(done, total)).await?;
        check.entries().await?;
    }
    progress(report.items, total);
    Ok(report)
}

/// The check of one partition.
struct Check<'a> {
    snapshot: &'a dyn Snapshot,
    id: PartitionId,
    settings: Settings,
    head: Head,
    report: &'a mut Report,
}

impl Report {
    fn problem(&mut self, text: String) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(text);
        }
    }
}

impl Check<'_> {
    fn problem(&mut self, text: String) {
        let PartitionId { container, partition } = self.id;
        self.report.problem(format!("container {container} partition {partition}: {text}"));
    }

    /// Every item is whole, and everything that must point to it does.
    async fn items(&mut self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let (mut items, mut bytes) = (0, 0);
        let mut pages = Pages::new(Family::Item, self.id);
        while let Some(page) = pages.next(self.snapshot).await? {
            for (key, value) in page {
                let ordinal = ordinal_of(&key)?;
                items += 1;
                self.report.items += 1;
                if ordinal > self.head.ordinal {
                    self.problem(format!(
                        "item {ordinal} is beyond the head's last, {}",
                        self.head.ordinal
                    ));
                }
                match Record::decode(&key, value) {
                    Err(error) => self.problem(error.to_string()),
                    Ok(record) => {
                        bytes += record.body.len() as u64;
                        self.item(ordinal, &record).await?;
                    }
                }
            }
            progress(self.report.items);
        }
        if items != self.head.items {
            self.problem(format!(
                "its head counts {} items, but there are {items}",
                self.head.items
            ));
        }
        if bytes != self.head.bytes {
            self.problem(format!(
                "its head counts {} bytes, but there are {bytes}",
                self.head.bytes
            ));
        }
        Ok(())
    }

    async fn item(&mut self, ordinal: u64, record: &Record) -> Result<()> {
        if record.lsn > self.head.lsn {
            self.problem(format!(
                "item {ordinal} has change {}, beyond the head's {}",
                record.lsn, self.head.lsn
            ));
        }
        let Beside { key, terms, unique } = match self.settings.beside(record) {
            Ok(beside) => beside,
            Err(error) => {
                self.problem(format!("item {ordinal}: {error}"));
                return Ok(());
            }
        };
        let partition = self.id;
        let mut wanted = vec![
            (Key::Id { partition, name: &record.name }, "its id entry"),
            (Key::Feed { partition, lsn: record.lsn, ordinal }, "its feed entry"),
        ];
        if let Some(key) = &key {
            wanted.push((Key::Member { partition, key, ordinal }, "its partition key entry"));
        }
        if let Some(at) = record.own_ttl.instant(record.ts) {
            wanted.push((Key::Expiry { partition, at, ordinal }, "its expiry entry"));
        }
        wanted.extend(
            unique.iter().map(|suffix| (Key::Unique { partition, suffix }, "a unique key entry")),
        );
        // While the index is rebuilt, items may lack terms.
        let terms = terms.iter().filter(|_| self.settings.is_indexed());
        wanted.extend(terms.map(|term| (Key::Term { partition, term, ordinal }, "an index term")));
        let mut missing = Vec::new();
        for (key, what) in wanted {
            if self.snapshot.get(key.family(), &key.encode()).await?.is_none() {
                missing.push(what);
            }
        }
        for what in missing {
            self.problem(format!("item {ordinal} lacks {what}"));
        }
        Ok(())
    }

    /// Every entry belongs to an item that says the same.
    async fn entries(&mut self) -> Result<()> {
        for family in [Family::Id, Family::Feed, Family::Expiry, Family::Index] {
            let mut pages = Pages::new(family, self.id);
            while let Some(page) = pages.next(self.snapshot).await? {
                for (key, value) in page {
                    self.report.entries += 1;
                    self.entry(family, &key, &value).await?;
                }
            }
        }
        Ok(())
    }

    async fn entry(&mut self, family: Family, key: &[u8], value: &[u8]) -> Result<()> {
        let ordinal = match family {
            Family::Id => ordinal_of_value(value)?,
            Family::Index if is_unique(key) => ordinal_of_value(value)?,
            _ => ordinal_of(key)?,
        };
        let item_key = Key::Item { partition: self.id, ordinal }.encode();
        let Some(stored) = self.snapshot.get(Family::Item, &item_key).await? else {
            self.problem(format!(
                "an entry of {family:?} names item {ordinal}, which does not exist"
            ));
            return Ok(());
        };
        // A broken item was already reported as such.
        let Ok(record) = Record::decode(&item_key, stored) else { return Ok(()) };
        let agrees = match family {
            Family::Id => key[8..] == record.name[..],
            Family::Feed => {
                let entry = FeedEntry::decode(key, value)?;
                let has_own_ttl = record.own_ttl != Ttl::Absent;
                (entry.lsn, entry.ts, entry.has_own_ttl) == (record.lsn, record.ts, has_own_ttl)
            }
            Family::Expiry => {
                let at = position_of(key)?;
                record.own_ttl.instant(record.ts) == Some(Timestamp(at))
            }
            Family::Index => self.index_entry_agrees(key, &record)?,
            Family::Catalog | Family::Item => true,
        };
        if !agrees {
            self.problem(format!("an entry of {family:?} and item {ordinal} disagree"));
        }
        Ok(())
    }

    fn index_entry_agrees(&self, key: &[u8], record: &Record) -> Result<bool> {
        let Ok(beside) = self.settings.beside(record) else { return Ok(true) };
        let suffix = index_suffix(key);
        if is_unique(key) {
            return Ok(beside.unique.iter().any(|entry| entry == suffix));
        }
        let entry = &suffix[..suffix.len().saturating_sub(8)];
        if is_term(key) {
            return Ok(beside.terms.binary_search_by(|term| term[..].cmp(entry)).is_ok());
        }
        Ok(beside.key.is_some_and(|key| key == entry))
    }
}

/// All pairs of a partition in a family, a page at a time.
struct Pages {
    family: Family,
    rest: std::ops::Range<Bytes>,
}

impl Pages {
    fn new(family: Family, id: PartitionId) -> Self {
        Self { family, rest: partition_range(id) }
    }

    async fn next(&mut self, snapshot: &dyn Snapshot) -> Result<Option<Vec<Pair>>> {
        if self.rest.start >= self.rest.end {
            return Ok(None);
        }
        let page = snapshot.scan(self.family, self.rest.clone(), Direction::Forward, PAGE).await?;
        self.rest.start = match page.last() {
            Some((last, _)) if page.len() == PAGE => successor(last),
            _ => self.rest.end.clone(),
        };
        Ok(Some(page))
    }
}
