//! One request as its handler sees it: who asks, from where, with which headers and body.

use std::sync::Arc;

use bytes::Bytes;
use db::{Container, Db, Grant, PageRequest, Scope, Seen, Throughput};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use model::partition_key::{BadKey, PartitionKey};
use model::resource::{ContainerRid, SessionToken};
use serde_json::Value;

use crate::binary_json;
use crate::error::{Failure, Result};
use crate::headers::{self, flag, text};

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Whether the connection is encrypted.
    pub secure: bool,
    /// Whether it comes from this machine.
    pub local: bool,
}

/// A request.
pub(crate) struct Call<'r> {
    /// The database.
    pub(crate) db: &'r Db,
    /// The verb.
    pub(crate) method: &'r Method,
    /// The headers.
    pub(crate) headers: &'r HeaderMap,
    /// Host and port that the client used.
    pub(crate) host: &'r str,
    /// What follows the path's question mark.
    pub(crate) query: &'r str,
    /// Where it comes from.
    pub(crate) peer: Peer,
    /// The whole body.
    pub(crate) body: Bytes,
    /// Where the store has not been asked yet whether others have changed the catalog: what this server has. Who asks takes it out.
    pub(crate) seen: Option<Seen>,
    /// What the caller is limited to, where a permission's token brought the request in. Its route has been checked.
    pub(crate) grant: Option<Box<Grant>>,
}

/// What a POST to a feed is meant to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Make something.
    Create,
    /// Make or replace something.
    Upsert,
    /// Run a query.
    Query,
    /// Say how a query would be split over partitions.
    Plan,
    /// Several operations at once.
    Batch,
}

impl Intent {
    /// Read from the headers. A plan or batch header wins over a query header: some clients send both.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let query = || {
            let kind =
                headers.get(http::header::CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
            flag(headers, &headers::IS_QUERY)
                || flag(headers, &headers::IS_QUERY_GO)
                || kind
                    .get(..QUERY_TYPE.len())
                    .is_some_and(|kind| kind.eq_ignore_ascii_case(QUERY_TYPE))
        };
        match () {
            () if flag(headers, &headers::IS_QUERY_PLAN) => Self::Plan,
            () if flag(headers, &headers::IS_BATCH) => Self::Batch,
            () if query() => Self::Query,
            () if flag(headers, &headers::IS_UPSERT) => Self::Upsert,
            () => Self::Create,
        }
    }
}

const QUERY_TYPE: &[u8] = b"application/query+json";

/// The page size where the client names none.
const PAGE_DEFAULT: usize = 100;

/// The page size where the client leaves it to the server.
const PAGE_DYNAMIC: usize = 1000;

