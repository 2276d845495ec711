// When a search ends: two moments on one clock. Made once per plan and handed to all that look for
// it, which have no seconds of their own: what one of them takes the next ones do not have.
//
// Thread rule: immutable values. The clock outlives them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace meshwright::search {

class SearchTime {
 public:
  // better_ms: how long to look for better than what there is; any_ms: for anything at all.
  SearchTime(int64_t better_ms, int64_t any_ms, const Clock& clock)
      : clock_(&clock),
        better_(Deadline::After(better_ms, clock)),
        any_(Deadline::After(any_ms, clock)) {}

  const Clock& clock() const { return *clock_; }
  bool IsOver(bool has_answer) const { return left_ms(has_answer) == 0; }
  int64_t left_ms(bool has_answer) const { return (has_answer ? better_ : any_).remaining_ms(); }
  int64_t left_ms() const { return std::max(left_ms(true), left_ms(false)); }

  // Where there is an answer already: nothing is looked for at any price.
  SearchTime ForBetter() const { return Part(left_ms(true), left_ms(true)); }
  // That of one of so many things that are left to try.
  SearchTime OneOf(size_t parts) const {
    const auto n = static_cast<int64_t>(parts);
    return n <= 1 ? *this : Part(left_ms(true) / n, left_ms(false) / n);
  }
  // Whether others have some of the time: what was found in a part may be worse than what the
  // whole finds.
  bool is_part() const { return is_part_; }

 private:
  SearchTime Part(int64_t better_ms, int64_t any_ms) const {
    SearchTime part(better_ms, any_ms, *clock_);
    part.is_part_ = true;
    return part;
  }

  const Clock* clock_;
  Deadline better_;
  Deadline any_;
  bool is_part_ = false;
};

}  // namespace meshwright::search
