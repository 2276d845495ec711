// The header of a .npy file: one array of NumPy.
//
//   "\x93NUMPY", u8 major, u8 minor, header length (u16 of version 1, u32 of 2 and 3), header, data
//   header: a Python dict, {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 28, 28), }
//
// Thread rule: pure functions, safe on any input.
// Source: NumPy, numpy/lib/format.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "ir/element.h"
#include "ir/graph.h"

namespace meshwright::data {

struct NpyHeader {
  ir::Element element = ir::Element::kF32;
  ir::Dims shape;
  int64_t data_begin_bytes = 0;
  friend bool operator==(const NpyHeader&, const NpyHeader&) = default;
};

// The bytes that ParseNpyHeader needs at most.
inline constexpr int64_t kMaxNpyHeaderBytes = 1 << 16;

// `prefix`: the first bytes of a file of `file_bytes` bytes.
// Errors: kInvalidArgument saying what is wrong: no such header, a type that cannot be fed
// (objects, text, big endian), an array in Fortran's order, a shape that does not match the file.
Result<NpyHeader> ParseNpyHeader(std::span<const std::byte> prefix, int64_t file_bytes);

// What stands before the values of such an array, of version 1 and as long as aligned values need.
// Errors: kInvalidArgument: NumPy has no such type.
Result<std::string> MakeNpyHeader(ir::Element element, const ir::Dims& shape);

}  // namespace meshwright::data
