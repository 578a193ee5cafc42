//! `verify`: what it says, what it finds, and when it refuses.

use super::*;

#[test]
fn verify_json_has_the_documented_keys_and_what_was_covered() {
    let v = isobit(&["verify", "--devices", "cpu:scalar,cpu:portable,cpu", "--tokens", "2", "--json"]).json();
    assert_eq!((v["ok"].as_bool(), v["mismatches"].as_u64()), (Some(true), Some(0)));
    assert!(number(&v, "/commands_compared") > 100.0 && number(&v, "/words_compared") > 1e6, "{v}");
    assert_eq!(v["digest"].as_str().unwrap().len(), 64);
    assert_eq!(v["devices"].as_array().unwrap().len(), 3);
    assert!(v["first_mismatch"].is_null());
    let passes = v["covered"].as_array().unwrap();
    assert_eq!(passes.iter().map(|p| p["pages"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2], "{v}");
    for p in passes {
        assert_eq!(p["positions"], 192);
        // one token, up to 4, up to 15, many
        for tokens in ["1", "3", "5", "24", "60", "93"] {
            assert!(number(p, &format!("/steps/{tokens}")) >= 1.0, "{p}");
        }
        assert!(number(p, "/words") > 1e6 && number(p, "/commands") > 100.0, "{p}");
    }
    // every device, without pages and with them, whole steps and selection
    for (list, result) in [("digests", "/digest"), ("selections", "/first_difference")] {
        let rows = v[list].as_array().unwrap();
        assert_eq!(rows.len(), 6, "{v}");
        let expected = if list == "digests" { &v["digest"] } else { &Value::Null };
        assert!(rows.iter().all(|r| r.pointer(result).unwrap() == expected), "{v}");
    }
    let ran = isobit(&["verify", "--devices", "cpu:portable,cpu", "--tokens", "2"]).ok();
    for line in
        ["covered, the cache in 1 page: 192 positions; steps by tokens: 2 of 1, 1 of 3,", "in 2 pages of at most 128"]
    {
        assert!(ran.out.contains(line), "{ran:#?}");
    }
}

#[test]
fn verify_refuses_to_compare_a_device_with_itself_unless_asked() {
    let best = isobit(&["verify", "--devices", "cpu,cpu:portable", "--tokens", "0", "--json"]).json();
    let level = best["devices"][0].as_str().unwrap().split(['(', ',']).nth(1).unwrap().to_string();
    for twice in ["cpu,cpu".to_string(), format!("cpu,cpu:portable,cpu:{level}")] {
        isobit(&["verify", "--devices", &twice, "--tokens", "0"]).refused_with(2, &["twice", "CPU", "--same-device"]);
    }
    isobit(&["verify", "--devices", "cpu,cpu", "--tokens", "0", "--same-device"]).ok();
    for index in every_adapter() {
        let twice = format!("{index},{index}");
        isobit(&["verify", "--devices", &twice, "--tokens", "0"]).refused_with(2, &["twice", "--same-device"]);
    }
}

#[test]
fn verify_finds_a_fault_that_only_whole_steps_have() {
    for (fault, says) in
        [("step", "the prompt whole, gives other logits on CPU"), ("selection", "selects other logits")]
    {
        let args = ["verify", "--devices", "cpu:portable,cpu", "--tokens", "2", "--plant-fault", fault];
        let ran = isobit(&args);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        let line = ran.err.lines().last().unwrap();
        assert!(line.contains(says) && line.contains("first at position 189"), "{ran:?}");
        assert!(ran.out.contains("DIFFERENT") && ran.out.contains("mismatches:        0"), "{ran:?}");
        let ran = isobit(&[&args[..], &["--json"]].concat());
        let v: Value = serde_json::from_str(&ran.out).unwrap();
        assert!(v["ok"] == false && v["mismatches"] == 0, "{v}");
    }
}

#[test]
fn verify_does_not_pass_on_logits_that_say_nothing() {
    for (fault, says) in [
        ("nan", "the logits of position 189 hold NaN: the model's activations overflowed; the first value"),
        ("zeros", "the logits of position 189 are all zero"),
    ] {
        let args = ["verify", "--devices", "cpu:portable,cpu", "--tokens", "2", "--plant-fault", fault];
        isobit(&args).refused_with(2, &[says]);
    }
}

/// The embedded model with a last norm whose results overflow f32.
fn overflowing() -> Vec<u8> {
    let c = isobit::internals::formats::Container::open(Path::new(MODEL), isobit::internals::formats::LoadMode::Read)
        .unwrap();
    let norm = c.tensor("output_norm.weight").unwrap();
    let mut bytes = std::fs::read(MODEL).unwrap();
    let words =
        bytes[norm.offset as usize..][..norm.bytes as usize].chunks_exact_mut(4).zip([-3e38f32, 3e38].iter().cycle());
    words.for_each(|(word, value)| word.copy_from_slice(&value.to_le_bytes()));
    bytes
}

#[test]
fn a_model_that_overflows_ends_every_command_with_the_same_sentence() {
    let dir = folder();
    let model = put(dir.path(), "overflow.gguf", &overflowing());
    let text = put(dir.path(), "text.txt", "The king had three sons and a bird. ".repeat(20).as_bytes());
    // NaN, or infinity where only the output matrix overflows
    let sentence = |args: &[&str], pos: Option<usize>| {
        let ran = isobit(args);
        assert_eq!(ran.code, Some(2), "{args:?} {ran:?}");
        let line = ran.err.lines().last().unwrap();
        let (front, end) = line.split_once(": the model's activations overflowed").unwrap_or_else(|| panic!("{ran:?}"));
        let said = front.rsplit_once("the logits of position ").unwrap_or_else(|| panic!("{ran:?}")).1;
        let (at, value) = said.split_once(" hold ").unwrap_or_else(|| panic!("{ran:?}"));
        assert!(["NaN", "inf", "-inf"].contains(&value), "{ran:?}");
        assert_eq!(at, pos.map_or(at.to_string(), |p| p.to_string()), "{ran:?}");
        end.to_string()
    };
    for read in ["logits", "best", "ahead"] {
        for sampling in [&["--temp", "0"][..], &["--top-k", "40"]] {
            let args = ["run", &model, "-p", "Once upon a time", "-n", "3", "--device", "cpu", "--read", read];
            assert_eq!(sentence(&[&args[..], sampling].concat(), Some(5)), "");
        }
    }
    assert_eq!(sentence(&["perplexity", &model, "-f", &text, "-c", "16", "--device", "cpu"], Some(8)), "");
    sentence(&["compare", MODEL, &model, "-f", &text, "-c", "16", "--device", "cpu"], None);
    // bench goes on with other tests, and tells at the end that some failed
    let ran = isobit(&["bench", "-m", &model, "--device", "cpu", "--no-limits", "-p", "8", "-n", "2"]);
    assert!(ran.code != Some(0) && ran.err.contains(": the model's activations overflowed"), "{ran:?}");
    let end = sentence(&["verify", &model, "--devices", "cpu:portable,cpu", "--tokens", "2"], Some(189));
    // products of norm and weight overflow in its last norm, or what the output matrix makes of them
    let blamed = ["output_norm", "logits"].map(|label| format!("; the first value that is not finite is of {label} "));
    assert!(blamed.iter().any(|b| end.starts_with(b)), "{end}");
}

#[test]
fn verify_finds_one_planted_bit_names_it_and_exits_with_one() {
    let args = ["verify", "--devices", "cpu:scalar,cpu", "--tokens", "1", "--plant-fault", "3"];
    let ran = isobit(&args);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("first mismatch:") && ran.out.contains("word 0:"), "{ran:?}");
    assert!(ran.err.lines().last().unwrap().starts_with("error: ") && ran.err.contains("words differ"), "{ran:?}");
    let ran = isobit(&[&args[..], &["--json"]].concat());
    assert_eq!(ran.code, Some(1));
    let v: Value = serde_json::from_str(&ran.out).unwrap();
    assert!(v["ok"] == false && number(&v, "/mismatches") >= 1.0, "{v}");
    assert!(v["first_mismatch"]["command"].as_str().unwrap().starts_with("layer 0"), "{v}");
}

#[test]
fn verify_feeds_the_prompt_in_batches_on_one_device() {
    let v = isobit(&["verify", "--devices", "cpu", "--tokens", "2", "--batches", "--json"]).json();
    let digests = v["digests"].as_array().unwrap();
    // with pages, and without
    assert_eq!(digests.len(), 10);
    assert!(digests.iter().all(|d| d["digest"] == v["digest"]), "{v}");
}

#[test]
fn verify_refuses_one_device_without_batches_and_more_tokens_than_positions() {
    isobit(&["verify", "--devices", "cpu"]).refused_with(2, &["two devices", "--batches"]);
    let args = ["verify", "--devices", "cpu,cpu:scalar", "--tokens", "1000"];
    isobit(&args).refused_with(2, &["--tokens is 1000", "322", "512"]);
    isobit(&["verify", "--devices", "cpu,cpu:scalar", "-c", "10"]).refused_with(2, &["-c is 10", "214"]);
}
