use super::*;
use busy::Busy;
use std::time::Duration;

#[path = "../../tests/common/busy.rs"]
mod busy;

/// A vocabulary of the 256 bytes (0xff means none), some words, and two tokens that end a text.
fn vocabulary() -> (Vocabulary, Vec<Vec<u8>>) {
    let mut words: Vec<Vec<u8>> = (0..=255).map(|b| if b == 255 { vec![] } else { vec![b] }).collect();
    for word in ["\":", "\": ", "{\"", "\"}", "true", "null", "name", " the", "12", "}}", "[[", "é", "the", "e4", ", "]
    {
        words.push(word.into());
    }
    let end = words.len() as u32;
    words.push(b"\xff<end>".to_vec());
    words.push(b"\xff<stop>".to_vec());
    (Vocabulary::of(&words, end, &[end, end + 1]).unwrap(), words)
}

fn compile(grammar: &Grammar) -> Result<Compiled, GrammarError> {
    Compiled::new(grammar, &vocabulary().0)
}

fn has(allowed: &[u32], id: u32) -> bool {
    allowed.get(id as usize / 32).is_some_and(|w| w >> (id % 32) & 1 == 1)
}

/// Walks a text byte by byte: how many bytes are taken, and whether it may end there.
fn walk(grammar: &Compiled, text: &str) -> (usize, bool) {
    let (_, words) = vocabulary();
    let end = words.len() as u32 - 2;
    let mut c = grammar.start();
    for (i, byte) in text.bytes().enumerate() {
        match c.allowed() {
            Ok(allowed) if has(allowed, byte.into()) => c.accept(byte.into()).unwrap(),
            _ => return (i, false),
        }
    }
    let allowed = c.allowed().unwrap();
    assert_eq!(has(allowed, end), has(allowed, end + 1), "either ends it");
    (text.len(), has(allowed, end))
}

fn takes(grammar: &Compiled, text: &str) -> bool {
    walk(grammar, text) == (text.len(), true)
}

#[test]
fn a_schema_is_followed_to_its_end_and_then_only_the_end_comes() {
    let schema = serde_json::json!({
        "type": "object",
        "properties": { "name": { "type": "string" }, "age": { "type": "integer", "minimum": 0, "maximum": 120 } },
        "required": ["name", "age"],
        "additionalProperties": false
    });
    let g = compile(&Grammar::JsonSchema(schema)).unwrap();
    for good in
        ["{\"name\": \"é\", \"age\": 7}", "{\"name\":\"\",\"age\":120}", "{\n  \"name\": \"a\",\n  \"age\": 0\n}"]
    {
        assert!(takes(&g, good), "{good}: {:?}", walk(&g, good));
    }
    for bad in
        ["{\"age\": 7}", "{\"name\": 3", "{\"name\": \"a\", \"age\": 121}", "{\"name\":  \"two spaces\"", "[]", " {"]
    {
        assert!(!takes(&g, bad), "{bad}");
    }
    // every token that is one way to go on is allowed, and after the last only the two ends are, however often
    let (_, words) = vocabulary();
    let id = |w: &str| words.iter().position(|x| x == w.as_bytes()).unwrap() as u32;
    let mut c = g.start();
    assert!(has(c.allowed().unwrap(), id("{")) && has(c.allowed().unwrap(), id("{\"")));
    assert!(!has(c.allowed().unwrap(), id("[[")));
    for byte in b"{\"name\":\"\",\"age\":1}" {
        c.accept((*byte).into()).unwrap();
    }
    for _ in 0..3 {
        let ids: Vec<u32> = (0..words.len() as u32).filter(|id| has(c.allowed().unwrap(), *id)).collect();
        assert_eq!(ids, [words.len() as u32 - 2, words.len() as u32 - 1]);
        c.accept(ids[1]).unwrap();
    }
    assert!(g.start().accept(id("[[")).is_err(), "what is not allowed is not accepted");
}

