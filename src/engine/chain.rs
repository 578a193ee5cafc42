//! A hash chain over the logits that tokens were drawn from: whoever has its links and the model can find out whether each
//! token, and every logit it was chosen among, is what that model gives.

use sha2::{Digest, Sha256};

/// What a chain begins with, so that no other hash of the same bytes is one.
const DOMAIN: &[u8] = b"isobit chain 1\0";

/// A chain that grows by a link for every token.
///
/// All numbers are little-endian. Before the first token `c = SHA-256("isobit chain 1\0" || bytes of the fingerprint as u32
/// || the fingerprint in UTF-8 || tokens of the prompt as u32 || their ids as u32)`; with each token
/// `c = SHA-256(c || id as u32 || the row of logits it was drawn from, as f32)`. The row is the model's, before a penalty, a
/// grammar or a sampler has seen it, so it has the same bits on every device, however many tokens were computed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain([u8; 32]);

impl Chain {
    /// Before the first token after a prompt. `fingerprint`: [`Session::fingerprint`](super::Session::fingerprint).
    pub fn new(fingerprint: &str, prompt: &[u32]) -> Chain {
        let mut hash = Sha256::new();
        hash.update(DOMAIN);
        hash.update((fingerprint.len() as u32).to_le_bytes());
        hash.update(fingerprint);
        hash.update((prompt.len() as u32).to_le_bytes());
        prompt.iter().for_each(|id| hash.update(id.to_le_bytes()));
        Chain(hash.finalize().into())
    }

    /// As a chain stood after some token, to go on from there.
    pub fn at(link: [u8; 32]) -> Chain {
        Chain(link)
    }

    /// The last link.
    pub fn link(&self) -> [u8; 32] {
        self.0
    }

    /// Adds a token and the row it was drawn from, one logit for each token of the vocabulary; the new link.
    pub fn push(&mut self, id: u32, row: &[f32]) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update(id.to_le_bytes());
        if cfg!(target_endian = "little") {
            hash.update(bytemuck::cast_slice::<f32, u8>(row));
        } else {
            row.iter().for_each(|x| hash.update(x.to_le_bytes()));
        }
        self.0 = hash.finalize().into();
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_those_of_the_formula_and_whatever_goes_in_changes_them() {
        let mut plain = b"isobit chain 1\0".to_vec();
        plain.extend([3, 0, 0, 0]);
        plain.extend(b"abc");
        plain.extend([2, 0, 0, 0, 7, 0, 0, 0, 0, 1, 0, 0]);
        let mut chain = Chain::new("abc", &[7, 256]);
        let first: [u8; 32] = Sha256::digest(&plain).into();
        assert_eq!(chain.link(), first);
        let mut plain = first.to_vec();
        plain.extend([9, 0, 0, 0, 0, 0, 128, 63, 0, 0, 0, 128]);
        let second: [u8; 32] = Sha256::digest(&plain).into();
        assert_eq!(chain.push(9, &[1.0, -0.0]), second);
        for (fingerprint, prompt) in [("abd", &[7, 256][..]), ("abc", &[7, 257]), ("abc", &[7]), ("ab", &[7, 256])] {
            assert_ne!(Chain::new(fingerprint, prompt).link(), first);
        }
        for (from, id, row) in
            [(second, 9, [1.0, -0.0]), (first, 8, [1.0, -0.0]), (first, 9, [1.0, 0.0]), (first, 9, [-0.0, 1.0])]
        {
            assert_ne!(Chain::at(from).push(id, &row), second);
        }
    }
}
