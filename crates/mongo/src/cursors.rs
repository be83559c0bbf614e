//! Cursors: results that are taken batch by batch.
//!
//! A cursor is taken out while a batch is made and put back if there may be more, so it is never used twice at a time. Documents that it has
//! read but not given are asked again whether they are alive: one that has expired since is left out (R08).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use bytes::Bytes;
use db::{Container, Db};

use crate::commands::{Bill, Search};
use crate::error::{Refusal, Result};

/// How long a cursor may rest.
const REST: Duration = Duration::from_secs(600);

/// How often those that have rested too long are looked for.
const SWEEP: Duration = Duration::from_secs(60);

/// The most cursors that are open at a time.
const OPEN_MAX: usize = 20_000;

/// The most bytes of a batch; a document more is always given.
pub const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024 - 16 * 1024;

/// Documents in a first batch where the client does not say.
pub const FIRST_BATCH: usize = 101;

/// All open cursors.
#[derive(Default)]
pub struct Cursors(Mutex<Slots>);

#[derive(Default)]
struct Slots {
    all: HashMap<i64, Slot>,
    /// When they were last swept.
    swept: Duration,
}

impl Slots {
    /// Closes those that have rested too long.
    fn sweep(&mut self, now: Duration) {
        let fresh = |slot: &Slot| slot.patient || now.saturating_sub(slot.used) < REST;
        self.all.retain(|_, slot| slot.cursor.is_none() || fresh(slot));
        self.swept = now;
    }
}

struct Slot {
    /// `None` while a batch is being made.
    cursor: Option<Box<Cursor>>,
    used: Duration,
    patient: bool,
}

/// An open cursor.
pub(crate) struct Cursor {
    pub namespace: String,
    pub source: Source,
    /// The session that it belongs to.
    pub session: Option<Vec<u8>>,
    /// Whether it may rest for ever.
    pub patient: bool,
}

/// Where a cursor's rows come from.
pub(crate) enum Source {
    /// Rows that are there already.
    Rows(VecDeque<Bytes>),
    /// A search that goes on.
    Search(Box<Search>),
    /// Changes as they come.
    Changes(Box<crate::commands::Stream>),
    /// Stages that go on.
    Pipeline(Box<crate::commands::Running>),
}

/// Some rows.
#[derive(Default)]
pub(crate) struct Batch {
    pub rows: Vec<Bytes>,
    /// Whether there are no more.
    pub done: bool,
    /// From where a change stream goes on after them.
    pub token: Option<RawDocumentBuf>,
}

impl Cursor {
    /// The collection that it goes on to read.
    pub fn container(&self) -> Option<&Owner> {
        match &self.source {
            Source::Rows(_) | Source::Changes(_) => None,
            Source::Search(search) => Some(search.container()),
            Source::Pipeline(running) => running.container(),
        }
    }

    /// What it has cost since it was last asked.
    pub fn bills(&mut self) -> Vec<Bill> {
        match &mut self.source {
            Source::Rows(_) | Source::Changes(_) => Vec::new(),
            Source::Search(search) => vec![search.bill()],
            Source::Pipeline(running) => running.bills(),
        }
    }

    /// The next rows: at most so many, and not too many bytes.
    pub async fn next(&mut self, db: &Db, rows_max: usize) -> Result<Batch> {
        match &mut self.source {
            Source::Rows(rows) => {
                let (mut batch, mut bytes) = (Batch::default(), 0);
                while batch.rows.len() < rows_max {
                    let Some(row) = rows.pop_front() else { break };
                    bytes += row.len();
                    if bytes > BATCH_BYTES_MAX && !batch.rows.is_empty() {
                        rows.push_front(row);
                        break;
                    }
                    batch.rows.push(row);
                }
                batch.done = rows.is_empty();
                Ok(batch)
            }
            Source::Search(search) => search.next(db, rows_max).await,
            Source::Changes(stream) => stream.next(db, rows_max).await,
            Source::Pipeline(running) => running.next(db, rows_max).await,
        }
    }
}

