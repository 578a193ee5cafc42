//! Tiles of bytes: AMX int8 (Sapphire Rapids and later), which stable Rust reaches by inline assembly alone.
//!
//! A tile is 16 rows of 64 bytes. One instruction adds the products of 16 x 64 bytes of one tile and 64 x 16 of another, four
//! of a column side by side in a word, to 16 x 16 sums of 32 bits: integers, so in whatever order the CPU adds them. Tiles
//! hold their contents from one instruction to the next, and no compiler that is not told of them touches them.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::marker::PhantomData;
use std::sync::OnceLock;

/// Whether this CPU has tiles and dots of bytes on them, and the system lets this process have them. Asked once: the system
/// grants it to the whole process.
pub(super) fn is_available() -> bool {
    static GRANTED: OnceLock<bool> = OnceLock::new();
    *GRANTED.get_or_init(|| has_tiles() && granted())
}

/// Whether the CPU has them, and the system keeps them when it changes threads.
fn has_tiles() -> bool {
    const TILE: u32 = 1 << 24;
    const INT8: u32 = 1 << 25;
    const OSXSAVE: u32 = 1 << 27;
    /// tiles' configuration and contents
    const STATE: u64 = 3 << 17;

    if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    let has = __cpuid_count(7, 0).edx & (TILE | INT8) == TILE | INT8;
    // SAFETY: OSXSAVE says that the instruction is there.
    has && unsafe { _xgetbv(0) } & STATE == STATE
}

/// Asks the system for the state of tiles, which a thread's first use would end the program without.
#[cfg(target_os = "linux")]
fn granted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const XTILEDATA: u64 = 18;

    let result: i64;
    // SAFETY: a system call that reads and writes no memory; the two registers that any call changes are named.
    unsafe {
        asm!("syscall", inout("rax") ARCH_PRCTL => result, in("rdi") ARCH_REQ_XCOMP_PERM, in("rsi") XTILEDATA,
            out("rcx") _, out("r11") _, options(nostack));
    }
    result == 0
}

/// How other systems grant it was not looked into.
#[cfg(not(target_os = "linux"))]
fn granted() -> bool {
    false
}

/// What the eight tiles are: palette 1, then bytes of a row and rows of each.
#[repr(C, align(64))]
pub(super) struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes: [u16; 16],
    rows: [u8; 16],
}

impl Shapes {
    /// Sums in tiles 0 to 3; in 4 and 5 16 tokens of `bytes` codes each; in 6 and 7 as many codes of 16 rows.
    pub(super) const fn dots(bytes: u16) -> Shapes {
        let mut s = Shapes { palette: 1, start_row: 0, reserved: [0; 14], bytes: [0; 16], rows: [0; 16] };
        let mut i = 0;
        while i < 8 {
            let (of_tokens, of_rows) = (i == 4 || i == 5, i > 5);
            s.bytes[i] = if of_tokens { bytes } else { 64 };
            s.rows[i] = if of_rows { bytes as u8 / 4 } else { 16 };
            i += 1;
        }
        s
    }
}

/// The tiles of this thread in use; they are released when this is dropped, since a system has more to keep and a CPU sleeps
/// less deeply while they are not.
pub(super) struct Tiles(PhantomData<*const ()>);

impl Tiles {
    /// # Safety
    ///
    /// [`is_available`]. Nothing else on this thread uses tiles before this is dropped.
    pub(super) unsafe fn new(shapes: &Shapes) -> Tiles {
        // SAFETY: the caller's promise; 64 bytes are read.
        unsafe { asm!("ldtilecfg [{}]", in(reg) shapes, options(nostack, preserves_flags, readonly)) };
        Tiles(PhantomData)
    }

    /// Makes tile `T` zero.
    #[inline(always)]
    pub(super) fn zero<const T: u8>(&self) {
        // SAFETY: tiles are in use while this lives. None is named as changed: the compiler has none, and the next
        // instruction must find what this one left.
        unsafe { asm!("tilezero tmm{t}", t = const T, options(nostack, preserves_flags, nomem)) }
    }

