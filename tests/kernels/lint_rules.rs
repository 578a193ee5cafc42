//! Shows that the shader lint can fail: small planted shaders, one per way of breaking the exactness law, and clean
//! ones that it must leave alone.
//!
//! A line that must be reported ends in `// <- rule` (several rules separated by spaces). Every test compares the whole
//! list of findings with the marks, so a finding too many fails as surely as one too few; but those of the rule
//! `not-finite`, which asks for a list of functions, count only where a test marks one.

use crate::lint::{self, Finding, check, check_with, report};
use naga::valid::Capabilities;

/// Buffers, the private zero and the barrier, as the project's shaders have them.
const PRELUDE: &str = r#"
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> words: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
struct Params { n: u32, spare: u32, scale: f32, eps: f32, dims: vec4<u32> }
var<workgroup> lanes: array<f32, 64>;
var<private> zero: u32;
fn B(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) | zero); }
fn B4(x: vec4<f32>) -> vec4<f32> { return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) | vec4(zero)); }
"#;

/// Wraps statements into an entry point that sets the zero first.
fn in_main(functions: &str, body: &str) -> String {
    format!(
        "{PRELUDE}{functions}\n@compute @workgroup_size(64)\n\
         fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {{\n\
         zero = wg.z;\n{body}\n}}\n"
    )
}

fn marks(source: &str) -> Vec<(u32, String)> {
    let mut marks = Vec::new();
    for (i, line) in source.lines().enumerate() {
        if let Some((_, rules)) = line.split_once("// <-") {
            for rule in rules.split_whitespace() {
                marks.push((i as u32 + 1, rule.to_owned()));
            }
        }
    }
    marks.sort();
    marks
}

fn compare(source: &str, findings: &[Finding]) {
    let marked = marks(source).iter().any(|(_, rule)| rule == lint::NOT_FINITE);
    let found = findings.iter().filter(|f| marked || f.rule != lint::NOT_FINITE);
    let found: Vec<(u32, String)> = found.map(|f| (f.line, f.rule.to_owned())).collect();
    let numbered: String = source.lines().enumerate().map(|(i, l)| format!("{:3} {l}\n", i + 1)).collect();
    assert_eq!(
        marks(source),
        found,
        "\nmarked (left) and found (right) differ in\n{numbered}{}",
        report("planted", findings)
    );
}

/// Checks a whole shader against its marks.
fn shader(source: &str) {
    compare(source, &check("planted", source));
}

/// Checks statements of `main` against their marks; `functions` go before it.
fn body(functions: &str, body: &str) {
    shader(&in_main(functions, body));
}

/// Like [`body`] for planted shaders: there must be a mark.
fn planted(functions: &str, text: &str) {
    let source = in_main(functions, text);
    assert!(!marks(&source).is_empty(), "nothing is marked in\n{source}");
    shader(&source);
}

/// Like [`body`] for clean shaders: there must be none.
fn clean(functions: &str, text: &str) {
    let source = in_main(functions, text);
    assert!(marks(&source).is_empty(), "something is marked in\n{source}");
    shader(&source);
}

// Forbidden builtins.

#[test]
fn every_open_float_builtin_is_reported() {
    for call in [
        "exp(x)",
        "exp2(x)",
        "log(x)",
        "log2(x)",
        "pow(x, 2.0)",
        "sqrt(x)",
        "inverseSqrt(x)",
        "sin(x)",
        "cos(x)",
        "tan(x)",
        "asin(x)",
        "acos(x)",
        "atan(x)",
        "atan2(x, x)",
        "sinh(x)",
        "cosh(x)",
        "tanh(x)",
        "asinh(x)",
        "acosh(x)",
        "atanh(x)",
        "fma(x, x, x)",
        "length(v)",
        "distance(v, v)",
        "normalize(v).x",
        "cross(v.xyz, v.yzx).x",
        "mix(x, x, 0.5)",
        "smoothstep(x, x, x)",
        "reflect(v, v).x",
        "refract(v, v, x).x",
        "faceForward(v, v, v).x",
        "degrees(x)",
        "radians(x)",
        "fract(x)",
        "ldexp(x, 3)",
        "modf(x).fract",
        "frexp(x).fract",
        "quantizeToF16(x)",
        "dot(v, v)",
        "f32(pack2x16float(v.xy))",
        "unpack2x16float(7u + lane).x",
        "f32(pack4x8snorm(v))",
        "f32(pack4x8unorm(v))",
        "f32(pack2x16snorm(v.xy))",
        "f32(pack2x16unorm(v.xy))",
        "unpack4x8snorm(lane).x",
        "unpack4x8unorm(lane).x",
        "unpack2x16snorm(lane).x",
        "unpack2x16unorm(lane).x",
    ] {
        // These need a capability besides.
        let invalid = ["pack2x16float", "unpack2x16float", "quantizeToF16"];
        let more = if invalid.iter().any(|name| call.contains(name)) { "validate" } else { "" };
        planted("", &format!("let x = a[lane]; let v = b[lane];\ny[lane] = {call}; // <- forbidden-builtin {more}"));
    }
}

#[test]
fn a_builtin_in_a_function_that_nobody_calls_is_reported() {
    planted("fn unused(x: f32) -> f32 {\nreturn exp(x); // <- forbidden-builtin\n}", "");
}

#[test]
fn a_builtin_whose_result_is_dropped_is_reported() {
    planted("", "_ = exp(a[lane]); // <- forbidden-builtin");
}

#[test]
fn a_builtin_that_naga_folds_is_reported() {
    planted("", "y[lane] = a[lane] * sqrt(2.0); // <- forbidden-builtin");
    planted("const ROOT = inverseSqrt(64.0); // <- forbidden-builtin", "y[lane] = ROOT;");
}

#[test]
fn a_float_dot_is_reported_and_an_integer_dot_is_not() {
    planted("", "y[lane] = dot(b[0], b[1]); // <- forbidden-builtin");
    clean("", "y[lane] = f32(dot(vec4<i32>(vec4(words[0])), vec4<i32>(1, 2, 3, 4)));");
    clean("", "y[lane] = f32(dot4I8Packed(words[0], words[1]));");
}

#[test]
fn a_pack_to_f16_is_reported() {
    planted("", "let p = pack2x16float(vec2(a[0], a[1])); // <- forbidden-builtin validate\ny[lane] = f32(p);");
}

#[test]
fn a_function_of_the_project_may_have_a_builtins_name() {
    clean("fn fract(x: f32) -> f32 { return x - floor(x); }", "y[lane] = fract(a[lane]);");
}

#[test]
fn a_builtin_named_in_a_comment_is_not_reported() {
    clean(
        "",
        "// exp(x) and 1.0 / 3.0 /* are\n/* only /* nested */ sqrt(2.0) words */\ny[lane] = a[lane]; /* sqrt(2.0)\n1.0 / 3.0 */",
    );
}

