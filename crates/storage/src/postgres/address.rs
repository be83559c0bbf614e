//! Where a store is, and how to get a connection to the one of its nodes that takes writes.

use std::str::FromStr;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config};

use super::tls::{Name, Tls};
use crate::{Error, Result};

/// How long a node may take to answer. A frozen one must not hold up the others, so all are asked at once.
const ANSWER: Duration = Duration::from_secs(3);

/// How long the others may take once one was found that takes writes: there may be a newer leader.
const OTHERS: Duration = Duration::from_millis(300);

/// A store: one or several nodes of which one takes writes.
#[derive(Clone)]
pub(super) struct Address {
    nodes: Vec<Node>,
    tls: Tls,
}

#[derive(Clone)]
struct Node {
    /// Host and port: what may be shown.
    name: String,
    config: Config,
}

/// A connection to the node that takes writes.
pub(super) struct Connected {
    pub client: Client,
    /// The node's name.
    pub node: String,
    /// Each failover begins a new one. 0 if the store does not tell.
    pub timeline: u64,
}

/// Why there is no connection, node by node.
#[derive(Debug)]
pub(super) struct Unreachable(pub String);

impl Address {
    /// Reads `postgres://user:password@host1,host2:5433/database?sslmode=verify-full&sslrootcert=ca.pem`.
    pub fn parse(url: &str) -> Result<Self> {
        let bad = |why: &str| {
            Error::Open(format!(
                "cannot read the address of the store: {why}. It looks like \
                 postgres://user:password@host1:5432,host2:5432/database?sslmode=verify-full&sslrootcert=ca.pem"
            ))
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| bad("it has no scheme"))?;
        if !matches!(scheme, "postgres" | "postgresql") {
            return Err(bad(&format!("'{scheme}' is not postgres")));
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut tls_mode = SslMode::Prefer;
        let (mut verify, mut roots, mut others) = (None, None, Vec::new());
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=').unwrap_or((parameter, "")) {
                ("sslmode", mode) => {
                    tls_mode = match mode {
                        "disable" => SslMode::Disable,
                        "prefer" => SslMode::Prefer,
                        "require" | "verify-ca" | "verify-full" => SslMode::Require,
                        _ => {
                            return Err(bad(&format!(
                                "sslmode '{mode}' is not disable, prefer, require, verify-ca or verify-full"
                            )));
                        }
                    };
                    verify = match mode {
                        "verify-ca" => Some(Name::Any),
                        "verify-full" => Some(Name::Checked),
                        _ => None,
                    };
                }
                ("sslrootcert", path) => roots = Some(path.replace("%2F", "/")),
                // Every connection is to a node that takes writes.
                ("target_session_attrs", _) => {}
                _ => others.push(parameter),
            }
        }
        let tls = match (verify, &roots) {
            (Some(name), roots) => Tls::verified(roots.as_deref().unwrap_or("system"), name)
                .map_err(|why| bad(&format!("sslrootcert: {why}")))?,
            (None, Some(_)) => {
                return Err(bad("sslrootcert needs sslmode=verify-ca or verify-full"));
            }
            (None, None) => Tls::unverified(),
        };
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (format!("{user}@"), hosts),
            None => (String::new(), authority),
        };
        let nodes = hosts
            .split(',')
            .map(|host| {
                let url = format!("postgres://{user}{host}/{database}?{}", others.join("&"));
                // The parser's own text may repeat a password.
                let mut config = Config::from_str(url.trim_end_matches('?')).map_err(|_| {
                    bad("a host, port, name or parameter in it cannot be understood")
                })?;
                config.ssl_mode(tls_mode).connect_timeout(ANSWER);
                config.keepalives_idle(Duration::from_secs(10)).tcp_user_timeout(ANSWER * 5);
                if config.get_application_name().is_none() {
                    config.application_name("sidereal");
                }
                let name = match host {
                    "" => "the local socket".to_owned(),
                    host => host.replace("%2F", "/"),
                };
                Ok(Node { name, config })
            })
            .collect::<Result<_>>()?;
        Ok(Self { nodes, tls })
    }

    /// The nodes, for people. Never a password.
    pub fn shown(&self) -> String {
        let names: Vec<_> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        let database = self.nodes.first().and_then(|node| node.config.get_dbname());
        format!("postgres://{}/{}", names.join(","), database.unwrap_or_default())
    }

    /// Asks all nodes at once, and takes the one that takes writes and is not behind `timeline`. Of several, one of which does not know yet that it
    /// was replaced, it is the newest.
    pub async fn connect(&self, timeline: u64) -> std::result::Result<Connected, Unreachable> {
        let mut asked = JoinSet::new();
        for node in &self.nodes {
            let (node, tls) = (node.clone(), self.tls.clone());
            asked.spawn(async move {
                let connected = tokio::time::timeout(ANSWER, node.connect(tls, timeline)).await;
                let connected = connected.unwrap_or_else(|_| Err("it does not answer".into()));
                connected.map_err(|text| format!("{}: {text}", node.name))
            });
        }
        let mut texts = Vec::new();
        let mut newest: Option<Connected> = None;
        loop {
            let patience = if newest.is_some() { OTHERS } else { ANSWER * 2 };
            let Ok(Some(answered)) = tokio::time::timeout(patience, asked.join_next()).await else {
                break;
            };
            match answered {
                Ok(Ok(connected)) => {
                    let newer = |found: &Connected| found.timeline < connected.timeline;
                    if newest.as_ref().is_none_or(newer) {
                        newest = Some(connected);
                    }
                }
                Ok(Err(text)) => texts.push(text),
                Err(_) => {}
            }
        }
        texts.sort();
        newest.ok_or_else(|| Unreachable(texts.join("; ")))
    }
}

