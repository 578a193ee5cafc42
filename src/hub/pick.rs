//! Which file of a repository a name means.

use crate::formats::gguf::shard_name;

/// The quantisation that is taken where none is asked for.
const USUAL: &str = "Q4_K_M";

/// Whether a file of a repository is weights of a language model in GGUF form: projectors of images and importance
/// matrices have that form too.
pub(super) fn is_gguf(file: &str) -> bool {
    let name = file.to_lowercase();
    name.ends_with(".gguf") && !name.contains("mmproj") && !name.contains("imatrix")
}

/// The name without folders, `.gguf` and the number of a shard.
pub(super) fn stem(file: &str) -> &str {
    let name = file.rsplit('/').next().unwrap_or(file);
    match shard_name(name) {
        Some((prefix, ..)) => prefix,
        None => name.rsplit_once('.').filter(|(_, e)| e.eq_ignore_ascii_case("gguf")).map_or(name, |(stem, _)| stem),
    }
}

/// The quantisation that a file's name tells: `Q4_K_M` of `model-Q4_K_M-00001-of-00002.gguf`.
pub fn quantisation(file: &str) -> Option<&str> {
    let is = |word: &&str| {
        let w = word.to_uppercase();
        let numbered =
            |prefix: &str| w.strip_prefix(prefix).is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()));
        matches!(w.as_str(), "F16" | "F32" | "BF16" | "FP16" | "FP32")
            || numbered("Q")
            || numbered("IQ")
            || numbered("TQ")
            || numbered("MXFP")
    };
    let words = |text| str::rsplit(text, ['-', '.', ' ']);
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    words(stem(file)).find(is).or_else(|| folder.rsplit('/').flat_map(words).find(is))
}

/// Where `word` stands in `file`, without regard to case: 0 as a word of its own, 1 inside of another; `None` nowhere.
fn place(file: &str, word: &str) -> Option<u8> {
    let (file, word) = (file.to_lowercase(), word.to_lowercase());
    let inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let at: Vec<usize> = file.match_indices(&word).map(|(at, _)| at).collect();
    let alone =
        |&at: &usize| !inside(file[..at].chars().next_back()) && !inside(file[at + word.len()..].chars().next());
    if at.iter().any(alone) { Some(0) } else { at.first().map(|_| 1) }
}

/// The one of `files` that is meant, each being a GGUF file (of shards the first) or empty for a directory: by its name, by
/// what its name holds, else Q4_K_M, else the first.
pub(super) fn choose(files: &[&str], tag: Option<&str>, file: Option<&str>) -> Option<usize> {
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|&i| files[i]);
    let of_word = |word: &str| {
        let found = order.iter().filter_map(|&i| Some((place(files[i], word)?, i)));
        found.min_by_key(|(rank, _)| *rank)
    };
    match (file, tag) {
        (Some(file), _) => {
            let whole = order.iter().copied().find(|&i| files[i] == file);
            whole.or_else(|| order.iter().copied().find(|&i| files[i].rsplit('/').next() == Some(file)))
        }
        (None, Some(tag)) => of_word(tag).map(|(_, i)| i),
        (None, None) => of_word(USUAL).filter(|(rank, _)| *rank == 0).map(|(_, i)| i).or(order.first().copied()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_word_of_a_files_name_or_part_of_one() {
        let files = ["m-Q4_0_4_4.gguf", "m-Q4_0.gguf", "m-q4_k_m.gguf", "m-Q4_K_S.gguf", "Q8_0/m-00001-of-00002.gguf"];
        let of = |tag| choose(&files, Some(tag), None).map(|i| files[i]);
        assert_eq!(of("Q4_0"), Some("m-Q4_0.gguf"));
        assert_eq!(of("q4_K_M"), Some("m-q4_k_m.gguf"));
        assert_eq!(of("q8_0"), Some("Q8_0/m-00001-of-00002.gguf"));
        assert_eq!(of("Q4_K"), Some("m-Q4_K_S.gguf"), "the first whose name has it");
        assert_eq!(of("Q5_K"), None);
        assert_eq!(choose(&files, None, None).map(|i| files[i]), Some("m-q4_k_m.gguf"));
        assert_eq!(choose(&["b-Q8_0.gguf", "a-Q5_0.gguf"], None, None), Some(1), "the first by name");
        assert_eq!(choose(&files, None, Some("m-00001-of-00002.gguf")), Some(4));
        assert_eq!(
            (choose(&files, None, Some("m")), choose(&[], None, None), choose(&[""], None, None)),
            (None, None, Some(0))
        );
        assert_eq!(choose(&[""], Some("Q4_0"), None), None);
    }

    #[test]
    fn what_a_name_tells_of_types() {
        for (file, want) in [
            ("Llama-3.2-1B-Instruct-Q4_K_M.gguf", Some("Q4_K_M")),
            ("m.q8_0.gguf", Some("q8_0")),
            ("m-UD-Q4_K_XL-00001-of-00002.gguf", Some("Q4_K_XL")),
            ("BF16/m-00001-of-00002.gguf", Some("BF16")),
            ("Qwen3-8B.gguf", None),
            ("m-f16.gguf", Some("f16")),
            ("m-IQ3_XXS.gguf", Some("IQ3_XXS")),
        ] {
            assert_eq!(quantisation(file), want, "{file}");
        }
        assert!(is_gguf("x.GGUF") && !is_gguf("mmproj-x-f16.gguf") && !is_gguf("x.imatrix.gguf") && !is_gguf("x.bin"));
    }
}