#[test]
fn exact_builtins_pass() {
    clean(
        "",
        "let x = a[lane];\n\
         y[0] = abs(x); y[1] = min(x, 1.0); y[2] = max(x, 1.0); y[3] = clamp(x, 0.0, 1.0); y[4] = saturate(x);\n\
         y[5] = floor(x); y[6] = ceil(x); y[7] = round(x); y[8] = trunc(x); y[9] = sign(x); y[10] = step(x, 1.0);\n\
         y[11] = select(x, 1.0, x < 0.5);",
    );
}

#[test]
fn matrix_arithmetic_is_reported() {
    planted(
        "",
        "let m = mat2x2<f32>(a[0], a[1], a[2], a[3]);\nlet v = m * vec2(a[4], a[5]); // <- forbidden-builtin\ny[lane] = v.x;",
    );
}

// Division.

#[test]
fn float_division_is_reported() {
    planted("", "y[lane] = a[0] / a[1]; // <- float-division");
    planted("", "let v = b[0] / b[1]; // <- float-division\ny[lane] = v.x;");
    planted("", "y[lane] = a[0] / 2.0; // <- float-division");
    planted("", "var x = a[0];\nx /= a[1]; // <- float-division\ny[lane] = x;");
}

#[test]
fn float_remainder_is_reported() {
    planted("", "y[lane] = a[0] % a[1]; // <- float-division");
}

#[test]
fn float_division_that_naga_folds_is_reported() {
    planted("", "y[lane] = a[0] * (1.0 / 3.0); // <- float-division");
    planted("const K = 3.0;\nconst THIRD = f32(1) / K; // <- float-division", "y[lane] = THIRD;");
}

#[test]
fn integer_division_passes() {
    clean("", "y[words[0] / 2u % 7u] = f32(words[1] / words[2]) ;\ny[lane / params.n] = f32(i32(words[1]) % 5);");
}

// Widths, literals, capabilities.

#[test]
fn f16_is_reported() {
    let source = "enable f16;\n@group(0) @binding(0) var<storage, read_write> y: array<f32>;\n\
         @compute @workgroup_size(1) fn main() {\nlet h = f16(y[0]); // <- float-width\n\
         y[1] = f32(h);\n}\n";
    compare(source, &check_with("planted", source, Capabilities::SHADER_FLOAT16));
    // Without the capability it is not even valid.
    assert!(check("planted", source).iter().any(|f| f.rule == lint::VALIDATE));
    assert!(check("planted", source).iter().any(|f| f.rule == lint::FLOAT_WIDTH));
}

#[test]
fn an_index_into_a_copy_of_an_array_is_reported_and_one_into_a_variable_is_not() {
    let source = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;\n\
         var<private> sums: array<u32, 4>;\n\
         @compute @workgroup_size(1)\n\
         fn main(@builtin(local_invocation_id) lid: vec3<u32>) {\n\
         let copy = sums;\n\
         var own = copy;\n\
         sums[lid.x] = 1u;\n\
         y[0] = copy[lid.x]; // <- array-value\n\
         y[1] = copy[1] + own[lid.x] + sums[lid.y];\n\
         }\n";
    compare(source, &check("planted", source));
}

#[test]
fn f16_in_a_buffer_is_reported() {
    let source = "enable f16;\n\
         @group(0) @binding(0) var<storage, read_write> h: array<vec2<f16>>; // <- float-width\n\
         @compute @workgroup_size(1) fn main() { }\n";
    let all = Capabilities::SHADER_FLOAT16 | Capabilities::STORAGE_BUFFER_BINDING_ARRAY;
    compare(source, &check_with("planted", source, all));
}

#[test]
fn f64_is_reported() {
    let source = "@group(0) @binding(0) var<storage, read_write> y: array<f32>;\n\
         @compute @workgroup_size(1) fn main() {\nlet d = f64(y[0]); // <- float-width\n\
         y[1] = f32(d);\n}\n";
    compare(source, &check_with("planted", source, Capabilities::FLOAT64));
    assert!(check("planted", source).iter().any(|f| f.rule == lint::VALIDATE));
}

#[test]
fn a_subnormal_literal_is_reported() {
    planted("", "y[lane] = max(a[0], 1e-40); // <- float-literal");
    planted("const TINY: f32 = 1.0e-39; // <- float-literal", "y[lane] = a[0];");
    clean("", "y[lane] = max(a[0], 1.17549435e-38);");
}

#[test]
fn a_capability_not_granted_is_reported() {
    let source = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;\n\
         @compute @workgroup_size(64)\n\
         fn main(@builtin(local_invocation_index) lane: u32) { y[lane] = subgroupMax(lane); }\n";
    let found = check("planted", source);
    assert_eq!(found.len(), 1, "{}", report("planted", &found));
    assert_eq!((found[0].rule, found[0].line), (lint::VALIDATE, 3));
    let found = check_with("planted", source, Capabilities::SUBGROUP);
    assert!(found.is_empty(), "{}", report("planted", &found));
}

#[test]
fn text_that_is_not_wgsl_is_reported() {
    let found = check("planted", "fn main() {}\nfn broken( {}\n");
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].rule, found[0].line), (lint::PARSE, 2));
}

#[test]
fn subgroup_operations_on_floats_are_reported_and_on_integers_are_not() {
    let source = "@group(0) @binding(0) var<storage, read_write> y: array<f32>;\n\
         @compute @workgroup_size(64)\n\
         fn main(@builtin(local_invocation_index) lane: u32) {\n\
         y[0] = subgroupAdd(y[lane]); // <- float-subgroup\n\
         y[1] = subgroupExclusiveMul(y[lane]); // <- float-subgroup\n\
         y[6] = subgroupInclusiveAdd(vec2<f32>(y[lane], 0.5)).x; // <- float-subgroup\n\
         y[2] = subgroupMax(y[lane]); // <- float-subgroup\n\
         y[3] = f32(subgroupAdd(lane));\n\
         y[4] = bitcast<f32>(subgroupMax(bitcast<u32>(y[lane])));\n\
         let s = subgroupMin(a0() * f32(lane)); // <- float-subgroup\n\
         y[5] = s + 1.0; // <- unbarriered\n\
         }\nfn a0() -> f32 { return 3.0; }\n";
    compare(source, &check_with("planted", source, Capabilities::SUBGROUP));
}

#[test]
fn a_float_atomic_is_reported() {
    let source = "@group(0) @binding(0) var<storage, read_write> s: atomic<f32>; // <- float-atomic\n\
         @compute @workgroup_size(1) fn main() {\n\
         _ = atomicAdd(&s, 1.0); // <- float-atomic\n}\n";
    compare(source, &check_with("planted", source, Capabilities::SHADER_FLOAT32_ATOMIC));
}

// Unbarriered results.

