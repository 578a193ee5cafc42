//! How shaders are put together, and that whatever is wrong with one is told at the line it was written in.

use isobit::internals::host::expand::{self, Expanded, Files, Place, Problems, place_of};
use isobit::internals::host::shaders::{SHADERS, code};
use std::collections::BTreeSet;
use std::path::Path;

#[path = "../../../host/reflect.rs"]
mod reflect;

/// The files of `shaders/`, as `build.rs` reads them.
pub fn sources() -> Files {
    fn read(dir: &Path, path: &str, files: &mut Files) {
        for entry in std::fs::read_dir(dir).expect("shaders are readable") {
            let entry = entry.expect("shaders are readable").path();
            let name = entry.file_name().and_then(|n| n.to_str()).expect("ASCII");
            match entry.is_dir() {
                true => read(&entry, &format!("{path}{name}/"), files),
                false => {
                    let text = std::fs::read_to_string(&entry).expect("shaders are text");
                    files.insert(format!("{path}{name}"), text);
                }
            }
        }
    }
    let mut files = Files::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders"), "", &mut files);
    files
}

fn files(list: &[(&str, &str)]) -> Files {
    list.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect()
}

fn expanded(list: &[(&str, &str)]) -> Vec<Expanded> {
    expand::expand(&files(list)).unwrap_or_else(|e| panic!("{:?}", e.lines()))
}

fn refused(list: &[(&str, &str)]) -> Vec<String> {
    expand::expand(&files(list)).map(|_| ()).expect_err("something is wrong").lines()
}

/// What `build.rs` says of expanded shaders.
fn judged<'a>(shaders: impl IntoIterator<Item = &'a Expanded>) -> Vec<String> {
    let mut problems = Problems::default();
    for shader in shaders {
        if let Err((place, what)) = reflect::row(shader) {
            problems.add(place, what, Some(&shader.name));
        }
    }
    problems.lines()
}

#[test]
fn imports_are_expanded_once_and_every_line_knows_where_it_is_from() {
    let shaders = expanded(&[
        ("one.wgsl", "// One.\n#import a\n#import b\nlast\n"),
        ("shared/x/a.wgsl", "enable subgroups;\nfirst of a\n#import b\n\nsecond of a\n"),
        ("shared/b.wgsl", "// B.\nof b\n"),
    ]);
    let [one] = &shaders[..] else { panic!("{shaders:?}") };
    let text = "// from shaders/one.wgsl:1\n// One.\n// from shaders/shared/x/a.wgsl:2\nfirst of a\n\
                // from shaders/shared/b.wgsl:1\n// B.\nof b\n// from shaders/shared/x/a.wgsl:4\n\nsecond of a\n\
                // from shaders/one.wgsl:4\nlast\n";
    assert_eq!(one.text, text);
    assert_eq!((one.name.as_str(), &one.enables[..]), ("one", &["subgroups".to_string()][..]));
    assert_eq!(one.imports, BTreeSet::from(["shared/x/a.wgsl".to_string(), "shared/b.wgsl".to_string()]));
    let places = [
        "one.wgsl:1",
        "one.wgsl:1",
        "shared/x/a.wgsl:2",
        "shared/x/a.wgsl:2",
        "shared/b.wgsl:1",
        "shared/b.wgsl:1",
        "shared/b.wgsl:2",
        "shared/x/a.wgsl:4",
        "shared/x/a.wgsl:4",
        "shared/x/a.wgsl:5",
        "one.wgsl:4",
        "one.wgsl:4",
    ];
    for (line, expected) in (1..).zip(places) {
        let found = place_of(text, line).expect("there is a mark before it");
        assert_eq!(found.to_string(), format!("shaders/{expected}"), "line {line}");
    }
    assert_eq!(place_of("fn main() {}\n// from where it was: 3\n", 2), None);
    assert_eq!(code(text), "first of a\nof b\nsecond of a\nlast\n");
}

#[test]
fn a_row_of_the_table_is_its_frames_with_its_parts() {
    let table =
        "# Rows.\nframe tile *_tile: T=4u base PART\nframe plain of_*: base\n\na b: tile plain\n    PART: of_* T2=*\n";
    let shaders = expanded(&[
        ("table", table),
        ("c.wgsl", "c\n"),
        ("shared/base.wgsl", "base\n"),
        ("shared/of_a.wgsl", "of a\n"),
        ("shared/of_b.wgsl", "of b\n"),
    ]);
    let codes: Vec<(String, String)> = shaders.iter().map(|s| (s.name.clone(), code(&s.text))).collect();
    let expected = [
        ("a_tile", "const T = 4u;\nbase\nof a\nconst T2 = a;\n"),
        ("b_tile", "const T = 4u;\nbase\nof b\nconst T2 = b;\n"),
        ("c", "c\n"),
        ("of_a", "base\n"),
        ("of_b", "base\n"),
    ];
    assert_eq!(codes, expected.map(|(a, b)| (a.to_string(), b.to_string())));
    assert_eq!(shaders[0].declared.to_string(), "shaders/table:5");
    let from: Vec<&str> = shaders[0].text.lines().filter(|l| l.starts_with("// from ")).collect();
    assert_eq!(from[0], "// from shaders/table:2");
    assert_eq!(from.last(), Some(&"// from shaders/table:6"));
}

