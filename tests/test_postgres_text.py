"""PostgreSQL's functions of text, patterns and BYTEA: what a server of version 15 (UTF8, C.UTF-8) said, kept.

The server itself is asked by tests/postgres; these cases hold without one, and name the edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

from braid.expr.compile import evaluate
from braid.expr.functions import FUNCTIONS
from braid.expr.nodes import Call, Col, Expr, Lit
from braid.expr.postgres import rust
from braid.expr.postgres.binary import bytea_of_text, text_of_bytea
from braid.expr.postgres.characters import LOWER, UPPER, letters_and_digits
from braid.expr.postgres.text import TOO_LONG, lower_of
from braid.expr.rows import LARGEST
from braid.expr.signatures import Refused
from braid.types import Array, Scalar, Type, polars_type
from postgres_values import why_of

S = Scalar
TEXTS = Array(S.VARCHAR)


@dataclass(frozen=True)
class Fails:
    why: str


ENDLESS = Fails("the pattern matches an empty text, behind which RisingWave's search does not go on")


class Big(int):
    """A BIGINT."""


def big(value: int) -> Big:
    return Big(value)


def type_of(value: Any) -> Type:
    if isinstance(value, list):
        return TEXTS
    return {str: S.VARCHAR, bytes: S.BYTES, int: S.INT, Big: S.BIGINT, type(None): S.NULL}[type(value)]


# by function: arguments and what it gives; of patterns what RisingWave's source says
CASES: dict[str, list[tuple[tuple[Any, ...], Any]]] = {
    "lower": [
        (('AbC',), 'abc'), (('ÀÉ',), 'àé'), (('İSTANBUL',), 'istanbul'), (('ΑΣ',), 'ασ'), (('ẞ',), 'ß'), (('ǅ',), 'ǆ'),
        (('Ⱥ',), 'ⱥ'), (('',), ''), ((None,), None), (('😀A',), '😀a'),
    ],
    "upper": [
        (('abc',), 'ABC'), (('straße',), 'STRAßE'), (('ŉ',), 'ŉ'), (('ﬁ',), 'ﬁ'), (('ᾳ',), 'ᾼ'), (('ǆ',), 'Ǆ'),
        (('ı',), 'I'), (('\u0345',), 'Ι'), (('',), ''), ((None,), None), (('σς',), 'ΣΣ'),
    ],
    "initcap": [
        (('hELLO wORLD',), 'Hello World'), (("o'neil x_y 3rd",), "O'Neil X_Y 3rd"), (('éA ǆz',), 'Éa Ǆz'),
        (('a\u0301b',), 'A\u0301B'), (('²x',), '²X'),
    ],
    "length": [
        (('',), 0), (('a\u0301',), 2), (('😀é',), 2), ((b'\xff\x00',), 2), ((None,), None),
    ],
    "char_length": [
        (('😀',), 1),
    ],
    "octet_length": [
        (('😀é',), 6), ((b'ab',), 2), (('',), 0),
    ],
    "bit_length": [
        (('é',), 16), ((b'\x00',), 8),
    ],
    "substr": [
        (('alphabet', 3), 'phabet'), (('alphabet', 0), 'alphabet'), (('alphabet', -2), 'alphabet'),
        (('alphabet', 3, 2), 'ph'), (('true', 0, 3), 'tr'), (('true', -1, 3), 't'), (('abc', -5, 3), ''),
        (('abc', 2, -1), Fails('negative substring length not allowed')), (('abc', 2, 0), ''),
        (('abc', 2147483647, 2147483647), ''), (('abc', -2147483648, 2147483647), ''),
        (('abc', -2147483648, -2147483648), Fails('negative substring length not allowed')), (('abc', 9, 1), ''),
        (('a😀b', 2, 1), '😀'), ((None, 1, -1), None), (('abc', None), None), (('abc', 1, None), None),
        ((b'abcde', 2, 7), b'bcde'), ((b'abcde', -2, 5), b'ab'),
        ((b'abc', 1, -1), Fails('negative substring length not allowed')), ((b'abc', 2), b'bc'),
    ],
    "left": [
        (('risingwave', 4), 'risi'), (('risingwave', -4), 'rising'), (('ab', 0), ''), (('ab', -5), ''),
        (('ab', 9), 'ab'), (('😀é', 1), '😀'), (('ab', -2147483648), ''), (('ab', 2147483647), 'ab'),
        (('ab', None), None),
    ],
    "right": [
        (('risingwave', 4), 'wave'), (('risingwave', -4), 'ngwave'), (('ab', 0), ''), (('ab', -5), ''),
        (('ab', 9), 'ab'), (('😀é', 1), 'é'), (('ab', -2147483648), 'ab'), (('ab', 2147483647), 'ab'),
        ((None, 1), None),
    ],
    "strpos": [
        (('rising', 'ing'), 4), (('abc', ''), 1), (('', 'a'), 0), (('', ''), 1), (('é😀a', 'a'), 3),
        ((None, 'a'), None), (('a', None), None), ((b'hello', b'lo'), 4), ((b'a', b''), 1), ((b'a\x00b', b'b'), 3),
    ],
    "starts_with": [
        (('RisingWave', 'Rising'), True), (('a', ''), True), (('', 'a'), False), (('a', None), None),
    ],
    "split_part": [
        (('abc~@~def~@~ghi', '~@~', 2), 'def'), (('a,b', ',', 3), ''), (('a,b', ',', -1), 'b'), (('a,b', ',', -3), ''),
        (('a,b', ',', 0), Fails('field position must not be zero')), (('a,b', '', 1), 'a,b'), (('a,b', '', -1), 'a,b'),
        (('a,b', '', 2), ''), (('', '', 1), ''), (('', ',', 1), ''), (('aaa', 'aa', 2), 'a'),
        (('a,b', ',', -2147483648), ''), ((None, ',', 0), None), (('a', None, 0), None),
    ],
    "lpad": [
        (('42', 5), '   42'), (('42', 5, 'R'), 'RRR42'), (('42', 7, 'xy'), 'xyxyx42'), (('hello', 3), 'hel'),
        (('hi', -1), ''), (('hi', 0), ''), (('hi', 9, ''), 'hi'), (('hello', 3, ''), 'hel'), (('', 3, '😀é'), '😀é😀'),
        (('hi', None), None), (('hi', 4, None), None), ((None, 4), None),
    ],
    "rpad": [
        (('42', 5), '42   '), (('42', 5, 'R'), '42RRR'), (('42', 7, 'xy'), '42xyxyx'), (('hello', 3), 'hel'),
        (('hi', -1), ''), (('hi', 0), ''), (('hi', 9, ''), 'hi'), (('hello', 3, ''), 'hel'), (('', 3, '😀é'), '😀é😀'),
        (('hi', None), None), (('hi', 4, None), None), ((None, 4), None),
    ],
    "ltrim": [
        (('  a b  ',), 'a b  '), (('xyxtrimyyx', 'xyz'), 'trimyyx'), (('abc', ''), 'abc'), (('aaa', 'a'), ''),
        (('é😀é', 'é'), '😀é'), (('a', None), None), ((b'\x124\x90', b'\x12\x90'), b'4\x90'),
    ],
    "rtrim": [
        (('  a b  ',), '  a b'), (('xyxtrimyyx', 'xyz'), 'xyxtrim'), (('abc', ''), 'abc'), (('aaa', 'a'), ''),
        (('é😀é', 'é'), 'é😀'), (('a', None), None), ((b'\x124\x90', b'\x12\x90'), b'\x124'),
    ],
    "btrim": [
        (('  a b  ',), 'a b'), (('xyxtrimyyx', 'xyz'), 'trim'), (('abc', ''), 'abc'), (('aaa', 'a'), ''),
        (('é😀é', 'é'), '😀'), (('a', None), None), ((b'\x124\x90', b'\x12\x90'), b'4'),
    ],
    "replace": [
        (('abcabc', 'b', 'XX'), 'aXXcaXXc'), (('abc', '', 'x'), 'abc'), (('aaa', 'aa', 'b'), 'ba'),
        (('abc', 'b', ''), 'ac'), (('$a', 'a', '$1'), '$$1'), (('a', None, 'b'), None), (('😀a😀', '😀', 'é'), 'éaé'),
    ],
    "reverse": [
        (('ab😀',), '😀ba'), (('a\u0301b',), 'b\u0301a'), (('',), ''),
    ],
    "repeat": [
        (('ab', 3), 'ababab'), (('ab', 0), ''), (('ab', -1), ''), (('', 2147483647), ''), (('a', None), None),
    ],
    "ascii": [
        (('',), 0), (('A',), 65), (('😀',), 128512),
    ],
    "chr": [
        ((65,), 'A'), ((128512,), '😀'), ((0,), Fails('null character not permitted')),
        ((-1,), Fails('character number must be positive')),
        ((55296,), Fails('requested character not valid for encoding: 55296')),
        ((1114112,), Fails('requested character too large for encoding: 1114112')), ((None,), None),
    ],
    "translate": [
        (('12345', '143', 'ax'), 'a2x5'), (('aab', 'aa', 'xy'), 'xxb'), (('abc', '', 'x'), 'abc'),
        (('abc', 'abc', ''), ''),
    ],
    "overlay": [
        (('abcdef', '45', 4), 'abc45f'), (('yabadoo', 'daba', 5, 0), 'yabadabadoo'), (('abc', 'X', 2, -1), 'aXabc'),
        (('abc', 'X', 0), Fails('negative substring length not allowed')), (('abc', 'X', 9), 'abcX'),
        (('abc', 'XY', 2147483647), Fails('integer out of range')), (('abc', 'X', 2, -2147483648), 'aXabc'),
        (('abc', 'X', 1, 99), 'X'), ((b'abcdef', b'123', 2, 4), b'a123f'),
        ((b'abcdef', b'123', 4, -2), b'abc123bcdef'),
    ],
    "concat": [
        (('a', None, 'b'), 'ab'), ((None,), ''), (('',), ''), (('a', 'b', 'c'), 'abc'),
    ],
    "concat_ws": [
        ((',', 'a', None, 'b'), 'a,b'), ((None, 'a'), None), ((',', None), ''), (('', 'a', 'b'), 'ab'),
        ((',', '', ''), ','),
    ],
    "||": [
        (('a', 'b'), 'ab'), (('a', None), None), (('', ''), ''), ((b'\x12', b'\x00'), b'\x12\x00'),
    ],
    "string_to_array": [
        (('a b c', ' '), ['a', 'b', 'c']), (('a b c', ' ', 'a'), [None, 'b', 'c']), (('abc', None), ['a', 'b', 'c']),
        (('abc', None, 'b'), ['a', None, 'c']), (('abc', ''), ['abc']), (('', 'x'), []), (('', None), []),
        ((None, ','), None), (('a,,b', ',', ''), ['a', None, 'b']), (('a', ',', None), ['a']),
    ],
    "array_to_string": [
        ((['1', '2', None, '5'], ',', '*'), '1,2,*,5'), ((['a', None], ','), 'a'), (([], ','), ''),
        ((['a'], None), None), ((['a', None], ',', None), 'a'), (([None], ',', ''), ''), ((None, ','), None),
    ],
    "quote_literal": [
        (("O'Reilly",), "'O''Reilly'"), (('C:\\W',), "E'C:\\\\W'"), (('',), "''"), ((None,), None),
    ],
    "quote_nullable": [
        ((None,), 'NULL'), (("a'b",), "'a''b'"),
    ],
    "format": [
        (('%s, %s %%', 'a', None), 'a,  %'), (('%I %I %I', 'ab', 'aB', 'select'), 'ab "aB" "select"'),
        (('%L %L', "it's", None), "'it''s' NULL"), (('%2$s %1$s', 'a', 'b'), 'b a'),
        (('|%-5s|%5s|', 'a', 'b'), '|a    |    b|'), (('%s',), Fails('too few arguments for format()')),
        (('%d', 'a'), Fails('unrecognized format() type specifier "d"')),
        (('%', 'a'), Fails('unterminated format() type specifier')),
        (('%I', None), Fails('null values cannot be formatted as an SQL identifier')), ((None, 'a'), None),
        (('%*s', '4', 'x'), '   x'),
        (('%0$s', 'a'), Fails('format specifies argument 0, but arguments are numbered from 1')),
        (('%1$s %s', 'a', 'b'), 'a b'),
    ],
    "get_byte": [((b'\x01\xff', 1), 255), ((b'', 0), Fails("index 0 out of valid range, 0..-1"))],
    "get_bit": [
        ((b'\x01\x80', 15), 1), ((b'\x01', 1), 0), ((b'\x01', big(8)), Fails("index 8 out of valid range, 0..7")),
    ],
    "set_byte": [((b'ab', 1, 321), b'aA'), ((b'ab', -1, 1), Fails("index -1 out of valid range, 0..1"))],
    "set_bit": [
        ((b'\x00', 7, 1), b'\x80'), ((b'\xff', 0, 0), b'\xfe'), ((b'a', 0, 2), Fails("new bit must be 0 or 1")),
    ],
    "bit_count": [((b'',), 0), ((b'\xff\x01',), 9), ((None,), None)],
    "md5": [
        (('',), 'd41d8cd98f00b204e9800998ecf8427e'), (('risingwave',), '7ad0245ddf6c26f4f6ae269a644ac00a'),
        ((b'\x00',), '93b885adfe0da089cdf634904fd59f71'),
    ],
    "sha224": [
        ((b'risingwave',), bytes.fromhex(
            "b898defab7c2e2f41c9a494a22e3567274b48123625f96008439e0bb")),
    ],
    "sha256": [
        ((b'',), bytes.fromhex(
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")),
    ],
    "sha384": [
        ((b'a',), bytes.fromhex(
            "54a59b9f22b0b80880d8427e548b7c23abd873486e1f035dce9cd697e85175033caa88e6d57bc35efae0b5afd3145f31")),
    ],
    "sha512": [
        ((b'a',), bytes.fromhex(
            "1f40fc92da241694750979ee6cf582f2d5d7d28e18335de05abc54d0560e0f5302860c652bf08d560252aa5e74210546"
            "f369fbbbce8c12cfc7957b2652fe9a75")),
    ],
    "to_hex": [
        ((255,), 'ff'), ((-1,), 'ffffffff'), ((-2147483648,), '80000000'), ((big(-1),), 'ffffffffffffffff'),
        ((big(9223372036854775807),), '7fffffffffffffff'), ((0,), '0'),
    ],
    "encode": [
        ((b'123\x00\x01', 'base64'), 'MTIzAAE='), ((b'\x00' * 57, 'base64'), 'A' * 76 + '\n'),
        ((b'\xff' * 58, 'base64'), '/' * 76 + '\n/w=='), ((b'', 'base64'), ''),
        ((b'\xc3\xb1\\\x00a', 'escape'), '\\303\\261\\\\\\000a'), ((b'\n\xff', 'HEX'), '0aff'),
        ((b'a', 'rot13'), Fails('unrecognized encoding: "rot13"')), ((None, 'hex'), None),
    ],
    "decode": [
        (('MTIzAAE=', 'base64'), b'123\x00\x01'), (('MT Iz\n', 'base64'), b'123'),
        (('MTI', 'base64'), Fails('invalid base64 end sequence')), (('MT=zMTIz', 'base64'), b'11'),
        (('M===', 'base64'), Fails('unexpected "=" while decoding base64 sequence')),
        (('M!', 'base64'), Fails('invalid symbol "!" found while decoding base64 sequence')),
        (('6A 6f', 'hex'), b'jo'), (('6', 'hex'), Fails('invalid hexadecimal data: odd number of digits')),
        (('6g', 'hex'), Fails('invalid hexadecimal digit: "g"')), (('\\303\\261\\\\', 'escape'), b'\xc3\xb1\\'),
        (('\\400', 'escape'), Fails('invalid input syntax for type bytea')), (('王', 'escape'), b'\xe7\x8e\x8b'),
        (('a', 'x'), Fails('unrecognized encoding: "x"')),
    ],
    "convert_from": [
        ((b'\xc3\xb1', 'UTF8'), 'ñ'), ((b'\xff', 'utf-8'), Fails('invalid byte sequence for encoding "UTF8": 0xff')),
        ((b'a\x00', 'utf8'), Fails('invalid byte sequence for encoding "UTF8": 0x00')),
        ((b'\xe4\x8c\xd8', 'utf8'), Fails('invalid byte sequence for encoding "UTF8": 0xe4 0x8c 0xd8')),
    ],
    "convert_to": [
        (('🍋', 'UTF8'), b'\xf0\x9f\x8d\x8b'),
    ],
    "like": [
        (('abc', 'a%'), True), (('abc', '_b_'), True), (('abc', 'c'), False), (('', '%'), True), (('', '_'), False),
        (('a%c', 'a\\%c'), True), (('abc', 'a\\%c'), False), (('a\nb', 'a_b'), True), (('abc', 'abc\\'), False),
        (('abcd', 'abc\\'), Fails('LIKE pattern must not end with escape character')), (('x', 'abc\\'), False),
        (('a', '%\\'), Fails('LIKE pattern must not end with escape character')), (('a\\b', 'a\\\\b'), True),
        (('h%x', 'h#%x', '#'), True), (('a\\_c', 'a\\_c', ''), True),
        (('a', 'a', '##'), Fails('invalid escape string')), (('É', 'é'), False), (('😀b', '_b'), True),
        (('foo', '%o_'), True), (('aXbXc', 'a%X%c'), True), ((None, 'a'), None), (('a', None), None),
        (('be_r', 'b_e__r', '_'), True),
    ],
    "ilike": [
        (('ABC', 'a_c'), True), (('ΑΣ', 'ασ'), True), (('ß', 'SS'), False), (('İ', 'i'), True),
        (('A%', 'a#%', '#'), True),
    ],
    "similar": [
        (('abc', 'a|b|c'), False), (('abc', '(a|b|c)+'), True), (('a_b', 'a$_b', '$'), True), (('abc', 'abc%'), True),
        (('a.c', 'a.c'), True), (('abc', 'a.c'), False), (('abc', '[^b]%'), True),
        (('foobar', '%#"o_b#"%', '#'), True), ((']', '[]]'), True), (('ab', 'a{2}|ab'), True),
        (('a', 'a', 'xx'), Fails('invalid escape string')), (('a(', 'a('), Fails('unclosed group')),
        (('a\nb', 'a%'), False), (('a[b', 'a[[]b'), Fails('unclosed character class')), ((None, 'a'), None),
    ],
    "~": [
        (('abc', 'B'), False), (('a\nb', '^b'), False), (('abc', None), None), (('foo bar', '\\bbar\\b'), True),
        (('foobar', '\\<bar'), False), (('foo bar', '\\mbar'), Fails('unrecognized escape sequence')),
        (('aa', '(a)\\1'), True), (('ab', '(a)\\1'), False), (('ab', 'a(?=b)'), True), (('ab', 'a(?!b)'), False),
        (('ab', '(?<=a)b'), True), (('aa', '(?<x>a)\\k<x>$'), True), (('aa\n', '(a)\\1$'), False),
        (('aa\n', '(a)\\1\\Z'), True), (('fF', '^\\h(?i)F(?=$)'), Fails(
            "beside look-around and back references (?i) can only begin a pattern")), (('fF', '(?i)^\\hf$'), True),
        (('é', '(?=[[:alpha:]])'), Fails(
            "beside look-around and back references [[:alpha:]] is not possible: it has a class in a class")),
        (('ab', '(?|a(?=b)|c)'), Fails('(? is not known')), (('aA', '(?r)a(?=A)'), Fails('(?r is not known')),
        (('ab', '\\x61(?=[\\x62\\[])'), True), (('ab', '(?:a)(?=b)'), True), (('aB', '(?i:a)(?=B)'), True),
        (('aaa', 'a*+a'), False), (('aaa', '(?>a*)a'), False), (('aab', 'a++b'), True), (('ab', '(a)?(?(1)b|c)'), True),
        (('é', '[[:alpha:]]'), False), (('É', '(?i)é'), True), (('a-', '^[a-]*$'), True), (('a\nb', 'a.b'), False),
        (('a\nb', '(?s)a.b'), True), (('a\nb', '(?m)^b$'), True), (('a\nb', '(?n)a'), Fails('unrecognized flag')),
        (('a', 'a**'), Fails('a quantifier is behind another one')), (('a', '(a'), Fails('unclosed group')),
        (('a', 'a{1}{2}'), Fails('a quantifier is behind another one')), (('a+', '^a[*+]*$'), True),
        (('a', '[b-a]'), Fails('invalid character class range, the start must be <= the end')),
        (('a', '\\q'), Fails('unrecognized escape sequence')), (('aa', 'a{2}'), True), (('a{', 'a{'), True),
        (('a{,b', 'a{,b'), True), (('aa', '^a{,2}$'), True), (('٣', '\\d'), True), (('a b', '(?x)a\\ b # c'), True),
        (('', '^$'), True), (('a\x85', '\\s'), True), (('\u0363', '\\w'), True), (('a', '\\b{start}a'),
                                                                              Fails('\\b{ is not known')),
        (('a', '(?R)a$'), Fails('(?R is not known')),
    ],
    "~*": [
        (('abc', 'B'), True), (('a\nb', '^b'), False), (('abc', None), None),
    ],
    "!~": [
        (('abc', 'B'), True), (('a\nb', '^b'), True), (('abc', None), None),
    ],
    "!~*": [
        (('abc', 'B'), False), (('a\nb', '^b'), True), (('abc', None), None),
    ],
    "regexp_match": [
        (('foobarbequebaz', '(bar)(beque)'), ['bar', 'beque']), (('abc', 'd'), None), (('abc', 'Bc', 'ici'), ['bc']),
        (('abc', 'Bc', 'ic'), None), (('abcd', '(a|ab)(c|bcd)(d*)'), ['a', 'bcd', '']),
        (('xyz', '(x)|(y)'), ['x', None]), (('aaa', 'a*?'), ['']), (('XY1234Z', 'Y*?([0-9]{1,3})'), ['123']),
        (('abc01234xyz', '(.*)(\\d+)(.*)'), ['abc0123', '4', 'xyz']),
        (('abc01234xyz', '(.*?)(\\d+)(.*)'), ['abc', '01234', 'xyz']), (('aab', '(a|ab|b)*'), ['b']),
        (('a', '(b*)?a'), ['']), (('a', '(?P<n>a)(b)?'), ['a', None]), (('a b', '(?x) (a) # (b)'), ['a']),
        (('a', 'a', 'g'), ['a']), (('a', 'a', 'z'), Fails('invalid regular expression option: "z"')),
        (('foo/bar/baz', '^([^/]+?)(?:/([^/]+?))(?:/([^/]+?))?$'), ['foo', 'bar', 'baz']),
        (('bbaa', 'b(?:(b(|b)a)(\\1)*a|[^a]{2}a)'), ['ba', '', None]), (('a', None), None),
    ],
    "regexp_count": [
        (('ABCABCAXYaxy', 'A.'), 3), (('ABCABCAXYaxy', 'A.', 2), 2), (('ABCABCAXYaxy', 'A.', 1, 'i'), 4),
        (('abc', ''), ENDLESS), (('abc', 'x*'), ENDLESS), 
        (('abc', 'b', 0), Fails('invalid value for parameter "start": 0')),
        (('abc', '^.', 2), 2), (('aab', '^a'), 2), (('a b', '\\b[ab]'), 2), (('abc', '', 9), 0),
        (('a', 'a', 1, 'g'), Fails('regexp_count() does not support the global option')),
        (('abcab', '(?<=a)b', 2), 1), (('éaé', 'é'), 2),
    ],
    "regexp_replace": [
        (('foobarbaz', 'b(..)', 'X\\1Y'), 'fooXarYbaz'), (('foobarbaz', 'b(..)', 'X\\1Y', 'g'), 'fooXarYXazY'),
        (('HELLO world', '[aeiou]', 'X', 'ig'), 'HXLLX wXrld'),
        (('RisingWave', '[aeiou]', 'X', 1, 3, 'i'), 'RisingWXve'), (('RisingWave', 'q', 'X', 1, 3, 'i'), ''),
        (('RisingWave', 'q', 'X', 4, 3, 'i'), 'Ris'), (('abcb', '(b)', 'x', 1, 1), Fails(
            'RisingWave does not come to an end here')), (('abc', '(d)', 'x', 2, 1), 'abc'),
        (('abc', 'b', '[\\&][\\\\][\\x][\\'), 'a[b][\\\\][\\x][\\c'), (('abc', '', '-', 'g'), '-a-b-c-'),
        (('aaa', 'a', 'b', 2), 'ba'), (('aaaa', 'a', 'b', 3), 'aaba'), (('éaa', 'a', 'b', 2), 'éba'),
        (('aaa', '(a)', 'b', 2), 'aba'), (('aaa', 'a', 'b', 1, 0), 'bbb'), (('aaa', 'a', 'b', 1, 2), 'aba'),
        (('aaa', 'a', '\\&', 1, 2), 'a${0}a'), (('aaa', 'a', 'b', 1, -1), ''), (('bbb', 'a*', '-', 1, 3), '-bbb'),
        (('bbb', 'a*', '-', 1, -1), Fails('RisingWave does not come to an end here')),
        (('a', 'a', 'b', 0), Fails('invalid value for parameter "start": 0')),
        (('a', 'a', 'b', '1'), Fails('invalid regular expression option: "1"')), (('a', 'a', 'b', 9), 'a'),
        (('', '^', 'b'), ''), (('foobarrbazz', '(.)\\1', 'X\\\\Y', 'g'), 'fX\\\\YbaX\\\\YbaX\\\\Y'),
        (('AAA', '^|$', 'Z', 'g'), 'ZAAAZ'), (('AAA', '(?=A)', 'Z', 'g'), 'ZAZAZA'),
        (('abc', '(x*)', '-', 'g'), ENDLESS),
        (('ab ', '(\\b)', '-', 'g'), ' '), (('aab', '(^a)', '-', 'g'), '--b'), (('a', '(b)?a', '[\\1\\2]'), '[]'),
        (('aXbX', 'x', '\\0$1$$', 'gi'), 'a\\0$b\\0$'), (('ab', '(?<n>a)(b)', '${2}$n$na'), 'ba'),
        ((None, 'a', 'b'), None),
    ],
    "regexp_split_to_array": [
        (('the quick', '\\s+'), ['the', 'quick']), (('the quick', '\\s*'), ['t', 'h', 'e', 'q', 'u', 'i', 'c', 'k']),
        (('123', '(?:)'), ['1', '2', '3']), (('123456', '.'), ['', '', '', '', '', '', '']), (('', ','), ['']),
        (('a,b', ','), ['a', 'b']), (('a1b22c', '\\d+'), ['a', 'b', 'c']), (('aXb', 'x', 'i'), ['a', 'b']),
        (('a', 'a', 'g'), ['', '']), ((',a,', ','), ['', 'a', '']), (('abc', '$'), []), (('éb', 'x*'), ['é', 'b']),
        (('aab', '^a'), ['', '', 'b']),
    ],
}  # fmt: skip

# of RisingWave's pages, where PostgreSQL has another meaning or no such function
RISINGWAVE: dict[str, list[tuple[tuple[Any, ...], Any]]] = {
    "btrim": [(("\t a\u3000\n",), "a")],
    "ltrim": [(("\t a ",), "a ")],
    "rtrim": [((" a\xa0 ",), " a")],
    "sha1": [((b"risingwave",), bytes.fromhex("48d3478f8350c86fa2e6f65a5883c2046523c8bb"))],
    "regexp_matches": [
        (("a1b", r"([a-z])(\d)?"), [["a", "1"], ["b", None]]),
        (("aab", "^a"), [["a"]]),
        (("x", "y"), []),
        (("ab", "x*"), [[""], [""], [""]]),
        (("abcab", "(?<=a)b"), [["b"], ["b"]]),
        (("aab", r"\b(a)|(b)"), [["a", None], [None, "b"]]),
    ],
    "convert_from": [((b"a", "LATIN1"), Fails("only the encoding UTF8 is possible"))],
}
ALL = [(name, args, want) for cases in (CASES, RISINGWAVE) for name, some in cases.items() for args, want in some]


def called(name: str, args: tuple[Any, ...], columns: int) -> tuple[Any, bool]:
    """The value and whether it failed. `columns`: how many arguments are columns; constants stand behind them."""
    function = FUNCTIONS[f"pg.{name}"]
    signature = function.resolve([Col(f"{i}", type_of(a)) for i, a in enumerate(args)])
    assert not isinstance(signature, Refused), signature.message
    series = [pl.Series(f"{i}", [v], polars_type(t)) for i, (v, t) in enumerate(zip(args, signature.args, strict=True))]
    given: list[Expr] = [Col(f"{i}", t) if i < columns else Lit(args[i], t) for i, t in enumerate(signature.args)]
    bound = function.resolve(given)
    if isinstance(bound, Refused):
        return None, True
    out, marks = evaluate(pl.DataFrame(series), [("v", Call(f"pg.{name}", tuple(given), bound.result))])
    assert out.schema == {"v": polars_type(signature.result)}
    return out["v"].to_list()[0], marks[0]


@pytest.mark.parametrize(("name", "args", "want"), ALL)
def test_it_gives_what_postgres_gave(name: str, args: tuple[Any, ...], want: Any) -> None:
    for columns in range(len(args), -1, -1):
        value, failed = called(name, args, columns)
        assert (value, failed) == ((None, True) if isinstance(want, Fails) else (want, False)), columns
    if isinstance(want, Fails):
        why = why_of(f"pg.{name}")
        assert (why if isinstance(why, str) else why(*args)) == want.why


def test_every_row_has_cases() -> None:
    from braid.expr.postgres import binary, quoting, regex, text  # the tables, not the rows of others

    mine = {*text.TEXT, *quoting.QUOTING, *regex.REGEX, *binary.BINARY}
    assert {f"pg.{name}" for name in (*CASES, *RISINGWAVE)} == mine


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("lower", (1,)), ("lower", ()), ("length", (1,)), ("char_length", (b"a",)), ("substr", ("a", "b")),
        ("substr", ("a", big(1))), ("concat", ("a", 1)), ("concat", ()), ("concat_ws", (",",)), ("||", ("a", b"a")),
        ("to_hex", ("a",)), ("encode", ("a", "hex")), ("decode", (b"a", "hex")), ("sha256", ("a",)),
        ("regexp_replace", ("a", "b", "c", 1, "g")), ("regexp_match", ("a", 1)), ("~", ("a", 1)), ("like", ("a", 1)),
        ("array_to_string", ("a", ",")), ("split_part", ("a", ",", "1")), ("trim", ("a",)),
    ],
)  # fmt: skip
def test_other_types_are_refused(name: str, args: tuple[Any, ...]) -> None:
    function = FUNCTIONS.get(f"pg.{name}")  # TRIM is a name of btrim, no plan's
    given = [Col(f"{i}", type_of(a)) for i, a in enumerate(args)]
    assert function is None or isinstance(function.resolve(given), Refused)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("~", ("(a",)), ("~", ("a**",)), ("similar", ("a", "##")), ("like", ("a", "##")), ("regexp_match", ("a", "z")),
        ("regexp_count", ("a", 1, "g")), ("regexp_replace", ("a", "b", "y")), ("regexp_split_to_array", ("(",)),
        ("encode", ("rot13",)), ("convert_to", ("latin1",)), ("~", ("(" * 1000 + ")" * 1000,)),
        ("regexp_match", ("a", "b")), ("regexp_count", ("a*",)), ("regexp_replace", ("(a*)", "b", "g")),
    ],
)  # fmt: skip
def test_constants_that_are_no_pattern_are_refused(name: str, args: tuple[Any, ...]) -> None:
    first = Col("x", S.BYTES if name == "encode" else S.VARCHAR)
    assert isinstance(FUNCTIONS[f"pg.{name}"].resolve([first, *(Lit(a, type_of(a)) for a in args)]), Refused)


# ----------------------------------------------------------------- large texts


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("||", ("a" * LARGEST, "b")), ("concat", ("a" * LARGEST, "b")), ("concat_ws", ("ab", "a" * LARGEST, "")),
        ("repeat", ("ab", 2**31 - 1)), ("lpad", ("a", 2**31 - 1)), ("rpad", ("a", 2**31 - 1, "xy")),
        ("replace", ("a" * 1000, "a", "b" * 20_000)), ("regexp_replace", ("a" * 1000, "a", "b" * 20_000, "g")),
        ("overlay", ("a" * LARGEST, "bb", 1, 0)), ("translate", ("a" * LARGEST, "a", "é")),
        ("array_to_string", (["a"] * 1000, "b" * 20_000)), ("format", ("%*s", "20000000", "x")),
        ("quote_literal", ("'" * LARGEST,)), ("encode", (b"a" * LARGEST, "hex")),
        ("overlay", (b"a" * LARGEST, b"b", 1, 0)),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
def test_no_text_is_made_that_no_record_holds(name: str, args: tuple[Any, ...]) -> None:
    assert called(name, args, len(args)) == (None, True)
    why = why_of(f"pg.{name}")
    assert (why if isinstance(why, str) else why(*args)) == TOO_LONG


# --------------------------------------------------------- regular expressions


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a*)*b", "a" * 100_000), ("(a|aa)+$", "a" * 50_000 + "b"), ("(x+x+)+y", "x" * 20_000),
        (r"(.*)(.*)(.*)(.*)x\4", "ab" * 3000), (r"((a+)\2)+b", "a" * 2000), ("(?=.*b)c", "ac" * 20_000),
        ("(a|b)*a(a|b){12}$", "ab" * 20_000), ("(?<=a.*)b", "ac" * 20_000), ("(a?){60}a{60}", "a" * 60),
        ("(((a*)*)*)*b", "a" * 3000), ("(?:a{0,70}){0,70}b", "a" * 5000), (r"(\w+\s?)+(?=x)", "word " * 200),
    ],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_no_pattern_hangs(pattern: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rust, "TIME", 0.5)
    regex = rust.compiled(pattern)
    try:
        regex.search(text)
    except ValueError as e:
        assert str(e) == "the regular expression takes too long" and isinstance(regex, rust.Backtracking)


@pytest.mark.timeout(60)
def test_searches_one_behind_the_other_have_a_limit() -> None:
    assert called("regexp_count", ("a" * 11_000, "^a"), 2) == (None, True)
    assert called("regexp_count", ("a" * 11_000, "a"), 2) == (11_000, False)
    assert called("regexp_replace", ("a" * 11_000, "(a)", "b", "g"), 4) == ("b" * 11_000, False)
    frame = pl.DataFrame({"s": ["a" * 11_000, "a\0b"]})  # which texts are beside a text makes no difference
    split = Call("pg.regexp_split_to_array", (Col("s", S.VARCHAR), Lit("a", S.VARCHAR)), TEXTS)
    out, marks = evaluate(frame, [("v", split)])
    assert (out["v"].list.len().to_list(), marks.to_list()) == ([11_001, 2], [False, False])


def test_many_texts_are_searched_as_each_alone() -> None:
    """Texts with several patterns, with nulls between them, in one column."""
    for name in ("regexp_match", "regexp_count", "regexp_replace", "regexp_split_to_array", "~"):
        cases = [(args, want) for args, want in CASES[name] if len(args) == len(CASES[name][0][0])]
        types = [type_of(a) for a in cases[0][0]]
        columns = [pl.Series(str(i), [args[i] for args, _ in cases], polars_type(t)) for i, t in enumerate(types)]
        given = tuple(Col(str(i), t) for i, t in enumerate(types))
        bound = FUNCTIONS[f"pg.{name}"].resolve(given)
        assert not isinstance(bound, Refused)
        out, marks = evaluate(pl.DataFrame(columns), [("v", Call(f"pg.{name}", given, bound.result))])
        assert out["v"].to_list() == [None if isinstance(want, Fails) else want for _, want in cases]
        assert marks.to_list() == [isinstance(want, Fails) for _, want in cases]


def test_what_grows_without_end_is_no_pattern() -> None:
    for pattern in ("(?:(?:a{0,200}){0,200}){0,200}b", "(" * 300 + ")" * 300):
        with pytest.raises(ValueError, match=r"size limit|maximum number of nested"):
            rust.compiled(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["[a-z]+([0-9]+)@(.*)", "(a)(b)?c*", "x{2,4}y?", "(?:ab|a)(b|cd)?", "^a*?b", r"\w\b.|\s", r"(?i)A\d$",
     "[0-9é]"],
)  # fmt: skip
def test_both_engines_find_the_same(pattern: str) -> None:
    linear = rust.compiled(pattern)
    assert isinstance(linear, rust.Linear)
    going_back = rust.Backtracking(pattern, rust._translated(rust._TOKEN.findall(pattern)))
    for text in ("ab12@x", "abcc", "xxxxxy", "abcdab", "aaab", "", "b", "cdx1@", "zab", "a1\n", "ab é", "aé1"):
        assert linear.search(text) == going_back.search(text)
        assert linear.replaced(text, ("<", 0, ">"), once=False) == going_back.replaced(text, ("<", 0, ">"), once=False)


# ------------------------------------------------------------ characters, BYTEA


def test_cases_of_all_characters() -> None:
    """The columnar way gives what one character for one gives."""
    texts = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
    frame = pl.DataFrame({"x": texts})
    for name, cases in (("lower", LOWER), ("upper", UPPER)):
        out, _ = evaluate(frame, [("v", Call(f"pg.{name}", (Col("x", S.VARCHAR),), S.VARCHAR))])
        assert out["v"].to_list() == [t.translate(cases) for t in texts]
    assert (lower_of("ΑΣ"), "ᾳß".translate(UPPER)) == ("ας"[:1] + "σ", "ᾼß")


def test_how_many_characters_are_parts_of_words() -> None:
    """As many as the server's C library had, which knows Unicode 14."""
    assert len(letters_and_digits()) == 134056


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ('\\xff00', b'\xff\x00'),
        ('\\xFF 0a\n', b'\xff\n'),
        ('\\x', b''),
        ('\\xf', Fails('invalid hexadecimal data: odd number of digits')),
        ('\\xfg', Fails('invalid hexadecimal digit: "g"')),
        ('\\Xff', Fails('invalid input syntax for type bytea')),
        ('', b''),
        ('abc', b'abc'),
        ('a\\\\b', b'a\\b'),
        ('\\000\\377', b'\x00\xff'),
        ('\\400', Fails('invalid input syntax for type bytea')),
        ('\\12', Fails('invalid input syntax for type bytea')),
        ('\\', Fails('invalid input syntax for type bytea')),
        ('é', b'\xc3\xa9'),
        ('\\\\x41', b'\\x41'),
    ],
)  # fmt: skip
def test_bytea_is_written_so(text: str, want: bytes | Fails) -> None:
    if isinstance(want, Fails):
        with pytest.raises(ValueError) as e:
            bytea_of_text(text)
        assert str(e.value) == want.why
    else:
        assert bytea_of_text(text) == want
        assert text_of_bytea(want) == f"\\x{want.hex()}"
        assert bytea_of_text(text_of_bytea(want)) == want
