//! Strings that end an answer: what comes before one is shown, what may be the beginning of one waits.

/// Looks for stop strings in a text that streams.
pub struct Stops {
    stops: Vec<String>,
    /// the end of the text so far that may be the beginning of a stop string
    held: String,
}

impl Stops {
    /// Empty strings are passed over.
    pub fn new(stops: Vec<String>) -> Stops {
        Stops { stops: stops.into_iter().filter(|s| !s.is_empty()).collect(), held: String::new() }
    }

    /// What can be shown after more of the text, and whether a stop string ends it.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        if self.stops.is_empty() {
            return (text.to_owned(), false);
        }
        self.held.push_str(text);
        let hit = self.stops.iter().filter_map(|s| self.held.find(s.as_str())).min();
        if let Some(at) = hit {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let may_begin = |at: &usize| self.stops.iter().any(|s| s.starts_with(&self.held[*at..]));
        let starts = self.held.char_indices().map(|(at, _)| at);
        let at = starts.filter(|at| self.held.len() - at < self.longest()).find(may_begin).unwrap_or(self.held.len());
        let rest = self.held.split_off(at);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// What waited, when no more text comes.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    fn longest(&self) -> usize {
        self.stops.iter().map(String::len).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown of a text that comes in pieces.
    fn shown(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut s = Stops::new(stops.iter().map(|s| s.to_string()).collect());
        let mut out = String::new();
        for piece in pieces {
            let (text, hit) = s.push(piece);
            out += &text;
            if hit {
                return (out, true);
            }
        }
        (out + &s.finish(), false)
    }

    #[test]
    fn a_stop_string_ends_the_text_however_it_is_cut() {
        let text = "one two\nUser: three ünd vier";
        for cut in text.char_indices().map(|(i, _)| i) {
            let pieces = [&text[..cut], &text[cut..]];
            assert_eq!(shown(&["\nUser:"], &pieces), ("one two".into(), true), "{cut}");
            assert_eq!(shown(&["\nUsers"], &pieces), (text.into(), false), "{cut}");
            assert_eq!(shown(&["ünd", "tw", "zz"], &pieces), ("one ".into(), true), "{cut}");
        }
        let single: Vec<String> = text.chars().map(String::from).collect();
        let single: Vec<&str> = single.iter().map(String::as_str).collect();
        assert_eq!(shown(&["three ü"], &single), ("one two\nUser: ".into(), true));
        assert_eq!(shown(&["aab"], &["a", "a", "a", "b", "c"]), ("a".into(), true), "the beginning overlaps itself");
        assert_eq!(shown(&["", "x"], &["abc"]), ("abc".into(), false));
    }

    #[test]
    fn text_waits_only_while_it_may_be_a_stop_string() {
        let mut s = Stops::new(vec!["<end>".into()]);
        assert_eq!(s.push("a <"), ("a ".into(), false));
        assert_eq!(s.push("e"), ("".into(), false));
        assert_eq!(s.push("x"), ("<ex".into(), false));
        assert_eq!(s.finish(), "");
    }
}
