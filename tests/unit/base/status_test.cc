#include "base/status.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/result.h"

namespace meshwright {
namespace {

TEST(Status, DefaultIsOkAndSmall) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.ToString(), "ok");
  EXPECT_LE(sizeof(Status), 2 * sizeof(void*));
}

TEST(Status, OkCodeWithAMessageIsStillOk) { EXPECT_TRUE(Status(StatusCode::kOk, "ignored").ok()); }

TEST(Status, CarriesCodeMessageAndPlace) {
  const Status status = NotFound("no worker 7");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.ToString(), "not found: no worker 7");
  EXPECT_NE(status.trail().find("status_test.cc:"), std::string::npos) << status.trail();
}

TEST(Status, CodesHaveTheNumbersOfGrpc) {
  EXPECT_EQ(static_cast<int>(StatusCode::kCancelled), 1);
  EXPECT_EQ(static_cast<int>(StatusCode::kDeadlineExceeded), 4);
  EXPECT_EQ(static_cast<int>(StatusCode::kUnavailable), 14);
  EXPECT_EQ(static_cast<int>(StatusCode::kUnauthenticated), 16);
}

TEST(Status, EveryMakerMakesItsCodeAndEveryCodeHasAName) {
  const Status all[] = {Cancelled("m"),         InvalidArgument("m"),    DeadlineExceeded("m"),
                        NotFound("m"),          AlreadyExists("m"),      PermissionDenied("m"),
                        ResourceExhausted("m"), FailedPrecondition("m"), Aborted("m"),
                        OutOfRange("m"),        Unimplemented("m"),      Internal("m"),
                        Unavailable("m"),       DataLoss("m"),           Unauthenticated("m")};
  const int codes[] = {1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  for (size_t i = 0; i < std::size(codes); ++i) {
    EXPECT_EQ(static_cast<int>(all[i].code()), codes[i]);
    EXPECT_NE(StatusCodeName(all[i].code()), "unknown");
  }
  EXPECT_EQ(StatusCodeName(static_cast<StatusCode>(99)), "unknown");
  EXPECT_EQ(StatusCodeName(static_cast<StatusCode>(-1)), "unknown");
}

TEST(Status, ContextBlameAndLocationMakeCopiesAndKeepTheCause) {
  const Status cause = Unavailable("connection refused");
  const Status passed =
      cause.WithContext("worker 3").WithBlame(Blame::kInfra).WithLocation("planner/lower.cc", 12);
  EXPECT_EQ(passed.message(), "worker 3: connection refused");
  EXPECT_EQ(passed.code(), StatusCode::kUnavailable);
  EXPECT_EQ(passed.blame(), Blame::kInfra);
  EXPECT_NE(passed.trail().find(" < planner/lower.cc:12"), std::string::npos) << passed.trail();
  EXPECT_EQ(cause.message(), "connection refused");
  EXPECT_EQ(cause.blame(), Blame::kUnspecified);
}

TEST(Status, ContextOnOkStaysOk) {
  EXPECT_TRUE(OkStatus().WithContext("x").WithBlame(Blame::kUser).WithLocation("a/b.cc", 1).ok());
}

TEST(Status, EqualityIsByCodeAndMessageNotByPlace) {
  EXPECT_EQ(NotFound("a").WithLocation("x/y.cc", 1), NotFound("a"));
  EXPECT_FALSE(NotFound("a") == NotFound("b"));
  EXPECT_FALSE(NotFound("a") == Internal("a"));
}

TEST(Status, PrintsToStreams) {
  std::ostringstream out;
  out << Aborted("again");
  EXPECT_EQ(out.str(), "aborted: again");
}

Result<int> Half(int value) {
  if (value % 2 != 0) return Fail(InvalidArgument("odd"));
  return value / 2;
}

Result<int> Quarter(int value) {
  MW_ASSIGN_OR_RETURN(const int half, Half(value));
  MW_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

Status CheckEven(int value) {
  MW_TRY(Half(value));
  MW_TRY(value < 100 ? OkStatus() : OutOfRange("large"));
  return OkStatus();
}

TEST(Status, CarriesTheFieldThatItIsAbout) {
  const Status status = InvalidField("train.steps", "is 0; see train.steps");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "train.steps");
  EXPECT_EQ(status.message(), "train.steps is 0; see train.steps");
  EXPECT_EQ(InvalidField("pins", ": 'x' is unknown").message(), "pins: 'x' is unknown");
  EXPECT_EQ(InvalidArgument("train.steps is 0").field(), "");
  EXPECT_EQ(OkStatus().field(), "");
}

TEST(Status, TheFieldHasTheNameThatItsReaderKnows) {
  const Status status = InvalidField("train.steps", "is 0; see train.steps").WithContext("job 3");
  const Status called = status.WithFieldCalled("training.steps").WithContext("job.toml:2:9");
  EXPECT_EQ(called.message(), "job.toml:2:9: job 3: training.steps is 0; see train.steps");
  EXPECT_EQ(called.field(), "train.steps");
  EXPECT_EQ(called.WithBlame(Blame::kUser).message(), called.message());
}

TEST(Result, HoldsAValueOrTheReasonThereIsNone) {
  EXPECT_EQ(Half(4).value(), 2);
  EXPECT_EQ(Half(3).error(), InvalidArgument("odd"));
}

TEST(Result, AssignOrReturnPassesTheFailureOnAndAddsThePlace) {
  EXPECT_EQ(Quarter(8).value(), 2);
  const Result<int> failed = Quarter(6);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().message(), "odd");
  EXPECT_NE(failed.error().trail().find(" < "), std::string::npos) << failed.error().trail();
}

TEST(Result, TryServesStatusAndResult) {
  EXPECT_TRUE(CheckEven(2).ok());
  EXPECT_EQ(CheckEven(3).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckEven(100).code(), StatusCode::kOutOfRange);
}

TEST(Result, MovesValuesThatCannotBeCopied) {
  const auto make = []() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(5); };
  const auto use = [&]() -> Result<int> {
    MW_ASSIGN_OR_RETURN(const std::unique_ptr<int> made, make());
    return *made;
  };
  EXPECT_EQ(use().value(), 5);
}

}  // namespace
}  // namespace meshwright
