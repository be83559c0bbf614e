//! The small resources of a database or container: users and their permissions, client encryption keys, scripts.
//!
//! They are rows of the catalog like containers are: in memory, changed one at a time, gone with their owner. What a permission grants
//! is bound to the container that is there when the permission is written: one that is made later under the same name is another.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::clock::Timestamp;
use model::partition_key::PartitionKey;
use model::resource::{ChildKind, ChildRid, ContainerRid, DatabaseRid, Etag, UnderDatabase};
use serde_json::{Map, Value, json};

use crate::catalog::{Catalog, Change, check_version, with_system_properties};
use crate::keys::Key;
use crate::settings::resource_id;
use crate::{Db, Error, Result};

/// What a resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A user of a database.
    User,
    /// What a user may do.
    Permission,
    /// A key that clients encrypt properties with, wrapped.
    EncryptionKey,
    /// A stored procedure.
    Procedure,
    /// A trigger.
    Trigger,
    /// A user-defined function.
    Function,
}

const KINDS: [(Kind, &str); 6] = [
    (Kind::User, "users"),
    (Kind::Permission, "permissions"),
    (Kind::EncryptionKey, "clientencryptionkeys"),
    (Kind::Procedure, "sprocs"),
    (Kind::Trigger, "triggers"),
    (Kind::Function, "udfs"),
];

/// The most bytes of a script.
const SCRIPT_BYTES_MAX: usize = 256 << 10;

impl Kind {
    /// Its word in paths, and in the catalog.
    pub fn word(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }

    fn parse(word: &str) -> Option<Self> {
        KINDS.iter().find(|(_, known)| *known == word).map(|(kind, _)| *kind)
    }

    /// The most of them that an owner can have.
    fn count_max(self) -> usize {
        match self {
            Self::Procedure => 100,
            Self::Function => 50,
            Self::Trigger => 25,
            Self::EncryptionKey => 20,
            Self::User => 500_000,
            Self::Permission => 2_000_000,
        }
    }
}

/// Where a resource lives: names or rids.
#[derive(Clone, Copy, Debug)]
pub enum Parent<'a> {
    /// A database.
    Database(&'a str),
    /// A user of a database.
    User(&'a str, &'a str),
    /// A container.
    Container(&'a str, &'a str),
}

/// A list of resources: whose, and of which kind.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Whose.
    pub parent: Parent<'a>,
    /// Of which kind.
    pub kind: Kind,
}

/// The numbers of what owns a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Owner {
    Database(DatabaseRid),
    User(DatabaseRid, u32),
    Container(ContainerRid),
}

/// A user, permission, key or script, as of one moment.
#[derive(Clone, Debug)]
pub struct Resource {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub id: String,
    /// Its number: that of the catalog's change that made it.
    pub number: u32,
    /// Its version.
    pub etag: Etag,
    /// When it was last changed.
    pub ts: Timestamp,
    pub(crate) owner: Owner,
    /// What its owner has set.
    json: Map<String, Value>,
    /// Of a permission: the container that its resource was in when it was written.
    target: Option<ContainerRid>,
}

/// All resources, by owner and kind, then by name.
pub(crate) type Resources = BTreeMap<(Owner, Kind), BTreeMap<String, Arc<Resource>>>;

/// What a permission allows.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// Where.
    pub container: ContainerRid,
    /// One resource below the container, as the permission's link names it: (`docs`, id).
    pub child: Option<(String, String)>,
    /// Whether more than reading is allowed.
    pub write: bool,
    /// Only what has this partition key, or a prefix of one.
    pub partition_key: Option<PartitionKey>,
}

