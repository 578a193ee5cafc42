//! The device layer on hardware as it is found: what goes wrong is an error with a cause, never a panic and never zeros
//! that look like results; what goes right survives loading, reading, writing and loading again.

mod gpu {
    use crate::common::{adapters, gpus, same};
    use futures::executor::block_on;
    use isobit::internals::cases::{self, Batch};
    use isobit::internals::cpu::{CpuDevice, CpuOptions};
    use isobit::internals::host::{GpuDevice, GpuOptions, HostError, connect};
    use isobit::internals::ops::add::AddParams;
    use isobit::internals::ops::rms_norm::RmsNormParams;
    use isobit::internals::record::{
        Args, BufDecl, Command, Device, Op, Plan, Recording, Role, Rows, Step, WeightSource,
    };

    /// Weights of one value.
    struct Value(u32);

    impl WeightSource for Value {
        fn fill(&mut self, _: &BufDecl, out: &mut [u32]) -> anyhow::Result<()> {
            out.fill(self.0);
            Ok(())
        }
    }

    /// Weights that cannot be read.
    struct Broken;

    impl WeightSource for Broken {
        fn fill(&mut self, buffer: &BufDecl, _: &mut [u32]) -> anyhow::Result<()> {
            anyhow::bail!("{} cannot be read", buffer.name)
        }
    }

    const ONE: u32 = 0x3f80_0000;
    const TWO: u32 = 0x4000_0000;

    fn buffer(name: &str, words: usize, role: Role) -> BufDecl {
        BufDecl { name: name.into(), words, role }
    }

    fn weight(name: &str, words: usize) -> BufDecl {
        buffer(name, words, Role::Given(0))
    }

    fn adding(dim: usize, binds: Vec<usize>) -> Command {
        Command {
            op: Op::Add,
            args: Args::Add(AddParams { n_tokens: 0, dim: dim as u32 }),
            binds,
            rows: Rows::Tokens,
            layer: None,
            label: "sum".into(),
        }
    }

    /// sum += weight, then sum += input; the sum is the logits.
    fn plan(dim: usize) -> Plan {
        Plan {
            buffers: vec![
                weight("weight", dim),
                buffer("input", dim, Role::Input),
                buffer("sum", dim, Role::Scratch),
                buffer("other", dim, Role::Cache),
            ],
            recording: Recording { commands: vec![adding(dim, vec![0, 2]), adding(dim, vec![1, 2])] },
            placing: None,
            strands: None,
            logits: Some(2),
            selected: None,
            width: dim,
            max_tokens: 1,
            max_out: 1,
        }
    }

    fn step(dim: usize) -> Step {
        Step { n_tokens: 1, n_out: 1, inputs: vec![(1, vec![TWO; dim])], ..Step::default() }
    }

    /// The host error below an error.
    fn host(e: anyhow::Error) -> HostError {
        e.downcast::<HostError>().unwrap_or_else(|e| panic!("not a host error: {e:#}"))
    }

    fn limited(max_binding: u64) -> Vec<GpuDevice> {
        let options = || GpuOptions { max_binding: Some(max_binding), ..GpuOptions::default() };
        adapters()
            .iter()
            .map(|a| block_on(connect(a, options())).unwrap_or_else(|e| panic!("{}: {e}", a.title())).0)
            .collect()
    }

