//! The readers of untrusted files: a named test for every malformed file, valid files read right, and bounded
//! mutation tests that count memory. The inputs and where they come from: `tests/data/README.md`.

use crate::busy::Busy;
use isobit::internals::blocks::BlockType;
use isobit::internals::formats::meta::{Meta, Value};
use isobit::internals::formats::{Container, ContainerKind, FormatError, LoadMode, Tensor, gguf_write};
use isobit::internals::generate::tokenizer::Tokenizer;
use isobit::internals::models::{Hyper, rope_table};
use std::alloc::{GlobalAlloc, Layout, System};
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

// ---------------------------------------------------------------- memory

/// Counts the bytes each thread holds, so that tests which run side by side do not disturb one another.
struct Counting;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

fn count(change: i64) {
    // Fails only while a thread is torn down; nothing is measured there.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call is handed to the system's allocator as it came; counting touches thread-local cells only, which
// need no allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: `ptr` came from `System` with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        // A moving reallocation holds both blocks for a moment.
        count(new as i64);
        count(-(layout.size() as i64));
        // SAFETY: `ptr` came from `System` with this layout; `new` is the caller's promise.
        unsafe { System.realloc(ptr, layout, new) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes `work` held at once on this thread, beyond what was held before.
pub fn peak_of<T>(work: impl FnOnce() -> T) -> (T, i64) {
    let before = HELD.get();
    PEAK.set(before);
    let out = work();
    (out, PEAK.get() - before)
}

/// Memory a reader may take beyond the length of its file.
pub const ALLOWANCE: i64 = 64 << 20;

#[test]
fn the_memory_counter_sees_a_large_allocation() {
    let (_, peak) = peak_of(|| drop(std::hint::black_box(vec![1u8; 5 << 20])));
    assert!(peak >= 5 << 20, "{peak}");
    let (_, peak) = peak_of(|| ());
    assert_eq!(peak, 0);
}

// ---------------------------------------------------------------- data

fn data(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data")).join(path)
}

fn bytes(path: &str) -> Vec<u8> {
    std::fs::read(data(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn open(path: &str) -> Result<Container, FormatError> {
    Container::open(&data(path), LoadMode::Read)
}

fn from_vec(name: &str, bytes: Vec<u8>) -> Result<Container, FormatError> {
    Container::from_bytes(name, Cow::Owned(bytes))
}

fn whole(container: &Container, tensor: &Tensor) -> Vec<u8> {
    let mut out = vec![0; tensor.bytes as usize];
    container.read(tensor, 0, &mut out).unwrap();
    out
}

fn names(dir: &str, ending: &str) -> BTreeSet<String> {
    std::fs::read_dir(data(dir))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter_map(|n| n.strip_suffix(ending).map(str::to_string))
        .collect()
}

// ---------------------------------------------------------------- malformed files

#[derive(Clone, Copy)]
enum Expect {
    Accept,
    /// refused, with this text in the message
    Refuse(&'static str),
}
use Expect::{Accept, Refuse};

/// A file opened by each mode and from memory gives the same verdict and, but for the file's name, the same message.
fn verdict(dir: &str, file: &str) -> Result<Container, String> {
    let path = data(&format!("{dir}/{file}"));
    let opened = Container::open(&path, LoadMode::Read);
    let mapped = Container::open(&path, LoadMode::Mmap);
    let memory = from_vec(&path.to_string_lossy(), bytes(&format!("{dir}/{file}")));
    let text = |r: &Result<Container, FormatError>| match r {
        Ok(c) => format!("{:?}", c.tensors),
        Err(e) => e.to_string(),
    };
    assert_eq!(text(&opened), text(&mapped));
    assert_eq!(text(&opened), text(&memory));
    opened.map_err(|e| e.to_string())
}

fn check(dir: &str, ending: &str, stem: &str, expect: Expect) {
    let file = format!("{stem}.{ending}");
    match (verdict(dir, &file), expect) {
        (Ok(container), Accept) => {
            for t in &container.tensors {
                whole(&container, t);
            }
        }
        (Ok(_), Refuse(_)) => panic!("{file} was accepted"),
        (Err(message), Accept) => panic!("refused: {message}"),
        (Err(message), Refuse(text)) => {
            assert!(message.contains(&file), "names no file: {message}");
            assert!(!message.contains('\n'), "more than one line: {message}");
            assert!(message.contains(text), "{text:?} is not in: {message}");
        }
    }
}

macro_rules! malformed {
    ($table:ident, $dir:literal, $ending:literal; $($test:ident: $stem:literal, $expect:expr;)*) => {
        const $table: &[(&str, Expect)] = &[$(($stem, $expect)),*];
        $(
            #[test]
            fn $test() {
                check($dir, $ending, $stem, $expect);
            }
        )*
    };
}

malformed! {
    GGUF_CASES, "gguf_bad", "gguf";
    the_minimal_file_is_accepted: "00_ok_minimal", Accept;
    an_empty_file_is_refused: "01_empty", Refuse("the file ends inside the magic");
    a_file_of_only_the_magic_is_refused: "02_magic_only", Refuse("the file ends inside the version");
    a_wrong_magic_is_refused: "03_bad_magic", Refuse("not a GGUF file");
    a_swapped_magic_is_refused: "04_magic_gguf_be_swapped", Refuse("swapped byte order");
    version_0_is_refused: "05_version0", Refuse("impossible version");
    version_1_is_refused: "06_version1", Refuse("GGUF version 1 ");
    version_4_is_refused: "07_version4", Refuse("GGUF version 4 ");
    a_big_endian_file_is_refused: "08_big_endian_on_little", Refuse("a big-endian GGUF file");
    a_huge_number_of_tensors_is_refused: "09_n_tensors_huge", Refuse("impossible number of tensors");
    a_negative_number_of_tensors_is_refused: "10_n_tensors_negative", Refuse("impossible number of tensors: expected a number not below 0");
    a_huge_number_of_pairs_is_refused: "11_n_kv_huge", Refuse("impossible number of key-value pairs");
    more_pairs_than_present_are_refused: "12_n_kv_more_than_present", Refuse("");
    a_key_length_of_all_ones_is_refused: "13_key_len_u64max", Refuse("the key is too long");
    a_key_past_the_end_is_refused: "14_key_len_past_eof", Refuse("the file ends inside the key");
    a_string_of_2_gib_is_refused: "15_str_value_2gib", Refuse("the string is too long");
    an_empty_key_is_refused: "16_empty_key", Refuse("empty key");
    a_duplicate_key_is_refused: "17_duplicate_key", Refuse("duplicate key");
    an_unknown_value_type_is_refused: "18_bad_value_type", Refuse("unknown value type: expected 0 to 12, found 13");
    a_negative_value_type_is_refused: "19_bad_value_type_neg", Refuse("unknown value type: expected 0 to 12, found -1");
    a_nested_array_is_refused: "20_array_of_array", Refuse("nested array");
    an_array_length_that_wraps_is_refused: "21_array_len_overflow", Refuse("the array is too long");
    an_array_past_the_end_is_refused: "22_array_len_past_eof", Refuse("the file ends inside the array");
    a_huge_array_of_strings_is_refused: "23_array_str_len_huge", Refuse("");
    alignment_0_is_refused: "24_alignment_zero", Refuse("impossible alignment");
    alignment_24_is_refused: "25_alignment_not_pow2", Refuse("impossible alignment");
    an_alignment_of_a_wrong_type_is_refused: "26_alignment_wrong_type", Refuse("alignment of a wrong type");
    a_huge_alignment_is_refused: "27_alignment_huge", Refuse("impossible alignment");
    a_name_of_64_bytes_is_refused: "28_name_64_bytes", Refuse("the tensor name is too long");
    a_name_of_63_bytes_is_accepted: "29_name_63_bytes_ok", Accept;
    a_duplicate_tensor_is_refused: "30_duplicate_tensor", Refuse("duplicate tensor name");
    five_dimensions_are_refused: "31_n_dims_5", Refuse("too many dimensions");
    four_billion_dimensions_are_refused: "32_n_dims_u32max", Refuse("too many dimensions");
    a_negative_dimension_is_refused: "33_dim_negative", Refuse("dimension 0 is negative");
    a_product_of_dimensions_that_wraps_is_refused: "34_dims_product_overflow", Refuse("the product of the dimensions overflows");
    a_size_in_bytes_that_wraps_is_refused: "35_nbytes_overflow", Refuse("the size in bytes overflows");
    a_padding_that_wraps_is_refused: "36_ggml_pad_overflow", Refuse("offset and size overflow");
    a_sum_of_sizes_that_wraps_is_refused: "37_sum_overflow", Refuse("");
    a_removed_type_is_refused: "38_type_removed_4", Refuse("removed tensor type");
    an_unknown_type_is_refused: "39_type_1000", Refuse("unknown tensor type");
    a_negative_type_is_refused: "40_type_neg", Refuse("unknown tensor type");
    rows_that_are_not_whole_blocks_are_refused: "41_row_not_block_multiple", Refuse("rows that are not whole blocks");
    a_misaligned_offset_is_refused: "42_offset_misaligned", Refuse("misaligned offset");
    an_offset_past_the_end_is_refused: "43_offset_past_eof", Refuse("the data begins after the end of the file");
    truncated_data_are_refused: "44_data_truncated", Refuse("the file ends inside the data");
    overlapping_tensors_are_refused: "45_offsets_overlap", Refuse("the data overlaps the tensor before it");
    a_gap_between_tensors_is_refused: "46_offsets_gap", Refuse("a gap before the data");
    tensors_in_another_order_are_refused: "47_tensor_order_reversed", Refuse("tensors out of order");
    an_offset_that_wraps_is_refused: "48_offset_wraps", Refuse("");
    a_tensor_without_elements_is_accepted: "49_zero_dim", Accept;
    a_key_that_is_not_utf8_is_refused: "50_key_invalid_utf8", Refuse("the key is not text");
    a_bool_of_2_is_refused: "51_bool_2", Refuse("a bool that is neither");
    a_nul_in_a_tensor_name_is_refused: "52_nul_in_tensor_name", Refuse("NUL in a tensor name");
    a_container_without_anything_is_accepted: "53_header_only_no_arch", Accept;
    bytes_after_the_last_tensor_are_ignored: "54_trailing_garbage", Accept;
}

malformed! {
    SAFETENSORS_CASES, "safetensors_bad", "safetensors";
    a_plain_safetensors_file_is_accepted: "00_ok", Accept;
    spaces_after_the_header_are_accepted: "01_ok_trailing_spaces", Accept;
    a_scalar_is_accepted: "02_ok_scalar_shape_empty", Accept;
    an_empty_tensor_is_accepted: "03_ok_zero_dim", Accept;
    a_file_without_tensors_is_accepted: "04_ok_empty_header", Accept;
    two_bytes_are_refused: "10_short", Refuse("the file is too short");
    a_header_past_the_end_is_refused: "11_len_past_eof", Refuse("the file ends inside the header");
    a_header_of_100_mb_is_refused: "12_len_100mb_plus", Refuse("the header is too long");
    a_header_length_of_all_ones_is_refused: "13_len_u64max", Refuse("the header is too long");
    a_header_that_is_not_utf8_is_refused: "14_bad_utf8", Refuse("the header is not text");
    truncated_json_is_refused: "15_bad_json", Refuse("EOF while parsing");
    a_header_that_is_an_array_is_refused: "16_not_object", Refuse("does not begin with an object");
    overlapping_data_are_refused: "17_overlap", Refuse("the data overlaps the tensor before it");
    a_hole_is_refused: "18_hole", Refuse("a hole before the data");
    data_that_do_not_start_at_0_are_refused: "19_not_start_zero", Refuse("a hole before the data");
    an_end_before_the_begin_is_refused: "20_end_before_begin", Refuse("the data ends before it begins");
    a_size_unlike_the_shape_is_refused: "21_size_mismatch", Refuse("shape and data disagree");
    missing_data_are_refused: "22_data_short", Refuse("the file ends inside the data");
    trailing_bytes_are_refused: "23_data_long", Refuse("bytes that belong to no tensor");
    a_shape_that_wraps_is_refused: "24_shape_overflow", Refuse("the product of the shape overflows");
    bits_that_wrap_are_refused: "25_bits_overflow", Refuse("the size in bits overflows");
    an_unknown_dtype_is_refused: "26_bad_dtype", Refuse("unknown variant `F99`");
    a_negative_shape_is_refused: "27_negative_shape", Refuse("integer `-4`");
    a_fractional_offset_is_refused: "28_float_offset", Refuse("floating point `4.0`");
    a_missing_field_is_refused: "29_missing_field", Refuse("missing field `data_offsets`");
    metadata_that_are_no_strings_are_refused: "30_metadata_non_string", Refuse("expected a string");
    a_name_that_occurs_twice_is_refused: "31_dup_key", Refuse("the name occurs twice");
    a_leading_space_is_refused: "32_leading_space", Refuse("does not begin with an object");
    three_offsets_are_refused: "33_three_offsets", Refuse("trailing characters at line 1 column 52");
    an_unknown_field_is_ignored: "34_extra_field", Accept;
    half_a_byte_is_refused: "35_f4_odd", Refuse("does not end at a whole byte");
    a_header_of_length_0_is_refused: "36_zero_len_header", Refuse("does not begin with an object");
    deep_nesting_is_refused: "37_deep_nesting", Refuse("");
}

/// The cases cover every file of the folder, agree with its manifest, and give messages that differ in substance.
fn check_table(dir: &str, ending: &str, table: &[(&str, Expect)], manifest: &dyn Fn(&[&str]) -> Option<bool>) {
    let listed: BTreeSet<String> = table.iter().map(|(stem, _)| stem.to_string()).collect();
    assert_eq!(listed, names(dir, &format!(".{ending}")));
    let text = String::from_utf8(bytes(&format!("{dir}/manifest.tsv"))).unwrap();
    let mut rows = 0;
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let (_, expect) =
            table.iter().find(|(stem, _)| *stem == fields[0]).unwrap_or_else(|| panic!("{} has no case", fields[0]));
        if let Some(accept) = manifest(&fields) {
            assert_eq!(matches!(expect, Accept), accept, "{}", fields[0]);
        }
        rows += 1;
    }
    assert_eq!(rows, table.len());
    let mut messages = BTreeMap::new();
    for (stem, expect) in table {
        if matches!(expect, Accept) {
            continue;
        }
        let file = format!("{stem}.{ending}");
        let message = verdict(dir, &file).err().unwrap();
        let (_, substance) = message.split_once(&format!("{file}: ")).unwrap();
        if let Some(other) = messages.insert(substance.to_string(), stem) {
            panic!("{other} and {stem} are refused with the same words: {substance}");
        }
    }
}

#[test]
fn the_gguf_cases_are_the_manifest_and_their_messages_differ() {
    check_table("gguf_bad", "gguf", GGUF_CASES, &|fields| match fields[2] {
        "accept" | "accept-container" => Some(true),
        "reject" => Some(false),
        "accept-or-reject" => None,
        other => panic!("{other}"),
    });
}

#[test]
fn the_safetensors_cases_are_the_manifest_made_stricter_and_their_messages_differ() {
    check_table("safetensors_bad", "safetensors", SAFETENSORS_CASES, &|fields| {
        let stricter = ["31_dup_key", "32_leading_space"].contains(&fields[0]);
        Some(fields[2].starts_with("ACCEPT") && !stricter)
    });
}

// ---------------------------------------------------------------- valid files

fn dims(container: &Container) -> Vec<(String, String, Vec<u64>)> {
    container.tensors.iter().map(|t| (t.name.clone(), t.dtype.to_string(), t.shape.clone())).collect()
}

#[test]
fn every_kind_of_metadata_value_is_read_as_it_was_written() {
    let c = open("gguf/all-kv-types.gguf").unwrap();
    let m = &c.meta;
    let expected = [
        ("general.architecture", Value::Str("llama".into())),
        ("t.u8", Value::U8(255)),
        ("t.i8", Value::I8(-128)),
        ("t.u16", Value::U16(65535)),
        ("t.i16", Value::I16(-32768)),
        ("t.u32", Value::U32(u32::MAX)),
        ("t.i32", Value::I32(i32::MIN)),
        ("t.f32", Value::F32(-0.15625)),
        ("t.bool_t", Value::Bool(true)),
        ("t.bool_f", Value::Bool(false)),
        ("t.str", Value::Str("h\u{e9}llo \u{1f999} \n".into())),
        ("t.str_long", Value::Str("x".repeat(300))),
        ("t.u64", Value::U64(u64::MAX)),
        ("t.i64", Value::I64(i64::MIN)),
        ("t.f64", Value::F64(1e300)),
        ("t.arr_i32", Value::I32Array(vec![1, -2, 3])),
        ("t.arr_f32", Value::F32Array(vec![0.5, -1.5])),
        ("t.arr_bool", Value::Array(vec![Value::Bool(true), Value::Bool(false), Value::Bool(true)])),
        ("t.arr_str", Value::StrArray(vec!["a".into(), "".into(), "\u{fc}".into()])),
    ];
    let found: Vec<(&str, &Value)> = m.entries.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let expected_refs: Vec<(&str, &Value)> = expected.iter().map(|(k, v)| (*k, v)).collect();
    assert_eq!(found, expected_refs);
    assert_eq!((c.kind, c.version, c.alignment), (ContainerKind::Gguf, 3, 32));
    assert_eq!((m.uint("t.u8"), m.uint("t.i8"), m.uint("t.u64")), (Some(255), None, Some(u64::MAX)));
    assert_eq!(m.f32s("t.arr_f32"), Some(&[0.5, -1.5][..]));
    assert_eq!((m.uints("t.arr_i32"), m.i32s("t.arr_i32")), (None, Some(&[1, -2, 3][..])));
    assert!(c.tensors.is_empty() && c.tensor("x").is_none());
}

#[test]
fn a_k_quant_file_has_its_tensors_shapes_and_places() {
    let c = open("gguf/tiny-llama-kquant-v3.gguf").unwrap();
    let shapes = dims(&c);
    let row = |n: &str, t: &str, s: &[u64]| (n.to_string(), t.to_string(), s.to_vec());
    assert_eq!(
        shapes,
        [
            row("token_embd.weight", "Q4_K", &[256, 40]),
            row("blk.0.attn_norm.weight", "F32", &[256]),
            row("blk.0.attn_q.weight", "Q4_K", &[256, 256]),
            row("blk.0.attn_k.weight", "Q4_K", &[256, 128]),
            row("blk.0.attn_v.weight", "Q6_K", &[256, 128]),
            row("blk.0.attn_output.weight", "Q4_K", &[256, 256]),
            row("blk.0.ffn_norm.weight", "F32", &[256]),
            row("blk.0.ffn_gate.weight", "Q4_K", &[256, 256]),
            row("blk.0.ffn_up.weight", "Q4_K", &[256, 256]),
            row("blk.0.ffn_down.weight", "Q6_K", &[256, 256]),
            row("output_norm.weight", "F32", &[256]),
        ]
    );
    assert_eq!(c.meta.uint("llama.embedding_length"), Some(256));
    assert_eq!(c.meta.strings("tokenizer.ggml.tokens").unwrap().len(), 40);
    assert_eq!(c.meta.float("llama.rope.freq_base"), Some(10000.0));
    let v = c.tensor("blk.0.attn_v.weight").unwrap();
    assert_eq!((v.elems(), v.bytes, v.offset), (32768, 26880, c.data_start + 62080));
    assert_eq!(v.dtype.ggml_id(), Some(14));
    let file = bytes("gguf/tiny-llama-kquant-v3.gguf");
    for t in &c.tensors {
        let at = t.offset as usize;
        assert_eq!(whole(&c, t), file[at..at + t.bytes as usize], "{}", t.name);
        let mut middle = [0; 3];
        c.read(t, 5, &mut middle).unwrap();
        assert_eq!(middle, file[at + 5..at + 8]);
    }
    assert_eq!(c.total_bytes(), c.tensors.iter().map(|t| t.bytes).sum::<u64>());
    assert_eq!(c.files, [data("gguf/tiny-llama-kquant-v3.gguf")]);
}

#[test]
fn a_read_past_the_end_of_a_tensor_is_an_error_with_its_name() {
    let c = open("gguf/tiny-llama-kquant-v3.gguf").unwrap();
    let t = c.tensor("blk.0.attn_norm.weight").unwrap();
    let mut out = [0; 8];
    c.read(t, 1016, &mut out).unwrap();
    c.read(t, 1024, &mut []).unwrap();
    for offset in [1017, 1024, u64::MAX - 4, u64::MAX] {
        let message = c.read(t, offset, &mut out).unwrap_err().to_string();
        assert!(message.contains("blk.0.attn_norm.weight"), "{message}");
        assert!(message.contains("past the end of the tensor"), "{message}");
    }
    let mut foreign = t.clone();
    foreign.file = 7;
    assert!(c.read(&foreign, 0, &mut out).is_err());
    foreign.file = 0;
    foreign.offset = u64::MAX - 8;
    foreign.bytes = 8;
    assert!(c.read(&foreign, 0, &mut out).is_err());
}

#[test]
fn version_2_and_version_3_give_the_same_model_and_alignment_64_is_kept() {
    let v3 = open("gguf/tiny-llama-f32-align64.gguf").unwrap();
    let v2 = open("gguf/tiny-llama-f32-align64-v2.gguf").unwrap();
    assert_eq!((v2.version, v3.version), (2, 3));
    assert_eq!((v2.alignment, v3.alignment), (64, 64));
    assert_eq!(v2.meta, v3.meta);
    assert_eq!(v2.tensors, v3.tensors);
    assert_eq!(v3.tensors.len(), 12);
    assert!(v3.tensors.iter().all(|t| t.offset % 64 == 0));
    for (a, b) in v2.tensors.iter().zip(&v3.tensors) {
        assert_eq!(whole(&v2, a), whole(&v3, b));
    }
    assert_eq!(v3.tensor("token_embd.weight").unwrap().dtype.name(), "F16");
}

#[test]
fn a_whole_big_endian_model_is_refused_by_name() {
    let message = open("gguf/tiny-llama-f32-bigendian.gguf").unwrap_err().to_string();
    assert!(message.contains("a big-endian GGUF file (version 3"), "{message}");
    assert!(message.contains("tiny-llama-f32-bigendian.gguf"), "{message}");
}

#[test]
fn a_file_with_another_ending_is_recognised_by_its_first_bytes() {
    let gguf = from_vec("blob", bytes("gguf_bad/00_ok_minimal.gguf")).unwrap();
    assert_eq!(gguf.kind, ContainerKind::Gguf);
    assert_eq!(gguf.files, [PathBuf::from("<embedded>")]);
    let st = from_vec("blob", bytes("safetensors_bad/00_ok.safetensors")).unwrap();
    assert_eq!(st.kind, ContainerKind::Safetensors);
    assert_eq!(st.meta.str("k"), Some("v"));
    let message = from_vec("blob", b"PK\x03\x04 no model".to_vec()).unwrap_err().to_string();
    assert!(message.contains("neither GGUF nor BUMP nor safetensors"), "{message}");
}

#[test]
fn errors_can_be_sent_and_boxed_and_hide_no_control_characters() {
    fn portable<T: std::error::Error + Send + Sync + 'static>(_: &T) {}
    let e = from_vec("a\nb\u{1b}[31m", b"garbage!!".to_vec()).unwrap_err();
    portable(&e);
    assert!(!e.to_string().contains(['\n', '\u{1b}']), "{e}");
    let e = Container::open(Path::new("/nonexistent/x.gguf"), LoadMode::Read).unwrap_err();
    assert!(e.to_string().contains("x.gguf"), "{e}");
    assert!(std::error::Error::source(&e).is_some());
}

// ---------------------------------------------------------------- shards

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

// ---------------------------------------------------------------- truncation

#[test]
fn a_gguf_file_cut_anywhere_is_an_error_or_lacks_padding_only() {
    for name in
        ["gguf/tiny-llama-f32-align64.gguf", "gguf/tiny-split-00002-of-00003.gguf", "gguf_bad/29_name_63_bytes_ok.gguf"]
    {
        // Make the second a file of its own.
        let mut file = bytes(name);
        if name.contains("split") {
            set_u16(&mut file, "split.count", 1);
        }
        let c = from_vec("whole.gguf", file.clone()).unwrap();
        let end = c.tensors.iter().map(|t| t.offset + t.bytes).max().unwrap() as usize;
        let mut loaded = 0;
        for len in 0..file.len() {
            match from_vec("cut.gguf", file[..len].to_vec()) {
                Ok(cut) => {
                    assert!(len >= end, "{name} cut to {len} of {end} bytes was accepted");
                    assert_eq!(cut.tensors, c.tensors);
                    loaded += 1;
                }
                Err(e) => {
                    assert!(len < end, "{e}");
                    assert!(e.to_string().contains("cut.gguf"), "{e}");
                }
            }
        }
        assert_eq!(loaded, file.len() - end);
    }
}

#[test]
fn a_file_of_metadata_cut_anywhere_is_an_error() {
    let file = bytes("gguf/all-kv-types.gguf");
    let end = file.iter().rposition(|&b| b != 0).unwrap() + 1;
    for len in 0..end {
        let cut = from_vec("cut.gguf", file[..len].to_vec());
        assert!(cut.is_err(), "cut to {len} of {end} bytes was accepted");
    }
}

#[test]
fn a_safetensors_file_cut_anywhere_is_an_error() {
    let file = bytes("safetensors_bad/00_ok.safetensors");
    for len in 0..file.len() {
        let cut = from_vec("cut.safetensors", file[..len].to_vec());
        assert!(cut.is_err(), "cut to {len} bytes was accepted");
    }
}

#[test]
fn a_file_that_shrinks_after_opening_is_an_error_and_no_signal() {
    for mode in [LoadMode::Read, LoadMode::Mmap] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.gguf");
        std::fs::write(&path, bytes("gguf/tiny-llama-f32-align64.gguf")).unwrap();
        let c = Container::open(&path, mode).unwrap();
        let last = c.tensors.last().unwrap();
        let mut out = vec![0; last.bytes as usize];
        c.read(last, 0, &mut out).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10_000).unwrap();
        let e = c.read(last, 0, &mut out).unwrap_err().to_string();
        assert!(e.contains("m.gguf") && e.contains("output.weight"), "{e}");
        assert!(e.contains("became shorter") && e.contains("found 10000 bytes"), "{e}");
        c.read(&c.tensors[0], 0, &mut out[..1280]).unwrap();
    }
}

#[test]
fn tensors_can_be_read_from_several_threads() {
    let c = open("gguf/tiny-llama-kquant-v3.gguf").unwrap();
    let alone: Vec<Vec<u8>> = c.tensors.iter().map(|t| whole(&c, t)).collect();
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..20 {
                    for (t, bytes) in c.tensors.iter().zip(&alone) {
                        assert_eq!(&whole(&c, t), bytes);
                    }
                }
            });
        }
    });
}

