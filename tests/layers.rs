//! Keeps the rooms apart: every `crate::` path in `src/` and `host/` must be an arrow of the table in
//! `docs/architecture.md`, section "Rooms". The table is read from the page, so the page is the rule.
//!
//! Within a room, no circle: of modules beside each other none may use another that uses it in turn, by whatever way round.
//! A module and those below it count as one there.
//!
//! Besides: wgpu only in `host`, printing only in `cli` and `main.rs`, file access only in `formats`, `cli`, `receipts`, `hub` and
//! `limits`,
//! unsafe only in `simd`, `formats`, `host/module.rs`, `host/pipeline_cache.rs` and `cli/stdout.rs`. Comments, strings and `#[cfg(test)]` items do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Room to the rooms it may use.
type Rooms = BTreeMap<String, BTreeSet<String>>;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Reads the table below the heading `## Rooms`.
///
/// A cell names rooms in backticks, or says "nothing" or "all the others". Anything else stops with what was found.
fn parse_rooms(page: &str) -> Result<Rooms, String> {
    let (_, section) = page.split_once("\n## Rooms\n").ok_or("no section `## Rooms`")?;
    let section = section.split("\n## ").next().unwrap_or(section);
    let mut cells = BTreeMap::new();
    for line in section.lines().filter(|l| l.starts_with('|')) {
        let row: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [room, uses] = row[..] else {
            return Err(format!("a row without two cells: {line}"));
        };
        if room == "room" || room.starts_with("--") {
            continue;
        }
        let [name] = quoted(room)[..] else {
            return Err(format!("a row that does not name one room: {line}"));
        };
        if cells.insert(name.to_owned(), uses).is_some() {
            return Err(format!("room `{name}` has two rows"));
        }
    }
    if cells.is_empty() {
        return Err("an empty table".into());
    }
    let all: BTreeSet<String> = cells.keys().cloned().collect();
    let mut rooms = Rooms::new();
    for (room, uses) in cells {
        let names = quoted(uses);
        let allowed = match uses {
            "nothing" => BTreeSet::new(),
            "all the others" => all.clone(),
            _ if names.is_empty() => {
                return Err(format!("room `{room}` may use {uses:?}, which names no room"));
            }
            _ => names.into_iter().map(str::to_owned).collect(),
        };
        if let Some(stranger) = allowed.iter().find(|r| !all.contains(*r)) {
            return Err(format!("room `{room}` may use `{stranger}`, which has no row"));
        }
        rooms.insert(room, allowed);
    }
    Ok(rooms)
}

/// The words between backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// A word of Rust, or one other character, or `::`.
#[derive(Clone, Copy, Debug)]
struct Word<'a> {
    text: &'a str,
    line: usize,
}

/// Rust text as words, without comments, strings, characters and `#[cfg(test)]` items.
fn words(text: &str) -> Vec<Word<'_>> {
    let bytes = text.as_bytes();
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80;
    let mut words = Vec::new();
    let (mut i, mut line) = (0, 1);
    while i < bytes.len() {
        let start = i;
        let rest = &text[i..];
        let end = if rest.starts_with("//") {
            start + rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment_end(text, start)
        } else if bytes[i] == b'"' {
            string_end(text, start)
        } else if bytes[i] == b'\'' {
            character_end(text, start)
        } else if is_name(bytes[i]) {
            let mut end = i;
            while end < bytes.len() && is_name(bytes[end]) {
                end += 1;
            }
            let word = &text[start..end];
            if let Some(raw_end) = raw_string_end(text, word, end) {
                raw_end
            } else {
                words.push(Word { text: word, line });
                end
            }
        } else {
            let len = if rest.starts_with("::") { 2 } else { 1 };
            if !bytes[i].is_ascii_whitespace() {
                words.push(Word { text: &text[start..start + len], line });
            }
            start + len
        };
        line += bytes[start..end].iter().filter(|b| **b == b'\n').count();
        i = end;
    }
    without_tests(words)
}

fn block_comment_end(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let (mut i, mut depth) = (start, 0);
    while i < bytes.len() {
        if bytes[i..].starts_with(b"/*") {
            depth += 1;
            i += 2;
        } else if bytes[i..].starts_with(b"*/") {
            depth -= 1;
            i += 2;
            if depth == 0 {
                return i;
            }
        } else {
            i += 1;
        }
    }
    bytes.len()
}