#[test]
fn objects_expressions_and_rules_are_followed() {
    let object = compile(&Grammar::JsonObject).unwrap();
    assert!(takes(&object, "{\"a\": [1, {\"b\": null}]}") && !takes(&object, "[1]"));
    let regex = compile(&Grammar::Regex("(ab|a/b)+c?".into())).unwrap();
    assert!(takes(&regex, "aba/bc") && takes(&regex, "ab") && !takes(&regex, "a") && !takes(&regex, "abx"));
    let lark = compile(&Grammar::Lark("start: \"<\" NAME \">\"\nNAME: /[a-z]+/\n".into())).unwrap();
    assert!(takes(&lark, "<abc>") && !takes(&lark, "<>"));
}

/// Grammars of our own that use every part of the notation.
const GRAMMARS: [(&str, &[&str], &[&str]); 7] = [
    ("root ::= \"yes\" | \"no\"", &["yes", "no"], &["", "yesno", "y"]),
    (
        "# recursion\nroot ::= sum\nsum ::= product ([-+] product)*\nproduct ::= atom ([*/] atom)*\natom ::= [0-9]+ | \"(\" sum \")\"\n",
        &["1", "(1+22)*3/(4-5)", "((7))"],
        &["", "1+", "(1", "1)", "a"],
    ),
    (
        // a literal that another part can go on from, which a lexer would not give back
        "root ::= word+ \"!\" root?\nword ::= [a-z]+ \"ab\" [a-c]",
        &["xaba!", "ababaabb!", "zabcxabb!yabc!"],
        &["ab!", "abc!", "xaba", "xabd!"],
    ),
    (
        "root ::= item{2,3} (\"\\n\" | \"\\x21\" .)?\nitem ::= \"- \" [^\\r\\n\\u00e9]{1,} \"\\\"\"",
        &["- a\"- b\"", "- a\"- b\"- \"c\"\n", "- a\"- b\"!é"],
        &["- a\"", "- a\"- b\"- c\"- d", "- é\"- b\"", "- a\"- b\"!"],
    ),
    (
        "root ::= (\n  \"a\" # one\n  | \"b\"\n) [\\]\\[\\-x]{3}\nunused ::= \"\"\n",
        &["a[]-", "bxxx"],
        &["a[]", "a[]y", "c[]-"],
    ),
    (
        "root ::= nested*\nnested ::= \"[\" nested* \"]\" | \"{\" nested{2} \"}\"",
        &["", "[]", "[[]{[][]}]"],
        &["[", "{[]}"],
    ),
    ("root ::= ( [あ-ん] | \"漢\" )+", &["あ漢ん"], &["a", "字"]),
];

#[test]
fn grammars_of_llama_cpp_mean_what_they_say() {
    for (text, good, bad) in GRAMMARS {
        let g = compile(&Grammar::Gbnf(text.into())).unwrap_or_else(|e| panic!("{text}: {e}"));
        for t in good {
            assert!(takes(&g, t), "{text}: {t:?}: {:?}", walk(&g, t));
        }
        for t in bad {
            assert!(!takes(&g, t), "{text}: {t:?}");
        }
    }
    for (text, why) in [
        ("start ::= \"a\"", "no rule root"),
        ("root ::= a", "no rule a"),
        ("root ::= \"a", "line 1, column 12"),
        ("root ::= [a", "end of a literal or class"),
        ("root ::= (\"a\"", ") expected"),
        ("root ::= *", "nothing to repeat"),
        ("root ::= \"a\"{3,2}", "fewer times"),
        ("root ::= \"a\"{3000}", "2000 at most"),
        ("root ::= \"a\"\n\nx := \"b\"", "line 3, column 3: ::= expected"),
        ("root ::= \"\\q\"", "\\q stands for nothing"),
        ("root ::= <think>", "not supported"),
        ("root ::= [z-a]", "ends before it begins"),
        ("root ::= \"\\ud800\"", "hexadecimal"),
    ] {
        let error = compile(&Grammar::Gbnf(text.into())).unwrap_err().to_string();
        assert!(error.contains(why) && !error.contains('\n'), "{text}: {error}");
    }
}

