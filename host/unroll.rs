//! Loops of a fixed number of turns written out turn after turn, for a compiler that leaves them loops.
//!
//! NVIDIA's own does: an array that a loop indexes then lies in memory, and no load is asked for before the turn that needs
//! it (docs/performance.md, "NVIDIA H200"). Mesa's write such loops out by themselves, and better where registers are few. No
//! bit depends on it.

use std::collections::BTreeMap;

/// Turns of a loop that is written out, at most.
const TURNS: u32 = 16;

/// Bytes of a text that is used, at most: what is longer would take longer to compile than it could spare.
const LONGEST: usize = 128 << 10;

/// A shader's text with every loop of at most [`TURNS`] turns written out whose head has numbers and constants alone; the
/// text itself where that would be too long.
pub(super) fn unrolled(text: &str) -> String {
    let mut out = String::with_capacity(2 * text.len());
    write_out(text, &constants(text), &mut out);
    if out.len() > LONGEST { text.to_string() } else { out }
}

/// The constants of a text that are whole numbers.
fn constants(text: &str) -> BTreeMap<&str, u32> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let declared = line.strip_prefix("const ").and_then(|l| l.split(';').next()?.split_once(" = "));
        let Some((name, value)) = declared else { continue };
        let name = name.split(':').next().unwrap_or(name).trim();
        if let Some(n) = number(value, &found) {
            found.insert(name, n);
        }
    }
    found
}

/// The value of `A`, `A * B`, `A / B`, `A + B` and so on from left to right, of numbers and constants; `None` of all else, of
/// mixed kinds of operators too, whose order would count.
fn number(text: &str, constants: &BTreeMap<&str, u32>) -> Option<u32> {
    let one = |word: &str| match constants.get(word) {
        Some(&n) => Some(n),
        None => word.strip_suffix('u')?.parse().ok(),
    };
    let mut words = text.split_whitespace();
    let (mut value, mut kind) = (one(words.next()?)?, None);
    while let Some(operator) = words.next() {
        let operand = one(words.next()?)?;
        let this = matches!(operator, "*" | "/");
        if *kind.get_or_insert(this) != this {
            return None;
        }
        value = match operator {
            "+" => value.checked_add(operand)?,
            "-" => value.checked_sub(operand)?,
            "*" => value.checked_mul(operand)?,
            "/" => value.checked_div(operand)?,
            _ => return None,
        };
    }
    Some(value)
}

/// Appends `text`, its loops written out.
fn write_out(mut text: &str, constants: &BTreeMap<&str, u32>, out: &mut String) {
    while let Some(at) = text.find("for (var ") {
        let Some(open) = text[at..].find(") {").map(|i| at + i + 2) else { break };
        let written = turns(&text[at + "for (var ".len()..open - 2], constants).and_then(|(name, turns)| {
            let close = open + end_of(&text[open..])?;
            let body = &text[open + 1..close];
            may_be(body, name).then_some((name, turns, body, close))
        });
        let Some((name, turns, body, close)) = written else {
            out.push_str(&text[..=open]);
            text = &text[open + 1..];
            continue;
        };
        out.push_str(&text[..at]);
        for turn in turns {
            out.push('{');
            write_out(&in_turn(body, name, turn), constants, out);
            out.push_str("}\n");
        }
        text = &text[close + 1..];
    }
    out.push_str(text);
}

/// The variable of a loop's head, and its values; `None` where they are not known or too many.
fn turns<'a>(head: &'a str, constants: &BTreeMap<&str, u32>) -> Option<(&'a str, Vec<u32>)> {
    let mut parts = head.split("; ");
    let (start, end, step) = (parts.next()?, parts.next()?, parts.next()?);
    let (name, start) = start.split_once(" = ")?;
    let end = end.strip_prefix(name)?.strip_prefix(" < ")?;
    let step = match step.strip_prefix(name)? {
        "++" => 1,
        step => number(step.strip_prefix(" += ")?, constants)?,
    };
    let (start, end) = (number(start, constants)?, number(end, constants)?);
    let turns: Vec<u32> = (start..end).step_by(step.max(1) as usize).take(TURNS as usize + 1).collect();
    (step > 0 && turns.len() <= TURNS as usize).then_some((name, turns))
}

