//! llama.cpp's grammars (GBNF, its `grammars/README.md`) in llguidance's terms.
//!
//! A GBNF grammar is one of characters: any way to read a text by its rules will do. llguidance has a lexer, whose terminals
//! take as many characters as they can. Both are the same where a terminal is one character, so that is what becomes of each
//! (a literal is a sequence of them). A grammar without recursion is one regular expression, which is much faster.

use llguidance::api::TopLevelGrammar;
use std::collections::HashMap;
use std::fmt::Write;

/// Characters of the expression that a grammar without recursion becomes, at most; a longer one stays rules.
const REGEX_MAX: usize = 1 << 16;
/// Times that a part may be repeated, as in llama.cpp.
const REPEATS_MAX: u32 = 2000;
/// Groups in groups.
const DEPTH_MAX: usize = 100;

/// A part of a rule.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    /// one character of some ranges, or of none of them
    Char { ranges: Vec<(char, char)>, not: bool },
    /// what a rule says
    Rule(usize),
    /// one after the other
    Sequence(Vec<Part>),
    /// one of several
    Either(Vec<Part>),
    /// so many times; `None`: any number above
    Repeat(Box<Part>, u32, Option<u32>),
}

/// Rules by number, with their names.
#[derive(Default)]
struct Rules {
    numbers: HashMap<String, usize>,
    names: Vec<String>,
    parts: Vec<Option<Part>>,
}

impl Rules {
    fn number(&mut self, name: &str) -> usize {
        if let Some(&n) = self.numbers.get(name) {
            return n;
        }
        self.numbers.insert(name.into(), self.names.len());
        self.names.push(name.into());
        self.parts.push(None);
        self.names.len() - 1
    }
}

