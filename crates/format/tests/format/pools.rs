//! The label of a device in a pool: identity, any bytes, every flipped bit, and that it is never
//! taken for a superblock.

use proptest::prelude::*;
use strake_format::*;

use crate::samples::*;

/// A label with a name of the greatest length.
pub(crate) fn sample_label() -> PoolLabel {
    PoolLabel {
        pool: PoolUuid([0x5a; 16]),
        name: "pool.of-Spares_for.every1.Array.".parse().expect("a name"),
        device: member(9),
        device_bytes: (1 << 40) + 512,
    }
}

#[test]
fn a_label_comes_back_as_it_was_from_its_place_and_from_no_other() {
    let label = sample_label();
    for offset in Layout::superblock_offsets(label.device_bytes) {
        let block = label.encode(offset);
        assert_eq!(PoolLabel::decode(&block[..], offset), Ok(label.clone()));
        let elsewhere = PoolLabelError::Misplaced {
            named: offset,
            offset: offset + 4096,
        };
        assert_eq!(PoolLabel::decode(&block[..], offset + 4096), Err(elsewhere));
    }
}

#[test]
fn every_flipped_bit_is_noticed_and_a_torn_label_is_damaged() {
    let block = sample_label().encode(4096);
    for bit in 0..block.len() * 8 {
        let mut flipped = block.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let found = PoolLabel::decode(&flipped[..], 4096);
        assert!(
            matches!(found, Err(PoolLabelError::Damaged { .. })),
            "{bit}: {found:?}"
        );
    }
    for sector in 0..8 {
        let mut torn = block.clone();
        torn[sector * 512..][..512].fill(0);
        let found = PoolLabel::decode(&torn[..], 4096);
        let noticed = matches!(found, Err(PoolLabelError::Damaged { .. })) || torn == block;
        assert!(noticed, "{sector}: {found:?}");
    }
}

#[test]
fn neither_is_a_label_taken_for_a_superblock_nor_a_superblock_for_a_label() {
    let (label, sb) = (sample_label(), superblock(Level::Raid5, 3, 3, 0));
    let found = Superblock::decode(&label.encode(4096)[..], 4096);
    assert_eq!(found, Err(SuperblockError::NotStrake));
    let found = PoolLabel::decode(&sb.encode(4096)[..], 4096);
    assert_eq!(found, Err(PoolLabelError::NotLabel));
    // Written over half of it, the superblock is what counts.
    let bytes = sb.layout.device_bytes;
    let [first, last] = Layout::superblock_offsets(bytes);
    for mixed in [
        (sb.encode(first), label.encode(last)),
        (label.encode(first), sb.encode(last)),
    ] {
        let chosen = select_copy(bytes, &mixed.0[..], &mixed.1[..]);
        assert_eq!(chosen.map(|(chosen, _)| chosen), Ok(sb.clone()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_under_a_right_checksum_never_panic_and_what_passes_encodes_to_the_same(
        changes in proptest::collection::vec((0..120usize, any::<u8>()), 0..4),
    ) {
        let mut block = sample_label().encode(4096);
        for (at, byte) in changes {
            block[at] = byte;
        }
        let sum = checksum::sealed(&block[..], 12);
        block[12..16].copy_from_slice(&sum.to_le_bytes());
        if let Ok(label) = PoolLabel::decode(&block[..], 4096) {
            prop_assert_eq!(label.encode(4096), block);
        }
    }
}
