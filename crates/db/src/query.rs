//! Queries: the living items of a snapshot, a page at a time, pushed through a pipeline.

use std::sync::Arc;

use bytes::Bytes;
use model::clock::Timestamp;
use model::resource::{bytes_of, text_of};
use query::plan::{Condition, scalar_path};
use query::{Compiled, Context, Flow, Pipeline, Plan, Position, Progress, Rows};
use serde_json::{Value, json};

use crate::access::Access;
use crate::charge;
use crate::items::{PAGE_BYTES_MAX, Page, PageRequest, ReadOptions, Scope, check_session};
use crate::order::Order;
use crate::scan::{self, ItemScan};
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
    /// Which items it is about.
    pub scope: Scope,
}

impl QueryRequest {
    fn compile(&self, computed: Vec<(String, String)>, now: Timestamp) -> Result<Arc<Compiled>> {
        let now_millis = Some(now.0.cast_signed() * 1_000);
        let options = query::Options { computed, now_millis, ..query::Options::default() };
        Ok(Arc::new(Compiled::new(&self.text, &self.parameters, &options)?))
    }

    /// What ties a continuation token to its query.
    fn fingerprint(&self) -> u32 {
        let start = crc32c::crc32c(self.text.as_bytes());
        self.parameters.iter().fold(start, |crc, (name, value)| {
            crc32c::crc32c_append(crc, format!("{name}={value}").as_bytes())
        })
    }
}

impl Db {
    /// Runs a query over the items of its scope.
    pub async fn query(
        &self,
        container: &Container,
        query: &QueryRequest,
        page: &PageRequest,
        options: ReadOptions<'_>,
    ) -> Reply<Page> {
        let partition = container.partition();
        let session = partition.session();
        let mut charge = charge::MISS;
        let result = async {
            check_session(session, options)?;
            self.admit(partition)?;
            let compiled = query.compile(computed_properties(container), self.now())?;
            let plan = compiled.plan();
            let scope = &query.scope;
            if matches!(scope, Scope::Container) && !query.cross_partition && compiled.reads_items()
            {
                check_pinned(container, &plan)?;
            }
            let mut may_order = !compiled.tree().select.distinct;
            loop {
                let run = Run::new(self, compiled.clone(), query.fingerprint(), page)?;
                let after = run.scan_after(container);
                let mut scan = ItemScan::new(self, container, scope, after)?;
                let last = run.before.last.clone();
                let from = (last.as_ref(), after);
                let way = choose(&mut scan, (&compiled, &plan), from, may_order).await?;
                let page = run.page(&mut scan, way).await;
                charge = scan.charge();
                match page? {
                    Some(page) => return Ok(page),
                    None => may_order = false,
                }
            }
        }
        .await;
        self.settle(partition, charge);
        Reply { result, charge, session: Some(session) }
    }

    /// Runs a query over a list of JSON documents of the catalog (databases, containers, offers).
    pub fn query_documents(
        &self,
        query: &QueryRequest,
        documents: Vec<Value>,
    ) -> Result<Vec<Bytes>> {
        let compiled = query.compile(Vec::new(), self.now())?;
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

    /// The plan that SDKs ask for. A container with one partition needs none: the answer says to send the query as it is.
    pub fn query_plan(&self, container: &Container, query: &QueryRequest) -> Result<Value> {
        query.compile(computed_properties(container), self.now())?;
        Ok(json!({
            "partitionedQueryExecutionInfoVersion": 2,
            "queryInfo": {
                "distinctType": "None", "top": null, "offset": null, "limit": null,
                "orderBy": [], "orderByExpressions": [], "groupByExpressions": [], "groupByAliases": [],
                "aggregates": [], "groupByAliasToAggregateType": {}, "rewrittenQuery": "",
                "hasSelectValue": false, "dCountInfo": null, "hasNonStreamingOrderBy": false,
            },
            "queryRanges": [{"min": "", "max": "FF", "isMinInclusive": true, "isMaxInclusive": false}],
        }))
    }

    fn query_context(&self) -> Context {
        let now = self.now().0;
        Context {
            now_millis: now.cast_signed() * 1_000,
            seed: self.clock.stopwatch().as_nanos() as u64,
            ..Context::default()
        }
    }
}

/// How the items of a query come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By their age: all of the scope, or those that an index names.
    ByAge,
    /// In the order that the query asks for.
    InOrder,
    /// They do not: only their number matters.
    Counted(u64),
}