// ---------------------------------------------------------------- large and hostile metadata

/// A GGUF file of metadata only, from pairs already encoded.
fn gguf_of(pairs: &[Vec<u8>]) -> Vec<u8> {
    let mut out = b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    out.extend((pairs.len() as u64).to_le_bytes());
    out.extend(pairs.concat());
    out
}

fn string(text: &[u8]) -> Vec<u8> {
    let mut out = (text.len() as u64).to_le_bytes().to_vec();
    out.extend(text);
    out
}

fn array(key: &str, kind: u32, count: u64, elements: &[u8]) -> Vec<u8> {
    let mut out = string(key.as_bytes());
    out.extend(9u32.to_le_bytes());
    out.extend(kind.to_le_bytes());
    out.extend(count.to_le_bytes());
    out.extend(elements);
    out
}

#[test]
fn a_vocabulary_of_150_thousand_tokens_loads_fast_and_takes_little_memory() {
    let tokens: Vec<String> = (0..150_000u32).map(|i| format!("tok{:x}", i.wrapping_mul(2654435761))).collect();
    let encoded: Vec<u8> = tokens.iter().flat_map(|t| string(t.as_bytes())).collect();
    let scores: Vec<u8> = (0..150_000).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let file = gguf_of(&[
        array("tokenizer.ggml.tokens", 8, 150_000, &encoded),
        array("tokenizer.ggml.merges", 8, 150_000, &encoded),
        array("tokenizer.ggml.scores", 6, 150_000, &scores),
    ]);
    let len = file.len() as i64;
    let start = Busy::now();
    let (c, peak) = peak_of(|| from_vec("vocab.gguf", file).unwrap());
    let took = start.elapsed();
    println!("{len} bytes of metadata in {took:?}, {peak} bytes of memory");
    // hundredths of a second; a search through all strings for each would be minutes
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert!(peak < 3 * len, "{peak} bytes for a file of {len}");
    assert_eq!(c.meta.strings("tokenizer.ggml.tokens").unwrap(), tokens);
    assert_eq!(c.meta.f32s("tokenizer.ggml.scores").unwrap()[149_999], 149_999.0);
}

