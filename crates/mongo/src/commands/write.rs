//! insert, update, delete, findAndModify.
//!
//! A statement that names its document by `_id` goes straight to the partition's writer, which asks the filter there; so do many of them at a
//! time. All others first read which documents match, and the writer asks again: what has changed meanwhile is found anew.

mod edits;

use std::sync::Arc;

use bson::oid::ObjectId;
use bson::{Bson, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use bytes::Bytes;
use db::documents::{Action, DocumentWrite, Together};
use db::{Container, Outcome};

use self::edits::{Change, Done, Statement, StatementEdit};
use super::reading::{self, Matches, Order};
use super::server::BATCH_MAX;
use super::{Call, collections};
use crate::error::{Refusal, Result};
use crate::language::aggregate::{Matched, Output, Unmatched};
use crate::language::filter::Filter;
use crate::language::path::field;
use crate::language::projection::Projection;
use crate::language::sort::Sort;
use crate::language::update::Update;
use crate::language::vars::Vars;
use crate::layout;
use crate::options::{Fields, document, missing};
use crate::wire::DOCUMENT_BYTES_MAX;

/// Documents that go to the writer at a time, and their bytes.
const ROUND_ITEMS: usize = 2_000;
const ROUND_BYTES: usize = 8 << 20;

/// The refusal of an option that there is not.
const UNKNOWN_FIELD: i32 = 40415;

/// How often a statement looks again when its document changes under it.
const TRIES: usize = 100;

/// What a command's statements came to.
#[derive(Clone, Default)]
pub(crate) struct Tally {
    matched: i64,
    modified: i64,
    upserted: RawArrayBuf,
    upserts: usize,
    errors: Vec<(usize, Refusal)>,
}

impl Tally {
    /// The answer. Where nothing was done because of the store, that is the command's failure, not a document's: drivers look there for whether to
    /// repeat it. One that `may_repeat` it does so even if a part was done: the rest is made then.
    fn reply(mut self, with_modified: bool, may_repeat: bool) -> Result<RawDocumentBuf> {
        if (may_repeat || self.matched == 0 && self.upserts == 0)
            && let Some(at) = self.errors.iter().position(|(_, why)| why.is_of_the_store())
        {
            return Err(self.errors.swap_remove(at).1);
        }
        let mut reply = rawdoc! {"n": self.matched as i32};
        if with_modified {
            reply.append(bson::cstr!("nModified"), self.modified as i32);
        }
        if self.upserts > 0 {
            reply.append(bson::cstr!("upserted"), self.upserted);
        }
        if !self.errors.is_empty() {
            let mut list = RawArrayBuf::new();
            for (index, refusal) in &self.errors {
                list.push(refusal.to_write_error(*index));
            }
            reply.append(bson::cstr!("writeErrors"), list);
        }
        reply.append(bson::cstr!("ok"), 1.0);
        Ok(reply)
    }

    /// What a driver that sends the command again is told by.
    fn remember(&self) -> Vec<u8> {
        let mut errors = RawArrayBuf::new();
        self.errors.iter().for_each(|(index, why)| errors.push(why.to_write_error(*index)));
        let (matched, modified, upserted) = (self.matched, self.modified, self.upserted.clone());
        rawdoc! {"matched": matched, "modified": modified, "upserted": upserted, "errors": errors}
            .into_bytes()
    }

    /// The same again.
    pub(crate) fn recall(told: &RawDocument) -> Result<Self> {
        let upserted = told.get_array("upserted")?;
        let mut errors = Vec::new();
        for error in told.get_array("errors")? {
            let error = error?.as_document().ok_or_else(|| missing("errors"))?;
            let mut why = Refusal::new(error.get_i32("code")?, error.get_str("errmsg")?);
            let mut details = RawDocumentBuf::new();
            for field in error.iter_elements() {
                let field = field?;
                if !["index", "code", "errmsg"].contains(&field.key().as_str()) {
                    details.append(field.key(), bson::RawBson::from(field.value()?));
                }
            }
            why.details = Some(details).filter(|details| !details.is_empty());
            errors.push((error.get_i32("index")? as usize, why));
        }
        Ok(Self {
            matched: told.get_i64("matched")?,
            modified: told.get_i64("modified")?,
            upserts: upserted.into_iter().count(),
            upserted: upserted.to_owned(),
            errors,
        })
    }

    /// Whether no statement comes after these.
    fn ends(&self, ordered: bool) -> bool {
        ordered && !self.errors.is_empty()
    }

    fn upserted(&mut self, index: usize, id: Bson) -> Result<()> {
        self.upserts += 1;
        self.upserted.push(rawdoc! {"index": index as i32, "_id": bson::RawBson::try_from(id)?});
        Ok(())
    }
}

pub async fn insert(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let collection = call.collection_name()?;
    let documents = call.documents("documents")?;
    check_count(documents.len())?;
    let ordered = call.fields().flag_or("ordered", true)?;
    let container = collections::ensure(call, collection).await?;
    let checked = !call.fields().flag("bypassDocumentValidation")?;
    let together = if ordered { Together::Ordered } else { Together::Unordered };
    let (first, mut tally) = call.made.take().unwrap_or_default();
    let mut round: Vec<(usize, DocumentWrite)> = Vec::new();
    let mut bytes = 0;
    let mut documents = documents.into_iter().enumerate().skip(first).peekable();
    while !tally.ends(ordered)
        && let Some((index, body)) = documents.next()
    {
        bytes += body.len();
        match prepare_insert(&container, body, checked) {
            Ok(write) => round.push((index, write)),
            Err(refusal) => {
                // What comes before it is made first.
                if ordered {
                    insert_round(
                        call,
                        &container,
                        std::mem::take(&mut round),
                        (together, index),
                        &mut tally,
                    )
                    .await?;
                }
                tally.errors.push((index, refusal));
            }
        }
        let full = round.len() >= ROUND_ITEMS || bytes >= ROUND_BYTES || documents.peek().is_none();
        if full && (!ordered || tally.errors.is_empty()) {
            let how = (together, index + 1);
            insert_round(call, &container, std::mem::take(&mut round), how, &mut tally).await?;
            bytes = 0;
        }
    }
    tally.errors.sort_by_key(|(index, _)| *index);
    if ordered {
        tally.errors.truncate(1);
    }
    tally.reply(false, call.retry.is_some())
}

/// Inserts documents, with which all before `next` are done.
async fn insert_round(
    call: &mut Call<'_>,
    container: &Arc<Container>,
    round: Vec<(usize, DocumentWrite)>,
    (together, next): (Together, usize),
    tally: &mut Tally,
) -> Result<()> {
    if round.is_empty() {
        return Ok(());
    }
    let bodies: Arc<[(usize, Bytes)]> = round
        .iter()
        .map(|(index, write)| match &write.action {
            Action::Insert(body) => (*index, body.clone()),
            Action::Edit(_) => (*index, Bytes::new()),
        })
        .collect();
    let writes: Vec<_> = round.into_iter().map(|(_, write)| write).collect();
    let memo = call.memo((bodies[0].0, next), || {
        let (bodies, container) = (bodies.clone(), container.clone());
        remembered(tally, move |outcomes, tally| {
            count_inserts(&bodies, outcomes, &container, tally);
        })
    });
    let reply = call.write(container, writes, together, memo).await;
    call.charge += reply.charge;
    count_inserts(&bodies, &reply.result?, container, tally);
    Ok(())
}

/// Tells what is to be remembered of statements: what they come to, with those before them.
fn remembered<C>(before: &Tally, count: C) -> impl Fn(&[Outcome]) -> Vec<u8> + use<C>
where
    C: Fn(&[Outcome], &mut Tally),
{
    let before = before.clone();
    move |outcomes| {
        let mut tally = before.clone();
        count(outcomes, &mut tally);
        tally.remember()
    }
}

fn count_inserts(
    bodies: &[(usize, Bytes)],
    outcomes: &[Outcome],
    container: &Container,
    tally: &mut Tally,
) {
    for ((index, body), Outcome { result, .. }) in bodies.iter().zip(outcomes) {
        match result {
            Ok(_) => tally.matched += 1,
            Err(db::Error::FailedDependency) => {}
            Err(error) => tally.errors.push((*index, refusal_of(error.clone(), container, body))),
        }
    }
}

fn prepare_insert(container: &Container, body: Bytes, checked: bool) -> Result<DocumentWrite> {
    let body = with_id(body)?;
    let stored = document(&body)?;
    let name = check_document(container, stored, checked)?;
    Ok(DocumentWrite { name: name.into(), action: Action::Insert(body) })
}

/// The same document, `_id` first: there always is one.
fn with_id(body: Bytes) -> Result<Bytes> {
    let found = document(&body)?;
    let id = field(found, "_id");
    let first = found.iter().next().transpose()?.is_some_and(|(name, _)| name.as_str() == "_id");
    if first {
        return Ok(body);
    }
    let mut ordered = RawDocumentBuf::new();
    match id {
        Some(id) => ordered.append(bson::cstr!("_id"), bson::RawBson::from(id)),
        None => ordered.append(bson::cstr!("_id"), ObjectId::new()),
    }
    for element in found.iter() {
        let (name, value) = element?;
        if name.as_str() != "_id" {
            ordered.append(name, value);
        }
    }
    Ok(ordered.into_bytes().into())
}

/// Refuses what cannot be stored; gives the document's name.
fn check_document(container: &Container, body: &RawDocument, checked: bool) -> Result<Vec<u8>> {
    let size = body.as_bytes().len();
    if size > DOCUMENT_BYTES_MAX {
        return Err(Refusal::new(
            10334,
            format!(
                "BSONObj size: {size} is invalid. Size must be between 0 and {DOCUMENT_BYTES_MAX}"
            ),
        ));
    }
    let id = field(body, "_id").ok_or_else(|| missing("_id"))?;
    let kind = match id {
        RawBsonRef::Array(_) => Some("array"),
        RawBsonRef::RegularExpression(_) => Some("regex"),
        RawBsonRef::Undefined => Some("undefined"),
        _ => None,
    };
    if let Some(kind) = kind {
        return Err(Refusal::new(53, format!("The '_id' value cannot be of type {kind}")));
    }
    if let RawBsonRef::Document(inner) = id
        && let Some(name) =
            inner.iter().flatten().map(|(name, _)| name.as_str()).find(|name| name.starts_with('$'))
    {
        return Err(Refusal::new(
            52,
            format!(
                "_id fields may not contain '$'-prefixed fields: {name} is not valid for storage."
            ),
        ));
    }
    if field(body, "_ts").is_some() {
        // R26
        return Err(Refusal::bad_value(
            "The field '_ts' is reserved: it is the time of the last write, which the server keeps.",
        ));
    }
    if checked
        && let Some(collection) = layout::of(container)
        && let Some(validator) = &collection.validator
        && !collection.options.get_str("validationAction").is_ok_and(|action| action == "warn")
        && !collection.options.get_str("validationLevel").is_ok_and(|level| level == "off")
        && !validator.matches(body)?
    {
        let mut refusal = Refusal::new(121, "Document failed validation");
        let failing = bson::RawBson::from(id);
        refusal.details = Some(rawdoc! {
            "errInfo": {"failingDocumentId": failing, "details": {"operatorName": "validator", "reason": "the validator does not match"}},
        });
        return Err(refusal);
    }
    let name = layout::name_of(id);
    match name.len() {
        0..=32_768 => Ok(name),
        length => Err(Refusal::new(
            17280,
            format!("The _id is too long: its key has {length} bytes, where 32768 are the most."),
        )),
    }
}

/// The refusal of a document whose keys in an index are another's.
fn duplicate(
    container: &Container,
    (index, pattern): (&str, bson::Document),
    found: Option<&RawDocument>,
) -> Refusal {
    let mut values = bson::Document::new();
    for (path, _) in &pattern {
        let value = found.and_then(|found| crate::language::path::Path::new(path).plain(found));
        let value = value.and_then(|value| Bson::try_from(value).ok()).unwrap_or(Bson::Null);
        values.insert(path.clone(), value);
    }
    let shown: Vec<String> = values
        .iter()
        .map(|(path, value)| format!("{path}: {}", crate::language::value::shown(value)))
        .collect();
    let mut refusal = Refusal::new(
        11000,
        format!(
            "E11000 duplicate key error collection: {}.{} index: {index} dup key: {{ {} }}",
            container.database_id,
            container.id(),
            shown.join(", ")
        ),
    );
    let raw = |document: &bson::Document| RawDocumentBuf::try_from(document).unwrap_or_default();
    refusal.details = Some(rawdoc! {"keyPattern": raw(&pattern), "keyValue": raw(&values)});
    refusal
}

/// The refusal of a write, with what the client needs to find the other document.
fn refusal_of(error: db::Error, container: &Container, body: &[u8]) -> Refusal {
    let duplicate = |name: &str, pattern: bson::Document| {
        duplicate(container, (name, pattern), document(body).ok())
    };
    match &error {
        db::Error::Exists => duplicate("_id_", bson::doc! {"_id": 1}),
        db::Error::UniqueKeyViolation { entry } => {
            let number = entry.first_chunk::<4>().map(|number| u32::from_be_bytes(*number));
            let collection = layout::of(container);
            let index = collection.and_then(|collection| {
                collection.indexes.iter().find(|index| Some(index.number) == number)
            });
            match index {
                Some(index) => duplicate(
                    &index.name,
                    index.spec.get_document("key").cloned().unwrap_or_default(),
                ),
                None => error.into(),
            }
        }
        db::Error::Invalid(text) if text.starts_with("cannot index parallel") => {
            Refusal::new(171, text.clone())
        }
        _ => error.into(),
    }
}

pub async fn update(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let collection = call.collection_name()?;
    let statements = call.documents("updates")?;
    check_count(statements.len())?;
    let fields = call.fields();
    let ordered = fields.flag_or("ordered", true)?;
    let checked = !fields.flag("bypassDocumentValidation")?;
    let mut container = call.find_container(collection)?;
    let wants_container = statements.iter().any(|statement| {
        document(statement).is_ok_and(|statement| Fields(statement).flag("upsert").unwrap_or(false))
    });
    if container.is_none() && wants_container {
        container = Some(collections::ensure(call, collection).await?);
    }
    let mut vars = call.vars()?;
    call.with_default_collation(container.as_deref(), &mut vars)?;
    let mut parsed = Vec::with_capacity(statements.len());
    for bytes in &statements {
        let statement = document(bytes)?;
        let read = parse_update(statement, container.as_deref(), &vars, checked);
        // Options and pipelines are read before anything is done: what cannot be read refuses the whole command.
        match read {
            Err(refusal)
                if refusal.code == UNKNOWN_FIELD
                    || Fields(statement).array("u").is_ok_and(|u| u.is_some()) =>
            {
                return Err(refusal);
            }
            read => parsed.push(read),
        }
    }
    run_statements(call, container, parsed, ordered)
        .await
        .and_then(|tally| tally.reply(true, call.retry.is_some()))
}

pub async fn delete(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let collection = call.collection_name()?;
    let statements = call.documents("deletes")?;
    check_count(statements.len())?;
    let ordered = call.fields().flag_or("ordered", true)?;
    let container = call.find_container(collection)?;
    let mut vars = call.vars()?;
    call.with_default_collation(container.as_deref(), &mut vars)?;
    let mut parsed = Vec::with_capacity(statements.len());
    for bytes in &statements {
        parsed.push(parse_delete(document(bytes)?, container.as_deref(), &vars));
    }
    run_statements(call, container, parsed, ordered)
        .await
        .and_then(|tally| tally.reply(false, call.retry.is_some()))
}

fn parse_update(
    statement: &RawDocument,
    container: Option<&Container>,
    vars: &Vars,
    checked: bool,
) -> Result<Statement> {
    let fields = Fields(statement);
    let vars = with_collation(vars, fields)?;
    let query = fields.document("q")?.ok_or_else(|| missing("updates.q"))?;
    let filter = Arc::new(Filter::parse(query, &vars)?);
    let update = fields.get("u").ok_or_else(|| missing("updates.u"))?;
    let mut array_filters = Vec::new();
    for filter in fields.array("arrayFilters")?.into_iter().flatten() {
        let filter = filter?.as_document();
        array_filters
            .push(filter.ok_or_else(|| Refusal::type_mismatch("arrayFilters must be documents"))?);
    }
    let mut vars = vars;
    if let Some(constants) = fields.document("c")? {
        vars.variables.extend(super::aggregate::evaluate_let(constants, &vars)?);
    }
    let update = Update::parse(update, &array_filters, &vars)?;
    let multi = fields.flag("multi")?;
    if multi && update.is_replacement() {
        return Err(Refusal::parse("multi update is not supported for replacement-style update"));
    }
    if fields.get("sort").is_some() {
        // Newer than the version that we say we are.
        return Err(Refusal::new(
            UNKNOWN_FIELD,
            "BSON field 'update.updates.sort' is an unknown field.",
        ));
    }
    let sort = None;
    Ok(Statement {
        filter,
        collated: vars.collation.is_some(),
        hint: container.map(|container| reading::hint(fields, container)).transpose()?.flatten(),
        sort,
        multi,
        change: Change::Update { update: Arc::new(update), upsert: fields.flag("upsert")? },
        checked,
    })
}

fn parse_delete(
    statement: &RawDocument,
    container: Option<&Container>,
    vars: &Vars,
) -> Result<Statement> {
    let fields = Fields(statement);
    let vars = with_collation(vars, fields)?;
    let query = fields.document("q")?.ok_or_else(|| missing("deletes.q"))?;
    let limit = fields.int("limit")?.ok_or_else(|| missing("deletes.limit"))?;
    if !matches!(limit, 0 | 1) {
        return Err(Refusal::parse(format!(
            "The limit field in delete objects must be 0 or 1. Got {limit}"
        )));
    }
    Ok(Statement {
        filter: Arc::new(Filter::parse(query, &vars)?),
        collated: vars.collation.is_some(),
        hint: container.map(|container| reading::hint(fields, container)).transpose()?.flatten(),
        sort: None,
        multi: limit == 0,
        change: Change::Remove,
        checked: false,
    })
}

fn with_collation(vars: &Vars, fields: Fields<'_>) -> Result<Vars> {
    let mut vars = vars.clone();
    if let Some(collation) = fields.document("collation")?.filter(|found| !found.is_empty()) {
        vars.collation = crate::language::collation::Collation::parse(collation)?;
    }
    Ok(vars)
}

/// Runs statements in their order; those that name their documents go to the writer together.
async fn run_statements(
    call: &mut Call<'_>,
    container: Option<Arc<Container>>,
    statements: Vec<Result<Statement>>,
    ordered: bool,
) -> Result<Tally> {
    let (first, mut tally) = call.made.take().unwrap_or_default();
    let Some(container) = container else {
        // Nothing is there: nothing matches. What cannot be read is still refused.
        for (index, statement) in statements.into_iter().enumerate() {
            if let Err(refusal) = statement {
                tally.errors.push((index, refusal));
                if ordered {
                    break;
                }
            }
        }
        return Ok(tally);
    };
    let mut statements = statements.into_iter().enumerate().skip(first).peekable();
    while !tally.ends(ordered)
        && let Some((index, statement)) = statements.next()
    {
        let statement = match statement {
            Ok(statement) => statement,
            Err(refusal) => {
                tally.errors.push((index, refusal));
                continue;
            }
        };
        if statement.point(&container).is_none() {
            match one_statement(call, &container, index, &statement, &mut tally).await {
                Ok(()) => {}
                Err(refusal) if refusal.is_repeated() => return Err(refusal),
                Err(refusal) => tally.errors.push((index, refusal)),
            }
        } else {
            let mut together = vec![(index, statement)];
            while together.len() < ROUND_ITEMS
                && let Some((_, Ok(next))) = statements.peek()
                && next.point(&container).is_some()
            {
                if let Some((index, Ok(next))) = statements.next() {
                    together.push((index, next));
                }
            }
            point_statements(call, &container, &together, ordered, &mut tally).await?;
        }
    }
    Ok(tally)
}

/// Statements that name their document.
async fn point_statements(
    call: &mut Call<'_>,
    container: &Arc<Container>,
    statements: &[(usize, Statement)],
    ordered: bool,
    tally: &mut Tally,
) -> Result<()> {
    let mut edits = Vec::with_capacity(statements.len());
    let mut writes = Vec::with_capacity(statements.len());
    for (index, statement) in statements {
        let name: Bytes = statement.point(container).unwrap_or_default().into();
        let edit = statement.edit(container, ObjectId::new());
        writes.push(DocumentWrite { name, action: Action::Edit(edit.clone()) });
        edits.push((*index, edit));
    }
    let edits: Arc<[_]> = edits.into();
    let memo = call.memo((edits[0].0, edits[edits.len() - 1].0 + 1), || {
        let (edits, container) = (edits.clone(), container.clone());
        remembered(tally, move |outcomes, tally| {
            count_edits(&edits, outcomes, &container, tally);
        })
    });
    let together = if ordered { Together::Ordered } else { Together::Unordered };
    let reply = call.write(container, writes, together, memo).await;
    call.charge += reply.charge;
    count_edits(&edits, &reply.result?, container, tally);
    Ok(())
}

fn count_edits(
    edits: &[(usize, Arc<StatementEdit>)],
    outcomes: &[Outcome],
    container: &Container,
    tally: &mut Tally,
) {
    for ((index, edit), outcome) in edits.iter().zip(outcomes) {
        let refused = match &outcome.result {
            Ok(_) => count(edit.done(), *index, tally).err(),
            Err(db::Error::FailedDependency) => None,
            Err(error) => Some(edit.refusal(error.clone(), container)),
        };
        tally.errors.extend(refused.map(|why| (*index, why)));
    }
}

fn count(done: Done, index: usize, tally: &mut Tally) -> Result<()> {
    tally.matched += i64::from(done.matched);
    tally.modified += i64::from(done.modified);
    if let Some(id) = done.upserted {
        tally.matched += 1;
        tally.upserted(index, id)?;
    }
    Ok(())
}

/// A statement that has to look for its documents.
async fn one_statement(
    call: &mut Call<'_>,
    container: &Arc<Container>,
    index: usize,
    statement: &Statement,
    tally: &mut Tally,
) -> Result<()> {
    if statement.multi {
        let mut found = false;
        let (mut matches, _) = open(call, container, statement)?;
        loop {
            let mut round = Vec::new();
            while round.len() < ROUND_ITEMS
                && let Some(next) = matches.next(call.db()).await?
            {
                round.push(next.name);
            }
            if round.is_empty() {
                break;
            }
            let edits: Vec<_> = round.iter().map(|_| statement.without_upsert(container)).collect();
            let writes = round
                .into_iter()
                .zip(&edits)
                .map(|(name, edit)| DocumentWrite { name, action: Action::Edit(edit.clone()) })
                .collect();
            let reply = call.write(container, writes, Together::Ordered, None).await;
            call.charge += reply.charge;
            for (edit, outcome) in edits.iter().zip(reply.result?) {
                match outcome.result {
                    Ok(_) => {
                        let done = edit.done();
                        found |= done.matched;
                        count(done, index, tally)?;
                    }
                    Err(error) => return Err(edit.refusal(error, container)),
                }
            }
        }
        call.bills.push(matches.bill());
        if found || !statement.upserts() {
            return Ok(());
        }
    }
    // Only for a command that may be sent again.
    let told = call.retry.map(|_| {
        let before = tally.clone();
        let told = move |done: Done| {
            let mut tally = before.clone();
            // What cannot be told is not remembered.
            count(done, index, &mut tally).map(|()| tally.remember()).unwrap_or_default()
        };
        (index, Arc::new(told) as Told)
    });
    let done = change_one(call, container, statement, told).await?;
    count(done, index, tally)
}

/// What is to be remembered of a change.
type Told = Arc<dyn Fn(Done) -> Vec<u8> + Send + Sync>;

/// Changes the first document that matches, or inserts one. `told`: which statement of a command that may be sent again it is, and what of it
/// is remembered.
async fn change_one(
    call: &mut Call<'_>,
    container: &Arc<Container>,
    statement: &Statement,
    told: Option<(usize, Told)>,
) -> Result<Done> {
    for _ in 0..TRIES {
        let found = first_match(call, container, statement).await?;
        let (name, edit) = match found {
            Some(name) => (name, statement.without_upsert(container)),
            // It may be that it has matched, and does not since.
            None if !statement.upserts() => {
                if let Some((index, _)) = &told {
                    call.check_made(container, *index).await?;
                }
                return Ok(Done::default());
            }
            None => {
                let edit = statement.edit(container, ObjectId::new());
                let body = edit.insertion()?;
                let name = check_document(container, document(&body)?, statement.checked)?;
                (name.into(), edit)
            }
        };
        let action = Action::Edit(edit.clone());
        let write = vec![DocumentWrite { name, action }];
        let memo = told.clone().and_then(|(index, told)| {
            let edit = edit.clone();
            call.memo((index, index + 1), || move |_: &[Outcome]| told(edit.done()))
        });
        let reply = call.write(container, write, Together::Atomic, memo).await;
        call.charge += reply.charge;
        let mut outcomes = reply.result?;
        let outcome = outcomes.pop().ok_or_else(|| Refusal::new(1, "the writer gave no answer"))?;
        match outcome.result {
            Ok(_) => {
                let done = edit.done();
                // It was changed between the look and the write: look again.
                if done.matched || done.upserted.is_some() {
                    return Ok(done);
                }
            }
            Err(error) => return Err(edit.refusal(error, container)),
        }
    }
    Err(Refusal::new(112, "The document changed again and again while it was being written.")
        .labelled("TransientTransactionError"))
}

async fn first_match(
    call: &mut Call<'_>,
    container: &Arc<Container>,
    statement: &Statement,
) -> Result<Option<Bytes>> {
    let (mut matches, order) = open(call, container, statement)?;
    let mut best: Option<(Vec<u8>, Bytes)> = None;
    let mut sort = statement.sort.as_ref().filter(|sort| !sort.is_empty());
    if sort.is_some() && matches.is_in_order(&order).await? {
        sort = None;
    }
    while let Some(found) = matches.next(call.db()).await? {
        let Some(sort) = sort else {
            call.bills.push(matches.bill());
            return Ok(Some(found.name));
        };
        let key = sort.key(document(&found.body)?);
        if best.as_ref().is_none_or(|(least, _)| key < *least) {
            best = Some((key, found.name));
        }
    }
    call.bills.push(matches.bill());
    Ok(best.map(|(_, name)| name))
}

fn open(
    call: &mut Call<'_>,
    container: &Arc<Container>,
    statement: &Statement,
) -> Result<(Matches, Order)> {
    let how = (statement.hint.as_deref(), statement.collated);
    let plan = reading::plan(container, &statement.filter, statement.sort.as_ref(), how)?;
    let order = Order::of(&plan);
    let matches = call.matches(container.clone(), Filter::clone(&statement.filter), plan.route)?;
    Ok((matches, order))
}

pub async fn find_and_modify(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let collection = call.collection_name()?;
    let fields = call.fields();
    let (remove, new, upsert) =
        (fields.flag("remove")?, fields.flag("new")?, fields.flag("upsert")?);
    let update = fields.get("update");
    match (remove, update.is_some()) {
        (true, true) => {
            return Err(Refusal::parse("Cannot specify both an update and remove=true"));
        }
        (false, false) => {
            return Err(Refusal::parse("Either an update or remove=true must be specified"));
        }
        (true, false) if new => {
            return Err(Refusal::parse(
                "Cannot specify both new=true and remove=true; 'remove' always returns the deleted document",
            ));
        }
        (true, false) if upsert => {
            return Err(Refusal::parse("Cannot specify both upsert=true and remove=true"));
        }
        _ => {}
    }
    let mut container = call.find_container(collection)?;
    if container.is_none() && upsert {
        container = Some(collections::ensure(call, collection).await?);
    }
    let mut vars = call.vars()?;
    call.with_default_collation(container.as_deref(), &mut vars)?;
    let empty = RawDocumentBuf::new();
    let query = fields.document("query")?.unwrap_or(&empty);
    let change = match update {
        None => Change::Remove,
        Some(update) => {
            let mut array_filters = Vec::new();
            for filter in fields.array("arrayFilters")?.into_iter().flatten() {
                let filter = filter?.as_document();
                array_filters.push(
                    filter
                        .ok_or_else(|| Refusal::type_mismatch("arrayFilters must be documents"))?,
                );
            }
            Change::Update {
                update: Arc::new(Update::parse(update, &array_filters, &vars)?),
                upsert,
            }
        }
    };
    let projection = fields.document("fields")?.filter(|fields| !fields.is_empty());
    let projection =
        projection.map(|projection| Projection::parse(projection, &vars)).transpose()?;
    let sort = fields
        .document("sort")?
        .map(|sort| Sort::parse(sort, vars.collation.as_ref()))
        .transpose()?;
    let Some(container) = container else {
        return Ok(match remove {
            true => rawdoc! {"lastErrorObject": {"n": 0}, "value": bson::RawBson::Null, "ok": 1.0},
            false => rawdoc! {
                "lastErrorObject": {"n": 0, "updatedExisting": false}, "value": bson::RawBson::Null, "ok": 1.0,
            },
        });
    };
    let statement = Statement {
        filter: Arc::new(Filter::parse(query, &vars)?),
        collated: vars.collation.is_some(),
        hint: reading::hint(fields, &container)?,
        sort,
        multi: false,
        change,
        checked: !fields.flag("bypassDocumentValidation")?,
    };
    let filter = statement.filter.clone();
    let reply = move |done: Done| -> Result<RawDocumentBuf> {
        let mut last = rawdoc! {"n": i32::from(done.matched || done.upserted.is_some())};
        if !remove {
            last.append(bson::cstr!("updatedExisting"), done.matched);
        }
        if let Some(id) = done.upserted.clone() {
            last.append(bson::cstr!("upserted"), bson::RawBson::try_from(id)?);
        }
        let value = if new { done.after } else { done.before };
        let value = match (value, &projection) {
            (None, _) => bson::RawBson::Null,
            (Some(body), None) => bson::RawBson::Document(document(&body)?.to_owned()),
            (Some(body), Some(projection)) => {
                let body = document(&body)?;
                let position = filter.matches_at(body)?.1;
                bson::RawBson::Document(projection.apply(body, position)?)
            }
        };
        Ok(rawdoc! {"lastErrorObject": last, "value": value, "ok": 1.0})
    };
    let reply = Arc::new(reply);
    let told = reply.clone();
    let told = move |done: Done| {
        let reply = told(done);
        reply.map(|reply| rawdoc! {"reply": reply}.into_bytes()).unwrap_or_default()
    };
    let done = change_one(call, &container, &statement, Some((0, Arc::new(told)))).await?;
    reply(done)
}

fn check_count(count: usize) -> Result<()> {
    match count {
        1..=BATCH_MAX => Ok(()),
        _ => Err(Refusal::new(
            16,
            format!("Write batch sizes must be between 1 and {BATCH_MAX}. Got {count} operations."),
        )),
    }
}

/// Writes the results of a pipeline where its last stage says.
pub(super) async fn output(call: &mut Call<'_>, rows: Vec<Bytes>, output: Output) -> Result<()> {
    match output {
        Output::Out { database, collection } => {
            let database = database.as_deref().unwrap_or(call.database);
            // Made beside the old one and put in its place, so that nobody sees half of it.
            let draft = format!("tmp.agg_out.{:016x}", fastrand::u64(..));
            let container = collections::ensure_in(call, database, &draft).await?;
            let written = insert_rows(call, &container, rows).await;
            if let Err(refusal) = written {
                call.db().delete_container(database, &draft, None).await?;
                return Err(refusal);
            }
            if super::container(call.db(), database, &collection)?.is_some() {
                call.db().delete_container(database, &collection, None).await?;
            }
            call.db().rename_collection(database, &draft, &collection).await?;
            Ok(())
        }
        Output::Merge { database, collection, on, matched, unmatched } => {
            let database = database.as_deref().unwrap_or(call.database);
            let container = collections::ensure_in(call, database, &collection).await?;
            let how = Merging { on, matched, unmatched };
            for row in rows {
                // Whoever has no `_id` is new.
                let row = if how.on == ["_id"] { with_id(row)? } else { row };
                merge(call, &container, &row, &how).await?;
            }
            Ok(())
        }
    }
}

async fn insert_rows(
    call: &mut Call<'_>,
    container: &Arc<Container>,
    rows: Vec<Bytes>,
) -> Result<()> {
    let mut tally = Tally::default();
    let mut round = Vec::new();
    let count = rows.len();
    for (index, row) in rows.into_iter().enumerate() {
        round.push((index, prepare_insert(container, row, true)?));
        if round.len() == ROUND_ITEMS || index + 1 == count {
            let round = std::mem::take(&mut round);
            insert_round(call, container, round, (Together::Ordered, index + 1), &mut tally)
                .await?;
        }
    }
    match tally.errors.pop() {
        Some((_, refusal)) => Err(refusal),
        None => Ok(()),
    }
}

/// How `$merge` joins its results with what is there.
struct Merging {
    on: Vec<String>,
    matched: Matched,
    unmatched: Unmatched,
}

/// One result of `$merge`.
async fn merge(
    call: &mut Call<'_>,
    container: &Arc<Container>,
    row: &Bytes,
    how: &Merging,
) -> Result<()> {
    let Merging { on, matched, unmatched } = how;
    let unmatched = *unmatched;
    let row = document(row)?;
    let mut query = RawDocumentBuf::new();
    for path in on {
        let value = crate::language::path::Path::new(path).plain(row);
        let value = value.filter(|value| !matches!(value, RawBsonRef::Null | RawBsonRef::Array(_)));
        let value = value.ok_or_else(|| {
            Refusal::new(51132, format!("$merge write error: 'on' field '{path}' cannot be missing, null, undefined or an array"))
        })?;
        let name = bson::raw::CString::try_from(path.clone())?;
        query.append(name, rawdoc! {"$eq": bson::RawBson::from(value)});
    }
    let mut vars = Vars::new(call.now());
    let upsert = unmatched == Unmatched::Insert;
    let update = match matched {
        Matched::Replace => Update::parse(RawBsonRef::Document(row), &[], &vars)?,
        Matched::Merge => {
            Update::parse(RawBsonRef::Document(&rawdoc! {"$set": row.to_owned()}), &[], &vars)?
        }
        Matched::Keep | Matched::Fail => Update::parse(
            RawBsonRef::Document(&rawdoc! {"$setOnInsert": row.to_owned()}),
            &[],
            &vars,
        )?,
        Matched::Pipeline { stages, variables } => {
            let new: bson::Document = row.try_into()?;
            vars.variables = match variables {
                None => bson::doc! {"new": new},
                Some(variables) => super::aggregate::evaluate_let_on(variables, row, &vars)?,
            };
            let mut list = RawArrayBuf::new();
            stages.iter().for_each(|stage| list.push(stage.clone()));
            Update::parse(RawBsonRef::Array(&list), &[], &vars)?
        }
    };
    let filter = Arc::new(Filter::parse(&query, &vars)?);
    let statement = |change| Statement {
        filter: filter.clone(),
        collated: false,
        hint: None,
        sort: None,
        multi: false,
        change,
        checked: true,
    };
    let insert_only = matches!(matched, Matched::Pipeline { .. }) && upsert;
    let first =
        statement(Change::Update { update: Arc::new(update), upsert: upsert && !insert_only });
    let mut done = change_one(call, container, &first, None).await?;
    if insert_only && !done.matched {
        // What is inserted is the result itself, not what the pipeline would make of nothing.
        let update = Update::parse(RawBsonRef::Document(row), &[], &vars)?;
        let insert = statement(Change::Update { update: Arc::new(update), upsert: true });
        done = change_one(call, container, &insert, None).await?;
    }
    if done.matched && matches!(matched, Matched::Fail) {
        let pattern = on.iter().map(|path| (path.clone(), Bson::Int32(1))).collect();
        let index = if on == &["_id"] { "_id_".to_owned() } else { on.join("_1_") + "_1" };
        return Err(duplicate(container, (&index, pattern), Some(row)));
    }
    if !done.matched && done.upserted.is_none() && unmatched == Unmatched::Fail {
        return Err(Refusal::new(
            13113,
            "$merge could not find a matching document in the target collection for at least one document in the source collection",
        ));
    }
    Ok(())
}
