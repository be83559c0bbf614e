//! aggregate: feeds stages with documents, and writes where `$out` and `$merge` say.

use std::collections::VecDeque;
use std::pin::Pin;

use bson::{Document, RawBsonRef, RawDocument, RawDocumentBuf};
use bytes::Bytes;
use db::Db;

use super::Call;
use super::reading::{self, Bill, Matches, Order};
use crate::cursors::{self, BATCH_BYTES_MAX, Batch, Cursor, FIRST_BATCH, Owner, Source};
use crate::error::{Refusal, Result};
use crate::language::aggregate::{Foreign, Output, Pipeline, Step};
use crate::language::expression::Expression;
use crate::language::filter::Filter;
use crate::language::vars::Vars;
use crate::options::{Fields, missing};

/// Stages at work.
pub(crate) struct Running {
    database: String,
    pipeline: Pipeline,
    matches: Option<Matches>,
    /// What the plan says about the order that the pipeline begins with, until it is looked at.
    order: Option<Order>,
    /// A result that did not fit into the last batch.
    held: VecDeque<Bytes>,
    done: bool,
    /// For what it has read of other collections.
    bills: Vec<Bill>,
}

impl Running {
    fn open(
        db: &Db,
        database: &str,
        collection: Option<&str>,
        mut pipeline: Pipeline,
        (hint, collated): (Option<&str>, bool),
    ) -> Result<Self> {
        let container = match collection.filter(|_| pipeline.takes_input()) {
            Some(collection) => super::container(db, database, collection)?,
            None => None,
        };
        let empty = RawDocumentBuf::new();
        let (mut matches, mut order) = (None, None);
        if let Some(container) = container {
            let everything = Filter::parse(&empty, &Vars::new(bson::DateTime::from_millis(0)))?;
            let filter = match pipeline.take_filter() {
                Some(filter) => filter,
                None => pipeline.condition().cloned().unwrap_or(everything),
            };
            let plan = reading::plan(&container, &filter, pipeline.sort(), (hint, collated))?;
            order = pipeline.sort().map(|_| Order::of(&plan));
            matches = Some(Matches::open(db, container, filter, plan.route));
        }
        let database = database.to_owned();
        Ok(Self {
            database,
            pipeline,
            matches,
            order,
            held: VecDeque::new(),
            done: false,
            bills: Vec::new(),
        })
    }

    /// The next result.
    async fn one(&mut self, db: &Db) -> Result<Option<Bytes>> {
        if let Some(held) = self.held.pop_front() {
            return Ok(Some(held));
        }
        if let (Some(order), Some(matches)) = (self.order.take(), &mut self.matches)
            && matches.is_in_order(&order).await?
        {
            self.pipeline.take_sort();
        }
        loop {
            match self.pipeline.step()? {
                Step::Document(document) => return Ok(Some(document.into_bytes().into())),
                Step::Done => {
                    self.done = true;
                    return Ok(None);
                }
                Step::Input => {
                    let next = match &mut self.matches {
                        Some(matches) => matches.next(db).await?,
                        None => None,
                    };
                    match next {
                        Some(found) => {
                            self.pipeline.feed(RawDocument::from_bytes(&found.body)?.to_owned())
                        }
                        None => self.pipeline.end(),
                    }
                }
                Step::Foreign(foreign) => {
                    let (documents, bills) = other(db, &self.database, foreign).await?;
                    self.bills.extend(bills);
                    self.pipeline.supply(documents);
                }
            }
        }
    }

    /// The next results.
    pub async fn next(&mut self, db: &Db, rows_max: usize) -> Result<Batch> {
        if let Some(matches) = &mut self.matches {
            matches.refresh(db);
        }
        let (mut batch, mut bytes) = (Batch::default(), 0);
        while batch.rows.len() < rows_max {
            let Some(row) = self.one(db).await? else {
                batch.done = true;
                return Ok(batch);
            };
            if bytes + row.len() > BATCH_BYTES_MAX && !batch.rows.is_empty() {
                self.held.push_front(row);
                return Ok(batch);
            }
            bytes += row.len();
            batch.rows.push(row);
        }
        batch.done = self.done;
        Ok(batch)
    }

    /// What it has cost since it was last asked.
    pub fn bills(&mut self) -> Vec<Bill> {
        let mut bills = std::mem::take(&mut self.bills);
        bills.extend(self.matches.as_mut().map(Matches::bill));
        bills
    }

    /// The collection that it reads.
    pub fn container(&self) -> Option<&Owner> {
        self.matches.as_ref().map(|matches| &matches.container)
    }
}

/// What another pipeline gives, and what it has cost.
type Joined = (Vec<RawDocumentBuf>, Vec<Bill>);

