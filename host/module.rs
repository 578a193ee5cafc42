//! Shader modules for a device, with or without wgpu's counters in every loop, loops written out and its own conversion of
//! f16, and leave to use matrices in them.
//!
//! naga writes a counter into each loop, which ends it after 2^64 turns: a driver may otherwise take a loop without an end
//! as code that is never reached. To a driver's compiler a loop with a counter has two ends, and most unroll it badly or not
//! at all; on AMD that leaves one or two loads of weights under way (docs/isa.md). Indices and divisors stay checked.

use super::shaders::Shader;
use super::unroll;
use std::borrow::Cow;

/// How two f16 of a word become f32. Neither changes a bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Halves {
    /// by integers, as the shaders have it
    #[default]
    Integers,
    /// by the device's own conversion, which a probe has found to give the same (`halves`)
    Unpacked,
}

impl Halves {
    /// The function of `shared/exact/halves.wgsl`, and what stands in its place: behind a barrier, so that no compiler makes
    /// one of it and of the product that follows (AMD's would, `v_fma_mix_f32`), and what runs is what the probe asked for.
    pub const TEXTS: [&str; 2] = [
        "fn halves(word: u32) -> vec2<f32> {\n    \
         return vec2<f32>(f16_to_f32(word & 0xffffu), f16_to_f32(word >> 16u));\n}\n",
        "fn halves(word: u32) -> vec2<f32> {\n    \
         return bitcast<vec2<f32>>(bitcast<vec2<u32>>(unpack2x16float(word)) | vec2<u32>(zero));\n}\n",
    ];

    /// A shader's text.
    fn of(self, shader: &Shader) -> Cow<'static, str> {
        let [integers, unpacked] = Halves::TEXTS;
        match self {
            Halves::Unpacked if shader.source.contains(integers) => shader.source.replace(integers, unpacked).into(),
            _ => shader.source.into(),
        }
    }
}

/// How loops of shaders are made. None of these changes a bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Loops {
    /// as they are written
    #[default]
    Plain,
    /// those of a fixed number of turns written out in the linears whose arrays they index (`unroll`)
    Unrolled,
    /// as they are written, with a counter that ends each after 2^64 turns
    Counted,
}

impl Loops {
    /// What an adapter gets: NVIDIA's own compiler writes nothing out by itself.
    pub(super) fn of(driver: &str, backend: wgpu::Backend) -> Loops {
        if driver == "NVIDIA" && backend == wgpu::Backend::Vulkan { Loops::Unrolled } else { Loops::Plain }
    }

    /// A shader's text, made of `text`.
    fn made(self, shader: &Shader, text: Cow<'static, str>) -> Cow<'static, str> {
        let frames = ["matmul", "staged", "coop16", "matvec4", "lean", "ahead", "expert"];
        match self == Loops::Unrolled && frames.iter().any(|frame| shader.name.contains(frame)) {
            true => unroll::unrolled(&text).into(),
            false => text,
        }
    }

    /// What wgpu is to check while a shader runs.
    fn checks(self) -> wgpu::ShaderRuntimeChecks {
        wgpu::ShaderRuntimeChecks {
            force_loop_bounding: self == Loops::Counted,
            ..wgpu::ShaderRuntimeChecks::checked()
        }
    }
}

/// The module of one of the program's own shaders.
pub(super) fn create(device: &wgpu::Device, shader: &Shader, loops: Loops, halves: Halves) -> wgpu::ShaderModule {
    let source = wgpu::ShaderSource::Wgsl(loops.made(shader, halves.of(shader)));
    let desc = wgpu::ShaderModuleDescriptor { label: Some(shader.name), source };
    // SAFETY: of the checks, only the counters of loops are left out, for which every loop must end. The source is one of
    // the shaders built into the program (`Shader` is made nowhere else), with `Halves::TEXTS` for each other and some of
    // their loops written out, never a user's. Each of their loops counts a local
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

#[cfg(test)]
mod tests {
    use super::super::shaders::SHADERS;
    use super::*;

    fn find(name: &str) -> &'static Shader {
        SHADERS.iter().find(|s| s.name == name).expect("it is there")
    }

    /// Without it a comparison of words shows nothing: a text that stayed as it was has the same.
    #[test]
    fn loops_are_written_out_where_that_is_asked_for_and_in_linears_alone() {
        let loops =
            |how: Loops, name: &str| how.made(find(name), find(name).source.into()).matches("for (var ").count();
        for name in [
            "q4k_matmul",
            "q6k_staged",
            "q8_0_coop16",
            "f16_matvec4",
            "f16_ahead",
            "q4k_gate_up_lean",
            "q4k_expert_grouped",
        ] {
            assert!(loops(Loops::Unrolled, name) < loops(Loops::Plain, name), "{name}");
            assert_eq!(loops(Loops::Counted, name), loops(Loops::Plain, name), "{name}");
        }
        assert_eq!(loops(Loops::Unrolled, "attention"), loops(Loops::Plain, "attention"));
        assert_eq!(Loops::of("NVIDIA", wgpu::Backend::Vulkan), Loops::Unrolled);
        assert_eq!(Loops::of("NVK", wgpu::Backend::Vulkan), Loops::Plain);
        assert_eq!(Loops::of("NVIDIA", wgpu::Backend::Gl), Loops::Plain);
    }

    #[test]
    fn wherever_f16_are_unpacked_the_devices_own_conversion_can_stand() {
        let [integers, unpacked] = Halves::TEXTS;
        let some: Vec<&Shader> = SHADERS.iter().filter(|s| s.source.contains("fn halves(")).collect();
        let of = |part: &str| some.iter().filter(|s| s.name.contains(part)).count();
        assert!(of("attention") > 8 && of("tile") > 3 && of("probe") == 1);
        for s in some {
            assert_eq!(s.source.matches(integers).count(), 1, "{}", s.name);
            assert_eq!(Halves::Integers.of(s), s.source, "{}", s.name);
            let text = Halves::Unpacked.of(s);
            assert!(text.contains(unpacked) && !text.contains(integers), "{}", s.name);
            wgpu::naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{}: {e}", s.name));
        }
        let other = find("add");
        assert_eq!(Halves::Unpacked.of(other), other.source);
    }
}