#[test]
fn requests_say_what_they_want_as_openai_and_llama_cpp_have_it() {
    let of = |format: Value, text: Option<&str>| {
        Grammar::of_request(Some(&format), text.map(|t| Grammar::named(None, t).unwrap()))
    };
    let schema = json!({ "type": "integer" });
    assert_eq!(of(json!({ "type": "text" }), None), Ok(None));
    assert_eq!(of(Value::Null, Some("root ::= \"a\"")), Ok(Some(Grammar::Gbnf("root ::= \"a\"".into()))));
    assert_eq!(of(json!({ "type": "json_object" }), None), Ok(Some(Grammar::JsonObject)));
    for format in [
        json!({ "type": "json_object", "schema": schema }),
        json!({ "type": "json_schema", "schema": schema }),
        json!({ "type": "json_schema", "json_schema": { "name": "x", "strict": true, "schema": schema } }),
    ] {
        assert_eq!(of(format, None), Ok(Some(Grammar::JsonSchema(schema.clone()))));
    }
    for (format, gbnf) in [
        (json!({ "type": "json_schema" }), None),
        (json!({ "type": "xml" }), None),
        (json!("json_object"), None),
        (json!({ "type": "json_object" }), Some("root ::= \"a\"")),
    ] {
        assert!(of(format.clone(), gbnf).unwrap_err().to_string().starts_with("response_format: "), "{format}");
    }
}

#[test]
fn a_notation_is_named_or_is_that_of_llama_cpp_and_a_choice_is_one_of_its_texts() {
    let lark = "%llguidance {}\nstart: \"a\"";
    assert_eq!(Grammar::named(None, lark), Ok(Grammar::Lark(lark.into())));
    assert_eq!(Grammar::named(None, "x"), Ok(Grammar::Gbnf("x".into())));
    assert_eq!(Grammar::named(Some("regex"), "[ab]+"), Ok(Grammar::Regex("[ab]+".into())));
    assert!(Grammar::named(Some("ebnf"), "x").unwrap_err().to_string().contains("gbnf, lark or regex"));
    assert!(takes(&compile(&Grammar::named(None, lark).unwrap()).unwrap(), "a"));
    let texts = ["yes", "no \"sir\"", "\\ é\n"].map(String::from);
    let choice = compile(&Grammar::choice(&texts)).unwrap();
    assert!(texts.iter().all(|t| takes(&choice, t)) && !takes(&choice, "maybe") && !takes(&choice, "yesno"));
}

#[test]
fn wrong_grammars_are_refused_in_one_line() {
    for (grammar, why) in [
        (Grammar::Regex("a(".into()), "regular expression: "),
        (Grammar::Lark("start: missing".into()), "missing"),
        (Grammar::JsonSchema(serde_json::json!({ "type": "strnig" })), "JSON schema: "),
        (Grammar::JsonSchema(serde_json::json!({ "type": "object", "dependentSchemas": {} })), "dependentSchemas"),
        (Grammar::JsonSchema(serde_json::json!({ "$ref": "http://example.com/x.json" })), "JSON schema: "),
        (Grammar::JsonSchema(Value::Bool(false)), "JSON schema: "),
        (Grammar::JsonSchema(serde_json::json!(3)), "JSON schema: "),
    ] {
        let error = compile(&grammar).unwrap_err().to_string();
        assert!(error.contains(why) && !error.contains('\n') && error.len() < 400, "{grammar:?}: {error}");
    }
}

