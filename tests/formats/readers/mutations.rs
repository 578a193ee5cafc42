//! Files changed at random: refused or read, within bounds of memory, and safetensors as the reference crate does.

use super::*;

/// Its state is the seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        isobit::internals::random::next(&mut self.0)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Changes `file` once, or in half of the cases up to four times, mostly before byte `head`.
pub fn mutate(file: &mut Vec<u8>, head: usize, random: &mut Random) {
    for _ in 0..1 + random.below(2) * random.below(4) {
        let len = file.len();
        if len == 0 {
            return;
        }
        let reach = if random.below(8) == 0 { len } else { head.min(len) };
        let at = random.below(reach);
        let special = match random.below(9) {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => 1 << 31,
            4 => 1 << 32,
            5 => 1 << 63,
            6 => len as u64,
            7 => 1 << random.below(64),
            _ => random.next(),
        };
        match random.below(8) {
            0 => file[at] ^= 1 << random.below(8),
            1 => file[at] = special as u8,
            2 => {
                let end = (at + 4).min(len);
                file[at..end].copy_from_slice(&special.to_le_bytes()[..end - at]);
            }
            3 => {
                let end = (at + 8).min(len);
                file[at..end].copy_from_slice(&special.to_le_bytes()[..end - at]);
            }
            4 => file.truncate(random.below(len)),
            5 => drop(file.drain(at..(at + 1 + random.below(16)).min(len))),
            6 => {
                let end = (at + 1 + random.below(32)).min(len);
                let copy = file[at..end].to_vec();
                let to = random.below(reach);
                file.splice(to..to, copy);
            }
            _ => file[at] = b"0123456789,:{}[]\" -.eE\\abc"[random.below(26)],
        }
    }
}

/// Opens one mutated file; the reference's verdict is asked for safetensors.
fn survive(name: &str, file: Vec<u8>) -> bool {
    let len = file.len() as i64;
    let start = Busy::now();
    let twin = name.ends_with(".safetensors").then(|| file.clone());
    let (result, peak) = peak_of(|| from_vec(name, file));
    // The file itself was allocated before, so all of the peak is the reader's.
    assert!(peak <= ALLOWANCE, "{peak} bytes for a file of {len}");
    match &result {
        Ok(c) => {
            let mut out = Vec::new();
            for t in &c.tensors {
                assert!(t.offset + t.bytes <= len as u64, "{t:?} in {len} bytes");
                out.resize(t.bytes as usize, 0);
                c.read(t, 0, &mut out).unwrap();
                assert!(c.read(t, t.bytes, &mut [0]).is_err());
                assert_eq!(c.tensor(&t.name), Some(t));
            }
        }
        Err(e) => {
            let text = e.to_string();
            assert!(text.starts_with(name), "{text}");
            assert!(!text.contains(|c: char| c.is_control()) && text.len() < 2000, "{text}");
        }
    }
    if let Some(file) = twin {
        agree_with_reference(&file, &result);
    }
    let took = start.elapsed();
    // milliseconds
    assert!(took < Duration::from_secs(10), "{took:?}");
    result.is_ok()
}

/// What we accept the reference accepts with the same content; what we refuse it refuses, but for our stricter rules.
fn agree_with_reference(file: &[u8], ours: &Result<Container, FormatError>) {
    let theirs = safetensors::SafeTensors::deserialize(file);
    match (ours, &theirs) {
        (Ok(c), Ok(reference)) => {
            assert_eq!(c.tensors.len(), reference.len());
            for t in &c.tensors {
                let view = reference.tensor(&t.name).unwrap();
                let shape: Vec<u64> = view.shape().iter().rev().map(|&d| d as u64).collect();
                assert_eq!((&t.shape, t.dtype.to_string()), (&shape, view.dtype().to_string()));
                assert_eq!(whole(c, t), view.data());
            }
        }
        (Err(ours), Ok(_)) => {
            let text = ours.to_string();
            let stricter = ["occurs twice", "does not begin with an object", "more than 16 dimensions"];
            assert!(stricter.iter().any(|s| text.contains(s)), "only we refuse: {text}");
        }
        (Ok(_), Err(e)) => panic!("only we accept: {e}"),
        (Err(_), Err(_)) => {}
    }
}