impl Node {
    async fn connect(&self, tls: Tls, timeline_min: u64) -> std::result::Result<Connected, String> {
        let refused = |error: tokio_postgres::Error| self.refusal(&error);
        let (client, connection) = self.config.connect(tls).await.map_err(refused)?;
        // It ends with the client, or the client with it.
        tokio::spawn(async move { drop(connection.await) });
        let row = client
            .query_one(
                "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on', \
                 current_setting('synchronous_commit') IN ('off', 'local')",
                &[],
            )
            .await
            .map_err(refused)?;
        if row.get(0) || row.get(1) {
            return Err("it is read-only: a standby, or set so".into());
        }
        if row.get(2) {
            // Acknowledged means durable, whatever the default of the database is.
            client.batch_execute("SET synchronous_commit = on").await.map_err(refused)?;
        }
        let timeline = client
            .query_one("SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)", &[])
            .await
            .ok()
            .and_then(|row| u64::from_str_radix(row.get(0), 16).ok())
            .unwrap_or_default();
        if timeline < timeline_min {
            return Err("it was replaced by another leader, and does not know it yet".into());
        }
        // Rows are always found by their key, however few the planner believes there to be.
        client
            .batch_execute(
                "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; \
                 SET plan_cache_mode = force_generic_plan; SET statement_timeout = 0",
            )
            .await
            .map_err(refused)?;
        Ok(Connected { client, node: self.name.clone(), timeline })
    }

    /// What a node says, and what to do about it.
    fn refusal(&self, error: &tokio_postgres::Error) -> String {
        let user = self.config.get_user().unwrap_or("(none)");
        let database = self.config.get_dbname().unwrap_or(user);
        match error.code() {
            Some(state) if *state == SqlState::INVALID_PASSWORD => {
                format!("the password of user '{user}' is wrong")
            }
            Some(state) if *state == SqlState::INVALID_CATALOG_NAME => {
                format!("there is no database '{database}': create it (CREATE DATABASE {database})")
            }
            _ => match reason(error) {
                text if text.contains("UnknownIssuer") => {
                    format!("its certificate is not trusted: is it signed by sslrootcert? ({text})")
                }
                text => text,
            },
        }
    }
}

/// What went wrong, with what the server or the system says of it.
pub(super) fn reason(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return error.message().to_owned();
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(url: &str) -> String {
        Address::parse(url).map_or_else(|error| error.to_string(), |address| address.shown())
    }

    #[test]
    fn addresses_are_read_and_shown_without_passwords() {
        assert_eq!(
            names("postgres://me:secret@a,b:5433/data?sslmode=require"),
            "postgres://a,b:5433/data"
        );
        assert_eq!(names("postgresql://%2Ftmp%2Fx/data"), "postgres:///tmp/x/data");
        for bad in [
            "mysql://x/y",
            "nothing",
            "postgres://a/b?sslmode=maybe",
            "postgres://a/b?sslrootcert=x",
            "postgres://u:secret@a:port/b",
            "postgres://a/b?sslmode=verify-full&sslrootcert=/nowhere",
        ] {
            let text = names(bad);
            assert!(text.starts_with("cannot read the address of the store"), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }
}
