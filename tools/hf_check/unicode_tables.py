"""Measures what `tokenizers` takes characters for, and writes tokenizer/unicode_tables.cc and
tokenizer/script_table.cc.

Rust crates and Oniguruma have tables of several Unicode versions, so each set is asked for by
running the component that uses it over all code points. Sets of Oniguruma are written as what they
have more than PCRE2, whose properties the rewritten patterns use.
"""
import ctypes
import pathlib
import sys

from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


class Pcre2:
    """The few calls of PCRE2 that a set of characters needs."""

    UTF, UCP, NO_UTF_CHECK = 0x80000, 0x20000, 0x40000000

    def __init__(self):
        lib = ctypes.CDLL("libpcre2-8.so.0")
        pointer = ctypes.c_void_p
        lib.pcre2_compile_8.restype = pointer
        lib.pcre2_compile_8.argtypes = [
            ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.POINTER(ctypes.c_int),
            ctypes.POINTER(ctypes.c_size_t), pointer]
        lib.pcre2_match_data_create_8.restype = pointer
        lib.pcre2_match_data_create_8.argtypes = [ctypes.c_uint32, pointer]
        lib.pcre2_match_8.argtypes = [
            pointer, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint32, pointer,
            pointer]
        lib.pcre2_get_ovector_pointer_8.restype = ctypes.POINTER(ctypes.c_size_t)
        lib.pcre2_get_ovector_pointer_8.argtypes = [pointer]
        self.lib = lib
        self.all = "".join(map(chr, CODE_POINTS)).encode()

    def members(self, char_class):
        pattern = f"(?:{char_class})++".encode()
        error, place = ctypes.c_int(), ctypes.c_size_t()
        code = self.lib.pcre2_compile_8(pattern, len(pattern), self.UTF | self.UCP,
                                        ctypes.byref(error), ctypes.byref(place), None)
        if not code:
            sys.exit(f"PCRE2 refuses {pattern}: error {error.value} at {place.value}")
        match = self.lib.pcre2_match_data_create_8(1, None)
        bounds = self.lib.pcre2_get_ovector_pointer_8(match)
        found, at = set(), 0
        while self.lib.pcre2_match_8(code, self.all, len(self.all), at, self.NO_UTF_CHECK, match,
                                     None) >= 0:
            found.update(map(ord, self.all[bounds[0]:bounds[1]].decode()))
            at = bounds[1]
        return found


def ranges(members):
    out = []
    for c in sorted(members):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def where(predicate):
    return {c for c in CODE_POINTS if predicate(chr(c))}


def splits(pre_tokenizer):
    return where(lambda c: len(pre_tokenizer.pre_tokenize_str("a" + c + "b")) > 1)


def vanishes(normalizer):
    return where(lambda c: normalizer.normalize_str("a" + c + "b") == "ab")


def onig_set(pattern):
    normalizer = normalizers.Replace(Regex(pattern), "")
    return where(lambda c: normalizer.normalize_str(c) == "")


def table(name, rows):
    lines, line = [], "   "
    for row in rows:
        text = " {" + ", ".join(str(x) if isinstance(x, int) and i == 2 else hex(x)
                                for i, x in enumerate(row)) + "},"
        if len(line) + len(text) > 99:
            lines.append(line)
            line = "   "
        line += text
    lines.append(line)
    return "\n".join(lines)


def own_lower():
    """Characters whose lower case is another than that of utf8proc."""
    lib = ctypes.CDLL("libutf8proc.so.2")
    lib.utf8proc_tolower.restype = ctypes.c_int32
    lower = normalizers.Lowercase()
    rows = []
    for c in CODE_POINTS:
        text = lower.normalize_str(chr(c))
        if len(text) == 1 and ord(text) != lib.utf8proc_tolower(c):
            rows.append([c, ord(text)])
    return rows


def undecomposed():
    """Characters that the normal forms of utf8proc take apart, and `tokenizers` do not."""
    lib = ctypes.CDLL("libutf8proc.so.2")
    lib.utf8proc_decompose_char.argtypes = [
        ctypes.c_int32, ctypes.POINTER(ctypes.c_int32), ctypes.c_ssize_t, ctypes.c_int,
        ctypes.POINTER(ctypes.c_int)]
    lib.utf8proc_decompose_char.restype = ctypes.c_ssize_t
    decompose, compat = 1 << 4, 1 << 2
    out = set()
    buffer, last = (ctypes.c_int32 * 64)(), ctypes.c_int()
    for c in CODE_POINTS:
        if normalizers.NFKD().normalize_str(chr(c)) != chr(c):
            continue
        n = lib.utf8proc_decompose_char(c, buffer, 64, decompose | compat, ctypes.byref(last))
        if n != 1 or buffer[0] != c:
            out.add(c)
    return out


