//! The driver's compiled pipelines, kept between runs where the backend hands them out (wgpu: Vulkan).
//!
//! With `unsafe`: a driver is given back bytes that it may take for machine code, so they must be
//! what it gave. A file that is not, to the bit, costs one warning and the time to compile; no run fails for it.

use super::faults::one_line;
use super::store;
use crate::store::Store;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Bytes of pipelines beyond which they are not kept: a store reads no file of any length.
const MOST: usize = 48 << 20;

/// A pipeline cache of one device, and the file it lives in between runs.
pub(super) struct PipelineCache {
    inner: wgpu::PipelineCache,
    store: Arc<dyn Store>,
    file: File,
    /// hash of what the store holds
    stored: Option<[u8; 16]>,
    /// bytes of pipelines that the device was given when it was opened
    pub read: usize,
}

/// What a file of pipelines is called, and the line it begins with.
struct File {
    name: String,
    about: String,
}

impl File {
    /// `None`: the backend hands out no pipelines.
    fn of(adapter: &wgpu::AdapterInfo) -> Option<File> {
        let key = wgpu::util::pipeline_cache_key(adapter)?;
        let about = format!("{}, wgpu {} {key}\n", store::about(adapter), super::WGPU_VERSION);
        Some(File { name: store::name("pipelines", &about, "bin"), about })
    }

    /// The line, the hash of line and pipelines (xxh3, 16 bytes, big end first), the pipelines.
    fn write(&self, pipelines: &[u8]) -> Vec<u8> {
        [self.about.as_bytes(), &self.hash(pipelines), pipelines].concat()
    }

    /// The pipelines of a file that [`File::write`] wrote; else what is wrong with it.
    fn read<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], &'static str> {
        let rest = bytes.strip_prefix(self.about.as_bytes()).ok_or("it is about another device, driver or version")?;
        let (hash, pipelines) = rest.split_first_chunk().ok_or("it is cut short")?;
        if *hash != self.hash(pipelines) {
            return Err("its bytes are not those that were written");
        }
        Ok(pipelines)
    }

    fn hash(&self, pipelines: &[u8]) -> [u8; 16] {
        let mut hash = Xxh3::new();
        hash.update(self.about.as_bytes());
        hash.update(pipelines);
        hash.digest128().to_be_bytes()
    }
}

impl PipelineCache {
    /// The cache of a device that was opened with the feature, filled with what the store holds for its adapter and
    /// driver. `None` where the backend has none, or the driver makes none.
    pub async fn open(
        device: &wgpu::Device,
        adapter: &wgpu::AdapterInfo,
        store: Arc<dyn Store>,
    ) -> Option<PipelineCache> {
        let file = File::of(adapter)?;
        let found = store.get(&file.name);
        let refused = |why: &str| store.warn(&format!("warning: {} in the cache is not used: {why}", file.name));
        let pipelines = found.as_deref().and_then(|bytes| file.read(bytes).map_err(refused).ok());
        let mut made = create(device, pipelines).await;
        let mut read = pipelines.map_or(0, <[u8]>::len);
        if let (Err(e), Some(_)) = (&made, pipelines) {
            refused(e);
            (made, read) = (create(device, None).await, 0);
        }
        let inner = made.map_err(|e| log::info!("no pipeline cache: {e}")).ok()?;
        log::info!("pipeline cache {}: {read} bytes read", file.name);
        let stored = pipelines.filter(|_| read > 0).map(|p| file.hash(p));
        Some(PipelineCache { inner, store, file, stored, read })
    }

    /// For the making of pipelines.
    pub fn handle(&self) -> &wgpu::PipelineCache {
        &self.inner
    }

    /// Writes what the driver has compiled to the store, if that is other than what the store holds.
    pub fn save(&mut self) {
        let Some(pipelines) = self.inner.get_data().filter(|p| p.len() <= MOST) else { return };
        let now = Some(self.file.hash(&pipelines));
        if now != self.stored {
            log::info!("pipeline cache {}: {} bytes written", self.file.name, pipelines.len());
            self.store.put(&self.file.name, &self.file.write(&pipelines));
            self.stored = now;
        }
    }
}

/// A cache that holds the pipelines given, which must come from [`File::read`]. Errors: what the device said, in one line.
async fn create(device: &wgpu::Device, pipelines: Option<&[u8]>) -> Result<wgpu::PipelineCache, String> {
    let scopes = [wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Internal];
    let scopes = scopes.map(|filter| device.push_error_scope(filter));
    let desc = wgpu::PipelineCacheDescriptor { label: Some("pipelines"), data: pipelines, fallback: true };
    // SAFETY: the data is what `get_data` gave for this adapter and driver: `File::read` has found their names and wgpu's
    // own key before it, and the hash over all of it unchanged. The driver checks its own header as well.
    let cache = unsafe { device.create_pipeline_cache(&desc) };
    let mut error = None;
    for scope in scopes.into_iter().rev() {
        error = scope.pop().await.or(error);
    }
    error.map_or(Ok(cache), |e| Err(one_line(&e.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapter(backend: wgpu::Backend, driver: &str) -> wgpu::AdapterInfo {
        let mut info = wgpu::AdapterInfo::new(wgpu::DeviceType::Cpu, backend);
        info.driver_info = driver.into();
        info
    }

    #[test]
    fn a_file_is_read_only_to_the_bit_as_it_was_written_and_for_the_same_driver() {
        let of = |driver| File::of(&adapter(wgpu::Backend::Vulkan, driver)).unwrap();
        let (file, pipelines) = (of("1.0"), b"compiled".as_slice());
        let good = file.write(pipelines);
        assert_eq!(file.read(&good), Ok(pipelines));
        assert_eq!(file.read(&file.write(&[])), Ok(&[][..]));
        for n in 0..good.len() {
            assert!(file.read(&good[..n]).is_err(), "cut after {n} bytes");
        }
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(file.read(&bad).is_err(), "bit {bit} flipped");
        }
        assert!(file.read(&[good, vec![0]].concat()).is_err(), "a byte too many");
        let other = of("1.1");
        assert!(other.name != file.name && file.read(&other.write(pipelines)).is_err());
        assert!(File::of(&adapter(wgpu::Backend::Gl, "1.0")).is_none());
    }
}