impl Resource {
    /// Its `_rid`.
    pub fn rid(&self) -> String {
        let number = u64::from(self.number);
        let child = |container, kind| ChildRid { container, kind, number }.to_string();
        match (self.kind, self.owner) {
            (Kind::Permission, Owner::User(database, user)) => {
                UnderDatabase::Permission { database, user, number: self.number }.to_string()
            }
            (Kind::EncryptionKey, Owner::Database(database)) => {
                UnderDatabase::EncryptionKey { database, number: self.number }.to_string()
            }
            (Kind::Procedure, Owner::Container(container)) => {
                child(container, ChildKind::Procedure)
            }
            (Kind::Trigger, Owner::Container(container)) => child(container, ChildKind::Trigger),
            (Kind::Function, Owner::Container(container)) => child(container, ChildKind::Udf),
            (_, Owner::Database(database) | Owner::User(database, _)) => {
                UnderDatabase::User { database, number: self.number }.to_string()
            }
            (_, Owner::Container(container)) => child(container, ChildKind::Procedure),
        }
    }

    /// Its `_self` link.
    pub fn self_link(&self) -> String {
        format!("{}{}/{}/", self.owner.self_link(), self.kind.word(), self.rid())
    }

    /// As the wire shows it, system properties included; a permission without its token.
    pub fn to_json(&self) -> Value {
        let names = (&*self.rid(), &*self.self_link());
        let mut json = with_system_properties(self.json.clone(), names, self.etag, self.ts);
        if self.kind == Kind::User {
            json["_permissions"] = "permissions/".into();
        }
        json
    }

    /// A property's text, empty if it has none.
    pub fn text(&self, name: &str) -> &str {
        self.json.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// What a permission allows; `None` if the resource it names was not there when it was written.
    pub fn grant(&self) -> Option<Grant> {
        let container = self.target?;
        let child = match link_parts(self.text("resource")).get(4..) {
            Some([kind, id]) => Some(((*kind).to_owned(), (*id).to_owned())),
            _ => None,
        };
        let partition_key = match self.json.get("resourcePartitionKey") {
            None | Some(Value::Null) => None,
            Some(key) => Some(PartitionKey::parse(&key.to_string()).ok()?),
        };
        let write = self.text("permissionMode").eq_ignore_ascii_case("All");
        Some(Grant { container, child, write, partition_key })
    }

    pub(crate) fn encode(&self) -> Value {
        let (database, within) = match self.owner {
            Owner::Database(database) => (database, 0),
            Owner::User(database, user) => (database, user),
            Owner::Container(container) => (container.database, container.number),
        };
        json!({
            "kind": self.kind.word(),
            "database": database.0,
            "within": within,
            "json": self.json,
            "target": self.target.map(|target| target.to_string()),
            "lsn": self.etag.lsn,
            "ts": self.ts.0,
        })
    }

    pub(crate) fn decode(number: u32, row: &Value) -> Option<Self> {
        let kind = Kind::parse(row["kind"].as_str()?)?;
        let database = DatabaseRid(row["database"].as_u64()? as u32);
        let within = row["within"].as_u64()? as u32;
        let owner = match kind {
            Kind::User | Kind::EncryptionKey => Owner::Database(database),
            Kind::Permission => Owner::User(database, within),
            Kind::Procedure | Kind::Trigger | Kind::Function => {
                Owner::Container(ContainerRid { database, number: within })
            }
        };
        let json = row["json"].as_object()?.clone();
        let ts = Timestamp(row["ts"].as_u64()?);
        Some(Self {
            kind,
            id: json.get("id")?.as_str()?.to_owned(),
            number,
            etag: Etag { lsn: row["lsn"].as_u64()?, seq: 0, ts },
            ts,
            owner,
            json,
            target: row["target"].as_str().and_then(ContainerRid::parse),
        })
    }
}

impl Owner {
    fn self_link(self) -> String {
        match self {
            Self::Database(database) => format!("dbs/{database}/"),
            Self::User(database, number) => {
                format!("dbs/{database}/users/{}/", UnderDatabase::User { database, number })
            }
            Self::Container(container) => format!("dbs/{}/colls/{container}/", container.database),
        }
    }