#[test]
fn a_product_that_feeds_a_sum_is_reported() {
    planted("", "y[lane] = a[0] * a[1] + a[2]; // <- unbarriered");
    planted("", "y[lane] = a[2] + a[0] * a[1]; // <- unbarriered");
}

#[test]
fn a_chain_of_sums_is_reported() {
    planted("", "y[lane] = a[0] + a[1] + a[2]; // <- unbarriered");
}

#[test]
fn a_chain_of_products_is_reported() {
    planted("", "y[lane] = a[0] * a[1] * a[2]; // <- unbarriered");
    planted("", "y[lane] = (a[0] * 0.5) * 3.0; // <- unbarriered");
}

#[test]
fn a_sum_times_a_constant_is_reported() {
    planted("", "y[lane] = (a[0] + 0.5) * 2.0; // <- unbarriered");
}

#[test]
fn a_product_that_is_subtracted_is_reported() {
    planted("", "y[lane] = a[0] - a[1] * a[2]; // <- unbarriered");
    planted("", "y[lane] = a[1] * a[2] - a[0]; // <- unbarriered");
}

#[test]
fn the_rounding_trick_is_reported() {
    planted("", "y[lane] = (a[0] + 12582912.0) - 12582912.0; // <- unbarriered");
}

#[test]
fn a_negated_product_is_reported() {
    planted("", "y[lane] = a[0] + -(a[1] * a[2]); // <- unbarriered");
    planted("", "let p = -(a[1] * a[2]);\ny[lane] = a[0] - p; // <- unbarriered");
}

#[test]
fn compound_assignment_is_reported() {
    planted("", "var acc = a[0];\nacc += a[1] * a[2]; // <- unbarriered\ny[lane] = acc;");
    planted(
        "",
        "var acc = 0.0;\nfor (var i = 0u; i < params.n; i++) {\nacc += a[i]; // <- unbarriered\n}\ny[lane] = acc;",
    );
    planted(
        "",
        // A variable holds whatever any store puts there, so the first line is reported for feeding itself.
        "var acc = a[0];\nacc *= a[1]; // <- unbarriered\ny[lane] = acc * a[2]; // <- unbarriered",
    );
}

#[test]
fn a_sum_over_a_loop_is_reported() {
    planted(
        "",
        "var acc = 0.0;\nloop {\nif (acc > 3.0) { break; } // <- unbarriered\nacc = acc + a[lane]; // <- unbarriered\n}\ny[lane] = acc;",
    );
}

#[test]
fn a_product_in_a_local_variable_is_reported() {
    planted("", "var t = a[0] * a[1];\ny[lane] = t + a[2]; // <- unbarriered");
    planted("", "let t = a[0] * a[1];\ny[lane] = t + a[2]; // <- unbarriered");
    // Set in one branch only.
    planted("", "var t = a[3];\nif (lane > 2u) { t = a[0] * a[1]; }\ny[lane] = t + a[2]; // <- unbarriered");
}

#[test]
fn a_product_in_a_private_variable_is_reported() {
    planted(
        "var<private> kept: f32;\nfn keep(x: f32) { kept = x; }",
        "keep(a[0] * a[1]);\ny[lane] = kept + a[2]; // <- unbarriered",
    );
}

#[test]
fn a_product_kept_by_one_function_is_reported_in_another() {
    planted(
        "var<private> kept: f32;\n\
         fn held() -> f32 {\nreturn kept + 1.0; // <- unbarriered\n}\n\
         fn keep(x: f32, z: f32) { kept = x * z; }",
        "keep(a[0], a[1]);\ny[lane] = held();",
    );
}

#[test]
fn a_product_in_workgroup_memory_is_reported() {
    planted("", "lanes[lane] = a[0] * a[1];\nworkgroupBarrier();\ny[lane] = lanes[0] + lanes[1]; // <- unbarriered");
    planted(
        "var<workgroup> shared_scale: f32;",
        "if (lane == 0u) { shared_scale = a[0] * a[1]; }\n\
         let s = workgroupUniformLoad(&shared_scale);\ny[lane] = s * a[2]; // <- unbarriered",
    );
}

#[test]
fn a_tree_sum_without_barriers_is_reported() {
    planted(
        "",
        "lanes[lane] = a[lane];\nfor (var s = 32u; s > 0u; s = s / 2u) {\nworkgroupBarrier();\n\
         if (lane < s) {\nlanes[lane] = lanes[lane] + lanes[lane + s]; // <- unbarriered\n}\n}\ny[0] = lanes[0];",
    );
}

#[test]
fn a_product_in_an_array_is_reported() {
    planted("", "var t: array<f32, 4>;\nt[1] = a[0] * a[1];\ny[lane] = t[lane] + a[2]; // <- unbarriered");
}

#[test]
fn a_product_in_a_struct_is_reported() {
    planted(
        "struct Pair { p: f32, q: f32 }\nfn pair() -> Pair { return Pair(a[0] * a[1], a[2]); }",
        "let t = pair();\ny[lane] = t.p + a[2]; // <- unbarriered",
    );
}

#[test]
fn a_result_stored_to_a_buffer_and_read_back_is_reported() {
    planted("", "y[lane] = a[0] * a[1];\ny[lane + 1u] = y[lane] + a[2]; // <- unbarriered");
}

#[test]
fn a_product_passed_to_a_function_is_reported_at_the_call() {
    planted(
        "fn plus(x: f32, z: f32) -> f32 { return x + z; }",
        "y[0] = plus(a[0], a[1]);\ny[1] = plus(a[0], a[1] * a[2]); // <- unbarriered",
    );
}

#[test]
fn a_product_passed_down_two_calls_is_reported_at_the_first() {
    planted(
        "fn plus(x: f32, z: f32) -> f32 { return x + z; }\n\
         fn hand_on(x: f32) -> f32 { let t = abs(x); return plus(t, 1.0); }",
        "y[0] = hand_on(a[0]);\ny[1] = hand_on(a[1] * a[2]); // <- unbarriered",
    );
}

#[test]
fn a_product_returned_by_a_function_is_reported() {
    planted(
        "fn product(x: f32, z: f32) -> f32 { return x * z; }",
        "y[0] = product(a[0], a[1]) + a[2]; // <- unbarriered",
    );
}

#[test]
fn a_product_handed_through_a_function_is_reported_only_where_it_happens() {
    planted(
        "fn canon(x: f32) -> f32 { return select(x, 0.0, abs(x) < 1e-15); }",
        "y[0] = canon(B(a[0] * a[1])) + a[2];\ny[1] = canon(a[0] * a[1]) + a[2]; // <- unbarriered",
    );
}