/// A grammar for llguidance.
///
/// Errors: one line with the place.
pub fn convert(text: &str) -> Result<TopLevelGrammar, String> {
    let mut reader = Reader { text, at: 0, rules: Rules::default(), depth: 0 };
    reader.grammar()?;
    let rules = reader.rules;
    let Some(&root) = rules.numbers.get("root") else { return Err("there is no rule root".into()) };
    if let Some(n) = rules.parts.iter().position(Option::is_none) {
        return Err(format!("there is no rule {}", rules.names[n]));
    }
    let parts: Vec<Part> = rules.parts.into_iter().flatten().collect();
    if let Some(order) = without_recursion(&parts, root)
        && let Some(regex) = as_regex(&parts, &order, root)
    {
        return Ok(TopLevelGrammar::from_regex(&regex));
    }
    Ok(TopLevelGrammar::from_lark(as_lark(&parts, root)))
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    rules: Rules,
    depth: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn error<T>(&self, what: &str) -> Result<T, String> {
        let before = &self.text[..self.at];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        Err(format!("line {line}, column {column}: {what}"))
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn eat(&mut self, token: &str) -> bool {
        let is = self.rest().starts_with(token);
        self.at += if is { token.len() } else { 0 };
        is
    }

    /// Passes over white space and comments; over the ends of lines where that is said.
    fn space(&mut self, lines: bool) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' => self.at += 1,
                '\r' | '\n' if lines => self.at += 1,
                '#' => self.at += self.rest().find(['\r', '\n']).unwrap_or(self.rest().len()),
                _ => return,
            }
        }
    }

    fn name(&mut self) -> Result<usize, String> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let length = self.rest().find(|c| !is_name(c)).unwrap_or(self.rest().len());
        if length == 0 {
            return self.error("the name of a rule expected");
        }
        let name = self.rest()[..length].to_string();
        self.at += length;
        Ok(self.rules.number(&name))
    }

    fn grammar(&mut self) -> Result<(), String> {
        self.space(true);
        while self.peek().is_some() {
            let rule = self.name()?;
            self.space(false);
            if !self.eat("::=") {
                return self.error("::= expected");
            }
            self.space(true);
            let part = self.either(false)?;
            self.rules.parts[rule] = Some(part);
            if !matches!(self.peek(), None | Some('\r' | '\n')) {
                return self.error("the end of the line expected");
            }
            self.space(true);
        }
        Ok(())
    }

    fn either(&mut self, nested: bool) -> Result<Part, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.error(&format!("groups in groups, {DEPTH_MAX} at most are taken"));
        }
        let mut list = vec![self.sequence(nested)?];
        while self.eat("|") {
            self.space(true);
            list.push(self.sequence(nested)?);
        }
        self.depth -= 1;
        Ok(if list.len() == 1 { list.swap_remove(0) } else { Part::Either(list) })
    }

    fn sequence(&mut self, nested: bool) -> Result<Part, String> {
        let mut list = Vec::new();
        loop {
            let part = match self.peek() {
                Some('"') => self.literal()?,
                Some('[') => self.class()?,
                Some('.') => {
                    self.at += 1;
                    Part::Char { ranges: Vec::new(), not: true }
                }
                Some('(') => {
                    self.at += 1;
                    self.space(true);
                    let inner = self.either(true)?;
                    if !self.eat(")") {
                        return self.error(") expected");
                    }
                    inner
                }
                Some('<' | '!') => return self.error("tokens by name are not supported"),
                Some(c) if c.is_ascii_alphanumeric() || c == '-' || c == '_' => Part::Rule(self.name()?),
                Some('*' | '+' | '?' | '{') => return self.error("nothing to repeat"),
                _ => return Ok(Part::Sequence(list)),
            };
            self.space(nested);
            list.push(self.repeats(part, nested)?);
        }
    }

    /// A part and how often it comes.
    fn repeats(&mut self, mut part: Part, nested: bool) -> Result<Part, String> {
        loop {
            let (least, most) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    let Some(end) = self.rest().find('}') else { return self.error("} expected") };
                    let inside = &self.rest()[1..end];
                    let number = |s: &str| s.trim().parse().ok().filter(|n| *n <= REPEATS_MAX);
                    let (least, most) = match inside.split_once(',') {
                        None => (number(inside), number(inside).map(Some)),
                        Some((least, "")) => (number(least), Some(None)),
                        Some((least, most)) => (number(least), number(most).map(Some)),
                    };
                    let (Some(least), Some(most)) = (least, most) else {
                        return self.error(&format!("{{m}}, {{m,}} or {{m,n}} expected, {REPEATS_MAX} at most"));
                    };
                    if most.is_some_and(|most| most < least) {
                        return self.error("repeated fewer times at most than at least");
                    }
                    self.at += end;
                    (least, most)
                }
                _ => return Ok(part),
            };
            self.at += 1;
            self.space(nested);
            part = Part::Repeat(Box::new(part), least, most);
        }
    }

    fn literal(&mut self) -> Result<Part, String> {
        self.at += 1;
        let mut list = Vec::new();
        while !self.eat("\"") {
            let c = self.character()?;
            list.push(Part::Char { ranges: vec![(c, c)], not: false });
        }
        Ok(Part::Sequence(list))
    }

    fn class(&mut self) -> Result<Part, String> {
        self.at += 1;
        let not = self.eat("^");
        let mut ranges = Vec::new();
        while !self.eat("]") {
            let first = self.character()?;
            let mut last = first;
            if self.rest().starts_with('-') && !self.rest().starts_with("-]") {
                self.at += 1;
                last = self.character()?;
            }
            if last < first {
                return self.error("a range of characters that ends before it begins");
            }
            ranges.push((first, last));
        }
        if ranges.is_empty() && !not {
            return self.error("a class without characters");
        }
        Ok(Part::Char { ranges, not })
    }

    /// A character of a literal or a class, or what stands for one.
    fn character(&mut self) -> Result<char, String> {
        let Some(c) = self.peek() else { return self.error("the end of a literal or class expected") };
        self.at += c.len_utf8();
        if c != '\\' {
            return Ok(c);
        }
        let Some(escape) = self.peek() else { return self.error("a character expected after \\") };
        let digits = match escape {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            't' | 'r' | 'n' | '\\' | '"' | '[' | ']' | '-' | '^' => 0,
            _ => return self.error(&format!("\\{escape} stands for nothing")),
        };
        self.at += 1;
        if digits == 0 {
            return Ok(match escape {
                't' => '\t',
                'r' => '\r',
                'n' => '\n',
                other => other,
            });
        }
        let code = self.rest().get(..digits).filter(|s| s.bytes().all(|b| b.is_ascii_hexdigit()));
        match code.and_then(|s| u32::from_str_radix(s, 16).ok()).and_then(char::from_u32) {
            Some(c) => {
                self.at += digits;
                Ok(c)
            }
            None => self.error(&format!("{digits} hexadecimal digits of a character expected")),
        }
    }
}

