//! Reading: the documents that match a filter, one after the other, and searches that sort, skip and project them.

use std::collections::VecDeque;
use std::sync::Arc;

use bson::RawDocumentBuf;
use bytes::Bytes;
use db::documents::{Document, DocumentScan, Route};
use db::{Db, RequestCharge};

use super::Call;
use crate::cursors::{BATCH_BYTES_MAX, Batch, Owner};
use crate::error::{Refusal, Result};
use crate::language::filter::Filter;
use crate::language::projection::Projection;
use crate::language::sort::Sort;
use crate::layout;
use crate::options::{Fields, document};
use crate::plan::{Plan, Question};
use crate::sessions::Changes;

/// The most bytes that a sort may hold.
const SORT_BYTES_MAX: usize = 100 << 20;

/// Matching documents, as they are found.
pub(crate) struct Matches {
    pub container: Owner,
    scan: DocumentScan,
    filter: Filter,
    /// Whether nothing is asked of them.
    all: bool,
    found: VecDeque<Document>,
    /// What the transaction has changed: it hides what is stored, and comes after it.
    changed: Option<Arc<Changes>>,
    changed_given: bool,
    /// What of its cost has been put on a bill.
    billed: RequestCharge,
}

/// What a scan of a container has cost.
pub(crate) struct Bill {
    pub container: Owner,
    pub charge: RequestCharge,
}

impl Matches {
    pub fn open(db: &Db, container: Owner, filter: Filter, route: Route) -> Self {
        let all = filter.is_empty() && matches!(route, Route::All);
        let scan = db.scan_documents(&container, route);
        Self {
            container,
            scan,
            filter,
            all,
            found: VecDeque::new(),
            changed: None,
            changed_given: true,
            billed: RequestCharge::default(),
        }
    }

    /// The same, as a transaction sees it.
    pub fn within(mut self, changed: Arc<Changes>) -> Self {
        self.changed_given = changed.is_empty();
        self.changed = Some(changed);
        self
    }

    /// Whether these are all documents, and no transaction has changed any.
    pub fn are_all(&self) -> bool {
        self.all && self.changed.as_ref().is_none_or(|changed| changed.is_empty())
    }

    /// The next one that is alive and matches.
    pub async fn next(&mut self, db: &Db) -> Result<Option<Document>> {
        loop {
            if let Some(found) = self.found.pop_front() {
                return Ok(Some(found));
            }
            let read = self.scan.next(db.now()).await?;
            if read.is_empty() {
                if self.changed_given {
                    return Ok(None);
                }
                self.give_changed()?;
                continue;
            }
            if let Some(changed) = &self.changed {
                let stays = |found: &Document| !changed.contains_key(&found.name);
                let read: Vec<Document> = read.into_iter().filter(stays).collect();
                self.keep_matching(read)?;
                continue;
            }
            if self.filter.is_empty() {
                self.found = read.into();
                continue;
            }
            self.keep_matching(read)?;
        }
    }

    fn keep_matching(&mut self, read: Vec<Document>) -> Result<()> {
        for found in read {
            if self.filter.matches(document(&found.body)?)? {
                self.found.push_back(found);
            }
        }
        Ok(())
    }

    fn give_changed(&mut self) -> Result<()> {
        self.changed_given = true;
        let changed = self.changed.clone().unwrap_or_default();
        let there = changed.iter().filter_map(|(name, change)| {
            change.now.as_ref().map(|body| Document::new(name.clone(), body.clone()))
        });
        self.keep_matching(there.collect())
    }

    /// Leaves out what has expired while it was waiting for the next batch to be asked for (R08).
    pub fn refresh(&mut self, db: &Db) {
        let container = &self.container;
        self.found.retain(|found| db.is_alive(container, found));
    }

    /// Puts one back, to be found again.
    pub fn put_back(&mut self, document: Document) {
        self.found.push_front(document);
    }

    /// What it has cost since the last bill.
    pub fn bill(&mut self) -> Bill {
        let whole = self.scan.charge();
        let charge = RequestCharge(whole.0 - self.billed.0);
        self.billed = whole;
        Bill { container: self.container.clone(), charge }
    }

    /// Whether what comes is in the order that was asked of the plan.
    pub async fn is_in_order(&mut self, order: &Order) -> Result<bool> {
        // What a transaction has changed comes last, whatever the order of the rest.
        if !order.sorted || !self.changed_given {
            return Ok(false);
        }
        Ok(order.unless == 0 || self.scan.skip_empty(order.unless).await?)
    }

    pub fn looked_at(&self) -> (usize, usize) {
        self.scan.looked_at()
    }
}