    /// The rid that a feed of its resources names.
    fn rid(self) -> String {
        match self {
            Self::Database(database) => database.to_string(),
            Self::User(database, number) => UnderDatabase::User { database, number }.to_string(),
            Self::Container(container) => container.to_string(),
        }
    }
}

impl Db {
    /// All resources of a kind, oldest first, and the rid of their owner.
    pub fn resources(
        &self,
        Place { parent, kind }: Place<'_>,
    ) -> Result<(String, Vec<Arc<Resource>>)> {
        let catalog = self.catalog.load();
        let owner = catalog.owner(parent)?;
        let mut all: Vec<_> = catalog
            .resources
            .get(&(owner, kind))
            .map(|all| all.values().cloned().collect())
            .unwrap_or_default();
        all.sort_by_key(|resource: &Arc<Resource>| resource.number);
        Ok((owner.rid(), all))
    }

    /// One resource, by name or rid.
    pub fn resource(&self, Place { parent, kind }: Place<'_>, id: &str) -> Result<Arc<Resource>> {
        let catalog = self.catalog.load();
        catalog.resource(catalog.owner(parent)?, kind, id).cloned().ok_or(Error::NotFound)
    }

    /// A permission by its rid alone.
    pub fn permission(&self, rid: &str) -> Option<Arc<Resource>> {
        let (database, user, number) = UnderDatabase::parse_permission(rid)?;
        let catalog = self.catalog.load();
        let all = catalog.resources.get(&(Owner::User(database, user), Kind::Permission))?;
        all.values().find(|permission| permission.number == number).cloned()
    }

    /// Creates a resource; with `upsert`, replaces the one of this name. Says whether it is new.
    pub async fn create_resource(
        &self,
        Place { parent, kind }: Place<'_>,
        body: &Value,
        upsert: bool,
    ) -> Result<(bool, Arc<Resource>)> {
        let json = definition(kind, body)?;
        let id = resource_id(&json)?;
        let mut change = self.change_catalog().await?;
        let owner = change.catalog.owner(parent)?;
        let old = change.catalog.resource(owner, kind, &id).cloned();
        match &old {
            Some(_) if !upsert => return Err(Error::Exists),
            Some(_) if is_script(kind) => {
                return Err(invalid("Upsert of a script is not supported: replace it."));
            }
            _ => {}
        }
        let count = change.catalog.resources.get(&(owner, kind)).map_or(0, BTreeMap::len);
        if old.is_none() && count >= kind.count_max() {
            return Err(invalid(format!(
                "There can be at most {} {} here: delete some before creating more.",
                kind.count_max(),
                kind.word()
            )));
        }
        let resource = change.write_resource(owner, kind, json, old.as_deref())?;
        change.commit().await?;
        Ok((old.is_none(), resource))
    }

    /// Replaces a resource; users and permissions may get another name.
    pub async fn replace_resource(
        &self,
        Place { parent, kind }: Place<'_>,
        id: &str,
        body: &Value,
        if_match: Option<&str>,
    ) -> Result<Arc<Resource>> {
        let json = definition(kind, body)?;
        let new_id = resource_id(&json)?;
        let mut change = self.change_catalog().await?;
        let owner = change.catalog.owner(parent)?;
        let old = change.catalog.resource(owner, kind, id).cloned().ok_or(Error::NotFound)?;
        check_version(old.etag, if_match)?;
        if new_id != old.id {
            if !matches!(kind, Kind::User | Kind::Permission) {
                return Err(invalid("The id cannot be changed by a replace."));
            }
            if change.catalog.resource(owner, kind, &new_id).is_some() {
                return Err(Error::Exists);
            }
        }
        let resource = change.write_resource(owner, kind, json, Some(&old))?;
        change.commit().await?;
        Ok(resource)
    }

