//! What a run was, in a file that anybody can check: receipts, and runs that are kept, replayed and compared.
//!
//! A [`Receipt`] says which model, with which options, gave which tokens after which prompt, and has a link of a hash chain
//! over the logits of every token. [`check`] computes all of it again, on any device, and names the first token that differs;
//! [`replay`] makes the text again token by token; a [`Run`] is a receipt that is kept, from which others branch;
//! [`compare`] asks another model for the same. The format, and what it proves, is in `docs/receipts.md`.
//!
//! Nothing here prints, and nothing decides what is done about a difference.

mod check;
mod compare;
mod error;
mod hex;
mod key;
mod receipt;
mod run;

pub use check::{Checked, Difference, Sample, check, replay};
pub use compare::{Compared, Row, compare};
pub use error::Error;
pub use hex::Hex;
pub use key::{Key, PublicKey, Signature};
pub use receipt::{Body, Ending, LARGEST, Maker, Receipt, make};
pub use run::{Extras, Listed, Parent, Run};
