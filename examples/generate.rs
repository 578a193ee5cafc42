//! Text as it comes: `cargo run --release --example generate -- "The king said" [model.gguf]`.

use isobit::{Devices, Model, SessionOptions};
use std::io::Write;
use std::ops::ControlFlow;

fn main() -> Result<(), isobit::Error> {
    let mut args = std::env::args().skip(1);
    let prompt = args.next().unwrap_or("Once upon a time".into());
    let model = args.next().map_or_else(|| Ok(Model::embedded()), Model::open)?;
    let mut session = model.session(Devices::default().open("auto")?, SessionOptions::default())?;
    print!("{prompt}");
    let output = session.generate(prompt, |piece| {
        print!("{}", piece.text);
        // a reader that went away wants no more
        std::io::stdout().flush().map_or(ControlFlow::Break(()), ControlFlow::Continue)
    })?;
    println!("\n[{} tokens on {}, {:?}]", output.ids.len(), session.device(), output.ended);
    Ok(())
}
