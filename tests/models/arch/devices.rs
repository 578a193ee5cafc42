//! Every architecture on the twins, every level of the CPU and every adapter: the same words.

use super::*;

fn cpu(level: Option<Level>, max_binding: Option<u64>) -> Box<dyn Device> {
    Box::new(CpuDevice::new(CpuOptions { level, threads: 0, max_binding }).expect("threads start"))
}

/// The scalar twins, every SIMD level and every adapter, over the whole script.
pub(crate) fn same_words_everywhere(args: &str, digits: usize, cache: CacheType, max_binding: Option<u64>) -> Report {
    let (_dir, path) = model(args);
    same_words_of(&path, args, digits, cache, max_binding)
}

/// The same of a file, called `args` where something is wrong.
pub(crate) fn same_words_of(
    path: &Path,
    args: &str,
    digits: usize,
    cache: CacheType,
    max_binding: Option<u64>,
) -> Report {
    let (c, mut o) = (open(path), options(144, digits, cache));
    (o.plan.ubatch, o.plan.max_out) = (16, 1);
    let h = hyper(&c);
    let mut devices = vec![cpu(Some(Level::detect()), max_binding), cpu(None, max_binding)];
    devices.extend(Level::available().into_iter().map(|l| cpu(Some(l), max_binding)));
    devices.extend(common::boxed_gpus(max_binding));
    let tok = Tokenizer::from_gguf(&c.meta).unwrap_or_else(|e| panic!("{e:#}"));
    let script = Script { prompt: prompt(Some(&tok), h.vocab, 40), generate: 4, batches: vec![0, 3] };
    let r = pollster::block_on(verify(&mut devices, &c, &h, o, &script, || {})).unwrap_or_else(|e| panic!("{e:#}"));
    println!("{args}: {} devices, {} commands, {} words, digest {}", devices.len(), r.commands, r.words, r.digest);
    assert_eq!(r.mismatches, 0, "{args}: {:?}", r.first);
    assert!(r.ok() && r.words > 0, "{args}: {:?} against {}", r.digests, r.digest);
    // the recording as the model wrote it, on the twins
    let mut plain = [cpu(None, max_binding)];
    o.fuse = Fuse::Off;
    let p = pollster::block_on(verify(&mut plain, &c, &h, o, &script, || {})).unwrap_or_else(|e| panic!("{e:#}"));
    assert_eq!(p.digest, r.digest, "{args}: plain against fused");
    r
}

#[test]
fn phi3_has_the_same_words_on_every_device() {
    let whole = same_words_everywhere("--preset phi3-tiny", 1, CacheType::F16, None);
    // a limit that cuts the fused matrices, whose parts do not begin at whole row blocks of their tensor
    let split = same_words_everywhere("--preset phi3-tiny", 1, CacheType::F16, Some(40 << 10));
    assert_eq!(whole.digest, split.digest);
    assert!(whole.commands < split.commands);
    same_words_everywhere("--preset phi3-tiny --type f16 --head-dim 96 --rotary 0.75", 1, CacheType::Q8_0, None);
}

#[test]
fn qwen2_has_the_same_words_on_every_device() {
    same_words_everywhere("--preset qwen2-tiny", 1, CacheType::TQ3_1, None);
    same_words_everywhere("--preset qwen2-tiny --type f16", 1, CacheType::F16, None);
}

#[test]
fn qwen3_has_the_same_words_on_every_device() {
    same_words_everywhere("--preset qwen3-tiny --outliers", 2, CacheType::Q8_0R, None);
    same_words_everywhere("--preset qwen3-tiny --type f16", 1, CacheType::F16, None);
}

