//! A PostgreSQL node for a run: made in a directory of its own, with the settings that `initdb` gives it, and gone with the run.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;
use tokio_postgres::{Client, Config, NoTls};

use crate::options::Options;
use crate::process::family_cpu;

/// A running node.
pub struct Node {
    /// Runs the node, and ends it when its standard input is closed.
    shell: Child,
    _directory: TempDir,
    pid: u32,
    port: u16,
    /// What it says it is.
    pub version: String,
}

/// Nothing is set that has to do with speed or durability.
const SCRIPT: &str = r#"
    set -e
    as=; [ "$(id -u)" != 0 ] || as="setpriv --reuid=nobody --clear-groups"
    [ -z "$as" ] || chown nobody "$1"; cd "$1"
    $as "$0/initdb" -D "$1/data" -U postgres -A trust -E UTF8 --locale=C >log 2>&1
    $as "$0/postgres" -D "$1/data" -k "$1" -c listen_addresses=127.0.0.1 -c port="$2" >>log 2>&1 &
    server=$!
    until "$0/pg_isready" -q -h 127.0.0.1 -p "$2"; do kill -0 $server || exit 1; sleep 0.05; done
    echo $server
    read -r _ || true
    kill -INT $server; wait $server || true
"#;

impl Node {
    /// Makes and starts one.
    pub fn start(options: &Options) -> Result<Self> {
        let bin = binaries().context("there is no PostgreSQL (Debian: apt install postgresql)")?;
        let directory = options.directory()?;
        let free = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT])
            .args([&bin, directory.path()])
            .arg(free.port().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(shell.stdout.take().context("it is piped")?).read_line(&mut line)?;
        let log = || std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
        let pid = line.trim().parse();
        let pid = pid.with_context(|| format!("PostgreSQL did not start:\n{}", log()))?;
        let mut node =
            Self { shell, _directory: directory, pid, port: free.port(), version: String::new() };
        node.version = runtime()?.block_on(async {
            let client = node.connect("postgres").await?;
            anyhow::Ok(client.query_one("SHOW server_version", &[]).await?.get(0))
        })?;
        Ok(node)
    }

    /// An empty database; its address.
    pub fn database(&self, name: &str) -> Result<String> {
        runtime()?.block_on(async {
            let client = self.connect("postgres").await?;
            client.batch_execute(&format!("CREATE DATABASE {name}")).await?;
            // What earlier runs have left to write is not this one's.
            client.batch_execute("CHECKPOINT").await?;
            Ok(format!("postgres://postgres@127.0.0.1:{}/{name}?sslmode=disable", self.port))
        })
    }

    /// Removes a database.
    pub fn drop_database(&self, name: &str) -> Result<()> {
        runtime()?.block_on(async {
            let client = self.connect("postgres").await?;
            Ok(client.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await?)
        })
    }

    /// How to connect to a database of it.
    pub fn config(&self, database: &str) -> Config {
        let mut config = Config::new();
        config.host("127.0.0.1").port(self.port).user("postgres").dbname(database);
        config
    }

    /// A session.
    pub async fn connect(&self, database: &str) -> Result<Client> {
        connect(&self.config(database)).await
    }

    /// Processor time of the node with all its sessions so far.
    pub fn cpu(&self) -> Duration {
        family_cpu(self.pid)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        drop(self.shell.wait());
    }
}

/// A session, whose other half runs in a task.
pub async fn connect(config: &Config) -> Result<Client> {
    let (client, connection) = config.connect(NoTls).await?;
    // It ends with the client.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

/// A runtime for single calls.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Where the binaries are: where Debian keeps them, the newest; or on the path.
fn binaries() -> Option<PathBuf> {
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = debian.map(|entry| entry.path().join("bin")).collect();
    folders.sort();
    folders.reverse();
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    folders.into_iter().find(|folder| folder.join("initdb").exists())
}
