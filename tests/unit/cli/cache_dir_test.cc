#include "cli/cache_dir.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/unit/report/planned_job.h"

namespace meshwright::cli {
namespace {

class FolderCache : public ::testing::Test {
 protected:
  void SetUp() override {
    auto folder = TempDir::Make();
    ASSERT_TRUE(folder) << folder.error();
    folder_ = std::make_unique<TempDir>(*std::move(folder));
  }
  std::shared_ptr<const search::PlanCache> Open(const std::string& build) const {
    return MakeFolderPlanCache(folder_->File("plans"), build);
  }
  std::unique_ptr<TempDir> folder_;
};

TEST_F(FolderCache, KeepsEntriesOfOneBinary) {
  const auto cache = Open("build 1");
  EXPECT_EQ(cache->Read("key").error().code(), StatusCode::kNotFound);
  ASSERT_TRUE(cache->Write("key", "text").ok());
  EXPECT_EQ(cache->Read("key").value_or(""), "text");
  EXPECT_EQ(Open("build 1")->Read("key").value_or(""), "text");
  EXPECT_EQ(Open("build 2")->Read("key").error().code(), StatusCode::kNotFound);
  EXPECT_EQ(cache->Read("other").error().code(), StatusCode::kNotFound);
}

TEST_F(FolderCache, IsOffWhereItIsSaidSo) {
  EXPECT_EQ(OpenPlanCache("off"), nullptr);
  EXPECT_NE(OpenPlanCache(folder_->path()), nullptr);
}

}  // namespace
}  // namespace meshwright::cli