#[test]
fn chatglm_has_the_same_words_on_every_device() {
    let whole = same_words_everywhere("--preset chatglm-tiny", 1, CacheType::TQ3_1, None);
    // a limit that cuts the fused matrices, whose parts do not begin at whole row blocks of their tensor
    let split = same_words_everywhere("--preset chatglm-tiny", 1, CacheType::TQ3_1, Some(40 << 10));
    assert_eq!(whole.digest, split.digest);
    same_words_everywhere("--preset chatglm-tiny --type f16", 1, CacheType::F16, None);
    same_words_everywhere("--preset chatglm-tiny --type q8_0 --heads 8 --head-dim 32", 2, CacheType::Q8_0, None);
    same_words_everywhere("--preset chatglm-tiny --type q4_1 --tied", 1, CacheType::Q8_0R, None);
}

#[test]
fn the_architectures_with_norms_behind_have_the_same_words_on_every_device() {
    same_words_everywhere("--preset tiny --arch olmo2 --layers 5 --window 20", 1, CacheType::F16, None);
    same_words_everywhere("--preset tiny --arch exaone4 --layers 5 --window 20 --type q8_0", 2, CacheType::Q8_0, None);
    same_words_everywhere("--preset tiny --arch glm4 --layers 2", 1, CacheType::TQ3_1, None);
}

#[test]
fn gemma3_has_the_same_words_on_every_device() {
    let gemma = "--preset tiny --arch gemma3 --tied --layers 7 --window 20 --head-dim 32 --dim 288 --ffn 320";
    let whole = same_words_everywhere(&format!("{gemma} --type q8_0"), 1, CacheType::F16, None);
    let split = same_words_everywhere(&format!("{gemma} --type q8_0"), 1, CacheType::F16, Some(40 << 10));
    assert_eq!(whole.digest, split.digest);
    same_words_everywhere(&format!("{gemma} --type f16"), 1, CacheType::Q8_0R, None);
}

#[test]
fn gemma2_has_the_same_words_on_every_device() {
    let gemma = "--preset tiny --arch gemma2 --tied --layers 4 --window 20 --head-dim 32 --dim 288 --ffn 320";
    let whole = same_words_everywhere(&format!("{gemma} --type q8_0"), 1, CacheType::F16, None);
    let split = same_words_everywhere(&format!("{gemma} --type q8_0"), 1, CacheType::F16, Some(40 << 10));
    assert_eq!(whole.digest, split.digest);
    same_words_everywhere(&format!("{gemma} --type f16"), 2, CacheType::Q8_0, None);
    same_words_everywhere(&format!("{gemma} --type f16"), 1, CacheType::TQ3_1, None);
}

/// The same directory as that of a model of texts and images: the text's part of config.json apart, and so named in the
/// weights; `style` is how the names begin.
fn with_images(dir: &Path, style: &str) {
    let file = dir.join("config.json");
    let mut text: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).expect("there")).expect("json");
    // what a larger Gemma 3 leaves to transformers' defaults
    for key in ["rms_norm_eps", "rope_theta", "rope_local_base_freq", "hidden_activation", "tie_word_embeddings"] {
        text.as_object_mut().expect("an object").remove(key);
    }
    let eos = text["eos_token_id"].clone();
    let whole = serde_json::json!({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
        "eos_token_id": eos, "vision_config": {"model_type": "siglip_vision_model"}, "text_config": text});
    std::fs::write(&file, whole.to_string()).expect("writes");
    let file = dir.join("model.safetensors");
    let bytes = std::fs::read(&file).expect("there");
    let (head, data) = bytes[8..].split_at(u64::from_le_bytes(bytes[..8].try_into().expect("eight")) as usize);
    let head: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(head).expect("json");
    let mut renamed = serde_json::Map::new();
    for (name, t) in head {
        let own = name.strip_prefix("model.").map(|rest| format!("{style}{rest}"));
        renamed.insert(own.unwrap_or(name), t);
    }
    let end = data.len();
    let image = serde_json::json!({"dtype": "F32", "shape": [2], "data_offsets": [end, end + 8]});
    renamed.insert("vision_tower.vision_model.post_layernorm.bias".into(), image);
    let head = serde_json::to_vec(&renamed).expect("json");
    let mut out = (head.len() as u64).to_le_bytes().to_vec();
    out.extend(head);
    out.extend(data);
    out.extend([0; 8]);
    std::fs::write(&file, out).expect("writes");
}

