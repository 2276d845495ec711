#include "formats/event_file.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <optional>

namespace meshwright::formats {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kCrcBytes = 4;
// Of one record that is taken for one: a length that is damaged is not allocated.
constexpr uint64_t kMostRecordBytes = uint64_t{1} << 30;

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = MakeCrcTable();

template <typename T>
std::string LittleEndian(T value) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

template <typename T>
T FromLittleEndian(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

// ---- Protobuf's wire format, as far as events need it -------------------------------------------

enum class Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void PutVarint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void PutKey(std::string& out, uint32_t field, Wire wire) {
  PutVarint(out, field << 3 | static_cast<uint32_t>(wire));
}

void PutBytes(std::string& out, uint32_t field, std::string_view bytes) {
  PutKey(out, field, Wire::kBytes);
  PutVarint(out, bytes.size());
  out += bytes;
}

struct Field {
  uint32_t number = 0;
  Wire wire = Wire::kVarint;
  uint64_t varint = 0;
  std::string_view bytes;  // of the others: what it consists of
};

// Takes the next field off a message; none: the message is at its end, or damaged.
class FieldReader {
 public:
  explicit FieldReader(std::string_view message) : rest_(message) {}

  std::optional<Field> Next() {
    if (rest_.empty()) return std::nullopt;
    Field field;
    const uint64_t key = Varint();
    field.number = static_cast<uint32_t>(key >> 3);
    field.wire = static_cast<Wire>(key & 7);
    if (field.wire == Wire::kVarint) {
      field.varint = Varint();
    } else if (field.wire == Wire::kFixed64) {
      field.bytes = Take(8);
    } else if (field.wire == Wire::kFixed32) {
      field.bytes = Take(4);
    } else if (field.wire == Wire::kBytes) {
      field.bytes = Take(Varint());
    } else {
      damaged_ = true;
    }
    if (damaged_ || field.number == 0) {
      damaged_ = true;
      return std::nullopt;
    }
    return field;
  }
  bool damaged() const { return damaged_; }

 private:
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) break;
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    damaged_ = true;
    return 0;
  }
  std::string_view Take(uint64_t count) {
    if (count > rest_.size()) {
      damaged_ = true;
      return {};
    }
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::string_view rest_;
  bool damaged_ = false;
};

// False: damaged.
bool ReadValue(std::string_view message, std::vector<EventScalar>& scalars) {
  EventScalar scalar;
  bool has_value = false;
  FieldReader reader(message);
  while (const auto field = reader.Next()) {
    if (field->number == 1 && field->wire == Wire::kBytes) scalar.tag = std::string(field->bytes);
    if (field->number == 2 && field->wire == Wire::kFixed32) {
      scalar.value = FromLittleEndian<float>(field->bytes);
      has_value = true;
    }
  }
  if (has_value && !reader.damaged()) scalars.push_back(std::move(scalar));
  return !reader.damaged();
}

bool ReadSummary(std::string_view message, std::vector<EventScalar>& scalars) {
  FieldReader reader(message);
  while (const auto field = reader.Next()) {
    if (field->number != 1 || field->wire != Wire::kBytes) continue;
    if (!ReadValue(field->bytes, scalars)) return false;
  }
  return !reader.damaged();
}

bool ReadEvent(std::string_view message, Event& event) {
  FieldReader reader(message);
  while (const auto field = reader.Next()) {
    if (field->number == 1 && field->wire == Wire::kFixed64) {
      event.wall_time = FromLittleEndian<double>(field->bytes);
    } else if (field->number == 2 && field->wire == Wire::kVarint) {
      event.step = static_cast<int64_t>(field->varint);
    } else if (field->number == 3 && field->wire == Wire::kBytes) {
      event.file_version = std::string(field->bytes);
    } else if (field->number == 5 && field->wire == Wire::kBytes) {
      if (!ReadSummary(field->bytes, event.scalars)) return false;
    }
  }
  return !reader.damaged();
}

std::string SummaryOf(const std::vector<EventScalar>& scalars) {
  std::string summary;
  for (const EventScalar& scalar : scalars) {
    std::string value;
    PutBytes(value, 1, scalar.tag);
    PutKey(value, 2, Wire::kFixed32);
    value += LittleEndian(scalar.value);
    PutBytes(summary, 1, value);
  }
  return summary;
}

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffffu;
  for (const char c : bytes) crc = kCrcTable[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

uint32_t MaskedCrc32c(std::string_view bytes) { return std::rotr(Crc32c(bytes), 15) + 0xa282ead8u; }

std::string FormatEvent(const Event& event) {
  std::string data;
  PutKey(data, 1, Wire::kFixed64);
  data += LittleEndian(event.wall_time);
  if (event.step != 0) {
    PutKey(data, 2, Wire::kVarint);
    PutVarint(data, static_cast<uint64_t>(event.step));
  }
  if (!event.file_version.empty()) PutBytes(data, 3, event.file_version);
  if (!event.scalars.empty()) PutBytes(data, 5, SummaryOf(event.scalars));
  const std::string length = LittleEndian(static_cast<uint64_t>(data.size()));
  return length + LittleEndian(MaskedCrc32c(length)) + data + LittleEndian(MaskedCrc32c(data));
}

Result<std::vector<Event>> ParseEvents(std::string_view bytes) {
  std::vector<Event> events;
  size_t begin = 0;
  const auto damaged = [&](const char* what) {
    return Fail(
        DataLoss(fmt::format("event file: the {} of the record at byte {} is wrong", what, begin)));
  };
  for (;;) {
    const std::string_view rest = bytes.substr(begin);
    if (rest.size() < kLengthBytes + kCrcBytes) return events;
    const auto length = FromLittleEndian<uint64_t>(rest);
    const auto length_crc = FromLittleEndian<uint32_t>(rest.substr(kLengthBytes));
    if (length_crc != MaskedCrc32c(rest.substr(0, kLengthBytes)) || length > kMostRecordBytes) {
      return damaged("length");
    }
    if (rest.size() < kLengthBytes + kCrcBytes + length + kCrcBytes) return events;
    const std::string_view data = rest.substr(kLengthBytes + kCrcBytes, length);
    const std::string_view crc = rest.substr(kLengthBytes + kCrcBytes + length);
    if (FromLittleEndian<uint32_t>(crc) != MaskedCrc32c(data)) return damaged("checksum");
    Event event;
    if (!ReadEvent(data, event)) return damaged("message");
    events.push_back(std::move(event));
    begin += kLengthBytes + kCrcBytes + length + kCrcBytes;
  }
}

std::string EventFileName(int64_t unix_s, std::string_view host, std::string_view rest) {
  return fmt::format("events.out.tfevents.{:010}.{}.{}", unix_s, host, rest);
}

}  // namespace meshwright::formats