impl Cursors {
    /// Keeps a cursor; gives its number.
    pub(crate) fn open_new(&self, cursor: Cursor, now: Duration) -> Result<i64> {
        let mut slots = self.lock();
        if slots.all.len() >= OPEN_MAX || now.saturating_sub(slots.swept) >= SWEEP {
            slots.sweep(now);
        }
        let slots = &mut slots.all;
        if slots.len() >= OPEN_MAX {
            return Err(Refusal::new(
                202,
                format!(
                    "Too many open cursors: the most is {OPEN_MAX}. Close those that are not needed."
                ),
            ));
        }
        let number = std::iter::repeat_with(|| fastrand::i64(1..))
            .find(|number| !slots.contains_key(number))
            .expect("there are more numbers than cursors");
        let patient = cursor.patient;
        slots.insert(number, Slot { cursor: Some(Box::new(cursor)), used: now, patient });
        Ok(number)
    }

    /// Takes a cursor out to make a batch.
    pub(crate) fn take(&self, number: i64, namespace: &str, now: Duration) -> Result<Box<Cursor>> {
        let not_found = || Refusal::new(43, format!("cursor id {number} not found"));
        let slots = &mut self.lock().all;
        let slot = slots.get_mut(&number).ok_or_else(not_found)?;
        if !slot.patient && now.saturating_sub(slot.used) >= REST {
            slots.remove(&number);
            return Err(not_found());
        }
        match &slot.cursor {
            None => Err(Refusal::new(12051, format!("cursor id {number} is already in use"))),
            Some(cursor) if cursor.namespace != namespace => Err(Refusal::new(
                13,
                format!(
                    "Requested getMore on namespace '{namespace}', but cursor belongs to a different namespace {}",
                    cursor.namespace
                ),
            )),
            Some(_) => slot.cursor.take().ok_or_else(not_found),
        }
    }

    /// Puts a cursor back, unless it was killed meanwhile.
    pub(crate) fn put_back(&self, number: i64, cursor: Box<Cursor>, now: Duration) {
        if let Some(slot) = self.lock().all.get_mut(&number) {
            slot.cursor = Some(cursor);
            slot.used = now;
        }
    }

    /// Closes a cursor; whether it was there.
    pub fn kill(&self, number: i64) -> bool {
        self.lock().all.remove(&number).is_some()
    }

    /// Closes the cursors of a session.
    pub fn kill_session(&self, session: &[u8]) {
        self.lock().all.retain(|_, slot| {
            slot.cursor.as_ref().is_none_or(|cursor| cursor.session.as_deref() != Some(session))
        });
    }

