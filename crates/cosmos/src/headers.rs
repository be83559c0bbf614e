//! The names of the wire, and how header values are read and written.
//!
//! Writing is on the path of every request: fixed values are static, and the changing ones of an answer share one
//! allocation ([`Pen`]).

use std::fmt::{Display, Write};

use bytes::{Bytes, BytesMut};
use db::RequestCharge;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::error::{Failure, Result};

macro_rules! names {
    ($($constant:ident = $name:literal;)*) => {
        $(pub(crate) static $constant: HeaderName = HeaderName::from_static($name);)*
    };
}

names! {
    ACTIVITY_ID = "x-ms-activity-id";
    A_IM = "a-im";
    ALT_CONTENT_PATH = "x-ms-alt-content-path";
    AUTOPILOT = "x-ms-cosmos-offer-autopilot-settings";
    BATCH_ATOMIC = "x-ms-cosmos-batch-atomic";
    BATCH_CONTINUE = "x-ms-cosmos-batch-continue-on-error";
    CHANGE_FEED_FORMAT = "x-ms-cosmos-changefeed-wire-format-version";
    CONSISTENCY_LEVEL = "x-ms-consistency-level";
    CONTENT_ON_WRITE = "x-ms-cosmos-populate-content-response-on-write";
    CONTENT_PATH = "x-ms-content-path";
    CONTINUATION = "x-ms-continuation";
    CONTINUATION_LIMIT = "x-ms-documentdb-responsecontinuationtokenlimitinkb";
    CROSS_PARTITION = "x-ms-documentdb-query-enablecrosspartition";
    ENABLE_SCAN = "x-ms-documentdb-query-enable-scan";
    END_EPK = "x-ms-end-epk";
    EXPIRY_SECONDS = "x-ms-documentdb-expiry-seconds";
    FORWARDED_HOST = "x-forwarded-host";
    FORWARDED_PROTO = "x-forwarded-proto";
    GATEWAY_VERSION = "x-ms-gatewayversion";
    INDEXING_DIRECTIVE = "x-ms-indexing-directive";
    EXPLANATION = "x-sidereal-explanation";
    INDEX_PROGRESS = "x-ms-documentdb-collection-index-transformation-progress";
    INDEX_UTILIZATION = "x-ms-cosmos-index-utilization";
    INTENDED_RID = "x-ms-cosmos-intended-collection-rid";
    IS_BATCH = "x-ms-cosmos-is-batch-request";
    IS_QUERY = "x-ms-documentdb-isquery";
    IS_QUERY_GO = "x-ms-documentdb-query";
    IS_QUERY_PLAN = "x-ms-cosmos-is-query-plan-request";
    IS_UPSERT = "x-ms-documentdb-is-upsert";
    ITEM_COUNT = "x-ms-item-count";
    LSN = "lsn";
    MAX_ITEM_COUNT = "x-ms-max-item-count";
    MIGRATE_TO_AUTOPILOT = "x-ms-cosmos-migrate-offer-to-autopilot";
    MIGRATE_TO_MANUAL = "x-ms-cosmos-migrate-offer-to-manual-throughput";
    MIN_THROUGHPUT = "x-ms-cosmos-min-throughput";
    OFFER_REPLACE_PENDING = "x-ms-offer-replace-pending";
    OFFER_THROUGHPUT = "x-ms-offer-throughput";
    PARTITION_KEY = "x-ms-documentdb-partitionkey";
    PARTITION_KEY_RANGE_ID = "x-ms-documentdb-partitionkeyrangeid";
    POST_TRIGGER = "x-ms-documentdb-post-trigger-include";
    POPULATE_INDEX_METRICS = "x-ms-cosmos-populateindexmetrics";
    POPULATE_INDEX_METRICS_V2 = "x-ms-cosmos-populateindexmetrics-v2";
    POPULATE_QUERY_METRICS = "x-ms-documentdb-populatequerymetrics";
    POPULATE_STATISTICS = "x-ms-documentdb-populatepartitionstatistics";
    PREFER = "prefer";
    PRE_TRIGGER = "x-ms-documentdb-pre-trigger-include";
    QUERY_METRICS = "x-ms-documentdb-query-metrics";
    READ_KEY_TYPE = "x-ms-read-key-type";
    REQUEST_CHARGE = "x-ms-request-charge";
    RESOURCE_QUOTA = "x-ms-resource-quota";
    RESOURCE_USAGE = "x-ms-resource-usage";
    RETRY_AFTER_MS = "x-ms-retry-after-ms";
    SCHEMA_VERSION = "x-ms-schemaversion";
    SCRIPT_LOG = "x-ms-documentdb-script-log-results";
    SCRIPT_LOGGING = "x-ms-documentdb-script-enable-logging";
    SESSION_TOKEN = "x-ms-session-token";
    START_EPK = "x-ms-start-epk";
    SUBSTATUS = "x-ms-substatus";
    VERSION = "x-ms-version";
    XMS_DATE = "x-ms-date";
}

