//! Queries: the living items of a snapshot, a page at a time, pushed through a pipeline.

use std::sync::Arc;

use bytes::Bytes;
use model::clock::Timestamp;
use model::partition_key::PartitionKey;
use model::resource::{ChildRid, bytes_of, text_of};
use query::plan::scalar_path;
use query::sql::ast::Collection;
use query::{
    Compiled, Context, Flow, InnerProgress, Pipeline, Plan, Position, Progress, Resume, Resumes,
    Rows,
};
use serde_json::{Value, json};

use crate::account::Account;
use crate::charge;
use crate::fan::{self, Fan, Way, Wish};
use crate::items::{PAGE_BYTES_MAX, Page, PageRequest, ReadOptions, Scope};
use crate::order;
use crate::ranges::{Place, Places, Target, invalid_token};
use crate::{Container, Db, Error, Reply, Result};

/// A query text and its parameters.
#[derive(Clone, Debug)]
pub struct QueryRequest {
    /// The SQL text.
    pub text: String,
    /// Its parameters: name with the `@`, value.
    pub parameters: Vec<(String, Value)>,
    /// Whether it may look at more than one partition key.
    pub cross_partition: bool,
    /// Whether it may sort what no index of the container's policy has in order.
    pub scan: bool,
    /// Which items it is about.
    pub scope: Scope,
    /// Where a sorted query that a client merges itself is to begin.
    pub resume: Option<ResumeFilter>,
}

/// A place in the order of a sorted query: the keys of a row, and perhaps the row itself.
#[derive(Clone, Debug)]
pub struct ResumeFilter {
    /// The ORDER BY keys; `None` is undefined.
    pub keys: Vec<Option<Value>>,
    /// The rid of the row's item.
    pub rid: Option<String>,
    /// Whether to begin behind that row, or behind all rows with these keys.
    pub exclude: bool,
}

impl ResumeFilter {
    fn position(&self, compiled: &Compiled) -> Position {
        let item = self.rid.as_deref().and_then(ChildRid::parse_item);
        match item {
            None => compiled.position(&self.keys, self.exclude),
            Some((_, partition, ordinal)) => {
                let number = ChildRid::number(partition, ordinal);
                let ordinal = if self.exclude { number } else { number.saturating_sub(1) };
                Position { ordinal, ..compiled.position(&self.keys, false) }
            }
        }
    }
}

impl QueryRequest {
    pub(crate) fn compile(&self, options: query::Options, now: Timestamp) -> Result<Arc<Compiled>> {
        let now_millis = Some(now.0.cast_signed() * 1_000);
        let options = query::Options { now_millis, ..options };
        Ok(Arc::new(Compiled::new(&self.text, &self.parameters, &options)?))
    }

    /// What ties a continuation token to its query. SDKs that merge partitions resume with a narrower filter.
    fn fingerprint(&self, compiled: &Compiled) -> u32 {
        let start = crc32c::crc32c(compiled.unfiltered().as_bytes());
        self.parameters.iter().fold(start, |crc, (name, value)| {
            crc32c::crc32c_append(crc, format!("{name}={value}").as_bytes())
        })
    }
}

impl Db {
    /// Runs a query over the items of its scope. One that calls user-defined functions runs where these can harm nobody.
    pub async fn query(
        &self,
        container: &Container,
        query: &QueryRequest,
        page: &PageRequest,
        options: ReadOptions<'_>,
    ) -> Reply<Page> {
        match self.functions_for(container, &query.text) {
            Some(functions) => self.query_apart(functions, container, (query, page), options).await,
            None => self.query_here(container, query, page, options).await,
        }
    }

