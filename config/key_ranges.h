// What values a key of a job file may have.
//
// Ranges are checked where a value is read, so that an error has the value's position. They are
// those of ir::ValidateJob and of the models, which check again for other clients.
//
// Thread rule: constant data.
#pragma once

#include <string>
#include <string_view>

namespace meshwright::config {

struct KeyRange {
  std::string_view section;
  std::string_view name;
  double low = 0;
  double high = 0;
  bool open_low = false;   // low itself is out
  bool open_high = false;  // high itself is out

  bool Has(double value) const;  // false for NaN
  std::string ToString() const;  // "[0, 1)", "at least 0"
};

// Null when every value of the key's type will do. -1 of a degree is "auto" and outside of the
// range.
const KeyRange* FindRange(std::string_view section, std::string_view name);

}  // namespace meshwright::config
