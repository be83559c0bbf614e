//! Who may: SCRAM-SHA-256 and SCRAM-SHA-1 with the account's keys as passwords.
//!
//! Any user name will do: in the service's connection strings it is the account's name, which is no secret. Which of the account's keys a
//! client has is only known when it proves it, so the proof is tried against each.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};

use crate::error::{Refusal, Result};

/// What credentials allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everything.
    Full,
    /// Reads only.
    ReadOnly,
}

/// How often a password is hashed: the least that drivers accept. Account keys are random, so more would only cost time.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).expect("not zero");

/// Users whose hashes are kept.
const CACHED_MAX: usize = 1_000;

/// The account's keys.
pub struct Keys {
    keys: Vec<(String, Access)>,
    salt: [u8; 24],
    cache: Mutex<HashMap<(Mechanism, String), Vec<Credentials>>>,
}

/// A way to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// SCRAM-SHA-1
    Sha1,
    /// SCRAM-SHA-256
    Sha256,
}

/// What proves a key, made from it.
#[derive(Clone)]
struct Credentials {
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
    access: Access,
}

/// A conversation that has begun.
pub struct Conversation {
    mechanism: Mechanism,
    user: String,
    /// The parts of what both sides sign.
    first_bare: String,
    server_first: String,
    nonce: String,
}

impl Mechanism {
    /// By its name on the wire.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "SCRAM-SHA-1" => Some(Self::Sha1),
            "SCRAM-SHA-256" => Some(Self::Sha256),
            _ => None,
        }
    }

    fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => hmac::HMAC_SHA256,
        }
    }

    fn hash(self, bytes: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => &digest::SHA256,
        };
        digest::digest(algorithm, bytes).as_ref().to_vec()
    }

    fn sign(self, key: &[u8], bytes: &[u8]) -> Vec<u8> {
        hmac::sign(&hmac::Key::new(self.hmac(), key), bytes).as_ref().to_vec()
    }

    fn salted(self, user: &str, key: &str, salt: &[u8]) -> Vec<u8> {
        let (algorithm, length, password) = match self {
            Self::Sha1 => {
                let hashed = hex(&Md5::digest(format!("{user}:mongo:{key}")));
                (pbkdf2::PBKDF2_HMAC_SHA1, 20, hashed)
            }
            Self::Sha256 => (pbkdf2::PBKDF2_HMAC_SHA256, 32, key.to_owned()),
        };
        let mut salted = vec![0; length];
        pbkdf2::derive(algorithm, ITERATIONS, salt, password.as_bytes(), &mut salted);
        salted
    }
}

impl Keys {
    /// The account's keys, and what each allows.
    pub fn new(keys: Vec<(String, Access)>) -> Self {
        Self { keys, salt: random(), cache: Mutex::default() }
    }

    /// Answers the client's first message; gives what to say and what to remember.
    pub fn begin(&self, mechanism: Mechanism, payload: &[u8]) -> Result<(String, Conversation)> {
        let text = std::str::from_utf8(payload).map_err(|_| malformed())?;
        // "n,,n=user,r=nonce": no channel binding is offered.
        let first_bare = text.strip_prefix("n,,").or_else(|| text.strip_prefix("y,,"));
        let first_bare = first_bare.ok_or_else(malformed)?;
        let user = attribute(first_bare, 'n').ok_or_else(malformed)?;
        let user = user.replace("=2C", ",").replace("=3D", "=");
        let theirs = attribute(first_bare, 'r').filter(|nonce| !nonce.is_empty());
        let theirs = theirs.ok_or_else(malformed)?;
        let ours = STANDARD.encode(random());
        let nonce = format!("{theirs}{ours}");
        let salt = &self.salt[..if mechanism == Mechanism::Sha1 { 16 } else { 24 }];
        let server_first = format!("r={nonce},s={},i={ITERATIONS}", STANDARD.encode(salt));
        let first_bare = first_bare.to_owned();
        let said = server_first.clone();
        Ok((said, Conversation { mechanism, user, first_bare, server_first, nonce }))
    }

