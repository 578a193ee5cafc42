//! Texts of the embedded model that keep to a grammar: whatever is asked for, what comes is of it, and nothing else that is
//! done changes a token of it.

use isobit::{
    Devices, Ended, Engine, EngineOptions, Grammar, Guess, Model, Output, Request, SamplerOptions, Session,
    SessionOptions,
};
use serde_json::{Value, json};
use std::sync::Arc;

fn opened(model: &Model, rows: usize) -> Session {
    let options = SessionOptions { context: 400, rows, ..SessionOptions::default() };
    model.session(Devices::default().open("cpu").unwrap(), options).unwrap()
}

/// Says whether a value is of a schema.
type IsOf = fn(&Value) -> bool;

/// A dozen schemas.
fn schemas() -> Vec<(Value, IsOf)> {
    vec![
        (json!({ "enum": ["red", "green", 3, null] }), |v| {
            ["\"red\"", "\"green\"", "3", "null"].contains(&v.to_string().as_str())
        }),
        (json!({ "type": "boolean" }), Value::is_boolean),
        (json!({ "type": "integer", "minimum": -5, "maximum": 12 }), |v| {
            v.as_i64().is_some_and(|n| (-5..=12).contains(&n))
        }),
        (json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1 }), |v| {
            v.as_f64().is_some_and(|n| n > 0.0 && n <= 1.0)
        }),
        (json!({ "type": "string", "maxLength": 12 }), |v| v.as_str().is_some_and(|s| s.chars().count() <= 12)),
        (json!({ "type": "string", "pattern": "^[a-f]{3}-[0-9]{2}$" }), |v| {
            v.as_str().is_some_and(|s| s.len() == 6 && s.as_bytes()[3] == b'-' && s[4..].parse::<u8>().is_ok())
        }),
        (
            json!({ "type": "array", "items": { "type": "integer", "minimum": 0, "maximum": 9 }, "minItems": 2, "maxItems": 4 }),
            |v| {
                v.as_array()
                    .is_some_and(|a| (2..=4).contains(&a.len()) && a.iter().all(|n| n.as_u64().is_some_and(|n| n < 10)))
            },
        ),
        (
            json!({
                "type": "object", "required": ["name", "age"], "additionalProperties": false,
                "properties": { "name": { "type": "string", "maxLength": 8 }, "age": { "type": "integer", "minimum": 0, "maximum": 99 } }
            }),
            |v| v.as_object().is_some_and(|o| o.len() == 2 && o["name"].is_string() && o["age"].is_u64()),
        ),
        (
            json!({
                "type": "object", "required": ["left"], "additionalProperties": false,
                "properties": { "left": {
                    "type": "object", "required": ["deep"], "additionalProperties": false,
                    "properties": { "deep": { "type": "array", "items": { "type": "boolean" }, "maxItems": 2 } }
                } }
            }),
            |v| v["left"]["deep"].as_array().is_some_and(|a| a.iter().all(Value::is_boolean)),
        ),
        (
            json!({ "$ref": "#/$defs/pair", "$defs": { "pair": { "type": "array", "prefixItems": [{ "type": "null" }, { "const": "x" }], "items": false, "minItems": 2 } } }),
            |v| *v == json!([null, "x"]),
        ),
        (json!({ "anyOf": [{ "type": "null" }, { "type": "integer", "minimum": 10, "maximum": 19 }] }), |v| {
            v.is_null() || v.as_u64().is_some_and(|n| (10..20).contains(&n))
        }),
        (json!({ "const": { "a": [1, "é"] } }), |v| *v == json!({ "a": [1, "é"] })),
    ]
}

fn request(grammar: &Arc<isobit::Compiled>, seed: u64, greedy: bool) -> Request {
    let temperature = if greedy { 0.0 } else { 1.0 };
    let sampling = SamplerOptions { seed, temperature, top_k: 0, ..SamplerOptions::default() };
    Request { max_tokens: 120, sampling, grammar: Some(Arc::clone(grammar)), ..Request::new("The king said") }
}

#[test]
fn what_comes_is_of_the_schema_alone_among_others_and_guessed() {
    let model = Model::embedded();
    let grammars: Vec<_> =
        schemas().iter().map(|(s, _)| model.grammar(&Grammar::JsonSchema(s.clone())).unwrap()).collect();
    let session = SessionOptions { context: 400, sequences: 8, rows: 40, ..SessionOptions::default() };
    let options = EngineOptions { device: "cpu".into(), session, ..EngineOptions::default() };
    let engine = Engine::start(&model, options).unwrap();
    let (mut one, mut several) = (opened(&model, 1), opened(&model, Guess::ROWS));
    let mut whole = 0;
    for greedy in [false, true] {
        let many: Vec<_> = (0..grammars.len())
            .map(|i| {
                let guess = if i % 2 == 0 { Guess::Ngram } else { Guess::Off };
                engine.generate(Request { guess, ..request(&grammars[i], i as u64, greedy) }).unwrap()
            })
            .collect();
        for (i, reply) in many.into_iter().enumerate() {
            let among: Output = reply.wait().unwrap();
            let alone =
                one.generate(request(&grammars[i], i as u64, greedy), |_| std::ops::ControlFlow::Continue(())).unwrap();
            let guessed = Request { guess: Guess::Ngram, ..request(&grammars[i], i as u64, greedy) };
            let guessed = several.generate(guessed, |_| std::ops::ControlFlow::Continue(())).unwrap();
            assert_eq!((&among.ids, &guessed.ids), (&alone.ids, &alone.ids), "schema {i}");
            let (schema, is_of) = &schemas()[i];
            // a string may go on for as long as there are tokens
            if alone.ended == Ended::EndOfText {
                whole += 1;
                let value: Value =
                    serde_json::from_str(&alone.text).unwrap_or_else(|e| panic!("{schema}: {:?}: {e}", alone.text));
                assert!(is_of(&value), "{schema}: {value}");
            }
        }
    }
    assert!(whole >= 20, "{whole} of 24 came to their end");
}

#[test]
fn a_grammar_that_repeats_itself_is_guessed_rightly_and_still_kept() {
    let model = Model::embedded();
    let grammar = Grammar::Gbnf("root ::= (\"the cat sat. \" | \"a dog ran. \"){12}".into());
    let grammar = model.grammar(&grammar).unwrap();
    let (mut one, mut several) = (opened(&model, 1), opened(&model, Guess::ROWS));
    let go_on = |_: &isobit::Piece| std::ops::ControlFlow::Continue(());
    for seed in 0..4 {
        let request = Request { max_tokens: 300, ..request(&grammar, seed, false) };
        let alone = one.generate(request.clone(), go_on).unwrap();
        let guessed = several.generate(Request { guess: Guess::Ngram, ..request }, go_on).unwrap();
        assert_eq!(alone.ids, guessed.ids);
        assert_eq!(alone.ended, Ended::EndOfText);
        assert_eq!(alone.text.matches(". ").count(), 12, "{}", alone.text);
    }
}

#[test]
fn a_wrong_grammar_is_an_error_of_the_options() {
    let error = Model::embedded().grammar(&Grammar::Gbnf("root ::= [".into())).unwrap_err();
    assert!(matches!(error, isobit::Error::Options(_)), "{error:?}");
    assert!(error.to_string().contains("GBNF grammar: line 1"), "{error}");
}
