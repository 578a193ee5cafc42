//! Chat templates against Hugging Face transformers, byte for byte; and that no template runs for ever.

use isobit::Model;
use isobit::internals::chat::{BUILTIN, Conversation, Format, Template, TemplateError, builtin};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/chat")
}

fn source(name: &str) -> String {
    match builtin(name) {
        Some(source) => source.into(),
        None => std::fs::read_to_string(data().join(name)).unwrap(),
    }
}

fn conversation(c: &Value, now: u64) -> Conversation {
    Conversation {
        messages: c["messages"].as_array().unwrap().clone(),
        tools: c["tools"].as_array().cloned(),
        add_generation_prompt: c["add_generation_prompt"] == true,
        kwargs: c["kwargs"].as_object().unwrap().clone(),
        now: UNIX_EPOCH + Duration::from_secs(now),
    }
}

fn expected() -> Value {
    serde_json::from_slice(&std::fs::read(data().join("expected.json")).unwrap()).unwrap()
}

fn specials(all: &Value) -> Vec<(String, String)> {
    let fields = all["specials"].as_object().unwrap().iter();
    fields.map(|(name, text)| (name.clone(), text.as_str().unwrap().into())).collect()
}

/// The first row of expectations that a change of every rendered text breaks, or all hold.
fn check(all: &Value, change: impl Fn(String) -> String) -> Result<usize, String> {
    let rows = all["rows"].as_array().unwrap();
    for row in rows {
        let name = row["template"].as_str().unwrap();
        let template = Template::new(&source(name), &specials(all)).map_err(|e| format!("{name}: {e}"))?;
        let c = &all["conversations"][row["conversation"].as_u64().unwrap() as usize];
        let ours = template.render(&conversation(c, all["now"].as_u64().unwrap()));
        match (row["text"].as_str(), ours.map(&change)) {
            (Some(theirs), Ok(ours)) if theirs == ours => {}
            (None, Err(TemplateError::Raised(why))) if row["error"] == why.as_str() => {}
            (_, ours) => return Err(format!("{name}\ntheirs {:?}\nours   {ours:?}", row["text"])),
        }
    }
    Ok(rows.len())
}

#[test]
fn every_construct_gives_the_bytes_that_transformers_gives() {
    let all = expected();
    let rows = check(&all, |text| text).unwrap_or_else(|e| panic!("{e}"));
    let files = std::fs::read_dir(data()).unwrap().filter(|f| {
        let name = f.as_ref().unwrap().file_name();
        name.to_string_lossy().ends_with(".jinja")
    });
    assert_eq!(rows, 2 * (files.count() + BUILTIN.len()), "a template without a row, or a row without one");
    // one byte more is seen
    assert!(check(&all, |text| text + " ").is_err());
}

#[test]
fn what_never_ends_is_ended() {
    let run = |source: &str| {
        let template = Template::new(source, &[]).unwrap();
        template.render(&Conversation::new(vec![json!({"role": "user", "content": "x"})]))
    };
    let nested = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
    assert_eq!(run(nested), Err(TemplateError::Fuel));
    let grows = "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}";
    assert_eq!(run(grows), Err(TemplateError::Fuel));
    let long = "{% set s = 'x' * 1000000 %}{% for i in range(17) %}{{ s }}{% endfor %}";
    assert_eq!(run(long), Err(TemplateError::TooLong));
    assert_eq!(run("{{ 'x' * 16000000 }}").map(|s| s.len()), Ok(16_000_000));
    let deep = "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}";
    assert!(matches!(run(deep), Err(TemplateError::Failed { .. })));
    let json =
        "{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l | tojson }}";
    assert!(matches!(run(json), Err(TemplateError::Failed { .. })));
}

#[test]
fn errors_say_what_and_where() {
    let syntax = Template::new("a\n{% if %}", &[]).unwrap_err();
    assert!(matches!(&syntax, TemplateError::Syntax { line: 2, .. }), "{syntax}");
    let run = |source| Template::new(source, &[]).unwrap().render(&Conversation::new(vec![])).unwrap_err();
    assert_eq!(run("{{ raise_exception('no \\'x\\'') }}"), TemplateError::Raised("no 'x'".into()));
    let within = "{% macro m() %}{{ raise_exception('deep') }}{% endmacro %}{{ m() }}";
    assert_eq!(run(within), TemplateError::Raised("deep".into()));
    let failed = run("\n\n{{ messages[0].role + 'x' }}").to_string();
    assert!(failed.contains("line 3") && !failed.contains('\n'), "{failed}");
}

