//! Patches: up to ten changes to one item, all or none.

use model::path::Path;
use serde_json::{Number, Value};

use crate::index::is_system_property;
use crate::{Error, Result, Settings};

/// The most operations in a patch.
const OPERATIONS_MAX: usize = 10;

/// A list of changes and the condition under which they are made.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    operations: Vec<Operation>,
    /// `from c where …`
    pub condition: Option<String>,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
struct Operation {
    change: Change,
    path: Pointer,
}

#[derive(Clone, Debug, PartialEq)]
enum Change {
    Add(Value),
    Set(Value),
    Replace(Value),
    Remove,
    Increment(Number),
    Move(Pointer),
}

/// A JSON pointer: `/a/0/b~1c`.
#[derive(Clone, Debug, PartialEq)]
struct Pointer {
    text: String,
    tokens: Vec<String>,
}

impl Patch {
    /// Reads a patch as clients send it: `{"operations": […], "condition": …}`, or the bare list.
    pub fn parse(body: &Value, settings: &Settings) -> Result<Self> {
        let (list, condition) = match body {
            Value::Array(list) => (list, None),
            Value::Object(object) => {
                let list =
                    object.get("operations").and_then(Value::as_array).ok_or_else(bad_syntax)?;
                let condition = match object.get("condition") {
                    None | Some(Value::Null) => None,
                    Some(Value::String(text)) => Some(text.clone()),
                    Some(_) => return Err(bad_syntax()),
                };
                (list, condition)
            }
            _ => return Err(bad_syntax()),
        };
        if list.is_empty() {
            return Err(bad_syntax());
        }
        if list.len() > OPERATIONS_MAX {
            return Err(invalid(format!(
                "The number of patch operations can't exceed {OPERATIONS_MAX}."
            )));
        }
        let operations = list.iter().map(Operation::parse).collect::<Result<Vec<_>>>()?;
        for operation in &operations {
            operation.check_target(settings)?;
        }
        Ok(Self { operations, condition })
    }

    /// Makes the changes, or says which one cannot be made; `item` is then to be thrown away.
    pub fn apply(&self, item: &mut Value) -> Result<()> {
        for (number, operation) in self.operations.iter().enumerate() {
            operation
                .apply(item)
                .map_err(|why| invalid(format!("For Operation({}): {why}", number + 1)))?;
        }
        Ok(())
    }
}

impl Operation {
    fn parse(value: &Value) -> Result<Self> {
        let object = value.as_object().ok_or_else(bad_syntax)?;
        let text = |name: &str| object.get(name).and_then(Value::as_str).ok_or_else(bad_syntax);
        let value = || object.get("value").cloned().ok_or_else(bad_syntax);
        let change = match text("op")?.to_ascii_lowercase().as_str() {
            "add" => Change::Add(value()?),
            "set" => Change::Set(value()?),
            "replace" => Change::Replace(value()?),
            "remove" => Change::Remove,
            "incr" | "increment" => match value()? {
                Value::Number(number) => Change::Increment(number),
                _ => return Err(bad_syntax()),
            },
            "move" => Change::Move(Pointer::parse(text("from")?)?),
            _ => return Err(bad_syntax()),
        };
        Ok(Self { change, path: Pointer::parse(text("path")?)? })
    }

    /// Refuses to change what identifies an item.
    fn check_target(&self, settings: &Settings) -> Result<()> {
        let from = match &self.change {
            Change::Move(from) => Some(from),
            _ => None,
        };
        for pointer in [Some(&self.path), from].into_iter().flatten() {
            let root = &pointer.tokens[0];
            if root == "id" || is_system_property(root) {
                return Err(invalid(format!(
                    "Invalid patch request: Cannot patch system property {root}."
                )));
            }
            let holds = |path: &Path| {
                let shared = path.segments().len().min(pointer.tokens.len());
                path.segments()[..shared] == pointer.tokens[..shared]
            };
            if settings.partition_key.paths.iter().any(holds) {
                return Err(invalid(format!(
                    "Invalid patch request: Cannot patch the partition key path {}.",
                    pointer.text
                )));
            }
        }
        Ok(())
    }

