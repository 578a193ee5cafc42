//! What a caller chooses when a device is opened.

use super::module::Loops;
use super::variants::Forced;
use crate::store::Store;
pub use crate::store::Tune;
use std::sync::Arc;
use std::time::Duration;

/// Choices made when a device is opened.
#[derive(Clone, Debug)]
pub struct GpuOptions {
    /// pretend the binding limit is this many bytes (to test splitting)
    pub max_binding: Option<u64>,
    /// variants to use whatever is measured; they never change a bit
    pub variants: Vec<Forced>,
    /// whether the other variants are measured when a plan is loaded
    pub tune: Tune,
    /// how long work that is timed lasts at least: 3 ms where it is not said (tests that measure thousands of plans and ask
    /// for no good choice say less)
    pub timed: Option<Duration>,
    /// where measurements, the adapter's qualification and the driver's pipelines are kept
    pub store: Option<Arc<dyn Store>>,
    /// how weights get into their buffers
    pub upload: Upload,
    /// how loops of shaders are made; as the adapter's compiler wants them where it is not said
    pub loops: Option<Loops>,
    /// whether f16 are converted by the device where that gives what integers give
    pub unpack: bool,
    /// take a software adapter for hardware (to test what is done on hardware alone)
    pub hardware: bool,
}

impl Default for GpuOptions {
    fn default() -> GpuOptions {
        GpuOptions {
            max_binding: None,
            variants: Vec::new(),
            tune: Tune::default(),
            timed: None,
            store: None,
            upload: Upload::default(),
            loops: None,
            unpack: true,
            hardware: false,
        }
    }
}

/// How weights get into their buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Upload {
    /// in place where the buffers lie in main memory and the adapter has `MAPPABLE_PRIMARY_BUFFERS`, else staged
    #[default]
    Auto,
    /// through staging buffers
    Staged,
    /// in place; staged where the adapter cannot
    InPlace,
}
