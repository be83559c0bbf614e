//! Users, permissions, client encryption keys and scripts: lists, and one of them.
//!
//! A permission is answered with a new token each time, good for as long as the client asks.

use db::{Kind, Place, Resource};
use http::StatusCode;
use serde_json::Value;

use crate::FrontEnd;
use crate::answer::Answer;
use crate::call::{Call, Intent};
use crate::error::{Failure, Result};
use crate::feed::{self, Numbered, charged};
use crate::headers::{self, Pen};
use crate::tokens;

/// The kind that a path's word names under a database.
pub(crate) fn of_database(word: &str) -> Option<Kind> {
    [Kind::User, Kind::EncryptionKey].into_iter().find(|kind| kind.word() == word)
}

/// The kind that a path's word names under a container.
pub(crate) fn of_container(word: &str) -> Option<Kind> {
    [Kind::Procedure, Kind::Trigger, Kind::Function].into_iter().find(|kind| kind.word() == word)
}

/// A request to the list: read it, query it, or make a new one.
pub(crate) async fn feed(
    front_end: &FrontEnd,
    call: &mut Call<'_>,
    place: Place<'_>,
) -> Result<Answer> {
    let intent = Intent::of(call.headers);
    match (call.method.as_str(), intent) {
        ("GET", _) | ("POST", Intent::Query) => {
            let (rid, all) = call.db.resources(place)?;
            let documents = all
                .iter()
                .map(|resource| Ok((resource.number.into(), document(front_end, call, resource)?)))
                .collect::<Result<Vec<Numbered>>>()?;
            match call.method.as_str() {
                "GET" => feed::list(call, &rid, array(place.kind), documents),
                _ => feed::query(call, &rid, array(place.kind), documents),
            }
        }
        ("POST", Intent::Create | Intent::Upsert) => {
            let body = call.json_object()?;
            let upsert = intent == Intent::Upsert;
            let (new, resource) = call.db.create_resource(place, &body, upsert).await?;
            let status = if new { StatusCode::CREATED } else { StatusCode::OK };
            answer(front_end, call, status, &resource)
        }
        _ => Err(Failure::unsupported("this operation here")),
    }
}

/// A request to one of them.
pub(crate) async fn one(
    front_end: &FrontEnd,
    call: &mut Call<'_>,
    place: Place<'_>,
    id: &str,
) -> Result<Answer> {
    match call.method.as_str() {
        "GET" => {
            let resource = call.db.resource(place, id)?;
            answer(front_end, call, StatusCode::OK, &resource)
        }
        "PUT" => {
            let body = call.json_object()?;
            let if_match = call.if_match()?;
            let resource = call.db.replace_resource(place, id, &body, if_match).await?;
            answer(front_end, call, StatusCode::OK, &resource)
        }
        "DELETE" => {
            call.db.delete_resource(place, id, call.if_match()?).await?;
            Ok(charged(Answer::empty(StatusCode::NO_CONTENT)))
        }
        _ => Err(Failure::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "The requested verb is not supported.",
        )),
    }
}

fn answer(
    front_end: &FrontEnd,
    call: &Call<'_>,
    status: StatusCode,
    resource: &Resource,
) -> Result<Answer> {
    let mut answer = charged(Answer::json(status, &document(front_end, call, resource)?));
    answer.headers.insert(http::header::ETAG, Pen::new().value(resource.etag));
    Ok(answer)
}

/// A resource as the wire shows it: permissions with a new token.
fn document(front_end: &FrontEnd, call: &Call<'_>, resource: &Resource) -> Result<Value> {
    let mut json = resource.to_json();
    if resource.kind == Kind::Permission {
        let lifetime = match call.text(&headers::EXPIRY_SECONDS)? {
            None => tokens::LIFETIME_SECS_DEFAULT,
            Some(text) => {
                let secs = text.parse().ok().filter(|secs| tokens::LIFETIME_SECS.contains(secs));
                secs.ok_or_else(|| Failure::bad_header(headers::EXPIRY_SECONDS.as_str(), text))?
            }
        };
        let expiry = front_end.clock.now().plus(lifetime);
        json["_token"] = front_end.keys.issue(&resource.rid(), expiry).into();
    }
    Ok(json)
}

/// The name of the array in feeds.
fn array(kind: Kind) -> &'static str {
    match kind {
        Kind::User => "Users",
        Kind::Permission => "Permissions",
        Kind::EncryptionKey => "ClientEncryptionKeys",
        Kind::Procedure => "StoredProcedures",
        Kind::Trigger => "Triggers",
        Kind::Function => "UserDefinedFunctions",
    }
}
