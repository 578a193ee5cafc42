//! Weights on their way into a device's buffers, a piece at a time: no copy of the model stays in the host's memory.
//!
//! A few staging buffers take turns: while the device copies one, the next piece is read and packed into another. Where
//! the device's buffers lie in main memory and may be mapped, they are written in place instead. Either way the words
//! are the same.

use super::device::GpuDevice;
use super::faults::{HostError, one_line};
use crate::record::WeightSource;
use futures::channel::oneshot;
use std::collections::VecDeque;
use std::time::Instant;

/// Words of a piece, and of a staging buffer.
const PIECE: usize = 2 << 20;

/// Staging buffers: one is filled, one is copied, and one waits its turn.
const STAGING: usize = 3;

type Mapped = oneshot::Receiver<Result<(), wgpu::BufferAsyncError>>;

/// A staging buffer that was used, and what tells when it may be written again.
struct Staging {
    buffer: wgpu::Buffer,
    busy: (wgpu::SubmissionIndex, Mapped),
}

/// The way into one device's buffers.
struct Uploader<'g> {
    gpu: &'g GpuDevice,
    /// the one used longest ago in front
    staging: VecDeque<Staging>,
    /// of the buffer that was begun, where it is written in place
    view: Option<wgpu::BufferViewMut>,
}

impl GpuDevice {
    /// Writes every weight of the loaded plan into its buffer, a piece at a time.
    pub(super) async fn upload(&self, weights: &mut dyn WeightSource) -> anyhow::Result<()> {
        let (program, started) = (self.program()?, Instant::now());
        let mut uploader = Uploader::new(self);
        let mut words = Vec::new();
        for (id, b) in program.plan.buffers.iter().enumerate().filter(|(_, b)| b.role.is_loaded()) {
            let (buffer, at) = program.place(id);
            uploader.begin(buffer).await?;
            let mut first = 0;
            for n in weights.pieces(b, PIECE) {
                self.stop.check()?;
                words.clear();
                words.resize(n, 0u32);
                weights.fill_piece(b, first, &mut words)?;
                uploader.put(buffer, at + first as u64 * 4, &words).await?;
                first += n;
            }
            uploader.end(buffer);
        }
        uploader.finish().await?;
        log::info!(
            "weights uploaded {} in {:.3} s",
            if self.capabilities.in_place { "in place" } else { "through staging buffers" },
            started.elapsed().as_secs_f64()
        );
        Ok(())
    }
}

impl<'g> Uploader<'g> {
    pub fn new(gpu: &'g GpuDevice) -> Uploader<'g> {
        Uploader { gpu, staging: VecDeque::with_capacity(STAGING), view: None }
    }

    /// Begins a buffer.
    pub async fn begin(&mut self, buffer: &wgpu::Buffer) -> Result<(), HostError> {
        if buffer.usage().contains(wgpu::BufferUsages::MAP_WRITE) {
            let mapped = map(buffer);
            self.gpu.poll(None)?;
            self.answer(mapped).await?;
            self.view = Some(view(buffer, buffer.size())?);
        }
        Ok(())
    }

    /// Writes words at a byte of a buffer that was begun.
    pub async fn put(&mut self, buffer: &wgpu::Buffer, at: u64, words: &[u32]) -> Result<(), HostError> {
        let bytes: &[u8] = bytemuck::cast_slice(words);
        if let Some(view) = &mut self.view {
            view.slice(at as usize..at as usize + bytes.len()).copy_from_slice(bytes);
            return Ok(());
        }
        let mut at = at;
        for bytes in bytes.chunks(PIECE * 4) {
            let staging = self.free().await?;
            view(&staging, bytes.len() as u64)?.copy_from_slice(bytes);
            staging.unmap();
            let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(&staging, 0, buffer, at, bytes.len() as u64);
            let index = self.gpu.queue.submit([encoder.finish()]);
            let mapped = map(&staging);
            self.staging.push_back(Staging { buffer: staging, busy: (index, mapped) });
            at += bytes.len() as u64;
        }
        Ok(())
    }

    /// Ends a buffer that was begun.
    pub fn end(&mut self, buffer: &wgpu::Buffer) {
        if self.view.take().is_some() {
            buffer.unmap();
        }
    }

    /// Until everything is where it belongs.
    pub async fn finish(self) -> Result<(), HostError> {
        self.gpu.wait().await
    }

    /// A mapped staging buffer.
    async fn free(&mut self) -> Result<wgpu::Buffer, HostError> {
        if self.staging.len() < STAGING {
            return Ok(self.gpu.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("upload"),
                size: PIECE as u64 * 4,
                usage: wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: true,
            }));
        }
        let Staging { buffer, busy: (index, mapped) } =
            self.staging.pop_front().expect("there are as many as there may be");
        self.gpu.poll(Some(index))?;
        self.answer(mapped).await?;
        Ok(buffer)
    }

    async fn answer(&self, mapped: Mapped) -> Result<(), HostError> {
        match mapped.await {
            Ok(Ok(())) => Ok(()),
            other => {
                // a loss is reported only when nothing is left to wait for
                self.gpu.poll(None)?;
                Err(HostError::Device(format!("uploading: {other:?}")))
            }
        }
    }
}

fn map(buffer: &wgpu::Buffer) -> Mapped {
    let (tx, rx) = oneshot::channel();
    buffer.slice(..).map_async(wgpu::MapMode::Write, move |r| {
        // the receiver is gone only when the future was dropped
        let _ = tx.send(r);
    });
    rx
}

/// The first `bytes` of a mapped buffer.
fn view(buffer: &wgpu::Buffer, bytes: u64) -> Result<wgpu::BufferViewMut, HostError> {
    let view = buffer.slice(..bytes).get_mapped_range_mut();
    view.map_err(|e| HostError::Device(one_line(&format!("uploading: {e}"))))
}