    /// The same, here.
    pub(crate) async fn query_here(
        &self,
        container: &Container,
        query: &QueryRequest,
        page: &PageRequest,
        options: ReadOptions<'_>,
    ) -> Reply<Page> {
        let mut charge = charge::MISS;
        let (mut session, mut other_sessions) = (None, Vec::new());
        let result = async {
            let scope = &query.scope;
            let mut targets = container.targets(scope)?;
            (session, other_sessions) = fan::sessions(&targets);
            self.check_sessions(&targets, options)?;
            self.admit_all(&targets)?;
            let begun = self.clock.stopwatch();
            let compiled = self.compiled(container, query)?;
            let plan = compiled.plan();
            let compile = self.clock.stopwatch().saturating_sub(begun);
            if !query.scan {
                order::check(&container.runtime.settings(), &plan.order)?;
            }
            let measures = compiled.measures_all() && page.continuation.is_none();
            if matches!(scope, Scope::Container) && compiled.reads_items() {
                let pinned = pinned_keys(container, &plan);
                if !query.cross_partition && pinned.as_ref().is_none_or(|keys| keys.len() > 1) {
                    return Err(not_pinned());
                }
                if let Some(keys) = pinned.filter(|_| !measures) {
                    let hold = |target: &Target, key| {
                        Arc::ptr_eq(&target.partition, container.partition_of(key))
                    };
                    targets.retain(|target| keys.iter().any(|key| hold(target, key)));
                }
            }
            let mut may_order = sorts_items(&compiled);
            loop {
                let run = Run::new(self, compiled.clone(), query, page)?;
                let mut fan = Fan::new(self, container, &targets, scope, &run.places())?;
                let last = run.before.last.clone();
                let wish = Wish { query: &compiled, plan: &plan, last: last.as_ref(), may_order };
                let way = if measures { Way::ByAge } else { fan.choose(&wish).await? };
                let counted = if plan.counts_only { fan.count(&plan).await? } else { 0 };
                let page = run.page(&mut fan, way, counted).await;
                charge.0 = self.settle_all(&fan).0.max(charge.0);
                match page? {
                    Some(mut page) => {
                        let total = self.clock.stopwatch().saturating_sub(begun);
                        page.account = Account { compile, total, ..page.account };
                        return Ok(page);
                    }
                    None => may_order = false,
                }
            }
        }
        .await;
        Reply { result, charge, session, other_sessions }
    }

    /// Runs a query over a list of JSON documents of the catalog (databases, containers, offers).
    pub fn query_documents(
        &self,
        query: &QueryRequest,
        documents: Vec<Value>,
    ) -> Result<Vec<Bytes>> {
        let compiled = query.compile(query::Options::default(), self.now())?;
        let mut pipeline = Pipeline::new(compiled, &self.query_context());
        for (ordinal, document) in documents.into_iter().enumerate() {
            if pipeline.push(document.to_string().as_bytes(), ordinal as u64)? == Flow::Done {
                break;
            }
        }
        let mut rows = copies(&pipeline.take_rows());
        rows.extend(copies(&pipeline.finish()?));
        Ok(rows)
    }

    /// The plan that SDKs ask for. Where one partition holds all that the query is about, none is needed: the answer says to send the
    /// query as it is.
    pub fn query_plan(&self, container: &Container, query: &QueryRequest) -> Result<Value> {
        let compiled = self.compiled(container, query)?;
        let range = |min: String, max: String, point: bool| json!({"min": min, "max": max, "isMinInclusive": true, "isMaxInclusive": point});
        let definition = &container.settings.partition_key;
        let ranges = match &query.scope {
            Scope::Key(key) if key.0.len() < definition.paths.len() => {
                let min = definition.hash(key);
                let max = format!("{min}FF");
                vec![range(min, max, false)]
            }
            Scope::Key(key) => vec![range(definition.hash(key), definition.hash(key), true)],
            _ => match pinned_keys(container, &compiled.plan()) {
                Some(keys) => {
                    let mut hashes: Vec<String> =
                        keys.iter().map(|key| definition.hash(key)).collect();
                    hashes.sort_unstable();
                    hashes.dedup();
                    hashes.into_iter().map(|hash| range(hash.clone(), hash, true)).collect()
                }
                None => vec![range(String::new(), "FF".into(), false)],
            },
        };
        let one_partition = container.partitions.all.len() == 1
            || matches!(&query.scope, Scope::Key(key) if key.0.len() == definition.paths.len());
        let info = match one_partition {
            true => None,
            false => Some(compiled.info()?),
        };
        let mut plan = json!({
            "partitionedQueryExecutionInfoVersion": 2,
            "queryInfo": {
                "distinctType": "None", "top": null, "offset": null, "limit": null,
                "orderBy": [], "orderByExpressions": [], "groupByExpressions": [], "groupByAliases": [],
                "aggregates": [], "groupByAliasToAggregateType": {}, "rewrittenQuery": "",
                "hasSelectValue": false, "dCountInfo": null, "hasNonStreamingOrderBy": false,
            },
            "queryRanges": ranges,
        });
        if let Some(info) = info {
            plan["queryInfo"] = info.query_info;
            if !info.hybrid_info.is_null() {
                plan["hybridSearchQueryInfo"] = info.hybrid_info;
            }
        }
        Ok(plan)
    }

