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
    /// its stem
    pub name: &'static str,
    /// WGSL with every import expanded; lines `// from FILE:LINE` say where its parts are from (`expand::place_of`)
    pub source: &'static str,
    /// `@workgroup_size`
    pub workgroup_size: [u32; 3],
    /// bindings 0, 1, …
    pub bindings: &'static [Binding],
    /// fields of the parameter struct: name, byte offset, `u32` or `f32`
    pub params: &'static [(&'static str, u32, &'static str)],
    /// names of its `override` constants
    pub overrides: &'static [&'static str],
    /// it needs subgroups: for other readers of WGSL than naga, `enable subgroups;` goes before the source
    pub subgroups: bool,
    /// it needs matrices, and f16 for what they take, which its source enables
    pub matrices: bool,
}

include!(concat!(env!("OUT_DIR"), "/shaders.rs"));

/// The shader of a stem.
pub fn find(name: &str) -> Option<&'static Shader> {
    SHADERS.iter().find(|s| s.name == name)
}

/// WGSL without what a compiler does not see: comments (of `//`, the only ones the shaders have), blank lines, and spaces
/// beyond one between words.
pub fn code(source: &str) -> String {
    let mut code = String::new();
    for line in source.lines() {
        let line = line.split("//").next().unwrap_or_default();
        let before = code.len();
        for word in line.split_whitespace() {
            if code.len() > before {
                code.push(' ');
            }
            code.push_str(word);
        }
        if code.len() > before {
            code.push('\n');
        }
    }
    code
}
