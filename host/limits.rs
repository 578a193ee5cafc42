//! What an adapter can do at most, measured: plain reads of a large buffer, and `dot4I8Packed` with its operands at hand.
//!
//! Both are rates of WGSL through wgpu, as the engine's shaders are: where a driver has no instruction for the dot, the
//! int8 rate is that of what it puts in its place. Wall-clock time around one submit of several dispatches; the best of
//! several submits counts. Integers only, so nothing here touches the exactness law.

use super::adapters::{Adapter, connect};
use super::device::GpuDevice;
use super::faults::HostError;
use super::options::GpuOptions;
use std::time::Instant;

/// Each group of 256 reads 32 vectors a thread, side by side.
const READ: &str = "
@group(0) @binding(0) var<storage, read> data: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var sum = vec4<u32>(0u);
    let first = group.x * 8192u + lane;
    for (var i = 0u; i < 32u; i++) {
        sum += data[first + i * 256u];
    }
    sums[group.x * 256u + lane] = sum.x + sum.y + sum.z + sum.w;
}
";

/// Bytes a group of `READ` reads.
const READ_BYTES: u64 = 256 * 32 * 16;

/// Eight independent sums a thread, 512 rounds; one operand changes every round, so that nothing leaves the loop.
const DOTS: &str = "
@group(0) @binding(0) var<storage, read> data: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let a = data[lane];
    let c = data[lane + 256u];
    var b = lane * 0x01030507u;
    var s0 = 0; var s1 = 0; var s2 = 0; var s3 = 0; var s4 = 0; var s5 = 0; var s6 = 0; var s7 = 0;
    for (var i = 0u; i < 512u; i++) {
        s0 += dot4I8Packed(a.x, b);
        s1 += dot4I8Packed(a.y, b);
        s2 += dot4I8Packed(a.z, b);
        s3 += dot4I8Packed(a.w, b);
        s4 += dot4I8Packed(c.x, b);
        s5 += dot4I8Packed(c.y, b);
        s6 += dot4I8Packed(c.z, b);
        s7 += dot4I8Packed(c.w, b);
        b += 0x9e3779b9u;
    }
    sums[group.x * 256u + lane] = bitcast<u32>(s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7);
}
";

/// Operations of a group of `DOTS`: a multiply-add counts two.
const DOTS_OPS: f64 = 256.0 * 512.0 * 8.0 * 8.0;

/// Seconds of a timed submit, at least.
const SECONDS: f64 = 0.03;

/// Timed submits of each.
const RUNS: usize = 6;

/// Bytes a second of plain reads and int8 operations a second of an adapter. Takes about a second, and 1 GiB of its
/// memory (256 MiB on a software adapter, less where a binding is limited to less).
///
/// Errors: the device cannot be opened, or fails.
pub async fn limits(adapter: &Adapter) -> Result<(f64, f64), HostError> {
    let (gpu, _) = connect(adapter, GpuOptions::default()).await?;
    let l = gpu.device.limits();
    let most = l.max_storage_buffer_binding_size.min(l.max_buffer_size);
    let bytes = most.min(if adapter.report().software { 1 << 28 } else { 1 << 30 }) / READ_BYTES * READ_BYTES;
    let groups = (bytes / READ_BYTES).min(l.max_compute_workgroups_per_dimension.into()).max(1) as u32;
    let buffer = |label, size| {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        gpu.device.create_buffer(&wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: false })
    };
    let (data, sums) = (buffer("limits data", bytes.max(READ_BYTES)), buffer("limits sums", u64::from(groups) * 1024));
    // the dot's operands; the rest of the buffer is zeros, which read no faster
    let operands: Vec<u32> = (0..2048u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
    gpu.queue.write_buffer(&data, 0, bytemuck::cast_slice(&operands));
    let read = best(&gpu, READ, &data, &sums, groups).await?;
    let dot_groups = if adapter.report().software { 64 } else { groups.min(4096) };
    let dots = best(&gpu, DOTS, &data, &sums, dot_groups.min(groups)).await?;
    let read_bytes = u64::from(groups) * READ_BYTES;
    Ok((read_bytes as f64 / read, f64::from(dot_groups.min(groups)) * DOTS_OPS / dots))
}

/// Seconds of one dispatch of a shader.
async fn best(
    gpu: &GpuDevice,
    source: &str,
    data: &wgpu::Buffer,
    sums: &wgpu::Buffer,
    groups: u32,
) -> Result<f64, HostError> {
    let module = gpu.device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some("limits"),
        source: wgpu::ShaderSource::Wgsl(source.into()),
    });
    let pipeline = gpu.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("limits"),
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: Default::default(),
        cache: None,
    });
    let entries = [
        wgpu::BindGroupEntry { binding: 0, resource: data.as_entire_binding() },
        wgpu::BindGroupEntry { binding: 1, resource: sums.as_entire_binding() },
    ];
    let group = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some("limits"),
        layout: &pipeline.get_bind_group_layout(0),
        entries: &entries,
    });
    let (mut times, mut found) = (1u32, f64::INFINITY);
    for run in 0..=RUNS + 1 {
        let start = Instant::now();
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&pipeline);
            pass.set_bind_group(0, &group, &[]);
            for _ in 0..times {
                pass.dispatch_workgroups(groups, 1, 1);
            }
        }
        gpu.queue.submit([encoder.finish()]);
        gpu.wait().await?;
        let seconds = start.elapsed().as_secs_f64() / f64::from(times);
        match run {
            // compiles, clears the buffers and warms up
            0 => {}
            // says how many dispatches fill the time
            1 => times = (SECONDS / seconds).ceil().clamp(1.0, 4096.0) as u32,
            _ => found = found.min(seconds),
        }
    }
    Ok(found)
}
