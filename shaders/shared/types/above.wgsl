// Codes that lie ABOVE their value in every block, four rows at a time. The importing text gives
//   const ABOVE: i32
const SHIFTED = ABOVE != 0;

fn sum_start(group: u32, b: u32, a: u32) -> vec4<i32> {
    return vec4<i32>(-ABOVE * sum32(a, b));
}
