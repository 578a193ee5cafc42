//! Qualification: the risky shapes run on the device and are compared with the twin, word by word.

use super::device::GpuDevice;
use super::faults::HostError;
use crate::ops::float_probe::{self, FloatProbeParams, INPUTS, WORDS};
use crate::record::{Args, BufDecl, Command, Device, Op, Plan, Recording, Role, Rows, Step, WeightSource};

/// What the probe found.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// words compared; 0 where the store remembers that the adapter is exact
    pub words: usize,
    /// words that differ
    pub mismatches: usize,
    /// the first of them: row, shape number, expected, found
    pub first: Option<(usize, usize, u32, u32)>,
    /// whether the device makes 0 of products below 2^-126, which changes no result; `None` where the probe did not run
    pub flushes: Option<bool>,
}

impl Verdict {
    /// Whether the device may be used for exact work.
    pub fn exact(&self) -> bool {
        self.mismatches == 0
    }
}

const ROWS: usize = 256;

struct ProbeInputs(Vec<u32>);

impl WeightSource for ProbeInputs {
    fn fill(&mut self, _: &BufDecl, out: &mut [u32]) -> anyhow::Result<()> {
        out.copy_from_slice(&self.0);
        Ok(())
    }
}

/// Runs the probe on a fresh device and leaves it unloaded.
pub(super) async fn qualify(gpu: &mut GpuDevice) -> Result<Verdict, HostError> {
    // the last row is not compared
    let mut x = float_probe::inputs(ROWS - 1);
    x.extend(float_probe::faint_inputs());
    let params = FloatProbeParams { n_tokens: ROWS as u32 };
    let mut expected = vec![0u32; ROWS * WORDS];
    float_probe::float_probe(&params, &x, &mut expected);
    let plan = Plan {
        buffers: vec![
            BufDecl { name: "probe".into(), words: ROWS * INPUTS, role: Role::Given(0) },
            BufDecl { name: "words".into(), words: ROWS * WORDS, role: Role::Scratch },
        ],
        recording: Recording {
            commands: vec![Command {
                op: Op::FloatProbe,
                args: Args::FloatProbe(params),
                binds: vec![0, 1],
                rows: Rows::Tokens,
                layer: None,
                label: "probe".into(),
            }],
        },
        max_tokens: ROWS,
        ..Plan::default()
    };
    let mut inputs = ProbeInputs(x.iter().map(|v| v.to_bits()).collect());
    let found = async {
        gpu.load(plan, &mut inputs).await?;
        gpu.begin(&Step { n_tokens: ROWS, ..Step::default() }).await?;
        gpu.run_one(0).await?;
        gpu.read(1).await
    }
    .await
    .map_err(|e: anyhow::Error| e.downcast::<HostError>().unwrap_or_else(|e| HostError::Device(e.to_string())))?;
    gpu.unload();
    let compared = (ROWS - 1) * WORDS;
    let flushes = Some(found[compared + 1] & 0x7fff_ffff == 0);
    let mut verdict = Verdict { words: compared, mismatches: 0, first: None, flushes };
    for (i, (e, f)) in expected.iter().zip(&found).take(compared).enumerate() {
        if e != f {
            verdict.mismatches += 1;
            verdict.first.get_or_insert((i / WORDS, i % WORDS, *e, *f));
        }
    }
    Ok(verdict)
}
