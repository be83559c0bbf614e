//! explain: which way a command would take.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};

use super::Call;
use super::reading::{self, Matches};
use crate::error::{Refusal, Result};
use crate::language::aggregate::Pipeline;
use crate::language::filter::Filter;
use crate::language::sort::Sort;
use crate::layout;
use crate::options::{Fields, document};
use crate::plan::Plan;

pub async fn explain(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let inner = call
        .target
        .as_document()
        .ok_or_else(|| Refusal::type_mismatch("explain needs a command"))?;
    let verbosity = call.fields().text("verbosity")?.unwrap_or("allPlansExecution");
    if !matches!(verbosity, "queryPlanner" | "executionStats" | "allPlansExecution") {
        return Err(Refusal::parse(
            "verbosity string must be one of {'queryPlanner', 'executionStats', 'allPlansExecution'}",
        ));
    }
    let (name, target) = inner
        .iter()
        .next()
        .transpose()?
        .ok_or_else(|| Refusal::new(59, "explain needs a command"))?;
    let fields = Fields(inner);
    let first = |list: &str| -> Result<Option<&RawDocument>> {
        Ok(match fields.array(list)?.and_then(|list| list.into_iter().next()).transpose()? {
            Some(statement) => statement.as_document(),
            None => None,
        })
    };
    let filter = match name.as_str() {
        "find" => fields.document("filter")?,
        "count" | "distinct" | "findAndModify" => fields.document("query")?,
        "update" => first("updates")?.map(|one| Fields(one).document("q")).transpose()?.flatten(),
        "delete" => first("deletes")?.map(|one| Fields(one).document("q")).transpose()?.flatten(),
        "aggregate" => {
            let mut stages = Vec::new();
            for stage in fields.array("pipeline")?.into_iter().flatten() {
                stages.push(stage?);
            }
            let (filter, sort) = beginning(&stages)?;
            let condition = condition(call, target.as_str(), &stages)?;
            let what = What { filter, condition, sort, run: verbosity != "queryPlanner" };
            return report(call, target.as_str().unwrap_or_default(), fields, what).await;
        }
        other => {
            return Err(Refusal::new(115, format!("explain does not know the command '{other}'")));
        }
    };
    let collection = target.as_str().unwrap_or_default();
    let sort = fields.document("sort")?;
    let what = What { filter, condition: None, sort, run: verbosity != "queryPlanner" };
    report(call, collection, fields, what).await
}