    fn apply(&self, item: &mut Value) -> std::result::Result<(), String> {
        match &self.change {
            Change::Add(value) => insert(item, &self.path, value.clone(), Insertion::Add),
            Change::Set(value) => insert(item, &self.path, value.clone(), Insertion::Set),
            Change::Replace(value) => match find(item, &self.path) {
                Some(place) => {
                    *place = value.clone();
                    Ok(())
                }
                None => Err(absent(&self.path, "replaced")),
            },
            Change::Remove => remove(item, &self.path).map(drop),
            Change::Increment(by) => match find(item, &self.path) {
                Some(Value::Number(number)) => {
                    *number = sum(number, by).ok_or("The sum is not a number.")?;
                    Ok(())
                }
                Some(_) => {
                    Err(format!("Node({}) to be incremented is not a number.", self.path.text))
                }
                None => insert(item, &self.path, Value::Number(by.clone()), Insertion::Set),
            },
            Change::Move(from) => {
                if self.path.tokens.starts_with(&from.tokens) && self.path != *from {
                    return Err(format!("Node({}) cannot be moved into itself.", from.text));
                }
                let value = remove(item, from)?;
                insert(item, &self.path, value, Insertion::Add)
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Insertion {
    /// Into an array: before the element that is there.
    Add,
    /// Into an array: over the element that is there.
    Set,
}

impl Pointer {
    fn parse(text: &str) -> Result<Self> {
        let rest = text.strip_prefix('/').filter(|rest| !rest.is_empty()).ok_or_else(bad_syntax)?;
        let tokens = rest.split('/').map(|token| token.replace("~1", "/").replace("~0", "~"));
        Ok(Self { text: text.to_owned(), tokens: tokens.collect() })
    }

    fn parent(&self) -> (&[String], &str) {
        let (last, parents) = self.tokens.split_last().expect("a pointer has at least one token");
        (parents, last)
    }
}

fn find<'v>(item: &'v mut Value, pointer: &Pointer) -> Option<&'v mut Value> {
    pointer.tokens.iter().try_fold(item, step)
}

fn step<'v>(value: &'v mut Value, token: &String) -> Option<&'v mut Value> {
    match value {
        Value::Object(members) => members.get_mut(token),
        Value::Array(elements) => elements.get_mut(index(token)?),
        _ => None,
    }
}

/// An array index: digits without leading zeros.
fn index(token: &str) -> Option<usize> {
    let plain = token == "0" || !token.starts_with(['0', '+']);
    token.parse().ok().filter(|_| plain)
}

fn insert(
    item: &mut Value,
    pointer: &Pointer,
    value: Value,
    how: Insertion,
) -> std::result::Result<(), String> {
    let (parents, last) = pointer.parent();
    let parent = parents.iter().try_fold(item, step);
    match parent {
        Some(Value::Object(members)) => {
            members.insert(last.to_owned(), value);
            Ok(())
        }
        Some(Value::Array(elements)) => {
            let at = if last == "-" { Some(elements.len()) } else { index(last) };
            match at {
                Some(at) if how == Insertion::Set && at < elements.len() => elements[at] = value,
                Some(at) if at <= elements.len() => elements.insert(at, value),
                _ => return Err(format!("Index({last}) to operate on is out of array bounds.")),
            }
            Ok(())
        }
        _ => Err(format!(
            "Add Operation only support adding a leaf node of an existing node(array or object), no \
                          path found beyond: '{}'",
            pointer.text
        )),
    }
}

fn remove(item: &mut Value, pointer: &Pointer) -> std::result::Result<Value, String> {
    let (parents, last) = pointer.parent();
    match parents.iter().try_fold(item, step) {
        Some(Value::Object(members)) => members.shift_remove(last),
        Some(Value::Array(elements)) => match index(last) {
            Some(at) if at < elements.len() => Some(elements.remove(at)),
            _ => return Err(format!("Index({last}) to operate on is out of array bounds.")),
        },
        _ => None,
    }
    .ok_or_else(|| {
        format!(
            "{} Note: it might also have been removed earlier in the transaction.",
            absent(pointer, "removed")
        )
    })
}

fn absent(pointer: &Pointer, what: &str) -> String {
    format!("Node({}) to be {what} is absent.", pointer.text)
}

