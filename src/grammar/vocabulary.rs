//! The tokens of a model as a trie of their bytes.

use super::GrammarError;
use crate::generate::tokenizer::Tokenizer;
use llguidance::ParserFactory;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use std::sync::Arc;

/// The tokens of a model, as grammars see them: what each adds to a text, and which end it. Made once for a model; clones
/// share it.
#[derive(Clone)]
pub struct Vocabulary {
    factory: Arc<ParserFactory>,
    tokens: usize,
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Vocabulary").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

/// A token of more bytes is never allowed; the trie takes no deeper path.
const TOKEN_MAX: usize = 1000;
/// Nodes that the trie has room for.
const NODES_MAX: usize = (1 << 22) - 1;
/// Ids that it has room for.
const TOKENS_MAX: usize = (1 << 24) - 2;

impl Vocabulary {
    /// Of a tokeniser. Tokens that add nothing to a text are special: none of them is allowed but where a grammar names them
    /// (`<|text|>` in Lark), and those that end a text where it may end.
    ///
    /// Errors: no token ends a text; more or longer tokens than the trie holds.
    pub fn new(tokenizer: &Tokenizer) -> Result<Vocabulary, GrammarError> {
        let (tokens, ends) = (tokenizer.vocab_size(), tokenizer.eos());
        let Some(&end) = ends.first() else {
            return Err(GrammarError::Vocabulary("no token ends a text, so a grammar could not end one".into()));
        };
        let word = |id: u32| {
            let bytes = if ends.contains(&id) { Vec::new() } else { tokenizer.piece(id) };
            match bytes.as_slice() {
                [] => {
                    let name = tokenizer.token_text(id).unwrap_or_default();
                    // the marker of special tokens, a byte that no text has
                    [&[TokTrie::SPECIAL_TOKEN_MARKER], name.as_bytes()].concat()
                }
                [TokTrie::SPECIAL_TOKEN_MARKER, ..] => Vec::new(),
                _ => bytes,
            }
        };
        let words: Vec<Vec<u8>> = (0..tokens as u32).map(word).map(short).collect();
        Vocabulary::of(&words, end, ends)
    }

    /// Of the bytes of tokens.
    pub(super) fn of(words: &[Vec<u8>], end: u32, ends: &[u32]) -> Result<Vocabulary, GrammarError> {
        let tokens = words.len();
        if tokens > TOKENS_MAX || nodes(words) > NODES_MAX {
            return Err(GrammarError::Vocabulary(format!(
                "{tokens} tokens, more or longer ones than there is room for"
            )));
        }
        let trie = TokTrie::from(&TokRxInfo::new(tokens as u32, end), words).with_eos_tokens(ends);
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &slices);
        let mut factory = factory.map_err(|e| GrammarError::Vocabulary(super::one_line(&e.to_string())))?;
        factory.quiet();
        Ok(Vocabulary { factory: Arc::new(factory), tokens })
    }

    pub(super) fn factory(&self) -> Arc<ParserFactory> {
        Arc::clone(&self.factory)
    }

    /// How many ids there are.
    pub fn tokens(&self) -> usize {
        self.tokens
    }
}

/// A word that the trie takes.
fn short(word: Vec<u8>) -> Vec<u8> {
    if word.len() <= TOKEN_MAX { word } else { Vec::new() }
}

/// How many nodes the trie has: bytes that a word does not share with the one before it in the alphabet.
fn nodes(words: &[Vec<u8>]) -> usize {
    let mut order: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    order.sort_unstable();
    let mut before: &[u8] = &[];
    let mut nodes = 1;
    for word in order {
        let same = word.iter().zip(before).take_while(|(a, b)| a == b).count();
        // one that comes twice has a node of its own
        nodes += (word.len() - same).max(1);
        before = word;
    }
    nodes
}
