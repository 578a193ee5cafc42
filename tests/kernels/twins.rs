//! Every operation and type, on every case of the case table: the twin, each SIMD level and each adapter must leave the
//! same words in every buffer, and must leave alone what is not theirs to write.

use crate::common::{Words, cpu, levels, none, run, same, same_words, untouched, writes_floats};
use isobit::internals::cases::{self, Access, Case, GUARD_WORDS, SENTINEL};
use isobit::internals::record::{Device, Op};
use std::collections::HashSet;

/// What the twins make of some cases.
fn twins(list: &[Case]) -> Vec<Words> {
    run(&mut cpu(None, 1), list)
}

/// Runs all cases of operations on some devices, a plan for each operation; the twins once for all of them.
fn against_twins(ops: Vec<Op>, mut devices: Vec<Box<dyn Device>>) {
    let started = std::time::Instant::now();
    let (mut count, mut words, mut failures) = (0, 0, Vec::new());
    for op in ops {
        let list = cases::of(op);
        let expected = twins(&list);
        count += list.len();
        words += expected.iter().flatten().map(Vec::len).sum::<usize>();
        for device in &mut devices {
            let found = run(&mut **device, &list);
            assert_eq!(found.len(), list.len(), "{}", device.info().name);
            let each = list.iter().zip(&expected).zip(&found);
            let wrong: Vec<String> = each.filter_map(|((case, e), f)| same(case, e, f).err()).collect();
            if let Some(first) = wrong.first() {
                let (name, of) = (device.info().name, op.title());
                failures.push(format!("{name}: {} of {} cases of {of}: {first}", wrong.len(), list.len()));
            }
        }
    }
    let names: Vec<String> = devices.iter().map(|d| d.info().name).collect();
    println!("{count} cases, {words} words, {:.1} s on {}", started.elapsed().as_secs_f64(), names.join(", "));
    none(&failures);
}

#[cfg(feature = "gpu")]
mod gpu {
    use isobit::internals::host::GpuOptions;
    use isobit::internals::ops::cache::CacheType;
    use isobit::internals::record::{Device, Op};

    // three tests, which run side by side

    #[test]
    fn the_first_adapter_leaves_the_words_the_twins_leave() {
        super::against_twins(super::cases::ops(), vec![Box::new(crate::common::gpus().remove(0))]);
    }

    /// Where the first adapter's own conversion of f16 is used, that by integers is not, and other adapters need it.
    #[test]
    fn f16_by_integers_leave_them_too() {
        let options = GpuOptions { unpack: false, ..GpuOptions::default() };
        let gpu = crate::common::gpus_with(&options).remove(0);
        let f16 = CacheType::F16;
        super::against_twins(vec![Op::Attention(f16, f16), Op::AttentionQuantize(f16, f16)], vec![Box::new(gpu)]);
    }

    #[test]
    fn every_other_adapter_leaves_the_words_the_twins_leave() {
        let others: Vec<Box<dyn Device>> =
            crate::common::gpus().into_iter().skip(1).map(|gpu| Box::new(gpu) as Box<dyn Device>).collect();
        println!("{} more adapters", others.len());
        if !others.is_empty() {
            super::against_twins(super::cases::ops(), others);
        }
    }
}

#[test]
fn every_simd_level_leaves_the_words_the_twins_leave() {
    let of = |level, threads| Box::new(cpu(Some(level), threads)) as Box<dyn Device>;
    against_twins(cases::ops_of_cpus(), levels().into_iter().flat_map(|level| [of(level, 1), of(level, 3)]).collect());
}

/// No bit may depend on what becomes of numbers below 2^-126: the twins run again in a thread that makes them 0.
#[cfg(target_arch = "x86_64")]
#[test]
fn flushing_subnormals_changes_no_word_of_any_case() {
    use isobit::internals::ops::float_probe::{FloatProbeParams, WORDS, faint_inputs, float_probe};
    let probe = || {
        let mut words = [0; WORDS];
        float_probe(&FloatProbeParams { n_tokens: 1 }, std::hint::black_box(&faint_inputs()), &mut words);
        words[1]
    };
    assert_eq!((probe(), crate::common::flushing(probe)), (0x0040_0000, 0), "the thread flushes");
    let mut failures = Vec::new();
    for op in cases::ops_of_cpus() {
        let list = cases::of(op);
        let (expected, found) = (twins(&list), crate::common::flushing(|| twins(&list)));
        for ((case, expected), found) in list.iter().zip(&expected).zip(&found) {
            failures.extend(same(case, expected, found).err());
        }
    }
    none(&failures);
}

