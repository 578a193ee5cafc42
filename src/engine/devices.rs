//! Devices by a word: the CPU, a level of it, an adapter by index or name, whatever is best, or several of them as one.
//!
//! What is named `cpu` never looks for adapters, and what is found among the native interfaces never starts GL.

use super::error::{Error, Place, at};
use crate::cpu::{Codebooks, CpuDevice, CpuOptions, Tuning};
#[cfg(feature = "gpu")]
use crate::host;
use crate::limits;
use crate::record;
use crate::simd::{Fetch, Level};
use crate::split::{Member, Split};
use crate::stop::Stop;
use crate::store::{Store, Tune};
use std::fmt;
use std::sync::Arc;

/// Choices made when a device is opened. None of them changes a bit of a result.
#[derive(Clone, Debug, Default)]
pub struct DeviceOptions {
    /// worker threads of the CPU; 0: one per core
    pub threads: usize,
    /// pretend that devices bind at most this many bytes
    pub max_binding: Option<u64>,
    /// the CPU has the experts of so many layers, from the first on, of a mixture whose layers are on adapters; where nothing
    /// is on an adapter this changes nothing
    pub cpu_experts: usize,
    /// a flag that ends loading and steps early, wherever they are, with [`Error::Interrupted`]
    pub stop: Stop,
    /// whether the CPU measures how steps run best when a plan is loaded; by default it does not
    pub tune: Tune,
    /// how the CPU has the types with codebooks packed
    pub codebooks: Codebooks,
    /// where what it found is kept between runs
    pub store: Option<Arc<dyn Store>>,
    /// those of adapters; by default kernels are not measured and nothing is kept between runs. Its `max_binding` is not
    /// looked at
    #[cfg(feature = "gpu")]
    pub gpu: host::GpuOptions,
}

/// An open device, of which nothing is loaded yet.
pub struct Device {
    pub(crate) inner: Box<dyn record::Device>,
    pub(crate) main_memory: bool,
    pub(crate) software: bool,
    pub(crate) about: Option<About>,
    pub(crate) instead: Option<String>,
}

/// What a table says of an adapter.
#[derive(Clone, Debug)]
pub struct About {
    /// its place in the list of adapters
    pub index: usize,
    /// the driver's name for it
    pub name: String,
    /// Vulkan, Metal, Dx12, Gl, BrowserWebGpu
    pub backend: String,
    /// driver and its version
    pub driver: String,
}

impl Device {
    /// A device that was made with `internals`. `main_memory`: its buffers lie in the machine's main memory.
    pub fn custom(inner: Box<dyn record::Device>, main_memory: bool) -> Device {
        Device { inner, main_memory, software: false, about: None, instead: None }
    }

    /// `CPU (avx512, 2 threads)`, `llvmpipe (LLVM 15.0.6, 256 bits) [Vulkan]`.
    pub fn name(&self) -> String {
        self.inner.info().name
    }

    /// What is known of an adapter; `None` for the CPU.
    pub fn adapter(&self) -> Option<&About> {
        self.about.as_ref()
    }

    /// Whether it is a rasteriser on the CPU.
    pub fn is_software(&self) -> bool {
        self.software
    }

    /// Why `auto` took the CPU, in one line; `None` where it did not, or nothing else was built in.
    pub fn instead(&self) -> Option<&str> {
        self.instead.as_deref()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name())
    }
}

/// The names in a word, and the layers of each where it says so: `0+1@20+12`.
fn several(word: &str) -> (Vec<&str>, Option<Vec<usize>>) {
    let counted = word.rsplit_once('@').and_then(|(names, counts)| {
        // an adapter's name may have the sign in it
        let counts: Option<Vec<usize>> = counts.split('+').map(|n| n.trim().parse().ok()).collect();
        Some((names, counts?))
    });
    let (names, counts) = counted.map_or((word, None), |(names, counts)| (names, Some(counts)));
    (names.split('+').map(str::trim).collect(), counts)
}

/// The devices of this machine. Adapters are looked for when the first is asked for, and once.
#[derive(Default)]
pub struct Devices {
    options: DeviceOptions,
    #[cfg(feature = "gpu")]
    native: std::cell::OnceCell<Vec<host::Adapter>>,
    #[cfg(feature = "gpu")]
    gl: std::cell::OnceCell<Vec<host::Adapter>>,
}

impl Devices {
    /// With these options for each device that is opened.
    pub fn new(options: DeviceOptions) -> Devices {
        Devices {
            options,
            #[cfg(feature = "gpu")]
            native: Default::default(),
            #[cfg(feature = "gpu")]
            gl: Default::default(),
        }
    }

    /// Options of the devices opened from now on; adapters that were found stay known.
    pub fn options(&mut self) -> &mut DeviceOptions {
        &mut self.options
    }