    /// Deletes a resource; a user with all its permissions.
    pub async fn delete_resource(
        &self,
        Place { parent, kind }: Place<'_>,
        id: &str,
        if_match: Option<&str>,
    ) -> Result<()> {
        let mut change = self.change_catalog().await?;
        let owner = change.catalog.owner(parent)?;
        let old = change.catalog.resource(owner, kind, id).cloned().ok_or(Error::NotFound)?;
        check_version(old.etag, if_match)?;
        if let (Kind::User, Owner::Database(database)) = (kind, owner) {
            change.drop_resources(|owner| owner == Owner::User(database, old.number));
        }
        change.delete(Key::Resource(old.number));
        if let Some(all) = change.catalog.resources.get_mut(&(owner, kind)) {
            all.remove(&old.id);
        }
        change.commit().await
    }
}

impl Catalog {
    /// The numbers of an owner. `OwnerNotFound` if it is not there.
    fn owner(&self, parent: Parent<'_>) -> Result<Owner> {
        let found = match parent {
            Parent::Database(database) => {
                self.entry(database).map(|entry| Owner::Database(entry.database.rid))
            }
            Parent::User(database, user) => self.entry(database).and_then(|entry| {
                let database = entry.database.rid;
                let user = self.resource(Owner::Database(database), Kind::User, user)?;
                Some(Owner::User(database, user.number))
            }),
            Parent::Container(database, container) => self
                .entry(database)
                .and_then(|entry| Some(Owner::Container(entry.container(container)?.rid))),
        };
        found.ok_or(Error::OwnerNotFound)
    }

    /// A resource by name, or by rid.
    fn resource(&self, owner: Owner, kind: Kind, id: &str) -> Option<&Arc<Resource>> {
        let all = self.resources.get(&(owner, kind))?;
        all.get(id).or_else(|| all.values().find(|resource| resource.rid() == id))
    }

    /// The container of a permission's resource.
    fn target(&self, link: &str) -> Option<ContainerRid> {
        match link_parts(link)[..] {
            ["dbs", database, "colls", container, ..] => {
                Some(self.entry(database)?.container(container)?.rid)
            }
            _ => None,
        }
    }
}

impl Change<'_> {
    fn write_resource(
        &mut self,
        owner: Owner,
        kind: Kind,
        json: Map<String, Value>,
        old: Option<&Resource>,
    ) -> Result<Arc<Resource>> {
        let link = json.get("resource").and_then(Value::as_str).unwrap_or_default();
        let target = self.catalog.target(link).filter(|_| kind == Kind::Permission);
        let all = self.catalog.resources.entry((owner, kind)).or_default();
        if kind == Kind::Permission {
            let key = json.get("resourcePartitionKey");
            let same = |other: &&Arc<Resource>| {
                Some(other.number) != old.map(|old| old.number)
                    && link_parts(other.text("resource")) == link_parts(link)
                    && other.json.get("resourcePartitionKey") == key
            };
            // A user has one permission a resource.
            if all.values().find(same).is_some() {
                return Err(Error::Exists);
            }
        }
        if let Some(old) = old {
            all.remove(&old.id);
        }
        let (etag, ts) = self.stamp();
        let number = old.map_or(etag.lsn as u32 & 0x7FFF_FFFF, |old| old.number);
        let id = resource_id(&json)?;
        let resource = Arc::new(Resource { kind, id, number, etag, ts, owner, json, target });
        self.put(Key::Resource(number), &resource.encode());
        self.catalog
            .resources
            .entry((owner, kind))
            .or_default()
            .insert(resource.id.clone(), resource.clone());
        Ok(resource)
    }

    /// Takes out all resources of the owners that `gone` names.
    pub(crate) fn drop_resources(&mut self, gone: impl Fn(Owner) -> bool) {
        let mut rows = Vec::new();
        self.catalog.resources.retain(|(owner, _), all| {
            let stays = !gone(*owner);
            if !stays {
                rows.extend(all.values().map(|resource| resource.number));
            }
            stays
        });
        for number in rows {
            self.delete(Key::Resource(number));
        }
    }
}

impl Owner {
    /// Whether it is a database or something in it.
    pub(crate) fn is_in(self, database: DatabaseRid) -> bool {
        match self {
            Self::Database(own) | Self::User(own, _) => own == database,
            Self::Container(container) => container.database == database,
        }
    }
}

fn is_script(kind: Kind) -> bool {
    matches!(kind, Kind::Procedure | Kind::Trigger | Kind::Function)
}

