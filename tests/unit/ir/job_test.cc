#include "ir/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright::ir {
namespace {

using testing::HasSubstr;

TEST(ValidateJob, NamesStayShortEnoughForListings) {
  JobRequest job;
  for (const size_t bytes : {0, 257}) {
    job.name = std::string(bytes, 'n');
    EXPECT_EQ(ValidateJob(job).code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(ValidateJob(job).message(), HasSubstr("job.name has " + std::to_string(bytes)));
  }
  job.name = std::string(256, 'n');
  EXPECT_THAT(ValidateJob(job).message(), testing::Not(HasSubstr("job.name")));
}

}  // namespace
}  // namespace meshwright::ir