#[test]
fn arrays_that_would_swell_in_memory_are_refused_within_the_allowance() {
    let n = 20u64 << 20;
    let cases = [
        // One byte each in the file, a whole value each in memory.
        ("bytes", gguf_of(&[array("k", 0, n, &vec![7; n as usize])])),
        // Eight bytes each in the file, an empty string each in memory.
        ("strings", gguf_of(&[array("k", 8, n / 4, &vec![0; 2 * n as usize])])),
    ];
    for (what, file) in cases {
        let len = file.len() as i64;
        let (result, peak) = peak_of(|| from_vec("swell.gguf", file));
        let message = result.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(message.contains("more memory than its file justifies"), "{what}: {message:?}");
        assert!(peak <= ALLOWANCE, "{what}: {peak} bytes for a file of {len}");
    }
}

#[test]
fn sizes_that_are_large_but_honest_are_read() {
    // A precompiled character map, as some tokenizers carry: one byte an element.
    let map: Vec<u8> = (0..500_000u32).map(|i| i as u8).collect();
    let file = gguf_of(&[array("tokenizer.ggml.precompiled_charsmap", 0, 500_000, &map)]);
    let c = from_vec("map.gguf", file).unwrap();
    match c.meta.get("tokenizer.ggml.precompiled_charsmap") {
        Some(Value::Array(v)) => assert!(v.iter().zip(&map).all(|(v, &b)| *v == Value::U8(b))),
        other => panic!("{other:?}"),
    }
    // A string longer than the reader's buffer.
    let text = "\u{e9}x".repeat(200_000);
    let mut pair = string(b"long");
    pair.extend(8u32.to_le_bytes());
    pair.extend(string(text.as_bytes()));
    let c = from_vec("long.gguf", gguf_of(&[pair])).unwrap();
    assert_eq!(c.meta.str("long"), Some(text.as_str()));
}

