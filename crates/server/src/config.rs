//! The command line.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use cosmos::{Access, Keys, WELL_KNOWN_KEY};

/// A document database that speaks the Azure Cosmos DB protocol, and in which TTL is exact.
///
/// Without a command it serves: endpoint, port and key are those of the official emulator, so existing connection
/// strings work.
#[derive(Debug, Parser)]
#[command(name = "sidereal", version, args_conflicts_with_subcommands = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How to serve, where no command is given.
    #[command(flatten)]
    pub serve: Serve,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve databases (what happens without a command)
    Serve(Box<Serve>),
    /// Verify a data directory that no server uses: checksums, order, expiry, index
    Check {
        /// The data directory
        #[arg(value_name = "DIR", default_value = DATA)]
        data: PathBuf,
    },
    /// Copy a database to another store, and compare the two; run again, it goes on where it was stopped. Stores are directories or
    /// postgres:// addresses (--from or --to given several times: all parts of a store). Servers on a cluster that is copied go on answering reads and
    /// refuse writes, until it is released; no server may use a directory that is copied: see serve --copy-to
    Copy {
        /// The source
        #[arg(long, value_name = "DIR|URL", value_delimiter = ' ', required = true)]
        from: Vec<String>,
        /// The target: a new directory, or an empty database
        #[arg(
            long,
            value_name = "DIR|URL",
            value_delimiter = ' ',
            required_unless_present = "release"
        )]
        to: Vec<String>,
        /// Copy nothing: let servers write to the source again
        #[arg(long, conflicts_with = "to")]
        release: bool,
    },
    /// Show what expires when in a container of a running server, how far its purge is, and what another default would do
    Ttl {
        /// The container
        #[arg(value_name = "DATABASE/CONTAINER")]
        container: ContainerName,
        /// Try out a default: seconds, -1 (on, no default) or off. Nothing is changed
        #[arg(long, value_name = "N", allow_hyphen_values = true)]
        default: Option<String>,
        /// The server
        #[command(flatten)]
        remote: Remote,
    },
    /// Say when and why an item of a running server expires
    Explain {
        /// The item
        #[arg(value_name = "DATABASE/CONTAINER/ID")]
        item: ItemName,
        /// Its partition key: a text, or a JSON array [default: the id]
        #[arg(long, value_name = "KEY")]
        partition_key: Option<String>,
        /// The server
        #[command(flatten)]
        remote: Remote,
    },
    /// Watch a running server: requests, request units, memory, containers
    Top {
        /// Print once and end
        #[arg(long)]
        once: bool,
        /// The server
        #[command(flatten)]
        remote: Remote,
    },
    /// Write JSON lines into a container of a running server; run again, it goes on where it was stopped
    Import {
        /// The container
        #[arg(value_name = "DATABASE/CONTAINER")]
        container: ContainerName,
        /// The file; each line is an item
        file: PathBuf,
        /// The server
        #[command(flatten)]
        remote: Remote,
    },
    /// Write a container's items into a file of JSON lines; run again, it goes on where it was stopped
    Export {
        /// The container
        #[arg(value_name = "DATABASE/CONTAINER")]
        container: ContainerName,
        /// The file
        file: PathBuf,
        /// The server
        #[command(flatten)]
        remote: Remote,
    },
}

/// A container by its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerName {
    /// Its database.
    pub database: String,
    /// Its own.
    pub container: String,
}

impl std::str::FromStr for ContainerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((database, container)) if !database.is_empty() && !container.is_empty() => {
                Ok(Self { database: database.to_owned(), container: container.to_owned() })
            }
            _ => Err("name it as DATABASE/CONTAINER".to_owned()),
        }
    }
}

/// An item by its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemName {
    /// Its container.
    pub container: ContainerName,
    /// Its id.
    pub id: String,
}

impl std::str::FromStr for ItemName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || "name it as DATABASE/CONTAINER/ID".to_owned();
        let (database, rest) = text.split_once('/').ok_or_else(bad)?;
        let (container, id) = rest.split_once('/').ok_or_else(bad)?;
        if id.is_empty() {
            return Err(bad());
        }
        Ok(Self { container: format!("{database}/{container}").parse()?, id: id.to_owned() })
    }
}

