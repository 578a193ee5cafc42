//! The sequences of ids at which DRY takes a text to begin anew, from the texts that stand there.

use super::tokenizer::Tokenizer;
use anyhow::Result;

/// llama.cpp's: the ends of lines, colons, quotes and asterisks.
pub const BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

/// Ids after the first of a sequence, at most, and characters of a text that are looked at, as in llama.cpp.
const TAIL_MAX: usize = 20;
const TEXT_MAX: usize = 40;

/// Every way in which tokens can spell one of the texts, for [`SamplerOptions::dry_breakers`]: a token that has it inside,
/// alone; and a token that ends as it begins, with the ids of the rest after it. In the order of ids, none twice.
///
/// [`SamplerOptions::dry_breakers`]: super::sampling::SamplerOptions::dry_breakers
///
/// Errors: those of the tokeniser.
pub fn breakers(tokenizer: &Tokenizer, texts: &[impl AsRef<str>]) -> Result<Vec<Vec<u32>>> {
    let mut list = Vec::new();
    for text in texts {
        let text = text.as_ref();
        let text = &text[..text.char_indices().nth(TEXT_MAX).map_or(text.len(), |(end, _)| end)];
        if text.is_empty() {
            continue;
        }
        // for each place in the text the ids from there on, which many tokens have in common
        let mut tails: Vec<(usize, Vec<u32>)> = Vec::new();
        for (at, _) in text.char_indices().skip(1) {
            let mut ids = tokenizer.encode(&text[at..], false, false)?;
            ids.truncate(TAIL_MAX);
            tails.push((at, ids));
        }
        for id in 0..tokenizer.vocab_size() as u32 {
            let piece = tokenizer.piece(id);
            if piece.windows(text.len()).any(|w| w == text.as_bytes()) {
                list.push(vec![id]);
                continue;
            }
            let ending = tails.iter().filter(|(at, _)| piece.ends_with(&text.as_bytes()[..*at]));
            list.extend(ending.map(|(_, tail)| [&[id], tail.as_slice()].concat()));
        }
    }
    list.sort_unstable();
    list.dedup();
    Ok(list)
}