#[test]
fn a_product_stored_through_a_pointer_argument_is_reported() {
    planted(
        "fn put(p: ptr<function, f32>, x: f32) { *p = x * 3.0; }",
        "var t = 0.0;\nput(&t, a[0]);\ny[0] = t + a[2]; // <- unbarriered",
    );
    planted(
        "fn take(p: ptr<function, f32>) -> f32 { return *p + 1.0; }",
        "var t = a[0] * a[1];\ny[0] = take(&t); // <- unbarriered",
    );
}

#[test]
fn a_product_through_select_is_reported() {
    planted("", "y[lane] = select(a[0], a[1] * a[2], lane > 3u) + a[3]; // <- unbarriered");
}

#[test]
fn a_product_through_min_max_abs_clamp_is_reported() {
    planted("", "y[lane] = max(a[1] * a[2], 0.0) + a[3]; // <- unbarriered");
    planted("", "y[lane] = abs(a[1] * a[2]) - a[3]; // <- unbarriered");
    planted("", "y[lane] = clamp(a[1] + a[2], 0.0, 1.0) * a[3]; // <- unbarriered");
    planted("", "y[lane] = min(a[1] - a[2], a[0]) * a[3]; // <- unbarriered");
    planted("", "y[lane] = round(a[1] * a[2]) * a[3]; // <- unbarriered");
}

#[test]
fn a_product_through_vectors_is_reported() {
    planted("", "let v = b[0] * b[1];\ny[lane] = v.x + v.y; // <- unbarriered");
    planted("", "let v = (b[0] * b[1]).wzyx;\nlet w = v + b[2]; // <- unbarriered\ny[lane] = w.x;");
    planted("", "let v = vec4(a[0] * a[1]);\nlet w = v + b[2]; // <- unbarriered\ny[lane] = w.x;");
    planted("", "let v = vec2(a[0] * a[1], a[2]);\ny[lane] = v[lane & 1u] + a[2]; // <- unbarriered");
    planted("", "let v = b[0] * a[1];\nlet w = v - b[2]; // <- unbarriered\ny[lane] = w.x;");
    planted("", "var v = b[0];\nv.x = a[0] * a[1];\ny[lane] = v.x + a[2]; // <- unbarriered");
}

#[test]
fn bits_that_come_back_unchanged_are_no_barrier() {
    planted("", "let u = bitcast<u32>(a[0] * a[1]);\ny[lane] = bitcast<f32>(u) + a[2]; // <- unbarriered");
    planted(
        "",
        "let u = bitcast<u32>(a[0] * a[1]) & 0x7fffffffu; // <- unbarriered\ny[lane] = bitcast<f32>(u) + a[2]; // <- unbarriered",
    );
    planted(
        "",
        "let u = bitcast<u32>(a[0] * a[1]) + 0u; // <- unbarriered\ny[lane] = bitcast<f32>(u) + a[2]; // <- unbarriered",
    );
    planted("", "var i = bitcast<i32>(a[0] * a[1]);\ny[lane] = bitcast<f32>(i) + a[2]; // <- unbarriered");
}

#[test]
fn a_sign_flip_in_bits_is_no_barrier() {
    planted(
        "",
        "let u = bitcast<u32>(a[0] * a[1]) ^ 0x80000000u; // <- unbarriered\ny[lane] = bitcast<f32>(u) + a[2]; // <- unbarriered",
    );
    planted(
        "",
        "let u = bitcast<u32>(a[0] * a[1]) ^ (words[0] & 0x80000000u); // <- unbarriered\n\
         y[lane] = bitcast<f32>(u) + a[2]; // <- unbarriered",
    );
}

#[test]
fn overrides_are_operands_like_others() {
    planted("override k: f32 = 2.0;", "y[lane] = a[0] * k + a[1]; // <- unbarriered");
    planted("override k: f32 = 2.0;\noverride m: f32 = k * 3.0 + 1.0; // <- unbarriered", "y[lane] = a[0] * m;");
}

#[test]
fn an_unbarriered_sum_in_a_function_that_nobody_calls_is_reported() {
    planted("fn unused(x: f32) -> f32 {\nreturn x * x + x; // <- unbarriered\n}", "");
}

#[test]
fn a_missing_inner_barrier_of_a_tail_is_reported() {
    planted(
        "",
        "var acc = 0.0;\nlet s = i32(words[0]);\n\
         acc = B(acc + B(a[0] * a[1] * f32(s))); // <- unbarriered\ny[lane] = acc;",
    );
    planted(
        "",
        "var acc = 0.0;\nlet s = i32(words[0]);\n\
         acc = B(acc + B(a[0] * a[1]) * f32(s)); // <- unbarriered\ny[lane] = acc;",
    );
}

// Barriers whose zero is not one.

/// A shader with its own barrier; `declarations` and `body` come before and inside `main`.
fn own_zero(declarations: &str, main_body: &str) -> String {
    format!(
        "@group(0) @binding(0) var<storage, read> a: array<f32>;\n\
         @group(0) @binding(1) var<storage, read_write> y: array<f32>;\n\
         {declarations}\n\
         @compute @workgroup_size(64)\n\
         fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) num: vec3<u32>,\n\
         @builtin(global_invocation_id) gid: vec3<u32>) {{\n{main_body}\n}}\n"
    )
}

const FED: &str = "fn B(x: f32, z: u32) -> f32 { return bitcast<f32>(bitcast<u32>(x) | z); }";

#[test]
fn a_literal_zero_is_reported() {
    shader(&own_zero(
        "fn B(x: f32) -> f32 {\nreturn bitcast<f32>(bitcast<u32>(x) | 0u); // <- barrier-zero-source\n}",
        "y[0] = B(a[0] * a[1]) + a[2];",
    ));
    shader(&own_zero(
        "fn B(x: vec4<f32>) -> vec4<f32> {\n\
         return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) | vec4<u32>()); // <- barrier-zero-source\n}",
        "y[0] = B(vec4(a[0] * a[1])).x + a[2];",
    ));
}

#[test]
fn a_constant_zero_is_reported() {
    shader(&own_zero(
        "const ZERO: u32 = 0u;\n\
         fn B(x: f32) -> f32 {\nreturn bitcast<f32>(bitcast<u32>(x) | ZERO); // <- barrier-zero-source\n}",
        "y[0] = B(a[0] * a[1]) + a[2];",
    ));
}

#[test]
fn an_override_zero_is_reported() {
    shader(&own_zero(
        "override ZERO: u32 = 0u;\n\
         fn B(x: f32) -> f32 {\nreturn bitcast<f32>(bitcast<u32>(x) | ZERO); // <- barrier-zero-source\n}",
        "y[0] = B(a[0] * a[1]) + a[2];",
    ));
}

#[test]
fn a_literal_zero_through_a_parameter_is_reported() {
    shader(&own_zero(
        "fn B(x: f32, z: u32) -> f32 {\n\
         return bitcast<f32>(bitcast<u32>(x) | z); // <- barrier-zero-source\n}",
        "y[0] = B(a[0] * a[1], wg.z) + a[2];\ny[1] = B(a[0] * a[1], 0u) + a[2];",
    ));
}

