//! `/dbs`: databases.

use db::Database;
use http::StatusCode;

use crate::answer::Answer;
use crate::call::{Call, Intent};
use crate::error::{Failure, Result};
use crate::feed::{self, Numbered, charged};
use crate::headers::Pen;

/// The name of the array in feeds of databases.
const ARRAY: &str = "Databases";

/// `GET /dbs`
pub(crate) fn list(call: &Call<'_>) -> Result<Answer> {
    feed::list(call, "", ARRAY, documents(call))
}

/// `POST /dbs`: a query over databases, or a new one.
pub(crate) async fn post(call: &mut Call<'_>) -> Result<Answer> {
    match Intent::of(call.headers) {
        Intent::Query => feed::query(call, "", ARRAY, documents(call)),
        Intent::Create => {
            let (throughput, body) = (call.throughput()?, call.json_object()?);
            let database = call.db.create_database(&body, throughput).await?;
            Ok(answer(StatusCode::CREATED, &database))
        }
        Intent::Upsert | Intent::Plan | Intent::Batch => {
            Err(Failure::unsupported("this operation on databases"))
        }
    }
}

/// `GET /dbs/{db}`
pub(crate) fn read(call: &Call<'_>, database: &str) -> Result<Answer> {
    Ok(answer(StatusCode::OK, &*call.db.database(database)?))
}

/// `DELETE /dbs/{db}`
pub(crate) async fn delete(call: &Call<'_>, database: &str) -> Result<Answer> {
    call.db.delete_database(database, call.if_match()?).await?;
    Ok(charged(Answer::empty(StatusCode::NO_CONTENT)))
}

fn documents(call: &Call<'_>) -> Vec<Numbered> {
    let databases = call.db.databases();
    databases.iter().map(|database| (database.rid.0.into(), database.to_json())).collect()
}

fn answer(status: StatusCode, database: &Database) -> Answer {
    let mut answer = charged(Answer::json(status, &database.to_json()));
    answer.headers.insert(http::header::ETAG, Pen::new().value(database.etag));
    answer
}
