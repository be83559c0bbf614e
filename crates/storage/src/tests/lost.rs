//! A store on PostgreSQL whose network fails at the worst moment: while a commit is under way, and while an answer is.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{Notify, watch};

use super::postgres::{counted, head, open};
use super::put;
use crate::postgres::OFFICE;
use crate::testing::postgres::database;
use crate::{Engine, Error, Family};

/// Which way a connection is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lost {
    /// The commit does not reach the store.
    Commit,
    /// What the store says to it does not reach us.
    Answer,
}

/// What becomes of what comes in.
#[derive(Clone, Copy, PartialEq)]
enum Traffic {
    Flows,
    /// What is asked gets there; the answers do not come back yet.
    AnswersStand,
    Refused,
}

/// The network between us and the store.
struct Network {
    /// Host and port, or the folder of the socket.
    store: String,
    traffic: watch::Sender<Traffic>,
    /// The next commit of [`LOST`] is lost in this way, and if it says so all that comes after it is refused.
    losing: Mutex<Option<(Lost, bool)>>,
    /// An answer with [`OLD`] stands.
    standing: Notify,
}

/// The key of an item in the commit that is lost.
const LOST: &str = "to be lost";

/// A value that is changed while the answer with it stands.
const OLD: &str = "an old value";

/// How the store says that it has done all it was asked to.
const DONE: &[u8] = b"Z\0\0\0\x05I";

fn contains(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|found| found == what)
}

impl Network {
    /// A way to the database at `url`, and its address by this way.
    async fn to(url: &str) -> (Arc<Self>, String) {
        let (place, name) = url.rsplit_once('/').unwrap();
        let store = place.rsplit_once('@').unwrap().1.replace("%2F", "/");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let by = format!("postgres://postgres@{}/{name}", listener.local_addr().unwrap());
        let network = Arc::new(Self {
            store,
            traffic: watch::channel(Traffic::Flows).0,
            losing: Mutex::default(),
            standing: Notify::new(),
        });
        let carrier = network.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carrier.clone().carry(client));
            }
        });
        (network, by)
    }

    /// Carries what is said until one side ends or the network does.
    async fn carry(self: Arc<Self>, client: TcpStream) {
        match self.store.starts_with('/') {
            true => {
                let socket = format!("{}/.s.PGSQL.5432", self.store);
                self.carry_to(UnixStream::connect(socket).await.unwrap(), client).await;
            }
            false => {
                self.carry_to(TcpStream::connect(&self.store).await.unwrap(), client).await;
            }
        }
    }

    async fn carry_to(
        &self,
        mut store: impl AsyncRead + AsyncWrite + Unpin,
        mut client: TcpStream,
    ) {
        let mut traffic = self.traffic.subscribe();
        let (mut asked, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        let mut losing_answer = None;
        loop {
            let now = *traffic.borrow_and_update();
            tokio::select! {
                _ = traffic.changed() => {}
                () = std::future::ready(()), if now == Traffic::Refused => return,
                read = client.read(&mut asked), if now != Traffic::Refused => {
                    let Ok(1..) = read else { return };
                    let asked = &asked[..read.unwrap()];
                    let losing = match contains(asked, LOST.as_bytes()) {
                        true => self.losing.lock().unwrap().take(),
                        false => None,
                    };
                    match losing {
                        Some((Lost::Commit, for_good)) => return self.end(for_good),
                        Some((Lost::Answer, for_good)) => losing_answer = Some(for_good),
                        None => {}
                    }
                    store.write_all(asked).await.unwrap();
                }
                read = store.read(&mut answered), if now != Traffic::Refused => {
                    let Ok(1..) = read else { return };
                    let answered = &answered[..read.unwrap()];
                    if *traffic.borrow() == Traffic::AnswersStand && contains(answered, OLD.as_bytes()) {
                        self.standing.notify_one();
                    }
                    drop(traffic.wait_for(|now| *now != Traffic::AnswersStand).await);
                    match losing_answer {
                        Some(for_good) if contains(answered, DONE) => return self.end(for_good),
                        Some(_) => continue,
                        None => {}
                    }
                    if client.write_all(answered).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn end(&self, for_good: bool) {
        if for_good {
            self.traffic.send_replace(Traffic::Refused);
        }
    }
}

/// Whether it was made or not, it is found out, and made once.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_connection_breaks_is_made_once() {
    for lost in [Lost::Commit, Lost::Answer] {
        let Some(url) = database() else { return };
        let (network, by) = Network::to(&url).await;
        let engine = open(&by).await.unwrap();
        engine.commit(counted(0, "0")).await.unwrap();
        *network.losing.lock().unwrap() = Some((lost, false));
        engine.commit(counted(1, LOST)).await.unwrap_or_else(|error| panic!("{lost:?}: {error}"));
        assert!(network.losing.lock().unwrap().is_none(), "{lost:?}: nothing was lost");
        assert_eq!(head(&engine).await, 2, "{lost:?}");
    }
}

/// Where it cannot be found out it is said to be unknown, neither made nor failed: and it is one of the two, as a whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_cannot_be_found_out_is_said_to_be_unknown() {
    async fn lose(lost: Lost, made: u64) {
        let Some(url) = database() else { return };
        let (network, by) = Network::to(&url).await;
        let engine = open(&by).await.unwrap();
        engine.commit(counted(0, "0")).await.unwrap();
        *network.losing.lock().unwrap() = Some((lost, true));
        let answer = engine.commit(counted(1, LOST)).await;
        assert!(matches!(answer, Err(Error::Unknown(_))), "{lost:?}: {answer:?}");
        // What comes while the store is away was certainly not made.
        let answer = engine.commit(counted(1, "2")).await;
        assert!(matches!(answer, Err(Error::Unavailable(_))), "{lost:?}: {answer:?}");
        network.traffic.send_replace(Traffic::Flows);
        assert_eq!(head(&engine).await, made, "{lost:?}");
        let item = engine.get(Family::Item, LOST.as_bytes()).await.unwrap();
        assert_eq!(item.is_some(), made == 2, "{lost:?}");
        let again = engine.commit(counted(1, LOST)).await;
        match lost {
            Lost::Commit => again.unwrap(),
            Lost::Answer => assert!(matches!(again, Err(Error::Conflict)), "{again:?}"),
        }
        assert_eq!(head(&engine).await, 2, "{lost:?}");
    }
    tokio::join!(lose(Lost::Commit, 1), lose(Lost::Answer, 2));
}

/// What a node has read before it was frozen is not believed when it comes at last: it may have been replaced, and others have written meanwhile.
#[tokio::test]
async fn an_answer_that_took_too_long_is_asked_for_again() {
    let Some(url) = database() else { return };
    let (network, by) = Network::to(&url).await;
    let (frozen, other) = (Arc::new(open(&by).await.unwrap()), open(&url).await.unwrap());
    other.commit(put("k", OLD)).await.unwrap();
    // Every lane has its session now.
    for _ in 0..4 {
        assert_eq!(frozen.get(Family::Item, b"k").await.unwrap(), Some(OLD.into()));
    }
    network.traffic.send_replace(Traffic::AnswersStand);
    let reader = frozen.clone();
    let reading = tokio::spawn(async move { reader.get(Family::Item, b"k").await });
    network.standing.notified().await;
    other.commit(put("k", "new")).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(OFFICE).await;
    tokio::time::resume();
    network.traffic.send_replace(Traffic::Flows);
    assert_eq!(reading.await.unwrap().unwrap(), Some("new".into()));
}