#[test]
fn a_wrong_import_is_told_once_at_its_line_with_the_shaders_that_come_to_it() {
    let broken = "fn f() {}\n#import absent\n";
    for (list, expected) in [
        (
            &[("a.wgsl", "#import one\n"), ("b.wgsl", "x\n#import one\n"), ("shared/one.wgsl", broken)][..],
            "shaders/shared/one.wgsl:2: cannot import absent: there is no absent.wgsl below shaders/shared (in a and b)",
        ),
        (
            &[("a.wgsl", "\n#import\n"), ("shared/one.wgsl", "")],
            "shaders/a.wgsl:2: `#import` is not `#import NAME`, at the line's beginning (in a)",
        ),
        (
            &[("a.wgsl", "  #import one\n"), ("shared/one.wgsl", "")],
            "shaders/a.wgsl:1: `#import one` is not `#import NAME`, at the line's beginning (in a)",
        ),
        (
            &[("a.wgsl", "#include one\n"), ("shared/one.wgsl", "")],
            "shaders/a.wgsl:1: `#include one` is not `#import NAME`, at the line's beginning (in a)",
        ),
        (
            &[("a.wgsl", "#import one two\n"), ("shared/one.wgsl", "")],
            "shaders/a.wgsl:1: cannot import one two: there is no one two.wgsl below shaders/shared (in a)",
        ),
        (
            &[("a.wgsl", "#import one\n"), ("shared/x/one.wgsl", ""), ("shared/y/one.wgsl", "")],
            "shaders/shared/y/one.wgsl:1: two files are imported as one: shaders/shared/x/one.wgsl is the other",
        ),
        (
            &[("table", "frame f *_f: absent\na b c: f\n")],
            "shaders/table:1: cannot import absent: there is no absent.wgsl below shaders/shared (in a_f and 2 others)",
        ),
    ] {
        assert_eq!(refused(list), [expected], "{list:?}");
    }
}

#[test]
fn a_wrong_table_is_told_at_its_line() {
    let frame = "frame f *_f: one PART\n";
    for (rows, expected) in [
        ("a: f\n", "2: the frame f needs PART, which the row does not give"),
        ("a: f g\n    PART: one\n", "2: there is no frame g"),
        ("a: f\n    PART: one\n    OTHER: one\n", "4: no frame of the row has OTHER"),
        ("a: f\n    PART: one\n    PART: one\n", "4: a second PART of one row"),
        ("a: f\n    PART: OTHER\n", "3: a part is written `PART: WORDS` below a row, without another part in it"),
        ("a: f\n    part: one\n", "3: a part is written `PART: WORDS` below a row, without another part in it"),
        ("a: f\n    PART: one\na f\n", "4: a line without a colon"),
        ("a: f\n    PART: one\nb:\n", "4: nothing before the colon, or nothing after it"),
        ("a: f\n    PART: one\nframe f *_g: one\n", "4: a second frame f"),
        ("a: f\n    PART: one\nframe g g: one\n", "4: a frame is written `frame NAME STEM: WORDS`, with one * in STEM"),
        ("a: f\n    PART: one\nframe g *_g: one\n", "4: no row has the frame g"),
        ("a a: f\n    PART: one\n", "2: the shader a_f is declared twice: shaders/table:2 is it too"),
        ("b: f\n    PART: one\n", "2: the shader b_f is declared twice: shaders/b_f.wgsl:1 is it too"),
    ] {
        let table = format!("{frame}{rows}");
        let lines = refused(&[("table", &table), ("b_f.wgsl", ""), ("shared/one.wgsl", "")]);
        assert!(lines.contains(&format!("shaders/table:{expected}")), "{rows:?}: {lines:?}");
    }
}

/// A kernel that imports `broken`.
const IMPORTS: &str = "#import broken\n@compute @workgroup_size(1)\nfn main() {\n    f();\n}\n";

#[test]
fn what_naga_refuses_is_told_once_at_its_source_whichever_shaders_import_it() {
    for (broken, expected) in [
        ("// Broken.\nfn f() {\n    let x = nothing;\n}\n", "shaders/shared/broken.wgsl:3:13: no definition in scope"),
        ("fn f() {\n    let = 1;\n}\n", "shaders/shared/broken.wgsl:2:9: expected"),
        ("fn f() -> u32 {\n}\n", "shaders/shared/broken.wgsl:1:"),
        ("// F.\n\nvar<workgroup> x: array<u32>;\nfn f() {}\n", "shaders/shared/broken.wgsl:3:"),
    ] {
        let shaders = expanded(&[
            ("a.wgsl", IMPORTS),
            ("b.wgsl", &format!("// B, further down.\n\n\n{IMPORTS}")),
            ("c.wgsl", IMPORTS),
            ("shared/broken.wgsl", broken),
        ]);
        let lines = judged(&shaders);
        assert!(lines.len() == 1 && !lines[0].contains('\n'), "{lines:?}");
        assert!(lines[0].starts_with(expected) && lines[0].ends_with("(in a and 2 others)"), "{lines:?}");
    }
}