    /// Opens a device by a word in any case of letters:
    ///
    /// | word | device |
    /// |---|---|
    /// | `auto` | the first adapter that is a real GPU and exact, else the CPU |
    /// | `cpu` | the CPU at its best level |
    /// | `cpu:avx2`, `cpu:portable`, ... | the CPU at a level |
    /// | `cpu:scalar` | the plain twins |
    /// | `gpu` | the first adapter that is exact, software too |
    /// | `0`, `1`, ... | the adapter of this index |
    /// | anything else | the first adapter whose name has it in it, as `vulkan` or `radeon` |
    /// | `gpu+cpu` | several, each with layers of its own: dealt by their memory |
    /// | `0+1@20+12` | the same with so many layers on each |
    ///
    /// An adapter is opened only if it is exact: the float probe finds no wrong word.
    ///
    /// Errors: [`Error::Device`], which says what there is; [`Error::Options`] where the threads cannot be started.
    pub fn open(&self, word: &str) -> Result<Device, Error> {
        let lower = word.to_lowercase();
        let (names, counts) = several(&lower);
        if names.len() > 1 || counts.is_some() {
            return self.split(&names, counts);
        }
        let one = self.one(&lower)?;
        // without one it is the CPU
        if self.options.cpu_experts == 0 || one.about.is_none() {
            return Ok(one);
        }
        let about = one.about.clone();
        Ok(Device { about, ..self.joined(vec![one], None)? })
    }

    fn one(&self, word: &str) -> Result<Device, Error> {
        if word == "auto" {
            return self.auto();
        }
        match self.cpu(word)? {
            Some(cpu) => Ok(cpu),
            None => self.gpu(word),
        }
    }

    /// Bytes that each of these devices may take of main memory, where some of them lie in it; `None` where nobody knows.
    pub fn share_of_memory(devices: &[Device]) -> Option<u64> {
        let sharing = devices.iter().filter(|d| d.main_memory).count() as u64;
        limits::free_memory().filter(|_| sharing > 0).map(|free| free / sharing)
    }

    /// Several as one. Those in main memory share what is free of it.
    fn split(&self, names: &[&str], counts: Option<Vec<usize>>) -> Result<Device, Error> {
        if names.iter().any(|name| name.is_empty()) {
            return Err(Error::device(format!("{}: a name is missing between devices", names.join("+"))));
        }
        if let Some(counts) = &counts {
            crate::split::well_formed(counts, names.len()).map_err(at(Place::Options))?;
        }
        self.joined(names.iter().map(|name| self.one(name)).collect::<Result<Vec<Device>, Error>>()?, counts)
    }

    /// These as one, and the CPU for experts where that was asked for and some of them are adapters.
    fn joined(&self, mut opened: Vec<Device>, counts: Option<Vec<usize>>) -> Result<Device, Error> {
        let layers = self.options.cpu_experts;
        let apart = layers > 0 && opened.iter().any(|d| d.about.is_some());
        if apart {
            opened.push(self.one("cpu")?);
        }
        let share = Devices::share_of_memory(&opened);
        let (main_memory, software) = (opened.iter().all(|d| d.main_memory), opened.iter().any(|d| d.software));
        let instead = opened.iter().find_map(|d| d.instead.clone());
        let member = |d: Device| Member { memory: share.filter(|_| d.main_memory), device: d.inner };
        let mut members: Vec<Member> = opened.into_iter().map(member).collect();
        let experts = members.pop_if(|_| apart);
        let split = Split::new(members, counts).map_err(at(Place::Options))?;
        let split = experts.into_iter().fold(split, |split, member| split.with_experts(member, layers));
        Ok(Device { software, instead, ..Device::custom(Box::new(split), main_memory) })
    }

    /// `cpu` or `cpu:LEVEL`; `None` for anything else.
    fn cpu(&self, word: &str) -> Result<Option<Device>, Error> {
        let level = match word.split_once(':') {
            _ if word == "cpu" => Some(Level::detect()),
            Some(("cpu", "scalar")) => None,
            Some(("cpu", name)) => {
                let level = Level::parse(name).filter(|l| Level::available().contains(l));
                let Some(level) = level else {
                    let has: Vec<&str> = Level::available().iter().map(|l| l.name()).collect();
                    return Err(Error::device(format!("{word}: this CPU has scalar, {}", has.join(", "))));
                };
                Some(level)
            }
            _ => return Ok(None),
        };
        let DeviceOptions { threads, max_binding, .. } = self.options;
        let mut cpu = CpuDevice::new(CpuOptions { level, threads, max_binding }).map_err(at(Place::Device))?;
        record::Device::set_stop(&mut cpu, self.options.stop.clone());
        cpu.tune(Tuning {
            when: self.options.tune,
            codebooks: self.options.codebooks,
            store: self.options.store.clone(),
            level_is_forced: word != "cpu" || Level::is_forced(),
            fetch_is_forced: Fetch::is_forced(),
            threads_are_forced: threads > 0,
        });
        Ok(Some(Device::custom(Box::new(cpu), true)))
    }
}

