//! The certificate: the user's own, or one that is made at first start and kept.
//!
//! What is made is an authority for this server alone and a certificate signed by it. Clients trust the authority. Its
//! private key is forgotten at once, so nobody can ever sign anything else with what a user has told a machine to trust.
//!
//! ```text
//! DIR/tls/ca.pem            what clients trust
//! DIR/tls/certificate.pem   what the server shows: its certificate, then the authority's
//! DIR/tls/key.pem           the private key of the former; for its owner's eyes
//! ```

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use model::clock::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// What is needed to speak TLS, and what clients need.
pub struct Identity {
    /// Certificate and key, ready for use.
    pub tls: Arc<ServerConfig>,
    /// What clients must trust, as PEM; `None` if the user's own certificate is used.
    pub authority: Option<String>,
    /// Where that is kept.
    pub path: Option<PathBuf>,
}

/// The PEM texts of an identity.
struct Texts {
    authority: String,
    chain: String,
    key: String,
}

impl Identity {
    /// The user's own.
    pub fn load(chain: &Path, key: &Path) -> Result<Self> {
        let read = |path: &Path| {
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let tls = config(&read(chain)?, &read(key)?)
            .with_context(|| format!("{} and {} cannot be used", chain.display(), key.display()))?;
        Ok(Self { tls, authority: None, path: None })
    }

    /// One for this run only.
    pub fn in_memory(now: Timestamp) -> Result<Self> {
        let texts = Texts::make(now)?;
        Ok(Self {
            tls: config(&texts.chain, &texts.key)?,
            authority: Some(texts.authority),
            path: None,
        })
    }

    /// The one kept under `data`, made if there is none.
    pub fn kept(data: &Path, now: Timestamp) -> Result<Self> {
        let folder = data.join("tls");
        let texts = match Texts::read(&folder) {
            Ok(texts) => texts,
            Err(_) if !folder.join("key.pem").exists() => {
                let texts = Texts::make(now)?;
                texts
                    .write(&folder)
                    .with_context(|| format!("cannot write to {}", folder.display()))?;
                texts
            }
            Err(error) => return Err(error),
        };
        let tls = config(&texts.chain, &texts.key).with_context(|| {
            format!(
                "the certificate in {} cannot be used: remove that folder to have a new one made",
                folder.display()
            )
        })?;
        let path =
            fs::canonicalize(folder.join("ca.pem")).unwrap_or_else(|_| folder.join("ca.pem"));
        Ok(Self { tls, authority: Some(texts.authority), path: Some(path) })
    }
}

impl Texts {
    fn make(now: Timestamp) -> Result<Self> {
        let year = 1970 + i32::try_from(now.0 / 31_556_952).unwrap_or(0);
        let params = |name: &str, hosts: Vec<String>| -> Result<CertificateParams> {
            let mut params = CertificateParams::new(hosts)?;
            params.distinguished_name.push(DnType::CommonName, name);
            params.not_before = rcgen::date_time_ymd(year - 1, 1, 1);
            params.not_after = rcgen::date_time_ymd(year + 10, 1, 1);
            Ok(params)
        };

        let authority_key = KeyPair::generate()?;
        let mut authority =
            params(&format!("Sidereal {:08x}", few_digits(&authority_key)), Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority_text = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);

        let key = KeyPair::generate()?;
        let mut server = params("localhost", hosts())?;
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        server.use_authority_key_identifier_extension = true;
        let server_text = server.signed_by(&key, &issuer)?.pem();
        let chain = format!("{server_text}{authority_text}");
        Ok(Self { authority: authority_text, chain, key: key.serialize_pem() })
    }

    fn read(folder: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        Ok(Self {
            authority: read("ca.pem")?,
            chain: read("certificate.pem")?,
            key: read("key.pem")?,
        })
    }

    /// The key comes last: while it is missing, all is made anew.
    fn write(&self, folder: &Path) -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("ca.pem"), &self.authority)?;
        fs::write(folder.join("certificate.pem"), &self.chain)?;
        let draft = folder.join("key.pem.new");
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&draft)?;
        file.write_all(self.key.as_bytes())?;
        file.sync_all()?;
        fs::rename(draft, folder.join("key.pem"))
    }
}

/// A few digits that tell this authority from others of the same machine.
fn few_digits(key: &KeyPair) -> u32 {
    key.public_key_raw()
        .iter()
        .fold(0, |sum: u32, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)))
}

/// The names under which clients reach this machine.
fn hosts() -> Vec<String> {
    let mut hosts: Vec<String> =
        ["localhost", "127.0.0.1", "::1", "host.docker.internal"].map(str::to_owned).to_vec();
    let name = fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| fs::read_to_string("/etc/hostname"));
    if let Some(name) = name
        .ok()
        .map(|name| name.trim().to_lowercase())
        .filter(|name| !name.is_empty() && name.is_ascii())
    {
        hosts.push(name);
    }
    hosts
}

fn config(chain: &str, key: &str) -> Result<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
        .collect::<std::result::Result<Vec<_>, _>>()
        .context("the certificate is not PEM")?;
    let key =
        PrivateKeyDer::from_pem_slice(key.as_bytes()).context("the private key is not PEM")?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_made_once_and_kept() {
        let data = tempfile::tempdir().unwrap();
        let now = Timestamp(1_800_000_000);
        let first = Identity::kept(data.path(), now).unwrap();
        let second = Identity::kept(data.path(), now).unwrap();
        assert_eq!(first.authority, second.authority);
        assert_ne!(first.authority, Identity::in_memory(now).unwrap().authority);
    }

    #[test]
    fn an_unusable_certificate_is_not_replaced_in_silence() {
        let data = tempfile::tempdir().unwrap();
        let now = Timestamp(1_800_000_000);
        Identity::kept(data.path(), now).unwrap();
        fs::write(data.path().join("tls/certificate.pem"), "nonsense").unwrap();
        assert!(Identity::kept(data.path(), now).is_err());
        fs::remove_file(data.path().join("tls/certificate.pem")).unwrap();
        assert!(Identity::kept(data.path(), now).is_err());
        // A start that was cut short has written no key yet.
        fs::remove_file(data.path().join("tls/key.pem")).unwrap();
        assert!(Identity::kept(data.path(), now).is_ok());
    }
}
