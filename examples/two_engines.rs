//! Two engines at once, used from several threads: `cargo run --release --example two_engines`. Whichever engine answers,
//! and whoever asks beside it, a prompt and a seed have one text.

use isobit::{DeviceOptions, Engine, EngineOptions, Model, Request, SamplerOptions};

fn main() -> Result<(), isobit::Error> {
    let model = Model::embedded();
    let start = || {
        let devices = DeviceOptions { threads: 1, ..DeviceOptions::default() };
        Engine::start(&model, EngineOptions { device: "cpu".into(), devices, ..EngineOptions::default() })
    };
    let engines = [start()?, start()?];
    let texts = std::thread::scope(|scope| {
        let asking = [0, 1, 2, 3].map(|i| {
            let engine = engines[i % 2].clone();
            // the same request to both engines, and another
            let sampling = SamplerOptions { seed: i as u64 / 2, ..SamplerOptions::default() };
            let request = Request { max_tokens: 40, sampling, ..Request::new("Once upon a time") };
            scope.spawn(move || engine.generate(request)?.wait())
        });
        asking.map(|thread| thread.join().expect("the thread does not panic"))
    });
    for (i, text) in texts.into_iter().enumerate() {
        println!("engine {}, seed {}:{}\n", i % 2, i / 2, text?.text);
    }
    Ok(())
}
