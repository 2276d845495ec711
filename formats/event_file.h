// TensorBoard's event files: numbers by tag and step.
//
//   file   := record*
//   record := u64le length | u32le masked_crc32c(the 8 bytes of length) | data
//             | u32le masked_crc32c(data)
//   data   := protobuf Event {double wall_time = 1; int64 step = 2; string file_version = 3;
//             Summary summary = 5}, Summary {repeated Value value = 1},
//             Value {string tag = 1; float simple_value = 2}
//   masked_crc32c(x) = rotate_right(crc32c(x), 15) + 0xa282ead8, crc32c by Castagnoli
//
// The first record has file_version "brain.Event:2". Files are appended to; a record that is not
// whole at the end of a file is one that is still being written.
//
// Thread rule: pure functions. Source: TensorFlow, its record writer and its event messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace meshwright::formats {

// Castagnoli's, not masked: of "123456789" it is 0xe3069283.
uint32_t Crc32c(std::string_view bytes);
uint32_t MaskedCrc32c(std::string_view bytes);

struct EventScalar {
  std::string tag;
  float value = 0;
  friend bool operator==(const EventScalar&, const EventScalar&) = default;
};

struct Event {
  double wall_time = 0;  // seconds since 1970
  int64_t step = 0;
  std::string file_version;  // of the first record; then there are no scalars
  std::vector<EventScalar> scalars;
  friend bool operator==(const Event&, const Event&) = default;
};

inline constexpr std::string_view kEventFileVersion = "brain.Event:2";

// As a record of a file.
std::string FormatEvent(const Event& event);

// All whole records of a file; what TensorBoard writes beside scalars is left out. Errors:
// kDataLoss: a checksum or a message is wrong, with the byte at which its record begins.
Result<std::vector<Event>> ParseEvents(std::string_view bytes);

// "events.out.tfevents.<unix seconds, ten digits>.<host>.<rest>".
std::string EventFileName(int64_t unix_s, std::string_view host, std::string_view rest);

}  // namespace meshwright::formats