#[test]
fn a_key_past_the_limit_or_with_a_nul_is_refused() {
    let pair = |key: &[u8]| {
        let mut out = string(key);
        out.extend(0u32.to_le_bytes());
        out.push(1);
        gguf_of(&[out])
    };
    assert!(from_vec("k.gguf", pair(&[b'k'; 65_535])).is_ok());
    let e = from_vec("k.gguf", pair(&[b'k'; 65_536])).unwrap_err().to_string();
    assert!(e.contains("the key is too long"), "{e}");
    let e = from_vec("k.gguf", pair(b"a\0b")).unwrap_err().to_string();
    assert!(e.contains("NUL in a key"), "{e}");
}

/// A safetensors file from its header and data.
fn safetensors_of(header: &str, data: &[u8]) -> Vec<u8> {
    let mut out = string(header.as_bytes());
    out.extend(data);
    out
}

#[test]
fn safetensors_headers_that_would_swell_in_memory_stay_within_the_allowance() {
    let shape =
        format!("{{\"a\":{{\"dtype\":\"U8\",\"shape\":[{}1],\"data_offsets\":[0,1]}}}}", "1,".repeat(1_000_000));
    let extra = format!(
        "{{\"a\":{{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":[{}0]}}}}",
        "0,".repeat(1_000_000)
    );
    let commas = extra.replace("0,", "0,0,");
    let many: String =
        (0..70_000).map(|i| format!("\"t{i}\":{{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}},")).collect();
    let many = format!("{{{}}}", many.trim_end_matches(','));
    let strings: String = (0..10_000).map(|i| format!("\"k{i}\":\"\",")).collect();
    let strings = format!("{{\"__metadata__\":{{{}}}}}", strings.trim_end_matches(','));
    for (header, data, expected) in [
        (shape, 1, Some("more than 16 dimensions")),
        (extra, 1, None),
        (commas, 1, Some("too many values")),
        (many, 0, Some("more than 65536 tensors")),
        (strings, 0, Some("more than 4096 strings")),
    ] {
        let file = safetensors_of(&header, &vec![0; data]);
        let (result, peak) = peak_of(|| from_vec("swell.safetensors", file));
        let message = result.err().map(|e| e.to_string());
        match (&message, expected) {
            (None, None) => {}
            (Some(m), Some(text)) => assert!(m.contains(text), "{m}"),
            _ => panic!("{message:?}, expected {expected:?}"),
        }
        assert!(peak <= ALLOWANCE, "{peak} bytes: {message:?}");
    }
}