    /// The plan for a client that merges the answers of partitions itself, if these cannot simply follow each other, and if no more than
    /// the given features are needed for it.
    pub fn merge_plan(
        &self,
        container: &Container,
        query: &QueryRequest,
        features: &[&str],
    ) -> Result<Option<Value>> {
        if !matches!(query.scope, Scope::Container) || !query.cross_partition {
            return Ok(None);
        }
        let compiled = self.compiled(container, query)?;
        let one_partition = match pinned_keys(container, &compiled.plan()) {
            Some(keys) => {
                let mut homes = keys.iter().map(|key| container.partition_of(key).id);
                let first = homes.next();
                homes.all(|home| Some(home) == first)
            }
            None => container.partitions.all.len() == 1,
        };
        let Some(info) = compiled.info().ok().filter(|_| !one_partition) else { return Ok(None) };
        // Rows that are only counted off follow each other.
        let merged = info.features.iter().any(|needed| *needed != "Top");
        let can_merge = info.features.iter().all(|needed| features.contains(needed));
        match merged && can_merge && info.merges_by_item() {
            true => self.query_plan(container, query).map(Some),
            false => Ok(None),
        }
    }

    /// The query as it runs over a container's items.
    pub(crate) fn compiled(
        &self,
        container: &Container,
        query: &QueryRequest,
    ) -> Result<Arc<Compiled>> {
        query.compile(query_options(container), self.now())
    }

    pub(crate) fn query_context(&self) -> Context {
        let now = self.now().0;
        Context {
            now_millis: now.cast_signed() * 1_000,
            seed: self.clock.stopwatch().as_nanos() as u64,
            udfs: self.functions.clone(),
            ..Context::default()
        }
    }
}

/// A walk in order gives up after so many items if less than one in [`HIT_RATE`] of them made a row: reading all and sorting is then less
/// work.
const PATIENCE: usize = 4_096;
const HIT_RATE: usize = 64;

/// One page of a query.
struct Run<'q> {
    query: &'q QueryRequest,
    compiled: Arc<Compiled>,
    pipeline: Pipeline,
    context: Context,
    rows_max: usize,
    before: Token,
    rows: Vec<Bytes>,
    bytes: usize,
    last: Option<Position>,
    /// The partition of the last row's item, and how far it has come there.
    place: Option<(usize, Place)>,
    full: bool,
}

impl<'q> Run<'q> {
    fn new(
        db: &Db,
        compiled: Arc<Compiled>,
        query: &'q QueryRequest,
        page: &PageRequest,
    ) -> Result<Self> {
        let mut before = match &page.continuation {
            None => Token::default(),
            Some(text) => Token::parse(text, query.fingerprint(&compiled))?,
        };
        if let Some(resume) = &query.resume {
            let position = resume.position(&compiled);
            before.last = Some(before.last.map_or(position.clone(), |last| last.max(position)));
        }
        let resume = before
            .last
            .clone()
            .map(|last| Resume::new(before.progress, last, before.measure.clone()));
        let context = Context {
            page_rows_max: Some(page.items_max.saturating_add(1)),
            page_bytes_max: PAGE_BYTES_MAX,
            resume,
            ..db.query_context()
        };
        Ok(Self {
            pipeline: Pipeline::new(compiled.clone(), &context),
            context,
            compiled,
            query,
            rows_max: page.items_max,
            before,
            rows: Vec::new(),
            bytes: 0,
            last: None,
            place: None,
            full: false,
        })
    }

    /// Where to begin reading: a streaming query goes on at the item of its last row.
    fn places(&self) -> Places {
        match self.compiled.resumes() {
            Resumes::ByItem => self.before.places.clone(),
            Resumes::ByPlace => Places::default(),
        }
    }

