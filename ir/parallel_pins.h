// The fields of ParallelSpec as a table: what the wire, records, fingerprints and reports do with
// all of them, they do by its rows. A new pin is a field of ParallelSpec, a row here and a key of
// job files (config/config_keys.cc).
//
// Thread rule: pure functions on values; the table is immutable.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "ir/job.h"

namespace meshwright::ir {

using PinMember = std::variant<int64_t ParallelSpec::*, std::string ParallelSpec::*,
                               std::optional<bool> ParallelSpec::*>;

struct Pin {
  const char* name;
  const char* key;  // of job files
  PinMember member;
  // The text that leaves it to the search; null: nothing decides it but the user.
  const char* open = nullptr;
  bool of_layout = false;  // a layout says it (planner::PinDegrees)
};
std::span<const Pin> Pins();

// The field as text: a number, the string as it is, "on", "off" or "auto".
std::string PinText(const Pin& pin, const ParallelSpec& spec);
// Errors: kInvalidArgument naming the pin and the text.
Status SetPin(const Pin& pin, std::string_view text, ParallelSpec& spec);
void CopyPin(const Pin& pin, const ParallelSpec& from, ParallelSpec& to);

// A line "name=text" per pin. ParsePins(FormatPins(x)) == x; what has no line keeps its default.
std::string FormatPins(const ParallelSpec& spec);
// Errors: kInvalidArgument naming the line.
Result<ParallelSpec> ParsePins(std::string_view text);

}  // namespace meshwright::ir
