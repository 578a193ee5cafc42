//! What a device can do, as far as choices depend on it.

use super::module::{Halves, Loops};

/// What shaders may use of what not every device has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Optional {
    pub subgroups: bool,
    /// matrices of the sizes of [`matrices::SIZES`](super::matrices::SIZES) that the probe found exact
    pub matrices: [bool; 2],
}

/// What a shader needs of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Needs {
    Nothing,
    Subgroups,
    /// matrices of a size, by its place in [`matrices::SIZES`](super::matrices::SIZES)
    Matrices(usize),
}

impl Optional {
    pub fn has(self, needs: Needs) -> bool {
        match needs {
            Needs::Nothing => true,
            Needs::Subgroups => self.subgroups,
            Needs::Matrices(place) => self.matrices[place],
        }
    }
}

/// What is known of a device when it is opened.
#[derive(Clone, Copy)]
pub(super) struct Capabilities {
    /// weights are written in place: their buffers may be mapped
    pub in_place: bool,
    /// pipelines may be made on several threads at once (GL has one context, and waiting for it has a limit)
    pub parallel: bool,
    /// not a rasteriser on the CPU, so that a few workgroups leave most of it idle
    pub hardware: bool,
    /// how much its lanes hold
    pub registers: Registers,
    /// what shaders may use of what not every device has
    pub optional: Optional,
    /// how the loops of its shaders are made
    pub loops: Loops,
    /// how two f16 become f32
    pub halves: Halves,
}

/// How much a lane of a device holds, by what vendors' compilers spill (docs/isa-stats.tsv).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Registers {
    /// AMD, NVIDIA, and what nobody has asked a compiler about
    Many,
    /// the sums of four rows and two tokens of superblocks, not of four tokens: Intel, Apple
    Half,
    /// not the codes of four blocks fetched ahead either: Adreno
    Few,
}
