//! The server under test: clients for it, and its clock.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};

use azure_core::credentials::Secret;
use azure_data_cosmos::clients::{ContainerClient, CosmosClient, DatabaseClient};
use azure_data_cosmos::models::ContainerProperties;
use azure_data_cosmos::options::{
    BinaryEncodingOptions, ConnectionPoolOptions, Region, ServerCertificateValidation,
};
use azure_data_cosmos::{AccountReference, CosmosError, CosmosRuntime, RoutingStrategy};

/// The port the server listens on.
pub fn port() -> u16 {
    std::env::var("ACCOUNT_PORT").expect("conformance/run sets ACCOUNT_PORT").parse().unwrap()
}

/// The account's key.
pub fn key() -> String {
    std::env::var("ACCOUNT_KEY").expect("conformance/run sets ACCOUNT_KEY")
}

/// How a client talks.
#[derive(Clone, Copy)]
pub struct Talk {
    pub tls: bool,
    pub http2: bool,
    pub binary: bool,
}

/// What the SDK does by itself, over TLS.
pub const USUAL: Talk = Talk { tls: true, http2: true, binary: true };

/// A client that talks so.
pub async fn connect(talk: Talk) -> CosmosClient {
    connect_with_key(talk, key()).await.expect("a client")
}

pub async fn connect_with_key(talk: Talk, key: String) -> Result<CosmosClient, CosmosError> {
    let scheme = if talk.tls { "https" } else { "http" };
    let endpoint = format!("{scheme}://localhost:{}/", port()).parse()?;
    let pool = ConnectionPoolOptions::builder()
        .with_is_http2_allowed(talk.http2)
        .with_server_certificate_validation(ServerCertificateValidation::RequiredUnlessEmulator)
        .build()?;
    let runtime = CosmosRuntime::builder().with_connection_pool(pool).build().await?;
    CosmosClient::builder()
        .with_runtime(runtime)
        .with_binary_encoding_options(BinaryEncodingOptions::new().with_enabled(talk.binary))
        .build(
            AccountReference::with_authentication_key(endpoint, Secret::new(key)),
            RoutingStrategy::ProximityTo(Region::SOUTH_CENTRAL_US),
        )
        .await
}

/// A name that no other test uses.
pub fn fresh(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A new database.
pub async fn database(client: &CosmosClient) -> DatabaseClient {
    let id = fresh("db");
    client.create_database(&id, None).await.expect("create a database");
    client.database_client(id)
}

/// A new container in a database of its own.
pub async fn container(client: &CosmosClient, properties: ContainerProperties) -> ContainerClient {
    let database = database(client).await;
    let id = properties.id.to_string();
    database.create_container(properties, None).await.expect("create a container");
    database.container_client(id, None).await.expect("a container client")
}

/// A container with the partition key `/pk`.
pub async fn plain_container(client: &CosmosClient) -> ContainerClient {
    container(client, ContainerProperties::new("items", "/pk".into())).await
}

/// The status that a call failed with.
pub fn status<T>(result: Result<T, CosmosError>) -> u16 {
    u16::from(result.err().expect("the call should have failed").status())
}

/// Moves the server's clock forward; answers when what has expired is gone.
pub fn advance(secs: u64) {
    let body = format!("{{\"advance\": {secs}}}");
    let mut stream = TcpStream::connect(("localhost", port())).unwrap();
    write!(
        stream,
        "POST /_admin/clock HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        key(),
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
