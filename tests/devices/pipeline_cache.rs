//! The driver's pipelines between runs: used where the backend hands them out, refused when they are not to the bit what
//! was written, and never worth a failure.

mod gpu {
    use crate::common::kept::Kept;
    use crate::common::{absent, adapters};
    use futures::executor::block_on;
    use isobit::internals::formats::{Container, LoadMode};
    use isobit::internals::fuse::Fuse;
    use isobit::internals::generate::{Session, SessionOptions, Want};
    use isobit::internals::host::{Adapter, GpuOptions, Store, Tune, connect};
    use isobit::internals::models::{Hyper, PlanOptions};
    use std::path::Path;
    use std::sync::Arc;

    const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/tiny-stories-Q4_K_M.gguf");

    /// Opens the adapter and runs a few tokens of the embedded model: the bits of the last logits, and how many bytes of
    /// pipelines the driver was given.
    fn run(adapter: &Adapter, store: Option<&Arc<Kept>>) -> (Vec<u32>, usize) {
        run_tuned(adapter, store, Tune::Auto)
    }

    fn run_tuned(adapter: &Adapter, store: Option<&Arc<Kept>>, tune: Tune) -> (Vec<u32>, usize) {
        let store = store.map(|s| s.clone() as Arc<dyn Store>);
        // what is measured differs from run to run; here the pipelines must not
        let variants = vec![isobit::internals::host::variants::Forced::parse("matvec4").expect("a variant's name")];
        let options = GpuOptions { tune, variants, store, ..GpuOptions::default() };
        let (mut gpu, verdict) = block_on(connect(adapter, options)).unwrap_or_else(|e| panic!("{e}"));
        assert!(verdict.exact(), "{verdict:?}");
        let read = gpu.pipelines_read();
        let c = Container::open(Path::new(MODEL), LoadMode::Read).unwrap_or_else(|e| panic!("{e}"));
        let h = Hyper::read(&c).unwrap_or_else(|e| panic!("{e:#}"));
        let plan = PlanOptions { n_ctx: 64, ubatch: 8, ..PlanOptions::default() };
        let options = SessionOptions { plan, memory: None, fuse: Fuse::On };
        let mut bits = Vec::new();
        block_on(async {
            let mut s = Session::new(&mut gpu, &c, &h, options, |_| {}).await?;
            s.feed(&[1, 2, 3, 4, 5], Want::Last, |_, logits| {
                bits.extend(logits.iter().map(|l| l.to_bits()));
                Ok(())
            })
            .await
        })
        .unwrap_or_else(|e| panic!("{e:#}"));
        (bits, read)
    }

    /// Whether the adapter's backend hands out pipelines.
    fn hands_out(adapter: &Adapter) -> bool {
        adapter.report().features.contains(&("pipeline-cache", true))
    }

    /// The adapters that hand out pipelines; there must be one.
    fn handing_out() -> Vec<Adapter> {
        let list: Vec<Adapter> = adapters().into_iter().filter(hands_out).collect();
        absent::found(list.len(), "adapter that hands out its pipelines (Vulkan's do)");
        list
    }

    #[test]
    fn a_second_load_is_given_what_the_first_compiled_and_writes_nothing() {
        for adapter in adapters() {
            let kept = Arc::new(Kept::default());
            let (without, none) = run(&adapter, None);
            // all is measured at once: what has a limit of time would leave some to the second load on a busy machine
            let (first, fresh) = run_tuned(&adapter, Some(&kept), Tune::Now);
            let (files, written) = (kept.ending(".bin"), kept.written.lock().unwrap().len());
            let (second, read) = run(&adapter, Some(&kept));
            println!("{}: {} files, {read} bytes read", adapter.title(), files.len());
            assert_eq!((none, fresh, files.len(), read > 0), (0, 0, hands_out(&adapter).into(), hands_out(&adapter)));
            assert!(without == first && first == second, "{}: other logits with kept pipelines", adapter.title());
            assert!(files.values().all(|f| f.len() > read), "the file is more than the pipelines");
            assert_eq!(kept.ending(".bin"), files);
            assert_eq!(kept.written.lock().unwrap()[written..], Vec::<String>::new());
            assert_eq!(*kept.warnings.lock().unwrap(), Vec::<String>::new());
        }
    }

    #[test]
    fn a_file_that_is_damaged_or_of_another_driver_costs_one_warning_and_no_bit() {
        for adapter in &handing_out() {
            let kept = Arc::new(Kept::default());
            let (expected, _) = run(adapter, Some(&kept));
            let good = kept.ending(".bin");
            let cut = |f: &mut Vec<u8>| f.truncate(f.len() - 1);
            let flipped = |f: &mut Vec<u8>| *f.last_mut().unwrap() ^= 1;
            let foreign = |f: &mut Vec<u8>| {
                let at = f.windows(6).position(|w| w == b"driver").unwrap();
                f[at + 8] ^= 1;
            };
            let empty = |f: &mut Vec<u8>| f.clear();
            let large = |f: &mut Vec<u8>| f.resize(f.len() + 100, 0);
            for damage in [&cut as &dyn Fn(&mut Vec<u8>), &flipped, &foreign, &empty, &large] {
                kept.damage(".bin", damage);
                assert_ne!(kept.ending(".bin"), good);
                kept.warnings.lock().unwrap().clear();
                let (found, read) = run(adapter, Some(&kept));
                assert!(found == expected && read == 0, "{read} bytes read");
                let warnings = kept.warnings.lock().unwrap();
                assert!(warnings.len() == 1 && warnings[0].starts_with("warning: pipelines-"), "{warnings:?}");
                assert!(!warnings[0].contains('\n'), "{warnings:?}");
                drop(warnings);
                // what was refused is replaced
                assert!(run(adapter, Some(&kept)).1 > 0);
            }
        }
    }

    #[test]
    fn the_command_line_keeps_pipelines_in_the_cache_directory_and_nothing_with_tuning_off() {
        for adapter in &handing_out() {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let run = |tune: &str, dir: &Path| {
                let args = ["run", MODEL, "-p", "Once", "-n", "2", "-c", "64", "--device"];
                let o = std::process::Command::new(env!("CARGO_BIN_EXE_isobit"))
                    .args(args)
                    .args([&adapter.index.to_string(), "--tune", tune, "--cache-dir"])
                    .arg(dir)
                    .output()
                    .expect("the program starts");
                assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
                let names =
                    std::fs::read_dir(dir).into_iter().flatten().map(|e| e.unwrap().file_name().into_string().unwrap());
                names.filter(|n| n.ends_with(".bin")).count()
            };
            assert_eq!(run("off", &dir.path().join("off")), 0);
            assert!(!dir.path().join("off").exists());
            assert_eq!(run("auto", &dir.path().join("auto")), 1);
        }
    }
}
