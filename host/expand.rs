//! Puts shaders together: the files of `shaders/`, the rows of `shaders/table`, and what both import.
//!
//! `#import NAME` on a line of its own stands for the one file NAME.wgsl somewhere below `shaders/shared`, once in a
//! shader. Wherever the text goes on in another file, a line `// from FILE:LINE` says where, so that an error in the text
//! can be told at its source. No file is read here and nothing is printed: `build.rs` gives the texts and tells the errors.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Texts by their paths below `shaders/`, with `/` between folders.
pub type Files = BTreeMap<String, String>;

/// A place in a file of the package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// path from the package's root
    pub file: String,
    /// from 1
    pub line: usize,
    /// from 1; 0: the whole line
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        if self.column > 0 { write!(f, ":{}", self.column) } else { Ok(()) }
    }
}

/// A shader with nothing left to import.
#[derive(Clone, Debug)]
pub struct Expanded {
    /// its stem
    pub name: String,
    /// where it is declared: the beginning of its file, or its row of the table
    pub declared: Place,
    /// WGSL with the marks; of `enable` lines only those that naga asks for, before all else
    pub text: String,
    /// what its `enable` lines name, in order
    pub enables: Vec<String>,
    /// paths of the files it imports, below `shaders/`
    pub imports: BTreeSet<String>,
}

/// What is wrong, once for each place, with the shaders that show it.
#[derive(Debug, Default)]
pub struct Problems(BTreeMap<Place, (String, Vec<String>)>);

impl Problems {
    /// Adds what is wrong at a place. Of a place that has something already, only the shader is taken.
    pub fn add(&mut self, place: Place, what: impl Into<String>, shader: Option<&str>) {
        let (_, shaders) = self.0.entry(place).or_insert_with(|| (what.into(), Vec::new()));
        if let Some(shader) = shader.filter(|&s| shaders.iter().all(|have| have != s)) {
            shaders.push(shader.to_string());
        }
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A line for each: `FILE:LINE: what (in SHADER and 3 others)`.
    pub fn lines(&self) -> Vec<String> {
        let line = |(place, (what, shaders)): (&Place, &(String, Vec<String>))| {
            let shown = match &shaders[..] {
                [] => String::new(),
                [one] => format!(" (in {one})"),
                [one, other] => format!(" (in {one} and {other})"),
                [one, rest @ ..] => format!(" (in {one} and {} others)", rest.len()),
            };
            format!("{place}: {what}{shown}")
        };
        self.0.iter().map(line).collect()
    }
}

/// What a mark begins with.
const MARK: &str = "// from shaders/";

/// Where a line of an expanded text (from 1) comes from; `None` in a text without a mark before it.
pub fn place_of(text: &str, line: usize) -> Option<Place> {
    let mut found = None;
    for l in text.lines().take(line) {
        let mark = l.strip_prefix(MARK).and_then(|m| m.rsplit_once(':'));
        match mark.and_then(|(file, first)| Some((file, first.parse::<usize>().ok()?))) {
            // the mark's own line counts as the one it speaks of
            Some((file, first)) => found = Some((file, first, 0usize)),
            None => found = found.map(|(file, first, after)| (file, first, after + 1)),
        }
    }
    let (file, first, after) = found?;
    Some(place(file, first + after.saturating_sub(1)))
}

/// Every shader, by name. Errors: what is wrong in any of the files, and nothing is expanded.
pub fn expand(files: &Files) -> Result<Vec<Expanded>, Problems> {
    let mut problems = Problems::default();
    let shared = shared(files, &mut problems);
    let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
    for path in files.keys().filter(|p| !p.contains('/')) {
        if let Some(name) = path.strip_suffix(".wgsl") {
            entries.insert(name.to_string(), Entry { declared: place(path, 1), steps: vec![Step::File(path)] });
        }
    }
    if let Some(text) = files.get(TABLE) {
        for (name, entry) in table(text, &mut problems) {
            match entries.get(&name) {
                Some(other) => {
                    let what = format!("the shader {name} is declared twice: {} is it too", other.declared);
                    problems.add(entry.declared, what, None);
                }
                None => drop(entries.insert(name, entry)),
            }
        }
    }
    let mut expanded = Vec::new();
    for (name, entry) in &entries {
        let mut w = Writer::new(name, files, &shared, &mut problems);
        for step in &entry.steps {
            match step {
                Step::File(path) => w.file(path),
                Step::Const(text, line) => w.line(TABLE, *line, text),
                Step::Import(import, line) => w.import(import, TABLE, *line),
            }
        }
        // naga has the builtins of subgroups and refuses their line
        let asked = w.enables.iter().filter(|e| *e != "subgroups").map(|e| format!("enable {e};\n"));
        expanded.push(Expanded {
            name: name.clone(),
            declared: entry.declared.clone(),
            text: asked.chain([w.text]).collect(),
            enables: w.enables,
            imports: w.imports.into_iter().map(str::to_string).collect(),
        });
    }
    if problems.is_empty() { Ok(expanded) } else { Err(problems) }
}

/// The name of the table's file.
const TABLE: &str = "table";

/// The folder of what is imported.
const SHARED: &str = "shared/";

fn place(path: &str, line: usize) -> Place {
    Place { file: format!("shaders/{path}"), line, column: 0 }
}

/// The files below `shared`, by the names that import them.
fn shared<'a>(files: &'a Files, problems: &mut Problems) -> BTreeMap<&'a str, &'a str> {
    let mut shared = BTreeMap::new();
    for path in files.keys().filter(|p| p.starts_with(SHARED)) {
        let Some(name) = path.rsplit('/').next().and_then(|n| n.strip_suffix(".wgsl")) else { continue };
        if let Some(other) = shared.insert(name, path.as_str()) {
            let what = format!("two files are imported as {name}: shaders/{other} is the other");
            problems.add(place(path, 1), what, None);
        }
    }
    shared
}

