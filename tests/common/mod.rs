//! What the tests share: the devices there are, running a batch of cases on one, and the comparator.
#![allow(dead_code, reason = "each test target uses another part of this module")]

pub mod absent;
pub mod golden;
#[cfg(feature = "gpu")]
pub mod kept;
pub mod rows;
pub mod whole;

use futures::executor::block_on;
use isobit::internals::cases::{Access, Batch, Case};
use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::record::{Device, Op};
use isobit::internals::simd::Level;

/// The words of every buffer of a case, in the order of its buffers.
pub type Words = Vec<Vec<u32>>;

/// Every SIMD level this machine can run.
pub fn levels() -> Vec<Level> {
    Level::available()
}

/// The CPU at a level (`None`: the twins) with a number of threads.
pub fn cpu(level: Option<Level>, threads: usize) -> CpuDevice {
    CpuDevice::new(CpuOptions { level, threads, max_binding: None }).expect("threads start")
}

/// Every adapter of every backend; there must be one. For tests in modules named `gpu`.
#[cfg(feature = "gpu")]
#[track_caller]
pub fn adapters() -> Vec<isobit::internals::host::Adapter> {
    let list = block_on(isobit::internals::host::adapters());
    absent::found(list.len(), "adapter");
    list
}

/// Opens every adapter of every backend; there must be one, and each must qualify. Prints their names. For tests in
/// modules named `gpu`.
#[cfg(feature = "gpu")]
#[track_caller]
pub fn gpus() -> Vec<isobit::internals::host::GpuDevice> {
    gpus_with(&isobit::internals::host::GpuOptions::default())
}

/// [`gpus`] with options.
#[cfg(feature = "gpu")]
#[track_caller]
pub fn gpus_with(options: &isobit::internals::host::GpuOptions) -> Vec<isobit::internals::host::GpuDevice> {
    adapters().iter().map(|a| opened(a, options)).collect()
}

#[cfg(feature = "gpu")]
fn opened(
    adapter: &isobit::internals::host::Adapter,
    options: &isobit::internals::host::GpuOptions,
) -> isobit::internals::host::GpuDevice {
    let (device, verdict) = block_on(isobit::internals::host::connect(adapter, options.clone()))
        .unwrap_or_else(|e| panic!("{} cannot be opened: {e}", adapter.title()));
    println!("adapter {}: {}", adapter.index, adapter.title());
    assert!(verdict.exact(), "{} does not qualify: {verdict:?}", adapter.title());
    device
}

/// Every adapter as a plain device, with a binding limit to pretend: what is compared beside the CPU's levels. Without an
/// adapter the test fails, unless `ISOBIT_TESTS_WITHOUT_GPU=1` asks for the CPU's alone or this build has no GPU.
#[track_caller]
pub fn boxed_gpus(max_binding: Option<u64>) -> Vec<Box<dyn Device>> {
    let devices = plain_gpus(max_binding);
    absent::found_or_cpu_only(devices.len());
    devices
}

#[cfg(feature = "gpu")]
fn plain_gpus(max_binding: Option<u64>) -> Vec<Box<dyn Device>> {
    let options = isobit::internals::host::GpuOptions { max_binding, ..Default::default() };
    block_on(isobit::internals::host::adapters())
        .iter()
        .map(|a| Box::new(opened(a, &options)) as Box<dyn Device>)
        .collect()
}

#[cfg(not(feature = "gpu"))]
fn plain_gpus(_: Option<u64>) -> Vec<Box<dyn Device>> {
    Vec::new()
}

/// Runs cases on a device, as one plan; gives all words of all buffers after each.
pub fn run(device: &mut dyn Device, cases: &[Case]) -> Vec<Words> {
    let name = device.info().name;
    let (plan, mut batch) = Batch::new(cases);
    block_on(async {
        device.load(plan, &mut batch).await?;
        let mut all = Vec::with_capacity(cases.len());
        for (i, case) in cases.iter().enumerate() {
            let step = batch.step(i);
            device.begin(&step).await?;
            device.run_one(i).await?;
            let mut words = Vec::with_capacity(case.buffers.len());
            for b in 0..case.buffers.len() {
                words.push(device.read(batch.buffer(i, b)).await?);
            }
            all.push(words);
        }
        anyhow::Ok(all)
    })
    .unwrap_or_else(|e| panic!("{name}: {e:#}"))
}