#[test]
fn metadata_keys_that_occur_twice_are_refused_and_empty_tensors_come_by_name() {
    let twice = safetensors_of(r#"{"__metadata__":{"a":"1","a":"2"}}"#, &[]);
    let e = from_vec("m.safetensors", twice).unwrap_err().to_string();
    assert!(e.contains("\"a\" occurs twice") || e.contains("\\\"a\\\" occurs twice"), "{e}");
    let entry = r#"{"dtype":"U8","shape":[0],"data_offsets":[0,0]}"#;
    let header = format!(r#"{{"c":{entry},"a":{entry},"b":{entry}}}"#);
    for _ in 0..20 {
        let c = from_vec("e.safetensors", safetensors_of(&header, &[])).unwrap();
        let order: Vec<&str> = c.tensors.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(order, ["a", "b", "c"]);
    }
}

// ---------------------------------------------------------------- mutations

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

// ---------------------------------------------------------------- Hugging Face directories

/// One safetensors file with the given (name, dtype, shape); the data count up from `first`.
fn weights(tensors: &[(&str, safetensors::Dtype, &[usize])], first: u8) -> Vec<u8> {
    let mut next = first;
    let content: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, dtype, shape)| {
            (0..shape.iter().product::<usize>() * dtype.bitsize() / 8)
                .map(|_| {
                    next = next.wrapping_add(1);
                    next
                })
                .collect()
        })
        .collect();
    let views = tensors.iter().zip(&content).map(|((name, dtype, shape), data)| {
        (*name, safetensors::tensor::TensorView::new(*dtype, shape.to_vec(), data).unwrap())
    });
    safetensors::serialize(views, None).unwrap()
}