/// The explanation of a pipeline: of how its documents are found.
pub(super) async fn aggregate(
    call: &mut Call<'_>,
    collection: Option<&str>,
    stages: &[RawBsonRef<'_>],
) -> Result<RawDocumentBuf> {
    let (filter, sort) = beginning(stages)?;
    let condition = condition(call, collection, stages)?;
    let fields = Fields(call.body);
    let what = What { filter, condition, sort, run: false };
    report(call, collection.unwrap_or_default(), fields, what).await
}

/// What documents must be for a first stage that looks for near ones.
fn condition(
    call: &Call<'_>,
    collection: Option<&str>,
    stages: &[RawBsonRef<'_>],
) -> Result<Option<Filter>> {
    let Some(RawBsonRef::Document(first)) = stages.first() else { return Ok(None) };
    if Fields(first).get("$geoNear").is_none() {
        return Ok(None);
    }
    let told = super::sources::with_key(call, collection, first)?;
    let first = RawBsonRef::Document(told.as_deref().unwrap_or(first));
    let pipeline = Pipeline::parse(&[first], &call.vars()?)?;
    Ok(pipeline.condition().cloned())
}

/// The condition and the order that stages begin with: what decides how documents are found.
fn beginning<'a>(
    stages: &[RawBsonRef<'a>],
) -> Result<(Option<&'a RawDocument>, Option<&'a RawDocument>)> {
    let named = |at: usize, name: &str| match stages.get(at) {
        Some(RawBsonRef::Document(stage)) => Fields(stage).document(name),
        _ => Ok(None),
    };
    let filter = named(0, "$match")?;
    let sort = named(usize::from(filter.is_some()), "$sort")?;
    Ok((filter, sort))
}

/// What is to be explained.
struct What<'a> {
    filter: Option<&'a RawDocument>,
    /// Where it does not stand in a document: what a first stage asks for.
    condition: Option<Filter>,
    sort: Option<&'a RawDocument>,
    /// Whether the documents are to be found, too.
    run: bool,
}

async fn report(
    call: &mut Call<'_>,
    collection: &str,
    fields: Fields<'_>,
    What { filter, condition, sort, run }: What<'_>,
) -> Result<RawDocumentBuf> {
    let empty = RawDocumentBuf::new();
    let filter_document = filter.unwrap_or(&empty);
    let mut vars = call.vars()?;
    let container = call.find_container(collection)?;
    call.with_default_collation(container.as_deref(), &mut vars)?;
    let filter = match condition {
        Some(condition) => condition,
        None => Filter::parse(filter_document, &vars)?,
    };
    let sort = match sort {
        Some(sort) if !sort.is_empty() => Some(Sort::parse(sort, vars.collation.as_ref())?),
        _ => None,
    };
    let mut winning = rawdoc! {"stage": "EOF"};
    let mut counts = (0, 0, 0);
    if let Some(container) = container {
        let hint = reading::hint(fields, &container)?;
        let how = (hint.as_deref(), vars.collation.is_some());
        let plan = reading::plan(&container, &filter, sort.as_ref(), how)?;
        winning = show(&container, &plan, filter_document)?;
        if sort.is_some() && !plan.sorted {
            winning = rawdoc! {"stage": "SORT", "inputStage": winning};
        }
        if run {
            let mut matches = Matches::open(call.db(), container, filter, plan.route);
            while let Some(found) = matches.next(call.db()).await? {
                document(&found.body)?;
                counts.0 += 1;
            }
            let (documents, entries) = matches.looked_at();
            (counts.1, counts.2) = (documents as i32, entries as i32);
            call.bills.push(matches.bill());
        }
    }
    let mut reply = rawdoc! {
        "explainVersion": "1",
        "queryPlanner": {
            "namespace": call.namespace(collection), "indexFilterSet": false,
            "parsedQuery": filter_document.to_owned(), "winningPlan": winning.clone(), "rejectedPlans": [],
        },
    };
    if run {
        reply.append(
            bson::cstr!("executionStats"),
            rawdoc! {
                "executionSuccess": true, "nReturned": counts.0, "executionTimeMillis": 0,
                "totalKeysExamined": counts.2, "totalDocsExamined": counts.1, "executionStages": winning,
                "allPlansExecution": [],
            },
        );
    }
    reply.append(bson::cstr!("serverInfo"), rawdoc! {"host": "localhost", "port": i32::from(call.state.local.port()), "version": "7.0.0"});
    reply.append(bson::cstr!("ok"), 1.0);
    Ok(reply)
}

fn show(container: &db::Container, plan: &Plan, filter: &RawDocument) -> Result<RawDocumentBuf> {
    let Some(name) = &plan.index else {
        return Ok(
            rawdoc! {"stage": "COLLSCAN", "filter": filter.to_owned(), "direction": "forward"},
        );
    };
    if plan.point {
        return Ok(
            rawdoc! {"stage": "IDHACK", "indexName": name.as_str(), "keyPattern": {"_id": 1}},
        );
    }
    let index = layout::of(container).and_then(|collection| collection.index(name));
    let key = match index.and_then(|index| index.spec.get_document("key").ok()) {
        Some(key) => RawDocumentBuf::try_from(key)?,
        None => rawdoc! {"_id": 1},
    };
    let flag = |read: fn(&layout::Index) -> bool| index.is_some_and(read);
    let scan = rawdoc! {
        "stage": "IXSCAN", "keyPattern": key, "indexName": name.as_str(),
        "isUnique": flag(|index| index.unique), "isSparse": flag(|index| index.sparse),
        "isPartial": flag(|index| index.partial.is_some()), "indexVersion": 2,
        "direction": if plan.is_backward() { "backward" } else { "forward" },
    };
    Ok(rawdoc! {"stage": "FETCH", "filter": filter.to_owned(), "inputStage": scan})
}
