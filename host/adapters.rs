//! Finding adapters, describing them, and opening devices.

use super::capabilities::{Capabilities, Optional, Registers};
use super::device::GpuDevice;
use super::faults::{Faults, HostError, one_line};
use super::halves;
use super::matrices;
use super::module::{self, Halves, Loops};
use super::options::{GpuOptions, Tune, Upload};
use super::pipeline_cache::PipelineCache;
use super::qualify::{Verdict, qualify};
use super::store::Memory;
use std::sync::Arc;

/// One adapter of one backend.
pub struct Adapter {
    pub(super) inner: wgpu::Adapter,
    /// its place in the list, the INDEX of `--device`
    pub index: usize,
}

/// What `isobit devices` prints of an adapter.
#[derive(Clone, Debug)]
pub struct AdapterReport {
    /// place in the list
    pub index: usize,
    /// the driver's name for it
    pub name: String,
    /// Vulkan, Metal, Dx12, Gl, BrowserWebGpu
    pub backend: String,
    /// DiscreteGpu, IntegratedGpu, VirtualGpu, Cpu, Other
    pub device_type: String,
    /// driver and its version
    pub driver: String,
    /// vendor and device ids
    pub ids: (u32, u32),
    /// a software rasteriser
    pub software: bool,
    /// limits that matter here and, where it has subgroups, their sizes, by WebGPU name
    pub limits: Vec<(&'static str, u64)>,
    /// features that matter here, and whether the adapter has them
    pub features: Vec<(&'static str, bool)>,
}

/// Every adapter: those of the native interfaces (Vulkan, Metal, DX12, a browser's WebGPU), then those of GL; real GPUs
/// before software in each.
pub async fn adapters() -> Vec<Adapter> {
    let mut list = native_adapters().await;
    list.extend(gl_adapters(list.len()).await);
    list
}

/// Those of the native interfaces, numbered from 0: nothing of GL is started.
///
/// Where neither a Wayland nor an X display is known, Mesa's device-select layer for Vulkan may complain on stderr that
/// `XDG_RUNTIME_DIR` is not set. It comes from the C library of Wayland; the user can silence it with
/// `NODEVICE_SELECT=1`, a program without unsafe code cannot.
pub async fn native_adapters() -> Vec<Adapter> {
    number(of(wgpu::Backends::all() - wgpu::Backends::GL).await, 0)
}

/// Those of GL, numbered from `first`.
pub async fn gl_adapters(first: usize) -> Vec<Adapter> {
    number(of(wgpu::Backends::GL).await, first)
}

async fn of(backends: wgpu::Backends) -> Vec<Adapter> {
    let mut desc = wgpu::InstanceDescriptor::new_without_display_handle_from_env();
    desc.backends &= backends;
    if desc.backends.is_empty() {
        return vec![];
    }
    let mut list = wgpu::Instance::new(desc).enumerate_adapters(backends).await;
    list.retain(|a| a.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS));
    list.retain(|a| {
        let info = a.get_info();
        let old = info.backend == wgpu::Backend::Gl && is_old_gl(&info.driver_info);
        if old {
            log::info!("{} [Gl] is left out: its context is of {}, shaders begin at 4.3", info.name, info.driver_info);
        }
        !old
    });
    list.sort_by_key(|a| match a.get_info().device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    });
    list.into_iter().map(|inner| Adapter { inner, index: 0 }).collect()
}

fn number(mut list: Vec<Adapter>, first: usize) -> Vec<Adapter> {
    for (i, a) in list.iter_mut().enumerate() {
        a.index = first + i;
    }
    list
}

impl AdapterReport {
    /// Whether its buffers lie in the machine's main memory: software and integrated GPUs.
    pub fn main_memory(&self) -> bool {
        self.software || self.device_type == "IntegratedGpu"
    }
}

