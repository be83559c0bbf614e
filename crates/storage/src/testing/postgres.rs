//! A PostgreSQL server of our own, on a socket in a directory that goes with it.
//!
//! It is started at most once a process and ends with it, however that ends: it is the child of a shell that waits for our end of a pipe to
//! close. Each test has a database of its own. Where there are no binaries of PostgreSQL, the tests say so and pass.
//!
//! `SIDEREAL_TEST_STORE=postgres://postgres@127.0.0.1:15430/postgres` has them use a server that is there already, such as that of `cluster/run single`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A running server.
pub struct Server {
    /// As it stands in addresses.
    host: String,
    bin: PathBuf,
    /// While this is open, the server runs. One that was there already runs on.
    _alive: Option<ChildStdin>,
}

static SERVER: OnceLock<Option<Server>> = OnceLock::new();
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// The address of an empty database, or nothing where PostgreSQL is not installed.
pub fn database() -> Option<String> {
    let server = SERVER.get_or_init(Server::start).as_ref();
    let Some(server) = server else {
        println!(
            "skipped: there is no PostgreSQL on this machine (Debian: apt install postgresql)"
        );
        return None;
    };
    let number = DATABASES.fetch_add(1, Ordering::Relaxed);
    let name = format!("t{}_{number}", std::process::id());
    server.sql("postgres", &format!("CREATE DATABASE {name}"));
    Some(server.url("postgres", &name))
}

/// The addresses of several empty databases.
pub fn databases(count: usize) -> Option<Vec<String>> {
    (0..count).map(|_| database()).collect()
}

/// Runs a statement in the database at an address that [`database`] gave.
pub fn sql(url: &str, statement: &str) {
    let server = SERVER.get().and_then(Option::as_ref).expect("a server gave this address");
    let name = url.rsplit('/').next().expect("an address ends with a name");
    server.sql(name, statement);
}

/// The same address for another user.
pub fn as_user(url: &str, user: &str) -> String {
    url.replacen("postgres@", &format!("{user}@"), 1)
}

impl Server {
    fn start() -> Option<Self> {
        if let Ok(url) = std::env::var("SIDEREAL_TEST_STORE") {
            let host = url.rsplit_once('@').and_then(|(_, place)| place.split_once('/'));
            let (host, _) =
                host.expect("it looks like postgres://postgres@127.0.0.1:15430/postgres");
            return Some(Self { host: host.to_owned(), bin: binaries()?, _alive: None });
        }
        Self::start_on("", "", "-c listen_addresses=", 5432)
    }

    /// A server of its own, beside the one that the tests share. `setup` is shell, to be run in its directory of data.
    pub fn start_on(name: &str, setup: &str, options: &str, port: u16) -> Option<Self> {
        let bin = binaries()?;
        let directory = format!("sidereal-pg-{}{name}", std::process::id());
        let directory = std::env::temp_dir().join(directory);
        let script = r#"
            set -e
            as=; [ "$(id -u)" != 0 ] || as="setpriv --reuid=nobody --clear-groups"
            rm -rf "$1"; mkdir -m 700 "$1"; [ -z "$as" ] || chown nobody "$1"; cd "$1"
            $as "$0/initdb" -D "$1/data" -U postgres -A trust -E UTF8 --locale=C -N >log 2>&1
            (cd data; eval "$2"; [ -z "$as" ] || chown -R nobody .)
            $as "$0/postgres" -D "$1/data" -k "$1" $3 -c port="$4" -c fsync=off -c max_connections=200 >>log 2>&1 &
            server=$!
            until "$0/pg_isready" -q -h "$1" -p "$4"; do kill -0 $server || exit 1; sleep 0.05; done
            echo ready
            read -r _ || true
            kill -QUIT $server; wait $server || true; cd /; rm -rf "$1"
        "#;
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).arg(&bin).arg(&directory).args([
            setup,
            options,
            &port.to_string(),
        ]);
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let (alive, output) = (shell.stdin.take()?, shell.stdout.take()?);
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).ok()?;
        let log = || std::fs::read_to_string(directory.join("log")).unwrap_or_default();
        assert_eq!(line, "ready\n", "PostgreSQL did not start:\n{}", log());
        let mut host = directory.to_string_lossy().replace('/', "%2F");
        if port != 5432 {
            host += &format!(":{port}");
        }
        Some(Self { host, bin, _alive: Some(alive) })
    }

    fn url(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@{}/{database}", self.host)
    }

    /// Runs a statement as the owner of everything.
    pub fn sql(&self, database: &str, statement: &str) {
        let mut psql = Command::new(self.bin.join("psql"));
        psql.args(["-q", "-v", "ON_ERROR_STOP=1", "-d"]).arg(self.url("postgres", database));
        psql.env("PGOPTIONS", "-c client_min_messages=warning");
        let psql = psql.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut psql = psql.spawn().expect("psql is beside postgres");
        let mut input = psql.stdin.take().expect("it was piped");
        input.write_all(statement.as_bytes()).expect("psql reads its input");
        drop(input);
        assert!(psql.wait().expect("psql ends").success(), "{statement}");
    }
}

/// Where the binaries are: on the path, or where Debian keeps them; the newest.
fn binaries() -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    folders.sort();
    folders.reverse();
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let has_all = |folder: &PathBuf| {
        let there = |name: &str| Path::new(folder).join(name).exists();
        ["initdb", "postgres", "pg_isready", "psql"].into_iter().all(there)
    };
    folders.into_iter().find(has_all)
}