    /// Checks the client's proof; gives our own and what the client may.
    pub fn finish(&self, begun: &Conversation, payload: &[u8]) -> Result<(String, Access)> {
        let text = std::str::from_utf8(payload).map_err(|_| malformed())?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or_else(malformed)?;
        if attribute(without_proof, 'r') != Some(&begun.nonce) {
            return Err(refused());
        }
        let proof = STANDARD.decode(proof).map_err(|_| malformed())?;
        let signed = format!("{},{},{without_proof}", begun.first_bare, begun.server_first);
        let mechanism = begun.mechanism;
        for key in self.credentials(mechanism, &begun.user) {
            let signature = mechanism.sign(&key.stored_key, signed.as_bytes());
            if signature.len() != proof.len() {
                continue;
            }
            let client_key: Vec<u8> = signature.iter().zip(&proof).map(|(a, b)| a ^ b).collect();
            let stored_key = mechanism.hash(&client_key);
            // In constant time: both are signed with a key nobody else has.
            let blind = hmac::Key::new(hmac::HMAC_SHA256, &self.salt);
            let tag = hmac::sign(&blind, &key.stored_key);
            if hmac::verify(&blind, &stored_key, tag.as_ref()).is_ok() {
                let ours = mechanism.sign(&key.server_key, signed.as_bytes());
                return Ok((format!("v={}", STANDARD.encode(ours)), key.access));
            }
        }
        Err(refused())
    }

    /// Checks a digest of a nonce, the user and a key, as `authenticate` has it; gives what the client may.
    pub fn check_digest(&self, user: &str, nonce: &str, digest: &str) -> Result<Access> {
        let blind = hmac::Key::new(hmac::HMAC_SHA256, &self.salt);
        for (key, access) in &self.keys {
            let hashed = hex(&Md5::digest(format!("{user}:mongo:{key}")));
            let wanted = hex(&Md5::digest(format!("{nonce}{user}{hashed}")));
            let tag = hmac::sign(&blind, wanted.as_bytes());
            if hmac::verify(&blind, digest.as_bytes(), tag.as_ref()).is_ok() {
                return Ok(*access);
            }
        }
        Err(refused())
    }

    fn credentials(&self, mechanism: Mechanism, user: &str) -> Vec<Credentials> {
        // Only SHA-1 takes the user's name into the hash.
        let user = if mechanism == Mechanism::Sha1 { user } else { "" };
        let place = (mechanism, user.to_owned());
        let mut cache = self.cache.lock().expect("nothing panics while it holds this lock");
        if let Some(known) = cache.get(&place) {
            return known.clone();
        }
        let salt = &self.salt[..if mechanism == Mechanism::Sha1 { 16 } else { 24 }];
        let make = |(key, access): &(String, Access)| {
            let salted = mechanism.salted(user, key, salt);
            let client_key = mechanism.sign(&salted, b"Client Key");
            Credentials {
                stored_key: mechanism.hash(&client_key),
                server_key: mechanism.sign(&salted, b"Server Key"),
                access: *access,
            }
        };
        let made: Vec<Credentials> = self.keys.iter().map(make).collect();
        if cache.len() >= CACHED_MAX {
            cache.clear();
        }
        cache.insert(place, made.clone());
        made
    }
}

impl Conversation {
    /// Who it was with.
    pub fn into_user(self) -> String {
        self.user
    }
}

