//! Variants of the kernels: each is forced in turn and must leave the words the twins leave, and give the golden
//! digest; and what the tuner remembers, and what it does when its memory is broken.

mod gpu {
    use crate::common::kept::Kept;
    use crate::common::whole::taking;
    use crate::common::{adapters, cpu, golden, gpus_with, none, run, same};
    use futures::executor::block_on;
    use isobit::internals::blocks::BlockType;
    use isobit::internals::cases::{self, Batch, Case};
    use isobit::internals::formats::synthetic::Synthetic;
    use isobit::internals::formats::{Container, LoadMode};
    use isobit::internals::fuse::Fuse;
    use isobit::internals::generate::tokenizer::Tokenizer;
    use isobit::internals::generate::verify::{Script, prompt, verify};
    use isobit::internals::generate::{Session, SessionOptions, Want};
    use isobit::internals::host::variants::{self, Forced};
    use isobit::internals::host::{GpuDevice, GpuOptions, Store, Tune, connect};
    use isobit::internals::models::{Hyper, PlanOptions, Recent};
    use isobit::internals::ops::cache::CacheType;
    use isobit::internals::record::{Command, Device, Op, Role};
    use isobit::internals::simd::Level;
    use serde_json::{Value, json};
    use std::path::Path;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    /// Operations with more than one variant.
    fn ops() -> Vec<Op> {
        cases::ops().into_iter().filter(|&op| variants::of(op).len() > 1).collect()
    }

    /// Names of all variants.
    fn names() -> Vec<&'static str> {
        let mut names: Vec<&str> = ops().iter().flat_map(|&op| variants::of(op).iter().map(|v| v.name)).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Whether a variant is tested on an operation. Keys and values are unpacked apart, and `twins` meets every pair of types, in
    /// the variants that are chosen for few tokens and for many: here every type in the one that is not chosen unasked, and
    /// three in the others, or pairs with f16 as well where all is asked for. Of types of weights with few variants it meets
    /// those that are chosen, too.
    fn forced_on(name: &str, op: Op) -> bool {
        let known = variants::of(op).iter().any(|v| v.name == name);
        let weights = matches!(op, Op::Matvec(_) | Op::GateUp(_));
        if weights && variants::of(op).iter().all(|v| v.name != "lean") && ["matvec4", "matmul"].contains(&name) {
            return false;
        }
        let met = match op {
            Op::Attention(k, v) | Op::AttentionQuantize(k, v) => taking(
                k == v && (name == "split" || [CacheType::F16, CacheType::TQ3_1, CacheType::C8].contains(&k)),
                k == v || [k, v].contains(&CacheType::F16) || !["tile", "wide"].contains(&name),
            ),
            _ => true,
        };
        known && met
    }

    /// Whether an operation is of the types that stand for all, or all is asked for: a float, blocks of 32, a codebook, a pair of
    /// superblocks; keys and values that are rotated, and in codes of channels.
    fn stands_for_others(op: &Op) -> bool {
        use BlockType::{F16, IQ2_S, Q4_K, Q6_K, Q8_0};
        let stands = match op {
            Op::Matvec(t) | Op::GateUp(t) | Op::ExpertMatvec(t) => [F16, Q8_0, IQ2_S].contains(t),
            Op::MatvecPair(a, b) => (*a, *b) == (Q4_K, Q6_K),
            Op::Attention(k, v) | Op::AttentionQuantize(k, v) => {
                k == v && [CacheType::TQ3_1, CacheType::C8].contains(k)
            }
            _ => true,
        };
        taking(stands, true)
    }

    fn forcing(names: &[&str]) -> GpuOptions {
        let variants = names.iter().map(|name| Forced::parse(name).expect("a variant's name")).collect();
        GpuOptions { variants, ..GpuOptions::default() }
    }

    /// Names of the variants on matrix units, which few adapters have.
    fn on_matrices(name: &&str) -> bool {
        ["coop8", "coop16"].contains(name)
    }

