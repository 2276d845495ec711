#include "worker/token_data.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/philox.h"
#include "base/utf8.h"

namespace meshwright::worker {
namespace {

constexpr int kFeistelRounds = 6;

// Bytes of a token, or 0.
int TokenBytes(const std::string& format) {
  if (format == "bytes") return 1;
  if (format == "uint16") return 2;
  if (format == "uint32") return 4;
  return 0;
}

int64_t Windows(int64_t tokens, int64_t sequence) {
  return tokens < sequence + 1 ? 0 : (tokens - 1) / sequence;
}

int64_t TrainingTokens(int64_t tokens, double validation_fraction) {
  return tokens -
         static_cast<int64_t>(std::floor(static_cast<double>(tokens) * validation_fraction));
}

// 64 random bits that depend on nothing but (seed, epoch, purpose).
uint64_t EpochBits(uint64_t seed, int64_t epoch, std::string_view purpose) {
  const PhiloxBlock block = Philox(seed, static_cast<uint64_t>(epoch), StreamOf(purpose));
  return uint64_t{block[1]} << 32 | block[0];
}

// A balanced Feistel network over 2 * half_bits bits.
uint64_t Feistel(uint64_t value, int half_bits, uint64_t key) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits;
  uint64_t right = value & mask;
  for (int round = 0; round < kFeistelRounds; ++round) {
    const PhiloxBlock block = Philox(key, right, static_cast<uint64_t>(round));
    const uint64_t mixed = (uint64_t{block[1]} << 32 | block[0]) & mask;
    left = std::exchange(right, left ^ mixed);
  }
  return left << half_bits | right;
}

}  // namespace

int64_t FindInvalidUtf8(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080ull;
  size_t i = 0;
  while (i < text.size()) {
    uint64_t word = 0;
    if (text.size() - i >= sizeof(word)) {
      std::memcpy(&word, text.data() + i, sizeof(word));
      if ((word & kHighBits) == 0) {
        i += sizeof(word);
        continue;
      }
    }
    const size_t length = Utf8Length(text.substr(i));
    if (length == 0) return static_cast<int64_t>(i);
    i += length;
  }
  return -1;
}

int64_t PermutedIndex(int64_t index, int64_t size, uint64_t key) {
  if (size == 1) return 0;
  // The network covers less than 4 * size values, so the walk takes less than 4 tries on average.
  // It comes back inside because the cycle of a permutation that starts inside does.
  const int bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(size - 1)));
  const int half_bits = (bits + 1) / 2;
  auto value = static_cast<uint64_t>(index);
  do {
    value = Feistel(value, half_bits, key);
  } while (value >= static_cast<uint64_t>(size));
  return static_cast<int64_t>(value);
}

Result<std::unique_ptr<TokenData>> TokenData::Open(const DataFile& file, const std::string& format,
                                                   int64_t sequence, double validation_fraction,
                                                   uint64_t seed, int64_t vocab_size) {
  const std::string& name = file.name.empty() ? file.path : file.name;
  Layout layout{name, TokenBytes(format), sequence, vocab_size, seed};
  if (layout.token_bytes == 0) {
    return Fail(InvalidArgument(fmt::format(
        "token file {}: unknown format '{}'; known: bytes, uint16, uint32", name, format)));
  }
  if (sequence < 1 || vocab_size < 1 || !(validation_fraction >= 0 && validation_fraction < 1)) {
    return Fail(InvalidArgument(fmt::format(
        "token file {}: sequence {}, vocabulary {}, validation fraction {}; sizes must be at least "
        "1 and the fraction in [0, 1)",
        name, sequence, vocab_size, validation_fraction)));
  }
  MW_ASSIGN_OR_RETURN(MemoryMappedFile map, MemoryMappedFile::Open(file.path));
  std::unique_ptr<TokenData> data(
      new TokenData(std::move(map), std::move(layout), validation_fraction));
  MW_TRY(data->CheckContents());
  return data;
}