#[test]
fn a_private_zero_that_nobody_sets_is_reported() {
    for declared in ["var<private> zero: u32;", "var<private> zero: u32 = 0u;"] {
        shader(&own_zero(
            &format!(
                "{declared}\nfn B(x: f32) -> f32 {{\n\
                 return bitcast<f32>(bitcast<u32>(x) | zero); // <- barrier-zero-source\n}}"
            ),
            "y[0] = B(a[0] * a[1]) + a[2];",
        ));
    }
}

#[test]
fn a_private_zero_set_from_a_literal_is_reported() {
    shader(&own_zero(
        "var<private> zero: u32;\nfn B(x: f32) -> f32 {\n\
         return bitcast<f32>(bitcast<u32>(x) | zero); // <- barrier-zero-source\n}",
        "zero = wg.z;\nif (gid.x == 3u) { zero = 0u; }\ny[0] = B(a[0] * a[1]) + a[2];",
    ));
}

const PRIVATE: &str = "var<private> zero: u32;\n\
     fn B(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) | zero); }";

#[test]
fn a_private_zero_set_too_late_is_reported() {
    shader(&own_zero(PRIVATE, "y[0] = B(a[0] * a[1]) + a[2]; // <- barrier-zero-unset\nzero = wg.z;"));
    shader(&own_zero(
        PRIVATE,
        "if (gid.x == 0u) { zero = wg.z; }\ny[0] = B(a[0] * a[1]) + a[2]; // <- barrier-zero-unset",
    ));
    shader(&own_zero(
        PRIVATE,
        "for (var i = 0u; i < 3u; i++) { zero = wg.z; }\n\
         y[0] = B(a[0] * a[1]) + a[2]; // <- barrier-zero-unset",
    ));
}

#[test]
fn a_private_zero_set_before_every_use_passes() {
    shader(&own_zero(
        PRIVATE,
        "if (gid.x > 9u) { return; }\nzero = wg.z;\nif (gid.x > 3u) { y[0] = B(a[0] * a[1]) + a[2]; }",
    ));
    shader(&own_zero(
        &format!("{PRIVATE}\nfn start(z: u32) {{ zero = z; }}"),
        "start(wg.z);\ny[0] = B(a[0] * a[1]) + a[2];",
    ));
}

#[test]
fn zeros_from_other_inputs_are_reported() {
    for source in ["wg.x", "wg.y", "num.z", "gid.z", "arrayLength(&a)"] {
        shader(&own_zero(
            "fn B(x: f32, z: u32) -> f32 {\n\
             return bitcast<f32>(bitcast<u32>(x) | z); // <- barrier-zero-source\n}",
            &format!("y[0] = B(a[0] * a[1], {source}) + a[2];"),
        ));
    }
}

#[test]
fn an_or_with_a_computed_value_is_no_barrier() {
    for source in ["num.x - 1u", "wg.z * 2u", "min(wg.z, 1u)"] {
        shader(&own_zero(FED, &format!("y[0] = B(a[0] * a[1], {source}) + a[2]; // <- unbarriered")));
    }
}

#[test]
fn a_barrier_by_exclusive_or_is_reported_and_counts() {
    shader(&own_zero(
        "fn B(x: f32, z: u32) -> f32 {\nreturn bitcast<f32>(bitcast<u32>(x) ^ z); // <- barrier-cancels\n}",
        "var t = 0.0;\nfor (var i = 0u; i < 4u; i++) { t = B(t + B(a[i] * a[i + 4u], wg.z), wg.z); }\ny[0] = t;",
    ));
    shader(&own_zero(
        "fn B(x: f32, z: u32) -> f32 {\nreturn bitcast<f32>(bitcast<u32>(x) ^ z); // <- barrier-zero-source\n}",
        "y[0] = B(a[0] * a[1], wg.x) + a[2];",
    ));
}

#[test]
fn a_zero_from_workgroup_memory_is_reported() {
    shader(&own_zero(
        "var<workgroup> held: u32;\nfn B(x: f32) -> f32 {\n\
         return bitcast<f32>(bitcast<u32>(x) | held); // <- barrier-zero-source\n}",
        "held = wg.z;\ny[0] = B(a[0] * a[1]) + a[2];",
    ));
}

#[test]
fn a_zero_from_a_buffer_that_the_shader_writes_is_reported() {
    shader(&own_zero(
        "@group(0) @binding(2) var<storage, read_write> z: array<u32>;\nfn B(x: f32) -> f32 {\n\
         return bitcast<f32>(bitcast<u32>(x) | z[0]); // <- barrier-zero-source\n}",
        "z[0] = 0u;\ny[0] = B(a[0] * a[1]) + a[2];",
    ));
}

#[test]
fn a_zero_that_bounds_a_loop_is_reported() {
    shader(&own_zero(
        FED,
        "var acc = 0.0;\nfor (var i = 0u; i < wg.z + 4u; i++) { // <- barrier-zero-control-flow\n\
         acc = B(acc + a[i], wg.z);\n}\ny[0] = acc;",
    ));
    shader(&own_zero(
        FED,
        "var acc = 0.0;\nvar i = 0u;\nloop {\nacc = B(acc + a[i], wg.z);\n\
         continuing {\ni++;\nbreak if i > wg.z; // <- barrier-zero-control-flow\n}\n}\ny[0] = acc;",
    ));
}

#[test]
fn a_zero_in_a_condition_is_reported() {
    shader(&own_zero(
        FED,
        "y[0] = B(a[0] * a[1], wg.z) + a[2];\nif (wg.z == 0u) { y[1] = 1.0; } // <- barrier-zero-control-flow",
    ));
    shader(&own_zero(
        FED,
        "y[0] = B(a[0] * a[1], wg.z) + a[2];\nswitch wg.z { // <- barrier-zero-control-flow\n\
         case 0u: { y[1] = 1.0; }\ndefault: {}\n}",
    ));
    shader(&own_zero(
        FED,
        "y[0] = B(a[0] * a[1], wg.z) + a[2];\ny[1] = select(1.0, 2.0, wg.z > 0u); // <- barrier-zero-control-flow",
    ));
}

#[test]
fn a_zero_that_is_an_index_is_reported() {
    shader(&own_zero(FED, "y[0] = B(a[0] * a[1], wg.z) + a[2];\ny[wg.z * 8u] = 1.0; // <- barrier-zero-control-flow"));
}

#[test]
fn a_zero_that_decides_in_another_function_or_through_variables_is_reported() {
    shader(&own_zero(
        "var<private> zero: u32;\nvar<private> kept: u32;\n\
         fn B(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) | zero); }\n\
         fn last(n: u32) -> bool { return n > 3u; }\n\
         fn end() -> f32 {\nif (last(kept)) { return 1.0; } // <- barrier-zero-control-flow\nreturn 2.0;\n}",
        "zero = wg.z;\nkept = zero + 1u;\ny[0] = B(a[0] * a[1]) + end();",
    ));
}

