//! The table of expanded shaders that `build.rs` wrote: one truth for bindings and workgroup sizes.

/// What a binding is, in binding order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Binding {
    /// the parameter struct, always binding 0
    Uniform,
    /// a buffer the shader only reads
    Read,
    /// a buffer the shader writes
    ReadWrite,
}

/// One expanded, validated shader.
#[derive(Debug)]
pub struct Shader {
    /// stem of its file
    pub name: &'static str,
    /// WGSL with every import expanded
    pub source: &'static str,
    /// `@workgroup_size`
    pub workgroup_size: [u32; 3],
    /// bindings 0, 1, …
    pub bindings: &'static [Binding],
    /// fields of the parameter struct: name, byte offset, `u32` or `f32`
    pub params: &'static [(&'static str, u32, &'static str)],
    /// it needs subgroups: for other readers of WGSL than naga, `enable subgroups;` goes before the source
    pub subgroups: bool,
}

include!(concat!(env!("OUT_DIR"), "/shaders.rs"));

/// The shader of a stem.
pub fn find(name: &str) -> Option<&'static Shader> {
    SHADERS.iter().find(|s| s.name == name)
}
