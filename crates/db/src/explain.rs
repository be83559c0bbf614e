//! Why an item expires when it does: told of what is stored beside it, for JSON items and documents alike.

use bytes::Bytes;
use model::clock::Timestamp;
use model::partition_key::PartitionKey;
use model::ttl::{DefaultTtl, Ttl};

use crate::documents::{Route, not_documents};
use crate::items::{PageRequest, ReadOptions, Scope, check_key};
use crate::ranges::{Place, Places};
use crate::record::Record;
use crate::{Container, Db, Error, Result};

/// The most bytes of documents in a page; one is always given.
const PAGE_BYTES_MAX: usize = 4 << 20;

/// An item that was alive at `now`, and what decides how long it will be.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The item, as it is stored.
    pub body: Bytes,
    /// When this is.
    pub now: Timestamp,
    /// When it was last written.
    pub ts: Timestamp,
    /// What its own `ttl`, or the date that it carries, says.
    pub own: Ttl,
    /// The container's default.
    pub default: DefaultTtl,
    /// When it expires, if it does and nothing changes.
    pub expires_at: Option<Timestamp>,
}

/// A page of explained items.
#[derive(Clone, Debug, Default)]
pub struct ExplainedPage {
    /// The items.
    pub rows: Vec<Explanation>,
    /// Where to go on, if there may be more.
    pub continuation: Option<String>,
}

impl Explanation {
    fn new(container: &Container, now: Timestamp, ts: Timestamp, own: Ttl, body: Bytes) -> Self {
        let state = container.ttl();
        Self { body, now, ts, own, default: state.default, expires_at: state.expires_at(ts, own) }
    }

    fn of(container: &Container, now: Timestamp, record: Record) -> Self {
        Self::new(container, now, record.ts, record.own_ttl, record.body)
    }
}

impl Db {
    /// Why and when an item expires; an expired one is not there (R08).
    pub async fn explain(
        &self,
        container: &Container,
        key: &PartitionKey,
        id: &str,
    ) -> Result<Explanation> {
        check_key(container, key)?;
        let now = self.now();
        let record = self.find_item(container, container.partition_of(key), key, id).await?;
        let horizon = container.ttl().horizon(now);
        let record = record.filter(|record| horizon.is_live(record.ts, record.own_ttl));
        Ok(Explanation::of(container, now, record.ok_or(Error::NotFound)?))
    }

    /// The same for a document, by what a person calls it: its id as the layout writes it.
    pub async fn explain_document(&self, container: &Container, id: &str) -> Result<Explanation> {
        let names = container.layout().ok_or_else(not_documents)?.names(id);
        let now = self.now();
        let names = names.into_iter().map(Bytes::from).collect();
        let found = self.scan_documents(container, Route::Names(names)).next(now).await?;
        let document = found.into_iter().next().ok_or(Error::NotFound)?;
        Ok(Explanation::new(container, now, document.ts, document.own_ttl, document.body))
    }

    /// A page of items or documents, in the order of their creation, each explained. Pages of items are those of [`Db::list`].
    pub async fn explain_page(
        &self,
        container: &Container,
        scope: &Scope,
        page: &PageRequest,
    ) -> Result<ExplainedPage> {
        if container.layout().is_some() {
            return self.explain_documents(container, page).await;
        }
        let now = self.now();
        let explain = |record| Explanation::of(container, now, record);
        let reply = self.list_as(container, (scope, page), ReadOptions::default(), explain).await;
        let (rows, continuation) = reply.result?;
        Ok(ExplainedPage { rows, continuation })
    }

    async fn explain_documents(
        &self,
        container: &Container,
        page: &PageRequest,
    ) -> Result<ExplainedPage> {
        let places = page.continuation.as_deref().map(Places::parse).transpose()?;
        let after = places.and_then(|places| places.0.first().map(|(_, place)| place.ordinal));
        let now = self.now();
        let mut scan = self.scan_documents(container, Route::After(after.unwrap_or_default()));
        let mut explained = ExplainedPage::default();
        let (mut bytes, mut last) = (0, 0);
        loop {
            let documents = scan.next(now).await?;
            if documents.is_empty() {
                return Ok(explained);
            }
            for document in documents {
                bytes += document.body.len();
                let full = explained.rows.len() == page.items_max || bytes > PAGE_BYTES_MAX;
                if full && !explained.rows.is_empty() {
                    explained.continuation = Some(Places(vec![(0, Place::behind(last))]).text());
                    return Ok(explained);
                }
                last = document.ordinal;
                let (ts, own) = (document.ts, document.own_ttl);
                explained.rows.push(Explanation::new(container, now, ts, own, document.body));
            }
        }
    }
}
