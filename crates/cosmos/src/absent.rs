//! Resources of the service that are never there: conflicts (one region writes, so there are none), schemas, types; and direct mode.
//!
//! Their lists are empty where their owner exists, so that tools which show an account can do so. Everything else is a clear refusal.

use http::StatusCode;

use crate::answer::Answer;
use crate::call::{Call, Intent};
use crate::error::{Failure, Result};
use crate::feed::{self, charged};

/// What is under a database or a container, its name in feeds, and what people call it.
const KINDS: [(&str, &str, &str); 3] = [
    ("conflicts", "Conflicts", "conflicts"),
    ("schemas", "Schemas", "schemas"),
    ("udts", "UserDefinedTypes", "user-defined types"),
];

/// Whether this is the name of such a kind.
pub(crate) fn is_kind(name: &str) -> bool {
    KINDS.iter().any(|(kind, ..)| *kind == name)
}

/// A request to such a feed under a database, or under a container of it.
pub(crate) fn feed(
    call: &Call<'_>,
    database: &str,
    container: Option<&str>,
    kind: &str,
) -> Result<Answer> {
    let owner = match container {
        None => call.db.database(database).map_err(|_| db::Error::OwnerNotFound)?.rid.to_string(),
        Some(container) => call.db.owner(database, container)?.rid.to_string(),
    };
    let (_, array, words) = names(kind);
    let query = call.method == http::Method::POST && Intent::of(call.headers) == Intent::Query;
    if call.method == http::Method::GET || query {
        return Ok(charged(feed::answer(owner, array, &[])));
    }
    Err(Failure::unsupported(words))
}

/// A request to one of them: none exists.
pub(crate) fn one(
    call: &Call<'_>,
    database: &str,
    container: Option<&str>,
    kind: &str,
) -> Result<Answer> {
    match container {
        None => drop(call.db.database(database).map_err(|_| db::Error::OwnerNotFound)?),
        Some(container) => drop(call.db.owner(database, container)?),
    }
    match call.method.as_str() {
        "GET" | "DELETE" => Err(db::Error::NotFound.into()),
        _ => Err(Failure::unsupported(names(kind).2)),
    }
}

/// `/addresses`: where clients in direct mode ask for replicas to dial.
pub(crate) fn addresses() -> Result<Answer> {
    Err(Failure::unsupported("direct mode (set the client's connection mode to Gateway)"))
}

/// `/operations/dtc`: a preview of some SDKs.
pub(crate) fn distributed_transaction() -> Result<Answer> {
    Err(Failure::unsupported(
        "transactions over several partition keys (use a transactional batch, within one)",
    ))
}

/// 404 for a path that is no route.
pub(crate) fn unknown_route(path: &str) -> Failure {
    Failure::new(StatusCode::NOT_FOUND, format!("There is no resource at {path}."))
}

/// 405.
pub(crate) fn unknown_verb() -> Failure {
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "The requested verb is not supported.")
}

fn names(kind: &str) -> (&'static str, &'static str, &'static str) {
    *KINDS.iter().find(|(name, ..)| *name == kind).expect("routes only pass kinds on")
}
