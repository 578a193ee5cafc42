//! GGUF files of tensors that a test has changed.

use isobit::internals::formats::gguf_write::{Entry, head};
use isobit::internals::formats::meta::Meta;

/// A tensor and its bytes.
pub type Held = (Entry, Vec<u8>);

/// The bytes of a file with these metadata and tensors.
pub fn gguf(meta: &Meta, list: &[Held]) -> Vec<u8> {
    let entries: Vec<Entry> = list.iter().map(|(e, _)| e.clone()).collect();
    let head = head("made.gguf", meta, &entries).unwrap_or_else(|e| panic!("{e}"));
    let mut bytes = head.bytes;
    bytes.resize(head.file_len as usize, 0);
    for ((_, held), at) in list.iter().zip(&head.offsets) {
        bytes[*at as usize..][..held.len()].copy_from_slice(held);
    }
    bytes
}