/// A running server.
#[derive(Clone, Debug, Args)]
pub struct Remote {
    /// Where the server is
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:8081",
        env = "SIDEREAL_ENDPOINT",
        help_heading = "Server"
    )]
    pub endpoint: String,
    /// Account key [default: the emulator's well-known key]
    #[arg(long, env = "SIDEREAL_KEY", hide_env_values = true, help_heading = "Server")]
    pub key: Option<String>,
    /// Certificate (PEM) to trust for https://, as sidereal-data/tls/ca.pem
    #[arg(long, value_name = "FILE", env = "SIDEREAL_CA", help_heading = "Server")]
    pub ca: Option<PathBuf>,
}

/// The port of the service's API for MongoDB, and of the official emulator's.
const MONGO_PORT: u16 = 10255;

const DATA: &str = "./sidereal-data";

/// How to serve.
#[derive(Clone, Debug, Args)]
pub struct Serve {
    /// Keep the data in this directory; it is made if need be
    #[arg(long, value_name = "DIR", default_value = DATA, help_heading = "Data")]
    pub data: PathBuf,
    /// Keep the data in memory only: all is gone when the server stops
    #[arg(long, conflicts_with = "data", help_heading = "Data")]
    pub in_memory: bool,
    /// Keep the data in a PostgreSQL cluster, which any number of servers may share: postgres://user:password@host1,host2/database. Time is
    /// then the cluster's. Parameters: sslmode=disable|prefer|require|verify-ca|verify-full, sslrootcert=FILE|system. Given several times (or
    /// several addresses with blanks between them), the partitions are spread over several clusters: always the same ones, in the same order
    #[arg(
        long,
        value_name = "URL",
        value_delimiter = ' ',
        env = "SIDEREAL_STORE",
        hide_env_values = true,
        conflicts_with_all = ["data", "in_memory"],
        help_heading = "Data"
    )]
    pub store: Vec<String>,

    /// Copy everything to another store (a new directory, or an empty database postgres://…), compare the two, and answer reads meanwhile and afterwards;
    /// writes are refused with 503. Started again, it goes on where it was stopped
    #[arg(
        long,
        value_name = "DIR|URL",
        value_delimiter = ' ',
        conflicts_with = "in_memory",
        help_heading = "Data"
    )]
    pub copy_to: Vec<String>,

    /// Port for HTTPS and HTTP, told apart by the first byte; 0 takes any that is free and prints it
    #[arg(long, default_value_t = 8081, help_heading = "Network")]
    pub port: u16,
    /// Port for MongoDB drivers, TLS and plain, told apart by the first byte; 0 takes any that is free and prints it [default: 10255, or 0
    /// with --port 0]
    #[arg(long, value_name = "PORT", help_heading = "Network")]
    pub mongo_port: Option<u16>,
    /// Address to listen on; beyond this machine only with a key of your own [default: 127.0.0.1 and ::1]
    #[arg(long, value_name = "ADDRESS", help_heading = "Network")]
    pub listen: Option<IpAddr>,
    /// Certificate chain (PEM) instead of the one that is made at first start
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "Network")]
    pub tls_cert: Option<PathBuf>,
    /// Private key (PEM) of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "Network")]
    pub tls_key: Option<PathBuf>,
    /// Web origin (scheme, host and port) whose pages may use the account; may be given several times
    #[arg(long, value_name = "ORIGIN", help_heading = "Network")]
    pub allow_origin: Vec<String>,

    /// Account key, base64 [default: the emulator's well-known key]
    #[arg(long, env = "SIDEREAL_KEY", hide_env_values = true, help_heading = "Keys")]
    pub key: Option<String>,
    /// File that holds the account key: other users of the machine cannot see it, as they can a command line
    #[arg(long, value_name = "FILE", conflicts_with = "key", help_heading = "Keys")]
    pub key_file: Option<PathBuf>,
    /// Second account key, so that keys can be changed one after the other
    #[arg(
        long,
        value_name = "KEY",
        env = "SIDEREAL_SECONDARY_KEY",
        hide_env_values = true,
        help_heading = "Keys"
    )]
    pub secondary_key: Option<String>,
    /// Key that may only read and query
    #[arg(
        long,
        value_name = "KEY",
        env = "SIDEREAL_READ_ONLY_KEY",
        hide_env_values = true,
        help_heading = "Keys"
    )]
    pub read_only_key: Option<String>,
    /// Second key that may only read and query
    #[arg(
        long,
        value_name = "KEY",
        env = "SIDEREAL_SECONDARY_READ_ONLY_KEY",
        hide_env_values = true,
        help_heading = "Keys"
    )]
    pub secondary_read_only_key: Option<String>,
    /// Accept directory (AAD) tokens in the emulator's form, which carry an account key; they reach data but no definitions.
    /// With the emulator's key they always are
    #[arg(long, help_heading = "Keys")]
    pub aad: bool,

    /// The clock that TTL goes by. A virtual one can be frozen and moved forward with POST /_admin/clock, so that a test can
    /// expire a ninety-day session in a millisecond
    #[arg(long, value_enum, default_value_t = ClockKind::System, help_heading = "Behaviour")]
    pub clock: ClockKind,
    /// Let MongoDB clients in without a key; on this machine only
    #[arg(long, help_heading = "Keys")]
    pub no_auth: bool,
    /// Refuse what the service's API for MongoDB refuses where Sidereal can do it: TTL indexes on other fields than _ts
    #[arg(long, help_heading = "Behaviour")]
    pub mongo_strict_cosmos: bool,
    /// How many partitions a new container has [default: one for each 10,000 RU/s of its throughput]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100), help_heading = "Behaviour")]
    pub partitions: Option<u32>,
    /// Refuse requests over the provisioned request units with 429, as the service does
    #[arg(long, help_heading = "Behaviour")]
    pub throttle: bool,
    /// What to write to standard error: off, error, warn, info, debug, trace
    #[arg(
        long,
        value_name = "LEVEL",
        default_value = "warn",
        env = "SIDEREAL_LOG",
        help_heading = "Behaviour"
    )]
    pub log: log::LevelFilter,
}

