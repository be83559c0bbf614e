//! How long a connection may keep us waiting.
//!
//! A timer for each request would cost more than the request. Instead a connection counts what happens on it, and looks at the
//! counters every [`TICK`]: a head that is not complete after two ticks, an answer that the client does not take for
//! three, and a connection on which nothing happens for [`IDLE_TICKS`] are given up. HTTP/2 has its own pings for the first two.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How often the counters are looked at.
pub(crate) const TICK: Duration = Duration::from_secs(10);

/// Ticks until a half-sent head is given up.
const HEAD_TICKS: u32 = 2;

/// Ticks until an answer that is not taken is given up.
const WRITE_TICKS: u32 = 3;

/// Ticks until a connection without requests is given up: longer than clients keep theirs.
const IDLE_TICKS: u32 = 60;

/// What happens on a connection.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Reads that brought bytes.
    reads: AtomicU64,
    /// `reads` when the last request was complete or answered: more means a head has begun.
    reads_used: AtomicU64,
    /// Writes that took bytes.
    writes: AtomicU64,
    /// Whether the socket has refused to take more since then.
    blocked: AtomicBool,
    /// Requests begun and not yet answered.
    running: AtomicU64,
}

impl Activity {
    /// A request's head is complete.
    pub(crate) fn begin(&self) {
        self.running.fetch_add(1, Relaxed);
    }

    /// Whether a request is being answered, and how much has been written: two equal answers that say no mean that nothing is on its way.
    pub(crate) fn progress(&self) -> (bool, u64) {
        (self.running.load(Relaxed) > 0, self.writes.load(Relaxed))
    }

    /// A request is answered, and its body read or given up.
    pub(crate) fn end(&self) {
        self.reads_used.store(self.reads.load(Relaxed), Relaxed);
        self.running.fetch_sub(1, Relaxed);
    }
}

/// Looks at a connection's counters, tick by tick.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// HTTP/2 reads without requests: pings, windows.
    http2: bool,
    reads: u64,
    writes: u64,
    idle_ticks: u32,
    head_ticks: u32,
    write_ticks: u32,
}

impl Watch {
    /// A watch over a connection of this kind.
    pub(crate) fn new(http2: bool) -> Self {
        Self { http2, ..Self::default() }
    }

    /// Counts a tick, and says whether the connection has had its chance.
    pub(crate) fn is_over(&mut self, activity: &Activity) -> bool {
        let (reads, writes) = (activity.reads.load(Relaxed), activity.writes.load(Relaxed));
        let running = activity.running.load(Relaxed) > 0;
        let quiet = reads == self.reads && writes == self.writes;
        let half_sent = !self.http2 && !running && reads != activity.reads_used.load(Relaxed);
        let stuck = activity.blocked.load(Relaxed) && writes == self.writes;
        (self.reads, self.writes) = (reads, writes);
        count(&mut self.idle_ticks, quiet && !running);
        count(&mut self.head_ticks, half_sent);
        count(&mut self.write_ticks, stuck);
        self.idle_ticks >= IDLE_TICKS
            || self.head_ticks >= HEAD_TICKS
            || self.write_ticks >= WRITE_TICKS
    }
}

fn count(ticks: &mut u32, goes_on: bool) {
    *ticks = if goes_on { *ticks + 1 } else { 0 };
}

/// A stream that counts.
pub(crate) struct Counted<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S> Counted<S> {
    /// Counts what goes through `stream`.
    pub(crate) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }

    fn written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(_) => {
                self.activity.writes.fetch_add(1, Relaxed);
                self.activity.blocked.store(false, Relaxed);
            }
            Poll::Pending => self.activity.blocked.store(true, Relaxed),
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if polled.is_ready() {
            self.activity.reads.fetch_add(1, Relaxed);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks_until_over(activity: &Activity, http2: bool) -> Option<usize> {
        let mut watch = Watch::new(http2);
        (1..=100).find(|_| watch.is_over(activity))
    }

    #[test]
    fn half_sent_heads_are_given_up() {
        let activity = Activity::default();
        activity.reads.store(3, Relaxed);
        assert_eq!(ticks_until_over(&activity, false), Some(2));
        // On HTTP/2 bytes without a request are nothing special.
        assert_eq!(ticks_until_over(&activity, true), Some(61));
        // Once the request is answered the bytes are accounted for.
        activity.begin();
        assert_eq!(ticks_until_over(&activity, false), None);
        activity.end();
        assert_eq!(ticks_until_over(&activity, false), Some(61));
    }

    #[test]
    fn dripping_does_not_help() {
        let activity = Activity::default();
        let mut watch = Watch::new(false);
        activity.reads.fetch_add(1, Relaxed);
        assert!(!watch.is_over(&activity));
        activity.reads.fetch_add(1, Relaxed);
        assert!(watch.is_over(&activity));
    }

    #[test]
    fn answers_that_are_not_taken_are_given_up() {
        let activity = Activity::default();
        activity.begin();
        activity.blocked.store(true, Relaxed);
        assert_eq!(ticks_until_over(&activity, false), Some(3));
        assert_eq!(ticks_until_over(&activity, true), Some(3));
    }
}