/// A shader before its imports are expanded.
struct Entry<'a> {
    declared: Place,
    steps: Vec<Step<'a>>,
}

/// A part of an entry; the numbers are lines of the table.
enum Step<'a> {
    /// a file beside the table
    File(&'a str),
    /// a line of WGSL
    Const(String, usize),
    /// the name of a shared file
    Import(String, usize),
}

/// The text of one shader as it grows.
struct Writer<'a> {
    shader: &'a str,
    files: &'a Files,
    shared: &'a BTreeMap<&'a str, &'a str>,
    problems: &'a mut Problems,
    text: String,
    /// where the text goes on without a mark
    next: Option<(&'a str, usize)>,
    enables: Vec<String>,
    imports: BTreeSet<&'a str>,
}

impl<'a> Writer<'a> {
    fn new(
        shader: &'a str,
        files: &'a Files,
        shared: &'a BTreeMap<&'a str, &'a str>,
        problems: &'a mut Problems,
    ) -> Writer<'a> {
        let (enables, imports) = (Vec::new(), BTreeSet::new());
        Writer { shader, files, shared, problems, text: String::new(), next: None, enables, imports }
    }

    fn file(&mut self, path: &'a str) {
        let files = self.files;
        for (line, n) in files[path].lines().zip(1..) {
            if let Some(name) = line.strip_prefix("#import ") {
                self.import(name.trim_end(), path, n);
            } else if line.trim_start().starts_with('#') {
                let what = format!("`{}` is not `#import NAME`, at the line's beginning", line.trim());
                self.problems.add(place(path, n), what, Some(self.shader));
            } else if let Some(what) = line.strip_prefix("enable ") {
                self.enables.push(what.trim_end().trim_end_matches(';').to_string());
            } else {
                self.line(path, n, line);
            }
        }
    }

    fn import(&mut self, name: &str, path: &str, line: usize) {
        match self.shared.get(name) {
            Some(&import) => {
                if self.imports.insert(import) {
                    self.file(import);
                }
            }
            None => {
                let what = format!("cannot import {name}: there is no {name}.wgsl below shaders/shared");
                self.problems.add(place(path, line), what, Some(self.shader));
            }
        }
    }

    fn line(&mut self, path: &'a str, n: usize, line: &str) {
        if self.next != Some((path, n)) {
            self.text.push_str(&format!("{MARK}{path}:{n}\n"));
        }
        self.text.push_str(line);
        self.text.push('\n');
        self.next = Some((path, n + 1));
    }
}