/// Where the block that `text` begins with ends: the place of its last brace.
fn end_of(text: &str) -> Option<usize> {
    let (mut depth, mut comment, bytes) = (0, false, text.as_bytes());
    for (i, &b) in bytes.iter().enumerate() {
        match b {
            b'\n' => comment = false,
            b'/' if bytes.get(i + 1) == Some(&b'/') => comment = true,
            b'{' if !comment => depth += 1,
            b'}' if !comment => {
                depth -= 1;
                if depth == 0 {
                    return Some(i);
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether turns of a body can stand one after the other: nothing leaves it early, and no other variable has the name.
fn may_be(body: &str, name: &str) -> bool {
    let mut before = "";
    words(body).filter(|w| w.starts_with(|c: char| c.is_alphanumeric() || c == '_')).all(|word| {
        let declared = word == name && matches!(before, "var" | "let");
        before = word;
        !declared && !matches!(word, "break" | "continue")
    })
}

/// A body with the number of a turn for the variable.
fn in_turn(body: &str, name: &str, turn: u32) -> String {
    let mut out = String::with_capacity(body.len());
    let mut member = false;
    for word in words(body) {
        match word == name && !member {
            true => out.push_str(&format!("{turn}u")),
            false => out.push_str(word),
        }
        member = word == ".";
    }
    out
}

/// A text in pieces: names and numbers, and single characters.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let of_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let end = match of_word(first) {
            true => rest.find(|c| !of_word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::super::shaders::SHADERS;
    use super::*;

    #[test]
    fn loops_of_few_turns_are_written_out() {
        let text = "const T = 2u;\nconst ALL = T * 4u;\nfn f() {\n\
                    for (var t = 0u; t < T; t++) {\nx[t] = p.t + t2; // }\n}\n\
                    for (var i = 0u; i < ALL; i += 4u) {\nfor (var t = i; t < n; t++) {\ny(t, i);\n}\n}\n}\n";
        let expected = "const T = 2u;\nconst ALL = T * 4u;\nfn f() {\n\
                        {\nx[0u] = p.t + t2; // }\n}\n{\nx[1u] = p.t + t2; // }\n}\n\n\
                        {\nfor (var t = 0u; t < n; t++) {\ny(t, 0u);\n}\n}\n{\nfor (var t = 4u; t < n; t++) {\ny(t, 4u);\n}\n}\n\n}\n";
        assert_eq!(unrolled(text), expected);
    }

    #[test]
    fn other_loops_stay() {
        for head in [
            "var t = 0u; t < n; t++",
            "var t = 0u; t < 17u; t++",
            "var t = 8u; t > 0u; t = t >> 1u",
            "var t = 0; t < 4; t++",
            "var t = 0u; t < 4u; t += 0u",
            "var t = 0u; t < 2u + 2u * 2u; t++",
            "var t = 0u; t < 4u - 5u; t++",
        ] {
            let text = format!("fn f() {{\nfor ({head}) {{\nx += t;\n}}\n}}\n");
            assert_eq!(unrolled(&text), text, "{head}");
        }
        for body in ["if t == 2u { break; }", "let t = 1u;", "var t: u32 = 1u;", "if x { continue; }"] {
            let text = format!("fn f() {{\nfor (var t = 0u; t < 4u; t++) {{\n{body}\n}}\n}}\n");
            assert_eq!(unrolled(&text), text, "{body}");
        }
        let long = format!("fn f() {{\nfor (var t = 0u; t < 4u; t++) {{\n{}}}\n}}\n", "x += t;\n".repeat(8000));
        assert_eq!(unrolled(&long), long);
    }

    /// Every shader of the program stays one that naga takes, and those of many tokens lose the loops that index arrays.
    #[test]
    fn every_shader_stays_valid() {
        let mut validator = wgpu::naga::valid::Validator::new(
            wgpu::naga::valid::ValidationFlags::all(),
            wgpu::naga::valid::Capabilities::all(),
        );
        for shader in SHADERS {
            let text = unrolled(shader.source);
            let module = wgpu::naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{}: {e}", shader.name));
            validator.validate(&module).unwrap_or_else(|e| panic!("{}: {}", shader.name, e.as_inner()));
        }
        let q4k = SHADERS.iter().find(|s| s.name == "q4k_matmul").expect("it is there");
        let loops = |text: &str| text.matches("for (var ").count();
        assert!(loops(q4k.source) > 10 && loops(&unrolled(q4k.source)) <= 4);
    }
}