/// A walk in order gives up after so many items if less than one in [`HIT_RATE`] of them made a row: reading all and sorting is then less
/// work.
const PATIENCE: usize = 4_096;
const HIT_RATE: usize = 64;

/// One page of a query.
struct Run {
    compiled: Arc<Compiled>,
    pipeline: Pipeline,
    context: Context,
    fingerprint: u32,
    rows_max: usize,
    before: Token,
    rows: Vec<Bytes>,
    bytes: usize,
    last: Option<Position>,
    full: bool,
}

impl Run {
    fn new(db: &Db, compiled: Arc<Compiled>, fingerprint: u32, page: &PageRequest) -> Result<Self> {
        let before = match &page.continuation {
            None => Token::default(),
            Some(text) => Token::parse(text, fingerprint)?,
        };
        let mut context = db.query_context();
        // Duplicates are only known as such by what came before them: DISTINCT begins anew and passes over the pages it has given.
        if !compiled.tree().select.distinct {
            context.page_rows_max = Some(page.items_max.saturating_add(1));
            let after = before.last.clone().filter(|_| !compiled.resumes_by_count());
            context.resume = before.last.is_some().then_some((before.progress, after));
        }
        Ok(Self {
            pipeline: Pipeline::new(compiled.clone(), &context),
            context,
            compiled,
            fingerprint,
            rows_max: page.items_max,
            before,
            rows: Vec::new(),
            bytes: 0,
            last: None,
            full: false,
        })
    }

    /// Where to begin reading: a streaming query goes on at the item of its last row.
    fn scan_after(&self, container: &Container) -> Option<scan::Position> {
        let resumes = self.compiled.is_streaming() && !self.compiled.tree().select.distinct;
        let last = self.before.last.as_ref().filter(|last| resumes && last.ordinal > 0)?;
        Some(scan::Position {
            partition: container.partition().id.partition,
            ordinal: last.ordinal - 1,
        })
    }

    /// The page; `None` if the items should come another way.
    async fn page(mut self: Run, scan: &mut ItemScan, way: Way) -> Result<Option<Page>> {
        match way {
            Way::ByAge => {}
            Way::InOrder => {
                let context = Context { sorted_input: true, ..self.context.clone() };
                self.pipeline = Pipeline::new(self.compiled.clone(), &context);
            }
            Way::Counted(items) => self.pipeline.push_count(items),
        }
        let counted = matches!(way, Way::Counted(_));
        let mut beyond = 0;
        'scan: while self.compiled.reads_items() && !counted {
            let items = scan.next().await?;
            if items.is_empty() {
                break;
            }
            for item in items {
                let flow = self.pipeline.push(&item.record.body, item.ordinal)?;
                let rows = self.pipeline.take_rows();
                self.take(&rows);
                if flow != Flow::More || self.full {
                    break 'scan;
                }
            }
            let passed = self.pipeline.progress().skipped - self.before.progress.skipped;
            let hits = self.rows.len() + passed as usize;
            if way == Way::InOrder && scan.items() > PATIENCE && hits < scan.items() / HIT_RATE {
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
        }
        let continuation = self.last.filter(|_| self.full).map(|last| {
            let given = self.before.progress.given + self.rows.len() as u64;
            let progress = Progress { skipped: self.pipeline.progress().skipped, given };
            Token { progress, last: Some(last) }.text(self.fingerprint)
        });
        Ok(Some(Page { rows: self.rows, continuation }))
    }