/// Whole numbers stay whole as long as they fit.
fn sum(a: &Number, b: &Number) -> Option<Number> {
    let whole = a.as_i64().zip(b.as_i64()).and_then(|(a, b)| a.checked_add(b));
    whole.map(Number::from).or_else(|| Number::from_f64(a.as_f64()? + b.as_f64()?))
}

fn bad_syntax() -> Error {
    invalid("Invalid patch request: check syntax of patch specification.")
}

fn invalid(text: impl Into<String>) -> Error {
    Error::Invalid(text.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(item: Value, operations: Value) -> std::result::Result<Value, String> {
        let definition = json!({"id": "c", "partitionKey": {"paths": ["/pk"], "version": 2}});
        let settings = Settings::parse(&definition).unwrap();
        let patch = Patch::parse(&operations, &settings).map_err(|error| error.to_string())?;
        let mut item = item;
        patch.apply(&mut item).map_err(|error| error.to_string())?;
        Ok(item)
    }

    #[test]
    fn every_operation_on_members_and_elements() {
        let item = json!({"id": "1", "a": 1, "list": [1, 2], "deep": {"x": "y"}});
        for (operation, path, expected) in [
            (json!({"op": "add", "path": "/b", "value": 2}), "/b", json!(2)),
            (json!({"op": "add", "path": "/list/1", "value": 9}), "/list", json!([1, 9, 2])),
            (json!({"op": "add", "path": "/list/-", "value": 9}), "/list", json!([1, 2, 9])),
            (json!({"op": "add", "path": "/list/2", "value": 9}), "/list", json!([1, 2, 9])),
            (json!({"op": "set", "path": "/list/0", "value": 9}), "/list", json!([9, 2])),
            (
                json!({"op": "set", "path": "/deep/z", "value": null}),
                "/deep",
                json!({"x": "y", "z": null}),
            ),
            (json!({"op": "replace", "path": "/a", "value": "n"}), "/a", json!("n")),
            (json!({"op": "remove", "path": "/list/0"}), "/list", json!([2])),
            (json!({"op": "incr", "path": "/a", "value": 4}), "/a", json!(5)),
            (json!({"op": "incr", "path": "/a", "value": -0.5}), "/a", json!(0.5)),
            (json!({"op": "incr", "path": "/new", "value": 4}), "/new", json!(4)),
            (json!({"op": "move", "from": "/deep/x", "path": "/a"}), "/a", json!("y")),
            (json!({"op": "add", "path": "/a~1b~0c", "value": 1}), "/a~1b~0c", json!(1)),
        ] {
            let patched = run(item.clone(), json!([operation])).unwrap();
            assert_eq!(patched.pointer(path), Some(&expected), "{operation}");
        }
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_its_number() {
        let item = json!({"id": "1", "pk": "p", "a": "text", "list": [1]});
        for (operations, part) in [
            (
                json!([{"op": "replace", "path": "/none", "value": 1}]),
                "For Operation(1): Node(/none) to be replaced is absent.",
            ),
            (json!([{"op": "remove", "path": "/none"}]), "Node(/none) to be removed is absent."),
            (
                json!([{"op": "add", "path": "/list/5", "value": 1}]),
                "Index(5) to operate on is out of array bounds.",
            ),
            (json!([{"op": "incr", "path": "/a", "value": 1}]), "is not a number"),
            (json!([{"op": "incr", "path": "/a", "value": "1"}]), "check syntax"),
            (json!([{"op": "set", "path": "/id", "value": 1}]), "Cannot patch system property id."),
            (
                json!([{"op": "set", "path": "/_ts", "value": 1}]),
                "Cannot patch system property _ts.",
            ),
            (json!([{"op": "set", "path": "/pk", "value": 1}]), "partition key"),
            (json!([{"op": "move", "from": "/list", "path": "/list/0"}]), "into itself"),
            (json!([]), "check syntax"),
            (json!({"operations": 5}), "check syntax"),
            (json!("text"), "check syntax"),
            (json!(vec![json!({"op": "set", "path": "/x", "value": 1}); 11]), "can't exceed 10"),
        ] {
            let refused = run(item.clone(), operations.clone()).unwrap_err();
            assert!(refused.contains(part), "{operations}: {refused}");
        }
    }
}
