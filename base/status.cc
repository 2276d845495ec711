#include "base/status.h"

#include <array>
#include <ostream>
#include <utility>

#include "base/check.h"

namespace meshwright {

// message = context + name of the field + text; without a field the text alone is behind the
// context.
struct Status::Detail {
  StatusCode code;
  Blame blame = Blame::kUnspecified;
  std::string field;
  std::string context;  // "a: b: "
  std::string name;     // of the field, as the message calls it
  std::string text;
  std::string message;
  std::string trail;

  void Compose() { message = context + name + text; }
};

namespace {

std::string Location(const char* file, int line) {
  std::string_view path(file);
  // Keep "room/file.cc": what a reader of the source tree can find.
  const size_t last = path.rfind('/');
  if (last != std::string_view::npos) {
    const size_t before = path.rfind('/', last - 1);
    path.remove_prefix(before == std::string_view::npos ? 0 : before + 1);
  }
  return std::string(path) + ":" + std::to_string(line);
}

const std::string& EmptyString() {
  static const std::string empty;
  return empty;
}

}  // namespace

std::string_view StatusCodeName(StatusCode code) {
  static constexpr std::array<std::string_view, 17> kNames = {"ok",
                                                              "cancelled",
                                                              "unknown",
                                                              "invalid argument",
                                                              "deadline exceeded",
                                                              "not found",
                                                              "already exists",
                                                              "permission denied",
                                                              "resource exhausted",
                                                              "failed precondition",
                                                              "aborted",
                                                              "out of range",
                                                              "unimplemented",
                                                              "internal",
                                                              "unavailable",
                                                              "data loss",
                                                              "unauthenticated"};
  const auto index = static_cast<size_t>(code);
  return index < kNames.size() ? kNames[index] : "unknown";
}

Status::Status(StatusCode code, std::string message, const char* file, int line) {
  if (code == StatusCode::kOk) return;
  auto detail = std::make_shared<Detail>();
  detail->code = code;
  detail->text = std::move(message);
  detail->Compose();
  detail->trail = Location(file, line);
  detail_ = std::move(detail);
}

StatusCode Status::code() const { return detail_ ? detail_->code : StatusCode::kOk; }
const std::string& Status::message() const { return detail_ ? detail_->message : EmptyString(); }
Blame Status::blame() const { return detail_ ? detail_->blame : Blame::kUnspecified; }
const std::string& Status::trail() const { return detail_ ? detail_->trail : EmptyString(); }

const std::string& Status::field() const { return detail_ ? detail_->field : EmptyString(); }

Status Status::WithFieldCalled(std::string_view name) const {
  MW_CHECK(!field().empty()) << "an error without a field: " << message();
  auto copy = std::make_shared<Detail>(*detail_);
  copy->name = name;
  copy->Compose();
  Status result;
  result.detail_ = std::move(copy);
  return result;
}

Status InvalidField(std::string field, std::string what, const char* file, int line) {
  auto detail = std::make_shared<Status::Detail>();
  detail->code = StatusCode::kInvalidArgument;
  detail->name = field;
  detail->field = std::move(field);
  detail->text = (what.starts_with(':') ? "" : " ") + std::move(what);
  detail->Compose();
  detail->trail = Location(file, line);
  Status result;
  result.detail_ = std::move(detail);
  return result;
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return *this;
  auto copy = std::make_shared<Detail>(*detail_);
  copy->context = std::string(context) + ": " + copy->context;
  copy->Compose();
  Status result;
  result.detail_ = std::move(copy);
  return result;
}

Status Status::WithBlame(Blame blame) const {
  if (ok()) return *this;
  auto copy = std::make_shared<Detail>(*detail_);
  copy->blame = blame;
  Status result;
  result.detail_ = std::move(copy);
  return result;
}

Status Status::WithLocation(const char* file, int line) const {
  if (ok()) return *this;
  auto copy = std::make_shared<Detail>(*detail_);
  copy->trail += " < " + Location(file, line);
  Status result;
  result.detail_ = std::move(copy);
  return result;
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  return std::string(StatusCodeName(code())) + ": " + message();
}

std::ostream& operator<<(std::ostream& out, const Status& status) {
  return out << status.ToString();
}

#define MW_DEFINE_STATUS_MAKER(Name)                                    \
  Status Name(std::string message, const char* file, int line) {        \
    return Status(StatusCode::k##Name, std::move(message), file, line); \
  }
MW_DEFINE_STATUS_MAKER(Cancelled)
MW_DEFINE_STATUS_MAKER(InvalidArgument)
MW_DEFINE_STATUS_MAKER(DeadlineExceeded)
MW_DEFINE_STATUS_MAKER(NotFound)
MW_DEFINE_STATUS_MAKER(AlreadyExists)
MW_DEFINE_STATUS_MAKER(PermissionDenied)
MW_DEFINE_STATUS_MAKER(ResourceExhausted)
MW_DEFINE_STATUS_MAKER(FailedPrecondition)
MW_DEFINE_STATUS_MAKER(Aborted)
MW_DEFINE_STATUS_MAKER(OutOfRange)
MW_DEFINE_STATUS_MAKER(Unimplemented)
MW_DEFINE_STATUS_MAKER(Internal)
MW_DEFINE_STATUS_MAKER(Unavailable)
MW_DEFINE_STATUS_MAKER(DataLoss)
MW_DEFINE_STATUS_MAKER(Unauthenticated)
#undef MW_DEFINE_STATUS_MAKER

}  // namespace meshwright
