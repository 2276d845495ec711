// The mailbox of a device: what waits, what is refused, what each order is answered with. What the
// orders do is in runtime_test.cc.
#include "worker/device_actor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <mutex>

#include "tests/unit/worker/program_maker.h"

namespace meshwright::worker {
namespace {

using ::testing::HasSubstr;

// Rows that wait until they are let through; row `bad_row` is an error.
class Gate final : public ops::TokenSource {
 public:
  Status ReadSample(const std::string&, int64_t row, std::span<int32_t> out) override {
    std::call_once(once_, [this] { entered_.set_value(); });
    opened_.wait();
    if (row == bad_row) return DataLoss("a bad row");
    std::fill(out.begin(), out.end(), 0);
    return OkStatus();
  }
  void WaitEntered() { entered_.get_future().wait(); }
  void Open() { open_.set_value(); }
  int64_t bad_row = -1;

 private:
  std::once_flag once_;
  std::promise<void> entered_, open_;
  std::shared_future<void> opened_ = open_.get_future().share();
};

class DeviceActorTest : public ::testing::Test {
 protected:
  DeviceActorTest() {
    ProgramMaker maker("step", 0);
    const SlotId y = maker.Persistent("y", {ir::DType::kI32, {1, 2}});
    maker.Run(maker.Executable(R"(graph "feed" {
                %0 = feed {source="tokens"} : i32[1,2]
                output "rows" %0
              })"),
              {}, {y});
    ir::Program program = maker.Finish();
    RuntimeOptions local = LocalOptions(1, {program});
    fabric_ = collective::MakeCpuFabric(local.fabric, nullptr).value();
    links_.emplace(*fabric_);
    cause_.emplace(*fabric_);
    ActorOptions options;
    options.target = ops::Backend::kCpu;
    options.feed = &gate_;
    LocalDevice device;
    device.device = device::MakeCpuDevice({}).value();
    actor_.emplace(options, std::move(device), *links_, *cause_);
    EXPECT_TRUE(actor_->AddProgram(std::move(program)).ok());
    EXPECT_TRUE(actor_->PostAllocate().ok());
    EXPECT_TRUE(actor_->Wait().ok());
  }

  Gate gate_;
  std::unique_ptr<collective::Fabric> fabric_;
  std::optional<Links> links_;
  std::optional<FirstCause> cause_;
  std::optional<DeviceActor> actor_;
};

TEST_F(DeviceActorTest, OrdersWaitInTheMailboxAndOneTooManyIsRefused) {
  ASSERT_TRUE(actor_->PostSteps({"step", 0, 1}).ok());
  gate_.WaitEntered();
  for (size_t i = 1; i <= DeviceActor::kMailbox; ++i) {
    EXPECT_TRUE(actor_->PostSteps({"step", static_cast<int64_t>(i), static_cast<int64_t>(i)}).ok());
  }
  const Status refused = actor_->PostSteps({"step", 9, 1});
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("4 orders wait for the device"));
  gate_.Open();
  EXPECT_TRUE(actor_->Wait().ok());
  EXPECT_EQ(actor_->stats().instructions.run, 1 + 1 + 2 + 3 + 4);
  // Of the last one.
  EXPECT_GE(actor_->seconds(3), 0);
  EXPECT_TRUE(actor_->PostSteps({"step", 9, 1}).ok());
  EXPECT_TRUE(actor_->Wait().ok());
}

TEST_F(DeviceActorTest, WaitTellsTheFirstFailureOfWhatWasPostedOnce) {
  gate_.bad_row = 1;
  ASSERT_TRUE(actor_->PostSteps({"step", 0, 1}).ok());
  ASSERT_TRUE(actor_->PostSteps({"step", 1, 1}).ok());
  gate_.Open();
  EXPECT_THAT(actor_->Wait().message(), HasSubstr("a bad row"));
  EXPECT_TRUE(cause_->stopped());
  EXPECT_TRUE(actor_->Wait().ok());
}

}  // namespace
}  // namespace meshwright::worker
