//! Reading expressions.

use bson::{Bson, Document};

use super::{FUNCTIONS, Function, NAMED, NamedFunction, Node};
use crate::language::failure::{Failure, Result};
use crate::language::value::shown;
use crate::language::vars::Vars;

/// Reads expressions and knows which variables are bound where they stand.
pub(crate) struct Parser<'v> {
    vars: &'v Vars,
    names: Vec<String>,
}

/// Variables that are always there.
const SYSTEM: [&str; 9] =
    ["NOW", "ROOT", "CURRENT", "REMOVE", "CLUSTER_TIME", "KEEP", "PRUNE", "DESCEND", "USER_ROLES"];

impl<'v> Parser<'v> {
    pub fn new(vars: &'v Vars) -> Self {
        Self { vars, names: Vec::new() }
    }

    /// Makes variables known.
    pub fn bind(&mut self, names: &[&str]) {
        self.names.extend(names.iter().map(|name| (*name).to_owned()));
    }

    /// Any value where an expression may stand.
    pub fn node(&mut self, value: &Bson) -> Result<Node> {
        match value {
            Bson::String(text) if text.starts_with('$') => self.path(text),
            Bson::Document(document) => match document.iter().next() {
                Some((name, argument)) if name.starts_with('$') => {
                    if document.len() > 1 {
                        return Err(Failure::coded(
                            15983,
                            format!(
                                "an object representing an expression must have exactly one field: {}",
                                shown(value)
                            ),
                        ));
                    }
                    self.operator(name, argument)
                }
                _ => self.object(document),
            },
            Bson::Array(items) => {
                let nodes = items.iter().map(|item| self.node(item)).collect::<Result<Vec<_>>>()?;
                Ok(Node::Array(nodes))
            }
            other => Ok(Node::Constant(other.clone())),
        }
    }

    fn object(&mut self, document: &Document) -> Result<Node> {
        let mut fields = Vec::with_capacity(document.len());
        for (name, value) in document {
            if name.starts_with('$') {
                return Err(Failure::coded(
                    16410,
                    format!(
                        "FieldPath field names may not start with '$'. Consider using $getField or $setField. Field: {name}"
                    ),
                ));
            }
            if name.contains('.') {
                return Err(Failure::coded(
                    16412,
                    format!(
                        "FieldPath field names may not contain '.'. Consider using $getField or $setField. Field: {name}"
                    ),
                ));
            }
            fields.push((name.clone(), self.node(value)?));
        }
        Ok(Node::Object(fields))
    }

    /// `$a.b` or `$$x.a.b`.
    fn path(&self, text: &str) -> Result<Node> {
        let Some(variable) = text.strip_prefix("$$") else {
            return Ok(Node::Field(steps(&text[1..])?));
        };
        let (name, rest) = match variable.split_once('.') {
            Some((name, rest)) => (name, steps(rest)?),
            None => (variable, Vec::new()),
        };
        if name.is_empty() {
            return Err(Failure::failed_to_parse("empty variable names are not allowed"));
        }
        if name == "ROOT" {
            return Ok(Node::Root(rest));
        }
        if name == "CURRENT" && !rest.is_empty() {
            return Ok(Node::Field(rest));
        }
        let known = SYSTEM.contains(&name)
            || self.names.iter().any(|known| known == name)
            || self.vars.variables.contains_key(name);
        if !known {
            return Err(Failure::coded(17276, format!("Use of undefined variable: {name}")));
        }
        Ok(Node::Variable(name.to_owned(), rest))
    }

    fn operator(&mut self, name: &str, argument: &Bson) -> Result<Node> {
        match name {
            "$literal" | "$const" => return Ok(Node::Constant(argument.clone())),
            "$and" => return Ok(Node::And(self.arguments(argument)?)),
            "$or" => return Ok(Node::Or(self.arguments(argument)?)),
            "$cond" => return self.condition(argument),
            "$ifNull" => {
                let nodes = self.arguments(argument)?;
                if nodes.len() < 2 {
                    return Err(Failure::coded(
                        1257300,
                        format!("$ifNull needs at least two arguments, had: {}", nodes.len()),
                    ));
                }
                return Ok(Node::IfNull(nodes));
            }
            "$switch" => return self.switch(argument),
            "$let" => return self.bindings(argument),
            "$map" => return self.map(argument),
            "$filter" => return self.filter(argument),
            "$reduce" => return self.reduce(argument),
            "$sampleRate" => {}
            "$accumulator" => {
                return Err(Failure::coded(
                    115,
                    "$accumulator is not supported: there is no server-side JavaScript",
                ));
            }
            "$meta" => return Err(Failure::no_scores()),
            _ => {}
        }
        if let Some(function) = FUNCTIONS.iter().copied().flatten().find(|each| each.name == name) {
            return self.call(function, argument);
        }
        // Some date parts take either a date or named arguments.
        if let Some(function) = NAMED.iter().copied().flatten().find(|each| each.name == name) {
            return self.named(function, argument);
        }
        Err(Failure::coded(168, format!("Unrecognized expression '{name}'")))
    }