TokenData::TokenData(MemoryMappedFile file, Layout layout, double validation_fraction)
    : file_(std::move(file)),
      layout_(std::move(layout)),
      tokens_(file_.bytes() / layout_.token_bytes),
      training_tokens_(TrainingTokens(tokens_, validation_fraction)),
      training_windows_(Windows(training_tokens_, layout_.sequence)),
      validation_windows_(Windows(tokens_ - training_tokens_, layout_.sequence)) {}

Status TokenData::CheckContents() const {
  const std::string name = fmt::format("token file {}", layout_.name);
  if (file_.bytes() == 0) return InvalidArgument(name + " is empty");
  if (file_.bytes() % layout_.token_bytes != 0) {
    return InvalidArgument(fmt::format(
        "{} is truncated: {} bytes are no whole number of {}-byte tokens; write it again", name,
        file_.bytes(), layout_.token_bytes));
  }
  if (training_windows_ == 0) {
    return InvalidArgument(
        fmt::format("{} is too short: {} tokens, {} of them for training, but a row needs {} "
                    "(sequence {} + 1); "
                    "use a longer file or a shorter sequence",
                    name, tokens_, training_tokens_, layout_.sequence + 1, layout_.sequence));
  }
  if (layout_.token_bytes > 1) return OkStatus();
  const int64_t invalid = FindInvalidUtf8(file_.text());
  if (invalid < 0) return OkStatus();
  return InvalidArgument(fmt::format(
      "{} is not UTF-8 text: invalid sequence at byte offset {} (0x{:02x}); convert it to "
      "UTF-8 or use format uint16 or uint32",
      name, invalid, static_cast<unsigned>(file_.data()[invalid])));
}

int64_t TokenData::TokenAt(int64_t position) const {
  // Little endian, byte by byte: right on any host, one load on this one.
  uint32_t token = 0;
  const std::byte* bytes = file_.data() + position * layout_.token_bytes;
  for (int i = 0; i < layout_.token_bytes; ++i) token |= static_cast<uint32_t>(bytes[i]) << (8 * i);
  return token;
}

int64_t TokenData::TrainingStart(int64_t sample) const {
  const int64_t epoch = sample / training_windows_;
  const int64_t window = PermutedIndex(sample % training_windows_, training_windows_,
                                       EpochBits(layout_.seed, epoch, "data/window"));
  const int64_t spare = training_tokens_ - 1 - training_windows_ * layout_.sequence;
  const uint64_t shift =
      EpochBits(layout_.seed, epoch, "data/shift") % (static_cast<uint64_t>(spare) + 1);
  return window * layout_.sequence + static_cast<int64_t>(shift);
}

Status TokenData::ReadSample(const std::string& source, int64_t sample, std::span<int32_t> row) {
  if (sample < 0 || static_cast<int64_t>(row.size()) != layout_.sequence + 1) {
    return InvalidArgument(
        fmt::format("token file {}: sample {} with a row of {} tokens; rows of {}", layout_.name,
                    sample, row.size(), layout_.sequence + 1));
  }
  int64_t start = 0;
  if (source == "tokens") {
    start = TrainingStart(sample);
  } else if (source != "validation") {
    return InvalidArgument(
        fmt::format("unknown feed source '{}'; known: tokens, validation", source));
  } else if (validation_windows_ == 0) {
    return FailedPrecondition(fmt::format(
        "token file {}: {} validation tokens, but a row needs {}; raise validation_fraction",
        layout_.name, tokens_ - training_tokens_, layout_.sequence + 1));
  } else {
    start = training_tokens_ + sample % validation_windows_ * layout_.sequence;
  }
  for (size_t i = 0; i < row.size(); ++i) {
    const int64_t position = start + static_cast<int64_t>(i);
    const int64_t token = TokenAt(position);
    if (token >= layout_.vocab_size) {
      return InvalidArgument(
          fmt::format("token file {}: token {} at position {} is outside the vocabulary of {}; the "
                      "file was made "
                      "for another tokenizer",
                      layout_.name, token, position, layout_.vocab_size));
    }
    row[i] = static_cast<int32_t>(token);
  }
  return OkStatus();
}

}  // namespace meshwright::worker
