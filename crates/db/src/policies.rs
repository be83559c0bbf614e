//! Vector, full-text and encryption policies and computed properties: what a definition may say, and what a replace may change.
//!
//! Checked when a container is created or replaced, never when one is loaded: a definition that was once accepted opens for ever.

use std::collections::{HashMap, HashSet};

use model::path::Path;
use query::sql::ast::{Collection, ExprKind, Query, SelectSpec};
use serde_json::{Map, Value};

use crate::index::is_system_property;
use crate::settings::bad_key_path;
use crate::{Error, Result};

/// The most dimensions that a vector can have, and those that a flat index can hold.
const DIMENSIONS_MAX: i64 = 4_096;
const DIMENSIONS_FLAT_MAX: i64 = 505;
const QUANTIZATION_BYTES_MAX: i64 = 512;
const SEARCH_LIST: std::ops::RangeInclusive<i64> = 25..=500;
const SHARD_PATHS_MAX: usize = 1;
const COMPUTED_MAX: usize = 20;
const LANGUAGES: [&str; 7] = ["en-US", "de-DE", "es-ES", "fr-FR", "it-IT", "pt-BR", "pt-PT"];
/// The same by their Windows locale numbers, which the service takes too.
const LANGUAGE_NUMBERS: [&str; 7] = ["1033", "1031", "3082", "1036", "1040", "1046", "2070"];

/// Refuses a definition with a policy that cannot be.
pub(crate) fn check(body: &Map<String, Value>) -> Result<()> {
    let embeddings = vector_embeddings(body)?;
    for index in list(body.get("indexingPolicy"), "vectorIndexes")? {
        check_vector_index(index, &embeddings)?;
    }
    let texts = full_text_paths(body.get("fullTextPolicy"))?;
    for index in list(body.get("indexingPolicy"), "fullTextIndexes")? {
        let path = text(index, "path")?;
        if Path::parse(path).is_err() {
            return Err(invalid(format!(
                "The Full Text Indexing Policy contains an invalid Path: {path}."
            )));
        }
        if !texts.contains(path) {
            return Err(invalid(format!(
                "The path of the Full Text Index {path} does not match any path of the Full Text Policy."
            )));
        }
    }
    check_key_paths(body)?;
    check_bounding_boxes(body)?;
    check_computed(body)?;
    check_ttl_path(body)?;
    check_encryption(body.get("clientEncryptionPolicy"))
}

/// A blank in a partition key path stands within quotes.
fn check_key_paths(body: &Map<String, Value>) -> Result<()> {
    let paths = body.get("partitionKey").and_then(|key| key["paths"].as_array());
    let paths = paths.into_iter().flatten().filter_map(Value::as_str);
    for path in paths.filter(|path| !path.contains(['"', '\''])) {
        if path.contains(char::is_whitespace) {
            return Err(bad_key_path(path, "Put the part that has a blank into quotes."));
        }
    }
    Ok(())
}