impl Call<'_> {
    /// The container around the addressed items. 400 / 1024 if the client means one that was there before.
    pub(crate) fn owner(&self, database: &str, container: &str) -> Result<Arc<Container>> {
        let container = self.db.owner(database, container)?;
        self.check_intended(&container)?;
        Ok(container)
    }

    /// Refuses a request that was meant for another container of the same name.
    pub(crate) fn check_intended(&self, container: &Container) -> Result<()> {
        match self.text(&headers::INTENDED_RID)? {
            Some(intended) if ContainerRid::parse(intended) != Some(container.rid) => {
                let text = format!(
                    "The container {} has another resource id than the request expects: it was made anew.",
                    container.id()
                );
                Err(Failure::bad_request(text).with_substatus(1024))
            }
            _ => Ok(()),
        }
    }

    /// A value of the query string, as it was sent.
    pub(crate) fn query_value(&self, name: &str) -> Option<&str> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(found, _)| *found == name).map(|(_, value)| value).next()
    }

    /// The text of a header.
    pub(crate) fn text(&self, name: &http::HeaderName) -> Result<Option<&str>> {
        text(self.headers, name)
    }

    /// The body as JSON text: Cosmos binary JSON is translated.
    pub(crate) fn json_text(&mut self) -> Result<Bytes> {
        let body = std::mem::take(&mut self.body);
        if body.first() != Some(&binary_json::PREAMBLE) {
            return Ok(body);
        }
        let text = binary_json::to_text(&body).map_err(|error| {
            Failure::bad_request(format!(
                "The input content is invalid: binary JSON that cannot be read ({error})."
            ))
        })?;
        Ok(Bytes::from(text))
    }

    /// The body as a JSON object.
    pub(crate) fn json_object(&mut self) -> Result<Value> {
        let text = self.json_text()?;
        let value: Value = serde_json::from_slice(&text).map_err(|error| {
            Failure::bad_request(format!("The input content is invalid: not JSON ({error})."))
        })?;
        if value.is_object() {
            Ok(value)
        } else {
            Err(Failure::bad_request("One of the specified inputs is invalid"))
        }
    }

    /// `If-Match`, quotes included.
    pub(crate) fn if_match(&self) -> Result<Option<&str>> {
        self.text(&http::header::IF_MATCH)
    }

    /// `If-None-Match`, quotes included.
    pub(crate) fn if_none_match(&self) -> Result<Option<&str>> {
        self.text(&http::header::IF_NONE_MATCH)
    }

    /// The most rows that the client wants in a page.
    pub(crate) fn items_max(&self) -> Result<usize> {
        let Some(text) = self.text(&headers::MAX_ITEM_COUNT)? else { return Ok(PAGE_DEFAULT) };
        match text.parse::<i64>() {
            Ok(-1) => Ok(PAGE_DYNAMIC),
            Ok(count) if count >= 1 => Ok(usize::try_from(count).unwrap_or(usize::MAX)),
            _ => Err(Failure::bad_request(format!(
                "The input PageSize {text} is invalid. Ensure to pass a valid page size which must be a positive \
                 integer or -1 for a dynamic page size."
            ))),
        }
    }

    /// Page size and continuation of a feed of items or rows.
    pub(crate) fn page(&self) -> Result<PageRequest> {
        if let Some(limit) = self.text(&headers::CONTINUATION_LIMIT)?
            && !limit.parse::<i64>().is_ok_and(|limit| limit > 0)
        {
            return Err(Failure::bad_request(format!(
                "The input continuation token size limit {limit} is invalid. Please pass in a valid continuation token \
                 size limit which must be a positive integer."
            )));
        }
        let continuation = self.text(&headers::CONTINUATION)?.map(str::to_owned);
        Ok(PageRequest { items_max: self.items_max()?, continuation })
    }

    /// The partition key header.
    pub(crate) fn partition_key(&self) -> Result<Option<PartitionKey>> {
        let header = self.text(&headers::PARTITION_KEY)?;
        header.map(|header| self.parse_partition_key(header)).transpose()
    }

    /// A partition key in the header's form, wherever it stands.
    pub(crate) fn parse_partition_key(&self, header: &str) -> Result<PartitionKey> {
        PartitionKey::parse(header).map_err(|error| {
            Failure::bad_request(match error {
                BadKey::Unreadable(text) => format!("Partition key {text} is invalid."),
                BadKey::Component(bad) => format!(
                    "Unsupported PartitionKey value component '{}'. Numeric, string, bool, null, Undefined are the only \
                     supported types.",
                    bad.0
                ),
            })
        })
    }

    /// Which items a list, a query or a change feed is about.
    pub(crate) fn scope(&self, container: &Container) -> Result<Scope> {
        if let Some(key) = self.partition_key()? {
            return Ok(Scope::Key(key));
        }
        let (min, max) = (self.text(&headers::START_EPK)?, self.text(&headers::END_EPK)?);
        if min.is_some() || max.is_some() {
            let kind = self.text(&headers::READ_KEY_TYPE)?.unwrap_or_default();
            if !kind.eq_ignore_ascii_case("EffectivePartitionKeyRange") {
                return Err(Failure::bad_request("One of the input values is invalid."));
            }
            self.partition(container)?;
            let (min, max) = (min.unwrap_or_default().to_owned(), max.unwrap_or("FF").to_owned());
            return Ok(Scope::Hashes { min, max });
        }
        Ok(self.partition(container)?.map_or(Scope::Container, Scope::Partition))
    }

    /// The partition that the client means, if it names one. 410 if it was split.
    pub(crate) fn partition(&self, container: &Container) -> Result<Option<u32>> {
        let Some(header) = self.text(&headers::PARTITION_KEY_RANGE_ID)? else { return Ok(None) };
        let number = self.parse_partition(container, header)?;
        container.check_partition(number)?;
        Ok(Some(number))
    }

    /// A partition key range header: `0`, or `<container rid>,0`.
    fn parse_partition(&self, container: &Container, header: &str) -> Result<u32> {
        let (rid, id) = match header.split_once(',') {
            Some((rid, id)) => (Some(rid), id),
            None => (None, header),
        };
        if rid.is_some_and(|rid| rid != container.rid.to_string()) {
            let text = "The requested resource is no longer available at the server.";
            return Err(Failure::new(StatusCode::GONE, text).with_substatus(1000));
        }
        id.parse()
            .map_err(|_| Failure::bad_header(headers::PARTITION_KEY_RANGE_ID.as_str(), header))
    }

    /// What the client says it has seen, where its consistency level makes that count.
    pub(crate) fn session(&self) -> Result<Vec<SessionToken>> {
        let level = self.consistency()?;
        match self.text(&headers::SESSION_TOKEN)? {
            Some(header) if level == Consistency::Session => SessionToken::parse_all(header)
                .map_err(|bad| {
                    Failure::bad_request(format!("The session token provided '{bad}' is invalid."))
                }),
            _ => Ok(Vec::new()),
        }
    }

    /// The level that the request asks for. Where the service refuses one that is stronger than the account's, each is granted
    /// here: a read takes the newest snapshot, which holds every write that was acknowledged before it.
    fn consistency(&self) -> Result<Consistency> {
        let Some(level) = self.text(&headers::CONSISTENCY_LEVEL)? else {
            return Ok(Consistency::Session);
        };
        let is = |name: &str| level.eq_ignore_ascii_case(name);
        if is("Session") {
            Ok(Consistency::Session)
        } else if ["Strong", "BoundedStaleness", "ConsistentPrefix", "Eventual"].into_iter().any(is)
        {
            Ok(Consistency::Other)
        } else {
            Err(Failure::bad_header(headers::CONSISTENCY_LEVEL.as_str(), level))
        }
    }

    /// The throughput that a new database or container is to have.
    pub(crate) fn throughput(&self) -> Result<Option<Throughput>> {
        let manual = self.text(&headers::OFFER_THROUGHPUT)?;
        let autopilot = self.text(&headers::AUTOPILOT)?;
        match (manual, autopilot) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(Failure::bad_request(
                "Offer throughput and autopilot settings cannot both be specified.",
            )),
            (Some(text), None) => {
                let units = text
                    .parse()
                    .map_err(|_| Failure::bad_header(headers::OFFER_THROUGHPUT.as_str(), text))?;
                Ok(Some(Throughput::manual(units)?))
            }
            (None, Some(text)) => {
                let (max, increment_percent) = autoscale(text)
                    .ok_or_else(|| Failure::bad_header(headers::AUTOPILOT.as_str(), text))?;
                Ok(Some(Throughput::autoscale(max, increment_percent)?))
            }
        }
    }
}

/// Whether the session token counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Consistency {
    Session,
    Other,
}

/// The maximum and the percentage that the autoscale header names.
fn autoscale(text: &str) -> Option<(i64, Option<u32>)> {
    let settings: Value = serde_json::from_str(text).ok()?;
    let max = settings.get("maxThroughput")?.as_i64()?;
    let increment = settings.pointer("/autoUpgradePolicy/throughputPolicy/incrementPercent");
    match increment {
        None | Some(Value::Null) => Some((max, None)),
        Some(percent) => Some((max, Some(u32::try_from(percent.as_u64()?).ok()?))),
    }
}
