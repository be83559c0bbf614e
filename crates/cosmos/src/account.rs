//! `GET /`: what SDKs read first, and where they learn the address that all later requests go to.
//!
//! The address is the one the client used (its `Host`, or what a proxy says that was), so that it works behind address translation,
//! in containers and behind proxies. The account's id must not be `localhost`: the JavaScript SDK would ask for this document before each operation.

use http::StatusCode;
use serde_json::json;

use crate::answer::Answer;
use crate::call::Call;
use crate::error::Result;
use crate::headers;

/// Limits of the query language, for SDKs that plan queries themselves. A JSON text inside the JSON document.
const QUERY_ENGINE_CONFIGURATION: &str = concat!(
    r#"{"maxSqlQueryInputLength":524288,"maxJoinsPerSqlQuery":10,"maxLogicalAndPerSqlQuery":2147483647,"#,
    r#""maxLogicalOrPerSqlQuery":2147483647,"maxUdfRefPerSqlQuery":10,"maxInExpressionItemsCount":2147483647,"#,
    r#""queryMaxInMemorySortDocumentCount":-1000,"maxQueryRequestTimeoutFraction":0.9,"#,
    r#""sqlAllowNonFiniteNumbers":false,"sqlAllowAggregateFunctions":true,"sqlAllowSubQuery":true,"#,
    r#""sqlAllowScalarSubQuery":true,"allowNewKeywords":true,"sqlAllowLike":true,"sqlAllowGroupByClause":true,"#,
    r#""maxSpatialQueryCells":2147483647,"spatialMaxGeometryPointCount":256,"sqlDisableOptimizationFlags":0,"#,
    r#""sqlAllowTop":true,"enableSpatialIndexing":true}"#
);

/// The region that SDKs find us in; they know only Azure's names.
const REGION: &str = "South Central US";

/// The account document.
pub(crate) fn read(call: &Call<'_>) -> Result<Answer> {
    let forwarded = headers::text(call.headers, &headers::FORWARDED_PROTO)?;
    let scheme = match forwarded {
        Some(scheme @ ("http" | "https")) => scheme,
        _ if call.peer.secure => "https",
        _ => "http",
    };
    let host = headers::text(call.headers, &headers::FORWARDED_HOST)?.unwrap_or(call.host);
    let endpoint = format!("{scheme}://{host}/");
    let locations = json!([{"name": REGION, "databaseAccountEndpoint": endpoint}]);
    let document = json!({
        "_self": "",
        "id": "sidereal",
        "_rid": "sidereal.documents.local",
        "media": "//media/",
        "addresses": "//addresses/",
        "_dbs": "//dbs/",
        "writableLocations": locations,
        "readableLocations": locations,
        "enableMultipleWriteLocations": false,
        "continuousBackupEnabled": false,
        "enableNRegionSynchronousCommit": false,
        "enablePerPartitionFailoverBehavior": false,
        "disableCrossRegionalHedging": false,
        "userReplicationPolicy": {"asyncReplication": false, "minReplicaSetSize": 1, "maxReplicasetSize": 4},
        "userConsistencyPolicy": {"defaultConsistencyLevel": "Session"},
        "systemReplicationPolicy": {"minReplicaSetSize": 1, "maxReplicasetSize": 4},
        "readPolicy": {"primaryReadCoefficient": 1, "secondaryReadCoefficient": 1},
        "queryEngineConfiguration": QUERY_ENGINE_CONFIGURATION,
    });
    Ok(Answer::json(StatusCode::OK, &document))
}