    fn call(&mut self, function: &'static Function, argument: &Bson) -> Result<Node> {
        let nodes = match argument {
            // What takes nothing is written with an empty document.
            Bson::Document(empty) if function.max == 0 && empty.is_empty() => Vec::new(),
            argument => self.arguments(argument)?,
        };
        let Function { name, min, max, .. } = *function;
        // An accumulator in an array takes the array's elements; of one argument it takes that.
        if nodes.len() < min || nodes.len() > max {
            return Err(if min == max {
                Failure::coded(
                    16020,
                    format!(
                        "Expression {name} takes exactly {min} arguments. {} were passed in.",
                        nodes.len()
                    ),
                )
            } else {
                Failure::coded(
                    28667,
                    format!(
                        "Expression {name} takes at least {min} arguments, and at most {max}, but {} were passed in.",
                        nodes.len()
                    ),
                )
            });
        }
        Ok(Node::Call(function, nodes))
    }

    fn named(&mut self, function: &'static NamedFunction, argument: &Bson) -> Result<Node> {
        let mut nodes: Vec<Option<Node>> = vec![None; function.names.len()];
        let single = super::date::is_part(function.name) || function.name == "$getField";
        match argument {
            Bson::Document(document)
                if !document.keys().next().is_some_and(|first| first.starts_with('$')) =>
            {
                for (name, value) in document {
                    let at =
                        function.names.iter().position(|known| known == name).ok_or_else(|| {
                            Failure::coded(
                                unknown_argument(function.name),
                                format!("{} found an unknown argument: {name}", function.name),
                            )
                        })?;
                    nodes[at] = Some(self.node(value)?);
                }
            }
            Bson::Array(items) if single => match &items[..] {
                [one] => nodes[0] = Some(self.node(one)?),
                _ => {
                    return Err(Failure::coded(
                        40536,
                        format!(
                            "{} accepts exactly one argument if given an array, but was given {}",
                            function.name,
                            items.len()
                        ),
                    ));
                }
            },
            other if single => nodes[0] = Some(self.node(other)?),
            other => {
                return Err(Failure::coded(
                    unknown_argument(function.name),
                    format!(
                        "{} only supports an object as an argument, found {}",
                        function.name,
                        super::eval::kind(other)
                    ),
                ));
            }
        }
        for (at, name) in function.names.iter().enumerate().take(function.required) {
            if nodes[at].is_none() {
                return Err(Failure::coded(
                    missing_argument(function.name),
                    format!("Missing '{name}' parameter to {}", function.name),
                ));
            }
        }
        Ok(Node::Named(function, nodes))
    }

    /// The arguments: an array's elements, or the one value.
    fn arguments(&mut self, argument: &Bson) -> Result<Vec<Node>> {
        match argument {
            Bson::Array(items) => items.iter().map(|item| self.node(item)).collect(),
            other => Ok(vec![self.node(other)?]),
        }
    }

    fn condition(&mut self, argument: &Bson) -> Result<Node> {
        match argument {
            Bson::Array(items) => match &items[..] {
                [condition, yes, no] => Ok(Node::Condition(Box::new([
                    self.node(condition)?,
                    self.node(yes)?,
                    self.node(no)?,
                ]))),
                _ => Err(Failure::coded(
                    16020,
                    format!(
                        "Expression $cond takes exactly 3 arguments. {} were passed in.",
                        items.len()
                    ),
                )),
            },
            Bson::Document(document) => {
                let mut part = |name: &str, code: i32| match document.get(name) {
                    Some(value) => self.node(value),
                    None => {
                        Err(Failure::coded(code, format!("Missing '{name}' parameter to $cond")))
                    }
                };
                let nodes = [part("if", 17080)?, part("then", 17081)?, part("else", 17082)?];
                if let Some(other) =
                    document.keys().find(|name| !matches!(name.as_str(), "if" | "then" | "else"))
                {
                    return Err(Failure::coded(
                        17083,
                        format!("Unrecognized parameter to $cond: {other}"),
                    ));
                }
                Ok(Node::Condition(Box::new(nodes)))
            }
            _ => Err(Failure::coded(
                16020,
                "Expression $cond takes exactly 3 arguments. 1 were passed in.",
            )),
        }
    }

