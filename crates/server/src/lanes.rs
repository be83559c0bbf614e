//! Threads for connections: one a core, each with a reactor of its own.
//!
//! A connection stays on the thread that it was given, in turn. Its requests then neither wake another thread nor are stolen by one, which
//! costs more than a point read itself. What a request hands over (a write, to its partition's writer) crosses threads once each way.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

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
