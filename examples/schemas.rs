//! Holds grammars of JSON schemas to a suite of schemas with instances, for `.ci/schemas`: of each schema that is taken, valid
//! instances must be accepted token by token, and invalid ones must not.
//!
//!     schemas EXCEPTIONS FILE.json...
//!
//! Files are those of the JSON-Schema-Test-Suite. A grammar writes the members of an object in one order, that of the schema's
//! `properties`, so an instance counts as accepted if it is in the order it has or in that one. EXCEPTIONS has a line for each
//! schema whose grammar takes more than the schema (`wider`) or less (`narrower`), with the reason, apart by tabs.

use isobit::{Grammar, Model};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// A value with its members in the order of a schema's properties, as far as schemas of members say.
fn ordered(value: &Value, schema: &Value) -> Value {
    match value {
        Value::Array(list) => {
            let of = |i: usize| schema["prefixItems"].get(i).unwrap_or(&schema["items"]);
            list.iter().enumerate().map(|(i, v)| ordered(v, of(i))).collect()
        }
        Value::Object(map) => {
            let known = schema["properties"].as_object();
            let first = known.into_iter().flatten().filter_map(|(name, of)| Some((name, of, map.get(name)?)));
            let mut out: Map<String, Value> = first.map(|(name, of, v)| (name.clone(), ordered(v, of))).collect();
            for (name, v) in map {
                let of = &schema["additionalProperties"];
                out.entry(name.clone()).or_insert_with(|| ordered(v, of));
            }
            out.into()
        }
        other => other.clone(),
    }
}

/// Whether a grammar takes a text whole.
fn takes(model: &Model, grammar: &isobit::Compiled, text: &str) -> anyhow::Result<bool> {
    let tokenizer = model.tokenizer()?;
    let mut following = grammar.start();
    for id in tokenizer.encode(text, false, false)?.into_iter().chain(tokenizer.eos().first().copied()) {
        // an error is that nothing may follow
        let allowed = following.allowed().ok().and_then(|words| words.get(id as usize / 32)).copied().unwrap_or(0);
        if allowed >> (id % 32) & 1 == 0 {
            return Ok(false);
        }
        if !tokenizer.eos().contains(&id) {
            following.accept(id)?;
        }
    }
    Ok(true)
}

/// What came of a suite.
#[derive(Default)]
struct Counts {
    schemas: usize,
    refused: BTreeMap<String, usize>,
    accepted: usize,
    rejected: usize,
    /// kind, file and schema to the instances
    other: BTreeMap<(String, String, String), Vec<String>>,
}

fn group(model: &Model, file: &str, group: &Value, counts: &mut Counts) -> anyhow::Result<()> {
    let text = |v: &Value| v["description"].as_str().unwrap_or_default().to_owned();
    counts.schemas += 1;
    let grammar = match model.grammar(&Grammar::JsonSchema(group["schema"].clone())) {
        Ok(grammar) => grammar,
        Err(e) => {
            let line = e.to_string();
            anyhow::ensure!(!line.contains('\n') && line.len() < 600, "{file}, {}: {line}", text(group));
            let why: String = line.chars().take(90).collect();
            *counts.refused.entry(why).or_default() += 1;
            return Ok(());
        }
    };
    for test in group["tests"].as_array().into_iter().flatten() {
        let data = &test["data"];
        let texts = [data.to_string(), ordered(data, &group["schema"]).to_string()];
        let took = takes(model, &grammar, &texts[0])? || takes(model, &grammar, &texts[1])?;
        let valid = test["valid"] == true;
        match (valid, took) {
            (true, true) => counts.accepted += 1,
            (false, false) => counts.rejected += 1,
            _ => {
                let kind = if valid { "narrower" } else { "wider" };
                let key = (kind.to_owned(), file.to_owned(), text(group));
                counts.other.entry(key).or_default().push(format!("{} {}", text(test), texts[0]));
            }
        }
    }
    Ok(())
}

fn main() -> anyhow::Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let exceptions = arguments.next().ok_or_else(|| anyhow::anyhow!("schemas EXCEPTIONS FILE.json..."))?;
    let exceptions = std::fs::read_to_string(exceptions)?;
    let model = Model::embedded();
    let mut counts = Counts::default();
    for path in arguments {
        let file = path.rsplit('/').next().unwrap_or_default().to_owned();
        let groups: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        for one in groups.as_array().into_iter().flatten() {
            group(&model, &file, one, &mut counts)?;
        }
    }
    let refused: usize = counts.refused.values().sum();
    println!("{} schemas: {} taken, {refused} refused", counts.schemas, counts.schemas - refused);
    for (why, n) in &counts.refused {
        println!("  refused {n}: {why}");
    }
    let other: usize = counts.other.values().map(Vec::len).sum();
    println!(
        "{} valid instances accepted, {} invalid ones rejected, {other} otherwise",
        counts.accepted, counts.rejected
    );
    let mut listed: BTreeMap<(String, String, String), &str> = BTreeMap::new();
    for line in exceptions.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let cells: Vec<&str> = line.split('\t').collect();
        let [kind, file, schema, reason] = cells[..] else { anyhow::bail!("a line of four cells expected: {line}") };
        listed.insert((kind.into(), file.into(), schema.into()), reason);
    }
    let mut wrong = 0;
    for (key, instances) in &counts.other {
        if listed.remove(key).is_none() {
            wrong += 1;
            println!("{}\t{}\t{}\t{}", key.0, key.1, key.2, instances.join("; "));
        }
    }
    for key in listed.keys() {
        wrong += 1;
        println!("listed, and not so: {key:?}");
    }
    println!("{wrong} schemas not as listed");
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