/// On a plane, a spatial index needs to know how far its data go; on the globe that is known.
fn check_bounding_boxes(body: &Map<String, Value>) -> Result<()> {
    let kind = body.get("geospatialConfig").and_then(|config| config["type"].as_str());
    let plane = kind == Some("Geometry");
    for index in list(body.get("indexingPolicy"), "spatialIndexes")? {
        let path = text(index, "path")?;
        match (plane, index.get("boundingBox").is_some_and(|bounds| !bounds.is_null())) {
            (true, false) => {
                return Err(invalid(format!(
                    "The spatial index on {path} lacks its boundingBox (xmin, ymin, xmax, ymax): with the geospatial type \
                     Geometry it is required."
                )));
            }
            (false, true) => {
                return Err(invalid(format!(
                    "The spatial index on {path} has a boundingBox, which the geospatial type Geography does not take: leave \
                     it out, or set geospatialConfig to Geometry."
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Refuses a replace that changes what is fixed: embeddings and the vector indexes on them. More may be added.
pub(crate) fn check_replace(old: &Map<String, Value>, new: &Map<String, Value>) -> Result<()> {
    let embeddings = |body: &Map<String, Value>| {
        list(body.get("vectorEmbeddingPolicy"), "vectorEmbeddings").map(by_path)
    };
    let (before, after) = (embeddings(old)?, embeddings(new)?);
    if before.iter().any(|(path, embedding)| after.get(path) != Some(embedding)) {
        return Err(invalid(
            "Paths in existing embedding policy cannot be modified in Collection Replace",
        ));
    }
    let indexes =
        |body: &Map<String, Value>| list(body.get("indexingPolicy"), "vectorIndexes").map(by_path);
    let (before, after) = (indexes(old)?, indexes(new)?);
    // An index may go; what it indexed can then be indexed anew.
    let changed =
        |(path, index): (&String, &Value)| after.get(path).is_some_and(|new| new != index);
    match before.iter().any(changed) {
        true => Err(invalid(
            "Paths in existing vector indexing policy cannot be modified in Collection Replace",
        )),
        false => Ok(()),
    }
}

/// The dimensions of each embedding, by path.
fn vector_embeddings(body: &Map<String, Value>) -> Result<HashMap<String, i64>> {
    let mut all = HashMap::new();
    for embedding in list(body.get("vectorEmbeddingPolicy"), "vectorEmbeddings")? {
        let path = text(embedding, "path")?;
        if Path::parse(path).is_err() {
            return Err(invalid(format!(
                "The Vector Embedding Policy has an invalid Path: {path}."
            )));
        }
        let kind = embedding["dataType"].as_str().unwrap_or_default();
        if !["float32", "float16", "int8", "uint8"].contains(&kind) {
            return Err(invalid(format!(
                "The Vector Embedding Policy has an invalid DataType:{kind}. It must be float32, float16, int8 or uint8."
            )));
        }
        let dimensions = embedding["dimensions"].as_i64().ok_or_else(generic)?;
        if dimensions < 1 {
            return Err(invalid(format!(
                "The Vector Embedding Policy has Dimensions:{dimensions} which is less than the minimum supported \
                 value:1."
            )));
        }
        if dimensions > DIMENSIONS_MAX {
            return Err(invalid(format!(
                "The Vector Embedding Policy has Dimensions:{dimensions} which is more than the maximum supported \
                 value:{DIMENSIONS_MAX}."
            )));
        }
        let distance = embedding["distanceFunction"].as_str().unwrap_or_default();
        if !["cosine", "dotproduct", "euclidean"]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(distance))
        {
            return Err(invalid(format!(
                "The Vector Embedding Policy has an invalid DistanceFunction:{distance}. It must be cosine, dotproduct \
                 or euclidean."
            )));
        }
        if all.insert(path.to_owned(), dimensions).is_some() {
            return Err(invalid(format!(
                "The Vector Embedding Policy has the Path:{path} more than once."
            )));
        }
    }
    Ok(all)
}

fn check_vector_index(index: &Value, embeddings: &HashMap<String, i64>) -> Result<()> {
    let path = text(index, "path")?;
    let Some(dimensions) = embeddings.get(path) else {
        return Err(invalid(format!(
            "The Vector Indexing Policy's path::{path} not matching in Embedding's path."
        )));
    };
    let kind = index["type"].as_str().unwrap_or_default();
    match kind {
        "flat" if *dimensions > DIMENSIONS_FLAT_MAX => {
            return Err(invalid(format!(
                "The Vector Indexing Policy's Index Type::flat supports at most {DIMENSIONS_FLAT_MAX} dimensions; \
                 the path {path} has {dimensions}. Use quantizedFlat or diskANN."
            )));
        }
        "flat" | "quantizedFlat" | "diskANN" => {}
        other => {
            return Err(invalid(format!(
                "The Vector Indexing Policy's Index Type::{other} is invalid. It must be flat, quantizedFlat or diskANN."
            )));
        }
    }
    let quantization = 1..=(*dimensions).min(QUANTIZATION_BYTES_MAX);
    check_number(index, "quantizationByteSize", "QuantizationByteSize", quantization)?;
    check_number(index, "indexingSearchListSize", "IndexingSearchListSize", SEARCH_LIST)?;
    let shards = match index.get("vectorIndexShardKey") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(paths)) => paths,
        Some(_) => return Err(generic()),
    };
    if shards.len() > SHARD_PATHS_MAX {
        return Err(invalid(format!(
            "The number of shard paths defined in the Vector Indexing Policy: {} exceeds the maximum: {SHARD_PATHS_MAX}.",
            shards.len()
        )));
    }
    for shard in shards {
        let shard = shard.as_str().ok_or_else(generic)?;
        if Path::parse(shard).is_err() {
            return Err(invalid(format!(
                "The Vector Indexing Policy has an invalid Shard Path: {shard}."
            )));
        }
    }
    Ok(())
}

fn check_number(
    index: &Value,
    property: &str,
    words: &str,
    allowed: std::ops::RangeInclusive<i64>,
) -> Result<()> {
    let value = match index.get(property) {
        None | Some(Value::Null) => return Ok(()),
        Some(value) => value.as_i64().ok_or_else(generic)?,
    };
    match allowed.contains(&value) {
        true => Ok(()),
        false => Err(invalid(format!(
            "The Vector Indexing Policy parameter {words} value :: {value} is out of range. The allowed range is \
             between {} and {}.",
            allowed.start(),
            allowed.end()
        ))),
    }
}

/// The paths of a full-text policy.
fn full_text_paths(policy: Option<&Value>) -> Result<HashSet<String>> {
    let check_language = |language: Option<&Value>| match language {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(language))
            if LANGUAGES.iter().chain(&LANGUAGE_NUMBERS).any(|known| known == language) =>
        {
            Ok(())
        }
        Some(language) => Err(invalid(format!(
            "The Full Text Policy contains an unsupported language {}. Supported languages are: {}.",
            language.as_str().unwrap_or("that is not a string"),
            LANGUAGES.join(", ")
        ))),
    };
    if let Some(policy) = policy.filter(|policy| !policy.is_null()) {
        check_language(policy.get("defaultLanguage"))?;
    }
    let mut paths = HashSet::new();
    for entry in list(policy, "fullTextPaths")? {
        let path = text(entry, "path")?;
        if Path::parse(path).is_err() {
            return Err(invalid(format!("The Full Text Policy contains an invalid Path: {path}.")));
        }
        check_language(entry.get("language"))?;
        if !paths.insert(path.to_owned()) {
            return Err(invalid(format!(
                "The Full Text Policy contains the Path {path} more than once."
            )));
        }
    }
    Ok(paths)
}

fn check_computed(body: &Map<String, Value>) -> Result<()> {
    let properties = match body.get("computedProperties") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(properties)) => properties,
        Some(_) => return Err(generic()),
    };
    if properties.len() > COMPUTED_MAX {
        return Err(invalid(format!(
            "A container has at most {COMPUTED_MAX} computed properties; {} are given.",
            properties.len()
        )));
    }
    let mut names = HashSet::new();
    for (index, property) in properties.iter().enumerate() {
        if !property.is_object() {
            return Err(generic());
        }
        let given = |member: &str| property[member].as_str().filter(|text| !text.is_empty());
        let name = given("name")
            .ok_or_else(|| invalid("Computed property 'name' is either empty or unspecified."))?;
        let query = given("query")
            .ok_or_else(|| invalid("Computed property 'query' is either empty or unspecified."))?;
        if is_system_property(name) || matches!(name, "id" | "ttl") {
            return Err(invalid(format!(
                "The system property name '{name}' cannot be used as a computed property name."
            )));
        }
        if !names.insert(name) {
            return Err(invalid(format!(
                "Computed property name '{name}' cannot be used in multiple definitions."
            )));
        }
        check_computed_query(query, index)?;
        let spatial = list(body.get("indexingPolicy"), "spatialIndexes")?;
        if spatial.iter().any(|spatial| is_at(spatial, name)) {
            return Err(invalid(format!(
                "Computed property '{name}' at index ({index}) has a spatial index. Remove the spatial index on this path."
            )));
        }
    }
    Ok(())
}

/// Whether an index is on this property or below it.
fn is_at(index: &Value, name: &str) -> bool {
    let segments = index["path"].as_str().and_then(|path| model::path::split(path).ok());
    segments.is_some_and(|segments| segments.first().is_some_and(|first| first == name))
}

fn check_computed_query(query: &str, index: usize) -> Result<()> {
    let malformed = |details: String| {
        invalid(format!(
            "Computed property at index ({index}) has a malformed query: '{query}' Error details: '{details}'"
        ))
    };
    let compiled = query::Compiled::new(query, &[], &query::Options::default())
        .map_err(|error| malformed(error.to_string()))?;
    let tree = compiled.tree();
    let SelectSpec::Value(value) = &tree.select.spec else {
        return Err(invalid(format!(
            "Required VALUE expression missing from computed property query '{query}' at index ({index})."
        )));
    };
    if let Some(clause) = unwanted_clause(tree) {
        return Err(malformed(format!("{clause} is not allowed in a computed property.")));
    }
    let unwanted = |expr: &query::sql::ast::Expr| match &expr.kind {
        ExprKind::Subquery(..) => true,
        ExprKind::Call { name, udf, .. } => {
            *udf || ["RAND", "NEWID"].contains(&name.to_uppercase().as_str())
                || name.to_uppercase().starts_with("GETCURRENT")
        }
        _ => false,
    };
    match value.any(&unwanted) {
        true => Err(malformed(
            "subqueries, user-defined functions and functions that give another value each time are not allowed in a \
             computed property."
                .into(),
        )),
        false => Ok(()),
    }
}

/// The first clause of a computed property's query that must not be there.
fn unwanted_clause(tree: &Query) -> Option<&'static str> {
    let root = |from: &query::sql::ast::From| {
        from.joins.is_empty()
            && !from.first.iterate
            && matches!(&from.first.collection, Collection::Path { steps, .. } if steps.is_empty())
    };
    match tree {
        tree if !tree.from.as_ref().is_some_and(root) => Some("a FROM clause other than the root"),
        tree if tree.select.distinct => Some("DISTINCT"),
        tree if tree.select.top.is_some() => Some("TOP"),
        tree if tree.filter.is_some() => Some("WHERE"),
        tree if !tree.group_by.is_empty() => Some("GROUP BY"),
        tree if tree.order_by.is_some() => Some("ORDER BY"),
        tree if tree.offset_limit.is_some() => Some("OFFSET LIMIT"),
        _ => None,
    }
}

