//! What an operation says of itself beside its twin: the fields of its parameters, what follows the step, how many
//! workgroups it takes, and what it writes. `record` makes its list of parameters of these; a new operation implements
//! [`Params`] in the file of its twin.

use crate::ops::places::{TABLES, Touches};
use encase::ShaderType;
use encase::internal::WriteInto;

/// What changes from step to step, for one command.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// rows the command works on: tokens, heads of tokens, or tokens whose logits are wanted; at least 1
    pub n: u32,
    /// least position of the step's tokens
    pub pos: u32,
    /// position after the greatest of them
    pub end: u32,
    /// what a step touches of the pool where its tokens are of many sequences, or their chunks lie anywhere; `None`: one
    /// sequence, whose chunks lie in their own order
    pub touches: Option<&'a [Touches; TABLES]>,
    /// sequences that the step's tokens are of
    pub strands: u32,
    /// first token (within the step) whose logits are wanted
    pub out_first: u32,
    /// how many of the best logits are wanted; 0: all
    pub select: u32,
}

/// The fields of a parameter struct, in the order of the shader's uniform struct; `params!` implements it.
pub trait Fields: Copy + ShaderType + WriteInto {
    /// name and WGSL type of each
    const FIELDS: &'static [(&'static str, &'static str)];

    /// The struct whose fields have these bits.
    fn from_words(words: &[u32]) -> Self;
}

/// The parameters of an operation.
pub trait Params: Fields {
    /// Buffers written: so many of the last bindings.
    const OUTPUTS: usize = 1;
    /// Which of them holds the operation's f32 results.
    const FLOAT_OUTPUT: usize = Self::OUTPUTS - 1;
    /// How far apart these results are: every word (1), or the scale in front of each block of activations. `None`: there
    /// are none, as in a cache or a list of ids.
    const FLOAT_STRIDE: Option<usize> = Some(1);

    /// The parameters for a step; `None` where the command has nothing to do in it.
    fn at(self, step: &At) -> Option<Self>;

    /// Workgroups of the dispatch, x and y; z is always 1, since the barrier's zero comes from it.
    fn groups(&self) -> [u32; 2];

    /// Whether the operation writes all of one of its outputs and reads none of it. Where nothing is said it does not.
    fn replaces(&self, _output: usize) -> bool {
        false
    }
}

/// A parameter struct: u32 and f32 fields, in the order of the shader's uniform struct.
macro_rules! params {
    ($(#[$doc:meta])* pub struct $name:ident { $($(#[$field_doc:meta])* pub $field:ident: $ty:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, encase::ShaderType)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $ty,)*
        }

        impl $crate::ops::params::Fields for $name {
            const FIELDS: &'static [(&'static str, &'static str)] = &[$((stringify!($field), stringify!($ty))),*];

            fn from_words(words: &[u32]) -> $name {
                let mut words = words.iter();
                let mut next = || *words.next().expect("as many words as fields");
                $name { $($field: $crate::ops::params::FromBits::from_bits(next()),)* }
            }
        }
    };
}
pub(crate) use params;

/// A field of four bytes.
pub trait FromBits {
    /// The value of these bits.
    fn from_bits(bits: u32) -> Self;
}

impl FromBits for u32 {
    fn from_bits(bits: u32) -> u32 {
        bits
    }
}

impl FromBits for f32 {
    fn from_bits(bits: u32) -> f32 {
        f32::from_bits(bits)
    }
}
