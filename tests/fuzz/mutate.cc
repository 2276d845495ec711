#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace meshwright::fuzz {
namespace {

constexpr std::array<const char*, 24> kNumbers = {"0",
                                                  "-1",
                                                  "1",
                                                  "2147483647",
                                                  "2147483648",
                                                  "-2147483649",
                                                  "4294967295",
                                                  "4294967296",
                                                  "9223372036854775807",
                                                  "-9223372036854775808",
                                                  "9223372036854775808",
                                                  "18446744073709551615",
                                                  "99999999999999999999999",
                                                  "1e308",
                                                  "1e999",
                                                  "-1e-999",
                                                  "nan",
                                                  "inf",
                                                  "0x10",
                                                  "1000000007",
                                                  "65536",
                                                  "3037000500",
                                                  "0.5",
                                                  "null"};
constexpr std::array<uint64_t, 14> kWords = {0,
                                             1,
                                             0x7f,
                                             0x80,
                                             0xff,
                                             0x7fff,
                                             0xffff,
                                             0x7fffffff,
                                             0x80000000,
                                             0xffffffff,
                                             0x100000000,
                                             0x7fffffffffffffff,
                                             0x8000000000000000,
                                             0xffffffffffffffff};
constexpr std::array<const char*, 10> kOpeners = {"[",          "{", "(",  "{\"a\":", "[[",
                                                  "{% if a %}", "-", "\"", "<",       "{{"};

struct Range {
  size_t begin = 0;
  size_t count = 0;
};

Range AnyRange(const std::string& bytes, Random& random) {
  if (bytes.empty()) return {};
  const size_t begin = random.Below(bytes.size());
  const size_t most = std::min<size_t>(bytes.size() - begin, random.OneOf(4) ? bytes.size() : 16);
  return {begin, 1 + random.Below(most)};
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// A number in the text, or one byte where there is none.
Range AnyNumber(const std::string& bytes, Random& random) {
  if (bytes.empty()) return {};
  const size_t start = random.Below(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    size_t at = (start + i) % bytes.size();
    if (!IsDigit(bytes[at])) continue;
    while (at > 0 && IsDigit(bytes[at - 1])) --at;
    size_t end = at;
    while (end < bytes.size() && IsDigit(bytes[end])) ++end;
    return {at, end - at};
  }
  return {start, 1};
}

void Insert(std::string& bytes, size_t at, std::string_view what) {
  bytes.insert(std::min(at, bytes.size()), what.data(), what.size());
}

// `width` bytes of a number, in either order.
void SetWord(std::string& bytes, Random& random) {
  const size_t width = size_t{1} << random.Below(4);
  if (bytes.size() < width) return;
  uint64_t word = kWords[random.Below(kWords.size())];
  if (random.OneOf(3)) word = bytes.size() + random.Below(3) - 1;
  std::array<char, 8> raw{};
  std::memcpy(raw.data(), &word, sizeof word);
  if (random.OneOf(3)) std::reverse(raw.begin(), raw.begin() + static_cast<std::ptrdiff_t>(width));
  const size_t at = random.Below(bytes.size() - width + 1);
  std::copy_n(raw.begin(), width, bytes.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace

uint64_t Random::Next() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

const std::string& Mutator::AnySeed(Random& random) const {
  return seeds_[random.Below(seeds_.size())];
}

std::string Mutator::Make(uint64_t number) const {
  std::string bytes;
  MakeInto(number, bytes);
  return bytes;
}

void Mutator::MakeInto(uint64_t number, std::string& bytes) const {
  if (number < seeds_.size()) {
    bytes = seeds_[number];
    return;
  }
  Random random(seed_ ^ (number * 0xd1342543de82ef95));
  bytes = AnySeed(random);
  for (size_t turns = 1 + random.Below(random.OneOf(3) ? 8 : 2); turns > 0; --turns) {
    Mutate(bytes, random);
  }
  if (bytes.size() > kMostBytes) bytes.erase(kMostBytes);
}

void Mutator::Mutate(std::string& bytes, Random& random) const {
  const Range range = AnyRange(bytes, random);
  switch (random.Below(13)) {
    case 0:  // a bit
      if (!bytes.empty()) bytes[range.begin] ^= static_cast<char>(1u << random.Below(8));
      return;
    case 1:  // bytes
      for (size_t i = 0; i < range.count; ++i) {
        bytes[range.begin + i] = static_cast<char>(random.Next());
      }
      return;
    case 2:  // its end is gone
      bytes.erase(range.begin);
      return;
    case 3:  // a part is gone
      bytes.erase(range.begin, range.count);
      return;
    case 4:  // a part twice
      Insert(bytes, range.begin, std::string(bytes, range.begin, range.count));
      return;
    case 5: {  // a part elsewhere
      const std::string part(bytes, range.begin, range.count);
      Insert(bytes, random.Below(bytes.size() + 1), part);
      return;
    }
    case 6: {  // the end of another
      const std::string& other = AnySeed(random);
      if (other.empty()) return;
      bytes.erase(range.begin);
      bytes += other.substr(random.Below(other.size()));
      return;
    }
    case 7: {  // a word of another
      const std::string& other = AnySeed(random);
      const Range word = AnyRange(other, random);
      Insert(bytes, range.begin, std::string(other, word.begin, word.count));
      return;
    }
    case 8:
    case 9: {  // a number
      const Range at = AnyNumber(bytes, random);
      bytes.replace(at.begin, at.count, kNumbers[random.Below(kNumbers.size())]);
      return;
    }
    case 10:
    case 11:
      SetWord(bytes, random);
      return;
    default: {  // deep
      const std::string_view opener = kOpeners[random.Below(kOpeners.size())];
      std::string deep(opener);
      for (size_t doubled = random.Below(14); doubled > 0; --doubled) deep += deep;
      Insert(bytes, range.begin, deep);
      return;
    }
  }
}

}  // namespace meshwright::fuzz
