//! Rows of text: literals, whole numbers and texts, one behind the other.
//!
//! In: pieces; columns as Arrow lays them out. Out: the text of each row, and where it ends.
//! Rule: a null is written as JSON has it. A text stands as it is, or as a JSON string.

/// Which rows are there: a bit each, from bit `first` on; all, where there are no bits.
pub struct Valid<'a> {
    pub bits: &'a [u8],
    pub first: usize,
}

pub enum Piece<'a> {
    Literal(&'a [u8]),
    Whole { values: &'a [i64], valid: Valid<'a> },
    Text { text: &'a [u8], offsets: &'a [i64], valid: Valid<'a>, quoted: bool },
}

impl Valid<'_> {
    fn has(&self, row: usize) -> bool {
        let bit = self.first + row;
        self.bits.is_empty() || self.bits[bit / 8] & (1 << (bit % 8)) != 0
    }
}

/// The bytes of rows `first` to `first + ends.len() - 1`; None where there is no room for them.
pub fn write(pieces: &[Piece], first: usize, out: &mut [u8], ends: &mut [i64]) -> Option<usize> {
    let mut page = Page { out, used: 0 };
    for (n, end) in ends.iter_mut().enumerate() {
        let row = first + n;
        for piece in pieces {
            match piece {
                Piece::Literal(text) => page.put(text)?,
                Piece::Whole { values, valid } if valid.has(row) => page.whole(values[row])?,
                Piece::Text { text, offsets, valid, quoted } if valid.has(row) => {
                    let text = &text[offsets[row] as usize..offsets[row + 1] as usize];
                    if *quoted { page.quoted(text)? } else { page.put(text)? }
                }
                _ => page.put(b"null")?,
            }
        }
        *end = page.used as i64;
    }
    Some(page.used)
}

struct Page<'a> {
    out: &'a mut [u8],
    used: usize,
}

impl Page<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.out.get_mut(self.used..self.used + bytes.len())?.copy_from_slice(bytes);
        self.used += bytes.len();
        Some(())
    }

    fn whole(&mut self, n: i64) -> Option<()> {
        let (mut digits, mut at, mut left) = ([0u8; 20], 20, n.unsigned_abs());
        loop {
            at -= 1;
            digits[at] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        if n < 0 {
            at -= 1;
            digits[at] = b'-';
        }
        self.put(&digits[at..])
    }

    fn quoted(&mut self, text: &[u8]) -> Option<()> {
        self.put(b"\"")?;
        let mut start = 0;
        while let Some(n) = text[start..].iter().position(|&b| b == b'"' || b == b'\\' || b < 0x20) {
            self.put(&text[start..start + n])?;
            let b = text[start + n];
            match b {
                b'"' => self.put(b"\\\"")?,
                b'\\' => self.put(b"\\\\")?,
                0x08 => self.put(b"\\b")?,
                0x0c => self.put(b"\\f")?,
                b'\n' => self.put(b"\\n")?,
                b'\r' => self.put(b"\\r")?,
                b'\t' => self.put(b"\\t")?,
                _ => {
                    const HEX: &[u8; 16] = b"0123456789abcdef";
                    self.put(&[b'\\', b'u', b'0', b'0', HEX[(b >> 4) as usize], HEX[(b & 15) as usize]])?
                }
            }
            start += n + 1;
        }
        self.put(&text[start..])?;
        self.put(b"\"")
    }
}
