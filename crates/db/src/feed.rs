//! The change feed, latest version.

use model::clock::Timestamp;

use crate::items::{Page, Scope};
use crate::{Container, Db, Reply};

/// Where a reading of the change feed begins.
#[derive(Clone, Debug)]
pub enum ChangesRequest {
    /// With the first change.
    Beginning,
    /// With the next change after now.
    Now,
    /// With the changes at or after an instant.
    Since(Timestamp),
    /// After the etag of an earlier answer.
    After(String),
}

impl Db {
    /// Changed items in the order of their last change, each with `_lsn`. The page's continuation is always there: it
    /// is the etag (with quotes) to go on from; an empty page means "no changes" (304).
    pub async fn changes(
        &self,
        container: &Container,
        scope: &Scope,
        from: &ChangesRequest,
        items_max: usize,
    ) -> Reply<Page> {
        todo!()
    }
}
