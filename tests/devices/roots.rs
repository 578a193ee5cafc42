//! Square roots and quotients of the shaders apart from the kernels, over every significand there is.

mod gpu {
    use crate::alone;
    use isobit::internals::ops::exact::{fdiv, fsqrt};

    /// Word i is the square root of the number whose bits are x[0] + i x[1], or, with x[2], its quotient by that number.
    const FRAME: &str = "
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    zero = wid.z;
    let i = wid.x * 256u + lane;
    let a = bitcast<f32>(x[0] + i * x[1]);
    if x[2] == 0u {
        y[i] = bitcast<u32>(fsqrt(a));
    } else {
        y[i] = bitcast<u32>(fdiv(a, bitcast<f32>(x[2])));
    }
}
";

    /// How many numbers one exponent has.
    const SIGNIFICANDS: u32 = 1 << 23;

    #[test]
    fn roots_and_quotients_are_rounded_correctly_for_every_significand() {
        let base = include_str!("../../shaders/shared/exact/base.wgsl");
        let exact = include_str!("../../shaders/shared/exact/exact.wgsl").replace("#import base\n", "");
        let text = [base, exact.as_str(), FRAME].concat();
        // exponents 0 and 1, which all others are like, and numbers of all exponents
        let (one, two, all) = ([0x3f80_0000, 1], [0x4000_0000, 1], [0x0080_0000, 252]);
        let mut tried = vec![[one[0], one[1], 0], [two[0], two[1], 0], [all[0], all[1], 0]];
        for divisor in [1.000_000_1f32, std::f32::consts::PI, 127.0] {
            tried.push([one[0], one[1], divisor.to_bits()]);
        }
        let mut devices = 0;
        for adapter in alone::adapters() {
            let device = alone::open(&adapter, wgpu::Features::empty());
            let pipeline = alone::compile(&device.0, &text, &[]);
            for x in &tried {
                let found = alone::run(&device, &pipeline, x, SIGNIFICANDS as usize, SIGNIFICANDS / 256);
                for (i, found) in (0..).zip(found) {
                    let a = f32::from_bits(x[0] + i * x[1]);
                    let expected = if x[2] == 0 { fsqrt(a) } else { fdiv(a, f32::from_bits(x[2])) };
                    assert!(
                        expected.to_bits() == found,
                        "{}: {a:e} and {:e}: {found:08x}, expected {:08x}",
                        adapter.get_info().name,
                        f32::from_bits(x[2]),
                        expected.to_bits()
                    );
                }
            }
            devices += 1;
        }
        crate::common::absent::found(devices, "adapter");
    }
}
