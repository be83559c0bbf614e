//! Connections to a store that wants a password and speaks TLS: each of the ways that are good, and why each of the others is refused.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::postgres::open;
use crate::testing::postgres::Server;
use crate::{Engine, Error, Family};

/// A certificate and its key, of a root of its own.
struct Certificate {
    root: String,
    chain: String,
    key: String,
}

/// Good for this name, if who signs is trusted.
fn certificate(name: &str, signer: &str) -> Certificate {
    let root_key = KeyPair::generate().unwrap();
    let mut root = CertificateParams::new(Vec::new()).unwrap();
    root.distinguished_name.push(DnType::CommonName, signer);
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root_text = root.self_signed(&root_key).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new([name.to_owned()]).unwrap();
    let signed = params.signed_by(&key, &Issuer::new(root, root_key)).unwrap();
    Certificate { root: root_text, chain: signed.pem(), key: key.serialize_pem() }
}

/// What a password and a certificate are good for.
const RIGHTS: &str = "local all all trust
hostssl all all 127.0.0.1/32 scram-sha-256
";

#[tokio::test]
async fn a_store_with_password_and_tls() {
    let files = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (good, other) = (certificate("localhost", "us"), certificate("localhost", "others"));
    let (root, stranger) = (file("root", &good.root), file("other", &other.root));
    let setup = format!(
        "cp {} server.crt; cp {} server.key; cp {} pg_hba.conf; chmod 600 server.key",
        file("chain", &good.chain),
        file("key", &good.key),
        file("rights", RIGHTS)
    );
    // The port is one that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let options = "-c listen_addresses=127.0.0.1 -c ssl=on -c password_encryption=scram-sha-256";
    let Some(server) = Server::start_on("-tls", &setup, options, port) else { return };
    server.sql("postgres", "CREATE ROLE me LOGIN PASSWORD 'right'; CREATE DATABASE data OWNER me");

    let url = |host: &str, password: &str, rest: &str| {
        format!("postgres://me:{password}@{host}:{port}/data?{rest}")
    };
    for (host, rest) in [
        ("127.0.0.1", "sslmode=require".to_owned()),
        ("127.0.0.1", String::new()),
        ("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={root}")),
        ("localhost", format!("sslmode=verify-full&sslrootcert={root}")),
    ] {
        let engine = open(&url(host, "right", &rest)).await.unwrap();
        let mut batch = super::put("k", "v");
        batch.check(Family::Item, "absent", None);
        engine.commit(batch).await.unwrap();
        assert_eq!(engine.get(Family::Item, b"k").await.unwrap(), Some("v".into()));
    }
    for (host, password, rest, why) in [
        ("127.0.0.1", "wrong", "sslmode=require".to_owned(), "the password of user 'me' is wrong"),
        ("127.0.0.1", "right", "sslmode=disable".into(), "no encryption"),
        (
            "127.0.0.1",
            "right",
            format!("sslmode=verify-ca&sslrootcert={stranger}"),
            "UnknownIssuer",
        ),
        (
            "localhost",
            "right",
            format!("sslmode=verify-full&sslrootcert={stranger}"),
            "UnknownIssuer",
        ),
        (
            "127.0.0.1",
            "right",
            format!("sslmode=verify-full&sslrootcert={root}"),
            "not valid for name",
        ),
        ("127.0.0.1", "right", "sslmode=require&sslrootcert=x".into(), "needs sslmode=verify-ca"),
        (
            "localhost",
            "right",
            "sslmode=verify-full&sslrootcert=/nowhere".into(),
            "cannot read the certificates",
        ),
    ] {
        let refused = open(&url(host, password, &rest)).await.err();
        let Some(Error::Open(text)) = refused else { panic!("{rest}: {refused:?}") };
        assert!(text.contains(why), "{rest}: {text}");
        assert!(!text.contains("right") && !text.contains(":wrong"), "a password: {text}");
    }
}
