//! Answers that keep to a grammar: JSON schemas, regular expressions and grammars as sets of the tokens that may come next.