    /// The page, with so many items counted beforehand; `None` if the items should come another way.
    async fn page(mut self, fan: &mut Fan<'_>, way: Way, counted: u64) -> Result<Option<Page>> {
        if way == Way::InOrder {
            let context = Context { sorted_input: true, ..self.context.clone() };
            self.pipeline = Pipeline::new(self.compiled.clone(), &context);
        }
        if counted > 0 {
            self.pipeline.push_count(counted);
        }
        let mut beyond = 0;
        'scan: while self.compiled.reads_items() {
            let items = fan.next().await?;
            if items.is_empty() {
                break;
            }
            let stop = fan.stop();
            let span = &fan.partition(stop).span;
            for item in items {
                // Rows that are otherwise equal come in the order of their rids, as SDKs merge them.
                let number = ChildRid::number(span.birthplace(item.ordinal), item.ordinal);
                let rows = fan.rows_given(item.ordinal);
                let flow = self.pipeline.push_from(&item.record.body, number, rows)?;
                let rows = self.pipeline.take_rows();
                let given = self.rows.len();
                self.take(&rows);
                let new = self.rows.len() > given && way == Way::ByAge;
                if let Some(last) = self.last.as_ref().filter(|_| new) {
                    // The item may have more rows.
                    let place = Place { ordinal: item.ordinal - 1, rows: last.row + 1 };
                    self.place = Some((stop, place));
                }
                // A single row may have filled the page.
                self.full |= flow == Flow::Full;
                if flow != Flow::More || self.full {
                    break 'scan;
                }
            }
            let passed = self.pipeline.progress().skipped - self.before.progress.skipped;
            let (items, hits) = (fan.items(), self.rows.len() + passed as usize);
            if way == Way::InOrder && items > PATIENCE && hits < items / HIT_RATE {
                return Ok(None);
            }
            // A full page looks a little further, so that the last one need not be an empty one.
            if self.rows.len() == self.rows_max {
                beyond += 1;
                if beyond > 1 {
                    self.full = true;
                    break;
                }
            }
            tokio::task::yield_now().await;
        }
        if !self.full {
            let rows = self.pipeline.finish()?;
            self.take(&rows);
            self.full |= self.pipeline.is_full();
        }
        let places = match self.place {
            Some((stop, place)) => fan.places(stop, place),
            None => self.before.places,
        };
        let continuation = self.last.filter(|_| self.full).map(|last| {
            let given = self.before.progress.given + self.rows.len() as u64;
            let progress = Progress { skipped: self.pipeline.progress().skipped, given };
            Token { progress, last: Some(last), places, measure: self.pipeline.measure() }
                .text(self.query.fingerprint(&self.compiled))
        });
        let mut account = fan.account();
        account.rows = self.rows.len();
        account.row_bytes = self.bytes;
        account.sorted = way != Way::InOrder && self.compiled.tree().order_by.is_some();
        Ok(Some(Page { rows: self.rows, continuation, account }))
    }

    /// Takes rows until the page is full.
    fn take(&mut self, rows: &Rows) {
        for (row, position) in rows.iter().zip(rows.positions()) {
            let too_much = self.bytes + row.len() > PAGE_BYTES_MAX && !self.rows.is_empty();
            if self.rows.len() == self.rows_max || too_much {
                self.full = true;
                return;
            }
            self.bytes += row.len();
            self.rows.push(Bytes::copy_from_slice(row));
            self.last = Some(position.clone());
        }
    }
}

/// What a continuation token holds: the last row given, how many, where its item is, and by what rows are ranked.
#[derive(Clone, Debug, Default)]
struct Token {
    progress: Progress,
    last: Option<Position>,
    places: Places,
    measure: Vec<u8>,
}

/// In a token, where the number of places would be: what few queries need comes first.
const MORE: u8 = u8::MAX;

