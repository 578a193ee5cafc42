//! What kernels share that uses subgroups, apart from the kernels: exact whatever lanes a driver puts into a subgroup.

mod gpu {
    use crate::alone;

    const LANES: usize = 256;

    /// 256 lanes in eight slots of 32, `WIDE` lanes of one slot side by side: so a subgroup of any size has lanes of one
    /// slot, of two, or of more, by choice of `WIDE`.
    const FRAME: &str = "
override wide: u32 = 32u;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) i: u32) {
    let slot = (i / wide) % 8u;
    let lane = i / (8u * wide) * wide + i % wide;
    // twice, as a loop would: what the first leaves behind must not reach the second
    let doubled = group_max(slot, lane, bitcast<u32>(2.0 * x[i]));
    workgroupBarrier();
    y[i] = bitcast<f32>(doubled);
    y[256u + i] = bitcast<f32>(group_max(slot, lane, bitcast<u32>(x[i])));
}
";

    fn slot(i: usize, wide: usize) -> usize {
        i / wide % 8
    }

    /// Magnitudes over many exponents and zeros, by a linear congruential generator.
    fn magnitudes(seed: u32) -> Vec<f32> {
        let mut s = seed;
        let mut next = || {
            s = s.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            s >> 4
        };
        // exponents 27 to 226: twice the value is no infinity
        (0..LANES)
            .map(
                |_| {
                    if next() % 7 == 0 {
                        0.0
                    } else {
                        f32::from_bits(((next() % 200 + 27) << 23) | (next() % (1 << 23)))
                    }
                },
            )
            .collect()
    }

    /// Both halves of what the frame writes.
    fn run(device: &(wgpu::Device, wgpu::Queue), text: &str, x: &[f32], wide: usize) -> Vec<f32> {
        let pipeline = alone::compile(&device.0, &[text, FRAME].concat(), &[("wide", wide as f64)]);
        let words = alone::run(device, &pipeline, bytemuck::cast_slice(x), 2 * LANES, 1);
        words.into_iter().map(f32::from_bits).collect()
    }

    #[test]
    fn maxima_are_exact_however_lanes_are_shared_out() {
        let mut with_subgroups = 0;
        for adapter in alone::adapters() {
            let has = adapter.features().contains(wgpu::Features::SUBGROUP);
            // naga has subgroups and refuses the line that asks for them
            let texts = [
                include_str!("../../shaders/shared/quantize/max_tree.wgsl").to_string(),
                include_str!("../../shaders/shared/quantize/max_subgroup.wgsl").replace("enable subgroups;\n", ""),
            ];
            with_subgroups += usize::from(has);
            let device = alone::open(&adapter, wgpu::Features::SUBGROUP);
            println!("{:?}, subgroups {has}", adapter.get_info().name);
            for text in &texts[..1 + usize::from(has)] {
                for (wide, seed) in [1, 2, 4, 8, 16, 32].into_iter().zip(1..) {
                    let x = magnitudes(seed);
                    let of = |s| (0..LANES).filter(|&i| slot(i, wide) == s).map(|i| x[i]).fold(0.0, f32::max);
                    let expected: Vec<f32> = (0..LANES).map(|i| of(slot(i, wide))).collect();
                    let doubled: Vec<f32> = expected.iter().map(|m| 2.0 * m).collect();
                    let found = run(&device, text, &x, wide);
                    assert!(found == [doubled, expected].concat(), "{} lanes side by side: {}", wide, &text[..60]);
                }
            }
        }
        crate::common::absent::found(with_subgroups, "adapter with subgroups");
    }
}
