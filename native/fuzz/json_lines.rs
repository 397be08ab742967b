//! Hostile bytes as JSON lines, under a sanitizer: `make fuzz-native`.
//!
//! In: any bytes; the first say which columns are declared. Out: nothing, or where the core is wrong.
//! Rule: the core writes nothing beyond what it was given. A line gives the same alone as among others; one that it
//! leaves to Python leaves nothing in the columns; texts are UTF-8, and what is asked for by its bits alone has them.

#![no_main]

use braid_native::{read, Kind, Sink};
use libfuzzer_sys::fuzz_target;

const NAMES: [&[u8]; 6] = [b"a", b"b", b"id", b"\xc3\xa9", b"", b"a\"b"];

struct Columns {
    valid: Vec<Vec<u8>>,
    values: Vec<Vec<u64>>,
    offsets: Vec<Vec<i64>>,
    text: Vec<Vec<u8>>,
    sure: Vec<u8>,
    ends: Vec<u64>,
}

impl Columns {
    /// The value of a column in a row, or null; of one that is not kept whether it is there.
    fn value(&self, column: usize, row: usize, kind: Kind, kept: bool) -> Option<Vec<u8>> {
        if self.valid[column][row / 8] & (1 << (row % 8)) == 0 {
            return None;
        }
        Some(match kind {
            _ if !kept => Vec::new(),
            _ if kind.is_text() => {
                let (from, to) = (self.offsets[column][row], self.offsets[column][row + 1]);
                self.text[column][from as usize..to as usize].to_vec()
            }
            _ => self.values[column][row].to_le_bytes().to_vec(),
        })
    }
}

fn columns(data: &[u8], seeds: &[u8]) -> Columns {
    let rows = data.iter().filter(|&&b| b == b'\n').count() + (data.last() != Some(&b'\n')) as usize;
    let n = seeds.len();
    let mut made = Columns {
        valid: vec![vec![0; (rows + 7) / 8]; n],
        values: Vec::new(),
        offsets: Vec::new(),
        text: Vec::new(),
        sure: vec![0; rows],
        ends: vec![0; rows],
    };
    for &seed in seeds {
        let (kind, kept) = of(seed);
        let is_text = kind.is_text();
        made.values.push(vec![0; if kept && !is_text { rows } else { 0 }]);
        made.offsets.push(vec![0; if kept && is_text { rows + 1 } else { 0 }]);
        made.text.push(vec![0; if kept && is_text { data.len() } else { 0 }]);
    }
    let mut sinks = Vec::new();
    let lent = made.valid.iter_mut().zip(&mut made.values).zip(made.offsets.iter_mut().zip(&mut made.text));
    for (i, ((valid, values), (offsets, text))) in lent.enumerate() {
        let (kind, kept) = of(seeds[i]);
        let narrow = seeds[i] & 32 != 0;
        let (low, high) = if narrow { (-(1 << 31), 1 << 31) } else { (i64::MIN, i64::MAX) };
        let unit = if narrow || kind != Kind::Moment { 1 } else { 1000 };
        let loose = seeds[i] & 64 != 0;
        sinks.push(Sink { name: NAMES[i], kind, loose, kept, low, high, unit, valid, values, offsets, text, used: 0 });
    }
    assert_eq!(read(data, &mut sinks, &mut made.sure, &mut made.ends), Some(rows));
    made
}

fn of(seed: u8) -> (Kind, bool) {
    (Kind::of((seed & 7) as u32 % 6).unwrap(), seed & 16 == 0)
}

fuzz_target!(|input: &[u8]| {
    let Some((&n, rest)) = input.split_first() else { return };
    let n = 1 + n as usize % NAMES.len();
    if rest.len() <= n {
        return;
    }
    let (seeds, data) = rest.split_at(n);
    let whole = columns(data, seeds);
    let mut begin = 0;
    for row in 0..whole.sure.len() {
        let end = whole.ends[row] as usize;
        assert!(begin <= end && end <= data.len());
        if begin == end {
            continue; // no byte is left behind the last line
        }
        let alone = columns(&data[begin..end], seeds);
        assert_eq!((alone.sure.len(), alone.sure[0]), (1, whole.sure[row]));
        for (i, &seed) in seeds.iter().enumerate() {
            let (kind, kept) = of(seed);
            let value = whole.value(i, row, kind, kept);
            assert_eq!(value, alone.value(i, 0, kind, kept));
            assert!(value.is_none() || whole.sure[row] == 1, "a line that is left leaves nothing");
            if let (true, Some(text)) = (kind.is_text(), value) {
                assert!(std::str::from_utf8(&text).is_ok());
            }
        }
        begin = end;
    }
});
