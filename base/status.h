// Status: the outcome of an operation, a value that travels like any other.
//
// A Status is two pointers wide; null means OK. Codes are the 17 canonical gRPC codes with the same
// numeric values, so the bridge to the wire is a cast. The message says what failed, with which
// values, and what would fix it. What the caller does next follows from the code: kUnavailable
// retry the call; kAborted restart the step; kFailedPrecondition do not retry, state must change;
// kResourceExhausted says requested and free; kDataLoss stop and restore; kInvalidArgument the
// user's fault, field named.
//
// Thread rule: immutable after construction, freely shared between threads.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>

namespace meshwright {

enum class StatusCode : int32_t {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// Canonical lower-case name, e.g. "invalid argument".
std::string_view StatusCodeName(StatusCode code);

// Who has to act. Numbers are stable on the wire.
enum class Blame : int32_t {
  kUnspecified = 0,
  kUser = 1,
  kInfra = 2,
  kHardware = 3,
  kPeerVictim = 4,
  kOverload = 5,
  kInternal = 6,
};

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(StatusCode code, std::string message, const char* file = __builtin_FILE(),
         int line = __builtin_LINE());

  bool ok() const { return detail_ == nullptr; }
  StatusCode code() const;
  const std::string& message() const;
  Blame blame() const;
  // Where the status was made and passed on, oldest first: "planner/lower.cc:120 < cli/plan.cc:41".
  // For logs.
  const std::string& trail() const;

  // What of a request an error is about, as a path ("train.steps"); "" where that is not one thing.
  // The message begins with it, behind its contexts.
  const std::string& field() const;
  // The same error for people who know the field by another name: a key of a file, an option.
  // REQUIRES: there is a field.
  Status WithFieldCalled(std::string_view name) const;

  // A copy with "context: " before the message. OK stays OK.
  Status WithContext(std::string_view context) const;
  Status WithBlame(Blame blame) const;
  Status WithLocation(const char* file, int line) const;

  // "invalid argument: message". OK prints "ok".
  std::string ToString() const;

  friend bool operator==(const Status& a, const Status& b) {
    return a.code() == b.code() && a.message() == b.message();
  }

 private:
  friend Status InvalidField(std::string field, std::string what, const char* file, int line);
  struct Detail;
  std::shared_ptr<const Detail> detail_;
};

std::ostream& operator<<(std::ostream& out, const Status& status);

inline Status OkStatus() { return Status(); }

// Short makers. `message` is complete: what, values, fix.
#define MW_DECLARE_STATUS_MAKER(Name) \
  Status Name(std::string message, const char* file = __builtin_FILE(), int line = __builtin_LINE())
MW_DECLARE_STATUS_MAKER(Cancelled);
MW_DECLARE_STATUS_MAKER(InvalidArgument);
MW_DECLARE_STATUS_MAKER(DeadlineExceeded);
MW_DECLARE_STATUS_MAKER(NotFound);
MW_DECLARE_STATUS_MAKER(AlreadyExists);
MW_DECLARE_STATUS_MAKER(PermissionDenied);
MW_DECLARE_STATUS_MAKER(ResourceExhausted);
MW_DECLARE_STATUS_MAKER(FailedPrecondition);
MW_DECLARE_STATUS_MAKER(Aborted);
MW_DECLARE_STATUS_MAKER(OutOfRange);
MW_DECLARE_STATUS_MAKER(Unimplemented);
MW_DECLARE_STATUS_MAKER(Internal);
MW_DECLARE_STATUS_MAKER(Unavailable);
MW_DECLARE_STATUS_MAKER(DataLoss);
MW_DECLARE_STATUS_MAKER(Unauthenticated);
#undef MW_DECLARE_STATUS_MAKER

// kInvalidArgument about a field of a request: the message is the field and `what`, which begins
// with a verb ("is 0; it must be at least 1") or a colon.
Status InvalidField(std::string field, std::string what, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE());

}  // namespace meshwright
