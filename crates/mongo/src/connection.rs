//! A connection: one command after the other, each answered before the next is looked at.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::FrontEnd;
use crate::auth::{Access, Conversation};
use crate::commands;
use crate::wire::{self, HEAD_BYTES};

/// How long the rest of a message may take once it has begun, and an answer to be taken.
const MESSAGE_TIME: Duration = Duration::from_secs(120);

/// A connection's state between commands.
pub struct Connection {
    front_end: Arc<FrontEnd>,
    stopped: watch::Receiver<bool>,
    /// What commands may see and change.
    pub(crate) state: State,
    replies: i32,
}

/// What a connection remembers.
pub(crate) struct State {
    pub number: i32,
    /// The address at which the client has reached us.
    pub local: SocketAddr,
    /// What the client may; `None` until it has logged in.
    pub access: Option<Access>,
    pub user: Option<String>,
    pub conversation: Option<Conversation>,
    /// What the last `getnonce` gave: good for one `authenticate`.
    pub nonce: Option<String>,
    pub last_charge: LastCharge,
}

/// What `getLastRequestStatistics` tells.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastCharge {
    pub command: String,
    pub charge: f64,
    pub millis: f64,
}

impl FrontEnd {
    /// Serves a connection that has reached us at `local` until the client goes, the server stops, or bytes come that are no message; the last is
    /// the error.
    pub async fn serve<S>(
        self: Arc<Self>,
        stream: S,
        local: SocketAddr,
        stopped: watch::Receiver<bool>,
    ) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let open = Open::new(&self);
        let served = Connection::new(self, local, stopped).serve(stream).await;
        drop(open);
        served
    }
}

/// Counts a connection for as long as it lives.
struct Open(db::Db);

impl Open {
    fn new(front_end: &FrontEnd) -> Self {
        let db = front_end.db.clone();
        db.traffic().mongodb.connections.fetch_add(1, Ordering::Relaxed);
        Self(db)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.traffic().mongodb.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection {
    /// A new one, which nobody has logged in on.
    pub fn new(
        front_end: Arc<FrontEnd>,
        local: SocketAddr,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        let state = State {
            number: front_end.next_connection(),
            local,
            access: front_end.keys.is_none().then_some(Access::Full),
            user: None,
            conversation: None,
            nonce: None,
            last_charge: LastCharge::default(),
        };
        Self { front_end, stopped, state, replies: 0 }
    }

    async fn serve<S>(mut self, mut stream: S) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let mut buffer = BytesMut::with_capacity(16 * 1024);
        let mut stopped = self.stopped.clone();
        loop {
            let message = tokio::select! {
                biased;
                message = next(&mut stream, &mut buffer) => message?,
                _ = stopped.wait_for(|stopped| *stopped) => return Ok(()),
            };
            let Some(message) = message else { return Ok(()) };
            let Some(answer) = self.answer(message).await? else { continue };
            db::turns::let_others_go_first().await;
            let written = timeout(MESSAGE_TIME, async {
                stream.write_all(&answer).await?;
                stream.flush().await
            });
            match written.await {
                Ok(Ok(())) => {}
                // It has gone, which is its right.
                Ok(Err(_)) => return Ok(()),
                Err(_) => return Err("it does not take its answer".into()),
            }
        }
    }

    /// The bytes of the answer, if one is wanted.
    pub(crate) async fn answer(&mut self, message: Bytes) -> Result<Option<Vec<u8>>, String> {
        let request = wire::read(message).map_err(|malformed| malformed.0)?;
        let reply = match &request.broken {
            Some(refusal) => refusal.to_reply(),
            None => commands::run(&self.front_end, &mut self.state, &request).await,
        };
        self.replies = self.replies.wrapping_add(1);
        Ok((!request.silent).then(|| wire::answer(&request, self.replies, &reply)))
    }
}

/// The next message; `None` when the client has gone.
async fn next<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut BytesMut,
) -> Result<Option<Bytes>, String> {
    while buffer.len() < HEAD_BYTES {
        if read(stream, buffer).await? == 0 {
            return match buffer.is_empty() {
                true => Ok(None),
                false => Err("it ended in the middle of a message".into()),
            };
        }
    }
    let head = buffer.first_chunk::<HEAD_BYTES>().expect("there are enough");
    let length = wire::message_length(head).map_err(|malformed| malformed.0)?;
    if buffer.len() < length {
        // Room comes with the bytes: a length alone is no reason to take memory.
        let rest = async {
            while buffer.len() < length {
                let room = (length - buffer.len()).min(1 << 20);
                buffer.reserve(room);
                if read(stream, buffer).await? == 0 {
                    return Err("it ended in the middle of a message".to_owned());
                }
            }
            Ok(())
        };
        timeout(MESSAGE_TIME, rest).await.map_err(|_| "a message came too slowly")??;
    }
    let message = buffer.split_to(length).freeze();
    if buffer.capacity() < HEAD_BYTES {
        buffer.reserve(16 * 1024);
    }
    Ok(Some(message))
}

async fn read<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut BytesMut,
) -> Result<usize, String> {
    buffer.reserve(4 * 1024);
    match stream.read_buf(buffer).await {
        Ok(count) => Ok(count),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(0),
        Err(error) => Err(error.to_string()),
    }
}
