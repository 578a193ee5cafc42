//! Logits of every position of a list of token ids, as rows of little-endian f32 on stdout, to be laid beside another
//! engine's (`.ci/llama`): `logits MODEL CONTEXT ID...`. On the CPU, with activations of 16 bits and a cache of f32.

use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::{Session, SessionOptions, Want};
use isobit::internals::models::{Hyper, PlanOptions};
use isobit::internals::ops::cache::CacheType;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &[String]) -> anyhow::Result<()> {
    let [model, context, ids @ ..] = args else { anyhow::bail!("logits MODEL CONTEXT ID...") };
    let n_ctx: usize = context.parse()?;
    let ids = ids.iter().map(|id| id.parse::<u32>()).collect::<Result<Vec<_>, _>>()?;
    let file = Container::open(Path::new(model), LoadMode::Read)?;
    let h = Hyper::read(&file)?;
    let (ubatch, cache) = (n_ctx.min(48), CacheType::F32);
    let plan = PlanOptions {
        n_ctx,
        ubatch,
        max_out: n_ctx,
        k_type: cache,
        v_type: cache,
        digits: 2,
        ..PlanOptions::default()
    };
    let options = SessionOptions { plan, memory: None, fuse: Fuse::On };
    let mut device = CpuDevice::new(CpuOptions::default())?;
    let mut out = std::io::stdout().lock();
    pollster::block_on(async {
        let mut session = Session::new(&mut device, &file, &h, options, |_| {}).await?;
        session.feed(&ids, Want::From(0), |_, logits| Ok(out.write_all(bytemuck::cast_slice(logits))?)).await
    })?;
    Ok(out.flush()?)
}