    /// Takes rows until the page is full.
    fn take(&mut self, rows: &Rows) {
        for (row, position) in rows.iter().zip(rows.positions()) {
            let given = |last: &Position| position <= last && !self.compiled.resumes_by_count();
            if self.before.last.as_ref().is_some_and(given) {
                continue;
            }
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

/// Finds the best way to the items, and sets the scan on it.
async fn choose(
    scan: &mut ItemScan,
    (compiled, plan): (&Arc<Compiled>, &Plan),
    (last, after): (Option<&Position>, Option<scan::Position>),
    may_order: bool,
) -> Result<Way> {
    let Some((settings, partition)) = scan.index() else { return Ok(Way::ByAge) };
    let (settings, condition) = (&*settings, &plan.condition);
    if plan.counts_only && plan.exact {
        let ranges = Access::exact(partition, settings, condition);
        if (ranges.is_some() || *condition == Condition::All)
            && let Some(count) = scan.count(ranges).await?
        {
            return Ok(Way::Counted(count));
        }
    }
    let mut order = None;
    if may_order && !plan.order.is_empty() && !scan.is_small().await? {
        order = Order::choose(partition, settings, &plan.order, condition);
    }
    let access = Access::choose(partition, settings, condition);
    // A few items are quickly sorted.
    let selective = order.as_ref().is_none_or(|order| !order.restricted)
        || access.as_ref().is_some_and(|access| access.points);
    if let Some(access) = access.filter(|_| selective)
        && scan.go_by(&access, after, order.is_some()).await?
    {
        return Ok(Way::ByAge);
    }
    if let Some(order) = order
        && scan.go_in_order(order, compiled, last).await?
    {
        return Ok(Way::InOrder);
    }
    Ok(Way::ByAge)
}

/// What a continuation token holds: the last row given, and how many.
#[derive(Clone, Debug, Default)]
struct Token {
    progress: Progress,
    last: Option<Position>,
}

impl Token {
    fn text(&self, fingerprint: u32) -> String {
        let last = self.last.clone().unwrap_or_default();
        let mut bytes = Vec::with_capacity(36 + last.key.len());
        bytes.extend_from_slice(&self.progress.skipped.to_le_bytes());
        bytes.extend_from_slice(&self.progress.given.to_le_bytes());
        bytes.extend_from_slice(&last.ordinal.to_le_bytes());
        bytes.extend_from_slice(&last.row.to_le_bytes());
        bytes.extend_from_slice(&last.key);
        let crc = crc32c::crc32c_append(fingerprint, &bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        text_of(&bytes)
    }

    fn parse(text: &str, fingerprint: u32) -> Result<Self> {
        Self::read(text, fingerprint).ok_or_else(scan::Position::invalid)
    }

    fn read(text: &str, fingerprint: u32) -> Option<Self> {
        let bytes = bytes_of(text)?;
        let (bytes, crc) = bytes.split_last_chunk::<4>()?;
        if u32::from_le_bytes(*crc) != crc32c::crc32c_append(fingerprint, bytes) {
            return None;
        }
        let (skipped, bytes) = bytes.split_first_chunk::<8>()?;
        let (given, bytes) = bytes.split_first_chunk::<8>()?;
        let (ordinal, bytes) = bytes.split_first_chunk::<8>()?;
        let (row, key) = bytes.split_first_chunk::<4>()?;
        Some(Self {
            progress: Progress {
                skipped: u64::from_le_bytes(*skipped),
                given: u64::from_le_bytes(*given),
            },
            last: Some(Position {
                key: key.to_vec(),
                ordinal: u64::from_le_bytes(*ordinal),
                row: u32::from_le_bytes(*row),
            }),
        })
    }
}

/// Refuses a query that would look at more than one partition key without having been allowed to.
fn check_pinned(container: &Container, plan: &Plan) -> Result<()> {
    let paths = container.settings.partition_key.paths.iter();
    let paths: Vec<String> = paths.map(|path| scalar_path(path.segments())).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    match plan.pinned(&paths).is_some_and(|keys| keys.len() <= 1) {
        true => Ok(()),
        false => Err(Error::Invalid(
            "Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition to \
             true, specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception."
                .into(),
        )),
    }
}

fn copies(rows: &Rows) -> Vec<Bytes> {
    rows.iter().map(Bytes::copy_from_slice).collect()
}

/// The computed properties of a container: name and query text.
fn computed_properties(container: &Container) -> Vec<(String, String)> {
    let list = container.settings.json.get("computedProperties").and_then(Value::as_array);
    let property = |value: &Value| {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        Some((text("name")?, text("query")?))
    };
    list.into_iter().flatten().filter_map(property).collect()
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
