//! Runs a text of WGSL on an adapter apart from the program: what shaders share, tried in a frame of a test's own.

use futures::executor::block_on;
use wgpu::util::DeviceExt;

/// Every adapter of the machine that the program lists too.
pub fn adapters() -> Vec<wgpu::Adapter> {
    let listed: Vec<String> = crate::common::adapters().iter().map(|a| a.title()).collect();
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle_from_env());
    let mut all = block_on(instance.enumerate_adapters(wgpu::Backends::all()));
    all.retain(|a| {
        let info = a.get_info();
        listed.contains(&format!("{} [{:?}]", info.name, info.backend))
    });
    all
}

/// The adapter with those of the features that it has.
pub fn open(adapter: &wgpu::Adapter, features: wgpu::Features) -> (wgpu::Device, wgpu::Queue) {
    block_on(adapter.request_device(&wgpu::DeviceDescriptor {
        required_features: adapter.features() & features,
        ..Default::default()
    }))
    .expect("the adapter opens")
}

/// The compiled text: its entry point is `main`, binding 0 what it reads, binding 1 what it writes.
pub fn compile(device: &wgpu::Device, text: &str, constants: &[(&str, f64)]) -> wgpu::ComputePipeline {
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(text.into()),
    });
    device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions { constants, zero_initialize_workgroup_memory: false },
        cache: None,
    })
}

/// The `n` words that so many workgroups write.
pub fn run(
    (device, queue): &(wgpu::Device, wgpu::Queue),
    pipeline: &wgpu::ComputePipeline,
    x: &[u32],
    n: usize,
    groups: u32,
) -> Vec<u32> {
    let input = device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
        label: None,
        contents: bytemuck::cast_slice(x),
        usage: wgpu::BufferUsages::STORAGE,
    });
    let size = n as u64 * 4;
    let buffer =
        |usage| device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false });
    let output = buffer(wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC);
    let staging = buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[
            wgpu::BindGroupEntry { binding: 0, resource: input.as_entire_binding() },
            wgpu::BindGroupEntry { binding: 1, resource: output.as_entire_binding() },
        ],
    });
    let mut encoder = device.create_command_encoder(&Default::default());
    {
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(groups, 1, 1);
    }
    encoder.copy_buffer_to_buffer(&output, 0, &staging, 0, size);
    queue.submit([encoder.finish()]);
    staging.slice(..).map_async(wgpu::MapMode::Read, |r| r.expect("the buffer is mapped"));
    device.poll(wgpu::PollType::wait_indefinitely()).expect("the device answers");
    bytemuck::pod_collect_to_vec(&staging.slice(..).get_mapped_range().expect("mapped"))
}