    #[test]
    fn a_plan_loads_runs_reads_and_writes() {
        for mut gpu in gpus() {
            block_on(async {
                gpu.load(plan(300), &mut Value(ONE)).await?;
                assert_eq!(gpu.read(0).await?, vec![ONE; 300], "weights");
                assert_eq!(gpu.read(2).await?, vec![0; 300], "scratch starts as zeros");
                assert_eq!(gpu.run(&step(300)).await?, vec![3.0; 300]);
                assert_eq!(gpu.read(1).await?, vec![TWO; 300], "inputs lie in the arena");
                // the sum stays: the second step adds to it
                assert_eq!(gpu.run(&step(300)).await?, vec![6.0; 300]);
                gpu.write(2, &vec![ONE; 300]).await?;
                gpu.write(3, &[7, 8, 9]).await?;
                assert_eq!(gpu.run(&step(300)).await?, vec![4.0; 300]);
                let other = gpu.read(3).await?;
                assert_eq!((&other[..4], other.len()), (&[7, 8, 9, 0][..], 300));
                // one command alone, then the other
                gpu.write(2, &vec![0; 300]).await?;
                gpu.begin(&step(300)).await?;
                gpu.run_one(0).await?;
                assert_eq!(gpu.read(2).await?, vec![ONE; 300]);
                gpu.run_one(1).await?;
                assert_eq!(gpu.read(2).await?, vec![3.0f32.to_bits(); 300]);
                // no logits wanted
                assert_eq!(gpu.run(&Step { n_out: 0, ..step(300) }).await?, Vec::<f32>::new());
                anyhow::Ok(())
            })
            .unwrap_or_else(|e| panic!("{}: {e:#}", gpu.info().name));
        }
    }

    #[test]
    fn a_second_plan_replaces_the_first() {
        for mut gpu in gpus() {
            let name = gpu.info().name;
            block_on(async {
                gpu.load(plan(40), &mut Value(ONE)).await?;
                gpu.run(&step(40)).await?;
                gpu.load(plan(300), &mut Value(TWO)).await?;
                assert_eq!(gpu.read(2).await?, vec![0; 300], "{name}: nothing of the first plan is left");
                assert_eq!(gpu.run(&step(300)).await?, vec![4.0; 300]);
                gpu.load(plan(5), &mut Value(ONE)).await?;
                assert_eq!(gpu.run(&step(5)).await?, vec![3.0; 5]);
                anyhow::Ok(())
            })
            .unwrap_or_else(|e| panic!("{name}: {e:#}"));
        }
    }

