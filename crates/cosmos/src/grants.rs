//! What the holder of a permission's token may ask for: every route that is not listed here is refused.
//!
//! `Read` reads and queries, `All` also writes and runs procedures. A permission on one item or script reaches that one, and one with a
//! partition key only requests that name this key (or, of a hierarchical one, begin with it). With any token the account, the container's definition
//! and its partition key ranges can be read: clients need them before they can ask for anything.

use db::{Db, Grant};
use http::{HeaderMap, Method, StatusCode};
use model::partition_key::PartitionKey;

use crate::auth::insufficient;
use crate::call::Intent;
use crate::error::{Failure, Result};
use crate::headers;
use crate::routes::is_read;

/// What a route does with the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Reads definitions that every client needs.
    Definition,
    /// Reads items.
    Read,
    /// Changes items.
    Write,
    /// Reads scripts, which belong to no partition key.
    ReadScript,
    /// Changes scripts.
    WriteScript,
}

/// Refuses a request that the permission with this rid does not allow; gives what it allows.
pub(crate) fn check(
    db: &Db,
    permission: &str,
    method: &Method,
    headers: &HeaderMap,
    parts: &[&str],
) -> Result<Box<Grant>> {
    let permission = db.permission(permission).ok_or_else(|| {
        Failure::new(
            StatusCode::FORBIDDEN,
            "The permission of the authorization token does not exist any more.",
        )
    })?;
    let grant = permission.grant().ok_or_else(insufficient)?;
    if parts.is_empty() && method == Method::GET {
        return Ok(Box::new(grant));
    }
    let (["dbs", database, "colls", container], rest) =
        parts.split_first_chunk().ok_or_else(insufficient)?
    else {
        return Err(insufficient());
    };
    // Whether there is such a container is not for strangers to learn.
    let container = db.owner(database, container).map_err(|_| insufficient())?;
    if container.rid != grant.container {
        return Err(insufficient());
    }
    let need = need(method, headers, rest).ok_or_else(insufficient)?;
    allows(&grant, need, headers, rest)?;
    Ok(Box::new(grant))
}

/// What a route below a container needs; `None` if no token opens it.
fn need(method: &Method, headers: &HeaderMap, rest: &[&str]) -> Option<Need> {
    let intent = Intent::of(headers);
    Some(match (method.as_str(), rest) {
        ("GET" | "HEAD", []) | ("GET", ["pkranges"]) => Need::Definition,
        ("GET", ["docs" | "conflicts"]) | ("GET" | "HEAD", ["docs" | "conflicts", _]) => Need::Read,
        ("POST", ["docs" | "conflicts"]) if matches!(intent, Intent::Query | Intent::Plan) => {
            Need::Read
        }
        ("POST", ["docs"]) | ("PUT" | "PATCH" | "DELETE", ["docs", _]) => Need::Write,
        ("DELETE", ["conflicts", _]) | ("POST", ["sprocs", _]) => Need::Write,
        ("POST", ["operations", "partitionkeydelete"]) => Need::Write,
        ("GET", ["sprocs" | "triggers" | "udfs"] | ["sprocs" | "triggers" | "udfs", _]) => {
            Need::ReadScript
        }
        ("POST", ["sprocs" | "triggers" | "udfs"]) if intent == Intent::Query => Need::ReadScript,
        ("POST", ["sprocs" | "triggers" | "udfs"])
        | ("PUT" | "DELETE", ["sprocs" | "triggers" | "udfs", _]) => Need::WriteScript,
        _ => return None,
    })
}

fn allows(grant: &Grant, need: Need, headers: &HeaderMap, rest: &[&str]) -> Result<()> {
    if need == Need::Definition {
        return Ok(());
    }
    if let Some((kind, id)) = &grant.child {
        if rest != [kind.as_str(), id.as_str()] {
            return Err(insufficient());
        }
        // A trigger sees the whole partition key.
        let triggers = [&headers::PRE_TRIGGER, &headers::POST_TRIGGER];
        if kind == "docs" && triggers.into_iter().any(|name| headers.contains_key(name)) {
            return Err(insufficient());
        }
    }
    if matches!(need, Need::Write | Need::WriteScript) && !grant.write {
        return Err(Failure::new(
            StatusCode::FORBIDDEN,
            "The permission mode provided in the authorization token doesn't provide sufficient permissions.",
        ));
    }
    match (&grant.partition_key, need) {
        (None, _) | (Some(_), Need::Definition | Need::ReadScript) => Ok(()),
        (Some(_), Need::WriteScript) => Err(insufficient()),
        (Some(granted), Need::Read | Need::Write) => {
            let header = headers::text(headers, &headers::PARTITION_KEY)?;
            let asked = header.and_then(|header| PartitionKey::parse(header).ok());
            match asked.is_some_and(|asked| asked.0.starts_with(&granted.0)) {
                true => Ok(()),
                false => Err(insufficient()),
            }
        }
    }
}

/// Refuses an item of another partition key than the token's, where an operation of a list names its own.
pub(crate) fn check_key(grant: Option<&Grant>, key: Option<&PartitionKey>) -> Result<()> {
    let Some(granted) = grant.and_then(|grant| grant.partition_key.as_ref()) else { return Ok(()) };
    match key.is_some_and(|key| key.0.starts_with(&granted.0)) {
        true => Ok(()),
        false => Err(insufficient()),
    }
}

/// Refuses to give the one item that a token reaches another name.
pub(crate) fn check_name(grant: Option<&Grant>, body: &[u8]) -> Result<()> {
    let Some((_, id)) = grant.and_then(|grant| grant.child.as_ref()) else { return Ok(()) };
    let body: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    match body.is_none_or(|body| body["id"].as_str() == Some(id)) {
        true => Ok(()),
        false => Err(insufficient()),
    }
}

/// Refuses what the holder of a read-only key may not do: write, run procedures, or read permissions, whose tokens may do more.
pub(crate) fn check_reader(method: &Method, headers: &HeaderMap, parts: &[&str]) -> Result<()> {
    let permissions = matches!(parts, ["dbs", _, "users", _, "permissions", ..]);
    match is_read(method, headers, parts) && !permissions {
        true => Ok(()),
        false => Err(insufficient()),
    }
}

/// Refuses what a directory's token is not for: it reads and writes data, runs procedures, and reads the definitions that clients need for that.
pub(crate) fn check_directory(method: &Method, headers: &HeaderMap, parts: &[&str]) -> Result<()> {
    let read = is_read(method, headers, parts);
    let allowed = match parts {
        ["dbs", _, "colls", _, "docs" | "conflicts" | "operations", ..] => true,
        ["dbs", _, "colls", _, "sprocs", _] => method == Method::POST,
        [] | ["dbs"] | ["dbs", _] | ["dbs", _, "clientencryptionkeys", ..] => read,
        ["dbs", _, "colls"] | ["dbs", _, "colls", _] | ["dbs", _, "colls", _, "pkranges"] => read,
        _ => false,
    };
    if allowed {
        return Ok(());
    }
    let text = format!(
        "The given request [{method} /{}] cannot be authorized by AAD token in data plane. Learn more: \
         https://aka.ms/cosmos-native-rbac.",
        parts.join("/")
    );
    Err(Failure::new(StatusCode::FORBIDDEN, text).with_substatus(5300))
}
