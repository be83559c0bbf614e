//! Threads for connections: one a core, each with a reactor of its own.
//!
//! A connection stays on the thread that it was given, in turn. Its requests then neither wake another thread nor are stolen by one, which
//! costs more than a point read itself. What a request hands over (a write, to its partition's writer) crosses threads once each way.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The threads. They end when this is dropped, with whatever still runs on them.
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    next: AtomicUsize,
}

struct Lane {
    handle: Handle,
    /// Dropped with the lane, which ends the thread.
    _running: oneshot::Sender<()>,
}

impl Lanes {
    /// Starts a thread for each core.
    pub(crate) fn start() -> io::Result<Self> {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let lanes = (0..count).map(|_| Lane::start()).collect::<io::Result<_>>()?;
        Ok(Self { lanes, next: AtomicUsize::new(0) })
    }

    /// The thread whose turn it is.
    pub(crate) fn next(&self) -> &Handle {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        &self.lanes[turn % self.lanes.len()].handle
    }
}

/// Goes to the end of the lane's queue.
///
/// An answer that waits for the requests that came with its own leaves together with theirs. Sent one by one, each would wake a client that has just
/// gone to sleep, and on a busy machine waking it costs more than the read did. Alone in the queue it leaves at once.
pub(crate) async fn let_others_go_first() {
    let mut gone = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut gone, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

impl Lane {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel();
        std::thread::Builder::new().name("connections".into()).spawn(move || {
            // Only ever ends by the sender being dropped.
            drop(runtime.block_on(ended));
        })?;
        Ok(Self { handle, _running: running })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[tokio::test]
    async fn answers_leave_after_the_requests_that_came_with_theirs() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let requests = ["a", "b", "c"].map(|name| {
            let seen = seen.clone();
            tokio::spawn(async move {
                seen.lock().unwrap().push(("handled", name));
                let_others_go_first().await;
                seen.lock().unwrap().push(("sent", name));
            })
        });
        for request in requests {
            request.await.unwrap();
        }
        let steps = seen.lock().unwrap().iter().map(|(step, _)| *step).collect::<Vec<_>>();
        assert_eq!(steps, ["handled", "handled", "handled", "sent", "sent", "sent"]);
    }
}
