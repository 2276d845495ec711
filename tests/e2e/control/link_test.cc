// Bulk calls to a controller that is not there.
#include "worker/link.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <utility>

namespace meshwright::worker {
namespace {

constexpr char kNobody[] = "127.0.0.1:1";

Status Sink(std::string_view) { return OkStatus(); }

TEST(GrpcLink, CancelBulkEndsACallThatWaitsForItsConnection) {
  const auto link = MakeGrpcLink({kNobody, "", ""});
  std::promise<void> waiting;
  bool told = false;
  const auto asked = [&] {
    if (!std::exchange(told, true)) waiting.set_value();
    return false;
  };
  auto fetch = std::async(std::launch::async,
                          [&] { return link->FetchBlob(std::string(64, 'a'), 0, asked, Sink); });
  waiting.get_future().wait();
  link->CancelBulk();
  // A call that nobody ends would say kUnavailable, or that its deadline has passed.
  EXPECT_EQ(fetch.get().code(), StatusCode::kCancelled);
}

TEST(GrpcLink, ACallLooksWhetherItsJobWasAborted) {
  const auto link = MakeGrpcLink({kNobody, "", ""});
  std::atomic<int> asked{0};
  auto put = std::async(std::launch::async, [&] {
    return link->PutTiles([&] { return ++asked > 3; },
                          []() -> Result<std::optional<proto::WeightTile>> {
                            return std::optional<proto::WeightTile>();
                          });
  });
  EXPECT_EQ(put.get().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace meshwright::worker
