//! A server of an encoder.

use super::{Options, good, options, post, router, runtime};
use axum::http::StatusCode;
use isobit::internals::server::App;
use isobit::{Devices, Engine, EngineOptions, Head, Model, Pooling, SessionOptions};
use serde_json::json;

#[path = "../../examples/synth_encoder.rs"]
#[allow(dead_code, reason = "the generator is a program of its own; tests call one function")]
mod synth;

#[test]
fn vectors_of_an_encoder_are_pooled_as_its_file_says_and_a_text_is_never_cut() {
    let dir = tempfile::tempdir().unwrap();
    synth::generate("bert", &dir.path().join("model")).unwrap();
    let model = Model::open(dir.path().join("model")).unwrap();
    assert_eq!(model.pooling().unwrap(), Pooling::Cls);
    let (engine, story) = options("cpu", Head::Hidden);
    let session = SessionOptions { context: 192, ..engine.session };
    let engine = EngineOptions { session, ..engine };
    let all = Options { session, template: None, pooling: model.pooling().unwrap(), ..story };
    let of = model.clone();
    let app = App::new(model.clone(), all, Box::new(move || Engine::start(&of, engine.clone())));
    app.load().unwrap();
    let router = router(app);
    let alone = SessionOptions { context: 192, head: Head::Hidden, ..SessionOptions::default() };
    let mut session = model.session(Devices::default().open("cpu:scalar").unwrap(), alone).unwrap();
    runtime().block_on(async {
        let texts = ["Once upon a time", "the king's sons"];
        let answer = good(&router, "/v1/embeddings", &json!({ "input": texts })).await;
        let other = good(&router, "/api/embed", &json!({ "model": "story", "input": texts })).await;
        for (i, text) in texts.into_iter().enumerate() {
            let want = session.embed(text, Pooling::Cls).unwrap();
            assert_eq!(serde_json::from_value::<Vec<f32>>(answer["data"][i]["embedding"].clone()).unwrap(), want);
            assert_eq!(serde_json::from_value::<Vec<f32>>(other["embeddings"][i].clone()).unwrap(), want);
        }
        // [CLS] and [SEP] are counted
        let ids = good(&router, "/v1/embeddings", &json!({ "input": "time" })).await;
        assert_eq!(ids["usage"]["prompt_tokens"], 3);
        let (status, answer) = post(&router, "/v1/embeddings", &json!({ "input": "a ".repeat(300) })).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        assert!(answer.to_string().contains("302"), "{answer}");
        let (status, answer) = post(&router, "/v1/completions", &json!({ "prompt": "x" })).await;
        assert_ne!(status, StatusCode::OK, "{answer}");
    });
}
