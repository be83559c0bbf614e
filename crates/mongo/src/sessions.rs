//! Sessions: what a retried write was answered the first time.
//!
//! A driver that does not hear the answer to a write sends it again, with the same session and number. The answer is then given again,
//! and nothing is written twice.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use bson::RawDocumentBuf;

/// Sessions that are remembered.
const SESSIONS_MAX: usize = 10_000;

/// How long one is remembered.
const LIFE: Duration = Duration::from_secs(30 * 60);

/// Minutes that drivers are told.
pub const LIFE_MINUTES: i32 = 30;

/// All sessions that have written.
#[derive(Default)]
pub struct Sessions(Mutex<HashMap<Vec<u8>, Last>>);

/// The last write of a session.
struct Last {
    number: i64,
    reply: RawDocumentBuf,
    at: Duration,
}

impl Sessions {
    /// What a write was answered, if this is that write again.
    pub fn answered(&self, session: &[u8], number: i64) -> Option<RawDocumentBuf> {
        let sessions = self.lock();
        let last = sessions.get(session)?;
        (last.number == number).then(|| last.reply.clone())
    }

    /// Remembers what a write was answered.
    pub fn remember(&self, session: &[u8], number: i64, reply: &RawDocumentBuf, now: Duration) {
        let mut sessions = self.lock();
        if sessions.len() >= SESSIONS_MAX {
            sessions.retain(|_, last| now.saturating_sub(last.at) < LIFE);
            if sessions.len() >= SESSIONS_MAX {
                sessions.clear();
            }
        }
        sessions.insert(session.to_vec(), Last { number, reply: reply.clone(), at: now });
    }

    /// Forgets a session.
    pub fn end(&self, session: &[u8]) {
        self.lock().remove(session);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Vec<u8>, Last>> {
        self.0.lock().expect("nothing panics while it holds this lock")
    }
}