impl Adapter {
    /// Description for tables and messages.
    pub fn report(&self) -> AdapterReport {
        let info = self.inner.get_info();
        let limits = self.inner.limits();
        let features = self.inner.features();
        let subgroups = features.contains(wgpu::Features::SUBGROUP);
        AdapterReport {
            index: self.index,
            backend: format!("{:?}", info.backend),
            device_type: format!("{:?}", info.device_type),
            driver: [info.driver.as_str(), info.driver_info.as_str()].join(" ").trim().to_string(),
            ids: (info.vendor, info.device),
            software: is_software(&info),
            limits: report_limits(&limits, subgroups.then_some(&info)),
            features: vec![
                ("shader-f16", features.contains(wgpu::Features::SHADER_F16)),
                ("subgroups", subgroups),
                ("timestamp-query", features.contains(wgpu::Features::TIMESTAMP_QUERY)),
                ("cooperative-matrix", features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX)),
                ("mappable-primary-buffers", features.contains(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS)),
                ("pipeline-cache", features.contains(wgpu::Features::PIPELINE_CACHE)),
            ],
            name: info.name,
        }
    }

    /// `llvmpipe (LLVM 15.0.6, 256 bits) [Vulkan]`.
    pub fn title(&self) -> String {
        let info = self.inner.get_info();
        format!("{} [{:?}]", info.name, info.backend)
    }
}

/// The limits of a report, and the sizes of subgroups of an adapter that has them.
fn report_limits(limits: &wgpu::Limits, subgroups: Option<&wgpu::AdapterInfo>) -> Vec<(&'static str, u64)> {
    let mut list = vec![
        ("maxStorageBufferBindingSize", limits.max_storage_buffer_binding_size),
        ("maxBufferSize", limits.max_buffer_size),
        ("maxStorageBuffersPerShaderStage", limits.max_storage_buffers_per_shader_stage.into()),
        ("maxComputeWorkgroupStorageSize", limits.max_compute_workgroup_storage_size.into()),
        ("maxComputeInvocationsPerWorkgroup", limits.max_compute_invocations_per_workgroup.into()),
        ("maxComputeWorkgroupsPerDimension", limits.max_compute_workgroups_per_dimension.into()),
    ];
    if let Some(info) = subgroups {
        list.push(("subgroupMinSize", info.subgroup_min_size.into()));
        list.push(("subgroupMaxSize", info.subgroup_max_size.into()));
    }
    list
}

/// A rasteriser on the CPU. GL reports llvmpipe as `Other`, so the name is looked at as well.
fn is_software(info: &wgpu::AdapterInfo) -> bool {
    let name = info.name.to_lowercase();
    info.device_type == wgpu::DeviceType::Cpu
        || ["llvmpipe", "softpipe", "swiftshader"].iter().any(|s| name.contains(s))
}

/// Whether a context of desktop GL is of a version whose shading language has no compute shaders, whatever extensions it
/// names. wgpu asks for 3.3, which Mesa takes for the least and NVIDIA's driver on Linux at its word.
fn is_old_gl(version: &str) -> bool {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < (4, 3))
}

/// How much a GPU's lanes hold, by its vendor's number or, where a backend has none, its name.
fn registers(info: &wgpu::AdapterInfo) -> Registers {
    let name = info.name.to_lowercase();
    match info.vendor {
        0x5143 => Registers::Few,
        0x8086 => Registers::Half,
        _ if name.contains("adreno") => Registers::Few,
        _ if name.contains("apple") || name.contains("intel") => Registers::Half,
        _ => Registers::Many,
    }
}

