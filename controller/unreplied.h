// Unreplied: messages to the actors of one worker that it has not replied to, and their bytes. Each
// is a credit that comes back with its reply.
//
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace meshwright::controller {

class Unreplied {
 public:
  void Add(uint64_t ask, int64_t bytes) {
    bytes_ += bytes;
    bytes_of_.emplace(ask, bytes);
  }
  // False: it was not waited for.
  bool Remove(uint64_t ask) {
    const auto it = bytes_of_.find(ask);
    if (it == bytes_of_.end()) return false;
    bytes_ -= it->second;
    bytes_of_.erase(it);
    return true;
  }
  bool Has(uint64_t ask) const { return bytes_of_.contains(ask); }
  size_t size() const { return bytes_of_.size(); }
  int64_t bytes() const { return bytes_; }

 private:
  std::map<uint64_t, int64_t> bytes_of_;
  int64_t bytes_ = 0;
};

}  // namespace meshwright::controller