#[test]
fn messages_are_suited_to_what_a_template_understands() {
    let call = |arguments: Value| {
        json!({"role": "assistant", "content": "", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}]})
    };
    let suited = |source: &str, m: Value| Template::new(source, &[]).unwrap().suited(&[m])[0].clone();
    let text = Value::from("{\"a\": 1}");
    let looks =
        "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}";
    assert_eq!(suited(looks, call(text.clone())), call(json!({"a": 1})));
    let items = "{% for m in messages %}{% for c in m.tool_calls %}{% for k, v in c.function.arguments.items() %}{{ k }}{% endfor %}{% endfor %}{% endfor %}";
    assert_eq!(suited(items, call(text.clone())), call(json!({"a": 1})));
    let pastes = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ '' + c.function.arguments }}{% endfor %}{% endfor %}";
    assert_eq!(suited(pastes, call(json!({"a": 1}))), call("{\"a\":1}".into()));
    let parts = json!({"role": "user", "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]});
    assert_eq!(suited(pastes, parts.clone())["content"], "a b");
    let knows = "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}";
    assert_eq!(suited(knows, parts.clone()), parts);
}

#[test]
fn the_built_in_formats_are_those_of_their_names() {
    use isobit::internals::chat::Calls::{Generic, Hermes, Llama3, Mistral, Phi4};
    for (name, calls) in
        [("chatml", Hermes), ("llama3", Llama3), ("mistral", Mistral), ("phi4", Phi4), ("vicuna", Generic)]
    {
        assert_eq!(Format::of(builtin(name).unwrap()).calls, calls, "{name}");
    }
    assert!(BUILTIN.iter().all(|name| builtin(name).is_some()) && builtin("none").is_none());
}

#[test]
fn a_model_without_a_template_says_so_and_takes_a_built_in_one() {
    let model = Model::embedded();
    assert!(model.chat_templates().is_empty());
    let error = model.chat_template(None).unwrap_err().to_string();
    assert!(error.contains("no chat template") && error.contains("chatml"), "{error}");
    let template = model.chat_template(Some("llama3")).unwrap();
    let prompt = template.render(&Conversation::new(vec![json!({"role": "user", "content": "Hi"})])).unwrap();
    assert!(prompt.contains("<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"), "{prompt}");
    assert!(model.chat_template(Some("nonsense")).is_err());
}

#[test]
fn templates_of_a_gguf_file_are_found_by_name() {
    use isobit::internals::formats::meta::Value as Meta;
    let mut c = Model::embedded_container();
    for (key, text) in [("tokenizer.chat_template.tool_use", "tools {{ bos_token }}"), ("tokenizer.chat_template", "d")]
    {
        c.meta.entries.push((key.into(), Meta::Str(text.into())));
    }
    let model = Model::from_container(c).unwrap();
    assert_eq!(model.chat_templates(), ["default", "tool_use"]);
    assert_eq!(model.chat_template(None).unwrap().source(), "d");
    let tools = model.chat_template(Some("tool_use")).unwrap();
    let bos = model.tokenizer().unwrap().bos().and_then(|id| model.tokenizer().unwrap().token_text(id)).unwrap();
    assert_eq!(tools.render(&Conversation::new(vec![])).unwrap(), format!("tools {bos}"));
    let error = model.chat_template(Some("rag")).unwrap_err().to_string();
    assert!(error.contains("rag") && error.contains("default, tool_use"), "{error}");
}

#[test]
fn templates_of_a_directory_are_found_and_a_file_goes_before_the_config() {
    let dir = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny/hf");
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
    }
    let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let names = || Model::open(dir.path()).unwrap().chat_templates();
    let default = || Model::open(dir.path()).unwrap().chat_template(None).map(|t| t.source().to_string()).unwrap();
    put(
        "tokenizer_config.json",
        r#"{"eos_token": {"content": "</s>"}, "chat_template": "of the config {{ eos_token }}"}"#,
    );
    assert_eq!((names(), default().as_str()), (vec!["default".to_string()], "of the config {{ eos_token }}"));
    let model = Model::open(dir.path()).unwrap();
    assert_eq!(model.chat_template(None).unwrap().render(&Conversation::new(vec![])).unwrap(), "of the config </s>");
    put(
        "tokenizer_config.json",
        r#"{"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]}"#,
    );
    assert_eq!((names(), default().as_str()), (vec!["default".to_string(), "rag".to_string()], "d"));
    put("chat_template.jinja", "of the file");
    std::fs::create_dir(dir.path().join("chat_templates")).unwrap();
    put("chat_templates/tool_use.jinja", "t");
    assert_eq!((names().join(" "), default().as_str()), ("default tool_use rag".to_string(), "of the file"));
    std::fs::write(dir.path().join("chat_template.jinja"), [0xff, 0xfe]).unwrap();
    let error = Model::open(dir.path()).unwrap().chat_template(None).unwrap_err().to_string();
    assert!(error.contains("chat_template.jinja") && error.contains("UTF-8"), "{error}");
}
