// The queries of a token and a unit of heads as its keys ask for them: rotated, and for keys of codes as two int8 digits
// (docs/exactness.md section 6), by 128 lanes. The importing shader gives the parameters `p`, the binding `q` and HEAD.
#import exact
#import cache_types
#import rotate
#import unit_lanes

override k_type: u32 = 0u;

var<workgroup> low_digits: array<u32, HEAD / 4u>;
var<workgroup> high_digits: array<u32, HEAD / 4u>;
// eight per head: maxima and, of a chunk, tree sums; between the two, each head's scale
var<workgroup> part_max: array<f32, 32>;
var<workgroup> part_sum: array<f32, 32>;

// words of digits that a lane makes at most: one, or two of a head over 512
const QUADS: u32 = (HEAD / 4u + LANES - 1u) / LANES;

// scales of the queries whose scores this lane makes: of up to two heads
var<private> query_scale: array<f32, 2>;

// Splits the queries of `heads` heads (in `row`) into two int8 digits; part_sum[h] becomes head h's scale.
fn query_digits(lane: u32, heads: u32) {
    if lane < 8u * heads {
        let first = (lane >> 3u) * p.head_dim;
        // magnitudes in the order of their bits, infinities and NaN above the numbers
        var amax = 0u;
        for (var e = lane & 7u; e < p.head_dim; e += 8u) {
            amax = max(amax, bitcast<u32>(row[first + e]) & 0x7fffffffu);
        }
        part_max[lane] = bitcast<f32>(amax);
    }
    workgroupBarrier();
    for (var j = 0u; j < QUADS; j++) {
        let quad = lane + LANES * j;
        if 4u * quad < heads * p.head_dim {
            let head = 4u * quad / p.head_dim;
            var d = fdiv(eight_max(head), 16256.0);
            let bad = not_finite(d);
            var inv = 0.0;
            if too_small(d) {
                d = 0.0;
            } else if !bad {
                inv = fdiv(1.0, d);
            }
            if 4u * quad == head * p.head_dim {
                part_sum[head] = d;
            }
            var lo = 0u;
            var hi = 0u;
            for (var i = 0u; i < 4u; i++) {
                let x = bitcast<f32>(select(bitcast<u32>(row[4u * quad + i]), 0u, bad));
                let c = clamp(round_away(B(x * inv)), -16256, 16256);
                let high = (c + 64) >> 7u;
                lo |= (bitcast<u32>(c - 128 * high) & 255u) << (8u * i);
                hi |= (bitcast<u32>(high) & 255u) << (8u * i);
            }
            low_digits[quad] = lo;
            high_digits[quad] = hi;
        }
    }
    workgroupBarrier();
}

fn eight_max(head: u32) -> f32 {
    var m = part_max[8u * head];
    for (var i = 1u; i < 8u; i++) {
        m = greater(m, part_max[8u * head + i]);
    }
    return m;
}

// Brings the queries of `heads` heads, of which `at` is the first, to `row`, rotated and in digits as the keys ask for it.
fn load_query(lane: u32, at: u32, heads: u32) {
    let hd = p.head_dim;
    for (var e = lane; e < heads * hd; e += LANES) {
        row[e] = q[at * hd + e];
    }
    rotate(rotating(lane), heads * hd, rotation(k_type, hd));
    workgroupBarrier();
    if k_type >= Q8_0 {
        query_digits(lane, heads);
    }
    for (var j = 0u; j < 2u; j++) {
        let h = (lane >> 6u) + 2u * j;
        if k_type >= Q8_0 && h < heads {
            query_scale[j] = part_sum[h];
        }
    }
    workgroupBarrier();
}