/// Runs `cases` mutations over `files` and reports the first that fails so that it can be repeated.
fn bombard(files: &[(&str, Vec<u8>, usize)], cases: u64, seed: u64) {
    println!("seed {seed:#x}, {cases} cases");
    let mut accepted = 0;
    for case in 0..cases {
        let mut random = Random(seed ^ case.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let (name, file, head) = &files[random.below(files.len())];
        let mut file = file.clone();
        mutate(&mut file, *head, &mut random);
        let copy = file.clone();
        match catch_unwind(AssertUnwindSafe(|| survive(name, file))) {
            Ok(ok) => accepted += u64::from(ok),
            Err(cause) => {
                let why = cause
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or(cause.downcast_ref::<&str>().copied())
                    .unwrap_or("?");
                let start = &copy[..copy.len().min(400)];
                panic!("case {case} of seed {seed:#x} ({name}, {} bytes): {why}\n{}", copy.len(), start.escape_ascii());
            }
        }
    }
    println!("{accepted} of {cases} mutated files were still valid");
    assert!(accepted > cases / 100, "hardly any file was accepted: {accepted}");
    assert!(accepted < cases / 2, "hardly any file was refused: {accepted}");
}

#[test]
fn fifty_thousand_mutated_gguf_files_are_refused_or_read_within_bounds() {
    bombard_gguf(1);
}

#[test]
fn fifty_thousand_mutated_safetensors_files_are_refused_or_read_as_the_reference_does() {
    bombard_safetensors(1);
}

#[test]
#[ignore = "the long run: a million mutations of each format"]
fn a_million_mutated_files_of_each_format_are_refused_or_read_within_bounds() {
    bombard_gguf(20);
    bombard_safetensors(20);
}

fn bombard_gguf(times: u64) {
    let mut files = Vec::new();
    for path in [
        "gguf/all-kv-types.gguf",
        "gguf/tiny-llama-f32-align64.gguf",
        "gguf/tiny-llama-f32-align64-v2.gguf",
        "gguf/tiny-qwen2-q40-q80-v3.gguf",
        "gguf/tiny-split-00002-of-00003.gguf",
        "gguf_bad/00_ok_minimal.gguf",
        "gguf_bad/29_name_63_bytes_ok.gguf",
        "gguf_bad/49_zero_dim.gguf",
    ] {
        let mut file = bytes(path);
        if path.contains("split") {
            set_u16(&mut file, "split.count", 1);
        }
        let head = from_vec(path, file.clone()).unwrap().data_start as usize;
        files.push((path, file, head));
    }
    bombard(&files, times * 45_000, 0x1507_b17a);
    // The largest costs the most to copy, so it gets fewer.
    let path = "gguf/tiny-llama-kquant-v3.gguf";
    let head = open(path).unwrap().data_start as usize;
    bombard(&[(path, bytes(path), head)], times * 5_000, 0x1507_b17b);
}

fn bombard_safetensors(times: u64) {
    let mut files = Vec::new();
    for (stem, expect) in SAFETENSORS_CASES {
        if matches!(expect, Accept) {
            files.push((*stem, bytes(&format!("safetensors_bad/{stem}.safetensors"))));
        }
    }
    files.push(("several", several()));
    let files: Vec<(String, Vec<u8>, usize)> = files
        .into_iter()
        .map(|(stem, file)| {
            let head = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
            (format!("{stem}.safetensors"), file, head)
        })
        .collect();
    let files: Vec<(&str, Vec<u8>, usize)> = files.iter().map(|(n, f, h)| (n.as_str(), f.clone(), *h)).collect();
    bombard(&files, times * 50_000, 0x1507_b17c);
}