impl Token {
    fn text(&self, fingerprint: u32) -> String {
        let last = self.last.clone().unwrap_or_default();
        let mut bytes = Vec::with_capacity(36 + last.key.len());
        bytes.extend_from_slice(&self.progress.skipped.to_le_bytes());
        bytes.extend_from_slice(&self.progress.given.to_le_bytes());
        bytes.extend_from_slice(&last.ordinal.to_le_bytes());
        bytes.extend_from_slice(&last.row.to_le_bytes());
        if !last.inner.is_empty() || !self.measure.is_empty() {
            bytes.extend([MORE, last.inner.len() as u8]);
            let counts = last.inner.iter().flat_map(|inner| [inner.before, inner.with]);
            for Progress { skipped, given } in counts {
                bytes.extend_from_slice(&skipped.to_le_bytes());
                bytes.extend_from_slice(&given.to_le_bytes());
            }
            bytes.extend_from_slice(&(self.measure.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&self.measure);
        }
        bytes.push(self.places.0.len() as u8);
        for (partition, place) in &self.places.0 {
            bytes.extend_from_slice(&partition.to_le_bytes());
            bytes.extend_from_slice(&place.ordinal.to_le_bytes());
            bytes.extend_from_slice(&place.rows.to_le_bytes());
        }
        bytes.extend_from_slice(&last.key);
        let crc = crc32c::crc32c_append(fingerprint, &bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        text_of(&bytes)
    }

    fn parse(text: &str, fingerprint: u32) -> Result<Self> {
        Self::read(text, fingerprint).ok_or_else(invalid_token)
    }

    fn read(text: &str, fingerprint: u32) -> Option<Self> {
        let bytes = bytes_of(text)?;
        let (bytes, crc) = bytes.split_last_chunk::<4>()?;
        if u32::from_le_bytes(*crc) != crc32c::crc32c_append(fingerprint, bytes) {
            return None;
        }
        let bytes = &mut { bytes };
        let progress = take_progress(bytes)?;
        let (ordinal, row) = (take_u64(bytes)?, take_u32(bytes)?);
        let (mut inner, mut measure) = (Vec::new(), Vec::new());
        let mut count = take_u8(bytes)?;
        if count == MORE {
            for _ in 0..take_u8(bytes)? {
                let (before, with) = (take_progress(bytes)?, take_progress(bytes)?);
                inner.push(InnerProgress { before, with });
            }
            let length = take_u32(bytes)? as usize;
            measure = bytes.split_off(..length)?.to_vec();
            count = take_u8(bytes)?;
        }
        let mut places = Places::default();
        for _ in 0..count {
            let partition = take_u32(bytes)?;
            places.0.push((partition, Place { ordinal: take_u64(bytes)?, rows: take_u32(bytes)? }));
        }
        let last = Some(Position { key: bytes.to_vec(), ordinal, row, inner });
        Some(Self { progress, last, places, measure })
    }
}

fn take_u8(bytes: &mut &[u8]) -> Option<u8> {
    bytes.split_off_first().copied()
}

fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    bytes.split_off(..4)?.try_into().ok().map(u32::from_le_bytes)
}

fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    bytes.split_off(..8)?.try_into().ok().map(u64::from_le_bytes)
}

fn take_progress(bytes: &mut &[u8]) -> Option<Progress> {
    Some(Progress { skipped: take_u64(bytes)?, given: take_u64(bytes)? })
}

/// Whether ORDER BY is about the items themselves, so that these may come in order.
fn sorts_items(compiled: &Compiled) -> bool {
    let from = compiled.tree().from.as_ref();
    let has_inner =
        from.is_some_and(|from| matches!(from.first.collection, Collection::Subquery(_)));
    !compiled.tree().select.distinct && !has_inner
}

/// The partition keys that a query's filter pins it to; `None` if it may look at others.
fn pinned_keys(container: &Container, plan: &Plan) -> Option<Vec<PartitionKey>> {
    let paths = container.settings.partition_key.paths.iter();
    let paths: Vec<String> = paths.map(|path| scalar_path(path.segments())).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let key = |values: Vec<Value>| PartitionKey::from_values(&values);
    plan.pinned(&paths)?.into_iter().map(key).collect()
}

/// The answer to a query that would look at more than one partition key without having been allowed to.
fn not_pinned() -> Error {
    Error::Invalid(
        "Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition to \
         true, specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception."
            .into(),
    )
}

fn copies(rows: &Rows) -> Vec<Bytes> {
    rows.iter().map(Bytes::copy_from_slice).collect()
}

/// What of a container's definition its queries may refer to: computed properties and vectors.
pub(crate) fn query_options(container: &Container) -> query::Options {
    let json = &container.settings.json;
    let text = |value: &Value, name: &str| value[name].as_str().map(str::to_owned);
    let computed = json.get("computedProperties").and_then(Value::as_array).into_iter().flatten();
    let embeddings = json.get("vectorEmbeddingPolicy").map(|policy| &policy["vectorEmbeddings"]);
    let embeddings = embeddings.and_then(Value::as_array).into_iter().flatten();
    let vector = |each: &Value| {
        let options = json!({
            "distanceFunction": each["distanceFunction"],
            "dataType": each["dataType"],
        });
        Some((text(each, "path")?, options))
    };
    query::Options {
        computed: computed
            .filter_map(|each| Some((text(each, "name")?, text(each, "query")?)))
            .collect(),
        vectors: embeddings.filter_map(vector).collect(),
        flat: json.get("geospatialConfig").is_some_and(|config| config["type"] == "Geometry"),
        ..query::Options::default()
    }
}

impl From<query::Error> for Error {
    fn from(error: query::Error) -> Self {
        match error {
            query::Error::Text(_) => Self::InvalidQuery(error.to_string()),
            query::Error::Memory { .. }
            | query::Error::Work { .. }
            | query::Error::Cardinality
            | query::Error::Udf(_) => Self::Invalid(error.to_string()),
            query::Error::Item => Self::Storage(error.to_string()),
        }
    }
}
