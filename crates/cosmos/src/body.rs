//! Request bodies: read whole, within a size and a time.

use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Body;

use crate::error::{Failure, Result};

/// The largest body: an item of 2 MB and what may be around it.
const BODY_BYTES_MAX: usize = 2 * 1024 * 1024 + 64 * 1024;

/// How much of a body that nobody will look at is still read, so that the client gets to see the answer.
const DISCARD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How long a client may take to send a body.
const BODY_TIME_MAX: Duration = Duration::from_secs(60);

/// The whole body. 413 if it is too large, 408 if it does not come.
pub(crate) async fn read<B: Body<Data = Bytes>>(body: B) -> Result<Bytes> {
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        discard(body).await;
        return Err(too_large());
    }
    let mut body = pin!(body);
    match tokio::time::timeout(BODY_TIME_MAX, collect(body.as_mut())).await {
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => {
            discard(body).await;
            Err(too_large())
        }
        Ok(Err(())) => {
            Err(Failure::bad_request("The request's body ended before it was complete."))
        }
        Err(_) => Err(Failure::new(
            StatusCode::REQUEST_TIMEOUT,
            "Request timed out. More info: https://aka.ms/cosmosdb-tsg-request-timeout",
        )),
    }
}

/// Reads what is left of a body and forgets it, within limits.
pub(crate) async fn discard<B: Body<Data = Bytes>>(body: B) {
    if body.is_end_stream() || body.size_hint().lower() > DISCARD_BYTES_MAX as u64 {
        return;
    }
    let mut body = pin!(body);
    let reading = async {
        let mut size = 0;
        while let Some(Ok(frame)) = body.frame().await {
            size += frame.data_ref().map_or(0, Bytes::len);
            if size > DISCARD_BYTES_MAX {
                return;
            }
        }
    };
    if tokio::time::timeout(BODY_TIME_MAX, reading).await.is_err() {
        log::debug!("a client did not finish sending a body that was refused");
    }
}

/// All frames in one buffer; `None` if there is too much, an error if the client goes away. A body of one frame is not copied.
async fn collect<B: Body<Data = Bytes>>(
    mut body: Pin<&mut B>,
) -> std::result::Result<Option<Bytes>, ()> {
    let mut only = Bytes::new();
    let mut joined = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| ())?.into_data() else { continue };
        let size = only.len() + joined.len() + data.len();
        if size > BODY_BYTES_MAX {
            return Ok(None);
        }
        if size == data.len() {
            only = data;
            continue;
        }
        if joined.is_empty() {
            let expected = usize::try_from(body.size_hint().lower()).unwrap_or(0);
            joined.reserve(size + expected.min(BODY_BYTES_MAX));
            joined.extend_from_slice(&std::mem::take(&mut only));
        }
        joined.extend_from_slice(&data);
    }
    Ok(Some(if joined.is_empty() { only } else { joined.freeze() }))
}

fn too_large() -> Failure {
    db::Error::TooLarge("Request size is too large".into()).into()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::task::{Context, Poll};

    use hyper::body::Frame;

    use super::*;

    /// A body that comes in these pieces.
    struct Pieces(VecDeque<Bytes>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
        }
    }

    async fn read_pieces(pieces: &[usize]) -> Result<Bytes> {
        let mut next = 0u8;
        let mut piece = |size: &usize| {
            next = next.wrapping_add(1);
            Bytes::from(vec![next; *size])
        };
        read(Pieces(pieces.iter().map(&mut piece).collect())).await
    }

    #[tokio::test]
    async fn pieces_are_joined_in_their_order() {
        assert_eq!(read_pieces(&[]).await.unwrap(), "");
        assert_eq!(read_pieces(&[2]).await.unwrap(), &[1, 1][..]);
        assert_eq!(read_pieces(&[1, 0, 2, 1]).await.unwrap(), &[1, 3, 3, 4][..]);
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused() {
        let half = BODY_BYTES_MAX / 2;
        assert_eq!(read_pieces(&[half, half]).await.unwrap().len(), 2 * half);
        let failure = read_pieces(&[half, half, 2]).await.unwrap_err();
        assert_eq!(failure.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
}