fn several() -> Vec<u8> {
    use safetensors::Dtype::{BF16, BOOL, F4, F16, F32, I64};
    weights(
        &[
            ("model.embed_tokens.weight", F32, &[5, 3]),
            ("model.norm.weight", BF16, &[4]),
            ("model.layers.0.q.weight", F16, &[2, 3]),
            ("mask", BOOL, &[3]),
            ("packed", F4, &[2, 4]),
            ("ids", I64, &[]),
        ],
        9,
    )
}

type Files = BTreeMap<&'static str, Vec<u8>>;

const ONE: &str = "model-00001-of-00002.safetensors";
const TWO: &str = "model-00002-of-00002.safetensors";
const INDEX: &str = "model.safetensors.index.json";

fn index_of(map: &[(&str, &str)]) -> Vec<u8> {
    let entries: Vec<String> = map.iter().map(|(k, v)| format!("{k:?}:{v:?}")).collect();
    format!("{{\"metadata\":{{\"total_size\":1}},\"weight_map\":{{{}}}}}", entries.join(",")).into_bytes()
}

/// A model in two shards, after `change` had its way with the files.
fn model_dir(change: impl FnOnce(&mut Files)) -> tempfile::TempDir {
    use safetensors::Dtype::{BF16, F32};
    let mut files: Files = BTreeMap::from([
        ("config.json", b"{\"model_type\":\"llama\",\"hidden_size\":4}".to_vec()),
        ("generation_config.json", b"{\"eos_token_id\":2}".to_vec()),
        ("tokenizer_config.json", b"{\"add_bos_token\":true}".to_vec()),
        ("tokenizer.json", b"{\"version\":\"1.0\"}".to_vec()),
        (ONE, weights(&[("embed", BF16, &[5, 4]), ("norm", F32, &[4])], 1)),
        (TWO, weights(&[("q", BF16, &[3, 4])], 100)),
        (INDEX, index_of(&[("embed", ONE), ("norm", ONE), ("q", TWO)])),
    ]);
    change(&mut files);
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(dir.path().join(name), content).unwrap();
    }
    dir
}

fn dir_message(change: impl FnOnce(&mut Files)) -> String {
    let dir = model_dir(change);
    let e = Container::open(dir.path(), LoadMode::Read).unwrap_err();
    e.to_string()
}

#[test]
fn a_directory_with_two_shards_and_an_index_opens_as_one_model() {
    for mode in [LoadMode::Read, LoadMode::Mmap] {
        let dir = model_dir(|_| ());
        let c = Container::open(dir.path(), mode).unwrap();
        assert_eq!((c.kind, c.version), (ContainerKind::HuggingFace, 0));
        assert_eq!(c.files, [dir.path().join(ONE), dir.path().join(TWO)]);
        assert_eq!(c.config.as_ref().unwrap()["hidden_size"], 4);
        assert_eq!(c.generation_config.as_ref().unwrap()["eos_token_id"], 2);
        assert_eq!(c.tokenizer_config.as_ref().unwrap()["add_bos_token"], true);
        assert_eq!(c.tokenizer_json.as_deref(), Some(&b"{\"version\":\"1.0\"}"[..]));
        assert!(c.meta.entries.is_empty());
        // [out, in] of the file is (in, out) here.
        assert_eq!(c.tensor("embed").unwrap().shape, [4, 5]);
        assert_eq!(c.tensor("norm").unwrap().dtype.name(), "F32");
        let q = c.tensor("q").unwrap();
        assert_eq!((q.file, q.bytes, q.elems()), (1, 24, 12));
        assert_eq!(whole(&c, q), (101..125).collect::<Vec<u8>>());
        assert_eq!(c.total_bytes(), 40 + 16 + 24);
    }
}

#[test]
fn a_directory_with_one_safetensors_file_needs_no_index() {
    let single = |f: &mut Files| {
        f.remove(INDEX);
        f.remove(ONE);
        f.remove("tokenizer.json");
        let file = f.remove(TWO).unwrap();
        f.insert("model.safetensors", file);
    };
    let dir = model_dir(single);
    let c = Container::open(dir.path(), LoadMode::Read).unwrap();
    assert_eq!(c.files, [dir.path().join("model.safetensors")]);
    assert_eq!((c.tensors.len(), c.tokenizer_json.is_none()), (1, true));
    let lone = Container::open(&c.files[0], LoadMode::Read).unwrap();
    assert_eq!((lone.kind, lone.config.is_none()), (ContainerKind::Safetensors, true));
}

#[test]
fn a_missing_file_of_the_index_is_an_error_with_its_name() {
    let message = dir_message(|f| drop(f.remove(TWO)));
    assert!(message.contains(TWO), "{message}");
}

