//! Memos: what is remembered of a write in its own commit, so that a client who has not heard the answer and asks again, here or at another
//! server, is told what became of it, and it is not made twice.
//!
//! There is one memo for each name (a session, say) and partition: that of its last write. One that is old is removed when a new name comes.

use std::sync::Arc;

use bytes::{BufMut, Bytes};
use model::clock::Timestamp;
use storage::{Direction, Family};

use crate::keys::{Key, memo_range};
use crate::scan::successor;
use crate::writer::{Outcome, Round};
use crate::{Container, Db, Result};

/// How long a memo is kept at least.
const LIFE_SECS: u64 = 3_600;

/// Old ones that are looked for when a new name comes.
const SWEPT: usize = 4;

/// A memo to be made.
#[derive(Clone)]
pub struct Memo {
    /// Whose write it is.
    pub name: [u8; 16],
    /// Which of his writes: he counts up.
    pub number: i64,
    /// The steps of the write that are made here: the first, and the first that is not.
    pub steps: (u32, u32),
    /// What to remember, told from what the steps came to. May be asked again: the last answer counts.
    pub text: Arc<Text>,
}

/// Tells what to remember of the outcomes.
pub type Text = dyn Fn(&[Outcome]) -> Vec<u8> + Send + Sync;

impl std::fmt::Debug for Memo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memo").field("number", &self.number).field("steps", &self.steps).finish()
    }
}

/// A memo that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Which write.
    pub number: i64,
    /// The first step that was not made.
    pub next: u32,
    /// What was to be remembered.
    pub text: Bytes,
    at: Timestamp,
}

impl Remembered {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(20 + self.text.len());
        bytes.put_u64(self.at.0);
        bytes.put_i64(self.number);
        bytes.put_u32(self.next);
        bytes.put_slice(&self.text);
        bytes
    }

    fn decode(bytes: &Bytes) -> Result<Self> {
        let broken = || storage::Error::Corrupt("a memo is cut short".into());
        let (at, rest) = bytes.split_first_chunk::<8>().ok_or_else(broken)?;
        let (number, rest) = rest.split_first_chunk::<8>().ok_or_else(broken)?;
        let (next, rest) = rest.split_first_chunk::<4>().ok_or_else(broken)?;
        Ok(Self {
            number: i64::from_be_bytes(*number),
            next: u32::from_be_bytes(*next),
            text: bytes.slice_ref(rest),
            at: Timestamp(u64::from_be_bytes(*at)),
        })
    }

    /// Whether the write of a memo is made already, or older than this one.
    fn is_after(&self, memo: &Memo) -> bool {
        (memo.number, memo.steps.0) < (self.number, self.next)
    }
}

impl Db {
    /// What is remembered under a name.
    pub async fn memo(&self, container: &Container, name: &[u8; 16]) -> Result<Option<Remembered>> {
        let key = Key::Memo { partition: container.partition().id, name }.encode();
        let found = self.engine.snapshot().get(Family::Index, &key).await?;
        found.map(|bytes| Remembered::decode(&bytes)).transpose()
    }
}

impl Round<'_> {
    /// What is remembered under the memo's name, if that is this write or a later one; or nothing, and whether the name is new.
    pub async fn find_memo(&self, memo: &Memo) -> Result<Found> {
        if let Some(made) = self.memos.get(&memo.name) {
            return Ok(if made.is_after(memo) { Found::Repeated } else { Found::Known });
        }
        let key = Key::Memo { partition: self.writer.partition.id, name: &memo.name }.encode();
        Ok(match self.snapshot.get(Family::Index, &key).await? {
            None => Found::New,
            Some(bytes) if Remembered::decode(&bytes)?.is_after(memo) => Found::Repeated,
            Some(_) => Found::Known,
        })
    }

    /// Remembers a write that is made in this round.
    pub async fn make_memo(&mut self, memo: &Memo, outcomes: &[Outcome], is_new: bool) {
        let partition = self.writer.partition.id;
        let key = Key::Memo { partition, name: &memo.name }.encode();
        if is_new {
            self.sweep(&key).await;
        }
        let text = (memo.text)(outcomes).into();
        let made = Remembered { number: memo.number, next: memo.steps.1, text, at: self.now() };
        self.batch.put(Family::Index, key, made.encode());
        self.memos.insert(memo.name, made);
    }

    /// Removes old memos that lie behind a new one. That none is found is no harm.
    async fn sweep(&mut self, new: &[u8]) {
        let rest = successor(new)..memo_range(self.writer.partition.id).end;
        let Ok(pairs) = self.snapshot.scan(Family::Index, rest, Direction::Forward, SWEPT).await
        else {
            return;
        };
        for (key, bytes) in pairs {
            let is_old =
                Remembered::decode(&bytes).is_ok_and(|made| made.at.0 + LIFE_SECS < self.now().0);
            let name: Option<[u8; 16]> = key[key.len() - 16..].try_into().ok();
            if is_old && !name.is_some_and(|name| self.memos.contains_key(&name)) {
                self.batch.delete(Family::Index, key);
            }
        }
    }
}

/// What a look for a memo found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The name has none.
    New,
    /// That of an earlier write.
    Known,
    /// The write is made already, or older than the last one.
    Repeated,
}
