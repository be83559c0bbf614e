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

use crate::commands::Search;
use crate::error::{Refusal, Result};

/// How long a cursor may rest.
const REST: Duration = Duration::from_secs(600);

/// The most cursors that are open at a time.
const OPEN_MAX: usize = 20_000;

/// The most bytes of a batch; a document more is always given.
pub const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024 - 16 * 1024;

/// Documents in a first batch where the client does not say.
pub const FIRST_BATCH: usize = 101;

/// All open cursors.
#[derive(Default)]
pub struct Cursors(Mutex<HashMap<i64, Slot>>);

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
        let fresh = |slot: &Slot| slot.patient || now.saturating_sub(slot.used) < REST;
        if slots.len() >= OPEN_MAX {
            slots.retain(|_, slot| slot.cursor.is_none() || fresh(slot));
        }
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
        let mut slots = self.lock();
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
        if let Some(slot) = self.lock().get_mut(&number) {
            slot.cursor = Some(cursor);
            slot.used = now;
        }
    }

    /// Closes a cursor; whether it was there.
    pub fn kill(&self, number: i64) -> bool {
        self.lock().remove(&number).is_some()
    }

    /// Closes the cursors of a session.
    pub fn kill_session(&self, session: &[u8]) {
        self.lock().retain(|_, slot| {
            slot.cursor.as_ref().is_none_or(|cursor| cursor.session.as_deref() != Some(session))
        });
    }

    /// How many are open.
    pub fn open(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<i64, Slot>> {
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
