//! Single calls, for setting up and checking: databases, containers, items, metrics.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::http::{Connection, Request};
use crate::items;
use crate::sign::{KEY, Signer};

/// The database all loads use.
pub const DATABASE: &str = "/dbs/bench";

/// An answer that owns its bytes.
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
    /// Where the page goes on.
    pub continuation: Option<String>,
    /// How many rows the page has.
    pub count: Option<u64>,
    /// What a query took.
    pub metrics: Option<String>,
    /// The etag, which the change feed goes on from.
    pub etag: Option<String>,
}

impl Answer {
    /// The body as JSON, or null.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The answer itself if its status is one of these.
    pub fn expect(self, statuses: &[u16], what: &str) -> Result<Self> {
        if !statuses.contains(&self.status) {
            let body = String::from_utf8_lossy(&self.body[..self.body.len().min(600)]);
            bail!("{what}: {} {body}", self.status);
        }
        Ok(self)
    }
}

/// One connection for single calls.
pub struct Api {
    connection: Connection,
    request: Request,
    signer: Signer,
}

impl Api {
    /// Connects.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        let connection = Connection::open(address).await?;
        Ok(Self { connection, request: Request::new(), signer: Signer::new(KEY) })
    }

    /// One request with any headers; no body if it is empty.
    pub async fn call(
        &mut self,
        verb: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer> {
        self.request.start(&mut self.signer, verb, path);
        for (name, value) in headers {
            self.request.header(name, value);
        }
        if body.is_empty() && verb != "POST" {
            self.request.end();
        } else {
            self.request.body().extend_from_slice(body);
            self.request.end_body();
        }
        let response = self.connection.exchange(&self.request).await?;
        Ok(Answer {
            status: response.status,
            continuation: response.header("x-ms-continuation").map(str::to_owned),
            count: response.header("x-ms-item-count").and_then(|count| count.parse().ok()),
            metrics: response.header("x-ms-documentdb-query-metrics").map(str::to_owned),
            etag: response.header("etag").map(str::to_owned),
            body: response.body.to_vec(),
        })
    }

    /// Creates the database (if it is not there) and a container in it; its path.
    pub async fn create_container(
        &mut self,
        name: &str,
        default_ttl: Option<i64>,
    ) -> Result<String> {
        self.create_defined(&definition(name, default_ttl)).await
    }

    /// The same with a definition of its own.
    pub async fn create_defined(&mut self, definition: &Value) -> Result<String> {
        let name = definition["id"].as_str().unwrap_or_default();
        let body = json!({"id": "bench"}).to_string();
        let answer = self.call("POST", "/dbs", &[], body.as_bytes()).await?;
        answer.expect(&[201, 409], "create the database")?;
        let path = format!("{DATABASE}/colls/{name}");
        let body = definition.to_string();
        let feed = format!("{DATABASE}/colls");
        // As much as one partition has; nothing is throttled unless the server is told to.
        let headers = [("x-ms-offer-throughput", "10000")];
        let answer = self.call("POST", &feed, &headers, body.as_bytes()).await?;
        answer.expect(&[201], "create the container")?;
        Ok(path)
    }

    /// Replaces a container's definition.
    pub async fn replace_container(&mut self, path: &str, definition: &Value) -> Result<Answer> {
        let answer = self.call("PUT", path, &[], definition.to_string().as_bytes()).await?;
        answer.expect(&[200], "replace the container")
    }

    /// Reads one of the bench's items.
    pub async fn read(&mut self, container: &str, number: u64) -> Result<Answer> {
        let path = format!("{container}/docs/{}", items::id(number));
        let key = format!("[\"{}\"]", items::key(number));
        self.call("GET", &path, &[("x-ms-documentdb-partitionkey", &key)], b"").await
    }

    /// A page of a container's items.
    pub async fn list(&mut self, container: &str, continuation: Option<&str>) -> Result<Answer> {
        let mut headers = vec![("x-ms-max-item-count", "100")];
        headers.extend(continuation.map(|token| ("x-ms-continuation", token)));
        self.call("GET", &format!("{container}/docs"), &headers, b"").await
    }

    /// A page of a query over a whole container.
    pub async fn query(
        &mut self,
        container: &str,
        text: &str,
        continuation: Option<&str>,
    ) -> Result<Answer> {
        self.query_page(container, text, continuation, "100").await
    }

    /// The same with a page of up to so many rows.
    pub async fn query_page(
        &mut self,
        container: &str,
        text: &str,
        continuation: Option<&str>,
        rows_max: &str,
    ) -> Result<Answer> {
        let body = json!({"query": text, "parameters": []}).to_string();
        let mut headers = vec![
            ("x-ms-documentdb-isquery", "true"),
            ("x-ms-documentdb-query-enablecrosspartition", "true"),
            ("x-ms-documentdb-populatequerymetrics", "true"),
            ("x-ms-max-item-count", rows_max),
        ];
        headers.extend(continuation.map(|token| ("x-ms-continuation", token)));
        self.call("POST", &format!("{container}/docs"), &headers, body.as_bytes()).await
    }

    /// The next changes of a container, from the beginning without an etag.
    pub async fn changes(&mut self, container: &str, etag: Option<&str>) -> Result<Answer> {
        let mut headers = vec![("a-im", "Incremental feed"), ("x-ms-max-item-count", "100")];
        headers.extend(etag.map(|etag| ("if-none-match", etag)));
        self.call("GET", &format!("{container}/docs"), &headers, b"").await
    }

    /// How far the purge is behind: dead items still stored, and seconds since the oldest died.
    pub async fn lag(&mut self) -> Result<(u64, u64)> {
        let text = self.metrics().await?;
        Ok((metric(&text, "ttl_items_behind"), metric(&text, "ttl_seconds_behind")))
    }

    /// One of the server's metrics.
    pub async fn metric(&mut self, name: &str) -> Result<u64> {
        Ok(metric(&self.metrics().await?, name))
    }

    async fn metrics(&mut self) -> Result<String> {
        let answer = self.call("GET", "/metrics", &[], b"").await?.expect(&[200], "metrics")?;
        String::from_utf8(answer.body).context("metrics are text")
    }
}

/// The largest value of the metrics whose name ends so.
fn metric(text: &str, name: &str) -> u64 {
    let values = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (key, value) = line.rsplit_once(' ')?;
        let key = key.split('{').next()?;
        key.ends_with(name).then(|| value.parse::<f64>().ok()).flatten()
    });
    values.fold(0.0, f64::max) as u64
}

/// A container definition with default indexing.
pub fn definition(name: &str, default_ttl: Option<i64>) -> Value {
    let mut definition =
        json!({"id": name, "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}});
    if let Some(ttl) = default_ttl {
        definition["defaultTtl"] = ttl.into();
    }
    definition
}