/// A search in the making: what `find` asks for.
pub(crate) struct Search {
    matches: Matches,
    sort: Option<Sort>,
    projection: Option<(Projection, Option<Filter>)>,
    skip: usize,
    /// What is left of the limit.
    left: usize,
    sorted: Option<VecDeque<Document>>,
    /// What the plan says about the order of what is found, until it is looked at.
    order: Order,
    returned: Returned,
}

/// What decides how a search is made.
#[derive(Default)]
pub(crate) struct SearchOptions {
    pub sort: Option<Sort>,
    pub projection: Option<Projection>,
    pub skip: usize,
    pub limit: Option<usize>,
    pub returned: Returned,
}

/// What a plan says about the order of what it finds.
#[derive(Clone, Copy)]
pub(crate) struct Order {
    /// Whether it is the one that was asked for.
    sorted: bool,
    /// But only if the first so many ranges of the route hold nothing.
    unless: usize,
}

impl Order {
    pub fn of(plan: &Plan) -> Self {
        Self { sorted: plan.sorted, unless: plan.unless }
    }
}

/// What `returnKey` and `showRecordId` ask for.
#[derive(Default)]
pub(crate) struct Returned {
    /// Only these fields: those of the index that was used.
    key: Option<Vec<String>>,
    /// Where it is stored, too.
    place: bool,
}

impl Returned {
    pub fn of(fields: Fields<'_>, container: &db::Container, plan: &Plan) -> Result<Self> {
        let index = |name: &str| match layout::of(container)?.index(name) {
            Some(index) => {
                Some(index.fields.iter().map(|(path, _)| path.as_str().to_owned()).collect())
            }
            None => Some(vec!["_id".to_owned()]),
        };
        let key = match fields.flag("returnKey")? {
            true => Some(plan.index.as_deref().and_then(index).unwrap_or_default()),
            false => None,
        };
        Ok(Self { key, place: fields.flag("showRecordId")? })
    }

    pub fn is_plain(&self) -> bool {
        self.key.is_none() && !self.place
    }

    fn apply(&self, found: &Document, row: Bytes) -> Result<Bytes> {
        if let Some(key) = &self.key {
            let body = document(&found.body)?;
            let mut row = RawDocumentBuf::new();
            for path in key {
                let value = crate::language::path::Path::new(path).plain(body);
                let name = bson::raw::CString::try_from(path.clone())?;
                row.append(name, value.map_or(bson::RawBson::Null, bson::RawBson::from));
            }
            return Ok(row.into_bytes().into());
        }
        if !self.place {
            return Ok(row);
        }
        let mut row = document(&row)?.to_owned();
        row.append(bson::cstr!("$recordId"), found.lsn.cast_signed());
        Ok(row.into_bytes().into())
    }
}

impl Search {
    pub fn new(matches: Matches, order: Order, options: SearchOptions) -> Self {
        let SearchOptions { sort, projection, skip, limit, returned } = options;
        let positional = projection.map(|projection| {
            let filter = (!matches.filter.is_empty()).then(|| matches.filter.clone());
            (projection, filter)
        });
        Self {
            sort: sort.filter(|sort| !sort.is_empty()),
            order,
            matches,
            projection: positional,
            skip,
            left: limit.unwrap_or(usize::MAX),
            sorted: None,
            returned,
        }
    }

    /// The next rows.
    pub async fn next(&mut self, db: &Db, rows_max: usize) -> Result<Batch> {
        self.matches.refresh(db);
        if let Some(sort) = self.sort.take()
            && !self.matches.is_in_order(&self.order).await?
        {
            self.sorted = Some(self.sort_all(db, &sort).await?);
        }
        let (mut batch, mut bytes) = (Batch::default(), 0);
        while batch.rows.len() < rows_max && self.left > 0 {
            let Some(found) = self.next_document(db).await? else {
                batch.done = true;
                return Ok(batch);
            };
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            let size = found.body.len();
            if bytes + size > BATCH_BYTES_MAX && !batch.rows.is_empty() {
                match &mut self.sorted {
                    Some(sorted) => sorted.push_front(found),
                    None => self.matches.put_back(found),
                }
                return Ok(batch);
            }
            bytes += size;
            self.left -= 1;
            let row = self.project(&found.body)?;
            batch.rows.push(self.returned.apply(&found, row)?);
        }
        batch.done = self.left == 0;
        Ok(batch)
    }

    pub fn bill(&mut self) -> Bill {
        self.matches.bill()
    }

    pub fn container(&self) -> &Owner {
        &self.matches.container
    }