/// The results of another pipeline.
fn other<'a>(
    db: &'a Db,
    database: &'a str,
    foreign: Foreign,
) -> Pin<Box<dyn Future<Output = Result<Joined>> + Send + 'a>> {
    Box::pin(async move {
        let stages: Vec<RawBsonRef<'_>> =
            foreign.stages.iter().map(|stage| RawBsonRef::Document(stage)).collect();
        let pipeline = Pipeline::parse(&stages, &foreign.vars)?;
        let database = foreign.database.as_deref().unwrap_or(database);
        let collated = foreign.vars.collation.is_some();
        let mut running =
            Running::open(db, database, foreign.collection.as_deref(), pipeline, (None, collated))?;
        let mut documents = Vec::new();
        let mut bytes = 0;
        while let Some(row) = running.one(db).await? {
            bytes += row.len();
            if bytes > foreign.vars.memory_bytes_max {
                return Err(Refusal::new(
                    4568,
                    format!(
                        "Total size of documents in a joined pipeline exceeds {} bytes",
                        foreign.vars.memory_bytes_max
                    ),
                ));
            }
            documents.push(RawDocument::from_bytes(&row)?.to_owned());
        }
        Ok((documents, running.bills()))
    })
}

pub async fn aggregate(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let fields = call.fields();
    let collection = match call.target {
        RawBsonRef::String(_) => Some(call.collection_name()?),
        _ => None,
    };
    let array = fields.array("pipeline")?.ok_or_else(|| missing("pipeline"))?;
    let mut stages = Vec::new();
    for stage in array {
        stages.push(stage?);
    }
    if fields.flag("explain")? {
        return super::explain::aggregate(call, collection, &stages).await;
    }
    let cursor = fields.document("cursor")?.ok_or_else(|| {
        Refusal::parse(
            "The 'cursor' option is required, except for aggregate with the explain argument",
        )
    })?;
    let size = Fields(cursor).count("batchSize")?;
    if let Some(RawBsonRef::Document(first)) = stages.first()
        && let Some(options) = Fields(first).document("$changeStream")?
    {
        let size = size.unwrap_or(FIRST_BATCH);
        return super::changes::open(call, collection, options, &stages[1..], size).await;
    }
    let told = match stages.first() {
        Some(first) => super::sources::replaced(call, collection, *first).await?,
        None => None,
    };
    if let Some(told) = &told {
        stages[0] = RawBsonRef::Document(told);
    }
    let container = match collection {
        Some(collection) => call.find_container(collection)?,
        None => None,
    };
    let mut vars = call.vars()?;
    call.with_default_collation(container.as_deref(), &mut vars)?;
    let pipeline = Pipeline::parse(&stages, &vars)?;
    let output = pipeline.output().cloned();
    let collated = vars.collation.is_some();
    let hint = match &container {
        Some(container) => reading::hint(fields, container)?,
        None => None,
    };
    let how = (hint.as_deref(), collated);
    let mut running = Running::open(call.db(), call.database, collection, pipeline, how)?;
    if let Some(container) = running.container() {
        call.db().admit_scan(container)?;
    }
    if let Some(open) = &call.transaction
        && let Some(matches) = running.matches.take()
    {
        running.matches = Some(matches.within(open.changes.clone()));
    }
    if let Some(output) = output {
        let concern = fields.document("readConcern")?;
        if concern.is_some_and(|concern| {
            concern.get_str("level").is_ok_and(|level| level == "linearizable")
        }) {
            return Err(Refusal::new(
                72,
                "$out and $merge cannot be used with a 'linearizable' read concern level",
            ));
        }
        return write_output(call, collection, running, output).await;
    }
    let namespace = call.namespace(collection.unwrap_or("$cmd.aggregate"));
    let batch = running.next(call.db(), size.unwrap_or(FIRST_BATCH)).await?;
    call.bills.extend(running.bills());
    if batch.done {
        return Ok(cursors::reply(0, &namespace, true, &batch.rows));
    }
    let session = fields.document("lsid")?.map(|session| session.as_bytes().to_vec());
    let source = Source::Pipeline(Box::new(running));
    let cursor = Cursor { namespace: namespace.clone(), source, session, patient: false };
    let number = call.front_end.cursors.open_new(cursor, call.db().clock().elapsed())?;
    Ok(cursors::reply(number, &namespace, true, &batch.rows))
}

async fn write_output(
    call: &mut Call<'_>,
    collection: Option<&str>,
    mut running: Running,
    output: Output,
) -> Result<RawDocumentBuf> {
    if call.state.access != Some(crate::auth::Access::Full) {
        return Err(Refusal::new(13, "not authorized to write: the key is read-only"));
    }
    let mut rows = Vec::new();
    while let Some(row) = running.one(call.db()).await? {
        rows.push(row);
    }
    call.bills.extend(running.bills());
    super::write::output(call, rows, output).await?;
    let namespace = call.namespace(collection.unwrap_or("$cmd.aggregate"));
    Ok(cursors::reply(0, &namespace, true, &[]))
}

/// The values of a command's `let`.
pub(super) fn evaluate_let(variables: &RawDocument, vars: &Vars) -> Result<Document> {
    evaluate_let_on(variables, &RawDocumentBuf::new(), vars)
}

/// The same where expressions look at a document.
pub(super) fn evaluate_let_on(
    variables: &RawDocument,
    row: &RawDocument,
    vars: &Vars,
) -> Result<Document> {
    let mut values = Document::new();
    for element in variables.iter() {
        let (name, expression) = element?;
        let value = Expression::parse_raw(expression, vars)?.value(row)?;
        values.insert(name.as_str(), value);
    }
    Ok(values)
}
