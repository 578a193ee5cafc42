//! Models in several GGUF files.

use super::*;

const SHARDS: [&str; 3] =
    ["tiny-split-00001-of-00003.gguf", "tiny-split-00002-of-00003.gguf", "tiny-split-00003-of-00003.gguf"];

/// The three shards in a folder of their own, after `change` had its way with them.
fn shards(change: impl FnOnce(&mut BTreeMap<String, Vec<u8>>)) -> (tempfile::TempDir, PathBuf) {
    let mut files: BTreeMap<String, Vec<u8>> =
        SHARDS.iter().map(|n| (n.to_string(), bytes(&format!("gguf/{n}")))).collect();
    change(&mut files);
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(dir.path().join(name), content).unwrap();
    }
    let first = dir.path().join(SHARDS[0]);
    (dir, first)
}

fn shard_message(change: impl FnOnce(&mut BTreeMap<String, Vec<u8>>)) -> String {
    let (_dir, first) = shards(change);
    Container::open(&first, LoadMode::Read).unwrap_err().to_string()
}

/// Overwrites the value of a two-byte key.
fn set_u16(file: &mut [u8], key: &str, value: u16) {
    let at = file.windows(key.len()).position(|w| w == key.as_bytes()).unwrap() + key.len() + 4;
    file[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn three_shards_open_as_one_model_in_order() {
    for mode in [LoadMode::Read, LoadMode::Mmap] {
        let (dir, first) = shards(|_| ());
        let c = Container::open(&first, mode).unwrap();
        let files: Vec<PathBuf> = SHARDS.iter().map(|n| dir.path().join(n)).collect();
        assert_eq!(c.files, files);
        let single = open("gguf/tiny-llama-f32-align64.gguf").unwrap();
        assert_eq!(dims(&c), dims(&single));
        assert_eq!(c.tensors.iter().map(|t| t.file).collect::<Vec<_>>(), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
        for t in &c.tensors {
            let file = std::fs::read(&c.files[t.file]).unwrap();
            let at = t.offset as usize;
            assert_eq!(whole(&c, t), file[at..at + t.bytes as usize], "{}", t.name);
        }
        assert_eq!(c.meta.uint("llama.block_count"), Some(1));
        // The folder holds one model, so it can be opened too.
        assert_eq!(Container::open(dir.path(), mode).unwrap().tensors, c.tensors);
    }
}

#[test]
fn a_missing_shard_is_an_error_with_its_name() {
    let message = shard_message(|f| drop(f.remove(SHARDS[1])));
    assert!(message.contains(SHARDS[1]), "{message}");
}

#[test]
fn swapped_shards_are_refused() {
    let message = shard_message(|f| {
        let second = f[SHARDS[1]].clone();
        let third = f.insert(SHARDS[2].into(), second).unwrap();
        f.insert(SHARDS[1].into(), third);
    });
    assert!(message.contains(SHARDS[1]), "{message}");
    assert!(message.contains("\"split.no\": a shard that belongs elsewhere: expected 1, found 2"), "{message}");
}

#[test]
fn a_shard_of_a_model_with_another_count_is_refused() {
    let message = shard_message(|f| set_u16(f.get_mut(SHARDS[2]).unwrap(), "split.count", 4));
    assert!(message.contains("\"split.count\": a shard that belongs elsewhere: expected 3, found 4"), "{message}");
}

#[test]
fn a_name_that_disagrees_with_the_number_of_shards_is_refused() {
    let message = shard_message(|f| set_u16(f.get_mut(SHARDS[0]).unwrap(), "split.count", 4));
    assert!(message.contains("disagree about the number of shards"), "{message}");
}

#[test]
fn a_later_shard_is_not_opened_alone() {
    let (dir, _) = shards(|_| ());
    let e = Container::open(&dir.path().join(SHARDS[1]), LoadMode::Read).unwrap_err();
    assert!(e.to_string().contains("not the first shard"), "{e}");
    let e = from_vec("x.gguf", bytes("gguf/tiny-split-00001-of-00003.gguf")).unwrap_err();
    assert!(e.to_string().contains("one shard of 3"), "{e}");
}

#[test]
fn a_renamed_first_shard_cannot_find_its_siblings_and_says_so() {
    let (dir, first) = shards(|_| ());
    let renamed = dir.path().join("model.gguf");
    std::fs::rename(first, &renamed).unwrap();
    let e = Container::open(&renamed, LoadMode::Read).unwrap_err();
    assert!(e.to_string().contains("cannot be found from this file's name"), "{e}");
}

#[test]
fn a_tensor_in_two_shards_is_refused() {
    let message = shard_message(|f| {
        let file = f.get_mut(SHARDS[1]).unwrap();
        // Same length as a name of the first shard.
        let at = file.windows(19).position(|w| w == b"blk.0.attn_v.weight").unwrap();
        file[at..at + 19].copy_from_slice(b"blk.0.attn_k.weight");
    });
    assert!(message.contains("a tensor that is in two files"), "{message}");
    assert!(message.contains(SHARDS[0]) && message.contains(SHARDS[1]), "{message}");
}

#[test]
fn a_wrong_total_of_tensors_is_refused() {
    let message = shard_message(|f| set_u16(f.get_mut(SHARDS[0]).unwrap(), "split.tensors.count", 13));
    assert!(message.contains("\"split.tensors.count\""), "{message}");
    assert!(message.contains("expected 12, found 13"), "{message}");
}

#[test]
fn a_truncated_later_shard_is_refused() {
    let message = shard_message(|f| {
        let file = f.get_mut(SHARDS[2]).unwrap();
        file.truncate(file.len() / 2);
    });
    assert!(message.contains(SHARDS[2]) && message.contains("the file ends inside the data"), "{message}");
}