/// Which clock TTL goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClockKind {
    /// The machine's.
    System,
    /// One that its user moves.
    Virtual,
}

impl Serve {
    /// Where to listen: the first must work, the others are a convenience.
    pub fn addresses(&self) -> Vec<IpAddr> {
        match self.listen {
            Some(address) => vec![address],
            // Some clients take `localhost` to be the one, some the other.
            None => vec![Ipv4Addr::LOCALHOST.into(), std::net::Ipv6Addr::LOCALHOST.into()],
        }
    }

    /// Where MongoDB drivers find the server; whoever wants any port for the one gets any for the other.
    pub fn mongo_port(&self) -> u16 {
        self.mongo_port.unwrap_or(if self.port == 0 { 0 } else { MONGO_PORT })
    }

    /// The keys as MongoDB's passwords; `None` if none is asked for.
    pub fn mongo_keys(&self) -> Result<Option<mongo::Keys>> {
        if self.no_auth {
            if let Some(address) = self.listen
                && !address.to_canonical().is_loopback()
            {
                bail!(
                    "refusing to listen on {address} with --no-auth: everybody could read and write. Leave out one of the two."
                );
            }
            return Ok(None);
        }
        let mut keys = vec![(self.primary_key()?, mongo::Access::Full)];
        for (key, access) in [
            (&self.secondary_key, mongo::Access::Full),
            (&self.read_only_key, mongo::Access::ReadOnly),
            (&self.secondary_read_only_key, mongo::Access::ReadOnly),
        ] {
            keys.extend(key.as_ref().map(|key| (key.trim().to_owned(), access)));
        }
        Ok(Some(mongo::Keys::new(keys)))
    }

    fn primary_key(&self) -> Result<String> {
        let primary = match (&self.key, &self.key_file) {
            (Some(key), _) => key.clone(),
            (None, Some(file)) => std::fs::read_to_string(file)
                .with_context(|| format!("cannot read the key file {}", file.display()))?,
            (None, None) => WELL_KNOWN_KEY.to_owned(),
        };
        Ok(primary.trim().to_owned())
    }