#[test]
fn the_global_ids_z_counts_as_the_workgroups() {
    shader(&own_zero(
        FED,
        "if (gid.z > 0u) { return; } // <- barrier-zero-control-flow\ny[0] = B(a[0] * a[1], wg.z) + a[2];",
    ));
}

#[test]
fn other_components_of_the_workgroup_id_may_decide() {
    shader(&own_zero(
        FED,
        "let row = wg.x * 4u + gid.y;\nif (row > 9u || wg.y == 3u) { return; }\ny[row] = B(a[row] * a[1], wg.z) + a[2];",
    ));
    shader(&own_zero(
        &format!(
            "{PRIVATE}\nfn inner(id: vec3<u32>) {{ zero = id.z; if (id.x > 3u) {{ y[1] = B(a[0] + a[1]) + a[2]; }} }}"
        ),
        "inner(wg);",
    ));
}

const UNIFORM: &str = "struct P { n: u32, zero: u32, k: f32 }\n\
     @group(0) @binding(2) var<uniform> p: P;\n\
     fn B(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) | p.zero); }";

#[test]
fn a_uniform_zero_that_reaches_a_branch_is_reported() {
    shader(&own_zero(
        UNIFORM,
        "y[0] = B(a[0] * a[1]) + a[2];\nif (p.zero < p.n) { y[1] = 1.0; } // <- barrier-zero-control-flow",
    ));
    shader(&own_zero(
        UNIFORM,
        "for (var i = p.zero; i < p.n; i++) { // <- barrier-zero-control-flow\n\
         y[i] = B(a[i] * a[1]) + a[2]; // <- barrier-zero-control-flow\n}",
    ));
}

#[test]
fn a_uniform_zero_used_elsewhere_is_reported() {
    shader(&own_zero(UNIFORM, "y[0] = B(a[0] * a[1]) + a[2];\ny[1] = f32(p.zero); // <- barrier-zero-shared"));
    shader(&own_zero(
        &format!("{UNIFORM}\n@group(0) @binding(3) var<storage, read_write> out: array<u32>;"),
        "y[0] = B(a[0] * a[1]) + a[2];\nout[1] = p.zero; // <- barrier-zero-shared",
    ));
}

#[test]
fn a_uniform_zero_used_nowhere_else_passes() {
    shader(&own_zero(UNIFORM, "for (var i = 0u; i < p.n; i++) { y[i] = B(a[i] * p.k) + a[2]; }"));
    // The struct is copied whole, and its other members decide.
    shader(&own_zero(
        "struct P { n: u32, zero: u32, k: f32 }\n@group(0) @binding(2) var<uniform> p: P;\n\
         fn B(x: f32, q: P) -> f32 { return bitcast<f32>(bitcast<u32>(x) | q.zero); }",
        "let q = p;\nfor (var i = 0u; i < q.n; i++) { y[i] = B(a[i] * q.k, q) + a[2]; }",
    ));
}

// Clean shaders.

#[test]
fn the_canonical_tail_passes() {
    clean(
        "fn canon(x: f32) -> f32 { return select(x, 0.0, abs(x) < 8.8817842e-16); }",
        "var total = 0.0;\nfor (var s = 0u; s < params.n; s++) {\nvar acc = 0.0;\n\
         for (var g = 0u; g < params.dims.x; g++) {\n\
         let isum = dot4I8Packed(words[g], words[g + 1u]);\n\
         let d = a[g];\nlet da = a[g + 1u];\n\
         acc = B(acc + B(B(d * da) * f32(isum)));\n}\n\
         total = B(total + acc);\n}\ny[lane] = canon(total);",
    );
}

#[test]
fn a_result_stored_without_a_barrier_passes() {
    clean("", "y[lane] = B(a[0] * a[1]) + a[2];\ny[lane + 1u] = max(a[0] * a[1], 0.0);");
}

#[test]
fn comparisons_and_integers_of_barriered_results_pass() {
    clean(
        "",
        "let p = B(a[0] * a[1]);\nif (p > 0.5) { y[0] = 1.0; }\nlet code = i32(round(B(a[0] * a[2])));\n\
         y[1] = f32(code) * a[3];\ny[2] = select(a[0], a[1], p < a[3]) + a[4];\ny[3] = f32(bitcast<u32>(p) >> 23u) + a[5];",
    );
}

#[test]
fn a_workgroup_tree_with_barriers_passes() {
    clean(
        "",
        "lanes[lane] = a[lane];\nfor (var s = 32u; s > 0u; s = s / 2u) {\nworkgroupBarrier();\n\
         if (lane < s) { lanes[lane] = B(lanes[lane] + lanes[lane + s]); }\n}\n\
         workgroupBarrier();\ny[lane] = B(lanes[0] * params.scale) + params.eps;",
    );
}

#[test]
fn a_maximum_tree_passes() {
    clean(
        "",
        "lanes[lane] = abs(B(a[lane] * a[lane + 1u]));\nfor (var s = 32u; s > 0u; s = s >> 1u) {\nworkgroupBarrier();\n\
         if (lane < s) { lanes[lane] = max(lanes[lane], lanes[lane + s]); }\n}\n\
         workgroupBarrier();\ny[lane] = a[lane] - lanes[0];",
    );
}

#[test]
fn vectors_with_barriers_pass() {
    clean("", "let v = B4(b[0] * b[1]);\nlet w = B4(v + b[2]);\ny[lane] = B(B(B(w.x + w.y) + w.z) + w.w);");
}

#[test]
fn a_storage_zero_passes() {
    shader(&own_zero(
        "@group(0) @binding(2) var<storage, read> z: array<u32>;\n\
         fn B(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) | z[0]); }",
        "y[0] = B(a[0] * a[1]) + a[2];",
    ));
    shader(&own_zero(
        "@group(0) @binding(2) var<storage, read> z: u32;\nvar<private> zero: u32;\n\
         fn B(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) | zero); }",
        "zero = z;\ny[0] = B(a[0] * a[1]) + a[2];",
    ));
}

#[test]
fn the_zero_may_travel_by_parameter_variable_and_vector() {
    shader(&own_zero(FED, "y[0] = B(a[0] * a[1], wg.z) + a[2];"));
    shader(&own_zero(FED, "let id = wg;\nvar z = id.z;\ny[0] = B(a[0] * a[1], z) + a[2];"));
    shader(&own_zero(
        "var<private> id: vec3<u32>;\n\
         fn B(x: f32) -> f32 { return bitcast<f32>(id.z | bitcast<u32>(x)); }",
        "id = wg;\nif (id.x > 4u) { return; }\ny[0] = B(a[0] * a[1]) + a[2];",
    ));
    shader(&own_zero(
        "struct In { @builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32 }\n\
         var<private> zero: i32;\n\
         fn B(x: f32) -> f32 { return bitcast<f32>(bitcast<i32>(x) | zero); }\n\
         @compute @workgroup_size(64) fn second(in: In) {\n\
         zero = i32(in.wg.z);\nif (in.lane > 3u) { y[in.wg.x] = B(a[0] * a[1]) + a[2]; }\n}",
        "zero = bitcast<i32>(wg.z);\ny[0] = B(a[0] * a[1]) + a[2];",
    ));
}