#[test]
fn what_breaks_the_rules_of_shaders_is_told_where_the_shader_is_declared() {
    let entry = |name| format!("@compute @workgroup_size(1)\nfn {name}() {{}}\n");
    let (second, other) = (format!("{}{}", entry("main"), entry("more")), entry("other"));
    let f16 = format!("enable f16;\n{}", entry("main"));
    let shaders = expanded(&[
        ("second.wgsl", &second),
        ("table", "frame f *_f: other\na: f\n"),
        ("shared/other.wgsl", &other),
        ("half.wgsl", &f16),
        ("good.wgsl", &entry("main")),
    ]);
    assert_eq!(
        judged(&shaders),
        [
            "shaders/half.wgsl:1: `enable f16;`: of optional features only subgroups and matrices, with f16 for them, are known (in half)",
            "shaders/second.wgsl:1: 2 entry points, expected one named main (in second)",
            "shaders/table:2: entry point other, expected main (in a_f)",
        ]
    );
    // what is not named is not granted
    let subgroup = "@compute @workgroup_size(1)\nfn main() {\n    let x = subgroupAdd(1u);\n}\n";
    let lines = judged(&expanded(&[("s.wgsl", subgroup)]));
    assert!(lines.len() == 1 && lines[0].starts_with("shaders/s.wgsl:"), "{lines:?}");
    assert!(judged(&expanded(&[("s.wgsl", &format!("enable subgroups;\n{subgroup}"))])).is_empty());
}

#[test]
fn the_table_of_the_library_is_what_the_sources_expand_to() {
    let shaders = expand::expand(&sources()).unwrap_or_else(|e| panic!("{:#?}", e.lines()));
    assert_eq!(shaders.len(), SHADERS.len());
    for (expanded, s) in shaders.iter().zip(SHADERS) {
        assert_eq!((expanded.name.as_str(), expanded.text.as_str()), (s.name, s.source));
        let enables = |name: &str| expanded.enables.iter().any(|e| e == name);
        let expected = (enables("subgroups"), enables("wgpu_cooperative_matrix"));
        assert_eq!((s.subgroups, s.matrices), expected, "{}", s.name);
        assert_eq!(enables("f16"), s.matrices, "{}", s.name);
    }
}

#[test]
fn a_line_that_is_broken_in_a_shared_file_is_one_error_of_the_build() {
    let (path, mut files) = ("shared/types/k_bytes.wgsl", sources());
    let text = files.get_mut(path).expect("shaders/shared/types/k_bytes.wgsl is there");
    let line = text.lines().count() + 1;
    text.push_str("fn broken() -> u32 { return nothing; }\n");
    let shaders = expand::expand(&files).unwrap_or_else(|e| panic!("{:#?}", e.lines()));
    let importing: Vec<&Expanded> = shaders.iter().filter(|s| s.imports.contains(path)).collect();
    assert!(importing.len() > 10, "{} import it", importing.len());
    let lines = judged(importing.iter().copied());
    let expected = format!("shaders/{path}:{line}:29: no definition in scope for identifier: `nothing`");
    assert!(lines.len() == 1 && lines[0].starts_with(&expected), "{lines:?}");
    assert!(lines[0].ends_with(&format!("(in q4k_expert and {} others)", importing.len() - 1)), "{lines:?}");
}

/// What tint says of a file with an expanded text: the first error, at its source. `None`: it says of none.
///
/// tint begins it with `FILE:LINE:COLUMN error: `.
pub fn tints_error(said: &str, file: &str, text: &str) -> Option<(Place, String)> {
    let (at, what) = said.lines().find_map(|l| l.strip_prefix(file)?.strip_prefix(':')?.split_once(" error: "))?;
    let (line, column) = at.split_once(':')?;
    let place = place_of(text, line.parse().ok()?)?;
    Some((Place { column: column.parse().ok()?, ..place }, what.to_string()))
}

#[test]
fn what_tint_refuses_is_told_at_its_source() {
    let text = "// from shaders/a.wgsl:7\nfn f() -> u32 {\n    return 1.5f;\n}\n";
    let said =
        "x/a.wgsl:3:5 error: return statement type must match its function return type\n    return 1.5f;\n    ^^^^^^\n";
    let (place, what) = tints_error(said, "x/a.wgsl", text).expect("there is an error");
    assert_eq!(place.to_string(), "shaders/a.wgsl:8:5");
    assert_eq!(what, "return statement type must match its function return type");
    assert_eq!(tints_error("x/a.wgsl:3:5 warning: unused\n", "x/a.wgsl", text), None);
}
