//! What a device can do, as far as choices depend on it.

/// What is known of a device when it is opened.
#[derive(Clone, Copy)]
pub(super) struct Capabilities {
    /// weights are written in place: their buffers may be mapped
    pub in_place: bool,
    /// pipelines may be made on several threads at once (GL has one context, and waiting for it has a limit)
    pub parallel: bool,
    /// not a rasteriser on the CPU, so that a few workgroups leave most of it idle
    pub hardware: bool,
    /// shaders may use subgroups
    pub subgroups: bool,
}
