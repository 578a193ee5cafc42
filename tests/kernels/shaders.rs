//! Shaders, twins and cases belong together: the same stems, the same bindings, the same parameter structs. Every
//! expanded shader is validated again by naga, and by tint where that test is asked for.

#[path = "shaders/expand.rs"]
mod expander;

mod table {
    use super::expander;
    use isobit::internals::blocks::{BlockType, grids, iq4_nl, mxfp4, pack};
    use isobit::internals::cases::{self, Access};
    use isobit::internals::formats::synthetic::Synthetic;
    use isobit::internals::fuse;
    use isobit::internals::host::expand::{self, Problems};
    use isobit::internals::host::halves::PROBE;
    use isobit::internals::host::matrices::PROBES;
    use isobit::internals::host::shaders::{self, Binding, SHADERS};
    use isobit::internals::host::variants;
    use isobit::internals::models::{self, Hyper, PlanOptions};
    use isobit::internals::ops::linear;
    use isobit::internals::record::{ASKED, Op, Plan, Step};
    use naga::valid::{Capabilities, ValidationFlags, Validator};
    use sha2::Digest;
    use std::collections::{HashMap, HashSet};
    use std::path::Path;

    const ROOT: &str = env!("CARGO_MANIFEST_DIR");

    /// The stem of an operation's twin: its own, or the file its family shares.
    fn twin(op: Op) -> &'static str {
        match op {
            Op::Embed(_) => "embed",
            Op::Encode(_) => "encode",
            Op::CacheWriteK(_) | Op::CacheWriteV(_) => "cache",
            Op::MatvecPair(..) => "matvec_pair",
            Op::GateUp(_) => "gate_up",
            Op::Matvec(_) => "linear",
            Op::ExpertMatvec(_) => "expert_linear",
            other => other.stem(),
        }
    }

    /// The stems of a variant's shaders.
    fn stems(v: &variants::Variant, op: Op) -> impl Iterator<Item = String> {
        v.before().map(|b| b.stem().to_string()).into_iter().chain([v.stem(op)])
    }

    #[test]
    fn every_operation_has_a_shader_a_twin_and_cases() {
        for op in cases::ops() {
            let title = op.title();
            assert!(shaders::find(op.stem()).is_some(), "{title} has no shader {}", op.stem());
            let file = Path::new(ROOT).join("src/ops").join(twin(op)).with_extension("rs");
            assert!(file.is_file(), "{title} has no twin {}", file.display());
            assert!(!cases::of(op).is_empty(), "{title} has no case");
        }
    }

    #[test]
    fn every_shader_and_every_twin_belongs_to_an_operation() {
        let ops = cases::ops();
        let stems: HashSet<String> =
            ops.iter().flat_map(|&op| variants::of(op).iter().flat_map(move |v| stems(v, op))).collect();
        // what the host asks of matrices and of f16 alone belongs to no operation
        let stems: HashSet<String> =
            stems.into_iter().chain(PROBES.map(String::from)).chain([PROBE.to_string()]).collect();
        for s in SHADERS {
            assert!(stems.contains(s.name), "the shader {} belongs to no operation", s.name);
        }
        assert_eq!(SHADERS.len(), stems.len());
        // what twins share, and the bounds of their magnitudes
        let mut known: HashSet<&str> =
            HashSet::from(["mod", "bounds", "exact", "packed", "params", "places", "strands", "tq3", "types"]);
        known.extend(ops.iter().map(|&op| twin(op)));
        for entry in std::fs::read_dir(Path::new(ROOT).join("src/ops")).expect("src/ops is readable") {
            let path = entry.expect("src/ops is readable").path();
            let stem = path.file_stem().and_then(|s| s.to_str()).expect("ASCII");
            assert!(known.contains(stem), "src/ops/{stem}.rs belongs to no operation");
        }
    }

    #[test]
    fn every_file_of_the_shaders_is_a_part_of_one() {
        let files = expander::sources();
        let shaders = expand::expand(&files).unwrap_or_else(|e| panic!("{:#?}", e.lines()));
        let imports: HashSet<&String> = shaders.iter().flat_map(|s| &s.imports).collect();
        for path in files.keys().filter(|p| *p != "table") {
            let name = path.strip_suffix(".wgsl").unwrap_or_else(|| panic!("shaders/{path} is no shader"));
            let entry = !path.contains('/') && shaders.iter().any(|s| s.name == name);
            assert!(entry || imports.contains(path), "shaders/{path} is imported nowhere");
        }
    }

    #[test]
    fn every_case_binds_what_its_shader_declares() {
        for op in cases::ops() {
            let shader = shaders::find(op.stem()).expect("checked above");
            assert_eq!(shader.bindings[0], Binding::Uniform, "{}", shader.name);
            for case in cases::of(op) {
                let bindings: Vec<Binding> = case
                    .buffers
                    .iter()
                    .map(|b| if matches!(b.access, Access::Write(_)) { Binding::ReadWrite } else { Binding::Read })
                    .collect();
                assert_eq!(&shader.bindings[1..], bindings, "{}", case.name);
            }
        }
    }

    #[test]
    fn override_constants_are_those_the_shader_declares() {
        for op in cases::ops() {
            for stem in variants::of(op).iter().flat_map(|v| stems(v, op)) {
                let shader = shaders::find(&stem).expect("checked above");
                let module = naga::front::wgsl::parse_str(shader.source).expect("the build parsed it");
                let mut declared: Vec<&str> = module.overrides.iter().filter_map(|(_, o)| o.name.as_deref()).collect();
                assert_eq!(shader.overrides, declared, "{stem}");
                let mut given: Vec<&str> = op.constants().iter().map(|(name, _)| *name).collect();
                if matches!(op, Op::Attention(..) | Op::AttentionQuantize(..)) {
                    given.push("capped");
                }
                // floats have no digits, and matrices are given one digit alone
                let has_digits = shader.params.iter().any(|(name, ..)| *name == "digits");
                let one = shader.matrices || matches!(op, Op::Matvec(t) | Op::ExpertMatvec(t) if t.is_float());
                given.extend((has_digits && !one).then_some("act_digits"));
                declared.sort();
                given.sort();
                assert_eq!(declared, given, "{stem} of {}", op.title());
            }
        }
    }

    #[test]
    fn override_sets_are_those_of_the_operations_and_a_cover_has_every_value() {
        for s in SHADERS {
            let sets = variants::override_sets(s.name);
            let module = naga::front::wgsl::parse_str(s.source).expect("the build parsed it");
            let mut declared: Vec<&str> = module.overrides.iter().filter_map(|(_, o)| o.name.as_deref()).collect();
            declared.sort();
            for set in &sets {
                let mut given: Vec<&str> = set.iter().map(|(name, _)| *name).collect();
                // what is left out is the shader's own value
                let left_out = |name: &&str| declared.contains(name) && !given.contains(name);
                given.extend(ASKED.map(|(name, _)| name).iter().filter(|n| left_out(n)).collect::<Vec<_>>());
                given.sort();
                assert_eq!(declared, given, "{}", s.name);
            }
            let cover = variants::cover(sets.clone());
            for pair in sets.iter().flatten() {
                assert!(cover.iter().any(|set| set.contains(pair)), "{}: no {pair:?}", s.name);
            }
        }
        for op in cases::ops() {
            for stem in variants::of(op).iter().flat_map(|v| stems(v, op)) {
                assert!(variants::override_sets(&stem).contains(&op.constants()), "{stem} of {}", op.title());
            }
        }
    }

    // ---- what compilers make of the shaders ----

    /// The columns of a table of docs/ by name, row after row, and its header lines without the `# `.
    fn table(name: &str) -> (Vec<HashMap<String, String>>, Vec<String>) {
        let text = std::fs::read_to_string(Path::new(ROOT).join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let (head, rows): (Vec<&str>, Vec<&str>) = text.lines().partition(|l| l.starts_with('#'));
        let cells = |l: &str| l.split('\t').map(str::to_string).collect::<Vec<_>>();
        let names = cells(rows[0]);
        let rows = rows[1..].iter().map(|l| names.iter().cloned().zip(cells(l)).collect()).collect();
        (rows, head.iter().map(|l| l.trim_start_matches("# ").to_string()).collect())
    }

    /// Fails unless a table has a row for each shader of this build and set of overrides, made of the same text, and no
    /// other.
    fn is_of_these_shaders(name: &str, command: &str) {
        let again = format!("run {command} (scripts/isa setup before it, on a machine that has not)");
        let (rows, head) = table(name);
        let wgpu = format!("wgpu {}", isobit::internals::host::WGPU_VERSION);
        assert!(head.contains(&wgpu), "{name} was made with another wgpu: {again}");
        let mut left: HashSet<(&str, &str)> =
            rows.iter().map(|r| (r["shader"].as_str(), r["overrides"].as_str())).collect();
        assert_eq!(left.len(), rows.len(), "{name} has two rows of one shader and set: {again}");
        for s in SHADERS {
            let hash = format!("{:x}", sha2::Sha256::digest(shaders::code(s.source)));
            for set in variants::cover(variants::override_sets(s.name)) {
                let values: Vec<String> = set.iter().map(|(name, value)| format!("{name}={value}")).collect();
                let values = values.join(" ");
                let row = rows.iter().find(|r| r["shader"] == s.name && r["overrides"] == values);
                let row = row.unwrap_or_else(|| panic!("{name} has no {} {values}: {again}", s.name));
                assert_eq!(row["sha256"], hash[..16], "{} has changed since {name}: {again}", s.name);
                left.remove(&(row["shader"].as_str(), row["overrides"].as_str()));
            }
        }
        assert!(left.is_empty(), "{name} has rows of other shaders, {left:?}: {again}");
    }

    #[test]
    fn the_table_of_compilers_is_of_these_shaders() {
        is_of_these_shaders("docs/isa.tsv", "scripts/isa table");
    }

    #[test]
    fn the_table_of_statistics_is_of_these_shaders_and_of_the_same_compilers() {
        is_of_these_shaders("docs/isa-stats.tsv", "scripts/isa stats");
        let made_with = |name| {
            let head = table(name).1;
            head.into_iter().filter(|l| ["naga ", "mesa ", "target "].iter().any(|w| l.starts_with(w))).collect()
        };
        let (findings, numbers): (Vec<String>, Vec<String>) =
            (made_with("docs/isa.tsv"), made_with("docs/isa-stats.tsv"));
        assert_eq!(findings, numbers, "docs/isa.tsv and docs/isa-stats.tsv were made with different compilers");
        assert!(findings.len() > 10, "{findings:?}");
    }

    #[test]
    fn no_compiler_of_the_table_rewrites_a_shader() {
        let (rows, _) = table("docs/isa.tsv");
        for row in rows {
            for rule in ["fused", "naked", "transcendental"] {
                assert_eq!(row[rule], "0", "{} {}: {rule}", row["shader"], row["overrides"]);
            }
        }
    }

    /// Whether a line of scripts/isa.d/known.tsv says why a row of a table spills on a target.
    fn is_known_to_spill(known: &[Vec<String>], row: &HashMap<String, String>, target: &str) -> bool {
        known.iter().any(|k| {
            k[0] == "spill"
                && k[1] == row["shader"]
                && ["*", row["overrides"].as_str()].contains(&k[2].as_str())
                && k[3].split(' ').any(|t| t == target)
        })
    }

    #[test]
    fn no_kernel_that_runs_unmeasured_spills_on_amd_but_those_that_say_why() {
        let file = "scripts/isa.d/known.tsv";
        let text = std::fs::read_to_string(Path::new(ROOT).join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        let lines = text.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
        let known: Vec<Vec<String>> = lines.map(|l| l.split('\t').map(str::to_string).collect()).collect();
        let defaults: HashSet<String> = cases::ops().into_iter().flat_map(variants::defaults).collect();
        let (rows, _) = table("docs/isa-stats.tsv");
        let rows: Vec<_> = rows.iter().filter(|row| defaults.contains(&row["shader"])).collect();
        assert!(rows.len() > 200 && known.iter().all(|k| k.len() == 5), "{} rows, {known:?}", rows.len());
        let mut found = Vec::new();
        for row in rows {
            for target in ["gfx1151", "gfx1201", "navi21"] {
                // an empty cell: not compiled for the target
                let some = |column| !["0", ""].contains(&row[&format!("{target}:{column}")].as_str());
                let spills = some("spills") || some("scratch");
                if spills && !is_known_to_spill(&known, row, target) {
                    found.push(format!("{} {} on {target}", row["shader"], row["overrides"]));
                }
            }
        }
        assert!(found.is_empty(), "registers or arrays in scratch memory: {found:#?}");
    }

    /// A list of scripts/isa.d/speed.py: stems and overrides.
    fn list_of_speed(name: &str) -> Vec<(String, String)> {
        let text =
            std::fs::read_to_string(Path::new(ROOT).join("scripts/isa.d/speed.py")).expect("speed.py is readable");
        let quoted = |l: &str| l.split('"').nth(1).map(str::to_string).unwrap_or_else(|| panic!("no word in {l:?}"));
        let f16 = text.lines().find(|l| l.starts_with("F16 = ")).map(quoted).expect("speed.py has an F16");
        let (_, list) = text.split_once(&format!("\n{name} = (\n")).unwrap_or_else(|| panic!("speed.py has no {name}"));
        let (list, _) = list.split_once("\n)").expect("a list ends");
        list.lines().map(|l| (quoted(l), if l.contains("F16") { f16.clone() } else { String::new() })).collect()
    }

    /// Shaders of a step, each once.
    fn shaders_of(plan: &Plan, step: &Step) -> Vec<(String, String)> {
        let mut list: Vec<(String, String)> = Vec::new();
        for c in &plan.recording.commands {
            let Some(args) = c.args_for(step) else { continue };
            for pass in variants::unmeasured(c.op, &args, plan.max_tokens) {
                let values: Vec<String> =
                    c.op.constants().iter().map(|(name, value)| format!("{name}={value}")).collect();
                let key = (pass.shader, values.join(" "));
                if !list.contains(&key) {
                    list.push(key);
                }
            }
        }
        list
    }

    #[test]
    fn the_kernels_that_scripts_isa_prints_are_those_a_llama_runs_unmeasured() {
        let model = Synthetic::parse("llama-1b:q4_k_m").expect("a shape").container().expect("a model");
        let hyper = Hyper::read(&model).expect("its hyperparameters");
        let options = PlanOptions { n_ctx: 4096, ..PlanOptions::default() };
        let mut built = models::build(&model, &hyper, &options).expect("a plan");
        fuse::fuse(&mut built.plan, fuse::Fuse::On, options.max_binding_words);
        let step = |pos, n_tokens, n_out, select| Step { n_tokens, pos, n_out, select, ..Step::default() };
        let sorted = |mut list: Vec<(String, String)>| {
            list.sort();
            list.dedup();
            list
        };
        // attention whole and split, and a greedy token
        let mut decode = shaders_of(&built.plan, &step(0, 1, 1, 1));
        decode.extend(shaders_of(&built.plan, &step(2048, 1, 1, 1)));
        assert_eq!(sorted(list_of_speed("DECODE")), sorted(decode), "DECODE of scripts/isa.d/speed.py");
        let prefill = shaders_of(&built.plan, &step(0, 512, 0, 0));
        assert_eq!(sorted(list_of_speed("PREFILL")), sorted(prefill), "PREFILL of scripts/isa.d/speed.py");
    }

    // ---- parameter structs ----

    #[test]
    fn parameter_structs_have_the_shaders_fields_offsets_types_and_size() {
        for op in cases::ops() {
            let shader = shaders::find(op.stem()).expect("checked above");
            // words told apart from one another: normal floats, and no small integers
            let words: Vec<u32> = (0..shader.params.len() as u32).map(|i| 0x0101_0000 * (i + 1) + 7).collect();
            let args = cases::of(op)[0].args;
            let fields = args.fields();
            let names: Vec<&str> = fields.iter().map(|f| f.0).collect();
            let declared: Vec<&str> = shader.params.iter().map(|p| p.0).collect();
            assert_eq!(names, declared, "{}: fields of the struct", shader.name);
            let mut bytes = [0xccu8; 256];
            let len = args.with_words(&words).encode(&mut bytes);
            for (((name, kind), word), &(_, offset, shader_kind)) in fields.iter().zip(words).zip(shader.params) {
                assert_eq!(*kind, shader_kind, "{}: type of {name}", shader.name);
                let at = offset as usize;
                let found = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
                assert_eq!(found, word, "{}: {name} at offset {offset}", shader.name);
            }
            let end = shader.params.last().map_or(0, |p| p.1 as usize + 4);
            assert_eq!(len, end, "{}: size of the struct", shader.name);
            assert!(bytes[len..].iter().all(|&b| b == 0xcc), "{}: encode wrote past its length", shader.name);
        }
    }

    #[test]
    fn the_arguments_of_every_case_are_those_of_its_operation() {
        for op in cases::ops() {
            for case in cases::of(op) {
                assert!(op.with(&case.args).is_some(), "{}: {:?}", case.name, case.args);
            }
        }
    }

    // ---- numbers ----

    /// The value of a `const` of a shader, which must be a u32.
    fn number(module: &naga::Module, name: &str) -> Option<usize> {
        let (_, c) = module.constants.iter().find(|(_, c)| c.name.as_deref() == Some(name))?;
        match module.global_expressions[c.init] {
            naga::Expression::Literal(naga::Literal::U32(value)) => Some(value as usize),
            ref other => panic!("{name} is {other:?}, expected a u32"),
        }
    }

    #[test]
    fn numbers_of_layouts_that_shaders_name_are_those_of_rust() {
        let weights = |op| match op {
            Op::Embed(t) | Op::Matvec(t) | Op::GateUp(t) | Op::ExpertMatvec(t) | Op::MatvecPair(t, _) => Some(t),
            _ => None,
        };
        let type_of: HashMap<String, BlockType> = cases::ops()
            .into_iter()
            .flat_map(|op| variants::of(op).iter().map(move |v| (v.stem(op), weights(op))))
            .filter_map(|(stem, t)| Some((stem, t?)))
            .collect();
        let mut named: HashMap<&str, usize> = HashMap::new();
        for s in SHADERS {
            let module = naga::front::wgsl::parse_str(s.source).expect("the build parsed it");
            let weight = type_of.get(s.name).copied();
            let words = |t: Option<BlockType>, elements| pack::words_per_row(t.expect("it has weights"), elements);
            let mut check = |name: &'static str, expected: &dyn Fn() -> usize| match number(&module, name) {
                Some(found) => {
                    assert_eq!(found, expected(), "{}: {name}", s.name);
                    *named.entry(name).or_default() += 1;
                    true
                }
                None => false,
            };
            check("ACT_BLOCK_WORDS", &|| linear::ACT_BLOCK_WORDS);
            check("ACT_SUMS", &|| linear::ACT_SUMS);
            let layouts = [
                check("GROUP", &|| words(weight, 128)),
                check("BLOCK", &|| words(weight, 256)),
                check("Q6K_BLOCK", &|| words(Some(BlockType::Q6_K), 256)),
            ];
            let floats = [BlockType::F32, BlockType::F16, BlockType::BF16];
            let packed = weight.is_some_and(|t| !floats.contains(&t));
            assert_eq!(layouts.contains(&true), packed, "{} names no words of its type", s.name);
        }
        for name in ["ACT_BLOCK_WORDS", "ACT_SUMS", "GROUP", "BLOCK", "Q6K_BLOCK"] {
            assert!(named.get(name).is_some_and(|&n| n > 5), "{name}: {named:?}");
        }
    }

    /// The words of a shader's codebook, as its text has them.
    fn codebook(name: &str) -> Vec<u32> {
        let source = shaders::find(name).unwrap_or_else(|| panic!("there is no {name}")).source;
        let word = |w: &str| u32::from_str_radix(w.strip_prefix("0x")?.strip_suffix('u')?, 16).ok();
        let mut all = Vec::new();
        for (i, piece) in source.split(": array<u32, 64> = array<u32, 64>(").enumerate() {
            // before a piece its name, behind it the text to the next one
            let number = if i > 0 { all.len() / 64 } else { 0 };
            if i > 0 {
                let (words, _) = piece.split_once(')').expect("it ends");
                let words = words.split(',').map(str::trim).filter(|w| !w.is_empty());
                all.extend(words.map(|w| word(w).expect("a word")));
                let put = format!("put_words({}u + thread, codebook_{number}[thread]);", 64 * number);
                assert!(source.contains(&put), "{name} does not put piece {number}");
            }
        }
        all
    }

    #[test]
    fn codebooks_of_shaders_are_those_of_rust() {
        let packed = |codes: &[u16]| -> Vec<u32> {
            codes.as_chunks::<2>().0.iter().map(|&[low, high]| u32::from(low) | u32::from(high) << 16).collect()
        };
        let books: [(&str, &[u16]); 7] = [
            ("iq2_xxs", &grids::GRID_2XXS.codes),
            ("iq2_xs", &grids::GRID_2XS.codes),
            ("iq2_s", &grids::GRID_2S.codes),
            ("iq3_xxs", &grids::GRID_3XXS.codes),
            ("iq3_s", &grids::GRID_3S.codes),
            ("iq1_s", &grids::GRID_1.codes),
            ("iq1_m", &grids::GRID_1.codes),
        ];
        for (t, codes) in books {
            let found = codebook(&format!("{t}_matvec"));
            assert_eq!(found.len(), codes.len() / 2, "{t}");
            let wrong = found.iter().zip(packed(codes)).position(|(a, b)| *a != b);
            assert_eq!(wrong, None, "{t}: a word differs from src/blocks/grids.rs");
        }
    }

    #[test]
    fn values_of_nibbles_in_shaders_are_those_of_rust() {
        for (t, values) in
            [("iq4_nl", iq4_nl::VALUES), ("iq4_xs", iq4_nl::VALUES), ("mxfp4", mxfp4::VALUES), ("nvfp4", mxfp4::VALUES)]
        {
            let shader = shaders::find(&format!("{t}_matvec")).expect("checked above");
            let module = naga::front::wgsl::parse_str(shader.source).expect("the build parsed it");
            for (i, bytes) in values.as_chunks::<4>().0.iter().enumerate() {
                let word = u32::from_le_bytes(bytes.map(|b| b as u8)) as usize;
                assert_eq!(number(&module, &format!("VALUES_{i}")), Some(word), "{t}: word {i}");
            }
        }
    }

    // ---- validation ----

    /// What a shader names of optional features.
    fn granted(s: &shaders::Shader) -> Capabilities {
        let mut granted = Capabilities::empty();
        granted.set(Capabilities::SUBGROUP, s.subgroups);
        granted.set(Capabilities::SHADER_FLOAT16 | Capabilities::COOPERATIVE_MATRIX, s.matrices);
        granted
    }

    #[test]
    fn every_shader_needs_no_capability_that_it_does_not_name_and_fits_the_default_limits() {
        for s in SHADERS {
            let module = naga::front::wgsl::parse_str(s.source).unwrap_or_else(|e| panic!("{}: {e}", s.name));
            let valid = |granted| {
                let result = Validator::new(ValidationFlags::all(), granted).validate(&module);
                result.map(|_| ()).map_err(|e| e.emit_to_string(s.source))
            };
            let granted = granted(s);
            valid(granted).unwrap_or_else(|e| panic!("{}: {e}", s.name));
            assert_eq!(valid(granted - Capabilities::SUBGROUP).is_err(), s.subgroups, "{} needs no subgroups", s.name);
            let without = granted - Capabilities::COOPERATIVE_MATRIX;
            assert_eq!(valid(without).is_err(), s.matrices, "{} needs no matrices", s.name);
            assert!(s.workgroup_size.iter().product::<u32>() <= 256, "{}: {:?}", s.name, s.workgroup_size);
            assert!(s.bindings.len() <= 9, "{}: {} storage buffers, at most 8", s.name, s.bindings.len() - 1);
            let enables: Vec<&str> = s.source.lines().filter(|l| l.starts_with("enable ")).collect();
            let expected: &[&str] = if s.matrices { &["enable f16;", "enable wgpu_cooperative_matrix;"] } else { &[] };
            assert_eq!(enables, expected, "{}", s.name);
            assert!(!s.source.contains("#import"), "{}", s.name);
            let mut layouter = naga::proc::Layouter::default();
            layouter.update(module.to_ctx()).expect("validated");
            let shared: u32 = module
                .global_variables
                .iter()
                .filter(|(_, v)| v.space == naga::AddressSpace::WorkGroup)
                .map(|(_, v)| layouter[v.ty].size)
                .sum();
            assert!(shared <= 16384, "{}: {shared} bytes of workgroup memory, at most 16384", s.name);
        }
    }

    #[test]
    #[ignore = "needs Dawn's tint on the path; .ci/run asks for it where there is one"]
    fn tint_accepts_every_shader() {
        let tint = |file: &Path| std::process::Command::new("tint").args(["--format", "wgsl"]).arg(file).output();
        let dir = tempfile::tempdir().expect("a temporary directory");
        let broken = dir.path().join("broken.wgsl");
        std::fs::write(&broken, "fn f() -> u32 { return 1.5f; }\n").expect("writable");
        let o = tint(&broken).unwrap_or_else(|e| panic!("tint does not run: {e}"));
        assert!(!o.status.success(), "tint accepts a broken shader");
        let mut problems = Problems::default();
        // only naga knows matrices
        for s in SHADERS.iter().filter(|s| !s.matrices) {
            let file = dir.path().join(s.name).with_extension("wgsl");
            let text = [if s.subgroups { "enable subgroups;\n" } else { "" }, s.source].concat();
            std::fs::write(&file, &text).expect("writable");
            let o = tint(&file).expect("it ran before");
            if !o.status.success() {
                let said = String::from_utf8_lossy(&o.stderr);
                let (place, what) = expander::tints_error(&said, file.to_str().expect("UTF-8"), &text)
                    .unwrap_or_else(|| panic!("{}: tint fails without an error: {said}", s.name));
                problems.add(place, what, Some(s.name));
            }
        }
        assert!(problems.is_empty(), "\n{}", problems.lines().join("\n"));
        println!("tint accepts {} shaders", SHADERS.iter().filter(|s| !s.matrices).count());
    }
}
