//! Runs a shader that asks a device something, apart from any plan: a driver that cannot compile it is a device that has not
//! what was asked for, not one that fails.

use super::device::GpuDevice;
use super::faults::{HostError, one_line};
use super::module::{self, Halves};
use super::shaders;
use wgpu::util::DeviceExt;

/// What a probe is: its shader, whose parameters begin with `count`, what it reads, and how many words it writes in so many
/// workgroups.
pub(super) struct Probe<'a> {
    pub stem: &'static str,
    pub halves: Halves,
    pub count: u32,
    pub words: &'a [u32],
    pub written: usize,
    pub groups: u32,
}

impl Probe<'_> {
    /// The words written, or why the device cannot.
    pub async fn run(&self, gpu: &GpuDevice) -> Result<Result<Vec<u32>, String>, HostError> {
        use wgpu::BufferUsages as Usages;
        let (device, label) = (&gpu.device, Some(self.stem));
        let bytes = self.written as u64 * 4;
        let buffer = |contents: &[u32], usage| {
            let contents = bytemuck::cast_slice(contents);
            device.create_buffer_init(&wgpu::util::BufferInitDescriptor { label, contents, usage })
        };
        let empty = |usage| {
            device.create_buffer(&wgpu::BufferDescriptor { label, size: bytes, usage, mapped_at_creation: false })
        };
        let params = buffer(&[self.count, 0, 0, 0], Usages::UNIFORM);
        let words = buffer(self.words, Usages::STORAGE);
        let written = empty(Usages::STORAGE | Usages::COPY_SRC);
        let staging = empty(Usages::MAP_READ | Usages::COPY_DST);
        let scopes = [wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::Internal, wgpu::ErrorFilter::OutOfMemory]
            .map(|filter| device.push_error_scope(filter));
        let shader = shaders::find(self.stem).expect("tests check that the probes are there");
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: None,
            module: &module::create(device, shader, gpu.capabilities.loops, self.halves),
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: &[],
                zero_initialize_workgroup_memory: false,
            },
            cache: None,
        });
        let buffers = [&params, &words, &written].into_iter().zip(0..);
        let entries: Vec<wgpu::BindGroupEntry> = buffers
            .map(|(buffer, binding)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() })
            .collect();
        let bind_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        let mut encoder = device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&pipeline);
            pass.set_bind_group(0, &bind_group, &[]);
            pass.dispatch_workgroups(self.groups, 1, 1);
        }
        encoder.copy_buffer_to_buffer(&written, 0, &staging, 0, bytes);
        gpu.queue.submit([encoder.finish()]);
        let mut failed = None;
        // the last that was opened is closed first
        for scope in scopes.into_iter().rev() {
            failed = scope.pop().await.or(failed);
        }
        if let Some(e) = failed {
            return Ok(Err(one_line(&e.to_string())));
        }
        Ok(Ok(gpu.map(&staging, bytes, None).await?))
    }
}
