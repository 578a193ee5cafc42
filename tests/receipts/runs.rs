//! Runs that are kept: found again by their names, branched, and set beside another model.

use super::checks::{devices, made, request, session};
use isobit::Model;
use isobit::internals::receipts::{Extras, Parent, Run, check, compare, make, replay};
use std::ops::ControlFlow;
use std::path::Path;

const Q4_0: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny/tiny-stories-Q4_0.gguf");

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn a_run_of_an_adapter_is_replayed_branched_at_token_ten_and_compared_on_the_cpu() {
    let (model, dir) = (Model::embedded(), folder());
    let device = devices().pop().expect("the CPU at least");
    let receipt = made(&mut session(&device, &model, None), &request(40, 0.9));
    let run = Run { receipt, extras: Extras { prompt: Some("The king".into()), ..Extras::default() } };
    let path = run.save(dir.path()).expect("written");
    assert!(path.ends_with(format!("{}.json", run.id())));

    let kept = Run::load(&path).expect("as it was written");
    assert_eq!(kept, run);
    let mut cpu = session("cpu", &model, None);
    let again = replay(&kept.receipt, &mut cpu, |_| ControlFlow::Continue(())).expect("replayed");
    assert_eq!((again.difference, again.checked), (None, 40));

    // with nothing changed a branch is the run itself: a draw depends on its position
    let body = &kept.receipt.body;
    let same = made(&mut cpu, &body.branch(&Model::embedded(), 10, &[]).expect("ten tokens"));
    assert_eq!(same.body.ids, body.ids[10..]);
    let mut other = body.branch(&Model::embedded(), 10, &[400, 401]).expect("ten tokens");
    other.sampling.seed = 8;
    let out = cpu.generate(other.clone(), |_| ControlFlow::Continue(())).expect("generates");
    assert_eq!((out.ids.len(), out.prompt.len()), (28, body.prompt.len() + 12));
    let parent = Some(Parent { run: kept.id(), from: 10 });
    let branch =
        Run { receipt: make(&cpu, &other, &out).expect("a receipt"), extras: Extras { parent, ..Extras::default() } };
    branch.save(dir.path()).expect("written");
    assert_ne!(branch.id(), run.id());
    assert_eq!(check(&branch.receipt, &mut cpu, None).expect("checked").difference, None);
    assert!(body.branch(&Model::embedded(), 41, &[]).is_err());

    let list = Run::list(dir.path()).expect("readable");
    assert_eq!(list.len(), 2);
    let found = Run::find(dir.path(), &branch.id()).expect("readable").expect("there");
    assert_eq!(found.extras.parent, Some(Parent { run: run.id(), from: 10 }));
    assert!(Run::find(dir.path(), "0000000000000000").expect("readable").is_none());
    assert!(Run::find(dir.path(), "../x").is_err());
}

#[test]
fn two_models_part_at_a_token_and_their_logits_differ_before_it() {
    let (model, other) = (Model::embedded(), Model::open(Q4_0).expect("the model in Q4_0"));
    let mut first = session("cpu", &model, None);
    let receipt = made(&mut first, &request(60, 0.0));
    let mut second = session("cpu", &other, None);
    let c = compare(&receipt, &mut first, &mut second).expect("comparable");
    let (x, y) = c.parted.expect("Q4_0 says something else");
    assert_ne!(x, y);
    assert_eq!((x, c.ids[..c.same] == receipt.body.ids[..c.same]), (receipt.body.ids.get(c.same).copied(), true));
    assert_eq!(c.rows.len(), c.same + 1);
    assert!(c.max_abs() > 0.01 && c.mean_kl() > 1e-6, "{c:?}");
    // greedy: as long as the tokens are the same the likeliest is too, and at the first that differs it is not
    assert!(c.rows[..c.same].iter().all(|r| r.same_top) && !c.rows[c.same].same_top);
    // by hand, for one row
    let at = c.same / 2;
    let ids: Vec<u32> = receipt.body.prompt.iter().chain(&receipt.body.ids[..at]).copied().collect();
    let (a, b) = (first.logits(ids.as_slice()).unwrap(), second.logits(ids.as_slice()).unwrap());
    let most = a.iter().zip(&b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs()).fold(0.0, f64::max);
    assert_eq!(c.rows[at].max_abs, most);
    // of the model itself nothing differs
    let c = compare(&receipt, &mut first, &mut session("cpu", &model, None)).expect("comparable");
    assert_eq!((c.parted, c.same, c.max_abs(), c.same_top()), (None, 60, 0.0, 1.0));
    assert_eq!(c.mean_kl(), 0.0);
}

#[test]
fn a_run_that_was_changed_is_refused_and_named_in_its_folder() {
    let (model, dir) = (Model::embedded(), folder());
    let receipt = made(&mut session("cpu", &model, None), &request(8, 0.9));
    let top = vec![vec![(1, -0.1234567890123456), (2, -1e-30)]; 8];
    let run = Run { receipt, extras: Extras { prompt: Some("\"}\n\u{e9}".into()), parent: None, top } };
    let bytes = run.to_bytes();
    assert_eq!(Run::parse(&bytes).expect("sound").receipt, run.receipt);
    assert_eq!(Run::parse(&run.receipt.to_bytes()).expect("a receipt alone").extras, Extras::default());
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 1 << (at % 8);
        assert!(Run::parse(&other).is_err(), "byte {at}");
    }
    assert!(Run::parse(&bytes[..bytes.len() - 1]).is_err() && Run::parse(b"").is_err());
    let path = run.save(dir.path()).expect("written");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    let mut broken = bytes.clone();
    broken[40] ^= 1;
    std::fs::write(dir.path().join("broken.json"), broken).unwrap();
    std::fs::write(dir.path().join("notes.txt"), "no run").unwrap();
    let list = Run::list(dir.path()).expect("readable");
    assert_eq!(list.iter().map(|(_, run)| run.is_ok()).collect::<Vec<_>>(), [true, false]);
    assert!(Run::list(Path::new("/no/such/folder")).is_err());
}