/// Grammars that are made to take long or much.
fn hostile() -> Vec<(&'static str, Grammar)> {
    let deep = |n: usize| (0..n).fold(serde_json::json!({}), |inner, _| serde_json::json!({ "items": inner }));
    let chain = |n: usize| {
        let defs: serde_json::Map<String, Value> =
            (0..n).map(|i| (format!("d{i}"), serde_json::json!({ "$ref": format!("#/$defs/d{}", i + 1) }))).collect();
        let mut defs = defs;
        defs.insert(format!("d{n}"), serde_json::json!({ "type": "null" }));
        serde_json::json!({ "$ref": "#/$defs/d0", "$defs": defs })
    };
    let any_of = |n: usize| {
        let two = |i: usize| {
            serde_json::json!({ "anyOf": [
            { "properties": { format!("a{i}"): { "type": "string" } } },
            { "properties": { format!("b{i}"): { "type": "integer" } } },
        ] })
        };
        serde_json::json!({ "type": "object", "allOf": (0..n).map(two).collect::<Vec<_>>() })
    };
    let doubling = |n: usize| {
        let rules = (0..n).map(|i| format!("r{i}: r{0} r{0}\n", i + 1)).collect::<String>();
        format!("start: r0\n{rules}r{n}: \"a\"\n")
    };
    let terminals = |n: usize| {
        let rules = (0..n).map(|i| format!("R{i}: R{0} R{0}\n", i + 1)).collect::<String>();
        format!("start: R0\n{rules}R{n}: \"a\"\n")
    };
    let chained = |n: usize| {
        let rules = (0..n).map(|i| format!("R{i}: R{}\n", i + 1)).collect::<String>();
        format!("start: R0\n{rules}R{n}: \"a\"\n")
    };
    let required = |n: usize| {
        let names: Vec<String> = (0..n).map(|i| format!("p{i}")).collect();
        let all: serde_json::Map<String, Value> =
            names.iter().map(|p| (p.clone(), serde_json::json!({ "type": "integer" }))).collect();
        serde_json::json!({ "type": "object", "properties": all, "required": names })
    };
    vec![
        ("deep schema", Grammar::JsonSchema(deep(60))),
        ("deeper schema", Grammar::JsonSchema(deep(100))),
        ("chain of references", Grammar::JsonSchema(chain(4000))),
        ("allOf of anyOf", Grammar::JsonSchema(any_of(16))),
        ("allOf of more anyOf", Grammar::JsonSchema(any_of(200))),
        ("many properties", Grammar::JsonSchema(required(900))),
        (
            "a large enum",
            Grammar::JsonSchema(serde_json::json!({ "enum": (0..20_000).map(|i| i.to_string()).collect::<Vec<_>>() })),
        ),
        (
            "a long string",
            Grammar::JsonSchema(
                serde_json::json!({ "type": "string", "minLength": 100_000, "maxLength": 2_000_000_000 }),
            ),
        ),
        ("many items", Grammar::JsonSchema(serde_json::json!({ "type": "array", "minItems": 2_000_000_000_u32 }))),
        (
            "a pattern",
            Grammar::JsonSchema(serde_json::json!({ "type": "string", "pattern": "^(([a-z]+)+[0-9]{1,500}){1,500}$" })),
        ),
        (
            "references in a circle",
            Grammar::JsonSchema(serde_json::json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/a" } } })),
        ),
        ("schema of too many bytes", Grammar::JsonSchema(serde_json::json!({ "description": "x".repeat(300_000) }))),
        ("nested repeats", Grammar::Regex("((((a{0,1000}){0,1000}){0,1000}){0,1000}){0,1000}".into())),
        ("one large repeat", Grammar::Regex("(a|b|cd){4000000000}".into())),
        ("states that double", Grammar::Regex(format!("(a|b)*a{}", "(a|b)".repeat(3000)))),
        ("states that double, repeated", Grammar::Regex("(.*a.{300}){1,300}".into())),
        (
            "intersections",
            Grammar::Lark(format!(
                "start: A\nA: {}\n",
                (0..400).map(|i| format!("/(.*{i}.*)+/")).collect::<Vec<_>>().join(" & ")
            )),
        ),
        ("deep brackets", Grammar::Regex(format!("{}a{}", "(".repeat(100_000), ")".repeat(100_000)))),
        ("brackets", Grammar::Regex(format!("{}a{}", "(".repeat(400), ")".repeat(400)))),
        ("rules that double", Grammar::Lark(doubling(40))),
        ("terminals that double", Grammar::Lark(terminals(40))),
        ("a chain of terminals", Grammar::Lark(chained(3900))),
        ("too long a chain of terminals", Grammar::Lark(chained(20_000))),
        ("left recursion", Grammar::Lark("start: start start | \"a\" | \"\"\n".into())),
        ("ambiguous", Grammar::Lark("start: a a a a a a a a\na: b*\nb: c*\nc: \"x\"* | \"y\"*\n".into())),
        ("repeated rules", Grammar::Lark("start: (a{1000}){1000}\na: b{1000}\nb: \"x\" | \"y\"\n".into())),
        (
            "gbnf that doubles",
            Grammar::Gbnf(format!(
                "root ::= r0\n{}r40 ::= \"a\"\n",
                (0..40).map(|i| format!("r{i} ::= r{0} r{0}\n", i + 1)).collect::<String>()
            )),
        ),
        ("gbnf repeats", Grammar::Gbnf("root ::= (((\"ab\" root?){2000}){2000}){2000}".into())),
        ("gbnf brackets", Grammar::Gbnf(format!("root ::= {}", "(".repeat(200_000)))),
        ("left recursion of gbnf", Grammar::Gbnf("root ::= root root | \"a\" | \"\"".into())),
    ]
}

#[test]
fn hostile_grammars_end_in_an_error_or_an_answer_within_the_bounds() {
    let (v, _) = vocabulary();
    for (name, grammar) in hostile() {
        let began = Busy::now();
        let compiled = Compiled::new(&grammar, &v);
        let compiling = began.elapsed();
        let (mut slowest, mut said) = (Duration::ZERO, String::new());
        match compiled {
            Err(e) => {
                said = e.to_string();
                assert!(!said.contains('\n') && said.len() < 500 && !said.contains("panic"), "{name}: {said}");
            }
            Ok(g) => {
                let mut c = g.start();
                for step in 0..200 {
                    let began = Busy::now();
                    let id = match c.allowed() {
                        Ok(allowed) => (97..256).chain(0..97).find(|id| has(allowed, *id)),
                        Err(e) => {
                            said = format!("step {step}: {e}");
                            break;
                        }
                    };
                    // only the end may come
                    let Some(id) = id else { break };
                    let accepted = c.accept(id);
                    slowest = slowest.max(began.elapsed());
                    if let Err(e) = accepted {
                        said = format!("step {step}: {e}");
                        break;
                    }
                }
                assert!(!said.contains('\n') && !said.contains("panic"), "{name}: {said}");
            }
        }
        assert!(compiling < Duration::from_secs(4), "{name}: {compiling:?}; {said}");
        assert!(slowest < Duration::from_secs(2), "{name}: {slowest:?}; {said}");
    }
}

#[test]
fn vocabularies_that_cannot_be_held_to_a_grammar_are_refused() {
    let long =
        |n: usize| Vocabulary::of(&(0..n).map(|i| format!("{i:01000}").into_bytes()).collect::<Vec<_>>(), 0, &[0]);
    assert!(long(100).is_ok());
    let words: Vec<Vec<u8>> =
        (0..5000).map(|i| [i % 128, i / 128].iter().cycle().take(1000).map(|b| *b as u8).collect()).collect();
    let error = Vocabulary::of(&words, 0, &[0]).unwrap_err().to_string();
    assert!(error.starts_with("the vocabulary: 5000 tokens"), "{error}");
    // of two tokens with the same bytes both are allowed
    let v = Vocabulary::of(&[b"a".to_vec(), b"a".to_vec(), b"\xffend".to_vec()], 2, &[2]).unwrap();
    let g = Compiled::new(&Grammar::Regex("aa".into()), &v).unwrap();
    assert_eq!((g.start().allowed().unwrap()[0], g.tokens()), (0b11, 3));
}
