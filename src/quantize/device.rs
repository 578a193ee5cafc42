//! Q8_0, Q4_0 and Q8K128 encoded on a device; what it flags, and every other type, is encoded on the CPU.

use super::Encoder;
use crate::blocks::BlockType;
use crate::ops::encode::{EncodeParams, unit};
use crate::record::{Args, BufDecl, Command, Device, Op, Plan, Recording, Role, Rows, Step, WeightSource};
use anyhow::{Context, bail};
use futures::executor::block_on;

/// Units of one dispatch.
const UNITS: usize = 8192;

/// Encodes on a [`Device`].
pub struct DeviceEncoder {
    device: Box<dyn Device>,
    loaded: Option<BlockType>,
}

struct NoWeights;

impl WeightSource for NoWeights {
    fn fill(&mut self, buffer: &BufDecl, _: &mut [u32]) -> anyhow::Result<()> {
        bail!("buffer {} holds no weights", buffer.name)
    }
}

impl DeviceEncoder {
    /// Takes the device; its buffers are allocated when the first rows come.
    pub fn new(device: Box<dyn Device>) -> DeviceEncoder {
        DeviceEncoder { device, loaded: None }
    }

    fn load(&mut self, ty: BlockType, elems: usize, words: usize) -> anyhow::Result<()> {
        let buffer = |name: &str, words: usize, role| BufDecl { name: name.into(), words, role };
        let command = Command {
            op: Op::Encode(ty),
            args: Args::Encode(EncodeParams { n_tokens: 0 }),
            binds: vec![0, 1],
            rows: Rows::Tokens,
            layer: None,
            label: "encode".into(),
        };
        let plan = Plan {
            buffers: vec![buffer("x", UNITS * elems, Role::Input), buffer("blocks", UNITS * words, Role::Scratch)],
            recording: Recording { commands: vec![command] },
            max_tokens: UNITS,
            ..Plan::default()
        };
        block_on(self.device.load(plan, &mut NoWeights))?;
        self.loaded = Some(ty);
        Ok(())
    }
}

impl Encoder for DeviceEncoder {
    fn takes(&self, ty: BlockType) -> bool {
        unit(ty).is_some()
    }

    fn encode(&mut self, ty: BlockType, x: &[f32], out: &mut [u8]) -> anyhow::Result<()> {
        let (elems, words) = unit(ty).with_context(|| format!("{} has no encoder on devices", ty.name()))?;
        if self.loaded != Some(ty) {
            self.load(ty, elems, words)?;
        }
        let bytes = (words - 1) * 4;
        for (x, out) in x.chunks(UNITS * elems).zip(out.chunks_mut(UNITS * bytes)) {
            let n = x.len().div_ceil(elems);
            let mut input: Vec<u32> = bytemuck::cast_slice(x).to_vec();
            input.resize(n * elems, 0);
            let step = Step { n_tokens: n, inputs: vec![(0, input)], ..Step::default() };
            block_on(self.device.begin(&step))?;
            block_on(self.device.run_one(0))?;
            let made = block_on(self.device.read(1))?;
            for ((x, out), made) in x.chunks(elems).zip(out.chunks_mut(bytes)).zip(made.chunks_exact(words)) {
                if made[words - 1] == 0 {
                    out.copy_from_slice(&bytemuck::cast_slice(&made[..words - 1])[..out.len()]);
                } else {
                    ty.encode_row(x, out);
                }
            }
        }
        Ok(())
    }
}
