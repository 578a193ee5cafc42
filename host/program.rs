//! A plan made ready to run: buffers, the arena, one pipeline per operation, one bind group per command.
//!
//! Everything is made here, once; the token loop creates nothing.

use super::faults::HostError;
use super::shaders::{self, Binding};
use crate::record::{BufId, Op, Plan, Role};
use std::collections::HashMap;

/// Bytes between parameter structs in the arena: WebGPU's largest required uniform offset alignment.
pub(super) const SLOT: usize = 256;

/// Where a buffer lives.
pub(super) enum Place {
    Own(wgpu::Buffer),
    /// input words, at this byte offset of the arena
    Arena(u64),
}

pub(super) struct Compiled {
    pub pipeline: usize,
    pub bind_group: wgpu::BindGroup,
}

pub(super) struct Program {
    pub plan: Plan,
    pub places: Vec<Place>,
    pub arena: wgpu::Buffer,
    /// what the next step writes into the arena, in one write
    pub arena_bytes: Vec<u8>,
    pub pipelines: Vec<wgpu::ComputePipeline>,
    pub commands: Vec<Compiled>,
    pub logits_staging: wgpu::Buffer,
}

impl Program {
    pub fn new(device: &wgpu::Device, plan: Plan, max_binding: u64) -> Result<Program, HostError> {
        let mut arena_len = plan.recording.commands.len() * SLOT;
        let mut places = Vec::with_capacity(plan.buffers.len());
        for b in &plan.buffers {
            let bytes = (b.words * 4).max(16) as u64;
            if bytes > max_binding {
                return Err(HostError::TooLarge { buffer: b.name.clone(), bytes, limit: max_binding });
            }
            if b.role == Role::Input {
                places.push(Place::Arena(arena_len as u64));
                arena_len += (bytes as usize).next_multiple_of(SLOT);
            } else {
                places.push(Place::Own(device.create_buffer(&wgpu::BufferDescriptor {
                    label: Some(&b.name),
                    size: bytes,
                    usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC,
                    mapped_at_creation: false,
                })));
            }
        }
        let arena = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("arena"),
            size: arena_len.max(SLOT) as u64,
            usage: wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::UNIFORM
                | wgpu::BufferUsages::COPY_DST
                | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        let logits_staging = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("logits read-back"),
            size: (plan.max_out * plan.vocab * 4).max(16) as u64,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut pipelines = Vec::new();
        let mut layouts = Vec::new();
        let mut by_op: HashMap<Op, usize> = HashMap::new();
        let mut commands = Vec::with_capacity(plan.recording.commands.len());
        for (i, c) in plan.recording.commands.iter().enumerate() {
            let index = *by_op.entry(c.op).or_insert_with(|| {
                let (pipeline, layout) = compile(device, c.op);
                pipelines.push(pipeline);
                layouts.push(layout);
                pipelines.len() - 1
            });
            let mut entries = vec![range(0, &arena, (i * SLOT) as u64, SLOT as u64)];
            for (n, &id) in c.binds.iter().enumerate() {
                let bytes = (plan.buffers[id].words * 4).max(16) as u64;
                entries.push(match &places[id] {
                    Place::Own(b) => range(n as u32 + 1, b, 0, bytes),
                    Place::Arena(at) => range(n as u32 + 1, &arena, *at, bytes),
                });
            }
            let bind_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: Some(c.op.stem()),
                layout: &layouts[index],
                entries: &entries,
            });
            commands.push(Compiled { pipeline: index, bind_group });
        }
        Ok(Program { arena_bytes: vec![0; arena_len], plan, places, arena, pipelines, commands, logits_staging })
    }

    pub fn place(&self, id: BufId) -> (&wgpu::Buffer, u64) {
        match &self.places[id] {
            Place::Own(b) => (b, 0),
            Place::Arena(at) => (&self.arena, *at),
        }
    }
}

fn range(binding: u32, buffer: &wgpu::Buffer, offset: u64, size: u64) -> wgpu::BindGroupEntry<'_> {
    wgpu::BindGroupEntry {
        binding,
        resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer,
            offset,
            size: std::num::NonZeroU64::new(size),
        }),
    }
}

fn compile(device: &wgpu::Device, op: Op) -> (wgpu::ComputePipeline, wgpu::BindGroupLayout) {
    let shader = shaders::find(op.stem()).expect("tests/shaders.rs checks that every operation has a shader");
    let entries: Vec<wgpu::BindGroupLayoutEntry> = (0u32..)
        .zip(shader.bindings)
        .map(|(binding, kind)| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: match kind {
                    Binding::Uniform => wgpu::BufferBindingType::Uniform,
                    Binding::Read => wgpu::BufferBindingType::Storage { read_only: true },
                    Binding::ReadWrite => wgpu::BufferBindingType::Storage { read_only: false },
                },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        })
        .collect();
    let layout = device
        .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: Some(shader.name), entries: &entries });
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(shader.name),
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 0,
    });
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some(shader.name),
        source: wgpu::ShaderSource::Wgsl(shader.source.into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(&op.title()),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions { constants: &op.constants(), ..Default::default() },
        cache: None,
    });
    (pipeline, layout)
}
