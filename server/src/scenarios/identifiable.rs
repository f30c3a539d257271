//! Reports that can be told apart in what a server stores, so that the count of each can be read off.

use std::collections::HashMap;

/// Reports per entry of a sum: base-4 digits from 4⁰ down to 4⁻²⁵, which f32 and a sum in f64 hold exactly.
const DIGITS: usize = 26;

/// How many reports a sum with this many entries can tell apart.
pub(super) const fn capacity(entries: usize) -> usize {
    entries * DIGITS
}

/// The payload of a report: one power of 1/4 in one entry, which no other report has.
pub(super) fn payload(entries: usize, number: usize) -> Vec<u8> {
    let (entry, power) = (number % entries, number / entries);
    let mut numbers = vec![0.0_f32; entries];
    numbers[entry] = 0.25_f32.powi(power as i32);
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// How often each report is in these sums, up to three times.
///
/// # Errors
/// If no such reports add up to the sums.
pub(super) fn in_sums(sums: &[f64]) -> Result<Vec<u32>, String> {
    let mut counted = vec![0; capacity(sums.len())];
    for (entry, sum) in sums.iter().enumerate() {
        // Exact: a whole number of 4⁻²⁵ below 4²⁶ = 2⁵².
        let mut units = sum * 4.0_f64.powi(DIGITS as i32 - 1);
        if !(0.0..4.0_f64.powi(DIGITS as i32)).contains(&units) || units.fract() != 0.0 {
            return Err(format!(
                "entry {entry} of the sums is {sum}, which no reports add up to"
            ));
        }
        for digit in (0..DIGITS).rev() {
            counted[entry + digit * sums.len()] = (units % 4.0) as u32;
            units = (units / 4.0).floor();
        }
    }
    Ok(counted)
}

/// How often each of these seeds is in the stored chunks.
///
/// # Errors
/// If another seed is stored.
pub(super) fn in_runs<'a>(
    seeds: impl Iterator<Item = &'a [u8]>,
    runs: &[Vec<u8>],
) -> Result<Vec<u32>, String> {
    let numbers: HashMap<&[u8], usize> = seeds.enumerate().map(|(n, seed)| (seed, n)).collect();
    let mut counted = vec![0; numbers.len()];
    for seed in runs.iter().flat_map(|run| run.chunks(16)) {
        match numbers.get(seed) {
            Some(&number) => counted[number] += 1,
            None => return Err("a seed is stored that nobody sent".into()),
        }
    }
    Ok(counted)
}

#[test]
fn multiplicities_are_read_off_exactly() {
    let wanted: Vec<u32> = (0..capacity(6)).map(|number| number as u32 % 4).collect();
    let mut sums = vec![0.0; 6];
    for (number, &times) in wanted.iter().enumerate() {
        for (sum, bytes) in sums.iter_mut().zip(payload(6, number).chunks_exact(4)) {
            *sum += f64::from(times) * f64::from(f32::from_le_bytes(bytes.try_into().unwrap()));
        }
    }
    assert_eq!(in_sums(&sums).unwrap(), wanted);
    // Less than one unit, negative, more than three of each.
    for no_sum in [0.25_f64.powi(26), -0.25, 4.0, f64::NAN] {
        assert!(in_sums(&[no_sum]).is_err(), "{no_sum}");
    }
    let seeds = [[1_u8; 16], [2; 16]];
    let runs = vec![[[2; 16], [2; 16]].concat(), vec![]];
    let all = || seeds.iter().map(<[u8; 16]>::as_slice);
    assert_eq!(in_runs(all(), &runs).unwrap(), [0, 2]);
    assert!(in_runs(all(), &[vec![3; 16]]).is_err());
}
