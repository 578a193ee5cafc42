//! Loops of shaders run without wgpu's counters (`host/module.rs`): every loop has an end that can be read off it, and with
//! the counters not a bit is another.

use isobit::internals::host::shaders::{SHADERS, code};

/// What is wrong with the loops of a shader's code, as `code` leaves it: a line each.
///
/// A loop that is known to end is `for (var NAME = ...; NAME < or > ...; STEP)`, where STEP is `NAME++`, adds to or halves
/// or doubles NAME, the body never assigns to NAME, and a loop that doubles is held below a size. The one `loop` there is
/// adds to a variable that it compares in its last lines.
fn endless(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    for (n, line) in lines.iter().enumerate() {
        let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        if words.contains(&"while") {
            found.push(format!("`while` says nothing of its end: {line}"));
        }
        if words.contains(&"loop") {
            // `taken` grows by a part of the tile that is never empty, since k is at most half of it
            if !lines[n + 1..].join(" ").contains("taken += TILE - held; held = p.k; if taken >= all { break; } }") {
                found.push(format!("`loop` with an end that nobody has read: {line}"));
            }
        }
        if !words.contains(&"for") {
            continue;
        }
        let head = line.strip_prefix("for (var ").and_then(|l| l.strip_suffix(") {"));
        let parts: Vec<&str> = head.map(|h| h.split("; ").collect()).unwrap_or_default();
        let [start, end, step] = parts[..] else {
            found.push(format!("not a loop over one variable: {line}"));
            continue;
        };
        let name = start.split(' ').next().unwrap_or_default();
        let up = end.contains(&format!("{name} < ")) || end.contains(&format!("{name} <= "));
        let down = end == format!("{name} > 0u") || end.starts_with(&format!("{name} >= "));
        let halves = step == format!("{name} = {name} >> 1u");
        let doubles = step == format!("{name} = {name} << 1u");
        let adds = step == format!("{name}++") || step.starts_with(&format!("{name} += "));
        if !(up && (adds || doubles) || down && halves) {
            found.push(format!("a step that does not lead to the end: {line}"));
        }
        let mut depth = 1;
        for inner in &lines[n + 1..] {
            depth += inner.matches('{').count();
            depth -= inner.matches('}').count();
            if depth == 0 {
                break;
            }
            let assigned =
                |op: &str| inner.starts_with(&format!("{name} {op} ")) || inner.contains(&format!(" {name} {op} "));
            let changed = ["=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="].into_iter().any(assigned);
            let named = [format!("{name}++"), format!("{name}--"), format!("&{name}")];
            let stepped = named.iter().any(|n| inner.split([' ', ';', '(', ')', ',']).any(|w| w == n));
            if changed && !inner.contains(&format!("var {name} =")) && !inner.contains(&format!("let {name} ="))
                || stepped
            {
                found.push(format!("the body changes {name}: {inner}"));
            }
        }
    }
    found
}

#[test]
fn every_loop_of_every_shader_ends() {
    let mut loops = 0;
    for shader in SHADERS {
        let text = code(shader.source);
        loops += text.matches("for (").count();
        assert_eq!(endless(&text), Vec::<String>::new(), "{}", shader.name);
    }
    assert!(loops > 1000, "{loops} loops were read");
}

#[test]
fn a_loop_without_an_end_is_named() {
    let of = |text: &str| endless(&code(text)).len();
    assert_eq!(of("fn f() {\nfor (var i = 0u; i < n; i++) {\nx += i;\n}\n}\n"), 0);
    assert_eq!(of("fn f() {\nfor (var s = 8u; s > 0u; s = s >> 1u) {\nx += s;\n}\n}\n"), 0);
    assert_eq!(of("fn f() {\nfor (var i = 0u; i < n; i++) {\ni = 0u;\n}\n}\n"), 1);
    assert_eq!(of("fn f() {\nfor (var i = 0u; i < n; i++) {\nif x {\ni += 2u;\n}\n}\n}\n"), 1);
    assert_eq!(of("fn f() {\nfor (var i = 0u; i < n; i++) {\ng(&i);\n}\n}\n"), 1);
    assert_eq!(of("fn f() {\nfor (var i = 0u; i != n; i++) {\nx += i;\n}\n}\n"), 1);
    assert_eq!(of("fn f() {\nfor (var i = n; i > 0u; i -= 1u) {\nx += i;\n}\n}\n"), 1);
    assert_eq!(of("fn f() {\nwhile x {\nx = g();\n}\n}\n"), 1);
    assert_eq!(of("fn f() {\nloop {\nif x { break; }\n}\n}\n"), 1);
}

