//! What the barriers of `docs/exactness.md` section 1 cost in decode: `cargo bench --bench barriers [ADAPTER]`.
//!
//! The decode kernels as they are, and the same text with `B(x) = x`, which a driver may then fuse and reorder: only the
//! time of the second means anything. Both are timed in turn within each round, first one then the other leading; a
//! round's ratio is theirs; printed are the median over the rounds and, for a machine that others use as well, the ratio
//! of the best times. `ADAPTER`: its index among wgpu's, 0 unless
//! given.

#[cfg(not(feature = "gpu"))]
fn main() {
    eprintln!("barriers: this build has no gpu feature");
}

#[cfg(feature = "gpu")]
fn main() -> anyhow::Result<()> {
    gpu::main()
}

#[cfg(feature = "gpu")]
mod gpu {
    use anyhow::{Context, ensure};
    use isobit::internals::host::shaders::{self, Binding};
    use isobit::internals::ops::linear::{LinearParams, act_words};
    use isobit::internals::record::Args;
    use std::time::Instant;

    /// Rounds, dispatches in a timed submit, and the seconds it should last.
    const ROUNDS: usize = 41;
    const SECONDS: f64 = 0.02;

    /// Stem of a decode kernel, words of a row of k elements.
    type Kernel = (&'static str, fn(u32) -> u32);

    const KERNELS: [Kernel; 4] = [
        ("q4k_matvec4", |k| k / 256 * 36),
        ("q6k_matvec4", |k| k / 256 * 53),
        ("q8_0_matvec4", |k| k / 128 * 34),
        ("f16_matvec4", |k| k / 2),
    ];

    /// Rows and k: gate and up of the 58 M shape, and a matrix that no cache of a core holds.
    const SHAPES: [(u32, u32); 2] = [(3072, 512), (8192, 2048)];

    /// The shader's text with the bodies of `B` and `B4` replaced.
    fn bare(source: &str) -> String {
        let scalar = "return bitcast<f32>(bitcast<u32>(x) ^ zero);";
        let four = "return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) ^ vec4<u32>(zero));";
        assert!(source.contains(scalar) && source.contains(four), "the barriers are written otherwise");
        source.replace(scalar, "return x;").replace(four, "return x;")
    }

    struct Bench {
        device: wgpu::Device,
        queue: wgpu::Queue,
    }

    impl Bench {
        fn buffer(&self, words: &[u32], usage: wgpu::BufferUsages) -> wgpu::Buffer {
            let bytes: &[u8] = bytemuck::cast_slice(words);
            let usage = usage | wgpu::BufferUsages::COPY_DST;
            let size = bytes.len() as u64;
            let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
            let buffer = self.device.create_buffer(&descriptor);
            self.queue.write_buffer(&buffer, 0, bytes);
            buffer
        }

        fn pipeline(&self, source: &str, layout: &wgpu::PipelineLayout) -> wgpu::ComputePipeline {
            let source = wgpu::ShaderSource::Wgsl(source.into());
            let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
            self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: None,
                layout: Some(layout),
                module: &module,
                entry_point: Some("main"),
                compilation_options: Default::default(),
                cache: None,
            })
        }

        /// Seconds of one dispatch, of `times` in a submit.
        fn time(
            &self,
            pipeline: &wgpu::ComputePipeline,
            group: &wgpu::BindGroup,
            rows: u32,
            times: usize,
        ) -> anyhow::Result<f64> {
            let start = Instant::now();
            let mut encoder = self.device.create_command_encoder(&Default::default());
            {
                let mut pass = encoder.begin_compute_pass(&Default::default());
                pass.set_pipeline(pipeline);
                pass.set_bind_group(0, group, &[]);
                for _ in 0..times {
                    pass.dispatch_workgroups(rows / 32, 1, 1);
                }
            }
            self.queue.submit([encoder.finish()]);
            self.device.poll(wgpu::PollType::wait_indefinitely())?;
            Ok(start.elapsed().as_secs_f64() / times as f64)
        }