#[test]
fn an_index_that_leaves_the_directory_is_refused() {
    for bad in ["../x.safetensors", "/x.safetensors", "a/x.safetensors", "a\\x.safetensors", "x.bin", "..safetensors"] {
        let message = dir_message(|f| {
            f.insert(INDEX, index_of(&[("embed", ONE), ("norm", ONE), ("q", bad)]));
        });
        assert!(message.contains(INDEX) && message.contains("could leave the directory"), "{message}");
        assert!(message.contains("\"q\""), "{message}");
    }
}

#[test]
fn a_tensor_in_two_files_is_refused() {
    use safetensors::Dtype::BF16;
    let message = dir_message(|f| drop(f.insert(TWO, weights(&[("q", BF16, &[3, 4]), ("embed", BF16, &[1])], 0))));
    assert!(message.contains("\"embed\"") && message.contains("in two files"), "{message}");
    assert!(message.contains(ONE) && message.contains(TWO), "{message}");
}

#[test]
fn an_index_that_is_wrong_about_a_tensor_is_refused() {
    let message = dir_message(|f| {
        f.insert(INDEX, index_of(&[("embed", ONE), ("norm", TWO), ("q", TWO)]));
    });
    assert!(message.contains("\"norm\"") && message.contains("not where the index says"), "{message}");
    let message = dir_message(|f| {
        f.insert(INDEX, index_of(&[("embed", ONE), ("k", ONE), ("q", TWO)]));
    });
    assert!(message.contains("\"k\"") && message.contains("none of the files"), "{message}");
    let message = dir_message(|f| {
        f.insert(INDEX, index_of(&[("embed", ONE), ("q", TWO), ("embed", ONE)]));
    });
    assert!(message.contains("occurs twice"), "{message}");
}

#[test]
fn broken_json_beside_the_weights_is_an_error_with_its_file() {
    for name in ["config.json", "generation_config.json", "tokenizer_config.json", INDEX] {
        let message = dir_message(|f| drop(f.insert(name, b"{\"a\":".to_vec())));
        assert!(message.contains(name) && message.contains("line 1"), "{message}");
        let message = dir_message(|f| drop(f.insert(name, vec![b'['; 100_000])));
        assert!(message.contains(name), "{message}");
    }
    let message = dir_message(|f| drop(f.insert("config.json", b"0,".repeat(500_000))));
    assert!(message.contains("too many values"), "{message}");
    let message = dir_message(|f| drop(f.insert("config.json", vec![b' '; 17 << 20])));
    assert!(message.contains("longer than this reader allows"), "{message}");
}

#[test]
fn json_that_would_swell_in_memory_stays_within_the_allowance() {
    let list = |item: &str, n: usize| format!("[{}0]", item.repeat(n)).into_bytes();
    let map = |n: usize| {
        let entries: String = (0..n).map(|i| format!("\"{i}\":0,")).collect();
        format!("{{{}\"x\":0}}", entries).into_bytes()
    };
    let cases = [
        (list("0,", 300_000), true),
        (list("0,", 340_000), false),
        (list("{\"\":0},", 49_000), true),
        (list("{\"\":0},", 60_000), false),
        (list("[],", 200_000), true),
        (map(180_000), true),
        (map(300_000), false),
        (format!("\"{}\"", "x".repeat(15 << 20)).into_bytes(), true),
    ];
    for (i, (json, accepted)) in cases.into_iter().enumerate() {
        let len = json.len() as i64;
        let dir = model_dir(|f| drop(f.insert("config.json", json)));
        let (result, peak) = peak_of(|| Container::open(dir.path(), LoadMode::Read));
        assert_eq!(result.is_ok(), accepted, "case {i}: {:?}", result.err());
        assert!(peak <= len + ALLOWANCE, "case {i}: {peak} bytes for {len}");
        println!("case {i}: {peak} bytes of memory for {len}");
    }
}

#[test]
fn a_directory_without_a_model_or_with_several_is_an_error_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let e = Container::open(dir.path(), LoadMode::Read).unwrap_err().to_string();
    assert!(e.contains("no model in it"), "{e}");
    let file = bytes("gguf_bad/00_ok_minimal.gguf");
    std::fs::write(dir.path().join("a.gguf"), &file).unwrap();
    let c = Container::open(dir.path(), LoadMode::Read).unwrap();
    assert_eq!(c.files, [dir.path().join("a.gguf")]);
    std::fs::write(dir.path().join("b.gguf"), &file).unwrap();
    let e = Container::open(dir.path(), LoadMode::Read).unwrap_err().to_string();
    assert!(e.contains("several models") && e.contains("\"b.gguf\""), "{e}");
    let message = dir_message(|f| f.retain(|n, _| !n.starts_with("model")));
    assert!(message.contains("config.json without weights"), "{message}");
    let message = dir_message(|f| drop(f.remove(INDEX)));
    assert!(message.contains("several safetensors files and no index"), "{message}");
}

// ---------------------------------------------------------------- types of keys

fn with_key(meta: &Meta, key: &str, value: Value) -> Container {
    let mut meta = meta.clone();
    meta.entries.retain(|(k, _)| k != key);
    meta.entries.push((key.into(), value));
    from_vec("m.gguf", gguf_write::head("m.gguf", &meta, &[]).unwrap().bytes).unwrap()
}

#[test]
fn a_metadata_key_of_a_wrong_type_is_named_with_both_types() {
    let good = open("tiny/tiny-stories-Q8_0.gguf").unwrap().meta;
    let text = |s: &str| Value::Str(s.into());
    for (key, value, words) in [
        ("general.architecture", Value::U32(1), "expected string, found u32"),
        ("general.name", Value::Bool(true), "expected string, found bool"),
        ("llama.rope.freq_base", Value::U32(500_000), "expected f32 or f64, found u32"),
        ("llama.rope.freq_base", text("500000"), "expected f32 or f64, found string"),
        ("llama.rope.scaling.factor", Value::U32(4), "expected f32 or f64, found u32"),
        ("llama.rope.scale_linear", Value::I32(4), "expected f32 or f64, found i32"),
        ("llama.rope.scaling.attn_factor", text("1"), "expected f32 or f64, found string"),
        ("llama.rope.scaling.type", Value::U32(1), "expected string, found u32"),
        ("llama.attention.layer_norm_rms_epsilon", text("1e-5"), "expected f32 or f64, found string"),
        ("llama.block_count", Value::F32(2.0), "is not a whole number"),
        ("tokenizer.ggml.tokens", Value::U32(1), "expected array of string, found u32"),
    ] {
        let error = format!("{:#}", Hyper::read(&with_key(&good, key, value)).unwrap_err());
        assert!(error.contains(key) && error.contains(words) && error.lines().count() == 1, "{error}");
    }
    assert!(Hyper::read(&with_key(&good, "llama.rope.freq_base", Value::F64(500_000.0))).is_ok());
    let m = Meta { entries: vec![("split.count".into(), text("3"))] };
    let error = from_vec("m.gguf", gguf_write::head("m.gguf", &m, &[]).unwrap().bytes).unwrap_err().to_string();
    assert!(error.contains("m.gguf") && error.contains("split.count") && error.contains("found string"), "{error}");
}