    async fn next_document(&mut self, db: &Db) -> Result<Option<Document>> {
        let Some(sorted) = &mut self.sorted else { return self.matches.next(db).await };
        while let Some(found) = sorted.pop_front() {
            // It may have been waiting for long.
            if db.is_alive(&self.matches.container, &found) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn project(&self, body: &Bytes) -> Result<Bytes> {
        let Some((projection, filter)) = &self.projection else { return Ok(body.clone()) };
        let document = document(body)?;
        let position = match filter {
            Some(filter) => filter.matches_at(document)?.1,
            None => None,
        };
        Ok(projection.apply(document, position)?.into_bytes().into())
    }

    /// All matches in order, or as many of the first as are wanted.
    async fn sort_all(&mut self, db: &Db, sort: &Sort) -> Result<VecDeque<Document>> {
        let wanted = self.left.saturating_add(self.skip);
        let mut rows: Vec<(Vec<u8>, usize, Document)> = Vec::new();
        let (mut bytes, mut count) = (0, 0);
        while let Some(found) = self.matches.next(db).await? {
            let key = sort.key(document(&found.body)?);
            bytes += key.len() + found.body.len();
            rows.push((key, count, found));
            count += 1;
            if rows.len() / 2 > wanted.max(100) {
                rows.select_nth_unstable_by(wanted, |a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
                rows.truncate(wanted);
                bytes = rows.iter().map(|(key, _, found)| key.len() + found.body.len()).sum();
            }
            if bytes > SORT_BYTES_MAX {
                return Err(Refusal::new(
                    292,
                    format!(
                        "Sort exceeded memory limit of {SORT_BYTES_MAX} bytes: give a limit, a narrower filter, or sort by _id."
                    ),
                ));
            }
        }
        rows.sort_unstable_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        rows.truncate(wanted);
        Ok(rows.into_iter().map(|(_, _, found)| found).collect())
    }
}

/// The name of the index that `hint` means; an error if there is none.
pub(crate) fn hint(fields: Fields<'_>, container: &db::Container) -> Result<Option<String>> {
    let Some(hint) = fields.get("hint") else { return Ok(None) };
    let unknown = || {
        Refusal::bad_value(
            "error processing query: planner returned error :: caused by :: hint provided does not correspond to an existing index",
        )
    };
    let collection = layout::of(container).ok_or_else(unknown)?;
    let known = |name: &str| {
        let clustered = collection.options.get_document("clusteredIndex");
        if name == "_id_"
            || clustered.is_ok_and(|index| index.get_str("name").is_ok_and(|found| found == name))
        {
            return Some(Some("_id_".to_owned()));
        }
        collection.index(name).map(|index| Some(index.name.clone()))
    };
    match hint {
        bson::RawBsonRef::String(name) => known(name).ok_or_else(unknown),
        bson::RawBsonRef::Document(key) => {
            let key: bson::Document = key.try_into()?;
            if key.contains_key("$natural") {
                return Ok(Some("$natural".into()));
            }
            if key.keys().eq(["_id"]) {
                return Ok(Some("_id_".into()));
            }
            let found = collection.indexes.iter().find(|index| {
                let fields = index.spec.get_document("key").ok();
                fields.is_some_and(|fields| same_key(fields, &key))
            });
            found.map(|index| Some(index.name.clone())).ok_or_else(unknown)
        }
        _ => Err(Refusal::parse("Hint must be a string or an object")),
    }
}

/// Whether two key patterns are the same, whatever the types of their numbers.
pub(crate) fn same_key(a: &bson::Document, b: &bson::Document) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|((name, one), (other, two))| {
            name == other
                && (one == two
                    || layout::number_of(one).is_some()
                        && layout::number_of(one) == layout::number_of(two))
        })
}

/// The way to a filter's documents.
pub(crate) fn plan(
    container: &db::Container,
    filter: &Filter,
    sort: Option<&Sort>,
    (hint, collated): (Option<&str>, bool),
) -> Result<Plan> {
    let collection = layout::of(container).ok_or_else(|| Refusal::new(26, "ns not found"))?;
    Ok(Plan::choose(&Question { collection, filter, sort, hint, collated }))
}

impl Call<'_> {
    /// The default collation of a collection counts where the command has none.
    pub fn with_default_collation(
        &self,
        container: Option<&db::Container>,
        vars: &mut crate::language::vars::Vars,
    ) -> Result<()> {
        if self.fields().get("collation").is_none()
            && let Some(collection) = container.and_then(layout::of)
            && let Ok(collation) = collection.options.get_document("collation")
        {
            let raw = RawDocumentBuf::try_from(collation)?;
            vars.collation = crate::language::collation::Collation::parse(&raw)?;
        }
        Ok(())
    }
}