#[test]
fn the_twins_write_all_they_should_and_nothing_else() {
    let mut failures = Vec::new();
    for op in cases::ops_of_cpus() {
        let list = cases::of(op);
        for (case, words) in list.iter().zip(twins(&list)) {
            failures.extend(untouched(case, &words).err());
            for (buffer, words) in case.buffers.iter().zip(&words) {
                let Access::Write(ranges) = &buffer.access else { continue };
                for i in ranges.iter().flat_map(Clone::clone) {
                    let mut complain =
                        |what: &str| failures.push(format!("{}: {} word {i} {what}", case.name, buffer.name));
                    if words[i] == SENTINEL {
                        complain("was not written");
                    }
                    let v = f32::from_bits(words[i]);
                    // what is not finite has one pattern
                    if writes_floats(op) && !v.is_finite() && words[i] != 0x7fc0_0000 {
                        complain("is not finite, and not the pattern for it");
                    }
                    // sums carried between pages are not canonicalised, yet are zero or normal as well
                    if writes_floats(op) && (v.is_subnormal() || words[i] == 0x8000_0000) {
                        complain("is subnormal or -0");
                    }
                }
            }
        }
    }
    none(&failures);
}

#[test]
fn case_names_are_unique_and_every_written_buffer_ends_in_guard_words() {
    let mut names = HashSet::new();
    for op in cases::ops_of_cpus() {
        let list = cases::of(op);
        assert!(!list.is_empty(), "{} has no case", op.title());
        for case in list {
            assert!(case.op == op && names.insert(case.name.clone()), "{} is there twice", case.name);
            let mut written = 0;
            for b in &case.buffers {
                let Access::Write(ranges) = &b.access else { continue };
                written += 1;
                let live = b.words.len() - GUARD_WORDS;
                assert!(b.words[live..].iter().all(|&w| w == SENTINEL), "{}: {}", case.name, b.name);
                assert!(ranges.iter().all(|r| r.start < r.end && r.end <= live), "{}: {}", case.name, b.name);
            }
            let outputs = match op {
                Op::RopeCacheWrite(..) | Op::RopeChannelCacheWrite(..) | Op::ConvSilu | Op::AltupCorrect => 3,
                Op::Attention(..) | Op::AttentionQuantize(..) | Op::Router => 2,
                Op::DeltaRule | Op::ShortConv | Op::SsmScan | Op::AltupPredict => 2,
                _ => 1,
            };
            assert_eq!(written, outputs, "{}", case.name);
        }
    }
}

// ---- the comparator ----

#[test]
fn the_comparator_rejects_one_flipped_bit() {
    let a = [1.0f32.to_bits(), 2.0f32.to_bits(), 0];
    assert_eq!(same_words(&a, &a), Ok(()));
    for word in 0..3 {
        for bit in 0..32 {
            let mut b = a;
            b[word] ^= 1 << bit;
            assert!(same_words(&a, &b).is_err(), "word {word} bit {bit}");
        }
    }
}

#[test]
fn the_comparator_rejects_a_nan() {
    let nan = f32::NAN.to_bits();
    assert!(same_words(&[0, 0], &[0, nan]).is_err());
    assert!(same_words(&[0, nan], &[0, 0]).is_err());
    assert!(same_words(&[nan], &[nan ^ 1]).is_err(), "another NaN is another word");
}

#[test]
fn the_comparator_rejects_a_short_buffer_and_a_missing_one() {
    assert!(same_words(&[1, 2, 3], &[1, 2]).is_err());
    assert!(same_words(&[1, 2], &[1, 2, 3]).is_err());
    assert!(same_words(&[1], &[]).is_err());
    let list = cases::of(Op::Swiglu);
    let expected = twins(&list[..1]);
    assert!(same(&list[0], &expected[0], &expected[0][..2].to_vec()).is_err());
}

#[test]
fn the_comparator_rejects_swapped_inputs() {
    for (op, a, b) in [(Op::Swiglu, 0, 1), (Op::RmsNorm, 0, 1)] {
        let list = cases::of(op);
        // one token, so that both inputs have the same length
        let case = list.iter().find(|c| c.step.n_tokens == 1 && c.buffers[a].words.len() > 250).expect("such a case");
        let mut swapped = case.clone();
        let words = swapped.buffers[a].words.clone();
        swapped.buffers[a].words = std::mem::replace(&mut swapped.buffers[b].words, words);
        let (expected, found) = (twins(std::slice::from_ref(case)), twins(&[swapped]));
        assert!(same(case, &expected[0], &expected[0]).is_ok());
        assert!(same_words(&expected[0][2], &found[0][2]).is_err(), "{}", case.name);
    }
}

#[test]
fn the_comparator_rejects_a_touched_guard_word_even_when_both_sides_agree() {
    let list = cases::of(Op::Swiglu);
    let mut words = twins(&list[..1]).remove(0);
    assert_eq!(untouched(&list[0], &words), Ok(()));
    *words[2].last_mut().expect("has a guard") ^= 1;
    assert!(same(&list[0], &words, &words).is_err());
    // an input that was written to
    let mut words = twins(&list[..1]).remove(0);
    words[0][0] ^= 1;
    assert!(same(&list[0], &words, &words).is_err());
}