    /// Whether a device has what the variant of a name needs; says where it has not.
    fn offers(gpu: &GpuDevice, name: &str) -> bool {
        let mut all = ops().into_iter().flat_map(variants::of).filter(|v| v.name == name);
        let offered = all.all(|v| gpu.offers(v));
        if !offered {
            println!("{name}: the adapter above has not what it needs");
        }
        offered
    }

    /// The cases of an operation that a device forced to a variant computes by it, and a plain one by another: what a plain one
    /// computes by it is compared in `twins` (`tests/kernels`), and what it cannot run falls to the first variant.
    fn told_apart(op: Op, name: &str, forced: &GpuDevice, plain: &GpuDevice) -> Vec<Case> {
        let list = cases::of(op);
        let (plan, batch) = Batch::new(&list);
        let most = plan.max_tokens;
        let apart = |(i, command): (usize, &Command)| {
            let args = command.args_for(&batch.step(i))?;
            let by = |gpu: &GpuDevice| gpu.starts_with(op, &args, most);
            (by(forced) == name && by(plain) != name).then(|| list[i].clone())
        };
        plan.recording.commands.iter().enumerate().filter_map(apart).collect()
    }

    /// Variants of some names, of the operations that are `asked` and have them, against the twins, over every case that they
    /// compute where a plain device computes it otherwise, on those of the adapters that are `wanted` by their place in the
    /// list; says how many these are, and how often one had what a variant needs.
    fn variants_against_twins(
        names: &[&str],
        asked: impl Fn(&Op) -> bool,
        wanted: impl Fn(usize) -> bool,
    ) -> (usize, usize) {
        let ops: Vec<Op> = ops().into_iter().filter(&asked).collect();
        assert!(!names.is_empty() && ops.len() >= 15, "{names:?} of {} operations", ops.len());
        let (mut failures, mut adapters, mut offered) = (Vec::new(), 0, 0);
        let plain: Vec<GpuDevice> = gpus_with(&GpuOptions::default());
        for &name in names {
            let gpus = gpus_with(&forcing(&[name])).into_iter().zip(&plain).enumerate().filter(|(i, _)| wanted(*i));
            adapters = 0;
            for (_, (mut gpu, plain)) in gpus {
                adapters += 1;
                if !offers(&gpu, name) {
                    continue;
                }
                offered += 1;
                let (started, mut compared) = (Instant::now(), 0);
                for &op in ops.iter().filter(|&&op| forced_on(name, op)) {
                    let list = told_apart(op, name, &gpu, plain);
                    if list.is_empty() {
                        continue;
                    }
                    let expected = run(&mut cpu(Some(Level::detect()), 0), &list);
                    let found = run(&mut gpu, &list);
                    // what was meant to run did, and nothing else
                    assert_eq!(gpu.kernels(), [format!("{}={name}", op.stem())], "{}", op.title());
                    for ((case, expected), found) in list.iter().zip(&expected).zip(&found) {
                        failures.extend(same(case, expected, found).err().map(|e| format!("{name}: {e}")));
                    }
                    compared += list.len();
                }
                println!("{name}: {compared} cases in {:.1?}", started.elapsed());
                assert!(compared > 0, "{name}: no case is computed by it");
            }
        }
        none(&failures);
        (adapters, offered)
    }

    #[test]
    fn every_variant_of_every_operation_leaves_the_words_the_twins_leave() {
        let names: Vec<&str> = names().into_iter().filter(|n| !on_matrices(n)).collect();
        let (adapters, offered) = variants_against_twins(&names, |_| true, |i| i == 0);
        assert!(adapters == 1 && offered >= names.len() - 1, "{offered} of {names:?}");
    }

    #[test]
    fn every_variant_leaves_them_on_the_other_adapters_too() {
        let names: Vec<&str> = names().into_iter().filter(|n| !on_matrices(n)).collect();
        println!("{} more adapters", variants_against_twins(&names, stands_for_others, |i| i > 0).0);
    }