/// Whether two buffers hold the same words; the message counts and shows the first that differ.
pub fn same_words(expected: &[u32], found: &[u32]) -> Result<(), String> {
    if expected.len() != found.len() {
        return Err(format!("{} words, expected {}", found.len(), expected.len()));
    }
    let differ: Vec<usize> = (0..expected.len()).filter(|&i| expected[i] != found[i]).collect();
    match differ.first() {
        None => Ok(()),
        Some(&i) => Err(format!(
            "{} of {} words differ, first word {i}: expected {:08x} ({:e}), found {:08x} ({:e})",
            differ.len(),
            expected.len(),
            expected[i],
            f32::from_bits(expected[i]),
            found[i],
            f32::from_bits(found[i])
        )),
    }
}

/// Whether a device left a case as the twin does.
pub fn same(case: &Case, expected: &Words, found: &Words) -> Result<(), String> {
    if found.len() != case.buffers.len() || expected.len() != case.buffers.len() {
        return Err(format!("{}: {} buffers, expected {}", case.name, found.len(), case.buffers.len()));
    }
    for (b, buffer) in case.buffers.iter().enumerate() {
        same_words(&expected[b], &found[b]).map_err(|e| format!("{}: buffer {}: {e}", case.name, buffer.name))?;
    }
    untouched(case, found)
}

/// Whether everything outside the ranges a case may write is as it was, guard words among it.
pub fn untouched(case: &Case, found: &Words) -> Result<(), String> {
    for (buffer, found) in case.buffers.iter().zip(found) {
        let mut before = buffer.words.clone();
        if before.len() != found.len() {
            return Err(format!("{}: buffer {}: its length changed", case.name, buffer.name));
        }
        if let Access::Write(ranges) = &buffer.access {
            for r in ranges {
                before[r.clone()].copy_from_slice(&found[r.clone()]);
            }
        }
        same_words(&before, found)
            .map_err(|e| format!("{}: buffer {} outside what may be written: {e}", case.name, buffer.name))?;
    }
    Ok(())
}

/// Whether an operation writes f32 values (and not codes or bit patterns).
pub fn writes_floats(op: Op) -> bool {
    !matches!(
        op,
        Op::ActQuantize
            | Op::RowQuantize
            | Op::AttentionQuantize(..)
            | Op::CacheWriteK(_)
            | Op::CacheWriteV(_)
            | Op::FloatProbe
            | Op::NormQuantize
            | Op::SwigluQuantize
            | Op::RopeCacheWrite(..)
            | Op::RopeChannelCacheWrite(..)
            | Op::GateUp(_)
            | Op::Encode(_)
            | Op::TopK
            | Op::Router
            | Op::ExpertOrder
    )
}

/// Panics with the first failures and their number.
pub fn none(failures: &[String]) {
    assert!(
        failures.is_empty(),
        "{} failures, the first of them:\n{}",
        failures.len(),
        failures[..failures.len().min(50)].join("\n")
    );
}

/// What `f` gives while this thread makes every subnormal 0, operands and results, as most GPUs do.
#[cfg(target_arch = "x86_64")]
pub fn flushing<R>(f: impl FnOnce() -> R) -> R {
    /// flush to zero, and denormals are zero
    const FLUSH: u32 = 1 << 15 | 1 << 6;
    struct Restore(u32);
    impl Drop for Restore {
        fn drop(&mut self) {
            set(self.0);
        }
    }
    fn set(mxcsr: u32) {
        // SAFETY: reads the four bytes it is given the address of.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &mxcsr, options(nostack)) }
    }
    let mut mxcsr = 0u32;
    // SAFETY: writes the four bytes it is given the address of.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &mut mxcsr, options(nostack)) }
    let _restore = Restore(mxcsr);
    set(mxcsr | FLUSH);
    f()
}