/// The rules that a part refers to.
fn refers(part: &Part, to: &mut Vec<usize>) {
    match part {
        Part::Char { .. } => {}
        Part::Rule(n) => to.push(*n),
        Part::Sequence(list) | Part::Either(list) => list.iter().for_each(|p| refers(p, to)),
        Part::Repeat(part, ..) => refers(part, to),
    }
}

/// The rules that the root needs, each after those it refers to; `None`: some refer to themselves.
fn without_recursion(parts: &[Part], root: usize) -> Option<Vec<usize>> {
    /// Not begun, being looked at, done.
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done,
    }
    let mut states = vec![State::New; parts.len()];
    let (mut order, mut stack) = (Vec::new(), vec![root]);
    while let Some(&n) = stack.last() {
        match states[n] {
            State::New => {
                states[n] = State::Open;
                let mut to = Vec::new();
                refers(&parts[n], &mut to);
                if to.iter().any(|m| states[*m] == State::Open) {
                    return None;
                }
                stack.extend(to.into_iter().filter(|m| states[*m] == State::New));
            }
            State::Open => {
                states[n] = State::Done;
                order.push(n);
                stack.pop();
            }
            State::Done => {
                stack.pop();
            }
        }
    }
    Some(order)
}

/// A character class in the syntax of regular expressions.
fn class(ranges: &[(char, char)], not: bool) -> String {
    if ranges.is_empty() {
        return "(?s:.)".into();
    }
    let mut out = String::from(if not { "[^" } else { "[" });
    for (first, last) in ranges {
        // by number: no character means anything else then
        let _ = write!(out, "\\x{{{:x}}}-\\x{{{:x}}}", *first as u32, *last as u32);
    }
    out.push(']');
    out
}

fn repeated(inner: &str, least: u32, most: Option<u32>) -> String {
    match (least, most) {
        (0, None) => format!("({inner})*"),
        (1, None) => format!("({inner})+"),
        (0, Some(1)) => format!("({inner})?"),
        (least, None) => format!("({inner}){{{least},}}"),
        (least, Some(most)) => format!("({inner}){{{least},{most}}}"),
    }
}

/// One expression for the root; `None`: it would be too long.
fn as_regex(parts: &[Part], order: &[usize], root: usize) -> Option<String> {
    fn part(p: &Part, done: &[String]) -> Option<String> {
        let all = |list: &[Part], between: &str| {
            let list: Option<Vec<String>> = list.iter().map(|p| part(p, done)).collect();
            list.map(|l| l.join(between)).filter(|s| s.len() <= REGEX_MAX)
        };
        let text = match p {
            Part::Char { ranges, not } => class(ranges, *not),
            Part::Rule(n) => format!("({})", done[*n]),
            Part::Sequence(list) => all(list, "")?,
            Part::Either(list) => format!("({})", all(list, "|")?),
            Part::Repeat(inner, least, most) => repeated(&part(inner, done)?, *least, *most),
        };
        (text.len() <= REGEX_MAX).then_some(text)
    }
    let mut done = vec![String::new(); parts.len()];
    for &n in order {
        done[n] = part(&parts[n], &done)?;
    }
    Some(std::mem::take(&mut done[root])).filter(|s| !s.is_empty())
}

/// Rules of Lark, whose terminals are single characters.
fn as_lark(parts: &[Part], root: usize) -> String {
    fn part(p: &Part) -> String {
        match p {
            Part::Char { ranges, not } => format!("/{}/", class(ranges, *not)),
            Part::Rule(n) => format!("r{n}"),
            Part::Sequence(list) if list.is_empty() => "\"\"".into(),
            Part::Sequence(list) => format!("({})", list.iter().map(part).collect::<Vec<_>>().join(" ")),
            Part::Either(list) => format!("({})", list.iter().map(part).collect::<Vec<_>>().join(" | ")),
            Part::Repeat(inner, least, most) => repeated(&part(inner), *least, *most),
        }
    }
    let mut out = format!("start: r{root}\n");
    for (n, p) in parts.iter().enumerate() {
        let _ = writeln!(out, "r{n}: {}", part(p));
    }
    out
}