/// Opens a device with everything the adapter allows (of optional features, mapping what lies in main memory,
/// subgroups, matrices of sizes that kernels are made for and, where something is kept between runs, pipeline caches are
/// asked for) and qualifies it.
pub async fn connect(adapter: &Adapter, options: GpuOptions) -> Result<(GpuDevice, Verdict), HostError> {
    let title = adapter.title();
    let has = |feature| adapter.inner.features().contains(feature);
    let mappable = has(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS);
    let in_place = match options.upload {
        Upload::Auto => mappable && adapter.report().main_memory(),
        Upload::Staged => false,
        Upload::InPlace => mappable,
    };
    let store = options.store.clone();
    let mut features = wgpu::Features::empty();
    features.set(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS, in_place);
    let subgroups = has(wgpu::Features::SUBGROUP);
    features.set(wgpu::Features::SUBGROUP, subgroups);
    features |= matrices::features(&adapter.inner);
    features.set(wgpu::Features::PIPELINE_CACHE, store.is_some() && has(wgpu::Features::PIPELINE_CACHE));
    let (device, queue) = adapter
        .inner
        .request_device(&wgpu::DeviceDescriptor {
            label: Some("isobit"),
            required_features: features,
            required_limits: adapter.inner.limits(),
            experimental_features: match features.intersects(wgpu::Features::all_experimental_mask()) {
                true => module::matrices(),
                false => wgpu::ExperimentalFeatures::disabled(),
            },
            ..Default::default()
        })
        .await
        .map_err(|e| HostError::NoDevice(format!("{title}: {e}")))?;
    let faults = Faults::default();
    let on_error = faults.clone();
    device.on_uncaptured_error(Arc::new(move |e: wgpu::Error| {
        on_error.report(HostError::Device(one_line(&e.to_string())))
    }));
    let on_lost = faults.clone();
    device.set_device_lost_callback(move |reason, message| {
        on_lost.report(HostError::Lost(one_line(&format!("{reason:?}: {message}"))))
    });
    let info = adapter.inner.get_info();
    // what is remembered, choices of the tuner too, is of the loops that users get
    let memory = Memory::open(&info, store.clone().filter(|_| options.loops.is_none()));
    let pipelines = match store.filter(|_| features.contains(wgpu::Features::PIPELINE_CACHE)) {
        Some(store) => PipelineCache::open(&device, &info, store).await,
        None => None,
    };
    let (parallel, hardware) = (info.backend != wgpu::Backend::Gl, options.hardware || !is_software(&info));
    let loops = options.loops.unwrap_or_else(|| Loops::of(&info.driver, info.backend));
    let optional = Optional { subgroups, ..Optional::default() };
    let registers = registers(&info);
    let halves = Halves::Integers;
    let capabilities = Capabilities { in_place, parallel, hardware, registers, optional, loops, halves };
    let mut gpu = GpuDevice::new(device, queue, title, faults, capabilities, memory, pipelines);
    // before any option of the caller, a small binding limit among them, could bend the probe
    let remembered = gpu.memory.exact() && options.tune == Tune::Auto;
    let verdict = match remembered {
        true => Verdict { words: 0, mismatches: 0, first: None, flushes: None },
        false => qualify(&mut gpu).await?,
    };
    let offered = matrices::offered(&adapter.inner);
    let exact = match remembered {
        true => gpu.memory.page.matrices,
        false => matrices::qualify(&gpu, offered).await?,
    };
    gpu.capabilities.optional.matrices = std::array::from_fn(|i| offered[i] && exact[i]);
    let unpacks = match remembered {
        true => gpu.memory.page.halves,
        false => halves::qualify(&gpu).await?,
    };
    gpu.capabilities.halves = if unpacks && options.unpack { Halves::Unpacked } else { Halves::Integers };
    gpu.memory.set_exact(verdict.exact(), exact, unpacks);
    let optional = gpu.capabilities.optional;
    for lacks in options.variants.iter().filter_map(|v| v.lacks(optional)) {
        log::warn!("{} {lacks}", gpu.title);
    }
    gpu.options = options;
    Ok((gpu, verdict))
}

#[cfg(test)]
mod tests {
    use super::is_old_gl;

    #[test]
    fn contexts_of_desktop_gl_below_4_3_are_left_out() {
        assert!(is_old_gl("3.3.0 NVIDIA 580.159.04") && is_old_gl("4.2.1"));
        assert!(!is_old_gl("4.5 (Core Profile) Mesa 22.3.6") && !is_old_gl("4.3.0") && !is_old_gl("10.0"));
        // another API, and what says nothing
        assert!(!is_old_gl("OpenGL ES 3.1 Mesa 25.0.7") && !is_old_gl("WebGL 2.0") && !is_old_gl(""));
    }
}