fn string_end(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let mut i = start + 1;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' => i += 2,
            b'"' => return i + 1,
            _ => i += 1,
        }
    }
    bytes.len()
}

/// End of `r"..."`, `br#"..."#` and the like, when `word` ending at `end` begins one.
fn raw_string_end(text: &str, word: &str, end: usize) -> Option<usize> {
    if !matches!(word, "r" | "br" | "cr") {
        return None;
    }
    let rest = &text[end..];
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let body = rest[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let at = end + hashes + 1;
    Some(body.find(&close).map_or(text.len(), |n| at + n + close.len()))
}

/// End of a character literal, or of the quote alone when it starts a lifetime.
fn character_end(text: &str, start: usize) -> usize {
    let mut rest = text[start + 1..].char_indices();
    match rest.next() {
        Some((_, '\\')) => {
            rest.next();
            rest.find(|(_, c)| *c == '\'').map_or(text.len(), |(n, _)| start + 1 + n + 1)
        }
        Some((_, c)) if c != '\'' && text[start + 1 + c.len_utf8()..].starts_with('\'') => start + 1 + c.len_utf8() + 1,
        _ => start + 1,
    }
}

/// Leaves out the item after each `#[cfg(test)]`, up to its semicolon or closing brace.
fn without_tests(words: Vec<Word<'_>>) -> Vec<Word<'_>> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut i = 0;
    while i < words.len() {
        let marked = words[i..].len() >= MARK.len() && words[i..].iter().zip(MARK).all(|(w, m)| w.text == m);
        if !marked {
            kept.push(words[i]);
            i += 1;
            continue;
        }
        i += MARK.len();
        let mut depth = 0;
        while i < words.len() {
            let word = words[i].text;
            i += 1;
            match word {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => {
                    depth -= 1;
                    if word == "}" && depth <= 0 {
                        break;
                    }
                }
                ";" if depth == 0 => break,
                _ => {}
            }
        }
    }
    kept
}

/// The names that follow `root ::` at `i`: one, or those at the head of each branch of a group.
fn heads<'a>(words: &[Word<'a>], i: usize) -> Vec<Word<'a>> {
    let text = |n: usize| words.get(n).map_or("", |w| w.text);
    if text(i + 1) != "::" {
        return Vec::new();
    }
    if text(i + 2) != "{" {
        return words.get(i + 2).copied().into_iter().collect();
    }
    let mut found = Vec::new();
    let (mut n, mut depth, mut at_head) = (i + 2, 0, false);
    while n < words.len() {
        match words[n].text {
            "{" => {
                depth += 1;
                at_head = depth == 1;
            }
            "}" => {
                depth -= 1;
                if depth == 0 {
                    break;
                }
            }
            "," => at_head = depth == 1,
            _ => {
                if at_head {
                    found.push(words[n]);
                }
                at_head = false;
            }
        }
        n += 1;
    }
    found
}

/// The room a file belongs to, and how deep its module lies below the crate's root. None for `lib.rs` and `main.rs`.
fn room_of(path: &str) -> Option<(String, usize)> {
    let mut parts: Vec<&str> = path.split('/').collect();
    if parts.first() == Some(&"src") {
        parts.remove(0);
    }
    let file = parts.pop()?;
    match file.strip_suffix(".rs")? {
        "mod" => {}
        "lib" | "main" if parts.is_empty() => return None,
        stem => parts.push(stem),
    }
    Some(((*parts.first()?).to_owned(), parts.len()))
}