def unordered():
    """Marks that utf8proc puts in order, and `tokenizers`, which do not know them yet, do not."""
    lib = ctypes.CDLL("libutf8proc.so.2")
    lib.utf8proc_NFD.restype = ctypes.c_void_p
    lib.utf8proc_NFD.argtypes = [ctypes.c_char_p]
    libc = ctypes.CDLL(None)
    libc.free.argtypes = [ctypes.c_void_p]

    def nfd(text):
        made = lib.utf8proc_NFD(text.encode())
        out = ctypes.cast(made, ctypes.c_char_p).value.decode()
        libc.free(made)
        return out

    theirs = normalizers.NFD()
    out = set()
    for c in CODE_POINTS[1:]:
        for text in ("a" + chr(c) + "\u0334", "a\u0345" + chr(c)):
            if nfd(text) != text and theirs.normalize_str(text) == text:
                out.add(c)
    return out


def script_ranges():
    """[first, last, number of the script]; neighbours of one number are never cut.

    Characters of no script, which are not cut from any other, are in no range.
    """
    scripts = pre_tokenizers.UnicodeScripts()

    def apart(a, b):
        return len(scripts.pre_tokenize_str(chr(a) + chr(b))) > 1

    rows, samples = [], []
    for c in CODE_POINTS:
        if not apart(ord("a"), c) and not apart(ord("\u03b1"), c):
            continue
        if rows and rows[-1][1] == c - 1 and not apart(c - 1, c):
            rows[-1][1] = c
            continue
        number = next((i for i, s in enumerate(samples) if not apart(s, c)), None)
        if number is None:
            number = len(samples)
            samples.append(c)
        rows.append([c, c, number])
    return rows, samples


HEAD = """// {what}
// Written by tools/hf_check/unicode_tables.py; not to be edited.
#include "tokenizer/unicode_tables.h"

namespace meshwright::tokenizer {{

// clang-format off
"""


def main(folder):
    w = pre_tokenizers.Whitespace()
    sets = [
        ("kPunctuation", splits(pre_tokenizers.Punctuation())),
        ("kNumeric", splits(pre_tokenizers.Digits(individual_digits=True))),
        ("kBertRemoved", vanishes(normalizers.BertNormalizer(True, False, False, False))),
        ("kAccents", vanishes(normalizers.StripAccents())),
        ("kBertAccents", vanishes(normalizers.BertNormalizer(False, False, True, False))),
        ("kIdeographs", where(lambda c: len(normalizers.BertNormalizer(
            False, True, False, False).normalize_str(c)) == 3)),
        ("kWord", where(lambda c: len(w.pre_tokenize_str("a" + c + "b")) == 1)),
        ("kUndecomposed", undecomposed() | unordered()),
    ]
    pcre2 = Pcre2()
    newer = [("kNewer" + name, onig_set(r"\p{%s}" % name) - pcre2.members(r"\p{%s}" % name))
             for name in ("L", "Lu", "Ll", "Lm", "Lo", "M", "Mn", "Mc", "N", "Nd", "No", "P", "Po",
                          "S", "So", "Sm")]
    newer.append(("kNewerWord",
                  onig_set(r"\w") - pcre2.members(r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}]")))
    text = HEAD.format(what="Sets of characters as `tokenizers` has them.")
    for name, members in sets + newer:
        text += f"const CodeRange {name}Data[] = {{\n{table(name, ranges(members))}\n}};\n"
    text += f"const CodePair kLowerData[] = {{\n{table('', own_lower())}\n}};\n// clang-format on\n\n"
    for name, _ in sets + newer:
        text += f"const std::span<const CodeRange> {name} = {name}Data;\n"
    text += "const std::span<const CodePair> kLower = kLowerData;\n\n"
    text += "}  // namespace meshwright::tokenizer\n"
    (folder / "unicode_tables.cc").write_text(text)

    rows, samples = script_ranges()
    text = HEAD.format(what="Scripts of characters as `tokenizers` tells them apart.")
    text += f"const ScriptRange kScriptsData[] = {{\n{table('', rows)}\n}};\n// clang-format on\n\n"
    text += "const std::span<const ScriptRange> kScripts = kScriptsData;\n\n"
    text += "}  // namespace meshwright::tokenizer\n"
    (folder / "script_table.cc").write_text(text)
    print(f"{sum(len(m) for _, m in sets + newer)} characters in {len(sets + newer)} sets, "
          f"{len(rows)} ranges of {len(samples)} scripts")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tokenizer"))
