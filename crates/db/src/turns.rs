//! Taking turns on a thread that serves many connections.

use std::task::Poll;

/// Goes to the end of the queue of the thread that it runs on.
///
/// An answer that waits for the requests that came with its own leaves together with theirs. Sent one by one, each would wake a client that has just
/// gone to sleep, and on a busy machine waking it costs more than the read did. Alone in the queue it leaves at once.
pub async fn let_others_go_first() {
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
