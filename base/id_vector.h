// IdVector: one T per id, so that an index of something else does not compile.
//
// A std::vector that is read by strong ids (base/ids.h): `users[value]` instead of a cast. An id
// beyond the end is a programmer's error and aborts, in release too: ids are checked where they
// come from outside (ir/verify.h). Thread rule: that of std::vector.
#pragma once

#include <utility>
#include <vector>

#include "base/ids.h"

namespace meshwright {

namespace internal {
[[noreturn]] void AbortOnId(size_t index, size_t size);
}  // namespace internal

// The place of `id` in a vector of `size`. REQUIRES: it is in there.
template <typename Id>
size_t CheckedIndex(Id id, size_t size) {
  if (id.index() >= size) internal::AbortOnId(id.index(), size);
  return id.index();
}

template <typename Id, typename T>
class IdVector {
 public:
  using Reference = typename std::vector<T>::reference;
  using ConstReference = typename std::vector<T>::const_reference;

  IdVector() = default;
  explicit IdVector(size_t size, const T& value = T()) : items_(size, value) {}

  // REQUIRES: id.index() < size().
  Reference operator[](Id id) { return items_[CheckedIndex(id, items_.size())]; }
  ConstReference operator[](Id id) const { return items_[CheckedIndex(id, items_.size())]; }
  bool Has(Id id) const { return id.index() < items_.size(); }

  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  void assign(size_t size, const T& value) { items_.assign(size, value); }
  void resize(size_t size) { items_.resize(size); }
  // The id of what was added.
  Id Add(T item) {
    items_.push_back(std::move(item));
    return Id(static_cast<typename Id::rep>(items_.size() - 1));
  }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  friend bool operator==(const IdVector&, const IdVector&) = default;

 private:
  std::vector<T> items_;
};

}  // namespace meshwright
