//! Rows of text of hostile columns, under a sanitizer: `make fuzz-native`.
//!
//! In: any bytes, of which columns are made. Out: nothing, or where the core is wrong.
//! Rule: the core writes nothing beyond what it was given, and says so where there is no room. What it writes is what
//! plain Rust writes; rows in two parts are the rows of the whole.

#![no_main]

use braid_native::{write, Piece, Valid};
use libfuzzer_sys::fuzz_target;

const LONGEST: usize = 6; // bytes of one in a JSON string

fn quoted(text: &[u8]) -> Vec<u8> {
    let mut made = vec![b'"'];
    for &b in text {
        match b {
            b'"' | b'\\' => made.extend([b'\\', b]),
            b'\n' => made.extend(b"\\n"),
            b'\r' => made.extend(b"\\r"),
            b'\t' => made.extend(b"\\t"),
            8 => made.extend(b"\\b"),
            12 => made.extend(b"\\f"),
            0..=31 => made.extend(format!("\\u{b:04x}").bytes()),
            _ => made.push(b),
        }
    }
    made.push(b'"');
    made
}

fuzz_target!(|input: &[u8]| {
    if input.len() < 4 {
        return;
    }
    let (head, text) = input.split_at(4);
    let (rows, first_bit, split) = (head[0] as usize % 20, head[1] as usize % 20, head[2] as usize % 20);
    let bits: Vec<u8> = (0..(first_bit + rows + 7) / 8).map(|i| head[3].rotate_left(i as u32)).collect();
    let values: Vec<i64> = (0..rows).map(|i| (i as i64).wrapping_mul(i64::MAX / (1 + head[3] as i64))).collect();
    let offsets: Vec<i64> = (0..=rows).map(|i| (text.len() * i / rows.max(1)) as i64).collect();
    let valid = |all: bool| Valid { bits: if all { &[] } else { &bits }, first: first_bit };
    let has = |row: usize| bits[(first_bit + row) / 8] & (1 << ((first_bit + row) % 8)) != 0;
    let pieces = [
        Piece::Literal(&head[..2]),
        Piece::Whole { values: &values, valid: valid(false) },
        Piece::Text { text, offsets: &offsets, valid: valid(true), quoted: false },
        Piece::Text { text, offsets: &offsets, valid: valid(false), quoted: true },
    ];
    let mut want = Vec::new();
    let mut want_ends = Vec::new();
    for row in 0..rows {
        let one = &text[offsets[row] as usize..offsets[row + 1] as usize];
        want.extend(&head[..2]);
        want.extend(if has(row) { values[row].to_string().into_bytes() } else { b"null".to_vec() });
        want.extend(one);
        want.extend(if has(row) { quoted(one) } else { b"null".to_vec() });
        want_ends.push(want.len() as i64);
    }
    let room = rows * (head[..2].len() + 20 + 2 + 8) + text.len() * (1 + LONGEST);
    let (mut out, mut ends) = (vec![0; room], vec![0; rows]);
    assert_eq!(write(&pieces, 0, &mut out, &mut ends), Some(want.len()));
    assert!(out[..want.len()] == want[..] && ends == want_ends);
    let split = split.min(rows);
    let (mut second, mut its) = (vec![0; room], vec![0; rows - split]);
    let begin = if split == 0 { 0 } else { want_ends[split - 1] as usize };
    assert_eq!(write(&pieces, split, &mut second, &mut its), Some(want.len() - begin));
    assert!(second[..want.len() - begin] == want[begin..]);
    if !want.is_empty() {
        let mut short = vec![0; want.len() - 1];
        assert_eq!(write(&pieces, 0, &mut short, &mut ends), None);
    }
});
