// Bytes that do not change: copies share them, so that a tensor of a message is not copied with
// each value that holds it.
//
// Thread rule: as a std::string that is only read. Ownership: shared; a part keeps the whole alive.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace meshwright {

class SharedBytes {
 public:
  SharedBytes() = default;
  SharedBytes(std::string bytes)  // NOLINT: what makes bytes makes a string
      : owner_(std::make_shared<const std::string>(std::move(bytes))), bytes_(*owner_) {}
  SharedBytes(const char* text) : SharedBytes(std::string(text)) {}  // NOLINT: as a string has it

  operator std::string_view() const { return bytes_; }  // NOLINT: read as any other bytes
  std::string_view view() const { return bytes_; }
  const char* data() const { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  // `count` bytes from `at` on, or as many as there are. REQUIRES: at <= size().
  SharedBytes Part(size_t at, size_t count) const {
    SharedBytes part;
    part.owner_ = owner_;
    part.bytes_ = bytes_.substr(at, count);
    return part;
  }

  friend bool operator==(const SharedBytes& a, const SharedBytes& b) {
    return a.bytes_ == b.bytes_;
  }

 private:
  std::shared_ptr<const std::string> owner_;
  std::string_view bytes_;
};

}  // namespace meshwright