/// R30: time to live may count from a property of the item.
fn check_ttl_path(body: &Map<String, Value>) -> Result<()> {
    let path = match body.get("ttlPropertyPath") {
        None | Some(Value::Null) => return Ok(()),
        Some(path) => path.as_str().ok_or_else(generic)?,
    };
    Path::parse(path)
        .map_err(|why| invalid(format!("The ttlPropertyPath '{path}' is invalid. {why}")))?;
    match body.get("defaultTtl") {
        Some(ttl) if path != "/_ts" && ttl.as_i64() == Some(-1) => Err(invalid(
            "A 'ttlPropertyPath' needs a 'defaultTtl' of 1 or more: the seconds from the time that the property holds.",
        )),
        _ => Ok(()),
    }
}

fn check_encryption(policy: Option<&Value>) -> Result<()> {
    let version = match policy.and_then(|policy| policy.get("policyFormatVersion")) {
        None | Some(Value::Null) => 1,
        Some(version) => version.as_i64().unwrap_or(0),
    };
    if !(1..=2).contains(&version) {
        return Err(invalid(
            "Supported versions of client encryption policy are 1 and 2.".to_owned(),
        ));
    }
    let mut paths = HashSet::new();
    for entry in list(policy, "includedPaths")? {
        let path = text(entry, "path")?;
        if Path::parse(path).is_err() {
            return Err(invalid(format!(
                "Invalid path '{path}' in ClientEncryptionPolicy: a path begins with '/'."
            )));
        }
        if version < 2 && path == "/id" {
            return Err(invalid(
                "Path: /id cannot be encrypted with PolicyFormatVersion: 1. Please use PolicyFormatVersion: 2.",
            ));
        }
        if !paths.insert(path) {
            return Err(invalid(format!(
                "Duplicate Path '{path}' found in ClientEncryptionPolicy."
            )));
        }
        text(entry, "clientEncryptionKeyId")?;
        let kind = text(entry, "encryptionType")?;
        if !["Deterministic", "Randomized"].contains(&kind) {
            return Err(invalid(format!(
                "Invalid Encryption type {kind}: it must be Deterministic or Randomized."
            )));
        }
        let algorithm = text(entry, "encryptionAlgorithm")?;
        if algorithm != "AEAD_AES_256_CBC_HMAC_SHA256" {
            return Err(invalid(format!(
                "Invalid Encryption Algorithm {algorithm}: it must be AEAD_AES_256_CBC_HMAC_SHA256."
            )));
        }
    }
    Ok(())
}

