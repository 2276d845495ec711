// Small helpers of the targets: views of their input, and what a seed could not be made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/result.h"

namespace meshwright::fuzz {

inline std::span<const std::byte> BytesOf(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::span<const uint8_t> OctetsOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
inline std::string TextOf(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

// Of our own writers, which have to succeed.
template <typename T>
T Sure(Result<T> made) {
  MW_CHECK(made.has_value()) << made.error().message();
  return *std::move(made);
}

// What was read, written again and read again is the same text.
template <typename Read, typename Write>
void ExpectStable(std::string_view text, const Read& read, const Write& write) {
  const auto first = read(text);
  if (!first.has_value()) return;
  const std::string once = write(*first);
  const auto second = read(std::string_view(once));
  MW_CHECK(second.has_value()) << second.error().message();
  MW_CHECK(write(*second) == once) << "it is written differently the second time";
}

}  // namespace meshwright::fuzz