#[test]
fn the_text_of_a_model_of_texts_and_images_runs_as_the_text_alone() {
    let args = format!(
        "{SMALL} --format hf --shards 1 --arch gemma3 --tied --layers 7 --window 20 --dim 72 --head-dim 32 --rope linear"
    );
    let (_a, alone) = model(&args);
    let file = alone.join("config.json");
    let mut c: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).expect("there")).expect("json");
    c["rms_norm_eps"] = 1e-6.into();
    std::fs::write(&file, c.to_string()).expect("writes");
    let want = logits(&open(&alone), &ids(40), 64).unwrap_or_else(|e| panic!("{e:#}"));
    for style in ["language_model.model.", "model.language_model."] {
        let (dir, path) = model(&args);
        with_images(&path, style);
        let found = logits(&open(&path), &ids(40), 64).unwrap_or_else(|e| panic!("{e:#}"));
        assert!(want == found, "{style}");
        // and so does the file made of it
        let gguf = dir.path().join("made.gguf");
        let made = program::isobit(["quantize"]).args([&path, &gguf]).arg("f32").output().expect("it starts");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        assert!(want == logits(&open(&gguf), &ids(40), 64).unwrap_or_else(|e| panic!("{e:#}")), "{style}");
    }
}

#[test]
fn smollm3_and_granite_have_the_same_words_on_every_device() {
    same_words_everywhere("--preset tiny --arch smollm3 --layers 5", 1, CacheType::F16, None);
    same_words_everywhere("--preset tiny --arch granite", 1, CacheType::Q8_0, None);
}

#[test]
fn mixtures_have_the_same_words_on_every_device() {
    let mixtral = "--preset tiny --experts 5 --used 2";
    let whole = same_words_everywhere(mixtral, 1, CacheType::F16, None);
    let split = same_words_everywhere(mixtral, 1, CacheType::F16, Some(200 << 10));
    assert_eq!(whole.digest, split.digest);
    assert!(whole.commands < split.commands);
    let qwen2 = "--preset tiny --arch qwen2moe --experts 6 --used 3 --expert-ffn 96 --shared 160";
    same_words_everywhere(&format!("{qwen2} --type q8_0"), 2, CacheType::Q8_0, None);
    let qwen3 = "--preset tiny --arch qwen3moe --experts 6 --used 3 --expert-ffn 100 --type f16";
    same_words_everywhere(qwen3, 1, CacheType::F16, None);
    same_words_everywhere("--preset tiny --arch granitemoe --experts 5 --used 3", 1, CacheType::Q8_0, None);
    let glm = "--preset tiny --arch glm4moe --layers 3 --experts 6 --used 2 --expert-ffn 96 --shared 96 --dense 1";
    same_words_everywhere(&format!("{glm} --type q5_0"), 1, CacheType::TQ3_1, None);
    let oss = "--preset tiny --arch gpt-oss --layers 3 --window 70 --experts 6 --used 3 --expert-ffn 96 --rope yarn";
    same_words_everywhere(&format!("{oss} --type q8_0"), 1, CacheType::F16, None);
    same_words_everywhere(oss, 1, CacheType::TQ3_1, Some(200 << 10));
}

#[test]
fn latent_attention_has_the_same_words_on_every_device() {
    let lite = "--preset tiny --arch deepseek2 --layers 2 --latent 0,512,64,64,32 --experts 6 --used 3 --expert-ffn 96 \
                --shared 96";
    let whole = same_words_everywhere(lite, 1, CacheType::F16, None);
    let split = same_words_everywhere(lite, 1, CacheType::F16, Some(150 << 10));
    assert_eq!(whole.digest, split.digest);
    assert!(whole.commands < split.commands);
    same_words_everywhere(&format!("{lite} --type q8_0"), 2, CacheType::Q8_0, None);
    let larger = "--preset tiny --arch deepseek2 --larger --layers 2 --latent 64,128,32,48,40 --experts 8 --used 3 \
                  --expert-ffn 96 --shared 96 --dense 1 --rope yarn --type f16";
    same_words_everywhere(larger, 1, CacheType::TQ3_1, None);
}