/// Every breach of the rooms in one file, as `path:line: what`. `path` is relative to the package, with `/`.
fn violations(rooms: &Rooms, path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let words = words(text);
    let room = room_of(path);
    let name = room.as_ref().map_or("", |(name, _)| name.as_str());
    let mut add = |line: usize, what: String| found.push(format!("{path}:{line}: {what}"));
    if let Some((name, _)) = &room
        && !rooms.contains_key(name)
    {
        add(1, format!("room `{name}` has no row in the table"));
    }
    for (i, w) in words.iter().enumerate() {
        let next = words.get(i + 1).map_or("", |w| w.text);
        let before = if i == 0 { "" } else { words[i - 1].text };
        if let Some((_, depth)) = room
            && let Some(root) = path_root(&words, i, depth)
        {
            for head in heads(&words, root) {
                let target = head.text;
                let allowed = rooms.get(name).is_some_and(|r| r.contains(target));
                if target != name && target != "self" && !allowed {
                    add(head.line, format!("`{name}` -> `{target}` is no arrow of the table"));
                }
            }
        }
        // A leading `::` is the start of a path too.
        let first = before != "::" || i < 2 || !is_word(words[i - 2].text);
        if w.text == "wgpu" && first && (next == "::" || before == "use") && name != "host" {
            add(w.line, "wgpu outside host".into());
        }
        let printing = matches!(w.text, "println" | "eprintln" | "print" | "eprint" | "dbg");
        if printing && next == "!" && name != "cli" && path != "src/main.rs" {
            add(w.line, format!("{}! outside cli and main.rs", w.text));
        }
        if w.text == "std"
            && first
            && heads(&words, i).iter().any(|h| h.text == "fs")
            // limits: what the system tells of memory and cores; receipts: the folder of runs that are kept;
            // hub: the folders of other programs
            && !matches!(name, "formats" | "cli" | "receipts" | "limits" | "hub")
        {
            add(w.line, "std::fs outside formats, cli, receipts, limits and hub".into());
        }
        let place = matches!(path, "host/module.rs" | "host/pipeline_cache.rs" | "src/cli/stdout.rs");
        if w.text == "unsafe" && !matches!(name, "simd" | "formats") && !place {
            add(w.line, "unsafe outside its places".into());
        }
    }
    found
}