#[cfg(not(feature = "gpu"))]
impl Devices {
    fn auto(&self) -> Result<Device, Error> {
        self.open("cpu")
    }

    fn gpu(&self, word: &str) -> Result<Device, Error> {
        Err(Error::device(format!("{word}: this isobit was built without the gpu feature; cpu is always there")))
    }

    /// How many adapters there are.
    pub fn adapters(&self) -> usize {
        0
    }

    /// There is no adapter to measure.
    pub fn adapter_limits(&self, index: usize) -> Result<(f64, f64), Error> {
        Err(Error::device(format!("there is no adapter {index}: built without the gpu feature")))
    }
}

#[cfg(feature = "gpu")]
impl Devices {
    /// How many adapters there are.
    pub fn adapters(&self) -> usize {
        self.native().len() + self.gl().len()
    }

    fn native(&self) -> &[host::Adapter] {
        self.native.get_or_init(|| pollster::block_on(host::native_adapters()))
    }

    fn gl(&self) -> &[host::Adapter] {
        self.gl.get_or_init(|| pollster::block_on(host::gl_adapters(self.native().len())))
    }

    /// Bytes a second of plain reads and int8 operations a second of an adapter, measured now on a device of its own.
    pub fn adapter_limits(&self, index: usize) -> Result<(f64, f64), Error> {
        let a = self.native().iter().chain(self.gl()).find(|a| a.index == index);
        let a = a.ok_or_else(|| Error::device(format!("there is no adapter {index}")))?;
        pollster::block_on(host::limits(a)).map_err(at(Place::Device))
    }

    /// Opens an adapter and keeps it if it is exact; the error says why not.
    fn connect(&self, a: &host::Adapter) -> Result<Device, String> {
        let options = host::GpuOptions { max_binding: self.options.max_binding, ..self.options.gpu.clone() };
        let (mut gpu, v) = pollster::block_on(host::connect(a, options)).map_err(|e| e.to_string())?;
        if !v.exact() {
            let title = a.title();
            return Err(format!("{title} is not exact ({} of {} words of the probe differ)", v.mismatches, v.words));
        }
        record::Device::set_stop(&mut gpu, self.options.stop.clone());
        let r = a.report();
        let main_memory = r.main_memory();
        let about = About { index: r.index, name: r.name, backend: r.backend, driver: r.driver };
        let opened = Device::custom(Box::new(gpu), main_memory);
        Ok(Device { software: r.software, about: Some(about), ..opened })
    }

    fn auto(&self) -> Result<Device, Error> {
        let list = if self.native().is_empty() { self.gl() } else { self.native() };
        let mut why = if list.is_empty() { "no GPU" } else { "no GPU but a software one" }.to_string();
        for a in list.iter().filter(|a| !a.report().software) {
            match self.connect(a) {
                Ok(opened) => return Ok(opened),
                Err(e) => why = e,
            }
        }
        Ok(Device { instead: Some(why), ..self.open("cpu")? })
    }

    /// `gpu`, an index, or part of an adapter's name.
    fn gpu(&self, word: &str) -> Result<Device, Error> {
        let matches = |a: &&host::Adapter| match word.parse::<usize>() {
            Ok(index) => index == a.index,
            Err(_) => word == "gpu" || a.title().to_lowercase().contains(word),
        };
        let mut why = None;
        for list in [Devices::native, Devices::gl] {
            for a in list(self).iter().filter(matches) {
                match self.connect(a) {
                    Ok(opened) => return Ok(opened),
                    Err(e) => why = Some(format!("{word}: {e}; use another device, or cpu")),
                }
            }
        }
        Err(Error::device(why.unwrap_or_else(|| {
            let all = self.native().iter().chain(self.gl());
            let titles: Vec<String> = all.map(|a| format!("{} {}", a.index, a.title())).collect();
            let found = if titles.is_empty() { "none".to_string() } else { titles.join(", ") };
            format!("{word}: no such adapter; found: {found}; cpu is always there")
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_names_one_device_or_several() {
        assert_eq!(several("cpu:avx2"), (vec!["cpu:avx2"], None));
        assert_eq!(several("gpu + cpu"), (vec!["gpu", "cpu"], None));
        assert_eq!(several("0+1@20+12"), (vec!["0", "1"], Some(vec![20, 12])));
        assert_eq!(several("some cpu @ 2.5ghz"), (vec!["some cpu @ 2.5ghz"], None));
        assert_eq!(several("cpu+"), (vec!["cpu", ""], None));
        for (word, words) in [
            ("cpu+cpu@3", "1 counts of layers for 2 devices"),
            ("cpu@3+4", "2 counts of layers for 1 devices"),
            ("cpu+cpu@4+0", "gives device 2 no layer"),
            ("cpu+", "missing"),
            ("cpu+cpu:no", "cpu:no: this CPU has"),
        ] {
            let line = Devices::default().open(word).unwrap_err().to_string();
            assert!(line.contains(words) && !line.contains('\n'), "{line}");
        }
    }
}