        /// The best seconds with barriers; the median over the rounds of those over the seconds without; that of the best.
        fn compare(&self, stem: &str, row_words: u32, (rows, k): (u32, u32)) -> anyhow::Result<[f64; 3]> {
            let shader = shaders::find(stem).context("no such shader")?;
            let p = LinearParams { n_tokens: 1, k, rows, digits: 1, y_stride: rows, y_offset: 0, residual: 0 };
            let mut params = [0u32; 64];
            Args::Linear(p).encode(bytemuck::cast_slice_mut(&mut params));
            // any words do: every f16 among them is small and normal
            let words = |n: u32| (0..n).map(|i| i.wrapping_mul(0x9e37_79b9) & 0xb3ff_b3ff | 0x1000_1000).collect();
            let (weights, act): (Vec<u32>, Vec<u32>) =
                (words(rows * row_words), words((act_words(k as usize, 1) as u32).max(k)));
            let storage = wgpu::BufferUsages::STORAGE;
            let buffers = [
                self.buffer(&params, wgpu::BufferUsages::UNIFORM),
                self.buffer(&weights, storage),
                self.buffer(&act, storage),
                self.buffer(&vec![0; rows as usize], storage),
            ];
            let entries: Vec<_> = (0u32..)
                .zip(shader.bindings)
                .map(|(binding, kind)| wgpu::BindGroupLayoutEntry {
                    binding,
                    visibility: wgpu::ShaderStages::COMPUTE,
                    ty: wgpu::BindingType::Buffer {
                        ty: match kind {
                            Binding::Uniform => wgpu::BufferBindingType::Uniform,
                            other => wgpu::BufferBindingType::Storage { read_only: *other == Binding::Read },
                        },
                        has_dynamic_offset: false,
                        min_binding_size: None,
                    },
                    count: None,
                })
                .collect();
            let layout = self
                .device
                .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
            let pipeline_layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: &[Some(&layout)],
                immediate_size: 0,
            });
            let entries: Vec<_> = (0u32..)
                .zip(&buffers)
                .map(|(binding, b)| wgpu::BindGroupEntry { binding, resource: b.as_entire_binding() })
                .collect();
            let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &layout,
                entries: &entries,
            });
            let pipelines =
                [self.pipeline(shader.source, &pipeline_layout), self.pipeline(&bare(shader.source), &pipeline_layout)];
            for pipeline in &pipelines {
                self.time(pipeline, &group, rows, 1)?;
            }
            let times = (SECONDS / self.time(&pipelines[0], &group, rows, 4)?).clamp(1.0, 4096.0) as usize;
            let (mut best, mut ratios) = ([f64::INFINITY; 2], Vec::new());
            for round in 0..ROUNDS {
                let mut seconds = [0.0; 2];
                for which in [round % 2, 1 - round % 2] {
                    seconds[which] = self.time(&pipelines[which], &group, rows, times)?;
                }
                best = [best[0].min(seconds[0]), best[1].min(seconds[1])];
                ratios.push(seconds[0] / seconds[1]);
            }
            ratios.sort_by(f64::total_cmp);
            Ok([best[0], ratios[ROUNDS / 2], best[0] / best[1]])
        }
    }

    pub fn main() -> anyhow::Result<()> {
        let wanted = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(0);
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()));
        ensure!(wanted < adapters.len(), "there is no adapter {wanted}; there are {}", adapters.len());
        let adapter = &adapters[wanted];
        let limits = wgpu::DeviceDescriptor { required_limits: adapter.limits(), ..Default::default() };
        let (device, queue) = pollster::block_on(adapter.request_device(&limits))?;
        println!("{} [{:?}]", adapter.get_info().name, adapter.get_info().backend);
        let bench = Bench { device, queue };
        println!("kernel             rows x k   us, barriers   with / without: median   of the best");
        for shape in SHAPES {
            for (stem, row_words) in KERNELS {
                let [best, median, of_best] = bench.compare(stem, row_words(shape.1), shape)?;
                let rows_k = format!("{} x {}", shape.0, shape.1);
                println!("{stem:14} {rows_k:>12} {:14.1} {median:24.3} {of_best:13.3}", best * 1e6);
            }
        }
        Ok(())
    }
}