    /// How many are open.
    pub fn open(&self) -> usize {
        self.lock().all.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Slots> {
        self.0.lock().expect("nothing panics while it holds this lock")
    }
}

/// A container that a cursor reads, kept alive.
pub(crate) type Owner = Arc<Container>;

/// `{cursor: {firstBatch|nextBatch: […], id, ns}, ok: 1}`.
pub(crate) fn reply(number: i64, namespace: &str, first: bool, rows: &[Bytes]) -> RawDocumentBuf {
    write_reply(number, namespace, first, (rows, None))
}

/// The same for a batch of any cursor.
pub(crate) fn reply_batch(
    number: i64,
    namespace: &str,
    first: bool,
    batch: &Batch,
) -> RawDocumentBuf {
    write_reply(number, namespace, first, (&batch.rows, batch.token.as_ref()))
}

/// Written in one go.
fn write_reply(
    number: i64,
    namespace: &str,
    first: bool,
    (rows, token): (&[Bytes], Option<&RawDocumentBuf>),
) -> RawDocumentBuf {
    let field = if first { "firstBatch" } else { "nextBatch" };
    let size: usize = rows.iter().map(|row| row.len() + 9).sum();
    let mut out = Vec::with_capacity(size + namespace.len() + 96);
    out.extend_from_slice(&[0; 4]);
    let cursor = begin(&mut out, 0x03, "cursor");
    let list = begin(&mut out, 0x04, field);
    let mut number_text = String::new();
    for (at, row) in rows.iter().enumerate() {
        use std::fmt::Write;
        number_text.clear();
        write!(number_text, "{at}").expect("writing to a string cannot fail");
        out.push(0x03);
        out.extend_from_slice(number_text.as_bytes());
        out.push(0);
        out.extend_from_slice(row);
    }
    end(&mut out, list);
    out.push(0x12);
    out.extend_from_slice(b"id\0");
    out.extend_from_slice(&number.to_le_bytes());
    out.push(0x02);
    out.extend_from_slice(b"ns\0");
    out.extend_from_slice(&(namespace.len() as i32 + 1).to_le_bytes());
    out.extend_from_slice(namespace.as_bytes());
    out.push(0);
    if let Some(token) = token {
        out.push(0x03);
        out.extend_from_slice(b"postBatchResumeToken\0");
        out.extend_from_slice(token.as_bytes());
    }
    end(&mut out, cursor);
    out.push(0x01);
    out.extend_from_slice(b"ok\0");
    out.extend_from_slice(&1f64.to_le_bytes());
    end(&mut out, 0);
    RawDocumentBuf::from_bytes(out).unwrap_or_else(|_| rawdoc! {"ok": 0.0})
}

/// Begins a document or array within another; gives where its length goes.
fn begin(out: &mut Vec<u8>, kind: u8, name: &str) -> usize {
    out.push(kind);
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    at
}

fn end(out: &mut Vec<u8>, at: usize) {
    out.push(0);
    let length = (out.len() - at) as i32;
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(patient: bool) -> Cursor {
        let source = Source::Rows(VecDeque::from([Bytes::new()]));
        Cursor { namespace: "d.c".into(), source, session: None, patient }
    }

    #[test]
    fn there_are_so_many_cursors_and_those_that_rest_make_room() {
        let cursors = Cursors::default();
        let secs = Duration::from_secs;
        let patient = cursors.open_new(rows(true), secs(0)).unwrap();
        for _ in 1..OPEN_MAX {
            cursors.open_new(rows(false), secs(0)).unwrap();
        }
        assert_eq!(cursors.open_new(rows(false), secs(1)).unwrap_err().code, 202);
        let late = REST + secs(1);
        cursors.open_new(rows(false), late).unwrap();
        assert_eq!(cursors.open(), 2);
        assert!(cursors.take(patient, "d.c", late).is_ok());
    }

    #[test]
    fn a_cursor_that_has_rested_too_long_is_gone_without_any_limit_being_reached() {
        let cursors = Cursors::default();
        let number = cursors.open_new(rows(false), Duration::ZERO).unwrap();
        cursors.open_new(rows(false), REST + SWEEP).unwrap();
        assert_eq!(cursors.open(), 1);
        assert_eq!(cursors.take(number, "d.c", REST + SWEEP).map(drop).unwrap_err().code, 43);
    }

    #[test]
    fn a_cursor_is_for_its_own_collection_and_for_one_at_a_time() {
        let cursors = Cursors::default();
        let number = cursors.open_new(rows(false), Duration::ZERO).unwrap();
        assert_eq!(cursors.take(number, "d.e", Duration::ZERO).map(drop).unwrap_err().code, 13);
        let taken = cursors.take(number, "d.c", Duration::ZERO).unwrap();
        assert_eq!(cursors.take(number, "d.c", Duration::ZERO).map(drop).unwrap_err().code, 12051);
        assert!(cursors.kill(number));
        cursors.put_back(number, taken, Duration::ZERO);
        assert_eq!(cursors.open(), 0);
    }

    #[test]
    fn a_reply_is_a_document() {
        let rows = [rawdoc! {"a": 1}, rawdoc! {"b": [1, 2]}].map(|row| row.into_bytes().into());
        let made = reply(5, "d.c", true, &rows);
        let wanted = rawdoc! {
            "cursor": {"firstBatch": [{"a": 1}, {"b": [1, 2]}], "id": 5_i64, "ns": "d.c"}, "ok": 1.0,
        };
        assert_eq!(made, wanted);
    }
}
