//! TLS to the store, as libpq's `sslmode` names it: `disable`, `prefer`, `require` (encrypted, whoever answers), `verify-ca` (whoever has a
//! certificate that we trust) and `verify-full` (and it is for the name that was asked for).

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// Where systems keep the certificates that they trust.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Makes encrypted connections.
#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

/// Whether a server's certificate must be for its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Checked,
    Any,
}

impl Tls {
    /// Encrypted; whoever answers is believed.
    pub fn unverified() -> Self {
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(Lenient { provider: provider.clone(), trusted: None });
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring knows the default versions")
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Self(Arc::new(config).into())
    }

    /// The server must show a certificate that one of `roots` (a PEM file, or `system`) has signed, and that is for its name unless any will do.
    pub fn verified(roots: &str, name: Name) -> Result<Self, String> {
        let path = match roots {
            "system" => SYSTEM_ROOTS.into_iter().find(|path| Path::new(path).exists()),
            path => Some(path),
        };
        let path = path.ok_or("this system has no certificates in a known place: name a file")?;
        let unreadable = |error: &dyn std::fmt::Display| {
            format!("cannot read the certificates in {path}: {error}")
        };
        let mut store = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(path).map_err(|e| unreadable(&e))? {
            let certificate = certificate.map_err(|error| unreadable(&error))?;
            store.add(certificate).map_err(|error| unreadable(&error))?;
        }
        if store.is_empty() {
            return Err(unreadable(&"there are none"));
        }
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("ring knows the default versions");
        let config = match name {
            Name::Checked => config.with_root_certificates(store),
            Name::Any => {
                let trusted =
                    WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider);
                let trusted = Some(trusted.build().map_err(|error| unreadable(&error))?);
                let verifier =
                    Arc::new(Lenient { provider: config.crypto_provider().clone(), trusted });
                config.dangerous().with_custom_certificate_verifier(verifier)
            }
        };
        Ok(Self(Arc::new(config.with_no_client_auth()).into()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Stream<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, name: &str) -> io::Result<Handshake> {
        // A socket of this machine has no name, and is not asked for a certificate.
        let name = ServerName::try_from(name.to_owned());
        Ok(Handshake { connector: self.0.clone(), name })
    }
}

/// A connection that is about to be encrypted.
pub(super) struct Handshake {
    connector: TlsConnector,
    name: Result<ServerName<'static>, InvalidDnsNameError>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = self.name.map_err(io::Error::other)?;
            self.connector.connect(name, stream).await.map(Stream)
        })
    }
}

/// An encrypted connection.
pub(super) struct Stream<S>(TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> tokio_postgres::tls::TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Believes every certificate, or every one that `trusted` believes but for its name; never every signature.
#[derive(Debug)]
struct Lenient {
    provider: Arc<CryptoProvider>,
    trusted: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        let Some(trusted) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        // The name is looked at last.
        match trusted.verify_server_cert(certificate, others, name, ocsp, now) {
            Err(Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