/// The objects of an array that an object may have.
fn list<'a>(owner: Option<&'a Value>, name: &str) -> Result<&'a [Value]> {
    let owner = match owner {
        None | Some(Value::Null) => return Ok(&[]),
        Some(owner) => owner.as_object().ok_or_else(generic)?,
    };
    match owner.get(name) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(entries)) if entries.iter().all(Value::is_object) => Ok(entries),
        Some(_) => Err(generic()),
    }
}

fn by_path(entries: &[Value]) -> HashMap<String, Value> {
    let entry = |entry: &Value| Some((entry["path"].as_str()?.to_owned(), entry.clone()));
    entries.iter().filter_map(entry).collect()
}

fn text<'a>(entry: &'a Value, name: &str) -> Result<&'a str> {
    entry.get(name).and_then(Value::as_str).ok_or_else(|| {
        invalid(format!(
            "One of the specified inputs is invalid: '{name}' must be a string in {entry}."
        ))
    })
}

fn generic() -> Error {
    invalid("One of the specified inputs is invalid")
}

fn invalid(text: impl Into<String>) -> Error {
    Error::Invalid(text.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Settings;

    /// A definition of a container with these members beside id and partition key.
    fn definition(members: serde_json::Value) -> serde_json::Value {
        let mut body = json!({"id": "c", "partitionKey": {"paths": ["/id"], "version": 2}});
        for (name, value) in members.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    }

    fn refusal(members: serde_json::Value) -> String {
        Settings::parse(&definition(members)).unwrap_err().to_string()
    }

    fn embedding(kind: &str, dimensions: i64, distance: &str) -> serde_json::Value {
        json!({"vectorEmbeddings": [{"path": "/v", "dataType": kind, "dimensions": dimensions, "distanceFunction": distance}]})
    }

    #[test]
    fn vector_policies() {
        let good = embedding("float32", 256, "cosine");
        let indexed = |index: serde_json::Value| json!({"vectorEmbeddingPolicy": embedding("float32", 600, "euclidean"), "indexingPolicy": {"vectorIndexes": [index]}});
        for accepted in [
            json!({"vectorEmbeddingPolicy": good}),
            indexed(
                json!({"path": "/v", "type": "diskANN", "vectorIndexShardKey": ["/a"], "indexingSearchListSize": 25}),
            ),
            indexed(json!({"path": "/v", "type": "quantizedFlat", "quantizationByteSize": 512})),
        ] {
            Settings::parse(&definition(accepted)).unwrap();
        }
        let cases = [
            (
                json!({"vectorEmbeddingPolicy": embedding("float33", 2, "cosine")}),
                "invalid DataType:float33",
            ),
            (
                json!({"vectorEmbeddingPolicy": embedding("int8", 0, "cosine")}),
                "has Dimensions:0 which is less",
            ),
            (
                json!({"vectorEmbeddingPolicy": embedding("int8", 8000, "cosine")}),
                "Dimensions:8000 which is more than the maximum supported value",
            ),
            (
                json!({"vectorEmbeddingPolicy": embedding("int8", 2, "ruler")}),
                "invalid DistanceFunction:ruler",
            ),
            (
                json!({"indexingPolicy": {"vectorIndexes": [{"path": "/v", "type": "flat"}]}}),
                "path::/v not matching in Embedding's path.",
            ),
            (indexed(json!({"path": "/v", "type": "flat"})), "at most 505 dimensions"),
            (indexed(json!({"path": "/v", "type": "round"})), "Index Type::round is invalid"),
            (
                indexed(json!({"path": "/v", "type": "diskANN", "quantizationByteSize": 513})),
                "QuantizationByteSize value :: 513 is out of range. The allowed range is between 1 and 512.",
            ),
            (
                indexed(json!({"path": "/v", "type": "diskANN", "indexingSearchListSize": 5})),
                "IndexingSearchListSize value :: 5 is out of range. The allowed range is between 25 and 500.",
            ),
            (
                indexed(json!({"path": "/v", "type": "diskANN", "vectorIndexShardKey": ["a"]})),
                "invalid Shard Path: a.",
            ),
            (
                indexed(
                    json!({"path": "/v", "type": "diskANN", "vectorIndexShardKey": ["/a", "/b"]}),
                ),
                "Policy: 2 exceeds the maximum: 1.",
            ),
            (
                indexed(json!({"path": "/v", "type": "diskANN", "vectorIndexShardKey": "/a"})),
                "One of the specified inputs is invalid",
            ),
        ];
        for (members, expected) in cases {
            let refusal = refusal(members);
            assert!(refusal.contains(expected), "{refusal}");
        }
    }

    #[test]
    fn a_replace_keeps_vectors_as_they_are() {
        let with = |dimensions, index: &str| {
            definition(json!({
                "vectorEmbeddingPolicy": embedding("float32", dimensions, "cosine"),
                "indexingPolicy": {"vectorIndexes": [{"path": "/v", "type": index}]},
            }))
        };
        let old = Settings::parse(&with(100, "flat")).unwrap();
        old.replaced_by(&with(100, "flat"), None, 1).unwrap();
        let refusal = |body| old.replaced_by(&body, None, 1).unwrap_err().to_string();
        assert!(refusal(with(101, "flat")).starts_with("Paths in existing embedding policy"));
        assert!(
            refusal(with(100, "diskANN")).starts_with("Paths in existing vector indexing policy")
        );
        assert!(refusal(definition(json!({}))).starts_with("Paths in existing embedding policy"));
    }

    #[test]
    fn full_text_policies() {
        let policy = |path: &str, language: &str| json!({"defaultLanguage": "en-US", "fullTextPaths": [{"path": path, "language": language}]});
        let indexed = |path: serde_json::Value| json!({"fullTextPolicy": policy("/a", "en-US"), "indexingPolicy": {"fullTextIndexes": [path]}});
        Settings::parse(&definition(indexed(json!({"path": "/a"})))).unwrap();
        let cases = [
            (
                json!({"fullTextPolicy": policy("a", "en-US")}),
                "The Full Text Policy contains an invalid Path: a.",
            ),
            (json!({"fullTextPolicy": policy("/a", "xx-XX")}), "unsupported language xx-XX"),
            (json!({"fullTextPolicy": {"defaultLanguage": "xx-XX"}}), "unsupported language xx-XX"),
            (indexed(json!({"path": "/b"})), "does not match any path"),
            (indexed(json!({"path": "a"})), "invalid Path: a."),
            (indexed(json!({"paths": "/a"})), "One of the specified inputs is invalid"),
        ];
        for (members, expected) in cases {
            let refusal = refusal(members);
            assert!(refusal.contains(expected), "{refusal}");
        }
    }

    #[test]
    fn computed_properties() {
        let one = |name: &str, query: &str| json!({"computedProperties": [{"name": name, "query": query}]});
        Settings::parse(&definition(one("low", "SELECT VALUE LOWER(c.name) FROM c"))).unwrap();
        let twice = json!({"name": "x", "query": "SELECT VALUE c.a FROM c"});
        let cases = [
            (
                json!({"computedProperties": {"name": "x"}}),
                "One of the specified inputs is invalid",
            ),
            (
                one("", "SELECT VALUE 1 FROM c"),
                "Computed property 'name' is either empty or unspecified.",
            ),
            (one("x", ""), "Computed property 'query' is either empty or unspecified."),
            (one("_ts", "SELECT VALUE 1 FROM c"), "The system property name '_ts' cannot be used"),
            (
                json!({"computedProperties": [twice, twice]}),
                "Computed property name 'x' cannot be used in multiple definitions.",
            ),
            (
                one("x", "SELECT c.a FROM c"),
                "Required VALUE expression missing from computed property query 'SELECT c.a FROM c' at index (0).",
            ),
            (
                one("x", "SELECT VALUE FROM"),
                "Computed property at index (0) has a malformed query: 'SELECT VALUE FROM'",
            ),
            (one("x", "SELECT VALUE c.a FROM c WHERE c.b"), "WHERE is not allowed"),
            (one("x", "SELECT VALUE d FROM c JOIN d IN c.a"), "FROM clause"),
            (one("x", "SELECT VALUE RAND() FROM c"), "another value each time"),
            (one("x", "SELECT VALUE udf.f(c.a) FROM c"), "user-defined functions"),
        ];
        for (members, expected) in cases {
            let refusal = refusal(members);
            assert!(refusal.contains(expected), "{refusal}");
        }
    }
}
