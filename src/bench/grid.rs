//! Tests and lists of numbers, as llama-bench's flags name them.

use std::fmt;

/// The most values one list may have.
const MOST: usize = 10_000;

/// One test: so many prompt tokens, then so many generated one by one, after so many that the cache already holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Test {
    /// tokens of the prompt
    pub prompt: usize,
    /// tokens generated one by one
    pub generate: usize,
    /// tokens in the cache before
    pub depth: usize,
}

impl Test {
    /// Tokens timed.
    pub fn tokens(&self) -> usize {
        self.prompt + self.generate
    }

    /// Positions the cache must hold.
    pub fn positions(&self) -> usize {
        self.depth + self.tokens()
    }
}

/// `pp512`, `tg128`, `pp512+tg128`, ` @ d512` after them.
impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.prompt, self.generate) {
            (p, 0) => write!(f, "pp{p}")?,
            (0, g) => write!(f, "tg{g}")?,
            (p, g) => write!(f, "pp{p}+tg{g}")?,
        }
        if self.depth > 0 { write!(f, " @ d{}", self.depth) } else { Ok(()) }
    }
}

/// Every test: at each depth the prompts, then the generations, then the pairs; zeros name none.
pub fn tests(prompts: &[usize], generations: &[usize], pairs: &[(usize, usize)], depths: &[usize]) -> Vec<Test> {
    let mut list = Vec::new();
    for &depth in depths {
        let alone = prompts.iter().map(|&p| (p, 0)).chain(generations.iter().map(|&g| (0, g)));
        for (prompt, generate) in alone.chain(pairs.iter().copied()) {
            let test = Test { prompt, generate, depth };
            if test.tokens() > 0 && !list.contains(&test) {
                list.push(test);
            }
        }
    }
    list
}

/// The numbers of one word: `512`, `128,512`, `1-4` (1 2 3 4), `0-4096+1024`, `128-1024*2`; no number above `max`.
pub fn numbers(word: &str, max: usize) -> Result<Vec<usize>, String> {
    let expected = || format!("expected numbers up to {max}, as 512 or 128,512 or 0-4096+1024 or 128-1024*2");
    let one = |s: &str| s.trim().parse::<usize>().ok().filter(|&n| n <= max).ok_or_else(expected);
    let mut list = Vec::new();
    for item in word.split(',') {
        let Some((first, rest)) = item.split_once('-') else {
            list.push(one(item)?);
            continue;
        };
        let (last, step, multiply) = match (rest.split_once('+'), rest.split_once('*')) {
            (Some((last, step)), None) => (last, one(step)?, false),
            (None, Some((last, step))) => (last, one(step)?, true),
            (None, None) => (rest, 1, false),
            _ => return Err(expected()),
        };
        let (mut n, last) = (one(first)?, one(last)?);
        if n > last || step < if multiply { 2 } else { 1 } || (multiply && n == 0) {
            return Err(format!("the range {item} does not lead upwards; {}", expected()));
        }
        while n <= last {
            list.push(n);
            if list.len() > MOST {
                return Err(format!("more than {MOST} values"));
            }
            n = if multiply { n.saturating_mul(step) } else { n.saturating_add(step) };
        }
    }
    Ok(list)
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn lists_and_ranges_are_those_of_llama_bench() {
        let of = |s| numbers(s, 1 << 20);
        assert_eq!(of("512"), Ok(vec![512]));
        assert_eq!(of("128,0, 7"), Ok(vec![128, 0, 7]));
        assert_eq!(of("1-4"), Ok(vec![1, 2, 3, 4]));
        assert_eq!(of("0-10+4,128-1024*2"), Ok(vec![0, 4, 8, 128, 256, 512, 1024]));
        for bad in ["", "a", "-1", "4-1", "1-4+0", "1-8*1", "0-8*2", "1-2+1*2", "1.5", "9999999", "0-99999"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn tests_come_in_llama_benchs_order_and_under_its_names() {
        let list = tests(&[512, 0], &[128], &[(64, 16), (0, 0)], &[0, 4096]);
        let names: Vec<String> = list.iter().map(Test::to_string).collect();
        assert_eq!(
            names,
            ["pp512", "tg128", "pp64+tg16", "pp512 @ d4096", "tg128 @ d4096", "pp64+tg16 @ d4096"].map(String::from)
        );
        assert_eq!(list[5].positions(), 4096 + 80);
        assert_eq!(tests(&[0], &[0], &[], &[0]), []);
    }
}