    fn switch(&mut self, argument: &Bson) -> Result<Node> {
        let Bson::Document(spec) = argument else {
            return Err(Failure::coded(
                40060,
                format!(
                    "$switch requires an object as an argument, found: {}",
                    super::eval::kind(argument)
                ),
            ));
        };
        let mut branches = Vec::new();
        let mut default = None;
        for (name, value) in spec {
            match (name.as_str(), value) {
                ("branches", Bson::Array(items)) => {
                    for item in items {
                        let Bson::Document(branch) = item else {
                            return Err(Failure::coded(
                                40062,
                                format!(
                                    "$switch requires each branch to be an object, found: {}",
                                    super::eval::kind(item)
                                ),
                            ));
                        };
                        let case = branch.get("case").ok_or_else(|| {
                            Failure::coded(
                                40064,
                                "$switch requires each branch have a 'case' expression",
                            )
                        })?;
                        let then = branch.get("then").ok_or_else(|| {
                            Failure::coded(
                                40065,
                                "$switch requires each branch have a 'then' expression.",
                            )
                        })?;
                        branches.push((self.node(case)?, self.node(then)?));
                    }
                }
                ("branches", other) => {
                    return Err(Failure::coded(
                        40061,
                        format!(
                            "$switch expected an array for 'branches', found: {}",
                            super::eval::kind(other)
                        ),
                    ));
                }
                ("default", value) => default = Some(Box::new(self.node(value)?)),
                (other, _) => {
                    return Err(Failure::coded(
                        40067,
                        format!("$switch found an unknown argument: {other}"),
                    ));
                }
            }
        }
        if branches.is_empty() {
            return Err(Failure::coded(40068, "$switch requires at least one branch."));
        }
        Ok(Node::Switch { branches, default })
    }

    fn bindings(&mut self, argument: &Bson) -> Result<Node> {
        let Bson::Document(spec) = argument else {
            return Err(Failure::coded(16874, "$let only supports an object as its argument"));
        };
        if let Some(other) = spec.keys().find(|name| !matches!(name.as_str(), "vars" | "in")) {
            return Err(Failure::coded(16875, format!("Unrecognized parameter to $let: {other}")));
        }
        let (Some(Bson::Document(vars)), Some(body)) = (spec.get("vars"), spec.get("in")) else {
            let (code, name) =
                if spec.contains_key("vars") { (16877, "in") } else { (16876, "vars") };
            return Err(Failure::coded(code, format!("Missing '{name}' parameter to $let")));
        };
        let mut variables = Vec::new();
        for (name, value) in vars {
            check_name(name)?;
            variables.push((name.clone(), self.node(value)?));
        }
        let depth = self.names.len();
        self.names.extend(variables.iter().map(|(name, _)| name.clone()));
        let body = self.node(body);
        self.names.truncate(depth);
        Ok(Node::Let { variables, body: Box::new(body?) })
    }

    fn within(&mut self, names: &[&str], body: &Bson) -> Result<Box<Node>> {
        let depth = self.names.len();
        self.bind(names);
        let body = self.node(body);
        self.names.truncate(depth);
        Ok(Box::new(body?))
    }

    fn map(&mut self, argument: &Bson) -> Result<Node> {
        let spec = spec("$map", 16878, argument, &["input", "as", "in"], 16879)?;
        let input = required(spec, "$map", "input", 16880)?;
        let body = required(spec, "$map", "in", 16882)?;
        let name = name_of(spec)?;
        Ok(Node::Map {
            input: Box::new(self.node(input)?),
            body: self.within(&[&name], body)?,
            name,
        })
    }

    fn filter(&mut self, argument: &Bson) -> Result<Node> {
        let spec = spec("$filter", 28646, argument, &["input", "as", "cond", "limit"], 28647)?;
        let input = required(spec, "$filter", "input", 28648)?;
        let condition = required(spec, "$filter", "cond", 28650)?;
        let name = name_of(spec)?;
        let limit = match spec.get("limit") {
            Some(limit) => Some(Box::new(self.node(limit)?)),
            None => None,
        };
        Ok(Node::Filter {
            input: Box::new(self.node(input)?),
            condition: self.within(&[&name], condition)?,
            name,
            limit,
        })
    }

    fn reduce(&mut self, argument: &Bson) -> Result<Node> {
        let spec = spec("$reduce", 40075, argument, &["input", "initialValue", "in"], 40076)?;
        let input = required(spec, "$reduce", "input", 40077)?;
        let initial = required(spec, "$reduce", "initialValue", 40078)?;
        let body = required(spec, "$reduce", "in", 40079)?;
        Ok(Node::Reduce {
            input: Box::new(self.node(input)?),
            initial: Box::new(self.node(initial)?),
            body: self.within(&["this", "value"], body)?,
        })
    }
}

