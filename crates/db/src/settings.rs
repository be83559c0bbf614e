//! What a container's owner can set: its definition, read from and shown as the wire's JSON.
//!
//! Stub.
use model::partition_key::PartitionKeyDefinition;
use model::ttl::DefaultTtl;
use serde_json::Value;

/// A container's definition, validated and completed with the service's defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The container's name.
    pub id: String,
    /// How items are spread.
    pub partition_key: PartitionKeyDefinition,
    /// The TTL rule.
    pub default_ttl: DefaultTtl,
    /// The definition as the wire shows it, without system properties.
    pub json: Value,
}