/// The parts of a link, without empty ones.
fn link_parts(link: &str) -> Vec<&str> {
    link.split('/').filter(|part| !part.is_empty()).collect()
}

/// What is kept of a definition, after a look at whether it is one.
fn definition(kind: Kind, body: &Value) -> Result<Map<String, Value>> {
    let body = body.as_object().ok_or_else(|| invalid("One of the specified inputs is invalid"))?;
    let mut json = Map::new();
    json.insert("id".into(), resource_id(body)?.into());
    let mut keep = |name: &str| {
        if let Some(value) = body.get(name) {
            json.insert(name.into(), value.clone());
        }
    };
    match kind {
        Kind::User => {}
        Kind::Permission => {
            let mode = required(body, "permissionMode")?;
            if !["All", "Read"].iter().any(|known| known.eq_ignore_ascii_case(mode)) {
                return Err(invalid(format!(
                    "The permission mode '{mode}' is invalid: it must be 'All' or 'Read'."
                )));
            }
            let resource = required(body, "resource")?;
            if !matches!(
                link_parts(resource)[..],
                ["dbs", _, "colls", _]
                    | [
                        "dbs",
                        _,
                        "colls",
                        _,
                        "docs" | "sprocs" | "triggers" | "udfs" | "conflicts",
                        _
                    ]
            ) {
                return Err(invalid(format!(
                    "The permission's resource '{resource}' is invalid: it must be the link of a container \
                     (dbs/d/colls/c) or of an item or script in one."
                )));
            }
            if let Some(key) = body.get("resourcePartitionKey").filter(|key| !key.is_null())
                && PartitionKey::parse(&key.to_string()).is_err()
            {
                return Err(invalid(format!("Partition key {key} is invalid.")));
            }
            ["permissionMode", "resource", "resourcePartitionKey"].into_iter().for_each(&mut keep);
        }
        Kind::EncryptionKey => {
            required(body, "encryptionAlgorithm")?;
            required(body, "wrappedDataEncryptionKey")?;
            if !body.get("keyWrapMetadata").is_some_and(Value::is_object) {
                return Err(missing("keyWrapMetadata"));
            }
            ["encryptionAlgorithm", "wrappedDataEncryptionKey", "keyWrapMetadata"]
                .into_iter()
                .for_each(&mut keep);
        }
        Kind::Procedure | Kind::Function => {
            check_script(required(body, "body")?)?;
            keep("body");
        }
        Kind::Trigger => {
            check_script(required(body, "body")?)?;
            let one_of = |name: &str, allowed: &[&str]| {
                let value = required(body, name)?;
                match allowed.iter().any(|known| known.eq_ignore_ascii_case(value)) {
                    true => Ok(()),
                    false => Err(invalid(format!(
                        "The {name} '{value}' is invalid: it must be one of {}.",
                        allowed.join(", ")
                    ))),
                }
            };
            one_of("triggerType", &["Pre", "Post"])?;
            one_of("triggerOperation", &["All", "Create", "Update", "Delete", "Replace"])?;
            ["body", "triggerType", "triggerOperation"].into_iter().for_each(&mut keep);
        }
    }
    Ok(json)
}

fn check_script(body: &str) -> Result<()> {
    match body.len() <= SCRIPT_BYTES_MAX {
        true => Ok(()),
        false => Err(Error::TooLarge(format!(
            "The script is too large: the most is {SCRIPT_BYTES_MAX} bytes."
        ))),
    }
}

fn required<'a>(body: &'a Map<String, Value>, name: &str) -> Result<&'a str> {
    match body.get(name) {
        None | Some(Value::Null) => Err(missing(name)),
        Some(Value::String(text)) if text.is_empty() => Err(missing(name)),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(invalid(format!(
            "One of the specified inputs is invalid: '{name}' must be a string."
        ))),
    }
}

fn missing(name: &str) -> Error {
    invalid(format!(
        "The input content is invalid because the required properties - '{name}; ' - are missing"
    ))
}

fn invalid(text: impl Into<String>) -> Error {
    Error::Invalid(text.into())
}