/// What a frame is made of.
struct Frame<'a> {
    stem: &'a str,
    words: Vec<&'a str>,
    line: usize,
}

/// Names, the frames they have, and what they give for words in capitals.
struct Row<'a> {
    names: Vec<&'a str>,
    frames: Vec<&'a str>,
    parts: BTreeMap<&'a str, (Vec<&'a str>, usize)>,
    line: usize,
}

/// The entries of the table (its first lines say how it is written).
fn table<'a>(text: &'a str, problems: &mut Problems) -> Vec<(String, Entry<'a>)> {
    let mut wrong = |line, what: String| problems.add(place(TABLE, line), what, None);
    let (frames, rows) = read_table(text, &mut wrong);
    let mut entries = Vec::new();
    let mut used: BTreeSet<&str> = BTreeSet::new();
    for row in &rows {
        let mut given: BTreeSet<&str> = row.parts.keys().copied().collect();
        for &name in &row.frames {
            let Some(frame) = frames.get(name) else {
                wrong(row.line, format!("there is no frame {name}"));
                continue;
            };
            used.insert(name);
            let mut words: Vec<(&str, usize)> = Vec::new();
            for &word in &frame.words {
                match row.parts.get(word) {
                    _ if !is_part(word) => words.push((word, frame.line)),
                    None => wrong(row.line, format!("the frame {name} needs {word}, which the row does not give")),
                    Some((part, line)) => {
                        given.remove(word);
                        words.extend(part.iter().map(|&w| (w, *line)));
                    }
                }
            }
            for of in &row.names {
                let steps = words.iter().map(|&(word, line)| step(&word.replace('*', of), line)).collect();
                entries.push((frame.stem.replace('*', of), Entry { declared: place(TABLE, row.line), steps }));
            }
        }
        given.into_iter().for_each(|part| wrong(row.parts[part].1, format!("no frame of the row has {part}")));
    }
    for (name, frame) in frames.iter().filter(|(name, _)| !used.contains(*name)) {
        wrong(frame.line, format!("no row has the frame {name}"));
    }
    entries
}

fn step<'a>(word: &str, line: usize) -> Step<'a> {
    match word.split_once('=') {
        Some((name, value)) => Step::Const(format!("const {name} = {value};"), line),
        None => Step::Import(word.to_string(), line),
    }
}

/// Whether a word stands for a part: capitals alone.
fn is_part(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_uppercase())
}

/// The table's frames by name, and its rows.
fn read_table<'a>(
    text: &'a str,
    wrong: &mut impl FnMut(usize, String),
) -> (BTreeMap<&'a str, Frame<'a>>, Vec<Row<'a>>) {
    let (mut frames, mut rows) = (BTreeMap::new(), Vec::<Row>::new());
    for (whole, line) in text.lines().zip(1..) {
        if whole.trim().is_empty() || whole.starts_with('#') {
            continue;
        }
        let Some((left, right)) = whole.split_once(':') else {
            wrong(line, "a line without a colon".into());
            continue;
        };
        let (left, right): (Vec<&str>, Vec<&str>) =
            (left.split_whitespace().collect(), right.split_whitespace().collect());
        if left.is_empty() || right.is_empty() {
            wrong(line, "nothing before the colon, or nothing after it".into());
        } else if left[0] == "frame" {
            match left[1..] {
                [name, stem] if stem.matches('*').count() == 1 => {
                    if frames.insert(name, Frame { stem, words: right, line }).is_some() {
                        wrong(line, format!("a second frame {name}"));
                    }
                }
                _ => wrong(line, "a frame is written `frame NAME STEM: WORDS`, with one * in STEM".into()),
            }
        } else if whole.starts_with(char::is_whitespace) {
            match (&left[..], rows.last_mut()) {
                (&[part], Some(row)) if is_part(part) && !right.iter().any(|w| is_part(w)) => {
                    if row.parts.insert(part, (right, line)).is_some() {
                        wrong(line, format!("a second {part} of one row"));
                    }
                }
                _ => wrong(line, "a part is written `PART: WORDS` below a row, without another part in it".into()),
            }
        } else {
            rows.push(Row { names: left, frames: right, parts: BTreeMap::new(), line });
        }
    }
    (frames, rows)
}