    /// Resident bytes of this process.
    #[cfg(target_os = "linux")]
    fn resident() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
        statm.split(' ').nth(1).and_then(|w| w.parse::<usize>().ok()).expect("a number of pages") * 4096
    }

    // Only a software adapter keeps its buffers where this process can count them.
    #[cfg(target_os = "linux")]
    #[test]
    fn loading_again_frees_what_was_loaded_before() {
        const BYTES: usize = 64 << 20;
        for (adapter, mut gpu) in adapters().iter().zip(gpus()) {
            if !adapter.report().software {
                println!("{}: its memory cannot be counted from here", adapter.title());
                continue;
            }
            let load = |gpu: &mut GpuDevice| {
                block_on(gpu.load(plan(BYTES / 4), &mut Value(ONE))).unwrap_or_else(|e| panic!("{e:#}"))
            };
            load(&mut gpu);
            load(&mut gpu);
            let before = resident();
            for _ in 0..8 {
                load(&mut gpu);
            }
            let grown = resident().saturating_sub(before);
            println!("{}: {} MiB more after 8 plans of {} MiB", adapter.title(), grown >> 20, BYTES >> 20);
            // other tests of this process allocate a little meanwhile
            assert!(grown < 4 * BYTES, "{}: {grown} bytes more after 8 plans", adapter.title());
        }
    }

    #[test]
    fn a_buffer_over_the_binding_limit_is_named_with_its_size_and_the_limit() {
        for mut gpu in limited(1 << 16) {
            assert_eq!(gpu.info().max_binding_words, 1 << 14);
            block_on(gpu.load(plan(1 << 14), &mut Value(ONE))).expect("exactly the limit fits");
            let e = host(block_on(gpu.load(plan((1 << 14) + 1), &mut Value(ONE))).expect_err("one word too many"));
            assert_eq!(e, HostError::TooLarge { buffer: "weight".into(), bytes: (1 << 16) + 4, limit: 1 << 16 });
            assert_eq!(e.to_string(), "buffer weight needs 65540 bytes, the device allows 65536");
            // the plan before it is gone, the device still works
            assert!(block_on(gpu.run(&step(4))).is_err());
            block_on(gpu.load(plan(4), &mut Value(ONE))).expect("a small plan loads");
            assert_eq!(block_on(gpu.run(&step(4))).expect("and runs"), [3.0; 4]);
        }
    }

    #[test]
    fn the_devices_own_limit_holds_without_an_option() {
        for mut gpu in gpus() {
            let words = gpu.info().max_binding_words;
            let e = host(block_on(gpu.load(plan(words + 1), &mut Value(ONE))).expect_err("over the limit"));
            assert!(matches!(e, HostError::TooLarge { .. }), "{e}");
        }
    }

    #[test]
    fn without_a_plan_every_request_is_an_error() {
        for mut gpu in gpus() {
            let none = HostError::Device("no plan is loaded".into());
            for unloaded in [false, true] {
                if unloaded {
                    block_on(gpu.load(plan(4), &mut Value(ONE))).expect("loads");
                    gpu.unload();
                }
                assert_eq!(host(block_on(gpu.run(&step(4))).expect_err("run")), none);
                assert_eq!(host(block_on(gpu.begin(&step(4))).expect_err("begin")), none);
                assert_eq!(host(block_on(gpu.run_one(1)).expect_err("run_one")), none);
                assert_eq!(host(block_on(gpu.read(0)).expect_err("read")), none);
                assert_eq!(host(block_on(gpu.write(0, &[1])).expect_err("write")), none);
            }
        }
    }

    #[test]
    fn weights_that_cannot_be_read_leave_no_plan() {
        for mut gpu in gpus() {
            block_on(gpu.load(plan(4), &mut Value(ONE))).expect("loads");
            let e = block_on(gpu.load(plan(4), &mut Broken)).expect_err("cannot be read");
            assert_eq!(e.to_string(), "weight cannot be read");
            assert!(block_on(gpu.run(&step(4))).is_err());
            block_on(gpu.load(plan(4), &mut Value(ONE))).expect("loads again");
            assert_eq!(block_on(gpu.run(&step(4))).expect("runs again"), [3.0; 4]);
        }
    }

    #[test]
    fn a_lost_device_is_an_error_in_every_request_and_stays_one() {
        for mut gpu in gpus() {
            let name = gpu.info().name;
            block_on(gpu.load(plan(64), &mut Value(ONE))).expect("loads");
            assert_eq!(block_on(gpu.run(&step(64))).expect("runs"), [3.0; 64]);
            gpu.destroy();
            for request in 0..2 {
                let e = host(block_on(gpu.run(&step(64))).expect_err("run after the loss"));
                assert!(matches!(e, HostError::Lost(_)), "{name}: request {request}: {e:?}");
                assert!(!e.to_string().contains('\n'), "{e}");
                let e = host(block_on(gpu.read(2)).expect_err("read after the loss"));
                assert!(matches!(e, HostError::Lost(_)), "{name}: {e:?}");
                let e = host(block_on(gpu.write(2, &[1])).expect_err("write after the loss"));
                assert!(matches!(e, HostError::Lost(_)), "{name}: {e:?}");
                let e = host(block_on(gpu.run_one(0)).expect_err("run_one after the loss"));
                assert!(matches!(e, HostError::Lost(_)), "{name}: {e:?}");
            }
            let e = host(block_on(gpu.load(plan(64), &mut Value(ONE))).expect_err("load after the loss"));
            assert!(matches!(e, HostError::Lost(_)), "{name}: {e:?}");
        }
    }

    #[test]
    fn a_command_with_a_missing_buffer_is_an_error_when_the_plan_is_loaded() {
        for mut gpu in gpus() {
            let mut broken = plan(64);
            broken.recording.commands[1].binds = vec![2];
            let e = host(block_on(gpu.load(broken, &mut Value(ONE))).expect_err("one binding is missing"));
            assert!(matches!(e, HostError::Device(_)), "{e:?}");
            assert!(!e.to_string().contains('\n'), "{e}");
            block_on(gpu.load(plan(64), &mut Value(ONE))).expect("loads");
            assert_eq!(block_on(gpu.run(&step(64))).expect("runs"), [3.0; 64]);
        }
    }

    #[test]
    fn a_buffer_both_read_and_written_by_one_command_is_an_error() {
        for mut gpu in gpus() {
            let mut broken = plan(64);
            broken.recording.commands[0].binds = vec![2, 2];
            let e = async {
                gpu.load(broken, &mut Value(ONE)).await?;
                gpu.run(&step(64)).await
            };
            let e = host(block_on(e).expect_err("two uses of one buffer"));
            assert!(matches!(e, HostError::Device(_)), "{e:?}");
        }
    }

    #[test]
    fn reads_and_writes_past_a_short_buffer_reach_no_other_buffer() {
        // a norm over 1024 elements whose buffers hold 256: the driver must clamp or drop what lies outside
        for mut gpu in gpus() {
            let name = gpu.info().name;
            let names = ["x", "w", "before", "y", "after"];
            let broken = Plan {
                buffers: names.map(|n| weight(n, 256)).into(),
                recording: Recording {
                    commands: vec![Command {
                        op: Op::RmsNorm,
                        args: Args::RmsNorm(RmsNormParams { n_tokens: 0, dim: 1024, inv_n: 1.0 / 1024.0, eps: 1e-5 }),
                        binds: vec![0, 1, 3],
                        rows: Rows::Tokens,
                        layer: None,
                        label: "norm".into(),
                    }],
                },
                max_tokens: 4,
                ..Plan::default()
            };
            block_on(async {
                gpu.load(broken, &mut Value(TWO)).await?;
                gpu.begin(&Step { n_tokens: 4, ..Step::default() }).await?;
                gpu.run_one(0).await?;
                for id in [0, 1, 2, 4] {
                    assert_eq!(gpu.read(id).await?, vec![TWO; 256], "{name}: buffer {}", names[id]);
                }
                anyhow::Ok(())
            })
            .unwrap_or_else(|e| panic!("{name}: {e:#}"));
        }
    }

    #[test]
    fn more_tokens_than_a_plan_is_for_stop_with_both_numbers() {
        for mut gpu in gpus() {
            block_on(gpu.load(plan(4), &mut Value(ONE))).expect("loads");
            let many = Step { n_tokens: 2, ..step(4) };
            let stop = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| block_on(gpu.run(&many)).map(|_| ())))
                .expect_err("a mistake of the caller");
            assert_eq!(stop.downcast_ref::<String>().map(String::as_str), Some("2 tokens in a plan for 1"));
        }
    }

    #[test]
    fn results_do_not_depend_on_how_often_a_plan_is_run_or_loaded() {
        let list = cases::of(Op::Matvec(isobit::internals::blocks::BlockType::Q4_K));
        let list = &list[..6];
        let mut twin =
            CpuDevice::new(CpuOptions { level: None, threads: 1, max_binding: None }).expect("threads start");
        let expected = crate::common::run(&mut twin, list);
        for mut gpu in gpus() {
            for _ in 0..3 {
                let found = crate::common::run(&mut gpu, list);
                for ((case, e), f) in list.iter().zip(&expected).zip(&found) {
                    same(case, e, f).unwrap_or_else(|e| panic!("{e}"));
                }
            }
            // ten runs of one loaded case
            let (plan, mut batch) = Batch::new(list);
            block_on(gpu.load(plan, &mut batch)).expect("loads");
            let step = batch.step(0);
            block_on(gpu.begin(&step)).expect("begins");
            for _ in 0..10 {
                block_on(gpu.run_one(0)).expect("runs");
                assert_eq!(block_on(gpu.read(batch.buffer(0, 2))).expect("reads"), expected[0][2]);
            }
        }
    }
}
