//! Temporary driver.
use isobit::record::Device;
fn main() -> anyhow::Result<()> {
    use isobit::*;
    let c = formats::Container::open(std::path::Path::new("assets/tiny-stories-Q4_K_M.gguf"), formats::LoadMode::Read)?;
    let h = models::Hyper::read(&c)?;
    println!("{h:?}");
    let mut devices: Vec<Box<dyn Device>> =
        vec![Box::new(cpu::CpuDevice::new(cpu::CpuOptions { level: None, ..Default::default() })?)];
    for a in pollster::block_on(host::adapters()) {
        println!("{:?}", a.report());
        let (d, v) = pollster::block_on(host::connect(&a, Default::default()))?;
        println!("{v:?}");
        devices.push(Box::new(d));
    }
    let k = ops::cache::CacheType::parse(&std::env::args().nth(1).unwrap_or("f16".into())).unwrap();
    let o = generate::SessionOptions {
        plan: models::PlanOptions {
            n_ctx: 128,
            ubatch: 64,
            max_out: 1,
            digits: 1,
            k_type: k,
            v_type: k,
            max_binding_words: usize::MAX,
        },
    };
    let script = generate::verify::Script {
        prompt: vec![0, 48, 1470, 657, 260, 531, 447, 310, 260, 683, 430, 339, 831, 947, 84, 15],
        generate: 8,
        batches: vec![0, 1, 3, 7],
    };
    let r = pollster::block_on(generate::verify::verify(&mut devices, &c, &h, o, &script, || {}))?;
    println!("{r:#?}");
    Ok(())
}
