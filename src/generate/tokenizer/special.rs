//! Cuts the text at special tokens, before any other rule sees it.
//!
//! Knows nothing of merges or scores. The order is llama.cpp's: the longest token text first, over the whole text, so
//! a long token wins over a shorter one that begins before it.

/// A piece of the text: still to be tokenised, or already a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fragment<'a> {
    Text(&'a str),
    Token(u32),
}

/// One token that is matched by its text.
#[derive(Clone, Debug)]
pub(super) struct Special {
    pub text: String,
    pub id: u32,
    /// matched also when special tokens are not to be parsed (user-defined tokens)
    pub always: bool,
    /// white space to the right of a match belongs to it and is dropped
    pub strip_right: bool,
}

/// The tokens matched by text, longest first; equal lengths by id.
#[derive(Clone, Debug, Default)]
pub(super) struct Specials {
    list: Vec<Special>,
}

/// White space as C's `isspace` has it, which the strip-right rule is defined with.
fn is_c_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r')
}

/// Which four-byte sequences a text may contain: a filter that lets thousands of absent tokens be passed over without
/// a scan of the text for each. It may say yes wrongly, never no.
struct Grams {
    bits: Vec<u64>,
    shift: u32,
}

impl Grams {
    fn new(text: &str) -> Grams {
        let log2 = (text.len().saturating_mul(8)).max(64).ilog2().clamp(6, 24);
        let mut grams = Grams { bits: vec![0; 1 << (log2 - 6)], shift: 32 - log2 };
        for w in text.as_bytes().windows(4) {
            let at = grams.slot(w);
            grams.bits[at >> 6] |= 1 << (at & 63);
        }
        grams
    }

    fn slot(&self, w: &[u8]) -> usize {
        let word = u32::from_le_bytes([w[0], w[1], w[2], w[3]]);
        (word.wrapping_mul(0x9E37_79B1) >> self.shift) as usize
    }

    fn may_contain(&self, needle: &str) -> bool {
        needle.as_bytes().windows(4).all(|w| {
            let at = self.slot(w);
            self.bits[at >> 6] >> (at & 63) & 1 == 1
        })
    }
}

impl Specials {
    pub fn new(mut list: Vec<Special>) -> Specials {
        list.retain(|s| !s.text.is_empty());
        list.sort_by(|a, b| b.text.len().cmp(&a.text.len()).then(a.id.cmp(&b.id)));
        Specials { list }
    }

    /// The texts that are matched.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|s| s.text.as_str())
    }

    /// Whether a match may take white space with it.
    pub fn strips(&self) -> bool {
        self.list.iter().any(|s| s.strip_right)
    }

    /// Cuts `text`. Empty text fragments are left out.
    pub fn split<'a>(&self, text: &'a str, parse_special: bool) -> Vec<Fragment<'a>> {
        if text.is_empty() {
            return Vec::new();
        }
        let mut fragments = vec![Fragment::Text(text)];
        if self.list.is_empty() {
            return fragments;
        }
        let grams = Grams::new(text);
        for special in &self.list {
            if !(special.always || parse_special) || !grams.may_contain(&special.text) {
                continue;
            }
            let here = |f: &Fragment| matches!(f, Fragment::Text(t) if t.contains(&special.text));
            if fragments.iter().any(here) {
                let mut next = Vec::with_capacity(fragments.len() + 2);
                for fragment in fragments {
                    match fragment {
                        Fragment::Text(t) => special.cut(t, &mut next),
                        Fragment::Token(_) => next.push(fragment),
                    }
                }
                fragments = next;
            }
        }
        fragments
    }
}

impl Special {
    fn cut<'a>(&self, mut text: &'a str, out: &mut Vec<Fragment<'a>>) {
        while let Some((left, right)) = text.split_once(self.text.as_str()) {
            if !left.is_empty() {
                out.push(Fragment::Text(left));
            }
            out.push(Fragment::Token(self.id));
            text = if self.strip_right { right.trim_start_matches(is_c_space) } else { right };
        }
        if !text.is_empty() {
            out.push(Fragment::Text(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn special(text: &str, id: u32, always: bool) -> Special {
        Special { text: text.to_string(), id, always, strip_right: false }
    }

    #[test]
    fn the_longest_token_wins_even_when_a_shorter_one_begins_before_it() {
        let s = Specials::new(vec![special("abc", 1, true), special("cdefg", 2, true)]);
        use Fragment::{Text, Token};
        assert_eq!(s.split("abcdefg", true), [Text("ab"), Token(2)]);
        assert_eq!(s.split("abcdef", true), [Token(1), Text("def")]);
    }

    #[test]
    fn control_tokens_are_text_unless_parsed_but_user_defined_ones_always_match() {
        let s = Specials::new(vec![special("<c>", 1, false), special("<u>", 2, true)]);
        use Fragment::{Text, Token};
        assert_eq!(s.split("<c><u>x", false), [Text("<c>"), Token(2), Text("x")]);
        assert_eq!(s.split("<c><u>x", true), [Token(1), Token(2), Text("x")]);
        assert_eq!(s.split("", true), []);
    }

    #[test]
    fn a_token_that_strips_to_the_right_eats_the_white_space_after_it() {
        let mut end = special("<|end|>", 7, false);
        end.strip_right = true;
        let s = Specials::new(vec![end]);
        use Fragment::{Text, Token};
        assert_eq!(s.split("a <|end|> \n\u{b}b<|end|>\n", true), [Text("a "), Token(7), Text("b"), Token(7)]);
    }

    #[test]
    fn tokens_shorter_than_the_filter_are_found() {
        let s = Specials::new(vec![special("\n", 3, true), special("é", 4, true)]);
        use Fragment::{Text, Token};
        assert_eq!(s.split("a\né", false), [Text("a"), Token(3), Token(4)]);
    }
}