/// If a path that starts at the crate's root begins at `i`, the index of the word before its first `::` from there:
/// `crate`, or the last `super` of a chain that climbs all the way.
fn path_root(words: &[Word], i: usize, depth: usize) -> Option<usize> {
    let text = |n: usize| words.get(n).map_or("", |w| w.text);
    match text(i) {
        "crate" => Some(i),
        "super" if i == 0 || text(i - 1) != "::" => {
            let mut last = i;
            while text(last + 1) == "::" && text(last + 2) == "super" {
                last += 2;
            }
            ((last - i) / 2 + 1 >= depth).then_some(last)
        }
        "super" if i >= 2 && text(i - 2) == "self" && depth == 1 => Some(i),
        _ => None,
    }
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn rust_files(dir: &Path, into: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    for entry in entries {
        let path = entry.expect("an entry of a readable folder").path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

fn rooms() -> Rooms {
    let page = Path::new(ROOT).join("docs/architecture.md");
    let page = std::fs::read_to_string(page).expect("docs/architecture.md");
    parse_rooms(&page).expect("the table of rooms")
}

#[test]
fn every_path_in_the_sources_is_an_arrow_of_the_table() {
    let (rooms, files) = (rooms(), sources());
    let found: Vec<String> = files.iter().flat_map(|(path, text)| violations(&rooms, path, text)).collect();
    assert!(files.len() > 5, "only {} files found", files.len());
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// A module by the names from the crate's root.
type Module = Vec<String>;

/// A path in a module: what it names, and under which name the module has it.
struct Use {
    path: Vec<String>,
    name: String,
    /// it is of a `use` item
    item: bool,
}

/// The module of a file of the package. None for `lib.rs` and `main.rs`.
fn module_of(path: &str) -> Option<Module> {
    let mut parts: Vec<String> = path.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if parts[0] == "src" {
        parts.remove(0);
    }
    match parts.last().map(String::as_str) {
        Some("mod") => drop(parts.pop()),
        Some("lib" | "main") if parts.len() == 1 => return None,
        _ => {}
    }
    Some(parts)
}

/// Every path of `use` items, and those in other places that begin with `crate`, `super` or `self`.
fn uses(words: &[Word]) -> Vec<Use> {
    let text = |n: usize| words.get(n).map_or("", |w| w.text);
    let (mut found, mut i) = (Vec::new(), 0);
    while i < words.len() {
        if text(i) == "use" {
            i += 1;
            use_tree(words, &mut i, &[], &mut found);
        } else if matches!(text(i), "crate" | "super" | "self") && (i == 0 || text(i - 1) != "::") {
            let mut path = vec![text(i).to_owned()];
            while text(i + 1) == "::" && is_word(text(i + 2)) {
                path.push(text(i + 2).to_owned());
                i += 2;
            }
            i += 1;
            found.push(Use { name: String::new(), path, item: false });
        } else {
            i += 1;
        }
    }
    found
}

/// The paths of a tree of `use` from word `i` on, which is left behind it.
fn use_tree(words: &[Word], i: &mut usize, prefix: &[String], into: &mut Vec<Use>) {
    let text = |n: usize| words.get(n).map_or("", |w| w.text);
    let mut path = prefix.to_vec();
    loop {
        match text(*i) {
            "" | ";" => return,
            "::" => *i += 1,
            "{" => {
                *i += 1;
                while !matches!(text(*i), "}" | "") {
                    use_tree(words, i, &path, into);
                    *i += usize::from(text(*i) == ",");
                }
                *i += 1;
                return;
            }
            name => {
                path.push(name.to_owned());
                *i += 1;
                if text(*i) != "::" {
                    break;
                }
            }
        }
    }
    if path.len() > prefix.len() && path.last().is_some_and(|l| l == "self") && !prefix.is_empty() {
        path.pop();
    }
    let mut name = path.last().cloned().unwrap_or_default();
    if text(*i) == "as" {
        name = text(*i + 1).to_owned();
        *i += 2;
    }
    into.push(Use { path, name, item: true });
}

/// A path from the crate's root. None: it leads out of the crate.
fn absolute(modules: &BTreeMap<Module, Vec<Use>>, module: &Module, path: &[String]) -> Option<Vec<String>> {
    let first = path.first()?;
    let child = || modules.contains_key(&[&module[..], std::slice::from_ref(first)].concat());
    Some(match first.as_str() {
        "crate" => path[1..].to_vec(),
        "self" => [module, &path[1..]].concat(),
        "super" => {
            let up = path.iter().take_while(|p| *p == "super").count();
            [&module[..module.len().checked_sub(up)?], &path[up..]].concat()
        }
        _ if child() => [&module[..], path].concat(),
        _ => return None,
    })
}

/// The module that a path from the crate's root comes to, through what modules on the way have under another's name.
fn target(modules: &BTreeMap<Module, Vec<Use>>, path: &[String], steps: usize) -> Option<Module> {
    let module = (1..=path.len()).rev().map(|n| path[..n].to_vec()).find(|m| modules.contains_key(m))?;
    let next = path.get(module.len());
    let renamed = modules[&module].iter().find(|u| u.item && Some(&u.name) == next);
    match renamed.and_then(|u| absolute(modules, &module, &u.path)) {
        Some(other) if steps > 0 && other != path[..=module.len()] => target(modules, &other, steps - 1),
        _ => Some(module),
    }
}

/// A circle of each set of modules beside each other that has one, as `room: a -> b -> a`.
fn circles(files: &[(String, String)]) -> Vec<String> {
    let module = |(path, text): &(String, String)| Some((module_of(path)?, uses(&words(text))));
    let modules: BTreeMap<Module, Vec<Use>> = files.iter().filter_map(module).collect();
    // by the module they lie in, which modules use which
    let mut graphs: BTreeMap<&[String], BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    let targets: BTreeMap<&Module, BTreeSet<Module>> = modules
        .iter()
        .map(|(m, uses)| {
            let of = |u: &Use| target(&modules, &absolute(&modules, m, &u.path)?, 8);
            (m, uses.iter().filter_map(of).collect())
        })
        .collect();
    for (from, to) in targets.iter().flat_map(|(m, all)| all.iter().map(move |t| (*m, t))) {
        let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        // beside each other in a room, not rooms beside each other
        if (1..from.len().min(to.len())).contains(&shared) {
            let graph = graphs.entry(&from[..shared]).or_default();
            graph.entry(&from[shared]).or_default().insert(&to[shared]);
        }
    }
    let mut found = Vec::new();
    for (parent, mut graph) in graphs {
        // what uses nothing that is left is in no circle
        loop {
            let left: BTreeSet<&str> = graph.keys().copied().collect();
            graph.values_mut().for_each(|to| to.retain(|t| left.contains(t)));
            let before = graph.len();
            graph.retain(|_, to| !to.is_empty());
            if graph.len() == before {
                break;
            }
        }
        if let Some(first) = graph.keys().next() {
            let mut way = vec![*first];
            loop {
                let next = *graph[way[way.len() - 1]].first().expect("whatever is left uses something that is left");
                let met = way.iter().position(|m| *m == next);
                way.push(next);
                if let Some(start) = met {
                    found.push(format!("{}: {}", parent.join("::"), way[start..].join(" -> ")));
                    break;
                }
            }
        }
    }
    found
}

/// Every source file of the library, by its path from the package's root with `/`, and its text.
fn sources() -> Vec<(String, String)> {
    let mut files = Vec::new();
    rust_files(&Path::new(ROOT).join("src"), &mut files);
    rust_files(&Path::new(ROOT).join("host"), &mut files);
    files.sort();
    let read = |file: &PathBuf| {
        let relative = file.strip_prefix(ROOT).expect("a file of the package");
        let parts: Vec<_> = relative.iter().map(|p| p.to_string_lossy()).collect();
        (parts.join("/"), std::fs::read_to_string(file).expect("a source file"))
    };
    files.iter().map(read).collect()
}

#[test]
fn no_modules_of_a_room_use_each_other_in_a_circle() {
    let found = circles(&sources());
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn a_circle_in_a_room_is_named_whichever_way_it_goes() {
    let found =
        |list: &[(&str, &str)]| circles(&list.iter().map(|(p, t)| (p.to_string(), t.to_string())).collect::<Vec<_>>());
    let none = Vec::<String>::new();
    let two = [("src/m/mod.rs", "mod a; mod b;"), ("src/m/a.rs", "use super::b::B;"), ("src/m/b.rs", "")];
    assert_eq!(found(&two), none);
    for back in [
        "use super::a::A;",
        "use crate::m::{a::{self, A}};",
        "fn f() { super::a::g() }",
        "use super::super::m::a as other;",
        "#[cfg(test)]\nuse std::fs;\nuse crate::{m::a};",
    ] {
        assert_eq!(found(&[two[0], two[1], ("src/m/b.rs", back)]), ["m: a -> b -> a"], "{back}");
    }
    // through a name that the module above has
    let above = ("src/m/mod.rs", "mod a; mod b; pub use a::A as Other;");
    assert_eq!(found(&[above, two[1], ("src/m/b.rs", "use super::Other;")]), ["m: a -> b -> a"]);
    assert_eq!(found(&[above, two[1], ("src/m/b.rs", "use super::Item;")]), none);
    // tests do not count, nor a module and those below it, nor rooms
    assert_eq!(found(&[two[0], two[1], ("src/m/b.rs", "#[cfg(test)]\nmod tests { use crate::m::a::A; }")]), none);
    assert_eq!(found(&[("src/m/mod.rs", "use a::A;"), ("src/m/a.rs", "use super::Item;")]), none);
    assert_eq!(found(&[("src/m/mod.rs", "use crate::n::N;"), ("src/n.rs", "use crate::m::M;")]), none);
    // three in a room of `host`, further down
    let deep = [
        ("host/x/a.rs", "use crate::host::x::b::B;"),
        ("host/x/b/one.rs", "use super::super::c;"),
        ("host/x/c.rs", "use super::a::A;"),
    ];
    let modules = [("host/mod.rs", ""), ("host/x/mod.rs", ""), ("host/x/b/mod.rs", "")];
    assert_eq!(found(&[&modules[..], &deep].concat()), ["host::x: a -> b -> c -> a"]);
}

#[test]
fn every_room_of_the_table_exists() {
    for room in rooms().keys() {
        let places = [format!("src/{room}/mod.rs"), format!("src/{room}.rs"), format!("{room}/mod.rs")];
        assert!(
            places.iter().any(|p| Path::new(ROOT).join(p).exists()),
            "the table names `{room}`, but none of {places:?} exists"
        );
    }
}

/// A table for the tests below, apart from the project's.
fn sample() -> Rooms {
    parse_rooms(
        "# Page\n\n## Rooms\n\n| room | may use |\n|---|---|\n| `blocks` | nothing |\n\
         | `ops` | `blocks` |\n| `simd` | `blocks`, `ops` (all of it) |\n| `host` | `ops`, the shader table |\n\
         | `formats` | `blocks` |\n| `cli` | all the others |\n\n## Next\n\n| `ops` | `cli` |\n",
    )
    .expect("the sample table")
}

/// The breaches of a planted file, as `line what`.
fn planted(path: &str, text: &str) -> Vec<String> {
    violations(&sample(), path, text)
        .into_iter()
        .map(|v| {
            let rest = v.strip_prefix(path).expect("the path leads");
            rest.trim_start_matches(':').replacen(": ", " ", 1)
        })
        .collect()
}

#[test]
fn the_table_is_read_with_its_words() {
    let rooms = sample();
    assert!(rooms["blocks"].is_empty());
    assert_eq!(rooms["simd"], BTreeSet::from(["blocks".into(), "ops".into()]));
    assert_eq!(rooms["cli"].len(), 6);
    assert_eq!(rooms["ops"], BTreeSet::from(["blocks".into()]));
}

#[test]
fn a_broken_table_is_refused() {
    for page in [
        "no section",
        "\n## Rooms\n\nno table\n",
        "\n## Rooms\n| `a` | `b` |\n",
        "\n## Rooms\n| `a` | whatever |\n",
        "\n## Rooms\n| `a` | nothing |\n| `a` | nothing |\n",
        "\n## Rooms\n| a | nothing |\n",
        "\n## Rooms\n| `a` |\n",
    ] {
        assert!(parse_rooms(page).is_err(), "{page:?}");
    }
}

#[test]
fn an_arrow_outside_the_table_is_named_with_its_line() {
    let arrow = |line, to| vec![format!("{line} `ops` -> `{to}` is no arrow of the table")];
    assert_eq!(planted("src/ops/rope.rs", "\nuse crate::cli::Args;\n"), arrow(2, "cli"));
    assert_eq!(planted("src/ops.rs", "fn f() { crate::host::run() }"), arrow(1, "host"));
    assert_eq!(
        planted("src/ops/mod.rs", "use crate::{\n blocks::{Block, cli},\n formats::Gguf,\n};"),
        arrow(3, "formats")
    );
    assert_eq!(planted("src/ops/mod.rs", "use super::simd;"), arrow(1, "simd"));
    assert_eq!(planted("src/ops/a/b.rs", "use super::super::super::simd::dot;"), arrow(1, "simd"));
    assert_eq!(planted("src/ops/mod.rs", "use crate::*;"), arrow(1, "*"));
    assert_eq!(planted("host/mod.rs", "use crate::simd;"), ["1 `host` -> `simd` is no arrow of the table"]);
}

#[test]
fn a_file_or_a_path_in_no_room_of_the_table_is_named() {
    assert_eq!(planted("src/attic/mod.rs", "fn f() {}"), ["1 room `attic` has no row in the table"]);
    assert_eq!(planted("src/cli/mod.rs", "use crate::attic;"), ["1 `cli` -> `attic` is no arrow of the table"]);
}

#[test]
fn arrows_of_the_table_pass() {
    for (path, text) in [
        ("src/simd/avx2.rs", "use crate::ops::exact;\nuse crate::blocks::{self, Q4};\nuse crate::simd::dot;"),
        ("src/simd/avx2.rs", "use super::dot;\nuse super::super::ops;"),
        ("src/cli/run.rs", "use crate::{host, ops, formats::open};"),
        ("src/lib.rs", "pub use crate::cli::main;"),
        ("src/ops/mod.rs", "pub(crate) fn f<'a>(x: &'a str) -> char { '\"' }\nuse crate::blocks;"),
    ] {
        assert_eq!(planted(path, text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn comments_strings_and_test_modules_do_not_count() {
    let text = "//! crate::cli\n/* use crate::cli; /* println!() */ unsafe */\n\
         const A: &str = \"use crate::cli; \\\" unsafe\";\nconst B: &str = r#\"wgpu:: \" println!()\"#;\n\
         const C: char = '\\'';\n\
         #[cfg(test)]\nmod tests {\n use crate::cli;\n fn f() { println!(\"{}\", 1); }\n}\n\
         #[cfg(test)]\nuse crate::cli::{A, B};\n";
    assert_eq!(planted("src/ops/mod.rs", text), Vec::<String>::new());
    // What follows them does.
    let text = format!("{text}fn g() {{ unsafe {{}} }}");
    assert_eq!(planted("src/ops/mod.rs", &text), ["13 unsafe outside its places"]);
}

#[test]
fn wgpu_outside_host_is_named() {
    let what = ["1 wgpu outside host"];
    assert_eq!(planted("src/ops/mod.rs", "use wgpu::Device;"), what);
    assert_eq!(planted("src/cli/mod.rs", "fn f(d: &wgpu::Device) {}"), what);
    assert_eq!(planted("src/lib.rs", "use wgpu;"), what);
    assert_eq!(planted("host/mod.rs", "use wgpu::Device;"), Vec::<String>::new());
}

#[test]
fn printing_outside_the_command_line_is_named() {
    for name in ["println", "eprintln", "print", "eprint"] {
        let text = format!("fn f() {{\n{name}!(\"x\") }}");
        let what = vec![format!("2 {name}! outside cli and main.rs")];
        assert_eq!(planted("src/formats/gguf.rs", &text), what);
        assert_eq!(planted("host/mod.rs", &text), what);
        assert_eq!(planted("src/lib.rs", &text), what);
        assert_eq!(planted("src/cli/run.rs", &text), Vec::<String>::new());
        assert_eq!(planted("src/main.rs", &text), Vec::<String>::new());
    }
}

#[test]
fn file_access_outside_formats_and_cli_is_named() {
    let what = ["1 std::fs outside formats, cli, receipts, limits and hub"];
    assert_eq!(planted("src/ops/mod.rs", "use std::fs::File;"), what);
    assert_eq!(planted("host/mod.rs", "use std::{io, fs};"), what);
    assert_eq!(planted("src/ops/mod.rs", "fn f() { ::std::fs::read(\"x\"); }"), what);
    assert_eq!(planted("src/formats/gguf.rs", "use std::fs::File;"), Vec::<String>::new());
    assert_eq!(planted("src/cli/run.rs", "use std::fs;"), Vec::<String>::new());
}

#[test]
fn unsafe_outside_its_places_is_named() {
    let what = ["1 unsafe outside its places"];
    assert_eq!(planted("src/ops/mod.rs", "unsafe fn f() {}"), what);
    assert_eq!(planted("host/mod.rs", "fn f() { unsafe { g() } }"), what);
    assert_eq!(planted("src/cli/pipeline_cache.rs", "fn f() { unsafe { g() } }"), what);
    assert_eq!(planted("host/pipeline_cache.rs", "fn f() { unsafe { g() } }"), Vec::<String>::new());
    assert_eq!(planted("src/simd/avx2.rs", "unsafe fn f() {}"), Vec::<String>::new());
    assert_eq!(planted("src/formats/map.rs", "fn f() { unsafe { g() } }"), Vec::<String>::new());
    assert_eq!(planted("src/lib.rs", "#![deny(unsafe_op_in_unsafe_fn)]"), Vec::<String>::new());
}

/// A level that differs from another in tiles alone must not fall to the plain kernels where vectors are all there is.
#[test]
fn kernels_are_chosen_by_the_vectors_of_a_level() {
    let bare = |text: &str| text.contains("match level {") || text.contains("match (level,");
    let of_simd = |path: &str| path.starts_with("src/simd/") && path != "src/simd/peak.rs";
    let found: Vec<String> = sources().into_iter().filter(|(p, t)| of_simd(p) && bare(t)).map(|(p, _)| p).collect();
    assert_eq!(found, Vec::<String>::new(), "these ask for a level and not for its vectors");
    assert!(bare("match level {") && !bare("match level.vectors() {"));
    assert!(sources().iter().filter(|(p, t)| of_simd(p) && t.contains("match level.vectors() {")).count() > 4);
}
