//! `/offers`: the throughput of databases and containers.

use db::Migration;
use db::Offer;
use http::{HeaderValue, StatusCode};

use crate::answer::Answer;
use crate::call::Call;
use crate::error::Result;
use crate::feed::{self, Numbered, charged};
use crate::headers::{self, Pen, flag};

/// The name of the array in feeds of offers.
const ARRAY: &str = "Offers";

/// `GET /offers`
pub(crate) fn list(call: &Call<'_>) -> Result<Answer> {
    feed::list(call, "", ARRAY, documents(call))
}

/// `POST /offers`: a query over offers; they are made with what they are for.
pub(crate) fn post(call: &mut Call<'_>) -> Result<Answer> {
    feed::query_only(call, "", ARRAY, documents(call))
}

/// `GET /offers/{rid}`
pub(crate) fn read(call: &Call<'_>, rid: &str) -> Result<Answer> {
    Ok(answer(&*call.db.offer(rid)?))
}

/// `PUT /offers/{rid}`
pub(crate) async fn replace(call: &mut Call<'_>, rid: &str) -> Result<Answer> {
    let migration = match call.headers {
        headers if flag(headers, &headers::MIGRATE_TO_AUTOPILOT) => Migration::ToAutoscale,
        headers if flag(headers, &headers::MIGRATE_TO_MANUAL) => Migration::ToManual,
        _ => Migration::None,
    };
    let body = call.json_object()?;
    Ok(answer(&*call.db.replace_offer(rid, &body, migration).await?))
}

fn documents(call: &Call<'_>) -> Vec<Numbered> {
    call.db.offers().iter().map(|offer| (offer.rid.0.into(), offer.to_json())).collect()
}

fn answer(offer: &Offer) -> Answer {
    let document = offer.to_json();
    let mut answer = charged(Answer::json(StatusCode::OK, &document));
    if let Some(etag) = document["_etag"].as_str() {
        answer.headers.insert(http::header::ETAG, Pen::new().value(etag));
    }
    answer.headers.insert(&headers::MIN_THROUGHPUT, HeaderValue::from(offer.minimum()));
    answer.headers.insert(&headers::OFFER_REPLACE_PENDING, HeaderValue::from_static("false"));
    answer
}
