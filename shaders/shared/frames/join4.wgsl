// Joins the segment sums of 32 rows, four to a lane, in segment order.
#import segments4

fn join4(row_block: u32, lane: u32, segment: u32, token: u32) {
    sums[segment * 8u + lane] = acc[0];
    workgroupBarrier();
    if segment == 0u {
        join_sums(row_block, lane, token);
    }
}
