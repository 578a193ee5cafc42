//! Calls as Gemma 4 writes them: `call:NAME{key:<|"|>text<|"|>,n:3,list:[true,null]}`, whose keys have no quotes and whose
//! texts stand between two tokens of their own. JSON in its place is read as well.

use super::format::Found;
use serde_json::{Map, Value};

/// What stands on either side of a text.
const QUOTE: &str = "<|\"|>";
/// What ends a call.
const CLOSE: &str = "<tool_call|>";
/// Lists and objects within each other that are read.
const DEEPEST: usize = 64;

/// Why there is no value.
enum Stop {
    /// the text ends before it does
    More,
    /// it is none
    Bad,
}

/// A call, with what closes it; `last`: no more text comes.
pub(super) fn call(text: &str, last: bool) -> Found {
    const HEAD: &str = "call:";
    let body = text.trim_start();
    let Some(named) = body.strip_prefix(HEAD) else {
        return if HEAD.starts_with(body) && !last { Found::More } else { Found::Nothing };
    };
    let Some(at) = named.find(|c: char| !(c.is_alphanumeric() || "_-.:".contains(c))) else {
        return if last { Found::Nothing } else { Found::More };
    };
    if at == 0 || !named[at..].starts_with('{') {
        return Found::Nothing;
    }
    let mut r = Reader { rest: &named[at..], depth: 0 };
    let arguments = match r.value() {
        Ok(v) => v,
        Err(Stop::More) if !last => return Found::More,
        Err(_) => return Found::Nothing,
    };
    let after = r.rest.trim_start();
    let rest = match after.strip_prefix(CLOSE) {
        Some(rest) => rest,
        None if CLOSE.starts_with(after) && !last => return Found::More,
        None => r.rest,
    };
    Found::Calls(vec![(named[..at].to_string(), arguments.to_string())], text.len() - rest.len())
}

struct Reader<'a> {
    rest: &'a str,
    depth: usize,
}

impl Reader<'_> {
    fn value(&mut self) -> Result<Value, Stop> {
        self.rest = self.rest.trim_start();
        if self.rest.is_empty() || QUOTE.starts_with(self.rest) {
            return Err(Stop::More);
        }
        match self.rest.as_bytes()[0] {
            b'{' => self.nested(Reader::object),
            b'[' => self.nested(Reader::list),
            b'"' => self.text().map(Value::from),
            _ if self.rest.starts_with(QUOTE) => self.text().map(Value::from),
            _ => {
                let end = self.rest.find([',', ']', '}']).ok_or(Stop::More)?;
                let (word, rest) = self.rest.split_at(end);
                self.rest = rest;
                let word = word.trim();
                Ok(serde_json::from_str(word).unwrap_or_else(|_| Value::from(word)))
            }
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value, Stop>) -> Result<Value, Stop> {
        if self.depth == DEEPEST {
            return Err(Stop::Bad);
        }
        self.depth += 1;
        self.rest = &self.rest[1..];
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn object(&mut self) -> Result<Value, Stop> {
        let mut map = Map::new();
        while !self.takes('}')? {
            let key = self.key()?;
            map.insert(key, self.value()?);
            self.separated('}')?;
        }
        Ok(Value::Object(map))
    }

    fn list(&mut self) -> Result<Value, Stop> {
        let mut list = Vec::new();
        while !self.takes(']')? {
            list.push(self.value()?);
            self.separated(']')?;
        }
        Ok(Value::Array(list))
    }

    /// A key and its colon.
    fn key(&mut self) -> Result<String, Stop> {
        if QUOTE.starts_with(self.rest) {
            return Err(Stop::More);
        }
        if self.rest.starts_with('"') || self.rest.starts_with(QUOTE) {
            let key = self.text()?;
            return if self.takes(':')? { Ok(key) } else { Err(Stop::Bad) };
        }
        let (key, rest) = self.rest.split_once(':').ok_or(Stop::More)?;
        if key.contains(['{', '}', '[', ']', ',']) {
            return Err(Stop::Bad);
        }
        self.rest = rest;
        Ok(key.trim().to_string())
    }

    /// A text between its quotes, which are two tokens or JSON's.
    fn text(&mut self) -> Result<String, Stop> {
        if let Some(inner) = self.rest.strip_prefix(QUOTE) {
            let (text, rest) = inner.split_once(QUOTE).ok_or(Stop::More)?;
            self.rest = rest;
            return Ok(text.to_string());
        }
        let mut values = serde_json::Deserializer::from_str(self.rest).into_iter::<String>();
        match values.next() {
            Some(Ok(text)) => {
                self.rest = &self.rest[values.byte_offset()..];
                Ok(text)
            }
            Some(Err(e)) if !e.is_eof() => Err(Stop::Bad),
            _ => Err(Stop::More),
        }
    }

    /// Whether this sign is next, which is then behind.
    fn takes(&mut self, sign: char) -> Result<bool, Stop> {
        self.rest = self.rest.trim_start();
        if self.rest.is_empty() {
            return Err(Stop::More);
        }
        let next = self.rest.strip_prefix(sign);
        self.rest = next.unwrap_or(self.rest);
        Ok(next.is_some())
    }

    /// A comma, or what ends the list, which stays.
    fn separated(&mut self, end: char) -> Result<(), Stop> {
        if self.takes(',')? || self.rest.starts_with(end) { Ok(()) } else { Err(Stop::Bad) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(String, Value, usize)> {
        match call(text, false) {
            Found::Calls(calls, n) => {
                let [(name, arguments)] = &calls[..] else { panic!("{calls:?}") };
                Some((name.clone(), serde_json::from_str(arguments).unwrap(), n))
            }
            _ => None,
        }
    }

    #[test]
    fn values_of_every_kind_become_json() {
        let text = "call:get_weather{city:<|\"|>Bern, {BE} \"old\"<|\"|>,days:3,exact:-1.5e2,on:true,no:null,\
                    to:[<|\"|>a<|\"|>,[1],{deep:{x:<|\"|><|\"|>}}],<|\"|>two words<|\"|>:word,none:[],of:{}}<tool_call|> and";
        let (name, arguments, n) = read(text).unwrap();
        let expected = serde_json::json!({"city": "Bern, {BE} \"old\"", "days": 3, "exact": -150.0, "on": true, "no": null,
            "to": ["a", [1], {"deep": {"x": ""}}], "two words": "word", "none": [], "of": {}});
        assert_eq!((name.as_str(), arguments, &text[n..]), ("get_weather", expected, " and"));
        let json = "call:f{\"a\": \"}\\\"\", \"b\": [1, {\"c\": null}]}<tool_call|>";
        assert_eq!(read(json).unwrap().1, serde_json::json!({"a": "}\"", "b": [1, {"c": null}]}));
    }

    #[test]
    fn half_a_call_waits_and_none_is_told() {
        let whole = "call:f{a:[<|\"|>x<|\"|>,{b:1}]}<tool_call|>";
        for (n, _) in whole.char_indices() {
            assert!(matches!(call(&whole[..n], false), Found::More), "{}", &whole[..n]);
        }
        for text in ["", "call", "call:f", "call:f{a", "call:f{a:<|\"|>x"] {
            assert!(matches!(call(text, true), Found::Nothing), "{text}");
        }
        let deep = format!("call:f{{a:{}", "[".repeat(10_000));
        for text in ["call it", "call:{}", "call:f x{}", "call:f{a:[1}}", "call:f{[:1}", deep.as_str()] {
            assert!(matches!(call(text, false), Found::Nothing), "{text:.60}");
        }
    }
}