/// The content type of all bodies but the metrics.
pub(crate) static JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The charge of what costs no more than a look at the catalog.
pub(crate) static CHARGE_ONE: HeaderValue = HeaderValue::from_static("1");

/// The text of a header; `None` if it is absent or empty.
pub(crate) fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>> {
    match headers.get(name) {
        None => Ok(None),
        Some(value) => match std::str::from_utf8(value.as_bytes()) {
            Ok("") => Ok(None),
            Ok(text) => Ok(Some(text)),
            Err(_) => {
                Err(Failure::bad_header(name.as_str(), &String::from_utf8_lossy(value.as_bytes())))
            }
        },
    }
}

/// Whether a header says true, in any case; absent and anything else are false.
pub(crate) fn flag(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.get(name).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"))
}

/// Writes header values one after another into one allocation.
pub(crate) struct Pen(BytesMut);

impl Pen {
    /// With room for the values of an item's answer.
    pub(crate) fn new() -> Self {
        Self(BytesMut::with_capacity(256))
    }

    /// A value; what a header cannot hold is percent-encoded.
    pub(crate) fn value(&mut self, value: impl Display) -> HeaderValue {
        write!(Visible(&mut self.0), "{value}").expect("writing to memory cannot fail");
        self.finish()
    }

    /// A text that many answers share: nothing is copied, unless it has to be encoded.
    pub(crate) fn shared(&mut self, text: &Bytes) -> HeaderValue {
        let plain = text.is_ascii().then(|| HeaderValue::from_maybe_shared(text.clone()).ok());
        plain.flatten().unwrap_or_else(|| self.value(String::from_utf8_lossy(text)))
    }

    /// A charge with at most two decimals.
    pub(crate) fn charge(&mut self, charge: RequestCharge) -> HeaderValue {
        // Charges are positive and small: a saturating cast is exact.
        let hundredths = (charge.0 * 100.0).round() as u64;
        let (units, rest) = (hundredths / 100, hundredths % 100);
        match (units, rest) {
            (1, 0) => return CHARGE_ONE.clone(),
            (_, 0) => write!(self.0, "{units}"),
            (_, rest) if rest % 10 == 0 => write!(self.0, "{units}.{}", rest / 10),
            _ => write!(self.0, "{units}.{rest:02}"),
        }
        .expect("writing to memory cannot fail");
        self.finish()
    }

    fn finish(&mut self) -> HeaderValue {
        HeaderValue::from_maybe_shared(self.0.split().freeze())
            .expect("only visible ASCII was written")
    }
}

/// Percent-encodes everything that is not visible ASCII.
struct Visible<'b>(&'b mut BytesMut);

impl Write for Visible<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if text.bytes().all(|byte| (0x20..0x7F).contains(&byte)) {
            self.0.extend_from_slice(text.as_bytes());
            return Ok(());
        }
        for byte in text.bytes() {
            match byte {
                0x20..0x7F => self.0.extend_from_slice(&[byte]),
                _ => write!(self.0, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_have_at_most_two_decimals() {
        for (charge, text) in [
            (1.0, "1"),
            (0.0, "0"),
            (5.714, "5.71"),
            (2.5, "2.5"),
            (10.0, "10"),
            (3.004, "3"),
            (7.09, "7.09"),
        ] {
            assert_eq!(Pen::new().charge(RequestCharge(charge)), text);
        }
    }

    #[test]
    fn values_that_a_header_cannot_hold_are_encoded() {
        assert_eq!(Pen::new().value("dbs/ä/colls/a b\n"), "dbs/%C3%A4/colls/a b%0A");
    }
}
