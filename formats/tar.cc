#include "formats/tar.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string_view>

#include "base/check.h"

namespace meshwright::formats {
namespace {

constexpr size_t kBlock = 512;
// Eleven octal digits.
constexpr uint64_t kMostBytes = (uint64_t{1} << 33) - 1;

// At its offset and of its length in the header.
struct TarField {
  size_t offset;
  size_t bytes;
};
constexpr TarField kName = {0, 100};
constexpr TarField kMode = {100, 8};
constexpr TarField kOwner = {108, 8};
constexpr TarField kGroup = {116, 8};
constexpr TarField kSize = {124, 12};
constexpr TarField kTime = {136, 12};
constexpr TarField kSum = {148, 8};
constexpr TarField kType = {156, 1};
constexpr TarField kMagic = {257, 8};

using Header = std::array<char, kBlock>;

void Put(Header& header, const TarField& field, std::string_view text) {
  MW_CHECK(text.size() <= field.bytes) << "'" << std::string(text) << "' does not fit";
  std::memcpy(header.data() + field.offset, text.data(), text.size());
}

// Octal, with zeros before it and a NUL behind.
void PutNumber(Header& header, const TarField& field, uint64_t number) {
  Put(header, field, fmt::format("{:0{}o}", number, field.bytes - 1));
}

Header HeaderOf(const TarFile& file, int64_t unix_s) {
  MW_CHECK(!file.name.empty() && file.name.size() <= kMostNameBytes) << file.name;
  MW_CHECK(file.name.front() != '/' && file.name.find("..") == std::string::npos) << file.name;
  MW_CHECK(file.bytes.size() <= kMostBytes) << file.name << " is too large";
  Header header{};
  Put(header, kName, file.name);
  PutNumber(header, kMode, 0600);
  PutNumber(header, kOwner, 0);
  PutNumber(header, kGroup, 0);
  PutNumber(header, kSize, file.bytes.size());
  PutNumber(header, kTime, static_cast<uint64_t>(unix_s < 0 ? 0 : unix_s));
  Put(header, kType, "0");
  Put(header, kMagic,
      std::string_view("ustar\0"
                       "00",
                       8));
  // The sum of all bytes, with spaces in its own place.
  Put(header, kSum, "        ");
  uint64_t sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  Put(header, kSum, std::string_view(fmt::format("{:06o}", sum) + std::string("\0 ", 2)));
  return header;
}

}  // namespace

std::string TarOf(const std::vector<TarFile>& files, int64_t unix_s) {
  std::string tar;
  for (const TarFile& file : files) {
    const Header header = HeaderOf(file, unix_s);
    tar.append(header.data(), header.size());
    tar += file.bytes;
    tar.append((kBlock - file.bytes.size() % kBlock) % kBlock, '\0');
  }
  tar.append(2 * kBlock, '\0');  // the end
  return tar;
}

}  // namespace meshwright::formats