mod gpu {
    use crate::common::whole::taking;
    use crate::common::{cpu, gpus_with, none, run, same};
    use isobit::internals::blocks::BlockType;
    use isobit::internals::cases;
    use isobit::internals::host::variants::{self, Forced};
    use isobit::internals::host::{GpuOptions, Loops};
    use isobit::internals::record::Op;
    use isobit::internals::simd::Level;

    #[test]
    fn with_counters_in_every_loop_every_operation_leaves_the_same_words() {
        let counted = GpuOptions { loops: Some(Loops::Counted), ..GpuOptions::default() };
        let mut failures = Vec::new();
        // GLSL has no counters; and what differs is how a loop ends, not what it computes: a case of each operation, a cache's
        // types once, and of those of weights a type with a pattern of loops of its own each, or all where that is asked for
        for gpu in gpus_with(&counted).iter_mut().take(1) {
            let of_two_types = |op: &Op| match op {
                Op::Attention(k, v) | Op::AttentionQuantize(k, v) | Op::RopeCacheWrite(k, v) => k != v,
                _ => false,
            };
            let alike = |op: &Op| match op {
                Op::Embed(t) | Op::Matvec(t) | Op::GateUp(t) | Op::ExpertMatvec(t) => {
                    taking(![BlockType::F16, BlockType::Q8_0, BlockType::Q4_K, BlockType::IQ2_S].contains(t), false)
                }
                _ => false,
            };
            for op in cases::ops().into_iter().filter(|op| !of_two_types(op) && !alike(op)) {
                let mut list = cases::of(op);
                list.truncate(1);
                let expected = run(&mut cpu(Some(Level::detect()), 0), &list);
                let found = run(gpu, &list);
                for ((case, expected), found) in list.iter().zip(&expected).zip(&found) {
                    failures.extend(same(case, expected, found).err());
                }
            }
        }
        none(&failures);
    }

    /// As on NVIDIA's own driver: the variants whose arrays loops index, of a float, blocks of 32, superblocks, a codebook and
    /// a pair, or of all types where that is asked for.
    #[test]
    fn with_loops_written_out_linears_leave_the_same_words() {
        use BlockType::{F16, IQ2_S, Q4_K, Q6_K, Q8_0};
        let stands_for_others = |op: &Op| match op {
            Op::Matvec(t) => taking([F16, Q4_K, Q6_K, Q8_0, IQ2_S].contains(t), true),
            Op::MatvecPair(a, b) => taking((*a, *b) == (Q4_K, Q6_K), true),
            Op::ExpertMatvec(t) => taking(*t == Q4_K, true),
            _ => false,
        };
        let (mut failures, mut compared) = (Vec::new(), 0);
        for name in ["matmul", "staged", "grouped", "matvec4", "lean", "ahead"] {
            let forced = vec![Forced::parse(name).expect("a variant's name")];
            let options = GpuOptions { loops: Some(Loops::Unrolled), variants: forced, ..GpuOptions::default() };
            let gpu = &mut gpus_with(&options).remove(0);
            let has = |op: &Op| variants::of(*op).iter().any(|v| v.name == name);
            for op in cases::ops().into_iter().filter(|op| stands_for_others(op) && has(op)) {
                let list = cases::of(op);
                let expected = run(&mut cpu(Some(Level::detect()), 0), &list);
                let found = run(gpu, &list);
                for ((case, expected), found) in list.iter().zip(&expected).zip(&found) {
                    failures.extend(same(case, expected, found).err().map(|e| format!("{name}: {e}")));
                }
                compared += list.len();
            }
        }
        assert!(compared > 100, "{compared} cases");
        none(&failures);
    }
}