#[test]
fn a_barriered_value_may_decide() {
    clean("", "let x = B(a[0] * a[1]);\nif (x > 0.5) { y[u32(x)] = 1.0; }\ny[0] = select(x, 0.0, abs(x) < 0.25);");
}

#[test]
fn integer_long_division_of_bits_passes() {
    clean(
        "fn quotient(n: f32, d: f32) -> f32 {\n\
         let s = (bitcast<u32>(n) ^ bitcast<u32>(d)) & 0x80000000u;\n\
         let m = (bitcast<u32>(n) & 0x7fffffu) | 0x800000u;\n\
         let e = (bitcast<u32>(d) & 0x7fffffu) | 0x800000u;\n\
         var q = 0u;\nvar r = m;\n\
         for (var i = 0; i < 24; i++) { q = q << 1u; if (r >= e) { r -= e; q |= 1u; } r = r << 1u; }\n\
         return bitcast<f32>(s | (q & 0x7fffffu) | 0x3f800000u);\n}",
        "y[lane] = B(B(a[0] + 1.0) * quotient(1.0, B(a[1] + a[2]))) + 2.0;",
    );
}

#[test]
fn an_exponent_added_to_barriered_bits_passes() {
    clean(
        "fn scaled(x: f32) -> f32 {\nlet k = round(B(x * 1.44269504));\n\
         let r = B(B(x - B(k * 0.693359375)) - B(k * -2.12194440e-4));\nlet y0 = B(r + 1.0);\n\
         return bitcast<f32>(bitcast<u32>(y0) + (u32(i32(k)) << 23u));\n}",
        "y[lane] = B(1.0 + scaled(a[lane])) * 0.5;",
    );
}

#[test]
fn a_barrier_inside_a_helper_serves_all_callers() {
    body(
        "fn mul(x: f32, z: f32) -> f32 { return B(x * z); }\nfn raw(x: f32, z: f32) -> f32 { return x * z; }",
        "y[0] = mul(mul(a[0], a[1]), a[2]) + a[3];\ny[1] = mul(raw(a[0], a[1]), a[2]); // <- unbarriered",
    );
}

// Fourteen edits that this lint once let pass. Each is refused, or says why this lint cannot see it and which check does.

#[test]
fn edit_1_a_sum_compared_with_its_own_operand() {
    planted("", "if (a[0] + a[1] > a[0]) { y[lane] = 1.0; } // <- unbarriered");
    planted("", "y[lane] = step(a[0], a[0] + a[1]); // <- unbarriered");
}

#[test]
fn edit_2_products_compared() {
    planted("", "y[lane] = select(1.0, 2.0, a[0] * a[1] == a[2] * a[3]); // <- unbarriered");
    planted("", "let v = b[0] * b[1] < b[2]; // <- unbarriered\nif (all(v)) { y[lane] = 1.0; }");
}

#[test]
fn edit_3_a_rounded_product_as_an_integer() {
    planted("", "y[lane] = f32(i32(floor(a[0] * a[1]))); // <- unbarriered");
    for rounding in ["floor", "ceil", "round", "trunc", "i32", "u32", "sign"] {
        planted("", &format!("y[lane] = f32({rounding}(a[0] * a[1])); // <- unbarriered"));
    }
    // Behind a call, where it is made.
    planted(
        "fn whole(x: f32) -> i32 { return i32(x); }",
        "y[0] = f32(whole(B(a[0] * a[1])));\ny[1] = f32(whole(a[0] * a[1])); // <- unbarriered",
    );
}

#[test]
fn edit_4_a_result_compared_with_its_barrier() {
    planted("", "let p = a[0] * a[1];\nif (p == B(p)) { y[lane] = 1.0; } // <- unbarriered");
}

#[test]
fn edit_5_a_float_sum_across_a_subgroup_by_shuffles() {
    let source = "@group(0) @binding(0) var<storage, read_write> y: array<f32>;\n\
         var<private> zero: u32;\n\
         fn B(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) | zero); }\n\
         @compute @workgroup_size(64)\n\
         fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32,\n\
         @builtin(subgroup_size) size: u32) {\n\
         zero = wg.z;\nvar acc = y[lane];\n\
         for (var s = size / 2u; s > 0u; s = s / 2u) {\n\
         acc = B(acc + subgroupShuffleXor(acc, s)); // <- float-subgroup\n\
         acc = subgroupBroadcast(acc, 0u); // <- float-subgroup\n\
         acc = bitcast<f32>(subgroupShuffleDown(bitcast<u32>(acc), 1u)); // <- float-subgroup\n\
         }\ny[lane] = acc;\n}\n";
    compare(source, &check_with("planted", source, Capabilities::SUBGROUP));
}

#[test]
fn edit_6_a_float_sum_by_compare_and_exchange() {
    planted(
        "var<workgroup> total: atomic<u32>;",
        "loop {\nlet old = atomicLoad(&total);\nlet sum = bitcast<u32>(B(bitcast<f32>(old) + a[lane]));\n\
         if (atomicCompareExchangeWeak(&total, old, sum).exchanged) { break; } // <- atomic-order\n}\n\
         y[0] = bitcast<f32>(atomicLoad(&total));",
    );
    planted(
        "var<workgroup> total: atomic<u32>;",
        "let old = atomicExchange(&total, 3u); // <- atomic-order\ny[lane] = bitcast<f32>(old);",
    );
}

#[test]
fn edit_7_places_in_a_list_from_an_atomic() {
    planted(
        "var<workgroup> used: atomic<u32>;",
        "let place = atomicAdd(&used, 1u); // <- atomic-order\ny[place] = a[lane];",
    );
    clean(
        "var<workgroup> used: atomic<u32>;",
        "atomicAdd(&used, 1u);\natomicMax(&used, bitcast<u32>(a[lane]));\nworkgroupBarrier();\n\
         y[lane] = f32(atomicLoad(&used));",
    );
}

#[test]
fn edit_8_a_tree_without_workgroup_barriers_is_not_seen() {
    // Lanes own elements by arithmetic on indices (butterflies, tiles), and a rule that asks for a barrier between every
    // write and read of a variable reported 100 places of clean shaders. A race shows as words that differ from the twin's:
    // `twins` runs every kernel, on software drivers too, which run a workgroup in pieces.
    clean(
        "",
        "lanes[lane] = a[lane];\nfor (var s = 32u; s > 0u; s = s / 2u) {\n\
         if (lane < s) { lanes[lane] = B(lanes[lane] + lanes[lane + s]); }\n}\ny[0] = lanes[0];",
    );
}

