#include "data/token_headers.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <string_view>

#include "base/check.h"

namespace meshwright::data {
namespace {

constexpr int64_t kLlmcHeaderBytes = 256 * 4;
constexpr std::string_view kMegatronMagic("MMIDIDX\0\0", 9);
constexpr size_t kMegatronHeaderBytes = 9 + 8 + 1 + 8 + 8;
constexpr uint64_t kMegatronVersion = 1;

template <typename T>
T Load(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// Types that tokens can have; floats and single signed bytes cannot.
std::optional<ir::Element> MegatronElement(uint8_t code) {
  switch (code) {
    case 1:
      return ir::Element::kU8;
    case 3:
      return ir::Element::kI16;
    case 4:
      return ir::Element::kI32;
    case 5:
      return ir::Element::kI64;
    case 8:
      return ir::Element::kU16;
    default:
      return std::nullopt;
  }
}

// The sequences fill the .bin in order. Returns their tokens.
Result<int64_t> SumSequences(std::span<const std::byte> index, size_t sequences,
                             int64_t token_bytes, int64_t bin_bytes) {
  MW_CHECK(sequences <= (index.size() - kMegatronHeaderBytes) / 12)
      << sequences << " sequences in " << index.size() << " bytes";
  const size_t lengths = kMegatronHeaderBytes;
  const size_t offsets = lengths + sequences * sizeof(int32_t);
  int64_t position = 0;
  for (size_t i = 0; i < sequences; ++i) {
    const auto length = Load<int32_t>(index, lengths + i * sizeof(int32_t));
    const auto offset = Load<int64_t>(index, offsets + i * sizeof(int64_t));
    if (length < 0 || offset != position || position > bin_bytes) {
      return Fail(InvalidArgument(
          fmt::format("sequence {} has {} tokens from byte {} on; those before it end at byte {}, "
                      "and sequences must follow each other",
                      i, length, offset, position)));
    }
    position += length * token_bytes;
  }
  if (position != bin_bytes) {
    return Fail(InvalidArgument(
        fmt::format("the sequences take {} bytes, the .bin file has {}: it is truncated, or of "
                    "another index",
                    position, bin_bytes)));
  }
  return position / token_bytes;
}

}  // namespace

Result<TokenRange> ParseLlmcHeader(std::span<const std::byte> prefix, int64_t file_bytes) {
  if (file_bytes < kLlmcHeaderBytes || static_cast<int64_t>(prefix.size()) < kLlmcHeaderBytes) {
    return Fail(
        InvalidArgument(fmt::format("{} bytes are too few for the header of llm.c, which "
                                    "has {}",
                                    file_bytes, kLlmcHeaderBytes)));
  }
  const auto magic = Load<int32_t>(prefix, 0);
  const auto version = Load<int32_t>(prefix, 4);
  const auto tokens = Load<int32_t>(prefix, 8);
  TokenRange range{ir::Element::kU16, kLlmcHeaderBytes, tokens};
  if (magic == 20240801 && version == 7) {
    range.element = ir::Element::kU32;
  } else if (magic != 20240520 || version != 1) {
    return Fail(InvalidArgument(
        fmt::format("magic {} and version {} are not those of a token file of llm.c (20240520 and "
                    "1, or 20240801 and 7)",
                    magic, version)));
  }
  const int64_t wanted = kLlmcHeaderBytes + int64_t{tokens} * ir::ElementBytes(range.element);
  if (tokens < 0 || wanted != file_bytes) {
    return Fail(InvalidArgument(fmt::format(
        "the header says {} tokens, so {} bytes; the file has {}: it is {}", tokens, wanted,
        file_bytes, file_bytes < wanted ? "truncated" : "longer than it says")));
  }
  return range;
}

Result<TokenRange> ParseMegatronIndex(std::span<const std::byte> index, int64_t bin_bytes) {
  if (index.size() < kMegatronHeaderBytes ||
      std::memcmp(index.data(), kMegatronMagic.data(), kMegatronMagic.size()) != 0) {
    return Fail(InvalidArgument("it does not start with the magic of an .idx file of Megatron"));
  }
  const auto version = Load<uint64_t>(index, 9);
  const auto code = Load<uint8_t>(index, 17);
  const auto sequences = Load<uint64_t>(index, 18);
  const auto documents = Load<uint64_t>(index, 26);
  if (version != kMegatronVersion) {
    return Fail(InvalidArgument(fmt::format("its version is {}; known: 1", version)));
  }
  const std::optional<ir::Element> element = MegatronElement(code);
  if (!element) {
    return Fail(InvalidArgument(fmt::format(
        "its type code is {}; tokens are uint8 (1), int16 (3), int32 (4), int64 (5) or uint16 (8)",
        code)));
  }
  // Divisions, since products of made-up counts overflow. Modes of multimodal data may follow.
  const uint64_t rest = index.size() - kMegatronHeaderBytes;
  if (sequences > rest / 12 || documents > (rest - sequences * 12) / 8) {
    return Fail(InvalidArgument(
        fmt::format("it says {} sequences and {} documents, which do not fit its {} bytes: it is "
                    "truncated",
                    sequences, documents, index.size())));
  }
  MW_ASSIGN_OR_RETURN(const int64_t tokens,
                      SumSequences(index, sequences, ir::ElementBytes(*element), bin_bytes));
  return TokenRange{*element, 0, tokens};
}

}  // namespace meshwright::data