    /// Loads tile `T` from rows `stride` bytes apart.
    ///
    /// # Safety
    ///
    /// Every row of the tile's shape can be read there.
    #[inline(always)]
    pub(super) unsafe fn load<const T: u8>(&self, rows: *const u8, stride: usize) {
        // SAFETY: the caller's promise, and as for `zero`.
        unsafe {
            asm!("tileloadd tmm{t}, [{rows} + {stride}*1]", t = const T, rows = in(reg) rows, stride = in(reg) stride,
                options(nostack, preserves_flags, readonly));
        }
    }

    /// Stores tile `T`.
    #[inline(always)]
    pub(super) fn store<const T: u8>(&self, to: &mut Sums) {
        // SAFETY: the tiles of sums have 16 rows of 64 bytes, which lie behind each other there; and as for `zero`.
        unsafe {
            asm!("tilestored [{to} + {stride}*1], tmm{t}", t = const T, to = in(reg) to, stride = in(reg) 64usize,
                options(nostack, preserves_flags));
        }
    }

    /// Adds the products of signed bytes of tile `A`, of tokens, and of tile `B`, of rows, to tile `C`: those of `B` are
    /// signed, or unsigned where `UNSIGNED`.
    #[inline(always)]
    pub(super) fn dot<const C: u8, const A: u8, const B: u8, const UNSIGNED: bool>(&self) {
        // SAFETY: as for `zero`.
        unsafe {
            if UNSIGNED {
                asm!("tdpbsud tmm{c}, tmm{a}, tmm{b}", c = const C, a = const A, b = const B,
                    options(nostack, preserves_flags, nomem));
            } else {
                asm!("tdpbssd tmm{c}, tmm{a}, tmm{b}", c = const C, a = const A, b = const B,
                    options(nostack, preserves_flags, nomem));
            }
        }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: they are in use until here.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) }
    }
}

/// A tile of sums: of 16 tokens by 16 rows.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(super) struct Sums(pub(super) [[i32; 16]; 16]);

impl Sums {
    pub(super) const ZERO: Sums = Sums([[0; 16]; 16]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_of_sums_is_the_sums_of_products() {
        if !is_available() {
            println!("skipped: this CPU has no tiles of bytes, or the system keeps them");
            return;
        }
        let (mut a, mut b) = ([[0i8; 64]; 16], [[0i8; 64]; 16]);
        for (i, x) in a.as_flattened_mut().iter_mut().chain(b.as_flattened_mut()).enumerate() {
            *x = (i * 89 + i / 7 * 31) as i8;
        }
        (a[0][0], b[0][0]) = (-128, -128);
        let mut got = [Sums::ZERO; 2];
        {
            // SAFETY: available, as asked above.
            let tiles = unsafe { Tiles::new(&Shapes::dots(64)) };
            tiles.zero::<0>();
            tiles.zero::<1>();
            // SAFETY: 16 rows of 64 bytes each.
            unsafe {
                tiles.load::<4>(a.as_ptr().cast(), 64);
                tiles.load::<6>(b.as_ptr().cast(), 64);
            }
            tiles.dot::<0, 4, 6, false>();
            tiles.dot::<1, 4, 6, true>();
            tiles.dot::<1, 4, 6, true>();
            tiles.store::<0>(&mut got[0]);
            tiles.store::<1>(&mut got[1]);
        }
        for (m, n) in (0..16).flat_map(|m| (0..16).map(move |n| (m, n))) {
            let (mut signed, mut unsigned) = (0, 0);
            for k in 0..64 {
                let (x, y) = (i32::from(a[m][k]), b[k / 4][4 * n + k % 4]);
                signed += x * i32::from(y);
                unsigned += x * i32::from(y as u8);
            }
            assert_eq!((got[0].0[m][n], got[1].0[m][n]), (signed, 2 * unsigned), "{m}, {n}");
        }
    }
}
