//! Keys of ed25519 (RFC 8032), as text: one line of 64 hexadecimal digits each.

use super::error::Error;
use super::hex::Hex;
use ed25519_dalek::{Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

/// What is signed begins with this, so that a signature of something else is none of a receipt.
const DOMAIN: &[u8] = b"isobit receipt 1\0";

/// A key that signs. Whoever has it signs in its owner's name.
#[derive(Clone)]
pub struct Key(SigningKey);

/// What a signature is checked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey(pub Hex<32>);

/// A signature, and the key that checks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// of ed25519
    pub key: Hex<32>,
    /// over `"isobit receipt 1\0"` and the bytes of the receipt's content
    pub value: Hex<64>,
}

fn digits(text: &str, what: &str) -> Result<Hex<32>, Error> {
    let line = text.trim_end_matches(['\n', '\r']);
    Hex::parse(line).ok_or_else(|| Error::Key(format!("{what} is one line of 64 digits of 0123456789abcdef")))
}

impl Key {
    /// From 32 random bytes, which are the secret: the seed of RFC 8032.
    pub fn new(seed: [u8; 32]) -> Key {
        Key(SigningKey::from_bytes(&seed))
    }

    /// From its text.
    ///
    /// Errors: [`Error::Key`].
    pub fn parse(text: &str) -> Result<Key, Error> {
        Ok(Key::new(digits(text, "a key that signs")?.0))
    }

    /// Its text, which is the secret.
    pub fn text(&self) -> String {
        format!("{}\n", Hex(self.0.to_bytes()))
    }

    /// What its signatures are checked with.
    pub fn public(&self) -> PublicKey {
        PublicKey(Hex(self.0.verifying_key().to_bytes()))
    }

    /// Over the content of a receipt, as it stands in the file.
    pub(super) fn sign(&self, content: &[u8]) -> Signature {
        let value = Hex(self.0.sign(&[DOMAIN, content].concat()).to_bytes());
        Signature { key: self.public().0, value }
    }
}

impl PublicKey {
    /// From its text.
    ///
    /// Errors: [`Error::Key`].
    pub fn parse(text: &str) -> Result<PublicKey, Error> {
        let key = digits(text, "a public key")?;
        VerifyingKey::from_bytes(&key.0).map_err(|_| Error::Key("these digits are no point of the curve".into()))?;
        Ok(PublicKey(key))
    }
}

impl Signature {
    /// Errors: [`Error::Signature`].
    pub(super) fn verify(&self, content: &[u8]) -> Result<(), Error> {
        let wrong = |_| Error::Signature(self.key);
        let signature = ed25519_dalek::Signature::from_bytes(&self.value.0);
        // strict: no key of small order, for which one signature would serve several contents
        let key = VerifyingKey::from_bytes(&self.key.0).map_err(wrong)?;
        key.verify_strict(&[DOMAIN, content].concat(), &signature).map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_holds_for_its_content_and_key_alone() {
        let key = Key::new([7; 32]);
        let signature = key.sign(b"content");
        assert!(signature.verify(b"content").is_ok() && signature.verify(b"contenu").is_err());
        for bit in 0..64 * 8 {
            let mut other = signature;
            other.value.0[bit / 8] ^= 1 << (bit % 8);
            assert!(other.verify(b"content").is_err(), "bit {bit} of the signature");
            let mut other = signature;
            other.key.0[bit / 16] ^= 1 << (bit % 8);
            assert!(other.verify(b"content").is_err(), "bit {bit} of the key");
        }
    }

    /// RFC 8032, section 7.1, test 1: the secret and its public key.
    #[test]
    fn the_public_key_is_the_published_one() {
        let key = Key::parse("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60\n").unwrap();
        let public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
        assert_eq!(key.public().0.to_string(), public);
        assert_eq!(PublicKey::parse(public).unwrap(), key.public());
        assert_eq!(Key::parse(&key.text()).unwrap().public(), key.public());
        for bad in ["", "zz", &public[1..], &public.to_uppercase()] {
            assert!(Key::parse(bad).is_err() && PublicKey::parse(bad).is_err(), "{bad}");
        }
    }
}