    #[test]
    fn matrices_leave_the_words_the_twins_leave_where_an_adapter_has_them() {
        let names: Vec<&str> = names().into_iter().filter(on_matrices).collect();
        assert_eq!(names.len(), 2);
        let (adapters, offered) = variants_against_twins(&names, |_| true, |_| true);
        println!("{adapters} adapters, {offered} sizes of matrices among them");
        // none is exact without the feature, and one that has it and fails the probe would be news
        let has = adapters_with_matrices();
        assert!(offered >= has, "{has} adapters have matrices, {offered} sizes are used");
    }

    /// Adapters that have the feature at all.
    fn adapters_with_matrices() -> usize {
        adapters().iter().filter(|a| a.report().features.contains(&("cooperative-matrix", true))).count()
    }

    fn embedded() -> Container {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/tiny-stories-Q4_K_M.gguf");
        Container::open(&file, LoadMode::Read).unwrap_or_else(|e| panic!("{e}"))
    }

    fn options() -> SessionOptions {
        let plan = PlanOptions { n_ctx: 256, ubatch: 64, ..PlanOptions::default() };
        SessionOptions { plan, memory: None, fuse: Fuse::On }
    }

    fn assert_golden(gpus: impl IntoIterator<Item = GpuDevice>) {
        let mut devices: Vec<Box<dyn Device>> = vec![Box::new(cpu(Some(Level::detect()), 0))];
        devices.extend(gpus.into_iter().map(|g| Box::new(g) as Box<dyn Device>));
        let c = embedded();
        let h = Hyper::read(&c).unwrap_or_else(|e| panic!("{e:#}"));
        let tokenizer = Tokenizer::from_gguf(&c.meta).ok();
        let script = Script { prompt: prompt(tokenizer.as_ref(), h.vocab, 64), generate: 64, batches: vec![7, 64] };
        let r = block_on(verify(&mut devices, &c, &h, options(), &script, || {})).unwrap_or_else(|e| panic!("{e:#}"));
        assert_eq!(r.mismatches, 0, "{:?}", r.first);
        assert!(r.ok(), "{:?} against {}", r.digests, r.digest);
        assert_eq!(r.digest, golden::digest(CacheType::F16, CacheType::F16, Recent::Off));
    }