/// A number that nobody can foresee.
pub fn nonce() -> String {
    hex(&random()[..8])
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn random() -> [u8; 24] {
    let mut bytes = [0; 24];
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    bytes
}

/// The value of `name=` in a SCRAM message.
fn attribute(text: &str, name: char) -> Option<&str> {
    text.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

fn malformed() -> Refusal {
    Refusal::new(18, "The SCRAM message cannot be read.")
}

fn refused() -> Refusal {
    Refusal::new(18, "Authentication failed. The password is one of the account's keys.")
}

/// The client's side, as RFC 5802 has it.
#[cfg(test)]
pub(crate) struct Client<'a> {
    pub mechanism: Mechanism,
    pub user: &'a str,
    pub password: &'a str,
}

#[cfg(test)]
impl Client<'_> {
    /// What it says first.
    pub fn first(&self) -> String {
        format!("n,,n={},r=abc", self.user)
    }

    /// What it says then, and what it wants to hear.
    pub fn last(&self, server_first: &str) -> (String, String) {
        let mechanism = self.mechanism;
        let value = |name| attribute(server_first, name).expect("servers say it");
        let salt = STANDARD.decode(value('s')).expect("a salt");
        let salted = mechanism.salted(self.user, self.password, &salt);
        let client_key = mechanism.sign(&salted, b"Client Key");
        let without_proof = format!("c=biws,r={}", value('r'));
        let signed = format!("n={},r=abc,{server_first},{without_proof}", self.user);
        let signature = mechanism.sign(&mechanism.hash(&client_key), signed.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        let ours = mechanism.sign(&mechanism.sign(&salted, b"Server Key"), signed.as_bytes());
        let last = format!("{without_proof},p={}", STANDARD.encode(proof));
        (last, format!("v={}", STANDARD.encode(ours)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_in(keys: &Keys, mechanism: Mechanism, user: &str, password: &str) -> Result<Access> {
        let client = Client { mechanism, user, password };
        let (server_first, begun) = keys.begin(mechanism, client.first().as_bytes())?;
        let (last, wanted) = client.last(&server_first);
        let (verified, access) = keys.finish(&begun, last.as_bytes())?;
        assert_eq!(verified, wanted);
        Ok(access)
    }

    #[test]
    fn every_key_opens_with_both_mechanisms_and_no_other_does() {
        let keys = vec![("first==".to_owned(), Access::Full), ("r/o".to_owned(), Access::ReadOnly)];
        let keys = Keys::new(keys);
        for mechanism in [Mechanism::Sha1, Mechanism::Sha256] {
            for user in ["localhost", "account"] {
                assert_eq!(log_in(&keys, mechanism, user, "first==").unwrap(), Access::Full);
                assert_eq!(log_in(&keys, mechanism, user, "r/o").unwrap(), Access::ReadOnly);
                assert_eq!(log_in(&keys, mechanism, user, "wrong").unwrap_err().code, 18);
            }
        }
    }

    #[test]
    fn the_oldest_way_opens_with_every_key_and_with_no_other() {
        let keys = vec![("full".to_owned(), Access::Full), ("r/o".to_owned(), Access::ReadOnly)];
        let keys = Keys::new(keys);
        let digest = |key: &str, nonce: &str| {
            let hashed = hex(&Md5::digest(format!("u:mongo:{key}")));
            hex(&Md5::digest(format!("{nonce}u{hashed}")))
        };
        assert_eq!(keys.check_digest("u", "17", &digest("full", "17")).unwrap(), Access::Full);
        assert_eq!(keys.check_digest("u", "17", &digest("r/o", "17")).unwrap(), Access::ReadOnly);
        for (key, nonce) in [("wrong", "17"), ("full", "18")] {
            assert_eq!(keys.check_digest("u", "17", &digest(key, nonce)).unwrap_err().code, 18);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let keys = Keys::new(vec![("k".to_owned(), Access::Full)]);
        for bad in ["", "n,,", "n,,n=a", "n,,n=a,r=", "p=x,,n=a,r=b"] {
            assert!(keys.begin(Mechanism::Sha256, bad.as_bytes()).is_err(), "{bad}");
        }
        let (_, begun) = keys.begin(Mechanism::Sha256, b"n,,n=a,r=b").unwrap();
        for bad in ["", "c=biws,r=b,p=AAAA", "c=biws,p=?"] {
            assert!(keys.finish(&begun, bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
