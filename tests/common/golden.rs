//! What must never change: the digests of the embedded model's logits.

use isobit::internals::models::Recent;
use isobit::internals::ops::cache::CacheType;

/// SHA-256 over the logits of 64 generated tokens after the fixed prompt, on the embedded model, by types of keys and values
/// and by whether a query's own chunk is read from an f16 copy.
pub const GOLDEN: [(CacheType, CacheType, Recent, &str); 11] = [
    (CacheType::F32, CacheType::F32, Recent::Off, "97822464b637920aaa3f2ef1b18f0635285ab487b347ed45b53f7d9316ec107e"),
    (CacheType::F16, CacheType::F16, Recent::Off, "faa7fd3bf824ae8222df7329edd608bf1b1b31802933fd48db64ab511b69ba54"),
    (CacheType::Q8_0, CacheType::Q8_0, Recent::Off, "fb45495c41dca1a4272cb017ffe6d2d279ac2ea1458978bc80bf41bfb3d9e270"),
    (CacheType::Q4_0, CacheType::Q4_0, Recent::Off, "4e6d8577ddad4ae53113ca356be1906a8f7cc63fb0baf7309913e3c09ac711d7"),
    (CacheType::TQ3_0, CacheType::F16, Recent::Off, "68c3525b90a77d9c69fe8245a4838f994941c045b86d7a458bb369029eaa15d5"),
    (
        CacheType::TQ3_1,
        CacheType::TQ3_1,
        Recent::Off,
        "315b1723b0a56e65113ba05edacf37b48c0e243aab33abfd050a818dda3c87bb",
    ),
    (
        CacheType::Q4_0R,
        CacheType::TQ3_1,
        Recent::Off,
        "105b962d1267552c3cbc0818ed2db9b7ed0b39b1fbf86a84e2fcace702fb290b",
    ),
    (
        CacheType::Q8_0R,
        CacheType::Q8_0R,
        Recent::Off,
        "6144851f6395c0826bbac72648f045b67b27d51ca9c5bccfd4ba97a7bf6c9c72",
    ),
    (
        CacheType::TQ3_1,
        CacheType::TQ3_1,
        Recent::On,
        "8a71aab1322475cd385012e7dce66f48511fee396f1a64cbe1214710999eefc7",
    ),
    (
        CacheType::Q4_0R,
        CacheType::TQ3_1,
        Recent::On,
        "43e77a685c057136978890cde02765487c13b14aa2e1ccd9583637e1ee796d37",
    ),
    (CacheType::Q4_0, CacheType::Q4_0, Recent::On, "22d58611215754f5ea89b3cf2d4319bdb38435379c77369b8dae2c65964a7523"),
];

/// The same with a c8 cache, by scales measured on the prompt (`tests/models/c8.rs`).
pub const C8: &str = "5d955919bb54a983ce98c876e1446689fc5f70dbda4d527fad59fd621cc1704b";

/// The digest of the table. Panics when there is none.
pub fn digest(keys: CacheType, values: CacheType, recent: Recent) -> &'static str {
    let row = GOLDEN.iter().find(|(k, v, r, _)| (*k, *v, *r) == (keys, values, recent));
    row.unwrap_or_else(|| panic!("{} has no golden digest", recent.title(keys, values))).3
}