    /// Names such that each is in one list, and no two of a list are variants of one operation: they are forced together.
    fn together() -> Vec<Vec<&'static str>> {
        let mut lists: Vec<Vec<&str>> = Vec::new();
        for name in names() {
            let has = |op: Op, n: &str| variants::of(op).iter().any(|v| v.name == n);
            let apart = |list: &Vec<&str>| ops().iter().all(|&op| !has(op, name) || list.iter().all(|n| !has(op, n)));
            match lists.iter_mut().find(|list| apart(list)) {
                Some(list) => list.push(name),
                None => lists.push(vec![name]),
            }
        }
        lists
    }

    #[test]
    fn every_variant_gives_the_golden_digest() {
        let lists = together();
        assert!(lists.concat().len() == names().len() && lists.len() < names().len(), "{lists:?}");
        for list in lists {
            let gpus = gpus_with(&forcing(&list));
            // an adapter without what one of them needs runs the others
            gpus.iter().for_each(|gpu| list.iter().for_each(|name| _ = offers(gpu, name)));
            assert_golden(gpus);
        }
    }

    #[test]
    fn a_split_attention_is_one_dispatch_more_in_a_layer_for_up_to_four_tokens() {
        let (c, h) = (embedded(), Hyper::read(&embedded()).unwrap_or_else(|e| panic!("{e:#}")));
        let count = |options: &GpuOptions, tokens: &[u32]| -> Vec<u64> {
            let counts = gpus_with(options).into_iter().map(|mut gpu| {
                let mut s = block_on(Session::new(&mut gpu, &c, &h, self::options(), |_| {}))
                    .unwrap_or_else(|e| panic!("{e:#}"));
                s.device().take_stats();
                block_on(s.feed(tokens, Want::Last, |_, _| Ok(()))).unwrap_or_else(|e| panic!("{e:#}"));
                s.device().take_stats().commands
            });
            counts.collect()
        };
        let (plain, split, layers) = (GpuOptions::default(), forcing(&["attention_quantize=split"]), h.layers as u64);
        for (tokens, more) in [(1, layers), (4, layers), (5, 0)] {
            let ids = &[1, 2, 3, 4, 5][..tokens];
            // a rasteriser splits only where it is told to
            let expected: Vec<u64> = count(&plain, ids).iter().map(|n| n + more).collect();
            assert_eq!(count(&split, ids), expected, "{tokens} tokens");
        }
    }

    #[test]
    fn slots_are_ordered_by_expert_where_that_is_read_alone() {
        let c = Synthetic::parse("qwen3moe-tiny").and_then(|s| s.container().map_err(|e| e.to_string()));
        let c = c.unwrap_or_else(|e| panic!("{e}"));
        let h = Hyper::read(&c).unwrap_or_else(|e| panic!("{e:#}"));
        let run = |options: &GpuOptions, tokens: usize| -> Vec<(u64, Vec<u32>)> {
            let ids: Vec<u32> = (0..tokens as u32).collect();
            let of = |mut gpu: GpuDevice| {
                let mut s = block_on(Session::new(&mut gpu, &c, &h, self::options(), |_| {}))
                    .unwrap_or_else(|e| panic!("{e:#}"));
                s.device().take_stats();
                let mut logits = Vec::new();
                let keep = |_: usize, row: &[f32]| {
                    logits.extend(row.iter().map(|x| x.to_bits()));
                    Ok(())
                };
                block_on(s.feed(&ids, Want::Last, keep)).unwrap_or_else(|e| panic!("{e:#}"));
                (s.device().take_stats().commands, logits)
            };
            gpus_with(options).into_iter().map(of).collect()
        };
        let (plain, grouped, layers) = (GpuOptions::default(), forcing(&["grouped"]), h.layers as u64);
        for (tokens, more) in [(1, layers), (3, layers), (20, 0)] {
            let expected = run(&plain, tokens).into_iter().map(|(n, logits)| (n + more, logits));
            assert_eq!(run(&grouped, tokens), expected.collect::<Vec<_>>(), "{tokens} tokens");
        }
    }

    #[test]
    fn asking_for_subgroups_of_an_adapter_that_has_none_is_one_line_and_the_same_text() {
        for adapter in adapters() {
            let run = |variant: &[&str]| {
                let o = std::process::Command::new(env!("CARGO_BIN_EXE_isobit"))
                    .args([
                        "run",
                        "assets/tiny-stories-Q4_K_M.gguf",
                        "-p",
                        "Once",
                        "-n",
                        "8",
                        "-c",
                        "64",
                        "--tune",
                        "off",
                    ])
                    .args(["--device", &adapter.index.to_string()])
                    .args(variant)
                    .env_remove("RUST_LOG")
                    .current_dir(env!("CARGO_MANIFEST_DIR"))
                    .output()
                    .expect("the program starts");
                let err = String::from_utf8_lossy(&o.stderr).into_owned();
                assert!(o.status.success(), "{err}");
                (o.stdout, err.lines().filter(|l| l.contains("has no subgroups")).count())
            };
            let has = adapter.report().features.contains(&("subgroups", true));
            let ((plain, none), (asked, lines)) = (run(&[]), run(&["--variant", "norm_quantize=subgroup"]));
            println!("{}: subgroups {has}", adapter.title());
            assert_eq!((none, lines), (0, usize::from(!has)), "{}", adapter.title());
            assert!(plain == asked && !plain.is_empty(), "{}: another text", adapter.title());
        }
    }

    #[test]
    fn tuned_devices_give_the_golden_digest_and_remember_what_they_measured() {
        let kept = Arc::new(Kept::default());
        // of hardware pipelines are made beforehand, and clocks are waited for
        let tuning = |tune| GpuOptions {
            tune,
            store: Some(kept.clone() as Arc<dyn Store>),
            hardware: true,
            ..GpuOptions::default()
        };
        let gpus = gpus_with(&tuning(Tune::Now));
        let found = gpus.len();
        assert_golden(gpus);
        let measured = kept.ending(".json");
        assert_eq!(measured.len(), found, "a text for each adapter");
        // that seconds pass is said, once for each adapter
        let told = kept.told.lock().unwrap().split_off(0);
        assert_eq!(told.len(), found, "{told:?}");
        assert!(told.iter().all(|l| l.starts_with("measuring variants of kernels on ")), "{told:?}");
        for text in measured.values().map(|bytes| std::str::from_utf8(bytes).expect("JSON")) {
            assert!(text.contains("\"exact\": true") && text.contains("q4k_matvec k="), "{text}");
            let page: Value = serde_json::from_str(text).expect("it is JSON");
            let (shape, split) =
                page["splits"].as_object().and_then(|s| s.iter().next()).expect("attention is measured");
            assert!(shape.starts_with("attention_quantize[f16,f16] heads=") && split["measured"] == 256, "{text}");
            assert!(["plain", "tile"].map(Value::from).contains(&page["choices"][shape][2]), "{text}");
            assert!(names().iter().any(|n| text.contains(&format!("\"{n}\""))), "{text}");
        }
        // where there is one form only, there is nothing to measure
        let subgroups = adapters().iter().filter(|a| a.report().features.contains(&("subgroups", true))).count();
        let normed = measured.values().filter(|text| text.windows(16).any(|w| w == b"norm_quantize k="));
        assert_eq!(normed.count(), subgroups);
        // what is remembered is neither measured nor written again, and the probe is not run again
        for adapter in adapters() {
            let (mut gpu, verdict) = block_on(connect(&adapter, tuning(Tune::Auto))).expect("it opened before");
            assert!(verdict.exact() && verdict.words == 0, "{verdict:?}");
            let (c, h) = (embedded(), Hyper::read(&embedded()).expect("read before"));
            block_on(Session::new(&mut gpu, &c, &h, options(), |_| {})).unwrap_or_else(|e| panic!("{e:#}"));
        }
        assert_eq!(kept.ending(".json"), measured);
        assert_eq!(*kept.told.lock().unwrap(), Vec::<String>::new(), "nothing is measured, so nothing is said");
        assert_eq!(*kept.warnings.lock().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn measuring_leaves_nothing_in_the_buffers() {
        let mut with_ring = options();
        (with_ring.plan.k_type, with_ring.plan.v_type) = (CacheType::TQ3_1, CacheType::TQ3_1);
        let (c, h) = (embedded(), Hyper::read(&embedded()).unwrap_or_else(|e| panic!("{e:#}")));
        for mut gpu in gpus_with(&GpuOptions { tune: Tune::Now, ..GpuOptions::default() }) {
            let mut s = block_on(Session::new(&mut gpu, &c, &h, with_ring, |_| {})).unwrap_or_else(|e| panic!("{e:#}"));
            let kept = |role: &Role| !role.is_loaded() && !matches!(role, Role::Input);
            let buffers = s.built().plan.buffers.iter().enumerate().filter(|(_, b)| kept(&b.role));
            let names: Vec<_> = buffers.map(|(id, b)| (id, b.name.clone())).collect();
            assert!(names.iter().any(|(_, name)| name == "attention_state"), "{names:?}");
            for (id, name) in names {
                let words = block_on(s.device().read(id)).unwrap_or_else(|e| panic!("{e:#}"));
                assert!(words.iter().all(|&w| w == 0), "{name}");
            }
        }
    }

    #[test]
    fn attention_is_split_from_the_depth_that_the_store_gives() {
        let kept = Arc::new(Kept::default());
        let tuning = |tune| GpuOptions { tune, store: Some(kept.clone() as Arc<dyn Store>), ..GpuOptions::default() };
        let (c, h) = (embedded(), Hyper::read(&embedded()).unwrap_or_else(|e| panic!("{e:#}")));
        // dispatches of a token that sees one position, and of one that sees 66
        let count = |options: &GpuOptions| -> Vec<[u64; 2]> {
            let counts = gpus_with(options).into_iter().map(|mut gpu| {
                let mut s = block_on(Session::new(&mut gpu, &c, &h, self::options(), |_| {}))
                    .unwrap_or_else(|e| panic!("{e:#}"));
                let mut feed = |n| {
                    s.device().take_stats();
                    block_on(s.feed(&vec![1; n], Want::Last, |_, _| Ok(()))).unwrap_or_else(|e| panic!("{e:#}"));
                    s.device().take_stats().commands
                };
                let first = feed(1);
                feed(64);
                [first, feed(1)]
            });
            counts.collect()
        };
        let plain = count(&forcing(&["attention_quantize=plain"]));
        count(&tuning(Tune::Now));
        for (from, more) in [(json!(64), [1, 1]), (json!(128), [0, 1]), (Value::Null, [0, 0])] {
            for (_, bytes) in kept.files.lock().unwrap().iter_mut().filter(|(name, _)| name.ends_with(".json")) {
                let mut page: Value = serde_json::from_slice(bytes).expect("it is JSON");
                let splits = page["splits"].as_object_mut().expect("attention was measured");
                splits.values_mut().for_each(|s| *s = json!({ "from": from, "measured": 4096 }));
                *bytes = page.to_string().into_bytes();
            }
            let expected: Vec<_> = plain.iter().map(|n| [0, 1].map(|i| n[i] + more[i] * h.layers as u64)).collect();
            assert_eq!(count(&tuning(Tune::Auto)), expected, "split from {from} positions");
        }
        assert_eq!(*kept.warnings.lock().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn measuring_leaves_no_trace_in_what_a_plan_computes() {
        let measured = |op: &Op| stands_for_others(op) && !matches!(op, Op::Attention(..) | Op::AttentionQuantize(..));
        let mut failures = Vec::new();
        // how long something is measured makes no difference to what it leaves behind
        let brief = GpuOptions { tune: Tune::Now, timed: Some(Duration::ZERO), ..GpuOptions::default() };
        for mut gpu in gpus_with(&brief) {
            for op in ops().into_iter().filter(measured) {
                // among them those that add to what they find, which the tuner's runs would have changed
                let list = cases::of(op);
                let (expected, found) = (run(&mut cpu(Some(Level::detect()), 0), &list), run(&mut gpu, &list));
                for ((case, expected), found) in list.iter().zip(&expected).zip(&found) {
                    failures.extend(same(case, expected, found).err());
                }
            }
        }
        none(&failures);
    }

    #[test]
    fn a_broken_memory_costs_one_warning_for_each_adapter_and_is_replaced() {
        let kept = Arc::new(Kept::default());
        let tuning = GpuOptions { tune: Tune::Auto, store: Some(kept.clone()), ..GpuOptions::default() };
        let count = gpus_with(&tuning).len();
        kept.damage(".json", |text| text.truncate(text.len() / 2));
        assert_eq!(gpus_with(&tuning).len(), count);
        assert_eq!(kept.warnings.lock().unwrap().len(), count, "{kept:?}");
        gpus_with(&tuning);
        assert_eq!(kept.warnings.lock().unwrap().len(), count, "the broken texts were not replaced: {kept:?}");
    }

    #[test]
    fn a_binding_limit_below_the_probes_buffers_does_not_keep_a_device_from_opening() {
        for gpu in gpus_with(&GpuOptions { max_binding: Some(4096), ..GpuOptions::default() }) {
            assert_eq!(gpu.info().max_binding_words, 1024);
        }
    }
}
