//! A shader as SPIR-V, the words that wgpu's Vulkan backend hands to a driver: for compilers asked without a device.
//!
//! Nothing here runs on a device; `program` gives WGSL to wgpu, which then does the same.

use super::expand::place_of;
use wgpu::naga::back::spv::{Options, PipelineOptions, WriterFlags, ZeroInitializeWorkgroupMemoryMode, write_vec};
use wgpu::naga::back::{PipelineConstants, pipeline_constants};
use wgpu::naga::front::wgsl;
use wgpu::naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use wgpu::naga::valid::{Capabilities, ValidationFlags, Validator};
use wgpu::naga::{ShaderStage, SourceLocation};

/// SPIR-V 1.6 of the entry point `main` of an expanded shader with values for its overrides; values of others are left out.
///
/// The options are those of wgpu-hal (`vulkan/adapter.rs`) for Vulkan 1.3 with robustBufferAccess2, every capability that
/// a shader asks for, without counters in loops (`module`), and the pipeline options of `program`.
///
/// # Errors
/// Text that naga refuses, with its line, or that of the file it was expanded from.
pub fn compile(source: &str, overrides: &[(&str, f64)]) -> Result<Vec<u32>, String> {
    let module = wgsl::parse_str(source).map_err(|e| format!("{}{}", at(source, e.location(source)), e.message()))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map_err(|e| format!("{}{}", at(source, e.location(source)), e.as_inner()))?;
    let values: PipelineConstants = overrides.iter().map(|&(name, value)| (name.to_string(), value)).collect();
    let main = (ShaderStage::Compute, "main");
    let (module, info) =
        pipeline_constants::process_overrides(&module, &info, Some(main), &values).map_err(|e| e.to_string())?;
    let options = Options {
        lang_version: (1, 6),
        flags: WriterFlags::LABEL_VARYINGS | WriterFlags::FORCE_POINT_SIZE,
        capabilities: None,
        bounds_check_policies: BoundsCheckPolicies {
            index: BoundsCheckPolicy::Restrict,
            buffer: BoundsCheckPolicy::Unchecked,
            image_load: BoundsCheckPolicy::Unchecked,
            binding_array: BoundsCheckPolicy::Unchecked,
        },
        zero_initialize_workgroup_memory: ZeroInitializeWorkgroupMemoryMode::None,
        force_loop_bounding: false,
        emit_int_div_checks: true,
        ..Options::default()
    };
    let pipeline = PipelineOptions { shader_stage: main.0, entry_point: main.1.to_string() };
    write_vec(&module, &info, &options, Some(&pipeline)).map_err(|e| e.to_string())
}

/// What a message about a place of a text begins with; empty where naga names none.
fn at(source: &str, found: Option<SourceLocation>) -> String {
    let Some(line) = found.map(|l| l.line_number) else { return String::new() };
    place_of(source, line as usize).map_or_else(|| format!("line {line}: "), |place| format!("{place}: "))
}
