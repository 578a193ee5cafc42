//! Shader modules for a device, with or without wgpu's counters in every loop, and leave to use matrices in them.
//!
//! naga writes a counter into each loop, which ends it after 2^64 turns: a driver may otherwise take a loop without an end
//! as code that is never reached. To a driver's compiler a loop with a counter has two ends, and most unroll it badly or not
//! at all; on AMD that leaves one or two loads of weights under way (docs/isa.md). Indices and divisors stay checked.

use super::shaders::Shader;

/// Whether loops of shaders carry wgpu's counters. Neither changes a bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Loops {
    /// as they are written
    #[default]
    Plain,
    /// with a counter that ends each after 2^64 turns
    Counted,
}

impl Loops {
    /// What wgpu is to check while a shader runs.
    fn checks(self) -> wgpu::ShaderRuntimeChecks {
        wgpu::ShaderRuntimeChecks {
            force_loop_bounding: self == Loops::Counted,
            ..wgpu::ShaderRuntimeChecks::checked()
        }
    }
}

/// The module of one of the program's own shaders.
pub(super) fn create(device: &wgpu::Device, shader: &Shader, loops: Loops) -> wgpu::ShaderModule {
    let source = wgpu::ShaderSource::Wgsl(shader.source.into());
    let desc = wgpu::ShaderModuleDescriptor { label: Some(shader.name), source };
    // SAFETY: of the checks, only the counters of loops are left out, for which every loop must end. The source is one of
    // the shaders built into the program (`Shader` is made nowhere else), never a user's. Each of their loops counts a local
    // variable towards an end that no turn moves away, by a step that is not 0, or halves it below 1 or more: the ends are sizes
    // of the plan, parameters of a command, or constants, and never what a buffer holds. tests/devices/loops.rs reads them.
    unsafe { device.create_shader_module_trusted(desc, loops.checks()) }
}

/// wgpu's leave to use matrices, which it calls experimental.
pub(super) fn matrices() -> wgpu::ExperimentalFeatures {
    // SAFETY: what wgpu asks for is that its bugs are known to be possible. Of experimental features only matrices are used
    // (`matrices::features`), only by shaders built into the program, which load and store them within workgroup memory of
    // constant size, and only on devices whose sums the probe has compared with integers.
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}