#[test]
fn a_config_key_of_a_wrong_type_is_named_with_its_file_and_value() {
    use serde_json::{Value as Json, json};
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("model.safetensors"), [&2u64.to_le_bytes()[..], b"{}"].concat()).unwrap();
    let good: Json = serde_json::from_slice(&bytes("tiny/hf/config.json")).unwrap();
    let read = |changes: Json| {
        let mut config = good.clone();
        config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
        Hyper::read(&Container::open(dir.path(), LoadMode::Read).unwrap())
    };
    let base = read(json!({})).unwrap();
    for (changes, words) in [
        (json!({"rope_theta": "500000"}), "rope_theta: wrong type: expected a number, found the text \"500000\""),
        (json!({"rope_theta": [1.0]}), "rope_theta: wrong type: expected a number, found the list"),
        (json!({"rms_norm_eps": "0.1"}), "rms_norm_eps: wrong type"),
        (json!({"hidden_act": ["gelu"]}), "hidden_act: wrong type: expected a text"),
        (json!({"model_type": 3}), "model_type: wrong type"),
        (json!({"num_hidden_layers": 2.5}), "num_hidden_layers: wrong type: expected a whole number"),
        (json!({"tie_word_embeddings": "false"}), "tie_word_embeddings: wrong type: expected true or false"),
        (json!({"rope_scaling": "llama3"}), "rope_scaling: wrong type: expected an object"),
        (json!({"rope_scaling": [1]}), "rope_scaling: wrong type: expected an object"),
        (json!({"rope_parameters": 7}), "rope_parameters: wrong type: expected an object"),
        (json!({"rope_scaling": {"factor": 8.0}}), "factor without a rope_type"),
        (json!({"rope_scaling": {"rope_type": 7}}), "rope_scaling.rope_type: wrong type: expected a text, found 7"),
        (
            json!({"rope_scaling": {"type": "yarn", "factor": 4, "beta_fast": "32"}}),
            "rope_scaling.beta_fast: wrong type",
        ),
        (json!({"rope_scaling": {"type": "yarn", "factor": "4"}}), "rope_scaling.factor: wrong type"),
        (
            json!({"rope_scaling": {"type": "yarn", "factor": 4, "attention_factor": "1"}}),
            "rope_scaling.attention_factor: wrong type",
        ),
        (
            json!({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": "64"}}),
            "rope_scaling.original_max_position_embeddings: wrong type",
        ),
        (json!({"partial_rotary_factor": "0.5"}), "partial_rotary_factor: wrong type"),
        (json!({"layer_types": "full_attention"}), "layer_types: wrong type: expected a list"),
    ] {
        let error = format!("{:#}", read(changes).unwrap_err());
        assert!(error.contains("config.json: ") && error.contains(words) && error.lines().count() == 1, "{error}");
        assert_eq!(error.matches("config.json").count(), 1, "{error}");
    }
    for changes in [
        json!({"rope_theta": 10000}),
        json!({"rope_theta": 10000.0, "rope_scaling": null, "hidden_act": null, "partial_rotary_factor": 1}),
        json!({"rope_scaling": {}, "rope_parameters": null}),
    ] {
        assert_eq!(read(changes).unwrap().rope_scaling, base.rope_scaling);
    }
}

#[test]
fn a_tensor_of_a_wrong_type_or_length_names_its_file() {
    let c = open("tiny/tiny-stories-Q8_0.gguf").unwrap();
    let h = Hyper::read(&c).unwrap();
    let with = |dtype: BlockType, n: u64| {
        let dtype = isobit::internals::formats::Dtype::from_block(dtype).unwrap();
        let entry = gguf_write::Entry { name: "rope_freqs.weight".into(), dtype, shape: vec![n] };
        let head = gguf_write::head("m.gguf", &c.meta, &[entry]).unwrap();
        let mut bytes = head.bytes;
        bytes.resize(head.file_len as usize, 0);
        let c = from_vec("m.gguf", bytes).unwrap();
        format!("{:#}", rope_table(&c, &h, 64).unwrap_err())
    };
    let half = h.n_rot as u64 / 2;
    for (error, words) in [
        (with(BlockType::F32, 1), format!("has 1 elements, expected {half}")),
        (with(BlockType::F32, half), "not above 0 at element 0".into()),
        (with(BlockType::Q8_0, 32), if half == 32 { "is Q8_0".into() } else { "has 32 elements".to_string() }),
    ] {
        assert!(error.contains("tensor rope_freqs.weight") && error.contains(&words), "{error}");
        assert!(error.starts_with("<embedded>: "), "{error}");
    }
}

// ---------------------------------------------------------------- memory of a sentencepiece tokeniser

#[test]
fn a_sentencepiece_tokeniser_takes_little_memory_for_each_byte_of_text() {
    let mut tokens: Vec<String> = (0..=255u8).map(|b| format!("<0x{b:02X}>")).collect();
    tokens.extend(["a", "aa", "aaaa", "\u{2581}", "\u{2581}a", "\u{2581}aa", "b", "ba"].map(String::from));
    let n = tokens.len();
    let meta = Meta {
        entries: vec![
            ("tokenizer.ggml.model".into(), Value::Str("llama".into())),
            ("tokenizer.ggml.tokens".into(), Value::StrArray(tokens)),
            ("tokenizer.ggml.scores".into(), Value::F32Array((0..n).map(|i| -(i as f32)).collect())),
            (
                "tokenizer.ggml.token_type".into(),
                Value::I32Array((0..n).map(|i| if i < 256 { 6 } else { 1 }).collect()),
            ),
        ],
    };
    let t = Tokenizer::from_gguf(&meta).unwrap();
    let size = 4 << 20;
    // one word that may all become one token, and words
    for (text, most) in [("a".repeat(size), 40), ("aab ".repeat(size / 4), 12)] {
        let (ids, peak) = peak_of(|| t.encode(&text, false, false).unwrap());
        assert!(ids.len() > size / 8);
        assert!(peak < most * size as i64, "{} bytes for each byte of {:?}", peak / size as i64, &text[..4]);
        let (first, peak) = peak_of(|| t.encode_first(&text, false, false, 100).unwrap());
        assert!(first == ids[..100]);
        assert!(text.starts_with("aaaa") || peak < 4 << 20, "{peak}");
    }
}