/// Which experts every token chose in the first layer, where all rows of its router are alike.
#[test]
fn of_experts_that_are_alike_the_first_are_chosen_on_every_device() {
    let (_dir, path) = model(&format!("{SMALL} --experts 5 --used 3"));
    let mut bytes = std::fs::read(&path).expect("there");
    let c = open(&path);
    let t = c.tensor("blk.0.ffn_gate_inp.weight").expect("there").clone();
    let (at, row) = (t.offset as usize, t.bytes as usize / 5);
    // of rows 1 to 4, which are alike, three are chosen, or two behind row 0
    for i in 2..5 {
        bytes.copy_within(at + row..at + 2 * row, at + i * row);
    }
    std::fs::write(&path, bytes).expect("writes");
    let (c, mut o) = (open(&path), options(64, 1, CacheType::F32));
    (o.plan.ubatch, o.plan.max_out) = (16, 1);
    let h = hyper(&c);
    let mut devices = vec![cpu(None, None)];
    devices.extend(Level::available().into_iter().map(|l| cpu(Some(l), None)));
    devices.extend(common::boxed_gpus(None));
    for device in &mut devices {
        let chosen = pollster::block_on(async {
            let mut s = Session::new(device.as_mut(), &c, &h, o, |_| {}).await?;
            let step = s.prepare(&ids(16), 0).clone();
            s.device().begin(&step).await?;
            let router = s.commands().iter().position(|c| c.op == Op::Router).expect("a router");
            for i in 0..=router {
                s.device().run_one(i).await?;
            }
            let ids = s.commands()[router].outputs()[0];
            s.device().read(ids).await
        });
        let chosen = chosen.unwrap_or_else(|e| panic!("{e:#}"));
        let name = device.info().name;
        for own in chosen[..48].chunks(3) {
            assert!([[1, 2, 3], [0, 1, 2]].contains(&[own[0], own[1], own[2]]), "{name}: {own:?}");
        }
    }
}

#[test]
fn architectures_with_layer_norms_have_the_same_words_on_every_device() {
    same_words_everywhere("--preset tiny --arch starcoder2 --window 20", 1, CacheType::F16, None);
    same_words_everywhere("--preset tiny --arch stablelm --larger --type q8_0", 2, CacheType::Q8_0, None);
    same_words_everywhere("--preset tiny --arch cohere2 --tied --layers 5 --window 20", 1, CacheType::TQ3_1, None);
    same_words_everywhere("--preset tiny --arch command-r --larger --type f16", 1, CacheType::Q8_0R, None);
    let phi = "--preset tiny --arch phi2 --dim 320 --heads 4 --kv-heads 4";
    let whole = same_words_everywhere(phi, 1, CacheType::F16, None);
    let split = same_words_everywhere(phi, 1, CacheType::F16, Some(40 << 10));
    assert_eq!(whole.digest, split.digest);
    same_words_everywhere("--preset tiny --arch gpt2 --tied --kv-heads 4", 1, CacheType::F16, None);
    same_words_everywhere("--preset tiny --arch falcon --tied --kv-heads 1", 1, CacheType::F16, None);
    same_words_everywhere("--preset tiny --arch falcon --larger --heads 8 --type q4_1", 1, CacheType::F16, None);
}

#[test]
fn types_of_cache_that_do_not_fit_heads_of_80_are_refused_by_name() {
    let (_dir, path) = model(&format!("{SMALL} --arch phi2 --dim 160 --heads 2 --kv-heads 2"));
    let c = open(&path);
    for ty in [CacheType::Q8_0, CacheType::Q4_0R, CacheType::TQ3_1] {
        let error =
            isobit::internals::models::build(&c, &hyper(&c), &options(64, 1, ty).plan).expect_err("80 is not 32 n");
        assert!(error.to_string().contains("blocks of 32 do not divide a head of 80"), "{error}");
    }
}