fn unknown_argument(function: &str) -> i32 {
    match function {
        "$dateToString" => 18534,
        "$dateFromString" => 40541,
        "$dateFromParts" => 40518,
        "$dateToParts" => 40520,
        "$zip" => 34460,
        "$convert" => 9,
        "$trim" | "$ltrim" | "$rtrim" => 50694,
        "$regexMatch" | "$regexFind" | "$regexFindAll" => 31024,
        "$replaceOne" | "$replaceAll" => 51750,
        "$dateDiff" => 5166302,
        "$dateAdd" | "$dateSubtract" => 5166401,
        "$dateTrunc" => 5439008,
        "$sortArray" => 2942501,
        "$getField" => 3041701,
        "$setField" | "$unsetField" => 4161101,
        _ => 40535,
    }
}

fn missing_argument(function: &str) -> i32 {
    match function {
        "$dateToString" => 18628,
        "$dateFromString" => 40542,
        "$dateFromParts" => 40516,
        "$dateToParts" => 40522,
        "$zip" => 34465,
        "$convert" => 9,
        "$trim" | "$ltrim" | "$rtrim" => 50695,
        "$regexMatch" | "$regexFind" | "$regexFindAll" => 31022,
        "$replaceOne" | "$replaceAll" => 51749,
        "$dateDiff" => 5166303,
        "$dateAdd" | "$dateSubtract" => 5166402,
        "$dateTrunc" => 5439009,
        "$sortArray" => 2942502,
        "$getField" => 3041702,
        "$setField" | "$unsetField" => 4161102,
        _ => 40539,
    }
}

fn spec<'b>(
    operator: &str,
    not_object: i32,
    argument: &'b Bson,
    names: &[&str],
    unknown: i32,
) -> Result<&'b Document> {
    let Bson::Document(spec) = argument else {
        return Err(Failure::coded(
            not_object,
            format!("{operator} only supports an object as its argument"),
        ));
    };
    match spec.keys().find(|name| !names.contains(&name.as_str())) {
        Some(other) => {
            Err(Failure::coded(unknown, format!("Unrecognized parameter to {operator}: {other}")))
        }
        None => Ok(spec),
    }
}

fn required<'b>(spec: &'b Document, operator: &str, name: &str, code: i32) -> Result<&'b Bson> {
    spec.get(name)
        .ok_or_else(|| Failure::coded(code, format!("Missing '{name}' parameter to {operator}")))
}

fn name_of(spec: &Document) -> Result<String> {
    match spec.get("as") {
        None => Ok("this".to_owned()),
        Some(Bson::String(name)) => {
            check_name(name)?;
            Ok(name.clone())
        }
        Some(_) => Err(Failure::failed_to_parse("'as' must be a string")),
    }
}

/// The names that users may give to variables.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let Some(first) = name.chars().next() else {
        return Err(Failure::failed_to_parse("empty variable names are not allowed"));
    };
    if name == "CURRENT" {
        return Ok(());
    }
    if !first.is_ascii_lowercase() && first.is_ascii() {
        return Err(Failure::failed_to_parse(format!(
            "'{name}' starts with an invalid character for a user variable name"
        )));
    }
    match name.chars().find(|c| !(c.is_ascii_alphanumeric() || *c == '_' || !c.is_ascii())) {
        Some(other) => Err(Failure::failed_to_parse(format!(
            "'{name}' contains an invalid character for a variable name: '{other}'"
        ))),
        None => Ok(()),
    }
}

/// The steps of a field path.
fn steps(path: &str) -> Result<Vec<String>> {
    if path.is_empty() {
        return Err(Failure::coded(16872, "'$' by itself is not a valid FieldPath"));
    }
    if path.ends_with('.') {
        return Err(Failure::coded(40353, "FieldPath must not end with a '.'."));
    }
    let mut steps = Vec::new();
    for step in path.split('.') {
        if step.is_empty() {
            return Err(Failure::coded(15998, "FieldPath field names may not be empty strings."));
        }
        if step.starts_with('$') && !matches!(step, "$id" | "$ref" | "$db") {
            return Err(Failure::coded(
                16410,
                format!(
                    "FieldPath field names may not start with '$'. Consider using $getField or $setField. Field: {step}"
                ),
            ));
        }
        steps.push(step.to_owned());
    }
    Ok(steps)
}