#[test]
fn edit_9_workgroup_memory_that_nothing_writes() {
    planted("var<workgroup> never: array<f32, 64>; // <- workgroup-unwritten", "y[lane] = never[lane];");
    // Elements that are not written while others are: the lint does not count elements. The program asks wgpu not to clear
    // workgroup memory, so that the words of two runs on a device differ from the twin's (`twins`).
    clean("", "if (lane < 3u) { lanes[lane] = a[lane]; }\nworkgroupBarrier();\ny[lane] = lanes[lane];");
}

#[test]
fn edit_10_integers_of_what_may_be_no_number() {
    planted("", "y[lane] = f32(i32(a[lane])); // <- not-finite");
    planted("fn code(x: f32) -> u32 {\nreturn u32(x); // <- not-finite\n}", "y[lane] = f32(code(a[0]));");
    // In a function that is listed, with its reason.
    planted(
        "fn round_away(x: f32) -> i32 { return i32(trunc(x)); }",
        "y[0] = f32(round_away(a[0]));\ny[1] = f32(i32(a[0])); // <- not-finite",
    );
}

#[test]
fn edit_11_the_greatest_of_what_may_be_no_number() {
    for call in ["min(a[0], a[1])", "max(a[0], 0.5)", "clamp(a[0], -87.0, 88.0)", "saturate(a[0])", "max(b[0], b[1]).x"]
    {
        planted("", &format!("y[lane] = {call}; // <- not-finite"));
    }
    planted("", "if (a[0] > a[1]) { y[lane] = 1.0; } // <- not-finite");
    planted("", "y[lane] = f32(max(words[0], words[1])) + round(a[0]); // <- not-finite");
}

#[test]
fn every_function_that_the_lint_excuses_has_a_reason_and_stands_there_once() {
    let mut names = std::collections::BTreeSet::new();
    for (shader, function, reason) in lint::FINITE {
        assert!(reason.split_whitespace().count() > 3, "{function}: {reason:?}");
        assert!(names.insert((shader, function)), "{function} twice");
    }
}

#[test]
fn edit_12_floats_of_big_integers_are_not_seen() {
    // The lint does not follow magnitudes. docs/exactness.md bounds every integer sum, the case table has the extremes of
    // each type, and a device's words are compared with the twin's, which converts with one rounding.
    clean("", "y[lane] = f32(words[0] * words[1]);");
}

#[test]
fn edit_13_arithmetic_that_changes_no_number() {
    for arithmetic in
        ["a[0] * 1.0", "a[0] * 0.0", "0.0 + a[0]", "a[0] - 0.0", "(b[0] * vec4(1.0)).x", "(b[0] + vec4<f32>()).x"]
    {
        planted("", &format!("y[lane] = {arithmetic}; // <- float-identity"));
    }
    clean("const HALF: f32 = 0.5;", "y[lane] = B(a[0] * HALF) - 1.0;\ny[lane + 1u] = f32(words[0] * 1u);");
    // A sum from 0 whose loop a compiler unrolls is the same in its IR, and harmless: the barriers that then meet stay one.
    clean("", "var t = 0.0;\nfor (var i = 0u; i < 4u; i++) { t = B(t + B(a[i] * a[i + 4u])); }\ny[lane] = t;");
}

#[test]
fn edit_14_integer_arithmetic_on_the_bits_of_a_result() {
    planted("", "y[lane] = f32(bitcast<u32>(a[0] + a[1]) + 3u); // <- unbarriered");
    planted("", "y[lane] = f32(countOneBits(bitcast<u32>(a[0] * a[1]))); // <- unbarriered");
    planted("", "if (bitcast<i32>(a[0] * a[1]) < 0) { y[lane] = 1.0; } // <- unbarriered");
}

// Matrices.

/// The findings of a shader on matrices, as `line rule`.
fn on_matrices(text: &str, granted: naga::valid::Capabilities) -> Vec<String> {
    let head = "enable f16;\nenable wgpu_cooperative_matrix;\nvar<private> zero: u32;\n\
        fn bar(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) | zero); }\n\
        @group(0) @binding(0) var<storage, read_write> y: array<f32>;\n\
        var<workgroup> h: array<f16, 64>;\nvar<workgroup> s: array<f32, 64>;\n\
        @compute @workgroup_size(64)\n\
        fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {\nzero = wid.z;\n";
    let lines = head.lines().count() as u32;
    let found = lint::check_with("planted", &format!("{head}{text}\n}}\n"), granted);
    found.into_iter().map(|f| format!("{} {}", f.line.saturating_sub(lines), f.rule)).collect()
}

#[test]
fn matrices_of_integers_pass_where_they_are_granted_and_arithmetic_on_f16_and_bare_sums_never() {
    use naga::valid::Capabilities;
    let granted = Capabilities::SHADER_FLOAT16 | Capabilities::COOPERATIVE_MATRIX;
    let sums = "h[lane] = f16(i32(lane));\nworkgroupBarrier();\n\
        let a = coopLoadT<coop_mat8x8<f16, A>>(&h[0], 8u);\nlet b = coopLoad<coop_mat8x8<f16, B>>(&h[0], 8u);\n\
        var c: coop_mat8x8<f32, C>;\nc = coopMultiplyAdd(a, b, c);\ncoopStore(c, &s[0], 8u);\nworkgroupBarrier();\n";
    let none = Vec::<String>::new();
    let with = |rest: &str, granted| on_matrices(&format!("{sums}{rest}"), granted);
    assert_eq!(with("y[lane] = bar(bar(s[lane]) * 0.5);", granted), none);
    // not granted: nothing of it passes
    let refused = with("y[lane] = bar(s[lane]);", Capabilities::SHADER_FLOAT16);
    for rule in ["3 forbidden-builtin", "6 forbidden-builtin", "1 float-width"] {
        assert!(refused.iter().any(|f| f == rule), "{rule}: {refused:?}");
    }
    // a sum is a rounded result like any other
    assert_eq!(with("y[lane] = bar(s[lane] * 0.5);", granted), ["9 unbarriered"]);
    // f16 is for matrices alone
    assert_eq!(with("h[lane] = h[lane] * h[0];", granted), ["9 float-width", "9 unbarriered"]);
    assert_eq!(with("y[lane] = f32(h[lane]);", granted), ["9 float-width"]);
    assert_eq!(with("h[lane] = f16(y[lane]);", granted), ["9 float-width"]);
    assert_eq!(with("c = c + c;", granted), ["9 forbidden-builtin", "9 unbarriered"]);
}
