#include "controller/cause_election.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"

namespace meshwright::controller {

void CauseElection::Add(proto::RuntimeError error) {
  MW_CHECK(!error.ok() || errors_ > 0) << "a mesh fails without a cause";
  const bool is_wanted = error.kind == proto::ErrorKind::kCancelled;
  const bool is_better =
      errors_ == 0 || is_wanted || (leader_.MayBeVictim() && !error.MayBeVictim());
  if (is_better) leader_ = std::move(error);
  ++errors_;
}

bool CauseElection::IsSettled(int64_t waited_ms, int64_t election_ms) const {
  return !leader_.MayBeVictim() || waited_ms >= election_ms;
}

proto::RuntimeError CauseElection::Conclude() const {
  proto::RuntimeError cause = leader_;
  if (cause.kind != proto::ErrorKind::kCancelled && errors_ > 1) {
    cause.message += fmt::format(" ({} other errors followed from it)", errors_ - 1);
  }
  return cause;
}

}  // namespace meshwright::controller