    /// The account's keys, and a hint at the first that is safe to print.
    pub fn keys(&self) -> Result<(Keys, String)> {
        let primary = self.primary_key()?;
        let primary = primary.as_str();
        let mut keys = Keys::new(primary)?;
        for (key, access) in [
            (&self.secondary_key, Access::Full),
            (&self.read_only_key, Access::ReadOnly),
            (&self.secondary_read_only_key, Access::ReadOnly),
        ] {
            if let Some(key) = key {
                keys = keys.with(key, access)?;
            }
        }
        // Who has the key that everybody has may sign in with it in every way.
        if self.aad || primary == WELL_KNOWN_KEY {
            keys = keys.with_directory();
        }
        let hint = match primary == WELL_KNOWN_KEY {
            true => "the emulator's well-known key, C2y6…".to_owned(),
            false => format!("{}…", primary.chars().take(4).collect::<String>()),
        };
        if let Some(address) = self.listen
            && !address.to_canonical().is_loopback()
            && keys.has_well_known()
        {
            bail!(
                "refusing to listen on {address} with the well-known key, which everybody has. Give the account a key of its own \
                 with --key, SIDEREAL_KEY or --key-file (make one: openssl rand -base64 64), or listen on 127.0.0.1."
            );
        }
        Ok((keys, hint))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn serve(arguments: &[&str]) -> Serve {
        let cli = Cli::parse_from(["sidereal"].iter().chain(arguments));
        match cli.command {
            Some(Command::Serve(serve)) => *serve,
            _ => cli.serve,
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn names_have_their_parts() {
        let item: ItemName = "d/c/a/b".parse().expect("an id may have a slash");
        assert_eq!((item.container.container.as_str(), item.id.as_str()), ("c", "a/b"));
        assert!("d".parse::<ContainerName>().is_err());
        assert!("d/c".parse::<ItemName>().is_err());
        assert!("d//x".parse::<ItemName>().is_err());
    }

    #[test]
    fn serving_is_the_default() {
        assert_eq!(serve(&["--port", "1"]).port, 1);
        assert_eq!(serve(&["serve", "--port", "1"]).port, 1);
        assert_eq!(serve(&[]).port, 8081);
        assert!(Cli::try_parse_from(["sidereal", "--in-memory", "--data", "x"]).is_err());
        assert!(Cli::try_parse_from(["sidereal", "--tls-cert", "x"]).is_err());
        assert!(Cli::try_parse_from(["sidereal", "--in-memory", "--store", "x"]).is_err());
    }

    #[test]
    fn the_mongodb_port_follows_the_other_to_any() {
        assert_eq!(serve(&[]).mongo_port(), 10255);
        assert_eq!(serve(&["--port", "0"]).mongo_port(), 0);
        assert_eq!(serve(&["--port", "0", "--mongo-port", "27017"]).mongo_port(), 27017);
    }

    #[test]
    fn without_keys_only_on_this_machine() {
        assert!(serve(&["--no-auth"]).mongo_keys().unwrap().is_none());
        assert!(serve(&["--no-auth", "--listen", "127.0.0.2"]).mongo_keys().is_ok());
        assert!(serve(&["--no-auth", "--listen", "0.0.0.0", "--key", KEY]).mongo_keys().is_err());
        assert!(serve(&[]).mongo_keys().unwrap().is_some());
    }

    #[test]
    fn the_well_known_key_stays_on_this_machine() {
        assert!(serve(&["--listen", "0.0.0.0"]).keys().is_err());
        assert!(serve(&["--listen", "::"]).keys().is_err());
        assert!(
            serve(&["--listen", "192.0.2.1", "--secondary-key", WELL_KNOWN_KEY, "--key", KEY])
                .keys()
                .is_err()
        );
        assert!(serve(&["--listen", "127.0.0.2"]).keys().is_ok());
        assert!(serve(&["--listen", "::1"]).keys().is_ok());
        assert!(serve(&["--listen", "0.0.0.0", "--key", KEY]).keys().is_ok());
        assert!(serve(&["--key", "not base64!"]).keys().is_err());
    }

    const KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZg==";
}
