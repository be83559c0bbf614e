//! Rules about the source that are cheap to check: who may know whom, a comment at the top of each file, no names that say nothing.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::fs;
use std::path::{Path, PathBuf};

/// Which of our crates a crate may use.
const MAY_USE: [(&str, &[&str]); 8] = [
    ("server", &["cosmos", "mongo", "db", "storage", "model"]),
    // A front end never sees storage or another front end.
    ("cosmos", &["db", "model"]),
    ("mongo", &["db", "model"]),
    ("db", &["query", "scripts", "storage", "model"]),
    ("query", &["model"]),
    // Source in, calls out: it does not even know what an item is.
    ("scripts", &[]),
    ("storage", &[]),
    ("model", &[]),
];

/// Names that do not say what is in a file.
const EMPTY_NAMES: [&str; 8] =
    ["common", "util", "utils", "misc", "helper", "helpers", "shared", "tools"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

#[test]
fn crates_know_only_whom_they_may() {
    let mut found: Vec<String> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    let mut known: Vec<&str> = MAY_USE.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    assert_eq!(found, known, "a crate that the table does not know");

    for (name, allowed) in MAY_USE {
        let manifest =
            fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        let mut section = "";
        for line in manifest.lines() {
            if let Some(header) = line.strip_prefix('[') {
                section = header.trim_end_matches(']');
            }
            let used = line.split(['.', ' ', '=']).next().unwrap_or_default();
            // Tests may look further: they bring an engine to what they test.
            let matters = section == "dependencies" || section == "build-dependencies";
            if matters && known.contains(&used) {
                assert!(allowed.contains(&used), "{name} must not know {used}");
            }
        }
    }
}

#[test]
fn every_file_says_what_it_is() {
    let mut count = 0;
    for file in sources() {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("//! "), "{} does not begin with //!", file.display());
        count += 1;
    }
    assert!(count > 50, "only {count} files were found: the test tests nothing");
}

#[test]
fn names_say_something() {
    for file in sources() {
        let named = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_lowercase();
        let name = match named(&file).as_str() {
            "mod" => named(file.parent().unwrap()),
            name => name.to_owned(),
        };
        assert!(
            !EMPTY_NAMES.contains(&name.as_str()),
            "{}: name it for what it holds",
            file.display()
        );
    }
}

/// All Rust files of the workspace.
fn sources() -> Vec<PathBuf> {
    let mut folders = vec![root().join("crates")];
    folders.extend(Some(root().join("bench")).filter(|folder| folder.is_dir()));
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}
