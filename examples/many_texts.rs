//! Many texts in one engine: `cargo run --release --example many_texts`. Samples of one prompt and the best of them, scores of
//! continuations, texts as vectors. What else the engine works on changes no bit of any of them.

use isobit::{Engine, EngineOptions, Head, Model, Output, Pooling, Request, SamplerOptions, SessionOptions};

fn main() -> Result<(), isobit::Error> {
    let model = Model::embedded();
    let start = |head| {
        let session = SessionOptions { context: 256, sequences: 8, head, ..SessionOptions::default() };
        Engine::start(&model, EngineOptions { device: "cpu".into(), session, ..EngineOptions::default() })
    };
    let engine = start(Head::Logits)?;

    // eight texts of one prompt, which is read once
    let sample = |seed| {
        let sampling = SamplerOptions { seed, ..SamplerOptions::default() };
        let request = Request { max_tokens: 24, sampling, logprobs: Some(0), ..Request::new("Once upon a time") };
        engine.generate(request)
    };
    let replies = (0..8).map(sample).collect::<Result<Vec<_>, _>>()?;
    let texts = replies.into_iter().map(|reply| reply.wait()).collect::<Result<Vec<_>, _>>()?;
    let mean = |o: &Output| o.logprob() / o.ids.len() as f64;
    if let Some(best) = texts.iter().max_by(|a, b| mean(a).total_cmp(&mean(b))) {
        println!("the best of {}, {:.3} a token:{}\n", texts.len(), mean(best), best.text);
    }

    for continuation in [" dog", " girl", " river"] {
        let score = engine.generate(Request::score(&model, "Once there was a little", continuation)?)?.wait()?.score();
        println!("{:8.3} {continuation}", score.logprob);
    }

    let vectors = start(Head::Hidden)?;
    let texts = ["The cat sat on a mat.", "A cat is on the mat.", "It rained all day."];
    let asked = texts.iter().map(|t| vectors.embed(*t, Pooling::Mean)).collect::<Result<Vec<_>, _>>()?;
    let found = asked.into_iter().map(|v| v.wait()).collect::<Result<Vec<_>, _>>()?;
    for (text, vector) in texts.iter().zip(&found) {
        let likeness: f32 = vector.iter().zip(&found[0]).map(|(a, b)| a * b).sum();
        println!("{likeness:.4} {text}");
    }
    Ok(())
}
